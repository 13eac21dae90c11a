//! The end of a command of `plumb stack`: its document or its page, and its exit code.
//!
//! Left out: how pages look (`plumb_report::terminal::stack`).

use plumb_analysis::document::stack::StackDocument;
use plumb_report::terminal;

use crate::cli::output::{Failure, Output};
use crate::problem::{Exit, Problem};
use crate::stack::station::Ended;

/// Prints what came of it, then the trouble that ended it, if any did.
///
/// # Errors
/// That trouble; standard output cannot be written.
pub fn finish(
    document: &StackDocument,
    trouble: Option<Problem>,
    counters: bool,
    output: &Output,
) -> Result<Exit, Failure> {
    if output.json {
        output.document(document)?;
    } else {
        output.page(&terminal::stack::render(document, counters, output.style))?;
    }
    match trouble {
        Some(problem) => Err(problem.into()),
        None => Ok(Exit::Fine),
    }
}

/// The trouble in the end of a run: only a device makes any.
pub fn trouble(ended: Ended) -> Option<Problem> {
    match ended {
        Ended::Device(error) => Some(error.into()),
        Ended::Complete | Ended::Duration | Ended::Interrupted => None,
    }
}
