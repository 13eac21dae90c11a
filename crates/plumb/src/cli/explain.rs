//! `plumb explain`: where the time of a run's round trips goes.
//!
//! If the run has no breakdown, it is measured in a run of its own that notes which one it explains.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;
use plumb_analysis::document::RunDocument;
use plumb_analysis::document::explain::{ExplainDocument, explain};
use plumb_report::{html, terminal};
use plumb_store::record::{FactorLevel, RunData};
use plumb_store::sqlite::{Store, StoreMode};

use super::export::{check_writable, write_file};
use super::output::{CliOutput, CommandError, CommandResult};
use super::run::{RunOptions, execute, surroundings};
use super::{GlobalOptions, store};
use crate::problem::{ExitReason, Problem};
use plumb_experiments::list::{self, EXPLAINED, run_document};
use plumb_experiments::plan::{ChosenLevels, RunPlan};
use plumb_experiments::preset::RunPreset;

/// Show where the time of a run's round trips goes: the path through the kernel, part by part
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb explain                          the rungs of the last run
  plumb explain last~2 -o where.html
  plumb explain last --json | jq '.rungs[].breakdown | [.factors.mechanism, .unexplained_share.mean]'

The kernel's tracepoints are read while TCP, UDP, Unix sockets and pipes of the run are measured
again at the same placements and sizes; the parts, with the unexplained rest, sum to the round trip.
This needs root, or a readable tracefs and CAP_PERFMON or kernel.perf_event_paranoid at -1;
'plumb doctor' shows which of these is missing, and the fix.")]
pub struct ExplainCommand {
    /// A run: its id, a prefix of it, last or last~N
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Also write an HTML page
    #[arg(long, short, value_name = "FILE.html")]
    output: Option<PathBuf>,
    #[command(flatten)]
    options: RunOptions,
}

/// The note with the id of the explained run.
const EXPLAINS_NOTE: &str = "explains";

impl ExplainCommand {
    /// Finds or measures the breakdown, prints it, and writes the page.
    ///
    /// # Errors
    /// No such run, no permission to use tracepoints, or a failed measurement.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        if let Some(path) = &self.output {
            check_writable(path)?;
        }
        let store = store::open(global, StoreMode::Read)?;
        let data = store::load(&store, &self.run)?;
        let explained = explained_by(&store, &data);
        drop(store);
        let (run, measured, exit) = if is_broken_down(&data) {
            let measured = run_document(&data);
            let run = explained.map_or_else(|| measured.clone(), |run| run_document(&run));
            (run, measured, ExitReason::Success)
        } else {
            let plan = plan_for(&data, &self.options)?;
            if self.options.plan {
                output.page(&plan.to_toml())?;
                return Ok(ExitReason::Success);
            }
            let (measured, exit) = execute(plan, None, global, output)?;
            record_explained_run(global, &measured, &data.run.id)?;
            (run_document(&data), run_document(&measured), exit)
        };
        let document = explain(EXPLAINED, &run, &measured);
        if document.rungs.is_empty() && exit == ExitReason::Success {
            return Err(no_breakdown(&measured).into());
        }
        self.show(&document, &measured, output)?;
        Ok(exit)
    }

    fn show(
        &self,
        document: &ExplainDocument,
        measured: &RunDocument,
        output: &CliOutput,
    ) -> Result<(), CommandError> {
        output.show(document, |style| terminal::explain::render(document, style))?;
        if let Some(path) = &self.output {
            let page = html::explain(document, measured);
            write_file(path, page.as_bytes())?;
            output.note(&format!("{}: {} kB", path.display(), page.len().div_ceil(1_000)));
        }
        Ok(())
    }
}

/// Whether a run has a breakdown.
fn is_broken_down(data: &RunData) -> bool {
    data.cells.iter().any(|cell| cell.experiment == EXPLAINED.breakdown)
}

/// The run that this one explains, if it is still stored.
fn explained_by(store: &Store, data: &RunData) -> Option<RunData> {
    let id = data.run.notes.get(EXPLAINS_NOTE)?;
    store.load(id).ok()
}

/// What to measure: the run's rungs that can be broken down, or those of the preset.
fn plan_for(data: &RunData, options: &RunOptions) -> Result<RunPlan, Problem> {
    let preset = options.preset().or(Some(RunPreset::Quick));
    let mut words = options.set.clone();
    if words.is_empty() {
        words = rungs(data)?;
    }
    let plan = RunPlan::named(
        EXPLAINED.breakdown,
        preset,
        &ChosenLevels::parse(&words)?,
        &surroundings(),
    )?;
    Ok(options.limit(RunPlan { title: "explain".to_owned(), ..plan }))
}

/// `factor=levels` of the blocking rungs of a run whose mechanism can be broken down.
fn rungs(data: &RunData) -> Result<Vec<String>, Problem> {
    const FACTORS: [&str; 3] = ["mechanism", "placement", "size"];
    let experiment = list::find(EXPLAINED.breakdown)?;
    let known = experiment.factor("mechanism").map(|factor| factor.domain.names());
    let mechanisms = known.unwrap_or_default();
    let mut levels: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let rungs = data.cells.iter().filter(|cell| {
        let mechanism = cell.factors.text("mechanism").unwrap_or_default();
        let blocks = cell.factors.text("wake").is_none_or(|wake| wake == "block");
        cell.experiment == EXPLAINED.latency && blocks && mechanisms.contains(&mechanism)
    });
    for cell in rungs {
        for factor in FACTORS {
            if let Some(level) = cell.factors.level(factor) {
                levels.entry(factor).or_default().insert(FactorLevel::to_string(level));
            }
        }
    }
    let word = |(factor, levels): (&str, BTreeSet<String>)| {
        format!("{factor}={}", levels.into_iter().collect::<Vec<_>>().join(","))
    };
    Ok(levels.into_iter().map(word).collect())
}

/// Notes in a run which one it explains.
fn record_explained_run(
    global: &GlobalOptions,
    measured: &RunData,
    id: &str,
) -> Result<(), Problem> {
    let mut store = store::open(global, StoreMode::Write)?;
    let notes = BTreeMap::from([(EXPLAINS_NOTE.to_owned(), id.to_owned())]);
    Ok(store.update_run(&measured.run.id, measured.run.status, &notes)?)
}

/// Why there is no breakdown.
fn no_breakdown(measured: &RunDocument) -> Problem {
    let reasons: BTreeSet<&str> =
        measured.unavailable.iter().map(|cell| cell.reason.as_str()).collect();
    let reasons: Vec<&str> = reasons.into_iter().collect();
    Problem::failure("no round trip could be broken down")
        .because(reasons.join("; "))
        .fix("see 'plumb doctor' for what this host allows; root may do most")
}
