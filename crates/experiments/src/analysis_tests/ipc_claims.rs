//! Claims of study `ipc`: results that give *holds*, and results that give *does not hold*.

use std::collections::BTreeSet;

use plumb_analysis::fixture::{SyntheticRun, local};
use plumb_store::record::{FactorLevel, Factors};

use super::claims::verdict;
use super::stack_claims::results;
use super::verdict_pairs::VerdictPair;
use crate::claims::TABLE_1;
use crate::claims::remote::{LATENCIES, LocalAndRemote, THROUGHPUTS};

pub(super) const PAIRS: &[VerdictPair] = &[
    (&["ipc.fec.saves-round-trips"], |holds| {
        let at = |scheme: &str| format!("loss=iid-1% scheme={scheme} rtt=100ms");
        let repaired = if holds { 9e7 } else { 3e8 };
        results("fec.vs.arq", "delay-p99", &[(&at("arq"), 1.8e8), (&at("reed-solomon"), repaired)])
    }),
    (&["ipc.fec.worsens-congestion"], |holds| {
        let at = |scheme: &str| format!("loss=congestion scheme={scheme} rtt=100ms");
        let repaired = if holds { 2e5 } else { 1.2e6 };
        results("fec.vs.arq", "goodput", &[(&at("arq"), 1.1e6), (&at("reed-solomon"), repaired)])
    }),
    (
        &[
            "ipc.latency.ranks",
            "ipc.latency.pipe-slower-than-sockets",
            "ipc.latency.udp-beats-tcp-below-64Ki",
            "ipc.latency.tcp-beats-udp-at-64Ki",
            "ipc.latency.pipe-range",
            "ipc.latency.rank-16",
            "ipc.latency.rank-1Ki",
            "ipc.latency.rank-64Ki",
            "ipc.remote.pipe-latency-beats-remote",
            "ipc.remote.latency-slower-than-local",
            "ipc.remote.udp-latency-beats-tcp",
            "ipc.remote.tcp-latency-range",
            "ipc.remote.udp-latency-range",
        ],
        |holds| table_1(LATENCIES, holds),
    ),
    (
        &[
            "ipc.throughput.ranks",
            "ipc.throughput.udp-beats-tcp-below-64Ki",
            "ipc.throughput.pipe-beats-udp-at-64Ki",
            "ipc.throughput.tcp-beats-udp-at-64Ki",
            "ipc.throughput.pipe-range",
            "ipc.throughput.rank-16",
            "ipc.throughput.rank-1Ki",
            "ipc.throughput.rank-64Ki",
            "ipc.remote.pipe-throughput-beats-remote",
            "ipc.remote.throughput-slower-than-local",
            "ipc.remote.udp-throughput-beats-tcp-below-64Ki",
            "ipc.remote.tcp-throughput-beats-udp-at-64Ki",
            "ipc.remote.tcp-throughput-range",
            "ipc.remote.udp-throughput-range",
        ],
        |holds| table_1(THROUGHPUTS, holds),
    ),
    (&["ipc.latency.pipe-same-magnitude"], |holds| {
        pipe_cost(LATENCIES, if holds { 2.0 } else { 20.0 })
    }),
    (&["ipc.throughput.pipe-same-magnitude"], |holds| {
        pipe_cost(THROUGHPUTS, if holds { 2.0 } else { 20.0 })
    }),
    (&["ipc.throughput.pipe-slower-than-sockets"], |holds| {
        pipe_cost(THROUGHPUTS, if holds { 2.0 } else { 0.5 })
    }),
    (&["ipc.throughput.size-over-latency-is-wrong"], |holds| {
        acknowledged(if holds { 0.5 } else { 1.0 })
    }),
    (
        &[
            "ipc.call.getpid-25ns",
            "ipc.call.getuid-59ns",
            "ipc.call.getuid-slower-than-getpid",
            "ipc.call.favourite-is-fast",
        ],
        |holds| if holds { calls(26.0, 59.0) } else { calls(62.0, 62.0) },
    ),
    (
        &[
            "ipc.clock.resolution-25ns",
            "ipc.clock.eighty-cycles",
            "ipc.clock.finer-clock-reaches-1ns",
        ],
        |holds| if holds { clocks(25.0, 1.0) } else { clocks(50.0, 12.0) },
    ),
    (&["ipc.tcp.nagle-delays"], |holds| {
        tcp("write-write-read", "loopback", if holds { 2_000.0 } else { 1.0 })
    }),
    (&["ipc.tcp.nodelay-helps-larger-messages"], |holds| {
        tcp("request", "1500", if holds { 1.5 } else { 1.0 })
    }),
    (&["ipc.tcp.buffers-matter"], |holds| buffers(if holds { 4.0 } else { 1.0 })),
    (&["ipc.udp.large-is-faulty", "ipc.udp.tcp-wins-because-of-loss"], |holds| {
        large_udp(if holds { 0.9 } else { 1.0 }, 80_000.0)
    }),
    (&["ipc.reliability.pipe"], |holds| counted("pipe", "lost", u64::from(!holds), MANY)),
    (&["ipc.reliability.tcp"], |holds| counted("tcp4", "reordered", u64::from(!holds), MANY)),
    (&["ipc.reliability.udp-intact"], |holds| {
        counted("udp4", "corrupted", u64::from(!holds), MANY)
    }),
    (&["ipc.path.routers-delay"], |holds| routers(if holds { 40_000.0 } else { -4_000.0 }, 0.0)),
    (&["ipc.path.routers-keep-throughput"], |holds| routers(4e4, if holds { 0.0 } else { 0.05 })),
];

