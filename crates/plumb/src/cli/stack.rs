//! `plumb stack`: plumb's own network stack in a user process, and a test bed to try it in.
//!
//! Left out: what each subcommand does, which is in its own file.

use clap::{Args, Subcommand};

use super::Global;
use super::output::{Failure, Output};
use crate::problem::Exit;

pub mod lab;

/// Run plumb's own network stack, or make a test bed to try it in
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb stack lab
  plumb stack lab -- ping -c 3 10.77.0.2")]
pub struct Stack {
    #[command(subcommand)]
    action: Action,
}

#[derive(Clone, Debug, Subcommand)]
enum Action {
    Lab(lab::Lab),
}

impl Stack {
    /// Does it.
    ///
    /// # Errors
    /// As each subcommand says.
    pub fn perform(self, global: &Global, output: &Output) -> Result<Exit, Failure> {
        match self.action {
            Action::Lab(command) => command.perform(global, output),
        }
    }
}
