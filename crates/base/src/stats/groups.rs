//! Whether the launches of a cell fall into two groups: a fast layout and a slow one.
//!
//! The largest gap between neighbours of the sorted logarithms, as a multiple of the standard deviation within the two
//! groups that it divides. A group has two launches at least: a single one that is far off is an outlier.
//! Few launches show little of it: with 10 % of launches slow by a fifth, 10 launches 24 times in 100, 30 launches 83.

use super::sorted_finite;

/// The gap that one group of so many launches or more exceeds in 1 % of cells, found by simulation of normal ones;
/// `critical_gaps_hold_one_percent` repeats it.
const CRITICAL_GAPS: [(usize, f64); 9] = [
    (6, 11.0),
    (7, 8.7),
    (8, 7.7),
    (9, 7.4),
    (10, 7.4),
    (12, 6.2),
    (15, 5.8),
    (20, 4.5),
    (30, 4.1),
];

/// Two groups of launches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaunchGroups {
    /// Launches of the lower group.
    pub low: usize,
    /// Launches of the upper group.
    pub high: usize,
    /// The highest launch of the lower group.
    pub below: f64,
    /// The lowest launch of the upper group.
    pub above: f64,
    /// The geometric mean of the upper group over that of the lower.
    pub ratio: f64,
}

/// The two groups into which positive values fall; `None` where they may as well be one.
pub fn two_groups(values: &[f64]) -> Option<LaunchGroups> {
    let sorted = sorted_finite(values);
    let n = sorted.len();
    let (_, critical) = CRITICAL_GAPS.iter().rfind(|(least, _)| *least <= n)?;
    if sorted[0] <= 0.0 {
        return None;
    }
    let logs: Vec<f64> = sorted.iter().map(|value| value.ln()).collect();
    let gap = |cut: usize| logs[cut] - logs[cut - 1];
    let cut = (2..=n - 2).max_by(|a, b| gap(*a).total_cmp(&gap(*b)))?;
    let (low, high) = logs.split_at(cut);
    let mean = |group: &[f64]| group.iter().sum::<f64>() / group.len() as f64;
    let squares = |group: &[f64]| group.iter().map(|v| (v - mean(group)).powi(2)).sum::<f64>();
    let sd = ((squares(low) + squares(high)) / (n - 2) as f64).sqrt();
    (gap(cut) > critical * sd).then(|| LaunchGroups {
        low: low.len(),
        high: high.len(),
        below: sorted[cut - 1],
        above: sorted[cut],
        ratio: (mean(high) - mean(low)).exp(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;
    use crate::stats::simulation::LaunchEffect;

    fn share_found(effect: LaunchEffect, n: usize) -> f64 {
        let mut stream = Seed(n as u64).stream("groups");
        let trials = 2_000;
        let found =
            (0..trials).filter(|_| two_groups(&effect.factors(n, &mut stream)).is_some()).count();
        found as f64 / f64::from(trials)
    }

    #[test]
    fn critical_gaps_hold_one_percent() {
        for n in [6, 7, 8, 9, 10, 11, 12, 14, 15, 20, 25, 30, 50] {
            let share = share_found(LaunchEffect::Normal(0.03), n);
            // 1.7 % or more of 2,000 would have a probability of one in five hundred.
            assert!(share <= 0.017, "{share} of cells of {n} launches");
        }
    }

    #[test]
    fn a_slow_layout_of_three_tenths_is_mostly_found_from_eight_launches_on() {
        for (n, least) in [(8, 0.6), (10, 0.75), (30, 0.95)] {
            let share = share_found(LaunchEffect::Mixed(0.3), n);
            assert!(share > least, "{share} of cells of {n} launches");
        }
    }

    #[test]
    fn groups_are_counted_and_a_single_outlier_is_none() {
        let found = two_groups(&[100.0, 121.0, 101.0, 99.0, 120.0, 100.0, 100.5, 99.5]).unwrap();
        assert_eq!((found.low, found.high), (6, 2));
        assert!((found.ratio - 1.205).abs() < 0.005, "{found:?}");
        assert_eq!((found.below, found.above), (101.0, 120.0));
        assert_eq!(two_groups(&[100.0, 200.0, 101.0, 99.0, 99.7, 100.0, 100.5, 99.5]), None);
        assert_eq!(two_groups(&[0.0, 0.0, 0.0, 1.0, 1.0, 1.0]), None);
        assert_eq!(two_groups(&[1.0, 1.0, 2.0, 2.0]), None, "too few to say");
    }
}
