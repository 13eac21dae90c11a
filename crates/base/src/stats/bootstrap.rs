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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::simulate::{Shape, normal};

    fn mean(values: &[f64]) -> f64 {
        super::super::means::arithmetic(values).unwrap_or(f64::NAN)
    }

    /// Share of 300 samples whose interval holds `truth`.
    fn coverage(
        truth: f64,
        label: &str,
        sample: impl Fn(&mut Stream) -> Vec<f64>,
        interval: impl Fn(&[f64], Seed) -> Option<Interval>,
    ) -> f64 {
        let mut stream = Seed(11).stream(label);
        let held = (0..300)
            .filter(|&trial| {
                interval(&sample(&mut stream), Seed(trial)).is_some_and(|i| i.contains(truth))
            })
            .count();
        held as f64 / 300.0
    }

    #[test]
    fn intervals_of_a_mean_cover_it() {
        let sample = |stream: &mut Stream| (0..60).map(|_| normal(stream)).collect::<Vec<f64>>();
        let plain = coverage(0.0, "mean", sample, |v, seed| percentile(v, mean, 500, 0.95, seed));
        let corrected = coverage(0.0, "mean", sample, |v, seed| bca(v, mean, 500, 0.95, seed));
        assert!((0.90..=0.985).contains(&plain), "{plain}");
        assert!((0.90..=0.985).contains(&corrected), "{corrected}");
    }

    #[test]
    fn blocks_cover_a_correlated_mean_where_single_samples_do_not() {
        let sample = |stream: &mut Stream| Shape::Autoregressive.series(600, stream);
        let single = coverage(100.0, "ar", sample, |v, seed| percentile(v, mean, 300, 0.95, seed));
        let blocks = coverage(100.0, "ar", sample, |v, seed| {
            block(v, mean, block_length(v), 300, 0.95, seed)
        });
        assert!(single < 0.65, "{single}");
        assert!((0.87..=0.985).contains(&blocks), "{blocks}");
    }

    #[test]
    fn bca_leans_with_the_skew() {
        let mut stream = Seed(2).stream("skew");
        let sample: Vec<f64> = (0..40).map(|_| normal(&mut stream).exp()).collect();
        let plain = percentile(&sample, mean, 4_000, 0.95, Seed(1)).expect("forty values");
        let corrected = bca(&sample, mean, 4_000, 0.95, Seed(1)).expect("forty values");
        assert!(corrected.lo > plain.lo && corrected.hi > plain.hi);
    }

    #[test]
    fn one_seed_gives_one_interval_and_too_little_gives_none() {
        let sample = [1.0, 5.0, 2.0, 8.0, 3.0];
        let draw = |seed| percentile(&sample, mean, 200, 0.9, Seed(seed));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_eq!(percentile(&[1.0], mean, 200, 0.9, Seed(1)), None);
        assert_eq!(bca(&sample, mean, 0, 0.9, Seed(1)), None);
        assert_eq!(block(&sample, |_| f64::NAN, 2.0, 50, 0.9, Seed(1)), None);
        let constant = bca(&[3.0; 10], mean, 100, 0.9, Seed(1)).expect("ten values");
        assert!((constant.lo - 3.0).abs() < 1e-12 && constant.half_width() < 1e-12);
    }
}
