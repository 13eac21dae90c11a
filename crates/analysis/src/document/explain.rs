//! Where the time of a run's round trips goes, `plumb.explain/1`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::{
    BreakdownSummary, LadderRung, RunDocument, RunHeader, RunTrust, UnavailableCell,
};

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.explain/1";

/// The experiments that an explanation is made of.
#[derive(Clone, Copy, Debug)]
pub struct ExplainedExperiments<'a> {
    /// The one whose cells break round trips between local processes down.
    pub breakdown: &'a str,
    /// The one whose latencies are explained.
    pub latency: &'a str,
}

/// Round trips of a run, each with where its time goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainDocument {
    /// Always `plumb.explain/1`.
    pub schema: String,
    /// The run that is explained.
    pub run: RunHeader,
    /// The run in which the parts were measured: the same one, or one made to explain it.
    pub measured: RunHeader,
    /// Whether the run in which the parts were measured is to be trusted.
    pub trust: RunTrust,
    /// One entry for each mechanism, placement and size.
    pub rungs: Vec<ExplainedCell>,
    /// Where no part of a round trip was measured: what is stored of every rung.
    #[serde(default)]
    pub stored: Vec<LadderRung>,
    /// What could not be broken down, and why.
    pub unavailable: Vec<UnavailableCell>,
}

/// One rung: what it costs, and where that goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExplainedCell {
    /// The stored latency, half a round trip; null where the run has none for this rung.
    pub latency: Option<LatencyEstimate>,
    /// The round trip in parts.
    pub breakdown: BreakdownSummary,
}

/// A stored latency, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyEstimate {
    /// Its median.
    pub median: f64,
    /// 95 % interval of the median over launches.
    pub ci95: Option<[f64; 2]>,
}

/// The document of a run and of the run in which the parts were measured, which may be the same.
pub fn explain(
    experiments: ExplainedExperiments<'_>,
    run: &RunDocument,
    measured: &RunDocument,
) -> ExplainDocument {
    let parts =
        measured.breakdowns.iter().filter(|entry| entry.experiment == experiments.breakdown);
    let rungs = parts.map(|breakdown| ExplainedCell {
        latency: latency(experiments.latency, run, &breakdown.factors),
        breakdown: breakdown.clone(),
    });
    let missing = |cell: &&UnavailableCell| {
        cell.experiment == experiments.breakdown && cell.response == "rtt"
    };
    ExplainDocument {
        schema: SCHEMA.to_owned(),
        run: run.run.clone(),
        measured: measured.run.clone(),
        trust: measured.trust.clone(),
        rungs: rungs.collect(),
        stored: Vec::new(),
        unavailable: measured.unavailable.iter().filter(missing).cloned().collect(),
    }
}

/// The latency at the same mechanism, placement and size, of receivers that block.
fn latency(
    experiment: &str,
    run: &RunDocument,
    factors: &BTreeMap<String, serde_json::Value>,
) -> Option<LatencyEstimate> {
    let agrees = |cell: &&crate::document::CellResult| {
        cell.experiment == experiment
            && cell.response == "latency"
            && cell.factors.get("wake").is_none_or(|wake| wake == "block")
            && ["mechanism", "placement", "size"]
                .iter()
                .all(|name| cell.factors.get(*name) == factors.get(*name))
    };
    let found = run.results.iter().find(agrees)?;
    Some(LatencyEstimate { median: found.summary.median?, ci95: found.summary.ci95 })
}
