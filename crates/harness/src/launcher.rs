//! The orchestrator's side of a launch: starts a worker, asks it for blocks, and sees to it that
//! nothing is left of it.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};

use plumb_base::time::Span;
use plumb_remote::message;

use crate::child_process::{ChildProcess, HiddenCommand, wait_readable};
use crate::launch_protocol::{OrchestratorMessage, WorkerMessage};
use crate::report::{BlockReport, LaunchFacts, LaunchFault};
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
    /// The worker did not answer in time and is killed with the launch.
    #[error("the measuring process did not answer within {timeout} and was killed{said}")]
    TimedOut {
        /// How long it was waited for.
        timeout: Span,
        /// The end of what it wrote to standard error, behind a colon.
        said: String,
    },
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// The processes could not be started or talked to.
    #[error("cannot start a measuring process: {0}")]
    Io(#[from] io::Error),
}

/// A launch under way: a worker and, through it, its peer, which dies with it. Both are gone when it is dropped.
#[derive(Debug)]
pub struct RunningLaunch {
    process: ChildProcess,
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    /// What is known about the channel.
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
        let mut process = ChildProcess::spawn(
            Command::new(program)
                .args(HiddenCommand::Worker.arguments())
                .env("PLUMB_PADDING", "x".repeat(padding))
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped()),
        )?;
        let stdin = process.child.stdin.take();
        let stdout = process.child.stdout.take().ok_or_else(broken_pipe)?;
        let mut launch = Self { process, stdin, stdout, facts: LaunchFacts::default() };
        launch.send(&OrchestratorMessage::Launch(spec.clone()))?;
        let deadline = spec.subject.other_host().map_or(OPEN_DEADLINE, |_| OPEN_DEADLINE_FAR);
        match launch.receive(deadline, abort)? {
            WorkerMessage::Ready(Ok(facts)) => {
                launch.facts = facts;
                Ok(launch)
            }
            WorkerMessage::Ready(Err(error)) => Err(launch.failed(error)),
            other @ WorkerMessage::Block(_) => {
                Err(LaunchError::Failed(format!("unexpected answer {other:?}")))
            }
        }
    }

    /// Measures one block. After any error but [`LaunchError::Unavailable`] the launch is over.
    pub fn measure(
        &mut self,
        spec: &BlockSpec,
        deadline: Span,
        abort: &mut dyn FnMut() -> bool,
    ) -> Result<BlockReport, LaunchError> {
        self.request(spec)?;
        self.answer(deadline, abort)
    }

    /// Asks for a block. Each is waited for by [`RunningLaunch::answer`]; several launches may have one to do at once.
    pub fn request(&mut self, spec: &BlockSpec) -> Result<(), LaunchError> {
        self.send(&OrchestratorMessage::Measure(spec.clone()))
    }

    /// Waits for the block that was asked for. After any error but [`LaunchError::Unavailable`] the launch is over.
    pub fn answer(
        &mut self,
        deadline: Span,
        abort: &mut dyn FnMut() -> bool,
    ) -> Result<BlockReport, LaunchError> {
        match self.receive(deadline, abort)? {
            WorkerMessage::Block(report) => {
                report.map(|report| *report).map_err(|error| self.failed(error))
            }
            other @ WorkerMessage::Ready(_) => {
                Err(LaunchError::Failed(format!("unexpected answer {other:?}")))
            }
        }
    }

    /// Ends the launch and waits for both processes to be gone.
    pub fn finish(mut self) -> Result<(), LaunchError> {
        self.send(&OrchestratorMessage::Quit)?;
        drop(self.stdin.take());
        self.process.child.wait()?;
        Ok(())
    }

    fn send(&mut self, message: &OrchestratorMessage) -> Result<(), LaunchError> {
        let stdin = self.stdin.as_mut().ok_or_else(broken_pipe)?;
        message::write(stdin, message).map_err(|_| self.died())
    }

    /// Waits for the worker's next message, asleep: the orchestrator takes no CPU time while a block is measured.
    fn receive(
        &mut self,
        deadline: Span,
        abort: &mut dyn FnMut() -> bool,
    ) -> Result<WorkerMessage, LaunchError> {
        match wait_readable(self.stdout.as_fd(), deadline, abort) {
            Ok(true) => {}
            Ok(false) => {
                let said = self.process.stderr_so_far();
                return Err(LaunchError::TimedOut { timeout: deadline, said });
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                return Err(LaunchError::Interrupted);
            }
            Err(error) => return Err(error.into()),
        }
        match message::read(&mut self.stdout) {
            Ok(Some(message)) => Ok(message),
            Ok(None) | Err(_) => Err(self.died()),
        }
    }

    fn died(&mut self) -> LaunchError {
        LaunchError::Died(self.process.exit_report())
    }

    /// Why the worker did not do it; where it failed, with what it or a process of its own wrote to standard error.
    fn failed(&self, error: LaunchFault) -> LaunchError {
        match error {
            LaunchFault::Unavailable(reason) => LaunchError::Unavailable(reason),
            LaunchFault::Failed(reason) => {
                LaunchError::Failed(format!("{reason}{}", self.process.stderr_suffix()))
            }
        }
    }
}

fn broken_pipe() -> io::Error {
    io::ErrorKind::BrokenPipe.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::LaunchSubject;

    #[test]
    fn a_worker_that_cannot_start_is_quoted() {
        let spec = LaunchSpec {
            subject: LaunchSubject::Alone,
            cpu_local: None,
            cpu_peer: None,
            ticks_per_ns: None,
            seed: 1,
            deadline_ns: 1,
        };
        // A shell takes the hidden command for a script, which is not there.
        let error = RunningLaunch::start(Path::new("/bin/sh"), &spec, &mut || false).unwrap_err();
        let LaunchError::Died(said) = error else { panic!("{error}") };
        assert!(said.contains("exit status") && said.contains("__worker"), "{said}");
    }
}
