//! Weighted least squares with a few terms, its intervals, and its error on points that were left out.
//!
//! Intervals are Student's, as of normal residuals whose variance is the same up to the weights (Draper & Smith, Applied
//! Regression Analysis, 3rd ed., ch. 2 and 6).

use super::ConfidenceInterval;
use super::distribution::student_quantile;

/// A fitted model y = c₀x₀ + c₁x₁ + …
#[derive(Clone, Debug, PartialEq)]
pub struct LinearFit {
    /// The coefficients, in the order of the terms.
    pub coefficients: Vec<f64>,
    /// Standard deviation of a residual of weight one.
    pub residual_sd: f64,
    /// Points less terms.
    pub freedom: f64,
    /// Inverse of XᵀWX.
    inverse: Vec<Vec<f64>>,
}

/// Fits a model to rows of terms, a row a point; a constant is a term that is one everywhere.
///
/// `None` for fewer points than terms and one, rows of different lengths, numbers that are not finite, weights that are
/// not positive, or terms that depend on one another.
pub fn fit(rows: &[Vec<f64>], y: &[f64], weights: &[f64]) -> Option<LinearFit> {
    let terms = rows.first()?.len();
    let is_sound = rows.len() == y.len()
        && rows.len() == weights.len()
        && rows.len() > terms
        && rows.iter().all(|row| row.len() == terms && row.iter().all(|x| x.is_finite()))
        && y.iter().all(|y| y.is_finite())
        && weights.iter().all(|w| w.is_finite() && *w > 0.0);
    if !is_sound {
        return None;
    }
    let points = || rows.iter().zip(y).zip(weights);
    let product = |i: usize, j: usize| points().map(|((row, _), w)| w * row[i] * row[j]).sum();
    let normal: Vec<Vec<f64>> =
        (0..terms).map(|i| (0..terms).map(|j| product(i, j)).collect()).collect();
    let inverse = invert(normal)?;
    let right: Vec<f64> =
        (0..terms).map(|i| points().map(|((row, y), w)| w * row[i] * y).sum()).collect();
    let coefficients: Vec<f64> = inverse.iter().map(|row| dot(row, &right)).collect();
    let squares: f64 =
        points().map(|((row, y), w)| w * (y - dot(row, &coefficients)).powi(2)).sum();
    let freedom = (rows.len() - terms) as f64;
    Some(LinearFit { coefficients, residual_sd: (squares / freedom).sqrt(), freedom, inverse })
}

impl LinearFit {
    /// The model at these terms.
    pub fn at(&self, row: &[f64]) -> f64 {
        dot(row, &self.coefficients)
    }

    /// Where the true coefficient of a term lies.
    pub fn interval(&self, term: usize, confidence: f64) -> ConfidenceInterval {
        let reach = self.reach(self.inverse[term][term], confidence);
        around(self.coefficients[term], reach, confidence)
    }

    /// Where a further point of this weight falls at these terms.
    pub fn prediction(&self, row: &[f64], weight: f64, confidence: f64) -> ConfidenceInterval {
        let variance = 1.0 / weight + self.variance(row);
        around(self.at(row), self.reach(variance, confidence), confidence)
    }

    /// Where a linear function of the coefficients lies: a sum, or a difference of two predictions.
    pub fn mean_interval(&self, row: &[f64], confidence: f64) -> ConfidenceInterval {
        around(self.at(row), self.reach(self.variance(row), confidence), confidence)
    }

    fn variance(&self, row: &[f64]) -> f64 {
        let through: Vec<f64> = self.inverse.iter().map(|line| dot(line, row)).collect();
        dot(row, &through)
    }

    fn reach(&self, variance: f64, confidence: f64) -> f64 {
        student_quantile(f64::midpoint(1.0, confidence), self.freedom)
            * self.residual_sd
            * variance.max(0.0).sqrt()
    }
}

/// The error of each point in a model of all others; `None` where one of them cannot be fitted.
pub fn left_out_errors(rows: &[Vec<f64>], y: &[f64], weights: &[f64]) -> Option<Vec<f64>> {
    let error = |out: usize| {
        let rest = |values: &[f64]| -> Vec<f64> {
            let kept = values.iter().enumerate().filter(|(at, _)| *at != out);
            kept.map(|(_, value)| *value).collect()
        };
        let mut others = rows.to_vec();
        others.remove(out);
        Some(y[out] - fit(&others, &rest(y), &rest(weights))?.at(&rows[out]))
    };
    (0..rows.len()).map(error).collect()
}

