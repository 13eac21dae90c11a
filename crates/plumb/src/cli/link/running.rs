//! `plumb link set|show|list|down|clean`: talking to links that run.
//!
//! Left out: labs that stay (`super::kept`).

use clap::Args;
use plumb_analysis::document::links::{self, LinksDocument};
use plumb_host::lab::Registry;
use plumb_report::terminal;

use super::shape::{OwnFiles, Sides, of_text};
use crate::cli::output::{Failure, Output};
use crate::link::control::{Answer, Changes, Question, ask, wait_for_end};
use crate::problem::{Exit, Problem};

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
pub struct Set {
    /// Its name: 'plumb link list' shows them
    name: String,
    /// Any change: rate=1mbit,loss=1%, or 'hop 2 up rate=1mbit'
    #[arg(value_name = "CHANGE")]
    changes: Vec<String>,
    #[command(flatten)]
    sides: Sides,
}

impl Set {
    /// Does it.
    ///
    /// # Errors
    /// No such link runs; it cannot become that.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        let texts: Vec<String> = self.sides.changes()?.into_iter().chain(self.changes).collect();
        if texts.is_empty() {
            return Err(Problem::usage("nothing to change was given")
                .fix(format!("say what: plumb link set {} --rate 1mbit", self.name))
                .into());
        }
        let registry = Registry::of_user().map_err(Problem::from)?;
        let stream = registry.connect(&self.name).map_err(Problem::from)?;
        let changes = Changes::new(texts, &OwnFiles).map_err(|error| of_text(&error))?;
        let Answer::Text(text) = ask(&stream, &Question::Change(changes))? else {
            return Err(strange().into());
        };
        output.remark(&format!("{} is now {text}", self.name));
        Ok(Exit::Fine)
    }
}

/// Show what a link does
#[derive(Clone, Debug, Args)]
pub struct Show {
    /// Its name; the only one that runs where absent
    name: Option<String>,
}

impl Show {
    /// Does it.
    ///
    /// # Errors
    /// No such link runs, or several do and none was named.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        let registry = Registry::of_user().map_err(Problem::from)?;
        let name = match self.name {
            Some(name) => name,
            None => only(registry.names())?,
        };
        let stream = registry.connect(&name).map_err(Problem::from)?;
        let Answer::State(document) = ask(&stream, &Question::Show)? else {
            return Err(strange().into());
        };
        if output.json {
            output.document(&document)?;
        } else {
            output.page(&terminal::link::render(&document, true, output.style))?;
        }
        Ok(Exit::Fine)
    }
}

/// List the links and labs that run
#[derive(Clone, Debug, Args)]
pub struct List {}

impl List {
    /// Does it.
    ///
    /// # Errors
    /// The registry cannot be read.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        let registry = Registry::of_user().map_err(Problem::from)?;
        let mut documents = Vec::new();
        for name in registry.names() {
            // One may end meanwhile.
            let Ok(stream) = registry.connect(&name) else { continue };
            if let Ok(Answer::State(document)) = ask(&stream, &Question::Show) {
                documents.push(*document);
            }
        }
        if output.json {
            let schema = links::SCHEMA.to_owned();
            output.document(&LinksDocument { schema, links: documents })?;
            return Ok(Exit::Fine);
        }
        if documents.is_empty() {
            output.remark("no link is running");
        }
        output.page(&terminal::link::list(&documents, output.style))?;
        Ok(Exit::Fine)
    }
}

/// End a lab, or the command behind a link
#[derive(Clone, Debug, Args)]
pub struct Down {
    /// Its name: 'plumb link list' shows them
    name: String,
}

impl Down {
    /// Does it, and waits until it is gone.
    ///
    /// # Errors
    /// No such link runs.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        let registry = Registry::of_user().map_err(Problem::from)?;
        let stream = registry.connect(&self.name).map_err(Problem::from)?;
        ask(&stream, &Question::Down)?;
        if !wait_for_end(&stream) {
            return Err(Problem::trouble(format!("{} was asked to end and has not", self.name))
                .because("its command does not obey SIGTERM")
                .fix("end the command, or the process of 'plumb link' with SIGKILL")
                .into());
        }
        registry.remove_stale();
        output.remark(&format!("{} is gone", self.name));
        Ok(Exit::Fine)
    }
}

/// Remove what links that were killed have left: names, nothing else ever is
#[derive(Clone, Debug, Args)]
pub struct Clean {}

impl Clean {
    /// Does it.
    ///
    /// # Errors
    /// The registry cannot be read.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        let removed = Registry::of_user().map_err(Problem::from)?.remove_stale();
        output.remark(&format!("{removed} names of links that were killed were removed"));
        Ok(Exit::Fine)
    }
}

fn only(names: Vec<String>) -> Result<String, Problem> {
    match <[String; 1]>::try_from(names) {
        Ok([name]) => Ok(name),
        Err(names) if names.is_empty() => Err(Problem::usage("no link is running")),
        Err(names) => Err(Problem::usage("several links are running")
            .fix(format!("name one: plumb link show {}", names.join("|")))),
    }
}

fn strange() -> Problem {
    Problem::trouble("the link gave an answer to another question")
        .because("it may be run by another version of plumb")
}
