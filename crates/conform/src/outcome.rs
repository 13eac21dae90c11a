//! What became of a script.

use crate::error::{ScriptError, ScriptPosition};

/// What became of a script.
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
