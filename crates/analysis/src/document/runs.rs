//! The list of stored runs, `plumb.runs/1`.
//!
//! Left out: anything about what the runs found.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.runs/1";

/// Every run of a store, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunsDocument {
    /// Always `plumb.runs/1`.
    pub schema: String,
    /// The store's file.
    pub store: String,
    /// Newest first.
    pub runs: Vec<RunEntry>,
}

/// One stored run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunEntry {
    /// Short id.
    pub id: String,
    /// Study, experiment or plan.
    pub title: String,
    /// RFC 3339, UTC.
    pub created: String,
    /// `running`, `complete`, `interrupted` or `imported`.
    pub status: String,
    /// Version and commit of the program that measured.
    pub code: String,
    /// Cells planned.
    pub cells: u64,
    /// Blocks measured.
    pub blocks: u64,
}
