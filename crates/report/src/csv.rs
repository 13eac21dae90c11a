//! A run as CSV: one line a result, factors in columns of their own (RFC 4180).
//!
//! Left out: quantiles, modes and launch medians, which the JSON document has.

use std::collections::BTreeSet;

use plumb_analysis::document::RunDocument;
use serde_json::Value;

/// The results of a run; the first line names the columns.
pub fn results(document: &RunDocument) -> String {
    let factors: BTreeSet<&String> =
        document.results.iter().flat_map(|result| result.factors.keys()).collect();
    let mut heads = vec!["run".to_owned(), "experiment".to_owned(), "response".to_owned()];
    heads.extend(factors.iter().map(|factor| (*factor).clone()));
    heads.extend(NUMBERS.map(str::to_owned));
    let mut text = line(&heads);
    for result in &document.results {
        let (summary, cpu) = (&result.summary, &result.cpu);
        let mut row =
            vec![document.run.id.clone(), result.experiment.clone(), result.response.clone()];
        row.extend(factors.iter().map(|factor| match result.factors.get(*factor) {
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
            None => String::new(),
        }));
        row.push(result.unit.clone());
        row.extend([summary.launches.to_string(), summary.n.to_string()]);
        let numbers = [
            Some(summary.n_eff),
            summary.min,
            summary.q1,
            summary.median,
            summary.q3,
            summary.p90,
            summary.p99,
            summary.p999,
            summary.max,
            summary.mean,
            summary.ci95.map(|ci| ci[0]),
            summary.ci95.map(|ci| ci[1]),
            cpu.local,
            cpu.peer,
            cpu.softirq,
            cpu.wall,
        ];
        row.extend(numbers.map(|number| number.map_or_else(String::new, |n| n.to_string())));
        row.push(result.flags.join("; "));
        text += &line(&row);
    }
    text
}

fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
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

const NUMBERS: [&str; 20] = [
    "unit",
    "launches",
    "n",
    "n_eff",
    "min",
    "q1",
    "median",
    "q3",
    "p90",
    "p99",
    "p999",
    "max",
    "mean",
    "ci95_low",
    "ci95_high",
    "cpu_local_ns",
    "cpu_peer_ns",
    "cpu_softirq_ns",
    "wall_ns",
    "flags",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_quotes_stay_inside_their_field() {
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(quoted("plain"), "plain");
    }
}
