//! By how much one sample lies above another, or pairs above zero: estimate, interval and probability by ranks.
//!
//! All three come from one test, so that they never disagree: of two samples that of Mann & Whitney (1947), of
//! pairs Wilcoxon's signed ranks (1945), inverted as by Hodges & Lehmann (1963). Under equality both are exact
//! whatever the distribution of launches is, skewed or of several modes, where Student's t with few launches is
//! not; of normal values they lose one launch in twenty.

use super::{ConfidenceInterval, quantile};

/// Largest number of differences whose distribution is computed; that of more is taken as normal.
const EXACT_DIFFERENCES: usize = 10_000;

/// A shift with all that is asked of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Shift {
    /// Candidates for the shift, ascending: every difference of the two samples, or every mean of two pairs.
    candidates: Vec<f64>,
    /// The probability, were the shift zero, that at most so many candidates lie below zero.
    distribution: Vec<f64>,
}

impl Shift {
    /// How much `b` lies above `a`. `None` without values, or with one that is not finite.
    pub fn between(a: &[f64], b: &[f64]) -> Option<Self> {
        let candidates = b.iter().flat_map(|b| a.iter().map(move |a| b - a)).collect();
        let normal = || {
            let (m, n) = (a.len() as f64, b.len() as f64);
            (m * n * (m + n + 1.0) / 12.0).sqrt()
        };
        Self::new(candidates, || between_distribution(a.len(), b.len()), normal)
    }

