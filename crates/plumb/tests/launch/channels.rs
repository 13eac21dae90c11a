//! Launches of channels: every mechanism carries every message, and whatever dies, nothing is left over.

use std::path::Path;

use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use plumb_harness::launcher::{LaunchError, RunningLaunch};
use plumb_harness::report::BlockReport;
use plumb_harness::spec::{BlockSpec, BlockTask, ChannelSpec, LaunchSubject, SocketOptions};
use plumb_harness::spec::{Mechanism, MessageShape, WakeMode};

use super::support::{command_line, signal, wait_for, with_descendants};
use super::{WAIT_MAX, alone, beside_others, launch};

fn channel(mechanism: Mechanism, wake: WakeMode, options: SocketOptions) -> LaunchSubject {
    LaunchSubject::Channel(ChannelSpec { mechanism, wake, options })
}

fn block(task: BlockTask) -> BlockSpec {
    BlockSpec {
        task,
        duration_ns: Span::from_ms(2).as_ns(),
        samples_max: 1_000,
        samples_kept: 100,
        injected_ns: 0,
    }
}

/// A launch; none where this host lacks the mechanism, which is no reason to fail anywhere.
fn start(mechanism: Mechanism, wake: WakeMode) -> Option<RunningLaunch> {
    match launch(channel(mechanism, wake, SocketOptions::default())) {
        Ok(launch) => Some(launch),
        Err(LaunchError::Unavailable(_)) => None,
        Err(error) => panic!("{} {}: {error}", mechanism.name(), wake.name()),
    }
}

/// A launch over UDP whose sender drops this share of its messages.
fn start_lossy(loss_ppm: u32) -> RunningLaunch {
    let options = SocketOptions { loss_ppm, ..SocketOptions::default() };
    launch(channel(Mechanism::Udp4, WakeMode::Block, options)).unwrap()
}

/// One block; `what` is named where it fails.
fn measure(what: &str, launch: &mut RunningLaunch, task: BlockTask) -> Option<BlockReport> {
    let named = format!("{what} {task:?} {:?}", launch.facts);
    match launch.measure(&block(task), WAIT_MAX, &mut || false) {
        Ok(report) => Some(report),
        Err(LaunchError::Unavailable(_)) => None,
        Err(error) => panic!("{named}: {error}"),
    }
}

fn sizes(mechanism: Mechanism) -> Vec<u64> {
    match mechanism.message_shape() {
        MessageShape::Fixed(bytes) => vec![bytes],
        _ => vec![1, 4, 64, 1_000, 4_096, 65_536, 300_001],
    }
}

#[test]
fn every_mechanism_returns_every_message_intact() {
    // Spinners want the CPUs for themselves.
    let _alone = alone();
    for mechanism in Mechanism::ALL {
        for &wake in mechanism.wake_modes() {
            // Two spinners need two CPUs to be anything but slow; the scheduler finds them.
            let Some(mut launch) = start(mechanism, wake) else { continue };
            for size in sizes(mechanism) {
                let what = format!("{} {} {size}", mechanism.name(), wake.name());
                let report = measure(&what, &mut launch, BlockTask::Latency { size }).unwrap();
                // Only what loses datagrams may fail to bring back a message of many.
                let may_be_lost = mechanism.is_lossy() && size > 65_507;
                assert!(report.n > 0 || may_be_lost, "{what}");
                assert!(report.samples.iter().all(|&ns| ns > 0.0), "{what}");
                assert_eq!(report.counters.get("corrupted"), None, "{what}");
            }
            launch.finish().unwrap();
        }
    }
}

#[test]
fn reliable_mechanisms_deliver_each_message_once_in_order() {
    let _others = beside_others();
    for mechanism in Mechanism::ALL {
        let Some(mut launch) = start(mechanism, mechanism.wake_modes()[0]) else { continue };
        for size in sizes(mechanism).into_iter().filter(|size| (4..100_000).contains(size)) {
            let task =
                BlockTask::Reliability { size, receiver_pause_ns: 0, fault: "lost".to_owned() };
            let Some(report) = measure(mechanism.name(), &mut launch, task) else {
                // A word or a counter holds one message: it has nothing to lose.
                assert!(
                    matches!(mechanism.message_shape(), MessageShape::Fixed(_)),
                    "{}",
                    mechanism.name()
                );
                continue;
            };
            let what = format!("{} {size}: {:?}", mechanism.name(), report.counters);
            let count = |name: &str| report.counters.get(name).copied().unwrap_or(0);
            assert!(count("sent") >= 1, "{what}");
            for fault in ["duplicated", "reordered", "corrupted"] {
                assert_eq!(count(fault), 0, "{what}");
            }
            if !mechanism.is_lossy() {
                assert_eq!(count("arrived"), count("sent"), "{what}");
            }
            assert_eq!(count("arrived") + count("lost"), count("sent"), "{what}");
        }
        launch.finish().unwrap();
    }
}

