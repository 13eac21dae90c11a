//! `plumb help`, `plumb man` and `plumb completions`.

use std::path::PathBuf;

use clap::Args;
use clap_complete::Shell;
use clap_mangen::Man;
use plumb_report::terminal::page_markdown;

use crate::cli::output::{CliOutput, CommandResult};
use crate::cli::{foreign_options, iperf3};
use crate::problem::{ExitReason, Problem};

/// How plumb measures.
const METHOD: &str = include_str!("../../../../METHODS.md");

/// The language of links.
const LINKS: &str = include_str!("../../../../docs/links.md");

/// Units and options.
const UNITS: &str = include_str!("../../../../docs/units.md");

/// Pages that are no subcommand's: the method, the language of links, units, and the chapters of the guide.
const PAGES: [(&str, &str); 13] = [
    ("method", METHOD),
    ("links", LINKS),
    ("units", UNITS),
    ("guide", include_str!("../../../../docs/guide/SUMMARY.md")),
    ("first-ladder", include_str!("../../../../docs/guide/first-ladder.md")),
    ("regression", include_str!("../../../../docs/guide/regression.md")),
    ("two-hosts", include_str!("../../../../docs/guide/two-hosts.md")),
    ("satellite", include_str!("../../../../docs/guide/satellite.md")),
    ("simulated", include_str!("../../../../docs/guide/simulated.md")),
    ("remote-display", include_str!("../../../../docs/guide/remote-display.md")),
    ("trust", include_str!("../../../../docs/guide/trust.md")),
    ("tasks", include_str!("../../../../docs/guide/tasks.md")),
    ("glossary", include_str!("../../../../docs/guide/glossary.md")),
];

/// Show the help of a subcommand, or a page of the guide: `plumb help guide` lists them
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb help method | less
  plumb help links                       every key of a link's text, and the presets
  plumb help units                       how quantities are written, and aliases of other tools' options
  plumb help tasks                       twenty questions, each with its command
  plumb help run")]
pub struct HelpCommand {
    /// A subcommand, or a page: method, links, units, guide, first-ladder, regression, two-hosts, satellite, simulated, remote-display, trust, tasks, glossary
    topic: Option<String>,
}

impl HelpCommand {
    /// Prints the help.
    ///
    /// # Errors
    /// No such topic.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let mut command = foreign_options::command();
        command.build();
        let text = match self.topic.as_deref() {
            None => command.render_long_help().to_string(),
            Some(topic) => {
                if let Some(page) = page(topic) {
                    output.page(&page_markdown::render(page, output.style))?;
                    return Ok(ExitReason::Success);
                }
                let names: Vec<String> =
                    command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
                let Some(subcommand) = command.find_subcommand_mut(topic) else {
                    let pages = PAGES.iter().map(|(name, _)| *name);
                    let known = names.iter().map(String::as_str).chain(pages);
                    return Err(Problem::usage(format!("there is no help on '{topic}'"))
                        .suggest(topic, known)
                        .into());
                };
                subcommand.render_long_help().to_string()
            }
        };
        output.page(&text)?;
        Ok(ExitReason::Success)
    }
}

/// The page of a name.
fn page(topic: &str) -> Option<&'static str> {
    PAGES.iter().find(|(name, _)| *name == topic).map(|(_, text)| *text)
}

/// Print the manual page, or write one page per subcommand to a directory
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb man | man -l -
  plumb man ~/.local/share/man/man1")]
pub struct ManCommand {
    /// Where to write the pages
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl ManCommand {
    /// Prints or writes the pages.
    ///
    /// # Errors
    /// The directory or standard output cannot be written.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let mut command = foreign_options::command();
        command.build();
        let Some(directory) = self.directory else {
            let mut page = Vec::new();
            Man::new(command)
                .render(&mut page)
                .map_err(|error| Problem::failure("cannot make the page").because(error))?;
            output.bytes(&page)?;
            return Ok(ExitReason::Success);
        };
        let made = std::fs::create_dir_all(&directory)
            .and_then(|()| clap_mangen::generate_to(command, &directory));
        made.map_err(|error| {
            Problem::usage(format!("cannot write manual pages into {}", directory.display()))
                .because(error)
                .fix("name a directory that you may write to")
        })?;
        output.note(&format!("manual pages are in {}", directory.display()));
        Ok(ExitReason::Success)
    }
}

/// Print a completion script for a shell
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb completions bash > ~/.local/share/bash-completion/completions/plumb
  plumb completions zsh > \"${fpath[1]}/_plumb\"
  plumb completions fish > ~/.config/fish/completions/plumb.fish")]
pub struct CompletionsCommand {
    /// Which shell
    shell: Shell,
}

impl CompletionsCommand {
    /// Prints the script.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        // The generator looks up commands by the words of their names, of which --iperf3 commands have more.
        let mut command = foreign_options::command();
        for (_, name) in iperf3::COMMANDS {
            command = command.mut_subcommand(name, |it| it.bin_name(format!("plumb {name}")));
        }
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "plumb", &mut script);
        output.bytes(&script)?;
        Ok(ExitReason::Success)
    }
}

#[cfg(test)]
mod tests {
    use plumb_link::preset::PRESETS;
    use plumb_link::spec::LinkSpec;
    use plumb_link::text::direction;

    use super::*;

    #[test]
    fn link_page_has_every_key_and_preset() {
        for name in direction::keys().chain(PRESETS.iter().map(|preset| preset.name)) {
            assert!(LINKS.contains(&format!("`{name}`")), "{name}");
        }
    }

    #[test]
    fn every_link_on_the_page_parses() {
        let shown = LINKS.split('`').skip(1).step_by(2).filter(|text| text.contains('='));
        let links: Vec<&str> = shown.filter(|text| !text.contains([' ', '…'])).collect();
        assert!(links.len() > 30, "{links:?}");
        for link in links {
            let parsed = link.parse::<LinkSpec>();
            assert!(parsed.is_ok(), "{link}: {}", parsed.unwrap_err());
        }
    }
}
