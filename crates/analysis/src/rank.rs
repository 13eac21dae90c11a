//! Rank tables: mechanisms in order of their medians, ties marked, beside the published order.
//!
//! Left out: mechanisms between hosts, which the published table ranks too and this program does
//! not measure yet.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Mechanisms ordered by one response at one size, placement and wake mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankTable {
    /// Experiment id.
    pub experiment: String,
    /// `latency`, `throughput` or `throughput.acked`.
    pub response: String,
    /// `ns` or `B/s`.
    pub unit: String,
    /// Message size in bytes.
    pub size: i64,
    /// Placement of both processes.
    pub placement: String,
    /// How the receiver waits.
    pub wake: String,
    /// Best first.
    pub rows: Vec<RankRow>,
    /// The published order at this size, where there is one.
    pub published: Option<PublishedOrder>,
}

/// One mechanism's place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankRow {
    /// Rank, from 1; tied mechanisms share the best rank of their tie.
    pub rank: u32,
    /// Whether the next better or next worse mechanism has the same rank.
    pub tied: bool,
    /// The mechanism.
    pub mechanism: String,
    /// Its median, in the table's unit.
    pub median: f64,
    /// 95 % interval of the median.
    pub ci95: Option<[f64; 2]>,
    /// Cost relative to the first row: 2 is twice as slow.
    pub ratio_to_best: f64,
    /// Its place among the published local mechanisms, from 1.
    pub published_rank: Option<u32>,
    /// Its place among the same mechanisms today, ties sharing the better place.
    pub rank_among_published: Option<u32>,
}

/// A published order and what is left of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PublishedOrder {
    /// Where it was published.
    pub source: String,
    /// The local mechanisms it ranks, best first.
    pub order: Vec<String>,
    /// Each pair of that order, judged today.
    pub relations: Vec<Relation>,
}

/// One published relation, "`faster` beats `slower`", and whether it holds here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Relation {
    /// The mechanism published as the better one.
    pub faster: String,
    /// The mechanism published as the worse one.
    pub slower: String,
    /// `holds`, `does not hold` or `not decided`.
    pub verdict: String,
    /// Cost of `slower` over cost of `faster`: above 1 the published order holds.
    pub ratio: Option<f64>,
    /// 95 % interval of the ratio.
    pub ci95: Option<[f64; 2]>,
}
