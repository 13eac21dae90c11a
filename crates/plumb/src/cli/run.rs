//! `plumb run`, `plumb ladder` (and `plumb` alone), `plumb rerun` and `plumb study`: measure a plan.

use std::path::{Path, PathBuf};

use clap::Args;
use plumb_analysis::compare;
use plumb_analysis::document::host_notes;
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_duration;
use plumb_experiments::list::{Study, run_document};
use plumb_harness::topology::CpuTopology;
use plumb_report::html;
use plumb_store::record::{RunData, RunRecord, RunStatus};
use plumb_store::sqlite::StoreMode;

use crate::VERSION;
use crate::cli::export::{check_writable, write_file};
use crate::cli::output::{CliOutput, CommandError, CommandResult};
use crate::cli::{GlobalOptions, is_stopped, link, progress, store, stored_runs};
use crate::net::other_host;
use crate::problem::{ExitReason, Problem};
use plumb_experiments::definition::CellPlan;
use plumb_experiments::factor::link::is_host_level;
use plumb_experiments::plan::{ChosenLevels, RunEstimate, RunPlan, expand};
use plumb_experiments::preset::RunPreset;
use plumb_experiments::run as executor;
use plumb_experiments::surroundings::{RunSurroundings, Surroundings};

/// Measure an experiment, a study or a plan
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb run latency.local --quick
  plumb run latency.local --set mechanism=pipe,tcp4 --set size=64,4Ki --set placement=same-cpu
  plumb run ipc --quick --budget 5m
  plumb run latency.remote --quick --host user@host         between this host and another one
  plumb run ipc --plan > mine.toml       then edit it, and: plumb run mine.toml
  plumb run --resume last

A plan is TOML; its preset gives the rest:
  title = \"pipes against sockets\"
  preset = \"quick\"
  [limits]
  budget = \"2m\"
  [[experiment]]
  id = \"latency.local\"
  [experiment.factors]
  mechanism = [\"pipe\", \"unix-stream\"]
  size = [64, \"4Ki\"]

Ctrl-C once stops after the current block and reports the results so far; twice aborts.")]
pub struct RunCommand {
    /// An id of `plumb list`, or a plan ending in .toml
    #[arg(value_name = "ID|PLAN.toml", required_unless_present = "resume")]
    what: Option<String>,
    /// Finish a run that was interrupted
    #[arg(long, value_name = "RUN", conflicts_with_all = ["what", "quick", "paper", "set"])]
    #[arg(conflicts_with_all = ["seed", "plan", "launches"])]
    resume: Option<String>,
    #[command(flatten)]
    options: RunOptions,
    #[command(flatten)]
    other: OtherHostOptions,
}

/// Options of every command that measures.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a switch of its own on the command line"
)]
#[derive(Clone, Debug, Default, Args)]
pub struct RunOptions {
    /// Few launches and short blocks, for a first look
    #[arg(long, conflicts_with = "paper")]
    pub quick: bool,
    /// At least ten launches of everything, for publication
    #[arg(long)]
    pub paper: bool,
    /// Levels of a factor instead of the preset's; may be repeated for other factors
    #[arg(long, value_name = "FACTOR=LEVEL,…")]
    pub set: Vec<String>,
    /// Stop after this time; --resume measures the rest
    #[arg(long, value_name = "TIME", value_parser = parse_budget)]
    pub budget: Option<Span>,
    /// Exact number of launches per cell; the time limit of the preset does not apply then
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub launches: Option<u32>,
    /// Seed of every random choice
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Print every published claim that is tested, our expectations, and ranks; a study always does
    #[arg(long)]
    pub claims: bool,
    /// Print the plan as TOML and measure nothing
    #[arg(long, conflicts_with = "json")]
    pub plan: bool,
}

/// The other host of experiments that need two.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Another host")]
pub struct OtherHostOptions {
    /// The other host.
    #[arg(
        long,
        value_name = "HOST",
        help = "Measure experiments that vary 'link' between this host and another: user@host, [address]:port or netns:NAME"
    )]
    pub host: Option<String>,
    /// Command that runs a program there, instead of ssh: 'ip netns exec blue', 'docker exec -i box'
    #[arg(long, value_name = "CMD")]
    pub via: Option<String>,
    /// Destination address of the data, instead of the host's own
    #[arg(long, value_name = "ADDRESS")]
    pub to: Option<String>,
    /// ssh command with its options
    #[arg(long, value_name = "CMD", default_value = "ssh", env = "PLUMB_SSH")]
    pub ssh: String,
}

