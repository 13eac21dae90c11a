//! By how much one sample lies above another, or pairs above zero: estimate, interval and probability by ranks.
//!
//! All three come from one test, so that they never disagree: of two samples that of Mann & Whitney (1947), of
//! pairs Wilcoxon's signed ranks (1945), inverted as by Hodges & Lehmann (1963). Under equality both are exact
//! whatever the distribution of launches is, skewed or of several modes, where Student's t with few launches is
//! not; of normal values they lose one launch in twenty.

use super::quantile::first_false;
use super::{ConfidenceInterval, distribution, sorted_finite};

/// Largest number of pairwise shifts whose null distribution is exact; that of more is approximated as normal.
const EXACT_MAX: u64 = 10_000;

/// A shift, its interval and its probabilities. Memory is linear in the samples: pairs are not stored.
#[derive(Clone, Debug, PartialEq)]
pub struct Shift {
    pairwise: PairwiseShifts,
    null_distribution: NullDistribution,
}

impl Shift {
    /// How much `b` lies above `a`. `None` without values, or with one that is not finite.
    pub fn between(a: &[f64], b: &[f64]) -> Option<Self> {
        let negated: Vec<f64> = a.iter().map(|a| -a).collect();
        let pairwise = PairwiseShifts::new(b, &negated, false)?;
        let (m, n) = (a.len() as f64, b.len() as f64);
        let sd = (m * n * (m + n + 1.0) / 12.0).sqrt();
        Some(Self::new(pairwise, || between_distribution(a.len(), b.len()), sd))
    }

    /// How much the differences of pairs lie above zero. `None` without pairs, or with one that is not finite.
    pub fn of_pairs(differences: &[f64]) -> Option<Self> {
        let halves: Vec<f64> = differences.iter().map(|difference| difference / 2.0).collect();
        let pairwise = PairwiseShifts::new(&halves, &halves, true)?;
        let n = differences.len() as f64;
        let sd = (n * (n + 1.0) * (2.0 * n + 1.0) / 24.0).sqrt();
        Some(Self::new(pairwise, || pairs_distribution(differences.len()), sd))
    }

    fn new(pairwise: PairwiseShifts, exact: impl Fn() -> Vec<f64>, sd: f64) -> Self {
        let null_distribution = if pairwise.count <= EXACT_MAX {
            NullDistribution::Exact(exact())
        } else {
            NullDistribution::Normal { mean: pairwise.count as f64 / 2.0, sd }
        };
        Self { pairwise, null_distribution }
    }

    /// The shift: the median of the pairwise ones.
    pub fn estimate(&self) -> f64 {
        let last = self.pairwise.count - 1;
        f64::midpoint(self.pairwise.at(last / 2), self.pairwise.at(last.div_ceil(2)))
    }

    /// Where it lies with at least this confidence; `None` with too few values to say.
    pub fn interval(&self, confidence: f64) -> Option<ConfidenceInterval> {
        let tail = (1.0 - confidence) / 2.0 + 1e-12;
        let count = self.pairwise.count;
        let outside = first_false(count, |k| self.null_distribution.at_most(k) <= tail);
        let (lo, hi) = (outside.checked_sub(1)?, count - outside);
        Some(ConfidenceInterval { lo: self.pairwise.at(lo), hi: self.pairwise.at(hi), confidence })
    }

    /// The least probability that either of [`Shift::p_above`] and [`Shift::p_below`] can have with so many values.
    pub fn least_p(&self) -> f64 {
        self.null_distribution.at_most(0)
    }

    /// The probability of values so high were the shift `value` or less.
    pub fn p_above(&self, value: f64) -> f64 {
        self.null_distribution.at_most(self.pairwise.count_where(|shift| shift <= value))
    }

    /// The probability of values so low were the shift `value` or more.
    pub fn p_below(&self, value: f64) -> f64 {
        let lower = self.pairwise.count_where(|shift| shift < value);
        self.null_distribution.at_most(self.pairwise.count - lower)
    }
}

/// Every difference of a value of one sample from one of the other, or every mean of two pairs (Walsh averages;
/// a pair with itself too). Each is a row plus a column; none is stored.
#[derive(Clone, Debug, PartialEq)]
struct PairwiseShifts {
    /// Ascending.
    rows: Vec<f64>,
    /// Ascending.
    columns: Vec<f64>,
    /// Rows and columns are the same values, and each pair counts once.
    triangle: bool,
    count: u64,
    greatest: f64,
}

