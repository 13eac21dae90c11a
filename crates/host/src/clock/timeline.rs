//! The clock as moments: what a driver of machines passes along as `now`.
//!
//! Left out: virtual time.

use plumb_base::time::{Instant, Span};

use super::Stopwatch;

/// Moments since the timeline was begun, read from the clock that times.
#[derive(Clone, Copy, Debug)]
pub struct Timeline {
    watch: Stopwatch,
    origin: u64,
    ps_per_tick: f64,
}

impl Timeline {
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
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates; the error after a day is 16 ps"
    )]
    pub fn at(&self, ticks: u64) -> Instant {
        // A counter may be behind the origin's by a little on another CPU.
        let elapsed = ticks.wrapping_sub(self.origin);
        let elapsed = if elapsed > u64::MAX / 2 { 0 } else { elapsed };
        Instant::after_origin(Span::from_ps((elapsed as f64 * self.ps_per_tick) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_follow_the_stopwatch_and_never_go_back_before_the_origin() {
        let watch = Stopwatch::new(None);
        let timeline = Timeline::begin(watch);
        let early = timeline.now();
        watch.spin(1_000_000);
        let late = timeline.now();
        assert!(late - early >= Span::from_ms(1), "{early:?} {late:?}");
        assert_eq!(timeline.at(timeline.origin.wrapping_sub(5)), Instant::ORIGIN);
        assert_eq!(timeline.at(timeline.origin + 7), Instant::ORIGIN + Span::from_ns(7));
    }
}
