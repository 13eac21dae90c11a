//! A schedule that is kept: the link becomes what each line says when its time has come.
//!
//! Left out: reading the lines (`plumb_link::schedule`).

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use plumb_host::clock::monotonic_ns;
use plumb_link::schedule::Schedule;
use plumb_link::spec::LinkSpec;
use plumb_link::text::Files;

use super::control::Asked;
use super::course::Talk;
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

/// Keeps it, on a thread of its own that ends with the link or the last line. A change that the
/// link refuses is left out: it was possible when the schedule was read.
///
/// # Errors
/// There are no more threads.
pub fn keep(schedule: Schedule, asked: Arc<Asked>, talk: Box<dyn Talk>) -> io::Result<()> {
    let began_ns = monotonic_ns();
    let keep = move || {
        for step in schedule.steps {
            let gone_ns = monotonic_ns() - began_ns;
            #[expect(clippy::disallowed_methods, reason = "nothing but the clock is waited for")]
            std::thread::sleep(Duration::from_nanos(step.at.as_ns().saturating_sub(gone_ns)));
            asked.set(&*talk, step.spec).ok();
        }
    };
    std::thread::Builder::new().name("schedule".to_owned()).spawn(keep).map(drop)
}
