//! A run in Prometheus' text format, as node exporter's textfile collector reads it.
//!
//! Base units (seconds, bytes a second, bytes, ratios), one metric for each, the statistic and the
//! factors as labels, no timestamps, for the collector refuses them. Left out: quantiles for
//! figures, modes and launch medians, which the JSON document has; claims.
//! Source: Prometheus, "Exposition formats", version 0.0.4.

use std::collections::BTreeMap;
use std::fmt::Write;

use plumb_analysis::document::{CellResult, RunDocument};
use serde_json::Value;

use crate::printable;

/// The metrics of a run; every line ends in a line feed, the last one too.
pub fn run(document: &RunDocument) -> String {
    let mut metrics = MetricsExposition::default();
    let run = [("run".to_owned(), document.run.id.clone())];
    let mut about = run.to_vec();
    about.extend([
        ("title".to_owned(), document.run.title.clone()),
        ("status".to_owned(), document.run.status.clone()),
        ("code".to_owned(), document.run.code.clone()),
        ("created".to_owned(), document.run.created.clone()),
    ]);
    metrics.add("plumb_run_info", "A run: its title, status and code.", about, 1.0);
    let is_imported = document.run.status == "imported";
    if !is_imported {
        let trusted = f64::from(u8::from(document.trust.trusted));
        let help = "1 where few enough blocks of the run were disturbed to trust it.";
        metrics.add("plumb_run_trusted", help, run.to_vec(), trusted);
    }
    let origin = if is_imported { "imported" } else { "measured" };
    for result in &document.results {
        let mut labels = run.to_vec();
        labels.push(("origin".to_owned(), origin.to_owned()));
        labels.push(("experiment".to_owned(), result.experiment.clone()));
        labels.push(("response".to_owned(), result.response.clone()));
        labels.extend(factors(&result.factors));
        metrics.result(result, &labels);
    }
    metrics.text()
}

/// Label names and values of one sample.
type MetricLabels = Vec<(String, String)>;

/// A metric: its help text and its samples, which the format wants together.
struct MetricFamily {
    help: &'static str,
    samples: Vec<(MetricLabels, f64)>,
}

