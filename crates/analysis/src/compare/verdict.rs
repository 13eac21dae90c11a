//! From a contrast to one of four verdicts, in words.
//!
//! Two runs that were measured apart differ by whatever happened to the machine in between: its frequency, and neighbours
//! on the same core. The canary (rule 10) sees both, and a difference of cost that the canary shares is not the subject's.
//! It is not corrected for: how much of it affects a subject is unknown.

use plumb_base::stats::hierarchy::SampleHierarchy;
use plumb_base::stats::rank::mann_whitney;
use plumb_base::stats::{means, quantile};
use plumb_base::units::significant;
use plumb_store::record::{Better, Cell};

use super::Replicate;
use crate::cost_ratio::{self, BlockPairs, CostRatio, LaunchPairing};
use crate::document::compare::{ComparedCell, MedianEstimate};
use crate::summary::{self, MeasuredCell, MeasuredLaunch};

/// Chance of a false verdict that is accepted, for the whole table.
pub const SIGNIFICANCE: f64 = 0.05;

/// What a comparison found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparisonVerdict {
    /// The cost fell by at least the margin.
    Faster,
    /// The cost rose by at least the margin.
    Slower,
    /// The costs are equal within the margin.
    Equivalent,
    /// None of these is shown.
    Inconclusive {
        /// Whether the interval reaches beyond the margin on the slow side.
        may_be_slower: bool,
    },
}

impl ComparisonVerdict {
    const fn name(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Equivalent => "equivalent",
            Self::Inconclusive { .. } => "inconclusive",
        }
    }
}

/// What a difference must clear to become a verdict.
#[derive(Clone, Copy, Debug)]
pub struct VerdictThresholds {
    /// The probability, adjusted for all cells.
    pub p_adjusted: Option<f64>,
    /// Costs that differ by less than this share are practically equal.
    pub margin: f64,
    /// How much slower the machine was for B, where that is no part of what is compared.
    pub slowdown: Option<f64>,
    /// Whether the launches of a side are not independent, so that no interval over them holds.
    pub has_drift: bool,
}

/// One cell on both sides, in each run that measured it: one a side unless runs are what is replicated.
#[derive(Clone, Copy, Debug)]
pub struct CellPair<'a> {
    /// Before; at least one.
    pub a: &'a [&'a MeasuredCell<'a>],
    /// After; at least one.
    pub b: &'a [&'a MeasuredCell<'a>],
}

impl CellPair<'_> {
    /// Whether launches of one side resemble the ones before them.
    pub fn has_drift(self) -> bool {
        self.a.iter().chain(self.b).any(|cell| cell.has_drift())
    }

    /// The launches of the run that has the fewest.
    pub fn launches(self) -> usize {
        self.a.iter().chain(self.b).map(|cell| cell.launches.len()).min().unwrap_or(0)
    }

    /// How much slower the machine was for B than for A: the ratio of their canaries, each launch with
    /// equal weight. `None` where one side has none.
    pub fn slowdown(self) -> Option<f64> {
        let (left, right) = (canaries(self.a), canaries(self.b));
        let least = left.iter().chain(&right).copied().fold(f64::INFINITY, f64::min);
        let mean = |side: &[f64]| {
            let steady = side.iter().filter(|canary| **canary <= INTERRUPTED * least);
            means::geometric(&steady.copied().collect::<Vec<_>>())
        };
        Some(mean(&right)? / mean(&left)?)
    }

    /// `; 2 of 10 launches of A lie 20% above the others`, where they do.
    fn groups(self) -> String {
        let side = |name: &str, cells: &[&MeasuredCell<'_>]| -> String {
            let [cell] = cells else { return String::new() };
            let found = cell.launch_groups().map(summary::groups_in_words);
            found.map_or_else(String::new, |groups| format!("; {name}: {groups}"))
        };
        side("A", self.a) + &side("B", self.b)
    }
}

/// The canary of each launch.
fn canaries(side: &[&MeasuredCell<'_>]) -> Vec<f64> {
    let each = |launch: &MeasuredLaunch<'_>| {
        let heard: Vec<f64> = launch.blocks.iter().map(|block| block.effort.canary_ns).collect();
        quantile::of_sorted(&quantile::sorted(&heard), 0.5)
    };
    let launches = side.iter().flat_map(|cell| &cell.launches);
    launches.map(each).filter(|canary| *canary > 0.0).collect()
}

