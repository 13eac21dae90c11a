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
