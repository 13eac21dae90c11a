//! Launches of streams: every byte that is sent comes, more CPU carries more, what a host refuses is a result,
//! and no process of them is left.

use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use plumb_harness::launcher::{LaunchError, RunningLaunch};
use plumb_harness::report::BlockReport;
use plumb_harness::spec::{
    BlockSpec, BlockTask, DeviceOptions, LaunchSubject, PathKind, PathSpec, ProcessTweaks,
    SocketOptions, TcpStreamsSpec,
};
use plumb_result::CpuUsage;

use super::support::plumb_processes;
use super::{WAIT_MAX, alone, block, launch, wait_for_the_end};

const SIZE: u64 = 64 << 10;

fn loopback(streams: u16) -> TcpStreamsSpec {
    TcpStreamsSpec {
        path: None,
        streams,
        cpus: Some(1),
        cpu_percent: 100,
        options: SocketOptions { congestion: Some("cubic".to_owned()), ..Default::default() },
        low_water: None,
        tweaks: ProcessTweaks::default(),
    }
}

fn over(wire: PathKind, mtu: u32, device: DeviceOptions) -> TcpStreamsSpec {
    let rate = matches!(wire, PathKind::Link(_)).then_some(10_000_000);
    let path =
        PathSpec { name: "a path".to_owned(), kind: wire, mtu, round_trip_ns: 0, rate, device };
    TcpStreamsSpec { path: Some(path), ..loopback(2) }
}

fn start(spec: TcpStreamsSpec) -> Option<RunningLaunch> {
    super::start(LaunchSubject::Streams(Box::new(spec)))
}

/// A block in which something was carried: on a busy machine that may take several.
fn measure(launch: &mut RunningLaunch) -> BlockReport {
    let deadline_ns = monotonic_ns() + WAIT_MAX.as_ns();
    loop {
        let report = block(launch, BlockTask::Streams { size: SIZE }, Span::from_ms(160)).unwrap();
        if highest(&report, "throughput") > 0.0 || monotonic_ns() > deadline_ns {
            return report;
        }
    }
}

/// The samples of a response, the smallest first.
fn sorted(report: &BlockReport, response: &str) -> Vec<f64> {
    let part = report.parts.iter().find(|part| part.response == response);
    let mut samples = part.unwrap_or_else(|| panic!("no {response}: {report:?}")).samples.clone();
    samples.sort_by(f64::total_cmp);
    samples
}

/// The median of a response.
fn median(report: &BlockReport, response: &str) -> f64 {
    let samples = sorted(report, response);
    samples[samples.len() / 2]
}

/// The highest sample of a response: on a busy machine nothing may move for half of a block.
fn highest(report: &BlockReport, response: &str) -> f64 {
    sorted(report, response).last().copied().unwrap()
}

#[test]
fn every_byte_of_one_stream_and_of_many_arrives_block_after_block() {
    let _alone = alone();
    for streams in [1, 5] {
        let Some(mut launch) = start(loopback(streams)) else { return };
        for _ in 0..3 {
            let report = measure(&mut launch);
            assert_eq!(report.counters.get("corrupted"), None);
            for response in ["throughput", "sender-cpu", "receiver-cpu"] {
                assert!(highest(&report, response) > 0.0, "{streams} {response}");
            }
            assert!(report.effort.peer.process_ns > 0 && report.effort.local.process_ns > 0);
            // Nobody counts packets on a loopback that others use too.
            assert!(!report.parts.iter().any(|part| part.response == "packets"));
        }
        launch.finish().unwrap();
    }
}

#[test]
fn a_traced_stream_gives_shares_or_says_why_not() {
    let _alone = alone();
    let Some(mut launch) = start(loopback(1)) else { return };
    // A tick may come at any time of the watch, and a busy machine may leave it without a sample of the stack.
    let mut explained = false;
    for _ in 0..4 {
        let task = BlockTask::StreamsTrace { size: SIZE };
        match block(&mut launch, task, Span::from_ms(160)) {
            Ok(report) => {
                let [stack, rest] =
                    ["in-stack", "unexplained"].map(|response| median(&report, response));
                assert!(stack >= 0.0 && rest >= 0.0 && stack + rest <= 1.0, "{stack} {rest}");
                assert_eq!(report.flags, ["probe-corrected"]);
                explained |= stack > rest;
            }
            Err(error) => {
                assert!(matches!(error, LaunchError::Unavailable(_)), "{error}");
                explained = true;
            }
        }
    }
    assert!(explained, "more is unexplained than in the stack each time");
    // A stream goes on as before.
    assert!(highest(&measure(&mut launch), "throughput") > 0.0);
    launch.finish().unwrap();
}

#[test]
fn packets_are_as_long_as_the_device_takes_them() {
    let _alone = alone();
    for (mtu, cuts) in [(1_500, false), (9_000, false), (1_500, true)] {
        let device = DeviceOptions {
            segmentation: Some(cuts),
            coalescing: Some(false),
            ..DeviceOptions::default()
        };
        let Some(mut launch) = start(over(PathKind::Veth, mtu, device)) else { return };
        let report = measure(&mut launch);
        let total = |response| sorted(&report, response).iter().sum::<f64>();
        let bytes = total("throughput") / total("packets");
        let longest = if cuts { 65_536.0 } else { f64::from(mtu) };
        assert!(bytes > 0.4 * f64::from(mtu) && bytes < longest, "{mtu} {cuts}: {bytes}");
        assert!(!cuts || bytes > f64::from(mtu), "{bytes} bytes a segment");
        assert!(highest(&report, "packet-cpu") > 0.0);
        launch.finish().unwrap();
    }
}

