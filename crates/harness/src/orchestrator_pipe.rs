//! The pipe between orchestrator and worker, and what they send over it.

use std::io;

use plumb_remote::message;
use serde::{Deserialize, Serialize};

use crate::report::{BlockError, BlockOutcome, BlockReport, LaunchFacts, LaunchFault};
use crate::spec::{BlockSpec, LaunchSpec};

/// What a worker says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WorkerMessage {
    /// The channel is open and both sides are placed; or why not.
    Ready(Result<LaunchFacts, LaunchFault>),
    /// One block is done, or failed; after `Unavailable` the launch continues.
    Block(Result<Box<BlockReport>, LaunchFault>),
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
            let outcome = measure(&spec).map(Box::new).map_err(|error| match error {
                BlockError::Unavailable(reason) | BlockError::NothingDelivered(reason) => {
                    LaunchFault::Unavailable(reason)
                }
                BlockError::Failed(reason) => LaunchFault::Failed(reason),
            });
            let is_broken = matches!(outcome, Err(LaunchFault::Failed(_)));
            self.send(&WorkerMessage::Block(outcome))?;
            if is_broken {
                break;
            }
        }
        Ok(())
    }
}
