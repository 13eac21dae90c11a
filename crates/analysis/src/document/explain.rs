//! Where the time of a run's round trips goes, `plumb.explain/1`.
//!
//! Left out: the measuring of the parts, and the results of the run that is explained.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::breakdown::Breakdown;
use crate::document::{RunDocument, RunHeader, Trust, Unavailable};

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.explain/1";

/// The experiment whose cells break round trips between local processes down.
pub const EXPERIMENT: &str = "breakdown.local";

/// The experiment whose latencies are explained.
const LATENCY: &str = "latency.local";

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
    pub trust: Trust,
    /// One entry for each mechanism, placement and size.
    pub rungs: Vec<Explained>,
    /// What could not be broken down, and why.
    pub unavailable: Vec<Unavailable>,
}

/// One rung: what it costs, and where that goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Explained {
    /// The stored latency, half a round trip; null where the run has none for this rung.
    pub latency: Option<Latency>,
    /// The round trip in parts.
    pub breakdown: Breakdown,
}

/// A stored latency, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Latency {
    /// Its median.
    pub median: f64,
    /// 95 % interval of the median over launches.
    pub ci95: Option<[f64; 2]>,
}

/// The document of a run and of the run in which the parts were measured, which may be the same.
pub fn explain(run: &RunDocument, measured: &RunDocument) -> ExplainDocument {
    let parts = measured.breakdowns.iter().filter(|entry| entry.experiment == EXPERIMENT);
    let rungs = parts.map(|breakdown| Explained {
        latency: latency(run, &breakdown.factors),
        breakdown: breakdown.clone(),
    });
    let missing = |cell: &&Unavailable| cell.experiment == EXPERIMENT && cell.response == "rtt";
    ExplainDocument {
        schema: SCHEMA.to_owned(),
        run: run.run.clone(),
        measured: measured.run.clone(),
        trust: measured.trust.clone(),
        rungs: rungs.collect(),
        unavailable: measured.unavailable.iter().filter(missing).cloned().collect(),
    }
}

/// The latency at the same mechanism, placement and size, of receivers that block.
fn latency(run: &RunDocument, factors: &BTreeMap<String, serde_json::Value>) -> Option<Latency> {
    let agrees = |cell: &&crate::document::CellResult| {
        cell.experiment == LATENCY
            && cell.response == "latency"
            && cell.factors.get("wake").is_none_or(|wake| wake == "block")
            && ["mechanism", "placement", "size"]
                .iter()
                .all(|name| cell.factors.get(*name) == factors.get(*name))
    };
    let found = run.results.iter().find(agrees)?;
    Some(Latency { median: found.summary.median?, ci95: found.summary.ci95 })
}
