//! A cell measured over launches: the median launch and its interval.
//!
//! Samples are nested in blocks, blocks in launches, and the launch is what is replicated: samples
//! of one launch share its memory layout, ports and luck (Kalibera & Jones 2013; Georges, Buytaert
//! & Eeckhout 2007).
//!
//! What is estimated is the median launch: the median, over all launches that could be made, of a launch's median.
//! Launches may differ in any way, skewed or in modes, so its interval is of order statistics.

use super::distribution::binomial_cdf;
use super::{ConfidenceInterval, quantile};

/// Samples of one cell by launch, ascending. Values that are not finite are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleHierarchy {
    launches: Vec<Vec<f64>>,
}

impl SampleHierarchy {
    /// A cell of these samples, launch → block → samples; launches and blocks may be empty and of any length.
    pub fn new(launches: Vec<Vec<Vec<f64>>>) -> Self {
        let pooled = launches.into_iter().map(|blocks| quantile::sorted(&blocks.concat()));
        Self { launches: pooled.collect() }
    }

    /// The median of every launch that has samples, in launch order.
    pub fn launch_medians(&self) -> Vec<f64> {
        let measured = self.launches.iter().filter(|launch| !launch.is_empty());
        measured.map(|launch| quantile::of_sorted(launch, 0.5)).collect()
    }

    /// The median launch; not-a-number without samples.
    pub fn median(&self) -> f64 {
        quantile::of_sorted(&quantile::sorted(&self.launch_medians()), 0.5)
    }

    /// The interval of the median launch. `None` with too few launches: 95 % need six.
    pub fn median_interval(&self, confidence: f64) -> Option<ConfidenceInterval> {
        sign_interval(&quantile::sorted(&self.launch_medians()), confidence)
    }
}

/// The interval of the median of values in ascending order, from their order statistics.
///
/// Interpolated between the two intervals whose confidence is next to the one asked for (Hettmansperger & Sheather
/// 1986): nearly exact for any continuous distribution.
fn sign_interval(sorted: &[f64], confidence: f64) -> Option<ConfidenceInterval> {
    let n = sorted.len();
    // From the d-th lowest to the d-th highest value.
    let confidence_of = |d: usize| 1.0 - 2.0 * binomial_cdf(d as u64 - 1, n as u64, 0.5);
    let (outer, _) = quantile::order_statistic_ranks(n as u64, 0.5, confidence)?;
    let outer = usize::try_from(outer).ok()?;
    let ends = |d: usize| (sorted[d - 1], sorted[n - d]);
    let (lo, hi) = ends(outer);
    let inner = outer + 1;
    if inner > n.div_ceil(2) {
        return Some(ConfidenceInterval { lo, hi, confidence });
    }
    let inner_confidence = if 2 * inner > n { 0.0 } else { confidence_of(inner) };
    let surplus = (confidence_of(outer) - confidence) / (confidence_of(outer) - inner_confidence);
    let (d, n) = (outer as f64, n as f64);
    let share = (n - d) * surplus / (d + (n - 2.0 * d) * surplus);
    let (inner_lo, inner_hi) = ends(inner);
    Some(ConfidenceInterval {
        lo: lo + share * (inner_lo - lo),
        hi: hi + share * (inner_hi - hi),
        confidence,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;
    use crate::stats::simulation::LaunchEffect;

    #[test]
    fn the_median_launch_is_covered_whatever_launches_differ_by() {
        const TRIALS: u64 = 1_000;
        for launches in [6, 7, 10, 20] {
            for effect in LaunchEffect::ALL {
                let mut stream = Seed(1).stream(&format!("{launches} {effect:?}"));
                let held = (0..TRIALS).filter(|_| {
                    let medians = quantile::sorted(&effect.factors(launches, &mut stream));
                    let interval = sign_interval(&medians, 0.95).expect("six launches");
                    interval.contains(effect.median())
                });
                let covered = held.count() as f64 / TRIALS as f64;
                println!("{launches} {effect:?}: {covered}");
                // Three standard errors below 93 and above 97 %; what has modes may be held more often.
                let most = if effect.has_modes() { 1.0 } else { 0.986 };
                assert!((0.906..=most).contains(&covered), "{launches} {effect:?}: {covered}");
            }
        }
    }

    #[test]
    fn ninety_five_percent_need_six_launches() {
        let cell =
            |n: i32| SampleHierarchy::new((0..n).map(|v| vec![vec![f64::from(v)]]).collect());
        assert_eq!(cell(5).median_interval(0.95), None);
        let interval = cell(6).median_interval(0.95).expect("six launches");
        assert!(interval.lo < 0.6 && interval.hi > 4.4, "{interval:?}");
        assert!((cell(6).median() - 2.5).abs() < 1e-12);
    }

    #[test]
    fn the_interval_lies_between_the_next_order_statistics() {
        // Of twenty values the 6th to the 15th hold the median in 95.9 % of cases, the 7th to the 14th in 88.5 %.
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        let interval = sign_interval(&values, 0.95).expect("twenty values");
        assert!((6.0..6.5).contains(&interval.lo), "{interval:?}");
        assert!((interval.lo + interval.hi - 21.0).abs() < 1e-9, "{interval:?}");
    }

    #[test]
    fn intervals_of_thousands_of_values_are_as_wide_as_they_should_be() {
        // From 1,023 values on 2^-n is no normal number of f64, and from 1,075 on it is zero.
        for n in [1_000, 1_100, 10_000] {
            let values: Vec<f64> = (1..=n).map(f64::from).collect();
            let half_width = sign_interval(&values, 0.95).expect("many values").half_width();
            // The binomial is normal by now: 1.96 standard deviations of √n / 2.
            let normal = 0.98 * f64::from(n).sqrt();
            assert!((half_width - normal).abs() < 0.6, "{n}: {half_width} and {normal}");
        }
    }

    #[test]
    fn non_finite_values_and_empty_launches_are_ignored() {
        let cell = SampleHierarchy::new(vec![
            vec![],
            vec![vec![f64::NAN, 2.0], vec![]],
            vec![vec![f64::INFINITY]],
            vec![vec![4.0]],
        ]);
        assert_eq!(cell.launch_medians(), vec![2.0, 4.0]);
        assert!(SampleHierarchy::new(Vec::new()).median().is_nan());
    }
}
