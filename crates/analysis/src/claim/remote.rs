//! Claims about messages between two hosts (Zhao 2014, Table 1 and Figures 3 and 5), and about the
//! routers between them.
//!
//! Local is the same channel over loopback, measured in the same run. Left out: what stands between
//! the hosts, which each case names.

use std::collections::BTreeSet;

use plumb_base::stats::regression::theil_sen;
use plumb_base::units::{Unit, significant};

use super::Claim;
use super::evidence::{Evidence, Pairs};
use super::finding::{Case, Finding, Standing, every};
use super::latency_local::bytes;
use super::published::ZHAO;
use crate::contrast;
use crate::summary::{CONFIDENCE, Measured};

const LATENCY: &str = "latency.remote";
const THROUGHPUT: &str = "throughput.remote";
const LENGTH: &str = "path.length";

/// The link that Zhao's hosts had between them: a switched gigabit network of a laboratory.
const LABORATORY: &str = "lan-1g";

/// The claims of `latency.remote`, `throughput.remote` and `path.length`.
pub const CLAIMS: &[Claim] = &[
    Claim {
        id: "ipc.remote.latency-slower-than-local",
        experiment: LATENCY,
        claim: "Local communication is faster than remote communication in terms of latency.",
        source: ZHAO,
        historical: Some("Table 1: both remote rows are last at 16 B, 1 KiB and 64 KiB"),
        judge: |evidence| slower_than_local(evidence, LATENCY, "latency"),
    },
    Claim {
        id: "ipc.remote.udp-latency-beats-tcp",
        experiment: LATENCY,
        claim: "Remote UDP is faster than remote TCP.",
        source: ZHAO,
        historical: Some("Table 1, latency: remote UDP before remote TCP at all three sizes"),
        judge: |evidence| versus(evidence, LATENCY, "latency", ("udp4", "tcp4"), |_| true),
    },
    Claim {
        id: "ipc.remote.tcp-latency-range",
        experiment: LATENCY,
        claim: "Remote TCP latency lies between 80 µs and 1.1 ms for messages of 4 B to 512 KiB.",
        source: ZHAO,
        historical: Some("80,000 ns to 1,100,000 ns (Figure 3), two i5-4570 in one laboratory"),
        judge: |evidence| range(evidence, "tcp4", (80_000.0, 1_100_000.0)),
    },
    Claim {
        id: "ipc.remote.udp-latency-range",
        experiment: LATENCY,
        claim: "Remote UDP latency lies between 20 µs and 700 µs for messages of 4 B to 512 KiB.",
        source: ZHAO,
        historical: Some("20,000 ns to 700,000 ns (Figure 5), two i5-4570 in one laboratory"),
        judge: |evidence| range(evidence, "udp4", (20_000.0, 700_000.0)),
    },
    Claim {
        id: "ipc.remote.throughput-slower-than-local",
        experiment: THROUGHPUT,
        claim: "Local communication is faster than remote communication in terms of throughput.",
        source: ZHAO,
        historical: Some("Table 1: both remote rows are last at 16 B, 1 KiB and 64 KiB"),
        judge: |evidence| slower_than_local(evidence, THROUGHPUT, "throughput.acked"),
    },
    Claim {
        id: "ipc.remote.udp-throughput-beats-tcp-below-64Ki",
        experiment: THROUGHPUT,
        claim: "Except for large messages, remote UDP carries more than remote TCP.",
        source: ZHAO,
        historical: Some("Table 1, throughput: remote UDP before remote TCP at 16 B and 1 KiB"),
        judge: |evidence| {
            let order = ("udp4", "tcp4");
            versus(evidence, THROUGHPUT, "throughput.acked", order, |size| size < LARGE)
        },
    },
    Claim {
        id: "ipc.remote.tcp-throughput-beats-udp-at-64Ki",
        experiment: THROUGHPUT,
        claim: "For large messages remote TCP carries more than remote UDP.",
        source: ZHAO,
        historical: Some("Table 1, throughput: remote TCP before remote UDP at 64 KiB"),
        judge: |evidence| {
            let order = ("tcp4", "udp4");
            versus(evidence, THROUGHPUT, "throughput.acked", order, |size| size == LARGE)
        },
    },
    Claim {
        id: "ipc.path.routers-delay",
        experiment: LENGTH,
        claim: "Remote communication is slower because it passes switches and routers: each one adds \
                delay.",
        source: ZHAO,
        historical: Some("the reason given for remote being slower, and future work; no figure"),
        judge: routers_delay,
    },
    Claim {
        id: "ipc.path.routers-keep-throughput",
        experiment: LENGTH,
        claim: "A long transfer carries as much over any number of routers of one rate.",
        source: ZHAO,
        historical: Some("future work; no figure"),
        judge: routers_keep_throughput,
    },
];

