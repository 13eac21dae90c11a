//! The interval of a high percentile over launches.
//!
//! What is printed is the percentile of the pooled samples, each launch with the same weight; so the
//! interval is of that. The geometric mean of the launches' own percentiles is another quantity:
//! where the slow samples come in bursts, a launch has many of them or none, and the mean of its
//! percentiles lies where there is no sample. By simulation, with 1.5 % of the samples in bursts of
//! about a hundred and blocks of 6,000, an interval around that mean holds the true p99 in 85 % of
//! cells of 5 launches and in 26 % of those of 30; the one used here in 94 to 97 %.
//!
//! A value belongs to the interval unless the launches' shares of samples above it differ
//! significantly from 1 − p, by Student's test of their mean on a logarithmic scale (shares of rare
//! events are skewed; Woodruff 1952 inverts the same test on the linear scale). The logarithm of a
//! mean is too low on average, to second order by half the mean's relative variance, which is added:
//! without it the true p99 lies above the interval in 6 to 7 % of cells of six to eight launches of
//! one block, with it in 4 to 5 %. Where launches differ by a factor that is large beside their own
//! spread, those shares are too skewed even so; therefore the interval also reaches as far as that
//! of the launches' percentiles, moved to the pooled one. (Launches 1 % apart around a body 5 %
//! wide: 93 to 96 %; 3 % apart: 84 to 89 %.) Left out: how many samples and launches it takes for
//! that to mean something.

use super::ConfidenceInterval;
use super::distribution::student_quantile;

/// A sample, or several equal ones, of a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LaunchSample {
    /// Its value.
    pub value: f64,
    /// Its launch, counted from 0.
    pub launch: usize,
    /// Its share of the launch's samples.
    pub share: f64,
}

/// The interval of the `p`-quantile of pooled samples, of which `estimate` is the estimate.
///
/// `ascending` holds every sample of so many launches. `None` for fewer than two launches, without
/// samples, and where the sample ends before the interval does.
pub fn percentile_interval(
    ascending: &[LaunchSample],
    launches: usize,
    p: f64,
    estimate: f64,
    confidence: f64,
) -> Option<ConfidenceInterval> {
    if launches < 2 || ascending.is_empty() {
        return None;
    }
    let reach = student_quantile(f64::midpoint(1.0, confidence), launches as f64 - 1.0);
    let mut tails = LaunchTails::new(launches, 1.0 - p);
    let (mut lo, mut hi) = (estimate, None);
    // Whether nothing above is excluded, up to the largest sample.
    let mut is_open = false;
    for equal in ascending.chunk_by(|a, b| a.value.total_cmp(&b.value).is_eq()).rev() {
        let value = equal[0].value;
        if tails.excess() <= reach {
            lo = lo.min(value);
        }
        tails.add(equal);
        if hi.is_some() && !is_open {
            continue;
        }
        let excess = tails.excess();
        if excess < -reach {
            // One launch's largest samples, whatever they are, say little; more of them exclude those values.
            (hi, is_open) = (None, false);
        } else if hi.is_none() {
            let is_largest = equal.as_ptr_range().end == ascending.as_ptr_range().end;
            // Unless so many are equal to the largest that the percentile is that value.
            (hi, is_open) = (Some(value), is_largest && excess <= reach);
        }
    }
    let hi = hi.filter(|_| !is_open);
    let (low, high) = shifted(&tails.percentiles, estimate, reach);
    Some(ConfidenceInterval { lo: lo.min(low), hi: hi?.max(estimate).max(high), confidence })
}

/// Student's interval of the launches' percentiles, moved to the estimate; by factors where it can be.
fn shifted(percentiles: &[f64], estimate: f64, reach: f64) -> (f64, f64) {
    let n = percentiles.len() as f64;
    let positive = estimate > 0.0 && percentiles.iter().all(|&v| v > 0.0);
    let values: Vec<f64> = percentiles.iter().map(|&v| if positive { v.ln() } else { v }).collect();
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let half = reach * (variance / n).sqrt();
    if positive {
        (estimate * (-half).exp(), estimate * half.exp())
    } else {
        (estimate - half, estimate + half)
    }
}

/// The shares of the launches' samples from some value on, as that value falls.
struct LaunchTails {
    /// The share that is tested: 1 − p.
    wanted: f64,
    shares: Vec<f64>,
    sum: f64,
    sum_of_squares: f64,
    /// The largest value at which the share of each launch is the one wanted.
    percentiles: Vec<f64>,
}

impl LaunchTails {
    fn new(launches: usize, wanted: f64) -> Self {
        let shares = vec![0.0; launches];
        let percentiles = vec![f64::NAN; launches];
        Self { wanted, shares, sum: 0.0, sum_of_squares: 0.0, percentiles }
    }

