//! Claims about TCP's options (Zhao 2014, Figure 3; Miller 2014, part 3 and its notes).
//!
//! Left out: the MTU, which the loopback device has one of.

use plumb_store::record::{Factors, Level};

use super::Claim;
use super::evidence::{Evidence, Pairs};
use super::finding::{Case, Finding, Standing, every, some};
use super::latency_local::bytes;
use super::published::{MILLER, ZHAO};
use crate::contrast::{self, Contrast};
use crate::summary::Measured;

const EXPERIMENT: &str = "tcp.options";

/// "Larger message sizes", from 4 KiB: the paper's Figure 3 names none.
const LARGER: i64 = 4 << 10;

/// A setting of the buffers matters from this share on.
const MATTERS: f64 = 0.05;

/// The claims of `tcp.options`.
pub const CLAIMS: &[Claim] = &[
    Claim {
        id: "ipc.tcp.nagle-delays",
        experiment: EXPERIMENT,
        claim: "Nagle's rule can cause unexpected delays on stream sockets, and TCP_NODELAY \
                removes them.",
        source: MILLER,
        historical: None,
        judge: nagle_delays,
    },
    Claim {
        id: "ipc.tcp.nodelay-helps-larger-messages",
        experiment: EXPERIMENT,
        claim: "TCP_NODELAY helps larger message sizes.",
        source: ZHAO,
        historical: Some("Figure 3, remote TCP latency; sizes from 4 KiB are taken as larger"),
        judge: nodelay_helps,
    },
    Claim {
        id: "ipc.tcp.buffers-matter",
        experiment: EXPERIMENT,
        claim: "Transmission times are affected by the read and write buffer sizes.",
        source: MILLER,
        historical: Some("typically 128 KB in 2014"),
        judge: buffers_matter,
    },
];

/// Sets every cell with one level of a factor against its twin with another.
fn against_twins(
    evidence: &Evidence<'_>,
    response: &'static str,
    factor: &str,
    (from, to): (&Level, &Level),
    wanted: impl Fn(&Factors) -> bool,
    case: impl Fn(&str, String, Option<Contrast>) -> Case,
) -> Pairs {
    let mut pairs = Pairs::default();
    let chosen = |measured: &&Measured<'_>, level: &Level| {
        measured.cell.factors.level(factor) == Some(level) && wanted(&measured.cell.factors)
    };
    for found in evidence.cells(EXPERIMENT, response).filter(|found| chosen(found, from)) {
        let factors = &found.cell.factors;
        let rest = factors.clone().without(factor);
        let twin = evidence
            .cells(EXPERIMENT, response)
            .filter(|twin| chosen(twin, to))
            .find(|twin| twin.cell.factors.clone().without(factor) == rest);
        let Some(twin) = twin else { continue };
        let placement = factors.text("placement").unwrap_or("unknown");
        let size = factors.int("size").map_or_else(String::new, bytes);
        let told: Vec<String> = ["quickack", "nodelay", "buffer", "congestion"]
            .into_iter()
            .filter(|name| *name != factor)
            .filter_map(|name| factors.level(name).map(|level| format!("{name}={level}")))
            .collect();
        let label = format!("{to}/{from} {size} {}", told.join(" "));
        pairs.cases.push(case(placement, label, contrast::within_run(found, twin)));
    }
    pairs
}

fn nagle_delays(evidence: &Evidence<'_>) -> Finding {
    let needs = "plumb run tcp.options --set pattern=write-write-read --set nodelay=on,off";
    let levels = (&Level::from("on"), &Level::from("off"));
    let split = |factors: &Factors| factors.text("pattern") == Some("write-write-read");
    // It *can* delay: one setting at which it does shows it.
    some(against_twins(evidence, "latency", "nodelay", levels, split, Case::order), needs)
}

fn nodelay_helps(evidence: &Evidence<'_>) -> Finding {
    let needs = "plumb run tcp.options --set nodelay=on,off --set size=4Ki,64Ki,512Ki";
    let levels = (&Level::from("on"), &Level::from("off"));
    let larger = |factors: &Factors| {
        factors.text("pattern").is_none_or(|pattern| pattern == "request")
            && factors.int("size").is_some_and(|size| size >= LARGER)
    };
    every(against_twins(evidence, "latency", "nodelay", levels, larger, Case::order), needs)
}

fn buffers_matter(evidence: &Evidence<'_>) -> Finding {
    let needs = "plumb run tcp.options --set buffer=default,16Ki,256Ki";
    let default = Level::from("default");
    let mut pairs = Pairs::default();
    let mut sizes: Vec<i64> = evidence
        .cells(EXPERIMENT, "throughput")
        .filter_map(|found| found.cell.factors.int("buffer"))
        .collect();
    sizes.sort_unstable();
    sizes.dedup();
    for size in sizes {
        let levels = (&default, &Level::Int(size));
        let found = against_twins(evidence, "throughput", "buffer", levels, |_| true, changes);
        pairs.cases.extend(found.cases);
    }
    some(pairs, needs)
}

/// A case of "it makes a difference": at least 5 % either way.
fn changes(placement: &str, label: String, contrast: Option<Contrast>) -> Case {
    let equal = (1.0 / (1.0 + MATTERS), 1.0 + MATTERS);
    let mut case = Case::ratio_within(placement, label, contrast, equal);
    case.standing = match case.standing {
        Standing::For => Standing::Against(0.0),
        Standing::Against(_) => Standing::For,
        open @ Standing::Open(_) => open,
    };
    case.strength = case.strength.abs();
    case
}
