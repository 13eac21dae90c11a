//! What was sent and is not acknowledged: one entry a transmission unit, marked by SACK and by loss recovery.

use std::collections::VecDeque;

use plumb_base::time::Instant;

use super::delivery_rate::DeliverySnapshot;
use super::reassembly::SeqRange;
use super::segment::SACK_BLOCKS_MAX;
use super::seq::SeqNum;

/// A transmission unit: a segment, or a super-segment until something splits it.
#[derive(Clone, Copy, Debug)]
pub(super) struct SentSegment {
    /// First sequence number.
    pub seq: SeqNum,
    /// Behind the last, SYN and FIN counted.
    pub end: SeqNum,
    /// Of the last transmission.
    pub sent_at: Instant,
    /// State of delivery at the last transmission.
    pub snapshot: DeliverySnapshot,
    /// Times transmitted, saturating.
    pub transmissions: u8,
    /// The receiver has it, out of order.
    pub is_sacked: bool,
    /// Taken for lost.
    pub is_lost: bool,
    /// Lost, and transmitted again since.
    pub is_retransmitted: bool,
}

impl SentSegment {
    #[inline]
    pub fn len(&self) -> u64 {
        self.end - self.seq
    }

    /// Whether it was sent once.
    #[inline]
    pub fn is_original(&self) -> bool {
        self.transmissions == 1
    }

    /// Whether it has been sent after `other`; of two sent at once, the later one in sequence was.
    #[inline]
    pub fn is_sent_after(&self, (at, end): (Instant, SeqNum)) -> bool {
        self.sent_at > at || (self.sent_at == at && self.end > end)
    }
}

/// The entries, in sequence, with the sums of what is marked.
#[derive(Debug, Default)]
pub(super) struct SentQueue {
    segments: VecDeque<SentSegment>,
    sacked: u64,
    lost: u64,
    retransmitted: u64,
    /// Blocks of the last acknowledgement: what they say has been applied already.
    applied: Vec<SeqRange>,
    /// Nothing before it is left to be retransmitted.
    next_lost: Option<SeqNum>,
}

/// What SACK blocks marked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SackResult {
    /// Bytes newly marked.
    pub bytes: u64,
    /// First byte of what was marked though more had been marked beyond it, sent once: it was reordered.
    pub reordered: bool,
    /// A segment that was sent once was marked.
    pub original: bool,
}

impl SentQueue {
    /// Whether nothing is unacknowledged.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Entries.
    #[inline]
    pub fn len(&self) -> usize {
        self.segments.len()
    }

    /// The first entry.
    #[inline]
    pub fn front(&self) -> Option<&SentSegment> {
        self.segments.front()
    }

    /// The last entry.
    #[cfg(test)]
    pub fn back(&self) -> Option<&SentSegment> {
        self.segments.back()
    }

    /// Bytes that SACK marked.
    #[inline]
    pub const fn sacked(&self) -> u64 {
        self.sacked
    }

    /// Bytes that are taken for lost.
    #[inline]
    pub const fn lost(&self) -> u64 {
        self.lost
    }

    /// Bytes of those that were transmitted again.
    #[inline]
    pub const fn retransmitted(&self) -> u64 {
        self.retransmitted
    }

    /// Appends what was just sent.
    #[inline]
    pub fn push(&mut self, segment: SentSegment) {
        self.segments.push_back(segment);
    }

    /// Removes the first entry when it ends at or before `una`, or cuts it there; the part that was acknowledged, and whether
    /// more may follow.
    #[inline]
    pub fn take_acked(&mut self, una: SeqNum) -> Option<SentSegment> {
        let front = self.segments.front_mut()?;
        if front.end <= una {
            let segment = self.segments.pop_front()?;
            self.unmark(&segment);
            return Some(segment);
        }
        if front.seq >= una {
            return None;
        }
        let acked = SentSegment { end: una, ..*front };
        front.seq = una;
        self.unmark(&acked);
        Some(acked)
    }

    /// Gives the memory back, when nothing is kept: most connections are idle after their handshake.
    pub fn release(&mut self) {
        if self.segments.is_empty() {
            self.segments = VecDeque::new();
        }
    }

    #[inline]
    fn unmark(&mut self, segment: &SentSegment) {
        let len = segment.len();
        self.sacked -= if segment.is_sacked { len } else { 0 };
        self.lost -= if segment.is_lost { len } else { 0 };
        self.retransmitted -= if segment.is_retransmitted { len } else { 0 };
    }

    /// Index of the first entry that ends behind `seq`.
    #[inline]
    pub fn position(&self, seq: SeqNum) -> usize {
        self.segments.partition_point(|segment| segment.end <= seq)
    }

    /// The entry at an index.
    #[inline]
    pub fn get(&self, index: usize) -> Option<&SentSegment> {
        self.segments.get(index)
    }

    /// Marks what lies within SACK `blocks`, cut to what is unacknowledged; `on_marked` is called with each entry newly marked.
    ///
    /// Entries are split only at multiples of `mss`, so that no peer can cut them into bytes.
    pub fn apply_sack(
        &mut self,
        blocks: &[SeqRange],
        mss: u64,
        mut on_marked: impl FnMut(&SentSegment),
    ) -> SackResult {
        let mut result = SackResult::default();
        let highest = self.highest_sacked();
        for block in blocks {
            let mut at = block.start;
            while at < block.end {
                let known = self.applied.iter().find(|known| known.start <= at && at < known.end);
                if let Some(known) = known {
                    at = known.end;
                    continue;
                }
                let next = self.applied.iter().map(|known| known.start).filter(|start| *start > at);
                let end = next.min().unwrap_or(block.end).min(block.end);
                self.mark_sacked(
                    SeqRange { start: at, end },
                    mss,
                    highest,
                    &mut result,
                    &mut on_marked,
                );
                at = end;
            }
        }
        self.applied.clear();
        // A longer block may mark the end that rounding left out.
        self.applied.extend(blocks.iter().filter(|_| blocks.len() <= SACK_BLOCKS_MAX));
        result
    }