/// "Large" in the sense of Table 1.
const LARGE: i64 = 64 << 10;

fn link<'a>(measured: &'a Measured<'_>) -> &'a str {
    measured.cell.factors.text("link").unwrap_or("unknown")
}

fn is_local(measured: &Measured<'_>) -> bool {
    link(measured) == "loopback"
}

/// What a case is told with: its link and its placement.
fn place(measured: &Measured<'_>) -> String {
    let placement = measured.cell.factors.text("placement").unwrap_or("unknown");
    let link = link(measured);
    // Which one that was is told once, and its text is long.
    let link = if link.starts_with("outer:") { "the outer link" } else { link };
    let link = if link.starts_with("host:") { "the other host" } else { link };
    format!("{link}, {placement}")
}

fn size(measured: &Measured<'_>) -> i64 {
    measured.cell.factors.int("size").unwrap_or(0)
}

fn needs(experiment: &str, levels: &str) -> String {
    format!("plumb run {experiment} --set {levels}")
}

/// Every remote cell against its twin over loopback.
fn slower_than_local(
    evidence: &Evidence<'_>,
    experiment: &'static str,
    response: &'static str,
) -> Finding {
    let mut pairs = Pairs::default();
    for remote in evidence.cells(experiment, response).filter(|cell| !is_local(cell)) {
        let rest = remote.cell.factors.clone().without("link");
        let local = evidence
            .cells(experiment, response)
            .find(|cell| is_local(cell) && cell.cell.factors.clone().without("link") == rest);
        let mechanism = rest.text("mechanism").unwrap_or("unknown");
        let label = format!("remote/local {mechanism} {}", bytes(size(remote)));
        match local {
            Some(local) => {
                let contrast = contrast::within_run(local, remote);
                pairs.cases.push(Case::order(&place(remote), label, contrast));
            }
            None => pairs.missing.push(format!("{label} over loopback")),
        }
    }
    every(pairs, &needs(experiment, "link=loopback,veth,lan-1g"))
}

/// One mechanism against another at every link, placement and size.
fn versus(
    evidence: &Evidence<'_>,
    experiment: &'static str,
    response: &'static str,
    (better, worse): (&str, &str),
    wanted: fn(i64) -> bool,
) -> Finding {
    let mut pairs = Pairs::default();
    let remote = |mechanism: &'static str| {
        evidence.cells(experiment, response).filter(move |cell| {
            !is_local(cell) && cell.cell.factors.text("mechanism") == Some(mechanism)
        })
    };
    let (udp, tcp) = (remote("udp4"), remote("tcp4"));
    let tcp: Vec<_> = tcp.collect();
    for udp in udp.filter(|cell| wanted(size(cell))) {
        let twin = |cell: &&&Measured<'_>| {
            place(cell) == place(udp)
                && size(cell) == size(udp)
                && cell.cell.factors.text("wake") == udp.cell.factors.text("wake")
        };
        let label = format!("{worse}/{better} {}", bytes(size(udp)));
        match tcp.iter().find(twin) {
            Some(tcp) => {
                let (first, second) = if better == "udp4" { (udp, *tcp) } else { (*tcp, udp) };
                let contrast = contrast::within_run(first, second);
                pairs.cases.push(Case::order(&place(udp), label, contrast));
            }
            None => pairs.missing.push(format!("{label}, {}", place(udp))),
        }
    }
    every(pairs, &needs(experiment, "mechanism=tcp4,udp4"))
}

/// The medians of a mechanism over the link that the paper had.
fn range(evidence: &Evidence<'_>, mechanism: &str, bounds: (f64, f64)) -> Finding {
    let mut pairs = Pairs::default();
    let chosen = |cell: &&Measured<'_>| {
        link(cell) == LABORATORY && cell.cell.factors.text("mechanism") == Some(mechanism)
    };
    for cell in evidence.cells(LATENCY, "latency").filter(chosen) {
        let ends = cell.interval().map(|interval| [interval.lo, interval.hi]);
        let label = bytes(size(cell));
        let unit: Unit = cell.cell.unit_type();
        let median = cell.median();
        pairs.cases.push(Case::quantity(&place(cell), label, median, ends, bounds, unit));
    }
    every(pairs, &needs(LATENCY, "link=lan-1g"))
}

