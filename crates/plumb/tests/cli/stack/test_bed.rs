//! Test beds with the built binary at work in them.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use plumb_netdev::lab::{FarEndMode, LabError, TestBed, TestBedOptions};
use serde_json::Value;

use crate::home::{self, Arguments, TestHome, assert_ended, json_of, text};
use crate::support::{self, skip, wait_for};

/// Deadline of sockets and lines.
pub const WAIT_MAX: Duration = Duration::from_mins(1);

/// A test bed; `None`, with a message, where it is not allowed.
pub fn allowed<T>(created: Result<T, LabError>) -> Option<T> {
    match created {
        Err(error @ LabError::NotPermitted { .. }) => {
            skip(&error.to_string());
            None
        }
        created => Some(created.unwrap_or_else(|error| panic!("{error}"))),
    }
}

/// A side with Linux and a TAP that is not yet opened.
pub fn tap() -> Option<TestBed> {
    let bed = allowed(TestBed::tap(TestBedOptions::default()))?;
    bed.add_tap().unwrap();
    bed.bring_up_near().unwrap();
    Some(bed)
}

/// Linux on one side of a virtual Ethernet, nothing on the other.
pub fn veth() -> Option<TestBed> {
    allowed(TestBed::veth(FarEndMode::Silent, TestBedOptions::default()))
}

/// The same without offloads: an AF_XDP socket does not see which checksums are incomplete.
pub fn wire() -> Option<TestBed> {
    allowed(TestBed::veth(
        FarEndMode::Silent,
        TestBedOptions { offloads: false, ..TestBedOptions::default() },
    ))
}

/// `plumb stack`, not yet started.
pub fn plumb(arguments: &(impl Arguments + ?Sized)) -> Command {
    let mut words = arguments.list();
    words.insert(0, "stack".to_owned());
    let mut command = TestHome::new().command(&words);
    // The home is removed here, and the stack needs none.
    command.current_dir("/");
    command
}

/// A running `plumb stack --json`.
pub struct RunningStack {
    child: Child,
    remarks: Receiver<String>,
}

impl RunningStack {
    /// Starts it and waits until it is ready. Call inside the namespace.
    pub fn start(arguments: &(impl Arguments + ?Sized)) -> Self {
        Self::start_until(arguments, "Ctrl-C ends it")
    }

    /// Starts it and waits for a message that contains this.
    pub fn start_until(arguments: &(impl Arguments + ?Sized), part: &str) -> Self {
        let mut command = plumb(arguments);
        command.arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let (sender, remarks) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                // Nobody may be waiting any more.
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
        panic!("timed out waiting for '{part}' in {seen:?}");
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
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

/// Expects success of `plumb stack`; its JSON document.
pub fn document(arguments: &(impl Arguments + ?Sized)) -> Value {
    let output = plumb(arguments).arg("--json").output().unwrap();
    assert_ended(&output, 0, &[]);
    let document = json_of(&output);
    assert_valid(&document);
    document
}

pub fn assert_valid(document: &Value) {
    home::assert_valid(document, "plumb.stack/1");
}

/// Expects `plumb stack` to end with this code and one error that names this.
pub fn assert_error(arguments: &(impl Arguments + ?Sized), code: i32, name: &str) {
    let output = plumb(arguments).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{:?}: {stderr}", arguments.list());
    assert_ended(&output, code, &[name]);
}
