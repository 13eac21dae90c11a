//! What the claims of study `ipc` share: sources, the published ranks, and cells set side by side.

use plumb_analysis::claim::{ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, judge_all};
use plumb_analysis::cost_ratio::{self};
use plumb_analysis::registry::MechanismOrder;
use plumb_analysis::summary::MeasuredCell;
use plumb_base::units::{Unit, format_bytes};

/// The paper that the study `ipc` re-tests.
pub const ZHAO: &str = "Zhao, TCP, UDP, and Pipes Communication Benchmarking, CS 736, 2014";

/// The assignment that Zhao answers, which makes claims of its own.
pub const MILLER: &str = "Miller, Benchmarking Interprocess Communications, CS 736, 2014";

/// Table 1 of Zhao 2014, local rows.
pub const TABLE_1: [MechanismOrder; 6] = [
    MechanismOrder { response: "latency", size: 16, mechanisms: ["udp4", "tcp4", "pipe"] },
    MechanismOrder { response: "latency", size: 1 << 10, mechanisms: ["udp4", "tcp4", "pipe"] },
    MechanismOrder { response: "latency", size: 64 << 10, mechanisms: ["tcp4", "udp4", "pipe"] },
    MechanismOrder { response: "throughput.acked", size: 16, mechanisms: ["udp4", "tcp4", "pipe"] },
    MechanismOrder {
        response: "throughput.acked",
        size: 1 << 10,
        mechanisms: ["udp4", "tcp4", "pipe"],
    },
    MechanismOrder {
        response: "throughput.acked",
        size: 64 << 10,
        mechanisms: ["tcp4", "pipe", "udp4"],
    },
];

/// Every pair of the published order, for one response: size, better, worse.
pub(crate) fn published_pairs(response: &str) -> Vec<(i64, &'static str, &'static str)> {
    TABLE_1
        .iter()
        .filter(|order| order.response == response)
        .flat_map(|order| {
            let [first, second, third] = order.mechanisms;
            [(first, second), (first, third), (second, third)]
                .map(|(better, worse)| (order.size, better, worse))
        })
        .collect()
}

/// The medians of a mechanism at every blocking placement and size, against published bounds.
pub(crate) fn quantities(
    evidence: &ClaimEvidence<'_>,
    experiment: &'static str,
    response: &'static str,
    mechanism: &str,
    bounds: (f64, f64),
) -> ClaimCases {
    let mut pairs = ClaimCases::default();
    for setting in evidence.settings(experiment, response) {
        for size in evidence.sizes(experiment, response, &[mechanism]) {
            if let Some(cell) = evidence.cell_at(experiment, response, mechanism, &setting, size) {
                let ends = cell.interval().map(|interval| [interval.lo, interval.hi]);
                let unit: Unit = cell.cell.unit_type();
                pairs.cases.push(ClaimCase::quantity(
                    &setting.placement,
                    bytes(size),
                    cell.median(),
                    ends,
                    bounds,
                    unit,
                ));
            }
        }
    }
    pairs
}

pub(crate) fn bytes(size: i64) -> String {
    format_bytes(u64::try_from(size).unwrap_or(0))
}

pub(crate) fn link<'a>(measured: &'a MeasuredCell<'_>) -> &'a str {
    measured.cell.factors.text("link").unwrap_or("unknown")
}

pub(crate) fn is_local(measured: &MeasuredCell<'_>) -> bool {
    link(measured) == "loopback"
}

/// What a case is told with: its link and its placement.
pub(crate) fn place_label(measured: &MeasuredCell<'_>) -> String {
    let placement = measured.cell.factors.text("placement").unwrap_or("unknown");
    let link = link(measured);
    // Which one that was is told once, and its text is long.
    let link = if link.starts_with("outer:") { "the outer link" } else { link };
    let link = if link.starts_with("host:") { "the other host" } else { link };
    format!("{link}, {placement}")
}

pub(crate) fn size(measured: &MeasuredCell<'_>) -> i64 {
    measured.cell.factors.int("size").unwrap_or(0)
}

pub(crate) fn needs(experiment: &str, levels: &str) -> String {
    format!("plumb run {experiment} --set {levels}")
}

/// Every remote cell against its twin over loopback.
pub(crate) fn slower_than_local(
    evidence: &ClaimEvidence<'_>,
    experiment: &'static str,
    response: &'static str,
) -> ClaimJudgment {
    let mut pairs = ClaimCases::default();
    for remote in evidence.cells(experiment, response).filter(|cell| !is_local(cell)) {
        let rest = remote.cell.factors.clone().without("link");
        let local = evidence
            .cells(experiment, response)
            .find(|cell| is_local(cell) && cell.cell.factors.clone().without("link") == rest);
        let mechanism = rest.text("mechanism").unwrap_or("unknown");
        let label = format!("remote/local {mechanism} {}", bytes(size(remote)));
        match local {
            Some(local) => {
                let contrast = cost_ratio::within_run(local, remote);
                pairs.cases.push(ClaimCase::order(&place_label(remote), label, contrast));
            }
            None => pairs.missing.push(format!("{label} over loopback")),
        }
    }
    judge_all(pairs, &needs(experiment, "link=loopback,veth,lan-1g"))
}

/// One mechanism against another at every link, placement and size.
pub(crate) fn versus(
    evidence: &ClaimEvidence<'_>,
    experiment: &'static str,
    response: &'static str,
    (better, worse): (&str, &str),
    wanted: fn(i64) -> bool,
) -> ClaimJudgment {
    let mut pairs = ClaimCases::default();
    let remote = |mechanism: &'static str| {
        evidence.cells(experiment, response).filter(move |cell| {
            !is_local(cell) && cell.cell.factors.text("mechanism") == Some(mechanism)
        })
    };
    let (udp, tcp) = (remote("udp4"), remote("tcp4"));
    let tcp: Vec<_> = tcp.collect();
    for udp in udp.filter(|cell| wanted(size(cell))) {
        let twin = |cell: &&&MeasuredCell<'_>| {
            place_label(cell) == place_label(udp)
                && size(cell) == size(udp)
                && cell.cell.factors.text("wake") == udp.cell.factors.text("wake")
        };
        let label = format!("{worse}/{better} {}", bytes(size(udp)));
        match tcp.iter().find(twin) {
            Some(tcp) => {
                let (first, second) = if better == "udp4" { (udp, *tcp) } else { (*tcp, udp) };
                let contrast = cost_ratio::within_run(first, second);
                pairs.cases.push(ClaimCase::order(&place_label(udp), label, contrast));
            }
            None => pairs.missing.push(format!("{label}, {}", place_label(udp))),
        }
    }
    judge_all(pairs, &needs(experiment, "mechanism=tcp4,udp4"))
}
