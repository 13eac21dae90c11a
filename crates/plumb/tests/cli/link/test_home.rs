//! Links that no other test sees: a home whose runtime directory has their names.

use std::ops::Deref;
use std::process::Command;

use serde_json::Value;

use crate::home::{TestHome, document, text};
use crate::support::skip;

pub struct LinkTestHome(TestHome);

impl Deref for LinkTestHome {
    type Target = TestHome;

    fn deref(&self) -> &TestHome {
        &self.0
    }
}

impl LinkTestHome {
    /// `None`, said so, where there can be no links.
    pub fn new() -> Option<Self> {
        let bench = Self(TestHome::new());
        let (code, said) = bench.exit_and_stderr(&["--isolated", "--", "true"]);
        let missing = ["may not make a network namespace", "/dev/net/tun"];
        if code != Some(0) && missing.iter().any(|part| said.contains(part)) {
            skip("no namespaces or no TUN here");
            return None;
        }
        assert_eq!(code, Some(0), "{said}");
        Some(bench)
    }

    /// `plumb link` with these words, about to be run.
    pub fn link(&self, words: &[&str]) -> Command {
        self.command(&[&["link"], words].concat())
    }

    /// Expects success; standard output.
    pub fn stdout_of(&self, words: &[&str]) -> String {
        let output = self.link(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// The document of a link that runs.
    pub fn show(&self, name: &str) -> Value {
        document(&self.stdout_of(&["show", name, "--json"]))
    }

    /// Exit code and standard error.
    pub fn exit_and_stderr(&self, words: &[&str]) -> (Option<i32>, String) {
        let output = self.link(words).output().unwrap();
        (output.status.code(), text(&output.stderr))
    }

    /// Expects usage, or what is asked for, to be refused with these words.
    pub fn assert_refused(&self, words: &[&str], told: &[&str]) {
        self.0.assert_error(&[&["link"], words].concat(), 2, told);
    }

    /// Files that are left of names.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("plumb/link")).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }
}
