//! The sending half of a connection: what is buffered, what may be sent next, and what happened to what was sent.

use plumb_base::time::{Instant, Span};

use super::congestion::{CongestionControl, CongestionState};
use super::delivery_rate::DeliveryRate;
use super::mtu::SegmentSize;
use super::pacing::{SegmentPacer, window_rate};
use super::recovery::{LossRecovery, RecoveryContext};
use super::ring::SeqRing;
use super::rtt::RttEstimator;
use super::sent::{SentQueue, SentSegment};
use super::seq::SeqNum;
use super::stream::WriteEnds;
use super::window::SendWindow;

/// Longest delay of an acknowledgement that a tail loss probe allows for (RFC 8985 §7.2).
const ACK_DELAY_MAX: Span = Span::from_ms(200);

/// A timer whose time has passed already expires after this.
pub(super) const TIMER_MIN: Span = Span::from_ms(1);

/// The sending half.
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
#[derive(Debug)]
pub(super) struct Sender {
    pub iss: SeqNum,
    /// First sequence number that is not acknowledged.
    pub una: SeqNum,
    /// The next to be sent: it never goes back.
    pub nxt: SeqNum,
    /// Data from `una` on.
    pub buffer: SeqRing,
    /// Behind the last byte that was buffered.
    pub end: SeqNum,
    /// Nothing follows `end`, which is the FIN's sequence number.
    pub is_closed: bool,
    pub writes: WriteEnds,
    pub window: SendWindow,
    pub size: SegmentSize,
    pub queue: SentQueue,
    pub congestion: CongestionState,
    pub recovery: LossRecovery,
    pub rtt: RttEstimator,
    pub rate: DeliveryRate,
    pub pacer: SegmentPacer,
    pub options: SenderOptions,
    /// Behind the last segment smaller than a full one (Minshall's variant of Nagle's algorithm).
    pub small_end: SeqNum,
    pub timer: Option<(RetransmitTimer, Instant)>,
    /// When the retransmission timeout began to run.
    pub rto_base: Instant,
    /// When something was sent last.
    pub last_sent: Instant,
    /// The window that the peer has too small for anything may be probed now, or a small segment sent.
    pub probe_window: bool,
    /// A tail loss probe is due.
    pub probe_tail: bool,
    /// ECN: the next new segment has CWR.
    pub announce_reduction: bool,
    pub counts: SenderCounts,
}

/// Choices that do not change.
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
#[derive(Clone, Copy, Debug)]
pub(super) struct SenderOptions {
    pub sack: bool,
    pub ecn: bool,
    pub nagle: bool,
    pub pacing: bool,
    pub super_segment_max: u16,
    pub silly_window: bool,
    pub timeout_only: bool,
    pub retransmit_all: bool,
    pub measure_retransmissions: bool,
}

/// Counters of the sending side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderCounts {
    /// Segments sent, retransmissions included; a super-segment counts as its segments.
    pub segments: u64,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Bytes retransmitted.
    pub retransmitted_bytes: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Tail loss probes.
    pub tail_probes: u64,
    /// Probes of a closed window.
    pub window_probes: u64,
    /// Fast recoveries.
    pub recoveries: u64,
    /// Reductions undone, as nothing had been lost.
    pub undone: u64,
    /// D-SACKs received.
    pub dsacks: u64,
    /// Reductions for congestion marks.
    pub marks: u64,
    /// Segments that probed for a larger size.
    pub size_probes: u64,
    /// Of these, those that did not arrive.
    pub size_probes_lost: u64,
}

/// What the sender's timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RetransmitTimer {
    /// Retransmission (RFC 6298).
    Timeout,
    /// Tail loss probe (RFC 8985 §7).
    TailProbe,
    /// Loss detection is to be repeated (RFC 8985 §6.2, step 5).
    Reordering,
    /// The peer's window is too small for anything (RFC 9293 §3.8.6.1).
    Persist,
}

/// What leaves next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentPlan {
    pub seq: SeqNum,
    /// Behind it, SYN and FIN counted.
    pub end: SeqNum,
    /// Most payload of one frame.
    pub size: u16,
    pub is_retransmission: bool,
}

impl Sender {
    /// Bytes that are unacknowledged.
    #[inline]
    pub fn outstanding(&self) -> u64 {
        self.nxt - self.una
    }

    /// Bytes in flight.
    #[inline]
    pub fn flight(&self) -> u64 {
        self.recovery.flight(&self.queue, self.outstanding(), self.congestion.window.mss.into())
    }

    /// First sequence number of data.
    #[inline]
    pub fn data_start(&self) -> SeqNum {
        self.iss + 1
    }