/// That something can happen is shown by one event, and refuted by none.
pub(super) const NEVER_REFUTED: &[VerdictPair] = &[
    (&["ipc.reliability.udp-loses"], |holds| counted("udp4", "lost", u64::from(holds), MANY)),
    (&["ipc.reliability.udp-reorders"], |holds| {
        counted("udp4", "reordered", u64::from(holds), MANY)
    }),
];

/// Results over up to eight routers, each of which adds so many nanoseconds and takes such a share of the throughput.
fn routers(each_ns: f64, loss: f64) -> SyntheticRun {
    let mut results = SyntheticRun::new(1);
    for routers in [0_u64, 1, 2, 4, 8] {
        let n = routers as f64;
        let factors = |mechanism| local(mechanism, "same-cpu", 64).with("routers", routers);
        results.measure("path.length", "latency", factors("udp4"), 50_000.0 + each_ns * n);
        results.measure("path.length", "throughput", factors("tcp4"), 1e8 * (1.0 - loss * n));
    }
    results
}

#[test]
fn an_emulated_links_own_delay_does_not_make_it_remote() {
    let mut results = SyntheticRun::new(1);
    for (link, latency) in [("loopback", 10_000.0), ("lan-1g", 90_000.0)] {
        let factors = local("udp4", "same-cpu", 16).with("link", link);
        results.measure("latency.remote", "latency", factors, latency);
    }
    assert_eq!(verdict(&results, "ipc.remote.latency-slower-than-local"), "not decided");
}

#[test]
fn a_row_of_table_1_needs_the_local_and_the_remote_columns() {
    let mut results = table_1(LATENCIES, true);
    results.data.cells.retain(|cell| cell.experiment == "latency.remote");
    let kept: BTreeSet<i64> = results.data.cells.iter().map(|cell| cell.id).collect();
    results.data.blocks.retain(|block| kept.contains(&block.cell));
    assert_eq!(verdict(&results, "ipc.latency.rank-16"), "not decided");
}

/// All five columns of Table 1 at one placement, as published or all equal and out of every range.
fn table_1(sides: LocalAndRemote, holds: bool) -> SyntheticRun {
    let mut results = SyntheticRun::new(1);
    let is_time = sides == LATENCIES;
    let value = |cost: f64| match (is_time, holds) {
        (true, true) => 40_000.0 * cost,
        (true, false) => 1_000.0,
        (false, true) => 1e7 / cost,
        (false, false) => 1e10,
    };
    for row in TABLE_1.iter().filter(|row| row.response == sides.response) {
        let size = u64::try_from(row.size).unwrap();
        for (mechanism, cost) in row.mechanisms.into_iter().zip([1.0, 1.2, 1.5]) {
            let factors = local(mechanism, "same-cpu", size);
            results.measure(sides.local, sides.response, factors, value(cost));
        }
        let is_tcp_first = !is_time && size == 64 << 10;
        let order = if is_tcp_first { ["tcp4", "udp4"] } else { ["udp4", "tcp4"] };
        for (mechanism, cost) in order.into_iter().zip([2.2, 2.6]) {
            for (link, nearness) in [("loopback", 0.5), ("veth", 1.0), ("lan-1g", 1.0)] {
                let factors = local(mechanism, "same-cpu", size).with("link", link);
                results.measure(sides.remote, sides.response, factors, value(cost * nearness));
            }
        }
    }
    results
}

/// A pipe that costs so many times as much as TCP and UDP.
fn pipe_cost(sides: LocalAndRemote, times: f64) -> SyntheticRun {
    let mut results = SyntheticRun::new(1);
    for (mechanism, cost) in [("pipe", times), ("tcp4", 1.0), ("udp4", 1.0)] {
        for size in [16, 64 << 10] {
            let factors = local(mechanism, "same-cpu", size);
            let value = if sides == LATENCIES { 1e4 * cost } else { 1e8 / cost };
            results.measure(sides.local, sides.response, factors, value);
        }
    }
    results
}

