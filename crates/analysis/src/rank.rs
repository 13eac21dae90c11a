//! Rank tables: mechanisms in order of their medians, ties marked, beside the published order.
//!
//! Left out: mechanisms between hosts, which the published table ranks too.

use std::collections::BTreeMap;

use plumb_store::record::Better;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::claim::published::{self, ZHAO};
use crate::contrast::{Contrast, within_run};
use crate::summary::{Measured, rounded};

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

/// Experiments whose mechanisms are ranked.
const RANKED: [&str; 2] = ["latency.local", "throughput.local"];

/// Costs within this share of each other are practically equal.
const MARGIN: f64 = 0.02;

/// What the mechanisms of one table have in common, in the order of the tables.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    experiment: String,
    response: String,
    placement: String,
    wake: String,
    size: i64,
}

/// A rank table for every response, size, placement and wake mode with at least two mechanisms.
///
/// A mechanism measured with several congestion controls is ranked by the first of them.
pub fn tables(measured: &[Measured<'_>]) -> Vec<RankTable> {
    let mut groups: BTreeMap<Key, BTreeMap<&str, &Measured<'_>>> = BTreeMap::new();
    for found in measured {
        let factors = &found.cell.factors;
        let (Some(mechanism), Some(size)) = (factors.text("mechanism"), factors.int("size")) else {
            continue;
        };
        if !RANKED.contains(&found.cell.experiment.as_str()) || found.median().is_nan() {
            continue;
        }
        let key = Key {
            experiment: found.cell.experiment.clone(),
            response: found.cell.response.clone(),
            placement: factors.text("placement").unwrap_or("unknown").to_owned(),
            wake: factors.text("wake").unwrap_or("block").to_owned(),
            size,
        };
        groups.entry(key).or_default().entry(mechanism).or_insert(found);
    }
    let several = groups.into_iter().filter(|(_, group)| group.len() > 1);
    several.map(|(key, group)| table(key, &group)).collect()
}

fn table(key: Key, group: &BTreeMap<&str, &Measured<'_>>) -> RankTable {
    let mut ordered: Vec<(&str, &Measured<'_>, f64)> =
        group.iter().map(|(name, cell)| (*name, *cell, cell.median())).collect();
    ordered.sort_by(|a, b| match a.1.cell.better {
        Better::Lower => a.2.total_cmp(&b.2),
        Better::Higher => b.2.total_cmp(&a.2),
    });
    let order = published::order(&key.response, key.size);
    let best = ordered.first().map_or(f64::NAN, |first| first.2);
    let ranks = ranks(&ordered);
    let rows = ordered
        .iter()
        .zip(&ranks)
        .map(|((mechanism, cell, median), rank)| {
            let cost = match cell.cell.better {
                Better::Lower => median / best,
                Better::Higher => best / median,
            };
            RankRow {
                rank: *rank,
                tied: ranks.iter().filter(|other| *other == rank).count() > 1,
                mechanism: (*mechanism).to_owned(),
                median: rounded(*median),
                ci95: cell.interval().map(|i| [rounded(i.lo), rounded(i.hi)]),
                ratio_to_best: rounded(cost),
                published_rank: order.and_then(|order| place(order, mechanism)),
                rank_among_published: order.and_then(|order| among(order, mechanism, group)),
            }
        })
        .collect();
    RankTable {
        experiment: key.experiment,
        unit: ordered.first().map_or_else(String::new, |first| first.1.cell.unit.clone()),
        response: key.response,
        size: key.size,
        placement: key.placement,
        wake: key.wake,
        rows,
        published: order.map(|order| judged(order, group)),
    }
}

/// Ranks of mechanisms in order: each shares the rank of the first of its tie, as long as the
/// interval of its cost over that first one contains 1.
///
/// Ties are against the first, not the neighbour: a chain of neighbours may span a real difference.
fn ranks(ordered: &[(&str, &Measured<'_>, f64)]) -> Vec<u32> {
    let mut ranks: Vec<u32> = Vec::with_capacity(ordered.len());
    let mut first = 0;
    let mut rank = 1;
    for (index, (_, cell, _)) in ordered.iter().enumerate() {
        let apart = index > first && beats(within_run(ordered[first].1, cell));
        if apart {
            first = index;
            rank = u32::try_from(index + 1).unwrap_or(u32::MAX);
        }
        ranks.push(rank);
    }
    ranks
}

/// Whether the second of a contrast costs more, beyond its interval.
fn beats(contrast: Option<Contrast>) -> bool {
    contrast.is_some_and(|contrast| contrast.interval.lo > 1.0)
}

fn place(order: &published::Order, mechanism: &str) -> Option<u32> {
    let index = order.mechanisms.iter().position(|name| *name == mechanism)?;
    u32::try_from(index + 1).ok()
}

/// One more than the number of published mechanisms that beat this one today.
fn among(
    order: &published::Order,
    mechanism: &str,
    group: &BTreeMap<&str, &Measured<'_>>,
) -> Option<u32> {
    place(order, mechanism)?;
    let this = group.get(mechanism)?;
    let others = order.mechanisms.iter().filter(|name| **name != mechanism);
    let better = others
        .filter_map(|name| group.get(name))
        .filter(|other| beats(within_run(other, this)))
        .count();
    u32::try_from(better + 1).ok()
}

fn judged(order: &published::Order, group: &BTreeMap<&str, &Measured<'_>>) -> PublishedOrder {
    let [first, second, third] = order.mechanisms;
    let relations = [(first, second), (first, third), (second, third)]
        .into_iter()
        .map(|(faster, slower)| {
            let contrast = match (group.get(faster), group.get(slower)) {
                (Some(a), Some(b)) => within_run(a, b),
                _ => None,
            };
            let verdict = match contrast {
                Some(contrast) if contrast.is_equivalent(MARGIN) => "does not hold",
                Some(contrast) if contrast.interval.lo > 1.0 => "holds",
                Some(contrast) if contrast.interval.hi < 1.0 => "does not hold",
                _ => "not decided",
            };
            Relation {
                faster: faster.to_owned(),
                slower: slower.to_owned(),
                verdict: verdict.to_owned(),
                ratio: contrast.map(|contrast| rounded(contrast.ratio)),
                ci95: contrast.map(|contrast| contrast.ends().map(rounded)),
            }
        })
        .collect();
    PublishedOrder {
        source: ZHAO.to_owned(),
        order: order.mechanisms.map(str::to_owned).to_vec(),
        relations,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{Synthetic, local};
    use crate::summary::measured;

    fn table_of(medians: &[(&str, f64)], response: &str, size: u64) -> RankTable {
        let mut synthetic = Synthetic::new(1);
        let experiment = if response == "latency" { "latency.local" } else { "throughput.local" };
        for (mechanism, median) in medians {
            let factors = local(mechanism, "same-cpu", size);
            synthetic.measure(experiment, response, factors, *median);
        }
        tables(&measured(&synthetic.data)).remove(0)
    }

    #[test]
    fn mechanisms_whose_ratio_may_be_one_share_a_rank() {
        let medians = [("tcp4", 3000.0), ("pipe", 1000.0), ("fifo", 1001.0), ("udp4", 2000.0)];
        let table = table_of(&medians, "latency", 64);
        let ranks: Vec<(u32, bool)> = table.rows.iter().map(|row| (row.rank, row.tied)).collect();
        assert_eq!(ranks, [(1, true), (1, true), (3, false), (4, false)]);
        assert!((table.rows[3].ratio_to_best - 3.0).abs() < 0.05);
        assert_eq!(table.published, None);
    }

    #[test]
    fn the_published_order_stands_beside_todays_and_each_relation_is_judged() {
        let medians = [("tcp4", 2000.0), ("pipe", 1000.0), ("udp4", 2500.0)];
        let table = table_of(&medians, "latency", 16);
        let published = table.published.unwrap();
        assert_eq!(published.order, ["udp4", "tcp4", "pipe"]);
        let verdicts: Vec<&str> =
            published.relations.iter().map(|relation| relation.verdict.as_str()).collect();
        assert_eq!(verdicts, ["does not hold"; 3]);
        let pipe = &table.rows[0];
        assert_eq!((pipe.published_rank, pipe.rank_among_published), (Some(3), Some(1)));
    }

    #[test]
    fn more_throughput_is_a_better_rank() {
        let medians = [("tcp4", 3e9), ("pipe", 2e9), ("udp4", 1e9)];
        let table = table_of(&medians, "throughput.acked", 65_536);
        let order: Vec<&str> = table.rows.iter().map(|row| row.mechanism.as_str()).collect();
        assert_eq!(order, ["tcp4", "pipe", "udp4"]);
        let relations = table.published.unwrap().relations;
        assert!(relations.iter().all(|relation| relation.verdict == "holds"), "{relations:?}");
        assert!((table.rows[2].ratio_to_best - 3.0).abs() < 0.05);
    }

    #[test]
    fn a_mechanism_that_was_not_measured_leaves_its_relations_open() {
        let table = table_of(&[("tcp4", 2000.0), ("udp4", 1000.0)], "latency", 16);
        let relations = table.published.unwrap().relations;
        let verdicts: Vec<&str> = relations.iter().map(|r| r.verdict.as_str()).collect();
        assert_eq!(verdicts, ["holds", "not decided", "not decided"]);
    }
}
