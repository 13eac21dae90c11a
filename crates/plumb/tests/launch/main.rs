//! Launches of the real binary, a subject a file: what the tests of all of them need.
//!
//! What needs namespaces or real-time priority says `skipped:` without, and fails for that under CI=true. Left out:
//! channels of messages, whose tests are `launches.rs`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops where it fails and says what it skips; so do its helpers"
)]

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plumb_base::time::Span;
use plumb_host::harness::launcher::{Launch, LaunchError};
use plumb_host::harness::spec::{BlockReport, BlockSpec, LaunchSpec, Subject, Task};

mod streams;
mod visits;

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");

/// Longest time that a block is waited for.
const PATIENCE: Span = Span::from_secs(60);

/// One launch at a time: these tests look for processes and compare rates.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn launch(subject: Subject) -> Result<Launch, LaunchError> {
    let spec = LaunchSpec {
        subject,
        cpu_local: None,
        cpu_peer: None,
        ticks_per_ns: None,
        seed: 42,
        deadline_ns: PATIENCE.as_ns(),
    };
    Launch::start(Path::new(PLUMB), &spec, &mut || false)
}

/// A launch; none, with a word about it, where this host does not allow it.
fn start(subject: Subject) -> Option<Launch> {
    match launch(subject) {
        Ok(launch) => Some(launch),
        Err(LaunchError::Unavailable(reason)) => {
            println!("skipped: {reason}");
            assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "skipped under CI");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// A block, or why there is none.
fn block(launch: &mut Launch, task: Task, duration: Span) -> Result<BlockReport, LaunchError> {
    let spec = BlockSpec {
        task,
        duration_ns: duration.as_ns(),
        samples_max: 1_000,
        samples_kept: 1_000,
        injected_ns: 0,
    };
    launch.measure(&spec, PATIENCE, &mut || false)
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
    while !processes(&["__source", "__share", "__web", "__link"]).is_empty() {
        assert!(plumb_host::clock::monotonic_ns() < deadline, "a process outlived its worker");
        std::thread::yield_now();
    }
}