/// An acknowledged throughput that is so much of the size over the latency; a long transfer is more.
fn acknowledged(share: f64) -> SyntheticRun {
    let mut results = SyntheticRun::new(1);
    for size in [64, 4_096] {
        let factors = local("pipe", "same-cpu", size);
        let rate = share * size as f64 / 10_000e-9;
        results.measure("latency.local", "latency", factors.clone(), 10_000.0);
        results.measure("throughput.local", "throughput.acked", factors.clone(), rate);
        results.measure("throughput.local", "throughput", factors, 5.0 * rate);
    }
    results
}

pub(super) fn calls(getpid: f64, getuid: f64) -> SyntheticRun {
    let mut results = SyntheticRun::new(1);
    for via in ["libc", "syscall"] {
        for (call, ns) in
            [("getpid", getpid), ("getuid", getuid), ("getppid", 62.0), ("invalid", 62.0)]
        {
            let factors = Factors::default().with("call", call).with("via", via);
            results.constant("call.kernel", "call", factors, ns);
        }
    }
    results
}

fn clocks(monotonic: f64, tsc: f64) -> SyntheticRun {
    let mut results = SyntheticRun::new(1);
    results.data.run.notes.insert("clock.ticks_per_ns".to_owned(), "3.2".to_owned());
    for cpu in 0..2_u64 {
        let clock = |clock: &str| Factors::default().with("clock", clock).with("cpu", cpu);
        results.constant("clock.resolution", "resolution", clock("monotonic"), monotonic);
        results.constant("clock.resolution", "resolution", clock("tsc"), tsc);
    }
    results
}

/// A message that takes so many times as long without TCP_NODELAY.
fn tcp(pattern: &str, mtu: &str, times: f64) -> SyntheticRun {
    let mut results = SyntheticRun::new(1);
    for (nodelay, cost) in [("on", 1.0), ("off", times)] {
        let factors = local("tcp4", "same-cache", 16 << 10)
            .with("mtu", mtu)
            .with("pattern", pattern)
            .with("nodelay", nodelay);
        results.measure("tcp.options", "latency", factors, 20_000.0 * cost);
    }
    results
}

/// The default buffers carry so many times as much as small ones.
fn buffers(times: f64) -> SyntheticRun {
    let mut results = SyntheticRun::new(1);
    for (buffer, rate) in [(FactorLevel::from("default"), times), (FactorLevel::Int(16_384), 1.0)] {
        let factors = local("tcp4", "same-cache", 16 << 10).with("buffer", buffer);
        results.measure("tcp.options", "throughput", factors, 1e9 * rate);
    }
    results
}

/// Large messages over a virtual Ethernet: the share that UDP delivers, and how long each takes.
fn large_udp(delivered: f64, udp: f64) -> SyntheticRun {
    let mut results = SyntheticRun::new(1);
    let at = |mechanism| local(mechanism, "same-cpu", 131_072).with("link", "veth");
    for (loss, share) in [(0_u64, delivered), (10, 0.1)] {
        let factors = at("udp4").with("fragmentation", "ip").with("loss", loss);
        results.constant("udp.large", "delivered", factors, share);
    }
    results.measure("latency.remote", "latency", at("udp4"), udp);
    results.measure("latency.remote", "latency", at("tcp4"), 50_000.0);
    results
}

#[test]
fn tcp_that_does_not_win_has_no_cause_to_be_found() {
    let id = "ipc.udp.tcp-wins-because-of-loss";
    assert_eq!(verdict(&large_udp(0.9, 40_000.0), id), "does not hold");
}

#[test]
fn few_messages_without_an_event_prove_nothing() {
    let few = counted("tcp4", "lost", 0, 10);
    assert_eq!(verdict(&few, "ipc.reliability.tcp"), "not decided");
}

/// Messages that are many.
const MANY: u64 = 1_000_000;

/// So many messages, with so many events of a kind.
fn counted(mechanism: &str, fault: &str, events: u64, messages: u64) -> SyntheticRun {
    let mut results = SyntheticRun::new(1);
    let factors = local(mechanism, "same-cache", 1024).with("receiver", "slowed");
    results.constant("reliability", fault, factors, events as f64 / messages as f64);
    for block in &mut results.data.blocks {
        block.counters.insert("sent".to_owned(), messages);
        block.counters.insert(fault.to_owned(), events);
    }
    results
}
