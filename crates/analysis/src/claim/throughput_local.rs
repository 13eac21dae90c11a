//! Claims about the throughput of local mechanisms (Zhao 2014, Table 1, Figure 8, §I).
//!
//! The paper acknowledges every message, so its figures are set against `throughput.acked`.

use super::Claim;
use super::evidence::{Evidence, Pairs};
use super::finding::{Case, Finding, Standing, every};
use super::latency_local::{bytes, published_pairs, quantities};
use super::published::ZHAO;
use crate::summary::Measured;

const EXPERIMENT: &str = "throughput.local";
const ACKED: &str = "throughput.acked";
const NEEDS: &str =
    "plumb run throughput.local --set mechanism=pipe,tcp4,udp4 --set size=16,1Ki,64Ki";
const LARGE: i64 = 64 << 10;

/// A throughput this far from another is a wrong one.
const WRONG_BY: f64 = 0.10;

/// The claims of `throughput.local`.
pub const CLAIMS: &[Claim] = &[
    Claim {
        id: "ipc.throughput.ranks",
        experiment: EXPERIMENT,
        claim: "Throughput ranks local UDP first, then local TCP, then the pipe at 16 B and \
                1 KiB, and TCP, pipe, UDP at 64 KiB.",
        source: ZHAO,
        historical: Some("Table 1, throughput rows, i5-4570 at 3.2 GHz"),
        judge: |evidence| every(evidence.orders(EXPERIMENT, ACKED, &published_pairs(ACKED)), NEEDS),
    },
    Claim {
        id: "ipc.throughput.udp-beats-tcp-below-64Ki",
        experiment: EXPERIMENT,
        claim: "Except for large messages, UDP has more throughput than TCP.",
        source: ZHAO,
        historical: Some("Table 1: UDP before TCP at 16 B and 1 KiB"),
        judge: udp_beats_tcp,
    },
    Claim {
        id: "ipc.throughput.pipe-beats-udp-at-64Ki",
        experiment: EXPERIMENT,
        claim: "At 64 KiB a pipe has more throughput than UDP.",
        source: ZHAO,
        historical: Some("Table 1: the pipe second and local UDP third at 64 KiB"),
        judge: |evidence| {
            every(evidence.orders(EXPERIMENT, ACKED, &[(LARGE, "pipe", "udp4")]), NEEDS)
        },
    },
    Claim {
        id: "ipc.throughput.size-over-latency-is-wrong",
        experiment: EXPERIMENT,
        claim: "Dividing the message length by the latency is a wrong throughput.",
        source: ZHAO,
        historical: None,
        judge: size_over_latency,
    },
    Claim {
        id: "ipc.throughput.pipe-range",
        experiment: EXPERIMENT,
        claim: "Pipe throughput lies between 0.2 MB/s and 3.4 GB/s for messages of 4 B to \
                512 KiB.",
        source: ZHAO,
        historical: Some("200,000 B/s to 3,400,000,000 B/s (Figure 8), i5-4570 at 3.2 GHz"),
        judge: |evidence| {
            let needs = "plumb run throughput.local --set mechanism=pipe";
            every(quantities(evidence, EXPERIMENT, ACKED, "pipe", (2e5, 3.4e9)), needs)
        },
    },
];

fn udp_beats_tcp(evidence: &Evidence<'_>) -> Finding {
    let pairs: Vec<_> = evidence
        .sizes(EXPERIMENT, ACKED, &["udp4", "tcp4"])
        .into_iter()
        .filter(|size| *size < LARGE)
        .map(|size| (size, "udp4", "tcp4"))
        .collect();
    every(evidence.orders(EXPERIMENT, ACKED, &pairs), NEEDS)
}

/// Sets every long transfer against the size over the latency of the same cell.
///
/// Judged placement by placement: it is a wrong method where it misses by more than 10 % in most
/// cells, for a method is right only when it can be relied on.
fn size_over_latency(evidence: &Evidence<'_>) -> Finding {
    let needs = "plumb run ipc --quick: latency.local and throughput.local in one run";
    let mut pairs = Pairs::default();
    for setting in evidence.settings(EXPERIMENT, "throughput") {
        let mut missed = Vec::new();
        for cell in evidence.cells(EXPERIMENT, "throughput") {
            let factors = &cell.cell.factors;
            let (Some(mechanism), Some(size)) = (factors.text("mechanism"), factors.int("size"))
            else {
                continue;
            };
            let same = factors.text("placement") == Some(&setting.placement)
                && factors.text("wake").unwrap_or("block") == setting.wake;
            let latency = evidence.at("latency.local", "latency", mechanism, &setting, size);
            if let Some(latency) = latency.filter(|_| same) {
                missed.extend(quotient(cell, latency, size).map(|q| (mechanism, size, q)));
            }
        }
        pairs.cases.extend(case_of(&setting.placement, &missed));
    }
    every(pairs, needs)
}

/// A true throughput over the size divided by the latency.
#[derive(Clone, Copy, Debug)]
struct Quotient {
    value: f64,
    lo: f64,
    hi: f64,
}

/// Intervals of both cells combined at their worst: wider than 95 %, never narrower.
fn quotient(throughput: &Measured<'_>, latency: &Measured<'_>, size: i64) -> Option<Quotient> {
    let rate = throughput.interval()?;
    let time = latency.interval()?;
    let scale = 1e9 * size as f64;
    (latency.median() > 0.0).then(|| Quotient {
        value: throughput.median() * latency.median() / scale,
        lo: rate.lo * time.lo / scale,
        hi: rate.hi * time.hi / scale,
    })
}

fn case_of(placement: &str, missed: &[(&str, i64, Quotient)]) -> Option<Case> {
    let farthest =
        missed.iter().max_by(|a, b| a.2.value.ln().abs().total_cmp(&b.2.value.ln().abs()))?;
    let wrong = |q: &Quotient| q.lo > 1.0 + WRONG_BY || q.hi < 1.0 / (1.0 + WRONG_BY);
    let right = |q: &Quotient| q.hi <= 1.0 + WRONG_BY && q.lo >= 1.0 / (1.0 + WRONG_BY);
    let total = missed.len();
    let off = missed.iter().filter(|(_, _, q)| wrong(q)).count();
    let near = missed.iter().filter(|(_, _, q)| right(q)).count();
    let standing = if off * 2 > total {
        Standing::For
    } else if near * 2 > total {
        Standing::Against(0.0)
    } else {
        Standing::Open(None)
    };
    let (mechanism, size, q) = farthest;
    let digits = |value| plumb_base::units::significant(value, 3);
    Some(Case {
        placement: placement.to_owned(),
        label: format!(
            "off by more than 10% in {off} of {total} cells, farthest {mechanism} {}",
            bytes(*size)
        ),
        value: Some(q.value),
        ends: Some([q.lo, q.hi]),
        text: format!("{}× ({}–{})", digits(q.value), digits(q.lo), digits(q.hi)),
        standing,
        strength: off as f64 / total as f64,
    })
}
