//! Claims of study `gigabit`: results that give *holds*, and results that give *does not hold*.

use plumb_analysis::fixture::SyntheticRun;

use super::claims::{judged, verdict};
use super::stack_claims::{factors, results};
use super::verdict_pairs::VerdictPair;

pub(super) const SIMULATED: &[VerdictPair] = &[
    (&["gigabit.reno.bursty"], |holds| {
        let mut run = SyntheticRun::new(1);
        let at =
            "hosts=simulated queue=1bdp congestion=reno flows=10 tcp=plain rtt=60ms rate=20mbit";
        for (response, bursty) in [("dispersion", 3.0), ("sensitivity", 0.9)] {
            run.measure("cc.utilisation", response, factors(at), if holds { bursty } else { 0.2 });
        }
        run
    }),
    (&["gigabit.cc.linux-and-plumb-fill-alike"], |holds| {
        let mut run = SyntheticRun::new(1);
        for congestion in ["reno", "cubic", "bbr"] {
            for (number, queue) in (0..).zip(["0.25bdp", "0.5bdp", "1bdp", "2bdp"]) {
                let at = format!("queue={queue} congestion={congestion} rtt=2ms rate=100mbit");
                // One in four differs, or one in two.
                let differs = number == 0 || (number == 1 && !holds);
                let plumb = if differs { 0.6e7 } else { 1.05e7 };
                run.constant(
                    "cc.utilisation",
                    "throughput",
                    factors(&format!("hosts=real {at}")),
                    1e7,
                );
                let at = factors(&format!("hosts=simulated {at} flows=1 tcp=plain"));
                run.constant("cc.utilisation", "throughput", at, plumb);
            }
        }
        run
    }),
    (&["gigabit.cc.others-do-better"], |holds| {
        let at = |congestion: &str| {
            format!(
                "hosts=simulated queue=0bdp congestion={congestion} flows=1 tcp=plain rtt=60ms rate=20mbit"
            )
        };
        let vegas = if holds { 2.4e6 } else { 1.2e6 };
        results("cc.utilisation", "throughput", &[(&at("reno"), 1.8e6), (&at("vegas"), vegas)])
    }),
    (&["gigabit.window.long-paths-lose-against-lan"], |holds| {
        let at = |rtt: &str| {
            format!("hosts=simulated window=65536 rtt={rtt} rate=1gbit queue=1bdp congestion=cubic")
        };
        let long = if holds { 6.5e5 } else { 6.4e7 };
        results("window.bdp", "throughput", &[(&at("1ms"), 6.3e7), (&at("100ms"), long)])
    }),
    (&["gigabit.mtu.small-cells-or-priorities-do-not-block"], |holds| {
        let at = |queue: &str, packet: u64| {
            format!("path=switch queue={queue} packet={packet} rate=10mbit")
        };
        let better = if holds { 1e6 } else { 3e7 };
        let cells =
            [(at("fifo", 9_000), 3.7e7), (at("fifo", 53), better), (at("priority", 9_000), better)];
        results("mtu.path", "urgent", &cells.each_ref().map(|(at, value)| (at.as_str(), *value)))
    }),
    (&["gigabit.mtu.fragmentation-costs"], |holds| {
        let at =
            |packet: u64| format!("path=linux-narrow fragments=allowed packet={packet} ahead=0");
        let cut = if holds { 1e8 } else { 4e8 };
        results("mtu.path", "goodput", &[(&at(1_500), 1.6e8), (&at(9_000), cut)])
    }),
    (&["gigabit.coalescing.trade-off"], |holds| {
        let mut run = SyntheticRun::new(1);
        for (step, receive) in (0..).zip(["sim-each", "sim-20us", "sim-100us", "sim-500us"]) {
            let at = factors(&format!("receive={receive}"));
            let more =
                if holds { 1.0 + 0.1 * f64::from(step) } else { 1.0 - 0.1 * f64::from(step) };
            run.measure("host.coalescing", "throughput", at.clone(), 4e7 * more);
            run.measure("host.coalescing", "latency", at, 1e5 * f64::from(step + 1));
        }
        run
    }),
    (&["gigabit.mtu.packets-at-ten-gigabit"], |holds| {
        let packets = if holds { 840e3 } else { 812.7e3 };
        results("host.interrupt", "packets", &[("source=link packet=1500 coalesce=0us", packets)])
    }),
    (&["gigabit.peak.half-the-link"], |holds| {
        model("filled", "none", "1gbit", if holds { 0.42 } else { 0.6 })
    }),
    (&["gigabit.bus.pci-ceiling"], |holds| {
        model("throughput", "no-stack", "10gbit", if holds { 1.28e8 } else { 0.9e8 })
    }),
    (&["gigabit.growth.links-outrun-buses"], |holds| {
        model("filled", "no-stack-wide-bus", "10gbit", if holds { 0.41 } else { 0.9 })
    }),
    (&["gigabit.growth.gap-widens"], |holds| {
        let at = |year: u32| format!("change=year-{year} link=1gbit");
        let last = if holds { 0.01 } else { 0.9 };
        let cells = [(at(1988), 0.8), (at(1993), 0.2), (at(1998), 0.05), (at(2003), last)];
        results("host.model", "filled", &cells.each_ref().map(|(at, value)| (at.as_str(), *value)))
    }),
    (&["gigabit.copies.fewer-carry-more"], |holds| {
        let one = if holds { 6e7 } else { 4e7 };
        let cells = [("change=none link=1gbit", 5e7), ("change=one-copy link=1gbit", one)];
        results("host.model", "throughput", &cells)
    }),
    (&["gigabit.nic.thousands-of-windows-do-not-fit"], |holds| {
        let flight = if holds { 2e7 } else { 1e6 };
        results("nic.memory", "flight", &[("load=windows connections=1000 rtt=100ms", flight)])
    }),
    (&["gigabit.nic.one-product-does-not-fit"], |holds| {
        let used = if holds { 0.67 } else { 0.98 };
        results("nic.memory", "used", &[("load=product memory=8Mi rtt=100ms", used)])
    }),
    (&["gigabit.flood.few-pcs-overwhelm-a-server"], |holds| {
        flood(1.0, if holds { 0.3 } else { 0.9 })
    }),
    (&["gigabit.flood.the-link-is-the-throttle"], |holds| {
        flood(if holds { 1.0 } else { 0.2 }, 0.3)
    }),
    (&["gigabit.flood.tcp-has-no-defence"], |holds| {
        let served = if holds { 0.2 } else { 1.0 };
        let at = "access=56kbit attackers=1 attack=syn defence=cookies";
        results("flood.host", "served", &[(at, served)])
    }),
    (&["gigabit.udp.reliable-udp-collapses"], |holds| {
        let at =
            |senders: &str| format!("network=shared sender=reliable queue=fifo senders={senders}");
        let all = if holds { 3e5 } else { 1e6 };
        results("unresponsive", "useful", &[(&at("none"), 1.2e6), (&at("all"), all)])
    }),
    (&["gigabit.udp.reliable-udp-serves-lonely-lans"], |holds| {
        let at = |senders: &str| format!("network=lan sender=reliable senders={senders}");
        let all = if holds { 1.2e7 } else { 0.8e7 };
        results("unresponsive", "useful", &[(&at("none"), 1.2e7), (&at("all"), all)])
    }),
    (&["gigabit.punish.forged-headers-evade"], |holds| {
        punished("forged", if holds { 7.0 } else { 1.0 })
    }),
    (&["gigabit.punish.striping-evades"], |holds| {
        punished("striped", if holds { 4.8 } else { 1.0 })
    }),
    (&["gigabit.peak.tcp-below-the-link"], |holds| {
        let rate = if holds { 5e7 } else { 1.176e8 };
        results("host.peak", "throughput", &[("link=lan-1g cpu-share=100", rate)])
    }),
    (&["gigabit.punish.state-does-not-scale"], |holds| {
        let mut run = SyntheticRun::new(1);
        let at = factors("defence=drr cheat=plain deployment=all flows=10000");
        run.measure("punish", "arrived", at.clone(), 0.99);
        run.measure("punish", "state", at, if holds { 2e6 } else { 6e4 });
        run
    }),
    (&["gigabit.punish.needs-wide-adoption"], |holds| {
        let won = if holds { 7.8 } else { 1.0 };
        results("punish", "won", &[("defence=drr cheat=plain deployment=elsewhere", won)])
    }),
];

