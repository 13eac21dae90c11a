//! When enough has been measured, and how much more it would take.
//!
//! Precision is a relative half-width of the interval (rule 9 of the method). Left out: time
//! budgets, which belong to the run loop.

use super::{Interval, floor_index};

/// Whether `interval` reaches no farther than `target` (a share, such as 0.02) from `estimate`.
pub fn precise(interval: &Interval, estimate: f64, target: f64) -> bool {
    interval.relative_half_width(estimate) <= target
}

/// Launches in all that should shrink a half-width to `target`, when `launches` gave `half_width`.
///
/// Half-widths shrink with the square root of the number of launches, and a little faster while
/// Student's t still falls; that little is left as reserve. Both widths in one unit. At least
/// `launches`; saturates at `u64::MAX` for a target of zero.
pub fn launches_to_decide(half_width: f64, target: f64, launches: u64) -> u64 {
    if half_width <= target || half_width.is_nan() {
        return launches;
    }
    let factor = (half_width / target).powi(2);
    // The tolerance keeps 10 × (0.2 / 0.1)² at 40 despite rounding.
    let needed = (launches as f64 * factor * (1.0 - 1e-12)).ceil();
    u64::try_from(floor_index(needed)).unwrap_or(u64::MAX).max(launches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precision_is_judged_by_the_farther_end() {
        let interval = Interval { lo: 99.0, hi: 103.0, confidence: 0.95 };
        assert!(precise(&interval, 100.0, 0.03));
        assert!(!precise(&interval, 100.0, 0.02));
    }

    #[test]
    fn half_the_width_takes_four_times_the_launches() {
        assert_eq!(launches_to_decide(0.2, 0.1, 10), 40);
        assert_eq!(launches_to_decide(0.2, 0.15, 10), 18);
    }

    #[test]
    fn a_reached_target_takes_no_more_and_an_impossible_one_saturates() {
        assert_eq!(launches_to_decide(0.1, 0.2, 7), 7);
        assert_eq!(launches_to_decide(0.1, 0.0, 7), u64::MAX);
        assert_eq!(launches_to_decide(f64::NAN, 0.1, 7), 7);
    }
}
