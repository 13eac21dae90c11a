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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_means_are_ordered_and_within_the_values(
            values in proptest::collection::vec(1e-6_f64..1e9, 1..50)
        ) {
            let harmonic = harmonic(&values).expect("positive");
            let geometric = geometric(&values).expect("positive");
            let arithmetic = arithmetic(&values).expect("not empty");
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(0.0, f64::max);
            let slack = 1.0 + 1e-9;
            prop_assert!(least <= harmonic * slack && harmonic <= geometric * slack);
            prop_assert!(geometric <= arithmetic * slack && arithmetic <= most * slack);
        }
    }

    #[test]
    fn means_of_nothing_or_of_zero_are_refused() {
        assert_eq!(arithmetic(&[]), None);
        assert_eq!(geometric(&[1.0, 0.0]), None);
        assert_eq!(harmonic(&[f64::NAN]), None);
    }

    #[test]
    fn two_equal_distances_at_30_and_60_average_40() {
        assert!((harmonic(&[30.0, 60.0]).expect("positive") - 40.0).abs() < 1e-12);
    }
}
