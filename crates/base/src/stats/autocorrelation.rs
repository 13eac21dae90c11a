//! How many independent samples a correlated series is worth.
//!
//! The integrated autocorrelation time τ = 1 + 2 Σ ρ(k), summed by the initial monotone sequence of
//! Geyer, "Practical Markov chain Monte Carlo", Statistical Science 7 (1992). Left out: spectral
//! estimators, and models of the correlation.

use super::rank::ranks;

/// Lags looked at before the sum is cut off: what bounds the work at 20 million products.
const MAX_LAG: usize = 2_000;

/// Independent samples that would say as much about the quantiles of this series; in 1–n.
///
/// Computed on ranks, because one sample a thousand times the rest (an interrupt) would otherwise
/// hide any correlation of the others, and because quantiles depend on ranks alone. A constant
/// series counts as one sample; negative correlation is not counted as a gain.
pub fn effective_size(series: &[f64]) -> f64 {
    let n = series.len() as f64;
    if series.is_empty() {
        return 0.0;
    }
    (n / integrated_time(&ranks(series))).clamp(1.0, n)
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
