//! What happened to a script, and why one cannot be run.

use std::fmt;

use thiserror::Error;

/// What happened to a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptOutcome {
    /// Everything was as it expects.
    Passed,
    /// Something was not.
    Failed {
        /// The event.
        at: ScriptPosition,
        /// What was expected, and what came.
        reason: String,
    },
    /// It needs what this interpreter or the stack does not have.
    Unsupported {
        /// Where.
        at: ScriptPosition,
        /// What it needs.
        what: String,
    },
    /// It is not in the language.
    Malformed {
        /// Where.
        at: ScriptPosition,
        /// What is wrong.
        reason: String,
    },
}

impl From<ScriptError> for ScriptOutcome {
    fn from(error: ScriptError) -> Self {
        match error {
            ScriptError::Syntax { at, reason } => Self::Malformed { at, reason },
            ScriptError::Unsupported { at, what } => Self::Unsupported { at, what },
        }
    }
}

/// A place in a script; both count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScriptPosition {
    /// Line.
    pub line: u32,
    /// Column, in characters.
    pub column: u32,
}

impl fmt::Display for ScriptPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Why a script cannot be run.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ScriptError {
    /// It is not in packetdrill's language.
    #[error("{at}: syntax error: {reason}")]
    Syntax {
        /// Where.
        at: ScriptPosition,
        /// What was expected, and what is there.
        reason: String,
    },
    /// It needs something that this interpreter does not have.
    #[error("{at}: unsupported: {what}")]
    Unsupported {
        /// Where.
        at: ScriptPosition,
        /// What it needs.
        what: String,
    },
}
