//! `plumb sensitivity`: which factor of a run matters most.

use clap::Args;
use plumb_analysis::document::model::{SENSITIVITY_SCHEMA, SensitivityDocument};
use plumb_analysis::sensitivity::sensitivities;
use plumb_analysis::summary::measured_cells;
use plumb_report::terminal;

use super::output::{CliOutput, CommandResult};
use super::{GlobalOptions, store};
use crate::problem::{ExitReason, Problem};

/// Rank the factors of a run by what moving each one does to the cost, with intervals
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "Every factor with two levels or more is ranked, of any experiment; six launches give intervals.

Examples:
  plumb run latency.local --set mechanism=pipe,tcp4 --set size=64,64Ki --launches 6
  plumb sensitivity last
  plumb sensitivity last --json | jq '.factors[0]'"
)]
pub struct SensitivityCommand {
    /// A run: its id, a prefix of it, last or last~N
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
}

impl SensitivityCommand {
    /// Ranks and prints the factors.
    ///
    /// # Errors
    /// No such run, or one in which nothing varies or nothing can be compared.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        let data = store::read(global, &self.run)?;
        let (factors, undecided) = sensitivities(&measured_cells(&data));
        if factors.is_empty() {
            let why = match undecided {
                0 => "no factor has two levels with everything else the same".to_owned(),
                open => format!("{open} settings have too few launches to be compared"),
            };
            return Err(Problem::usage(format!("run {} shows no sensitivity", data.run.id))
                .because(why)
                .fix("plumb run latency.local --set mechanism=pipe,tcp4 --set size=64,64Ki --launches 6")
                .into());
        }
        let document = SensitivityDocument {
            schema: SENSITIVITY_SCHEMA.to_owned(),
            run: data.run.id,
            factors,
            undecided,
        };
        output.show(&document, |style| terminal::model::sensitivity(&document, style))?;
        Ok(ExitReason::Success)
    }
}
