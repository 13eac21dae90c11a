//! Two cells set against each other: the ratio of their costs, and how sure it is.
//!
//! The one place where a ratio is estimated; comparisons, claims and ranks all read it. A ratio is that of a launch
//! of one to a launch of the other, by ranks (`plumb_base::stats::shift`): of launches that were made apart the median
//! of all such ratios, of pairs the median over pairs and pairs of pairs.

use std::collections::{BTreeMap, BTreeSet};

use plumb_base::stats::shift::Shift;
use plumb_base::stats::{ConfidenceInterval, means, quantile, stopping};
use plumb_store::record::{Better, SampleBlock};

use crate::summary::{CONFIDENCE, LAUNCHES_NEEDED, MeasuredCell, MeasuredLaunch, block_median};

/// Confidence whose interval inside the margin shows equivalence at the 5 % level.
const EQUIVALENCE_CONFIDENCE: f64 = 0.90;

/// More launches than this are not worth proposing.
const LAUNCHES_AFFORDABLE: u64 = 1_000;

/// Blocks whose canaries differ by more than this share were measured on a machine of different speed.
const CANARY_APART: f64 = 0.05;

/// Runs a side below which their ratio has no interval: three and three leave 10 % to chance.
pub const RUNS_NEEDED: usize = 4;

/// How the launches of two cells belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaunchPairing {
    /// Those of one round were interleaved, and share its conditions.
    Paired,
    /// They were made apart.
    Unpaired,
}

/// Cost of one cell over the cost of another; above 1 the second costs more, whatever the unit.
#[derive(Clone, Debug, PartialEq)]
pub struct CostRatio {
    /// The ratio of a launch of the second to one of the first, oriented as a cost.
    pub ratio: f64,
    /// Its 95 % interval.
    pub interval: ConfidenceInterval,
    /// Its 90 % interval, for two one-sided tests.
    pub interval90: ConfidenceInterval,
    /// Two-sided probability of a ratio so far from 1 by chance.
    pub p: f64,
    /// Launches, pairs of launches, or runs behind it: the smaller of the two sides.
    pub replicates: u64,
    /// Pairs of blocks in it, and those left out.
    pub blocks: BlockPairs,
    /// The shift of the logarithms.
    shift: Shift,
}

/// What happened to the pairs of blocks that a comparison of interleaved launches is made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockPairs {
    /// Pairs compared.
    pub used: u64,
    /// Pairs left out because the machine, by its canary, was slower during the first one's block.
    pub first_slower: u64,
    /// The same for the second one's.
    pub second_slower: u64,
}

/// The contrast of two cells of one run, whose rounds are interleaved: paired by round.
///
/// Falls back on unpaired launches when the cells share too few rounds. `None` without
/// enough launches or where a median is not positive.
pub fn within_run(a: &MeasuredCell<'_>, b: &MeasuredCell<'_>) -> Option<CostRatio> {
    cost_ratio(a, b, LaunchPairing::Paired).or_else(|| cost_ratio(a, b, LaunchPairing::Unpaired))
}

/// Cost of `b` over cost of `a`.
///
/// Paired cells are matched by the rounds that both have. `None` without enough launches or where
/// a median is not positive.
pub fn cost_ratio(
    a: &MeasuredCell<'_>,
    b: &MeasuredCell<'_>,
    pairing: LaunchPairing,
) -> Option<CostRatio> {
    let (den, num) = match a.cell.better {
        Better::Lower => (a, b),
        Better::Higher => (b, a),
    };
    match pairing {
        LaunchPairing::Unpaired => {
            let (den, num) = (log_medians(den)?, log_medians(num)?);
            let launches = den.len().min(num.len());
            let shift = Shift::between(&den, &num)?;
            CostRatio::new(shift, launches, LAUNCHES_NEEDED, BlockPairs::default())
        }
        LaunchPairing::Paired => {
            let mut blocks = BlockPairs::default();
            let pairs = matched_by_round(den, num);
            let difference = |(den, num)| launch_difference(den, num, &mut blocks);
            let differences: Option<Vec<f64>> = pairs.into_iter().map(difference).collect();
            let differences = differences?;
            if a.cell.better == Better::Higher {
                std::mem::swap(&mut blocks.first_slower, &mut blocks.second_slower);
            }
            let shift = Shift::of_pairs(&differences)?;
            CostRatio::new(shift, differences.len(), LAUNCHES_NEEDED, blocks)
        }
    }
}

/// Cost of a run of `b` over the cost of a run of `a`: one cell measured in several runs a side.
///
/// Whatever differs from run to run counts as chance, as it does for launches within one. `None` with fewer than
/// [`RUNS_NEEDED`] runs a side or where a median is not positive.
pub fn ratio_of_runs(a: &[&MeasuredCell<'_>], b: &[&MeasuredCell<'_>]) -> Option<CostRatio> {
    let (den, num) = match a.first()?.cell.better {
        Better::Lower => (a, b),
        Better::Higher => (b, a),
    };
    let logs = |runs: &[&MeasuredCell<'_>]| -> Option<Vec<f64>> {
        runs.iter().map(|run| positive_log(run.median())).collect()
    };
    let (den, num) = (logs(den)?, logs(num)?);
    let runs = den.len().min(num.len());
    CostRatio::new(Shift::between(&den, &num)?, runs, RUNS_NEEDED, BlockPairs::default())
}

