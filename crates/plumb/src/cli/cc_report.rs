//! `plumb cc-report`: the questions of RFC 9743 about a congestion control, answered by simulations.

use clap::Args;
use plumb_analysis::document::sim::{CONGESTION_SCHEMA, CongestionAnswer, CongestionDocument};
use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use plumb_report::terminal;
use plumb_sim::cc_report::{self, BetterDirection, CongestionFinding};
use plumb_stack::tcp::congestion::CongestionChoice;

use super::output::{CliOutput, CommandResult};
use super::progress::{ProgressBar, rough_duration};
use super::{handle_stop_signals, is_stopped};
use crate::problem::{ExitReason, Problem};

/// Answer RFC 9743's questions about a congestion control, in simulations
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Each question is a network in virtual time, run with the congestion control, with NewReno and with CUBIC in its place.
The RFC sets no thresholds; what is worse by a quarter than with both is marked. A congestion control of your own is a
type of Rust: crates/sim/examples/own_congestion.rs shows one with its report.

Examples:
  plumb cc-report bbr
  plumb cc-report cubic --json")]
pub struct CcReportCommand {
    /// Congestion control: reno, newreno, vegas, cubic, bbr or fixed:BYTES
    #[arg(value_name = "ALGORITHM")]
    congestion: CongestionChoice,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl CcReportCommand {
    /// Runs the simulations and prints what they say.
    ///
    /// # Errors
    /// An interruption.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        handle_stop_signals()?;
        let began_ns = monotonic_ns();
        let count = cc_report::question_count();
        let mut findings = Vec::with_capacity(count);
        let mut bar = ProgressBar::new(output);
        for number in 0..count {
            if is_stopped() {
                return Err(Problem::from_message("interrupted", ExitReason::Interrupted).into());
            }
            if let Some(bar) = &mut bar {
                let spent = Span::from_ns(monotonic_ns() - began_ns);
                let left = if number == 0 {
                    String::new()
                } else {
                    format!(
                        "{} left",
                        rough_duration(spent / number as u64 * (count - number) as u64)
                    )
                };
                bar.draw(number as f64 / count as f64, &left);
            }
            findings.extend(cc_report::answer(number, self.congestion, Seed(self.seed)));
        }
        drop(bar);
        let document = CongestionDocument {
            schema: CONGESTION_SCHEMA.to_owned(),
            congestion: self.congestion.to_string(),
            standards: cc_report::STANDARDS.map(|choice| choice.to_string()).into(),
            seed: self.seed,
            wall_seconds: (monotonic_ns() - began_ns) as f64 / 1e9,
            findings: findings.iter().map(answer).collect(),
            unanswered: cc_report::UNANSWERED
                .map(|(section, why)| (section.to_owned(), why.to_owned()))
                .into(),
        };
        output.show(&document, |style| terminal::sim::congestion(&document, style))?;
        Ok(ExitReason::Success)
    }
}

fn answer(finding: &CongestionFinding) -> CongestionAnswer {
    let better = match finding.better {
        BetterDirection::Higher => "higher",
        BetterDirection::Lower => "lower",
    };
    CongestionAnswer {
        section: finding.section.to_owned(),
        topic: finding.topic.to_owned(),
        measure: finding.measure.to_owned(),
        unit: finding.unit.to_owned(),
        better: better.to_owned(),
        value: finding.value,
        standards: finding.standards.into(),
        look: finding.is_worth_a_look(),
    }
}
