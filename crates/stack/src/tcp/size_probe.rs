//! Probes of a larger segment size: ordinary data in a segment larger than the others (RFC 4821 §10.1, not overlapping), and what
//! became of it.
//!
//! Only with SACK, which tells at once that a probe alone was lost.

use plumb_base::time::Instant;

use super::mtu::ProbeFailure;
use super::recovery::{RecoveryContext, RecoveryPhase};
use super::sender::{SegmentPlan, Sender};

/// Full segments that must be able to follow a probe, so that its loss is noticed at once (RFC 4821 §7.4).
const FOLLOWERS: u64 = 3;

impl Sender {
    /// Bytes of the probe that is to be sent next, if the conditions for one are met (RFC 4821 §7.4); `options` as for a plan.
    #[inline]
    pub fn due_size_probe(&self, now: Instant, options: u16) -> Option<u64> {
        let probe = self.size.due_probe(now)?;
        let is_quiet = self.recovery.phase() == RecoveryPhase::Open
            && self.queue.sacked() == 0
            && self.queue.lost() == 0
            && self.options.sack;
        let len = u64::from(probe.saturating_sub(options));
        let needed = len + FOLLOWERS * u64::from(self.size.payload());
        let waiting = self.record_stop().saturating_since(self.nxt);
        let window = self.window.end().saturating_since(self.nxt);
        let cwnd = self.congestion.window.cwnd;
        (is_quiet && waiting.min(window).min(cwnd) >= needed).then_some(len)
    }

    /// A probe of `len` bytes, once there is room for it: what is in flight drains until then, as RFC 4821 §7.4 permits.
    pub fn plan_size_probe(&mut self, now: Instant, len: u64) -> Option<SegmentPlan> {
        let flight = self.flight();
        if flight + len > self.congestion.window.cwnd || self.is_paced_out(now) {
            self.congestion.on_sent(now, self.una, self.nxt, flight, true);
            return None;
        }
        let (seq, end) = (self.nxt, self.nxt + len);
        self.size.on_probe_sent(seq, end);
        self.counts.size_probes += 1;
        let size = u16::try_from(len).expect("a segment");
        Some(SegmentPlan { seq, end, size, is_retransmission: false })
    }

    /// After what an acknowledgement delivered has been noted: whether the probe was among it.
    pub fn settle_size_probe(&mut self, now: Instant) {
        let Some(probe) = self.size.probe() else { return };
        let is_sacked = || {
            let entry = self.queue.get(self.queue.position(probe.seq));
            entry.is_some_and(|entry| entry.is_sacked)
        };
        if self.una >= probe.end || is_sacked() {
            self.size.on_probe_delivered(now);
            self.congestion.window.mss = self.size.payload().into();
        }
    }

    /// After losses have been looked for: whether the probe is among them.
    pub fn check_size_probe(&mut self, now: Instant, by_timeout: bool) {
        let Some(probe) = self.size.probe() else { return };
        let entry = self.queue.get(self.queue.position(probe.seq));
        let Some(lost) = entry.filter(|entry| entry.is_lost) else { return };
        let why = if by_timeout {
            ProbeFailure::TimedOut
        } else if self.recovery.phase() == RecoveryPhase::Recovery || self.queue.lost() > lost.len()
        {
            ProbeFailure::Inconclusive
        } else {
            ProbeFailure::Lost
        };
        self.counts.size_probes_lost += 1;
        // What no recovery began for is repeated at once all the same.
        self.recovery.force |= why == ProbeFailure::Lost;
        // RFC 4821 §7.6.2: as many round trips as the window has segments.
        let segments = self.congestion.window.cwnd / u64::from(self.congestion.window.mss);
        let interval = self.rtt.srtt().unwrap_or_default() * segments.max(1);
        self.size.on_probe_failed(now, why, interval);
    }
}

impl RecoveryContext<'_> {
    /// Whether the probe is all that is lost, `newly` bytes that were found to be so just now: that is no sign of congestion
    /// (RFC 4821 §7.6.2).
    pub fn is_size_probe(&self, newly: u64) -> bool {
        let Some(seq) = self.size_probe else { return false };
        let probe = self.queue.get(self.queue.position(seq));
        probe.is_some_and(|probe| {
            probe.is_lost && probe.len() == newly && newly == self.queue.lost()
        })
    }
}
