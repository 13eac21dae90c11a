//! An acknowledgement is processed: what it delivered, what it measured, what it says about losses, and how the window grows.

use plumb_base::time::{Instant, Span};
use plumb_wire::tcp::TcpFlags;

use super::congestion::{AckEvent, CongestionControl};
use super::connection::Connection;
use super::reassembly::SeqRange;
use super::recovery::{AckSummary, RecoveryOutcome, RecoveryPhase};
use super::segment::{InboundSegment, SACK_BLOCKS_MAX};
use super::sender::Sender;
use super::seq::SeqNum;

/// When what was delivered had been sent, of segments that were sent once (Karn's rule).
#[derive(Clone, Copy, Debug, Default)]
struct Timing {
    first: Option<Instant>,
    last: Option<Instant>,
    has_retransmission: bool,
}

/// SACK blocks of a segment that lie within what is unacknowledged, and whether the first was a D-SACK.
struct ReadBlocks {
    ranges: [SeqRange; SACK_BLOCKS_MAX],
    count: usize,
    dsack: bool,
}

impl Connection {
    /// Processes the acknowledgement number, window, and SACK blocks of a segment at `seq`.
    #[inline]
    pub(super) fn process_ack(
        &mut self,
        now: Instant,
        seq: SeqNum,
        ack: SeqNum,
        segment: &InboundSegment<'_>,
    ) {
        self.tx.writes.on_acked(ack);
        let window_moved = self.tx.window.update(seq, ack, segment.window);
        if window_moved {
            self.on_window_update(now);
        }
        let is_new = ack > self.tx.una;
        let outstanding = self.tx.outstanding() > 0;
        let says_nothing = !is_new && (!outstanding || window_moved || segment.seq_len() > 0);
        if !says_nothing || !segment.options.sack.is_empty() {
            self.process_news(now, ack, segment, (says_nothing, window_moved));
        }
    }

    /// The same of an acknowledgement that says something beside the window.
    fn process_news(
        &mut self,
        now: Instant,
        ack: SeqNum,
        segment: &InboundSegment<'_>,
        (says_nothing, window_moved): (bool, bool),
    ) {
        let is_new = ack > self.tx.una;
        let outstanding = self.tx.outstanding() > 0;
        let blocks = self.tx.read_blocks(ack, segment);
        if says_nothing && blocks.count == 0 && !blocks.dsack {
            return;
        }
        if ack < self.tx.una {
            return;
        }
        let echo =
            segment.options.timestamps.filter(|_| self.agreed.timestamps).map(|(_, echo)| echo);
        let summary = AckSummary {
            is_duplicate: !is_new && outstanding && segment.seq_len() == 0 && !window_moved,
            dsack: blocks.dsack,
            echo,
            ecn_echo: self.tx.options.ecn && segment.flags.contains(TcpFlags::ECE),
            ..AckSummary::default()
        };
        let mut received = segment.received;
        if received == Instant::ORIGIN {
            received = now;
        }
        let measured = echo.filter(|echo| *echo != 0).map(|echo| self.clock.since(now, echo));
        self.tx.on_ack(now, received, ack, (&blocks.ranges[..blocks.count], summary), measured);
        if is_new {
            self.timers.progress = now;
            self.soft_error = None;
            self.timers.acknowledged = Some(now);
        }
        self.is_ready = true;
    }

    /// The peer's window moved: a probe of it has been answered.
    fn on_window_update(&mut self, now: Instant) {
        self.is_ready = true;
        self.tx.on_window_moved(now);
    }
}

impl Sender {
    /// The blocks of a segment that acknowledges `ack`, cut to what is unacknowledged (RFC 2018 §5, RFC 2883 §4).
    #[inline]
    fn read_blocks(&self, ack: SeqNum, segment: &InboundSegment<'_>) -> ReadBlocks {
        let empty = SeqRange { start: ack, end: ack };
        let mut read = ReadBlocks { ranges: [empty; SACK_BLOCKS_MAX], count: 0, dsack: false };
        if segment.options.sack.is_empty() || !self.options.sack {
            return read;
        }
        let ranges = || {
            let range =
                |(left, right)| SeqRange { start: ack.nearest(left), end: ack.nearest(right) };
            segment.options.sack_blocks().map(range)
        };
        for (at, block) in ranges().enumerate() {
            if block.start >= block.end || block.end > self.nxt {
                continue;
            }
            let repeats = ranges()
                .nth(1)
                .is_some_and(|outer| outer.start <= block.start && block.end <= outer.end);
            if at == 0 && (block.end <= ack || repeats) {
                read.dsack = block.start >= self.data_start();
                continue;
            }
            if block.end > ack && block.end > self.una {
                read.ranges[read.count] = SeqRange { start: block.start.max(ack), end: block.end };
                read.count += 1;
            }
        }
        read
    }

