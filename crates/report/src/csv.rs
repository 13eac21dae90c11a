//! A run as CSV: one line a result, factors in columns of their own (RFC 4180).
//!
//! Left out: quantiles, modes and launch medians, which the JSON document has.

use std::collections::BTreeSet;

use plumb_analysis::document::{CellResult, RunDocument};
use serde_json::Value;

use crate::printable;

/// The results of a run; the first line names the columns.
pub fn results(document: &RunDocument) -> String {
    let factors: BTreeSet<&String> =
        document.results.iter().flat_map(|result| result.factors.keys()).collect();
    let mut heads = ["run", "experiment", "response"].map(str::to_owned).to_vec();
    heads.extend(factors.iter().map(|factor| (*factor).clone()));
    heads.extend(["unit", "launches", "n"].map(str::to_owned));
    heads.extend(NUMBERS.map(|(head, _)| head.to_owned()));
    heads.push("flags".to_owned());
    let mut text = line(&heads);
    for result in &document.results {
        let mut row =
            vec![document.run.id.clone(), result.experiment.clone(), result.response.clone()];
        row.extend(factors.iter().map(|factor| match result.factors.get(*factor) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        }));
        row.push(result.unit.clone());
        row.extend([result.summary.launches.to_string(), result.summary.n.to_string()]);
        let numbers = NUMBERS.map(|(_, number)| number(result));
        row.extend(numbers.map(|number| number.map_or_else(String::new, |n| n.to_string())));
        row.push(result.flags.join("; "));
        text += &line(&row);
    }
    text
}

fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| quoted(&printable::line(cell))).collect();
    cells.join(",") + "\r\n"
}

/// RFC 4180 §2.6: fields with line breaks, quotes or commas are quoted, quotes doubled.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

/// A number of a result, where it has it.
type ResultNumber = fn(&CellResult) -> Option<f64>;

const NUMBERS: [(&str, ResultNumber); 23] = [
    ("n_eff", |result| Some(result.summary.n_eff)),
    ("min", |result| result.summary.min),
    ("q1", |result| result.summary.q1),
    ("median", |result| result.summary.median),
    ("q3", |result| result.summary.q3),
    ("p90", |result| result.summary.p90),
    ("p99", |result| result.summary.p99),
    ("p999", |result| result.summary.p999),
    ("max", |result| result.summary.max),
    ("mean", |result| result.summary.mean),
    ("printed", |result| result.summary.printed),
    ("ci95_low", |result| result.summary.ci95.map(|ci| ci[0])),
    ("ci95_high", |result| result.summary.ci95.map(|ci| ci[1])),
    ("p90_ci95_low", |result| result.summary.p90_ci95.map(|ci| ci[0])),
    ("p90_ci95_high", |result| result.summary.p90_ci95.map(|ci| ci[1])),
    ("p99_ci95_low", |result| result.summary.p99_ci95.map(|ci| ci[0])),
    ("p99_ci95_high", |result| result.summary.p99_ci95.map(|ci| ci[1])),
    ("p999_ci95_low", |result| result.summary.p999_ci95.map(|ci| ci[0])),
    ("p999_ci95_high", |result| result.summary.p999_ci95.map(|ci| ci[1])),
    ("cpu_local_ns", |result| result.cpu.local),
    ("cpu_peer_ns", |result| result.cpu.peer),
    ("cpu_softirq_ns", |result| result.cpu.softirq),
    ("wall_ns", |result| result.cpu.wall),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_quotes_stay_inside_their_field() {
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("plain"), "plain");
        assert_eq!(
            line(&["a\u{1b}[1m\n".to_owned(), "b".to_owned()]),
            "a\u{fffd}[1m\u{fffd},b\r\n"
        );
    }
}