impl OtherHostOptions {
    /// Whether a host was given.
    pub const fn is_named(&self) -> bool {
        self.host.is_some() || self.via.is_some()
    }

    /// Sets the other host of this process, if one was given.
    ///
    /// # Errors
    /// Options of the other host without a host.
    pub fn request(&self) -> Result<(), Problem> {
        if !self.is_named() {
            return match &self.to {
                Some(_) => {
                    Err(Problem::usage("--to needs --host").fix("name the host with --host"))
                }
                None => Ok(()),
            };
        }
        other_host::request(other_host::OtherHostRequest {
            host: self.host.clone(),
            via: self.via.clone(),
            to: self.to.clone(),
            ssh: self.ssh.split_whitespace().map(str::to_owned).collect(),
        });
        Ok(())
    }
}

fn parse_budget(text: &str) -> Result<Span, String> {
    let span = parse_duration(text).map_err(|error| error.to_string())?;
    if span == Span::ZERO { Err("the budget must be positive".to_owned()) } else { Ok(span) }
}

impl RunOptions {
    /// The preset given, if any.
    pub fn preset(&self) -> Option<RunPreset> {
        match (self.quick, self.paper) {
            (true, _) => Some(RunPreset::Quick),
            (_, true) => Some(RunPreset::Paper),
            _ => None,
        }
    }

    /// Applies the limits and the seed of the options to a plan.
    #[must_use]
    pub fn limit(&self, mut plan: RunPlan) -> RunPlan {
        if let Some(launches) = self.launches {
            plan.limits.launches_min = launches;
            plan.limits.launches_max = launches;
            // An explicit number holds on a slow machine too.
            plan.limits.budget = None;
        }
        if self.budget.is_some() {
            plan.limits.budget = self.budget;
        }
        if self.seed.is_some() {
            plan.seed = self.seed;
        }
        plan
    }
}

impl RunCommand {
    /// Measures and reports.
    ///
    /// # Errors
    /// An invalid request, or a failed measurement.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        self.other.request()?;
        if let Some(text) = &self.resume {
            return resume(text, &self.options, global, output);
        }
        let plan = plan_of(self.what.as_deref().unwrap_or_default(), &self.options)?;
        measure(plan, &self.options, global, output)
    }
}

/// The link that this process runs behind, and the other host if it was found already.
pub fn surroundings() -> Surroundings {
    Surroundings {
        outer_link: link::outer_link(),
        is_host_requested: other_host::is_requested(),
        other_host: other_host::found().cloned(),
    }
}

/// The plan of an experiment, a study or a file, with the options applied.
///
/// # Errors
/// No such experiment, study or file; an invalid plan; unknown levels.
pub fn plan_of(what: &str, options: &RunOptions) -> Result<RunPlan, Problem> {
    let chosen = ChosenLevels::parse(&options.set)?;
    let path = Path::new(what);
    let is_file = path.extension().is_some_and(|extension| extension == "toml") || path.is_file();
    if !is_file {
        return Ok(options.limit(RunPlan::named(
            what,
            options.preset(),
            &chosen,
            &surroundings(),
        )?));
    }
    let text = std::fs::read_to_string(path).map_err(|error| {
        Problem::usage(format!("cannot read the plan {what}"))
            .because(error)
            .fix("name a plan file, or an id of plumb list")
    })?;
    let mut plan = RunPlan::from_toml(&text, what, &surroundings())?;
    if let Some(preset) = options.preset() {
        plan.limits = preset.limits();
    }
    Ok(options.limit(plan.with_chosen(&chosen, &surroundings())?))
}

/// Measures a plan and prints its results.
///
/// # Errors
/// A plan that cannot be run, or a failed measurement.
pub fn measure(
    plan: RunPlan,
    options: &RunOptions,
    global: &GlobalOptions,
    output: &CliOutput,
) -> CommandResult {
    if options.plan {
        output.page(&plan.to_toml())?;
        return Ok(ExitReason::Success);
    }
    let (data, exit) = execute(plan, None, global, output)?;
    report(&data, options.claims, output)?;
    Ok(measured_any(&data, exit, output))
}

