//! The orchestrator's side of a launch: starts a worker, asks it for blocks, and sees to it that
//! nothing is left of it.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use plumb_sys::fd;

use crate::framing;
use crate::orchestrator_pipe::{OrchestratorMessage, WorkerMessage};
use crate::report::{BlockReport, LaunchFacts};
use crate::spec::{BlockSpec, LaunchSpec};

/// Why a launch or a block gave no report.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// This host cannot do it: a result.
    #[error("{0}")]
    Unavailable(String),
    /// The worker said that something broke.
    #[error("{0}")]
    Failed(String),
    /// The worker died.
    #[error("the measuring process died{0}")]
    Died(String),
    /// The worker did not answer in time and was killed.
    #[error("the measuring process did not answer within {0} and was killed")]
    TimedOut(Span),
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// The processes could not be started or talked to.
    #[error("cannot start a measuring process: {0}")]
    Io(#[from] io::Error),
}

/// A launch under way: a worker and, through it, its peer. Both die when it is dropped.
#[derive(Debug)]
pub struct RunningLaunch {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    /// What is known of the channel.
    pub facts: LaunchFacts,
}

/// Longest time to open a channel and start both processes.
const OPEN_DEADLINE: Span = Span::from_secs(10);
/// The same where the peer is on another host: a login, a greeting, and whoever does not let a connection through.
const OPEN_DEADLINE_FAR: Span = Span::from_secs(60);

impl RunningLaunch {
    /// Starts a fresh worker from `program` and opens the channel.
    ///
    /// The environment is padded by a number of bytes that the seed chooses, because the layout
    /// of the stack moves results (Mytkowicz et al. 2009). `abort` is asked while waiting.
    pub fn start(
        program: &Path,
        spec: &LaunchSpec,
        abort: &mut dyn FnMut() -> bool,
    ) -> Result<Self, LaunchError> {
        let padding = usize::try_from(spec.seed % 4096).unwrap_or(0);
        let mut child = Command::new(program)
            .arg("__worker")
            .env("PLUMB_PADDING", "x".repeat(padding))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (Some(orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        };
        let mut launch =
            Self { child, stdin: Some(orders), stdout: answers, facts: LaunchFacts::default() };
        launch.send(&OrchestratorMessage::Launch(spec.clone()))?;
        let deadline = spec.subject.other_host().map_or(OPEN_DEADLINE, |_| OPEN_DEADLINE_FAR);
        match launch.receive(deadline, abort)? {
            WorkerMessage::Ready(facts) => {
                launch.facts = facts;
                Ok(launch)
            }
            WorkerMessage::Unavailable(reason) => Err(LaunchError::Unavailable(reason)),
            WorkerMessage::Failed(reason) => Err(LaunchError::Failed(reason)),
            other => Err(LaunchError::Failed(format!("unexpected answer {other:?}"))),
        }
    }

    /// Measures one block. After any error but [`LaunchError::Unavailable`] the launch is over.
    pub fn measure(
        &mut self,
        spec: &BlockSpec,
        deadline: Span,
        abort: &mut dyn FnMut() -> bool,
    ) -> Result<BlockReport, LaunchError> {
        self.send(&OrchestratorMessage::Measure(spec.clone()))?;
        match self.receive(deadline, abort)? {
            WorkerMessage::Block(report) => Ok(*report),
            WorkerMessage::BlockUnavailable(reason) => Err(LaunchError::Unavailable(reason)),
            WorkerMessage::Failed(reason) => Err(LaunchError::Failed(reason)),
            other => Err(LaunchError::Failed(format!("unexpected answer {other:?}"))),
        }
    }

    /// Ends the launch and waits for both processes to be gone.
    pub fn finish(mut self) -> Result<(), LaunchError> {
        self.send(&OrchestratorMessage::Quit)?;
        drop(self.stdin.take());
        self.child.wait()?;
        Ok(())
    }

    fn send(&mut self, message: &OrchestratorMessage) -> Result<(), LaunchError> {
        let Some(orders) = &mut self.stdin else {
            return Err(io::Error::from(io::ErrorKind::BrokenPipe).into());
        };
        if framing::write(orders, message).is_err() {
            return Err(self.exit_error());
        }
        Ok(())
    }

    /// Waits for the worker's next word, asleep: the orchestrator takes no CPU time while a block
    /// is measured.
    fn receive(
        &mut self,
        deadline: Span,
        abort: &mut dyn FnMut() -> bool,
    ) -> Result<WorkerMessage, LaunchError> {
        let end = monotonic_ns().saturating_add(deadline.as_ns());
        loop {
            let left = end.saturating_sub(monotonic_ns());
            if left == 0 {
                return Err(LaunchError::TimedOut(deadline));
            }
            let timeout_ms = i32::try_from(left / 1_000_000 + 1).unwrap_or(i32::MAX);
            match fd::poll_readable(self.stdout.as_fd(), timeout_ms) {
                Ok(true) => break,
                Ok(false) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if abort() {
                        return Err(LaunchError::Interrupted);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        match framing::read(&mut self.stdout) {
            Ok(Some(message)) => Ok(message),
            Ok(None) | Err(_) => Err(self.exit_error()),
        }
    }

    /// What is known of a worker that is gone.
    fn exit_error(&mut self) -> LaunchError {
        // It may be dying still: make sure, then it can be waited for.
        drop(self.child.kill());
        let status = self.child.wait().map(|status| format!(" ({status})")).unwrap_or_default();
        let mut words = String::new();
        if let Some(stderr) = self.child.stderr.take() {
            // What it said is a courtesy; reading it may fail.
            drop(stderr.take(4096).read_to_string(&mut words));
        }
        let words = words.trim();
        let colon = if words.is_empty() { "" } else { ": " };
        LaunchError::Died(format!("{status}{colon}{words}"))
    }
}

impl Drop for RunningLaunch {
    fn drop(&mut self) {
        // A worker that has quit is gone already; the peer dies with its worker.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
