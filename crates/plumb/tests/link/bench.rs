//! What every test of links uses: a registry of its own, and commands in it.
//!
//! Left out: what is tested.

use std::process::{Command, Output, Stdio};

use plumb_host::clock::monotonic_ns;
use tempfile::TempDir;

pub const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");

/// A place for links that no other test sees.
pub struct Bench {
    pub directory: TempDir,
}

impl Bench {
    /// `None`, said so, where there can be no links.
    pub fn new() -> Option<Self> {
        let bench = Self { directory: tempfile::tempdir().unwrap() };
        let output = bench.link(&["--isolated", "--", "true"]).output().unwrap();
        let said = text(&output.stderr);
        let missing = ["may not make a network namespace", "/dev/net/tun"];
        if !output.status.success() && missing.iter().any(|part| said.contains(part)) {
            skip("no namespaces or no TUN here");
            return None;
        }
        assert!(output.status.success(), "{said}");
        Some(bench)
    }

    pub fn link(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PLUMB);
        command.arg("link").args(words).stdin(Stdio::null());
        command.env("XDG_RUNTIME_DIR", self.directory.path());
        command
    }

    /// Runs it; its standard output, after it has succeeded.
    pub fn said(&self, words: &[&str]) -> String {
        let output = self.link(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs it; code and standard error.
    pub fn failed(&self, words: &[&str]) -> (Option<i32>, String) {
        let Output { status, stderr, .. } = self.link(words).output().unwrap();
        (status.code(), text(&stderr))
    }

    /// Files that are left of names.
    pub fn names(&self) -> Vec<String> {
        let directory = self.directory.path().join("plumb/link");
        let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[expect(clippy::print_stdout, reason = "a test that cannot run says so")]
pub fn skip(reason: &str) -> bool {
    println!("skipped: {reason}");
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "skipped under CI: {reason}");
    false
}

pub fn installed(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
    found.status.success() || skip(&format!("{program} is not installed; run 'make setup'"))
}

pub fn wait_for(what: &str, mut happened: impl FnMut() -> bool) {
    let end = monotonic_ns() + 60_000_000_000;
    while !happened() {
        assert!(monotonic_ns() < end, "waited in vain for {what}");
        std::thread::yield_now();
    }
}
