//! The percentile bootstrap: an interval of any statistic of one sample.
//!
//! Efron & Tibshirani, *An Introduction to the Bootstrap*, 1993. Only for independent values: for samples nested
//! in launches use [`super::hierarchy`].

use rand::RngExt;

use super::{ConfidenceInterval, floor_index, quantile};
use crate::seed::{RandomStream, Seed};

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
) -> Option<ConfidenceInterval> {
    if values.len() < 2 {
        return None;
    }
    let mut stream = seed.stream("bootstrap.independent");
    let mut resample = values.to_vec();
    let mut found: Vec<f64> = (0..resamples)
        .map(|_| {
            resample.fill_with(|| values[draw(&mut stream, values.len())]);
            statistic(&resample)
        })
        .filter(|r| r.is_finite())
        .collect();
    if found.is_empty() {
        return None;
    }
    found.sort_unstable_by(f64::total_cmp);
    let at = |p| quantile::of_sorted(&found, p);
    let tail = (1.0 - confidence) / 2.0;
    Some(ConfidenceInterval { lo: at(tail), hi: at(1.0 - tail), confidence })
}

/// A uniform index below `n`, by multiplication: fast, and biased by less than n / 2^53.
pub(crate) fn draw(stream: &mut RandomStream, n: usize) -> usize {
    floor_index(stream.random::<f64>() * n as f64).min(n - 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::simulation::normal;

    fn mean(values: &[f64]) -> f64 {
        super::super::means::arithmetic(values).unwrap_or(f64::NAN)
    }

    #[test]
    fn intervals_of_a_mean_cover_it() {
        let mut stream = Seed(11).stream("mean");
        let covers = |trial: &u64| {
            let sample: Vec<f64> = (0..60).map(|_| normal(&mut stream)).collect();
            let interval = percentile(&sample, mean, 500, 0.95, Seed(*trial));
            interval.is_some_and(|interval| interval.contains(0.0))
        };
        let held = (0..300).filter(covers).count();
        assert!((270..=295).contains(&held), "{held} of 300");
    }

    #[test]
    fn one_seed_gives_one_interval_and_too_little_gives_none() {
        let sample = [1.0, 5.0, 2.0, 8.0, 3.0];
        let interval = |seed| percentile(&sample, mean, 200, 0.9, Seed(seed));
        assert_eq!(interval(1), interval(1));
        assert_ne!(interval(1), interval(2));
        assert_eq!(percentile(&[1.0], mean, 200, 0.9, Seed(1)), None);
        assert_eq!(percentile(&sample, mean, 0, 0.9, Seed(1)), None);
        assert_eq!(percentile(&sample, |_| f64::NAN, 50, 0.9, Seed(1)), None);
    }
}
