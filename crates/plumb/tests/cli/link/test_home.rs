//! Links that no other test sees: a home whose runtime directory has their registry.

use std::ops::Deref;
use std::process::{Child, Command, Output};

use serde_json::Value;

use crate::home::{Arguments, TestHome, document, installed, text};
use crate::support::{skip, wait_for};

pub struct LinkTestHome(TestHome);

impl Deref for LinkTestHome {
    type Target = TestHome;

    fn deref(&self) -> &TestHome {
        &self.0
    }
}

impl LinkTestHome {
    /// `None`, with a message, where links are not allowed.
    pub fn new() -> Option<Self> {
        let bench = Self(TestHome::new());
        let (code, stderr) = bench.exit_and_stderr("--isolated -- true");
        let missing = ["may not make a network namespace", "/dev/net/tun"];
        if code != Some(0) && missing.iter().any(|part| stderr.contains(part)) {
            skip("no namespaces or no TUN here");
            return None;
        }
        assert_eq!(code, Some(0), "{stderr}");
        Some(bench)
    }

    /// The same where these programs are installed too.
    pub fn with(programs: &[&str]) -> Option<Self> {
        let bench = Self::new()?;
        programs.iter().all(|program| installed(program)).then_some(bench)
    }

    /// `plumb link`, not yet started.
    pub fn link(&self, arguments: &(impl Arguments + ?Sized)) -> Command {
        let mut words = arguments.list();
        words.insert(0, "link".to_owned());
        self.command(&words)
    }

    /// Expects success; standard output.
    pub fn stdout_of(&self, arguments: &(impl Arguments + ?Sized)) -> String {
        let output = self.link(arguments).output().unwrap();
        assert!(output.status.success(), "{:?}: {}", arguments.list(), text(&output.stderr));
        text(&output.stdout)
    }

    /// Starts a link of this name, and waits until it is registered.
    pub fn start(&self, name: &str, arguments: &str) -> Child {
        let child = self.link(&format!("--name {name} --isolated {arguments}")).spawn().unwrap();
        wait_for("the name", || self.names() == [name]);
        child
    }

    /// The document of a running link.
    pub fn show(&self, name: &str) -> Value {
        document(&self.stdout_of(&["show", name, "--json"]))
    }

    /// Exit code and standard error.
    pub fn exit_and_stderr(&self, arguments: &(impl Arguments + ?Sized)) -> (Option<i32>, String) {
        let output = self.link(arguments).output().unwrap();
        (output.status.code(), text(&output.stderr))
    }

    /// Runs a script, whose `$0` is `zero`, as root of new user and other namespaces; `None` where that is not allowed.
    pub fn in_namespaces(&self, namespaces: &[&str], script: &str, zero: &str) -> Option<Output> {
        let mut command = self.command_of("unshare", &["--user", "--map-root-user"]);
        let output = command.args(namespaces).args(["sh", "-c", script, zero]).output().unwrap();
        let stderr = text(&output.stderr);
        if stderr.contains("unshare failed") || stderr.contains("mount point does not exist") {
            skip("user namespaces are not allowed here, or a file to mount over is missing");
            return None;
        }
        Some(output)
    }

    /// Expects each command line to be rejected with an error that names this.
    pub fn assert_rejected(&self, table: &[(&str, &str)]) {
        for (line, name) in table {
            self.assert_errors(&[(&format!("link {line}"), 2, name)]);
        }
    }

    /// Names in the registry.
    pub fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.path("plumb/link")).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }
}

/// How many replies each ping in this output received.
///
/// Without a deadline, ping waits for the last of several replies for two of the round trips it has seen, which a
/// busy machine exceeds; with one (-w) it may send, and receive, more than its -c.
pub fn replies(output: &str) -> Vec<u32> {
    let counts = output.split(", ").filter_map(|part| part.strip_suffix(" received"));
    counts.map(|count| count.parse().unwrap()).collect()
}
