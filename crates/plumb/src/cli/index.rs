//! `plumb index`: how fast this processor is, so that machines can be compared.

use clap::Args;
use plumb_analysis::index;
use plumb_analysis::summary::measured_cells;
use plumb_experiments::machines::kernel_references;
use plumb_experiments::scaling::{index_cpu, index_memory};
use plumb_report::scaling;
use plumb_store::record::RunData;

use super::output::{CliOutput, CommandResult};
use super::run::{RunOptions, execute, measured_any, plan_of};
use super::{GlobalOptions, store};
use crate::problem::{ExitReason, Problem};

/// Measure the processor index: six kernels against a reference, and memory beside it, in 5 seconds
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb index
  plumb index --launches 20
  plumb index --of last --json | jq .index

The index is the geometric mean of six integer kernels' speeds, each against one reference machine. Its
version, plumb-index/1, stands for the same work everywhere; figures of other versions do not compare.")]
pub struct IndexCommand {
    /// Show the index of a stored run instead: its id, a prefix of it, last or last~N
    #[arg(long, value_name = "RUN")]
    of: Option<String>,
    #[command(flatten)]
    options: RunOptions,
}

impl IndexCommand {
    /// Measures and prints the index.
    ///
    /// # Errors
    /// A failed measurement, or a run without an index.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        if let Some(run) = &self.of {
            return show(&store::read(global, run)?, ExitReason::Success, output);
        }
        let plan = plan_of("index", &self.options)?;
        if self.options.plan {
            output.page(&plan.to_toml())?;
            return Ok(ExitReason::Success);
        }
        let (data, exit) = execute(plan, None, global, output)?;
        let exit = measured_any(&data, exit, output);
        show(&data, exit, output)
    }
}

fn show(data: &RunData, exit: ExitReason, output: &CliOutput) -> CommandResult {
    let measured = measured_cells(data);
    let Some(found) = index::summarize(&measured, index_cpu::EXPERIMENT.id, &kernel_references())
    else {
        return Err(Problem::usage(format!("run {} has no processor index", data.run.id))
            .because("an index needs every kernel of index.cpu")
            .fix("measure one: plumb index")
            .into());
    };
    let names = (plumb_index::VERSION, plumb_index::REFERENCE);
    let memory = index::memory(&measured, index_memory::EXPERIMENT.id);
    let document = index::document(names, &data.run.id, found, memory);
    output.show(&document, |style| scaling::index_in_terminal(&document, style))?;
    Ok(exit)
}
