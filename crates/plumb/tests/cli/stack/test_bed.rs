//! Test beds with the built binary at work in them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use plumb_netdev::lab::{FarEndMode, LabError, TestBed, TestBedOptions};
use serde_json::Value;

use crate::home::{self, TestHome, assert_ended, json_of};
use crate::support::{self, skip, wait_for};

/// Longest time that a socket or a line is waited for.
pub const WAIT_MAX: Duration = Duration::from_mins(1);

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
    let bed = allowed(TestBed::tap(TestBedOptions::default()))?;
    bed.add_tap().unwrap();
    bed.bring_up_near().unwrap();
    Some(bed)
}

/// Linux at one side of a virtual Ethernet, silence at the other.
pub fn veth() -> Option<TestBed> {
    allowed(TestBed::veth(FarEndMode::Silent, TestBedOptions::default()))
}

/// The same with every frame as on a real wire: an AF_XDP socket is not told of open checksums.
pub fn wire() -> Option<TestBed> {
    allowed(TestBed::veth(
        FarEndMode::Silent,
        TestBedOptions { offloads: false, ..TestBedOptions::default() },
    ))
}

/// `plumb stack` with these words.
pub fn plumb(words: &[&str]) -> Command {
    let mut command = TestHome::new().command(&[&["stack"], words].concat());
    // Its home has gone by then, and the stack needs none.
    command.current_dir("/");
    command
}

/// A `plumb stack` that runs until it is told to stop, with its results as JSON.
pub struct RunningStack {
    child: Child,
    remarks: Receiver<String>,
}

impl RunningStack {
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
        running.wait_for_line(part);
        running
    }

    /// Waits for a line on standard error that contains this.
    pub fn wait_for_line(&self, part: &str) -> String {
        let mut seen = Vec::new();
        while let Ok(line) = self.remarks.recv_timeout(WAIT_MAX) {
            if line.contains(part) {
                return line;
            }
            seen.push(line);
        }
        panic!("waited in vain for '{part}' in {seen:?}");
    }

    pub fn signal(&self, name: &str) {
        assert!(support::signal(self.child.id(), name));
    }

    /// Waits for its end; its exit status and what it printed.
    pub fn wait(mut self) -> (ExitStatus, String, String) {
        wait_for("its end", || self.child.try_wait().unwrap().is_some());
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
    assert_ended(&output, 0, &[]);
    let document = json_of(&output);
    assert_valid(&document);
    document
}

pub fn assert_valid(document: &Value) {
    home::assert_valid(document, "plumb.stack/1");
}

/// Expects `plumb stack` to be refused with this code and these words.
pub fn assert_error(words: &[&str], code: i32, told: &[&str]) {
    assert_ended(&plumb(words).output().unwrap(), code, told);
}
