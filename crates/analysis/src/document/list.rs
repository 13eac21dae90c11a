//! Lists: of what can be measured, `plumb.list/1`, and of the runs of a store, `plumb.runs/1`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of this document's shape.
pub const LIST_SCHEMA: &str = "plumb.list/1";

/// What can be measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ListDocument {
    /// Always `plumb.list/1`.
    pub schema: String,
    /// Every study.
    pub studies: Vec<StudyEntry>,
    /// Every experiment.
    pub experiments: Vec<ExperimentEntry>,
    /// Every mechanism.
    pub mechanisms: Vec<MechanismEntry>,
}

/// A set of experiments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StudyEntry {
    /// Id: `ladder`, `ipc`.
    pub id: String,
    /// What it asks.
    pub question: String,
    /// Its experiments.
    pub experiments: Vec<String>,
}

/// One experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExperimentEntry {
    /// Id.
    pub id: String,
    /// Study it belongs to.
    pub study: String,
    /// What it asks.
    pub question: String,
    /// The expectation it tests, in terms of its factors and responses.
    pub hypothesis: String,
    /// What is varied.
    pub factors: Vec<FactorEntry>,
    /// What is measured.
    pub responses: Vec<ResponseEntry>,
    /// Ids and sentences of the published claims it re-tests.
    pub claims: BTreeMap<String, String>,
}

/// What is varied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FactorEntry {
    /// Its name, as `--set` takes it.
    pub name: String,
    /// What it means.
    pub meaning: String,
    /// Preset (`quick`, `default`, `paper`) → levels, spelt as `--set` takes them.
    pub levels: BTreeMap<String, Vec<String>>,
}

/// What is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ResponseEntry {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// `lower` or `higher`.
    pub better: String,
}

/// One mechanism.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MechanismEntry {
    /// Its name, as `--set mechanism=` takes it.
    pub name: String,
    /// One line for people.
    pub summary: String,
    /// `stream`, `messages` or `fixed`.
    pub carries: String,
    /// The only size it can carry, in bytes, when that is fixed.
    pub size: Option<u64>,
    /// Ways a receiver can wait for it.
    pub wakes: Vec<String>,
}

/// The name of this document's shape.
pub const RUNS_SCHEMA: &str = "plumb.runs/1";

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