    /// Behind everything that will be sent, as far as it is known: the FIN, or the data.
    #[inline]
    pub fn stream_end(&self) -> SeqNum {
        self.end + u64::from(self.is_closed)
    }

    /// Where a new segment ends at the latest: with the record, or with what is buffered.
    #[inline]
    pub fn record_stop(&self) -> SeqNum {
        self.writes.record_end(self.nxt).unwrap_or(self.end)
    }

    /// Bytes that may still be buffered.
    #[inline]
    pub fn room(&self) -> usize {
        usize::try_from(self.buffer.limit().saturating_since(self.end)).unwrap_or(usize::MAX)
    }

    pub fn recovery_context(&mut self, now: Instant) -> (&mut LossRecovery, RecoveryContext<'_>) {
        let rtt_min = self.rtt.minimum().unwrap_or(Span::ZERO);
        let cx = RecoveryContext {
            now,
            una: self.una,
            nxt: self.nxt,
            queue: &mut self.queue,
            congestion: &mut self.congestion,
            rtt_min,
            size_probe: self.size.probe().map(|probe| probe.seq),
            srtt: self.rtt.srtt().unwrap_or(Span::ZERO),
            sack: self.options.sack,
            timeout_only: self.options.timeout_only,
        };
        (&mut self.recovery, cx)
    }

    /// What may be sent now; `options` are the bytes of options beyond those of every segment, `super_segment` the most payload
    /// that one packet takes, 0 for one segment at a time.
    pub fn plan(&mut self, now: Instant, options: u16, super_segment: u32) -> Option<SegmentPlan> {
        if let Some(plan) = self.plan_retransmission(now, options, super_segment) {
            return Some(plan);
        }
        if let Some(len) = self.due_size_probe(now, options) {
            return self.plan_size_probe(now, len);
        }
        self.plan_new(now, options, super_segment)
    }

    /// Whether pacing lets something leave.
    #[inline]
    pub fn is_paced_out(&self, now: Instant) -> bool {
        self.pacing_rate().is_some() && self.pacer.ready_at() > now
    }

    /// Bytes a second that segments leave at, if they are paced.
    #[inline]
    pub fn pacing_rate(&self) -> Option<u64> {
        let CongestionState { window, algorithm, .. } = &self.congestion;
        let rate = algorithm.pacing_rate(window, self.rtt.srtt());
        if rate.is_some() || !self.options.pacing {
            rate
        } else {
            window_rate(window, self.rtt.srtt())
        }
    }

    /// Most segments that may leave at once.
    #[inline]
    fn burst(&mut self, now: Instant, size: u64, super_segment: u32) -> u64 {
        let most = (u64::from(super_segment) / size).min(self.options.super_segment_max.into());
        let Some(rate) = self.pacing_rate() else { return most.max(1) };
        let allowance = self.pacer.allowance(now, rate, self.congestion.window.mss);
        most.min(allowance / size).max(1)
    }

    fn plan_retransmission(
        &mut self,
        now: Instant,
        options: u16,
        super_segment: u32,
    ) -> Option<SegmentPlan> {
        if self.queue.lost() == self.queue.retransmitted() && !self.probe_tail {
            return None;
        }
        let payload = self.size.payload().saturating_sub(options);
        if std::mem::take(&mut self.probe_tail) {
            return self.plan_tail_probe(payload);
        }
        let index = self.queue.next_to_retransmit()?;
        let size = u64::from(payload);
        let flight = self.flight();
        let room = self.congestion.window.cwnd.saturating_sub(flight);
        if !self.recovery.force && (room < size && flight > 0 || self.is_paced_out(now)) {
            self.congestion.on_sent(now, self.una, self.nxt, flight, true);
            return None;
        }
        let segments = self.burst(now, size, super_segment).min((room / size).max(1));
        let segment = *self.queue.get(index)?;
        let window_end = self.window.end().max(self.una + 1);
        // RFC 9293 §3.8.6: what the peer's window no longer holds waits, but for the first byte.
        let end = segment.end.min(segment.seq + segments * size).min(window_end);
        if end <= segment.seq {
            return None;
        }
        self.queue.split(index, end);
        Some(SegmentPlan { seq: segment.seq, end, size: payload, is_retransmission: true })
    }