    fn mark_sacked(
        &mut self,
        range: SeqRange,
        mss: u64,
        highest: Option<SeqNum>,
        result: &mut SackResult,
        on_marked: &mut impl FnMut(&SentSegment),
    ) {
        let mut index = self.position(range.start);
        while let Some(segment) = self.segments.get(index).copied() {
            if segment.seq >= range.end {
                break;
            }
            if segment.is_sacked {
                index += 1;
                continue;
            }
            if range.start > segment.seq {
                let head = (range.start - segment.seq).next_multiple_of(mss);
                if !self.split(index, segment.seq + head) {
                    break;
                }
                index += 1;
                continue;
            }
            if range.end < segment.end {
                let head = (range.end - segment.seq) / mss * mss;
                if head == 0 || !self.split(index, segment.seq + head) {
                    break;
                }
            }
            let segment = &mut self.segments[index];
            if highest.is_some_and(|highest| segment.end <= highest) && segment.is_original() {
                result.reordered = true;
            }
            result.original |= segment.is_original();
            result.bytes += segment.len();
            let before = *segment;
            segment.is_sacked = true;
            segment.is_lost = false;
            segment.is_retransmitted = false;
            on_marked(&before);
            self.unmark(&before);
            self.sacked += before.len();
            index += 1;
        }
    }

    /// Behind the last byte that SACK marked.
    pub fn highest_sacked(&self) -> Option<SeqNum> {
        if self.sacked == 0 {
            return None;
        }
        self.segments.iter().rev().find(|segment| segment.is_sacked).map(|segment| segment.end)
    }

    /// Splits an entry at `at`; `false` where that is not within it.
    pub fn split(&mut self, index: usize, at: SeqNum) -> bool {
        let Some(segment) = self.segments.get_mut(index) else { return false };
        if at <= segment.seq || at >= segment.end {
            return false;
        }
        let tail = SentSegment { seq: at, ..*segment };
        segment.end = at;
        self.segments.insert(index + 1, tail);
        true
    }

    /// Takes an entry for lost, whether for the first time or after its retransmission.
    pub fn mark_lost(&mut self, index: usize) {
        let segment = &mut self.segments[index];
        debug_assert!(!segment.is_sacked, "what the receiver has is not lost");
        let len = segment.len();
        if !segment.is_lost {
            self.lost += len;
        }
        if segment.is_retransmitted {
            self.retransmitted -= len;
        }
        segment.is_lost = true;
        segment.is_retransmitted = false;
        let seq = segment.seq;
        self.next_lost = Some(self.next_lost.map_or(seq, |next| next.min(seq)));
    }

    /// Index of the first entry that is lost and was not transmitted again.
    pub fn next_to_retransmit(&mut self) -> Option<usize> {
        if self.lost == self.retransmitted {
            return None;
        }
        let from = self.position(self.next_lost?);
        let waiting = |segment: &SentSegment| segment.is_lost && !segment.is_retransmitted;
        let index = (from..self.segments.len()).find(|index| waiting(&self.segments[*index]))?;
        self.next_lost = Some(self.segments[index].seq);
        Some(index)
    }

    /// Notes that an entry has been transmitted again; the retransmission counts as in flight.
    pub fn on_retransmitted(&mut self, index: usize, now: Instant, snapshot: DeliverySnapshot) {
        let segment = &mut self.segments[index];
        segment.sent_at = now;
        segment.snapshot = snapshot;
        segment.transmissions = segment.transmissions.saturating_add(1);
        let len = segment.len();
        if segment.is_lost && !segment.is_retransmitted {
            segment.is_retransmitted = true;
            self.retransmitted += len;
        }
    }

    /// Marks, for which `is_due` holds, entries that are neither with the receiver nor lost already or retransmitted since; how many bytes.
    pub fn mark_lost_where(&mut self, mut is_due: impl FnMut(&SentSegment) -> bool) -> u64 {
        let mut bytes = 0;
        for index in 0..self.segments.len() {
            let segment = self.segments[index];
            let in_flight = !segment.is_sacked && (!segment.is_lost || segment.is_retransmitted);
            if in_flight && is_due(&segment) {
                self.mark_lost(index);
                bytes += segment.len();
            }
        }
        bytes
    }

    /// Forgets what SACK said: the receiver may have discarded it (RFC 2018 §8).
    pub fn forget_sacks(&mut self) {
        for segment in &mut self.segments {
            segment.is_sacked = false;
        }
        self.sacked = 0;
        self.applied.clear();
    }

    /// Nothing was lost after all.
    pub fn forget_losses(&mut self) {
        for segment in &mut self.segments {
            segment.is_lost = false;
            segment.is_retransmitted = false;
        }
        self.lost = 0;
        self.retransmitted = 0;
        self.next_lost = None;
    }

    /// Whether the sums are those of the entries.
    #[cfg(test)]
    pub fn check(&self) {
        let sum = |of: fn(&SentSegment) -> bool| -> u64 {
            self.segments.iter().filter(|segment| of(segment)).map(SentSegment::len).sum()
        };
        assert_eq!(self.sacked, sum(|segment| segment.is_sacked));
        assert_eq!(self.lost, sum(|segment| segment.is_lost));
        assert_eq!(self.retransmitted, sum(|segment| segment.is_retransmitted));
        for (before, after) in self.segments.iter().zip(self.segments.iter().skip(1)) {
            assert_eq!(before.end, after.seq, "no gap");
        }
    }
}
