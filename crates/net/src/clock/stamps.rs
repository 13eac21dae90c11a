//! The kernel's stamps of what was received, which are of the real-time clock, brought over to the steady one.
//!
//! The real-time clock may be set at any moment, also while what it has stamped waits to be read. So it is compared
//! with the steady one whenever something was received, and what may have been stamped before it was set has no
//! stamp. Left out: what stands in for a stamp, which is the caller's.

use plumb_sys::clock::{self, Clock};

use super::steady_ns;

/// What lies further back than any buffer holds is of before the clock was set.
const AGE_MAX_NS: u64 = 60_000_000_000;
/// By how much the two may move apart from one reading to the next and still run by themselves: what comes between
/// two reads, and what a clock is slewed by, at most half a thousandth.
const APART_NS: u64 = 1_000_000;
const SLEWED: u64 = 1_000;
/// The closest of so many readings is taken where one alone would tell of a clock that was set.
const TRIES: u32 = 4;

/// Both clocks, read one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The steady one.
    pub steady_ns: u64,
    /// The real-time one, which is read first.
    pub real_ns: u64,
}

impl Reading {
    /// Both, now.
    #[inline]
    pub fn take() -> Self {
        let real_ns = clock::read_ns(Clock::Realtime);
        Self { steady_ns: steady_ns(), real_ns }
    }

    /// The closest of some, because anything may come between the two.
    pub fn closest() -> Self {
        let reading = |_| {
            let before_ns = steady_ns();
            let reading = Self::take();
            (reading.steady_ns.saturating_sub(before_ns), reading)
        };
        let readings = (0..TRIES).map(reading);
        readings.min_by_key(|(gap_ns, _)| *gap_ns).map_or_else(Self::take, |(_, reading)| reading)
    }

    /// By how much the real-time clock is ahead.
    pub const fn ahead_ns(self) -> i64 {
        self.real_ns.wrapping_sub(self.steady_ns).cast_signed()
    }
}

/// What the stamps of one socket mean.
#[derive(Clone, Copy, Debug)]
pub struct Stamps {
    last: Reading,
    /// When the real-time clock was last found to have been set, by the steady one.
    set_ns: u64,
}

impl Stamps {
    /// Of what is received from now on.
    pub fn begin() -> Self {
        Self::after(Reading::closest())
    }

    /// Of what is received after a reading.
    pub const fn after(last: Reading) -> Self {
        Self { last, set_ns: 0 }
    }

    /// What both clocks showed at the last look.
    pub const fn last(&self) -> Reading {
        self.last
    }

    /// Looks at both clocks, after something was received and before its stamps are asked for; what the steady one
    /// shows.
    #[inline]
    pub fn look(&mut self) -> u64 {
        let mut reading = Reading::take();
        if self.differs(reading) {
            reading = Reading::closest();
        }
        self.note(reading);
        reading.steady_ns
    }

    /// The same of a reading that was made.
    #[inline]
    pub const fn note(&mut self, reading: Reading) {
        if self.differs(reading) {
            self.set_ns = reading.steady_ns;
        }
        self.last = reading;
    }

    const fn differs(&self, reading: Reading) -> bool {
        let moved = reading.ahead_ns().wrapping_sub(self.last.ahead_ns()).unsigned_abs();
        let elapsed_ns = reading.steady_ns.saturating_sub(self.last.steady_ns);
        moved > APART_NS + elapsed_ns / SLEWED
    }

    /// When something was stamped, by the steady clock. None when that was after the last look, too long before,
    /// or may have been before the real-time clock was set.
    #[inline]
    pub fn steady_ns(&self, stamp_ns: u64) -> Option<u64> {
        let age_ns = self.last.real_ns.checked_sub(stamp_ns).filter(|&age| age < AGE_MAX_NS)?;
        self.last.steady_ns.checked_sub(age_ns).filter(|&at_ns| at_ns >= self.set_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const SECOND: u64 = 1_000 * MS;
    /// What the real-time clock is ahead at first.
    const AHEAD: u64 = 1_000 * SECOND;

    fn reading(steady_ns: u64, ahead_ns: u64) -> Reading {
        Reading { steady_ns, real_ns: steady_ns + ahead_ns }
    }

    #[test]
    fn a_stamp_lands_between_two_reads_of_the_steady_clock() {
        let mut stamps = Stamps::begin();
        let before = steady_ns();
        let real = clock::read_ns(Clock::Realtime);
        let after = steady_ns();
        stamps.look();
        let steady = stamps.steady_ns(real).unwrap();
        // Both clocks are read one after the other, and may run apart by a few parts in a million.
        assert!(before - MS <= steady && steady <= after + MS, "{before} {steady} {after}");
        assert_eq!(stamps.steady_ns(real + 3_600 * SECOND), None);
        assert_eq!(stamps.steady_ns(real - 3_600 * SECOND), None);
    }

    #[test]
    fn a_clock_that_is_slewed_or_read_late_goes_on_being_believed() {
        let mut stamps = Stamps::after(reading(10 * SECOND, AHEAD));
        stamps.note(reading(30 * SECOND, AHEAD + 10 * MS));
        assert_eq!(stamps.steady_ns(AHEAD + 10 * MS + 29 * SECOND), Some(29 * SECOND));
        stamps.note(reading(30 * SECOND + MS, AHEAD + 10 * MS - MS / 2));
        let stamp = AHEAD + 10 * MS - MS / 2 + 30 * SECOND;
        assert_eq!(stamps.steady_ns(stamp), Some(30 * SECOND));
    }

    #[test]
    fn what_was_stamped_before_the_clock_was_set_has_no_stamp_however_late_it_is_read() {
        for (set_by, is_back) in [(5 * SECOND, false), (40 * SECOND, false), (5 * SECOND, true)] {
            let mut stamps = Stamps::after(reading(100 * SECOND, AHEAD));
            let ahead = if is_back { AHEAD - set_by } else { AHEAD + set_by };
            // It is set at 101 s, which is noticed 10 ms later; the rest is read in turns.
            for turn in 0..5 {
                let read_ns = 101 * SECOND + (10 + turn) * MS;
                stamps.note(reading(read_ns, ahead));
                for early_ms in 1..50 {
                    let at_ns = 101 * SECOND - early_ms * MS;
                    let found = stamps.steady_ns(at_ns + AHEAD);
                    assert_eq!(found, None, "set by {set_by}, back: {is_back}, turn {turn}");
                }
            }
            let fresh = 101 * SECOND + 12 * MS;
            assert_eq!(stamps.steady_ns(fresh + ahead), Some(fresh));
        }
    }
}
