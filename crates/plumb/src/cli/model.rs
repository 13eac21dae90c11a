//! `plumb model`: what a message costs as a sum of terms, fitted to a stored run.

use clap::Args;
use plumb_analysis::cost_model::{self, CostModel};
use plumb_analysis::document::model::{MODEL_SCHEMA, ModelDocument};
use plumb_analysis::summary::{MeasuredCell, measured_cells};
use plumb_report::terminal;
use plumb_store::record::RunData;

use super::output::{CliOutput, CommandResult};
use super::{GlobalOptions, store};
use crate::problem::{ExitReason, Problem};

/// Fit what a message costs: fixed, per byte, per packet and by wake-up, with intervals
#[derive(Clone, Debug, Args)]
#[command(after_help = "A model needs a mechanism at four sizes or more:
  time = fixed + per byte · size + beyond caches · max(0, size − 256 KiB) + per packet · packets
Terms are those that predict sizes which were left out best; residuals are relative.

Examples:
  plumb run latency.local --set mechanism=pipe,tcp4 && plumb model last
  plumb model last --residuals
  plumb model last --json | jq '.models[].terms'")]
pub struct ModelCommand {
    /// A run: its id, a prefix of it, last or last~N
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// Print measured, fitted and left-out values of every size
    #[arg(long)]
    residuals: bool,
}

impl ModelCommand {
    /// Fits and prints the models.
    ///
    /// # Errors
    /// No such run, or one without a mechanism at enough sizes.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        let data = store::read(global, &self.run)?;
        let measured = measured_cells(&data);
        let (models, without) = models_of(&data, &measured)?;
        let document = ModelDocument {
            schema: MODEL_SCHEMA.to_owned(),
            run: data.run.id.clone(),
            entry_ns: entry(&measured),
            models: models.iter().map(|model| model.entry(one_cpu(model, &models))).collect(),
            without,
            score: cost_model::score(&cost_model::left_out_pairs(&models)),
        };
        output
            .show(&document, |style| terminal::model::models(&document, self.residuals, style))?;
        Ok(ExitReason::Success)
    }
}

/// The models of a run, and the settings that have none.
///
/// # Errors
/// It has no model at all.
pub fn models_of(
    data: &RunData,
    measured: &[MeasuredCell<'_>],
) -> Result<(Vec<CostModel>, Vec<String>), Problem> {
    let (models, without) = cost_model::models(measured);
    if models.is_empty() {
        return Err(Problem::usage(format!("run {} has nothing to fit a model to", data.run.id))
            .because("a model needs the latency or throughput of a mechanism at four sizes or more")
            .fix("measure some: plumb run latency.local --set size=1,64,1Ki,16Ki,64Ki"));
    }
    Ok((models, without))
}

/// The median of an empty kernel call, where it was measured.
fn entry(measured: &[MeasuredCell<'_>]) -> Option<f64> {
    let is_empty = |cell: &&MeasuredCell<'_>| {
        matches!(cell.cell.experiment.as_str(), "call.kernel" | "scaling.entry")
            && cell.is("call", "getppid")
    };
    measured.iter().find(is_empty).map(MeasuredCell::median)
}

/// The fixed term of the same mechanism with both processes on one CPU.
fn one_cpu(model: &CostModel, models: &[CostModel]) -> Option<f64> {
    model.factors.text("placement").filter(|placement| *placement != "same-cpu")?;
    let twin = model.factors.clone().with("placement", "same-cpu");
    let is_twin = |other: &&CostModel| {
        other.factors == twin
            && other.experiment == model.experiment
            && other.response == model.response
    };
    models.iter().find(is_twin).map(CostModel::fixed_ns)
}
