//! `plumb runs`, `plumb show` and `plumb report`: stored runs as a list and as pages.

use std::path::PathBuf;

use clap::Args;
use plumb_analysis::document::RunDocument;
use plumb_analysis::document::list::{RUNS_SCHEMA, RunEntry, RunsDocument};
use plumb_experiments::list::run_document;
use plumb_report::html;
use plumb_report::table::TextTable;
use plumb_report::terminal::{self, TerminalStyle};
use plumb_store::lock;
use plumb_store::record::{RunData, RunRecord, RunStatus};
use plumb_store::sqlite::{RunListing, Store};

use crate::cli::export::write_file;
use crate::cli::output::{CliOutput, CommandResult};
use crate::cli::{GlobalOptions, store};
use crate::problem::{ExitReason, Problem};

/// List the stored runs, newest first
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb runs
  plumb runs --json | jq -r '.runs[0].id'")]
pub struct RunsCommand {
    /// Only runs whose id or title contains this
    #[arg(value_name = "TEXT")]
    filter: Option<String>,
}

impl RunsCommand {
    /// Prints the list; it is empty without a store.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        let path = store::path(global)?;
        let mut runs = match store::open_if_there(global)? {
            Some(store) => entries(&store)?,
            None => Vec::new(),
        };
        if let Some(filter) = &self.filter {
            runs.retain(|run| run.id.contains(filter) || run.title.contains(filter));
        }
        if output.json {
            let document = RunsDocument {
                schema: RUNS_SCHEMA.to_owned(),
                store: path.display().to_string(),
                runs,
            };
            output.document(&document)?;
        } else if runs.is_empty() {
            output.note(&format!(
                "no runs in {}; run `plumb` for the first, 20 seconds",
                path.display()
            ));
        } else {
            let mut table = TextTable::with_heads(&[
                "run",
                "title?",
                "when?",
                "status",
                "#cells?",
                "#blocks??",
            ]);
            for run in runs {
                let when = run.created.chars().take(16).collect::<String>().replace('T', " ");
                table.push([
                    run.id,
                    run.title,
                    when,
                    run.status,
                    run.cells.to_string(),
                    run.blocks.to_string(),
                ]);
            }
            output.page(&table.render(output.style))?;
        }
        Ok(ExitReason::Success)
    }
}

fn entries(store: &Store) -> Result<Vec<RunEntry>, Problem> {
    let measuring = lock::current_holder(store.path()).and_then(|holder| holder.run);
    let entry = |mut listing: RunListing| {
        // A killed run still says that it is running; its lock is gone.
        let run = &mut listing.run;
        if run.status == RunStatus::Running && measuring.as_deref() != Some(run.id.as_str()) {
            run.status = RunStatus::Interrupted;
        }
        entry(&listing.run, listing.cells, listing.blocks)
    };
    Ok(store.runs()?.into_iter().map(entry).collect())
}

/// The list entry of a loaded run.
pub fn entry_of(data: &RunData) -> RunEntry {
    entry(&data.run, data.cells.len() as u64, data.blocks.len() as u64)
}

fn entry(run: &RunRecord, cells: u64, blocks: u64) -> RunEntry {
    let header = plumb_analysis::build::header(run);
    RunEntry {
        id: header.id,
        title: header.title,
        created: header.created,
        status: header.status,
        code: header.code,
        cells,
        blocks,
    }
}

/// Show a stored run: its results, what could not be measured and why, and the claims that it tests
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb show last
  plumb show last --json | jq '.results[] | [.factors.mechanism, .summary.median]'
  plumb show last --distributions")]
pub struct ShowCommand {
    /// A run: its id, a prefix of it, last or last~N
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Also draw the distribution of every cell
    #[arg(long)]
    distributions: bool,
}

impl ShowCommand {
    /// Prints the page.
    ///
    /// # Errors
    /// No such run, or a store that cannot be read.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        let document = run_document(&store::read(global, &self.run)?);
        if output.json {
            output.document(&document)?;
            return Ok(ExitReason::Success);
        }
        let mut text = page(&document, output.style);
        if self.distributions {
            for cell in &document.results {
                text.push_str(&terminal::summary::distribution(cell, output.style));
            }
        }
        output.page(&text)?;
        Ok(ExitReason::Success)
    }
}

/// A run as a page: the ladder, if it is one, else tables, claims and ranks.
pub fn page(document: &RunDocument, style: TerminalStyle) -> String {
    if !document.ladder.is_empty() {
        let mut text = terminal::summary::surroundings(document, style);
        text.push_str(&terminal::ladder::render(&document.ladder, style));
        text.push_str(&terminal::summary::unavailable(&document.unavailable, style));
        text.push_str(&terminal::summary::trust(&document.trust, style));
        return text;
    }
    let mut text = terminal::summary::render(document, style);
    text.push_str(&terminal::ranks::all(&document.ranks, style));
    text.push_str(&terminal::ranks::claims(document, style));
    text.push_str(&terminal::ranks::expectations(&document.expectations, style));
    text
}

/// Write a run as one self-contained HTML page
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb report last -o ladder.html
  plumb report last > ladder.html")]
pub struct ReportCommand {
    /// A run: its id, a prefix of it, last or last~N
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Where to write the page [default: standard output]
    #[arg(long, short, value_name = "FILE.html")]
    output: Option<PathBuf>,
}

impl ReportCommand {
    /// Writes the page.
    ///
    /// # Errors
    /// No such run, or a file that cannot be written.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        let document = run_document(&store::read(global, &self.run)?);
        if let Some(path) = &self.output {
            let page = html::report(&document);
            write_file(path, page.as_bytes())?;
            output.note(&format!("{}: {} kB", path.display(), page.len().div_ceil(1_000)));
        }
        match (output.json, &self.output) {
            (true, _) => output.document(&document)?,
            (false, None) => output.page(&html::report(&document))?,
            (false, Some(_)) => {}
        }
        Ok(ExitReason::Success)
    }
}
