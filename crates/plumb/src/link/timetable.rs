//! A schedule from a file.
//!
//! Left out: understanding its lines (`plumb_link::schedule`), and keeping it (`plumb_link::steered`).

use std::path::Path;

use plumb_link::schedule::Schedule;
use plumb_link::spec::LinkSpec;
use plumb_link::text::Files;

use crate::problem::{Exit, Problem};

/// Reads a schedule for a link that begins as `base`.
///
/// # Errors
/// The file cannot be read, or a line of it.
pub fn read(path: &Path, base: &LinkSpec, files: &dyn Files) -> Result<Schedule, Problem> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Problem::usage(format!("cannot read the schedule {}", path.display()))
            .because(error)
            .fix("name a file with lines like '5s rate=1mbit'")
    })?;
    Schedule::parse(&path.to_string_lossy(), &text, base, files)
        .map_err(|error| Problem::from_message(&error.to_string(), Exit::Usage))
}
