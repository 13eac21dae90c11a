//! `plumb link check`: does a link do what it is asked to, measured from outside.

use clap::Args;
use plumb_analysis::document::link_check::{LinkCheckDocument, LinkProperty, SCHEMA};
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_span;
use plumb_link::spec::LinkSpec;
use plumb_netdev::emulator::EmulatorOptions;
use plumb_netdev::emulator::check::{LinkCheckError, LinkCheckReport, Property, Verdict, check};
use plumb_netdev::lab;
use plumb_report::terminal;

use super::options::{LinkShapeOptions, PrecisionOption};
use super::run::{spec_problem, tap_problem};
use crate::cli::output::{CliOutput, CommandError};
use crate::link::document;
use crate::problem::{ExitReason, Problem};

/// The least that shows anything: a few frames of the slowest presets.
const TIME_MIN: Span = Span::from_ms(500);
/// More shows no more: numbers of datagrams are bounded.
const TIME_MAX: Span = Span::from_secs(60);

/// Measure a link with plain sockets: delay, rate, jitter, loss and order against what was requested
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A sender on one side notes when it sends, the kernel on the other when each datagram comes. The exit
code is 1 when a property is off. Where the machine is busy, the link is late and says so.

Examples:
  plumb link check --rate 10mbit --delay 25ms
  plumb link check --preset wifi
  plumb link check --preset lan-1g --precision busy --json")]
pub struct LinkCheckCommand {
    #[command(flatten)]
    shape: LinkShapeOptions,
    /// Approximate duration
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_span)]
    time: Span,
    /// How to wait for a deadline
    #[arg(long, value_name = "HOW", default_value = "hybrid")]
    precision: PrecisionOption,
}

impl LinkCheckCommand {
    /// Measures the link, and prints what was found.
    ///
    /// # Errors
    /// No such link, no namespaces, no TUN.
    pub fn perform(self, output: &CliOutput) -> Result<ExitReason, CommandError> {
        let spec = self.shape.spec()?;
        if !(TIME_MIN..=TIME_MAX).contains(&self.time) {
            let what = format!("a check cannot take {}", self.time);
            return Err(Problem::usage(what)
                .fix(format!("give --time between {TIME_MIN} and {TIME_MAX}"))
                .into());
        }
        lab::become_root().map_err(Problem::from)?;
        let options =
            EmulatorOptions { precision: self.precision.precision(), ..EmulatorOptions::default() };
        let outcome = check(&spec, options, self.time).map_err(problem)?;
        let document = document(&spec, &outcome);
        if output.json {
            output.document(&document)?;
        } else {
            output.page(&terminal::link_check::render(&document, output.style))?;
        }
        Ok(if document.ok { ExitReason::Success } else { ExitReason::CheckFailed })
    }
}

fn problem(fault: LinkCheckError) -> Problem {
    match fault {
        LinkCheckError::Spec(error) => spec_problem(&error),
        error @ LinkCheckError::TooLong { .. } => {
            Problem::from_message(&error.to_string(), ExitReason::Usage)
        }
        LinkCheckError::Taps(error) => tap_problem(error),
        LinkCheckError::Lab(error) => error.into(),
        error => Problem::failure("the check could not be finished").because(error),
    }
}

fn document(spec: &LinkSpec, outcome: &LinkCheckReport) -> LinkCheckDocument {
    LinkCheckDocument {
        schema: SCHEMA.to_owned(),
        link: spec.to_string(),
        seconds: outcome.took.as_secs_f64(),
        ok: outcome.properties.iter().all(|line| line.verdict != Verdict::Fail),
        faithful: outcome.driver.is_faithful(),
        properties: outcome.properties.iter().map(property).collect(),
        driver: document::driver(&outcome.driver),
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
