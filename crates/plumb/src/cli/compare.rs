//! `plumb compare` and `plumb ab`: compare two runs, or two levels of a factor.

use std::collections::BTreeSet;

use clap::Args;
use plumb_analysis::compare::{self, MARGIN_DEFAULT};
use plumb_analysis::document::compare::CompareDocument;
use plumb_base::units::quantity::parse_probability;
use plumb_report::{markdown, terminal};
use plumb_store::record::{FactorLevel, RunData};
use plumb_store::sqlite::StoreMode;

use crate::cli::output::{CliOutput, CommandResult};
use crate::cli::run::{OtherHostOptions, RunOptions, execute, plan_of};
use crate::cli::{GlobalOptions, store};
use crate::net::stored_run::keep_answers;
use crate::problem::{ExitReason, Problem};
use plumb_experiments::definition::Experiment;
use plumb_experiments::list;
use plumb_experiments::plan::ChosenLevels;
use plumb_experiments::plan::resolve::domain;

/// Compare two runs, or several runs a side, cell by cell: faster, slower, equivalent or inconclusive
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb compare last~1 last
  plumb compare last~7,last~5,last~3,last~1 last~6,last~4,last~2,last
  plumb compare net-1 net-2                              two measurements between hosts, of six rounds each
  plumb compare before after --margin 5% --markdown >> \"$GITHUB_STEP_SUMMARY\"

Exit codes: 0 no cell of B is slower, 1 some cell is, 3 inconclusive.")]
pub struct CompareCommand {
    /// The run before: its id, a prefix of it, last or last~N; of several (4 a side or more), separated by commas,
    /// the runs are what is replicated
    #[arg(value_parser = run_names)]
    a: RunNames,
    /// The run after, or several
    #[arg(value_parser = run_names)]
    b: RunNames,
    /// Of measurements between hosts every cell, CPU costs and one-way delays too, not rates, round trips and losses alone
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    options: CompareOptions,
}

/// The runs of one side. A type of its own, as clap takes a list for an option that may be repeated.
#[derive(Clone, Debug)]
struct RunNames(Vec<String>);

/// Reads `last` or `last~1,last`.
fn run_names(text: &str) -> Result<RunNames, String> {
    let names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    if names.iter().any(String::is_empty) {
        return Err(format!("'{text}' has an empty name: write RUN or RUN,RUN,…"));
    }
    Ok(RunNames(names))
}

/// Options of a comparison.
#[derive(Clone, Debug, Args)]
pub struct CompareOptions {
    /// Differences within this share are equivalent
    #[arg(long, value_name = "PERCENT", default_value = "2%", value_parser = parse_margin)]
    pub margin: f64,
    /// Print GitHub-flavoured Markdown
    #[arg(long)]
    pub markdown: bool,
}

impl Default for CompareOptions {
    fn default() -> Self {
        Self { margin: MARGIN_DEFAULT, markdown: false }
    }
}

/// Reads `2%` or `0.02`.
fn parse_margin(text: &str) -> Result<f64, String> {
    match parse_probability(text) {
        Ok(share) if share > 0.0 && share < 1.0 => Ok(share),
        _ => Err(format!("'{text}' is not a margin: write 2% or 0.02, between 0 and 100 %")),
    }
}

impl CompareCommand {
    /// Compares the runs; the exit code is the verdict.
    ///
    /// # Errors
    /// No such run, or a store that cannot be read.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        let store = store::open(global, StoreMode::Read)?;
        let load = |names: &RunNames| -> Result<Vec<RunData>, Problem> {
            names.0.iter().map(|name| store::load(&store, name)).collect()
        };
        let (mut a, mut b) = (load(&self.a)?, load(&self.b)?);
        if !self.all {
            a.iter_mut().chain(&mut b).for_each(keep_answers);
        }
        let (a, b): (Vec<&RunData>, Vec<&RunData>) = (a.iter().collect(), b.iter().collect());
        refuse_repeats(&a, &b)?;
        print(&compare::compare_run_sets(&a, &b, self.options.margin), &self.options, output)
    }
}

/// A run that is named twice is no second run.
fn refuse_repeats(a: &[&RunData], b: &[&RunData]) -> Result<(), Problem> {
    if a.len() + b.len() <= 2 {
        return Ok(());
    }
    let mut seen = BTreeSet::new();
    match a.iter().chain(b).find(|data| !seen.insert(&data.run.id)) {
        None => Ok(()),
        Some(data) => Err(Problem::usage(format!("run {} is named twice", data.run.id))
            .because("the same numbers twice would count as two runs that agree")
            .fix("name each run once; 'plumb runs' lists them")),
    }
}

