//! The clocks of this side: one that never steps for everything that is measured, and moments for sessions.
//!
//! Moments count from the first that this process asked for: a [`Span`] holds 213 days, and hosts stay up for years.
//!
//! The kernel stamps what it receives by the real-time clock, which may step: [`stamps`]. Left out: the clocks'
//! difference between two hosts.

use std::sync::OnceLock;

use plumb_base::time::{Instant, Span};
use plumb_sys::clock::{self, Clock};

pub mod stamps;

use stamps::Reading;

/// Nanoseconds of CLOCK_MONOTONIC_RAW: never set, never slewed.
#[inline]
pub fn steady_ns() -> u64 {
    clock::read_ns(Clock::MonotonicRaw)
}

/// The same as a moment, for sessions and deadlines.
pub fn now() -> Instant {
    static ORIGIN: OnceLock<u64> = OnceLock::new();
    moment(&ORIGIN, steady_ns())
}

/// What a clock shows, as a moment since what it showed when it was first asked.
pub(crate) fn moment(origin: &OnceLock<u64>, shown_ns: u64) -> Instant {
    let origin_ns = *origin.get_or_init(|| shown_ns);
    Instant::after_origin(Span::from_ns(shown_ns.saturating_sub(origin_ns)))
}

/// By how much the real-time clock is ahead of the steady one: it grows by what the former is set forward, and by what
/// is slewed, at most 0.5 ms a second.
///
/// The closest of some readings, because anything may come between the two.
pub fn real_ahead_ns() -> i64 {
    Reading::closest().ahead_ns()
}

/// Sleeps until the steady clock shows `until_ns`, or a signal was handled; returns at once when that is past.
pub fn sleep_until(until_ns: u64) {
    let left = until_ns.saturating_sub(steady_ns());
    if left > 0 {
        plumb_sys::timer::sleep_ns(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_keep_their_distance_on_a_host_that_has_been_up_for_years() {
        const YEARS_NS: u64 = 10 * 365 * 24 * 3_600 * 1_000_000_000;
        let origin = OnceLock::new();
        let first = moment(&origin, YEARS_NS);
        let second = moment(&origin, YEARS_NS + 1_500);
        assert_eq!(second - first, Span::from_ns(1_500));
        assert!(second + Span::from_secs(3_600) < Instant::NEVER);
        // Another thread may have read the clock before, and asked after.
        assert_eq!(moment(&origin, YEARS_NS - 7), first);
    }

    #[test]
    fn the_real_time_clock_stays_as_far_ahead_as_it_was_while_nobody_sets_it() {
        let before = real_ahead_ns();
        sleep_until(steady_ns() + 5_000_000);
        // A thousandth of the time, and what reading takes.
        assert!((real_ahead_ns() - before).abs() < 2_000_000);
    }
}
