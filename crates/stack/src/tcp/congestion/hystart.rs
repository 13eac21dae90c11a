//! Slow start, with HyStart++ (RFC 9406): it ends when the round-trip time rises, before a queue overflows.
//!
//! The round-trip time of a round is the least of eight samples, so a sender that sees fewer acknowledgements a round (of
//! super-segments) notices nothing, and slow start ends with loss.

use plumb_base::time::Span;

use super::{AckEvent, CongestionWindow};

/// Rise of the round-trip time that is noticed: an eighth of it, within these (RFC 9406 §4.3).
const RTT_RISE_MIN: Span = Span::from_ms(4);
const RTT_RISE_MAX: Span = Span::from_ms(16);
const RTT_RISE_DIVISOR: u64 = 8;
/// Samples of a round before it is judged.
const ROUND_SAMPLES: u8 = 8;
/// Growth of conservative slow start, as a part of that of slow start.
const CONSERVATIVE_DIVISOR: u64 = 4;
/// Rounds of conservative slow start before congestion avoidance.
const CONSERVATIVE_ROUNDS: u8 = 5;

/// Segments by which one acknowledgement lets the window grow at most after a timeout, when it may be of what was sent before
/// (RFC 3465 §2.3). Else there is no limit, as in Linux and in RFC 9406 with pacing: a receiver that joins segments
/// acknowledges many at once.
const LIMIT_AFTER_TIMEOUT: u64 = 1;

/// No round-trip time yet.
const NO_RTT: Span = Span::from_ps(u64::MAX);

/// Growth of the window below the threshold.
#[derive(Clone, Copy, Debug)]
pub struct SlowStart {
    /// The round ends when this is acknowledged, as a count of bytes.
    round_end: u64,
    /// Least round-trip times of the last round and of this one.
    rtt_before: Span,
    rtt: Span,
    /// In conservative slow start: the round-trip time that led to it.
    baseline: Option<Span>,
    samples: u8,
    conservative_rounds: u8,
    uses_hystart: bool,
    is_after_timeout: bool,
}

impl SlowStart {
    /// Slow start of a new connection; `uses_hystart` switches RFC 9406 on.
    pub const fn new(uses_hystart: bool) -> Self {
        Self {
            round_end: 0,
            rtt_before: NO_RTT,
            rtt: NO_RTT,
            baseline: None,
            samples: 0,
            conservative_rounds: 0,
            uses_hystart,
            is_after_timeout: false,
        }
    }

    /// A timeout: what follows grows by a segment an acknowledgement.
    pub const fn on_timeout(&mut self) {
        self.is_after_timeout = true;
    }

    /// Lets the window grow below the threshold. Returns the acknowledged bytes that are left to congestion avoidance.
    pub fn grow(&mut self, window: &mut CongestionWindow, ack: &AckEvent) -> u64 {
        if !window.in_slow_start() {
            self.is_after_timeout = false;
            return ack.acked;
        }
        // RFC 9406 §4.3: for the initial slow start only, in which the threshold is not known.
        let hystart = self.uses_hystart && window.ssthresh == u64::MAX;
        if hystart {
            self.observe(window, ack);
            if !window.in_slow_start() {
                return ack.acked;
            }
        }
        if !ack.is_cwnd_limited {
            return 0;
        }
        let limit = if self.is_after_timeout {
            LIMIT_AFTER_TIMEOUT * u64::from(window.mss)
        } else {
            u64::MAX
        };
        let is_conservative = hystart && self.baseline.is_some();
        let divisor = if is_conservative { CONSERVATIVE_DIVISOR } else { 1 };
        grow_below_threshold(window, ack.acked.min(limit) / divisor)
    }

    /// Judges the round-trip times; ends slow start by setting the threshold.
    fn observe(&mut self, window: &mut CongestionWindow, ack: &AckEvent) {
        if let Some(rtt) = ack.rtt {
            self.rtt = self.rtt.min(rtt);
            self.samples = self.samples.saturating_add(1);
        }
        if self.samples >= ROUND_SAMPLES {
            self.judge();
        }
        if self.round_end == 0 {
            self.round_end = ack.nxt;
        }
        // "When windowEnd is ACKed, the current round ends" (§4.2).
        if ack.una >= self.round_end {
            self.end_round(window, ack.nxt);
        }
    }

    fn judge(&mut self) {
        match self.baseline {
            None if self.rtt_before != NO_RTT => {
                let rise = (self.rtt_before / RTT_RISE_DIVISOR).clamp(RTT_RISE_MIN, RTT_RISE_MAX);
                if self.rtt >= self.rtt_before + rise {
                    self.baseline = Some(self.rtt);
                    self.conservative_rounds = 0;
                }
            }
            // The rise was a passing one: slow start goes on.
            Some(baseline) if self.rtt < baseline => self.baseline = None,
            _ => {}
        }
    }

    fn end_round(&mut self, window: &mut CongestionWindow, nxt: u64) {
        self.rtt_before = self.rtt;
        self.rtt = NO_RTT;
        self.samples = 0;
        self.round_end = nxt;
        if self.baseline.is_some() {
            self.conservative_rounds += 1;
            if self.conservative_rounds >= CONSERVATIVE_ROUNDS {
                window.ssthresh = window.cwnd;
            }
        }
    }
}

/// Slow start without HyStart++. Returns the acknowledged bytes that are left to congestion avoidance.
pub(super) fn plain_slow_start(window: &mut CongestionWindow, acked: u64) -> u64 {
    if window.in_slow_start() { grow_below_threshold(window, acked) } else { acked }
}

