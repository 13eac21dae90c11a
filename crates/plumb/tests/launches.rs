//! Launches of the real binary: every mechanism carries every message, and whatever dies, nothing
//! is left over.

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
    BlockReport, BlockSpec, ChannelSpec, LaunchSpec, SocketOptions, Subject, Task,
};
use plumb_host::local::mechanism::{Carries, Mechanism, Wake};

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");

/// Longest time that a block is waited for.
const PATIENCE: Span = Span::from_secs(60);

/// One launch at a time: these tests look for processes and time nothing.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn spec(mechanism: Mechanism, wake: Wake) -> LaunchSpec {
    LaunchSpec {
        subject: Subject::Channel(ChannelSpec {
            mechanism,
            wake,
            options: SocketOptions::default(),
        }),
        cpu_local: None,
        cpu_peer: None,
        ticks_per_ns: None,
        seed: 42,
        deadline_ns: PATIENCE.as_ns(),
    }
}

fn block(task: Task) -> BlockSpec {
    BlockSpec {
        task,
        duration_ns: Span::from_ms(2).as_ns(),
        samples_max: 1_000,
        samples_kept: 100,
        injected_ns: 0,
    }
}

fn start(mechanism: Mechanism, wake: Wake) -> Option<Launch> {
    match Launch::start(Path::new(PLUMB), &spec(mechanism, wake), &mut || false) {
        Ok(launch) => Some(launch),
        Err(LaunchError::Unavailable(reason)) => {
            println!("skipped: {} {}: {reason}", mechanism.name(), wake.name());
            None
        }
        Err(error) => panic!("{} {}: {error}", mechanism.name(), wake.name()),
    }
}

/// One block; `what` is the mechanism, for who has to look for what went wrong.
fn measure(what: &str, launch: &mut Launch, task: Task) -> Option<BlockReport> {
    let named = format!("{what} {task:?} {:?}", launch.facts);
    match launch.measure(&block(task), PATIENCE, &mut || false) {
        Ok(report) => Some(report),
        Err(LaunchError::Unavailable(_)) => None,
        Err(error) => panic!("{named}: {error}"),
    }
}

fn sizes(mechanism: Mechanism) -> Vec<u64> {
    match mechanism.carries() {
        Carries::Fixed(bytes) => vec![bytes],
        _ => vec![1, 4, 64, 1_000, 4_096, 65_536, 300_001],
    }
}

