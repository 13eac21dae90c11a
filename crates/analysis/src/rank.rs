//! Rank tables: mechanisms in order of their medians, ties marked, beside the published order.

use std::collections::BTreeMap;

use plumb_store::record::Better;

use crate::cost_ratio::{CostRatio, within_run};
use crate::document::{PublishedOrder, RankRelation, RankRow, RankTable};
use crate::registry::{MechanismOrder, PublishedRanking, Registry};
use crate::summary::{MeasuredCell, rounded};

/// Costs within this share of each other are practically equal.
const MARGIN: f64 = 0.02;

/// What the mechanisms of one table have in common, in the order of the tables.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct RankKey {
    experiment: String,
    response: String,
    placement: String,
    wake: String,
    size: i64,
}

/// A rank table for every response, size, placement and wake mode with at least two mechanisms.
///
/// A mechanism measured with several congestion controls is ranked by the first of them.
pub fn tables(registry: &Registry, measured: &[MeasuredCell<'_>]) -> Vec<RankTable> {
    let mut groups: BTreeMap<RankKey, BTreeMap<&str, &MeasuredCell<'_>>> = BTreeMap::new();
    for found in measured {
        let factors = &found.cell.factors;
        let (Some(mechanism), Some(size)) = (factors.text("mechanism"), factors.int("size")) else {
            continue;
        };
        let ranking = registry.find(&found.cell.experiment).and_then(|known| known.ranking);
        if ranking.is_none() || found.median().is_nan() {
            continue;
        }
        let key = RankKey {
            experiment: found.cell.experiment.clone(),
            response: found.cell.response.clone(),
            placement: factors.text("placement").unwrap_or("unknown").to_owned(),
            wake: factors.text("wake").unwrap_or("block").to_owned(),
            size,
        };
        groups.entry(key).or_default().entry(mechanism).or_insert(found);
    }
    let several = groups.into_iter().filter(|(_, group)| group.len() > 1);
    several
        .filter_map(|(key, group)| {
            let ranking = registry.find(&key.experiment)?.ranking?;
            Some(rank_table(key, &group, ranking))
        })
        .collect()
}

fn rank_table(
    key: RankKey,
    group: &BTreeMap<&str, &MeasuredCell<'_>>,
    ranking: PublishedRanking,
) -> RankTable {
    let mut ordered: Vec<(&str, &MeasuredCell<'_>, f64)> =
        group.iter().map(|(name, cell)| (*name, *cell, cell.median())).collect();
    ordered.sort_by(|a, b| match a.1.cell.better {
        Better::Lower => a.2.total_cmp(&b.2),
        Better::Higher => b.2.total_cmp(&a.2),
    });
    let order = ranking
        .orders
        .iter()
        .find(|order| order.response == key.response && order.size == key.size);
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
                published_rank: order.and_then(|order| published_rank(order, mechanism)),
                rank_among_published: order
                    .and_then(|order| rank_among_published(order, mechanism, group)),
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
        published: order.map(|order| judge_order(ranking.source, order, group)),
    }
}

/// Ranks of mechanisms in order: each shares the rank of the first of its tie, as long as the
/// interval of its cost over that first one contains 1.
///
/// Ties are against the first, not the neighbour: a chain of neighbours may span a real difference.
fn ranks(ordered: &[(&str, &MeasuredCell<'_>, f64)]) -> Vec<u32> {
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
fn beats(contrast: Option<CostRatio>) -> bool {
    contrast.is_some_and(|contrast| contrast.interval.lo > 1.0)
}

fn published_rank(order: &MechanismOrder, mechanism: &str) -> Option<u32> {
    let index = order.mechanisms.iter().position(|name| *name == mechanism)?;
    u32::try_from(index + 1).ok()
}

/// One more than the number of published mechanisms that beat this one today.
fn rank_among_published(
    order: &MechanismOrder,
    mechanism: &str,
    group: &BTreeMap<&str, &MeasuredCell<'_>>,
) -> Option<u32> {
    published_rank(order, mechanism)?;
    let this = group.get(mechanism)?;
    let others = order.mechanisms.iter().filter(|name| **name != mechanism);
    let better = others
        .filter_map(|name| group.get(name))
        .filter(|other| beats(within_run(other, this)))
        .count();
    u32::try_from(better + 1).ok()
}

fn judge_order(
    source: &str,
    order: &MechanismOrder,
    group: &BTreeMap<&str, &MeasuredCell<'_>>,
) -> PublishedOrder {
    let [first, second, third] = order.mechanisms;
    let relations = [(first, second), (first, third), (second, third)]
        .into_iter()
        .map(|(faster, slower)| {
            let contrast = match (group.get(faster), group.get(slower)) {
                (Some(a), Some(b)) => within_run(a, b),
                _ => None,
            };
            let verdict = match &contrast {
                Some(contrast) if contrast.is_equivalent(MARGIN) => "does not hold",
                Some(contrast) if contrast.interval.lo > 1.0 => "holds",
                Some(contrast) if contrast.interval.hi < 1.0 => "does not hold",
                _ => "not decided",
            };
            RankRelation {
                faster: faster.to_owned(),
                slower: slower.to_owned(),
                verdict: verdict.to_owned(),
                ratio: contrast.as_ref().map(|contrast| rounded(contrast.ratio)),
                ci95: contrast.map(|contrast| contrast.ends().map(rounded)),
            }
        })
        .collect();
    PublishedOrder {
        source: source.to_owned(),
        order: order.mechanisms.map(str::to_owned).to_vec(),
        relations,
    }
}
