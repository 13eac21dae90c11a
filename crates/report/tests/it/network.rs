//! Experiments over networks on pages and terminals: figures, sentences, names.
//!
//! Left out: whether the made-up numbers are plausible.

use plumb_analysis::document::RunDocument;
use plumb_report::figure::SeriesMarks;
use plumb_report::{markdown, registry};
use serde_json::Value;

use crate::{drawn, fixture};

type Levels = Vec<(&'static str, Value)>;

fn remote(document: &mut RunDocument) {
    let links = [("loopback", 7e3, 0.3), ("veth", 8e3, 0.4), ("lan-1g", 4e4, 9.0)];
    for (experiment, response) in [
        ("latency.remote", "latency"),
        ("throughput.remote", "throughput"),
        ("throughput.remote", "throughput.acked"),
    ] {
        for (mechanism, factor) in [("tcp4", 1.0), ("udp4", 0.8)] {
            for (link, base, per_byte) in links {
                for size in [16_u64, 1024, 65_536] {
                    let levels = [
                        ("mechanism", Value::from(mechanism)),
                        ("link", Value::from(link)),
                        ("size", Value::from(size)),
                        ("placement", Value::from("same-cpu")),
                        ("wake", Value::from("block")),
                    ];
                    let ns = (base + per_byte * size as f64) * factor;
                    let value = if response == "latency" { ns } else { size as f64 / ns * 1e9 };
                    document.results.push(fixture::cell(experiment, response, &levels, value));
                }
            }
        }
    }
}

fn lengths(document: &mut RunDocument) {
    for (forwarder, slope, rate) in [("plumb", 23_000.0, 1.2e8), ("linux", 900.0, 2e9)] {
        for (mechanism, base) in [("tcp4", 31_000.0), ("udp4", 27_000.0)] {
            for routers in [0_u32, 1, 2, 4, 8] {
                let levels: Levels = vec![
                    ("mechanism", Value::from(mechanism)),
                    ("forwarder", Value::from(forwarder)),
                    ("routers", Value::from(routers)),
                    ("size", Value::from(64)),
                    ("placement", Value::from("same-cpu")),
                ];
                let ns = base + slope * f64::from(routers);
                document.results.push(fixture::cell("path.length", "latency", &levels, ns));
                if mechanism == "tcp4" {
                    let rate = rate / (1.0 + f64::from(routers) * 0.01);
                    let cell = fixture::cell("path.length", "throughput", &levels, rate);
                    document.results.push(cell);
                }
            }
        }
    }
}

fn windows(document: &mut RunDocument) {
    for congestion in ["cubic", "reno"] {
        for (rate, bytes) in [("10mbit", 1.25e6), ("100mbit", 12.5e6)] {
            for (rtt, seconds) in [("1ms", 0.001), ("20ms", 0.02), ("100ms", 0.1)] {
                for window in [8_u64 << 10, 64 << 10, 512 << 10, 4 << 20] {
                    let levels: Levels = vec![
                        ("congestion", Value::from(congestion)),
                        ("rate", Value::from(rate)),
                        ("rtt", Value::from(rtt)),
                        ("window", Value::from(window)),
                        ("queue", Value::from("1bdp")),
                        ("placement", Value::from("same-cpu")),
                    ];
                    let throughput = (window as f64 / seconds).min(bytes * 0.956) * 0.99;
                    let cell = fixture::cell("window.bdp", "throughput", &levels, throughput);
                    document.results.push(cell);
                }
            }
        }
    }
}

fn mtus(document: &mut RunDocument) {
    for (rate, bytes) in [("10mbit", 1.25e6), ("1gbit", 1.25e8)] {
        for (path, fragments) in [
            ("jumbo", "forbidden"),
            ("jumbo", "allowed"),
            ("narrow", "forbidden"),
            ("narrow", "allowed"),
            ("black-hole", "forbidden"),
            ("black-hole", "allowed"),
        ] {
            for packet in [1_500_u64, 9_000] {
                let levels = |ahead: u64| -> Levels {
                    vec![
                        ("path", Value::from(path)),
                        ("fragments", Value::from(fragments)),
                        ("packet", Value::from(packet)),
                        ("ahead", Value::from(ahead)),
                        ("rate", Value::from(rate)),
                        ("placement", Value::from("same-cpu")),
                    ]
                };
                let fits = packet == 1_500 || path == "jumbo";
                let arrives = fits || (path == "narrow" && fragments == "allowed");
                let share = if arrives { 1.0 } else { 0.0 };
                let mut cell = fixture::cell("mtu.path", "delivered", &levels(0), share);
                "share".clone_into(&mut cell.unit);
                if !arrives {
                    cell.counters.insert("lost".to_owned(), 40);
                    if path == "narrow" {
                        cell.counters.insert("told_too_long".to_owned(), 38);
                    }
                }
                document.results.push(cell);
                // TCP sends smaller segments where it is told to.
                let carried = arrives || path == "narrow";
                let share = if carried { 1.0 } else { 0.0 };
                let mut cell = fixture::cell("mtu.path", "connected", &levels(0), share);
                "share".clone_into(&mut cell.unit);
                if !carried {
                    cell.counters.insert("lost".to_owned(), 5);
                }
                document.results.push(cell);
                if fragments == "allowed" && path != "black-hole" {
                    let pieces = if fits { 1.0 } else { 7.0 };
                    let mut cell = fixture::cell("mtu.path", "pieces", &levels(0), pieces);
                    "count".clone_into(&mut cell.unit);
                    document.results.push(cell);
                }
                if path == "jumbo" && fragments == "allowed" {
                    for ahead in [0_u64, 1, 8] {
                        let ns = 4.5e5 + (ahead * packet * 2) as f64 / bytes * 1e9;
                        let cell = fixture::cell("mtu.path", "urgent", &levels(ahead), ns);
                        document.results.push(cell);
                    }
                }
            }
        }
    }
}

/// Every experiment over a network.
pub fn networks() -> RunDocument {
    let mut document = fixture::empty("networks");
    remote(&mut document);
    lengths(&mut document);
    windows(&mut document);
    mtus(&mut document);
    document
}

const EXPERIMENTS: [&str; 5] =
    ["latency.remote", "throughput.remote", "path.length", "window.bdp", "mtu.path"];

#[test]
fn every_experiment_over_a_network_has_its_figures_and_data_on_the_page() {
    let counts = [("path.length", 4), ("window.bdp", 4), ("mtu.path", 10)];
    let page = drawn::page(&networks(), "networks", &counts);
    // Between hosts, a picture a mechanism with a line a link.
    for id in ["latency-remote-latency-tcp4", "throughput-remote-throughput-acked-udp4"] {
        assert!(page.contains(&format!("<figure id=\"{id}\"")), "{id}");
    }
}

#[test]
fn the_sentences_of_experiments_over_networks() {
    insta::assert_snapshot!(drawn::sentences(&networks(), &EXPERIMENTS));
}

#[test]
fn figures_of_routers_windows_and_packets_at_80_columns() {
    let all =
        [("path.length", 0), ("window.bdp", 2), ("mtu.path", 1), ("mtu.path", 6), ("mtu.path", 8)];
    insta::assert_snapshot!(drawn::figures(&networks(), &all));
}

#[test]
fn experiments_over_networks_fit_forty_columns_and_ascii() {
    drawn::assert_narrow(&networks());
}

#[test]
fn the_expected_line_bends_where_the_window_is_the_product() {
    for figure in registry::figures(&networks(), "window.bdp") {
        let lines: Vec<&Vec<[f64; 2]>> = figure
            .series
            .iter()
            .filter_map(|series| match &series.marks {
                SeriesMarks::Line(at) => Some(at),
                _ => None,
            })
            .collect();
        assert_eq!(lines.len(), 3, "one for each round trip");
        for line in lines {
            let (first, last) = (line[0], line[line.len() - 1]);
            assert!(line.len() <= 3 && first[1] <= last[1]);
            // Up to the corner it rises as the window does.
            let steps = [(first[0], first[1]), (line[1][0], line[1][1])];
            let ratio = (steps[1].1 / steps[0].1) / (steps[1].0 / steps[0].0);
            assert!(line.len() < 3 || (ratio - 1.0).abs() < 1e-9, "{line:?}");
        }
    }
}

#[test]
fn each_router_adds_the_slope_of_its_line() {
    let sentences = registry::sentences(&networks(), "path.length");
    assert!(sentences[0].contains("23.0 µs") && sentences[0].contains("900 ns"), "{sentences:?}");
}

#[test]
fn what_does_not_arrive_is_refused_or_vanishes() {
    let told = registry::sentences(&networks(), "mtu.path").join(" ");
    assert!(told.contains("narrow hop, must stay whole: 0%, refused"), "{told}");
    assert!(told.contains("black hole, may be cut: 0%, vanished"), "{told}");
    assert!(told.contains("narrow hop, may be cut: 100%;"), "{told}");
    assert!(
        told.contains(
            "Packets in which one of 9000 B arrives: 1 over jumbo path; 7 over narrow hop"
        ),
        "{told}"
    );
    assert!(told.contains("black hole, must stay whole: 0%, hung"), "{told}");
}

#[test]
fn a_run_without_messages_has_no_headline_about_them() {
    let mut document = fixture::empty("window.bdp");
    windows(&mut document);
    let text = markdown::run(&document);
    assert!(!text.contains("unknown size"), "{text}");
}
