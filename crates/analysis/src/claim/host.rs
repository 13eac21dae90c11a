//! Claims about what bounds a host (Weigle, Feng & Gardner 2001): its CPU, its buffers, batches, packets.
//!
//! What is published is small (5 %, 10 %), so an effect is judged by whether its interval is about as large,
//! not by whether there is one. Left out: what a network bounds (`super::window_bdp`).

use std::collections::BTreeMap;

use plumb_base::stats::regression::theil_sen;
use plumb_base::units::{Unit, significant};
use plumb_store::record::Factors;

use super::Claim;
use super::evidence::{Evidence, Pairs};
use super::finding::{Case, Finding, Standing, every};
use super::published::WEIGLE;
use crate::contrast;
use crate::summary::{CONFIDENCE, Measured};

const PEAK: &str = "host.peak";
const BUFFERS: &str = "host.buffers";
const COALESCING: &str = "host.coalescing";
const TWEAKS: &str = "host.tweaks";
const MTU: &str = "host.mtu";

const THROUGHPUT: &str = "throughput";

/// The claims of `host.*`.
pub const CLAIMS: &[Claim] = &[
    Claim {
        id: "gigabit.peak.cpu-gives-little",
        experiment: PEAK,
        claim: "A processor that is 83 % faster raises TCP's peak by only 25 %: less than half as much.",
        source: WEIGLE,
        historical: Some("400 → 733 MHz: 335 → 420 Mb/s between hosts, 485 → 590 over loopback"),
        judge: cpu_gives_little,
    },
    Claim {
        id: "gigabit.peak.loopback-little-faster",
        experiment: PEAK,
        claim: "Over loopback, without any network, TCP carries more than between hosts, but at most half \
                as much again.",
        source: WEIGLE,
        historical: Some(
            "485 against 335 Mb/s (×1.45) at 400 MHz; 590 against 420 (×1.40) at 733 MHz",
        ),
        judge: loopback_little_faster,
    },
    Claim {
        id: "gigabit.peak.time-is-in-the-stack",
        experiment: PEAK,
        claim: "A machine spends the majority of the time in the protocol stack.",
        source: WEIGLE,
        historical: Some("a majority, over loopback; no figure"),
        judge: time_is_in_the_kernel,
    },
    Claim {
        id: "gigabit.buffers.five-percent",
        experiment: BUFFERS,
        claim: "Socket buffers of 512 KB instead of 64 KB give about 5 % more.",
        source: WEIGLE,
        historical: Some("about 5 %"),
        judge: |evidence| {
            let at = |factors: &Factors, bytes: i64| factors.int("buffer") == Some(bytes);
            gain(
                evidence,
                (BUFFERS, "buffer"),
                |factors| at(factors, 512 << 10),
                |factors| at(factors, 64 << 10),
                FIVE,
            )
        },
    },
    Claim {
        id: "gigabit.coalescing.ten-percent",
        experiment: COALESCING,
        claim: "Receiving in batches, by interrupt coalescing, gives another 10 %.",
        source: WEIGLE,
        historical: Some("10 %"),
        judge: |evidence| gain(evidence, (COALESCING, "receive"), is_joined, is_each, TEN),
    },
    Claim {
        id: "gigabit.coalescing.latency-pays",
        experiment: COALESCING,
        claim: "Interrupt coalescing increases the latency of each individual packet.",
        source: WEIGLE,
        historical: Some("a trade-off; no figure"),
        judge: latency_pays,
    },
    Claim {
        id: "gigabit.tweaks.five-percent",
        experiment: TWEAKS,
        claim: "Single-user mode, no virtual memory and a real-time process give about 5 % more.",
        source: WEIGLE,
        historical: Some("5 %"),
        judge: |evidence| {
            let is = |factors: &Factors, level: &str| factors.text("tweak") == Some(level);
            gain(
                evidence,
                (TWEAKS, "tweak"),
                |factors| is(factors, "all"),
                |factors| is(factors, "none"),
                FIVE,
            )
        },
    },
    Claim {
        id: "gigabit.mtu.interrupts-need-a-processor",
        experiment: MTU,
        claim: "10 Gb/s in packets of 1,500 bytes need a processor of 1.6 GHz for the packets alone, at \
                2,000 cycles each.",
        source: WEIGLE,
        historical: Some("830,000 packets/s × 2,000 cycles = 1.6 GHz"),
        judge: packets_need_a_processor,
    },
    Claim {
        id: "gigabit.mtu.jumbo-carries-more",
        experiment: MTU,
        claim: "Jumbo packets increase the bandwidth.",
        source: WEIGLE,
        historical: Some("listed among the ways; no figure"),
        judge: jumbo_carries_more,
    },
];

/// More than half; an interval's edge may be beyond the whole.
const MAJORITY: (f64, f64) = (0.5, f64::INFINITY);

