//! `plumb completions`: scripts that complete plumb's words in a shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Cli;
use super::output::{Failure, Output};
use crate::problem::Exit;

/// Print a completion script for a shell
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb completions bash > ~/.local/share/bash-completion/completions/plumb
  plumb completions zsh > \"${fpath[1]}/_plumb\"
  plumb completions fish > ~/.config/fish/completions/plumb.fish")]
pub struct Completions {
    /// Which shell
    shell: Shell,
}

impl Completions {
    /// Prints the script.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut Cli::command(), "plumb", &mut script);
        output.bytes(&script)?;
        Ok(Exit::Fine)
    }
}