/// The exit code of a run: a run without any result is a failure.
pub fn measured_any(data: &RunData, exit: ExitReason, output: &CliOutput) -> ExitReason {
    if exit == ExitReason::Success && data.blocks.is_empty() {
        output.note("nothing could be measured; the reason of each cell is above");
        return ExitReason::Failure;
    }
    exit
}

/// Resumes an interrupted run.
fn resume(
    text: &str,
    options: &RunOptions,
    global: &GlobalOptions,
    output: &CliOutput,
) -> CommandResult {
    let store = store::open(global, StoreMode::Read)?;
    let data = store::load(&store, text)?;
    drop(store);
    let id = data.run.id.clone();
    if !matches!(data.run.status, RunStatus::Running | RunStatus::Interrupted) {
        return Err(Problem::usage(format!("run {id} cannot be resumed"))
            .because("it is complete: every cell has a result, or the reason why it has none")
            .fix(format!("measure it again with: plumb rerun {id}"))
            .into());
    }
    let plan =
        RunPlan::from_toml(&data.run.plan_toml, &format!("the plan of {id}"), &surroundings())?;
    require_host(&plan, &data.run, &format!("plumb run --resume {id}"))?;
    let (data, exit) = execute(options.limit(plan), Some(id), global, output)?;
    report(&data, options.claims, output)?;
    Ok(measured_any(&data, exit, output))
}

/// Runs a plan with progress, and returns the stored run.
///
/// # Errors
/// A plan that cannot be run, or a failed measurement.
pub fn execute(
    plan: RunPlan,
    resume: Option<String>,
    global: &GlobalOptions,
    output: &CliOutput,
) -> Result<(RunData, ExitReason), CommandError> {
    if other_host::is_requested() && !goes_to_host(&plan) {
        return Err(Problem::usage("no experiment of this plan uses another host")
            .because("--host is for experiments that vary 'link', at the level 'host'")
            .fix("leave --host out, add --set link=host, or choose one such as latency.remote")
            .into());
    }
    other_host::find()?;
    let cells = expand(&plan, &CpuTopology::machine(), &surroundings())?;
    let mut store = store::open(global, StoreMode::Write)?;
    print_estimate(&plan, &cells, output);
    let title = plan.title.clone();
    let mut watcher = progress::watcher(output);
    let request = executor::RunRequest {
        plan,
        cells,
        store: &mut store,
        resume,
        title,
        code_version: VERSION,
        surroundings: RunSurroundings {
            at_start: surroundings(),
            changed_link: link::changed_outer_link,
            host_lost: || other_host::find_again().err().map(|problem| problem.what),
        },
    };
    let outcome = executor::execute(request, watcher.as_mut());
    drop(watcher);
    let outcome = outcome?;
    let data = store.load(&outcome.run_id)?;
    if !matches!(outcome.status, RunStatus::Interrupted | RunStatus::Running) {
        return Ok((data, ExitReason::Success));
    }
    let options = data.run.notes.get(host_notes::OPTIONS).map_or("", String::as_str);
    let resume = format!("plumb run --resume {} {options}", outcome.run_id);
    output.note(&format!("stopped: {}; resume with: {}", outcome.stopped_by, resume.trim_end()));
    let exit = match data.run.notes.contains_key(host_notes::LOST) {
        _ if is_stopped() => ExitReason::Interrupted,
        true => ExitReason::Failure,
        false => ExitReason::Success,
    };
    Ok((data, exit))
}

/// Whether a plan measures another host, or has experiments that another host excludes.
fn goes_to_host(plan: &RunPlan) -> bool {
    let is_excluded = |id: &str| ["host.mtu", "host.coalescing"].contains(&id);
    has_host_level(plan) || plan.experiments.iter().any(|planned| is_excluded(&planned.id))
}

fn has_host_level(plan: &RunPlan) -> bool {
    let links = plan.experiments.iter().filter_map(|planned| planned.factors.get("link"));
    links.flatten().any(|link| is_host_level(&link.to_string()))
}

