//! A TCP connection over time: its window and what is in flight, its round-trip time, what it moved and sent again.

use plumb_analysis::document::stack::{StackConnection, StackConnectionSample};

use super::{Axis, AxisScale, Figure, FigurePoint, Series};
use crate::table::TextTable;

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
