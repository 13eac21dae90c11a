//! Claims about networks, hosts and pages, judged on runs whose truth is known.

use super::claims::{expected, judged, verdict};
use plumb_analysis::fixture::SyntheticRun;
use plumb_store::record::Factors;

#[test]
fn windows_are_judged_by_what_the_link_could_carry() {
    let made = |small: f64| {
        let mut synthetic = SyntheticRun::new(1);
        let pipe = |window: u64| {
            Factors::default()
                .with("window", window)
                .with("rtt", "40ms")
                .with("rate", "100mbit")
                .with("queue", "1bdp")
                .with("congestion", "reno")
        };
        let window = small * 65_536.0 / 0.04;
        synthetic.measure("window.bdp", "throughput", pipe(65_536), window);
        synthetic
    };
    let empty = "gigabit.window.64k-leaves-long-fat-pipes-empty";
    assert_eq!(verdict(&made(1.0), empty), "holds");
    assert_eq!(verdict(&made(1.0), "gigabit.window.one-a-round-trip"), "holds");
    assert_eq!(verdict(&made(7.2), empty), "does not hold");
    assert_eq!(verdict(&made(2.0), "gigabit.window.one-a-round-trip"), "does not hold");
}

#[test]
fn reno_is_judged_at_every_queue_of_a_link_on_time() {
    let made = |shares: [f64; 2]| {
        let mut synthetic = SyntheticRun::new(1);
        for (queue, share) in ["0bdp", "2bdp"].into_iter().zip(shares) {
            let factors = Factors::default()
                .with("queue", queue)
                .with("congestion", "reno")
                .with("rtt", "2ms")
                .with("rate", "100mbit");
            let carries = 12.5e6 * 1448.0 / 1514.0;
            synthetic.measure("cc.utilisation", "throughput", factors, share * carries);
        }
        synthetic
    };
    let id = "gigabit.reno.three-quarters";
    assert_eq!(verdict(&made([0.6, 0.7]), id), "holds");
    assert_eq!(verdict(&made([0.6, 0.99]), id), "does not hold");
    let mut late = made([0.6, 0.7]);
    for block in &mut late.data.blocks {
        block.flags.push("link-late".to_owned());
    }
    assert_eq!(verdict(&late, id), "not decided");
}

#[test]
fn a_hosts_peak_is_judged_but_not_by_shares_of_its_cpu() {
    let made = |elasticity: f64, loopback: f64, stack: f64| {
        let mut synthetic = SyntheticRun::new(1);
        for (link, factor) in [("veth", 1.0), ("loopback", loopback)] {
            for percent in [25_u64, 50, 75, 100] {
                let factors = Factors::default()
                    .with("link", link)
                    .with("placement", "same-cache")
                    .with("cpu-share", percent);
                let rate = factor * 1e9 * (percent as f64 / 100.0).powf(elasticity);
                synthetic.measure("host.peak", "throughput", factors.clone(), rate);
                synthetic.measure("host.peak", "in-stack", factors, stack);
            }
        }
        synthetic
    };
    let (then, now) = (made(0.37, 1.4, 0.7), made(1.0, 2.0, 0.4));
    for id in ["gigabit.peak.loopback-little-faster", "gigabit.peak.time-is-in-the-stack"] {
        assert_eq!(verdict(&then, id), "holds", "{id}");
    }
    for (run, gain) in [(&then, "+25%"), (&now, "+83%")] {
        let little = &judged(run)["gigabit.peak.cpu-gives-little"];
        assert_eq!(little.verdict, "not decided");
        assert!(little.effect.contains(gain), "{little:?}");
        assert!(little.needs.contains("clock rate") && little.needs.contains("host.peak"));
    }
    for id in ["gigabit.peak.loopback-little-faster", "gigabit.peak.time-is-in-the-stack"] {
        assert_eq!(verdict(&now, id), "does not hold", "{id}");
    }
    let slower = made(0.37, 0.9, 0.7);
    assert_eq!(verdict(&slower, "gigabit.peak.loopback-little-faster"), "does not hold");
}

