//! The ladder: what it costs to cross each boundary, one rung each, with where the time goes.
//!
//! Every word of a rung's sentence is chosen by stored numbers. Left out: drawing it, and any
//! cell whose median could not be told (below the floor); those stay in the results with a reason.

use std::collections::BTreeMap;

use plumb_base::units::{Unit, significant};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::{CellResult, RunDocument};

/// One rung: one boundary crossed, one way. Times are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Rung {
    /// What is crossed: `clock read`, `empty system call`, `pipe`.
    pub label: String,
    /// Experiment id.
    pub experiment: String,
    /// What was measured.
    pub response: String,
    /// Placement of both processes; null for clocks and kernel calls.
    pub placement: Option<String>,
    /// How the receiver waits; null for clocks and kernel calls.
    pub wake: Option<String>,
    /// Message size in bytes; null for clocks and kernel calls.
    pub size: Option<i64>,
    /// Median.
    pub median: f64,
    /// 95 % interval of the median over launches.
    pub ci95: Option<[f64; 2]>,
    /// First quartile.
    pub q1: Option<f64>,
    /// Third quartile.
    pub q3: Option<f64>,
    /// CPU time of the side that times, for one crossing.
    pub cpu_local: Option<f64>,
    /// CPU time of the other side, for one crossing.
    pub cpu_peer: Option<f64>,
    /// Softirq time of the CPUs used, for one crossing.
    pub cpu_softirq: Option<f64>,
    /// Share of the wall time during which neither side ran, 0–1.
    pub idle_share: Option<f64>,
    /// The median as a multiple of the empty system call of the same run.
    pub calls: Option<f64>,
    /// Where the time goes.
    pub sentence: String,
    /// What a reader must know; the flags of the result.
    pub flags: Vec<String>,
}

/// The rungs of a run: clocks, calls and latencies in nanoseconds, cheapest boundary first.
///
/// Rungs of the same boundary at several placements stay together, ordered by median; boundaries
/// are ordered by their cheapest rung.
pub fn rungs(document: &RunDocument) -> Vec<Rung> {
    let call = empty_call(&document.results);
    let mut rungs: Vec<Rung> =
        document.results.iter().filter_map(|result| rung(result, call)).collect();
    let mut cheapest: BTreeMap<String, f64> = BTreeMap::new();
    for rung in &rungs {
        let best = cheapest.entry(rung.label.clone()).or_insert(f64::INFINITY);
        *best = best.min(rung.median);
    }
    rungs.sort_by(|a, b| {
        let best = |rung: &Rung| cheapest.get(&rung.label).copied().unwrap_or(f64::INFINITY);
        best(a)
            .total_cmp(&best(b))
            .then_with(|| a.label.cmp(&b.label))
            .then(a.median.total_cmp(&b.median))
    });
    add_placement_contrast(&mut rungs);
    rungs
}

/// The median of the cheapest call that enters the kernel and does nothing there.
pub fn empty_call(results: &[CellResult]) -> Option<f64> {
    ["getpid", "getppid", "getuid"].into_iter().find_map(|call| {
        results
            .iter()
            .find(|result| {
                result.experiment == "call.kernel"
                    && word(result, "call") == Some(call)
                    && word(result, "via") == Some("syscall")
            })
            .and_then(|result| result.summary.median)
    })
}

fn word<'a>(result: &'a CellResult, factor: &str) -> Option<&'a str> {
    result.factors.get(factor).and_then(serde_json::Value::as_str)
}

fn rung(result: &CellResult, empty_call: Option<f64>) -> Option<Rung> {
    let label = label(result)?;
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
    Some(Rung {
        label,
        experiment: result.experiment.clone(),
        response: result.response.clone(),
        placement: word(result, "placement").map(str::to_owned),
        wake: word(result, "wake").map(str::to_owned),
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
        sentence: sentence(result, median, calls),
        flags: result.flags.clone(),
    })
}

/// The boundary of a result; none when the result is no rung.
fn label(result: &CellResult) -> Option<String> {
    if result.unit != Unit::Nanoseconds.name() {
        return None;
    }
    match (result.experiment.as_str(), result.response.as_str()) {
        ("clock.resolution", "read-cost") => {
            Some(format!("clock read, {}", word(result, "clock").unwrap_or("unnamed")))
        }
        ("call.kernel", _) => {
            let call = word(result, "call").unwrap_or("unnamed");
            Some(match word(result, "via") {
                Some("vdso") => format!("{call}, vDSO"),
                Some("syscall") => format!("{call}, system call"),
                Some(via) => format!("{call}, {via}"),
                None => call.to_owned(),
            })
        }
        ("latency.local", "latency") => word(result, "mechanism").map(str::to_owned),
        ("latency.remote", "latency") => {
            let mechanism = word(result, "mechanism")?;
            Some(format!("{mechanism}, {}", network(word(result, "link")?)))
        }
        _ => None,
    }
}

