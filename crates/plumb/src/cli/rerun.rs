//! `plumb rerun`: repeat a run from what is stored of it.

use clap::Args;
use plumb_analysis::document::host;
use plumb_store::record::RunStatus;
use plumb_store::sqlite::Mode;

use super::output::{Failure, Output};
use super::run::{Options, OtherHostOptions, measure, require_host};
use super::{Global, stored};
use crate::plan::{Chosen, Plan};
use crate::problem::{Exit, Problem};

/// Measure a stored run's plan again, as a new run
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb rerun last
  plumb rerun ladder-20261121-7f3a && plumb compare ladder-20261121-7f3a last

The plan is the stored one; the seed is too, so that the random order is the same, unless --seed
gives another. A run against another host needs --host again; what 'plumb net' measured is repeated
by its own command.")]
pub struct Rerun {
    /// A run: its id, the beginning of it, last or last~N
    #[arg(value_name = "RUN")]
    run: String,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    other: OtherHostOptions,
}

impl Rerun {
    /// Measures it again.
    ///
    /// # Errors
    /// No such run, a run without a plan, or trouble while measuring.
    pub fn perform(self, global: &Global, output: &Output) -> Result<Exit, Failure> {
        self.other.ask()?;
        let store = stored::open(global, Mode::Read)?;
        let id = store.find(&self.run).map_err(Problem::from)?;
        let run = store.header(&id).map_err(Problem::from)?;
        drop(store);
        let Some(run) = run.filter(|run| run.status != RunStatus::Imported) else {
            return Err(Problem::usage(format!("{id} cannot be measured again"))
                .because("it was imported from another tool, so it has no plan")
                .fix("measure something like it with: plumb run latency.local")
                .into());
        };
        if run.plan_toml.is_empty() {
            let command = run.notes.get(host::COMMAND).map_or("plumb net HOST", String::as_str);
            return Err(Problem::usage(format!("{id} was not measured by a plan"))
                .because("it was measured between two hosts")
                .fix(format!("measure it again with: {command}"))
                .into());
        }
        let plan = Plan::from_toml(&run.plan_toml, &format!("the plan of {id}"))?;
        let mut plan = plan.with_chosen(&Chosen::parse(&self.options.set)?)?;
        require_host(&plan, &run, &format!("plumb rerun {id}"))?;
        plan.seed = plan.seed.or(Some(run.seed));
        if let Some(preset) = self.options.preset() {
            plan.limits = preset.limits();
        }
        measure(self.options.limit(plan), &self.options, global, output)
    }
}
