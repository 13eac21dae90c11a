//! `plumb run`: carry out an experiment, a study or a plan.
//!
//! `plumb ladder`, `plumb rerun` and `plumb ab` end here too. Left out: the run loop itself
//! (`crate::run`).

use std::path::Path;

use clap::Args;
use plumb_analysis::document::{RunDocument, build, host};
use plumb_base::time::Span;
use plumb_host::stop;
use plumb_host::topology::Topology;
use plumb_store::record::{Run as Header, RunData, RunStatus};
use plumb_store::sqlite::Mode;

use super::output::{Failure, Output};
use super::progress;
use super::{Global, show, stored};
use crate::experiment::path::is_host_level;
use crate::experiment::{CellPlan, expand};
use crate::net::far;
use crate::plan::{Chosen, Estimate, Plan, Preset, duration};
use crate::problem::{Exit, Problem};
use crate::run as executor;

/// Measure an experiment, a study or a plan
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb run latency.local --quick
  plumb run latency.local --set mechanism=pipe,tcp4 --set size=64,4Ki --set placement=same-cpu
  plumb run ipc --quick --budget 5m
  plumb run latency.remote --quick --host user@host         between this host and another one
  plumb run ipc --plan > mine.toml       then edit it, and: plumb run mine.toml
  plumb run --resume last

A plan is TOML; what it leaves out comes from its preset:
  title = \"pipes against sockets\"
  preset = \"quick\"
  [limits]
  budget = \"2m\"
  [[experiment]]
  id = \"latency.local\"
  [experiment.factors]
  mechanism = [\"pipe\", \"unix-stream\"]
  size = [64, \"4Ki\"]

Ctrl-C once stops after the block under way and reports what there is; twice aborts.")]
pub struct Run {
    /// An id of `plumb list`, or a plan ending in .toml
    #[arg(value_name = "ID|PLAN.toml", required_unless_present = "resume")]
    what: Option<String>,
    /// Finish a run that was interrupted
    #[arg(long, value_name = "RUN", conflicts_with_all = ["what", "quick", "paper", "set"])]
    #[arg(conflicts_with_all = ["seed", "plan", "launches"])]
    resume: Option<String>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    other: OtherHostOptions,
}

/// What every command that measures takes.
#[derive(Clone, Debug, Default, Args)]
pub struct Options {
    /// A first look: few launches, short blocks
    #[arg(long, conflicts_with = "paper")]
    pub quick: bool,
    /// Enough to publish: at least ten launches of everything
    #[arg(long)]
    pub paper: bool,
    /// Levels of a factor instead of the preset's; may be given for several factors
    #[arg(long, value_name = "FACTOR=LEVEL,…")]
    pub set: Vec<String>,
    /// Stop after this long; --resume measures what it did not reach
    #[arg(long, value_name = "TIME", value_parser = parse_budget)]
    pub budget: Option<Span>,
    /// Launches of every cell, neither more nor fewer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub launches: Option<u32>,
    /// Seed of every random choice
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Print the plan as TOML, and measure nothing
    #[arg(long, conflicts_with = "json")]
    pub plan: bool,
}

/// The other host of what has two.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Another host")]
pub struct OtherHostOptions {
    /// The other host.
    #[arg(
        long,
        value_name = "HOST",
        help = "Measure what varies 'link' between this host and this other one: user@host, [address]:port or netns:NAME"
    )]
    pub host: Option<String>,
    /// The command that runs another one there, instead of ssh: 'ip netns exec blue', 'docker exec -i box'
    #[arg(long, value_name = "CMD")]
    pub via: Option<String>,
    /// The address that data goes to, instead of the host's own
    #[arg(long, value_name = "ADDRESS")]
    pub to: Option<String>,
    /// The ssh program with its options
    #[arg(long, value_name = "CMD", default_value = "ssh", env = "PLUMB_SSH")]
    pub ssh: String,
}

impl OtherHostOptions {
    /// Whether a host is named.
    pub const fn is_named(&self) -> bool {
        self.host.is_some() || self.via.is_some()
    }

    /// Has this process go there, if a host is named.
    ///
    /// # Errors
    /// How to reach it is said, and not which host.
    pub fn ask(&self) -> Result<(), Problem> {
        if !self.is_named() {
            return match &self.to {
                Some(_) => Err(Problem::usage("--to names an address of no host")
                    .fix("name the host with --host")),
                None => Ok(()),
            };
        }
        far::ask(far::Asked {
            host: self.host.clone(),
            via: self.via.clone(),
            to: self.to.clone(),
            ssh: self.ssh.split_whitespace().map(str::to_owned).collect(),
        });
        Ok(())
    }
}

