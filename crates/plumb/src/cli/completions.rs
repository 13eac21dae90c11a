//! `plumb completions`: scripts that complete plumb's words in a shell.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::output::{Failure, Output};
use super::{Cli, iperf3};
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
        // The generator looks a command up by the words of its name, which are more for those that an
        // option chooses.
        let mut command = Cli::command();
        for (_, name) in iperf3::COMMANDS {
            command = command.mut_subcommand(name, |it| it.bin_name(format!("plumb {name}")));
        }
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "plumb", &mut script);
        output.bytes(&script)?;
        Ok(Exit::Fine)
    }
}
