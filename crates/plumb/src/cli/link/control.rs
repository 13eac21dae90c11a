//! `plumb link set|show|list|down|clean`: talking to links that run.

use clap::Args;
use plumb_analysis::document::links::{self, LinksDocument};
use plumb_netdev::lab::LinkRegistry;
use plumb_report::terminal;

use super::options::{LinkChangeOptions, LocalFiles, text_problem};
use crate::cli::output::{CliOutput, CommandError};
use crate::link::control::{LinkChanges, LinkControlReply, LinkControlRequest, ask, wait_for_end};
use crate::problem::{ExitReason, Problem};

/// Change a link while it runs; what is in flight stays so
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Changes are of every hop; 'hop N' before one keeps it to that hop, in a file for --schedule too.

Examples:
  plumb link set lab --rate 56kbit
  plumb link set 4711 --up loss=5% --down delay=100ms
  plumb link set 4711 --up 'hop 2 rate=1mbit'
  plumb link set 4711 'hop 2 queue=fq-codel,limit=1000packets'
  plumb link set 4711 --preset lossy")]
pub struct LinkSetCommand {
    /// Its name: 'plumb link list' shows them
    name: String,
    /// Any change: rate=1mbit,loss=1%, or 'hop 2 up rate=1mbit'
    #[arg(value_name = "CHANGE")]
    changes: Vec<String>,
    #[command(flatten)]
    sides: LinkChangeOptions,
}

impl LinkSetCommand {
    /// Does it.
    ///
    /// # Errors
    /// No such link runs; it cannot become that.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        let texts: Vec<String> = self.sides.changes()?.into_iter().chain(self.changes).collect();
        if texts.is_empty() {
            return Err(Problem::usage("nothing to change was given")
                .fix(format!("say what: plumb link set {} --rate 1mbit", self.name))
                .into());
        }
        let registry = LinkRegistry::of_user().map_err(Problem::from)?;
        let stream = registry.connect(&self.name).map_err(Problem::from)?;
        let changes = LinkChanges::new(texts, &LocalFiles).map_err(|error| text_problem(&error))?;
        let LinkControlReply::Text(text) = ask(&stream, &LinkControlRequest::Change(changes))?
        else {
            return Err(unexpected_answer().into());
        };
        output.note(&format!("{} is now {text}", self.name));
        Ok(ExitReason::Success)
    }
}

/// Show what a link does
#[derive(Clone, Debug, Args)]
pub struct LinkShowCommand {
    /// Its name; the only one that runs where absent
    name: Option<String>,
}

impl LinkShowCommand {
    /// Does it.
    ///
    /// # Errors
    /// No such link runs, or several do and none was named.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        let registry = LinkRegistry::of_user().map_err(Problem::from)?;
        let name = match self.name {
            Some(name) => name,
            None => single_name(registry.names())?,
        };
        let stream = registry.connect(&name).map_err(Problem::from)?;
        let LinkControlReply::State(document) = ask(&stream, &LinkControlRequest::Show)? else {
            return Err(unexpected_answer().into());
        };
        if output.json {
            output.document(&document)?;
        } else {
            output.page(&terminal::link::render(&document, true, output.style))?;
        }
        Ok(ExitReason::Success)
    }
}

/// List the links and labs that run
#[derive(Clone, Debug, Args)]
pub struct LinkListCommand {}

impl LinkListCommand {
    /// Does it.
    ///
    /// # Errors
    /// The registry cannot be read.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        let registry = LinkRegistry::of_user().map_err(Problem::from)?;
        let mut documents = Vec::new();
        for name in registry.names() {
            // One may end meanwhile.
            let Ok(stream) = registry.connect(&name) else { continue };
            if let Ok(LinkControlReply::State(document)) = ask(&stream, &LinkControlRequest::Show) {
                documents.push(*document);
            }
        }
        if output.json {
            let schema = links::SCHEMA.to_owned();
            output.document(&LinksDocument { schema, links: documents })?;
            return Ok(ExitReason::Success);
        }
        if documents.is_empty() {
            output.note("no link is running");
        }
        output.page(&terminal::link::list(&documents, output.style))?;
        Ok(ExitReason::Success)
    }
}

/// End a lab, or the command behind a link
#[derive(Clone, Debug, Args)]
pub struct LinkDownCommand {
    /// Its name: 'plumb link list' shows them
    name: String,
}

impl LinkDownCommand {
    /// Does it, and waits until it is gone.
    ///
    /// # Errors
    /// No such link runs.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        let registry = LinkRegistry::of_user().map_err(Problem::from)?;
        let stream = registry.connect(&self.name).map_err(Problem::from)?;
        ask(&stream, &LinkControlRequest::Down)?;
        if !wait_for_end(&stream) {
            return Err(Problem::failure(format!("{} was asked to end and has not", self.name))
                .because("its command does not obey SIGTERM")
                .fix("end the command, or the process of 'plumb link' with SIGKILL")
                .into());
        }
        registry.remove_stale();
        output.note(&format!("{} is gone", self.name));
        Ok(ExitReason::Success)
    }
}

/// Remove what links that were killed have left: names, nothing else ever is
#[derive(Clone, Debug, Args)]
pub struct LinkCleanCommand {}

impl LinkCleanCommand {
    /// Does it.
    ///
    /// # Errors
    /// The registry cannot be read.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        let removed = LinkRegistry::of_user().map_err(Problem::from)?.remove_stale();
        output.note(&format!("{removed} names of links that were killed were removed"));
        Ok(ExitReason::Success)
    }
}

fn single_name(names: Vec<String>) -> Result<String, Problem> {
    match <[String; 1]>::try_from(names) {
        Ok([name]) => Ok(name),
        Err(names) if names.is_empty() => Err(Problem::usage("no link is running")),
        Err(names) => Err(Problem::usage("several links are running")
            .fix(format!("name one: plumb link show {}", names.join("|")))),
    }
}

fn unexpected_answer() -> Problem {
    Problem::failure("the link gave an answer to another question")
        .because("it may be run by another version of plumb")
}
