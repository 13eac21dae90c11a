//! Claims about what is lost, doubled, reordered or changed (Miller 2014; Zhao 2014, §II).
//!
//! Counting, not estimating: one lost message refutes "never" and proves "can". Left out: where
//! on its way a message was lost.

use std::collections::BTreeMap;

use super::Claim;
use super::evidence::{Evidence, Pairs};
use super::finding::{Case, Finding, Standing, every, some};
use super::published::{MILLER, ZHAO};

const EXPERIMENT: &str = "reliability";
const NEEDS: &str = "plumb run reliability --set mechanism=pipe,tcp4,udp4";

/// Messages without an event that show a rate below one in a thousand (Hanley & Lippman-Hand
/// 1983: 3/n bounds a rate of which n trials showed nothing).
const ENOUGH: f64 = 3_000.0;

/// The claims of `reliability`.
pub const CLAIMS: &[Claim] = &[
    Claim {
        id: "ipc.reliability.pipe",
        experiment: EXPERIMENT,
        claim: "A pipe ensures ordering and correct delivery.",
        source: MILLER,
        historical: None,
        judge: |evidence| every(never(evidence, &["pipe"], &FAULTS), NEEDS),
    },
    Claim {
        id: "ipc.reliability.tcp",
        experiment: EXPERIMENT,
        claim: "TCP guarantees reliable and ordered communication.",
        source: ZHAO,
        historical: None,
        judge: |evidence| every(never(evidence, &["tcp4", "tcp6"], &FAULTS), NEEDS),
    },
    Claim {
        id: "ipc.reliability.udp-loses",
        experiment: EXPERIMENT,
        claim: "Datagram sockets can (and will) experience packet loss.",
        source: MILLER,
        historical: None,
        judge: |evidence| happens(evidence, "lost"),
    },
    Claim {
        id: "ipc.reliability.udp-reorders",
        experiment: EXPERIMENT,
        claim: "UDP sends packets in any order.",
        source: ZHAO,
        historical: None,
        judge: |evidence| happens(evidence, "reordered"),
    },
    Claim {
        id: "ipc.reliability.udp-intact",
        experiment: EXPERIMENT,
        claim: "If a datagram is delivered, its contents are intact.",
        source: MILLER,
        historical: None,
        judge: |evidence| every(never(evidence, &UDP, &["corrupted"]), NEEDS),
    },
];

const UDP: [&str; 2] = ["udp4", "udp6"];
const FAULTS: [&str; 4] = ["lost", "duplicated", "reordered", "corrupted"];

/// What was counted at one setting, over the cells of all four faults: each block counts them all.
#[derive(Clone, Debug, Default)]
struct Count {
    placement: String,
    who: String,
    events: f64,
    messages: f64,
    launches: u64,
}

/// Cases of "it never happens".
fn never(evidence: &Evidence<'_>, mechanisms: &[&str], faults: &[&str]) -> Pairs {
    let mut pairs = Pairs::default();
    for fault in faults {
        for count in counts(evidence, mechanisms, fault) {
            let standing = match count.standing() {
                Standing::For => Standing::Against(0.0),
                Standing::Against(_) => Standing::For,
                open @ Standing::Open(_) => open,
            };
            let case = count.case(fault);
            pairs.cases.push(Case { standing, strength: -case.strength, ..case });
        }
    }
    pairs
}

/// A finding of "it can happen".
fn happens(evidence: &Evidence<'_>, fault: &str) -> Finding {
    let cases = counts(evidence, &UDP, fault).iter().map(|count| count.case(fault)).collect();
    some(Pairs { cases, missing: Vec::new() }, NEEDS)
}

fn counts(evidence: &Evidence<'_>, mechanisms: &[&str], fault: &str) -> Vec<Count> {
    let mut counts: BTreeMap<String, Count> = BTreeMap::new();
    for response in FAULTS {
        for found in evidence.cells(EXPERIMENT, response) {
            let factors = &found.cell.factors;
            let Some(mechanism) = factors.text("mechanism").filter(|m| mechanisms.contains(m))
            else {
                continue;
            };
            let count = counts.entry(factors.to_string()).or_default();
            let receiver = factors.text("receiver").map_or_else(String::new, |r| format!(" ({r})"));
            count.who = format!("{mechanism}{receiver}");
            factors.text("placement").unwrap_or("unknown").clone_into(&mut count.placement);
            let sum = |name: &str| -> f64 {
                found.blocks().filter_map(|block| block.counters.get(name)).map(|n| *n as f64).sum()
            };
            count.events += sum(fault);
            count.messages += sum("sent");
            count.launches += found.launches.len() as u64;
        }
    }
    counts.into_values().collect()
}

impl Count {
    /// Whether it can happen: one event shows it, many messages without one refute it.
    fn standing(&self) -> Standing {
        if self.events > 0.0 {
            Standing::For
        } else if self.messages >= ENOUGH {
            Standing::Against(0.0)
        } else {
            let each = self.messages / (self.launches as f64).max(1.0);
            let more = (ENOUGH - self.messages) / each.max(1.0);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 1 and the messages that are enough"
            )]
            Standing::Open(Some(more.ceil() as u64))
        }
    }

    fn case(&self, fault: &str) -> Case {
        let Self { events, messages, .. } = self;
        let share = if *messages > 0.0 { events / messages } else { 0.0 };
        let none = *events == 0.0;
        Case {
            placement: self.placement.clone(),
            label: format!("{} {fault}", self.who),
            value: Some(share),
            // A count of events within launches has no interval over launches to speak of.
            ends: none.then(|| [0.0, (3.0 / messages.max(3.0))]),
            text: if none {
                format!("none of {messages}")
            } else {
                format!("{events} of {messages}")
            },
            standing: self.standing(),
            strength: share,
        }
    }
}
