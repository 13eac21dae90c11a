//! Straight lines through points: Theil–Sen for robustness, weighted least squares for prediction.
//!
//! For cost against size, t = a + b·n. Relative errors over several decades want weights of 1/y²
//! or logarithms of both axes. Left out: curves and more than one explaining variable.

use super::distribution::{normal_quantile, student_quantile};
use super::{Interval, floor_index, quantile, sorted_finite};

/// A fitted line y = intercept + slope·x, with what is known about its precision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    /// Value at x = 0.
    pub intercept: f64,
    /// Change of y for one x.
    pub slope: f64,
    /// Where the true intercept lies.
    pub intercept_interval: Interval,
    /// Where the true slope lies.
    pub slope_interval: Interval,
    /// Standard deviation of the residuals (of a point of weight 1).
    pub residual_sd: f64,
    /// Points it was fitted to.
    pub points: usize,
    /// Smallest x fitted: below it, the line is an extrapolation.
    pub x_min: f64,
    /// Largest x fitted: above it, the line is an extrapolation.
    pub x_max: f64,
    spread: Spread,
}

/// What a prediction interval needs of the points.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Spread {
    weight: f64,
    x_mean: f64,
    x_squares: f64,
}

impl Line {
    /// The line's value at `x`.
    pub fn at(&self, x: f64) -> f64 {
        self.intercept + self.slope * x
    }

    /// Whether `x` lies outside the points fitted.
    pub fn extrapolates(&self, x: f64) -> bool {
        x < self.x_min || x > self.x_max
    }

    /// Where one further measurement of weight `weight` at `x` will lie.
    ///
    /// Exact for normal errors (Draper & Smith, *Applied Regression Analysis*, 1998, §3.1), and the
    /// usual approximation for a Theil–Sen line, whose residual spread is robust.
    pub fn prediction(&self, x: f64, weight: f64, confidence: f64) -> Interval {
        let t = student_quantile(f64::midpoint(1.0, confidence), self.points as f64 - 2.0);
        let Spread { weight: total, x_mean, x_squares } = self.spread;
        let line = 1.0 / total + (x - x_mean).powi(2) / x_squares;
        let reach = t * self.residual_sd * (1.0 / weight + line).sqrt();
        Interval { lo: self.at(x) - reach, hi: self.at(x) + reach, confidence }
    }
}

/// The Theil–Sen line: the median of the slopes between all pairs of points.
///
/// Withstands up to 29 % of wild points. Slope interval after Sen 1968, by Kendall's normal
/// approximation with ties; the intercept is the median of y − slope·x, its interval that of the
/// two slopes at the ends. `None` for fewer than three points or a single x.
pub fn theil_sen(x: &[f64], y: &[f64], confidence: f64) -> Option<Line> {
    let points = finite_points(x, y, None);
    let n = points.len();
    let mut slopes = Vec::with_capacity(n * n.saturating_sub(1) / 2);
    for (i, a) in points.iter().enumerate() {
        slopes.extend(
            points[i + 1..]
                .iter()
                .filter(|b| b.x.total_cmp(&a.x).is_ne())
                .map(|b| (b.y - a.y) / (b.x - a.x)),
        );
    }
    slopes.sort_unstable_by(f64::total_cmp);
    if n < 3 || slopes.is_empty() {
        return None;
    }
    let slope = quantile::of_sorted(&slopes, 0.5);
    let intercept_of = |slope: f64| {
        quantile::of_sorted(
            &sorted_finite(&points.iter().map(|p| p.y - slope * p.x).collect::<Vec<_>>()),
            0.5,
        )
    };
    let intercept = intercept_of(slope);
    let slope_interval = sen_interval(&slopes, &points, confidence);
    let ends = [intercept_of(slope_interval.lo), intercept_of(slope_interval.hi)];
    let intercept_interval =
        Interval { lo: ends[0].min(ends[1]), hi: ends[0].max(ends[1]), confidence };
    // 1.4826 times the median absolute residual estimates the standard deviation of normal errors.
    let residuals: Vec<f64> =
        points.iter().map(|p| (p.y - intercept - slope * p.x).abs()).collect();
    let residual_sd = 1.482_602_218_505_602 * quantile::of_sorted(&sorted_finite(&residuals), 0.5);
    Some(line(&points, intercept, slope, intercept_interval, slope_interval, residual_sd))
}