impl PairwiseShifts {
    fn new(rows: &[f64], columns: &[f64], triangle: bool) -> Option<Self> {
        let (m, n) = (rows.len() as u64, columns.len() as u64);
        let (rows, columns) = (sorted_finite(rows), sorted_finite(columns));
        let complete = (rows.len() as u64, columns.len() as u64) == (m, n);
        let (least, greatest) = (rows.first()? + columns.first()?, rows.last()? + columns.last()?);
        let count = if triangle { m * (m + 1) / 2 } else { m * n };
        (complete && least.is_finite() && greatest.is_finite()).then_some(Self {
            rows,
            columns,
            triangle,
            count,
            greatest,
        })
    }

    /// How many satisfy a condition that holds for every shift below one that satisfies it.
    fn count_where(&self, holds: impl Fn(f64) -> bool) -> u64 {
        let mut end = self.columns.len();
        let in_row = |(index, row): (usize, &f64)| {
            while end > 0 && !holds(row + self.columns[end - 1]) {
                end -= 1;
            }
            end.saturating_sub(if self.triangle { index } else { 0 }) as u64
        };
        self.rows.iter().enumerate().map(in_row).sum()
    }

    /// The shift of this rank in ascending order, counted from 0.
    fn at(&self, rank: u64) -> f64 {
        let too_low = |key| self.count_where(|shift| shift <= value_of(key)) <= rank;
        // The search finds -0.0 for either zero; adding 0.0 makes it positive.
        value_of(first_false(key_of(self.greatest), too_low)) + 0.0
    }
}

/// An integer that orders as the value does.
fn key_of(value: f64) -> u64 {
    let bits = value.to_bits();
    if value.is_sign_negative() { !bits } else { bits | 1 << 63 }
}

fn value_of(key: u64) -> f64 {
    f64::from_bits(if key >> 63 == 1 { key & !(1 << 63) } else { !key })
}

/// The distribution of the number of pairwise shifts below zero if the shift is zero: Mann and Whitney's U, or
/// Wilcoxon's sum of ranks.
#[derive(Clone, Debug, PartialEq)]
enum NullDistribution {
    /// By count, the probability of at most that many.
    Exact(Vec<f64>),
    Normal {
        mean: f64,
        sd: f64,
    },
}

impl NullDistribution {
    /// The probability of at most `k`.
    fn at_most(&self, k: u64) -> f64 {
        match self {
            Self::Exact(cumulative) => {
                usize::try_from(k).ok().and_then(|k| cumulative.get(k)).copied().unwrap_or(1.0)
            }
            Self::Normal { mean, sd } => distribution::normal_cdf((k as f64 + 0.5 - mean) / sd),
        }
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
        fn pairwise_shifts_have_the_order_of_a_sorted_list(
            a in proptest::collection::vec(-1e9..1e9_f64, 1..9),
            b in proptest::collection::vec(-3_i8..3, 1..9),
        ) {
            let b: Vec<f64> = b.iter().map(|&b| f64::from(b)).collect();
            let mut differences: Vec<f64> = b.iter().flat_map(|b| a.iter().map(move |a| b - a)).collect();
            let mut means: Vec<f64> = b.iter().enumerate()
                .flat_map(|(i, x)| b[i..].iter().map(move |y| f64::midpoint(*x, *y))).collect();
            for (listed, shift) in
                [(&mut differences, Shift::between(&a, &b)), (&mut means, Shift::of_pairs(&b))]
            {
                listed.sort_unstable_by(f64::total_cmp);
                let pairwise = shift.unwrap().pairwise;
                let found: Vec<f64> = (0..pairwise.count).map(|rank| pairwise.at(rank)).collect();
                prop_assert_eq!(&found, listed);
            }
        }

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
        let normal = distribution::normal_cdf((4_000.5 - 5_000.0) / sd);
        assert!((exact[4_000] / normal - 1.0).abs() < 0.02, "{} {normal}", exact[4_000]);
    }

    #[test]
    fn as_many_launches_as_a_plan_allows_are_compared() {
        let even: Vec<f64> = (0..100_000).map(f64::from).collect();
        let later: Vec<f64> = even.iter().map(|value| value + 500.0).collect();
        let shift = Shift::between(&even, &later).unwrap();
        assert!((shift.estimate() - 500.0).abs() < 1e-9, "{shift:?}");
        let interval = shift.interval(0.95).unwrap();
        // 1.96 standard deviations of the count, at 100,000 pairwise shifts to a step of one.
        assert!((interval.half_width() - 253.0).abs() < 1.0, "{interval:?}");
    }
}
