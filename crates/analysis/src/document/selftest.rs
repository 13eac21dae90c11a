//! The proof of the statistics on this machine, `plumb.selftest/1` (rule 19).
//!
//! Left out: how the trials are made.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.selftest/1";

/// The outcome of a self-test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelftestDocument {
    /// Always `plumb.selftest/1`.
    pub schema: String,
    /// Version and commit of the program.
    pub code: String,
    /// Seed of every random choice.
    pub seed: u64,
    /// Wall time it took, in seconds.
    pub seconds: f64,
    /// Whether every check passed.
    pub passed: bool,
    /// One entry for each check.
    pub checks: Vec<SelftestCheck>,
}

/// One check: a number that must lie within bounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SelftestCheck {
    /// Stable id: `aa.false-verdicts`, `coverage.normal`, `injected.1us`, …
    pub id: String,
    /// What is asserted, in one sentence.
    pub claim: String,
    /// Trials made.
    pub trials: u64,
    /// What was observed: a rate, or a difference in `unit`.
    pub observed: f64,
    /// Interval of what was observed: binomial for rates.
    pub ci95: Option<[f64; 2]>,
    /// Bounds that it must lie within.
    pub bounds: [f64; 2],
    /// Unit of the above: `share` or `ns`.
    pub unit: String,
    /// Whether it does.
    pub passed: bool,
    /// What a reader must know; may be empty.
    pub note: String,
}
