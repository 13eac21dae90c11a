//! Rank statistics: Mann–Whitney with its effect size, and Holm's correction for many tests.
//!
//! Secondary to intervals of ratios ([`super::hierarchy`]): a p-value says that there is a
//! difference, never how large. Left out: tests for more than two samples.

use super::distribution::normal_cdf;

/// Largest product of the sample sizes for which p is exact when there are no ties.
const EXACT_PRODUCT: usize = 400;

/// The Mann–Whitney–Wilcoxon test of two samples.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MannWhitney {
    /// Pairs in which the first sample's value is the larger, ties counted half.
    pub u: f64,
    /// Two-sided p-value.
    pub p: f64,
    /// Probability that a value of the first sample exceeds one of the second, ties counted half.
    pub effect: f64,
}

/// Tests whether values of `a` tend to be larger or smaller than those of `b`.
///
/// Exact for small samples without ties (Mann & Whitney 1947), otherwise the normal approximation
/// corrected for ties and continuity. An empty sample gives p = 1 and effect = ½.
pub fn mann_whitney(a: &[f64], b: &[f64]) -> MannWhitney {
    if a.is_empty() || b.is_empty() {
        return MannWhitney { u: 0.0, p: 1.0, effect: 0.5 };
    }
    let (na, nb) = (a.len() as f64, b.len() as f64);
    let pooled: Vec<f64> = a.iter().chain(b).copied().collect();
    let ranks = ranks(&pooled);
    let rank_sum: f64 = ranks[..a.len()].iter().sum();
    let u = rank_sum - na * (na + 1.0) / 2.0;
    let ties = tie_term(&ranks);
    let p = if ties == 0.0 && a.len() * b.len() <= EXACT_PRODUCT {
        exact_p(a.len(), b.len(), u)
    } else {
        normal_p(na, nb, u, ties)
    };
    MannWhitney { u, p, effect: u / (na * nb) }
}

/// Holm's step-down adjusted p-values, in the order given (Holm 1979).
///
/// Comparing them with α bounds the chance of any false rejection in the family by α.
pub fn holm(p_values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p_values.len()).collect();
    order.sort_by(|&i, &j| p_values[i].total_cmp(&p_values[j]));
    let mut adjusted = vec![1.0; p_values.len()];
    let mut floor = 0.0_f64;
    for (step, &index) in order.iter().enumerate() {
        let factor = (p_values.len() - step) as f64;
        floor = floor.max((p_values[index] * factor).min(1.0));
        adjusted[index] = floor;
    }
    adjusted
}

/// The probability that several tests have all come out so by chance, where none of them is of a real effect (Simes, Biometrika 73, 1986); 1
/// of none.
///
/// It bounds the same for tests that are independent or depend positively on one another, as those of one run do (Sarkar, Annals of
/// Statistics 26, 1998).
pub fn simes(p_values: &[f64]) -> f64 {
    let mut sorted = p_values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let count = sorted.len() as f64;
    let scaled = (1_u32..).zip(&sorted).map(|(rank, p)| p * count / f64::from(rank));
    scaled.fold(1.0, f64::min)
}

/// The rank of each value, counted from 1, ties sharing their mean rank.
pub fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&i, &j| values[i].total_cmp(&values[j]));
    let mut ranks = vec![0.0; values.len()];
    let mut start = 0;
    for tied in order.chunk_by(|&i, &j| values[i].total_cmp(&values[j]).is_eq()) {
        let shared = start as f64 + f64::midpoint(tied.len() as f64, 1.0);
        for &index in tied {
            ranks[index] = shared;
        }
        start += tied.len();
    }
    ranks
}

/// Σ (t³ − t) over groups of t equal ranks.
fn tie_term(ranks: &[f64]) -> f64 {
    let mut sorted = ranks.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
        .chunk_by(|a, b| a.total_cmp(b).is_eq())
        .map(|tied| (tied.len() as f64).powi(3) - tied.len() as f64)
        .sum()
}

/// Two-sided p from the number of arrangements with each U: the coefficients of a Gaussian
/// binomial, ∏ (1 − q^(b+i)) / (1 − q^i).
fn exact_p(a: usize, b: usize, u: f64) -> f64 {
    let degree = a * b;
    let mut counts = vec![0.0_f64; degree + 1];
    counts[0] = 1.0;
    for i in 1..=a {
        for power in (b + i..=degree).rev() {
            counts[power] -= counts[power - b - i];
        }
        for power in i..=degree {
            counts[power] += counts[power - i];
        }
    }
    let total: f64 = counts.iter().sum();
    let extreme = super::floor_index(u.max(degree as f64 - u).round());
    let tail: f64 = counts[extreme..].iter().sum();
    (2.0 * tail / total).min(1.0)
}

