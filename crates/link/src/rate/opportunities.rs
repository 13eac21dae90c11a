//! A rate from a trace: bytes that may leave at moments, repeated for ever.
//!
//! As in mahimahi (Netravali et al. 2015): a frame may use several opportunities, several frames
//! one, and what nobody uses is lost. Left out: the files ([`crate::trace`]).

use plumb_base::time::{Instant, Span};

use crate::spec::{Opportunity, Trace};

/// A rate from a trace.
#[derive(Clone, Debug)]
pub struct Opportunities {
    opportunities: std::sync::Arc<[Opportunity]>,
    period: Span,
    start: Instant,
    /// The opportunity that comes next or is in use: its place, and the times the trace was through before it.
    next: usize,
    rounds: u64,
    /// Bits of it that are used.
    used: u64,
}

impl Opportunities {
    /// A trace that begins at `start`.
    pub fn new(trace: &Trace, start: Instant) -> Self {
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
    use super::*;

    fn trace(opportunities: &[(u64, u64)], period_ms: u64) -> Trace {
        Trace {
            file: "test".to_owned(),
            opportunities: opportunities
                .iter()
                .map(|(ms, bytes)| Opportunity { at: Span::from_ms(*ms), bytes: *bytes })
                .collect(),
            period: Span::from_ms(period_ms),
            of_packets: false,
        }
    }

    fn ms(ms: u64) -> Instant {
        Instant::ORIGIN + Span::from_ms(ms)
    }

    #[test]
    fn frames_share_an_opportunity_and_span_several_and_the_rest_is_lost() {
        let mut server = Opportunities::new(&trace(&[(5, 1_500), (7, 1_500)], 10), ms(0));
        assert_eq!(server.finish(ms(0), 500 * 8), ms(5));
        assert_eq!(server.finish(ms(5), 500 * 8), ms(5));
        assert_eq!(server.finish(ms(5), 1_000 * 8), ms(7), "500 bytes now, 500 at the next");
        assert_eq!(server.finish(ms(8), 1_500 * 8), ms(15), "what was left at 7 ms is lost");
        assert_eq!(server.finish(ms(1_000_002), 1_500 * 8), ms(1_000_005));
    }

    #[test]
    fn a_trace_repeats_at_its_period_for_ever() {
        let mut server = Opportunities::new(&trace(&[(1, 100), (3, 100)], 4), ms(10));
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