fn parse_budget(text: &str) -> Result<Span, String> {
    let span = duration::parse(text).map_err(|error| error.to_string())?;
    if span == Span::ZERO {
        Err("a budget of nothing measures nothing".to_owned())
    } else {
        Ok(span)
    }
}

impl Options {
    /// The preset asked for, if one is.
    pub fn preset(&self) -> Option<Preset> {
        match (self.quick, self.paper) {
            (true, _) => Some(Preset::Quick),
            (_, true) => Some(Preset::Paper),
            _ => None,
        }
    }

    /// The plan with the limits and the seed that the options ask for.
    #[must_use]
    pub fn limit(&self, mut plan: Plan) -> Plan {
        if self.budget.is_some() {
            plan.limits.budget = self.budget;
        }
        if let Some(launches) = self.launches {
            plan.limits.launches_min = launches;
            plan.limits.launches_max = launches;
        }
        if self.seed.is_some() {
            plan.seed = self.seed;
        }
        plan
    }
}

impl Run {
    /// Measures and reports.
    ///
    /// # Errors
    /// A request that cannot be met, or trouble while measuring.
    pub fn perform(self, global: &Global, output: &Output) -> Result<Exit, Failure> {
        self.other.ask()?;
        if let Some(text) = &self.resume {
            return resume(text, &self.options, global, output);
        }
        let plan = plan_of(self.what.as_deref().unwrap_or_default(), &self.options)?;
        measure(plan, &self.options, global, output)
    }
}

/// The plan that a word and the options ask for.
///
/// # Errors
/// No such experiment, study or file; a plan at fault; levels that do not exist.
pub fn plan_of(what: &str, options: &Options) -> Result<Plan, Problem> {
    let chosen = Chosen::parse(&options.set)?;
    let path = Path::new(what);
    let is_file = path.extension().is_some_and(|extension| extension == "toml") || path.is_file();
    if !is_file {
        return Ok(options.limit(Plan::named(what, options.preset(), &chosen)?));
    }
    let text = std::fs::read_to_string(path).map_err(|error| {
        Problem::usage(format!("cannot read the plan {what}"))
            .because(error)
            .fix("name a plan file, or an id of plumb list")
    })?;
    let mut plan = Plan::from_toml(&text, what)?;
    if let Some(preset) = options.preset() {
        plan.limits = preset.limits();
    }
    Ok(options.limit(plan.with_chosen(&chosen)?))
}

/// Measures a plan and reports on it.
///
/// # Errors
/// A plan that cannot be carried out, or trouble while measuring.
pub fn measure(
    plan: Plan,
    options: &Options,
    global: &Global,
    output: &Output,
) -> Result<Exit, Failure> {
    if options.plan {
        output.page(&plan.to_toml())?;
        return Ok(Exit::Fine);
    }
    let (data, exit) = execute(plan, None, global, output)?;
    report(&data, output)?;
    Ok(measured_any(&data, exit, output))
}

/// The exit code of a run: one that measured nothing at all is trouble, whatever the reasons.
pub fn measured_any(data: &RunData, exit: Exit, output: &Output) -> Exit {
    if exit == Exit::Fine && data.blocks.is_empty() {
        output.remark("nothing could be measured; each cell says why");
        return Exit::Trouble;
    }
    exit
}

/// Finishes an interrupted run.
fn resume(
    text: &str,
    options: &Options,
    global: &Global,
    output: &Output,
) -> Result<Exit, Failure> {
    let store = stored::open(global, Mode::Read)?;
    let data = stored::load(&store, text)?;
    drop(store);
    let id = data.run.id.clone();
    if !matches!(data.run.status, RunStatus::Running | RunStatus::Interrupted) {
        return Err(Problem::usage(format!("run {id} cannot be resumed"))
            .because("nothing is left to measure: every cell has its result, or the reason why it has none")
            .fix(format!("measure it again with: plumb rerun {id}"))
            .into());
    }
    let plan = Plan::from_toml(&data.run.plan_toml, &format!("the plan of {id}"))?;
    require_host(&plan, &data.run, &format!("plumb run --resume {id}"))?;
    let (data, exit) = execute(options.limit(plan), Some(id), global, output)?;
    report(&data, output)?;
    Ok(measured_any(&data, exit, output))
}

