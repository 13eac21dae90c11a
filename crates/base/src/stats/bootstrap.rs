//! Bootstrap intervals of any statistic of one sample: percentile, BCa, and by blocks for series.
//!
//! Efron & Tibshirani, *An Introduction to the Bootstrap*, 1993. The sample is taken as it is: for
//! samples nested in launches use [`super::hierarchy`], because resampling single samples there
//! pretends to independence that is not there. Left out: studentised and smoothed bootstraps.

use rand::RngExt;

use super::distribution::{normal_cdf, normal_quantile};
use super::{Interval, floor_index, quantile};
use crate::seed::{Seed, Stream};

/// The percentile interval: quantiles of the statistic over resamples.
///
/// `None` for fewer than two values, no resamples, or a statistic that is never finite.
/// Under-covers small samples; 2,000 resamples serve a 95 % interval.
pub fn percentile(
    values: &[f64],
    statistic: impl Fn(&[f64]) -> f64,
    resamples: usize,
    confidence: f64,
    seed: Seed,
) -> Option<Interval> {
    let replicates = independent(values, &statistic, resamples, seed)?;
    let tail = (1.0 - confidence) / 2.0;
    Some(between(&replicates, tail, 1.0 - tail, confidence))
}

/// The bias-corrected and accelerated interval (Efron 1987), for skewed statistics such as means
/// and ratios.
///
/// `None` as for [`percentile`]. Costs one more evaluation of the statistic a value, for the
/// jackknife that estimates the acceleration.
pub fn bca(
    values: &[f64],
    statistic: impl Fn(&[f64]) -> f64,
    resamples: usize,
    confidence: f64,
    seed: Seed,
) -> Option<Interval> {
    let replicates = independent(values, &statistic, resamples, seed)?;
    let estimate = statistic(values);
    let below = replicates.partition_point(|&r| r < estimate) as f64;
    let equal = replicates.partition_point(|&r| r <= estimate) as f64 - below;
    let share = (below + equal / 2.0) / replicates.len() as f64;
    // A statistic at the edge of its own replicates has no finite bias correction.
    let edge = 0.5 / replicates.len() as f64;
    let bias = normal_quantile(share.clamp(edge, 1.0 - edge));
    let acceleration = acceleration(values, &statistic);
    let adjust = |p: f64| {
        let z = bias + normal_quantile(p);
        normal_cdf(bias + z / (1.0 - acceleration * z))
    };
    let tail = (1.0 - confidence) / 2.0;
    Some(between(&replicates, adjust(tail), adjust(1.0 - tail), confidence))
}

/// The percentile interval from the stationary bootstrap, for a series in time order.
///
/// Blocks of geometric length with mean `mean_length`, wrapped around the end (Politis & Romano
/// 1994). A few times the integrated autocorrelation time is a sound length; lengths below 1 count
/// as 1, which is the ordinary bootstrap. `None` as for [`percentile`].
pub fn block(
    series: &[f64],
    statistic: impl Fn(&[f64]) -> f64,
    mean_length: f64,
    resamples: usize,
    confidence: f64,
    seed: Seed,
) -> Option<Interval> {
    let restart = 1.0 / mean_length.max(1.0);
    let mut stream = seed.stream("bootstrap.block");
    let replicates = replicates(series, &statistic, resamples, |out| {
        let mut at = 0;
        for slot in out {
            at = if stream.random::<f64>() < restart {
                draw(&mut stream, series.len())
            } else {
                (at + 1) % series.len()
            };
            *slot = series[at];
        }
    })?;
    let tail = (1.0 - confidence) / 2.0;
    Some(between(&replicates, tail, 1.0 - tail, confidence))
}

/// A mean block length for [`block`], from the integrated autocorrelation time: the n^(1/3) rule of
/// Künsch 1989, scaled by the correlation.
pub fn block_length(series: &[f64]) -> f64 {
    let n = series.len() as f64;
    let time = super::autocorrelation::integrated_time(series);
    (time * n.cbrt() / 2.0).clamp(1.0, (n / 4.0).max(1.0))
}

fn independent(
    values: &[f64],
    statistic: &impl Fn(&[f64]) -> f64,
    resamples: usize,
    seed: Seed,
) -> Option<Vec<f64>> {
    let mut stream = seed.stream("bootstrap.independent");
    replicates(values, statistic, resamples, |out| {
        for slot in out {
            *slot = values[draw(&mut stream, values.len())];
        }
    })
}

/// The statistic over resamples, ascending, without those that are not finite.
fn replicates(
    values: &[f64],
    statistic: &impl Fn(&[f64]) -> f64,
    resamples: usize,
    mut resample: impl FnMut(&mut [f64]),
) -> Option<Vec<f64>> {
    if values.len() < 2 {
        return None;
    }
    let mut buffer = values.to_vec();
    let mut found: Vec<f64> = (0..resamples)
        .map(|_| {
            resample(&mut buffer);
            statistic(&buffer)
        })
        .filter(|r| r.is_finite())
        .collect();
    found.sort_unstable_by(f64::total_cmp);
    (!found.is_empty()).then_some(found)
}

/// A sixth of the skewness of the jackknife influence values.
fn acceleration(values: &[f64], statistic: &impl Fn(&[f64]) -> f64) -> f64 {
    let mut rest = values[1..].to_vec();
    let mut left_out = Vec::with_capacity(values.len());
    for index in 0..values.len() {
        left_out.push(statistic(&rest));
        if index < rest.len() {
            rest[index] = values[index];
        }
    }
    let mean = left_out.iter().sum::<f64>() / left_out.len() as f64;
    let squares: f64 = left_out.iter().map(|v| (mean - v).powi(2)).sum();
    let cubes: f64 = left_out.iter().map(|v| (mean - v).powi(3)).sum();
    let acceleration = cubes / (6.0 * squares.powf(1.5));
    if acceleration.is_finite() { acceleration } else { 0.0 }
}

fn between(replicates: &[f64], lo: f64, hi: f64, confidence: f64) -> Interval {
    Interval {
        lo: quantile::of_sorted(replicates, lo),
        hi: quantile::of_sorted(replicates, hi),
        confidence,
    }
}

/// A uniform index below `n`, by multiplication: fast, and biased by less than n / 2^53.
pub(crate) fn draw(stream: &mut Stream, n: usize) -> usize {
    floor_index(stream.random::<f64>() * n as f64).min(n - 1)
}
