//! When what is sent at a rate is due: absolute times, so that no lateness accumulates; and how many datagrams at once.
//!
//! Where datagrams are due more often than every [`CALL_SPACING_NS`], as many as are due within it leave by one call,
//! when the last of them is due: they are then spaced as the device sends them, not as the rate says. What is late
//! after a stall is made up for at no more than twice the pace, so that it does not become a burst on the path.

use plumb_base::units::Rate;
use plumb_clock::monotonic_ns;

/// Calls are at least this far apart, where the rate leaves the choice.
const CALL_SPACING_NS: u64 = 25_000;
/// Datagrams of one call at most: what the kernel cuts one buffer into (UDP_MAX_SEGMENTS, before Linux 6.9).
pub const BATCH_MAX: usize = 64;
/// Waiting this long or shorter is spinning, because waking takes as long.
pub const SPIN_NS: u64 = 5_000;
/// How long one sleep lasts at most, so that a stop is seen.
const SLEEP_NS_MAX: u64 = 20_000_000;
const NS_PER_SECOND: u128 = 1_000_000_000;

/// A rate from a beginning on: the `n`-th unit is due `n` × its size ÷ rate after it, rounded down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacer {
    /// When the first is due.
    pub start_ns: u64,
    size: u64,
    per_second: u64,
}

impl Pacer {
    /// Units at a rate of so many a second.
    pub fn new(start_ns: u64, per_second: u64) -> Self {
        Self { start_ns, size: 1, per_second: per_second.max(1) }
    }

    /// Units of so many bytes at a rate of bits.
    pub fn of_bytes(start_ns: u64, bytes: usize, rate: Rate) -> Self {
        let size = (bytes as u64).saturating_mul(8).max(1);
        Self { start_ns, size, per_second: rate.bits_per_second() }
    }

    /// When unit `number`, counted from 0, is due.
    #[inline]
    pub fn due_ns(&self, number: u64) -> u64 {
        let size = u128::from(number) * u128::from(self.size);
        let ns = size * NS_PER_SECOND / u128::from(self.per_second);
        self.start_ns.saturating_add(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// How many are due at a moment.
    #[inline]
    pub fn due_by(&self, now_ns: u64) -> u64 {
        let Some(elapsed) = now_ns.checked_sub(self.start_ns) else { return 0 };
        // The n-th is due when ⌊n·size·10⁹ ÷ rate⌋ ≤ elapsed, which is n < (elapsed + 1)·rate ÷ (size·10⁹).
        let reached = (u128::from(elapsed) + 1) * u128::from(self.per_second);
        u64::try_from(reached.div_ceil(u128::from(self.size) * NS_PER_SECOND)).unwrap_or(u64::MAX)
    }
}

/// Waits until the steady clock shows `due_ns`, spinning for the last `spin_ns`: the time it is then, or none where
/// `is_over`, which is given the time, says so before.
#[inline]
pub fn wait_until(due_ns: u64, spin_ns: u64, is_over: impl Fn(u64) -> bool) -> Option<u64> {
    loop {
        let now = monotonic_ns();
        if is_over(now) {
            return None;
        }
        match due_ns.checked_sub(now) {
            None | Some(0) => return Some(now),
            Some(left) if left <= spin_ns => std::hint::spin_loop(),
            Some(left) => {
                plumb_sys::timer::sleep_ns((left - spin_ns / 2).min(SLEEP_NS_MAX));
            }
        }
    }
}

/// The times of one stream of datagrams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramPacer {
    /// None is as fast as they are taken.
    pace: Option<Pacer>,
    /// Datagrams that leave by one call.
    pub batch: u64,
}

impl DatagramPacer {
    /// Of datagrams of so many bytes at a rate of those bytes; without a rate, as fast as they are taken. The
    /// bytes are the payload of UDP, as is usual; a caller that means frames says so in the rate.
    pub fn new(start_ns: u64, datagram_bytes: usize, rate: Option<Rate>) -> Self {
        let pace = rate.map(|rate| Pacer::of_bytes(start_ns, datagram_bytes, rate));
        let spaced = |pace: Pacer, count| pace.due_ns(count) - start_ns >= CALL_SPACING_NS;
        let within = pace.and_then(|pace| (1..BATCH_MAX as u64).find(|&count| spaced(pace, count)));
        Self { pace, batch: within.unwrap_or(BATCH_MAX as u64) }
    }

    /// When the `number`-th is due; none where they have no rate.
    #[inline]
    pub fn due_ns(&self, number: u64) -> Option<u64> {
        self.pace.map(|pace| pace.due_ns(number))
    }