#[test]
fn receiving_in_batches_loses_nothing() {
    let _alone = alone();
    for (coalescing, busy_poll_us, low_water, interrupt_delay_ns) in [
        (false, None, Some(32 << 10), None),
        (true, None, None, None),
        (true, Some(50), None, None),
        (true, None, None, Some(100_000)),
    ] {
        let device = DeviceOptions {
            segmentation: Some(false),
            coalescing: Some(coalescing),
            interrupt_delay_ns,
        };
        let mut spec = over(PathKind::Veth, 1_500, device);
        spec.options.busy_poll_us = busy_poll_us;
        spec.low_water = low_water;
        let Some(mut launch) = start(spec) else { return };
        for _ in 0..2 {
            let report = measure(&mut launch);
            assert_eq!(report.counters.get("corrupted"), None);
            assert!(highest(&report, "throughput") > 0.0);
        }
        launch.finish().unwrap();
    }
}

#[test]
fn a_stream_over_a_link_carries_no_more_than_the_link() {
    let _alone = alone();
    let link = PathKind::Link("rate=10mbit,delay=1ms,limit=64packets".to_owned());
    let Some(mut launch) = start(over(link, 1_500, DeviceOptions::default())) else { return };
    let report = measure(&mut launch);
    let part = report.parts.iter().find(|part| part.response == "sender-cpu").unwrap();
    assert!(part.n > 0 && report.counters["link_frames"] > 0, "{report:?}");
    // A burst more or less in an interval of a few packets.
    let carried = median(&report, "throughput");
    assert!(carried < 2.0 * 1.25e6 && highest(&report, "throughput") > 0.0, "{carried}");
    launch.finish().unwrap();
}

#[test]
fn what_is_left_of_a_cpu_is_all_that_both_processes_get() {
    let _alone = alone();
    let Some(mut launch) = start(TcpStreamsSpec { cpu_percent: 25, ..loopback(1) }) else { return };
    for _ in 0..3 {
        // Other load on this machine can only lower it.
        let effort = measure(&mut launch).effort;
        let share = |side: CpuUsage| side.process_ns as f64 / effort.wall_ns as f64;
        let shares = [effort.local, effort.peer].map(share);
        assert!(shares.iter().all(|share| *share > 0.0 && *share < 0.35), "{shares:?}");
    }
    launch.finish().unwrap();
    wait_for_the_end();
    let mut launch = start(loopback(1)).unwrap();
    assert!(plumb_processes(&["__share"]).is_empty(), "nothing is taken of a whole one");
    measure(&mut launch);
    launch.finish().unwrap();
}

#[test]
fn whoever_takes_cpu_away_ends_with_a_launch_that_is_killed() {
    let _alone = alone();
    let Some(mut launch) = start(TcpStreamsSpec { cpu_percent: 50, ..loopback(1) }) else { return };
    let block = BlockSpec {
        task: BlockTask::Streams { size: SIZE },
        duration_ns: WAIT_MAX.as_ns(),
        samples_max: 1_000,
        samples_kept: 1_000,
        injected_ns: 0,
    };
    // Given up long before the block would end.
    let outcome = launch.measure(&block, Span::from_secs(2), &mut || false);
    assert!(matches!(outcome, Err(LaunchError::TimedOut { .. })), "{outcome:?}");
    assert!(!plumb_processes(&["__share"]).is_empty());
    drop(launch);
    wait_for_the_end();
}

#[test]
fn tweaks_are_taken_or_refused_with_what_would_allow_them() {
    let _alone = alone();
    let each = [
        ProcessTweaks { locked: true, ..ProcessTweaks::default() },
        ProcessTweaks { real_time: true, ..ProcessTweaks::default() },
        ProcessTweaks { huge_pages: true, ..ProcessTweaks::default() },
        ProcessTweaks { locked: true, real_time: true, huge_pages: true },
    ];
    for tweaks in each {
        let Some(mut launch) = start(TcpStreamsSpec { tweaks, ..loopback(2) }) else { continue };
        let report = measure(&mut launch);
        assert!(highest(&report, "throughput") > 0.0, "{tweaks:?}");
        launch.finish().unwrap();
    }
}

#[test]
fn buffers_are_as_large_as_asked_or_there_is_no_result() {
    let _alone = alone();
    for bytes in [16_u64 << 10, 16 << 20] {
        let mut spec = loopback(1);
        spec.options.send_buffer = Some(bytes);
        spec.options.receive_buffer = Some(bytes);
        let Some(launch) = start(spec) else { continue };
        for side in ["sndbuf", "rcvbuf"] {
            let got: u64 = launch.facts[side].parse().unwrap();
            assert!(got >= 2 * bytes, "{side}: {got} for {bytes}");
        }
        launch.finish().unwrap();
    }
}

#[test]
fn more_cpus_than_there_are_is_a_result_with_its_reason() {
    let _alone = alone();
    let spec = TcpStreamsSpec { cpus: Some(1_000), ..loopback(1) };
    match launch(LaunchSubject::Streams(Box::new(spec))) {
        Err(LaunchError::Unavailable(reason)) => assert!(reason.contains("1000 CPUs"), "{reason}"),
        other => panic!("{other:?}"),
    }
}
