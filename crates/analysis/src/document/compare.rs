//! The comparison document, `plumb.compare/1`.
//!
//! Left out: how the verdicts are reached (`crate::compare`).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.compare/1";

/// Two runs, two sets of runs, or two levels of a factor within one run, compared cell by cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CompareDocument {
    /// Always `plumb.compare/1`.
    pub schema: String,
    /// What stands before: the denominator of every ratio.
    pub a: ComparedSide,
    /// What stands after: the numerator.
    pub b: ComparedSide,
    /// `paired` when both sides were measured interleaved, else `unpaired`.
    pub pairing: String,
    /// What verdicts are about, and intervals are over: `launch`, or `run` where a side has several runs.
    pub replicate: String,
    /// Two cells whose costs differ by less than this share are practically equal: the
    /// equivalence margin, and the least effect that is called faster or slower.
    pub margin: f64,
    /// How intervals and verdicts were made, in words.
    pub method: String,
    /// One entry for each cell that both sides have, in the order of side A.
    pub rows: Vec<ComparedCell>,
    /// Cells that only side A has numbers for.
    pub only_in_a: Vec<CellName>,
    /// Cells that only side B has numbers for.
    pub only_in_b: Vec<CellName>,
    /// How often each verdict was reached.
    pub tally: ComparisonCounts,
    /// Geometric mean of all cost ratios; null when there are none.
    pub geometric_mean: Option<f64>,
    /// `not slower`, `slower` or `inconclusive`.
    pub verdict: String,
    /// 0 no cell slower, 1 some cell slower, 3 inconclusive.
    pub exit_code: u8,
    /// Settings of the machine or the program that differ between the sides.
    pub differences: Vec<SettingDifference>,
    /// What a reader must know before trusting the table.
    pub warnings: Vec<String>,
}

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedSide {
    /// The run; of several, the first one given.
    pub run: String,
    /// Every run of this side.
    pub runs: Vec<String>,
    /// What people call this side: a run's id, `4 runs, FIRST to LAST`, or `wake=spin`.
    pub label: String,
    /// When its run began: RFC 3339, UTC.
    pub created: String,
    /// Version and commit of the program that measured; of several, each of them.
    pub code: String,
}

/// One cell on both sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedCell {
    /// Experiment id.
    pub experiment: String,
    /// Every factor both sides have in common; sizes in bytes.
    pub factors: BTreeMap<String, serde_json::Value>,
    /// What was measured.
    pub response: String,
    /// Unit of the medians.
    pub unit: String,
    /// `lower` or `higher`.
    pub better: String,
    /// Median of side A.
    pub a: MedianEstimate,
    /// Median of side B.
    pub b: MedianEstimate,
    /// Cost of B over cost of A, above 1 is slower whatever the unit; null without replication.
    pub ratio: Option<f64>,
    /// 95 % interval of the ratio, before adjustment for the number of cells.
    pub ci95: Option<[f64; 2]>,
    /// Probability of so large a ratio by chance, adjusted by Holm for the number of cells.
    pub p_adjusted: Option<f64>,
    /// How much slower the machine itself was for B: ratio of the canaries. Null where both sides
    /// were interleaved, where a setting differs, and where there is no canary.
    pub machine: Option<f64>,
    /// `faster`, `slower`, `equivalent` or `inconclusive`.
    pub verdict: String,
    /// Launches a side, beyond those there are, that would probably decide; null when decided or
    /// when no affordable number would. Null where runs are compared.
    pub more_launches: Option<u64>,
    /// The same in runs, where several runs a side are compared.
    pub more_runs: Option<u64>,
    /// Why the verdict is what it is, in one sentence.
    pub why: String,
}

/// A median with its interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MedianEstimate {
    /// The median; null where the sample supports none.
    pub median: Option<f64>,
    /// Its 95 % interval: over launches, or over runs where several are compared.
    pub ci95: Option<[f64; 2]>,
    /// Launches behind it.
    pub launches: u64,
}

/// The name of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CellName {
    /// Experiment id.
    pub experiment: String,
    /// Every factor.
    pub factors: BTreeMap<String, serde_json::Value>,
    /// What was measured.
    pub response: String,
    /// Why the other side has no numbers for it.
    pub reason: String,
}

/// How often each verdict was reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ComparisonCounts {
    /// Cells whose cost fell.
    pub faster: u64,
    /// Cells whose cost rose.
    pub slower: u64,
    /// Cells whose cost is the same within the margin.
    pub equivalent: u64,
    /// Cells that cannot be decided yet.
    pub inconclusive: u64,
}

/// A setting that differs between the sides.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SettingDifference {
    /// The setting: `kernel.release`, `code`, …
    pub key: String,
    /// Its value on side A; null where it was not recorded.
    pub a: Option<String>,
    /// Its value on side B.
    pub b: Option<String>,
}
