//! `plumb runs`, `plumb show` and `plumb report`: stored runs as a list and as pages.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::Args;
use plumb_analysis::document::RunDocument;
use plumb_analysis::document::list::{RUNS_SCHEMA, RunEntry, RunsDocument};
use plumb_experiments::list::run_document;
use plumb_report::html;
use plumb_report::table::TextTable;
use plumb_report::terminal::{self, TerminalStyle};
use plumb_result::net::NetDocument;
use plumb_store::lock;
use plumb_store::record::{RunData, RunRecord, RunStatus};
use plumb_store::sqlite::{RunListing, Store, StoreMode};

use crate::cli::export::write_file;
use crate::cli::net::stored_document;
use crate::cli::output::{CliOutput, CommandResult};
use crate::cli::{GlobalOptions, store};
use crate::problem::{ExitReason, Problem};

/// Runs that a terminal shows without --all: a screen of 24 lines with the head of the table.
const RUNS_SHOWN: usize = 18;

/// List the stored runs, newest first
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb runs
  plumb runs --json | jq -r '.runs[0].id'")]
pub struct RunsCommand {
    /// Only runs whose id or title contains this
    #[arg(value_name = "TEXT")]
    filter: Option<String>,
    /// List every run; a terminal shows only the newest without it
    #[arg(long)]
    all: bool,
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
            let is_cut = !self.all && std::io::stdout().is_terminal();
            let shown = if is_cut { RUNS_SHOWN } else { runs.len() };
            let older = runs.len().saturating_sub(shown);
            for run in runs.into_iter().take(shown) {
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
            if older > 0 {
                output.note(&format!("{older} older: plumb runs --all"));
            }
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
    let mut header = plumb_analysis::build::header(run);
    // A measurement between hosts that was cut short cannot be taken up again, but is not whole either.
    if let Some(ended) = run.notes.get("net.ended").filter(|ended| *ended != "complete") {
        header.status.clone_from(ended);
    }
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

/// Show a stored run: its results, and what could not be measured and why
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb show last
  plumb show last --json | jq '.results[] | [.factors.mechanism, .summary.median]'
  plumb show last --details
  plumb show last --distributions")]
pub struct ShowCommand {
    /// A run: its id, a prefix of it, last or last~N
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Of a ladder: every boundary by itself, quartiles, CPU time, where the time goes, and what was not measured; of a
    /// measurement between hosts: every phase
    #[arg(long)]
    details: bool,
    /// Also every published claim that it tests, our expectations, and ranks
    #[arg(long)]
    claims: bool,
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
        let store = store::open(global, StoreMode::Read)?;
        let data = store::load(&store, &self.run)?;
        if output.json {
            output.document(&run_document(&data))?;
            return Ok(ExitReason::Success);
        }
        // Runs between hosts are shown from their stored document.
        if stored_document::show_any(&store, &data.run.id, self.details, output)? {
            return Ok(ExitReason::Success);
        }
        let document = run_document(&data);
        let mut text = if self.details && !document.ladder.is_empty() {
            terminal::ladder::details(&document, output.style)
        } else {
            page(&document, self.claims, output.style)
        };
        if self.distributions {
            for cell in &document.results {
                text.push_str(&terminal::summary::distribution(cell, output.style));
            }
        }
        output.page(&text)?;
        Ok(ExitReason::Success)
    }
}

/// A run as a page: the ladder, if it is one, else tables; claims and ranks counted in a line, or with `claims` all told.
pub fn page(document: &RunDocument, claims: bool, style: TerminalStyle) -> String {
    if !document.ladder.is_empty() {
        return terminal::ladder::render(document, style);
    }
    let mut text = terminal::summary::render(document, style);
    if !claims {
        return text + &terminal::summary::claims_in_short(document, style);
    }
    text.push_str(&terminal::summary::rank_tables(&document.ranks, style));
    text.push_str(&terminal::summary::claims(document, style));
    text.push_str(&terminal::summary::expectations(&document.expectations, style));
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
        if self.output.is_none() && !output.json && std::io::stdout().is_terminal() {
            return Err(Problem::usage("the page would be printed on this terminal")
                .because("it is HTML for a browser")
                .fix(format!("write it to a file: plumb report {} -o report.html", self.run))
                .into());
        }
        let store = store::open(global, StoreMode::Read)?;
        let data = store::load(&store, &self.run)?;
        let document = run_document(&data);
        let page = match stored_document::stored::<NetDocument>(&store, &data.run.id)? {
            Some(net) if net.summary.is_some() => html::net(&net, &document),
            _ => html::report(&document),
        };
        if let Some(path) = &self.output {
            write_file(path, page.as_bytes())?;
            output.note(&format!("{}: {} kB", path.display(), page.len().div_ceil(1_000)));
        }
        match (output.json, &self.output) {
            (true, _) => output.document(&document)?,
            (false, None) => output.page(&page)?,
            (false, Some(_)) => {}
        }
        Ok(ExitReason::Success)
    }
}