    /// The last segment again, or a new one if there is one (RFC 8985 §7.3).
    fn plan_tail_probe(&mut self, payload: u16) -> Option<SegmentPlan> {
        let size = u64::from(payload);
        let window = self.window.end();
        let stop = self.writes.record_end(self.nxt).unwrap_or(self.stream_end());
        let new_end = stop.min(self.nxt + size).min(window);
        if new_end > self.nxt {
            self.counts.tail_probes += 1;
            self.recovery.on_probe(new_end, false);
            return Some(SegmentPlan {
                seq: self.nxt,
                end: new_end,
                size: payload,
                is_retransmission: false,
            });
        }
        let last = self.queue.len().checked_sub(1)?;
        let back = *self.queue.get(last)?;
        if back.is_sacked {
            return None;
        }
        let seq = if back.len() > size { back.end - size } else { back.seq };
        self.queue.split(last, seq);
        self.counts.tail_probes += 1;
        self.recovery.on_probe(self.nxt, true);
        Some(SegmentPlan { seq, end: back.end, size: payload, is_retransmission: true })
    }

    fn plan_new(&mut self, now: Instant, options: u16, super_segment: u32) -> Option<SegmentPlan> {
        let waiting = self.stream_end().saturating_since(self.nxt);
        if waiting == 0 || self.is_paced_out(now) {
            return None;
        }
        let payload = self.size.payload().saturating_sub(options);
        let size = u64::from(payload);
        let window = self.window.end().saturating_since(self.nxt);
        // A FIN alone takes no room of the window (as in Linux).
        let is_bare_fin = self.nxt == self.end;
        let data = self.record_stop().saturating_since(self.nxt).min(window);
        if data == 0 && !is_bare_fin {
            return self.plan_window_probe(now, window, payload);
        }
        let flight = self.flight();
        let room = self.congestion.window.cwnd.saturating_sub(flight);
        let full = data / size;
        let allowed = if flight == 0 { (room / size).max(1) } else { room / size };
        let segments = full.min(allowed).min(self.burst(now, size, super_segment));
        let (len, is_small) = if segments > 0 {
            // A rest that ends the stream leaves with the full segments before it.
            let rest = data - segments * size;
            let fits = segments < u64::from(self.options.super_segment_max)
                && segments * size + rest <= u64::from(super_segment)
                && flight + segments * size + rest <= self.congestion.window.cwnd;
            let ends = rest > 0
                && rest < size
                && segments == full
                && fits
                && self.may_send_small(rest, self.nxt + data, window);
            if ends { (data, true) } else { (segments * size, false) }
        } else {
            if full > 0 || flight > 0 && flight + data > self.congestion.window.cwnd {
                self.congestion.on_sent(now, self.una, self.nxt, flight, true);
                return None;
            }
            if !is_bare_fin && !self.may_send_small(data, self.nxt + data, window) {
                return self.plan_window_probe(now, window, payload);
            }
            (data, true)
        };
        let mut end = self.nxt + len;
        if end == self.end && self.is_closed {
            end += 1;
        }
        if is_small {
            self.small_end = end;
        }
        Some(SegmentPlan { seq: self.nxt, end, size: payload, is_retransmission: false })
    }

    /// Whether `len` bytes before `end`, less than a full segment, may leave (RFC 9293 §3.7.4 and §3.8.6.2.1).
    fn may_send_small(&self, len: u64, end: SeqNum, window: u64) -> bool {
        if len == window && len < self.end - self.nxt {
            // Cut short by the window: silly unless it is half of the largest that there was.
            return self.options.silly_window || len * 2 >= self.window.largest;
        }
        if end < self.end && self.writes.ends_record(end) {
            // Nothing can join it any more.
            return true;
        }
        if self.writes.is_held && !self.is_closed {
            return false;
        }
        let small_outstanding = self.small_end > self.una;
        !self.options.nagle
            || (end == self.end && self.is_closed)
            || !(small_outstanding && self.outstanding() > 0)
    }

    /// What the persist timer lets through: as much as the window takes (RFC 9293 §3.8.6.2.1, override timeout).
    fn plan_window_probe(
        &mut self,
        _now: Instant,
        window: u64,
        payload: u16,
    ) -> Option<SegmentPlan> {
        if !self.probe_window || window == 0 {
            return None;
        }
        let len = (self.record_stop() - self.nxt).min(window).min(payload.into());
        self.small_end = self.nxt + len;
        Some(SegmentPlan {
            seq: self.nxt,
            end: self.nxt + len,
            size: payload,
            is_retransmission: false,
        })
    }

