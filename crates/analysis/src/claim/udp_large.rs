//! Claims about UDP messages past the datagram limit (Zhao 2014, Figure 5, §V and §VI).
//!
//! Left out: injected loss, which says nothing about what the paper saw.

use plumb_base::units::Unit;

use super::Claim;
use super::evidence::{Evidence, Pairs};
use super::finding::{Case, Finding, Standing, every};
use super::latency_local::bytes;
use super::published::ZHAO;
use crate::contrast;
use crate::summary::Measured;

const EXPERIMENT: &str = "udp.large";
const NEEDS: &str = "plumb run udp.large";

/// The largest UDP payload over IPv4, which is where large begins (RFC 768, RFC 791).
const LARGE: i64 = 65_507;

/// A message is faulty when more than one in a thousand does not arrive.
const FAULTY: f64 = 0.999;

/// The claims of `udp.large`.
pub const CLAIMS: &[Claim] = &[
    Claim {
        id: "ipc.udp.large-is-faulty",
        experiment: EXPERIMENT,
        claim: "Large UDP messages tend to be faulty.",
        source: ZHAO,
        historical: Some("Figure 5, remote UDP; more than 1 in 1,000 lost is taken as faulty"),
        judge: |evidence| every(losses(evidence), NEEDS),
    },
    Claim {
        id: "ipc.udp.tcp-wins-because-of-loss",
        experiment: EXPERIMENT,
        claim: "TCP is faster for large messages because UDP has to try several times.",
        source: ZHAO,
        historical: Some("§V and §VI"),
        judge: tcp_wins,
    },
];

/// Cells of the delivered share of large messages without injected loss.
fn delivered<'a>(evidence: &Evidence<'a>) -> Vec<&'a Measured<'a>> {
    evidence
        .cells(EXPERIMENT, "delivered")
        .filter(|found| {
            let factors = &found.cell.factors;
            factors.int("loss").unwrap_or(0) == 0
                && factors.int("size").is_some_and(|size| size >= LARGE)
        })
        .collect()
}

fn losses(evidence: &Evidence<'_>) -> Pairs {
    let mut pairs = Pairs::default();
    for found in delivered(evidence) {
        let factors = &found.cell.factors;
        let ends = found.interval().map(|interval| [interval.lo, interval.hi]);
        let label = format!(
            "delivered at {}{}",
            bytes(factors.int("size").unwrap_or(0)),
            factors.text("fragmentation").map_or_else(String::new, |by| format!(", cut by {by}"))
        );
        let placement = factors.text("placement").unwrap_or("unknown");
        let bounds = (0.0, FAULTY);
        let unit = Unit::Share;
        pairs.cases.push(Case::quantity(placement, label, found.median(), ends, bounds, unit));
    }
    pairs
}

/// TCP must win, and UDP must lose messages where it does: a win without any loss has another
/// cause.
fn tcp_wins(evidence: &Evidence<'_>) -> Finding {
    let needs = "plumb run ipc --quick: udp.large, and latency.local for udp4 and tcp4 from 64Ki";
    let lossless = losses(evidence).cases;
    if lossless.is_empty() {
        return Finding::missing(needs);
    }
    let sizes = evidence.sizes("latency.local", "latency", &["udp4", "tcp4"]);
    let mut pairs = Pairs::default();
    for setting in evidence.settings("latency.local", "latency") {
        let here: Vec<&Case> =
            lossless.iter().filter(|case| case.placement == setting.placement).collect();
        if here.is_empty() {
            continue;
        }
        let none_lost = here.iter().all(|case| matches!(case.standing, Standing::Against(_)));
        let some_lost = here.iter().any(|case| case.standing == Standing::For);
        for size in sizes.iter().filter(|size| **size >= LARGE) {
            let at =
                |mechanism| evidence.at("latency.local", "latency", mechanism, &setting, *size);
            let (Some(tcp), Some(udp)) = (at("tcp4"), at("udp4")) else { continue };
            let cause = if none_lost { "nothing lost" } else { "with loss" };
            let label = format!("udp4/tcp4 {}, {cause}", bytes(*size));
            let contrast = contrast::within_run(tcp, udp);
            let mut case = Case::order(&setting.placement, label, contrast);
            case.standing = match case.standing {
                Standing::For if none_lost => Standing::Against(0.0),
                Standing::For if !some_lost => Standing::Open(None),
                standing => standing,
            };
            pairs.cases.push(case);
        }
    }
    every(pairs, needs)
}
