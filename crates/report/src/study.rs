//! The experiments of the studies `stack`, `gigabit` and `scaling`, and `path.length`: their figures, and the sentences that
//! say what was found.
//!
//! What is published stands beside what is measured, out of the claims of the run. Left out: the
//! verdicts themselves (`crate::verdict`).

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::{CellResult, RunDocument};
use plumb_analysis::ratio::Ratio;
use plumb_base::units::{format_bytes, significant};
use serde_json::Value;

use crate::figure::{
    Figure, against_routers, against_size, against_window, bars, breakdown, checksum, dots, mtu,
};
use crate::headline::Tile;
use crate::table::Table;
use crate::{name, value};

mod hosts;
mod network;

/// Whether an experiment has its figures here, for all its responses together.
pub fn has(experiment: &str) -> bool {
    matches!(
        experiment,
        "mirror.rtt"
            | "stack.time"
            | "stack.checksum"
            | "stack.replay"
            | "stack.contention"
            | "breakdown.local"
            | "path.length"
            | "window.bdp"
            | "mtu.path"
    ) || hosts::has(experiment)
}

/// The figures of an experiment, over all its responses.
pub fn figures(document: &RunDocument, experiment: &str) -> Vec<Figure> {
    let cells: Vec<&CellResult> =
        document.results.iter().filter(|cell| cell.experiment == experiment).collect();
    let mut figures = match experiment {
        "mirror.rtt" => {
            let mut figures = dots::figures(&cells);
            let plain: Vec<&CellResult> =
                cells.iter().copied().filter(|cell| is_plain(&cell.factors)).collect();
            if against_size::suits(&plain) {
                figures.extend(against_size::figures(&plain));
            }
            figures
        }
        "stack.contention" => dots::figures(&cells),
        "stack.time" => bars::in_the_stack(&cells),
        "stack.replay" => bars::replay(&cells),
        "stack.checksum" => checksum::figures(&cells),
        "path.length" => against_routers::figures(&cells),
        "window.bdp" => against_window::figures(&cells),
        "mtu.path" => mtu::figures(&cells),
        other => hosts::figures(&cells, other),
    };
    let parts: Vec<_> =
        document.breakdowns.iter().filter(|entry| entry.experiment == experiment).collect();
    figures.extend(breakdown::figures(&parts));
    figures.retain(|figure| !figure.is_empty());
    figures
}

/// What was found, in a few sentences computed from the results.
pub fn sentences(document: &RunDocument, experiment: &str) -> Vec<String> {
    match experiment {
        "mirror.rtt" => against_linux(document, experiment, "the round trip"),
        "stack.time" => against_linux(document, experiment, "the time in the stack"),
        "stack.replay" => replay(document),
        "stack.checksum" => sums(document),
        "stack.contention" => contention(document),
        "breakdown.local" => {
            let parts = document.breakdowns.iter().filter(|entry| entry.experiment == experiment);
            breakdown::ordered(parts).into_iter().map(breakdown::sentence).collect()
        }
        _ if experiment.starts_with("host.") || experiment.starts_with("scaling.") => {
            hosts::sentences(document, experiment)
        }
        _ => network::sentences(document, experiment),
    }
}

/// The answers of a whole study: the first sentence of each experiment, the first two of a single one.
pub fn answers(document: &RunDocument) -> Vec<String> {
    let mut experiments: Vec<&str> =
        document.results.iter().map(|cell| cell.experiment.as_str()).collect();
    experiments.dedup();
    experiments.retain(|experiment| !sentences(document, experiment).is_empty());
    if let [one] = experiments.as_slice() {
        return sentences(document, one).into_iter().take(2).collect();
    }
    let answer = |experiment: &&str| sentences(document, experiment).into_iter().next();
    experiments.iter().filter_map(answer).take(ANSWERS_MAX).collect()
}