/// Checks that a run between two hosts is measured again between two hosts.
///
/// # Errors
/// No host is given; the error names the earlier one.
pub fn require_host(plan: &RunPlan, run: &RunRecord, command: &str) -> Result<(), Problem> {
    if other_host::is_requested() || !has_host_level(plan) {
        return Ok(());
    }
    let name = run.notes.get(host_notes::NAME).map_or("another host", String::as_str);
    let options = run.notes.get(host_notes::OPTIONS).map_or("--host user@host", String::as_str);
    Err(Problem::usage(format!("{} was measured against {name}", run.id))
        .because("the other host must be given each time")
        .fix(format!("give the host: {command} {options}")))
}

/// Prints how much there is to measure and how long it will take.
fn print_estimate(plan: &RunPlan, cells: &[CellPlan], output: &CliOutput) {
    let estimate = RunEstimate::of(cells, &plan.limits);
    let absent = match cells.len() as u64 - estimate.cells {
        0 => String::new(),
        absent => format!(" ({absent} more not possible here)"),
    };
    output.note(&format!(
        "{}: {}{absent}, {} per round; {}",
        plan.title,
        count(estimate.cells, "cell", "s"),
        count(estimate.groups, "launch", "es"),
        between(estimate.least, estimate.most),
    ));
    if plan.interleave.is_some() {
        let (rows, launches) = (estimate.cells / 2, plan.limits.launches_max);
        let needed = compare::launches_for_verdicts(rows);
        if u64::from(launches) < needed {
            output.note(&format!(
                "{launches} launches can call none of {rows} cells faster or slower: that takes {needed} \
                 (--launches {needed}), or fewer cells (--set)"
            ));
        }
    } else if plan.title != "ladder" {
        let needed = compare::launches_for_comparison(estimate.cells);
        if estimate.cells > 0 && u64::from(plan.limits.launches_max) < needed {
            output.note(&format!(
                "two such runs cannot be compared: of {} cells one is called slower with {needed} launches (--launches \
                 {needed}), or with fewer cells (--set)",
                estimate.cells
            ));
        }
    }
}

fn count(n: u64, thing: &str, plural: &str) -> String {
    format!("{n} {thing}{}", if n == 1 { "" } else { plural })
}

/// `about 12 s`, `2 to 5 min`.
fn between(least: Span, most: Span) -> String {
    let (low, high) = (progress::rough_duration(least), progress::rough_duration(most));
    if low == high { format!("about {low}") } else { format!("{low} to {high}") }
}

/// Prints a run: its document with `--json`, else its page, with every claim if wanted, and what to try next.
///
/// # Errors
/// Standard output cannot be written.
pub fn report(data: &RunData, claims: bool, output: &CliOutput) -> Result<(), CommandError> {
    let document = run_document(data);
    if output.json {
        return output.document(&document);
    }
    output.page(&stored_runs::page(&document, claims, output.style))?;
    // A ladder names itself in its last line.
    if !document.ladder.is_empty() {
        return Ok(());
    }
    let id = &document.run.id;
    output.note(&format!(
        "stored as {id}\nnext: plumb report last -o {id}.html   or, after the next run: plumb compare \
         last~1 last"
    ));
    Ok(())
}

/// Measure the ladder: the cost of crossing each boundary of this machine, in under 20 seconds
#[derive(Clone, Debug, Default, Args)]
#[command(after_help = "Examples:
  plumb ladder
  plumb ladder --set size=4Ki --set mechanism=pipe,unix-stream,tcp4
  plumb ladder --remote
  plumb ladder --host user@host          its last rungs over the network to that host
  plumb ladder --paper")]
pub struct LadderCommand {
    /// Add emulated LAN, metropolitan and wide-area networks; takes under a minute
    #[arg(long)]
    remote: bool,
    #[command(flatten)]
    options: RunOptions,
    #[command(flatten)]
    other: OtherHostOptions,
}

impl LadderCommand {
    /// Measures and prints the ladder.
    ///
    /// # Errors
    /// A failed measurement.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        self.other.request()?;
        let is_remote = self.remote || self.other.is_named();
        let mut plan = plan_of(if is_remote { "ladder.remote" } else { "ladder" }, &self.options)?;
        // The title makes it be shown as a ladder.
        "ladder".clone_into(&mut plan.title);
        measure(plan, &self.options, global, output)
    }
}