#[test]
fn small_gains_are_judged_by_their_size() {
    let made = |gain: f64| {
        let mut synthetic = SyntheticRun::new(1);
        let place = || Factors::default().with("placement", "same-cache");
        let rates = [1e9, gain * 1e9];
        for (buffer, rate) in [64_u64 << 10, 512 << 10].into_iter().zip(rates) {
            let factors = place().with("link", "veth").with("buffer", buffer);
            synthetic.measure("host.buffers", "throughput", factors, rate);
        }
        for (tweak, rate) in ["none", "published"].into_iter().zip(rates) {
            let factors = Factors::default().with("link", "veth").with("tweak", tweak);
            synthetic.measure("host.tweaks", "throughput", factors, rate);
        }
        for (receive, rate) in ["joined", "delayed"].into_iter().zip(rates) {
            let factors = place().with("receive", receive);
            synthetic.measure("host.coalescing", "throughput", factors.clone(), rate);
            let latency = 1e13 / rate * if receive == "delayed" { gain.powi(3) } else { 1.0 };
            synthetic.measure("host.coalescing", "latency", factors, latency);
        }
        synthetic
    };
    let (buffers, tweaks) = ("gigabit.buffers.five-percent", "gigabit.tweaks.five-percent");
    for (gain, verdicts) in [
        (1.05, ["holds", "holds"]),
        (1.5, ["does not hold", "does not hold"]),
        (1.0, ["does not hold", "does not hold"]),
    ] {
        let found = [buffers, tweaks].map(|id| verdict(&made(gain), id));
        assert_eq!(found, verdicts, "{gain}");
    }
    assert_eq!(verdict(&made(1.1), "gigabit.coalescing.ten-percent"), "holds");
    assert_eq!(verdict(&made(1.5), "gigabit.coalescing.ten-percent"), "does not hold");
    assert_eq!(verdict(&made(1.1), "gigabit.coalescing.latency-pays"), "holds");
    assert_eq!(verdict(&made(0.9), "gigabit.coalescing.latency-pays"), "does not hold");
}

#[test]
fn longer_packets_are_judged_by_what_they_carry() {
    let made = |jumbo: f64| {
        let mut synthetic = SyntheticRun::new(1);
        for (mtu, rate) in [(1_500_u64, 1e9), (9_000, jumbo)] {
            let factors = Factors::default().with("mtu", mtu).with("segmentation", "off");
            synthetic.measure("host.mtu", "throughput", factors, rate);
        }
        synthetic
    };
    assert_eq!(verdict(&made(3e9), "gigabit.mtu.jumbo-carries-more"), "holds");
    assert_eq!(verdict(&made(1e9), "gigabit.mtu.jumbo-carries-more"), "does not hold");
}

#[test]
fn the_processor_for_interrupts_is_their_cycles_times_their_number() {
    let made = |ns: f64| {
        let mut synthetic = SyntheticRun::new(1);
        synthetic.data.run.notes.insert("clock.ticks_per_ns".to_owned(), "2.0".to_owned());
        let factors = Factors::default().with("source", "timer");
        synthetic.measure("host.interrupt", "interrupt", factors, ns);
        synthetic
    };
    let id = "gigabit.mtu.interrupts-need-a-processor";
    let heavy = &judged(&made(1_500.0))[id];
    // 1.5 µs at 2 GHz are 3,000 cycles, 833,333 times a second.
    assert_eq!(heavy.verdict, "holds");
    assert!((heavy.estimate.unwrap() / 2.5e9 - 1.0).abs() < 0.02, "{heavy:?}");
    assert!(heavy.effect.contains("timer interrupts"), "{}", heavy.effect);
    assert_eq!(verdict(&made(500.0), id), "does not hold");
    let mut unknown = made(500.0);
    unknown.data.run.notes.clear();
    assert_eq!(verdict(&unknown, id), "not decided");
}

#[test]
fn one_machine_gives_its_figures_and_no_slope() {
    let mut synthetic = SyntheticRun::new(1);
    for (link, rate) in [("ethernet-10m", 1.25e6), ("lan-100m", 1.25e7)] {
        let factors = Factors::default().with("link", link).with("placement", "same-cpu");
        synthetic.measure("scaling.lan", "sender-cpu", factors.clone(), 5e8);
        synthetic.measure("scaling.lan", "throughput", factors, 0.94 * rate);
    }
    for cpus in [1_u64, 2] {
        let factors =
            Factors::default().with("link", "loopback").with("cpus", cpus).with("streams", 4_u64);
        synthetic.measure("scaling.smp", "throughput", factors, 1e9 * cpus as f64);
    }
    let judged = judged(&synthetic);
    for id in ["scaling.lan.100m-follows-processors", "scaling.lan.10m-lags-processors"] {
        assert_eq!(judged[id].verdict, "not decided");
        assert!(judged[id].needs.contains("fewer than 4 machines"), "{}", judged[id].needs);
        assert!(judged[id].effect.contains("MB/s"), "{}", judged[id].effect);
    }
    assert_eq!(judged["scaling.lan.networks-are-filled"].verdict, "holds");
    let smp = &expected(&synthetic)["scaling.smp.scales-as-one"];
    assert_eq!(smp.verdict, "not decided");
    assert!(smp.effect.contains("2 CPUs carry"), "{}", smp.effect);
    assert!((smp.estimate.unwrap() / 2.0 - 1.0).abs() < 0.02, "{smp:?}");
    // A link that was late says nothing about who could not fill it.
    for block in &mut synthetic.data.blocks {
        block.flags.push("link-late".to_owned());
    }
    let filled = verdict(&synthetic, "scaling.lan.networks-are-filled");
    assert_eq!(filled, "not decided");
}