fn grow_below_threshold(window: &mut CongestionWindow, growth: u64) -> u64 {
    let used = growth.min(window.ssthresh - window.cwnd);
    window.cwnd += used;
    growth - used
}

#[cfg(test)]
mod tests {
    use super::super::bottleneck::ack_of;
    use super::*;

    const MSS: u64 = 1_000;

    /// A sender whose round-trip time in each round is given.
    struct Rounds {
        start: SlowStart,
        window: CongestionWindow,
        una: u64,
        nxt: u64,
        end: u64,
    }

    impl Rounds {
        fn new(uses_hystart: bool) -> Self {
            let window = CongestionWindow {
                cwnd: 10 * MSS,
                ssthresh: u64::MAX,
                mss: 1_000,
                initial: 10 * MSS,
            };
            Self {
                start: SlowStart::new(uses_hystart),
                window,
                una: 0,
                nxt: 10 * MSS,
                end: 10 * MSS,
            }
        }

        /// One round of acknowledgements, a segment each, with this round-trip time. Returns the bytes acknowledged, and
        /// the growth of the window.
        fn round(&mut self, rtt_ms: u64) -> (u64, u64) {
            let (cwnd, una, end) = (self.window.cwnd, self.una, self.end);
            while self.una < end {
                self.una += MSS;
                // Data that this acknowledgement allows belongs to the round after the next.
                self.end = self.nxt;
                let rtt = Some(Span::from_ms(rtt_ms));
                let ack = AckEvent { una: self.una, nxt: self.nxt, rtt, ..ack_of(MSS) };
                self.start.grow(&mut self.window, &ack);
                self.nxt = self.nxt.max(self.una + self.window.cwnd);
            }
            (self.una - una, self.window.cwnd - cwnd)
        }
    }

    #[test]
    fn the_window_grows_by_all_that_is_acknowledged_while_the_rtt_stays() {
        let mut rounds = Rounds::new(true);
        for _ in 0..6 {
            let (acked, growth) = rounds.round(100);
            assert_eq!(growth, acked);
        }
        assert!(rounds.window.cwnd > 500 * MSS);
    }

    #[test]
    fn a_risen_rtt_quarters_growth_and_ends_slow_start_five_rounds_later() {
        let mut rounds = Rounds::new(true);
        rounds.round(100);
        rounds.round(100);
        // 100 / 8 = 12.5 ms: a rise of 13 ms is noticed at the eighth sample, the first in conservative slow start.
        let (acked, growth) = rounds.round(113);
        assert_eq!(growth, 7 * MSS + (acked - 7 * MSS) / 4);
        for _ in 0..4 {
            assert_eq!(rounds.window.ssthresh, u64::MAX);
            let (acked, growth) = rounds.round(113);
            assert!(growth.abs_diff(acked / 4) <= MSS, "{growth} of {acked}");
        }
        assert_eq!(rounds.window.ssthresh, rounds.window.cwnd);
    }

    #[test]
    fn a_rise_below_the_threshold_is_not_noticed() {
        let mut rounds = Rounds::new(true);
        for rtt in [100, 112, 123, 134] {
            let (acked, growth) = rounds.round(rtt);
            assert_eq!(growth, acked);
        }
    }

    #[test]
    fn a_passing_rise_lets_slow_start_go_on() {
        let mut rounds = Rounds::new(true);
        for rtt in [50, 50, 80, 60, 60, 60, 60, 60, 60] {
            rounds.round(rtt);
        }
        let (acked, growth) = rounds.round(60);
        assert_eq!((growth, rounds.window.ssthresh), (acked, u64::MAX));
    }

    #[test]
    fn switched_off_it_notices_nothing() {
        let mut rounds = Rounds::new(false);
        for rtt in [10, 100, 1_000] {
            let (acked, growth) = rounds.round(rtt);
            assert_eq!(growth, acked);
        }
    }

    #[test]
    fn acknowledged_bytes_count_and_one_segment_after_a_timeout() {
        let mut start = SlowStart::new(true);
        let mut window =
            CongestionWindow { cwnd: 10 * MSS, ssthresh: 100 * MSS, mss: 1_000, initial: 10 * MSS };
        start.grow(&mut window, &ack_of(7 * MSS));
        assert_eq!(window.cwnd, 17 * MSS);
        start.on_timeout();
        start.grow(&mut window, &ack_of(7 * MSS));
        assert_eq!(window.cwnd, 18 * MSS);
    }

    #[test]
    fn what_passes_the_threshold_is_left_to_congestion_avoidance() {
        let mut start = SlowStart::new(false);
        let mut window =
            CongestionWindow { cwnd: 10 * MSS, ssthresh: 10_500, mss: 1_000, initial: 10 * MSS };
        assert_eq!(start.grow(&mut window, &ack_of(2 * MSS)), 1_500);
        assert_eq!(window.cwnd, 10_500);
        assert_eq!(start.grow(&mut window, &ack_of(2 * MSS)), 2_000);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut start = SlowStart::new(false);
        let mut window =
            CongestionWindow { cwnd: 10 * MSS, ssthresh: u64::MAX, mss: 1_000, initial: 10 * MSS };
        start.grow(&mut window, &AckEvent { is_cwnd_limited: false, ..ack_of(MSS) });
        assert_eq!(window.cwnd, 10 * MSS);
    }
}
