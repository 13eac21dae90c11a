//! The requests and responses of a TCP connection as bars, in the order and at the time at which they passed.

use plumb_analysis::document::chatty::{ChattyConnection, ChattyExchange};
use plumb_base::units::Unit;

use super::{Axis, AxisScale, Figure, Series, slug};
use crate::table::TextTable;
use crate::value;

/// Bars of a picture, at most.
const ROWS_MAX: usize = 30;

/// The first exchanges of a connection; none where it has none.
pub fn figure(connection: &ChattyConnection) -> Option<Figure> {
    let shown: Vec<&ChattyExchange> = connection.exchanges.iter().take(ROWS_MAX).collect();
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
        table: table(&shown),
    })
}

fn table(shown: &[&ChattyExchange]) -> TextTable {
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
