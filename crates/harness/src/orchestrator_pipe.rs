//! The pipe between orchestrator and worker, and what they send over it.

use std::io;

use plumb_remote::message;
use serde::{Deserialize, Serialize};

use crate::channel::OpenError;
use crate::report::{BlockError, BlockOutcome, BlockReport, LaunchFacts};
use crate::spec::{BlockSpec, LaunchSpec};

/// What a worker says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WorkerMessage {
    /// The channel is open and both sides are placed.
    Ready(LaunchFacts),
    /// This host cannot open the channel: a result, not a failure.
    Unavailable(String),
    /// One block is done.
    Block(Box<BlockReport>),
    /// One block cannot be done on this host, and why; the launch goes on.
    BlockUnavailable(String),
    /// The launch is over because something broke.
    Failed(String),
}

/// What the orchestrator says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum OrchestratorMessage {
    /// Open this launch.
    Launch(LaunchSpec),
    /// Measure this block.
    Measure(BlockSpec),
    /// End.
    Quit,
}

/// The worker's words with the orchestrator.
pub(super) struct OrchestratorPipe {
    stdout: io::Stdout,
    stdin: io::Stdin,
}

impl OrchestratorPipe {
    pub(super) fn new() -> Self {
        Self { stdout: io::stdout(), stdin: io::stdin() }
    }

    pub(super) fn send(&mut self, message: &WorkerMessage) -> io::Result<()> {
        message::write(&mut self.stdout.lock(), message)
    }

    pub(super) fn receive(&mut self) -> io::Result<Option<OrchestratorMessage>> {
        message::read(&mut self.stdin.lock())
    }

    /// Answers every block with `measure` until told to quit or something breaks for good.
    pub(super) fn serve(
        &mut self,
        mut measure: impl FnMut(&BlockSpec) -> BlockOutcome,
    ) -> io::Result<()> {
        while let Some(OrchestratorMessage::Measure(spec)) = self.receive()? {
            match measure(&spec) {
                Ok(report) => self.send(&WorkerMessage::Block(Box::new(report)))?,
                Err(BlockError::Unavailable(reason) | BlockError::NothingDelivered(reason)) => {
                    self.send(&WorkerMessage::BlockUnavailable(reason))?;
                }
                Err(BlockError::Failed(reason)) => {
                    return self.send(&WorkerMessage::Failed(reason));
                }
            }
        }
        Ok(())
    }
}

/// What becomes of a launch whose channel cannot be opened.
pub(super) fn open_failure(error: OpenError) -> WorkerMessage {
    match error {
        OpenError::Unavailable(reason) => WorkerMessage::Unavailable(reason),
        broken @ OpenError::Io { .. } => WorkerMessage::Failed(broken.to_string()),
    }
}
