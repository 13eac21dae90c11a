//! Loss detection by time: RACK (RFC 8985 §6). A segment is lost when one sent sufficiently later was delivered.

use plumb_base::time::{Instant, Span};

use super::sent::{SentQueue, SentSegment};
use super::seq::SeqNum;

/// Segments out of order after which reordering, unless seen, no longer explains them.
const DUPLICATE_THRESHOLD: u64 = 3;
/// Largest multiple of a quarter round-trip time that reordering may take.
const REORDERING_MULTIPLE_MAX: u8 = 254;
/// Recoveries without D-SACK after which the window shrinks again.
const PERSISTENCE: u8 = 16;

/// The segment delivered last of those sent last, and what is known about reordering.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rack {
    /// When it was sent, and where it ended.
    newest: Option<(Instant, SeqNum)>,
    /// Its round-trip time.
    rtt: Span,
    /// Whether segments were seen delivered out of order.
    pub reordering_seen: bool,
    multiple: u8,
    persistence: u8,
    /// `snd_nxt` when a D-SACK widened the window last.
    dsack_round: Option<SeqNum>,
    /// Entries before it, sent once, have been judged.
    scanned: Option<SeqNum>,
    /// The highest sequence number delivered.
    forward: Option<SeqNum>,
}

/// What a pass of loss detection found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossScan {
    /// Bytes newly taken for lost.
    pub lost: u64,
    /// How long to wait before the next pass, where a segment may yet turn out as lost.
    pub wait: Option<Span>,
}

impl Rack {
    /// A segment was delivered (RFC 8985 §6.2, steps 1 to 3). `rtt_min` tells acknowledgements of an original from those of its
    /// retransmission, where `echo_precedes` is not known from timestamps.
    #[inline]
    pub fn on_delivered(
        &mut self,
        now: Instant,
        segment: &SentSegment,
        rtt_min: Option<Span>,
        echo_precedes: bool,
    ) {
        if let Some(forward) = self.forward
            && segment.end < forward
        {
            self.reordering_seen |= segment.is_original();
        } else {
            self.forward = Some(segment.end);
        }
        let rtt = now.saturating_since(segment.sent_at);
        if !segment.is_original() && (echo_precedes || rtt_min.is_some_and(|least| rtt < least)) {
            return;
        }
        if self.newest.is_none_or(|newest| segment.is_sent_after(newest)) {
            self.newest = Some((segment.sent_at, segment.end));
            self.rtt = rtt;
        }
    }

    /// The time that reordering may take (RFC 8985 §6.2, step 4).
    pub fn reordering_window(
        &self,
        sacked: u64,
        mss: u64,
        in_recovery: bool,
        rtt_min: Span,
        srtt: Span,
    ) -> Span {
        if !self.reordering_seen && (in_recovery || sacked >= DUPLICATE_THRESHOLD * mss) {
            return Span::ZERO;
        }
        (rtt_min * u64::from(self.multiple.max(1)) / 4).min(srtt)
    }

    /// A D-SACK says that a retransmission was not needed: more reordering than the window allowed for.
    pub fn on_dsack(&mut self, una: SeqNum, nxt: SeqNum) {
        if self.dsack_round.is_none_or(|round| una >= round) {
            self.dsack_round = Some(nxt);
            self.multiple = self.multiple.max(1).saturating_add(1).min(REORDERING_MULTIPLE_MAX);
            self.persistence = PERSISTENCE;
        }
    }

    /// Recovery ended: a wide window is given up after some recoveries without D-SACK.
    pub fn on_recovered(&mut self) {
        self.persistence = self.persistence.saturating_sub(1);
        if self.persistence == 0 {
            self.multiple = 1;
        }
    }

    /// The marks were removed: everything is judged anew.
    pub fn forget(&mut self) {
        self.scanned = None;
    }

    /// Round-trip time of the segment delivered last.
    #[inline]
    pub const fn rtt(&self) -> Span {
        self.rtt
    }

    /// Takes for lost what was sent before the segment delivered last and is overdue (RFC 8985 §6.2, step 5).
    ///
    /// Segments that were sent once are in the order of their sequence numbers; only those that were retransmitted are looked for one by one.
    pub fn detect(&mut self, now: Instant, reordering: Span, queue: &mut SentQueue) -> LossScan {
        let mut scan = LossScan::default();
        let Some(newest) = self.newest else { return scan };
        let allowed = self.rtt + reordering;
        let mut index = self.scanned.map_or(0, |scanned| queue.position(scanned));
        let mut judged_all = true;
        while let Some(segment) = queue.get(index).copied() {
            if segment.is_original() && !segment.is_sacked && !segment.is_lost {
                if segment.is_sent_after(newest) {
                    break;
                }
                judged_all &= judge(now, allowed, index, &segment, queue, &mut scan);
                if !judged_all {
                    break;
                }
            }
            index += 1;
        }
        if let Some(segment) = queue.get(index.wrapping_sub(1)).filter(|_| index > 0) {
            self.scanned = Some(segment.end);
        }
        if queue.retransmitted() > 0 {
            detect_retransmitted(now, allowed, newest, queue, &mut scan);
        }
        scan
    }
}

/// Marks a segment that is overdue; else notes for how long it is not. Whether it was marked.
fn judge(
    now: Instant,
    allowed: Span,
    index: usize,
    segment: &SentSegment,
    queue: &mut SentQueue,
    scan: &mut LossScan,
) -> bool {
    let due = segment.sent_at + allowed;
    if due <= now {
        queue.mark_lost(index);
        scan.lost += segment.len();
        return true;
    }
    let wait = due - now;
    scan.wait = Some(scan.wait.map_or(wait, |before| before.min(wait)));
    false
}

/// The same among what was retransmitted, wherever it lies.
fn detect_retransmitted(
    now: Instant,
    allowed: Span,
    newest: (Instant, SeqNum),
    queue: &mut SentQueue,
    scan: &mut LossScan,
) {
    let mut left = queue.retransmitted();
    let mut index = 0;
    while left > 0
        && let Some(segment) = queue.get(index).copied()
    {
        if segment.is_retransmitted {
            left = left.saturating_sub(segment.len());
            if !segment.is_sent_after(newest) {
                judge(now, allowed, index, &segment, queue, scan);
            }
        }
        index += 1;
    }
}
