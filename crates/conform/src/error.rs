//! Why a script cannot be run, and where it says so.

use std::fmt;

use thiserror::Error;

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
