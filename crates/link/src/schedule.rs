//! A schedule: what a link becomes, and when, as lines of `WHEN CHANGE`: `5s rate=1mbit`, `90s down loss=2%`.
//!
//! Times count from the link's beginning, and each change comes on top of whatever the link is by then. Blank lines and what follows a
//! `#` are passed over. Left out: who looks at the clock.

use plumb_base::time::Span;
use plumb_base::units::quantity::{QuantityError, parse_span};

use crate::spec::LinkSpec;
use crate::text::{Contents, Files, TextError};

/// What a link becomes, and when: in order of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// Not empty.
    pub steps: Vec<Step>,
    /// The link after each step, where nothing else changes it.
    pub links: Vec<LinkSpec>,
    /// What the files contain that the steps name.
    pub contents: Contents,
}

/// One change.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// When, since the beginning.
    pub at: Span,
    /// The change, as [`LinkSpec::changed`] reads it: it comes on top of whatever the link then is.
    pub change: String,
}

/// Why a file is no schedule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// No line with anything in it.
    #[error("the schedule '{file}' is empty; write lines of WHEN CHANGE, as '5s rate=1mbit'")]
    Empty {
        /// Its name.
        file: String,
    },
    /// A line without a change.
    #[error(
        "line {line} of the schedule '{file}' changes nothing; write WHEN CHANGE, as '5s rate=1mbit'"
    )]
    Nothing {
        /// Its name.
        file: String,
        /// From 1.
        line: usize,
    },
    /// A time that cannot be read.
    #[error("line {line} of the schedule '{file}': {error}")]
    Time {
        /// Its name.
        file: String,
        /// From 1.
        line: usize,
        /// Why not.
        error: QuantityError,
    },
    /// A line whose time lies before the one of the line above.
    #[error(
        "line {line} of the schedule '{file}' goes back in time; sort the lines by their times"
    )]
    Backwards {
        /// Its name.
        file: String,
        /// From 1.
        line: usize,
    },
    /// A change that cannot be made.
    #[error("line {line} of the schedule '{file}': {error}")]
    Change {
        /// Its name.
        file: String,
        /// From 1.
        line: usize,
        /// Why not.
        error: Box<TextError>,
    },
}

impl Schedule {
    /// The schedule that a file of this name contains, for a link that begins as `base`.
    ///
    /// # Errors
    /// [`ScheduleError`] names the line.
    pub fn parse(
        file: &str,
        content: &str,
        base: &LinkSpec,
        files: &dyn Files,
    ) -> Result<Self, ScheduleError> {
        let file = || file.to_owned();
        let (mut steps, mut links) = (Vec::<Step>::new(), Vec::<LinkSpec>::new());
        let mut contents = Contents::default();
        for (index, text) in content.lines().enumerate() {
            let line = index + 1;
            let text = text.split('#').next().unwrap_or_default().trim();
            if text.is_empty() {
                continue;
            }
            let Some((when, change)) = text.split_once(char::is_whitespace) else {
                return Err(ScheduleError::Nothing { file: file(), line });
            };
            let at = parse_span(when).map_err(|error| ScheduleError::Time {
                file: file(),
                line,
                error,
            })?;
            if steps.last().is_some_and(|before| at < before.at) {
                return Err(ScheduleError::Backwards { file: file(), line });
            }
            let before = links.last().unwrap_or(base);
            let changed = contents.add(change, files).and_then(|()| {
                let after = before.changed(change, &contents)?;
                before.check_becomes(&after)?;
                Ok(after)
            });
            links.push(changed.map_err(|error| ScheduleError::Change {
                file: file(),
                line,
                error: Box::new(error),
            })?);
            steps.push(Step { at, change: change.trim().to_owned() });
        }
        if steps.is_empty() {
            Err(ScheduleError::Empty { file: file() })
        } else {
            Ok(Self { steps, links, contents })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::NoFiles;

    fn parse(content: &str) -> Result<Schedule, ScheduleError> {
        let base = "rate=10mbit,delay=5ms".parse().expect("a link");
        Schedule::parse("changes", content, &base, &NoFiles)
    }

    #[test]
    fn changes_come_on_top_of_each_other() {
        let schedule =
            parse("# at first\n5s rate=1mbit\n\n90s down loss=2% # and on\n").expect("a schedule");
        let links: Vec<LinkSpec> =
            ["rate=1mbit,delay=5ms", "rate=1mbit,delay=5ms|rate=1mbit,delay=5ms,loss=2%"]
                .map(|text| text.parse().expect("a link"))
                .into();
        assert_eq!(schedule.links, links);
        let step =
            |secs, change: &str| Step { at: Span::from_secs(secs), change: change.to_owned() };
        assert_eq!(schedule.steps, [step(5, "rate=1mbit"), step(90, "down loss=2%")]);
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_its_line() {
        let error = |content| parse(content).expect_err("no schedule").to_string();
        assert!(error("# nothing\n").contains("'changes' is empty"));
        assert!(
            error("5s rate=1mbit\n4s rate=2mbit\n")
                .contains("line 2 of the schedule 'changes' goes back")
        );
        assert!(error("5s\n").contains("line 1"));
        assert!(error("5 rate=1mbit\n").contains("has no unit"));
        assert!(
            error("5s rate=0\n").contains("line 1 of the schedule 'changes': rate: '0' is zero")
        );
        assert!(error("5s hop 2 rate=1mbit\n").contains("from 1"));
        assert!(error("5s preset no-such\n").contains("line 1"));
    }
}
