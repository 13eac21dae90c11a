//! Launches over networks between two namespaces: what a link says is what a channel over it gets, and no
//! process of it is left.
//!
//! Needs the right to make namespaces; says `skipped:` without, and fails for that under CI=true.

use plumb_base::time::Span;
use plumb_harness::launcher::{LaunchError, RunningLaunch};
use plumb_harness::report::BlockReport;
use plumb_harness::spec::{
    BlockTask, ChannelSpec, DeviceOptions, LaunchSubject, PathKind, PathSpec, RemoteSpec,
    SocketOptions,
};
use plumb_harness::spec::{Mechanism, WakeMode};

use super::support::plumb_processes;
use super::{alone, beside_others, block, launch, start, wait_for_the_end};

fn remote(mechanism: Mechanism, link: &str, mtu: u32, options: SocketOptions) -> LaunchSubject {
    let wire = match link {
        "veth" => PathKind::Veth,
        "three routers" => PathKind::Routers(3),
        NARROW_ROUTERS => PathKind::NarrowRouters(1_500),
        link => PathKind::Link(link.to_owned()),
    };
    let path = PathSpec {
        name: link.to_owned(),
        kind: wire,
        mtu,
        round_trip_ns: Span::from_ms(20).as_ns(),
        rate: Some(10_000_000),
        device: DeviceOptions::default(),
    };
    let channel = ChannelSpec { mechanism, wake: WakeMode::Block, options };
    LaunchSubject::Remote(Box::new(RemoteSpec { channel, path }))
}

/// Linux's, with a wire between them that takes less than what either end sends.
const NARROW_ROUTERS: &str = "narrow routers";

fn measure(launch: &mut RunningLaunch, task: BlockTask, duration: Span) -> BlockReport {
    block(launch, task, duration).unwrap()
}

fn least(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::INFINITY, f64::min)
}

#[test]
fn tcp_and_udp_cross_every_kind_of_path() {
    let _others = beside_others();
    for link in ["veth", "three routers", "rate=100mbit,delay=3ms"] {
        for mechanism in [Mechanism::Tcp4, Mechanism::Tcp6, Mechanism::Udp4, Mechanism::Udp6] {
            let subject = remote(mechanism, link, 1500, SocketOptions::default());
            let Some(mut launch) = start(subject) else { return };
            let report =
                measure(&mut launch, BlockTask::Latency { size: 1_000 }, Span::from_ms(50));
            let what = format!("{} over {link}: {:?}", mechanism.name(), report.counters);
            assert!(report.n > 0, "{what}");
            assert_eq!(report.counters.get("corrupted"), None, "{what}");
            // Half a round trip is never less than the delay and the message's own bits.
            let is_link = link.contains('=');
            let floor = if is_link { 3_000_000.0 + 80_000.0 } else { 0.0 };
            assert!(least(&report.samples) > floor, "{what}: {:?}", report.samples);
            assert_eq!(launch.facts["link"].contains("100mbit"), is_link, "{what}");
            launch.finish().unwrap();
        }
    }
}

#[test]
fn a_stream_carries_a_window_a_round_trip_at_most() {
    let _others = beside_others();
    for (window, most) in [(None, 12.5e6), (Some(16_384), 16_384.0 / 0.02)] {
        let options = SocketOptions { window, ..SocketOptions::default() };
        let subject = remote(Mechanism::Tcp4, "rate=100mbit,delay=10ms,limit=1bdp", 1500, options);
        let Some(mut launch) = start(subject) else { return };
        let interval_ns = Span::from_ms(200).as_ns();
        let task = BlockTask::SteadyRate { size: 4_096, interval_ns };
        let report = measure(&mut launch, task, Span::from_ms(1_500));
        let carried = report.samples.iter().sum::<f64>() / report.samples.len() as f64;
        // A burst more at the ends of an interval, and what a busy host's reader found waiting at the start.
        let waiting = window.map_or(6e6, |bytes| bytes as f64) / 1.5;
        let most = 1.11 * most + waiting;
        assert!(carried > 0.0 && carried < most, "{window:?}: {carried} B/s, most {most}");
        launch.finish().unwrap();
    }
}

