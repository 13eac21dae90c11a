//! Launches of visits: the whole page comes in every way, no sooner than its round trips allow, and no process of
//! them is left.
//!
//! What needs namespaces says `skipped:` without, and fails for that under CI=true.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops where it fails and says what it skips; so do its helpers"
)]

use std::path::Path;
use std::process::Command;
use std::sync::Mutex;

use plumb_base::time::Span;
use plumb_host::harness::launcher::{Launch, LaunchError};
use plumb_host::harness::spec::{
    BlockReport, BlockSpec, DeviceOptions, LaunchSpec, PathSpec, Subject, Task, VisitsSpec, Wire,
};

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");

/// Longest time that a block is waited for.
const PATIENCE: Span = Span::from_secs(60);

const WAYS: [&str; 5] = ["one-each", "keep-alive", "pipelined", "http2", "http3"];

/// One launch at a time: these tests look for processes.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> std::sync::MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn link(text: &str) -> PathSpec {
    PathSpec {
        name: "a path".to_owned(),
        wire: Wire::Link(text.to_owned()),
        mtu: 1_500,
        round_trip_ns: 0,
        rate: None,
        device: DeviceOptions::default(),
    }
}

/// A launch; none, with a word about it, where this host does not allow it.
fn start(way: &str, path: Option<PathSpec>) -> Option<Launch> {
    let launch = LaunchSpec {
        subject: Subject::Visits(Box::new(VisitsSpec { path, way: way.to_owned() })),
        cpu_local: None,
        cpu_peer: None,
        ticks_per_ns: None,
        seed: 42,
        deadline_ns: PATIENCE.as_ns(),
    };
    match Launch::start(Path::new(PLUMB), &launch, &mut || false) {
        Ok(launch) => Some(launch),
        Err(LaunchError::Unavailable(reason)) => {
            println!("skipped: {reason}");
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "skipped under CI");
            None
        }
        Err(error) => panic!("{launch:?}: {error}"),
    }
}

fn block(task: Task) -> BlockSpec {
    BlockSpec {
        task,
        duration_ns: Span::from_ms(40).as_ns(),
        samples_max: 1_000,
        samples_kept: 1_000,
        injected_ns: 0,
    }
}

fn measure(launch: &mut Launch) -> BlockReport {
    launch.measure(&block(Task::Visits), PATIENCE, &mut || false).unwrap()
}

/// Ids of the processes of this program that were started with one of these words.
fn processes(words: &[&str]) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let is_one = |entry: &std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let program = std::fs::read_link(entry.path().join("exe")).unwrap_or_default();
        let word = line.split(|byte| *byte == 0).nth(1).unwrap_or_default();
        words.iter().any(|known| known.as_bytes() == word) && program == Path::new(PLUMB)
    };
    all.filter(is_one).map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn wait_for_the_end() {
    let deadline = plumb_host::clock::monotonic_ns() + PATIENCE.as_ns();
    while !processes(&["__web", "__link"]).is_empty() {
        assert!(plumb_host::clock::monotonic_ns() < deadline, "a process outlived its worker");
        std::thread::yield_now();
    }
}

#[test]
fn the_whole_page_comes_in_every_way_block_after_block() {
    let _alone = alone();
    for way in WAYS {
        let Some(mut launch) = start(way, None) else { return };
        for _ in 0..2 {
            let report = measure(&mut launch);
            assert!(report.n > 0 && report.samples.iter().all(|ns| *ns > 0.0), "{way}: {report:?}");
            assert_eq!(report.effort.operations, report.n + report.warmup, "{way}");
            assert!(report.effort.local.process_ns > 0 && report.effort.peer.process_ns > 0);
        }
        launch.finish().unwrap();
    }
    wait_for_the_end();
}

#[test]
fn no_visit_is_shorter_than_its_round_trips_and_its_bytes() {
    let _alone = alone();
    // 4 ms there and back, and 32 ms for 40,000 bytes.
    for (way, round_trips) in WAYS.into_iter().zip([26.0, 14.0, 3.0, 3.0, 4.0]) {
        let Some(mut launch) = start(way, Some(link("rate=10mbit,delay=2ms,limit=1bdp"))) else {
            return;
        };
        let report = measure(&mut launch);
        let least = report.samples.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(least >= round_trips * 4e6 + 32e6, "{way}: {least}");
        assert!(report.counters["link_frames"] > 0);
        launch.finish().unwrap();
    }
    wait_for_the_end();
}

#[test]
fn a_server_that_is_killed_is_named_and_ends_the_launch() {
    let _alone = alone();
    let Some(mut launch) = start("keep-alive", None) else { return };
    measure(&mut launch);
    let servers = processes(&["__web"]);
    assert_eq!(servers.len(), 1);
    assert!(Command::new("kill").args(["-9", &servers[0]]).status().unwrap().success());
    // Whatever it was doing when it died, the block after next finds nobody.
    let outcomes = [(); 2].map(|()| {
        launch.measure(&block(Task::Visits), PATIENCE, &mut || false).map_err(|e| e.to_string())
    });
    let told = outcomes.iter().find_map(|outcome| outcome.as_ref().err());
    let told = told.unwrap_or_else(|| panic!("{outcomes:?}"));
    assert!(told.contains("visit failed") || told.contains("server is gone"), "{told}");
    drop(launch);
    wait_for_the_end();
}

#[test]
fn whoever_serves_ends_with_a_launch_that_is_killed() {
    let _alone = alone();
    let Some(mut launch) = start("http3", None) else { return };
    measure(&mut launch);
    assert_eq!(processes(&["__web"]).len(), 1);
    drop(launch);
    wait_for_the_end();
}

#[test]
fn what_is_no_visit_and_no_way_is_told_by_name() {
    let _alone = alone();
    let Some(mut launch) = start("http9", None) else { return };
    let task = Task::Streams { size: 64 };
    match launch.measure(&block(task), PATIENCE, &mut || false) {
        Err(LaunchError::Unavailable(reason)) => assert!(reason.contains("visits"), "{reason}"),
        other => panic!("{other:?}"),
    }
    match launch.measure(&block(Task::Visits), PATIENCE, &mut || false) {
        Err(LaunchError::Failed(reason)) => assert!(reason.contains("http9"), "{reason}"),
        other => panic!("{other:?}"),
    }
}