/// The median of each launch, or of each run.
fn replicates(side: &[&MeasuredCell<'_>], replicate: Replicate) -> Vec<f64> {
    match replicate {
        Replicate::Run => side.iter().map(|run| run.median()).collect(),
        Replicate::PairedLaunch | Replicate::UnpairedLaunch => {
            side.iter().flat_map(|cell| cell.hierarchy.launch_medians()).collect()
        }
    }
}

fn median(values: &[f64]) -> f64 {
    quantile::of_sorted(&quantile::sorted(values), 0.5)
}

/// The median of one side, over its launches or over its runs.
fn estimate(side: &[&MeasuredCell<'_>], replicate: Replicate) -> MedianEstimate {
    let interval = match side {
        [cell] => cell.interval(),
        runs => {
            let medians = runs.iter().map(|run| vec![vec![run.median()]]).collect();
            SampleHierarchy::new(medians).median_interval(summary::CONFIDENCE)
        }
    };
    let middle = Some(median(&replicates(side, replicate))).filter(|median| median.is_finite());
    MedianEstimate {
        median: middle.map(summary::rounded),
        ci95: interval.map(|i| [summary::rounded(i.lo), summary::rounded(i.hi)]),
        launches: side.iter().map(|cell| cell.launches.len() as u64).sum(),
    }
}

/// Two cells before the verdict.
#[derive(Clone, Debug)]
pub enum CellComparison {
    /// A ratio with its interval.
    Ratio(CostRatio),
    /// Every launch (or run) of both sides has the same median.
    Identical,
    /// A median is zero, so there is no ratio: medians by rank instead.
    Ranked {
        /// Mann–Whitney.
        p: f64,
        /// Rise of the cost from A to B, in the cell's unit.
        rise: f64,
        /// The smaller one of both medians: a margin is a share of it.
        least: f64,
    },
    /// Too few launches or runs on one side.
    TooFew {
        /// How many each side has.
        has: (usize, usize),
        /// How many each side needs.
        needed: usize,
    },
}

impl CellComparison {
    /// Estimates what can be estimated.
    pub fn new(pair: CellPair<'_>, replicate: Replicate) -> Self {
        let ratio = match (replicate, pair.a, pair.b) {
            (Replicate::Run, a, b) => cost_ratio::ratio_of_runs(a, b),
            (Replicate::PairedLaunch, [a, ..], [b, ..]) => {
                cost_ratio::cost_ratio(a, b, LaunchPairing::Paired)
            }
            (Replicate::UnpairedLaunch, [a, ..], [b, ..]) => {
                cost_ratio::cost_ratio(a, b, LaunchPairing::Unpaired)
            }
            _ => None,
        };
        if let Some(ratio) = ratio {
            return Self::Ratio(ratio);
        }
        let (left, right) = (replicates(pair.a, replicate), replicates(pair.b, replicate));
        let has = (left.len(), right.len());
        if has.0.min(has.1) < replicate.needed() {
            return Self::TooFew { has, needed: replicate.needed() };
        }
        let first = left[0];
        if left.iter().chain(&right).all(|median| median.total_cmp(&first).is_eq()) {
            return Self::Identical;
        }
        let (before, after) = (median(&left), median(&right));
        let is_cost = pair.a.first().is_none_or(|a| a.cell.better == Better::Lower);
        let rise = if is_cost { after - before } else { before - after };
        let least = before.abs().min(after.abs());
        Self::Ranked { p: mann_whitney(&left, &right).p, rise, least }
    }

    /// The least probability that so many launches or runs can give a ratio.
    pub fn least_p(&self) -> Option<f64> {
        match self {
            Self::Ratio(ratio) => Some(ratio.least_p()),
            _ => None,
        }
    }

    /// The probability, were the costs equal within `margin`, that takes part in the adjustment.
    pub fn p(&self, margin: f64) -> Option<f64> {
        match self {
            Self::Ratio(contrast) => Some(contrast.p_beyond(margin)),
            Self::Ranked { p, .. } => Some(*p),
            Self::Identical | Self::TooFew { .. } => None,
        }
    }

    /// The verdict and the row of the table.
    pub fn row(
        self,
        cell: &Cell,
        pair: CellPair<'_>,
        replicate: Replicate,
        bar: VerdictThresholds,
    ) -> (ComparisonVerdict, ComparedCell) {
        let (verdict, mut why, more) = self.judge(replicate, bar);
        let contrast = match &self {
            Self::Ratio(contrast) => Some(contrast),
            _ => None,
        };
        why += &contrast.map_or_else(String::new, |contrast| left_out(contrast.blocks));
        why += &pair.groups();
        let (more_launches, more_runs) =
            if replicate == Replicate::Run { (None, more) } else { (more, None) };
        let row = ComparedCell {
            experiment: cell.experiment.clone(),
            factors: summary::factors(cell),
            response: cell.response.clone(),
            unit: cell.unit.clone(),
            better: summary::direction(cell.better).to_owned(),
            a: estimate(pair.a, replicate),
            b: estimate(pair.b, replicate),
            ratio: contrast.map(|contrast| summary::rounded(contrast.ratio)),
            ci95: contrast.map(|contrast| contrast.ends().map(summary::rounded)),
            p_adjusted: bar.p_adjusted.map(summary::rounded),
            machine: bar.slowdown.map(summary::rounded),
            verdict: verdict.name().to_owned(),
            more_launches,
            more_runs,
            why,
        };
        (verdict, row)
    }

    fn judge(
        &self,
        replicate: Replicate,
        bar: VerdictThresholds,
    ) -> (ComparisonVerdict, String, Option<u64>) {
        let p = bar.p_adjusted.unwrap_or(1.0);
        match self {
            Self::Ratio(_) if bar.has_drift => (
                ComparisonVerdict::Inconclusive { may_be_slower: true },
                "launches resemble the ones before them, so their interval is too short: interleave with plumb ab"
                    .to_owned(),
                None,
            ),
            Self::Ratio(contrast) => judge_ratio(contrast, p, bar),
            Self::Identical => (
                ComparisonVerdict::Equivalent,
                format!("every {} of both sides is the same", replicate.name()),
                None,
            ),
            Self::Ranked { rise, least, .. }
                if p < SIGNIFICANCE && rise.abs() > bar.margin * *least =>
            {
                let verdict =
                    if *rise > 0.0 { ComparisonVerdict::Slower } else { ComparisonVerdict::Faster };
                let by = significant(rise.abs(), 2);
                (
                    verdict,
                    format!("a median is zero; its difference of {by} is shown by rank"),
                    None,
                )
            }
            Self::Ranked { .. } => (
                ComparisonVerdict::Inconclusive { may_be_slower: true },
                "a median is zero, so there is no ratio, and the ranks do not decide".to_owned(),
                None,
            ),
            Self::TooFew { has: (a, b), needed } => (
                ComparisonVerdict::Inconclusive { may_be_slower: true },
                format!("needs at least {needed} {} a side; has {a} and {b}", replicate.plural()),
                Some(needed.saturating_sub(*a.min(b)) as u64),
            ),
        }
    }
}

fn judge_ratio(
    contrast: &CostRatio,
    p: f64,
    bar: VerdictThresholds,
) -> (ComparisonVerdict, String, Option<u64>) {
    let margin = bar.margin;
    let within = percent(margin);
    if contrast.is_equivalent(margin) {
        return (
            ComparisonVerdict::Equivalent,
            format!("the 90% interval lies within ±{within}"),
            None,
        );
    }
    if p < SIGNIFICANCE {
        let slower = contrast.ratio > 1.0;
        if let Some(slowdown) = bar.slowdown.filter(|by| explains(*by, contrast.ratio)) {
            let by = percent(slowdown.ln().abs().exp_m1());
            let word = if slower { "slower" } else { "faster" };
            let why = format!(
                "the machine itself was {by} {word} meanwhile (canary): interleave with plumb ab"
            );
            // On the machine as it was before, the cost may be all of the machine's gain higher.
            let may_be_slower = slower || contrast.interval.hi / slowdown > 1.0 + margin;
            return (ComparisonVerdict::Inconclusive { may_be_slower }, why, None);
        }
        let verdict = if slower { ComparisonVerdict::Slower } else { ComparisonVerdict::Faster };
        let by = percent((contrast.ratio.ln().abs()).exp_m1());
        let word = if slower { "above" } else { "below" };
        return (verdict, format!("the cost is {by} {word}, beyond the margin of {within}"), None);
    }
    let why = if contrast.p_beyond(margin) < SIGNIFICANCE {
        format!("beyond ±{within}, but not after adjustment for all cells (p = {p:.2})")
    } else if contrast.excludes_one() {
        format!("the costs differ, but not surely by more than ±{within}")
    } else {
        format!("the interval contains 1 and does not fit within ±{within}")
    };
    let may_be_slower = contrast.interval.hi > 1.0 + margin;
    (ComparisonVerdict::Inconclusive { may_be_slower }, why, contrast.more_launches(margin))
}

/// Which pairs of blocks were left out, for a reader to judge whether they are one side's doing.
fn left_out(blocks: BlockPairs) -> String {
    let BlockPairs { used, first_slower, second_slower } = blocks;
    if first_slower + second_slower == 0 {
        return String::new();
    }
    let all = used + first_slower + second_slower;
    format!(
        "; {} of {all} pairs of blocks left out, as the machine's speed changed ({first_slower} times slower for A, \
         {second_slower} for B)",
        first_slower + second_slower
    )
}

/// A canary that took longer than so many times the shortest one was interrupted, and says nothing
/// of the machine's speed: a neighbour on the same core takes at most half of it.
const INTERRUPTED: f64 = 2.0;

/// The share of a difference of cost that the canary must show as well to be its explanation.
const SHARED: f64 = 0.5;

/// Whether a ratio of costs may be no more than the machine's own.
fn explains(slowdown: f64, ratio: f64) -> bool {
    let (machine, cost) = (slowdown.ln(), ratio.ln());
    machine * cost > 0.0 && machine.abs() >= SHARED * cost.abs()
}

fn percent(share: f64) -> String {
    format!("{}%", significant(share * 100.0, 2))
}

/// The row of two imported cells: their ratio, and no verdict without replication.
pub fn imported_row(a: &Cell, b: &Cell) -> Option<ComparedCell> {
    let (left, right) = (a.imported.as_ref()?, b.imported.as_ref()?);
    let (den, num) = match a.better {
        Better::Lower => (left.value, right.value),
        Better::Higher => (right.value, left.value),
    };
    let side = |value: f64| MedianEstimate { median: Some(value), ci95: None, launches: 0 };
    Some(ComparedCell {
        experiment: a.experiment.clone(),
        factors: summary::factors(a),
        response: a.response.clone(),
        unit: a.unit.clone(),
        better: summary::direction(a.better).to_owned(),
        a: side(left.value),
        b: side(right.value),
        ratio: (den > 0.0 && num > 0.0).then(|| summary::rounded(num / den)),
        ci95: None,
        p_adjusted: None,
        machine: None,
        verdict: ComparisonVerdict::Inconclusive { may_be_slower: true }.name().to_owned(),
        more_launches: None,
        more_runs: None,
        why: "imported figures carry no launches, so no interval".to_owned(),
    })
}

/// How the verdicts of a table are reached.
pub fn method(margin: f64, replicate: Replicate) -> String {
    let canary = ", and the canary shows less than half of it";
    let (ratio, alone, about) = match replicate {
        Replicate::PairedLaunch => (
            "each launch of B is paired with the one of A that took turns with it, and the ratio is the \
             Hodges-Lehmann estimate over pairs, with the interval of Wilcoxon's signed ranks",
            "",
            "",
        ),
        Replicate::UnpairedLaunch => (
            "the ratio is the median of the ratios of every launch of B to every launch of A (Hodges-Lehmann), with \
             the interval of the Mann-Whitney test",
            canary,
            " Verdicts are about these two runs; compare several runs a side to see how much runs differ.",
        ),
        Replicate::Run => (
            "the ratio is the median of the ratios of every run of B to every run of A (Hodges-Lehmann), each by its \
             median launch, with the interval of the Mann-Whitney test",
            canary,
            "",
        ),
    };
    let margin = percent(margin);
    format!(
        "Costs of B over A, turned so that above 1 costs more: {ratio}. Equivalent: the 90% interval lies within \
         ±{margin} (two one-sided tests). Faster or slower: the same test says that the costs differ by more than \
         {margin}, with a probability adjusted by Holm for all cells of the table under 5%{alone}. Otherwise \
         inconclusive.{about}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_explains_a_difference_that_it_shares_by_half() {
        assert!(explains(1.75, 1.4));
        assert!(explains(1.1, 1.2) && explains(0.85, 0.8));
        assert!(!explains(1.01, 1.2), "the machine was as fast");
        assert!(!explains(0.8, 1.2), "the machine was faster, and the subject still slower");
    }
}