#[test]
fn transfers_deliver_every_byte_they_count() {
    let _others = beside_others();
    for mechanism in Mechanism::ALL {
        let Some(mut launch) = start(mechanism, mechanism.wake_modes()[0]) else { continue };
        for size in sizes(mechanism).into_iter().filter(|&size| size <= 65_536) {
            for task in [BlockTask::Throughput { size }, BlockTask::ThroughputAcked { size }] {
                let what = format!("{} {task:?}", mechanism.name());
                if let Some(report) = measure(&what, &mut launch, task) {
                    assert!(report.samples.iter().all(|rate| rate.is_finite()), "{what}");
                    assert!(report.n > 0, "{what}");
                }
            }
        }
        launch.finish().unwrap();
    }
}

#[test]
fn loss_injected_by_the_sender_is_counted_as_that() {
    let _others = beside_others();
    let mut launch = start_lossy(200_000);
    // The receiver is never slower than the sender's pilot, so its buffer holds what is sent.
    let task = BlockTask::Reliability { size: 64, receiver_pause_ns: 0, fault: "lost".to_owned() };
    let report = measure("udp4", &mut launch, task).unwrap();
    let count = |name: &str| report.counters.get(name).copied().unwrap_or(0);
    // The mark that ends the task is a datagram too, which the buffer may have had no room for.
    let dropped = count("dropped_on_purpose") + count("dropped_receive_buffer");
    let lost = count("lost");
    assert!((lost..=lost + 1).contains(&dropped), "{:?}", report.counters);
    assert!(count("dropped_on_purpose") > 0, "{:?}", report.counters);
}

#[test]
fn a_slowed_receiver_is_as_fast_as_ever_in_the_next_task() {
    let _others = beside_others();
    let pause = Span::from_ms(4);
    let mut launch = start(Mechanism::Pipe, WakeMode::Block).unwrap();
    // Of messages of one byte no more than 255 are checked.
    let slowed = BlockTask::Reliability {
        size: 1,
        receiver_pause_ns: pause.as_ns(),
        fault: "lost".to_owned(),
    };
    let report = measure("pipe", &mut launch, slowed).unwrap();
    assert!(Span::from_ns(report.effort.wall_ns) > pause * 100, "{:?}", report.effort);
    let mut after = block(BlockTask::RoundTrip { size: 1 });
    after.duration_ns = (pause * 20).as_ns();
    // However busy the machine, some round trip is shorter than the pause.
    wait_for("a short round trip", || {
        let report = launch.measure(&after, WAIT_MAX, &mut || false).unwrap();
        report.samples.iter().any(|ns| *ns < pause.as_ns() as f64)
    });
}

#[test]
fn a_block_that_loses_everything_has_no_samples() {
    let _others = beside_others();
    let mut launch = start_lossy(1_000_000);
    for task in [BlockTask::Latency { size: 64 }, BlockTask::Throughput { size: 64 }] {
        let report = measure("udp4", &mut launch, task).unwrap();
        assert_eq!((report.n, report.samples.len()), (0, 0), "{report:?}");
        let told = |flag: &String| flag.starts_with("nothing-delivered: ");
        assert!(report.flags.iter().any(told), "{:?}", report.flags);
    }
    launch.finish().unwrap();
}

/// The processes below this test, by the word they were started with.
fn plumbs() -> Vec<(u32, String)> {
    let below = with_descendants(std::process::id()).into_iter().skip(1);
    let role = |process: u32| command_line(process).into_iter().nth(1).unwrap_or_default();
    below.map(|process| (process, role(process))).collect()
}

fn process_of(role: &str) -> u32 {
    plumbs().into_iter().find(|(_, found)| found == role).unwrap().0
}

