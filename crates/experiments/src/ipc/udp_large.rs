//! `udp.large`: messages larger than one datagram, with and without loss.

use plumb_base::units::Unit;
use plumb_harness::spec::BlockTask;
use plumb_harness::spec::Mechanism;
use plumb_store::record::Better;

use crate::definition::{CellDecision, Experiment, ResponseVariable};
use crate::factor::{Factor, FactorDomain, always, keep_levels, numbers, words};
use crate::factors::channel::LATENCY;
use crate::factors::channel::{self, MECHANISM, PLACEMENT, SIZE, WAKE};
use crate::preset::RunPreset;
use plumb_analysis::registry::ExperimentAnalysis;
use plumb_report::registry::ExperimentPage;

/// Fragmentation by the application or left to IP, against injected loss.
pub static EXPERIMENT: Experiment = Experiment {
    id: "udp.large",
    study: "ipc",
    question: "What becomes of a UDP message that does not fit into one datagram?",
    hypothesis: "A message survives only if every one of its parts does, so that the delivered \
                 share falls with size and loss, and faster with small parts than with large ones.",
    factors: &[
        Factor {
            domain: FactorDomain::Mechanisms(Mechanism::is_lossy),
            levels: |context| match context.preset {
                RunPreset::Paper => words(&["udp4", "udp6"]),
                _ => words(&["udp4"]),
            },
            ..MECHANISM
        },
        Factor {
            levels: |context| match context.preset {
                RunPreset::Quick => words(&["other-cpu"]),
                _ => words(&["same-cpu", "other-cpu"]),
            },
            ..PLACEMENT
        },
        Factor { levels: |_| words(&["block"]), ..WAKE },
        Factor {
            levels: |context| match context.preset {
                RunPreset::Quick => numbers(&[DATAGRAM_MAX, 128 << 10, 512 << 10]),
                _ => numbers(&[16 << 10, DATAGRAM_MAX, 128 << 10, 256 << 10, 512 << 10]),
            },
            ..SIZE
        },
        Factor {
            name: "fragmentation",
            meaning: "parts cut by the application for one Ethernet frame, or datagrams as large \
                      as IP takes",
            domain: FactorDomain::Words(&["application", "ip"]),
            levels: |_| words(&["application", "ip"]),
            applies: always,
            fit: keep_levels,
            labels: &[],
        },
        Factor {
            name: "loss",
            meaning: "share of datagrams dropped on purpose, in percent",
            domain: FactorDomain::Percent,
            levels: |_| numbers(&[0, 1, 10]),
            applies: always,
            fit: keep_levels,
            labels: &[],
        },
    ],
    responses: &[
        ResponseVariable {
            name: "delivered",
            unit: Unit::Share,
            better: Better::Higher,
            meaning: "share of messages that arrived whole",
        },
        ResponseVariable {
            name: "goodput",
            unit: Unit::BytesPerSecond,
            better: Better::Higher,
            meaning: "verified bytes of whole messages a second",
        },
        LATENCY,
    ],
    plan_cell: |setting| {
        let size = channel::size_of(setting.factors);
        let is_lossy = setting.factors.int("loss").unwrap_or(0) > 0;
        let task = match setting.response {
            // A lost message has no latency without a rule to repeat it, which UDP does not have.
            "latency" if is_lossy => return CellDecision::NotApplicable,
            "latency" => BlockTask::Latency { size },
            "goodput" => BlockTask::Throughput { size },
            fault => BlockTask::Reliability { size, receiver_pause_ns: 0, fault: fault.to_owned() },
        };
        CellDecision::measure(channel::group(setting), task)
    },
    analysis: ExperimentAnalysis { claims: claims::CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage { title: "UDP beyond the datagram limit", ..ExperimentPage::PLAIN },
};

/// Largest UDP payload over IPv4: 65,535 − 20 − 8 bytes (RFC 791, RFC 768).
const DATAGRAM_MAX: u64 = 65_507;

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::ipc::*;
    use plumb_analysis::claim::{
        CaseOutcome, ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, PublishedClaim, judge_all,
    };
    use plumb_analysis::cost_ratio::{self};
    use plumb_analysis::summary::MeasuredCell;
    use plumb_base::units::Unit;

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "ipc.udp.large-is-faulty",
            claim: "Large UDP messages tend to be faulty.",
            source: ZHAO,
            historical: Some("Figure 5, remote UDP; more than 1 in 1,000 lost is taken as faulty"),
            figures: &[],
            judge: |evidence| judge_all(losses(evidence), NEEDS),
        },
        PublishedClaim {
            id: "ipc.udp.tcp-wins-because-of-loss",
            claim: "TCP is faster for large messages because UDP has to try several times.",
            source: ZHAO,
            historical: Some("§V and §VI"),
            figures: &[],
            judge: tcp_wins,
        },
    ];

    const EXPERIMENT: &str = "udp.large";

    const NEEDS: &str = "plumb run udp.large";

    /// The largest UDP payload over IPv4, which is where large begins (RFC 768, RFC 791).
    const LARGE: i64 = 65_507;

    /// A message is faulty when more than one in a thousand does not arrive.
    const FAULTY: f64 = 0.999;

    /// Cells of the delivered share of large messages without injected loss.
    fn delivered<'a>(evidence: &ClaimEvidence<'a>) -> Vec<&'a MeasuredCell<'a>> {
        evidence
            .cells(EXPERIMENT, "delivered")
            .filter(|found| {
                let factors = &found.cell.factors;
                factors.int("loss").unwrap_or(0) == 0
                    && factors.int("size").is_some_and(|size| size >= LARGE)
            })
            .collect()
    }

    fn losses(evidence: &ClaimEvidence<'_>) -> ClaimCases {
        let mut pairs = ClaimCases::default();
        for found in delivered(evidence) {
            let factors = &found.cell.factors;
            let ends = found.interval().map(|interval| [interval.lo, interval.hi]);
            let label = format!(
                "delivered at {}{}",
                bytes(factors.int("size").unwrap_or(0)),
                factors
                    .text("fragmentation")
                    .map_or_else(String::new, |by| format!(", cut by {by}"))
            );
            let placement = factors.text("placement").unwrap_or("unknown");
            let bounds = (0.0, FAULTY);
            let unit = Unit::Share;
            pairs.cases.push(ClaimCase::quantity(
                placement,
                label,
                found.median(),
                ends,
                bounds,
                unit,
            ));
        }
        pairs
    }

    /// TCP must win, and UDP must lose messages where it does: a win without any loss has another
    /// cause.
    fn tcp_wins(evidence: &ClaimEvidence<'_>) -> ClaimJudgment {
        let needs =
            "plumb run ipc --quick: udp.large, and latency.local for udp4 and tcp4 from 64Ki";
        let lossless = losses(evidence).cases;
        if lossless.is_empty() {
            return ClaimJudgment::not_measured(needs);
        }
        let sizes = evidence.sizes("latency.local", "latency", &["udp4", "tcp4"]);
        let mut pairs = ClaimCases::default();
        for setting in evidence.settings("latency.local", "latency") {
            let here: Vec<&ClaimCase> =
                lossless.iter().filter(|case| case.placement == setting.placement).collect();
            if here.is_empty() {
                continue;
            }
            let none_lost =
                here.iter().all(|case| matches!(case.outcome, CaseOutcome::Contradicts(_)));
            let some_lost = here.iter().any(|case| case.outcome == CaseOutcome::Supports);
            for size in sizes.iter().filter(|size| **size >= LARGE) {
                let at = |mechanism| {
                    evidence.cell_at("latency.local", "latency", mechanism, &setting, *size)
                };
                let (Some(tcp), Some(udp)) = (at("tcp4"), at("udp4")) else { continue };
                let cause = if none_lost { "nothing lost" } else { "with loss" };
                let label = format!("udp4/tcp4 {}, {cause}", bytes(*size));
                let contrast = cost_ratio::within_run(tcp, udp);
                let mut case = ClaimCase::order(&setting.placement, label, contrast);
                case.outcome = match case.outcome {
                    CaseOutcome::Supports if none_lost => CaseOutcome::Contradicts(0.0),
                    CaseOutcome::Supports if !some_lost => CaseOutcome::Undecided(None),
                    standing => standing,
                };
                pairs.cases.push(case);
            }
        }
        judge_all(pairs, needs)
    }
}
