//! The clocks of this machine: the only crate that reads them.
//!
//! [`Stopwatch`] times samples; [`monotonic_ns`] and [`now`] serve schedules and deadlines. Instants count from the first
//! call of [`now`], because a [`Span`] holds 213 days and hosts stay up for years.

#![forbid(unsafe_code)]

use std::sync::OnceLock;

use plumb_base::time::{Instant, Span};
use plumb_base::units::whole;
use plumb_sys::clock::{self, ClockId};

pub use stopwatch::{ClockAnchor, ClockCalibration, ClockQuality, Stopwatch, calibrate};

mod stopwatch;

/// Nanoseconds of CLOCK_MONOTONIC_RAW: never set, never slewed. For schedules and deadlines, not for samples.
#[inline]
pub fn monotonic_ns() -> u64 {
    clock::read_ns(ClockId::MonotonicRaw)
}

/// The same as a moment, for sessions and deadlines.
pub fn now() -> Instant {
    static ORIGIN: OnceLock<u64> = OnceLock::new();
    to_instant(&ORIGIN, monotonic_ns())
}

/// What a clock shows, as a moment since what it showed when it was first asked.
pub fn to_instant(origin: &OnceLock<u64>, shown_ns: u64) -> Instant {
    let origin_ns = *origin.get_or_init(|| shown_ns);
    Instant::after_origin(Span::from_ns(shown_ns.saturating_sub(origin_ns)))
}

/// By how much the real-time clock is ahead of the steady one: it grows by what the former is set forward, and by what
/// is slewed, at most 0.5 ms a second.
///
/// The closest of some readings, because anything may come between the two.
pub fn realtime_offset_ns() -> i64 {
    ClockReading::closest().realtime_offset_ns()
}

/// Sleeps until the steady clock shows `until_ns`, or a signal was handled; returns at once when that is past.
pub fn sleep_until(until_ns: u64) {
    let left = until_ns.saturating_sub(monotonic_ns());
    if left > 0 {
        plumb_sys::timer::sleep_ns(left);
    }
}

/// Sixty-four random bits of the operating system's: for seeds, tokens and cookies.
pub fn entropy() -> std::io::Result<u64> {
    use std::io::Read as _;
    let mut bytes = [0; 8];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

/// Milliseconds since 1970, UTC: for dating runs.
pub fn unix_ms() -> i64 {
    i64::try_from(clock::read_ns(ClockId::Realtime) / 1_000_000).unwrap_or(i64::MAX)
}

/// Moments since the timeline was begun, read from the clock that times.
#[derive(Clone, Copy, Debug)]
pub struct InstantClock {
    watch: Stopwatch,
    origin: u64,
    ps_per_tick: f64,
}

impl InstantClock {
    /// Begins now.
    pub fn begin(watch: Stopwatch) -> Self {
        Self { watch, origin: watch.begin(), ps_per_tick: watch.ns(1) * 1e3 }
    }

    /// The moment it is.
    #[inline]
    pub fn now(&self) -> Instant {
        self.at(self.watch.begin())
    }

    /// The moment at which [`Stopwatch`] read these ticks; the origin for what lies before it.
    #[inline]
    pub fn at(&self, ticks: u64) -> Instant {
        // A counter may be behind the origin's by a little on another CPU.
        let elapsed = ticks.wrapping_sub(self.origin);
        let elapsed = if elapsed > u64::MAX / 2 { 0 } else { elapsed };
        // The error after a day is 16 ps.
        Instant::after_origin(Span::from_ps(whole(elapsed as f64 * self.ps_per_tick)))
    }
}

/// Older than anything that a buffer holds, so from before the clock was set.
const AGE_MAX_NS: u64 = 60_000_000_000;
/// By how much the two may move apart from one reading to the next and still run by themselves: what comes between
/// two reads, and what a clock is slewed by, at most half a thousandth.
const DRIFT_MAX_NS: u64 = 1_000_000;
const SLEW_DIVISOR: u64 = 1_000;
/// The closest of so many readings is taken where a single one would show a clock step.
const TRIES: u32 = 4;

/// Both clocks, read one after the other.
#[derive(Clone, Copy, Debug)]
pub struct ClockReading {
    /// The steady one.
    pub steady_ns: u64,
    /// The real-time one, which is read first.
    pub real_ns: u64,
}

impl ClockReading {
    /// Both, now.
    #[inline]
    pub fn take() -> Self {
        let real_ns = clock::read_ns(ClockId::Realtime);
        Self { steady_ns: monotonic_ns(), real_ns }
    }

    /// The closest of some, because anything may come between the two.
    pub fn closest() -> Self {
        let reading = |_| {
            let before_ns = monotonic_ns();
            let reading = Self::take();
            (reading.steady_ns.saturating_sub(before_ns), reading)
        };
        let readings = (0..TRIES).map(reading);
        readings.min_by_key(|(gap_ns, _)| *gap_ns).map_or_else(Self::take, |(_, reading)| reading)
    }

    /// By how much the real-time clock is ahead.
    pub const fn realtime_offset_ns(self) -> i64 {
        self.real_ns.wrapping_sub(self.steady_ns).cast_signed()
    }
}

/// What the stamps of one socket mean.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveTimestamps {
    last: ClockReading,
    /// When the real-time clock was last found to have been set, by the steady one.
    realtime_set_ns: u64,
}

impl ReceiveTimestamps {
    /// Of what is received from now on.
    pub fn begin() -> Self {
        Self::after(ClockReading::closest())
    }

    /// Of what is received after a reading.
    pub const fn after(last: ClockReading) -> Self {
        Self { last, realtime_set_ns: 0 }
    }

    /// What both clocks showed at the last look.
    pub const fn last(&self) -> ClockReading {
        self.last
    }