/// The weighted least-squares line; weights are inverse variances up to a factor.
///
/// Intervals by Student's t with n − 2 degrees of freedom. `None` for fewer than three points of
/// positive weight or a single x.
pub fn weighted_least_squares(x: &[f64], y: &[f64], w: &[f64], confidence: f64) -> Option<Line> {
    let points = finite_points(x, y, Some(w));
    let n = points.len();
    let Spread { weight, x_mean, x_squares } = spread(&points);
    if n < 3 || x_squares.is_nan() || x_squares <= 0.0 {
        return None;
    }
    let y_mean = points.iter().map(|p| p.w * p.y).sum::<f64>() / weight;
    let products: f64 = points.iter().map(|p| p.w * (p.x - x_mean) * (p.y - y_mean)).sum();
    let slope = products / x_squares;
    let intercept = y_mean - slope * x_mean;
    let freedom = n as f64 - 2.0;
    let squares: f64 = points.iter().map(|p| p.w * (p.y - intercept - slope * p.x).powi(2)).sum();
    let residual_sd = (squares / freedom).sqrt();
    let deviation = student_quantile(f64::midpoint(1.0, confidence), freedom) * residual_sd;
    let around =
        |value: f64, reach: f64| Interval { lo: value - reach, hi: value + reach, confidence };
    let slope_interval = around(slope, deviation / x_squares.sqrt());
    let intercept_interval =
        around(intercept, deviation * (1.0 / weight + x_mean.powi(2) / x_squares).sqrt());
    Some(line(&points, intercept, slope, intercept_interval, slope_interval, residual_sd))
}

/// One point with its weight.
#[derive(Clone, Copy, Debug)]
struct Point {
    x: f64,
    y: f64,
    w: f64,
}

/// The points that are finite, of positive weight and present in every list.
fn finite_points(x: &[f64], y: &[f64], w: Option<&[f64]>) -> Vec<Point> {
    x.iter()
        .zip(y)
        .enumerate()
        .map(|(i, (&x, &y))| Point { x, y, w: w.map_or(1.0, |w| w.get(i).copied().unwrap_or(0.0)) })
        .filter(|p| p.x.is_finite() && p.y.is_finite() && p.w.is_finite() && p.w > 0.0)
        .collect()
}

fn spread(points: &[Point]) -> Spread {
    let weight: f64 = points.iter().map(|p| p.w).sum();
    let x_mean = points.iter().map(|p| p.w * p.x).sum::<f64>() / weight;
    let x_squares = points.iter().map(|p| p.w * (p.x - x_mean).powi(2)).sum();
    Spread { weight, x_mean, x_squares }
}

fn line(
    points: &[Point],
    intercept: f64,
    slope: f64,
    intercept_interval: Interval,
    slope_interval: Interval,
    residual_sd: f64,
) -> Line {
    Line {
        intercept,
        slope,
        intercept_interval,
        slope_interval,
        residual_sd,
        points: points.len(),
        x_min: points.iter().map(|p| p.x).fold(f64::INFINITY, f64::min),
        x_max: points.iter().map(|p| p.x).fold(f64::NEG_INFINITY, f64::max),
        spread: spread(points),
    }
}

