//! Launches over networks between two namespaces: what a link says is what a channel over it gets, and no
//! process of it is left.
//!
//! Needs the right to make namespaces; says `skipped:` without, and fails for that under CI=true.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops where it fails and says what it skips; so do its helpers"
)]

use std::path::Path;
use std::sync::Mutex;

use plumb_base::time::Span;
use plumb_host::harness::launcher::{Launch, LaunchError};
use plumb_host::harness::spec::{
    BlockReport, BlockSpec, ChannelSpec, DeviceOptions, LaunchSpec, PathSpec, RemoteSpec,
    SocketOptions, Subject, Task, Wire,
};
use plumb_host::local::mechanism::{Mechanism, Wake};

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");

/// Longest time that a block is waited for.
const PATIENCE: Span = Span::from_secs(60);

/// One launch at a time: these tests look for processes.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn spec(mechanism: Mechanism, link: &str, mtu: u32, options: SocketOptions) -> LaunchSpec {
    let wire = match link {
        "veth" => Wire::Veth,
        "three routers" => Wire::Routers(3),
        link => Wire::Link(link.to_owned()),
    };
    let path = PathSpec {
        name: link.to_owned(),
        wire,
        mtu,
        round_trip_ns: Span::from_ms(20).as_ns(),
        rate: Some(10_000_000),
        device: DeviceOptions::default(),
    };
    let channel = ChannelSpec { mechanism, wake: Wake::Block, options };
    LaunchSpec {
        subject: Subject::Remote(Box::new(RemoteSpec { channel, path })),
        cpu_local: None,
        cpu_peer: None,
        ticks_per_ns: None,
        seed: 42,
        deadline_ns: PATIENCE.as_ns(),
    }
}

/// A launch; none, with a word about it, where namespaces are not allowed.
fn start(spec: &LaunchSpec) -> Option<Launch> {
    match Launch::start(Path::new(PLUMB), spec, &mut || false) {
        Ok(launch) => Some(launch),
        Err(LaunchError::Unavailable(reason)) if reason.contains("namespace") => {
            println!("skipped: {reason}");
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "skipped under CI");
            None
        }
        Err(error) => panic!("{spec:?}: {error}"),
    }
}

fn measure(launch: &mut Launch, task: Task, duration: Span) -> BlockReport {
    let block = BlockSpec {
        task,
        duration_ns: duration.as_ns(),
        samples_max: 1_000,
        samples_kept: 1_000,
        injected_ns: 0,
    };
    launch.measure(&block, PATIENCE, &mut || false).unwrap()
}

fn least(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::INFINITY, f64::min)
}

/// Processes of this program that are links.
fn links() -> usize {
    let processes = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let is_link = |entry: &std::fs::DirEntry| {
        let words = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let program = std::fs::read_link(entry.path().join("exe")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1) == Some(b"__link") && program == Path::new(PLUMB)
    };
    processes.filter(is_link).count()
}

/// Waits until no link is left; fails when that takes longer than anything does.
fn wait_for_the_end_of_links() {
    let deadline = plumb_host::clock::monotonic_ns() + PATIENCE.as_ns();
    while links() > 0 {
        assert!(plumb_host::clock::monotonic_ns() < deadline, "a link outlived its worker");
        std::thread::yield_now();
    }
}

#[test]
fn both_protocols_of_both_versions_cross_a_veth_routers_and_a_link() {
    let _alone = alone();
    for link in ["veth", "three routers", "rate=100mbit,delay=3ms"] {
        for mechanism in [Mechanism::Tcp4, Mechanism::Tcp6, Mechanism::Udp4, Mechanism::Udp6] {
            let spec = spec(mechanism, link, 1500, SocketOptions::default());
            let Some(mut launch) = start(&spec) else { return };
            let report = measure(&mut launch, Task::Latency { size: 1_000 }, Span::from_ms(50));
            let what = format!("{} over {link}: {:?}", mechanism.name(), report.counters);
            assert!(report.n > 0, "{what}");
            assert_eq!(report.counters.get("corrupted"), None, "{what}");
            // Half a round trip is never less than the delay and the message's own bits.
            let is_link = link.contains('=');
            let floor = if is_link { 3_000_000.0 + 80_000.0 } else { 0.0 };
            assert!(least(&report.samples) > floor, "{what}: {:?}", report.samples);
            assert_eq!(launch.facts.facts["link"].contains("100mbit"), is_link, "{what}");
            launch.finish().unwrap();
        }
    }
    wait_for_the_end_of_links();
}

