//! Claims about windows and the product of rate and delay (Weigle, Feng & Gardner 2001).
//!
//! What a link can carry is its rate less the headers that each segment costs. Left out: several
//! flows in one queue.

use plumb_base::units::{Unit, format_bytes};

use super::Claim;
use super::evidence::{Evidence, Pairs};
use super::finding::{Case, Finding, every};
use super::published::WEIGLE;
use crate::pipe::Pipe;
use crate::summary::Measured;

const EXPERIMENT: &str = "window.bdp";

/// The window of TCP without scaling (RFC 9293 §3.1; "64 KB" in the paper).
const CLASSIC: f64 = 65_536.0;

/// Near enough to what is predicted.
const NEAR: (f64, f64) = (0.97, 1.03);

/// A link that is used less than this is not filled.
const FILLED: f64 = 0.95;

/// The claims of `window.bdp`.
pub const CLAIMS: &[Claim] = &[
    Claim {
        id: "gigabit.window.64k-leaves-long-fat-pipes-empty",
        experiment: EXPERIMENT,
        claim: "With TCP's default flow-control window of 64 KB, connections with a larger product \
                of bandwidth and delay cannot keep the network pipe full.",
        source: WEIGLE,
        historical: Some("16 bits, so 64 KB; 1 Gb/s × 100 ms = 12.5 MB across the United States"),
        judge: classic_window,
    },
    Claim {
        id: "gigabit.window.one-a-round-trip",
        experiment: EXPERIMENT,
        claim: "A window smaller than the product of bandwidth and delay gives one window a round \
                trip.",
        source: WEIGLE,
        historical: None,
        judge: one_a_round_trip,
    },
    Claim {
        id: "gigabit.reno.three-quarters",
        experiment: EXPERIMENT,
        claim: "TCP Reno never uses more than 75 % of the available bandwidth on average.",
        source: WEIGLE,
        historical: Some("75 %: under 750 Mb/s on gigabit Ethernet"),
        judge: reno_three_quarters,
    },
];

/// A cell's setting as numbers.
fn pipe_of(cell: &Measured<'_>) -> Option<Pipe> {
    let factors = &cell.cell.factors;
    let window = factors.int("window").map(|bytes| bytes as f64);
    Pipe::of(factors.text("rate")?, factors.text("rtt")?, window)
}

/// The measured throughput as a share of what is expected, against bounds.
fn share(cell: &Measured<'_>, expected: f64, bounds: (f64, f64)) -> Case {
    let factors = &cell.cell.factors;
    let text = |name: &str| factors.text(name).unwrap_or("unknown").to_owned();
    let window = factors.int("window").and_then(|bytes| u64::try_from(bytes).ok());
    let window = window.map_or_else(|| "default".to_owned(), format_bytes);
    let label = format!("{window}, {}, {}, {}", text("rtt"), text("rate"), text("queue"));
    let ends = cell.interval().map(|interval| [interval.lo / expected, interval.hi / expected]);
    let value = cell.median() / expected;
    Case::quantity(&text("congestion"), label, value, ends, bounds, Unit::Share)
}

/// At every link whose product is more than 64 KiB: how much of it a window of 64 KiB fills.
fn classic_window(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    for cell in evidence.cells(EXPERIMENT, "throughput") {
        let Some(pipe) = pipe_of(cell) else { continue };
        if pipe.window == Some(CLASSIC) && pipe.product > CLASSIC {
            pairs.cases.push(share(cell, pipe.capacity, (0.0, FILLED)));
        }
    }
    every(pairs, "plumb run window.bdp --set window=64Ki --set rtt=40ms --set rate=100mbit")
}

/// Where the window is smaller than the product: the throughput against window ÷ round trip.
fn one_a_round_trip(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    for cell in evidence.cells(EXPERIMENT, "throughput") {
        let Some(pipe) = pipe_of(cell) else { continue };
        if let Some(window) = pipe.window.filter(|window| *window < pipe.product) {
            pairs.cases.push(share(cell, window / pipe.rtt, NEAR));
        }
    }
    every(pairs, "plumb run window.bdp --set window=8Ki,64Ki --set rtt=100ms --set rate=100mbit")
}

/// Reno with a window that does not bound it: the share of the link that it uses.
fn reno_three_quarters(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    for cell in evidence.cells(EXPERIMENT, "throughput") {
        let Some(pipe) = pipe_of(cell) else { continue };
        let is_reno = cell.cell.factors.text("congestion") == Some("reno");
        // Up to one product on the way and one in the queue.
        let is_free = pipe.window.is_none_or(|window| window > 2.5 * pipe.product);
        if is_reno && is_free {
            pairs.cases.push(share(cell, pipe.capacity, (0.0, 0.75)));
        }
    }
    every(pairs, "plumb run window.bdp --set congestion=reno --set window=4Mi --set rtt=20ms")
}