    /// Looks at both clocks, after something was received and before its stamps are asked for; what the steady one
    /// shows.
    #[inline]
    pub fn sample_clocks(&mut self) -> u64 {
        let mut reading = ClockReading::take();
        if self.differs(reading) {
            reading = ClockReading::closest();
        }
        self.record_reading(reading);
        reading.steady_ns
    }

    /// The same of a reading that was made.
    #[inline]
    pub const fn record_reading(&mut self, reading: ClockReading) {
        if self.differs(reading) {
            self.realtime_set_ns = reading.steady_ns;
        }
        self.last = reading;
    }

    const fn differs(&self, reading: ClockReading) -> bool {
        let moved = reading
            .realtime_offset_ns()
            .wrapping_sub(self.last.realtime_offset_ns())
            .unsigned_abs();
        let elapsed_ns = reading.steady_ns.saturating_sub(self.last.steady_ns);
        moved > DRIFT_MAX_NS + elapsed_ns / SLEW_DIVISOR
    }

    /// When something was stamped, by the steady clock. None when that was after the last look, too long before,
    /// or may have been before the real-time clock was set.
    #[inline]
    pub fn to_steady_ns(&self, stamp_ns: u64) -> Option<u64> {
        let age_ns = self.last.real_ns.checked_sub(stamp_ns).filter(|&age| age < AGE_MAX_NS)?;
        self.last.steady_ns.checked_sub(age_ns).filter(|&at_ns| at_ns >= self.realtime_set_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_keep_their_distance_after_years_of_uptime() {
        const YEARS_NS: u64 = 10 * 365 * 24 * 3_600 * 1_000_000_000;
        let origin = OnceLock::new();
        let first = to_instant(&origin, YEARS_NS);
        let second = to_instant(&origin, YEARS_NS + 1_500);
        assert_eq!(second - first, Span::from_ns(1_500));
        assert!(second + Span::from_secs(3_600) < Instant::NEVER);
        // Another thread may have read the clock before, and asked after.
        assert_eq!(to_instant(&origin, YEARS_NS - 7), first);
    }

    #[test]
    fn realtime_offset_is_stable_while_nobody_sets_the_clock() {
        let before = realtime_offset_ns();
        sleep_until(monotonic_ns() + 5_000_000);
        // A thousandth of the time, and what reading takes.
        assert!((realtime_offset_ns() - before).abs() < 2_000_000);
    }

    #[test]
    fn instants_follow_the_stopwatch_and_never_precede_the_origin() {
        let watch = Stopwatch::new(None);
        let timeline = InstantClock::begin(watch);
        let early = timeline.now();
        watch.spin(1_000_000);
        let late = timeline.now();
        assert!(late - early >= Span::from_ms(1), "{early:?} {late:?}");
        assert_eq!(timeline.at(timeline.origin.wrapping_sub(5)), Instant::ORIGIN);
        assert_eq!(timeline.at(timeline.origin + 7), Instant::ORIGIN + Span::from_ns(7));
    }

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;
    /// What the real-time clock is ahead at first.
    const AHEAD: u64 = 1_000 * SECOND;

    fn reading(steady_ns: u64, ahead_ns: u64) -> ClockReading {
        ClockReading { steady_ns, real_ns: steady_ns + ahead_ns }
    }

    #[test]
    fn a_stamp_lands_between_two_reads_of_the_steady_clock() {
        let mut stamps = ReceiveTimestamps::begin();
        let before = monotonic_ns();
        let real = clock::read_ns(ClockId::Realtime);
        let after = monotonic_ns();
        stamps.sample_clocks();
        let steady = stamps.to_steady_ns(real).unwrap();
        // Both clocks are read one after the other, and may run apart by a few parts in a million.
        assert!(before - MS <= steady && steady <= after + MS, "{before} {steady} {after}");
        assert_eq!(stamps.to_steady_ns(real + 3_600 * SECOND), None);
        assert_eq!(stamps.to_steady_ns(real - 3_600 * SECOND), None);
    }

    #[test]
    fn a_slewed_clock_is_still_believed() {
        let mut stamps = ReceiveTimestamps::after(reading(10 * SECOND, AHEAD));
        stamps.record_reading(reading(30 * SECOND, AHEAD + 10 * MS));
        assert_eq!(stamps.to_steady_ns(AHEAD + 10 * MS + 29 * SECOND), Some(29 * SECOND));
        stamps.record_reading(reading(30 * SECOND + MS, AHEAD + 10 * MS - MS / 2));
        let stamp = AHEAD + 10 * MS - MS / 2 + 30 * SECOND;
        assert_eq!(stamps.to_steady_ns(stamp), Some(30 * SECOND));
    }

    #[test]
    fn stamps_from_before_the_clock_was_set_are_refused() {
        for (set_by, is_back) in [(5 * SECOND, false), (40 * SECOND, false), (5 * SECOND, true)] {
            let mut stamps = ReceiveTimestamps::after(reading(100 * SECOND, AHEAD));
            let ahead = if is_back { AHEAD - set_by } else { AHEAD + set_by };
            // It is set at 101 s, which is noticed 10 ms later; the rest is read in turns.
            for turn in 0..5 {
                let read_ns = 101 * SECOND + (10 + turn) * MS;
                stamps.record_reading(reading(read_ns, ahead));
                for early_ms in 1..50 {
                    let at_ns = 101 * SECOND - early_ms * MS;
                    let found = stamps.to_steady_ns(at_ns + AHEAD);
                    assert_eq!(found, None, "set by {set_by}, back: {is_back}, turn {turn}");
                }
            }
            let fresh = 101 * SECOND + 12 * MS;
            assert_eq!(stamps.to_steady_ns(fresh + ahead), Some(fresh));
        }
    }
}
