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

/// Segments by which one acknowledgement lets the window grow at most: L of RFC 9406 §4.2 without pacing …
const LIMIT_HYSTART: u64 = 8;
/// … of RFC 3465 §2.3 …
const LIMIT: u64 = 2;
/// … and after a timeout, when an acknowledgement may be of what was sent before it.
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
        let limit = match (hystart, self.is_after_timeout) {
            (true, _) => LIMIT_HYSTART,
            (false, false) => LIMIT,
            (false, true) => LIMIT_AFTER_TIMEOUT,
        };
        let growth = ack.acked.min(limit * u64::from(window.mss));
        let growth =
            if hystart && self.baseline.is_some() { growth / CONSERVATIVE_DIVISOR } else { growth };
        let used = growth.min(window.ssthresh - window.cwnd);
        window.cwnd += used;
        growth - used
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
