//! A token bucket: so many events a second on average, so many at once.
//!
//! Integer arithmetic: tokens are counted in parts of a million millionth, of which `rate` arrive in
//! each picosecond, so that nothing is lost to rounding however often it is asked. Left out: what is
//! limited, and queues; an event is let through now or refused.

use plumb_base::time::{Instant, Span};

/// A bucket that gains `rate` tokens a second and holds at most `burst` of them; full at the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    rate: u32,
    burst: u32,
    /// What was in it at `counted`; [`TOKEN`] parts are one token.
    parts: u128,
    counted: Instant,
}

/// Parts of a token: picoseconds a second, so that `rate` parts arrive in each picosecond.
const TOKEN: u128 = 1_000_000_000_000;

impl TokenBucket {
    /// A full bucket. A `burst` of zero refuses everything; a `rate` of zero never refills.
    pub fn new(rate: u32, burst: u32) -> Self {
        Self { rate, burst, parts: u128::from(burst) * TOKEN, counted: Instant::ORIGIN }
    }

    /// Takes a token, if there is one. A `now` earlier than the last one adds nothing.
    #[inline]
    pub fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let Some(rest) = self.parts.checked_sub(TOKEN) else { return false };
        self.parts = rest;
        true
    }

    /// When the next token will be there, if one ever will.
    pub fn next(&self) -> Option<Instant> {
        if self.burst == 0 {
            return None;
        }
        let missing = TOKEN.saturating_sub(self.parts);
        if missing == 0 {
            return Some(self.counted);
        }
        let wait =
            missing.checked_add(u128::from(self.rate.checked_sub(1)?))? / u128::from(self.rate);
        Some(self.counted + Span::from_ps(u64::try_from(wait).ok()?))
    }

    #[inline]
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_since(self.counted).as_ps();
        self.counted = self.counted.max(now);
        let gained = u128::from(passed) * u128::from(self.rate);
        self.parts = (self.parts + gained).min(u128::from(self.burst) * TOKEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ps: u64) -> Instant {
        Instant::after_origin(Span::from_ps(ps))
    }

    #[test]
    fn a_full_bucket_lets_its_burst_through_and_no_more() {
        let mut bucket = TokenBucket::new(1_000, 50);
        assert_eq!((0..100).filter(|_| bucket.take(at(5))).count(), 50);
    }

    #[test]
    fn over_a_long_time_the_rate_is_exact_however_often_it_is_asked() {
        // 7 a second, asked every 333,333,333 ps: no period of the asking divides a token.
        let mut bucket = TokenBucket::new(7, 1);
        let mut taken = 0_u64;
        let mut now = 0;
        while now < 1_000_000_000_000_000 {
            taken += u64::from(bucket.take(at(now)));
            now += 333_333_333;
        }
        // Each token waits for the next question, at most 333 µs of its 143 ms, and none is lost.
        assert!((6_980..=7_001).contains(&taken), "{taken}");
        // Rounding must not eat parts: with a deep bucket exactly rate × time + burst get through.
        let mut deep = TokenBucket::new(7, 10_000);
        let mut step = 0;
        while step < 1_000_000_000_000 {
            deep.refill(at(step));
            step += 999_999_937;
        }
        while deep.take(at(0)) {}
        assert_eq!(deep.parts, 0);
        deep.refill(at(10 * 1_000_000_000_000));
        let left = u128::from(10_000_000_000_000_u64 - (step - 999_999_937)) * 7;
        assert_eq!(deep.parts, left);
    }

    #[test]
    fn it_says_when_the_next_token_comes_and_then_has_one() {
        let mut bucket = TokenBucket::new(3, 1);
        assert!(bucket.take(at(0)));
        let next = bucket.next().unwrap();
        assert_eq!(next, at(333_333_333_334));
        assert!(!bucket.take(at(333_333_333_333)));
        assert!(bucket.take(next));
        assert_eq!(TokenBucket::new(3, 0).next(), None);
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_adds_nothing() {
        let mut bucket = TokenBucket::new(u32::MAX, 1);
        assert!(bucket.take(at(1_000_000)));
        assert!(!bucket.take(at(0)));
        assert!(!bucket.take(at(1_000_000)));
    }
}
