//! The congestion window of a connection, and whether it is what limits the connection.

use plumb_base::time::{Instant, Span};

use super::{CongestionAlgorithm, CongestionControl, CongestionWindow};
use crate::tcp::seq::SeqNum;

/// A window and the algorithm that moves it.
#[derive(Debug)]
pub(in crate::tcp) struct CongestionState {
    pub window: CongestionWindow,
    pub algorithm: CongestionAlgorithm,
    /// Most bytes in flight in the round that ends at `round_end`.
    flight_max: u64,
    round_end: SeqNum,
    /// Whether the window held something back in that round.
    is_limited: bool,
    /// When the window was used up last.
    used_up: Instant,
}

impl CongestionState {
    pub fn new(
        mut algorithm: CongestionAlgorithm,
        mut window: CongestionWindow,
        start: SeqNum,
        now: Instant,
    ) -> Self {
        algorithm.on_start(&mut window);
        Self { window, algorithm, flight_max: 0, round_end: start, is_limited: false, used_up: now }
    }

    /// Begins anew with a window: the handshake told the size of segments.
    pub fn restart(&mut self, window: CongestionWindow) {
        self.window = window;
        self.algorithm.on_start(&mut self.window);
    }

    /// Notes how much is in flight after something was sent, or that the window held the next segment back.
    #[inline]
    pub fn on_sent(
        &mut self,
        now: Instant,
        una: SeqNum,
        nxt: SeqNum,
        flight: u64,
        is_limited: bool,
    ) {
        if una >= self.round_end || is_limited || flight > self.flight_max {
            if una >= self.round_end {
                self.round_end = nxt;
                self.flight_max = 0;
                self.is_limited = false;
            }
            self.flight_max = self.flight_max.max(flight);
            self.is_limited |= is_limited;
        }
        if self.is_cwnd_limited() {
            self.used_up = now;
        }
    }

    /// Whether the window, not the application, limits what is sent (Linux's `tcp_is_cwnd_limited`).
    #[inline]
    pub fn is_cwnd_limited(&self) -> bool {
        self.is_limited || (self.window.in_slow_start() && self.window.cwnd < 2 * self.flight_max)
    }

    /// What the path carried when it lost something, with `outstanding` bytes unacknowledged: the window, where that was used up, because
    /// segments that acknowledgements of one batch allow have not been sent yet (RFC 9438 §4.6 allows it, Linux does it).
    pub fn load(&self, outstanding: u64) -> u64 {
        if self.is_cwnd_limited() { outstanding.max(self.window.cwnd) } else { outstanding }
    }

    /// Nothing was in flight for `idle`: the window decays towards the initial one (RFC 7661 §4.4.3, as Linux does it).
    pub fn on_idle(&mut self, now: Instant, idle: Span, rto: Span) {
        if !self.algorithm.governs_recovery() {
            let restart = self.window.initial.min(self.window.cwnd);
            self.window.ssthresh = self.window.ssthresh.max(self.window.cwnd / 4 * 3);
            let mut left = idle;
            while left > rto && self.window.cwnd > restart {
                self.window.cwnd /= 2;
                left = left.saturating_sub(rto);
            }
            self.window.cwnd = self.window.cwnd.max(restart);
        }
        self.algorithm.on_idle(&mut self.window, now, idle);
    }
}
