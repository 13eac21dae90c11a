//! The ladder: what it costs to cross each boundary, one rung each, with where the time goes.
//!
//! Every word of a rung's sentence is chosen by stored numbers. Left out: drawing it, and any
//! cell whose median could not be told (below the floor); those stay in the results with a reason.

use std::collections::BTreeMap;

use plumb_base::units::{Unit, significant};

use crate::document::{CellResult, LadderRung, RunDocument};
use crate::registry::{Registry, RungLabel};

/// The rungs of a run: clocks, calls and latencies in nanoseconds, cheapest boundary first.
///
/// Rungs of the same boundary at several placements stay together, ordered by median; boundaries
/// are ordered by their cheapest rung.
pub fn rungs(registry: &Registry, document: &RunDocument) -> Vec<LadderRung> {
    let labelled: Vec<(RungLabel, &CellResult)> = document
        .results
        .iter()
        .filter_map(|result| Some((label(registry, result)?, result)))
        .collect();
    let call = empty_call(&labelled);
    let mut rungs: Vec<LadderRung> =
        labelled.into_iter().filter_map(|(label, result)| rung(label, result, call)).collect();
    let mut cheapest: BTreeMap<String, f64> = BTreeMap::new();
    for rung in &rungs {
        let best = cheapest.entry(rung.label.clone()).or_insert(f64::INFINITY);
        *best = best.min(rung.median);
    }
    rungs.sort_by(|a, b| {
        let best = |rung: &LadderRung| cheapest.get(&rung.label).copied().unwrap_or(f64::INFINITY);
        best(a)
            .total_cmp(&best(b))
            .then_with(|| a.label.cmp(&b.label))
            .then(a.median.total_cmp(&b.median))
    });
    add_placement_contrast(&mut rungs);
    rungs
}

/// The median of the preferred call that enters the kernel and does nothing there.
fn empty_call(labelled: &[(RungLabel, &CellResult)]) -> Option<f64> {
    let calls = labelled.iter().filter_map(|(label, result)| Some((label.empty_call?, result)));
    calls.min_by_key(|(preference, _)| *preference).and_then(|(_, result)| result.summary.median)
}

/// The boundary of a result; none when the result is no rung.
fn label(registry: &Registry, result: &CellResult) -> Option<RungLabel> {
    let rung = registry.find(&result.experiment)?.rung?;
    (result.unit == Unit::Nanoseconds.name()).then(|| rung(result)).flatten()
}

fn rung(label: RungLabel, result: &CellResult, empty_call: Option<f64>) -> Option<LadderRung> {
    let median = result.summary.median?;
    let crossings = if result.response == "latency" { 2.0 } else { 1.0 };
    let one = |cost: Option<f64>| cost.map(|cost| cost / crossings);
    let cpu = &result.cpu;
    let idle_share = match (cpu.wall, cpu.local) {
        (Some(wall), Some(local)) if wall > 0.0 => {
            Some((1.0 - (local + cpu.peer.unwrap_or(0.0)) / wall).clamp(0.0, 1.0))
        }
        _ => None,
    };
    let calls = empty_call.filter(|call| *call > 0.0).map(|call| median / call);
    Some(LadderRung {
        label: label.text,
        experiment: result.experiment.clone(),
        response: result.response.clone(),
        placement: result.text("placement").map(str::to_owned),
        wake: result.text("wake").map(str::to_owned),
        size: result.factors.get("size").and_then(serde_json::Value::as_i64),
        median,
        ci95: result.summary.ci95,
        q1: result.summary.q1,
        q3: result.summary.q3,
        cpu_local: one(cpu.local),
        cpu_peer: one(cpu.peer),
        cpu_softirq: one(cpu.softirq),
        idle_share,
        calls,
        sentence: sentence(result, label.is_remote, median, calls),
        flags: result.flags.clone(),
    })
}

/// The link of a metropolitan network: 1 Gb/s over some 400 km of fibre (ITU-T G.652: 4.9 µs a
/// kilometre).
pub const METROPOLITAN: &str = "rate=1gbit,queue=drop-tail,limit=1bdp,delay=2ms";

/// Where the time goes, in one short sentence made of the result's own numbers.
fn sentence(result: &CellResult, is_remote: bool, median: f64, calls: Option<f64>) -> String {
    let mut parts: Vec<String> = time_split_text(result, is_remote, median).into_iter().collect();
    // The empty call itself is the unit.
    if let Some(calls) = calls.filter(|calls| (calls - 1.0).abs() > 1e-9) {
        parts.push(format!("{} system calls", times(calls)));
    }
    match result.summary.modes.len() {
        0 | 1 => {}
        modes => parts.push(format!("{modes} modes")),
    }
    if parts.is_empty() {
        parts.push("the unit of the others".to_owned());
    }
    parts.join(", ") + "."
}

/// Both sides' CPU time within this share of the trip: it is all CPU time.
const ALL_CPU: f64 = 0.1;

/// What a trip of median length is made of: the CPU time of both sides, and what is left.
///
/// The median and not the mean wall time, which one long interruption would fill with waiting.
fn time_split_text(result: &CellResult, is_remote: bool, median: f64) -> Option<String> {
    let cpu = &result.cpu;
    let (local, peer) = (cpu.local?, cpu.peer.filter(|_| result.text("mechanism").is_some())?);
    let both = local + peer;
    if median <= 0.0 || both <= 0.0 {
        return None;
    }
    let kernel = |share: Option<f64>, cost: f64| share.map(|share| share * cost / both);
    let kernel = kernel(cpu.local_kernel_share, local)
        .zip(kernel(cpu.peer_kernel_share, peer))
        .map_or_else(String::new, |(here, there)| {
            format!(" ({} in the kernel)", percent(here + there))
        });
    // Costs are of a round trip, the median of one way.
    let share = both / 2.0 / median;
    let told = match (result.text("placement"), result.text("wake")) {
        _ if (share - 1.0).abs() <= ALL_CPU => "all CPU time".to_owned(),
        _ if share > 1.0 => "both sides run at once for part of it".to_owned(),
        _ if is_remote => {
            format!("{} the network", percent(1.0 - share))
        }
        (Some("same-cpu"), _) => {
            format!("{} the CPU doing something else", percent(1.0 - share))
        }
        // Asleep on another CPU and nobody running: what is left is that CPU leaving its idle
        // state. On one CPU a message in flight always leaves one of the two ready to run.
        (_, Some("spin")) => format!("{} neither side running", percent(1.0 - share)),
        _ => format!("{} an idle CPU waking up", percent(1.0 - share)),
    };
    Some(told + &kernel)
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

fn times(ratio: f64) -> String {
    significant(ratio, 2)
}

/// Says how much dearer a rung is than the same boundary crossed on one CPU.
fn add_placement_contrast(rungs: &mut [LadderRung]) {
    let on_one_cpu: BTreeMap<String, f64> = rungs
        .iter()
        .filter(|rung| rung.placement.as_deref() == Some("same-cpu"))
        .map(|rung| (key(rung), rung.median))
        .collect();
    for rung in rungs.iter_mut().filter(|rung| rung.placement.as_deref() != Some("same-cpu")) {
        if let Some(reference) = on_one_cpu.get(&key(rung)).filter(|median| **median > 0.0) {
            let ratio = rung.median / reference;
            let contrast = format!(", {} × one CPU.", times(ratio));
            rung.sentence.truncate(rung.sentence.trim_end_matches('.').len());
            rung.sentence.push_str(&contrast);
        }
    }
}

fn key(rung: &LadderRung) -> String {
    format!("{} {:?} {:?}", rung.label, rung.wake, rung.size)
}
