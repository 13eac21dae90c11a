//! `plumb selftest`: checks the statistics and the clock on this machine.

use clap::Args;
use plumb_report::terminal;

use super::output::{CliOutput, CommandResult};
use super::progress::ProgressBar;
use super::seed_or_random;
use crate::VERSION;
use crate::problem::ExitReason;
use plumb_experiments::selftest;

/// Check on this machine that confidence intervals cover, equal runs compare as equal, and injected delays are found
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb selftest
  plumb selftest --seed 7 --json
  plumb selftest --tables 2000

Takes about two minutes. Exit code 1 if a check fails: comparisons on this machine, or by this
plumb, are not reliable then; try again on an idle machine first.")]
pub struct SelftestCommand {
    /// Seed of every random choice
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Simulate so many tables of each preset and launch effect, instead of a sample; 2000 take about an hour
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    tables: Option<u64>,
}

impl SelftestCommand {
    /// Runs the trials and prints their results.
    ///
    /// # Errors
    /// A measurement failed; a failed check is an exit code.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let seed = seed_or_random(self.seed)?;
        let duration = if self.tables.is_none() { ": about two minutes" } else { "" };
        output.note(&format!("self-test with seed {}{duration}", seed.0));
        let mut bar = ProgressBar::new(output);
        let document = selftest::run(seed, self.tables, VERSION, &mut |what, share| {
            if let Some(bar) = &mut bar {
                bar.draw(share, what);
            }
        });
        drop(bar);
        let document = document?;
        output.show(&document, |style| terminal::checks::selftest(&document, style))?;
        Ok(if document.passed { ExitReason::Success } else { ExitReason::CheckFailed })
    }
}