/// The samples of a task over two hops, the second of which has this MTU or both are Linux's; none where there can be no link.
fn over_two_hops(
    mechanism: Mechanism,
    mtu: &str,
    may_be_cut: bool,
    task: BlockTask,
) -> Option<Vec<f64>> {
    let hop = |mtu: &str| format!("rate=1gbit,delay=100us,limit=256packets,mtu={mtu}");
    let link = match mtu {
        NARROW_ROUTERS => mtu.to_owned(),
        mtu => format!("{};{}", hop("9000"), hop(mtu)),
    };
    let options = SocketOptions { fragments: Some(may_be_cut), ..SocketOptions::default() };
    let mut launch = start(remote(mechanism, &link, 9_000, options))?;
    let report = measure(&mut launch, task, Span::from_ms(250));
    launch.finish().unwrap();
    Some(report.samples)
}

#[test]
fn long_packets_arrive_only_where_the_path_takes_them_or_cuts_them() {
    let _others = beside_others();
    let datagram = || BlockTask::AnsweredShare { size: 8_972 };
    let connection = |size| BlockTask::ConnectedShare { size };
    for (mechanism, mtu, may_be_cut, task, arrives) in [
        (Mechanism::Udp4, "9000", false, datagram(), true),
        (Mechanism::Udp4, "1500", true, datagram(), true),
        (Mechanism::Udp4, "1500", false, datagram(), false),
        (Mechanism::Udp4, "1500/silent", true, datagram(), false),
        // TCP follows the path MTU where routers report it; a small message passes in any case.
        (Mechanism::Tcp4, "1500", false, connection(8_948), true),
        (Mechanism::Tcp4, "1500/silent", false, connection(8_948), false),
        (Mechanism::Tcp4, "1500/silent", false, connection(1_000), true),
        (Mechanism::Udp4, NARROW_ROUTERS, true, datagram(), true),
        (Mechanism::Udp4, NARROW_ROUTERS, false, datagram(), false),
        (Mechanism::Tcp4, NARROW_ROUTERS, false, connection(8_948), true),
    ] {
        let what = format!("{} mtu={mtu} {may_be_cut} {task:?}", mechanism.name());
        let Some(samples) = over_two_hops(mechanism, mtu, may_be_cut, task) else { return };
        assert_eq!(samples.iter().any(|share| *share > 0.0), arrives, "{what}: {samples:?}");
    }
    for (mtu, pieces) in [("9000", 1.0), ("1500", 7.0), (NARROW_ROUTERS, 7.0)] {
        let task = BlockTask::ReplyPackets { size: 8_972 };
        let Some(mut samples) = over_two_hops(Mechanism::Udp4, mtu, true, task) else { return };
        samples.sort_by(f64::total_cmp);
        assert!((samples[samples.len() / 2] - pieces).abs() < 0.5, "mtu={mtu}: {samples:?}");
    }
}

#[test]
fn one_lost_fragment_loses_the_whole_datagram() {
    let _others = beside_others();
    let answered = |size| {
        let mut subject = remote(Mechanism::Udp4, "loss=5%", 1500, SocketOptions::default());
        if let LaunchSubject::Remote(remote) = &mut subject {
            // No longer than on one host is a message waited for that was lost.
            (remote.path.round_trip_ns, remote.path.rate) = (0, None);
        }
        let mut launch = start(subject)?;
        let report = measure(&mut launch, BlockTask::AnsweredShare { size }, Span::from_secs(1));
        launch.finish().unwrap();
        Some(report.samples)
    };
    // One packet each way is answered nine times in ten; of 45 each way all arrive once in a hundred.
    let (Some(small), Some(large)) = (answered(1_000), answered(65_507)) else { return };
    assert!(small[0] > 0.5 && large[0] < 0.25, "{small:?} {large:?}");
}

#[test]
fn a_link_ends_with_a_launch_that_is_finished_or_given_up() {
    let _alone = alone();
    for is_finished in [true, false] {
        let subject = remote(Mechanism::Tcp4, "delay=1ms", 1500, SocketOptions::default());
        let Some(launch) = start(subject) else { return };
        assert!(!plumb_processes(&["__link"]).is_empty());
        if is_finished {
            launch.finish().unwrap();
        } else {
            // Its worker is killed.
            drop(launch);
        }
        wait_for_the_end();
    }
}

#[test]
fn a_link_that_cannot_be_is_a_result_with_its_reason() {
    let _others = beside_others();
    for (link, word) in [("rate=400gbit,delay=10s", "memory"), ("rate=fast", "rate")] {
        match launch(remote(Mechanism::Tcp4, link, 1500, SocketOptions::default())) {
            Err(LaunchError::Unavailable(reason)) => {
                assert!(reason.contains(word) || reason.contains("namespace"), "{reason}");
            }
            other => panic!("{link}: {other:?}"),
        }
    }
}
