//! Claims about jumbo packets on paths through others' networks (Weigle, Feng & Gardner 2001).
//!
//! Left out: what TCP makes of it.

use plumb_base::units::Unit;

use super::Claim;
use super::evidence::{Evidence, Pairs};
use super::finding::{Case, Finding, every};
use super::published::WEIGLE;
use crate::contrast;
use crate::summary::Measured;

const EXPERIMENT: &str = "mtu.path";

/// Bytes of a packet that Ethernet does not take.
const ETHERNET: i64 = 1_500;

/// A packet size that is not delivered: fewer than this share arrive.
const UNDELIVERED: f64 = 0.05;

/// The claims of `mtu.path`.
pub const CLAIMS: &[Claim] = &[
    Claim {
        id: "gigabit.mtu.jumbo-dropped-with-df",
        experiment: EXPERIMENT,
        claim: "Where a hop takes only 1500 bytes, jumbo packets are dropped entirely if the don't \
                fragment bit is set.",
        source: WEIGLE,
        historical: Some("'fragment them to 1500 bytes or drop them entirely'; no figure"),
        judge: |evidence| delivered(evidence, "forbidden", (0.0, UNDELIVERED)),
    },
    Claim {
        id: "gigabit.mtu.jumbo-fragmented-without-df",
        experiment: EXPERIMENT,
        claim: "Where a hop takes only 1500 bytes and routers may cut packets, jumbo packets arrive in \
                fragments.",
        source: WEIGLE,
        historical: Some("'fragment them to 1500 bytes or drop them entirely'; no figure"),
        judge: |evidence| delivered(evidence, "allowed", (1.0 - UNDELIVERED, 1.0)),
    },
    Claim {
        id: "gigabit.mtu.jumbos-block-urgent-packets",
        experiment: EXPERIMENT,
        claim: "A small high-priority packet behind several jumbo packets has to wait longer than \
                behind as many of 1500 bytes.",
        source: WEIGLE,
        historical: None,
        judge: blocked,
    },
];

fn text<'a>(cell: &'a Measured<'_>, factor: &str) -> &'a str {
    cell.cell.factors.text(factor).unwrap_or("unknown")
}

fn int(cell: &Measured<'_>, factor: &str) -> i64 {
    cell.cell.factors.int(factor).unwrap_or(0)
}

/// The share of jumbo packets that gets over the narrow hop which tells.
fn delivered(evidence: &Evidence<'_>, fragments: &str, bounds: (f64, f64)) -> Finding {
    let mut pairs = Pairs::default();
    let chosen = |cell: &&Measured<'_>| {
        text(cell, "path") == "narrow"
            && text(cell, "fragments") == fragments
            && int(cell, "packet") > ETHERNET
    };
    for cell in evidence.cells(EXPERIMENT, "delivered").filter(chosen) {
        let ends = cell.interval().map(|interval| [interval.lo, interval.hi]);
        let label = format!("packets of {} at {}", int(cell, "packet"), text(cell, "rate"));
        let (place, median) = (text(cell, "placement"), cell.median());
        pairs.cases.push(Case::quantity(place, label, median, ends, bounds, Unit::Share));
    }
    every(pairs, "plumb run mtu.path --set path=narrow --set ahead=0")
}

/// Behind jumbos against behind as many packets of Ethernet's size.
fn blocked(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    let behind = |cell: &&Measured<'_>| int(cell, "ahead") > 1;
    for jumbo in evidence.cells(EXPERIMENT, "urgent").filter(behind) {
        if int(jumbo, "packet") <= ETHERNET {
            continue;
        }
        let rest = jumbo.cell.factors.clone().without("packet");
        let usual = evidence.cells(EXPERIMENT, "urgent").find(|cell| {
            int(cell, "packet") == ETHERNET && cell.cell.factors.clone().without("packet") == rest
        });
        let label = format!(
            "behind {} of {}/{ETHERNET} at {}",
            int(jumbo, "ahead"),
            int(jumbo, "packet"),
            text(jumbo, "rate")
        );
        match usual {
            Some(usual) => {
                let contrast = contrast::within_run(usual, jumbo);
                pairs.cases.push(Case::order(text(jumbo, "placement"), label, contrast));
            }
            None => pairs.missing.push(label),
        }
    }
    every(pairs, "plumb run mtu.path --set path=jumbo --set packet=1500,9000 --set ahead=8")
}
