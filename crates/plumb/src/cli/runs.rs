//! `plumb runs`: what is in the store.

use clap::Args;
use plumb_analysis::document::build;
use plumb_analysis::document::runs::{RunEntry, RunsDocument, SCHEMA};
use plumb_report::table::{Table, text};
use plumb_store::lock;
use plumb_store::record::{Run, RunData, RunStatus};
use plumb_store::sqlite::{RunListing, Store};

use super::output::{Failure, Output};
use super::{Global, stored};
use crate::problem::{Exit, Problem};

/// List the stored runs, newest first
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb runs
  plumb runs --json | jq -r '.runs[0].id'")]
pub struct Runs {
    /// Only those whose id or title contains this
    #[arg(value_name = "TEXT")]
    filter: Option<String>,
}

impl Runs {
    /// Prints the list; an empty store is an empty list.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn perform(self, global: &Global, output: &Output) -> Result<Exit, Failure> {
        let path = stored::path(global)?;
        let mut runs = match stored::open_if_there(global)? {
            Some(store) => entries(&store)?,
            None => Vec::new(),
        };
        if let Some(filter) = &self.filter {
            runs.retain(|run| run.id.contains(filter) || run.title.contains(filter));
        }
        if output.json {
            let document =
                RunsDocument { schema: SCHEMA.to_owned(), store: path.display().to_string(), runs };
            output.document(&document)?;
        } else if runs.is_empty() {
            output.remark(&format!(
                "no runs in {}; `plumb` alone makes the first, in 20 seconds",
                path.display()
            ));
        } else {
            let mut table =
                Table::with_heads(&["run", "title?", "when?", "status", "#cells?", "#blocks??"]);
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
            output.page(&text::render(&table, output.style))?;
        }
        Ok(Exit::Fine)
    }
}

fn entries(store: &Store) -> Result<Vec<RunEntry>, Problem> {
    let measuring = lock::measuring(store.path()).and_then(|holder| holder.run);
    let entry = |mut listing: RunListing| {
        // A run that was killed could not say so; the lock tells, since it dies with its holder.
        let run = &mut listing.run;
        if run.status == RunStatus::Running && measuring.as_deref() != Some(run.id.as_str()) {
            run.status = RunStatus::Interrupted;
        }
        entry(&listing.run, listing.cells, listing.blocks)
    };
    Ok(store.runs()?.into_iter().map(entry).collect())
}

/// The line of a run that is at hand.
pub fn entry_of(data: &RunData) -> RunEntry {
    entry(&data.run, data.cells.len() as u64, data.blocks.len() as u64)
}

fn entry(run: &Run, cells: u64, blocks: u64) -> RunEntry {
    let header = build::header(run);
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
