//! `plumb link check`: does a link do what it is asked to, measured from outside.
//!
//! Left out: the measuring (`plumb_host::emulate::check`).

use clap::Args;
use plumb_analysis::document::link_check::{LinkCheckDocument, LinkProperty, SCHEMA};
use plumb_base::time::Span;
use plumb_base::units::quantity::parse_span;
use plumb_host::emulate::Options;
use plumb_host::emulate::check::{CheckFault, Line, Outcome, Verdict, check};
use plumb_host::lab;
use plumb_link::spec::LinkSpec;
use plumb_report::terminal;

use super::behind::{of_spec, of_taps};
use super::shape::Shape;
use super::ways::Wait;
use crate::cli::output::{Failure, Output};
use crate::link::account;
use crate::problem::{Exit, Problem};

/// The least that shows anything: a few frames of the slowest presets.
const TIME_MIN: Span = Span::from_ms(500);
/// More shows no more: numbers of datagrams are bounded.
const TIME_MAX: Span = Span::from_secs(60);

/// Measure a link from outside, with plain sockets: delay, rate, jitter, loss and order against what is asked
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
A sender on one side notes when it sends, the kernel on the other when each datagram comes. The exit
code is 1 when a property is off. Where the machine is busy, the link is late and says so.

Examples:
  plumb link check --rate 10mbit --delay 25ms
  plumb link check --preset wifi
  plumb link check --preset lan-1g --precision busy --json")]
pub struct Check {
    #[command(flatten)]
    shape: Shape,
    /// About how long to measure
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_span)]
    time: Span,
    /// How a frame's moment is waited for
    #[arg(long, value_name = "HOW", default_value = "hybrid")]
    precision: Wait,
}

impl Check {
    /// Measures the link, and prints what was found.
    ///
    /// # Errors
    /// No such link, no namespaces, no TUN.
    pub fn perform(self, output: &Output) -> Result<Exit, Failure> {
        let spec = self.shape.spec()?;
        if !(TIME_MIN..=TIME_MAX).contains(&self.time) {
            let what = format!("a check cannot take {}", self.time);
            return Err(Problem::usage(what)
                .fix(format!("give --time between {TIME_MIN} and {TIME_MAX}"))
                .into());
        }
        lab::become_root().map_err(Problem::from)?;
        let options = Options { precision: self.precision.precision(), ..Options::default() };
        let outcome = check(&spec, options, self.time).map_err(problem)?;
        let document = document(&spec, &outcome);
        if output.json {
            output.document(&document)?;
        } else {
            output.page(&terminal::link_check::render(&document, output.style))?;
        }
        Ok(if document.ok { Exit::Fine } else { Exit::Slower })
    }
}

fn problem(fault: CheckFault) -> Problem {
    match fault {
        CheckFault::Spec(error) => of_spec(&error),
        error @ CheckFault::Long { .. } => Problem::from_message(&error.to_string(), Exit::Usage),
        CheckFault::Taps(error) => of_taps(error),
        CheckFault::Lab(error) => error.into(),
        error => Problem::trouble("the check could not be finished").because(error),
    }
}

fn document(spec: &LinkSpec, outcome: &Outcome) -> LinkCheckDocument {
    LinkCheckDocument {
        schema: SCHEMA.to_owned(),
        link: spec.to_string(),
        seconds: outcome.took.as_secs_f64(),
        ok: outcome.lines.iter().all(|line| line.verdict != Verdict::Off),
        faithful: outcome.driver.is_faithful(),
        properties: outcome.lines.iter().map(property).collect(),
        driver: account::driver(&outcome.driver),
    }
}

fn property(line: &Line) -> LinkProperty {
    LinkProperty {
        way: line.way.to_owned(),
        property: line.what.to_owned(),
        status: line.verdict.name().to_owned(),
        asked: line.asked.clone(),
        got: line.got.clone(),
        note: line.note.clone(),
        numbers: line.numbers.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect(),
    }
}
