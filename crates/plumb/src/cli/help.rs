//! `plumb help`: how plumb measures, and the help of each subcommand.

use clap::{Args, CommandFactory};

use super::Cli;
use super::output::{Failure, Output};
use crate::problem::{Exit, Problem};

/// How plumb measures, as it is also published.
const METHOD: &str = include_str!("../../../../METHODS.md");

/// Explain a subcommand, or how plumb measures (`plumb help method`)
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb help method | less
  plumb help run")]
pub struct Help {
    /// `method`, or a subcommand
    topic: Option<String>,
}

impl Help {
    /// Prints the help.
    ///
    /// # Errors
    /// No such topic.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        let mut command = Cli::command();
        command.build();
        let text = match self.topic.as_deref() {
            None => command.render_long_help().to_string(),
            Some("method" | "methods") => output.style.spell(METHOD),
            Some(topic) => {
                let names: Vec<String> =
                    command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
                let Some(subcommand) = command.find_subcommand_mut(topic) else {
                    let known = names.iter().map(String::as_str).chain(["method"]);
                    return Err(Problem::usage(format!("there is no help on '{topic}'"))
                        .suggest(topic, known)
                        .into());
                };
                subcommand.render_long_help().to_string()
            }
        };
        output.page(&text)?;
        Ok(Exit::Fine)
    }
}
