//! Loss recovery: what is lost, when recovery begins and ends, and how much is sent meanwhile: by proportional rate reduction
//! (RFC 9937), or as the congestion control says.
//!
//! With SACK, loss is detected by time (RACK-TLP, RFC 8985); without, by three duplicate ACKs (RFC 6582). A timeout
//! is undone when F-RTO (RFC 5682), timestamps (Eifel, RFC 3522) or D-SACK (RFC 3708) show that nothing had been lost.

use plumb_base::time::{Instant, Span};

use super::congestion::{CongestionControl, CongestionSignal, CongestionState};
use super::rack::Rack;
use super::sent::SentQueue;
use super::seq::SeqNum;

/// Duplicate ACKs that mean a loss, without SACK (RFC 5681 §3.2).
const DUPLICATE_ACKS: u64 = 3;

/// What is being recovered from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryPhase {
    /// Nothing.
    Open,
    /// Segments arrive out of order, which may be reordering.
    Disorder,
    /// The window comes down for a congestion mark.
    Reduction,
    /// Segments were lost, and are retransmitted (fast recovery).
    Recovery,
    /// The retransmission timer expired.
    Loss,
}

/// A tail loss probe whose fate is open (RFC 8985 §7.4).
#[derive(Clone, Copy, Debug)]
struct TailProbe {
    end: SeqNum,
    is_retransmission: bool,
}

/// What an acknowledgement told, as far as recovery is concerned.
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckSummary {
    /// Bytes acknowledged in sequence.
    pub acked: u64,
    /// Bytes newly delivered, in sequence or by SACK.
    pub delivered: u64,
    /// Bytes newly delivered by SACK.
    pub sacked: u64,
    /// SACK-ed before it.
    pub sacked_before: u64,
    /// It acknowledged nothing new, though data are outstanding, and carried none (RFC 5681 §2).
    pub is_duplicate: bool,
    /// It had a D-SACK block.
    pub dsack: bool,
    /// It delivered, in sequence or by SACK, a segment that was sent once, at or below the recovery point.
    pub original_delivered: bool,
    /// The timestamp that it echoes.
    pub echo: Option<u32>,
    /// It echoes a congestion mark.
    pub ecn_echo: bool,
}

/// What recovery works with during one call.
#[derive(Debug)]
pub(super) struct RecoveryContext<'a> {
    pub now: Instant,
    pub una: SeqNum,
    pub nxt: SeqNum,
    pub queue: &'a mut SentQueue,
    pub congestion: &'a mut CongestionState,
    pub rtt_min: Span,
    pub srtt: Span,
    /// First sequence number of a probe for a larger segment size.
    pub size_probe: Option<SeqNum>,
    pub sack: bool,
    pub timeout_only: bool,
}

impl RecoveryContext<'_> {
    fn mss(&self) -> u64 {
        self.congestion.window.mss.into()
    }
}

/// What an acknowledgement or a timer led to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RecoveryOutcome {
    /// Bytes newly taken for lost.
    pub lost: u64,
    /// When loss detection is to be repeated.
    pub reorder_wait: Option<Span>,
    /// A reduction was undone.
    pub undone: bool,
    /// Recovery or a reduction ended.
    pub ended: bool,
    /// A reduction began: for a congestion mark, or a loss that a probe repaired.
    pub reduced: bool,
}

/// Loss recovery of a connection.
#[derive(Debug)]
pub(super) struct LossRecovery {
    phase: RecoveryPhase,
    /// `snd_nxt` when the phase began.
    point: SeqNum,
    pub rack: Rack,
    reduction: RateReduction,
    undo: Option<UndoState>,
    probe: Option<TailProbe>,
    duplicate_acks: u64,
    /// F-RTO is deciding whether the timeout was spurious.
    frto: bool,
    /// Whether the first lost segment may leave whatever the window says.
    pub force: bool,
}

impl LossRecovery {
    pub fn new(point: SeqNum) -> Self {
        Self {
            phase: RecoveryPhase::Open,
            point,
            rack: Rack::default(),
            reduction: RateReduction::default(),
            undo: None,
            probe: None,
            duplicate_acks: 0,
            frto: false,
            force: false,
        }
    }

