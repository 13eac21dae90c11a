//! Rates: how long the sender of a hop is busy with a frame, one kind a file.
//!
//! Exact: what a division leaves is carried to the next frame, so that a busy sender never drifts
//! from its rate.

use plumb_base::time::{Instant, Span};
use plumb_base::units::Rate;

use crate::spec::{BucketSpec, RateSpec, RateTrace, SendOpportunity};

/// Picoseconds in a second.
pub(crate) const SECOND: u64 = 1_000_000_000_000;

/// What sends the frames of a hop, one after the other.
#[derive(Clone, Debug)]
pub enum RateServer {
    /// At once.
    Unlimited,
    /// Bit after bit.
    Constant(ConstantRate),
    /// When there are tokens.
    Bucket(GcraBucket),
    /// Bit after bit, with pauses.
    OnOff(OnOffRate),
    /// When a trace says so.
    Opportunities(TraceRate),
}

/// The sender that a description asks for, on a link that begins at `start`.
pub fn make(spec: &RateSpec, start: Instant) -> RateServer {
    match spec {
        RateSpec::Unlimited => RateServer::Unlimited,
        RateSpec::Constant(rate) => RateServer::Constant(ConstantRate::new(*rate)),
        RateSpec::Bucket(spec) => RateServer::Bucket(GcraBucket::new(*spec, start)),
        RateSpec::OnOff { rate, on, off } => {
            RateServer::OnOff(OnOffRate::new(*rate, *on, *off, start))
        }
        RateSpec::Trace(trace) => RateServer::Opportunities(TraceRate::new(trace, start)),
    }
}

impl RateServer {
    /// When the last of `bits` is sent, of a frame that is begun at `start`.
    ///
    /// Never begun before the one before it was finished.
    #[inline]
    pub fn finish(&mut self, start: Instant, bits: u64) -> Instant {
        match self {
            Self::Unlimited => start,
            Self::Constant(constant) => constant.finish(start, bits),
            Self::Bucket(bucket) => bucket.finish(start, bits),
            Self::OnOff(on_off) => on_off.finish(start, bits),
            Self::Opportunities(opportunities) => opportunities.finish(start, bits),
        }
    }

    /// Bits still to be sent at `now` of a frame of `bits` that is finished at `finish`: rounded up.
    ///
    /// A frame that waits for tokens or for an opportunity has sent nothing yet.
    pub fn remaining(&self, now: Instant, finish: Instant, bits: u64) -> u64 {
        match self {
            Self::Unlimited => 0,
            Self::Constant(constant) => constant.bits_in(finish.saturating_since(now)).min(bits),
            Self::Bucket(_) | Self::Opportunities(_) => bits,
            Self::OnOff(on_off) => on_off.bits_between(now, finish).min(bits),
        }
    }
}

/// A constant rate, with what the last division left.
#[derive(Clone, Debug)]
pub struct ConstantRate {
    rate: u64,
    /// Whole picoseconds of one bit.
    whole: u64,
    /// What is left of one bit, in picoseconds divided by the rate.
    rest: u64,
    /// When the last frame was finished, and how much later it really was, in picoseconds divided by the rate.
    last: Instant,
    carried: u64,
}

impl ConstantRate {
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

