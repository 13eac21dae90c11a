//! Claims about what is lost, doubled, reordered or changed (Miller 2014; Zhao 2014, §II).
//!
//! Counting, not estimating: one lost message refutes "never" and proves "can". Left out: where
//! on its way a message was lost.

use super::Claim;
use super::evidence::{Evidence, Pairs};
use super::finding::{Case, Finding, Standing, every, some};
use super::published::{MILLER, ZHAO};
use crate::summary::Measured;

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

/// Cases of "it never happens".
fn never(evidence: &Evidence<'_>, mechanisms: &[&str], faults: &[&'static str]) -> Pairs {
    let mut pairs = Pairs::default();
    for fault in faults {
        for found in cells(evidence, mechanisms, fault) {
            let case = case(found, fault, |events, messages| {
                if events > 0.0 {
                    Standing::Against(0.0)
                } else if messages >= ENOUGH {
                    Standing::For
                } else {
                    Standing::Open(None)
                }
            });
            pairs.cases.push(Case { strength: -case.strength, ..case });
        }
    }
    pairs
}

/// A finding of "it can happen".
fn happens(evidence: &Evidence<'_>, fault: &'static str) -> Finding {
    let mut pairs = Pairs::default();
    for found in cells(evidence, &UDP, fault) {
        pairs.cases.push(case(found, fault, |events, messages| {
            if events > 0.0 {
                Standing::For
            } else if messages >= ENOUGH {
                Standing::Against(0.0)
            } else {
                Standing::Open(None)
            }
        }));
    }
    some(pairs, NEEDS)
}

fn cells<'a>(
    evidence: &Evidence<'a>,
    mechanisms: &[&str],
    fault: &'static str,
) -> Vec<&'a Measured<'a>> {
    evidence
        .cells(EXPERIMENT, fault)
        .filter(|found| {
            found.cell.factors.text("mechanism").is_some_and(|name| mechanisms.contains(&name))
        })
        .collect()
}

fn case(found: &Measured<'_>, fault: &str, stand: fn(f64, f64) -> Standing) -> Case {
    let factors = &found.cell.factors;
    let count = |name: &str| -> f64 {
        let counted: u64 = found.blocks().filter_map(|block| block.counters.get(name)).sum();
        counted as f64
    };
    let (events, messages) = (count(fault), count("sent"));
    let share = if messages > 0.0 { events / messages } else { 0.0 };
    let label = format!(
        "{} {}{}",
        factors.text("mechanism").unwrap_or("unnamed"),
        fault,
        factors.text("receiver").map_or_else(String::new, |receiver| format!(", {receiver}")),
    );
    let text = if events > 0.0 {
        format!("{events} of {messages} messages")
    } else {
        format!("none of {messages} messages")
    };
    let ends = if events > 0.0 {
        found.interval().map(|interval| [interval.lo, interval.hi])
    } else {
        Some([0.0, if messages > 0.0 { (3.0 / messages).min(1.0) } else { 1.0 }])
    };
    Case {
        placement: factors.text("placement").unwrap_or("unknown").to_owned(),
        label,
        value: Some(share),
        ends,
        text,
        standing: stand(events, messages),
        strength: share,
    }
}
