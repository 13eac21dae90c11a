//! When received data are acknowledged (RFC 9293 §3.8.6.3, RFC 5681 §4.2): at once, with data of our own, or a little later.

use plumb_base::time::{Instant, Span};

use super::config::DelayedAck;

/// Acknowledgements that are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct AckSchedule {
    policy: DelayedAck,
    /// Bytes received since the last acknowledgement.
    bytes: u64,
    /// Segments, of any size, since then.
    segments: u8,
    /// One is due now.
    now: bool,
    /// One is due then, at the latest.
    deadline: Option<Instant>,
    /// Acknowledgements that are still sent at once.
    quick: u8,
    delay: Span,
    last_data: Instant,
}

impl AckSchedule {
    pub fn new(policy: DelayedAck) -> Self {
        let (quick, delay) = (policy.quick, policy.min);
        let last_data = Instant::ORIGIN;
        Self { policy, bytes: 0, segments: 0, now: false, deadline: None, quick, delay, last_data }
    }

    /// Data of `len` bytes arrived in sequence; `mss` is the size of the peer's full segments.
    #[inline]
    pub fn on_data(&mut self, now: Instant, len: u64, mss: u64) {
        self.bytes += len;
        self.segments = self.segments.saturating_add(1);
        self.adapt(now);
        let enough = self.policy.counts_small && self.segments >= self.policy.segments;
        if enough
            || self.bytes >= mss * u64::from(self.policy.segments)
            || self.quick > 0
            || self.policy.max == Span::ZERO
        {
            self.now = true;
        } else if self.deadline.is_none() {
            self.deadline = Some(now + self.delay);
        }
    }

    /// The delay follows the distance of the peer's segments, as in Linux: what follows soon can carry the acknowledgement.
    #[inline]
    fn adapt(&mut self, now: Instant) {
        if self.policy.min == self.policy.max {
            return;
        }
        let gap = now.saturating_since(self.last_data);
        self.last_data = now;
        if gap <= self.policy.min / 2 {
            self.delay = self.delay / 2 + self.policy.min / 2;
        } else if gap < self.delay {
            self.delay = (self.delay / 2 + gap).max(self.policy.min);
        } else if gap > self.policy.max {
            self.delay = self.policy.min;
        } else {
            self.delay = self.delay.max(gap).min(self.policy.max);
        }
    }

    /// An acknowledgement is due now: something is out of order, or the peer asks for it.
    #[inline]
    pub fn demand(&mut self) {
        self.now = true;
    }

    /// Whether one is due.
    #[inline]
    pub fn is_due(&self) -> bool {
        self.now
    }

    /// When one is due at the latest.
    #[inline]
    pub const fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The deadline has passed.
    pub fn on_deadline(&mut self, now: Instant) {
        if self.deadline.is_some_and(|deadline| deadline <= now) {
            self.now = true;
            self.deadline = None;
        }
    }

    /// An acknowledgement was sent; `with_data`: together with data, so that the application answers by itself.
    #[inline]
    pub fn on_sent(&mut self, with_data: bool) {
        if self.bytes > 0 {
            self.quick = if with_data { 0 } else { self.quick.saturating_sub(1) };
        }
        self.bytes = 0;
        self.segments = 0;
        self.now = false;
        self.deadline = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::config::Personality;

    const START: Instant = Instant::after_origin(Span::from_secs(1));

    // MUST-58.
    #[test]
    fn second_full_segment_is_acknowledged_at_once() {
        let mut acks = AckSchedule::new(Personality::plain().delayed_ack);
        acks.on_data(START, 1_000, 1_000);
        assert!(!acks.is_due());
        assert_eq!(acks.deadline(), Some(START + Span::from_ms(500)));
        acks.on_data(START, 1_000, 1_000);
        assert!(acks.is_due());
        acks.on_sent(false);
        assert!(!acks.is_due() && acks.deadline().is_none());
    }

    #[test]
    fn second_small_segment_is_acknowledged_at_once_where_small_ones_count() {
        for (policy, expected) in
            [(Personality::freebsd(), [false, true]), (Personality::plain(), [false, false])]
        {
            let mut acks = AckSchedule::new(policy.delayed_ack);
            let due = [(); 2].map(|()| {
                acks.on_data(START, 1, 1_000);
                acks.is_due()
            });
            assert_eq!(due, expected);
        }
    }

    #[test]
    fn start_of_a_connection_is_acknowledged_at_once() {
        let mut acks =
            AckSchedule::new(DelayedAck { quick: 2, ..Personality::linux().delayed_ack });
        for expected in [true, true, false] {
            acks.on_data(START, 1, 1_000);
            assert_eq!(acks.is_due(), expected);
            acks.on_sent(false);
        }
    }
}
