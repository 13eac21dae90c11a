//! `plumb selftest`: prove the statistics and the clock on this machine.

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use plumb_base::seed::Seed;
use plumb_report::terminal;

use super::output::{CliOutput, CommandError};
use crate::VERSION;
use crate::problem::{ExitReason, Problem};
use plumb_experiments::selftest;

/// Prove on this machine that intervals cover, verdicts keep quiet, and delays are found
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb selftest
  plumb selftest --seed 7 --json

Takes about two minutes. Exit code 1 when a check fails: then this machine, or this
plumb, is not to be trusted with comparisons; try again on a quiet machine first.")]
pub struct SelftestCommand {
    /// Seed of every random choice
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

impl SelftestCommand {
    /// Makes the trials and reports on them.
    ///
    /// # Errors
    /// Trouble while measuring; a check that fails is an exit code.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        let seed = match self.seed {
            Some(seed) => seed,
            None => plumb_clock::entropy().map_err(|error| {
                Problem::failure("cannot read random bits from /dev/urandom").because(error)
            })?,
        };
        output.note(&format!("self-test with seed {seed}: about two minutes"));
        let bar = bar(output);
        let document = selftest::run(Seed(seed), VERSION, &mut |what, share| {
            if let Some(bar) = &bar {
                bar.set_message(what.to_owned());
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a share of a thousand"
                )]
                bar.set_position((share * 1_000.0) as u64);
            }
        });
        if let Some(bar) = bar {
            bar.finish_and_clear();
        }
        let document = document?;
        if output.json {
            output.document(&document)?;
        } else {
            output.page(&terminal::selftest::render(&document, output.style))?;
        }
        Ok(if document.passed { ExitReason::Success } else { ExitReason::CheckFailed })
    }
}

/// A bar of thousandths, on a terminal.
fn bar(output: &CliOutput) -> Option<ProgressBar> {
    if !output.progress {
        return None;
    }
    let target = ProgressDrawTarget::stderr_with_hz(10);
    let bar = ProgressBar::with_draw_target(Some(1_000), target);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {percent:>3} %  {wide_msg}") {
        let ticks = if output.style_stderr.unicode { "█▉▊▋▌▍▎▏ " } else { "#>-" };
        bar.set_style(style.progress_chars(ticks));
    }
    Some(bar)
}
