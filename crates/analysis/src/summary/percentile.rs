//! The percentiles of the tail with their intervals over launches, and when they are refused: the
//! one place of that rule.
//!
//! One is printed with its interval or not at all. It takes five launches, as many independent
//! samples as an interval of it between two samples would, and an interval that ends within the
//! samples and does not span more than a factor of ten.

use plumb_base::stats::autocorrelation::SUPPORTED;
use plumb_base::stats::tail::{self, LaunchSample};
use plumb_base::stats::{quantile, stopping};

use super::weighted_samples::{self, WeightedSamples};
use super::{CONFIDENCE, MeasuredCell, rounded};

/// Launches below which no percentile of the tail is printed.
const TAIL_LAUNCHES_NEEDED: usize = 5;

/// An interval whose ends are farther apart than this factor says nothing.
const SPAN_MAX: f64 = 10.0;

/// A percentile and the ends of its 95 % interval.
pub type PercentileEstimate = (f64, [f64; 2]);

/// All samples of a cell, ascending, each of its launch.
pub struct TailPercentiles<'a> {
    cell: &'a MeasuredCell<'a>,
    pool: &'a WeightedSamples,
    ascending: Vec<LaunchSample>,
    launches: usize,
    /// Independent samples for each of [`SUPPORTED`].
    n_eff: [f64; 4],
}

impl<'a> TailPercentiles<'a> {
    /// Those of a cell whose pooled samples are these.
    pub fn new(cell: &'a MeasuredCell<'a>, pool: &'a WeightedSamples, n_eff: [f64; 4]) -> Self {
        let mut ascending = Vec::new();
        let mut launches = 0;
        for measured in &cell.launches {
            let samples = weighted_samples::of_launch(measured);
            if !samples.is_empty() {
                let of = |(value, share)| LaunchSample { value, launch: launches, share };
                ascending.extend(samples.into_iter().map(of));
                launches += 1;
            }
        }
        ascending.sort_unstable_by(|a, b| a.value.total_cmp(&b.value));
        Self { cell, pool, ascending, launches, n_eff }
    }

    /// The percentile of [`SUPPORTED`] at this place, or why it is refused and what it would take.
    pub fn estimate(&self, place: usize) -> Result<PercentileEstimate, String> {
        let p = SUPPORTED[place];
        let launches = self.launches;
        if launches < TAIL_LAUNCHES_NEEDED {
            return Err(format!("needs {TAIL_LAUNCHES_NEEDED} launches, has {launches}"));
        }
        let needed = quantile::samples_needed(p, CONFIDENCE) as f64;
        let has = self.n_eff[place];
        if has < needed {
            let would = (launches as f64 * needed / has.max(1.0)).ceil();
            let has = has.floor();
            return Err(format!(
                "needs {needed} effective samples, has {has}; about {would} launches would do"
            ));
        }
        let value = self.pool.quantile(p);
        let found = tail::percentile_interval(&self.ascending, launches, p, value, CONFIDENCE);
        let Some(interval) = found else {
            return Err(format!(
                "its interval over {launches} launches ends beyond the largest sample; about {} \
                 launches would do",
                2 * launches
            ));
        };
        if interval.lo > 0.0 && interval.hi > SPAN_MAX * interval.lo {
            let span = interval.hi / interval.lo;
            let would = stopping::launches_to_decide(span.ln(), SPAN_MAX.ln(), launches as u64);
            return Err(format!(
                "its interval over {launches} launches spans a factor of {span:.0}; about {would} \
                 launches would do"
            ));
        }
        let interval = self.cell.at_least_a_step(interval);
        Ok((rounded(value), [rounded(interval.lo), rounded(interval.hi)]))
    }
}