    #[inline]
    pub const fn phase(&self) -> RecoveryPhase {
        self.phase
    }

    /// Whether nothing is out of the ordinary: an ACK in sequence needs nothing from here.
    #[inline]
    pub const fn is_quiet(&self) -> bool {
        matches!(self.phase, RecoveryPhase::Open)
            && self.probe.is_none()
            && self.duplicate_acks == 0
    }

    /// Bytes that duplicate ACKs say to have left the network, without SACK.
    #[inline]
    pub const fn duplicates(&self, mss: u64) -> u64 {
        self.duplicate_acks * mss
    }

    /// Handles an acknowledgement whose segments have been removed or marked.
    pub fn on_ack(&mut self, cx: &mut RecoveryContext<'_>, ack: &AckSummary) -> RecoveryOutcome {
        let mut outcome = RecoveryOutcome::default();
        self.count_duplicates(cx, ack);
        if ack.dsack {
            self.on_dsack(cx, &mut outcome);
        }
        self.settle_probe(cx, ack, &mut outcome);
        match self.phase {
            RecoveryPhase::Loss => self.on_ack_in_loss(cx, ack, &mut outcome),
            RecoveryPhase::Recovery if cx.una >= self.point => {
                self.end_reduction(cx, ack, &mut outcome);
            }
            // The segment at the point carries CWR: what was sent before it still brings echoes of the same mark.
            RecoveryPhase::Reduction if cx.una > self.point => {
                self.end_reduction(cx, ack, &mut outcome);
            }
            RecoveryPhase::Recovery if ack.acked > 0 => self.on_partial_ack(cx, ack, &mut outcome),
            _ => {}
        }
        self.detect_losses(cx, ack, &mut outcome);
        let begins = !matches!(self.phase, RecoveryPhase::Recovery | RecoveryPhase::Loss);
        if outcome.lost > 0 && begins && !cx.is_size_probe(outcome.lost) {
            self.begin_recovery(cx, ack);
        } else if ack.ecn_echo
            && matches!(self.phase, RecoveryPhase::Open | RecoveryPhase::Disorder)
        {
            self.begin_reduction(cx, ack, &mut outcome);
        }
        if matches!(self.phase, RecoveryPhase::Open | RecoveryPhase::Disorder) {
            let is_disordered = cx.queue.sacked() > 0 || self.duplicate_acks > 0;
            self.phase = if is_disordered { RecoveryPhase::Disorder } else { RecoveryPhase::Open };
        }
        self.reduce(cx, ack, outcome.lost);
        outcome
    }

    fn count_duplicates(&mut self, cx: &RecoveryContext<'_>, ack: &AckSummary) {
        if cx.sack {
            return;
        }
        let segments = ack.acked.div_ceil(cx.mss());
        if ack.is_duplicate {
            self.duplicate_acks =
                (self.duplicate_acks + 1).min((cx.nxt - cx.una).div_ceil(cx.mss()));
        } else if segments > 0 && self.phase == RecoveryPhase::Recovery && cx.una < self.point {
            // RFC 6582 §3.2, step 3: deflated by what was acknowledged, less the retransmission.
            self.duplicate_acks = self.duplicate_acks.saturating_sub(segments - 1);
        } else if segments > 0 {
            self.duplicate_acks = 0;
        }
    }

    /// Ends the episode of a tail loss probe (RFC 8985 §7.4.2).
    fn settle_probe(
        &mut self,
        cx: &mut RecoveryContext<'_>,
        ack: &AckSummary,
        outcome: &mut RecoveryOutcome,
    ) {
        let Some(probe) = self.probe.filter(|probe| cx.una >= probe.end) else { return };
        // A D-SACK or a duplicate ACK says that both arrived: there was no loss. Either may come until something later is acknowledged.
        let was_needless =
            !probe.is_retransmission || ack.dsack || cx.una == probe.end && ack.is_duplicate;
        if !was_needless && cx.una == probe.end {
            return;
        }
        self.probe = None;
        // Else the probe repaired a loss: that is congestion.
        if !was_needless && self.phase == RecoveryPhase::Open {
            self.begin_reduction(cx, ack, outcome);
        }
    }