/// A page over links of known round trips and rates: `each` nanoseconds for a round trip, and as much more
/// for the rest.
fn pages(each: f64, rest: f64, http3: f64) -> SyntheticRun {
    let mut synthetic = SyntheticRun::new(1);
    for (link, round_trip, text) in [
        ("loopback", 0.0, ""),
        ("far", each, "rate=1gbit,delay=10ms"),
        ("lossy", 5e7, "rate=10mbit,delay=25ms,loss=2%"),
    ] {
        for (way, trips) in [
            ("one-each", 26.0),
            ("keep-alive", 14.0),
            ("pipelined", 3.0),
            ("http2", 3.0),
            ("http3", 4.0 * http3),
        ] {
            let factors = Factors::default()
                .with("way", way)
                .with("link", link)
                .with("placement", "same-cpu");
            let median = 20e6_f64.max(each) * trips * (1.0 + rest);
            synthetic.measure("scaling.http", "page", factors, median);
            if link != "loopback" {
                let notes = &mut synthetic.data.run.notes;
                let key = |fact: &str| format!("channel.{way} over {link}.{fact}");
                notes.insert(key("round_trip_ns"), round_trip.to_string());
                notes.insert(key("link"), text.to_owned());
            }
        }
    }
    synthetic
}

#[test]
fn a_page_is_judged_by_its_connections_its_round_trips_and_what_is_lost() {
    let trips = "scaling.http.round-trips";
    let stalls = "scaling.http.loss-stalls-http2";
    let expected = pages(20e6, 0.3, 0.5);
    for id in [
        "scaling.http.small-files-cost-their-connections",
        "scaling.http.pipelining-beats-connections",
        stalls,
    ] {
        assert_eq!(verdict(&expected, id), "holds", "{id}");
    }
    let one = &judged(&expected)["scaling.http.lags-processors"];
    assert_eq!(one.verdict, "not decided");
    assert!(one.effect.contains("one-each, loopback"), "{}", one.effect);
    let even = pages(20e6, 0.3, 1.0);
    assert_eq!(verdict(&even, trips), "holds");
    assert_eq!(verdict(&even, stalls), "does not hold");
    // A visit below its round trips would be a fault of the measurement; far above, they decide nothing.
    assert_eq!(verdict(&pages(20e6, -0.3, 1.0), trips), "does not hold");
    let mut slow = pages(20e6, 3.0, 1.0);
    assert_eq!(verdict(&slow, trips), "does not hold");
    for block in &mut slow.data.blocks {
        block.flags.push("link-late".to_owned());
    }
    assert_eq!(verdict(&slow, trips), "not decided");
}

#[test]
fn jumbo_packets_are_judged_by_what_arrives_and_by_what_waits() {
    let made = |forbidden: f64, allowed: f64, wait: f64, pieces: f64| {
        let mut synthetic = SyntheticRun::new(1);
        let factors = |path: &str, fragments: &str, packet: u64| {
            Factors::default()
                .with("path", path)
                .with("fragments", fragments)
                .with("packet", packet)
                .with("rate", "10mbit")
        };
        for (fragments, share) in [("forbidden", forbidden), ("allowed", allowed)] {
            let factors = factors("narrow", fragments, 9_000).with("ahead", 0_u64);
            synthetic.constant("mtu.path", "delivered", factors, share);
        }
        for (path, share) in [("narrow", allowed), ("black-hole", forbidden)] {
            let factors = factors(path, "forbidden", 9_000).with("ahead", 0_u64);
            synthetic.constant("mtu.path", "connected", factors, share);
        }
        let cut = factors("narrow", "allowed", 9_000).with("ahead", 0_u64);
        synthetic.constant("mtu.path", "pieces", cut, pieces);
        for (packet, rtt) in [(1_500, 10e6), (9_000, 10e6 * wait)] {
            let factors = factors("jumbo", "allowed", packet).with("ahead", 8_u64);
            synthetic.measure("mtu.path", "urgent", factors, rtt);
        }
        synthetic
    };
    let all = [
        "gigabit.mtu.jumbo-dropped-with-df",
        "gigabit.mtu.jumbo-fragmented-without-df",
        "gigabit.mtu.jumbos-block-urgent-packets",
        "gigabit.mtu.pieces-are-as-few-as-can-be",
        "gigabit.mtu.tcp-sends-smaller-segments-when-told",
        "gigabit.mtu.tcp-hangs-in-a-black-hole",
    ];
    let expected = made(0.0, 1.0, 6.0, 7.0);
    for id in all {
        assert_eq!(verdict(&expected, id), "holds", "{id}");
    }
    let other = made(1.0, 0.0, 1.0, 8.0);
    for id in all {
        assert_eq!(verdict(&other, id), "does not hold", "{id}");
    }
}