#[test]
fn every_mechanism_returns_every_message_intact() {
    let _alone = alone();
    for mechanism in Mechanism::ALL {
        for &wake in mechanism.wakes() {
            // Two spinners need two CPUs to be anything but slow; the scheduler finds them.
            let Some(mut launch) = start(mechanism, wake) else { continue };
            for size in sizes(mechanism) {
                let what = format!("{} {} {size}", mechanism.name(), wake.name());
                let report = measure(&what, &mut launch, Task::Latency { size }).unwrap();
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
fn reliable_mechanisms_neither_lose_nor_change_nor_reorder_nor_repeat() {
    let _alone = alone();
    for mechanism in Mechanism::ALL {
        let Some(mut launch) = start(mechanism, mechanism.wakes()[0]) else { continue };
        for size in sizes(mechanism).into_iter().filter(|size| (4..100_000).contains(size)) {
            let task = Task::Reliability { size, receiver_pause_ns: 0, fault: "lost".to_owned() };
            let Some(report) = measure(mechanism.name(), &mut launch, task) else {
                // A word or a counter holds one message: it has nothing to lose.
                assert!(matches!(mechanism.carries(), Carries::Fixed(_)), "{}", mechanism.name());
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
    let _alone = alone();
    for mechanism in Mechanism::ALL {
        let Some(mut launch) = start(mechanism, mechanism.wakes()[0]) else { continue };
        for size in sizes(mechanism).into_iter().filter(|&size| size <= 65_536) {
            for task in [Task::Throughput { size }, Task::ThroughputAcked { size }] {
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
    let _alone = alone();
    let mut spec = spec(Mechanism::Udp4, Wake::Block);
    if let Subject::Channel(channel) = &mut spec.subject {
        channel.options.loss_ppm = 200_000;
    }
    let mut launch = Launch::start(Path::new(PLUMB), &spec, &mut || false).unwrap();
    // The receiver is never slower than the sender's pilot, so its buffer holds what is sent.
    let task = Task::Reliability { size: 64, receiver_pause_ns: 0, fault: "lost".to_owned() };
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
    let _alone = alone();
    let pause = Span::from_ms(4);
    let mut launch = start(Mechanism::Pipe, Wake::Block).unwrap();
    // Of messages of one byte no more than 255 are checked.
    let slowed =
        Task::Reliability { size: 1, receiver_pause_ns: pause.as_ns(), fault: "lost".to_owned() };
    let report = measure("pipe", &mut launch, slowed).unwrap();
    assert!(Span::from_ns(report.effort.wall_ns) > pause * 100, "{:?}", report.effort);
    let mut after = block(Task::RoundTrip { size: 1 });
    after.duration_ns = (pause * 20).as_ns();
    let report = launch.measure(&after, PATIENCE, &mut || false).unwrap();
    // Whatever else the machine does, one round trip in hundreds is shorter than the pause.
    let fastest = report.samples.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(fastest < pause.as_ns() as f64, "{fastest} ns");
}

#[test]
fn a_block_in_which_everything_is_lost_is_a_block_without_samples_and_the_launch_goes_on() {
    let _alone = alone();
    let mut spec = spec(Mechanism::Udp4, Wake::Block);
    if let Subject::Channel(channel) = &mut spec.subject {
        channel.options.loss_ppm = 1_000_000;
    }
    let mut launch = Launch::start(Path::new(PLUMB), &spec, &mut || false).unwrap();
    for task in [Task::Latency { size: 64 }, Task::Throughput { size: 64 }] {
        let report = measure("udp4", &mut launch, task).unwrap();
        assert_eq!((report.n, report.samples.len()), (0, 0), "{report:?}");
        let told = |flag: &String| flag.starts_with("nothing-delivered: ");
        assert!(report.flags.iter().any(told), "{:?}", report.flags);
    }
    launch.finish().unwrap();
}

/// Process ids of the descendants of this test that run plumb.
fn plumbs() -> Vec<(u32, String)> {
    let own = std::process::id();
    let mut found: Vec<(u32, String)> = Vec::new();
    let mut parents = vec![own];
    while let Some(parent) = parents.pop() {
        let threads = std::fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten();
        for thread in threads.flatten() {
            let children = std::fs::read_to_string(thread.path().join("children"));
            for pid in children.unwrap_or_default().split_whitespace() {
                let pid: u32 = pid.parse().unwrap();
                let arguments = std::fs::read_to_string(format!("/proc/{pid}/cmdline"));
                let role = arguments.unwrap_or_default().split('\0').nth(1).map(str::to_owned);
                found.push((pid, role.unwrap_or_default()));
                parents.push(pid);
            }
        }
    }
    found
}

fn kill(pid: u32, signal: &str) {
    let status = std::process::Command::new("kill").arg(signal).arg(pid.to_string()).status();
    assert!(status.unwrap().success());
}

#[test]
fn a_peer_killed_in_the_middle_of_a_block_ends_the_launch_with_a_message() {
    let _alone = alone();
    for (mechanism, wake) in [
        (Mechanism::Pipe, Wake::Block),
        (Mechanism::Udp4, Wake::Block),
        (Mechanism::ShmSpin, Wake::Spin),
        (Mechanism::ShmFutex, Wake::Block),
        (Mechanism::MqSysv, Wake::Block),
        (Mechanism::Signal, Wake::Block),
        (Mechanism::Uring, Wake::Block),
    ] {
        let Some(mut launch) = start(mechanism, wake) else { continue };
        let peer = plumbs().into_iter().find(|(_, role)| role == "__peer").unwrap().0;
        let killer = std::thread::spawn(move || kill(peer, "-KILL"));
        let mut long = block(Task::Latency { size: size_of_one(mechanism) });
        long.duration_ns = Span::from_secs(5).as_ns();
        long.samples_max = u32::MAX >> 8;
        let error = launch.measure(&long, PATIENCE, &mut || false).unwrap_err();
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

fn size_of_one(mechanism: Mechanism) -> u64 {
    sizes(mechanism)[0].max(4)
}

#[test]
fn a_peer_that_hangs_is_killed_at_the_deadline_with_its_worker() {
    let _alone = alone();
    let mut launch = start(Mechanism::Pipe, Wake::Block).unwrap();
    let peer = plumbs().into_iter().find(|(_, role)| role == "__peer").unwrap().0;
    kill(peer, "-STOP");
    let spec = block(Task::Latency { size: 64 });
    let error = launch.measure(&spec, Span::from_ms(300), &mut || false).unwrap_err();
    assert!(matches!(error, LaunchError::Hung(_)), "{error}");
    drop(launch);
    assert_eq!(plumbs(), []);
}

#[test]
fn a_worker_killed_takes_its_peer_along_and_leaves_nothing_behind() {
    let _alone = alone();
    for mechanism in [Mechanism::UnixDgram, Mechanism::Fifo, Mechanism::MqSysv, Mechanism::MqPosix]
    {
        let Some(launch) = start(mechanism, Wake::Block) else { continue };
        let family = plumbs();
        let worker = family.iter().find(|(_, role)| role == "__worker").unwrap().0;
        let peer = family.iter().find(|(_, role)| role == "__peer").unwrap().0;
        kill(worker, "-KILL");
        // The peer is told by the kernel; its process entry goes once init has reaped it.
        while Path::new(&format!("/proc/{peer}/exe")).read_link().is_ok() {
            std::thread::yield_now();
        }
        drop(launch);
        plumb_host::local::sweep_leftovers();
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
