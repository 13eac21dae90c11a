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