    /// How many are due in a time; none where they have no rate.
    pub fn count_in(&self, duration_ns: u64) -> Option<u64> {
        self.pace
            .map(|pace| pace.due_by(pace.start_ns.saturating_add(duration_ns.saturating_sub(1))))
    }

    /// How many leave now, of `count` in all of which `next` have left: none before a whole batch is due, and
    /// no more than two batches.
    #[inline]
    pub fn sendable(&self, next: u64, count: u64, now_ns: u64) -> u64 {
        let whole = self.batch.min(count.saturating_sub(next));
        let Some(pace) = self.pace else { return whole };
        let due = pace.due_by(now_ns).min(count).saturating_sub(next);
        if due < whole { 0 } else { due.min(2 * self.batch) }
    }

    /// When the next call is: once its whole batch is due, and not sooner than its time after the last call,
    /// which made up for lateness if it took more than a batch.
    #[inline]
    pub fn next_call_ns(&self, next: u64, count: u64, last_call_ns: u64, last_sent: u64) -> u64 {
        let Some(pace) = self.pace else { return 0 };
        let last = next.saturating_add(self.batch).min(count).saturating_sub(1);
        let after =
            if last_sent > self.batch { pace.due_ns(self.batch) - pace.start_ns } else { 0 };
        pace.due_ns(last).max(last_call_ns.saturating_add(after))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pace(bytes: usize, bits_per_second: u64) -> DatagramPacer {
        DatagramPacer::new(1_000, bytes, Rate::from_bits_per_second(bits_per_second))
    }

    #[test]
    fn a_second_holds_as_many_datagrams_as_the_rate_says() {
        assert_eq!(pace(1250, 10_000_000).count_in(1_000_000_000), Some(1000));
        assert_eq!(pace(1448, 1_000_000_000).count_in(10_000_000_000), Some(863_260));
        assert_eq!(pace(1448, 1).count_in(1_000_000_000), Some(1), "the first leaves at once");
    }

    #[test]
    fn only_a_rate_that_needs_it_has_several_leave_at_once() {
        assert_eq!(pace(1448, 100_000_000).batch, 1);
        assert_eq!(pace(1448, 1_000_000_000).batch, 3);
        assert_eq!(pace(1448, 10_000_000_000).batch, 22);
        assert_eq!(pace(40, 400_000_000_000).batch, 64);
    }

    #[test]
    fn a_stall_is_made_up_for_at_twice_the_pace() {
        let pace = pace(1250, 10_000_000);
        let (mut next, mut now, mut last) = (0, 50_000_000, 0);
        let count = pace.count_in(1_000_000_000).unwrap();
        let mut calls = Vec::new();
        while next < count {
            now = now.max(pace.next_call_ns(next, count, now, last));
            last = pace.sendable(next, count, now);
            assert!(last > 0, "a call that is due sends");
            calls.push((now, last));
            next += last;
        }
        assert!(calls.iter().all(|&(_, sent)| sent <= 2));
        // Fifty milliseconds late at the start, none of it left after a hundred; never more than two calls
        // in a millisecond, which is what is left over when the schedule is met again.
        assert!(calls.windows(3).all(|three| three[2].0 - three[0].0 >= 990_000));
        let caught_up = calls.iter().position(|&(_, sent)| sent == 1).unwrap();
        assert!((45..=51).contains(&caught_up), "{caught_up}");
        assert_eq!(Some(now), pace.due_ns(count - 1));
    }

    proptest! {
        #[test]
        fn what_is_due_is_what_has_its_time_behind_it(
            bytes in 40..9000_usize, rate in 1..400_000_000_000_u64, now in 0..10_000_000_000_u64,
        ) {
            let pace = pace(bytes, rate).pace.unwrap();
            let due = pace.due_by(now);
            prop_assert!(due == 0 || pace.due_ns(due - 1) <= now);
            prop_assert!(pace.due_ns(due) > now);
        }

        #[test]
        fn every_datagram_leaves_and_none_before_its_time(
            bytes in 40..9000_usize, rate in 1_000_000..40_000_000_000_u64,
            stalls in prop::collection::vec(0..3_000_000_u64, 1..50),
        ) {
            let pace = pace(bytes, rate);
            let count = pace.count_in(5_000_000).unwrap().min(3000);
            let (mut next, mut now, mut last, mut stall) = (0, 0, 0, stalls.iter().cycle());
            while next < count {
                let call = pace.next_call_ns(next, count, now, last);
                now = now.max(call) + stall.next().unwrap() / 1000;
                last = pace.sendable(next, count, now);
                prop_assert!(last > 0);
                next += last;
                prop_assert!(pace.due_ns(next - 1) <= Some(now));
            }
            prop_assert_eq!(next, count);
        }
    }
}
