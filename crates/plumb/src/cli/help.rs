//! `plumb help`: how plumb measures, what the text of a link may say, and the help of each subcommand.

use clap::{Args, CommandFactory};

use super::Cli;
use super::output::{Failure, Output};
use crate::problem::{Exit, Problem};

/// How plumb measures, as it is also published.
const METHOD: &str = include_str!("../../../../METHODS.md");

/// What the text of a link may say, as it is also published.
const LINKS: &str = include_str!("../../../../docs/links.md");

/// Explain a subcommand, how plumb measures (`plumb help method`), or what a link may be (`plumb help links`)
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb help method | less
  plumb help links                       every key of a link's text, and the presets
  plumb help run")]
pub struct Help {
    /// `method`, `links`, or a subcommand
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
            Some("links") => output.style.spell(LINKS),
            Some(topic) => {
                let names: Vec<String> =
                    command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
                let Some(subcommand) = command.find_subcommand_mut(topic) else {
                    let known = names.iter().map(String::as_str).chain(["method", "links"]);
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

#[cfg(test)]
mod tests {
    use plumb_link::preset::PRESETS;
    use plumb_link::spec::LinkSpec;
    use plumb_link::text::direction;

    use super::*;

    #[test]
    fn the_page_of_links_has_every_key_and_every_preset() {
        for name in direction::keys().chain(PRESETS.iter().map(|preset| preset.name)) {
            assert!(LINKS.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn every_link_that_the_page_shows_is_one() {
        let shown = LINKS.split('`').skip(1).step_by(2).filter(|text| text.contains('='));
        let links: Vec<&str> = shown.filter(|text| !text.contains([' ', '…'])).collect();
        assert!(links.len() > 30, "{links:?}");
        for link in links {
            let parsed = link.parse::<LinkSpec>();
            assert!(parsed.is_ok(), "{link}: {}", parsed.unwrap_err());
        }
    }
}
