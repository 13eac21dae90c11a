//! What a user is told when something goes wrong: what happened, why, and how to fix it.
//!
//! Every error of every crate becomes a [`Problem`] before it reaches `main`.

use std::fmt;

pub use plumb_experiments::error::nearest;
use plumb_experiments::error::{ErrorKind, ExperimentError};

/// How the program ends, as the shell sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExitReason {
    /// All went well; of a comparison: no cell is slower.
    Success,
    /// A comparison found a slower cell, or a check failed.
    CheckFailed,
    /// The request itself cannot be met: usage, a bad plan, an unreadable file.
    Usage,
    /// A comparison could not decide.
    Inconclusive,
    /// Trouble while measuring, or with the store.
    Failure,
    /// The user stopped it.
    Interrupted,
    /// As a command that plumb ran for the user did.
    Command(u8),
}

impl ExitReason {
    /// The number given to the shell.
    pub const fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::CheckFailed => 1,
            Self::Usage => 2,
            Self::Inconclusive => 3,
            Self::Failure => 4,
            Self::Interrupted => 130,
            Self::Command(code) => code,
        }
    }
}

/// A failure in the words of the person who has to mend it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What happened, in one line.
    pub what: String,
    /// Why, where that is not plain already.
    pub why: Option<String>,
    /// What to do about it, with the exact command where there is one.
    pub fix: Option<String>,
    /// How the program ends because of it.
    pub exit: ExitReason,
}

impl Problem {
    /// A request that cannot be met as it stands.
    pub fn usage(what: impl Into<String>) -> Self {
        Self { what: what.into(), why: None, fix: None, exit: ExitReason::Usage }
    }

    /// Trouble while measuring, or with the store.
    pub fn failure(what: impl Into<String>) -> Self {
        Self { exit: ExitReason::Failure, ..Self::usage(what) }
    }

    /// A message of another crate, which says what happened before its first semicolon and what to
    /// do about it after.
    pub fn from_message(message: &str, exit: ExitReason) -> Self {
        let (what, rest) = message.split_once("; ").map_or((message, None), |(a, b)| (a, Some(b)));
        Self { what: what.to_owned(), why: None, fix: rest.map(str::to_owned), exit }
    }

    /// The same with its reason.
    #[must_use]
    pub fn because(mut self, why: impl fmt::Display) -> Self {
        self.why = Some(why.to_string());
        self
    }

    /// The same with a way out.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// The same with the nearest of `known` names, or all of them where none is near.
    #[must_use]
    pub fn suggest<'a>(self, text: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let known: Vec<&str> = known.into_iter().collect();
        match nearest(text, known.iter().copied()) {
            Some(name) => self.fix(format!("did you mean '{name}'?")),
            None if known.is_empty() => self,
            None => self.fix(format!("choose from: {}", known.join(", "))),
        }
    }
}

impl From<ExperimentError> for Problem {
    fn from(error: ExperimentError) -> Self {
        let exit = match error.kind {
            ErrorKind::Usage => ExitReason::Usage,
            ErrorKind::Failure => ExitReason::Failure,
            ErrorKind::Interrupted => ExitReason::Interrupted,
        };
        Self { what: error.what, why: error.why, fix: error.fix, exit }
    }
}

impl std::error::Error for Problem {}

impl fmt::Display for Problem {
    /// Up to three lines: `what`, `  why: …`, `  fix: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(why) = &self.why {
            write!(f, "\n  why: {why}")?;
        }
        if let Some(fix) = &self.fix {
            write!(f, "\n  fix: {fix}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_reads_as_what_why_and_fix() {
        let problem = Problem::usage("no such run").because("the store is empty").fix("plumb runs");
        assert_eq!(
            problem.to_string(),
            "no such run\n  why: the store is empty\n  fix: plumb runs"
        );
        assert_eq!(problem.exit.code(), 2);
    }
}