/// The metrics by name.
#[derive(Default)]
struct MetricsExposition(BTreeMap<&'static str, MetricFamily>);

impl MetricsExposition {
    fn add(&mut self, name: &'static str, help: &'static str, labels: MetricLabels, value: f64) {
        if value.is_finite() {
            let metric = self.0.entry(name).or_insert(MetricFamily { help, samples: Vec::new() });
            metric.samples.push((labels, value));
        }
    }

    fn result(&mut self, result: &CellResult, labels: &MetricLabels) {
        let (name, help, scale) = metric(&result.unit);
        let summary = &result.summary;
        let statistics = [
            ("min", summary.min),
            ("p25", summary.q1),
            ("median", summary.median),
            ("p75", summary.q3),
            ("p90", summary.p90),
            ("p99", summary.p99),
            ("p99.9", summary.p999),
            ("max", summary.max),
            ("mean", summary.mean),
            ("printed", summary.printed),
            ("ci95-low", summary.ci95.map(|ends| ends[0])),
            ("ci95-high", summary.ci95.map(|ends| ends[1])),
            ("p90-ci95-low", summary.p90_ci95.map(|ends| ends[0])),
            ("p90-ci95-high", summary.p90_ci95.map(|ends| ends[1])),
            ("p99-ci95-low", summary.p99_ci95.map(|ends| ends[0])),
            ("p99-ci95-high", summary.p99_ci95.map(|ends| ends[1])),
            ("p99.9-ci95-low", summary.p999_ci95.map(|ends| ends[0])),
            ("p99.9-ci95-high", summary.p999_ci95.map(|ends| ends[1])),
        ];
        for (statistic, value) in statistics {
            if let Some(value) = value {
                let labels = with(labels, "statistic", statistic);
                self.add(name, help, labels, scaled(value, scale));
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a count of samples")]
        let (samples, launches) = (summary.n as f64, summary.launches as f64);
        let help = "Samples behind a result; 0 where another tool did not say.";
        self.add("plumb_result_samples", help, labels.clone(), samples);
        let help = "Fresh pairs of processes behind a result; 0 where another tool measured it.";
        self.add("plumb_result_launches", help, labels.clone(), launches);
        let cpu = &result.cpu;
        for (side, cost) in [("local", cpu.local), ("peer", cpu.peer)] {
            if let Some(ns) = cost {
                let help = "CPU seconds of an operation, by who spent them.";
                let labels = with(labels, "side", side);
                self.add("plumb_result_cpu_seconds", help, labels, scaled(ns, 1e9));
            }
        }
        if let Some(ns) = cpu.softirq {
            let help = "Softirq seconds of the CPUs used, for an operation; may also be in \
                        plumb_result_cpu_seconds, so do not add them.";
            self.add("plumb_result_softirq_seconds", help, labels.clone(), scaled(ns, 1e9));
        }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        for (name, MetricFamily { help, samples }) in &self.0 {
            text += &format!("# HELP {name} {help}\n# TYPE {name} gauge\n");
            for (labels, value) in samples {
                let labels: Vec<String> = labels
                    .iter()
                    .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
                    .collect();
                writeln!(text, "{name}{{{}}} {value}", labels.join(","))
                    .expect("a string can be written to");
            }
        }
        text
    }
}

/// The metric of a stored unit, its help text, and what one base unit is in stored units.
fn metric(unit: &str) -> (&'static str, &'static str, f64) {
    match unit {
        "ns" => ("plumb_result_seconds", "Results that are times.", 1e9),
        "B/s" => ("plumb_result_bytes_per_second", "Results that are rates of bytes.", 1.0),
        "B" => ("plumb_result_bytes", "Results that are bytes.", 1.0),
        "share" => ("plumb_result_ratio", "Results that are shares of 1.", 1.0),
        _ => ("plumb_result_number", "Results that are counts.", 1.0),
    }
}

/// A value in base units, without the noise of dividing: no result has twelve digits.
fn scaled(value: f64, scale: f64) -> f64 {
    let value = value / scale;
    format!("{value:.11e}").parse().unwrap_or(value)
}

fn with(labels: &MetricLabels, name: &str, value: &str) -> MetricLabels {
    let mut labels = labels.clone();
    labels.push((name.to_owned(), value.to_owned()));
    labels
}

/// Labels that are not factors: plumb's own, and those that Prometheus gives a meaning.
const RESERVED_LABELS: [&str; 10] = [
    "run",
    "origin",
    "experiment",
    "response",
    "statistic",
    "side",
    "job",
    "instance",
    "le",
    "quantile",
];

/// Factors as labels, no two of the same name.
fn factors(factors: &BTreeMap<String, Value>) -> MetricLabels {
    let mut labels: MetricLabels = Vec::new();
    for (factor, level) in factors {
        let mut name = label(factor);
        while RESERVED_LABELS.contains(&name.as_str())
            || labels.iter().any(|(known, _)| *known == name)
        {
            name = format!("factor_{name}");
        }
        let value = match level {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        labels.push((name, value));
    }
    labels
}

/// A name that a label may have: `[a-zA-Z_][a-zA-Z0-9_]*`, and not two underscores first.
fn label(name: &str) -> String {
    let name: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name
    } else {
        format!("factor_{name}")
    }
}

/// A label's value: backslash, double quote and line feed are escaped, other control characters replaced.
fn escaped(value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    printable::line(&value).into_owned()
}

#[cfg(test)]
mod tests {
    use plumb_analysis::document::{RUN_SCHEMA, SampleSummary};

    use super::*;

    fn document(status: &str, factors: &[(&str, Value)]) -> RunDocument {
        let json = serde_json::json!({
            "schema": RUN_SCHEMA,
            "run": {
                "id": "a-1", "title": "latency", "created": "2026-11-21T00:00:00Z",
                "status": status, "seed": 1, "code": "0.1.0", "plan": "",
            },
            "machine": {}, "notes": {},
            "trust": { "blocks": 4, "flagged": 0, "trusted": true, "flags": {} },
            "results": [], "unavailable": [], "claims": [],
        });
        let mut document: RunDocument = serde_json::from_value(json).unwrap();
        document.results.push(CellResult {
            experiment: "latency.local".to_owned(),
            factors: factors.iter().map(|(name, v)| ((*name).to_owned(), v.clone())).collect(),
            response: "latency".to_owned(),
            unit: "ns".to_owned(),
            better: "lower".to_owned(),
            summary: SampleSummary {
                launches: 4,
                n: 1000,
                median: Some(2500.0),
                mean: Some(f64::NAN),
                ..SampleSummary::default()
            },
            cpu: plumb_analysis::document::CpuCost {
                local: Some(900.0),
                softirq: Some(100.0),
                ..plumb_analysis::document::CpuCost::default()
            },
            counters: BTreeMap::new(),
            flags: Vec::new(),
        });
        document
    }

    #[test]
    fn softirq_time_is_no_part_of_a_sum() {
        let text = run(&document("complete", &[]));
        let sides: Vec<&str> =
            text.lines().filter(|line| line.starts_with("plumb_result_cpu_seconds{")).collect();
        assert!(matches!(sides[..], [one] if one.contains("side=\"local\"")), "{sides:?}");
        assert!(text.contains("plumb_result_softirq_seconds{run=\"a-1\""), "{text}");
    }

    #[test]
    fn times_are_seconds_and_what_is_no_number_is_left_out() {
        let text = run(&document("complete", &[("mechanism", "pipe".into()), ("size", 64.into())]));
        assert!(text.contains(
            "# HELP plumb_result_seconds Results that are times.\n\
             # TYPE plumb_result_seconds gauge\n\
             plumb_result_seconds{run=\"a-1\",origin=\"measured\",experiment=\"latency.local\",\
             response=\"latency\",mechanism=\"pipe\",size=\"64\",statistic=\"median\"} 0.0000025\n"
        ));
        assert!(!text.contains("NaN") && !text.contains("statistic=\"mean\""), "{text}");
        assert!(text.ends_with('\n') && !text.contains('\r'));
        assert!(text.contains("plumb_run_trusted{run=\"a-1\"} 1\n"));
    }

    #[test]
    fn every_metric_has_its_help_and_type_once_and_first() {
        let text = run(&document("complete", &[]));
        let mut seen = Vec::new();
        let mut current = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                current = rest.split(' ').next().unwrap();
                assert!(!seen.contains(&current), "{current} twice");
                seen.push(current);
            } else if !line.starts_with("# TYPE ") {
                assert_eq!(line.split('{').next(), Some(current));
            }
        }
        assert!(seen.len() >= 4, "{seen:?}");
    }

    #[test]
    fn odd_factors_neither_break_a_line_nor_share_a_label() {
        let odd = [
            ("a-b", Value::from("x\\y\n\"z\"")),
            ("a_b", 1.into()),
            ("run", 2.into()),
            ("9p", 3.into()),
            ("__name__", 4.into()),
        ];
        let text = run(&document("complete", &odd));
        let line = text.lines().find(|l| l.starts_with("plumb_result_samples{")).unwrap();
        for part in [
            "a_b=\"x\\\\y\\n\\\"z\\\"\"",
            "factor_a_b=\"1\"",
            "factor_run=\"2\"",
            "factor_9p=\"3\"",
            "factor___name__=\"4\"",
        ] {
            assert!(line.contains(part), "{part} is not in {line}");
        }
    }

    #[test]
    fn imported_results_say_so_and_are_not_called_trusted() {
        let text = run(&document("imported", &[]));
        assert!(text.contains("origin=\"imported\"") && !text.contains("plumb_run_trusted"));
    }
}
