//! A token bucket: up to `burst` bytes at once, then at the rate.
//!
//! Kept as the moment at which it will be full (the virtual scheduling of ITU-T I.371 and of ATM's
//! generic cell rate algorithm), as an exact fraction. The shaper and the policer are made of it.
//! Left out: a peak rate beside the mean one; the next hop's rate is one.

use plumb_base::time::{Instant, Span};

use super::SECOND;
use crate::spec::BucketSpec;

/// A token bucket.
#[derive(Clone, Debug)]
pub struct Bucket {
    rate: u128,
    /// How long an empty one takes to fill, as everything here in picoseconds times the rate.
    depth: u128,
    /// When it is full.
    full: u128,
}

impl Bucket {
    /// A full one at `start`.
    pub fn new(spec: BucketSpec, start: Instant) -> Self {
        let rate = u128::from(spec.rate.bits_per_second());
        let depth = u128::from(spec.burst) * 8 * u128::from(SECOND);
        Self { rate, depth, full: u128::from(start.since_origin().as_ps()) * rate }
    }

    /// Takes the tokens of `bits` as soon as they are there, not before `start`; when.
    ///
    /// A frame longer than the bucket goes when it is full, and leaves it in debt.
    pub fn finish(&mut self, start: Instant, bits: u64) -> Instant {
        let ready = self.earliest(bits);
        let moment = u64::try_from(ready.div_ceil(self.rate)).unwrap_or(u64::MAX);
        let at = start.max(Instant::after_origin(Span::from_ps(moment)));
        // What waited for tokens takes them when they are there, not at the end of that picosecond.
        let at_scaled = if at > start { ready } else { self.scaled(start) };
        self.take(at_scaled, bits);
        at
    }

    /// Takes the tokens of `bits` if they are there at `now`; whether they were.
    pub fn conforms(&mut self, now: Instant, bits: u64) -> bool {
        let now = self.scaled(now);
        let conforms = cost(bits) <= self.depth && self.earliest(bits) <= now;
        if conforms {
            self.take(now, bits);
        }
        conforms
    }

    fn scaled(&self, moment: Instant) -> u128 {
        u128::from(moment.since_origin().as_ps()) * self.rate
    }

    fn earliest(&self, bits: u64) -> u128 {
        (self.full + cost(bits).min(self.depth)).saturating_sub(self.depth)
    }

    fn take(&mut self, now: u128, bits: u64) {
        self.full = self.full.max(now) + cost(bits);
    }
}

fn cost(bits: u64) -> u128 {
    u128::from(bits) * u128::from(SECOND)
}

#[cfg(test)]
mod tests {
    use plumb_base::units::rate::Rate;
    use proptest::prelude::*;

    use super::*;

    fn bucket(rate: u64, burst: u64) -> Bucket {
        let rate = Rate::from_bits_per_second(rate).unwrap();
        Bucket::new(BucketSpec { rate, burst }, Instant::ORIGIN)
    }

    /// Whether no window holds more than burst + rate × its length, to one part in 10¹².
    fn conformant(sent: &[(Instant, u64)], rate: u64, burst: u64) -> bool {
        (0..sent.len()).all(|from| {
            let mut bits = 0_u128;
            sent[from..].iter().all(|(at, more)| {
                bits += u128::from(*more);
                let span = u128::from((*at - sent[from].0).as_ps());
                // A departure is rounded up to a picosecond, which may shorten a window by one.
                let most =
                    u128::from(burst) * 8 * u128::from(SECOND) + (span + 1) * u128::from(rate);
                bits * u128::from(SECOND) <= most
            })
        })
    }

    #[test]
    fn a_full_bucket_goes_at_once_and_then_the_rate_rules() {
        let mut bucket = bucket(8_000_000, 3_000);
        let now = Instant::ORIGIN + Span::from_secs(1);
        assert_eq!(bucket.finish(now, 12_000), now);
        assert_eq!(bucket.finish(now, 12_000), now);
        assert_eq!(bucket.finish(now, 12_000), now + Span::from_us(1_500));
        assert_eq!(bucket.finish(now + Span::from_us(1_500), 8_000), now + Span::from_us(2_500));
    }

    #[test]
    fn an_hour_through_a_shaper_takes_its_time_to_the_picosecond() {
        let mut bucket = bucket(999_983, 1_500);
        let mut now = Instant::ORIGIN;
        for _ in 0..300_000 {
            now = bucket.finish(now, 12_000);
        }
        let exact = (299_999_u128 * 12_000 * u128::from(SECOND)).div_ceil(999_983);
        assert_eq!(u128::from(now.since_origin().as_ps()), exact);
    }

    proptest! {
        #[test]
        fn a_shaper_never_sends_more_than_burst_and_rate_in_any_window(
            rate in 1_000_u64..10_000_000_000,
            burst in 1_500_u64..100_000,
            arrivals in proptest::collection::vec((0_u64..2_000_000_000, 1_u64..12_000), 1..60),
        ) {
            let mut bucket = bucket(rate, burst);
            let mut now = Instant::ORIGIN;
            let sent: Vec<_> = arrivals.iter().map(|(gap, bits)| {
                now = bucket.finish(now + Span::from_ps(*gap), *bits);
                (now, *bits)
            }).collect();
            prop_assert!(conformant(&sent, rate, burst));
        }

        #[test]
        fn a_policer_passes_no_more_than_burst_and_rate_in_any_window_and_no_less(
            rate in 1_000_u64..10_000_000_000,
            burst in 1_500_u64..100_000,
            arrivals in proptest::collection::vec((0_u64..2_000_000_000, 1_u64..12_000), 1..60),
        ) {
            let mut bucket = bucket(rate, burst);
            let mut now = Instant::ORIGIN;
            let mut sent = Vec::new();
            for (gap, bits) in arrivals {
                now += Span::from_ps(gap);
                let mut with_it = sent.clone();
                with_it.push((now, bits));
                let passes = bucket.conforms(now, bits);
                // What it refuses would have broken the promise.
                prop_assert!(passes || !conformant_from_start(&with_it, rate, burst));
                if passes {
                    sent = with_it;
                }
            }
            prop_assert!(conformant(&sent, rate, burst));
        }
    }

    /// Whether a bucket that began full has, by its definition, tokens for all of these.
    fn conformant_from_start(sent: &[(Instant, u64)], rate: u64, burst: u64) -> bool {
        let depth = u128::from(burst) * 8 * u128::from(SECOND);
        let (mut tokens, mut last) = (depth, Instant::ORIGIN);
        sent.iter().all(|(at, bits)| {
            tokens = depth.min(tokens + u128::from((*at - last).as_ps()) * u128::from(rate));
            last = *at;
            let cost = u128::from(*bits) * u128::from(SECOND);
            let conforms = cost <= tokens;
            tokens = tokens.saturating_sub(cost);
            conforms
        })
    }
}
