//! What plumb says about itself and its host: an agent, `plumb.agent/1` and `plumb.pair/1`; what was found out about the host,
//! `plumb.doctor/1`; its statistics here, `plumb.selftest/1` (rule 19); and a store, `plumb.check/1`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of an agent's shape.
pub const AGENT_SCHEMA: &str = "plumb.agent/1";
/// The name of a pairing's shape.
pub const PAIR_SCHEMA: &str = "plumb.pair/1";

/// An agent that listens: what a program that starts one needs to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AgentDocument {
    /// Always `plumb.agent/1`.
    pub schema: String,
    /// `listen` for the daemon, `http` for the web server.
    pub mode: String,
    /// The address and port that it listens on.
    pub address: String,
    /// The fingerprint of its certificate.
    pub fingerprint: String,
    /// The token of a pairing, where one was asked for.
    pub token: Option<String>,
}

/// Two hosts that got to know each other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PairDocument {
    /// Always `plumb.pair/1`.
    pub schema: String,
    /// The agent, with its port.
    pub agent: String,
    /// The fingerprint of its certificate.
    pub fingerprint: String,
}

/// The name of this document's shape.
pub const DOCTOR_SCHEMA: &str = "plumb.doctor/1";

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

/// The name of this document's shape.
pub const SELFTEST_SCHEMA: &str = "plumb.selftest/1";

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

/// The name of this document's shape.
pub const STORE_CHECK_SCHEMA: &str = "plumb.check/1";

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
