//! Two cells set against each other: the ratio of their costs, and how sure it is.
//!
//! The one place where a ratio is estimated; comparisons, claims and ranks all read it.

use std::collections::BTreeMap;

use plumb_base::stats::distribution::{student_cdf, student_quantile};
use plumb_base::stats::hierarchy::{self, LaunchPairing, MedianRatio, SampleHierarchy};
use plumb_base::stats::{ConfidenceInterval, equivalence, stopping};
use plumb_store::record::Better;

use crate::summary::{CONFIDENCE, MeasuredCell, MeasuredLaunch};

/// Confidence whose interval inside the margin shows equivalence at the 5 % level.
const EQUIVALENCE_CONFIDENCE: f64 = 0.90;

/// More launches than this are not worth proposing.
const LAUNCHES_AFFORDABLE: u64 = 1_000;

/// Cost of one cell over the cost of another; above 1 the second costs more, whatever the unit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostRatio {
    /// Ratio of the medians, oriented as a cost.
    pub ratio: f64,
    /// Its 95 % interval.
    pub interval: ConfidenceInterval,
    /// Its 90 % interval, for two one-sided tests.
    pub interval90: ConfidenceInterval,
    /// Two-sided probability of a ratio so far from 1 by chance.
    pub p: f64,
    /// Launches (pairs of launches) behind it: the smaller of the two sides.
    pub launches: u64,
}

/// The contrast of two cells of one run, whose rounds are interleaved: paired by round.
///
/// Falls back on unpaired launches when the cells share fewer than three rounds. `None` without
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
    let (den_samples, num_samples) = match pairing {
        LaunchPairing::Unpaired => (den.hierarchy.clone(), num.hierarchy.clone()),
        LaunchPairing::Paired => matched_by_round(den, num),
    };
    let seed = a.seed.derive(&b.cell.key());
    let at = |confidence| -> Option<MedianRatio> {
        hierarchy::ratio(&den_samples, &num_samples, pairing, confidence, seed)
    };
    let ratio = at(CONFIDENCE)?;
    let interval90 = at(EQUIVALENCE_CONFIDENCE)?.interval;
    let launches = den_samples.launches().min(num_samples.launches()) as u64;
    Some(CostRatio {
        ratio: ratio.estimate,
        interval: ratio.interval,
        interval90,
        p: p_value(&ratio.interval, launches),
        launches,
    })
}

/// The probability that belongs to an interval: Student's t of its centre over its width, both in
/// the logarithm, with one degree of freedom less than there are launches.
///
/// It agrees with the interval about 5 %, and is cautious beyond, where Welch would grant more
/// degrees of freedom.
fn p_value(interval: &ConfidenceInterval, launches: u64) -> f64 {
    let centre = f64::midpoint(interval.lo.ln(), interval.hi.ln());
    let half_width = (interval.hi.ln() - interval.lo.ln()) / 2.0;
    if centre == 0.0 {
        return 1.0;
    }
    if half_width <= 0.0 {
        return 0.0;
    }
    let freedom = launches.saturating_sub(1).max(1) as f64;
    let scale = student_quantile(f64::midpoint(1.0, interval.confidence), freedom);
    (2.0 * student_cdf(-(centre.abs() / half_width) * scale, freedom)).clamp(0.0, 1.0)
}

/// Both hierarchies, launch by launch of the rounds they share.
fn matched_by_round(
    a: &MeasuredCell<'_>,
    b: &MeasuredCell<'_>,
) -> (SampleHierarchy, SampleHierarchy) {
    let same = a.launches.len() == b.launches.len()
        && a.launches.iter().zip(&b.launches).all(|(a, b)| a.round == b.round);
    if same {
        return (a.hierarchy.clone(), b.hierarchy.clone());
    }
    let mut rest: BTreeMap<u32, Vec<&MeasuredLaunch<'_>>> = BTreeMap::new();
    for launch in b.launches.iter().rev() {
        rest.entry(launch.round).or_default().push(launch);
    }
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for launch in &a.launches {
        if let Some(partner) = rest.get_mut(&launch.round).and_then(Vec::pop) {
            left.push(launch.samples());
            right.push(partner.samples());
        }
    }
    (SampleHierarchy::new(left), SampleHierarchy::new(right))
}

impl CostRatio {
    /// Whether the costs are equal within `margin`, by two one-sided tests at the 5 % level.
    pub fn is_equivalent(&self, margin: f64) -> bool {
        equivalence::is_within(&self.interval90, margin)
    }

    /// Whether the 95 % interval leaves no room for equal costs.
    pub fn excludes_one(&self) -> bool {
        !self.interval.contains(1.0)
    }

    /// Whether the ratio is at least `margin` away from 1, up or down.
    pub fn is_beyond(&self, margin: f64) -> bool {
        let (lo, hi) = equivalence::bounds(margin);
        self.ratio <= lo || self.ratio >= hi
    }

    /// Launches a side beyond those made that would probably decide; none when too many would.
    ///
    /// A ratio beyond the margin has to clear 1 with its 95 % interval, one inside it has to fit
    /// the 90 % interval between the margins; widths shrink with the root of the launches.
    pub fn more_launches(&self, margin: f64) -> Option<u64> {
        let effect = self.ratio.ln().abs();
        let edge = margin.ln_1p();
        let half = |interval: &ConfidenceInterval| (interval.hi.ln() - interval.lo.ln()) / 2.0;
        let (observed, target) = if effect >= edge {
            (half(&self.interval), effect)
        } else {
            (half(&self.interval90), edge - effect)
        };
        if target <= 0.0 || !observed.is_finite() {
            return None;
        }
        let total = stopping::launches_to_decide(observed, target, self.launches);
        let more = total.saturating_sub(self.launches).max(1);
        (more <= LAUNCHES_AFFORDABLE).then_some(more)
    }

    /// The interval's ends.
    pub const fn ends(&self) -> [f64; 2] {
        [self.interval.lo, self.interval.hi]
    }
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
        assert!(found.excludes_one() && found.p < 1e-6);
    }

    #[test]
    fn the_probability_agrees_with_the_interval_about_five_percent() {
        let edge = |confidence| ConfidenceInterval { lo: 1.0, hi: 1.2, confidence };
        for launches in [3, 5, 10, 50] {
            assert!((p_value(&edge(0.95), launches) - 0.05).abs() < 1e-9);
        }
        let equal = ConfidenceInterval { lo: 0.5, hi: 2.0, confidence: 0.95 };
        assert!((p_value(&equal, 5) - 1.0).abs() < 1e-12);
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
        assert_eq!(paired.launches, cells[1].launches.len() as u64);
        assert!(paired.is_equivalent(0.02), "{paired:?}");
        let unpaired = cost_ratio(&cells[0], &cells[1], LaunchPairing::Unpaired).unwrap();
        assert!(!unpaired.is_equivalent(0.02), "{unpaired:?}");
    }
}