/// The numbers of the study that are asked for first; empty where none of them was measured.
pub fn tiles(document: &RunDocument) -> Vec<Tile> {
    let mut tiles = Vec::new();
    for (experiment, what) in [
        ("mirror.rtt", "round trip, plumb to Linux"),
        ("stack.time", "in the stack, plumb to Linux"),
    ] {
        let found = document.ratios.iter().find(|ratio| {
            ratio.experiment == experiment && is_main(ratio) && bytes(&ratio.of) == Some(60)
        });
        tiles.extend(found.map(|ratio| Tile {
            what: what.to_owned(),
            value: value::times(ratio.ratio),
            interval: bounds(ratio),
            circumstances: name::cell(&ratio.of, &WHERE.map(str::to_owned).into()),
        }));
    }
    let replayed = document.results.iter().find(|cell| is_short_replay(cell));
    tiles.extend(replayed.and_then(|cell| {
        let median = cell.summary.median?;
        let interval = cell.summary.ci95;
        Some(Tile {
            what: "UDP packets mirrored on one CPU".to_owned(),
            value: format!("{}/s", bars::rate(median)),
            interval: interval.map_or_else(String::new, |[low, high]| {
                format!("[{}, {}]", bars::rate(high), bars::rate(low))
            }),
            circumstances: "60 B, from memory".to_owned(),
        })
    }));
    let explained = breakdown::ordered(document.breakdowns.iter());
    let explained = explained.into_iter().find(|entry| is(&entry.factors, "mechanism", "tcp4"));
    tiles.extend(explained.map(|entry| Tile {
        what: "of TCP's round trip unexplained".to_owned(),
        value: format!("{:.1}%", entry.unexplained_share.mean * 100.0),
        interval: entry.unexplained_share.ci95.map_or_else(String::new, |[low, high]| {
            format!("[{:.1}, {:.1}]", low * 100.0, high * 100.0)
        }),
        circumstances: name::cell(&entry.factors, &WHERE.map(str::to_owned).into()),
    }));
    if tiles.is_empty() {
        tiles = network::tiles(document);
    }
    if tiles.is_empty() { hosts::tiles(document) } else { tiles }
}

/// Sentences of a whole study that its page begins with.
const ANSWERS_MAX: usize = 5;

/// What a headline says of its circumstances.
const WHERE: [&str; 6] = ["stack", "device", "frame", "size", "placement", "wake"];

/// Every ratio of an experiment, with what both sides have in common; empty where there is none.
pub fn ratios(document: &RunDocument, experiment: &str) -> Table {
    let mut table = Table::with_heads(&["cost of", "as a multiple of", "#ratio [95 %]", "at"]);
    for ratio in document.ratios.iter().filter(|ratio| ratio.experiment == experiment) {
        let differs = |factors: &BTreeMap<String, Value>, other: &BTreeMap<String, Value>| {
            let names = factors.iter().filter(|(name, level)| other.get(*name) != Some(*level));
            let mut names: BTreeSet<String> = names.map(|(name, _)| name.clone()).collect();
            if factors.contains_key("device") && names.contains("stack") {
                names.insert("device".to_owned());
            }
            names
        };
        let (above, below) = (differs(&ratio.of, &ratio.to), differs(&ratio.to, &ratio.of));
        let shared: BTreeSet<String> =
            ratio.of.keys().filter(|name| !above.contains(*name)).cloned().collect();
        table.push([
            name::cell(&ratio.of, &above),
            name::cell(&ratio.to, &below),
            times(ratio),
            if shared.is_empty() { String::new() } else { name::cell(&ratio.of, &shared) },
        ]);
    }
    table
}

/// Neither offloads nor IPv6: one line a stack and device.
fn is_plain(factors: &BTreeMap<String, Value>) -> bool {
    let at = |name: &str, level: &str| factors.get(name).is_none_or(|found| found == level);
    at("checksum", "computed") && at("family", "ipv4")
}