/// The cells of `path.length` that differ in their routers only, each with their number.
fn lengths<'a>(
    evidence: &Evidence<'a>,
    response: &'static str,
) -> Vec<(String, Vec<(f64, &'a Measured<'a>)>)> {
    let cells: Vec<&Measured<'_>> = evidence.cells(LENGTH, response).collect();
    let rest = |cell: &Measured<'_>| cell.cell.factors.clone().without("routers").to_string();
    let kinds: BTreeSet<String> = cells.iter().map(|cell| rest(cell)).collect();
    let of_kind = |kind: String| {
        let mut line: Vec<(f64, &Measured<'_>)> = cells
            .iter()
            .filter(|cell| rest(cell) == kind)
            .filter_map(|cell| Some((cell.cell.factors.int("routers")? as f64, *cell)))
            .collect();
        line.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        (kind, line)
    };
    kinds.into_iter().map(of_kind).collect()
}

/// Whether the routers are Linux's own, on virtual Ethernets that have no rate.
fn is_linux(cell: &Measured<'_>) -> bool {
    cell.cell.factors.text("forwarder") == Some("linux")
}

/// What a case about a whole line is called.
fn line_label(line: &[(f64, &Measured<'_>)]) -> String {
    let factors = line.first().map(|(_, cell)| &cell.cell.factors);
    let mechanism = factors.and_then(|factors| factors.text("mechanism")).unwrap_or("unknown");
    let size = line.first().map_or(0, |(_, cell)| size(cell));
    let linux = if line.first().is_some_and(|(_, cell)| is_linux(cell)) { ", Linux's" } else { "" };
    format!("{mechanism} {}{linux}", bytes(size))
}

/// The slope of latency against the number of routers, robustly: above nothing.
fn routers_delay(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    for (_, line) in lengths(evidence, "latency") {
        let label = line_label(&line);
        let x: Vec<f64> = line.iter().map(|(routers, _)| *routers).collect();
        let y: Vec<f64> = line.iter().map(|(_, cell)| cell.median()).collect();
        let Some(fitted) = theil_sen(&x, &y, CONFIDENCE) else {
            pairs.missing.push(format!("{label} at three numbers of routers or more"));
            continue;
        };
        let (lo, hi) = (fitted.slope_interval.lo, fitted.slope_interval.hi);
        let standing = if lo > 0.0 {
            Standing::For
        } else if hi < 0.0 {
            Standing::Against(0.0)
        } else {
            Standing::Open(None)
        };
        let unit = Unit::Nanoseconds;
        let text = format!(
            "{} a router ({}–{})",
            unit.format(fitted.slope, 3),
            unit.format(lo, 3),
            unit.format(hi, 3)
        );
        let placement = line.first().and_then(|(_, cell)| cell.cell.factors.text("placement"));
        pairs.cases.push(Case {
            placement: placement.unwrap_or("unknown").to_owned(),
            label,
            value: Some(fitted.slope),
            ends: Some([lo, hi]),
            text,
            standing,
            strength: fitted.slope,
        });
    }
    every(pairs, &needs(LENGTH, "routers=0,1,2,4,8"))
}

/// Throughput over the most routers against that over none, where hops have a rate: the same within a
/// twentieth.
fn routers_keep_throughput(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    for (_, line) in lengths(evidence, "throughput") {
        if line.first().is_some_and(|(_, cell)| is_linux(cell)) {
            continue;
        }
        let (Some((least, none)), Some((most, all))) = (line.first(), line.last()) else {
            continue;
        };
        let label = format!(
            "{} over {} and {} routers",
            line_label(&line),
            routers(*most),
            routers(*least)
        );
        if most <= least {
            pairs.missing.push(label);
            continue;
        }
        let placement = none.cell.factors.text("placement").unwrap_or("unknown");
        let contrast = contrast::within_run(none, all);
        let mut case = Case::ratio_within(placement, label, contrast, SAME);
        case.strength = -case.strength.abs();
        pairs.cases.push(case);
    }
    every(pairs, &needs(LENGTH, "routers=0,8"))
}

/// Throughputs within a twentieth of each other are the same.
const SAME: (f64, f64) = (0.95, 1.05);

fn routers(number: f64) -> String {
    significant(number, 2)
}
