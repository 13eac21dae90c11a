//! `plumb explain`: where the time of a run's round trips goes.
//!
//! What was stored comes first: the breakdown of a run that was made to explain it, else CPU time and waiting of its
//! rungs. Anew it measures only with `--measure`, in a run that notes which one it explains and is never `last`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use clap::Args;
use plumb_analysis::document::RunDocument;
use plumb_analysis::document::explain::{ExplainDocument, explain};
use plumb_report::{html, terminal};
use plumb_store::record::{FactorLevel, RunData, RunRecord};
use plumb_store::sqlite::read::EXPLANATION_TITLE;
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
  plumb explain                          the rungs of the last run, by what is stored of them
  plumb explain --measure                the same, part by part through the kernel: measures for some 20 s
  plumb explain last~2 --measure -o where.html
  plumb explain last --json | jq '.rungs[].breakdown | [.factors.mechanism, .unexplained_share.mean]'

With --measure the kernel's tracepoints are read while TCP, UDP, Unix sockets and pipes of the run are measured
again at the same placements and sizes; the parts, with the unexplained rest, sum to the round trip. The run
in which they are measured is stored beside the one that it explains, and is not 'last'.
This needs root, or a readable tracefs and CAP_PERFMON or kernel.perf_event_paranoid at -1;
'plumb doctor' shows which of these is missing, and the fix.")]
pub struct ExplainCommand {
    /// A run: its id, a prefix of it, last or last~N
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Measure again, part by part through the kernel, where nothing of that is stored
    #[arg(long)]
    measure: bool,
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
        let earlier = explanation_of(&store, &data)?;
        drop(store);
        let (run, measured, exit) = if is_broken_down(&data) {
            let measured = run_document(&data);
            let run = explained.map_or_else(|| measured.clone(), |run| run_document(&run));
            (run, measured, ExitReason::Success)
        } else if let Some(earlier) = earlier.filter(|_| !self.options.plan) {
            (run_document(&data), run_document(&earlier), ExitReason::Success)
        } else if self.measure || self.options.plan {
            let plan = plan_for(&data, &self.options)?;
            if self.options.plan {
                output.page(&plan.to_toml())?;
                return Ok(ExitReason::Success);
            }
            let (measured, exit) = execute(plan, None, global, output)?;
            record_explained_run(global, &measured, &data.run.id)?;
            (run_document(&data), run_document(&measured), exit)
        } else {
            return self.explain_by_what_is_stored(&data, output);
        };
        let document = explain(EXPLAINED, &run, &measured);
        if document.rungs.is_empty() && exit == ExitReason::Success {
            return Err(no_breakdown(&measured).into());
        }
        self.show(&document, &measured, output)?;
        Ok(exit)
    }

    /// CPU time and waiting of every rung, where no part of a round trip is stored.
    fn explain_by_what_is_stored(&self, data: &RunData, output: &CliOutput) -> CommandResult {
        let mut run = run_document(data);
        run.ladder = plumb_analysis::ladder::rungs(&list::registry(), &run);
        if run.ladder.is_empty() {
            return Err(no_rung(&run).into());
        }
        let document = explain(EXPLAINED, &run, &run);
        output.show(&ExplainDocument { stored: run.ladder.clone(), ..document }, |style| {
            terminal::ladder::details(&run, style)
        })?;
        if let Some(path) = &self.output {
            write_page(path, &html::report(&run), output)?;
        }
        output.note(&format!(
            "part by part through the kernel: plumb explain {} --measure",
            run.run.id
        ));
        Ok(ExitReason::Success)
    }

    fn show(
        &self,
        document: &ExplainDocument,
        measured: &RunDocument,
        output: &CliOutput,
    ) -> Result<(), CommandError> {
        output.show(document, |style| terminal::explain::render(document, style))?;
        if let Some(path) = &self.output {
            write_page(path, &html::explain(document, measured), output)?;
        }
        Ok(())
    }
}

fn write_page(path: &Path, page: &str, output: &CliOutput) -> Result<(), Problem> {
    write_file(path, page.as_bytes())?;
    output.note(&format!("{}: {} kB", path.display(), page.len().div_ceil(1_000)));
    Ok(())
}

fn no_rung(run: &RunDocument) -> Problem {
    let without = run.results.iter().find(|result| result.summary.median.is_none());
    let why = without.and_then(|result| result.flags.first()).map_or_else(
        || "only clocks, calls and latencies are explained, and it has none".to_owned(),
        |flag| format!("it has no median ({flag})"),
    );
    Problem::usage(format!("{} has no rung to explain", run.run.id))
        .because(why)
        .fix(format!("look at it with: plumb show {}", run.run.id))
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

/// The newest stored run that was made to explain this one.
fn explanation_of(store: &Store, data: &RunData) -> Result<Option<RunData>, Problem> {
    let is_it = |run: &RunRecord| run.notes.get(EXPLAINS_NOTE) == Some(&data.run.id);
    let found = store.runs()?.into_iter().find(|listing| is_it(&listing.run));
    Ok(found.map(|listing| store.load(&listing.run.id)).transpose()?)
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
    Ok(options.limit(RunPlan { title: EXPLANATION_TITLE.to_owned(), ..plan }))
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
