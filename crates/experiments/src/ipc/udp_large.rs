//! `udp.large`: messages larger than one datagram, with and without loss.

use crate::claims::{ZHAO, bytes, size};
use crate::factor::channel::{self, BLOCK, LATENCY, MECHANISM, ONE_OR_TWO_CPUS, SIZE};
use crate::prelude::*;

/// Fragmentation by the application or left to IP, against injected loss.
pub static EXPERIMENT: Experiment = Experiment {
    id: "udp.large",
    study: "ipc",
    question: "What becomes of a UDP message that does not fit into one datagram?",
    hypothesis: "A message survives only if every one of its parts does, so that the delivered \
                 share falls with size and loss, and faster with small parts than with large ones.",
    factors: &[
        Factor { domain: FactorDomain::Mechanisms(Mechanism::is_lossy), ..MECHANISM }
            .at(Words(&["udp4"]))
            .at_paper(Words(&["udp4", "udp6"])),
        ONE_OR_TWO_CPUS,
        BLOCK,
        SIZE.at(Numbers(&[16 << 10, DATAGRAM_MAX, 128 << 10, 256 << 10, 512 << 10]))
            .at_quick(Numbers(&[DATAGRAM_MAX, 128 << 10, 512 << 10])),
        Factor::of_words(
            "fragmentation",
            "parts cut by the application for one Ethernet frame, or datagrams as large as IP takes",
            &["application", "ip"],
        ),
        Factor::new(
            "loss",
            "share of datagrams dropped on purpose, in percent",
            FactorDomain::Percent,
            Numbers(&[0, 1, 10]),
        ),
    ],
    responses: &[
        ResponseVariable::share(
            "delivered",
            Better::Higher,
            "share of messages that arrived whole",
        ),
        ResponseVariable::rate("goodput", "verified bytes of whole messages a second"),
        LATENCY,
    ],
    plan_cell: |point| {
        let size = channel::size_of(point.factors);
        let is_lossy = point.factors.int("loss").unwrap_or(0) > 0;
        let task = match point.response {
            // A lost message has no latency without a rule to repeat it, which UDP does not have.
            "latency" if is_lossy => return Err(Exclusion::NotApplicable),
            "latency" => BlockTask::Latency { size },
            "goodput" => BlockTask::Throughput { size },
            fault => BlockTask::Reliability { size, receiver_pause_ns: 0, fault: fault.to_owned() },
        };
        Ok((channel::group(point)?, task))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage { title: "UDP beyond the datagram limit", ..ExperimentPage::PLAIN },
};

/// Largest UDP payload over IPv4, which is where large begins: 65,535 − 20 − 8 bytes (RFC 791, RFC 768).
const DATAGRAM_MAX: u64 = 65_507;

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "ipc.udp.large-is-faulty",
        claim: "Large UDP messages tend to be faulty.",
        historical: Some("Figure 5, remote UDP; more than 1 in 1,000 lost is taken as faulty"),
        judge: |evidence| judge_all(losses(evidence), "plumb run udp.large"),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.udp.tcp-wins-because-of-loss",
        claim: "TCP is faster for large messages because UDP has to try several times.",
        historical: Some("§V and §VI"),
        judge: tcp_wins,
        ..PublishedClaim::of(ZHAO)
    },
];

/// A message is faulty when more than one in a thousand does not arrive.
const FAULTY: f64 = 0.999;

fn is_large(size: i64) -> bool {
    size >= DATAGRAM_MAX.cast_signed()
}

/// The delivered share of large messages without injected loss.
fn losses(evidence: &ClaimEvidence<'_>) -> ClaimCases {
    let cells = evidence.cells(EXPERIMENT.id, "delivered");
    let chosen = cells.filter(|cell| cell.int("loss").unwrap_or(0) == 0 && is_large(size(cell)));
    let case = |cell: &MeasuredCell<'_>| {
        let cut = cell.text("fragmentation");
        let cut = cut.map_or_else(String::new, |by| format!(", cut by {by}"));
        let label = format!("delivered at {}{cut}", bytes(size(cell)));
        ClaimCase::median_within(cell.level("placement"), label, cell, (0.0, FAULTY))
    };
    chosen.map(case).collect()
}

/// TCP must win, and UDP must lose messages where it does: a win without any loss has another
/// cause.
fn tcp_wins(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
    let needs = "plumb run ipc --quick: udp.large, and latency.local for udp4 and tcp4 from 64Ki";
    let losses = losses(evidence).cases;
    if losses.is_empty() {
        return ClaimJudgment::not_measured(needs);
    }
    let sizes = evidence.sizes("latency.local", "latency", &["udp4", "tcp4"]);
    let mut found = ClaimCases::default();
    for setting in evidence.settings("latency.local", "latency") {
        let here: Vec<&ClaimCase> =
            losses.iter().filter(|case| case.placement == setting.placement).collect();
        if here.is_empty() {
            continue;
        }
        let none_lost = here.iter().all(|case| matches!(case.outcome, CaseOutcome::Contradicts(_)));
        let some_lost = here.iter().any(|case| case.outcome == CaseOutcome::Supports);
        for size in sizes.iter().copied().filter(|size| is_large(*size)) {
            let at =
                |mechanism| evidence.cell_at("latency.local", "latency", mechanism, &setting, size);
            let (Some(tcp), Some(udp)) = (at("tcp4"), at("udp4")) else { continue };
            let cause = if none_lost { "nothing lost" } else { "with loss" };
            let label = format!("udp4/tcp4 {}, {cause}", bytes(size));
            let case = ClaimCase::order(&setting.placement, label, tcp, udp);
            let outcome = match case.outcome {
                CaseOutcome::Supports if none_lost => CaseOutcome::Contradicts(0.0),
                CaseOutcome::Supports if !some_lost => CaseOutcome::Undecided(None),
                standing => standing,
            };
            found.cases.push(ClaimCase { outcome, ..case });
        }
    }
    judge_all(found, needs)
}