/// Measure a stored run's plan again, as a new run
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb rerun last
  plumb rerun ladder-20261121-7f3a && plumb compare ladder-20261121-7f3a last

The plan and the seed are the stored ones, so the random order is the same, unless --seed is given.
A run against another host needs --host again; a measurement of 'plumb net' is repeated by its own
command.")]
pub struct RerunCommand {
    /// A run: its id, a prefix of it, last or last~N
    #[arg(value_name = "RUN")]
    run: String,
    #[command(flatten)]
    options: RunOptions,
    #[command(flatten)]
    other: OtherHostOptions,
}

impl RerunCommand {
    /// Measures the run again.
    ///
    /// # Errors
    /// No such run, a run without a plan, or a failed measurement.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        self.other.request()?;
        let store = store::open(global, StoreMode::Read)?;
        let id = store.find(&self.run)?;
        let run = store.header(&id)?;
        drop(store);
        let Some(run) = run.filter(|run| run.status != RunStatus::Imported) else {
            return Err(Problem::usage(format!("{id} cannot be measured again"))
                .because("it was imported from another tool and has no plan")
                .fix("measure something similar: plumb run latency.local")
                .into());
        };
        if run.plan_toml.is_empty() {
            let command =
                run.notes.get(host_notes::COMMAND).map_or("plumb net HOST", String::as_str);
            return Err(Problem::usage(format!("{id} was not measured by a plan"))
                .because("it was measured between two hosts")
                .fix(format!("measure it again with: {command}"))
                .into());
        }
        let plan =
            RunPlan::from_toml(&run.plan_toml, &format!("the plan of {id}"), &surroundings())?;
        let mut plan =
            plan.with_chosen(&ChosenLevels::parse(&self.options.set)?, &surroundings())?;
        require_host(&plan, &run, &format!("plumb rerun {id}"))?;
        plan.seed = plan.seed.or(Some(run.seed));
        if let Some(preset) = self.options.preset() {
            plan.limits = preset.limits();
        }
        measure(self.options.limit(plan), &self.options, global, output)
    }
}

/// Run a whole study and write its report
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb study stack --quick              how long a packet takes through the stack; writes stack.html
  plumb study ipc --quick -o today.html
  plumb study scaling --quick --host user@host      its experiments between this host and another

A study tests a published document: its experiments are measured, each of its claims gets a verdict,
and the report is one self-contained page.")]
pub struct StudyCommand {
    /// The study: see plumb list studies
    #[arg(value_name = "NAME")]
    name: String,
    /// Where to write the report [default: NAME.html]
    #[arg(long, short, value_name = "FILE.html")]
    output: Option<PathBuf>,
    #[command(flatten)]
    options: RunOptions,
    #[command(flatten)]
    other: OtherHostOptions,
}

impl StudyCommand {
    /// Measures the study, prints it, and writes its report.
    ///
    /// # Errors
    /// No such study, a failed measurement, or a file that cannot be written.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        self.other.request()?;
        let Some(study) = Study::from_id(&self.name) else {
            return Err(Problem::usage(format!("there is no study '{}'", self.name))
                .because("a study is a whole document; use plumb run for one experiment")
                .suggest(&self.name, Study::ALL.iter().map(|study| study.id))
                .into());
        };
        let mut plan = plan_of(study.id, &self.options)?;
        if self.options.plan {
            output.page(&plan.to_toml())?;
            return Ok(ExitReason::Success);
        }
        if self.options.preset().is_none() {
            plan.limits = study.limits(Some(RunPreset::Default));
            plan = self.options.limit(plan);
        }
        let path = self.output.unwrap_or_else(|| PathBuf::from(format!("{}.html", study.id)));
        check_writable(&path)?;
        let (data, exit) = execute(plan, None, global, output)?;
        report(&data, true, output)?;
        let page = html::report(&run_document(&data));
        write_file(&path, page.as_bytes())?;
        output.note(&format!("report: {}, {} kB", path.display(), page.len().div_ceil(1_000)));
        Ok(measured_any(&data, exit, output))
    }
}
