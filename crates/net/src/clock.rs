//! The clocks of this side: one that never steps for everything that is measured, and moments for sessions.
//!
//! Moments count from the first that this process asked for: a [`Span`] holds 213 days, and hosts stay up for years.
//!
//! The kernel stamps what it receives by the real-time clock, which may step; [`steady_of_real`] brings such a
//! stamp over to the steady clock with two reads taken at once. Left out: the clocks' difference between two hosts.

use std::sync::OnceLock;

use plumb_base::time::{Instant, Span};
use plumb_sys::clock::{self, Clock};

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

/// When, by the steady clock, the real-time clock showed `real_ns`, if that was a moment ago.
///
/// None when it lies in the future or more than a minute back: then the real-time clock was set meanwhile.
#[inline]
pub fn steady_of_real(real_ns: u64) -> Option<u64> {
    let real_now = clock::read_ns(Clock::Realtime);
    let steady_now = steady_ns();
    let age = real_now.checked_sub(real_ns)?;
    if age < 60_000_000_000 { steady_now.checked_sub(age) } else { None }
}

/// By how much the real-time clock is ahead of the steady one: it grows by what the former is set forward, and by what
/// is slewed, at most 0.5 ms a second.
///
/// The closest of some readings, because anything may come between the two.
pub fn real_ahead_ns() -> i64 {
    const TRIES: u32 = 4;
    let reading = |_| {
        let before = steady_ns();
        let real = clock::read_ns(Clock::Realtime);
        let gap = steady_ns().saturating_sub(before);
        (gap, real.wrapping_sub(before + gap / 2).cast_signed())
    };
    (0..TRIES).map(reading).min_by_key(|(gap, _)| *gap).map_or(0, |(_, ahead)| ahead)
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

    #[test]
    fn a_stamp_of_the_real_time_clock_lands_between_two_reads_of_the_steady_one() {
        let before = steady_ns();
        let real = clock::read_ns(Clock::Realtime);
        let after = steady_ns();
        let steady = steady_of_real(real).unwrap();
        // Both clocks are read one after the other, and may run apart by a few parts in a million.
        let slack = 1_000_000;
        assert!(before - slack <= steady && steady <= after + slack, "{before} {steady} {after}");
        assert_eq!(steady_of_real(real + 3_600_000_000_000), None);
        assert_eq!(steady_of_real(real - 3_600_000_000_000), None);
    }
}
