//! `plumb show`: a stored run as a page.

use clap::Args;
use plumb_analysis::document::{RunDocument, build};
use plumb_report::terminal::{self, Style};
use plumb_store::sqlite::Mode;

use super::output::{Failure, Output};
use super::{Global, stored};
use crate::problem::Exit;

/// Show a stored run: its results, what was not measured and why, and the claims it re-tests
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb show last
  plumb show last --json | jq '.results[] | [.factors.mechanism, .summary.median]'
  plumb show last --distributions")]
pub struct Show {
    /// A run: its id, the beginning of it, last or last~N
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Draw the distribution of every cell too
    #[arg(long)]
    distributions: bool,
}

impl Show {
    /// Prints the page.
    ///
    /// # Errors
    /// No such run, or a store that cannot be read.
    pub fn perform(self, global: &Global, output: &Output) -> Result<Exit, Failure> {
        let store = stored::open(global, Mode::Read)?;
        let document = build(&stored::load(&store, &self.run)?);
        if output.json {
            output.document(&document)?;
            return Ok(Exit::Fine);
        }
        let mut text = page(&document, output.style);
        if self.distributions {
            for cell in &document.results {
                text.push_str(&terminal::summary::distribution(cell, output.style));
            }
        }
        output.page(&text)?;
        Ok(Exit::Fine)
    }
}

/// A run as a page: the ladder where it is one, the tables otherwise; then claims and ranks.
pub fn page(document: &RunDocument, style: Style) -> String {
    if !document.ladder.is_empty() {
        let mut text = terminal::summary::surroundings(document, style);
        text.push_str(&terminal::ladder::render(&document.ladder, style));
        text.push_str(&terminal::summary::unavailable(&document.unavailable, style));
        text.push_str(&terminal::summary::trust(&document.trust, style));
        return text;
    }
    let mut text = terminal::summary::render(document, style);
    text.push_str(&terminal::ranks::all(&document.ranks, style));
    text.push_str(&terminal::ranks::claims(&document.claims, style));
    text
}
