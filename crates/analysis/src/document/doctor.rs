//! What this host can and cannot measure, `plumb.doctor/1`.
//!
//! Left out: how it is found out; the host is examined elsewhere.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.doctor/1";

/// The examination of one host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorDocument {
    /// Always `plumb.doctor/1`.
    pub schema: String,
    /// One entry for each thing examined.
    pub checks: Vec<DoctorCheck>,
    /// The machine and its settings, as a run would record them.
    pub machine: BTreeMap<String, String>,
}

/// One thing examined.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DoctorCheck {
    /// Stable id: `clock.tsc`, `io-uring`, …
    pub id: String,
    /// What was examined.
    pub what: String,
    /// `ok`, `limited` or `missing`.
    pub status: String,
    /// What was found.
    pub finding: String,
    /// What that means for measurements; empty when `ok`.
    pub why: String,
    /// The exact command that would mend it, or why nothing can; empty when `ok`.
    pub fix: String,
}