/// plumb over a TAP against Linux, a sentence a placement and wake mode.
fn against_linux(document: &RunDocument, experiment: &str, what: &str) -> Vec<String> {
    let mut places: BTreeMap<(usize, String), Vec<String>> = BTreeMap::new();
    let chosen = document.ratios.iter().filter(|ratio| {
        ratio.experiment == experiment
            && is_main(ratio)
            && matches!(bytes(&ratio.of), Some(60 | 1514))
    });
    for ratio in chosen {
        let wanted = ["placement", "wake"].map(str::to_owned).into();
        let place = name::cell(&ratio.of, &wanted);
        let near = ratio.of.get("placement").and_then(Value::as_str).unwrap_or("");
        let frame = bytes(&ratio.of).unwrap_or(0);
        let text = format!("{} for {frame} B", times(ratio));
        places.entry((name::nearness(near), place)).or_default().push(text);
    }
    let mut sentences: Vec<String> = places
        .into_iter()
        .map(|((_, place), parts)| {
            format!(
                "{}: through plumb over a TAP {what} is, as a multiple of Linux's over veth, {}.",
                name::capital(&place),
                parts.join(" and ")
            )
        })
        .collect();
    let published = published(document, experiment);
    if !sentences.is_empty() && !published.is_empty() {
        sentences.push(format!("Then: {published}."));
    }
    sentences
}

/// plumb over a TAP against Linux, with checksums, over IPv4.
fn is_main(ratio: &Ratio) -> bool {
    let sums = |level: &str| ratio.of.get("checksum").is_none_or(|found| found == level);
    is(&ratio.of, "stack", "plumb")
        && is(&ratio.of, "device", "tap")
        && is(&ratio.to, "stack", "linux")
        && (sums("computed") || sums("on"))
        && ratio.of.get("family").is_none_or(|family| family == "ipv4")
}

/// A 60-byte packet from warm memory, mirrored at the UDP level by plumb's stack.
fn is_short_replay(cell: &CellResult) -> bool {
    cell.experiment == "stack.replay"
        && is(&cell.factors, "turn", "udp")
        && is(&cell.factors, "cache", "warm")
        && bytes(&cell.factors) == Some(60)
}

/// The historical figures of an experiment's claims, in one line.
fn published(document: &RunDocument, experiment: &str) -> String {
    let claims = document.claims.iter().filter(|claim| claim.experiment == experiment);
    let told: Vec<String> = claims.filter_map(|claim| claim.historical.clone()).collect();
    told.join("; ")
}

/// The checksum's share of the stack, smoltcp, and packets a second.
fn replay(document: &RunDocument) -> Vec<String> {
    let ratios = || document.ratios.iter().filter(|ratio| ratio.experiment == "stack.replay");
    let at = |factors: &BTreeMap<String, Value>| {
        let wanted = ["frame", "cache"].map(str::to_owned).into();
        name::cell(factors, &wanted)
    };
    let mut sentences = Vec::new();
    for cell in document.results.iter().filter(|cell| is_short_replay(cell)) {
        let Some(median) = cell.summary.median else { continue };
        sentences.push(format!(
            "plumb's stack mirrors {} packets/s of 60 B at the UDP level on one CPU, {} each.",
            bars::rate(median),
            value::with_interval(value::unit(&cell.unit), median, cell.summary.ci95),
        ));
    }
    let smoltcp: Vec<String> = ratios()
        .filter(|ratio| is(&ratio.of, "stack", "smoltcp"))
        .map(|ratio| format!("{} for {} B", times(ratio), bytes(&ratio.of).unwrap_or(0)))
        .collect();
    if !smoltcp.is_empty() {
        sentences.push(format!("smoltcp takes {} as long.", smoltcp.join(" and ")));
    }
    let shares: Vec<String> = ratios()
        .filter(|ratio| is(&ratio.of, "turn", "udp-unsummed"))
        .map(|ratio| format!("{} ({})", share_left_out(ratio), at(&ratio.of)))
        .collect();
    if !shares.is_empty() {
        sentences.push(format!(
            "The checksum's share of the time in the stack, by leaving it out: {}.",
            shares.join(", ")
        ));
    }
    let passes: Vec<String> = ratios()
        .filter(|ratio| is(&ratio.of, "turn", "separate"))
        .map(|ratio| format!("{} ({})", times(ratio), at(&ratio.of)))
        .collect();
    if !passes.is_empty() {
        let passes = passes.join(", ");
        sentences.push(format!("Two passes for copy and sum as a multiple of one: {passes}."));
    }
    sentences
}

