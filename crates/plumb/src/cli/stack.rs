//! `plumb stack`: plumb's own network stack in a user process, and a test bed to try it in.
//!
//! Left out: what each subcommand does, which is in its own file.

use clap::{Args, Subcommand};

use super::Global;
use super::output::{Failure, Output};
use crate::problem::Exit;

mod finish;
pub mod lab;
pub mod options;
pub mod ping;
pub mod replay;
pub mod send;
pub mod serve;

/// Run plumb's own network stack, or make a test bed to try it in
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb stack lab
  plumb stack lab -- ping -c 3 10.77.0.2
  plumb stack serve --device tap:plumb0 --addr 10.77.0.2/24
  plumb stack ping 10.0.0.2 --device memory
  plumb stack send 10.77.0.2:1997
  plumb stack replay trace.pcapng")]
pub struct Stack {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    Lab(lab::Lab),
    Mirror(serve::Mirror),
    Serve(serve::Serve),
    Ping(ping::Ping),
    Send(send::Send),
    Replay(replay::Replay),
}

impl Stack {
    /// Does it.
    ///
    /// # Errors
    /// As each subcommand says.
    pub fn perform(self, global: &Global, output: &Output) -> Result<Exit, Failure> {
        match self.action {
            Action::Lab(command) => command.perform(global, output),
            Action::Mirror(command) => command.perform(output),
            Action::Serve(command) => command.perform(output),
            Action::Ping(command) => command.perform(output),
            Action::Send(command) => command.perform(output),
            Action::Replay(command) => command.perform(output),
        }
    }
}