    /// Handles an acknowledgement of everything before `ack` and of what is in `blocks`; `echoed` is the round-trip time that its
    /// timestamp gives.
    fn on_ack(
        &mut self,
        now: Instant,
        received: Instant,
        ack: SeqNum,
        (blocks, mut summary): (&[SeqRange], AckSummary),
        echoed: Option<Span>,
    ) {
        let flight_before = self.flight();
        let is_limited = self.congestion.is_cwnd_limited();
        let mut timing = Timing::default();
        summary.sacked_before = self.queue.sacked();
        self.remove_acked(now, ack, &mut summary, &mut timing);
        self.apply_blocks(now, blocks, &mut summary, &mut timing);
        self.settle_size_probe(now);
        if summary.dsack {
            self.counts.dsacks += 1;
        }
        let rtt = self.measure(now, &timing, summary.acked > 0, echoed);
        let mss = self.congestion.window.mss.into();
        let told = if self.options.sack { 0 } else { self.recovery.duplicates(mss) };
        let phase = self.recovery.phase();
        let is_quiet = self.recovery.is_quiet() && self.queue.sacked() == 0 && !summary.ecn_echo;
        let outcome = if is_quiet && summary.acked > 0 && !summary.dsack {
            RecoveryOutcome::default()
        } else {
            let (recovery, mut cx) = self.recovery_context(now);
            recovery.on_ack(&mut cx, &summary)
        };
        self.note_phase(phase, &outcome);
        self.check_size_probe(now, false);
        let acked = if self.congestion.window.in_slow_start() {
            newly_acked(&summary, told, mss)
        } else {
            summary.acked
        };
        let event = AckEvent {
            now,
            received,
            acked,
            delivered: summary.delivered,
            lost: outcome.lost,
            flight: self.flight(),
            flight_before,
            rtt,
            srtt: self.rtt.srtt(),
            is_cwnd_limited: is_limited,
            in_recovery: self.recovery.is_reducing(),
            ecn_echo: summary.ecn_echo,
            rate: self.rate.sample(now, self.rtt.minimum()),
            una: self.una - self.iss,
            nxt: self.nxt - self.iss,
        };
        if !self.recovery.is_reducing() || self.congestion.algorithm.governs_recovery() {
            self.congestion.algorithm.on_ack(&mut self.congestion.window, &event);
        }
        self.rearm(now, summary.acked > 0, outcome.reorder_wait);
    }

    #[inline]
    fn remove_acked(
        &mut self,
        now: Instant,
        ack: SeqNum,
        summary: &mut AckSummary,
        timing: &mut Timing,
    ) {
        if ack <= self.una {
            return;
        }
        let sack = self.options.sack;
        let rtt_min = self.rtt.minimum();
        summary.acked = ack - self.una;
        while let Some(segment) = self.queue.take_acked(ack) {
            if !segment.is_original() {
                timing.has_retransmission = true;
            }
            if segment.is_sacked {
                continue;
            }
            timing.note(&segment, self.options.measure_retransmissions);
            summary.delivered += segment.len();
            summary.original_delivered |= segment.is_original();
            self.rate.on_delivered(now, segment.len(), segment.sent_at, &segment.snapshot);
            if sack {
                self.recovery.rack.on_delivered(now, &segment, rtt_min, false);
            }
        }
        self.una = ack;
        self.rtt.reset_backoff();
        self.buffer.advance(ack.min(self.end).max(self.data_start()));
        if self.is_closed && ack > self.end {
            // Our FIN: nothing follows.
            self.buffer.release();
        }
        self.size.on_delivered();
    }

    #[inline]
    fn apply_blocks(
        &mut self,
        now: Instant,
        blocks: &[SeqRange],
        summary: &mut AckSummary,
        timing: &mut Timing,
    ) {
        if blocks.is_empty() {
            return;
        }
        let Self { queue, rate, recovery, rtt, congestion, .. } = self;
        let rtt_min = rtt.minimum();
        let result = queue.apply_sack(blocks, congestion.window.mss.into(), |segment| {
            timing.note(segment, false);
            rate.on_delivered(now, segment.len(), segment.sent_at, &segment.snapshot);
            recovery.rack.on_delivered(now, segment, rtt_min, false);
        });
        summary.sacked = result.bytes;
        summary.delivered += result.bytes;
        summary.original_delivered |= result.original;
        recovery.rack.reordering_seen |= result.reordered;
    }

    /// Takes a round-trip time, if one was measured: for the timeout that of the oldest segment, delayed acknowledgement included; for the
    /// congestion control that of the newest.
    #[inline]
    fn measure(
        &mut self,
        now: Instant,
        timing: &Timing,
        progress: bool,
        echoed: Option<Span>,
    ) -> Option<Span> {
        let first = timing.first.map(|sent| now.saturating_since(sent));
        let sample = first.or(echoed.filter(|_| progress && timing.has_retransmission));
        if let Some(rtt) = sample {
            self.rtt.on_sample(now, rtt);
        }
        timing.last.map(|sent| now.saturating_since(sent)).or(sample)
    }

    /// Counts what recovery did.
    fn note_phase(&mut self, before: RecoveryPhase, outcome: &RecoveryOutcome) {
        let after = self.recovery.phase();
        if after != before {
            self.counts.recoveries += u64::from(after == RecoveryPhase::Recovery);
        }
        if outcome.reduced {
            // Also where one reduction follows another at once: the receiver echoes until it is told (RFC 3168 §6.1.3).
            self.counts.marks += 1;
            self.announce_reduction = true;
        }
        self.counts.undone += u64::from(outcome.undone);
    }

    fn on_window_moved(&mut self, now: Instant) {
        if self.queue.is_empty() {
            self.timer = None;
            self.rtt.reset_backoff();
            self.arm(now);
        }
    }
}

impl Timing {
    #[inline]
    fn note(&mut self, segment: &super::sent::SentSegment, measure_retransmissions: bool) {
        if segment.is_original() || measure_retransmissions {
            self.first =
                Some(self.first.map_or(segment.sent_at, |first| first.min(segment.sent_at)));
            self.last = Some(self.last.map_or(segment.sent_at, |last| last.max(segment.sent_at)));
        }
    }
}

/// Bytes that an acknowledgement is the first to say to be delivered; of those in sequence duplicate ACKs had told about `told`. Slow start, which
/// doubles the window for them, counts these only, as in Linux.
#[inline]
fn newly_acked(summary: &AckSummary, told: u64, mss: u64) -> u64 {
    let acked = summary.acked.min(summary.delivered);
    acked.saturating_sub(told).max(acked.min(mss))
}