    fn on_ack_in_loss(
        &mut self,
        cx: &mut RecoveryContext<'_>,
        ack: &AckSummary,
        outcome: &mut RecoveryOutcome,
    ) {
        let recovered = cx.una >= self.point;
        if self.is_echo_of_original(ack) {
            self.undo(cx, outcome);
            return;
        }
        if self.frto {
            // RFC 5682 §3.1, step 3b: what was sent once, before the timeout, was delivered after it.
            if ack.original_delivered {
                self.undo(cx, outcome);
                return;
            }
            if cx.nxt > self.point {
                if ack.sacked > 0 || ack.is_duplicate {
                    self.frto = false;
                }
            } else if ack.acked > 0 && !recovered {
                self.frto = false;
            }
        }
        if recovered {
            self.end_phase(cx, outcome);
        } else if !cx.sack && ack.acked > 0 {
            mark_front(cx, outcome);
        }
    }

    fn end_reduction(
        &mut self,
        cx: &mut RecoveryContext<'_>,
        ack: &AckSummary,
        outcome: &mut RecoveryOutcome,
    ) {
        if self.phase == RecoveryPhase::Recovery && self.is_echo_of_original(ack) {
            self.undo(cx, outcome);
            return;
        }
        if !cx.congestion.algorithm.governs_recovery() {
            cx.congestion.window.cwnd =
                cx.congestion.window.ssthresh.max(cx.congestion.window.floor());
        }
        self.end_phase(cx, outcome);
    }

    fn on_partial_ack(
        &mut self,
        cx: &mut RecoveryContext<'_>,
        ack: &AckSummary,
        outcome: &mut RecoveryOutcome,
    ) {
        if self.is_echo_of_original(ack) {
            self.undo(cx, outcome);
        } else if !cx.sack {
            if cx.congestion.algorithm.ends_recovery_at_once() {
                self.end_reduction(cx, ack, outcome);
            } else {
                // RFC 6582 §3.2, step 3: the next segment was lost too.
                mark_front(cx, outcome);
            }
        }
    }

    fn detect_losses(
        &mut self,
        cx: &mut RecoveryContext<'_>,
        ack: &AckSummary,
        outcome: &mut RecoveryOutcome,
    ) {
        if cx.timeout_only {
            return;
        }
        if !cx.sack {
            let begins = matches!(
                self.phase,
                RecoveryPhase::Open | RecoveryPhase::Disorder | RecoveryPhase::Reduction
            );
            // RFC 6582 §3.2, step 1: not for duplicates of what was sent before the last recovery ended.
            if begins
                && ack.is_duplicate
                && self.duplicate_acks == DUPLICATE_ACKS
                && cx.una >= self.point
            {
                mark_front(cx, outcome);
            }
            return;
        }
        if cx.queue.sacked() == 0
            && cx.queue.lost() == 0
            && matches!(self.phase, RecoveryPhase::Open)
        {
            return;
        }
        let scan = self.scan(cx);
        outcome.lost += scan.0;
        outcome.reorder_wait = scan.1;
    }

    fn scan(&mut self, cx: &mut RecoveryContext<'_>) -> (u64, Option<Span>) {
        let in_recovery = matches!(self.phase, RecoveryPhase::Recovery | RecoveryPhase::Loss);
        let sacked = cx.queue.sacked();
        let window =
            self.rack.reordering_window(sacked, cx.mss(), in_recovery, cx.rtt_min, cx.srtt);
        let scan = self.rack.detect(cx.now, window, cx.queue);
        (scan.lost, scan.wait)
    }