    /// When the last frame was finished; the origin where there was none.
    #[inline]
    pub fn finished(&self) -> Instant {
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

/// A token bucket.
///
/// Kept as the moment at which it will be full (virtual scheduling: ITU-T I.371, ATM's GCRA), as an exact fraction.
#[derive(Clone, Debug)]
pub struct GcraBucket {
    rate: u128,
    /// How long an empty one takes to fill, as everything here in picoseconds times the rate.
    depth: u128,
    /// When it is full.
    full: u128,
}

impl GcraBucket {
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
        // A frame that waited takes its tokens when they are there, not at the end of that picosecond.
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

/// A rate with pauses.
///
/// A frame that a pause interrupts resumes behind it.
#[derive(Clone, Debug)]
pub struct OnOffRate {
    constant: ConstantRate,
    on: u64,
    cycle: u64,
    start: Instant,
}

impl OnOffRate {
    /// Beginning to send at `start`.
    pub fn new(rate: Rate, on: Span, off: Span, start: Instant) -> Self {
        let on_ps = on.as_ps().max(1);
        Self {
            constant: ConstantRate::new(rate),
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

/// A rate from a trace.
///
/// As in mahimahi (Netravali et al. 2015): a frame may use several opportunities, several frames one, and what is
/// not used is lost.
#[derive(Clone, Debug)]
pub struct TraceRate {
    opportunities: std::sync::Arc<[SendOpportunity]>,
    period: Span,
    start: Instant,
    /// The opportunity that comes next or is in use: its place, and the times the trace was through before it.
    next: usize,
    rounds: u64,
    /// Bits of it that are used.
    used: u64,
}

impl TraceRate {
    /// A trace that begins at `start`.
    pub fn new(trace: &RateTrace, start: Instant) -> Self {
        Self {
            opportunities: trace.opportunities.clone(),
            // A trace of one moment has no length of its own.
            period: trace.period.max(Span::from_ps(1)),
            start,
            next: 0,
            rounds: 0,
            used: 0,
        }
    }

    /// When the last of `bits` leaves, none before `start`.
    pub fn finish(&mut self, start: Instant, bits: u64) -> Instant {
        self.skip_to(start);
        let mut left = bits;
        loop {
            let here = self.opportunities[self.next].bytes.saturating_mul(8) - self.used;
            if left <= here && (here > 0 || left == 0) {
                self.used += left;
                return self.moment().max(start);
            }
            left -= here;
            self.advance();
        }
    }

    fn moment(&self) -> Instant {
        self.start + self.period * self.rounds + self.opportunities[self.next].at
    }

    fn advance(&mut self) {
        self.used = 0;
        self.next += 1;
        if self.next == self.opportunities.len() {
            self.next = 0;
            self.rounds += 1;
        }
    }

    /// Past every opportunity before `moment`: whole rounds at once after a long silence.
    fn skip_to(&mut self, moment: Instant) {
        let rounds = moment.saturating_since(self.start).as_ps() / self.period.as_ps();
        if rounds > self.rounds + 1 {
            (self.rounds, self.next, self.used) = (rounds - 1, 0, 0);
        }
        while self.moment() < moment {
            self.advance();
        }
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
    fn an_idle_sender_carries_nothing() {
        let mut constant = ConstantRate::new(Rate::from_bits_per_second(3).unwrap());
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
            let mut constant = ConstantRate::new(Rate::from_bits_per_second(rate).unwrap());
            let total: u64 = frames.iter().sum();
            let exact = u128::from(total) * u128::from(SECOND) / u128::from(rate);
            prop_assume!(exact < u128::from(u64::MAX));
            let end = frames.iter().fold(at(0), |now, bits| constant.finish(now, *bits));
            prop_assert_eq!(u128::from(end.since_origin().as_ps()), exact);
            prop_assert_eq!(constant.bits_in(end.since_origin()), total);
        }
    }

    fn bucket(rate: u64, burst: u64) -> GcraBucket {
        let rate = Rate::from_bits_per_second(rate).unwrap();
        GcraBucket::new(BucketSpec { rate, burst }, Instant::ORIGIN)
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
                // A frame that it refuses would have exceeded the rate.
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

    fn ms(ms: u64) -> Instant {
        Instant::ORIGIN + Span::from_ms(ms)
    }

    #[test]
    fn a_frame_that_a_pause_interrupts_goes_on_behind_it() {
        let rate = Rate::from_bits_per_second(1_000_000).unwrap();
        let mut on_off = OnOffRate::new(rate, Span::from_ms(10), Span::from_ms(90), ms(1_000));
        assert_eq!(on_off.finish(ms(1_000), 8_000), ms(1_008));
        assert_eq!(on_off.finish(ms(1_008), 8_000), ms(1_106));
        assert_eq!(on_off.finish(ms(1_150), 10_000), ms(1_210));
        assert_eq!(on_off.bits_between(ms(1_005), ms(1_106)), 11_000);
    }

    fn trace(opportunities: &[(u64, u64)], period_ms: u64) -> RateTrace {
        RateTrace {
            file: "test".to_owned(),
            opportunities: opportunities
                .iter()
                .map(|(ms, bytes)| SendOpportunity { at: Span::from_ms(*ms), bytes: *bytes })
                .collect(),
            period: Span::from_ms(period_ms),
            counts_ip_packets: false,
        }
    }

    #[test]
    fn frames_share_an_opportunity_and_span_several_and_the_rest_is_lost() {
        let mut server = TraceRate::new(&trace(&[(5, 1_500), (7, 1_500)], 10), ms(0));
        assert_eq!(server.finish(ms(0), 500 * 8), ms(5));
        assert_eq!(server.finish(ms(5), 500 * 8), ms(5));
        assert_eq!(server.finish(ms(5), 1_000 * 8), ms(7), "500 bytes now, 500 at the next");
        assert_eq!(server.finish(ms(8), 1_500 * 8), ms(15), "what was left at 7 ms is lost");
        assert_eq!(server.finish(ms(1_000_002), 1_500 * 8), ms(1_000_005));
    }

    #[test]
    fn a_trace_repeats_at_its_period_for_ever() {
        let mut server = TraceRate::new(&trace(&[(1, 100), (3, 100)], 4), ms(10));
        let mut now = ms(10);
        let times: Vec<u64> = (0..5)
            .map(|_| {
                now = server.finish(now, 800);
                now.since_origin().as_ns() / 1_000_000
            })
            .collect();
        assert_eq!(times, [11, 13, 15, 17, 19]);
    }
}
