//! How many independent samples a correlated series is worth.
//!
//! The integrated autocorrelation time τ = 1 + 2 Σ ρ(k), summed by the initial monotone sequence of
//! Geyer, "Practical Markov chain Monte Carlo", Statistical Science 7 (1992). Left out: spectral
//! estimators, and models of the correlation.

use super::quantile;
use super::rank::ranks;

/// Lags looked at before the sum is cut off.
const MAX_LAG: usize = 2_000;

/// Longer series are summed in groups of successive samples to at most this length, which with
/// [`MAX_LAG`] bounds the work at 20 million products.
const MAX_GROUPS: usize = 10_000;

/// The quantiles of which [`effective_sizes`] tells the support: median, p90, p99 and p99.9.
pub const SUPPORTED: [f64; 4] = [0.5, 0.9, 0.99, 0.999];

/// Independent samples that would say as much about the quantiles of this series; in 1–n.
///
/// Computed on ranks, because one sample a thousand times the rest (an interrupt) would otherwise
/// hide any correlation of the others, and because quantiles depend on ranks alone. A constant
/// series counts as one sample; negative correlation is not counted as a gain.
pub fn effective_size(series: &[f64]) -> f64 {
    independent_samples(&ranks(series))
}

/// Independent samples that would say as much about each quantile of [`SUPPORTED`]; in 0–n.
///
/// Of the median by ranks. Of those above by which samples lie above the series' own quantile, for
/// ranks hardly see that rare large samples come together. A quantile that no sample lies above is
/// as well supported as the median. Of a constant series every quantile is known: it counts n.
pub fn effective_sizes(series: &[f64]) -> [f64; 4] {
    let sorted = quantile::sorted(series);
    if sorted.first() == sorted.last() {
        return [series.len() as f64; 4];
    }
    let body = effective_size(series);
    SUPPORTED.map(|p| {
        let limit = quantile::of_sorted(&sorted, p);
        let above: Vec<f64> = series.iter().map(|&v| f64::from(u8::from(v > limit))).collect();
        if p <= 0.5 || above.iter().all(|&v| v <= 0.0) { body } else { independent_samples(&above) }
    })
}

/// Independent values whose mean would vary as much as the mean of this series; in 1–n.
fn independent_samples(series: &[f64]) -> f64 {
    let n = series.len() as f64;
    let group = series.len().div_ceil(MAX_GROUPS);
    if group <= 1 {
        return if series.is_empty() { 0.0 } else { (n / integrated_time(series)).clamp(1.0, n) };
    }
    let means: Vec<f64> =
        series.chunks_exact(group).map(|part| part.iter().sum::<f64>() / group as f64).collect();
    let groups = means.len() as f64;
    let of_groups = variance(&means);
    if of_groups <= 0.0 {
        return n;
    }
    let ratio = variance(series) / of_groups;
    (ratio * groups / integrated_time(&means)).clamp(1.0, n)
}

fn variance(series: &[f64]) -> f64 {
    let n = series.len() as f64;
    let mean = series.iter().sum::<f64>() / n;
    series.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n
}

