//! What a check of the store found, `plumb.check/1`.
//!
//! Left out: how the file is checked; the store and the command line do that.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.check/1";

/// Whether every record of a store is whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckDocument {
    /// Always `plumb.check/1`.
    pub schema: String,
    /// The store's file.
    pub store: String,
    /// Runs in it.
    pub runs: u64,
    /// Blocks that could be read.
    pub blocks: u64,
    /// Whether nothing is wrong.
    pub sound: bool,
    /// What is wrong, one line each.
    pub faults: Vec<String>,
}
