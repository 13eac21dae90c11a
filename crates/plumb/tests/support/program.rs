//! Shared by the tests of the built program: the program, skipping, waiting, and processes.

use std::path::{Path, PathBuf};
use std::process::Command;

use plumb_clock::{monotonic_ns, sleep_until};

pub const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");

/// Deadline of any state.
const WAIT_MAX_NS: u64 = 60_000_000_000;
/// Time between two checks.
const CHECK_INTERVAL_NS: u64 = 2_000_000;

/// Reports that a test cannot run here; fails under CI=true, where all requirements are met.
#[expect(clippy::print_stdout, reason = "a test that cannot run says so")]
pub fn skip(reason: &str) {
    println!("skipped: {reason}");
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "skipped under CI: {reason}");
}

/// Waits for a state; fails at a deadline.
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline_ns = monotonic_ns() + WAIT_MAX_NS;
    while !is_so() {
        assert!(monotonic_ns() < deadline_ns, "timed out waiting for {what}");
        sleep_until(monotonic_ns() + CHECK_INTERVAL_NS);
    }
}

/// Sends a signal by name, such as `KILL`; whether the process existed.
pub fn signal(process: u32, name: &str) -> bool {
    let words = [format!("-{name}"), process.to_string()];
    Command::new("kill").args(words).output().unwrap().status.success()
}

/// A process and all of its descendants, each before its children.
pub fn with_descendants(process: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let children: Vec<u32> = lists
        .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|child| child.parse().ok())
        .collect();
    std::iter::once(process).chain(children.into_iter().flat_map(with_descendants)).collect()
}

/// The arguments of a process.
pub fn command_line(process: u32) -> Vec<String> {
    let line = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0);
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// Every process of the built program whose first argument is one of these, such as `__peer`.
pub fn plumb_processes(words: &[&str]) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_meant = |process: &u32| {
        let program: Option<PathBuf> = std::fs::read_link(format!("/proc/{process}/exe")).ok();
        program.as_deref() == Some(Path::new(PLUMB))
            && command_line(*process).get(1).is_some_and(|word| words.contains(&word.as_str()))
    };
    numbers.filter(is_meant).collect()
}