fn log_medians(cell: &MeasuredCell<'_>) -> Option<Vec<f64>> {
    cell.hierarchy.launch_medians().into_iter().map(positive_log).collect()
}

fn positive_log(value: f64) -> Option<f64> {
    (value > 0.0).then(|| value.ln())
}

/// The launches of both cells that were made in the same round, in the order of the rounds.
fn matched_by_round<'a, 'b>(
    a: &'b MeasuredCell<'a>,
    b: &'b MeasuredCell<'a>,
) -> Vec<(&'b MeasuredLaunch<'a>, &'b MeasuredLaunch<'a>)> {
    let mut rest: BTreeMap<u32, Vec<&MeasuredLaunch<'_>>> = BTreeMap::new();
    for launch in b.launches.iter().rev() {
        rest.entry(launch.round).or_default().push(launch);
    }
    let partner = |launch: &'b MeasuredLaunch<'a>| {
        Some((launch, rest.get_mut(&launch.round).and_then(Vec::pop)?))
    };
    a.launches.iter().filter_map(partner).collect()
}

/// By how much the logarithm of `b`'s cost lies above that of `a`'s, in one pair of launches.
///
/// Where their blocks alternated: the mean over pairs of blocks, so that what disturbs the machine for a while falls
/// on both sides, and what happens to a few blocks of one side counts for as much as it costs. A pair during which the
/// machine's own speed changed, as its canary shows, is left out, whatever the blocks themselves say. Otherwise
/// the medians of whole launches.
fn launch_difference(
    a: &MeasuredLaunch<'_>,
    b: &MeasuredLaunch<'_>,
    blocks: &mut BlockPairs,
) -> Option<f64> {
    let log_median = |block: &SampleBlock| positive_log(block_median(block));
    let pairs = block_pairs(a, b);
    let (mut steady, mut all) = (Vec::new(), Vec::new());
    for (a, b) in pairs {
        let difference = log_median(b)? - log_median(a)?;
        all.push(difference);
        let canaries = (a.effort.canary_ns, b.effort.canary_ns);
        match canaries {
            (a, b) if a > b * (1.0 + CANARY_APART) && b > 0.0 => blocks.first_slower += 1,
            (a, b) if b > a * (1.0 + CANARY_APART) && a > 0.0 => blocks.second_slower += 1,
            _ => steady.push(difference),
        }
    }
    blocks.used += steady.len() as u64;
    let median = |launch: &MeasuredLaunch<'_>| {
        let samples = quantile::sorted(&launch.samples().concat());
        positive_log(quantile::of_sorted(&samples, 0.5))
    };
    // A launch in which the machine was never steady is still one of the pairs that were planned.
    match means::arithmetic(&steady).or_else(|| means::arithmetic(&all)) {
        Some(mean) => Some(mean),
        None => Some(median(b)? - median(a)?),
    }
}

/// The blocks of one visit to both cells; none unless the two launches took turns.
fn block_pairs<'a>(
    a: &MeasuredLaunch<'a>,
    b: &MeasuredLaunch<'a>,
) -> Vec<(&'a SampleBlock, &'a SampleBlock)> {
    if !took_turns(a, b) {
        return Vec::new();
    }
    let partner = |block: &&'a SampleBlock| {
        let same = b.blocks.iter().find(|other| other.pass == block.pass);
        same.map(|other| (*block, *other))
    };
    a.blocks.iter().filter_map(partner).collect()
}

/// Whether the blocks of two launches alternated: they are one launch, or each began before the other's last block.
fn took_turns(a: &MeasuredLaunch<'_>, b: &MeasuredLaunch<'_>) -> bool {
    let span = |launch: &MeasuredLaunch<'_>| {
        let starts: BTreeSet<u64> =
            launch.blocks.iter().filter_map(|block| block.effort.started_ns).collect();
        Some((*starts.first()?, *starts.last()?))
    };
    a.id == b.id || matches!((span(a), span(b)), (Some(a), Some(b)) if a.0 < b.1 && b.0 < a.1)
}

impl CostRatio {
    fn new(shift: Shift, replicates: usize, needed: usize, blocks: BlockPairs) -> Option<Self> {
        if replicates < needed {
            return None;
        }
        let at = |confidence| {
            let found = shift.interval(confidence)?;
            Some(ConfidenceInterval { lo: found.lo.exp(), hi: found.hi.exp(), confidence })
        };
        Some(Self {
            ratio: shift.estimate().exp(),
            interval: at(CONFIDENCE)?,
            interval90: at(EQUIVALENCE_CONFIDENCE)?,
            p: two_sided(shift.p_above(0.0), shift.p_below(0.0)),
            replicates: replicates as u64,
            blocks,
            shift,
        })
    }

