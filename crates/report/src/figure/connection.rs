//! A TCP connection over time: its window and what is in flight, its round-trip time, what it moved and sent again; or its
//! requests and responses as bars, in the order and at the time at which they passed.

use plumb_analysis::document::advise::{ChattyConnection, ChattyExchange};
use plumb_analysis::document::stack::{StackConnection, StackConnectionSample};
use plumb_base::units::Unit;

use super::{Axis, AxisScale, Figure, FigurePoint, Series, slug};
use crate::table::TextTable;
use crate::value;

/// Samples below which a picture says nothing.
const PLOT_FROM: usize = 5;
/// Rows of a figure's table.
const ROWS_MAX: usize = 50;

/// A named series of a sample's values; none where a sample has no such value.
type SampleSeries<'a> = (&'a str, &'a dyn Fn(&StackConnectionSample) -> Option<f64>);

/// The figures of a connection; none with too few samples.
pub fn figures(connection: &StackConnection) -> Vec<Figure> {
    if connection.series.len() < PLOT_FROM {
        return Vec::new();
    }
    let remote = &connection.remote;
    let draw = |id, title, note: &str, (label, unit), series: &[SampleSeries<'_>]| {
        figure(
            &connection.series,
            (id, title, note, format!("{title} of a connection to {remote}.")),
            (label, unit),
            series,
        )
    };
    let float = |bytes: u64| Some(bytes as f64);
    vec![
        draw(
            "window",
            "Congestion window",
            "What may be in flight, and what is; the threshold ends slow start.",
            ("bytes", "B"),
            &[
                ("window", &|sample| float(sample.cwnd_bytes)),
                ("in flight", &|sample| float(sample.flight_bytes)),
                ("threshold", &|sample| sample.ssthresh_bytes.map(|bytes| bytes as f64)),
            ],
        ),
        draw(
            "rtt",
            "Round-trip time",
            "Smoothed (RFC 6298).",
            ("round trip", "ns"),
            &[("", &|sample| sample.srtt_ns)],
        ),
        draw(
            "moved",
            "Bytes moved",
            "Delivered to the peer, or received from it, since the connection was opened.",
            ("bytes", "B"),
            &[("", &|sample| float(sample.bytes))],
        ),
        draw(
            "retransmits",
            "Retransmits",
            "Retransmits since the connection was opened.",
            ("segments", "count"),
            &[("", &|sample| float(sample.retransmits))],
        ),
    ]
}

fn figure(
    samples: &[StackConnectionSample],
    (id, title, note, alt): (&str, &str, &str, String),
    (label, unit): (&str, &str),
    series: &[SampleSeries<'_>],
) -> Figure {
    let points = |value: &dyn Fn(&StackConnectionSample) -> Option<f64>| {
        let points =
            samples.iter().filter_map(|sample| Some((sample.seconds * 1e9, value(sample)?)));
        points.map(|(x, y)| FigurePoint::at(x, y)).collect::<Vec<FigurePoint>>()
    };
    let drawn: Vec<Series> = (0_u8..)
        .zip(series)
        .map(|(slot, (name, value))| Series::points((*name).to_owned(), slot, true, points(value)))
        .collect();
    let highest =
        series.iter().flat_map(|(_, value)| samples.iter().filter_map(value)).fold(1.0, f64::max);
    Figure {
        id: id.to_owned(),
        title: title.to_owned(),
        note: note.to_owned(),
        alt,
        x: Axis::with_scale("time since the SYN", "ns", AxisScale::Linear),
        y: Axis::from_zero(label, unit, highest),
        series: drawn,
        table: table(samples, series),
    }
}

fn table(samples: &[StackConnectionSample], series: &[SampleSeries<'_>]) -> TextTable {
    let heads: Vec<String> = std::iter::once("#seconds".to_owned())
        .chain(
            series
                .iter()
                .map(|(name, _)| format!("#{}", if name.is_empty() { "value" } else { name })),
        )
        .collect();
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut table = TextTable::with_heads(&heads);
    for sample in samples.iter().step_by(samples.len().div_ceil(ROWS_MAX)) {
        let values = series.iter().map(|(_, value)| {
            value(sample).map_or_else(String::new, |value| format!("{value:.0}"))
        });
        table.push(std::iter::once(format!("{:.3}", sample.seconds)).chain(values));
    }
    table
}

/// Bars of a picture, at most.
const EXCHANGES_MAX: usize = 30;

/// The first exchanges of a connection; none where it has none.
pub fn waterfall(connection: &ChattyConnection) -> Option<Figure> {
    let shown: Vec<&ChattyExchange> = connection.exchanges.iter().take(EXCHANGES_MAX).collect();
    if shown.is_empty() {
        return None;
    }
    let mut stacks = [Vec::new(), Vec::new(), Vec::new()];
    for (row, exchange) in shown.iter().enumerate() {
        let times = [exchange.request_ns, exchange.sent_ns, exchange.response_ns, exchange.end_ns];
        for (stack, pair) in stacks.iter_mut().zip(times.windows(2)) {
            stack.push([row as f64, pair[0] as f64, pair[1] as f64]);
        }
    }
    let [request, waiting, response] = stacks;
    let names = (1..=shown.len()).map(|number| number.to_string()).collect();
    let ends = format!("{} to {}", connection.client, connection.server);
    let round_trips = connection.round_trips;
    Some(Figure {
        id: slug(&[
            "waterfall",
            &connection.client,
            &connection.server,
            &connection.begin_ns.to_string(),
        ]),
        note: format!(
            "One row a dependent round trip, the first {} of {round_trips}, as they passed the point of capture. Between rows the client \
             thinks.",
            shown.len()
        ),
        alt: format!("{ends}: {round_trips} dependent round trips."),
        title: "Requests and responses".to_owned(),
        x: Axis::with_scale("after the first packet", NS.name(), AxisScale::Linear),
        y: Axis::names("", names),
        series: vec![
            Series::stack("request".to_owned(), 0, request, false),
            Series::stack("waiting".to_owned(), 3, waiting, true),
            Series::stack("response".to_owned(), 2, response, false),
        ],
        table: exchange_table(&shown),
    })
}

fn exchange_table(shown: &[&ChattyExchange]) -> TextTable {
    let time = |ns: u64| value::plain(NS, ns as f64);
    let bytes = |bytes: u64| value::plain(Unit::Bytes, bytes as f64);
    TextTable::of_rows(
        shown.iter().copied(),
        &[
            ("#at", &|exchange: &ChattyExchange| time(exchange.request_ns)),
            ("#request", &|exchange| bytes(exchange.request_bytes)),
            ("#waiting", &|exchange| time(exchange.response_ns - exchange.sent_ns)),
            ("#response", &|exchange| bytes(exchange.response_bytes)),
            ("#until its end", &|exchange| time(exchange.end_ns - exchange.response_ns)),
        ],
    )
}

const NS: Unit = Unit::Nanoseconds;
