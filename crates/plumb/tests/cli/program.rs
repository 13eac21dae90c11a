//! The binary in a directory of its own, with an environment of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use plumb_host::clock::monotonic_ns;

/// Longest time that anything here is waited for.
const PATIENCE: Duration = Duration::from_mins(1);

/// A place to run plumb in: its own store, no colour, nothing of the user's.
pub struct Place {
    directory: tempfile::TempDir,
}

/// What a run of the program left behind.
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Place {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    pub fn store(&self) -> PathBuf {
        self.path("plumb.db")
    }

    /// The program with these words, about to be run.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_plumb"));
        command
            .args(words)
            .current_dir(self.directory.path())
            .env("HOME", self.directory.path())
            .env("PLUMB_STORE", self.store())
            .env("LANG", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for variable in ["LC_ALL", "LC_CTYPE", "NO_COLOR", "CLICOLOR_FORCE", "COLUMNS"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs the program with these words.
    pub fn run(&self, words: &[&str]) -> Outcome {
        Outcome::of(self.command(words).output().unwrap())
    }

    /// Runs it where no file may become longer than so many bytes.
    pub fn run_with_files_up_to(&self, bytes: u64, words: &[&str]) -> Outcome {
        let plain = self.command(words);
        let mut limited = Command::new("prlimit");
        limited.arg(format!("--fsize={bytes}")).arg("--");
        limited.arg(plain.get_program()).args(plain.get_args()).stdin(Stdio::null());
        limited.current_dir(self.directory.path());
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => limited.env(name, value),
                None => limited.env_remove(name),
            };
        }
        Outcome::of(limited.output().unwrap())
    }

    /// Runs it and expects it to end well.
    pub fn fine(&self, words: &[&str]) -> Outcome {
        let outcome = self.run(words);
        assert_eq!(outcome.code, Some(0), "{words:?}\n{}\n{}", outcome.stdout, outcome.stderr);
        outcome
    }

    /// Runs it and expects it to be refused with this code and these words on standard error.
    pub fn refused(&self, words: &[&str], code: i32, told: &[&str]) -> Outcome {
        let outcome = self.run(words);
        assert_eq!(outcome.code, Some(code), "{words:?}\n{}", outcome.stderr);
        for part in told {
            assert!(outcome.stderr.contains(part), "{words:?}: no '{part}' in\n{}", outcome.stderr);
        }
        let errors = outcome.stderr.lines().filter(|line| line.starts_with("error: ")).count();
        assert_eq!(errors, 1, "one clear message: {words:?}\n{}", outcome.stderr);
        assert!(!outcome.stderr.contains("plumb has a bug"), "{}", outcome.stderr);
        outcome
    }

    /// A stored run of two cells, in a fifth of a second.
    pub fn measured(&self) -> &Self {
        self.fine(&[
            "run",
            "latency.local",
            "--quick",
            "--launches=3",
            "--set=mechanism=pipe,eventfd",
            "--set=size=8",
            "--set=placement=same-cpu",
        ]);
        self
    }

    /// Writes a plan of one cell whose blocks last that long, so that their worker and peer are there
    /// to be found; its name.
    pub fn plan_of_blocks(&self, block: Duration, launches: u32) -> &'static str {
        let block_ms = block.as_millis();
        // A round trip takes two microseconds at least; no plan may ask for more samples.
        let samples_max = (block.as_micros() / 2).min(10_000_000);
        let plan = format!(
            "[limits]\nblock = \"{block_ms}ms\"\nsamples_max = {samples_max}\npasses = 1\n\
             launches_min = {launches}\nlaunches_max = {launches}\n\
             [[experiment]]\nid = \"latency.local\"\n[experiment.factors]\n\
             mechanism = \"pipe\"\nsize = 64\nplacement = \"same-cpu\"\n"
        );
        self.file("long.toml", plan);
        "long.toml"
    }

    /// A run that would last for a while, once its first worker has its peer.
    pub fn measuring(&self, words: &[&str]) -> Measuring {
        let child = self.command(words).spawn().unwrap();
        let mut measuring = Measuring { child: Some(child) };
        wait_for("a peer process", || {
            measuring.descendant("__peer").is_some() || measuring.ended()
        });
        measuring
    }
}

impl Outcome {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Standard output as one JSON document.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// A running plumb; killed when dropped.
pub struct Measuring {
    child: Option<Child>,
}

impl Measuring {
    /// Sends a signal by name to a process.
    pub fn signal(pid: u32, name: &str) {
        let status = Command::new("sh").args(["-c", &format!("kill -{name} {pid}")]).status();
        assert!(status.unwrap().success());
    }

    /// Sends a signal unless the process has ended; whether it has.
    pub fn signal_if_alive(pid: u32, name: &str) -> bool {
        let has_ended = !is_alive(pid);
        if !has_ended {
            let words = format!("kill -{name} {pid} 2>&-");
            Command::new("sh").args(["-c", &words]).status().unwrap();
        }
        has_ended
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// The process below this one that was started with a word such as `__peer`.
    pub fn descendant(&self, word: &str) -> Option<u32> {
        self.descendants().into_iter().find(|pid| command_line(*pid).contains(word))
    }

    /// Every process below this one.
    pub fn descendants(&self) -> Vec<u32> {
        let mut found = vec![self.pid()];
        let mut next = 0;
        while next < found.len() {
            found.extend(children(found[next]));
            next += 1;
        }
        found.split_off(1)
    }

    pub fn ended(&mut self) -> bool {
        self.child.as_mut().unwrap().try_wait().unwrap().is_some()
    }

    /// Waits for its end.
    pub fn outcome(mut self) -> Outcome {
        Outcome::of(self.child.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Measuring {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// The children of a process, of all its threads.
fn children(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task"));
    tasks
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| {
            text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<u32>>()
        })
        .collect()
}

fn command_line(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default()
}

/// Whether a process exists and is not merely waiting to be reaped.
pub fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    state.is_some_and(|state| state != "Z")
}

/// Waits until something is so; fails after a minute.
pub fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = monotonic_ns();
    while !is_so() {
        let waited = Duration::from_nanos(monotonic_ns() - began);
        assert!(waited < PATIENCE, "waited {waited:?} for {what}");
        std::thread::yield_now();
    }
}

/// The directory with the published schemas.
pub fn schemas() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schema")
}