/// The kind of network that a link of the ladder stands for; another link's own name.
fn network(link: &str) -> &str {
    match link {
        "lan-1g" => "LAN",
        METROPOLITAN => "metropolitan",
        "transatlantic" => "wide area",
        link => link,
    }
}

/// The link of a metropolitan network: 1 Gb/s over some 400 km of fibre (ITU-T G.652: 4.9 µs a
/// kilometre).
pub const METROPOLITAN: &str = "rate=1gbit,queue=drop-tail,limit=1bdp,delay=2ms";

/// Where the time goes, in one short sentence made of the result's own numbers.
fn sentence(result: &CellResult, median: f64, calls: Option<f64>) -> String {
    let mut parts: Vec<String> = trip(result, median).into_iter().collect();
    // The empty call itself is the unit.
    if let Some(calls) = calls.filter(|calls| (calls - 1.0).abs() > 1e-9) {
        parts.push(format!("{} empty calls", times(calls)));
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
fn trip(result: &CellResult, median: f64) -> Option<String> {
    let cpu = &result.cpu;
    let (local, peer) = (cpu.local?, cpu.peer.filter(|_| word(result, "mechanism").is_some())?);
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
    let told = match (word(result, "placement"), word(result, "wake")) {
        _ if (share - 1.0).abs() <= ALL_CPU => "all CPU time".to_owned(),
        _ if share > 1.0 => "both sides at once for a while".to_owned(),
        _ if result.experiment == "latency.remote" => {
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
fn add_placement_contrast(rungs: &mut [Rung]) {
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

fn key(rung: &Rung) -> String {
    format!("{} {:?} {:?}", rung.label, rung.wake, rung.size)
}

#[cfg(test)]
mod tests {
    use plumb_store::record::Factors;

    use super::*;
    use crate::document::build;
    use crate::fixture::{Synthetic, local};

    fn document() -> RunDocument {
        let mut synthetic = Synthetic::new(1);
        let call = |call: &str, via: &str| Factors::default().with("call", call).with("via", via);
        synthetic.measure("latency.local", "latency", local("tcp4", "same-cache", 64), 20_000.0);
        synthetic.measure("latency.local", "latency", local("tcp4", "same-cpu", 64), 4_000.0);
        synthetic.measure("latency.local", "latency", local("pipe", "same-cpu", 64), 1_000.0);
        synthetic.measure("call.kernel", "call", call("getpid", "syscall"), 100.0);
        synthetic.measure("call.kernel", "call", call("clock-gettime", "vdso"), 20.0);
        synthetic.data.run.title = "ladder".to_owned();
        build(&synthetic.data)
    }

    #[test]
    fn rungs_climb_from_the_cheapest_boundary_and_keep_placements_together() {
        let document = document();
        let order: Vec<(&str, Option<&str>)> = document
            .ladder
            .iter()
            .map(|rung| (rung.label.as_str(), rung.placement.as_deref()))
            .collect();
        assert_eq!(
            order,
            [
                ("clock-gettime, vDSO", None),
                ("getpid, system call", None),
                ("pipe", Some("same-cpu")),
                ("tcp4", Some("same-cpu")),
                ("tcp4", Some("same-cache")),
            ]
        );
        assert!((document.ladder[2].calls.unwrap() - 10.0).abs() < 0.2);
    }

    #[test]
    fn cpu_times_are_of_one_crossing_and_the_sentence_says_who_ran() {
        // The fixture charges a quarter of the round trip here and a fifth to the peer.
        let rung = &document().ladder[4];
        assert!((rung.cpu_local.unwrap() / 5_000.0 - 1.0).abs() < 0.02, "{rung:?}");
        assert!((rung.idle_share.unwrap() - 0.55).abs() < 0.01);
        assert_eq!(
            rung.sentence,
            "55% an idle CPU waking up (75% in the kernel), 200 empty calls, 5.0 × one CPU."
        );
    }

    #[test]
    fn sides_that_run_at_once_are_told_so() {
        let mut document = document();
        let result = &mut document.results[0];
        result.cpu.peer = result.cpu.wall;
        let told = &rungs(&document)[4].sentence;
        assert!(told.contains("both sides at once for a while"), "{told}");
    }

    #[test]
    fn a_result_without_a_median_is_no_rung() {
        let mut document = document();
        document.results[2].summary.median = None;
        assert!(rungs(&document).iter().all(|rung| rung.label != "pipe"));
    }
}
