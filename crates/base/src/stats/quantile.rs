//! Quantiles of one sample, their distribution-free intervals, and how many samples they need.
//!
//! Left out: quantiles pooled over launches ([`super::hierarchy`]) and of histograms
//! ([`super::histogram`]).

use super::distribution::binomial_cdf;
use super::{ConfidenceInterval, floor_index, sorted_finite};

/// The finite values of a sample in ascending order, as the other functions here want them.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    sorted_finite(values)
}

/// The `p`-quantile of an ascending sample, interpolated; not-a-number when it is empty.
///
/// Type 7 of Hyndman & Fan, "Sample quantiles in statistical packages", American Statistician 50
/// (1996): what NumPy and R do by default. `p` is clamped to 0–1.
pub fn of_sorted(sorted: &[f64], p: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let position = p.clamp(0.0, 1.0) * last as f64;
    let below = floor_index(position).min(last);
    let above = (below + 1).min(last);
    let fraction = position - below as f64;
    sorted[below] + fraction * (sorted[above] - sorted[below])
}

/// The interval between two order statistics that holds the `p`-quantile with at least
/// `confidence`, each tail with at most half the rest.
///
/// Distribution-free and exact for independent samples (David & Nagaraja, *Order Statistics*,
/// 2003, §7.1); correlated ones have to be thinned to their effective number first. `None` when
/// the sample is smaller than [`samples_needed`].
pub fn order_statistic_interval(
    sorted: &[f64],
    p: f64,
    confidence: f64,
) -> Option<ConfidenceInterval> {
    let (lo, hi) = order_statistic_ranks(sorted.len() as u64, p, confidence)?;
    let at = |rank: u64| usize::try_from(rank - 1).ok().and_then(|index| sorted.get(index));
    Some(ConfidenceInterval { lo: *at(lo)?, hi: *at(hi)?, confidence })
}

/// The ranks, counted from 1, of the two ends of [`order_statistic_interval`] among `n` samples.
pub fn order_statistic_ranks(n: u64, p: f64, confidence: f64) -> Option<(u64, u64)> {
    if n == 0 || !(0.0..=1.0).contains(&p) || !(0.0..1.0).contains(&confidence) {
        return None;
    }
    let tail = (1.0 - confidence) / 2.0;
    // With B samples at or below the quantile, B is binomial. The lower rank l fails when B < l,
    // the upper rank u fails when B ≥ u.
    let lo = first_false(n, |below| binomial_cdf(below, n, p) <= tail);
    let hi = 1 + first_false(n, |below| binomial_cdf(below, n, p) < 1.0 - tail);
    (lo >= 1 && hi <= n).then_some((lo, hi))
}

/// The smallest sample that supports a two-sided interval of the `p`-quantile.
///
/// At 95 %: p50 6, p90 36, p95 72, p99 368, p99.9 3,688. Saturates for `p` of 0 or 1, which no
/// sample supports.
pub fn samples_needed(p: f64, confidence: f64) -> u64 {
    let p = p.max(1.0 - p);
    if p.is_nan() || p >= 1.0 {
        return u64::MAX;
    }
    let tail = (1.0 - confidence.clamp(0.0, 1.0)) / 2.0;
    let needed = (tail.ln() / p.ln()).ceil().max(1.0);
    u64::try_from(floor_index(needed)).unwrap_or(u64::MAX)
}

/// The first count below `n` for which `holds` is false, when it is true and then false; else `n`.
pub(super) fn first_false(n: u64, holds: impl Fn(u64) -> bool) -> u64 {
    let (mut lo, mut hi) = (0, n);
    while lo < hi {
        let middle = lo + (hi - lo) / 2;
        if holds(middle) {
            lo = middle + 1;
        } else {
            hi = middle;
        }
    }
    lo
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;
    use crate::stats::simulation::normal;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_rise_with_p_between_the_extremes(
            values in proptest::collection::vec(-1e9_f64..1e9, 1..60),
            p in 0.0_f64..1.0,
            q in 0.0_f64..1.0,
        ) {
            let sorted = sorted(&values);
            let (low, high) = (of_sorted(&sorted, p.min(q)), of_sorted(&sorted, p.max(q)));
            prop_assert!(sorted[0] <= low && low <= high && high <= sorted[sorted.len() - 1]);
        }

        #[test]
        fn ranks_exist_exactly_from_the_samples_needed(p in 0.02_f64..0.98, extra in 0_u64..50) {
            let needed = samples_needed(p, 0.95);
            prop_assert!(order_statistic_ranks(needed + extra, p, 0.95).is_some());
            prop_assert!(order_statistic_ranks(needed - 1, p, 0.95).is_none());
        }

        #[test]
        fn ranks_cover_as_asked_and_not_much_more(n in 6_u64..3_000, p in 0.3_f64..0.7) {
            if let Some((lo, hi)) = order_statistic_ranks(n, p, 0.95) {
                let tails = (binomial_cdf(lo - 1, n, p), 1.0 - binomial_cdf(hi - 1, n, p));
                prop_assert!(tails.0 <= 0.025 + 1e-12 && tails.1 <= 0.025 + 1e-12);
                prop_assert!(binomial_cdf(lo, n, p) > 0.025);
            }
        }
    }

    #[test]
    fn the_sizes_of_the_method_are_needed() {
        let needed = [0.5, 0.9, 0.95, 0.99, 0.999].map(|p| samples_needed(p, 0.95));
        assert_eq!(needed, [6, 36, 72, 368, 3_688]);
        assert_eq!(samples_needed(0.01, 0.95), 368);
        assert_eq!(samples_needed(1.0, 0.95), u64::MAX);
    }

    #[test]
    fn intervals_cover_a_known_quantile() {
        // The 90th percentile of a standard normal variable.
        let truth = 1.281_551_565_544_6;
        let mut stream = Seed(3).stream("quantile");
        let held = (0..2_000)
            .filter(|_| {
                let sample: Vec<f64> = (0..100).map(|_| normal(&mut stream)).collect();
                order_statistic_interval(&sorted(&sample), 0.9, 0.95)
                    .is_some_and(|interval| interval.contains(truth))
            })
            .count();
        // At least 95 %, and ranks being whole numbers, a little more.
        assert!((1_880..=1_960).contains(&held), "{held}");
    }

    #[test]
    fn nothing_is_said_of_nothing() {
        assert!(of_sorted(&[], 0.5).is_nan());
        assert_eq!(order_statistic_interval(&[], 0.5, 0.95), None);
        assert_eq!(order_statistic_interval(&[1.0; 100], f64::NAN, 0.95), None);
        assert_eq!(sorted(&[2.0, f64::NAN, 1.0, f64::INFINITY]), vec![1.0, 2.0]);
    }
}
