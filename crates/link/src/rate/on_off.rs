//! A rate with pauses: sending for a while, silent for a while, from the link's beginning.
//!
//! A frame that a pause interrupts goes on behind it: bits are sent by a clock that stands still in
//! the pauses. Left out: random lengths; a trace has them.

use plumb_base::time::{Instant, Span};
use plumb_base::units::rate::Rate;

use super::constant::Constant;

/// A rate with pauses.
#[derive(Clone, Debug)]
pub struct OnOff {
    constant: Constant,
    on: u64,
    cycle: u64,
    start: Instant,
}

impl OnOff {
    /// Beginning to send at `start`.
    pub fn new(rate: Rate, on: Span, off: Span, start: Instant) -> Self {
        let on_ps = on.as_ps().max(1);
        Self {
            constant: Constant::new(rate),
            on: on_ps,
            cycle: (on + off).as_ps().max(on_ps),
            start,
        }
    }

    /// When the last of `bits` is sent, the first being begun at `start`, or when the pause ends.
    pub fn finish(&mut self, start: Instant, bits: u64) -> Instant {
        let begun = Instant::after_origin(self.sending_until(start));
        let finished = self.constant.finish(begun, bits);
        if bits == 0 { start } else { self.moment(finished.since_origin()) }
    }

    /// Bits that are sent between two moments, rounded up.
    pub fn bits_between(&self, from: Instant, to: Instant) -> u64 {
        self.constant.bits_in(self.sending_until(to).saturating_sub(self.sending_until(from)))
    }

    /// How long it has been sending.
    fn sending_until(&self, moment: Instant) -> Span {
        let since = moment.saturating_since(self.start).as_ps();
        Span::from_ps(since / self.cycle * self.on + (since % self.cycle).min(self.on))
    }

    /// The first moment at which it has been sending for so long.
    fn moment(&self, sending: Span) -> Instant {
        let sending = sending.as_ps();
        let (cycles, rest) = match sending % self.on {
            0 if sending > 0 => (sending / self.on - 1, self.on),
            rest => (sending / self.on, rest),
        };
        self.start + Span::from_ps(cycles.saturating_mul(self.cycle).saturating_add(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::ORIGIN + Span::from_ms(ms)
    }

    #[test]
    fn a_frame_that_a_pause_interrupts_goes_on_behind_it() {
        let rate = Rate::from_bits_per_second(1_000_000).unwrap();
        let mut on_off = OnOff::new(rate, Span::from_ms(10), Span::from_ms(90), ms(1_000));
        assert_eq!(on_off.finish(ms(1_000), 8_000), ms(1_008));
        assert_eq!(on_off.finish(ms(1_008), 8_000), ms(1_106));
        assert_eq!(on_off.finish(ms(1_150), 10_000), ms(1_210));
        assert_eq!(on_off.bits_between(ms(1_005), ms(1_106)), 11_000);
    }

    #[test]
    fn an_hour_of_pauses_carries_what_divisions_leave() {
        let rate = Rate::from_bits_per_second(7_000_003).unwrap();
        let mut on_off = OnOff::new(rate, Span::from_ms(30), Span::from_ms(70), Instant::ORIGIN);
        let mut now = Instant::ORIGIN;
        let frames = 600_000_u64;
        for _ in 0..frames {
            now = on_off.finish(now, 12_000);
        }
        let sending = u128::from(frames) * 12_000 * 1_000_000_000_000 / 7_000_003;
        let (cycles, rest) = (sending / 30_000_000_000, sending % 30_000_000_000);
        assert_eq!(u128::from(now.since_origin().as_ps()), cycles * 100_000_000_000 + rest);
    }
}
