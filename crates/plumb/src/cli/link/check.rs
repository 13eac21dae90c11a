//! `plumb link check`: measures with plain sockets whether a link does what is requested.

use clap::Args;
use plumb_analysis::document::link::{LINK_CHECK_SCHEMA, LinkCheckDocument, LinkProperty};
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_duration;
use plumb_link::spec::LinkSpec;
use plumb_netdev::emulator::EmulatorOptions;
use plumb_netdev::emulator::check::{LinkCheckError, LinkCheckReport, Property, Verdict, check};
use plumb_netdev::lab;
use plumb_report::terminal;

use super::document;
use super::options::{LinkShapeOptions, PrecisionOption};
use super::run::tap_problem;
use crate::cli::output::{CliOutput, CommandResult};
use crate::problem::{ExitReason, Problem};

/// Time for a few frames of the slowest presets.
const TIME_MIN: Span = Span::from_ms(500);
/// The number of datagrams is bounded, so that more time shows no more.
const TIME_MAX: Span = Span::from_secs(60);

/// Measure a link with plain sockets: delay, rate, jitter, loss and order against what was requested
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A sender on one side records send times, the kernel on the other side arrival times. Exit code 1 if a
property is off. On a busy machine the link is late, and the result says so.

Examples:
  plumb link check --rate 10mbit --delay 25ms
  plumb link check --preset wifi
  plumb link check --preset lan-1g --precision busy --json")]
pub struct LinkCheckCommand {
    #[command(flatten)]
    shape: LinkShapeOptions,
    /// Approximate duration
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    time: Span,
    /// How to wait for a deadline
    #[arg(long, value_name = "HOW", default_value = "hybrid")]
    precision: PrecisionOption,
}

impl LinkCheckCommand {
    /// Measures the link and prints the result.
    ///
    /// # Errors
    /// An invalid link, no namespaces, no TUN.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let spec = self.shape.spec()?;
        if !(TIME_MIN..=TIME_MAX).contains(&self.time) {
            return Err(Problem::usage(format!("a check cannot take {}", self.time))
                .fix(format!("give --time between {TIME_MIN} and {TIME_MAX}"))
                .into());
        }
        lab::become_root()?;
        let options =
            EmulatorOptions { precision: self.precision.precision(), ..EmulatorOptions::default() };
        let report = check(&spec, options, self.time).map_err(problem)?;
        let document = document(&spec, &report);
        output.show(&document, |style| terminal::link::check(&document, style))?;
        Ok(if document.ok { ExitReason::Success } else { ExitReason::CheckFailed })
    }
}

fn problem(error: LinkCheckError) -> Problem {
    match error {
        LinkCheckError::Spec(error) => error.into(),
        error @ LinkCheckError::TooLong { .. } => Problem::rejected(error),
        LinkCheckError::Taps(error) => tap_problem(error),
        LinkCheckError::Lab(error) => error.into(),
        error => Problem::failure("the check could not be finished").because(error),
    }
}

fn document(spec: &LinkSpec, report: &LinkCheckReport) -> LinkCheckDocument {
    LinkCheckDocument {
        schema: LINK_CHECK_SCHEMA.to_owned(),
        link: spec.to_string(),
        seconds: report.took.as_secs_f64(),
        ok: report.properties.iter().all(|line| line.verdict != Verdict::Fail),
        faithful: report.driver.is_faithful(),
        properties: report.properties.iter().map(property).collect(),
        driver: document::driver(&report.driver),
    }
}

fn property(line: &Property) -> LinkProperty {
    LinkProperty {
        way: line.direction.to_owned(),
        property: line.property.to_owned(),
        status: line.verdict.name().to_owned(),
        asked: line.expected.clone(),
        got: line.measured.clone(),
        note: line.note.clone(),
        numbers: line.numbers.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
    }
}
