//! Errors as the user sees them: what happened, why, and how to fix it.
//!
//! Every error of every crate becomes a [`Problem`] before it reaches `main`.

use std::fmt;

pub use plumb_experiments::error::nearest;
use plumb_experiments::error::{ErrorKind, ExperimentError};
use plumb_link::spec::SpecError;
use plumb_link::text::TextError;
use plumb_netdev::emulator::control_socket::LinkControlError;
use plumb_netdev::emulator::running_link::RunningLinkError;
use plumb_netdev::host::services::ServiceOpenError;
use plumb_netdev::lab::{LabError, RegistryError};
use plumb_stack::tcp::TcpOpenError;
use plumb_stack::udp::BindError;

/// Reason of the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExitReason {
    /// Success; of a comparison: no cell is slower.
    Success,
    /// A comparison found a slower cell, or a check failed.
    CheckFailed,
    /// Invalid request: usage, a bad plan, an unreadable file.
    Usage,
    /// A comparison was inconclusive.
    Inconclusive,
    /// A measurement or the store failed.
    Failure,
    /// Interrupted by the user.
    Interrupted,
    /// Exit code of the user's command that plumb ran.
    Command(u8),
}

impl ExitReason {
    /// The exit code.
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

/// An error with its reason and its fix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// What happened, in one line.
    pub what: String,
    /// Why, if `what` does not say so.
    pub why: Option<String>,
    /// What to do about it, with the exact command if there is one.
    pub fix: Option<String>,
    /// The exit code that it causes.
    pub exit: ExitReason,
}

impl Problem {
    /// An invalid request.
    pub fn usage(what: impl Into<String>) -> Self {
        Self { what: what.into(), why: None, fix: None, exit: ExitReason::Usage }
    }

    /// A failed measurement or store.
    pub fn failure(what: impl Into<String>) -> Self {
        Self { exit: ExitReason::Failure, ..Self::usage(what) }
    }

    /// A message of another crate: what happened before the first semicolon, what to do about it after.
    pub fn from_message(message: &str, exit: ExitReason) -> Self {
        let (what, rest) = message.split_once("; ").map_or((message, None), |(a, b)| (a, Some(b)));
        Self { what: what.to_owned(), why: None, fix: rest.map(str::to_owned), exit }
    }

    /// The message of an error that is a failure.
    pub fn failed(error: impl fmt::Display) -> Self {
        Self::from_message(&error.to_string(), ExitReason::Failure)
    }

    /// The message of an error that rejects the request.
    pub fn rejected(error: impl fmt::Display) -> Self {
        Self::from_message(&error.to_string(), ExitReason::Usage)
    }

    /// Adds the reason.
    #[must_use]
    pub fn because(mut self, why: impl fmt::Display) -> Self {
        self.why = Some(why.to_string());
        self
    }

    /// Adds the fix.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// Suggests the nearest of the `known` names, or lists all of them if none is near.
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

impl From<SpecError> for Problem {
    fn from(error: SpecError) -> Self {
        Self::rejected(error)
    }
}

impl From<TextError> for Problem {
    fn from(error: TextError) -> Self {
        Self::rejected(error)
    }
}

impl From<RegistryError> for Problem {
    fn from(error: RegistryError) -> Self {
        Self::rejected(error)
    }
}

impl From<RunningLinkError> for Problem {
    fn from(error: RunningLinkError) -> Self {
        let problem = Self::failure(error.to_string());
        match error {
            RunningLinkError::Spec(error) => error.into(),
            RunningLinkError::Start(error) => problem.because(error),
            RunningLinkError::Ended(why) => {
                problem.because(why).fix("later frames were lost: run it again")
            }
        }
    }
}

impl From<LinkControlError> for Problem {
    fn from(error: LinkControlError) -> Self {
        let problem = Self::rejected(&error);
        match error {
            LinkControlError::Silent(why) => Self { exit: ExitReason::Failure, ..problem }
                .because(why)
                .fix("it may be ending: 'plumb link list' shows running links"),
            LinkControlError::Refused(_) => problem,
        }
    }
}

impl From<LabError> for Problem {
    fn from(error: LabError) -> Self {
        Self::failed(error)
    }
}

impl From<BindError> for Problem {
    fn from(error: BindError) -> Self {
        Self::rejected(error)
    }
}

impl From<TcpOpenError> for Problem {
    fn from(error: TcpOpenError) -> Self {
        Self::rejected(error)
    }
}

impl From<ServiceOpenError> for Problem {
    fn from(error: ServiceOpenError) -> Self {
        Self::rejected(error)
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
