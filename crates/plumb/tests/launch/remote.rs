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

use super::support::{plumb_processes, wait_for};
use super::{block, launch, one_at_a_time, start};

fn remote(mechanism: Mechanism, link: &str, mtu: u32, options: SocketOptions) -> LaunchSubject {
    let wire = match link {
        "veth" => PathKind::Veth,
        "three routers" => PathKind::Routers(3),
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

fn measure(launch: &mut RunningLaunch, task: BlockTask, duration: Span) -> BlockReport {
    block(launch, task, duration).unwrap()
}

fn least(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::INFINITY, f64::min)
}

fn wait_for_the_end_of_links() {
    wait_for("the links to end with their workers", || plumb_processes(&["__link"]).is_empty());
}

#[test]
fn tcp_and_udp_cross_every_kind_of_path() {
    let _alone = one_at_a_time();
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
    wait_for_the_end_of_links();
}

#[test]
fn a_stream_carries_a_window_a_round_trip_at_most() {
    let _alone = one_at_a_time();
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

#[test]
fn a_long_packet_arrives_only_where_it_may_be_fragmented() {
    let _alone = one_at_a_time();
    let hop = |mtu: &str| format!("rate=1gbit,delay=100us,limit=256packets,mtu={mtu}");
    let cases = [("9000", false, 1.0), ("1500", true, 1.0), ("1500", false, 0.0)];
    for (mtu, may_be_cut, share) in cases.into_iter().chain([("1500/silent", true, 0.0)]) {
        let options = SocketOptions { fragments: Some(may_be_cut), ..SocketOptions::default() };
        let link = format!("{};{}", hop("9000"), hop(mtu));
        let Some(mut launch) = start(remote(Mechanism::Udp4, &link, 9_000, options)) else {
            return;
        };
        let report =
            measure(&mut launch, BlockTask::AnsweredShare { size: 8_972 }, Span::from_ms(300));
        let answered = report.samples.iter().sum::<f64>() / report.samples.len() as f64;
        let what = format!("mtu={mtu}, may be cut: {may_be_cut}: {answered} {:?}", report.counters);
        assert_eq!(answered > 0.0, share > 0.0, "{what}");
        launch.finish().unwrap();
    }
}

#[test]
fn fragments_arrive_and_tcp_obeys_the_path_mtu() {
    let _alone = one_at_a_time();
    let path = |mtu: &str| {
        let hop = |mtu: &str| format!("rate=1gbit,delay=100us,limit=256packets,mtu={mtu}");
        format!("{};{}", hop("9000"), hop(mtu))
    };
    let median = |samples: &[f64]| {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    let options = SocketOptions { fragments: Some(true), ..SocketOptions::default() };
    for (mtu, pieces) in [("9000", 1.0), ("1500", 7.0)] {
        let subject = remote(Mechanism::Udp4, &path(mtu), 9_000, options.clone());
        let Some(mut launch) = start(subject) else { return };
        let report =
            measure(&mut launch, BlockTask::ReplyPackets { size: 8_972 }, Span::from_ms(200));
        let got = median(&report.samples);
        assert!((got - pieces).abs() < 0.5, "mtu={mtu}: {:?}", report.samples);
        launch.finish().unwrap();
    }
    let options = SocketOptions { fragments: Some(false), ..SocketOptions::default() };
    for (mtu, share) in [("1500", 1.0), ("1500/silent", 0.0)] {
        let subject = remote(Mechanism::Tcp4, &path(mtu), 9_000, options.clone());
        let Some(mut launch) = start(subject) else { return };
        let report =
            measure(&mut launch, BlockTask::ConnectedShare { size: 8_948 }, Span::from_ms(200));
        let connected = report.samples.iter().any(|share| *share > 0.0);
        assert_eq!(connected, share > 0.0, "mtu={mtu}: {:?} {:?}", report.samples, report.counters);
        // A small one gets through, whatever the path swallows.
        let report =
            measure(&mut launch, BlockTask::ConnectedShare { size: 1_000 }, Span::from_ms(200));
        assert!(report.samples.iter().any(|share| *share > 0.0), "mtu={mtu}: {:?}", report.samples);
        launch.finish().unwrap();
    }
}

#[test]
fn a_link_ends_with_a_launch_that_is_given_up() {
    let _alone = one_at_a_time();
    let subject = remote(Mechanism::Tcp4, "delay=1ms", 1500, SocketOptions::default());
    let Some(launch) = start(subject) else { return };
    assert!(!plumb_processes(&["__link"]).is_empty());
    // Its worker is killed.
    drop(launch);
    wait_for_the_end_of_links();
}

#[test]
fn a_link_that_cannot_be_is_a_result_with_its_reason() {
    let _alone = one_at_a_time();
    for (link, word) in [("rate=400gbit,delay=10s", "memory"), ("rate=fast", "rate")] {
        match launch(remote(Mechanism::Tcp4, link, 1500, SocketOptions::default())) {
            Err(LaunchError::Unavailable(reason)) => {
                assert!(reason.contains(word) || reason.contains("namespace"), "{reason}");
            }
            other => panic!("{link}: {other:?}"),
        }
    }
}