#[test]
fn a_peer_killed_during_a_block_ends_the_launch() {
    let _alone = alone();
    for (mechanism, wake) in [
        (Mechanism::Pipe, WakeMode::Block),
        (Mechanism::Udp4, WakeMode::Block),
        (Mechanism::ShmSpin, WakeMode::Spin),
        (Mechanism::ShmFutex, WakeMode::Block),
        (Mechanism::MqSysv, WakeMode::Block),
        (Mechanism::Signal, WakeMode::Block),
        (Mechanism::Uring, WakeMode::Block),
        (Mechanism::TlsTcp4, WakeMode::Block),
        (Mechanism::Http1Unix, WakeMode::Block),
        (Mechanism::Http2Tcp4, WakeMode::Block),
        (Mechanism::Quic4, WakeMode::Block),
    ] {
        let Some(mut launch) = start(mechanism, wake) else { continue };
        let peer = process_of("__peer");
        let killer = std::thread::spawn(move || signal(peer, "KILL"));
        let mut long = block(BlockTask::Latency { size: size_of_one(mechanism) });
        long.duration_ns = Span::from_secs(5).as_ns();
        long.samples_max = u32::MAX >> 8;
        let error = launch.measure(&long, WAIT_MAX, &mut || false).unwrap_err();
        killer.join().unwrap();
        let message = error.to_string();
        assert!(
            message.contains("peer")
                || message.contains("died")
                || message.contains("other process"),
            "{}: {message}",
            mechanism.name()
        );
        drop(launch);
        assert_eq!(plumbs(), [], "{}", mechanism.name());
    }
}

#[test]
fn no_tick_interrupts_either_process_during_a_block() {
    let _others = beside_others();
    for (mechanism, wake) in [
        (Mechanism::Pipe, WakeMode::Block),
        (Mechanism::Udp4, WakeMode::Block),
        (Mechanism::ShmFutex, WakeMode::Block),
    ] {
        let Some(mut launch) = start(mechanism, wake) else { continue };
        let mut long = block(BlockTask::Latency { size: size_of_one(mechanism) });
        long.duration_ns = Span::from_ms(100).as_ns();
        long.samples_max = u32::MAX >> 8;
        let began_ns = monotonic_ns();
        let report = launch.measure(&long, WAIT_MAX, &mut || false).unwrap();
        let beyond = Span::from_ns(monotonic_ns() - began_ns).saturating_sub(Span::from_ms(300));
        // Put off by the block's length and a fifth of a second: a busy machine may hold both processes up for longer.
        let most = 2 * beyond.as_ns().div_ceil(Span::from_ms(20).as_ns());
        let interruptions = report.counters.get("interruptions").copied().unwrap_or(0);
        assert!(interruptions <= most, "{}: {interruptions} of {most}", mechanism.name());
    }
}

fn size_of_one(mechanism: Mechanism) -> u64 {
    sizes(mechanism)[0].max(4)
}

#[test]
fn a_peer_that_hangs_is_killed_at_the_deadline_with_its_worker() {
    let _alone = alone();
    let mut launch = start(Mechanism::Pipe, WakeMode::Block).unwrap();
    let peer = process_of("__peer");
    assert!(signal(peer, "STOP"));
    let spec = block(BlockTask::Latency { size: 64 });
    let error = launch.measure(&spec, Span::from_ms(300), &mut || false).unwrap_err();
    assert!(matches!(error, LaunchError::TimedOut { .. }), "{error}");
    drop(launch);
    assert_eq!(plumbs(), []);
}

#[test]
fn a_killed_worker_takes_its_peer_along() {
    let _alone = alone();
    for mechanism in [Mechanism::UnixDgram, Mechanism::Fifo, Mechanism::MqSysv, Mechanism::MqPosix]
    {
        let Some(launch) = start(mechanism, WakeMode::Block) else { continue };
        let (worker, peer) = (process_of("__worker"), process_of("__peer"));
        assert!(signal(worker, "KILL"));
        // The peer is told by the kernel; its process entry goes once init has reaped it.
        wait_for("the peer to end", || {
            Path::new(&format!("/proc/{peer}/exe")).read_link().is_err()
        });
        drop(launch);
        plumb_harness::mechanisms::sweep_leftovers();
        assert_eq!(leftovers(worker), Vec::<String>::new(), "{}", mechanism.name());
    }
}

/// Directories and queues that carry the worker's process id.
fn leftovers(worker: u32) -> Vec<String> {
    let scratch = std::fs::read_dir(std::env::temp_dir()).unwrap().flatten();
    let names = scratch.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut found: Vec<String> = names
        .filter(|name| name.starts_with("plumb-") && name.contains(&format!("-{worker}-")))
        .collect();
    let queues = std::fs::read_to_string("/proc/sysvipc/msg").unwrap_or_default();
    found.extend(queues.lines().skip(1).filter_map(|line| {
        let key: i64 = line.split_whitespace().next()?.parse().ok()?;
        (key >> 16 == 0x504C).then(|| line.to_owned())
    }));
    found
}
