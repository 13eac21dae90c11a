//! Equivalence as a positive claim: two one-sided tests against a margin.
//!
//! Schuirmann 1987: two quantities are equivalent at level α when the interval of confidence
//! 1 − 2α of their ratio lies inside the margin; 90 % for α = 5 %. Left out: choosing the margin.

use super::Interval;
use super::hierarchy::Ratio;

/// The ratios that count as equal under `margin`: `[1/(1 + margin), 1 + margin]`.
///
/// Symmetric under exchange of the two sides, unlike 1 ± margin.
pub fn bounds(margin: f64) -> (f64, f64) {
    (1.0 / (1.0 + margin), 1.0 + margin)
}

/// Whether a ratio with its interval (90 % for a test at the 5 % level) shows equivalence.
pub fn tost(ratio: &Ratio, margin: f64) -> bool {
    within(&ratio.interval, margin)
}

/// Whether all of `interval` counts as equal under `margin`.
pub fn within(interval: &Interval, margin: f64) -> bool {
    let (lo, hi) = bounds(margin);
    lo <= interval.lo && interval.hi <= hi
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;
    use crate::stats::hierarchy::{Pairing, ratio};
    use crate::stats::simulate::{Design, Shape};

    /// Share of comparisons at a true ratio of `factor` that are called equivalent within 2 %.
    fn called_equivalent(factor: f64, launch_sd: f64) -> f64 {
        let design = Design { launches: 10, blocks: 2, samples: 100, launch_sd };
        let called = (0..300)
            .filter(|&trial| {
                let seed = Seed(trial).derive(&format!("tost {factor} {launch_sd}"));
                let a = design.cell(Shape::Normal, 1.0, seed.derive("a"), None);
                let b = design.cell(Shape::Normal, factor, seed.derive("b"), None);
                let ratio = ratio(&a, &b, Pairing::Unpaired, 0.90, seed).expect("ten launches");
                tost(&ratio, 0.02)
            })
            .count();
        called as f64 / 300.0
    }

    #[test]
    fn cells_at_the_margin_are_called_equal_in_at_most_one_of_twenty() {
        // 300 trials: three standard errors above 5 % are 8.8 %.
        assert!(called_equivalent(1.02, 0.01) < 0.088);
        assert!(called_equivalent(1.0 / 1.02, 0.01) < 0.088);
    }

    #[test]
    fn equal_cells_are_called_equal_when_precise_and_not_when_noisy() {
        assert!(called_equivalent(1.0, 0.005) > 0.95);
        assert!(called_equivalent(1.0, 0.05) < 0.05);
    }

    #[test]
    fn the_margin_is_the_same_seen_from_either_side() {
        let (lo, hi) = bounds(0.02);
        assert!((lo * hi - 1.0).abs() < 1e-15);
        let inside = Interval { lo, hi, confidence: 0.9 };
        assert!(within(&inside, 0.02));
        assert!(!within(&Interval { hi: hi + 1e-9, ..inside }, 0.02));
    }
}