/// The integrated autocorrelation time of a series in time order, in samples.
///
/// 1 for independent samples, (1 + ρ)/(1 − ρ) for a first-order autoregression, the length of the
/// series when it is constant. At least a small positive number, below 1 for alternating series.
pub fn integrated_time(series: &[f64]) -> f64 {
    let n = series.len();
    if n < 2 {
        return 1.0;
    }
    let mean = series.iter().sum::<f64>() / n as f64;
    let centred: Vec<f64> = series.iter().map(|v| v - mean).collect();
    let covariance = |lag: usize| -> f64 {
        centred.iter().zip(&centred[lag..]).map(|(a, b)| a * b).sum::<f64>() / n as f64
    };
    let variance = covariance(0);
    let scale = series.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    if variance.is_nan() || variance <= (scale * 1e-14).powi(2) {
        return n as f64;
    }
    // Γ(m) = γ(2m) + γ(2m + 1) is positive and falling for a reversible chain; the estimate is
    // cut where it stops being positive and pressed down where it rises.
    let mut sum = 0.0;
    let mut ceiling = f64::INFINITY;
    let mut lag = 0;
    while lag + 1 < n && lag < MAX_LAG {
        let even = if lag == 0 { variance } else { covariance(lag) };
        let pair = even + covariance(lag + 1);
        if pair <= 0.0 {
            break;
        }
        ceiling = pair.min(ceiling);
        sum += ceiling;
        lag += 2;
    }
    (2.0 * sum / variance - 1.0).clamp(1.0 / n as f64, n as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;
    use crate::stats::simulation::{DistributionShape, normal};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_effective_size_lies_between_one_and_n(
            series in proptest::collection::vec(-1e6_f64..1e6, 1..200)
        ) {
            let size = effective_size(&series);
            prop_assert!((1.0..=series.len() as f64).contains(&size), "{}", size);
        }

        #[test]
        fn scale_and_origin_do_not_matter(seed in any::<u64>(), scale in 1e-3_f64..1e3) {
            let mut stream = Seed(seed).stream("autocorrelation");
            let series = DistributionShape::Autoregressive.series(300, &mut stream);
            let moved: Vec<f64> = series.iter().map(|v| 5.0 + scale * v).collect();
            let (a, b) = (integrated_time(&series), integrated_time(&moved));
            prop_assert!((a - b).abs() < 1e-6 * a);
        }
    }

    #[test]
    fn an_autoregression_is_worth_its_theoretical_share() {
        // (1 + 0.8) / (1 − 0.8) = 9.
        let series = DistributionShape::Autoregressive.series(10_000, &mut Seed(5).stream("ar"));
        let time = integrated_time(&series);
        assert!((7.5..10.5).contains(&time), "{time}");
        let size = effective_size(&series);
        assert!((950.0..1_400.0).contains(&size), "{size}");
    }

    #[test]
    fn independent_samples_are_worth_themselves() {
        let mut stream = Seed(6).stream("independent");
        let series: Vec<f64> = (0..10_000).map(|_| normal(&mut stream)).collect();
        assert!(effective_size(&series) > 8_500.0, "{}", effective_size(&series));
    }

    #[test]
    fn one_interrupt_does_not_hide_the_correlation() {
        let mut series = DistributionShape::Autoregressive.series(4_000, &mut Seed(7).stream("ar"));
        series[1_000] = 1e7;
        assert!(integrated_time(&series) < 2.0);
        assert!(effective_size(&series) < 800.0);
    }

    #[test]
    fn a_long_series_is_worth_as_much_as_its_parts() {
        let series = DistributionShape::Autoregressive.series(60_000, &mut Seed(5).stream("long"));
        let parts: f64 = series.chunks(10_000).map(effective_size).sum();
        assert!((effective_size(&series) / parts - 1.0).abs() < 0.1);
    }

    #[test]
    fn large_samples_that_come_together_count_once() {
        // Six bursts of a hundred, evenly spread over 40,000 quiet samples.
        let mut stream = Seed(8).stream("bursts");
        let series: Vec<f64> = (0..40_000)
            .map(|i| normal(&mut stream) + if i % 6_000 < 100 { 50.0 } else { 0.0 })
            .collect();
        let [body, _, p99, _] = effective_sizes(&series);
        assert!(body > 5_000.0, "{body}");
        assert!((200.0..1_500.0).contains(&p99), "{p99}");
        assert!(effective_sizes(&[5.0; 100]).iter().all(|&size| size >= 100.0));
        assert!(effective_sizes(&[]).iter().all(|&size| size <= 0.0));
    }

    #[test]
    fn a_constant_series_is_one_sample() {
        assert!((effective_size(&[5.0; 100]) - 1.0).abs() < 1e-12);
        assert!(effective_size(&[]).abs() < 1e-12);
        assert!((effective_size(&[1.0]) - 1.0).abs() < 1e-12);
    }
}
