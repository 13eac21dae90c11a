//! Claims of study `gigabit`: results that give *holds*, and results that give *does not hold*.

use plumb_analysis::fixture::SyntheticRun;

use super::claims::{judged, verdict};
use super::stack_claims::{factors, results};
use super::verdict_pairs::VerdictPair;

pub(super) const PAIRS: &[VerdictPair] = &[
    (&["gigabit.window.64k-leaves-long-fat-pipes-empty"], |holds| {
        window(if holds { 1.0 } else { 7.2 })
    }),
    (&["gigabit.window.one-a-round-trip"], |holds| window(if holds { 1.0 } else { 2.0 })),
    (&["gigabit.reno.three-quarters"], |holds| reno([0.6, if holds { 0.7 } else { 0.99 }])),
    (&["gigabit.peak.loopback-little-faster"], |holds| {
        peak(1.0, if holds { 1.4 } else { 2.0 }, 0.5)
    }),
    (&["gigabit.peak.time-is-in-the-stack"], |holds| peak(1.0, 1.4, if holds { 0.7 } else { 0.4 })),
    (&["gigabit.buffers.five-percent"], |holds| buffers(if holds { 1.05 } else { 1.5 })),
    (&["gigabit.tweaks.five-percent"], |holds| tweaks(if holds { 1.05 } else { 1.5 })),
    (&["gigabit.coalescing.ten-percent"], |holds| coalescing(if holds { 1.1 } else { 1.5 }, 1.0)),
    (&["gigabit.coalescing.latency-pays"], |holds| coalescing(1.0, if holds { 4.0 } else { 0.9 })),
    (&["gigabit.mtu.jumbo-carries-more"], |holds| {
        let cells = [
            ("mtu=1500 segmentation=off", 1e9),
            ("mtu=9000 segmentation=off", if holds { 3e9 } else { 1e9 }),
        ];
        results("host.mtu", "throughput", &cells)
    }),
    (&["gigabit.mtu.interrupts-need-a-processor"], |holds| {
        interrupts(if holds { 1_500.0 } else { 500.0 })
    }),
    (
        &[
            "gigabit.mtu.jumbo-dropped-with-df",
            "gigabit.mtu.jumbo-fragmented-without-df",
            "gigabit.mtu.jumbos-block-urgent-packets",
            "gigabit.mtu.pieces-are-as-few-as-can-be",
            "gigabit.mtu.tcp-sends-smaller-segments-when-told",
            "gigabit.mtu.tcp-hangs-in-a-black-hole",
        ],
        |holds| if holds { jumbos(0.0, 1.0, 6.0, 7.0) } else { jumbos(1.0, 0.0, 1.0, 8.0) },
    ),
];

/// Memory and caches keep their speed whatever share of a CPU is given.
pub(super) const NEVER_DECIDED: &[VerdictPair] =
    &[(&["gigabit.peak.cpu-gives-little"], |holds| peak(if holds { 0.37 } else { 1.0 }, 1.4, 0.7))];

/// A window of 64 KiB gives so many windows a round trip.
fn window(windows: f64) -> SyntheticRun {
    let levels = "window=65536 rtt=40ms rate=100mbit queue=1bdp congestion=reno";
    results("window.bdp", "throughput", &[(levels, windows * 65_536.0 / 0.04)])
}

/// Reno uses these shares of a link with the shortest and the longest queue.
fn reno(shares: [f64; 2]) -> SyntheticRun {
    let carries = 12.5e6 * 1_448.0 / 1_514.0;
    let cells = [
        ("queue=0bdp congestion=reno rtt=2ms rate=100mbit", shares[0] * carries),
        ("queue=2bdp congestion=reno rtt=2ms rate=100mbit", shares[1] * carries),
    ];
    results("cc.utilisation", "throughput", &cells)
}

#[test]
fn what_fills_a_link_is_not_judged_where_the_link_was_late() {
    for (mut late, id) in [
        (reno([0.6, 0.7]), "gigabit.reno.three-quarters"),
        (window(1.0), "gigabit.window.64k-leaves-long-fat-pipes-empty"),
    ] {
        make_late(&mut late);
        let judged = &judged(&late)[id];
        assert_eq!(judged.verdict, "not decided");
        assert!(judged.needs.contains("keeps its time"), "{}", judged.needs);
    }
}

/// Every block of a run says that its link was late.
pub(super) fn make_late(run: &mut SyntheticRun) {
    for block in &mut run.data.blocks {
        block.flags.push("link-late".to_owned());
    }
}