fn around(value: f64, reach: f64, confidence: f64) -> ConfidenceInterval {
    ConfidenceInterval { lo: value - reach, hi: value + reach, confidence }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The inverse of a small symmetric matrix, by Gauss and Jordan with pivots.
fn invert(mut matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let n = matrix.len();
    let mut inverse: Vec<Vec<f64>> =
        (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    // Terms of very different size are no reason to call them dependent.
    let scale: Vec<f64> = (0..n).map(|i| matrix[i][i].abs()).collect();
    for column in 0..n {
        let by_size =
            |a: &usize, b: &usize| matrix[*a][column].abs().total_cmp(&matrix[*b][column].abs());
        let pivot = (column..n).max_by(by_size)?;
        if matrix[pivot][column].abs() <= 1e-12 * scale[column] {
            return None;
        }
        matrix.swap(column, pivot);
        inverse.swap(column, pivot);
        let divisor = matrix[column][column];
        for j in 0..n {
            matrix[column][j] /= divisor;
            inverse[column][j] /= divisor;
        }
        for row in (0..n).filter(|row| *row != column) {
            let factor = matrix[row][column];
            for j in 0..n {
                matrix[row][j] -= factor * matrix[column][j];
                inverse[row][j] -= factor * inverse[column][j];
            }
        }
    }
    Some(inverse)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::Seed;
    use crate::stats::simulation::normal;

    fn plane(count: u32, noise: f64, seed: u64) -> (Vec<Vec<f64>>, Vec<f64>) {
        let mut stream = Seed(seed).stream("plane");
        let rows: Vec<Vec<f64>> = (0..count)
            .map(|i| vec![1.0, f64::from(i), normal(&mut stream) + f64::from(i % 3)])
            .collect();
        let y = rows.iter().map(|r| 5.0 + 0.7 * r[1] - 2.0 * r[2] + noise * normal(&mut stream));
        let y = y.collect();
        (rows, y)
    }

    #[test]
    fn exact_points_give_their_plane() {
        let (rows, y) = plane(8, 0.0, 1);
        let found = fit(&rows, &y, &[1.0; 8]).unwrap();
        for (found, truth) in found.coefficients.iter().zip([5.0, 0.7, -2.0]) {
            assert!((found - truth).abs() < 1e-9, "{found} {truth}");
        }
        assert!(left_out_errors(&rows, &y, &[1.0; 8]).unwrap().iter().all(|e| e.abs() < 1e-9));
    }

    #[test]
    fn slope_and_prediction_intervals_have_their_nominal_coverage() {
        let (mut slopes, mut predictions) = (0, 0);
        for seed in 0..1_000 {
            let (rows, y) = plane(11, 1.0, seed);
            let found = fit(&rows[..10], &y[..10], &[1.0; 10]).unwrap();
            slopes += u32::from(found.interval(1, 0.95).contains(0.7));
            predictions += u32::from(found.prediction(&rows[10], 1.0, 0.95).contains(y[10]));
        }
        assert!((930..=970).contains(&slopes), "{slopes}");
        assert!((930..=970).contains(&predictions), "{predictions}");
    }

    #[test]
    fn a_point_of_no_weight_to_speak_of_does_not_move_the_plane() {
        let (rows, mut y) = plane(9, 0.0, 2);
        y[4] += 1e3;
        let mut weights = [1.0; 9];
        weights[4] = 1e-9;
        assert!((fit(&rows, &y, &weights).unwrap().coefficients[1] - 0.7).abs() < 1e-3);
    }

    #[test]
    fn dependent_terms_and_too_few_points_give_no_fit() {
        let rows: Vec<Vec<f64>> =
            (0..6).map(|i| vec![1.0, f64::from(i), 2.0 * f64::from(i)]).collect();
        assert_eq!(fit(&rows, &[1.0; 6], &[1.0; 6]), None);
        let (rows, y) = plane(3, 0.0, 3);
        assert_eq!(fit(&rows, &y, &[1.0; 3]), None);
        assert_eq!(fit(&[], &[], &[]), None);
    }
}