    fn add(&mut self, samples: &[LaunchSample]) {
        for sample in samples {
            let before = self.shares[sample.launch];
            let share = before + sample.share;
            self.shares[sample.launch] = share;
            self.sum += sample.share;
            self.sum_of_squares += share * share - before * before;
            if share >= self.wanted && self.percentiles[sample.launch].is_nan() {
                self.percentiles[sample.launch] = sample.value;
            }
        }
    }

    /// By how many standard errors the mean share exceeds the wanted one, on a logarithmic scale.
    fn excess(&self) -> f64 {
        let n = self.shares.len() as f64;
        let mean = self.sum / n;
        if mean <= 0.0 {
            return f64::NEG_INFINITY;
        }
        let variance = (self.sum_of_squares - self.sum * mean).max(0.0) / (n - 1.0);
        let relative = variance / n / (mean * mean);
        let distance = (mean / self.wanted).ln() + relative / 2.0;
        if distance.abs() < 1e-9 { 0.0 } else { distance / relative.sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;
    use crate::stats::quantile;
    use crate::stats::simulation::BurstySamples;

    const SAMPLES: usize = 6_000;

    fn cell(launches: usize, blocks: usize, seed: Seed) -> Vec<LaunchSample> {
        let mut stream = seed.stream("tail");
        let share = 1.0 / (SAMPLES * blocks) as f64;
        let mut samples = Vec::new();
        for launch in 0..launches {
            for _ in 0..blocks {
                let block = BurstySamples::TYPICAL.block(SAMPLES, &mut stream).into_iter();
                samples.extend(block.map(|value| LaunchSample { value, launch, share }));
            }
        }
        samples.sort_unstable_by(|a, b| a.value.total_cmp(&b.value));
        samples
    }

    fn interval(cell: &[LaunchSample], launches: usize, p: f64) -> Option<ConfidenceInterval> {
        let values: Vec<f64> = cell.iter().map(|sample| sample.value).collect();
        percentile_interval(cell, launches, p, quantile::of_sorted(&values, p), 0.95)
    }

    #[test]
    fn the_interval_of_p99_covers_where_slow_samples_come_in_bursts() {
        const TRIALS: u32 = 100;
        let mut all = 0.0;
        for launches in [5, 10, 20] {
            let held = (0..TRIALS).filter(|trial| {
                let cell = cell(launches, 2, Seed(1).derive(&format!("{launches} {trial}")));
                interval(&cell, launches, 0.99)
                    .is_some_and(|found| found.contains(BurstySamples::TYPICAL.quantile(0.99)))
            });
            let share = held.count() as f64 / f64::from(TRIALS);
            assert!((0.9..=0.99).contains(&share), "{launches} launches: {share}");
            all += share / 3.0;
        }
        assert!((0.93..=0.97).contains(&all), "{all}");
    }

    #[test]
    fn few_bursts_in_six_launches_make_no_interval_too_low() {
        const TRIALS: u64 = 600;
        let p99 = BurstySamples::TYPICAL.quantile(0.99);
        let told = (0..TRIALS).filter_map(|trial| interval(&cell(6, 1, Seed(trial)), 6, 0.99));
        let (below, told) =
            told.fold((0, 0), |(below, told), found| (below + u64::from(found.hi < p99), told + 1));
        // 4.7 %; without what is added to the logarithm 6.3 %.
        assert!(told > TRIALS * 9 / 10 && below * 1_000 < told * 55, "{below} of {told}");
    }

    #[test]
    fn an_interval_that_ends_beyond_the_largest_sample_is_none() {
        let launch = |launch: usize| {
            let at = move |i: usize| LaunchSample {
                value: ((i * 5 + launch) * 7_919 % 100) as f64,
                launch,
                share: 0.05,
            };
            (0..20).map(at)
        };
        let mut few: Vec<LaunchSample> = (0..5).flat_map(launch).collect();
        few.sort_unstable_by(|a, b| a.value.total_cmp(&b.value));
        assert_eq!(interval(&few, 5, 0.99), None);
        assert!(interval(&few, 5, 0.5).is_some());
        assert_eq!(interval(&[], 5, 0.5), None);
    }

    #[test]
    fn equal_samples_give_a_point() {
        let all: Vec<LaunchSample> =
            (0..5).map(|launch| LaunchSample { value: 26.0, launch, share: 1.0 }).collect();
        let found = interval(&all, 5, 0.99).unwrap();
        assert!(found.half_width() < 1e-9 && found.contains(26.0));
    }
}