#[test]
fn a_stream_never_carries_more_than_its_window_a_round_trip_and_than_its_link() {
    let _alone = alone();
    for (window, most) in [(None, 12.5e6), (Some(16_384), 16_384.0 / 0.02)] {
        let options = SocketOptions { window, ..SocketOptions::default() };
        let spec = spec(Mechanism::Tcp4, "rate=100mbit,delay=10ms,limit=1bdp", 1500, options);
        let Some(mut launch) = start(&spec) else { return };
        let interval_ns = Span::from_ms(200).as_ns();
        let task = Task::Steady { size: 4_096, interval_ns };
        let report = measure(&mut launch, task, Span::from_ms(1_500));
        let carried = report.samples.iter().sum::<f64>() / report.samples.len() as f64;
        // One burst more or less at the ends of an interval of ten round trips.
        assert!(carried > 0.0 && carried < 1.11 * most, "{window:?}: {carried} B/s, most {most}");
        launch.finish().unwrap();
    }
}

#[test]
fn a_packet_too_long_for_a_hop_arrives_only_where_it_may_be_cut() {
    let _alone = alone();
    let hop = |mtu: &str| format!("rate=1gbit,delay=100us,limit=256packets,mtu={mtu}");
    let cases = [("9000", false, 1.0), ("1500", true, 1.0), ("1500", false, 0.0)];
    for (mtu, may_be_cut, share) in cases.into_iter().chain([("1500/silent", true, 0.0)]) {
        let options = SocketOptions { fragments: Some(may_be_cut), ..SocketOptions::default() };
        let link = format!("{};{}", hop("9000"), hop(mtu));
        let Some(mut launch) = start(&spec(Mechanism::Udp4, &link, 9_000, options)) else { return };
        let report = measure(&mut launch, Task::Answered { size: 8_972 }, Span::from_ms(300));
        let answered = report.samples.iter().sum::<f64>() / report.samples.len() as f64;
        let what = format!("mtu={mtu}, may be cut: {may_be_cut}: {answered} {:?}", report.counters);
        // Where it gets through, one may be late for once; where it does not, none is.
        assert!(if share > 0.0 { answered > 0.5 } else { answered == 0.0 }, "{what}");
        launch.finish().unwrap();
    }
}

#[test]
fn what_may_be_cut_arrives_in_pieces_and_tcp_cuts_for_itself_only_where_it_is_told() {
    let _alone = alone();
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
        let spec = spec(Mechanism::Udp4, &path(mtu), 9_000, options.clone());
        let Some(mut launch) = start(&spec) else { return };
        let report = measure(&mut launch, Task::Pieces { size: 8_972 }, Span::from_ms(200));
        let got = median(&report.samples);
        assert!((got - pieces).abs() < 0.5, "mtu={mtu}: {:?}", report.samples);
        launch.finish().unwrap();
    }
    let options = SocketOptions { fragments: Some(false), ..SocketOptions::default() };
    for (mtu, share) in [("1500", 1.0), ("1500/silent", 0.0)] {
        let spec = spec(Mechanism::Tcp4, &path(mtu), 9_000, options.clone());
        let Some(mut launch) = start(&spec) else { return };
        let report = measure(&mut launch, Task::Connected { size: 8_948 }, Span::from_ms(200));
        let got = median(&report.samples);
        assert!((got - share).abs() < 0.5, "mtu={mtu}: {:?} {:?}", report.samples, report.counters);
        // A small one gets through, whatever the path swallows.
        let report = measure(&mut launch, Task::Connected { size: 1_000 }, Span::from_ms(200));
        assert!(median(&report.samples) > 0.5, "mtu={mtu}: {:?}", report.samples);
        launch.finish().unwrap();
    }
}

#[test]
fn a_link_ends_with_a_launch_that_is_given_up() {
    let _alone = alone();
    let spec = spec(Mechanism::Tcp4, "delay=1ms", 1500, SocketOptions::default());
    let Some(launch) = start(&spec) else { return };
    assert!(links() > 0);
    // Its worker is killed.
    drop(launch);
    wait_for_the_end_of_links();
}

#[test]
fn a_link_that_cannot_be_is_a_result_with_its_reason() {
    let _alone = alone();
    for (link, word) in [("rate=400gbit,delay=10s", "memory"), ("rate=fast", "rate")] {
        let spec = spec(Mechanism::Tcp4, link, 1500, SocketOptions::default());
        match Launch::start(Path::new(PLUMB), &spec, &mut || false) {
            Err(LaunchError::Unavailable(reason)) => {
                assert!(reason.contains(word) || reason.contains("namespace"), "{reason}");
            }
            other => panic!("{link}: {other:?}"),
        }
    }
}