/// What the share of a part is when a thing without it costs this ratio: `12% [10%, 14%]`.
fn share_left_out(ratio: &Ratio) -> String {
    let percent = |ratio: f64| format!("{:.0}%", (1.0 - ratio) * 100.0);
    let [low, high] = ratio.ci95;
    format!("{} [{}, {}]", percent(ratio.ratio), percent(high), percent(low))
}

/// One pass against the copy alone and against two, at each size, by the best instruction set.
fn sums(document: &RunDocument) -> Vec<String> {
    let mut sentences = Vec::new();
    for cache in ["warm", "cold"] {
        let best = |operation: &str| {
            let mut best: BTreeMap<u64, &Ratio> = BTreeMap::new();
            let found = document.ratios.iter().filter(|ratio| {
                ratio.experiment == "stack.checksum"
                    && is(&ratio.of, "cache", cache)
                    && is(&ratio.of, "operation", operation)
            });
            for ratio in found {
                let Some(size) = bytes(&ratio.of) else { continue };
                let place = best.entry(size).or_insert(ratio);
                // Fused over copy: the lowest; separate over fused: of the same instruction set.
                if operation == "fused" && ratio.ratio < place.ratio {
                    *place = ratio;
                }
            }
            best
        };
        let fused = best("fused");
        let told: Vec<String> = fused
            .iter()
            .filter(|(size, _)| matches!(**size, 60 | 1514 | 65_536))
            .map(|(size, ratio)| {
                let kernel = ratio.of.get("kernel").map(|kernel| name::level("kernel", kernel));
                let separate = document
                    .ratios
                    .iter()
                    .find(|other| is(&other.of, "operation", "separate") && other.to == ratio.of);
                let two = separate
                    .map_or_else(String::new, |two| format!(", two passes {} of that", times(two)));
                let kernel = kernel.unwrap_or_default();
                format!("{} at {} B ({kernel}){two}", times(ratio), format_bytes(*size))
            })
            .collect();
        if !told.is_empty() {
            sentences.push(format!(
                "{} cache: copying and summing in one pass takes, as a multiple of the copy alone, \
                 {}.",
                name::capital(cache),
                told.join("; ")
            ));
        }
    }
    sentences
}

fn contention(document: &RunDocument) -> Vec<String> {
    let found = document.ratios.iter().filter(|ratio| ratio.experiment == "stack.contention");
    let told: Vec<String> = found
        .map(|ratio| {
            let shared = ratio.of.keys().filter(|name| *name != "kernel").cloned().collect();
            format!("{} ({})", times(ratio), name::cell(&ratio.of, &shared))
        })
        .collect();
    if told.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "The round trip while the kernel decodes the same frames, as a multiple of that while it \
         drops them: {}.",
        told.join(", ")
    )]
}

/// `0.72× [0.70, 0.74]`.
fn times(ratio: &Ratio) -> String {
    format!("{} {}", value::times(ratio.ratio), bounds(ratio))
}

fn bounds(ratio: &Ratio) -> String {
    let [low, high] = ratio.ci95.map(|bound| significant(bound, 3));
    format!("[{low}, {high}]")
}

fn is(factors: &BTreeMap<String, Value>, name: &str, level: &str) -> bool {
    factors.get(name).is_some_and(|found| found == level)
}

fn bytes(factors: &BTreeMap<String, Value>) -> Option<u64> {
    factors.get("frame").or_else(|| factors.get("size")).and_then(Value::as_u64)
}
