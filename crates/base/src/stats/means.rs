//! Means: arithmetic for costs, geometric for ratios.
//!
//! Fleming & Wallace, "How not to lie with statistics", CACM 29 (1986), for ratios.

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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn means_are_ordered_and_within_the_values(
            values in proptest::collection::vec(1e-6_f64..1e9, 1..50)
        ) {
            let geometric = geometric(&values).expect("positive");
            let arithmetic = arithmetic(&values).expect("not empty");
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(0.0, f64::max);
            let slack = 1.0 + 1e-9;
            prop_assert!(least <= geometric * slack);
            prop_assert!(geometric <= arithmetic * slack && arithmetic <= most * slack);
        }
    }

    #[test]
    fn means_of_nothing_or_of_zero_are_none() {
        assert_eq!(arithmetic(&[]), None);
        assert_eq!(geometric(&[1.0, 0.0]), None);
        assert_eq!(geometric(&[f64::NAN]), None);
    }
}
