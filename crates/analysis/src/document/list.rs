//! Lists: of what can be measured, `plumb.list/1`; of the runs of a store, `plumb.runs/1`; and of every testable statement
//! of the documents with what stored runs say about it, `plumb.claims/1`.

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

/// The name of this document's shape.
pub const CLAIMS_SCHEMA: &str = "plumb.claims/1";

/// Every statement, in the order of the documents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimsDocument {
    /// Always `plumb.claims/1`.
    pub schema: String,
    /// The statements that were asked for.
    pub claims: Vec<ClaimRow>,
    /// The same counted, a row a document.
    pub tallies: Vec<ClaimTally>,
}

/// One statement and what is known about it here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimRow {
    /// Stable id: `scaling.entry.lags-processors`.
    pub id: String,
    /// `scaling`, `ipc`, `stack`, `gigabit` or `distributed`.
    pub document: String,
    /// Who says so.
    pub author: String,
    /// Section, table or figure.
    pub place: String,
    /// The statement, in one sentence.
    pub statement: String,
    /// Its numbers, each beside the same quantity here.
    pub figures: Vec<ClaimFigure>,
    /// `holds`, `does not hold`, `not decided`, `not measured`, or `no judge` where no experiment judges it.
    pub verdict: String,
    /// The effect that decided, in words with numbers; empty where nothing was measured.
    pub effect: String,
    /// Ratio, difference or quantity behind the verdict, where there is one.
    pub estimate: Option<f64>,
    /// Its 95 % interval.
    pub ci95: Option<[f64; 2]>,
    /// What the verdict rests on: the id of a run, or `machines` with their number.
    pub basis: String,
    /// When that run began; RFC 3339, UTC. Empty without a run.
    pub measured: String,
    /// The experiment that decides it or is to decide it; `none` where none is planned.
    pub experiment: String,
    /// The command that would decide it, or what is missing; empty where it is decided.
    pub to_decide: String,
    /// Where the judge tests something else than the author states; empty where it does not.
    pub flaw: String,
}

/// A number of a statement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimFigure {
    /// What it is of.
    pub name: String,
    /// The number.
    pub value: f64,
    /// `ns`, `B/s`, `B`, `share`, or as the document has it: `count`, `ratio`, `Hz`, `cycles`.
    pub unit: String,
    /// The same quantity here, in the same unit; null where it was not measured.
    pub here: Option<f64>,
    /// What it is here as a multiple of what it was.
    pub ratio: Option<f64>,
}

/// The statements of one document, by verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClaimTally {
    /// The document.
    pub document: String,
    /// Statements.
    pub claims: u64,
    /// Those that hold here.
    pub hold: u64,
    /// Those that do not.
    pub do_not_hold: u64,
    /// Judged, and not decided.
    pub not_decided: u64,
    /// With a judge, and nothing measured.
    pub not_measured: u64,
    /// Without a judge.
    pub no_judge: u64,
}