/// Sen's interval: the pairwise slopes whose ranks lie a normal quantile of Kendall's S away.
fn sen_interval(slopes: &[f64], points: &[Point], confidence: f64) -> Interval {
    let n = points.len() as f64;
    let tie_sum = |values: Vec<f64>| -> f64 {
        sorted_finite(&values)
            .chunk_by(|a, b| a.total_cmp(b).is_eq())
            .map(|group| group.len() as f64)
            .map(|t| t * (t - 1.0) * (2.0 * t + 5.0))
            .sum()
    };
    let ties = tie_sum(points.iter().map(|p| p.x).collect())
        + tie_sum(points.iter().map(|p| p.y).collect());
    let sigma = ((n * (n - 1.0) * (2.0 * n + 5.0) - ties) / 18.0).max(0.0).sqrt();
    let reach = normal_quantile(f64::midpoint(1.0, confidence)) * sigma;
    let count = slopes.len() as f64;
    let last = slopes.len() - 1;
    let lo = floor_index(((count - reach) / 2.0).round_ties_even() - 1.0).min(last);
    let hi = floor_index(f64::midpoint(count, reach).round_ties_even()).min(last);
    Interval { lo: slopes[lo], hi: slopes[hi], confidence }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;
    use crate::stats::simulate::normal;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn points_on_a_line_give_that_line(intercept in -1e3_f64..1e3, slope in -1e3_f64..1e3) {
            let x: Vec<f64> = (0..9).map(|i| f64::from(i * i)).collect();
            let y: Vec<f64> = x.iter().map(|x| intercept + slope * x).collect();
            let robust = theil_sen(&x, &y, 0.95).expect("nine points");
            let squares = weighted_least_squares(&x, &y, &[2.0; 9], 0.95).expect("nine points");
            let scale = 1e-9 * (1.0 + intercept.abs() + slope.abs());
            for line in [robust, squares] {
                prop_assert!((line.intercept - intercept).abs() < 100.0 * scale);
                prop_assert!((line.slope - slope).abs() < scale);
                prop_assert!((line.at(7.0) - intercept - 7.0 * slope).abs() < 100.0 * scale);
            }
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
    fn slopes_and_predictions_cover_as_often_as_they_say() {
        let (mut slope, mut robust, mut ahead) = (0, 0, 0);
        for trial in 0..1_000 {
            let (x, y) = noisy(trial);
            let line = weighted_least_squares(&x, &y, &[1.0; 10], 0.95).expect("ten points");
            slope += u32::from(line.slope_interval.contains(2.0));
            let next = 124.0 + normal(&mut Seed(trial).stream("next"));
            ahead += u32::from(line.prediction(12.0, 1.0, 0.95).contains(next));
            let line = theil_sen(&x, &y, 0.95).expect("ten points");
            robust += u32::from(line.slope_interval.contains(2.0));
        }
        for (name, held) in [("slope", slope), ("prediction", ahead), ("Theil–Sen", robust)] {
            assert!((925..=975).contains(&held), "{name}: {held} of 1000");
        }
    }

    #[test]
    fn two_wild_points_bend_least_squares_and_not_theil_sen() {
        let (x, mut y) = noisy(1);
        (y[2], y[8]) = (1e4, 1e5);
        assert!((theil_sen(&x, &y, 0.95).expect("ten points").slope - 2.0).abs() < 1.0);
        let bent = weighted_least_squares(&x, &y, &[1.0; 10], 0.95).expect("ten points");
        assert!(bent.slope > 100.0);
        assert!(bent.extrapolates(9.5) && !bent.extrapolates(9.0));
    }

    #[test]
    fn points_without_weight_do_not_count_and_too_few_give_no_line() {
        let (x, mut y) = noisy(2);
        y[5] = 1e9;
        let mut w = [1.0; 10];
        w[5] = 0.0;
        let line = weighted_least_squares(&x, &y, &w, 0.95).expect("nine points");
        assert!(line.points == 9 && (line.slope - 2.0).abs() < 1.0);
        assert_eq!(weighted_least_squares(&[1.0; 5], &[1.0; 5], &[1.0; 5], 0.95), None);
        assert_eq!(theil_sen(&[1.0, 2.0], &[1.0, 2.0], 0.95), None);
        assert_eq!(theil_sen(&[1.0; 5], &[1.0, 2.0, 3.0, 4.0, 5.0], 0.95), None);
    }
}
