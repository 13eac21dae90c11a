//! Equivalence as a positive claim: two one-sided tests against a margin.
//!
//! Schuirmann 1987: two quantities are equivalent at level α when the interval of confidence
//! 1 − 2α of their ratio lies inside the margin; 90 % for α = 5 %.

use super::ConfidenceInterval;

/// The ratios that count as equal under `margin`: `[1/(1 + margin), 1 + margin]`.
///
/// Symmetric under exchange of the two sides, unlike 1 ± margin.
pub fn bounds(margin: f64) -> (f64, f64) {
    (1.0 / (1.0 + margin), 1.0 + margin)
}

/// Whether all of `interval`, of 90 % for a test at the 5 % level, counts as equal under `margin`.
pub fn is_within(interval: &ConfidenceInterval, margin: f64) -> bool {
    let (lo, hi) = bounds(margin);
    lo <= interval.lo && interval.hi <= hi
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;
    use crate::stats::hierarchy::{LaunchPairing, ratio};
    use crate::stats::simulation::{DistributionShape, SimulationDesign};

    /// Share of comparisons at a true ratio of `factor` that are called equivalent within 2 %.
    fn called_equivalent(factor: f64, launch_sd: f64) -> f64 {
        let design = SimulationDesign { launches: 10, blocks: 2, samples: 100, launch_sd };
        let called = (0..300)
            .filter(|&trial| {
                let seed = Seed(trial).derive(&format!("tost {factor} {launch_sd}"));
                let a = design.cell(DistributionShape::Normal, 1.0, seed.derive("a"), None);
                let b = design.cell(DistributionShape::Normal, factor, seed.derive("b"), None);
                let ratio =
                    ratio(&a, &b, LaunchPairing::Unpaired, 0.90, seed).expect("ten launches");
                is_within(&ratio.interval, 0.02)
            })
            .count();
        called as f64 / 300.0
    }

    #[test]
    fn false_equivalence_is_at_most_five_percent() {
        // 300 trials: three standard errors above 5 % are 8.8 %.
        assert!(called_equivalent(1.02, 0.01) < 0.088);
        assert!(called_equivalent(1.0 / 1.02, 0.01) < 0.088);
    }

    #[test]
    fn equal_cells_are_equivalent_only_when_precise() {
        assert!(called_equivalent(1.0, 0.005) > 0.95);
        assert!(called_equivalent(1.0, 0.05) < 0.05);
    }

    #[test]
    fn margin_is_symmetric() {
        let (lo, hi) = bounds(0.02);
        assert!((lo * hi - 1.0).abs() < 1e-15);
        let inside = ConfidenceInterval { lo, hi, confidence: 0.9 };
        assert!(is_within(&inside, 0.02));
        assert!(!is_within(&ConfidenceInterval { hi: hi + 1e-9, ..inside }, 0.02));
    }
}
