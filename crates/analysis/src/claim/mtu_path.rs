//! Claims about jumbo packets on paths through others' networks (Weigle, Feng & Gardner 2001), and what
//! the standards say becomes of them there.
//!
//! Left out: hosts that look for a path's MTU by themselves.

use plumb_base::units::Unit;

use super::Claim;
use super::evidence::{Evidence, Pairs};
use super::finding::{Case, Finding, every};
use super::published::{RFC_791, RFC_1191, RFC_2923, WEIGLE};
use crate::contrast;
use crate::summary::Measured;

const EXPERIMENT: &str = "mtu.path";

/// Bytes of a packet that Ethernet does not take.
const ETHERNET: i64 = 1_500;

/// Bytes of IPv4's header, and what a packet of Ethernet's size has beside it in whole eights.
const HEADER: i64 = 20;
const FRAGMENT: u64 = 1_480;

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
        judge: |evidence| share(evidence, &DATAGRAMS, "forbidden", NONE),
    },
    Claim {
        id: "gigabit.mtu.jumbo-fragmented-without-df",
        experiment: EXPERIMENT,
        claim: "Where a hop takes only 1500 bytes and routers may cut packets, jumbo packets arrive in \
                fragments.",
        source: WEIGLE,
        historical: Some("'fragment them to 1500 bytes or drop them entirely'; no figure"),
        judge: |evidence| share(evidence, &DATAGRAMS, "allowed", ALL),
    },
    Claim {
        id: "gigabit.mtu.pieces-are-as-few-as-can-be",
        experiment: EXPERIMENT,
        claim: "A jumbo packet that is cut arrives in as few packets as 1480 bytes in each allow: 7 for \
                one of 9000 bytes.",
        source: RFC_791,
        historical: Some("section 3.2: as much in each fragment as the next hop takes"),
        judge: pieces,
    },
    Claim {
        id: "gigabit.mtu.tcp-sends-smaller-segments-when-told",
        experiment: EXPERIMENT,
        claim: "Where the hop says that it takes only 1500 bytes, TCP gets its jumbo segments across in \
                smaller ones, though nobody may cut them.",
        source: RFC_1191,
        historical: None,
        judge: |evidence| share(evidence, &TOLD, "forbidden", ALL),
    },
    Claim {
        id: "gigabit.mtu.tcp-hangs-in-a-black-hole",
        experiment: EXPERIMENT,
        claim: "Where the hop drops what is too long and says nothing, connections are made and TCP's \
                jumbo segments never arrive.",
        source: RFC_2923,
        historical: Some("section 2.1: 'black hole'; connections hang"),
        judge: |evidence| share(evidence, &SILENT, "forbidden", NONE),
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

/// Bounds of a share that is none, and of one that is all.
const NONE: (f64, f64) = (0.0, UNDELIVERED);
const ALL: (f64, f64) = (1.0 - UNDELIVERED, 1.0);

/// Jumbo packets of a kind over a kind of path.
struct Kind {
    response: &'static str,
    path: &'static str,
    command: &'static str,
}

const DATAGRAMS: Kind = Kind { response: "delivered", path: "narrow", command: NARROW };
const TOLD: Kind = Kind { response: "connected", path: "narrow", command: NARROW };
const SILENT: Kind = Kind {
    response: "connected",
    path: "black-hole",
    command: "plumb run mtu.path --set path=black-hole --set ahead=0",
};
const NARROW: &str = "plumb run mtu.path --set path=narrow --set ahead=0";

/// The cells of jumbo packets of a kind.
fn jumbos<'a>(
    evidence: &Evidence<'a>,
    kind: &Kind,
    fragments: &str,
) -> impl Iterator<Item = &'a Measured<'a>> {
    evidence.cells(EXPERIMENT, kind.response).filter(move |cell| {
        text(cell, "path") == kind.path
            && text(cell, "fragments") == fragments
            && int(cell, "packet") > ETHERNET
    })
}

fn quantity(cell: &Measured<'_>, bounds: (f64, f64), unit: Unit) -> Case {
    let ends = cell.interval().map(|interval| [interval.lo, interval.hi]);
    let label = format!("packets of {} at {}", int(cell, "packet"), text(cell, "rate"));
    Case::quantity(text(cell, "placement"), label, cell.median(), ends, bounds, unit)
}

/// The share of jumbo packets that gets across.
fn share(evidence: &Evidence<'_>, kind: &Kind, fragments: &str, bounds: (f64, f64)) -> Finding {
    let mut pairs = Pairs::default();
    let cells = jumbos(evidence, kind, fragments);
    pairs.cases.extend(cells.map(|cell| quantity(cell, bounds, Unit::Share)));
    every(pairs, kind.command)
}

/// The number of packets that jumbo packets arrive in.
fn pieces(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    let kind = Kind { response: "pieces", ..DATAGRAMS };
    for cell in jumbos(evidence, &kind, "allowed") {
        let payload = int(cell, "packet") - HEADER;
        let fewest = payload.unsigned_abs().div_ceil(FRAGMENT) as f64;
        // Half a packet more or less is none.
        pairs.cases.push(quantity(cell, (fewest - 0.5, fewest + 0.5), Unit::Count));
    }
    every(pairs, kind.command)
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