/// A value of the model of a host.
fn model(response: &str, change: &str, link: &str, value: f64) -> SyntheticRun {
    results("host.model", response, &[(&format!("change={change} link={link}"), value)])
}

/// The share of requests that a server serves under four attackers behind modems, and on fast Ethernet.
fn flood(modems: f64, ethernet: f64) -> SyntheticRun {
    let at = |access: &str| format!("access={access} attackers=4 attack=packets defence=none");
    results("flood.host", "served", &[(&at("56kbit"), modems), (&at("100mbit"), ethernet)])
}

/// What a cheat wins in this disguise of a queue that works without.
fn punished(cheat: &str, won: f64) -> SyntheticRun {
    let at = |cheat: &str| format!("defence=drr cheat={cheat} deployment=all");
    results("punish", "won", &[(&at("plain"), 1.1), (&at(cheat), won)])
}

pub(super) const PAIRS: &[VerdictPair] = &[
    (&["gigabit.interrupt.one-per-packet"], |holds| {
        let mut run = SyntheticRun::new(1);
        for (coalesce, each) in [("0us", 1.0), ("100us", if holds { 0.01 } else { 0.9 })] {
            for (response, value) in [("packets", 8.1e5), ("cycles", 8.1e5 * 2_000.0 * each)] {
                let levels = factors(&format!("source=link packet=1500 coalesce={coalesce}"));
                run.measure("host.interrupt", response, levels, value);
            }
        }
        run
    }),
    (&["gigabit.peak.visualization-is-stack-bound"], |holds| {
        let at = |change: &str| format!("change={change} link=1gbit");
        let free = if holds { 1.2e8 } else { 5.4e7 };
        let cells = [(&*at("none"), 5.2e7), (&at("no-stack"), free), (&at("wide-bus"), 5.8e7)];
        results("host.model", "throughput", &cells)
    }),
    (&["gigabit.peak.software-bottleneck-persists"], |holds| {
        let at = |change: &str| format!("change={change} link=10gbit");
        let free = if holds { 5e8 } else { 7e7 };
        let cells =
            [(&*at("none"), 5.2e7), (&at("wide-bus"), 6.5e7), (&at("no-stack-wide-bus"), free)];
        results("host.model", "throughput", &cells)
    }),
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
    (&["gigabit.tweaks.five-percent", "gigabit.tweaks.slightly-more"], |holds| {
        tweaks(if holds { 1.05 } else { 1.5 })
    }),
    (&["gigabit.peak.loopback-below-a-gigabit"], |holds| {
        let rate = if holds { 7e7 } else { 3e9 };
        results("host.peak", "throughput", &[("link=loopback cpu-share=100", rate)])
    }),
    (&["gigabit.interrupt.two-thousand-cycles"], |holds| {
        interrupts(if holds { 1_500.0 } else { 500.0 })
    }),
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
            "gigabit.mtu.jumbo-only-in-lans",
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
    &[(&["gigabit.peak.cpu-gives-little", "gigabit.peak.loopback-gains-less-than-cpu"], |holds| {
        peak(if holds { 0.37 } else { 1.0 }, 1.4, 0.7)
    })];

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
    let rates = [("none", 1e9), ("published", gain * 1e9), ("all", gain * 1e9)];
    let cells = rates.map(|(tweak, rate)| (format!("link=veth tweak={tweak}"), rate));
    results("host.tweaks", "throughput", &cells.each_ref().map(|(at, rate)| (at.as_str(), *rate)))
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
