//! `reliability`: what is lost, doubled, disordered or damaged between two local processes.

use std::collections::BTreeMap;

use plumb_harness::spec::MessageShape;

use crate::claims::{MILLER, ZHAO};
use crate::factor::channel::{self, BLOCK, CONGESTION, MECHANISM, ONE_OR_TWO_CPUS, SIZE};
use crate::prelude::*;

/// Every message checked, with a prompt receiver and with a slow one.
pub static EXPERIMENT: Experiment = Experiment {
    id: "reliability",
    study: "ipc",
    question: "Which local mechanisms lose, double, disorder or damage messages under load?",
    hypothesis: "Only UDP loses messages, and only when its receiver is slower than its sender; \
                 nothing is ever doubled, disordered or damaged on one machine.",
    factors: &[
        Factor { domain: FactorDomain::Mechanisms(carries_data), ..MECHANISM }.at(Found(|_| {
            let mechanisms =
                Mechanism::ALL.into_iter().filter(|mechanism| carries_data(*mechanism));
            mechanisms.map(|mechanism| mechanism.name().into()).collect()
        })),
        ONE_OR_TWO_CPUS,
        BLOCK,
        SIZE.at(Numbers(&[1 << 10])).at_paper(Numbers(&[64, 1 << 10, 16 << 10])),
        CONGESTION,
        Factor::of_words(
            "receiver",
            "prompt, or pausing 20 µs after each message",
            &["prompt", "slowed"],
        ),
    ],
    responses: &[
        share("lost", "share of messages that never arrived"),
        share("duplicated", "share of messages that arrived more than once"),
        share("reordered", "share of messages that arrived after a later one"),
        share("corrupted", "share of messages whose bytes had changed"),
    ],
    plan_cell: |point| {
        let is_slowed = point.text("receiver") == Some("slowed");
        let task = BlockTask::Reliability {
            size: channel::size_of(point.factors),
            receiver_pause_ns: if is_slowed { PAUSE_NS } else { 0 },
            fault: point.response.to_owned(),
        };
        Ok((channel::group(point)?, task))
    },
    analysis: ExperimentAnalysis { claims: CLAIMS, ..ExperimentAnalysis::PLAIN },
    page: ExperimentPage { title: "Reliability under load", ..ExperimentPage::PLAIN },
};

/// Pause of a slowed receiver: longer than any local mechanism needs for a small message.
const PAUSE_NS: u64 = 20_000;

/// Whether there is data to check.
fn carries_data(mechanism: Mechanism) -> bool {
    !matches!(mechanism.message_shape(), MessageShape::Fixed(_))
}

const fn share(name: &'static str, meaning: &'static str) -> ResponseVariable {
    ResponseVariable::share(name, Better::Lower, meaning)
}

const CLAIMS: &[PublishedClaim] = &[
    PublishedClaim {
        id: "ipc.reliability.pipe",
        claim: "A pipe ensures ordering and correct delivery.",
        judge: |evidence| never(evidence, &["pipe"], &FAULTS),
        ..PublishedClaim::of(MILLER)
    },
    PublishedClaim {
        id: "ipc.reliability.tcp",
        claim: "TCP guarantees reliable and ordered communication.",
        judge: |evidence| never(evidence, &["tcp4", "tcp6"], &FAULTS),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.reliability.udp-loses",
        claim: "Datagram sockets can (and will) experience packet loss.",
        judge: |evidence| happens(evidence, "lost"),
        ..PublishedClaim::of(MILLER)
    },
    PublishedClaim {
        id: "ipc.reliability.udp-reorders",
        claim: "UDP sends packets in any order.",
        judge: |evidence| happens(evidence, "reordered"),
        ..PublishedClaim::of(ZHAO)
    },
    PublishedClaim {
        id: "ipc.reliability.udp-intact",
        claim: "If a datagram is delivered, its contents are intact.",
        judge: |evidence| never(evidence, &UDP, &["corrupted"]),
        ..PublishedClaim::of(MILLER)
    },
];

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

/// "It never happens": one event refutes it, and many messages without one agree.
fn never(evidence: &ClaimEvidence<'_>, mechanisms: &[&str], faults: &[&str]) -> ClaimJudgment {
    let cases = faults.iter().flat_map(|fault| counts(evidence, mechanisms, fault));
    let judged = |count: FaultCount| {
        let outcome = if count.events > 0.0 {
            CaseOutcome::Contradicts(0.0)
        } else if count.messages >= ENOUGH {
            CaseOutcome::Supports(0.0)
        } else {
            CaseOutcome::Undecided(Some(count.more_launches()))
        };
        let case = count.into_case(outcome);
        ClaimCase { strength: -case.strength, ..case }
    };
    judge_all(cases.map(judged).collect(), NEEDS)
}

/// "It can happen": one event shows it, and no number of messages without one refutes it.
fn happens(evidence: &ClaimEvidence<'_>, fault: &str) -> ClaimJudgment {
    let judged = |count: FaultCount| {
        let seen = count.events > 0.0;
        let outcome = if seen { CaseOutcome::Supports(0.0) } else { CaseOutcome::Undecided(None) };
        count.into_case(outcome)
    };
    judge_any(counts(evidence, &UDP, fault).into_iter().map(judged).collect(), NEEDS)
}

/// What was counted of a fault, one entry a setting.
fn counts(evidence: &ClaimEvidence<'_>, mechanisms: &[&str], fault: &str) -> Vec<FaultCount> {
    let mut counts: BTreeMap<String, FaultCount> = BTreeMap::new();
    for found in FAULTS.iter().flat_map(|response| evidence.cells(EXPERIMENT.id, response)) {
        let Some(mechanism) = found.text("mechanism").filter(|m| mechanisms.contains(m)) else {
            continue;
        };
        let count = counts.entry(found.cell.factors.to_string()).or_default();
        let receiver = found.text("receiver").map_or_else(String::new, |r| format!(" ({r})"));
        count.label = format!("{mechanism}{receiver} {fault}");
        found.level("placement").clone_into(&mut count.placement);
        let sum = |name: &str| -> f64 {
            let counted = found.blocks().filter_map(|block| block.counters.get(name));
            counted.map(|n| *n as f64).sum()
        };
        count.events += sum(fault);
        count.messages += sum("sent");
        count.launches += found.launches.len() as u64;
    }
    counts.into_values().collect()
}

impl FaultCount {
    /// Launches that would probably send the messages that are missing.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and the messages that are enough"
    )]
    fn more_launches(&self) -> u64 {
        let each = self.messages / (self.launches as f64).max(1.0);
        ((ENOUGH - self.messages) / each.max(1.0)).ceil() as u64
    }

    fn into_case(self, outcome: CaseOutcome) -> ClaimCase {
        let Self { placement, label, events, messages, .. } = self;
        let share = if messages > 0.0 { events / messages } else { 0.0 };
        let none = events == 0.0;
        ClaimCase {
            placement,
            label,
            value: Some(share),
            // A count of events within launches has no interval over launches to speak of.
            ci95: none.then(|| [0.0, (3.0 / messages.max(3.0))]),
            text: if none {
                format!(
                    "not seen in {messages} (rate below {})",
                    significant(3.0 / messages.max(3.0), 2)
                )
            } else {
                format!("{events} of {messages}")
            },
            outcome,
            strength: share,
        }
    }
}