/// Carries a plan out, watched, and gives back what is stored then.
///
/// # Errors
/// A plan that cannot be carried out, or trouble while measuring.
pub fn execute(
    plan: Plan,
    resume: Option<String>,
    global: &Global,
    output: &Output,
) -> Result<(RunData, Exit), Failure> {
    if far::is_asked() && !goes_to_host(&plan) {
        return Err(Problem::usage("nothing of this plan goes to another host")
            .because("--host is for experiments that vary 'link', at the level 'host'")
            .fix("leave --host out, add --set link=host, or choose one such as latency.remote")
            .into());
    }
    far::find()?;
    let cells = expand(&plan, &Topology::machine())?;
    let mut store = stored::open(global, Mode::Write)?;
    foretell(&plan, &cells, output);
    let title = plan.title.clone();
    let mut watcher = progress::watcher(output);
    let request = executor::Request { plan, cells, store: &mut store, resume, title };
    let outcome = executor::execute(request, watcher.as_mut());
    drop(watcher);
    let outcome = outcome?;
    let data = store.load(&outcome.run_id).map_err(Problem::from)?;
    let exit = match outcome.status {
        RunStatus::Interrupted | RunStatus::Running => {
            let options = data.run.notes.get(host::OPTIONS).map_or("", String::as_str);
            let finish = format!("plumb run --resume {} {options}", outcome.run_id);
            output.remark(&format!(
                "stopped: {}; finish it with: {}",
                outcome.stopped_by,
                finish.trim_end()
            ));
            let is_lost = data.run.notes.contains_key(host::LOST);
            match (stop::requests() > 0, is_lost) {
                (true, _) => Exit::Interrupted,
                (false, true) => Exit::Trouble,
                (false, false) => Exit::Fine,
            }
        }
        _ => Exit::Fine,
    };
    Ok((data, exit))
}

/// Whether a plan, or what it leaves out on account of it, concerns another host.
fn goes_to_host(plan: &Plan) -> bool {
    let is_excluded = |id: &str| ["host.mtu", "host.coalescing"].contains(&id);
    has_host_level(plan) || plan.experiments.iter().any(|planned| is_excluded(&planned.id))
}

fn has_host_level(plan: &Plan) -> bool {
    let links = plan.experiments.iter().filter_map(|planned| planned.factors.get("link"));
    links.flatten().any(|link| is_host_level(&link.to_string()))
}

/// Refuses to measure a stored run again without the host that it was measured against.
///
/// # Errors
/// No host is named, and what was is told.
pub fn require_host(plan: &Plan, run: &Header, command: &str) -> Result<(), Problem> {
    if far::is_asked() || !has_host_level(plan) {
        return Ok(());
    }
    let name = run.notes.get(host::NAME).map_or("another host", String::as_str);
    let options = run.notes.get(host::OPTIONS).map_or("--host user@host", String::as_str);
    Err(Problem::usage(format!("{} was measured against {name}", run.id))
        .because("which host that is now, and how it is reached, is said anew each time")
        .fix(format!("name it: {command} {options}")))
}

/// Says how much there is to measure and how long it will take.
fn foretell(plan: &Plan, cells: &[CellPlan], output: &Output) {
    let estimate = Estimate::of(cells, &plan.limits);
    let absent = cells.len() as u64 - estimate.cells;
    let not_here =
        if absent > 0 { format!(" ({absent} more not possible here)") } else { String::new() };
    output.remark(&format!(
        "{}: {}{not_here}, {} a round; {}",
        plan.title,
        counted(estimate.cells, "cell"),
        counted(estimate.groups, "launch"),
        between(estimate.least, estimate.most),
    ));
}

fn counted(n: u64, thing: &str) -> String {
    match (n, thing) {
        (1, thing) => format!("1 {thing}"),
        (n, "launch") => format!("{n} launches"),
        (n, thing) => format!("{n} {thing}s"),
    }
}

/// `about 12 s`, `2 to 5 min`.
fn between(least: Span, most: Span) -> String {
    let (low, high) = (coarse(least), coarse(most));
    if low == high { format!("about {low}") } else { format!("{low} to {high}") }
}

/// A span as a person would guess it: whole seconds, then whole minutes, then hours.
pub fn coarse(span: Span) -> String {
    let seconds = span.as_secs_f64().ceil();
    if seconds < 100.0 {
        format!("{seconds:.0} s")
    } else if seconds < 6_000.0 {
        format!("{:.0} min", (seconds / 60.0).round())
    } else {
        format!("{:.1} h", seconds / 3_600.0)
    }
}

/// Prints a run: its document with `--json`, its page otherwise, and what to try next.
///
/// # Errors
/// Standard output cannot be written.
pub fn report(data: &RunData, output: &Output) -> Result<(), Failure> {
    let document = build(data);
    if output.json {
        return output.document(&document);
    }
    output.page(&show::page(&document, output.style))?;
    output.remark(&next(&document));
    Ok(())
}

/// The commands to try after a run.
fn next(document: &RunDocument) -> String {
    let id = &document.run.id;
    format!(
        "stored as {id}\nnext: plumb report last -o {id}.html   or, after the next run: plumb compare \
         last~1 last"
    )
}
