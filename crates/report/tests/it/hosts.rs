//! Experiments over streams on pages and terminals: figures, sentences, names.
//!
//! Left out: whether the made-up numbers are plausible.

use plumb_analysis::document::{CellResult, RunDocument};
use plumb_report::figure::SeriesMarks;
use plumb_report::{headline, registry};
use serde_json::Value;

use crate::{drawn, fixture};

type Levels<'a> = &'a [(&'static str, Value)];

fn cell(experiment: &str, response: &str, levels: Levels<'_>, median: f64) -> CellResult {
    let mut cell = fixture::cell(experiment, response, levels, median);
    let (unit, better) = match response {
        "sender-cpu" | "receiver-cpu" | "throughput" => ("B/s", "higher"),
        "packets" => ("count", "higher"),
        "in-stack" => ("share", "lower"),
        _ => ("ns", "lower"),
    };
    (cell.unit, cell.better) = (unit.to_owned(), better.to_owned());
    cell
}

/// Throughput and both sides' bytes for a second of CPU.
fn streamed(document: &mut RunDocument, experiment: &str, levels: Levels<'_>, rate: f64, cpu: f64) {
    for (response, value) in
        [("throughput", rate), ("sender-cpu", cpu), ("receiver-cpu", 1.3 * cpu)]
    {
        document.results.push(cell(experiment, response, levels, value));
    }
}

fn word(name: &'static str, level: &str) -> (&'static str, Value) {
    (name, Value::from(level))
}

fn scaling(document: &mut RunDocument) {
    let call = [word("call", "getppid")];
    document.results.push(cell("scaling.entry", "call", &call, 71.0));
    let links = [
        ("ethernet-10m", 1.18e6, 3.1e8),
        ("lan-100m", 1.18e7, 9.0e8),
        ("lan-1g", 1.18e8, 1.7e9),
        ("lan-10g", 4.1e8, 1.9e9),
        ("veth", 2.2e9, 2.3e9),
    ];
    for (link, rate, cpu) in links {
        let levels = [word("link", link), word("placement", "same-cpu")];
        streamed(document, "scaling.lan", &levels, rate, cpu);
    }
    for (link, rate) in [("lan-1g", 1.18e8), ("transatlantic", 6e7)] {
        let levels = [word("link", link), word("placement", "same-cpu")];
        streamed(document, "scaling.wan", &levels, rate, 1.6e9);
    }
    for (link, round_trip, rest) in [("loopback", 4e4, 9e5), ("transatlantic", 7e7, 1e7)] {
        for (way, trips) in [
            ("one-each", 26.0),
            ("keep-alive", 14.0),
            ("pipelined", 4.0),
            ("http2", 4.0),
            ("http3", 3.0),
        ] {
            let levels = [word("link", link), word("placement", "same-cpu"), word("way", way)];
            let page = trips * round_trip + rest;
            document.results.push(cell("scaling.http", "page", &levels, page));
        }
    }
    for (placement, rate) in [("same-cpu", 2.5e9), ("same-cache", 3.4e9)] {
        let levels = [word("link", "loopback"), word("placement", placement)];
        streamed(document, "scaling.loopback", &levels, rate, 3e9);
    }
    for link in ["loopback", "veth"] {
        for cpus in [1_u32, 2, 4] {
            for streams in [1_u32, 2, 4] {
                let levels = [
                    word("link", link),
                    ("cpus", Value::from(cpus)),
                    ("streams", Value::from(streams)),
                ];
                let rate = 2e9 * f64::from(cpus.min(2 * streams)).powf(0.8);
                streamed(document, "scaling.smp", &levels, rate, 2.5e9 / f64::from(cpus).sqrt());
            }
        }
    }
}

fn host(document: &mut RunDocument) {
    for (link, peak) in [("loopback", 3.2e9), ("veth", 2.1e9)] {
        for percent in [25_u32, 50, 75, 100] {
            let levels = [
                word("link", link),
                ("cpu-share", Value::from(percent)),
                word("placement", "same-cache"),
            ];
            let rate = peak * (f64::from(percent) / 100.0).powf(0.94);
            streamed(document, "host.peak", &levels, rate, 2.6e9);
            if percent == 100 {
                document.results.push(cell("host.peak", "in-stack", &levels, 0.71));
            }
        }
    }
    let place = || [word("link", "veth"), word("placement", "same-cache")];
    for (buffer, rate) in [
        (Value::from(16 << 10), 7e8),
        (Value::from(64 << 10), 1.6e9),
        (Value::from(512 << 10), 2.2e9),
        (Value::from(4 << 20), 2.0e9),
        (Value::from("default"), 2.1e9),
    ] {
        let levels = [place().as_slice(), &[("buffer", buffer)]].concat();
        streamed(document, "host.buffers", &levels, rate, rate * 1.1);
    }
    for (receive, rate, latency) in [
        ("each", 8e8, Some(14_000.0)),
        ("joined", 1.1e9, Some(15_000.0)),
        ("busy-poll", 1.0e9, Some(9_000.0)),
        ("low-water", 8.4e8, None),
    ] {
        let levels = [word("receive", receive), word("placement", "same-cache")];
        streamed(document, "host.coalescing", &levels, rate, rate * 1.1);
        let latency = latency.map(|ns| cell("host.coalescing", "latency", &levels, ns));
        document.results.extend(latency);
    }
    for (tweak, gain) in [
        ("none", 1.0),
        ("pinned", 1.04),
        ("locked", 1.0),
        ("real-time", 1.01),
        ("huge-pages", 0.99),
        ("all", 1.06),
    ] {
        let levels = [word("link", "loopback"), word("tweak", tweak)];
        streamed(document, "host.tweaks", &levels, 3e9 * gain, 3e9);
    }
    for segmentation in ["off", "on"] {
        for mtu in [576_u32, 1_500, 9_000, 65_535] {
            let levels = [
                ("mtu", Value::from(mtu)),
                word("segmentation", segmentation),
                word("placement", "same-cache"),
            ];
            let is_cut = segmentation == "on";
            let packet = if is_cut { 65_000.0 } else { f64::from(mtu) - 52.0 };
            let cost = 900.0 + packet * 0.3;
            let rate = packet / cost * 1e9;
            streamed(document, "host.mtu", &levels, rate, rate * 1.2);
            document.results.push(cell("host.mtu", "packets", &levels, rate / packet));
            document.results.push(cell("host.mtu", "packet-cpu", &levels, cost));
        }
    }
}

/// Every experiment over streams.
pub fn hosts() -> RunDocument {
    let mut document = fixture::empty("hosts");
    document.notes.insert("clock.ticks_per_ns".to_owned(), "2.4".to_owned());
    scaling(&mut document);
    host(&mut document);
    document
}

const EXPERIMENTS: [&str; 11] = [
    "scaling.entry",
    "scaling.loopback",
    "scaling.lan",
    "scaling.wan",
    "scaling.http",
    "scaling.smp",
    "host.peak",
    "host.buffers",
    "host.coalescing",
    "host.tweaks",
    "host.mtu",
];

#[test]
fn every_experiment_over_streams_has_its_figures_and_data_on_the_page() {
    let counts = [
        ("scaling.loopback", 4),
        ("scaling.lan", 2),
        ("scaling.wan", 2),
        ("scaling.http", 2),
        ("scaling.smp", 6),
        ("host.peak", 2),
        ("host.buffers", 2),
        ("host.coalescing", 4),
        ("host.tweaks", 2),
        ("host.mtu", 4),
    ];
    drawn::page(&hosts(), "hosts", &counts);
}

#[test]
fn the_sentences_of_experiments_over_streams() {
    insta::assert_snapshot!(drawn::sentences(&hosts(), &EXPERIMENTS));
}

#[test]
fn figures_of_cpu_buffers_and_batches_at_80_columns() {
    let all = [("host.peak", 0), ("host.buffers", 0), ("host.coalescing", 1), ("scaling.lan", 0)];
    insta::assert_snapshot!(drawn::figures(&hosts(), &all));
}

#[test]
fn experiments_over_streams_fit_forty_columns_and_ascii() {
    drawn::assert_narrow(&hosts());
}

#[test]
fn the_elasticity_that_is_told_is_that_of_the_curve() {
    let document = hosts();
    let sentences = registry::sentences(&document, "host.peak");
    assert!(sentences[0].contains("0.94"), "{sentences:?}");
    let throughput = &registry::figures(&document, "host.peak")[0];
    let curves = throughput.series.iter().filter_map(|series| match &series.marks {
        SeriesMarks::Line(at) => Some(at),
        _ => None,
    });
    for curve in curves {
        let (first, last) = (curve[0], curve[curve.len() - 1]);
        let elasticity = (last[1] / first[1]).ln() / (last[0] / first[0]).ln();
        assert!((elasticity - 0.94).abs() < 1e-6, "{elasticity}");
    }
}

#[test]
fn the_kernels_own_choice_is_a_line_across_and_a_row_of_the_table() {
    let document = hosts();
    let throughput = &registry::figures(&document, "host.buffers")[0];
    let across = throughput.series.iter().any(|series| match &series.marks {
        SeriesMarks::Line(at) => at.len() == 2 && (at[0][1] - at[1][1]).abs() < 1e-6,
        _ => false,
    });
    assert!(across, "{:?}", throughput.series);
    assert!(throughput.table.rows.iter().any(|row| row[0] == "default"));
}

#[test]
fn a_run_over_streams_has_tiles_with_what_was_asked_first() {
    let mut document = fixture::empty("host.peak");
    host(&mut document);
    let tiles = headline::tiles(&document);
    assert_eq!(tiles[0].label, "TCP's peak");
    assert!(tiles[0].conditions.contains("loopback"), "{tiles:?}");
}
