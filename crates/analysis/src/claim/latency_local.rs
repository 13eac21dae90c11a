//! Claims about the latency of local mechanisms (Zhao 2014, Table 1, Figure 7, §IV–VI).
//!
//! Left out: everything remote.

use plumb_base::units::{Unit, format_bytes};

use super::Claim;
use super::evidence::{Evidence, Pairs};
use super::finding::{Case, Finding, every};
use super::published::{TABLE_1, ZHAO};
use crate::contrast;

const EXPERIMENT: &str = "latency.local";
const RESPONSE: &str = "latency";
const NEEDS: &str = "plumb run latency.local --set mechanism=pipe,tcp4,udp4 --set size=16,1Ki,64Ki";
const LARGE: i64 = 64 << 10;

/// The claims of `latency.local`.
pub const CLAIMS: &[Claim] = &[
    Claim {
        id: "ipc.latency.ranks",
        experiment: EXPERIMENT,
        claim: "Latency ranks local UDP first, then local TCP, then the pipe at 16 B and 1 KiB, \
                and TCP, UDP, pipe at 64 KiB.",
        source: ZHAO,
        historical: Some("Table 1, latency rows, i5-4570 at 3.2 GHz"),
        judge: ranks,
    },
    Claim {
        id: "ipc.latency.pipe-slower-than-sockets",
        experiment: EXPERIMENT,
        claim: "Pipes are slower than local sockets.",
        source: ZHAO,
        historical: Some("Table 1: the pipe is last of the local three at every size"),
        judge: pipe_slower,
    },
    Claim {
        id: "ipc.latency.udp-beats-tcp-below-64Ki",
        experiment: EXPERIMENT,
        claim: "Except for large messages, UDP is faster than TCP.",
        source: ZHAO,
        historical: Some("Table 1: UDP before TCP at 16 B and 1 KiB"),
        judge: udp_beats_tcp,
    },
    Claim {
        id: "ipc.latency.tcp-beats-udp-at-64Ki",
        experiment: EXPERIMENT,
        claim: "TCP is faster than UDP for large messages.",
        source: ZHAO,
        historical: Some("Table 1: TCP before UDP at 64 KiB"),
        judge: tcp_beats_udp,
    },
    Claim {
        id: "ipc.latency.pipe-same-magnitude",
        experiment: EXPERIMENT,
        claim: "Pipes are of the same magnitude of latency as local sockets.",
        source: ZHAO,
        historical: None,
        judge: same_magnitude,
    },
    Claim {
        id: "ipc.latency.pipe-range",
        experiment: EXPERIMENT,
        claim: "Pipe latency lies between 8 µs and 300 µs for messages of 4 B to 512 KiB.",
        source: ZHAO,
        historical: Some("8,000 ns to 300,000 ns (Figure 7), i5-4570 at 3.2 GHz"),
        judge: pipe_range,
    },
];

/// Every pair of the published order, for one response: size, better, worse.
pub(super) fn published_pairs(response: &str) -> Vec<(i64, &'static str, &'static str)> {
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

fn ranks(evidence: &Evidence<'_>) -> Finding {
    every(evidence.orders(EXPERIMENT, RESPONSE, &published_pairs(RESPONSE)), NEEDS)
}

fn pipe_slower(evidence: &Evidence<'_>) -> Finding {
    let pairs: Vec<_> =
        published_pairs(RESPONSE).into_iter().filter(|(_, _, worse)| *worse == "pipe").collect();
    every(evidence.orders(EXPERIMENT, RESPONSE, &pairs), NEEDS)
}

fn udp_beats_tcp(evidence: &Evidence<'_>) -> Finding {
    let sizes = evidence.sizes(EXPERIMENT, RESPONSE, &["udp4", "tcp4"]);
    let pairs: Vec<_> =
        sizes.into_iter().filter(|size| *size < LARGE).map(|size| (size, "udp4", "tcp4")).collect();
    every(evidence.orders(EXPERIMENT, RESPONSE, &pairs), NEEDS)
}

fn tcp_beats_udp(evidence: &Evidence<'_>) -> Finding {
    every(evidence.orders(EXPERIMENT, RESPONSE, &[(LARGE, "tcp4", "udp4")]), NEEDS)
}

/// The same magnitude: within a factor of ten either way.
fn same_magnitude(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    for setting in evidence.settings(EXPERIMENT, RESPONSE) {
        for size in evidence.sizes(EXPERIMENT, RESPONSE, &["pipe"]) {
            let at = |mechanism| evidence.at(EXPERIMENT, RESPONSE, mechanism, &setting, size);
            for socket in ["tcp4", "udp4"] {
                let (Some(socket_cell), Some(pipe)) = (at(socket), at("pipe")) else { continue };
                let label = format!("pipe/{socket} {}", bytes(size));
                let contrast = contrast::within_run(socket_cell, pipe);
                let bounds = (0.1, 10.0);
                pairs.cases.push(Case::ratio_within(&setting.placement, label, contrast, bounds));
            }
        }
    }
    // Told by the case that comes nearest to a factor of ten.
    for case in &mut pairs.cases {
        case.strength = -case.strength.abs();
    }
    every(pairs, NEEDS)
}

fn pipe_range(evidence: &Evidence<'_>) -> Finding {
    let needs = "plumb run latency.local --set mechanism=pipe";
    let bounds = (8_000.0, 300_000.0);
    every(quantities(evidence, EXPERIMENT, RESPONSE, "pipe", bounds), needs)
}

/// The medians of a mechanism at every blocking placement and size, against published bounds.
pub(super) fn quantities(
    evidence: &Evidence<'_>,
    experiment: &'static str,
    response: &'static str,
    mechanism: &str,
    bounds: (f64, f64),
) -> Pairs {
    let mut pairs = Pairs::default();
    for setting in evidence.settings(experiment, response) {
        for size in evidence.sizes(experiment, response, &[mechanism]) {
            if let Some(cell) = evidence.at(experiment, response, mechanism, &setting, size) {
                let ends = cell.interval().map(|interval| [interval.lo, interval.hi]);
                let unit: Unit = cell.cell.unit_type();
                pairs.cases.push(Case::quantity(
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

pub(super) fn bytes(size: i64) -> String {
    format_bytes(u64::try_from(size).unwrap_or(0))
}
