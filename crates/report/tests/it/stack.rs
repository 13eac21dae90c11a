//! Study `stack` on pages and terminals: figures, sentences, what is said about cells without numbers.
//!
//! Left out: whether the made-up numbers are plausible.

use std::collections::BTreeMap;

use plumb_analysis::document::MeasuredRatio;
use plumb_analysis::document::explain::{ExplainDocument, explain};
use plumb_analysis::document::{BreakdownSummary, MeanEstimate, PartMean};
use plumb_analysis::document::{RunDocument, UnavailableCell};
use plumb_report::terminal::{self, TerminalStyle, summary};
use plumb_report::{html, registry};
use serde_json::Value;

use crate::drawn::{self, widest};
use crate::fixture;

type Levels = Vec<(&'static str, Value)>;

fn factors(levels: &Levels) -> BTreeMap<String, Value> {
    levels.iter().map(|(name, level)| ((*name).to_owned(), level.clone())).collect()
}

fn ratio(experiment: &str, response: &str, of: &Levels, to: &Levels, ratio: f64) -> MeasuredRatio {
    MeasuredRatio {
        experiment: experiment.to_owned(),
        response: response.to_owned(),
        of: factors(of),
        to: factors(to),
        ratio,
        ci95: [ratio * 0.97, ratio * 1.03],
    }
}

fn mirror(stack: &str, device: &str, frame: u64, placement: &str, wake: &str) -> Levels {
    vec![
        ("stack", Value::from(stack)),
        ("device", Value::from(device)),
        ("frame", Value::from(frame)),
        ("placement", Value::from(placement)),
        ("wake", Value::from(wake)),
        ("checksum", Value::from("computed")),
        ("family", Value::from("ipv4")),
    ]
}

const STACKS: [(&str, &str, f64); 5] = [
    ("linux", "veth", 1.0),
    ("plumb", "tap", 0.75),
    ("plumb", "packet", 0.9),
    ("plumb", "xdp", 0.6),
    ("smoltcp", "tap", 0.85),
];

fn mirrors(document: &mut RunDocument) {
    for (placement, wake, base) in [
        ("same-cpu", "block", 4_100.0),
        ("same-cache", "block", 66_000.0),
        ("same-cache", "spin", 2_900.0),
    ] {
        for frame in [60_u64, 1514] {
            let linux = mirror("linux", "veth", frame, placement, wake);
            for (stack, device, share) in STACKS {
                let levels = mirror(stack, device, frame, placement, wake);
                let ns = (base + frame as f64 * 0.3) * share;
                document.results.push(fixture::cell("mirror.rtt", "rtt", &levels, ns));
                let mut open = levels.clone();
                open[5].1 = Value::from("offloaded");
                document.results.push(fixture::cell("mirror.rtt", "rtt", &open, ns * 0.97));
                if stack != "linux" {
                    document.ratios.push(ratio("mirror.rtt", "rtt", &levels, &linux, share));
                }
            }
        }
    }
}

fn times(document: &mut RunDocument) {
    for frame in [60_u64, 1514] {
        for (stack, device, share) in STACKS {
            let levels = mirror(stack, device, frame, "same-cpu", "block");
            let ns = (1_500.0 + frame as f64 * 0.2) * share;
            for (response, part) in [("stack", 1.0), ("receive", 0.6), ("send", 0.4)] {
                document.results.push(fixture::cell("stack.time", response, &levels, ns * part));
            }
            if stack == "plumb" {
                let linux = mirror("linux", "veth", frame, "same-cpu", "block");
                document.ratios.push(ratio("stack.time", "stack", &levels, &linux, share));
            }
            if stack == "linux" {
                document.results.push(fixture::cell("stack.time", "switch", &levels, 900.0));
            }
        }
    }
}

fn replays(document: &mut RunDocument) {
    for frame in [60_u64, 1514, 65_549] {
        for cache in ["warm", "cold"] {
            let turns = [
                ("udp", 1.0),
                ("udp-unsummed", 0.8),
                ("fused", 1.3),
                ("separate", 1.7),
                ("swap", 0.5),
            ];
            let levels = |turn: &str| {
                let stack = ("stack", Value::from("plumb"));
                let frame = ("frame", Value::from(frame));
                vec![stack, ("turn", Value::from(turn)), ("cache", Value::from(cache)), frame]
            };
            for (turn, share) in turns {
                let ns = (60.0 + frame as f64 * 0.05) * share;
                document.results.push(fixture::cell("stack.replay", "packet", &levels(turn), ns));
            }
            let (without, with) = (levels("udp-unsummed"), levels("udp"));
            document.ratios.push(ratio("stack.replay", "packet", &without, &with, 0.8));
        }
        if frame < 2_000 {
            let smoltcp = vec![("stack", Value::from("smoltcp")), ("frame", Value::from(frame))];
            document.results.push(fixture::cell("stack.replay", "packet", &smoltcp, 250.0));
        }
    }
}

fn sums(document: &mut RunDocument) {
    for (cache, slow) in [("warm", 1.0), ("cold", 4.0)] {
        for size in [60_u64, 1514, 65_536] {
            let levels = |operation: &str, kernel: &str| {
                let mut levels = vec![("operation", Value::from(operation))];
                if operation != "copy" {
                    levels.push(("kernel", Value::from(kernel)));
                }
                levels.extend([("cache", Value::from(cache)), ("size", Value::from(size))]);
                levels
            };
            let ns = |share: f64| (4.0 + size as f64 / 40.0 * slow) * share;
            let copy = levels("copy", "");
            document.results.push(fixture::cell("stack.checksum", "time", &copy, ns(1.0)));
            for (kernel, share) in [("portable", 2.4), ("avx2", 1.2), ("avx512-vnni", 1.03)] {
                for (operation, more) in [("sum", 0.7), ("separate", 1.8), ("fused", 1.0)] {
                    let cell = levels(operation, kernel);
                    let cell = fixture::cell("stack.checksum", "time", &cell, ns(share * more));
                    document.results.push(cell);
                }
                let (fused, separate) = (levels("fused", kernel), levels("separate", kernel));
                document.ratios.push(ratio("stack.checksum", "time", &fused, &copy, share));
                document.ratios.push(ratio("stack.checksum", "time", &separate, &fused, 1.8));
            }
        }
    }
}

fn contention(document: &mut RunDocument) {
    for frame in [60_u64, 1514] {
        let levels = |kernel: &str| {
            let mut levels = mirror("plumb", "packet", frame, "same-cpu", "block");
            levels.truncate(5);
            levels.push(("kernel", Value::from(kernel)));
            levels
        };
        for (kernel, ns) in [("drops", 3_900.0), ("decodes", 4_600.0)] {
            document.results.push(fixture::cell("stack.contention", "rtt", &levels(kernel), ns));
        }
        let (above, below) = (levels("decodes"), levels("drops"));
        document.ratios.push(ratio("stack.contention", "rtt", &above, &below, 1.18));
    }
}

/// Round trips in parts at two placements.
pub fn breakdowns() -> Vec<BreakdownSummary> {
    const PARTS: [(&str, [f64; 4]); 10] = [
        ("call-entry", [90.0, 95.0, 100.0, 110.0]),
        ("send-path", [420.0, 700.0, 1_900.0, 2_900.0]),
        ("device", [0.0, 0.0, 240.0, 260.0]),
        ("receive-path", [0.0, 0.0, 1_100.0, 1_900.0]),
        ("wake-up", [500.0, 520.0, 560.0, 570.0]),
        ("send-returns", [180.0, 190.0, 200.0, 210.0]),
        ("receive-call-sleeps", [600.0, 620.0, 640.0, 650.0]),
        ("context-switch", [1_300.0, 1_320.0, 1_350.0, 1_380.0]),
        ("copy-and-return", [280.0, 310.0, 420.0, 560.0]),
        ("call-exit", [60.0, 62.0, 66.0, 70.0]),
    ];
    let mut found = Vec::new();
    for (placement, waking) in [("same-cpu", 1.0), ("same-cache", 80.0)] {
        for (index, mechanism) in ["pipe", "unix-stream", "udp4", "tcp4"].into_iter().enumerate() {
            let scale = |part: &str| if part == "wake-up" { waking } else { 1.0 };
            let parts: Vec<(&str, f64)> = PARTS
                .iter()
                .map(|(part, ns)| (*part, ns[index] * scale(part)))
                .filter(|(_, ns)| *ns > 0.0)
                .collect();
            let known: f64 = parts.iter().map(|(_, ns)| ns).sum();
            let rest = known * 0.05;
            let sum = known + rest;
            let mean = |mean: f64| MeanEstimate { mean, ci95: Some([mean * 0.96, mean * 1.04]) };
            found.push(BreakdownSummary {
                experiment: "breakdown.local".to_owned(),
                factors: BTreeMap::from([
                    ("mechanism".to_owned(), Value::from(mechanism)),
                    ("placement".to_owned(), Value::from(placement)),
                    ("size".to_owned(), Value::from(64)),
                ]),
                parts: parts
                    .iter()
                    .map(|(part, ns)| PartMean {
                        part: (*part).to_owned(),
                        mean: *ns,
                        ci95: mean(*ns).ci95,
                        share: ns / sum,
                    })
                    .collect(),
                unexplained: mean(rest),
                unexplained_share: mean(rest / sum),
                sum,
                whole: Some(mean(sum)),
                probed: Some(mean(sum * 1.08)),
                probe_cost: Some(mean(0.08)),
                launches: 5,
            });
        }
    }
    found
}

/// A whole run of the study.
pub fn stack() -> RunDocument {
    let mut document = fixture::empty("stack");
    mirrors(&mut document);
    times(&mut document);
    sums(&mut document);
    replays(&mut document);
    contention(&mut document);
    document.breakdowns = breakdowns();
    for entry in &document.breakdowns {
        let levels: Vec<(&str, Value)> =
            entry.factors.iter().map(|(name, level)| (name.as_str(), level.clone())).collect();
        let cell = fixture::cell("breakdown.local", "rtt", &levels, entry.sum);
        document.results.push(cell);
    }
    for frame in [60_u64, 128, 256, 512, 1024, 1514] {
        for wake in ["block", "spin"] {
            document.unavailable.push(UnavailableCell {
                experiment: "mirror.rtt".to_owned(),
                factors: factors(&mirror("smoltcp", "tap", frame, "same-cache", wake)),
                response: "rtt".to_owned(),
                state: "unavailable".to_owned(),
                reason: "the mirror of smoltcp is not installed".to_owned(),
            });
        }
    }
    document
}

fn explained() -> ExplainDocument {
    explain(plumb_experiments::list::EXPLAINED, &fixture::ladder(), &stack())
}

const EXPERIMENTS: [&str; 6] = [
    "mirror.rtt",
    "stack.time",
    "stack.checksum",
    "stack.replay",
    "stack.contention",
    "breakdown.local",
];

#[test]
fn every_experiment_of_the_study_has_its_figures_on_the_page() {
    let figures = [6, 2, 2, 6, 2, 2];
    let counts: Vec<_> = EXPERIMENTS.into_iter().zip(figures).collect();
    drawn::page(&stack(), "stack", &counts);
}

#[test]
fn the_page_of_an_explanation_has_the_stored_latencies_first() {
    let page = html::explain(&explained(), &stack());
    std::fs::write(concat!(env!("CARGO_TARGET_TMPDIR"), "/explain.html"), &page).unwrap();
    let (before, _) = page.split_once("<figure").unwrap();
    assert!(before.contains("The rungs explained"));
}

#[test]
fn the_sentences_of_the_study_at_80_columns() {
    insta::assert_snapshot!(drawn::sentences(&stack(), &EXPERIMENTS));
}

#[test]
fn an_explanation_at_80_columns() {
    insta::assert_snapshot!(terminal::explain::render(&explained(), TerminalStyle::plain(80)));
}

#[test]
fn an_explanation_fits_every_width_and_ascii() {
    for width in [40, 60, 80, 100, 120] {
        let text = terminal::explain::render(&explained(), TerminalStyle::plain(width));
        assert!(widest(&text) <= usize::from(width), "{width}: {}\n{text}", widest(&text));
    }
    let ascii = TerminalStyle { color: false, unicode: false, width: 80 };
    assert!(terminal::explain::render(&explained(), ascii).is_ascii());
}

#[test]
fn the_study_fits_forty_columns_and_ascii() {
    drawn::assert_narrow(&stack());
}

#[test]
fn cells_without_numbers_are_told_once_with_what_they_share() {
    let text = summary::unavailable(&stack().unavailable, TerminalStyle::plain(200));
    assert_eq!(
        text,
        "Not measured\n  mirror.rtt smoltcp over tap, other CPU, same cache, IPv4, checksums \
         computed, 6 levels of frame, blocking or spinning (12 cells): the mirror of smoltcp is not \
         installed\n\n"
    );
}

#[test]
fn bars_laid_end_to_end_end_at_their_sum() {
    for figure in registry::figures(&stack(), "breakdown.local") {
        let mut ends = [0.0_f64; 4];
        let mut lengths = [0.0_f64; 4];
        for series in &figure.series {
            let plumb_report::figure::SeriesMarks::Stack { segments, .. } = &series.marks else {
                unreachable!("a breakdown is made of bars")
            };
            for [row, from, to] in segments {
                let row = (0..4).find(|index| (f64::from(*index) - row).abs() < 0.5).unwrap();
                let row = usize::try_from(row).unwrap();
                ends[row] = ends[row].max(*to);
                lengths[row] += to - from;
            }
        }
        for (end, length) in ends.iter().zip(lengths) {
            assert!((end - length).abs() < 1e-6, "{end} {length}");
        }
    }
}
