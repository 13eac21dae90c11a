//! `plumb ab`: two levels of a factor, measured interleaved and compared as pairs.

use clap::Args;
use plumb_analysis::compare;
use plumb_store::record::Level;

use super::Global;
use super::compare::{CompareOptions, print};
use super::output::{Failure, Output};
use super::run::{Options, OtherHostOptions, execute, plan_of};
use crate::experiment::Experiment;
use crate::experiment::resolve::domain;
use crate::plan::Chosen;
use crate::problem::{Exit, Problem};

/// Measure two levels of a factor interleaved, and compare them as pairs
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb ab latency.local --factor wake=block,spin --set mechanism=tcp4 --set size=64 \\
      --set placement=other-cpu
  plumb ab tcp.options --factor nodelay=on,off --quick

Exit codes: 0 no cell of the second level is slower, 1 some cell is, 3 inconclusive.")]
pub struct Ab {
    /// The experiment
    experiment: String,
    /// The factor and its two levels: the first stands before, the second after
    #[arg(long, value_name = "FACTOR=A,B")]
    factor: String,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    other: OtherHostOptions,
    #[command(flatten)]
    compare: CompareOptions,
}

impl Ab {
    /// Measures both and compares them.
    ///
    /// # Errors
    /// A factor without exactly two levels, or trouble while measuring.
    pub fn perform(mut self, global: &Global, output: &Output) -> Result<Exit, Failure> {
        self.other.ask()?;
        let experiment = Experiment::find(&self.experiment)?;
        let (name, texts) = self.check_factor()?;
        let levels = levels(experiment, &name, &texts)?;
        self.options.set.push(self.factor.clone());
        let mut plan = plan_of(experiment.id, &self.options)?;
        plan.limits = plan.limits.in_turns();
        if self.options.plan {
            output.page(&plan.to_toml())?;
            return Ok(Exit::Fine);
        }
        let (data, exit) = execute(plan, None, global, output)?;
        let document = compare::within(&data, &name, &levels[0], &levels[1], self.compare.margin);
        let verdict = print(&document, &self.compare, output)?;
        output.remark(&format!("stored as {}", data.run.id));
        Ok(if exit == Exit::Fine { verdict } else { exit })
    }

    /// The factor's name and its levels; refuses a word without exactly two.
    fn check_factor(&self) -> Result<(String, Vec<String>), Problem> {
        let chosen = Chosen::parse([&self.factor])?;
        let name = chosen.factors().next().unwrap_or_default().to_owned();
        match chosen.levels(&name) {
            [a, b] if a != b => {}
            levels => {
                return Err(Problem::usage(format!(
                    "'{}' gives factor {name} {} different levels",
                    self.factor,
                    levels.iter().collect::<std::collections::BTreeSet<_>>().len()
                ))
                .because("a comparison has two sides: before and after")
                .fix("write it like --factor wake=block,spin"));
            }
        }
        if Chosen::parse(&self.options.set)?.factors().any(|factor| factor == name) {
            return Err(Problem::usage(format!("factor '{name}' is set twice"))
                .because("--factor says which levels are compared")
                .fix(format!("leave --set {name}=… out")));
        }
        let levels = chosen.levels(&name).to_vec();
        Ok((name, levels))
    }
}

/// The two levels as cells have them; `other-cpu` becomes what it stands for here.
fn levels(experiment: &Experiment, name: &str, texts: &[String]) -> Result<Vec<Level>, Problem> {
    let kind = domain(experiment, name)?;
    texts.iter().map(|text| Ok(here(name, &kind.parse(name, text)?))).collect()
}

fn here(name: &str, level: &Level) -> Level {
    use plumb_host::topology::{Placement, Topology};
    if name != "placement" || *level != Level::from(Placement::OtherCpu.name()) {
        return level.clone();
    }
    let best = Topology::machine().resolve(Placement::OtherCpu);
    best.map_or_else(|_| level.clone(), |best| best.name().into())
}
