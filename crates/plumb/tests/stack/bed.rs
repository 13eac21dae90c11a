//! Test beds with the built binary at work in them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use plumb_host::clock::monotonic_ns;
use plumb_host::lab::{Far, LabError, LinkOptions, TestBed};
use serde_json::Value;

pub const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");

/// Longest time that anything here is waited for.
pub const PATIENCE: Duration = Duration::from_secs(30);

#[expect(clippy::print_stdout, reason = "a test that cannot run says so")]
pub fn skip(reason: &str) {
    println!("skipped: {reason}");
    assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "skipped under CI: {reason}");
}

/// What `make` made; none, with a word about it, where this process may not.
fn allowed(made: Result<TestBed, LabError>) -> Option<TestBed> {
    match made {
        Err(error @ LabError::NotPermitted { .. }) => {
            skip(&error.to_string());
            None
        }
        made => Some(made.unwrap_or_else(|error| panic!("{error}"))),
    }
}

/// A side with Linux and a TAP that nobody has opened.
pub fn tap() -> Option<TestBed> {
    let bed = allowed(TestBed::tap(LinkOptions::default()))?;
    bed.add_tap().unwrap();
    bed.bring_up_near().unwrap();
    Some(bed)
}

/// Linux at one side of a virtual Ethernet, silence at the other.
pub fn veth() -> Option<TestBed> {
    allowed(TestBed::veth(Far::Silent, LinkOptions::default()))
}

/// The same with every frame as on a real wire: an AF_XDP socket is not told of open checksums.
pub fn wire() -> Option<TestBed> {
    allowed(TestBed::veth(Far::Silent, LinkOptions { offloads: false, ..LinkOptions::default() }))
}

pub fn installed(program: &str) -> bool {
    let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output().unwrap();
    if !found.status.success() {
        skip(&format!("{program} is not installed; run 'make setup'"));
    }
    found.status.success()
}

/// `plumb stack` with these words.
pub fn plumb(words: &[&str]) -> Command {
    let mut command = Command::new(PLUMB);
    command.arg("stack").args(words).env("LANG", "C.UTF-8").stdin(Stdio::null());
    for variable in ["LC_ALL", "LC_CTYPE", "NO_COLOR", "CLICOLOR_FORCE", "COLUMNS"] {
        command.env_remove(variable);
    }
    command
}

/// A `plumb stack` that runs until it is told to stop, with its results as JSON.
pub struct Running {
    child: Child,
    remarks: Receiver<String>,
}

impl Running {
    /// Starts it and waits until it says that it is ready. Call inside the namespace.
    pub fn start(words: &[&str]) -> Self {
        Self::start_until(words, "Ctrl-C ends it")
    }

    /// Starts it and waits until it says something that contains this.
    pub fn start_until(words: &[&str], part: &str) -> Self {
        let mut command = plumb(words);
        command.arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, remarks) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                // Whoever listened has gone.
                let _ = sender.send(line);
            }
        });
        let running = Self { child, remarks };
        running.remark(part);
        running
    }

    /// Waits for a line on standard error that contains this.
    pub fn remark(&self, part: &str) -> String {
        let mut seen = Vec::new();
        while let Ok(line) = self.remarks.recv_timeout(PATIENCE) {
            if line.contains(part) {
                return line;
            }
            seen.push(line);
        }
        panic!("waited in vain for '{part}' in {seen:?}");
    }

    pub fn signal(&self, name: &str) {
        let words = [format!("-{name}"), self.child.id().to_string()];
        assert!(Command::new("kill").args(words).status().unwrap().success());
    }

    /// Waits for its end; its exit status and what it printed.
    pub fn wait(mut self) -> (ExitStatus, String, String) {
        let end = monotonic_ns() + u64::try_from(PATIENCE.as_nanos()).unwrap();
        while self.child.try_wait().unwrap().is_none() {
            assert!(monotonic_ns() < end, "it does not end");
            std::thread::yield_now();
        }
        let status = self.child.wait().unwrap();
        let stdout = std::io::read_to_string(self.child.stdout.take().unwrap()).unwrap();
        let said: Vec<String> = self.remarks.iter().collect();
        (status, stdout, said.join("\n"))
    }

    /// Interrupts it; its document.
    pub fn stop(self) -> Value {
        self.signal("INT");
        let (status, stdout, said) = self.wait();
        assert_eq!(status.code(), Some(0), "{said}");
        serde_json::from_str(&stdout).unwrap()
    }
}

/// Runs `plumb stack` with these words and JSON; its document, if it ends well.
pub fn document(words: &[&str]) -> Value {
    let output = plumb(words).arg("--json").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words:?}: {said}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_valid(&document);
    document
}

/// Checks a document against the published schema.
pub fn assert_valid(document: &Value) {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/plumb.stack-1.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let faults: Vec<String> = validator
        .iter_errors(document)
        .map(|fault| format!("{}: {fault}", fault.instance_path()))
        .collect();
    assert!(faults.is_empty(), "{faults:?}");
}

/// Expects `plumb stack` to be refused with this code and these words.
pub fn refused(words: &[&str], code: i32, told: &[&str]) {
    let output = plumb(words).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
    for part in told {
        assert!(said.contains(part), "{words:?}: no '{part}' in\n{said}");
    }
    let errors = said.lines().filter(|line| line.starts_with("error: ")).count();
    assert_eq!(errors, 1, "one clear message: {said}");
    assert!(!said.contains("plumb has a bug"), "{said}");
}