    /// How much the differences of pairs lie above zero. `None` without pairs, or with one that is not finite.
    pub fn of_pairs(differences: &[f64]) -> Option<Self> {
        let means = |(i, a): (usize, &f64)| {
            let a = *a;
            differences[i..].iter().map(move |b| f64::midpoint(a, *b))
        };
        let candidates = differences.iter().enumerate().flat_map(means).collect();
        let normal = || {
            let n = differences.len() as f64;
            (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt()
        };
        Self::new(candidates, || pairs_distribution(differences.len()), normal)
    }

    fn new(
        mut candidates: Vec<f64>,
        exact: impl Fn() -> Vec<f64>,
        normal_sd: impl Fn() -> f64,
    ) -> Option<Self> {
        if candidates.is_empty() || candidates.iter().any(|value| !value.is_finite()) {
            return None;
        }
        candidates.sort_unstable_by(f64::total_cmp);
        let count = candidates.len();
        let distribution = if count <= EXACT_DIFFERENCES {
            exact()
        } else {
            let (mean, sd) = (count as f64 / 2.0, normal_sd());
            let below = |k| super::distribution::normal_cdf((k as f64 + 0.5 - mean) / sd);
            (0..=count).map(below).collect()
        };
        Some(Self { candidates, distribution })
    }

    /// The shift: the median of what it could be.
    pub fn estimate(&self) -> f64 {
        quantile::of_sorted(&self.candidates, 0.5)
    }

    /// Where it lies with at least this confidence; `None` with too few values to say.
    pub fn interval(&self, confidence: f64) -> Option<ConfidenceInterval> {
        let tail = (1.0 - confidence) / 2.0 + 1e-12;
        let outside = self.distribution.iter().take_while(|p| **p <= tail).count();
        let last = self.candidates.len().checked_sub(outside)?;
        let lo = *self.candidates.get(outside.checked_sub(1)?)?;
        Some(ConfidenceInterval { lo, hi: *self.candidates.get(last)?, confidence })
    }

    /// The least probability that either of [`Shift::p_above`] and [`Shift::p_below`] can have with so many values.
    pub fn least_p(&self) -> f64 {
        self.distribution[0]
    }

    /// The probability of values so high were the shift `value` or less.
    pub fn p_above(&self, value: f64) -> f64 {
        self.distribution[self.candidates.partition_point(|candidate| *candidate <= value)]
    }

    /// The probability of values so low were the shift `value` or more.
    pub fn p_below(&self, value: f64) -> f64 {
        let lower = self.candidates.partition_point(|candidate| *candidate < value);
        self.distribution[self.candidates.len() - lower]
    }
}

/// Of U for samples of `a` and `b` values: the coefficients of a Gaussian binomial, ∏ (1 − q^(b+i)) / (1 − q^i),
/// summed and divided by their sum.
fn between_distribution(a: usize, b: usize) -> Vec<f64> {
    let mut counts = vec![0.0_f64; a * b + 1];
    counts[0] = 1.0;
    for i in 1..=a {
        for power in (b + i..counts.len()).rev() {
            counts[power] -= counts[power - b - i];
        }
        for power in i..counts.len() {
            counts[power] += counts[power - i];
        }
    }
    cumulative(counts)
}

/// Of the sum of the ranks of negative pairs among `n`: the coefficients of ∏ (1 + q^i).
fn pairs_distribution(n: usize) -> Vec<f64> {
    let mut counts = vec![0.0_f64; n * (n + 1) / 2 + 1];
    counts[0] = 1.0;
    for i in 1..=n {
        for power in (i..counts.len()).rev() {
            counts[power] += counts[power - i];
        }
    }
    cumulative(counts)
}

/// Shares of a symmetric distribution: its lower half is exact, and the upper one its mirror image.
fn cumulative(mut counts: Vec<f64>) -> Vec<f64> {
    let last = counts.len() - 1;
    for i in 0..=last / 2 {
        counts[last - i] = counts[i];
    }
    let total: f64 = counts.iter().sum();
    let mut sum = 0.0;
    for count in &mut counts {
        sum += *count;
        *count = (sum / total).min(1.0);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;
    use crate::stats::simulation::normal;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn interval_and_probability_agree(
            a in proptest::collection::vec(-9_i8..9, 1..12),
            b in proptest::collection::vec(-9_i8..9, 1..12),
        ) {
            let floats = |v: &[i8]| -> Vec<f64> { v.iter().map(|&x| f64::from(x)).collect() };
            for shift in [Shift::between(&floats(&a), &floats(&b)), Shift::of_pairs(&floats(&a))] {
                let shift = shift.unwrap();
                prop_assert!(shift.p_above(-99.0) > 0.0);
                prop_assert!((shift.p_above(99.0) - 1.0).abs() < 1e-9);
                if let Some(interval) = shift.interval(0.95) {
                    prop_assert!(interval.contains(shift.estimate()));
                    prop_assert_eq!(interval.lo > 0.0, shift.p_above(0.0) <= 0.025 + 1e-12);
                    prop_assert_eq!(interval.hi < 0.0, shift.p_below(0.0) <= 0.025 + 1e-12);
                }
            }
        }
    }

    #[test]
    fn the_smallest_probabilities_are_one_over_the_arrangements() {
        let apart = Shift::between(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]).unwrap();
        assert!((apart.p_above(0.0) - 1.0 / 20.0).abs() < 1e-12);
        assert_eq!(apart.interval(0.95), None);
        let pairs = Shift::of_pairs(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        assert!((pairs.p_above(0.0) - 1.0 / 64.0).abs() < 1e-12);
        let interval = pairs.interval(0.95).unwrap();
        assert!((interval.lo - 1.0).abs() < 1e-12 && (interval.hi - 6.0).abs() < 1e-12);
        assert_eq!(Shift::between(&[], &[1.0]), None);
        assert_eq!(Shift::of_pairs(&[f64::NAN]), None);
    }

    #[test]
    fn equality_is_rejected_at_the_level_asked_whatever_the_distribution() {
        let mut stream = Seed(4).stream("shift");
        let mut launch = |modes: bool| {
            let noise = normal(&mut stream);
            if modes && normal(&mut stream) > 0.5 { noise + 20.0 } else { noise }
        };
        for n in [6, 15] {
            for modes in [false, true] {
                let mut sample = || -> Vec<f64> { (0..n).map(|_| launch(modes)).collect() };
                let (mut apart, mut pairs) = (0, 0);
                for _ in 0..1_000 {
                    let (a, b) = (sample(), sample());
                    let differences: Vec<f64> = a.iter().zip(&b).map(|(a, b)| b - a).collect();
                    let excludes = |shift: Option<Shift>| {
                        let interval = shift.and_then(|shift| shift.interval(0.95));
                        u32::from(!interval.unwrap().contains(0.0))
                    };
                    apart += excludes(Shift::between(&a, &b));
                    pairs += excludes(Shift::of_pairs(&differences));
                }
                // Attainable levels are 3.1 to 4.9 %: three standard errors around them.
                for rejected in [apart, pairs] {
                    assert!((15..=70).contains(&rejected), "{n} {modes}: {apart} {pairs}");
                }
            }
        }
    }

    #[test]
    fn the_normal_approximation_continues_the_exact_distribution() {
        let exact = between_distribution(100, 100);
        let sd = (10_000.0_f64 * 201.0 / 12.0).sqrt();
        let normal = super::super::distribution::normal_cdf((4_000.5 - 5_000.0) / sd);
        assert!((exact[4_000] / normal - 1.0).abs() < 0.02, "{} {normal}", exact[4_000]);
    }
}