    /// The time that reordering may take has passed (RFC 8985 §6.2, step 5).
    pub fn on_reorder_timer(&mut self, cx: &mut RecoveryContext<'_>) -> RecoveryOutcome {
        let mut outcome = RecoveryOutcome::default();
        (outcome.lost, outcome.reorder_wait) = self.scan(cx);
        let begins = !matches!(self.phase, RecoveryPhase::Recovery | RecoveryPhase::Loss);
        if outcome.lost > 0 && begins && !cx.is_size_probe(outcome.lost) {
            self.begin_recovery(cx, &AckSummary::default());
            self.reduce(cx, &AckSummary::default(), outcome.lost);
        }
        outcome
    }

    fn begin_recovery(&mut self, cx: &mut RecoveryContext<'_>, ack: &AckSummary) {
        let was_reduced = self.phase == RecoveryPhase::Reduction;
        self.remember_window(cx);
        self.begin(cx, ack, RecoveryPhase::Recovery);
        if !was_reduced {
            signal(cx, CongestionSignal::Loss);
        }
        self.force = true;
        self.probe = None;
    }

    fn begin_reduction(
        &mut self,
        cx: &mut RecoveryContext<'_>,
        ack: &AckSummary,
        outcome: &mut RecoveryOutcome,
    ) {
        outcome.reduced = true;
        self.undo = None;
        self.begin(cx, ack, RecoveryPhase::Reduction);
        signal(cx, CongestionSignal::Mark);
    }

    fn begin(&mut self, cx: &RecoveryContext<'_>, ack: &AckSummary, phase: RecoveryPhase) {
        self.phase = phase;
        self.point = cx.nxt;
        self.reduction = RateReduction::begin(cx.nxt - cx.una, ack.sacked_before, ack.acked);
    }

    /// Brings the window down during a reduction or recovery.
    fn reduce(&mut self, cx: &mut RecoveryContext<'_>, ack: &AckSummary, lost: u64) {
        let is_reducing = matches!(self.phase, RecoveryPhase::Reduction | RecoveryPhase::Recovery);
        if !is_reducing || cx.congestion.algorithm.governs_recovery() {
            return;
        }
        let mss = cx.mss();
        let pipe = self.flight(cx.queue, cx.nxt - cx.una, mss);
        let delivered = if cx.sack || !ack.is_duplicate { ack.delivered } else { mss };
        let is_safe = ack.acked > 0 && lost == 0;
        let window = &mut cx.congestion.window;
        let allowed = self.reduction.on_ack(delivered, pipe, window.ssthresh, mss, is_safe);
        window.cwnd = pipe + allowed;
    }

    /// Bytes in flight: what is unacknowledged, but for what was delivered or lost (RFC 6675's pipe).
    #[inline]
    pub fn flight(&self, queue: &SentQueue, outstanding: u64, mss: u64) -> u64 {
        let gone = queue.sacked() + queue.lost() + self.duplicates(mss);
        (outstanding + queue.retransmitted()).saturating_sub(gone)
    }

    /// Whether the window is set here or by an algorithm that governs recovery, rather than grown for the acknowledgement.
    #[inline]
    pub const fn is_reducing(&self) -> bool {
        matches!(self.phase, RecoveryPhase::Reduction | RecoveryPhase::Recovery)
    }

    fn end_phase(&mut self, cx: &mut RecoveryContext<'_>, outcome: &mut RecoveryOutcome) {
        if matches!(self.phase, RecoveryPhase::Recovery | RecoveryPhase::Loss) {
            self.rack.on_recovered();
        }
        self.phase = RecoveryPhase::Open;
        self.undo = None;
        self.frto = false;
        self.duplicate_acks = 0;
        outcome.ended = true;
        cx.congestion.algorithm.on_recovered(&mut cx.congestion.window, cx.now);
    }

