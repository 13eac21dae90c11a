//! The Theil–Sen line through points, for cost against size: t = a + b·n.
//!
//! Relative errors over several decades want logarithms of both axes.

use super::distribution::normal_quantile;
use super::{ConfidenceInterval, floor_index, quantile, sorted_finite};

/// A fitted line y = intercept + slope·x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FittedLine {
    /// Value at x = 0.
    pub intercept: f64,
    /// Change of y for one x.
    pub slope: f64,
    /// Where the true slope lies.
    pub slope_interval: ConfidenceInterval,
    /// Smallest x fitted.
    pub x_min: f64,
    /// Largest x fitted.
    pub x_max: f64,
}

impl FittedLine {
    /// The line's value at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }
}

/// The Theil–Sen line: the median of the slopes between all pairs of points.
///
/// Withstands up to 29 % of outliers. Slope interval after Sen 1968, by Kendall's normal
/// approximation with ties; the intercept is the median of y − slope·x. `None` for fewer than three finite points
/// or a single x.
pub fn theil_sen(x: &[f64], y: &[f64], confidence: f64) -> Option<FittedLine> {
    let is_finite = |(x, y): &(f64, f64)| x.is_finite() && y.is_finite();
    let points: Vec<(f64, f64)> =
        x.iter().copied().zip(y.iter().copied()).filter(is_finite).collect();
    let n = points.len();
    let mut slopes = Vec::with_capacity(n * n.saturating_sub(1) / 2);
    for (i, a) in points.iter().enumerate() {
        let others = points[i + 1..].iter().filter(|b| b.0.total_cmp(&a.0).is_ne());
        slopes.extend(others.map(|b| (b.1 - a.1) / (b.0 - a.0)));
    }
    slopes.sort_unstable_by(f64::total_cmp);
    if n < 3 || slopes.is_empty() {
        return None;
    }
    let slope = quantile::of_sorted(&slopes, 0.5);
    let at_zero: Vec<f64> = points.iter().map(|(x, y)| y - slope * x).collect();
    let intercept = quantile::of_sorted(&sorted_finite(&at_zero), 0.5);
    let slope_interval = sen_interval(&slopes, &points, confidence);
    let x_min = points.iter().map(|p| p.0).fold(f64::INFINITY, f64::min);
    let x_max = points.iter().map(|p| p.0).fold(f64::NEG_INFINITY, f64::max);
    Some(FittedLine { intercept, slope, slope_interval, x_min, x_max })
}

/// Sen's interval: the pairwise slopes whose ranks lie a normal quantile of Kendall's S away.
fn sen_interval(slopes: &[f64], points: &[(f64, f64)], confidence: f64) -> ConfidenceInterval {
    let n = points.len() as f64;
    let tie_sum = |values: Vec<f64>| -> f64 {
        sorted_finite(&values)
            .chunk_by(|a, b| a.total_cmp(b).is_eq())
            .map(|group| group.len() as f64)
            .map(|t| t * (t - 1.0) * (2.0 * t + 5.0))
            .sum()
    };
    let ties = tie_sum(points.iter().map(|p| p.0).collect())
        + tie_sum(points.iter().map(|p| p.1).collect());
    let sigma = ((n * (n - 1.0) * (2.0 * n + 5.0) - ties) / 18.0).max(0.0).sqrt();
    let reach = normal_quantile(f64::midpoint(1.0, confidence)) * sigma;
    let count = slopes.len() as f64;
    let last = slopes.len() - 1;
    let lo = floor_index(((count - reach) / 2.0).round_ties_even() - 1.0).min(last);
    let hi = floor_index(f64::midpoint(count, reach).round_ties_even()).min(last);
    ConfidenceInterval { lo: slopes[lo], hi: slopes[hi], confidence }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;
    use crate::stats::simulation::normal;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn points_on_a_line_give_that_line(intercept in -1e3_f64..1e3, slope in -1e3_f64..1e3) {
            let x: Vec<f64> = (0..9).map(|i| f64::from(i * i)).collect();
            let y: Vec<f64> = x.iter().map(|x| intercept + slope * x).collect();
            let line = theil_sen(&x, &y, 0.95).expect("nine points");
            let scale = 1e-9 * (1.0 + intercept.abs() + slope.abs());
            prop_assert!((line.intercept - intercept).abs() < 100.0 * scale);
            prop_assert!((line.slope - slope).abs() < scale);
            prop_assert!((line.at(7.0) - intercept - 7.0 * slope).abs() < 100.0 * scale);
        }
    }

    /// Ten sizes and their costs 100 + 2·size with errors of one.
    fn noisy(seed: u64) -> (Vec<f64>, Vec<f64>) {
        let mut stream = Seed(seed).stream("line");
        let x: Vec<f64> = (0..10).map(f64::from).collect();
        let y = x.iter().map(|x| 100.0 + 2.0 * x + normal(&mut stream)).collect();
        (x, y)
    }

    #[test]
    fn slope_intervals_have_their_nominal_coverage() {
        let covers = |trial: &u64| {
            let (x, y) = noisy(*trial);
            theil_sen(&x, &y, 0.95).expect("ten points").slope_interval.contains(2.0)
        };
        let held = (0..1_000).filter(covers).count();
        assert!((925..=975).contains(&held), "{held} of 1000");
    }

    #[test]
    fn two_outliers_do_not_move_the_slope() {
        let (x, mut y) = noisy(1);
        (y[2], y[8]) = (1e4, 1e5);
        assert!((theil_sen(&x, &y, 0.95).expect("ten points").slope - 2.0).abs() < 1.0);
    }

    #[test]
    fn too_few_points_give_no_line() {
        assert_eq!(theil_sen(&[1.0, 2.0], &[1.0, 2.0], 0.95), None);
        assert_eq!(theil_sen(&[1.0, 2.0, 3.0], &[1.0, f64::NAN, 3.0], 0.95), None);
        assert_eq!(theil_sen(&[1.0; 5], &[1.0, 2.0, 3.0, 4.0, 5.0], 0.95), None);
    }
}
