//! The three means, each for what it suits: costs arithmetic, ratios geometric, rates harmonic.
//!
//! Fleming & Wallace, "How not to lie with statistics", CACM 29 (1986), for ratios. Left out:
//! weights and trimming.

/// The arithmetic mean, for costs; `None` when there is nothing to average.
pub fn arithmetic(values: &[f64]) -> Option<f64> {
    if values.is_empty() {
        return None;
    }
    // Summed around the first value, so that large, close values lose no digits.
    let origin = values[0];
    let sum: f64 = values.iter().map(|v| v - origin).sum();
    Some(origin + sum / values.len() as f64)
}

/// The geometric mean, for ratios; `None` when empty or when a value is not positive.
pub fn geometric(values: &[f64]) -> Option<f64> {
    if values.iter().any(|&v| v.is_nan() || v <= 0.0) {
        return None;
    }
    let logs: Vec<f64> = values.iter().map(|v| v.ln()).collect();
    arithmetic(&logs).map(f64::exp)
}

/// The harmonic mean, for rates over equal amounts; `None` when empty or a value is not positive.
pub fn harmonic(values: &[f64]) -> Option<f64> {
    if values.iter().any(|&v| v.is_nan() || v <= 0.0) {
        return None;
    }
    let inverses: Vec<f64> = values.iter().map(|v| v.recip()).collect();
    arithmetic(&inverses).map(f64::recip)
}
