//! The few reference distributions that intervals and tests are read from.
//!
//! A thin face over `statrs`, total: arguments out of range give the limit or not-a-number instead
//! of a panic. Left out: densities, and sampling (see [`super::simulate`]).

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
