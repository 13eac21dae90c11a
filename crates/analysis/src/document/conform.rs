//! What became of conformance scripts, `plumb.conform/1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.conform/1";

/// One run of `plumb stack conform`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConformDocument {
    /// Always `plumb.conform/1`.
    pub schema: String,
    /// Scripts that passed.
    pub passed: u64,
    /// Scripts that failed or are malformed.
    pub failed: u64,
    /// Scripts that need what is not there.
    pub unsupported: u64,
    /// One entry for each script.
    pub scripts: Vec<ConformScript>,
}

/// What became of one script.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConformScript {
    /// Its path.
    pub file: String,
    /// `passed`, `failed`, `unsupported` or `malformed`.
    pub outcome: String,
    /// Line of the event at which it ended, from 1; null if it passed.
    pub line: Option<u32>,
    /// Column, from 1; null if it passed.
    pub column: Option<u32>,
    /// What was expected and what came, or what it needs; empty if it passed.
    pub reason: String,
}