/// Throughput follows the CPU's share with this elasticity, loopback carries so many times as much as the network, and
/// the stack takes this share of the CPU.
fn peak(elasticity: f64, loopback: f64, stack: f64) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for (link, factor) in [("veth", 1.0), ("loopback", loopback)] {
        for percent in [25, 50, 75, 100] {
            let at = factors(&format!("link={link} placement=same-cache cpu-share={percent}"));
            let rate = factor * 1e9 * (f64::from(percent) / 100.0).powf(elasticity);
            run.measure("host.peak", "throughput", at.clone(), rate);
            run.measure("host.peak", "in-stack", at, stack);
        }
    }
    run
}

#[test]
fn shares_of_a_cpu_are_told_as_the_bound_that_they_are() {
    for (elasticity, gain) in [(0.37, "+25%"), (1.0, "+83%")] {
        let little = &judged(&peak(elasticity, 1.4, 0.7))["gigabit.peak.cpu-gives-little"];
        assert!(little.effect.contains(gain), "{little:?}");
        assert!(little.needs.contains("clock rate") && little.needs.contains("host.peak"));
    }
}

#[test]
fn a_loopback_slower_than_the_network_is_not_a_little_faster() {
    assert_eq!(
        verdict(&peak(1.0, 0.9, 0.7), "gigabit.peak.loopback-little-faster"),
        "does not hold"
    );
}

fn buffers(gain: f64) -> SyntheticRun {
    let at = |kib: u64| format!("link=veth placement=same-cache buffer={}", kib << 10);
    results("host.buffers", "throughput", &[(&at(64), 1e9), (&at(512), gain * 1e9)])
}

fn tweaks(gain: f64) -> SyntheticRun {
    let cells = [("link=veth tweak=none", 1e9), ("link=veth tweak=published", gain * 1e9)];
    results("host.tweaks", "throughput", &cells)
}

#[test]
fn no_gain_is_not_a_small_one() {
    assert_eq!(verdict(&buffers(1.0), "gigabit.buffers.five-percent"), "does not hold");
    assert_eq!(verdict(&tweaks(1.0), "gigabit.tweaks.five-percent"), "does not hold");
}

/// Waiting for further packets gives so much more throughput, and so many times the latency.
fn coalescing(gain: f64, latency: f64) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    for (receive, gain, latency) in [("joined", 1.0, 1.0), ("delayed", gain, latency)] {
        let at = factors(&format!("placement=same-cache receive={receive}"));
        run.measure("host.coalescing", "throughput", at.clone(), 1e9 * gain);
        run.measure("host.coalescing", "latency", at, 1e4 * latency);
    }
    run
}

fn interrupts(ns: f64) -> SyntheticRun {
    let mut run = results("host.interrupt", "interrupt", &[("source=timer", ns)]);
    run.data.run.notes.insert("clock.ticks_per_ns".to_owned(), "2.0".to_owned());
    run
}

#[test]
fn the_processor_for_interrupts_is_their_cycles_times_their_number() {
    let id = "gigabit.mtu.interrupts-need-a-processor";
    let heavy = &judged(&interrupts(1_500.0))[id];
    // 1.5 µs at 2 GHz are 3,000 cycles, 833,333 times a second.
    assert!((heavy.estimate.unwrap() / 2.5e9 - 1.0).abs() < 0.02, "{heavy:?}");
    assert!(heavy.effect.contains("timer interrupts"), "{}", heavy.effect);
    let mut unknown = interrupts(500.0);
    unknown.data.run.notes.clear();
    assert_eq!(verdict(&unknown, id), "not decided");
}

/// The share of jumbo packets that arrive whole and of those that may be cut, how many times as long an urgent packet
/// waits behind them, and the packets that they arrive in.
fn jumbos(forbidden: f64, allowed: f64, wait: f64, pieces: f64) -> SyntheticRun {
    let mut run = SyntheticRun::new(1);
    let mut add = |response: &str, levels: &str, value: f64| {
        let at = factors(&format!("{levels} rate=10mbit"));
        if response == "urgent" {
            run.measure("mtu.path", response, at, value);
        } else {
            run.constant("mtu.path", response, at, value);
        }
    };
    add("delivered", "path=linux-narrow fragments=forbidden packet=9000 ahead=0", forbidden);
    add("delivered", "path=linux-narrow fragments=allowed packet=9000 ahead=0", allowed);
    add("connected", "path=linux-narrow fragments=forbidden packet=9000 ahead=0", allowed);
    add("connected", "path=black-hole fragments=forbidden packet=9000 ahead=0", forbidden);
    add("pieces", "path=linux-narrow fragments=allowed packet=9000 ahead=0", pieces);
    add("urgent", "path=jumbo fragments=allowed packet=1500 ahead=8", 10e6);
    add("urgent", "path=jumbo fragments=allowed packet=9000 ahead=8", 10e6 * wait);
    run
}
