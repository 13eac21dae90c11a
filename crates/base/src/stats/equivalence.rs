//! Equivalence as a positive claim: two one-sided tests against a margin.
//!
//! Schuirmann 1987: two quantities are equivalent at level α when the interval of confidence
//! 1 − 2α of their ratio lies inside the margin; 90 % for α = 5 %. Left out: choosing the margin.

use super::Interval;
use super::hierarchy::Ratio;

/// The ratios that count as equal under `margin`: `[1/(1 + margin), 1 + margin]`.
///
/// Symmetric under exchange of the two sides, unlike 1 ± margin.
pub fn bounds(margin: f64) -> (f64, f64) {
    (1.0 / (1.0 + margin), 1.0 + margin)
}

/// Whether a ratio with its interval (90 % for a test at the 5 % level) shows equivalence.
pub fn tost(ratio: &Ratio, margin: f64) -> bool {
    within(&ratio.interval, margin)
}

/// Whether all of `interval` counts as equal under `margin`.
pub fn within(interval: &Interval, margin: f64) -> bool {
    let (lo, hi) = bounds(margin);
    lo <= interval.lo && interval.hi <= hi
}
