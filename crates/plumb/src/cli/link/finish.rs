//! What is printed when a link has ended: its document or its page, to where that was asked for.
//!
//! Left out: how pages look (`plumb_report::terminal::link`).

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

use plumb_analysis::document::link::LinkDocument;
use plumb_report::terminal;

use crate::cli::output::{Failure, Output};
use crate::problem::{Exit, Problem};

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub struct Finish<'a> {
    /// The page, whatever it says.
    pub stats: bool,
    /// A file for the document.
    pub report: Option<&'a Path>,
}

/// Whether a document can be written there, found out before there is one.
///
/// # Errors
/// It cannot.
pub fn check_writable(path: &Path) -> Result<(), Problem> {
    let opened = OpenOptions::new().append(true).create(true).open(path);
    opened.map(drop).map_err(|error| Problem { exit: Exit::Usage, ..not_written(path, error) })
}

fn not_written(path: &Path, error: io::Error) -> Problem {
    Problem::trouble(format!("cannot write {}", path.display()))
        .because(error)
        .fix("name a file in a directory that exists and may be written to")
}

/// Prints it; the page also where the link was not what it said, which nobody should have to ask
/// for.
///
/// # Errors
/// The file or standard output cannot be written.
pub fn finish(
    document: &LinkDocument,
    wishes: &Finish<'_>,
    output: &Output,
) -> Result<(), Failure> {
    if let Some(path) = wishes.report {
        let text = serde_json::to_string_pretty(document).map_err(io::Error::from);
        text.and_then(|text| std::fs::write(path, text + "\n"))
            .map_err(|error| not_written(path, error))?;
    }
    if output.json {
        output.document(document)?;
    } else if wishes.stats || !document.faithful || !document.flags.is_empty() || document.left > 0
    {
        output
            .remark(terminal::link::render(document, wishes.stats, output.style_stderr).trim_end());
    }
    Ok(())
}