    /// The retransmission timer expired (RFC 6298 §5.4, RFC 8985 §6.3).
    pub fn on_timeout(&mut self, cx: &mut RecoveryContext<'_>, retransmit_all: bool) {
        let first =
            self.phase != RecoveryPhase::Loss || self.undo.is_none_or(|undo| cx.una > undo.una);
        if first {
            self.remember_window(cx);
            // RFC 5682 §3.1: only if nothing was being recovered from.
            self.frto = cx.sack
                && !matches!(self.phase, RecoveryPhase::Recovery | RecoveryPhase::Loss)
                && !cx.timeout_only;
        }
        let outstanding = cx.nxt - cx.una;
        let flight = cx.congestion.load(outstanding);
        cx.congestion.algorithm.on_timeout(&mut cx.congestion.window, cx.now, flight, first);
        if cx.queue.front().is_some_and(|front| front.is_sacked) || retransmit_all {
            cx.queue.forget_sacks();
        }
        self.rack.forget();
        let allowed = self.rack.rtt();
        let (now, una, by_time) = (cx.now, cx.una, cx.sack && !retransmit_all && !cx.timeout_only);
        cx.queue.mark_lost_where(|segment| {
            segment.seq <= una || !by_time || segment.sent_at + allowed <= now
        });
        self.duplicate_acks = 0;
        let mss = cx.mss();
        cx.congestion.window.cwnd = self.flight(cx.queue, outstanding, mss) + mss;
        self.phase = RecoveryPhase::Loss;
        self.point = cx.nxt;
        self.probe = None;
        self.force = true;
    }

    /// Whether a tail loss probe may be scheduled (RFC 8985 §7.2).
    #[inline]
    pub const fn may_probe(&self) -> bool {
        self.probe.is_none() && matches!(self.phase, RecoveryPhase::Open)
    }

    /// A tail loss probe was sent; `end` is `snd_nxt`.
    pub fn on_probe(&mut self, end: SeqNum, is_retransmission: bool) {
        self.probe = Some(TailProbe { end, is_retransmission });
    }

    /// A segment of `len` bytes was sent.
    #[inline]
    pub fn on_sent(&mut self, len: u64, is_retransmission: bool, timestamp: Option<u32>) {
        if self.is_reducing() {
            self.reduction.on_sent(len);
        }
        if is_retransmission {
            self.force = false;
            if let Some(undo) = &mut self.undo {
                undo.retransmissions += 1;
                undo.first_timestamp = undo.first_timestamp.or(timestamp);
            }
        }
    }

    /// Segments longer than the path carries are retransmitted smaller; the window is not blamed.
    pub fn on_path_shrunk(&mut self, queue: &mut SentQueue, mss: u64) {
        let lost = queue.mark_lost_where(|segment| segment.len() > mss);
        self.force |= lost > 0;
    }
}

/// Takes the first segment for lost.
fn mark_front(cx: &mut RecoveryContext<'_>, outcome: &mut RecoveryOutcome) {
    if let Some(front) = cx.queue.front().filter(|front| !front.is_lost && !front.is_sacked) {
        outcome.lost += front.len().min(cx.mss());
        let head = front.seq + cx.mss();
        cx.queue.split(0, head);
        cx.queue.mark_lost(0);
    }
}

fn signal(cx: &mut RecoveryContext<'_>, signal: CongestionSignal) {
    let flight = cx.congestion.load(cx.nxt - cx.una);
    cx.congestion.algorithm.on_congestion(&mut cx.congestion.window, cx.now, flight, signal);
}

/// What a retransmission has to prove itself against.
#[derive(Clone, Copy, Debug)]
struct UndoState {
    /// Window and threshold before the reduction.
    cwnd: u64,
    ssthresh: u64,
    /// `snd_una` then: a D-SACK must not be older.
    pub una: SeqNum,
    /// Retransmissions that D-SACK has not said to be unnecessary.
    pub retransmissions: u32,
    /// Our timestamp when the first of them was sent.
    pub first_timestamp: Option<u32>,
}

impl LossRecovery {
    fn remember_window(&mut self, cx: &RecoveryContext<'_>) {
        let window = &cx.congestion.window;
        self.undo = Some(UndoState {
            cwnd: window.cwnd,
            ssthresh: window.ssthresh,
            una: cx.una,
            retransmissions: 0,
            first_timestamp: None,
        });
    }