    /// Whether the costs are equal within `margin`, by two one-sided tests at the 5 % level (Schuirmann 1987).
    ///
    /// Symmetric under exchange of the two: from 1/(1 + margin) to 1 + margin.
    pub fn is_equivalent(&self, margin: f64) -> bool {
        self.interval90.lo >= 1.0 / (1.0 + margin) && self.interval90.hi <= 1.0 + margin
    }

    /// The probability that costs not equal within `margin` look so equal by chance.
    pub fn p_equivalent(&self, margin: f64) -> f64 {
        let edge = margin.ln_1p();
        self.shift.p_above(-edge).max(self.shift.p_below(edge))
    }

    /// Two-sided probability of a ratio so far beyond these bounds by chance.
    pub fn p_outside(&self, (least, most): (f64, f64)) -> f64 {
        let above = if most.is_finite() { self.shift.p_above(most.ln()) } else { 1.0 };
        let below = if least > 0.0 { self.shift.p_below(least.ln()) } else { 1.0 };
        two_sided(above, below)
    }

    /// Two-sided probability of costs that differ by so much more than `margin` by chance.
    pub fn p_beyond(&self, margin: f64) -> f64 {
        self.p_outside((1.0 / (1.0 + margin), 1.0 + margin))
    }

    /// The least of all such probabilities that so many launches could have given.
    pub fn least_p(&self) -> f64 {
        (2.0 * self.shift.least_p()).min(1.0)
    }

    /// Whether the 95 % interval leaves no room for equal costs.
    pub fn excludes_one(&self) -> bool {
        !self.interval.contains(1.0)
    }

    /// Launches (or runs) a side beyond those made that would probably decide; none when too many would.
    ///
    /// A ratio beyond the margin has to clear it with its 95 % interval, one inside it has to fit
    /// the 90 % interval between the margins; widths shrink with the root of the launches.
    pub fn more_launches(&self, margin: f64) -> Option<u64> {
        let effect = self.ratio.ln().abs();
        let edge = margin.ln_1p();
        let half = |interval: &ConfidenceInterval| (interval.hi.ln() - interval.lo.ln()) / 2.0;
        let observed = if effect >= edge { half(&self.interval) } else { half(&self.interval90) };
        let target = (effect - edge).abs();
        if target <= 0.0 || !observed.is_finite() {
            return None;
        }
        let total = stopping::launches_to_decide(observed, target, self.replicates);
        let more = total.saturating_sub(self.replicates).max(1);
        (more <= LAUNCHES_AFFORDABLE).then_some(more)
    }

    /// The interval's ends.
    pub const fn ends(&self) -> [f64; 2] {
        [self.interval.lo, self.interval.hi]
    }
}

fn two_sided(above: f64, below: f64) -> f64 {
    (2.0 * above.min(below)).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{SyntheticRun, local};
    use crate::summary::measured_cells;

    #[test]
    fn throughputs_are_turned_into_costs() {
        let mut synthetic = SyntheticRun::new(1);
        let factors = |mechanism| local(mechanism, "same-cpu", 64);
        synthetic.measure("throughput.local", "throughput", factors("pipe"), 2e9);
        synthetic.measure("throughput.local", "throughput", factors("tcp4"), 1e9);
        let cells = measured_cells(&synthetic.data);
        let found = within_run(&cells[0], &cells[1]).unwrap();
        assert!((found.ratio - 2.0).abs() < 0.02, "half the throughput costs twice: {found:?}");
        assert!(found.excludes_one() && found.p < 0.002);
    }

    #[test]
    fn pairs_are_made_of_the_rounds_both_have() {
        let mut synthetic = SyntheticRun::new(2);
        synthetic.measure("latency.local", "latency", local("pipe", "same-cpu", 64), 100.0);
        synthetic.measure("latency.local", "latency", local("tcp4", "same-cpu", 64), 100.0);
        // Each round has its own drift, shared by both; the second cell misses two rounds.
        for block in &mut synthetic.data.blocks {
            let launch = synthetic.data.launches.iter().find(|l| l.id == block.launch).unwrap();
            let drift = 1.0 + f64::from(launch.round % 5);
            block.samples.iter_mut().for_each(|sample| *sample *= drift);
        }
        synthetic.data.blocks.retain(|block| block.cell == 1 || block.launch % 10 > 2);
        let cells = measured_cells(&synthetic.data);
        let paired = cost_ratio(&cells[0], &cells[1], LaunchPairing::Paired).unwrap();
        assert_eq!(paired.replicates, cells[1].launches.len() as u64);
        assert!(paired.is_equivalent(0.02), "{paired:?}");
        let unpaired = cost_ratio(&cells[0], &cells[1], LaunchPairing::Unpaired).unwrap();
        assert!(!unpaired.is_equivalent(0.02), "{unpaired:?}");
    }
}