    /// Notes that a planned segment has been sent.
    pub fn on_sent(&mut self, now: Instant, plan: &SegmentPlan, timestamp: Option<u32>) {
        let len = plan.end - plan.seq;
        if self.queue.is_empty() {
            self.on_first_flight(now);
        }
        let flight = self.flight();
        let snapshot = self.rate.on_sent(now, self.outstanding());
        let segments = len.div_ceil(u64::from(plan.size)).max(1);
        self.counts.segments += segments;
        if plan.is_retransmission {
            if plan.seq == self.una {
                self.rto_base = now;
            }
            let index = self.queue.position(plan.seq);
            self.queue.on_retransmitted(index, now, snapshot);
            self.counts.retransmits += segments;
            self.counts.retransmitted_bytes += len;
        } else {
            let sent = SentSegment {
                seq: plan.seq,
                end: plan.end,
                sent_at: now,
                snapshot,
                transmissions: 1,
                is_sacked: false,
                is_lost: false,
                is_retransmitted: false,
            };
            self.queue.push(sent);
            self.nxt = plan.end;
            self.probe_window = false;
        }
        self.recovery.on_sent(len, plan.is_retransmission, timestamp);
        let flight = flight + len;
        self.congestion.on_sent(now, self.una, self.nxt, flight, false);
        self.congestion.algorithm.on_sent(&self.congestion.window, now, len, flight);
        if let Some(rate) = self.pacing_rate() {
            self.pacer.on_sent(now, len, rate);
        }
        self.last_sent = now;
        self.arm_after_sending(now);
    }

    /// Nothing was in flight: the timeout begins now, and a window that was not used for long is not trusted.
    fn on_first_flight(&mut self, now: Instant) {
        self.rto_base = now;
        let (idle, rto) = (now.saturating_since(self.last_sent), self.rtt.rto());
        if idle > rto && self.nxt > self.data_start() {
            self.congestion.on_idle(now, idle, rto);
        }
    }

    /// Notes that there is nothing more to be sent though the window has room: the rate sampled is the application's.
    pub fn note_app_limited(&mut self) {
        let has_all_sent =
            self.nxt >= self.stream_end() && self.queue.lost() == self.queue.retransmitted();
        if has_all_sent && self.flight() < self.congestion.window.cwnd {
            self.rate.on_app_limited(self.flight());
        }
    }

    #[inline]
    fn arm_after_sending(&mut self, now: Instant) {
        match self.timer {
            // The first of several segments has too long a probe timeout: that of a timeout is not put off by being armed again.
            Some((RetransmitTimer::Reordering, _)) => {}
            _ => self.arm(now),
        }
    }

    /// Arms the one timer that applies: what is unacknowledged has one, and so has what a closed window holds back.
    pub fn arm(&mut self, now: Instant) {
        if self.queue.is_empty() {
            let is_closed = self.window.end() <= self.nxt + u64::from(self.size.payload());
            let is_held = self.stream_end() > self.nxt && (is_closed || self.writes.is_held);
            if !is_held {
                self.timer = None;
            } else if !matches!(self.timer, Some((RetransmitTimer::Persist, _))) {
                self.timer = Some((RetransmitTimer::Persist, now + self.rtt.rto()));
            }
            return;
        }
        let timeout = (self.rto_base + self.rtt.rto()).max(now + TIMER_MIN);
        self.timer = Some(match self.tail_probe_at(now) {
            // RFC 8985 §7.2: where the timeout is the earlier one, a probe takes its place.
            Some(at) => (RetransmitTimer::TailProbe, at.min(timeout)),
            None => (RetransmitTimer::Timeout, timeout),
        });
    }

    /// When a tail loss probe is due (RFC 8985 §7.2).
    fn tail_probe_at(&self, now: Instant) -> Option<Instant> {
        let is_possible = self.options.sack
            && !self.options.timeout_only
            && self.recovery.may_probe()
            && self.queue.sacked() == 0
            && self.una > self.iss;
        let srtt = self.rtt.srtt().filter(|_| is_possible)?;
        // Two full segments are acknowledged at once (RFC 9293 §3.8.6.3); less, however many segments it is, perhaps after a delay.
        let is_delayed = self.outstanding() < 2 * u64::from(self.congestion.window.mss);
        let wait = srtt * 2 + if is_delayed { ACK_DELAY_MAX } else { Span::from_ms(2) };
        Some(now + wait)
    }

    /// Moves the timer after an acknowledgement; `progress`: it advanced `snd_una`.
    pub fn rearm(&mut self, now: Instant, progress: bool, reorder_wait: Option<Span>) {
        if progress {
            self.rto_base = now;
        }
        if let Some(wait) = reorder_wait.filter(|_| !self.queue.is_empty()) {
            self.timer = Some((RetransmitTimer::Reordering, now + wait));
        } else if progress
            || self.queue.is_empty()
            || !matches!(self.timer, Some((RetransmitTimer::Timeout, _)))
        {
            self.arm(now);
        }
    }
}
