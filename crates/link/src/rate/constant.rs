//! A constant rate: bit after bit.
//!
//! Left out: what a frame costs beyond its bytes.

use plumb_base::time::{Instant, Span};
use plumb_base::units::rate::Rate;

use super::SECOND;

/// A constant rate, with what the last division left.
#[derive(Clone, Debug)]
pub struct Constant {
    rate: u64,
    /// Whole picoseconds of one bit.
    whole: u64,
    /// What is left of one bit, in picoseconds divided by the rate.
    rest: u64,
    /// When the last frame was finished, and how much later it really was, in picoseconds divided by the rate.
    last: Instant,
    carried: u64,
}

impl Constant {
    /// A sender that is idle.
    pub fn new(rate: Rate) -> Self {
        let rate = rate.bits_per_second();
        Self { rate, whole: SECOND / rate, rest: SECOND % rate, last: Instant::ORIGIN, carried: 0 }
    }

    /// When the last of `bits` is sent, the first being begun at `start`: rounded down to a picosecond.
    #[inline]
    pub fn finish(&mut self, start: Instant, bits: u64) -> Instant {
        let carried = if start == self.last { self.carried } else { 0 };
        let fraction = bits.checked_mul(self.rest).and_then(|rest| rest.checked_add(carried));
        let (more, carried) = match fraction {
            Some(fraction) => (fraction / self.rate, fraction % self.rate),
            None => self.divide(bits, carried),
        };
        self.carried = carried;
        let span = self.whole.saturating_mul(bits).saturating_add(more);
        self.last = start + Span::from_ps(span);
        self.last
    }

    /// Bits that are sent in `span`, rounded up.
    pub fn bits_in(&self, span: Span) -> u64 {
        let bits = (u128::from(span.as_ps()) * u128::from(self.rate)).div_ceil(SECOND.into());
        u64::try_from(bits).unwrap_or(u64::MAX)
    }

    /// For frames of megabytes.
    #[cold]
    fn divide(&self, bits: u64, carried: u64) -> (u64, u64) {
        let fraction = u128::from(bits) * u128::from(self.rest) + u128::from(carried);
        let rate = u128::from(self.rate);
        let narrow = |n| u64::try_from(n).unwrap_or(u64::MAX);
        (narrow(fraction / rate), narrow(fraction % rate))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ps: u64) -> Instant {
        Instant::after_origin(Span::from_ps(ps))
    }

    #[test]
    fn a_busy_hour_is_exact_to_the_picosecond_at_every_rate() {
        for rate in [1_200, 9_600, 56_000, 2_940_000, 10_000_000, 999_999_937, 400_000_000_000] {
            let mut constant = Constant::new(Rate::from_bits_per_second(rate).unwrap());
            // At most 200,000 frames, of whatever size fills an hour.
            let bits = (rate * 3_600 / 200_000).max(12_001);
            let frames = rate * 3_600 / bits;
            let mut now = at(77);
            for _ in 0..frames {
                now = constant.finish(now, bits);
            }
            let exact = u128::from(frames * bits) * u128::from(SECOND) / u128::from(rate);
            assert_eq!(u128::from(now.since_origin().as_ps() - 77), exact, "{rate} b/s");
        }
    }

    #[test]
    fn an_idle_sender_carries_nothing() {
        let mut constant = Constant::new(Rate::from_bits_per_second(3).unwrap());
        assert_eq!(constant.finish(at(0), 1), at(333_333_333_333));
        assert_eq!(constant.finish(at(333_333_333_334), 1), at(666_666_666_667));
        assert_eq!(constant.finish(at(666_666_666_667), 2), at(1_333_333_333_334));
    }

    proptest! {
        #[test]
        fn frames_in_a_row_end_when_their_sum_does(
            rate in 1_u64..=1_000_000_000_000,
            frames in proptest::collection::vec(1_u64..6_000_000, 1..40),
        ) {
            let mut constant = Constant::new(Rate::from_bits_per_second(rate).unwrap());
            let total: u64 = frames.iter().sum();
            let exact = u128::from(total) * u128::from(SECOND) / u128::from(rate);
            prop_assume!(exact < u128::from(u64::MAX));
            let end = frames.iter().fold(at(0), |now, bits| constant.finish(now, *bits));
            prop_assert_eq!(u128::from(end.since_origin().as_ps()), exact);
            prop_assert_eq!(constant.bits_in(end.since_origin()), total);
        }
    }
}