/// "About 5 %" and "10 %": half as much and twice as much are about it.
const FIVE: (f64, f64) = (1.025, 1.10);
const TEN: (f64, f64) = (1.05, 1.20);

/// Of a processor's improvement, what a peak that gains "little" takes at most: half.
const FASTER: f64 = 733.0 / 400.0;

/// The rate and the packets of the published sum.
const PACKETS_A_SECOND: f64 = 10e9 / 8.0 / 1_500.0;
const CYCLES_A_SECOND: f64 = 1.6e9;

fn is_joined(factors: &Factors) -> bool {
    factors.text("receive") == Some("joined")
}

fn is_each(factors: &Factors) -> bool {
    factors.text("receive") == Some("each")
}

/// What a case is told with: its link, where it has one, and its placement.
fn place(cell: &Measured<'_>) -> String {
    let factors = &cell.cell.factors;
    let words = ["link", "placement"].into_iter().filter_map(|name| factors.text(name));
    words.collect::<Vec<_>>().join(", ")
}

/// Cells at one level of a factor beside their twins at another: how much more the first carries.
fn gain(
    evidence: &Evidence<'_>,
    (experiment, factor): (&'static str, &str),
    is_more: impl Fn(&Factors) -> bool,
    is_less: impl Fn(&Factors) -> bool,
    bounds: (f64, f64),
) -> Finding {
    let mut pairs = Pairs::default();
    let all = || evidence.cells(experiment, THROUGHPUT);
    let rest = |cell: &Measured<'_>| cell.cell.factors.clone().without(factor);
    for more in all().filter(|cell| is_more(&cell.cell.factors)) {
        let twin = |cell: &&Measured<'_>| is_less(&cell.cell.factors) && rest(cell) == rest(more);
        let label = "gain".to_owned();
        match all().find(twin) {
            Some(less) => {
                // More throughput is less cost: the ratio of costs is that of throughputs upside down.
                let contrast = contrast::within_run(more, less);
                pairs.cases.push(Case::ratio_within(&place(more), label, contrast, bounds));
            }
            None => pairs.missing.push(format!("{factor} to compare with, {}", place(more))),
        }
    }
    every(pairs, &format!("plumb run {experiment}"))
}

/// The elasticity of throughput to CPU at each link and placement, as what 83 % more CPU would give.
fn cpu_gives_little(evidence: &Evidence<'_>) -> Finding {
    let mut lines: BTreeMap<String, (Vec<f64>, Vec<f64>)> = BTreeMap::new();
    for cell in evidence.cells(PEAK, THROUGHPUT) {
        let Some(percent) = cell.cell.factors.int("cpu-share") else { continue };
        let (x, y) = lines.entry(place(cell)).or_default();
        x.push((percent as f64).ln());
        y.push(cell.median().ln());
    }
    let mut pairs = Pairs::default();
    for (place, (x, y)) in lines {
        let Some(line) = theil_sen(&x, &y, CONFIDENCE) else {
            pairs.missing.push(format!("three shares of CPU, {place}"));
            continue;
        };
        let gain = |elasticity: f64| FASTER.powf(elasticity) - 1.0;
        let [value, lo, hi] =
            [line.slope, line.slope_interval.lo, line.slope_interval.hi].map(gain);
        let most = (FASTER - 1.0) / 2.0;
        let standing = if hi < most {
            Standing::For
        } else if lo > most {
            Standing::Against(0.0)
        } else {
            Standing::Open(None)
        };
        let percent = |share: f64| format!("{:+.0}%", share * 100.0);
        pairs.cases.push(Case {
            placement: place,
            label: "83% more CPU gives".to_owned(),
            value: Some(value),
            ends: Some([lo, hi]),
            text: format!(
                "{} ({} to {}; elasticity {})",
                percent(value),
                percent(lo),
                percent(hi),
                significant(line.slope, 2)
            ),
            standing,
            strength: most - value,
        });
    }
    every(pairs, "plumb run host.peak --set cpu-share=25,50,75,100")
}

/// Over loopback against over a virtual Ethernet, with all of the CPU.
fn loopback_little_faster(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    let all = || {
        let whole = |cell: &&Measured<'_>| cell.cell.factors.int("cpu-share") == Some(100);
        evidence.cells(PEAK, THROUGHPUT).filter(whole)
    };
    let link = |cell: &Measured<'_>, name: &str| cell.cell.factors.text("link") == Some(name);
    let rest = |cell: &Measured<'_>| cell.cell.factors.clone().without("link");
    for loopback in all().filter(|cell| link(cell, "loopback")) {
        let placement = loopback.cell.factors.text("placement").unwrap_or("unknown");
        match all().find(|cell| link(cell, "veth") && rest(cell) == rest(loopback)) {
            Some(veth) => {
                let contrast = contrast::within_run(loopback, veth);
                let label = "loopback/veth".to_owned();
                pairs.cases.push(Case::ratio_within(placement, label, contrast, (1.0, 1.5)));
            }
            None => pairs.missing.push(format!("veth, {placement}")),
        }
    }
    every(pairs, "plumb run host.peak --set link=loopback,veth --set cpu-share=100")
}

/// The kernel's share of the CPU time, with all of the CPU.
fn time_is_in_the_kernel(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    let cells = evidence.cells(PEAK, "kernel");
    for cell in cells.filter(|cell| cell.cell.factors.int("cpu-share") == Some(100)) {
        let ends = cell.interval().map(|interval| [interval.lo, interval.hi]);
        let label = "kernel".to_owned();
        let case = Case::quantity(&place(cell), label, cell.median(), ends, MAJORITY, Unit::Share);
        pairs.cases.push(case);
    }
    every(pairs, "plumb run host.peak --set cpu-share=100")
}

/// A small message that is received by itself against one that is received in a batch.
fn latency_pays(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    let cells = || evidence.cells(COALESCING, "latency");
    let rest = |cell: &Measured<'_>| cell.cell.factors.clone().without("receive");
    for joined in cells().filter(|cell| is_joined(&cell.cell.factors)) {
        let each = cells().find(|cell| is_each(&cell.cell.factors) && rest(cell) == rest(joined));
        match each {
            Some(each) => {
                let contrast = contrast::within_run(each, joined);
                pairs.cases.push(Case::order(&place(joined), "joined/each".to_owned(), contrast));
            }
            None => pairs.missing.push(format!("each by itself, {}", place(joined))),
        }
    }
    every(pairs, "plumb run host.coalescing --set receive=each,joined")
}

/// The cycles of both hosts for a packet of 1,500 bytes, times the packets of 10 Gb/s.
fn packets_need_a_processor(evidence: &Evidence<'_>) -> Finding {
    let Some(ticks_per_ns) = evidence.note("clock.ticks_per_ns") else {
        return Finding::missing("a machine whose counter of cycles ticks at a known rate");
    };
    let mut pairs = Pairs::default();
    for cell in evidence.cells(MTU, "packet-cpu") {
        let factors = &cell.cell.factors;
        if factors.int("mtu") != Some(1_500) || factors.text("segmentation") != Some("off") {
            continue;
        }
        let needed = |ns: f64| ns * ticks_per_ns * PACKETS_A_SECOND;
        let value = needed(cell.median());
        let ends = cell.interval().map(|interval| [needed(interval.lo), needed(interval.hi)]);
        let standing = match ends {
            Some([lo, _]) if lo >= CYCLES_A_SECOND => Standing::For,
            Some([_, hi]) if hi < CYCLES_A_SECOND => Standing::Against(0.0),
            Some(_) => Standing::Open(None),
            None => Standing::Open(Some(crate::summary::LAUNCHES_NEEDED as u64)),
        };
        let giga = |cycles: f64| significant(cycles / 1e9, 3);
        let between =
            ends.map_or_else(String::new, |[lo, hi]| format!(" ({}–{})", giga(lo), giga(hi)));
        pairs.cases.push(Case {
            placement: place(cell),
            label: format!("{} cycles a packet need", significant(cell.median() * ticks_per_ns, 3)),
            value: Some(value),
            ends,
            text: format!("{} GHz{between}", giga(value)),
            standing,
            strength: (value / CYCLES_A_SECOND).ln(),
        });
    }
    every(pairs, "plumb run host.mtu --set mtu=1500 --set segmentation=off")
}

/// Packets of 9,000 bytes against packets of 1,500, by devices that cut nothing.
fn jumbo_carries_more(evidence: &Evidence<'_>) -> Finding {
    let mut pairs = Pairs::default();
    let cells = || {
        let plain = |cell: &&Measured<'_>| cell.cell.factors.text("segmentation") == Some("off");
        evidence.cells(MTU, THROUGHPUT).filter(plain)
    };
    let is = |cell: &Measured<'_>, mtu: i64| cell.cell.factors.int("mtu") == Some(mtu);
    let rest = |cell: &Measured<'_>| cell.cell.factors.clone().without("mtu");
    for jumbo in cells().filter(|cell| is(cell, 9_000)) {
        match cells().find(|cell| is(cell, 1_500) && rest(cell) == rest(jumbo)) {
            Some(usual) => {
                let contrast = contrast::within_run(jumbo, usual);
                pairs.cases.push(Case::order(&place(jumbo), "9000/1500".to_owned(), contrast));
            }
            None => pairs.missing.push(format!("packets of 1500 bytes, {}", place(jumbo))),
        }
    }
    every(pairs, "plumb run host.mtu --set mtu=1500,9000 --set segmentation=off")
}
