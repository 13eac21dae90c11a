//! `plumb man`: manual pages, made from the same words as `--help`.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_mangen::Man as Page;

use super::Cli;
use super::output::{Failure, Output};
use crate::problem::{Exit, Problem};

/// Print the manual page, or write one page a subcommand into a directory
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb man | man -l -
  plumb man ~/.local/share/man/man1")]
pub struct Man {
    /// Where to write the pages
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Man {
    /// Prints or writes the pages.
    ///
    /// # Errors
    /// The directory or standard output cannot be written.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        let mut command = Cli::command();
        command.build();
        let Some(directory) = self.directory else {
            let mut page = Vec::new();
            Page::new(command)
                .render(&mut page)
                .map_err(|error| Problem::trouble("cannot make the page").because(error))?;
            output.bytes(&page)?;
            return Ok(Exit::Fine);
        };
        let made = std::fs::create_dir_all(&directory)
            .and_then(|()| clap_mangen::generate_to(command, &directory));
        made.map_err(|error| {
            Problem::usage(format!("cannot write manual pages into {}", directory.display()))
                .because(error)
                .fix("name a directory that you may write to")
        })?;
        output.remark(&format!("manual pages are in {}", directory.display()));
        Ok(Exit::Fine)
    }
}