fn normal_p(a: f64, b: f64, u: f64, ties: f64) -> f64 {
    let n = a + b;
    let variance = a * b / 12.0 * (n + 1.0 - ties / (n * (n - 1.0)));
    if variance <= 0.0 {
        return 1.0;
    }
    let distance = ((u - a * b / 2.0).abs() - 0.5).max(0.0);
    (2.0 * normal_cdf(-distance / variance.sqrt())).min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;
    use crate::stats::distribution::normal_cdf;
    use crate::stats::simulation::normal;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exchanging_the_samples_mirrors_the_effect(
            a in proptest::collection::vec(0_u8..20, 1..30),
            b in proptest::collection::vec(0_u8..20, 1..30),
        ) {
            let floats = |v: &[u8]| -> Vec<f64> { v.iter().map(|&x| f64::from(x)).collect() };
            let (a, b) = (floats(&a), floats(&b));
            let (there, back) = (mann_whitney(&a, &b), mann_whitney(&b, &a));
            prop_assert!((there.effect + back.effect - 1.0).abs() < 1e-12);
            prop_assert!((there.p - back.p).abs() < 1e-12);
            prop_assert!(there.p > 0.0 && there.p <= 1.0);
            let wins: f64 = a
                .iter()
                .flat_map(|x| b.iter().map(move |y| f64::from(u8::from(x > y)) + if x.total_cmp(y).is_eq() { 0.5 } else { 0.0 }))
                .sum();
            prop_assert!((there.u - wins).abs() < 1e-9);
        }

        #[test]
        fn ranks_of_n_values_add_up(values in proptest::collection::vec(-5_i8..5, 0..50)) {
            let floats: Vec<f64> = values.iter().map(|&v| f64::from(v)).collect();
            let n = floats.len() as f64;
            let sum: f64 = ranks(&floats).iter().sum();
            prop_assert!((sum - n * (n + 1.0) / 2.0).abs() < 1e-9);
        }

        #[test]
        fn holm_never_lowers_a_p_value_and_keeps_their_order(
            p in proptest::collection::vec(0.0_f64..1.0, 1..30)
        ) {
            let adjusted = holm(&p);
            for (i, (before, after)) in p.iter().zip(&adjusted).enumerate() {
                prop_assert!(after >= before && *after <= 1.0);
                prop_assert!(p.iter().zip(&adjusted).all(|(q, b)| q < before || b >= after), "{}", i);
            }
        }
    }

    #[test]
    fn equal_distributions_are_rejected_at_the_level_asked() {
        let mut stream = Seed(4).stream("mann-whitney");
        for n in [8, 40] {
            let rejected = (0..1_000)
                .filter(|_| {
                    let mut draw = || -> Vec<f64> { (0..n).map(|_| normal(&mut stream)).collect() };
                    mann_whitney(&draw(), &draw()).p <= 0.05
                })
                .count();
            assert!((25..=72).contains(&rejected), "{n}: {rejected}");
        }
    }

    #[test]
    fn the_smallest_exact_p_is_two_over_the_arrangements() {
        let test = mann_whitney(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]);
        assert!((test.p - 0.1).abs() < 1e-12 && test.effect.abs() < 1e-12);
        assert!((mann_whitney(&[], &[1.0]).p - 1.0).abs() < 1e-12);
        assert!((mann_whitney(&[2.0; 50], &[2.0; 50]).p - 1.0).abs() < 1e-12);
    }

    #[test]
    fn simes_takes_tests_that_all_agree_as_one() {
        assert!((simes(&[0.03; 4]) - 0.03).abs() < 1e-12);
        assert!((simes(&[0.04, 0.01, 0.9]) - 0.03).abs() < 1e-12);
        assert!((simes(&[0.03, 0.03, 0.03, 1.0]) - 0.04).abs() < 1e-12);
        assert!((simes(&[]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn simes_bounds_false_rejections_of_tests_that_share_noise() {
        for shared in [0.0_f64, 0.7, 0.95] {
            let mut stream = Seed(9).stream(&format!("simes {shared}"));
            let own = (1.0 - shared * shared).sqrt();
            let rejected = (0..4_000).filter(|_| {
                let common = normal(&mut stream);
                let p: Vec<f64> = (0..5)
                    .map(|_| normal_cdf(-(shared * common + own * normal(&mut stream))))
                    .collect();
                simes(&p) <= 0.05
            });
            let rejected = rejected.count();
            assert!(rejected <= 240, "{rejected} of 4000 at 5 % where {shared} is shared");
        }
    }

    #[test]
    fn holm_multiplies_the_smallest_by_the_number_of_tests() {
        let adjusted = holm(&[0.04, 0.01, 0.03]);
        for (found, expected) in adjusted.iter().zip([0.06, 0.03, 0.06]) {
            assert!((found - expected).abs() < 1e-12, "{adjusted:?}");
        }
    }
}
