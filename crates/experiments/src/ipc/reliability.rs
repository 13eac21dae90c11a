//! `reliability`: what is lost, doubled, disordered or damaged between two local processes.

use plumb_base::units::Unit;
use plumb_harness::spec::BlockTask;
use plumb_harness::spec::{Mechanism, MessageShape};
use plumb_store::record::{Better, FactorLevel};

use crate::definition::{CellDecision, Experiment, ResponseVariable};
use crate::factor::{Factor, FactorDomain, always, keep_levels, numbers, words};
use crate::factors::channel::{self, CONGESTION, MECHANISM, PLACEMENT, SIZE, WAKE};
use crate::preset::RunPreset;
use plumb_analysis::registry::ExperimentAnalysis;
use plumb_report::registry::ExperimentPage;

/// Every message checked, with a prompt receiver and with a slow one.
pub static EXPERIMENT: Experiment = Experiment {
    id: "reliability",
    study: "ipc",
    question: "Which local mechanisms lose, double, disorder or damage messages under load?",
    hypothesis: "Only UDP loses messages, and only when its receiver is slower than its sender; \
                 nothing is ever doubled, disordered or damaged on one machine.",
    factors: &[
        Factor {
            domain: FactorDomain::Mechanisms(carries_data),
            levels: |_| {
                Mechanism::ALL
                    .into_iter()
                    .filter(|m| carries_data(*m))
                    .map(|m| FactorLevel::from(m.name()))
                    .collect()
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
                RunPreset::Paper => numbers(&[64, 1 << 10, 16 << 10]),
                _ => numbers(&[1 << 10]),
            },
            ..SIZE
        },
        CONGESTION,
        Factor {
            name: "receiver",
            meaning: "prompt, or pausing 20 µs after each message",
            domain: FactorDomain::Words(&["prompt", "slowed"]),
            levels: |_| words(&["prompt", "slowed"]),
            applies: always,
            fit: keep_levels,
            labels: &[],
        },
    ],
    responses: &[
        share("lost", "share of messages that never arrived"),
        share("duplicated", "share of messages that arrived more than once"),
        share("reordered", "share of messages that arrived after a later one"),
        share("corrupted", "share of messages whose bytes had changed"),
    ],
    plan_cell: |setting| {
        let is_slowed = setting.factors.text("receiver") == Some("slowed");
        let task = BlockTask::Reliability {
            size: channel::size_of(setting.factors),
            receiver_pause_ns: if is_slowed { PAUSE_NS } else { 0 },
            fault: setting.response.to_owned(),
        };
        CellDecision::measure(channel::group(setting), task)
    },
    analysis: ExperimentAnalysis { claims: claims::CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage { title: "Reliability under load", ..ExperimentPage::PLAIN },
};

/// Pause of a slowed receiver: longer than any local mechanism needs for a small message.
const PAUSE_NS: u64 = 20_000;

/// Whether there is data to check.
fn carries_data(mechanism: Mechanism) -> bool {
    !matches!(mechanism.message_shape(), MessageShape::Fixed(_))
}

const fn share(name: &'static str, meaning: &'static str) -> ResponseVariable {
    ResponseVariable { name, unit: Unit::Share, better: Better::Lower, meaning }
}

mod claims {
    //! Published claims and how each is judged.

    use crate::claims::ipc::*;
    use plumb_analysis::claim::{
        CaseOutcome, ClaimCase, ClaimCases, ClaimEvidence, ClaimJudgment, PublishedClaim,
        judge_all, judge_any,
    };

    use std::collections::BTreeMap;

    pub(super) const CLAIMS: &[PublishedClaim] = &[
        PublishedClaim {
            id: "ipc.reliability.pipe",
            claim: "A pipe ensures ordering and correct delivery.",
            source: MILLER,
            historical: None,
            figures: &[],
            judge: |evidence| judge_all(never(evidence, &["pipe"], &FAULTS), NEEDS),
        },
        PublishedClaim {
            id: "ipc.reliability.tcp",
            claim: "TCP guarantees reliable and ordered communication.",
            source: ZHAO,
            historical: None,
            figures: &[],
            judge: |evidence| judge_all(never(evidence, &["tcp4", "tcp6"], &FAULTS), NEEDS),
        },
        PublishedClaim {
            id: "ipc.reliability.udp-loses",
            claim: "Datagram sockets can (and will) experience packet loss.",
            source: MILLER,
            historical: None,
            figures: &[],
            judge: |evidence| happens(evidence, "lost"),
        },
        PublishedClaim {
            id: "ipc.reliability.udp-reorders",
            claim: "UDP sends packets in any order.",
            source: ZHAO,
            historical: None,
            figures: &[],
            judge: |evidence| happens(evidence, "reordered"),
        },
        PublishedClaim {
            id: "ipc.reliability.udp-intact",
            claim: "If a datagram is delivered, its contents are intact.",
            source: MILLER,
            historical: None,
            figures: &[],
            judge: |evidence| judge_all(never(evidence, &UDP, &["corrupted"]), NEEDS),
        },
    ];

    const EXPERIMENT: &str = "reliability";

    const NEEDS: &str = "plumb run reliability --set mechanism=pipe,tcp4,udp4";

    /// Messages without an event that show a rate below one in a thousand (Hanley & Lippman-Hand
    /// 1983: 3/n bounds a rate of which n trials showed nothing).
    const ENOUGH: f64 = 3_000.0;

    const UDP: [&str; 2] = ["udp4", "udp6"];

    const FAULTS: [&str; 4] = ["lost", "duplicated", "reordered", "corrupted"];

    /// What was counted at one setting, over the cells of all four faults: each block counts them all.
    #[derive(Clone, Debug, Default)]
    struct FaultCount {
        placement: String,
        label: String,
        events: f64,
        messages: f64,
        launches: u64,
    }

    /// Cases of "it never happens".
    fn never(evidence: &ClaimEvidence<'_>, mechanisms: &[&str], faults: &[&str]) -> ClaimCases {
        let mut pairs = ClaimCases::default();
        for fault in faults {
            for count in counts(evidence, mechanisms, fault) {
                let standing = match count.outcome() {
                    CaseOutcome::Supports => CaseOutcome::Contradicts(0.0),
                    CaseOutcome::Contradicts(_) => CaseOutcome::Supports,
                    open @ CaseOutcome::Undecided(_) => open,
                };
                let case = count.case(fault);
                pairs.cases.push(ClaimCase { outcome: standing, strength: -case.strength, ..case });
            }
        }
        pairs
    }

    /// A finding of "it can happen".
    fn happens(evidence: &ClaimEvidence<'_>, fault: &str) -> ClaimJudgment {
        let cases = counts(evidence, &UDP, fault).iter().map(|count| count.case(fault)).collect();
        judge_any(ClaimCases { cases, missing: Vec::new() }, NEEDS)
    }

    fn counts(evidence: &ClaimEvidence<'_>, mechanisms: &[&str], fault: &str) -> Vec<FaultCount> {
        let mut counts: BTreeMap<String, FaultCount> = BTreeMap::new();
        for response in FAULTS {
            for found in evidence.cells(EXPERIMENT, response) {
                let factors = &found.cell.factors;
                let Some(mechanism) = factors.text("mechanism").filter(|m| mechanisms.contains(m))
                else {
                    continue;
                };
                let count = counts.entry(factors.to_string()).or_default();
                let receiver =
                    factors.text("receiver").map_or_else(String::new, |r| format!(" ({r})"));
                count.label = format!("{mechanism}{receiver}");
                factors.text("placement").unwrap_or("unknown").clone_into(&mut count.placement);
                let sum = |name: &str| -> f64 {
                    found
                        .blocks()
                        .filter_map(|block| block.counters.get(name))
                        .map(|n| *n as f64)
                        .sum()
                };
                count.events += sum(fault);
                count.messages += sum("sent");
                count.launches += found.launches.len() as u64;
            }
        }
        counts.into_values().collect()
    }

    impl FaultCount {
        /// Whether it can happen: one event shows it, many messages without one refute it.
        fn outcome(&self) -> CaseOutcome {
            if self.events > 0.0 {
                CaseOutcome::Supports
            } else if self.messages >= ENOUGH {
                CaseOutcome::Contradicts(0.0)
            } else {
                let each = self.messages / (self.launches as f64).max(1.0);
                let more = (ENOUGH - self.messages) / each.max(1.0);
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "between 1 and the messages that are enough"
                )]
                CaseOutcome::Undecided(Some(more.ceil() as u64))
            }
        }

        fn case(&self, fault: &str) -> ClaimCase {
            let Self { events, messages, .. } = self;
            let share = if *messages > 0.0 { events / messages } else { 0.0 };
            let none = *events == 0.0;
            ClaimCase {
                placement: self.placement.clone(),
                label: format!("{} {fault}", self.label),
                value: Some(share),
                // A count of events within launches has no interval over launches to speak of.
                ci95: none.then(|| [0.0, (3.0 / messages.max(3.0))]),
                text: if none {
                    format!("none of {messages}")
                } else {
                    format!("{events} of {messages}")
                },
                outcome: self.outcome(),
                strength: share,
            }
        }
    }
}
