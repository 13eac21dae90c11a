//! Reno (RFC 5681) and NewReno (RFC 6582), counting bytes (RFC 3465): a segment more each round trip, half after loss.

use plumb_base::time::{Instant, Span};

use super::hystart::SlowStart;
use super::{AckEvent, CongestionControl, CongestionSignal, CongestionWindow};

/// Additive increase, multiplicative decrease.
#[derive(Clone, Copy, Debug)]
pub struct Reno {
    slow_start: SlowStart,
    /// Bytes acknowledged since the window last grew by a segment.
    acked: u64,
    is_new_reno: bool,
}

impl Reno {
    /// Reno: the first acknowledgement of new data ends recovery; no HyStart++.
    pub const fn reno() -> Self {
        Self { slow_start: SlowStart::new(false), acked: 0, is_new_reno: false }
    }

    /// NewReno: partial acknowledgements do not end recovery.
    pub const fn new_reno(hystart: bool) -> Self {
        Self { slow_start: SlowStart::new(hystart), acked: 0, is_new_reno: true }
    }
}

/// Congestion avoidance: a segment for each window of bytes acknowledged (RFC 3465 §2.1). `counted` is kept between calls.
pub(super) fn additive_increase(window: &mut CongestionWindow, counted: &mut u64, acked: u64) {
    *counted += acked;
    while *counted >= window.cwnd {
        *counted -= window.cwnd;
        window.cwnd += u64::from(window.mss);
    }
}

/// Half of what was in flight, two segments at least (RFC 5681 eqn. 4). Limited transmit may have more in flight than the
/// window, which does not count (§3.2).
pub(super) fn half_of_flight(window: &CongestionWindow, flight: u64) -> u64 {
    (flight.min(window.cwnd) / 2).max(window.floor())
}

impl CongestionControl for Reno {
    fn name(&self) -> &'static str {
        if self.is_new_reno { "newreno" } else { "reno" }
    }

    fn on_ack(&mut self, window: &mut CongestionWindow, ack: &AckEvent) {
        let acked = self.slow_start.grow(window, ack);
        if ack.is_cwnd_limited && !window.in_slow_start() {
            additive_increase(window, &mut self.acked, acked);
        }
    }

    fn on_congestion(
        &mut self,
        window: &mut CongestionWindow,
        _now: Instant,
        flight: u64,
        _signal: CongestionSignal,
    ) {
        window.ssthresh = half_of_flight(window, flight);
        self.acked = 0;
    }

    fn on_timeout(
        &mut self,
        window: &mut CongestionWindow,
        _now: Instant,
        flight: u64,
        first: bool,
    ) {
        if first {
            window.ssthresh = half_of_flight(window, flight);
        }
        self.acked = 0;
        self.slow_start.on_timeout();
    }

    fn pacing_rate(&self, _window: &CongestionWindow, _srtt: Option<Span>) -> Option<u64> {
        None
    }

    fn ends_recovery_at_once(&self) -> bool {
        !self.is_new_reno
    }
}
