//! `plumb claims`: every statement of the documents, and what stored runs say of it.

use std::path::PathBuf;

use clap::Args;
use plumb_analysis::build::{instant, verdicts};
use plumb_analysis::claim_table::{self, FoundVerdict, FoundVerdicts};
use plumb_analysis::document::list::{CLAIMS_SCHEMA, ClaimRow, ClaimsDocument};
use plumb_analysis::summary::measured_cells;
use plumb_experiments::list;
use plumb_experiments::machines::claims::judge;
use plumb_report::statement;
use plumb_store::sqlite::Store;

use super::export::{check_writable, write_file};
use super::output::{CliOutput, CommandResult};
use super::progress::ProgressBar;
use super::{GlobalOptions, scale, store};
use crate::VERSION;
use crate::problem::{ExitReason, Problem};

/// Show every published claim with the verdict that stored runs give, or what would decide it
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "The newest run that decides a claim counts; without one, the newest that measured it. Claims over machines are
decided by the archive that comes with plumb and the runs of the store, as plumb scale does.

Examples:
  plumb claims
  plumb claims scaling.lan --details
  plumb claims --document ipc --verdict does-not-hold
  plumb claims -o claims.html
  plumb claims --json | jq '.claims[] | select(.verdict == \"not measured\") | .to_decide'"
)]
pub struct ClaimsCommand {
    /// Only claims whose id contains this
    #[arg(value_name = "TEXT")]
    filter: Option<String>,
    /// Only claims of this document: scaling, ipc, stack, gigabit or distributed
    #[arg(long, visible_alias = "study", value_name = "NAME")]
    document: Option<String>,
    /// Only claims with this verdict
    #[arg(long, value_name = "VERDICT")]
    #[arg(value_parser = ["holds", "does-not-hold", "not-decided", "not-measured", "no-judge"])]
    verdict: Option<String>,
    /// Print each claim whole: statement, place, numbers, what was found, what would decide
    #[arg(long, short)]
    details: bool,
    /// Write a page instead
    #[arg(long, short, value_name = "FILE.html")]
    output: Option<PathBuf>,
}

impl ClaimsCommand {
    /// Prints the claims; without a store none of them is measured.
    ///
    /// # Errors
    /// There is no such document or claim; the store cannot be read, or the page not written.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        if let Some(path) = &self.output {
            check_writable(path)?;
        }
        let mut found = FoundVerdicts::default();
        let machines = scale::default_machines(global)?;
        judge(&machines, machines.usual_speed(), &mut found);
        if let Some(store) = store::open_if_there(global)? {
            read_runs(&store, &mut found, output)?;
        }
        let rows = self.chosen(claim_table::rows(&list::registry(), &found))?;
        let tallies = claim_table::tallies(&rows);
        let document = ClaimsDocument { schema: CLAIMS_SCHEMA.to_owned(), claims: rows, tallies };
        if let Some(path) = &self.output {
            let page = statement::page(&document, VERSION);
            write_file(path, page.as_bytes())?;
            output.note(&format!("{}: {} kB", path.display(), page.len().div_ceil(1_000)));
        }
        if output.json {
            output.document(&document)?;
        } else if self.output.is_none() {
            let page = if self.details {
                statement::paragraphs(&document, output.style)
            } else {
                statement::in_terminal(&document, output.style)
            };
            output.page(&page)?;
        }
        Ok(ExitReason::Success)
    }

    /// The rows that were asked for.
    fn chosen(&self, mut rows: Vec<ClaimRow>) -> Result<Vec<ClaimRow>, Problem> {
        if let Some(document) = &self.document {
            let names: Vec<String> =
                claim_table::tallies(&rows).into_iter().map(|tally| tally.document).collect();
            if !names.contains(document) {
                return Err(Problem::usage(format!("no document is called '{document}'"))
                    .because("a document has the name of its study")
                    .fix(format!("name one of {}", names.join(", "))));
            }
            rows.retain(|row| row.document == *document);
        }
        if let Some(filter) = &self.filter {
            rows.retain(|row| row.id.contains(filter.as_str()));
            if rows.is_empty() {
                return Err(Problem::usage(format!("no claim's id contains '{filter}'"))
                    .because("claims are named document.topic.statement")
                    .fix("plumb claims shows every id"));
            }
        }
        if let Some(verdict) = &self.verdict {
            rows.retain(|row| row.verdict.replace(' ', "-") == *verdict);
        }
        Ok(rows)
    }
}

/// Judges every claim by the stored runs, from the newest to the oldest, as long as a run can add something.
fn read_runs(store: &Store, found: &mut FoundVerdicts, output: &CliOutput) -> Result<(), Problem> {
    let registry = list::registry();
    let experiments = store.experiments()?;
    let runs = store.runs()?;
    let mut bar = ProgressBar::new(output);
    for (index, listing) in runs.iter().enumerate() {
        let run = &listing.run;
        let adds = |experiment: &String| !found.is_decided(&registry, experiment);
        let is_useful = experiments.get(&run.id).is_some_and(|names| names.iter().any(adds));
        if run.is_imported() || !is_useful {
            continue;
        }
        if let Some(bar) = &mut bar {
            bar.draw(index as f64 / runs.len() as f64, &format!("reading {}", run.id));
        }
        let data = store.load(&run.id)?;
        for verdict in verdicts(&registry, &data, &measured_cells(&data)) {
            let measured = instant(run.created_unix_ms);
            found.add(FoundVerdict { verdict, basis: run.id.clone(), measured });
        }
    }
    Ok(())
}
