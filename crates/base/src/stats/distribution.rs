//! The few reference distributions that intervals and tests are read from.
//!
//! A thin face over `statrs`, total: arguments out of range give the limit or not-a-number instead
//! of a panic. Left out: densities, and sampling (see [`super::simulation`]).

use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::function::beta::beta_reg;
use statrs::function::erf::{erfc, erfc_inv};

/// Probability that a standard normal variable is at most `z`.
pub fn normal_cdf(z: f64) -> f64 {
    0.5 * erfc(-z / std::f64::consts::SQRT_2)
}

/// The point below which a standard normal variable falls with probability `p`.
pub fn normal_quantile(p: f64) -> f64 {
    if !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    -std::f64::consts::SQRT_2 * erfc_inv(2.0 * p)
}

/// Probability that Student's t with `freedom` degrees of freedom is at most `t`.
pub fn student_cdf(t: f64, freedom: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(_) if t.is_infinite() => f64::from(u8::from(t > 0.0)),
        Ok(student) if !t.is_nan() => student.cdf(t),
        _ => f64::NAN,
    }
}

/// The point below which Student's t with `freedom` degrees of freedom falls with probability `p`.
pub fn student_quantile(p: f64, freedom: f64) -> f64 {
    match StudentsT::new(0.0, 1.0, freedom) {
        Ok(_) if p <= 0.0 => f64::NEG_INFINITY,
        Ok(_) if p >= 1.0 => f64::INFINITY,
        Ok(student) if !p.is_nan() => student.inverse_cdf(p),
        _ => f64::NAN,
    }
}

/// Probability of at most `successes` in `trials` independent trials of probability `p`.
pub fn binomial_cdf(successes: u64, trials: u64, p: f64) -> f64 {
    if successes >= trials || p <= 0.0 {
        return 1.0;
    }
    if p >= 1.0 {
        return 0.0;
    }
    beta_reg((trials - successes) as f64, successes as f64 + 1.0, 1.0 - p)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_undo_distribution_functions(p in 0.001_f64..0.999, freedom in 1.0_f64..200.0) {
            prop_assert!((normal_cdf(normal_quantile(p)) - p).abs() < 1e-9);
            prop_assert!((student_cdf(student_quantile(p, freedom), freedom) - p).abs() < 1e-7);
        }

        #[test]
        fn a_binomial_and_its_mirror_add_up(n in 1_u64..500, p in 0.01_f64..0.99, at in 0.0_f64..1.0) {
            let k = super::super::floor_index(at * n as f64) as u64;
            let mirrored = if k + 1 > n { 0.0 } else { binomial_cdf(n - k - 1, n, 1.0 - p) };
            prop_assert!((binomial_cdf(k, n, p) + mirrored - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn arguments_out_of_range_give_a_limit_or_not_a_number() {
        assert!(normal_quantile(1.5).is_nan() && student_quantile(0.5, 0.0).is_nan());
        assert!(student_quantile(1.0, 3.0).is_infinite() && student_cdf(f64::NAN, 3.0).is_nan());
        assert!((student_cdf(f64::INFINITY, 3.0) - 1.0).abs() < 1e-12);
        assert!((binomial_cdf(3, 10, 1.0)).abs() < 1e-12 && binomial_cdf(0, 0, 0.5) > 0.5);
    }
}