/// Prints a comparison and gives its exit code.
///
/// # Errors
/// Standard output cannot be written.
fn print(
    document: &CompareDocument,
    options: &CompareOptions,
    output: &CliOutput,
) -> CommandResult {
    if output.json {
        output.document(document)?;
    } else if options.markdown {
        output.page(&markdown::compare(document))?;
    } else {
        output.page(&terminal::compare::render(document, output.style))?;
    }
    Ok(match document.exit_code {
        0 => ExitReason::Success,
        1 => ExitReason::CheckFailed,
        _ => ExitReason::Inconclusive,
    })
}

/// Measure two levels of a factor interleaved, and compare them as pairs
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb ab latency.local --factor wake=block,spin --set mechanism=tcp4 --set size=64 \\
      --set placement=other-cpu
  plumb ab tcp.options --factor nodelay=on,off --quick

Exit codes: 0 no cell of the second level is slower, 1 some cell is, 3 inconclusive.")]
pub struct AbCommand {
    /// The experiment
    experiment: String,
    /// The factor and its two levels: before and after
    #[arg(long, value_name = "FACTOR=A,B")]
    factor: String,
    #[command(flatten)]
    options: RunOptions,
    #[command(flatten)]
    other: OtherHostOptions,
    #[command(flatten)]
    compare: CompareOptions,
}

impl AbCommand {
    /// Measures both levels and compares them.
    ///
    /// # Errors
    /// A factor without exactly two levels, or a failed measurement.
    pub fn perform(mut self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        self.other.request()?;
        let experiment = list::find(&self.experiment)?;
        let (name, texts) = self.check_factor()?;
        let levels = levels(experiment, &name, &texts)?;
        self.options.set.push(self.factor.clone());
        let mut plan = plan_of(experiment.id, &self.options)?;
        plan.limits = plan.limits.interleaved();
        plan.interleave = Some(name.clone());
        if self.options.plan {
            output.page(&plan.to_toml())?;
            return Ok(ExitReason::Success);
        }
        let (data, exit) = execute(plan, None, global, output)?;
        let document =
            compare::compare_levels(&data, &name, &levels[0], &levels[1], self.compare.margin);
        let verdict = print(&document, &self.compare, output)?;
        output.note(&format!("stored as {}", data.run.id));
        Ok(if exit == ExitReason::Success { verdict } else { exit })
    }

    /// The factor's name and its two levels.
    fn check_factor(&self) -> Result<(String, Vec<String>), Problem> {
        let chosen = ChosenLevels::parse([&self.factor])?;
        let name = chosen.factors().next().unwrap_or_default().to_owned();
        match chosen.levels(&name) {
            [a, b] if a != b => {}
            levels => {
                return Err(Problem::usage(format!(
                    "'{}' gives factor {name} {} different levels",
                    self.factor,
                    levels.iter().collect::<BTreeSet<_>>().len()
                ))
                .because("a comparison has two sides: before and after")
                .fix("write it like --factor wake=block,spin"));
            }
        }
        if ChosenLevels::parse(&self.options.set)?.factors().any(|factor| factor == name) {
            return Err(Problem::usage(format!("factor '{name}' is set twice"))
                .because("--factor says which levels are compared")
                .fix(format!("leave --set {name}=… out")));
        }
        let levels = chosen.levels(&name).to_vec();
        Ok((name, levels))
    }
}

/// The two levels as cells have them; `other-cpu` becomes the placement that it means on this host.
fn levels(
    experiment: &Experiment,
    name: &str,
    texts: &[String],
) -> Result<Vec<FactorLevel>, Problem> {
    let kind = domain(experiment, name)?;
    texts.iter().map(|text| Ok(here(name, &kind.parse(name, text)?))).collect()
}

fn here(name: &str, level: &FactorLevel) -> FactorLevel {
    use plumb_harness::topology::{CpuPlacement, CpuTopology};
    if name != "placement" || *level != FactorLevel::from(CpuPlacement::OtherCpu.name()) {
        return level.clone();
    }
    let best = CpuTopology::machine().resolve(CpuPlacement::OtherCpu);
    best.map_or_else(|_| level.clone(), |best| best.name().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn margins_are_read_as_shares_or_percentages() {
        assert_eq!(parse_margin("2%"), Ok(0.02));
        assert_eq!(parse_margin("0.05"), Ok(0.05));
        for text in ["0", "200%", "-1%", "two", "nan", ""] {
            assert!(parse_margin(text).is_err(), "{text}");
        }
    }
}