    fn on_dsack(&mut self, cx: &mut RecoveryContext<'_>, outcome: &mut RecoveryOutcome) {
        self.rack.on_dsack(cx.una, cx.nxt);
        let Some(undo) = &mut self.undo else { return };
        undo.retransmissions = undo.retransmissions.saturating_sub(1);
        if undo.retransmissions == 0 {
            self.undo(cx, outcome);
        }
    }

    /// Whether the timestamps say that the acknowledgement is of an original, not of its retransmission (RFC 3522).
    fn is_echo_of_original(&self, ack: &AckSummary) -> bool {
        let first = self.undo.and_then(|undo| undo.first_timestamp);
        let Some((echo, first)) = ack.echo.zip(first).filter(|_| ack.acked > 0) else {
            return false;
        };
        echo != 0 && echo.wrapping_sub(first).cast_signed() < 0
    }

    /// Puts back what the last signal changed: nothing had been lost.
    fn undo(&mut self, cx: &mut RecoveryContext<'_>, outcome: &mut RecoveryOutcome) {
        let Some(undo) = self.undo.take() else { return };
        let window = &mut cx.congestion.window;
        window.cwnd = window.cwnd.max(undo.cwnd);
        window.ssthresh = window.ssthresh.max(undo.ssthresh);
        cx.congestion.algorithm.on_spurious(&mut cx.congestion.window);
        cx.queue.forget_losses();
        self.rack.forget();
        self.rack.reordering_seen = true;
        outcome.undone = true;
        self.end_phase(cx, outcome);
    }
}

/// State from the start of a reduction to its end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateReduction {
    /// In flight at the start.
    start: u64,
    delivered: u64,
    sent: u64,
}

impl RateReduction {
    /// Begins: `outstanding` bytes unacknowledged, `sacked` of them said to be delivered before this acknowledgement, which delivered
    /// `acked` in sequence.
    pub fn begin(outstanding: u64, sacked: u64, acked: u64) -> Self {
        Self { start: (outstanding.saturating_sub(sacked) + acked).max(1), delivered: 0, sent: 0 }
    }

    /// Bytes left to be sent after an acknowledgement that delivered `delivered`, with `pipe` in flight (RFC 9937 §6.2); `is_safe`:
    /// it advanced `snd_una` and told no new loss.
    pub fn on_ack(
        &mut self,
        delivered: u64,
        pipe: u64,
        ssthresh: u64,
        mss: u64,
        is_safe: bool,
    ) -> u64 {
        self.delivered += delivered;
        let allowed = if pipe > ssthresh {
            let proportional = u128::from(self.delivered) * u128::from(ssthresh);
            let proportional = proportional.div_ceil(u128::from(self.start));
            u64::try_from(proportional).unwrap_or(u64::MAX).saturating_sub(self.sent)
        } else {
            let banked = self.delivered.saturating_sub(self.sent).max(delivered);
            let safe = if is_safe { banked + mss } else { banked };
            safe.min(ssthresh - pipe)
        };
        // The first retransmission is always sent.
        if self.sent == 0 { allowed.max(mss) } else { allowed }
    }

    /// Bytes were sent.
    #[inline]
    pub fn on_sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reduction_sends_in_proportion() {
        // RFC 9937 §7: 20 segments in flight, one lost, ssthresh 10: about one for every two delivered.
        let mut prr = RateReduction::begin(20, 0, 0);
        let mut pipe = 19;
        let mut sent = 0;
        for _ in 0..18 {
            pipe -= 1;
            let allowed = prr.on_ack(1, pipe, 10, 1, false);
            prr.on_sent(allowed);
            pipe += allowed;
            sent += allowed;
        }
        assert_eq!(sent, 9, "half of the 18 delivered");
        assert!(pipe.abs_diff(10) <= 1, "{pipe}");
    }

    #[test]
    fn burst_loss_grows_back_by_slow_start() {
        let mut prr = RateReduction::begin(20, 0, 0);
        let mut pipe = 4;
        for _ in 0..4 {
            pipe -= 1;
            let allowed = prr.on_ack(1, pipe, 10, 1, true);
            prr.on_sent(allowed);
            pipe += allowed;
        }
        assert_eq!(pipe, 8, "two for each delivered");
    }
}
