//! Segments out of order: which ranges beyond `rcv_nxt` have been received, and the SACK blocks that say so.

use super::segment::{SACK_BLOCKS_MAX, SackBlocks};
use super::seq::SeqNum;

/// Most ranges that are kept; a segment that would make one more is dropped.
const RANGES_MAX: usize = 256;

/// Bytes from `start` to before `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SeqRange {
    pub start: SeqNum,
    pub end: SeqNum,
}

/// Ranges received out of order, none of which touch.
#[derive(Debug, Default)]
pub(super) struct OutOfOrder {
    /// In sequence.
    ranges: Vec<SeqRange>,
    /// Starts of the ranges that changed last, as many as an acknowledgement can report, the latest first (RFC 2018 §4).
    recent: Vec<SeqNum>,
    /// What was received twice, to be reported once (RFC 2883 §4).
    duplicate: Option<SeqRange>,
}

impl OutOfOrder {
    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Where the last one ends.
    pub fn end(&self) -> Option<SeqNum> {
        self.ranges.last().map(|range| range.end)
    }

    /// Bytes in them.
    #[cfg(test)]
    pub fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.end - range.start).sum()
    }

    /// The parts of `range` that were not received yet, in order.
    pub fn missing(&self, range: SeqRange) -> impl Iterator<Item = SeqRange> + '_ {
        let first = self.ranges.partition_point(|kept| kept.end <= range.start);
        let mut at = range.start;
        let mut kept = self.ranges[first..].iter();
        std::iter::from_fn(move || {
            while at < range.end {
                let Some(next) = kept.next().filter(|next| next.start < range.end) else {
                    let gap = SeqRange { start: at, end: range.end };
                    at = range.end;
                    return Some(gap);
                };
                let gap = SeqRange { start: at, end: next.start };
                at = at.max(next.end);
                if gap.start < gap.end {
                    return Some(gap);
                }
            }
            None
        })
    }

    /// Enters a range; `false`, and nothing changed, when there would be too many.
    pub fn insert(&mut self, range: SeqRange) -> bool {
        let first = self.ranges.partition_point(|kept| kept.end < range.start);
        let behind = self.ranges.partition_point(|kept| kept.start <= range.end);
        if first == behind && self.ranges.len() >= RANGES_MAX {
            return false;
        }
        let mut merged = range;
        if first < behind {
            self.note_overlap(range, first, behind);
            merged.start = merged.start.min(self.ranges[first].start);
            merged.end = merged.end.max(self.ranges[behind - 1].end);
        }
        for old in &self.ranges[first..behind] {
            self.recent.retain(|start| *start != old.start);
        }
        self.ranges.splice(first..behind, [merged]);
        self.touch(merged.start);
        true
    }

    /// `range` came in sequence: notes the first part of it that was there already (RFC 2883 §4.1).
    pub fn note_received(&mut self, range: SeqRange) {
        let first = self.ranges.partition_point(|kept| kept.end <= range.start);
        let behind = self.ranges.partition_point(|kept| kept.start < range.end);
        if first < behind {
            self.note_overlap(range, first, behind);
        }
    }

    /// Notes the first part of `range` that was there already.
    fn note_overlap(&mut self, range: SeqRange, first: usize, behind: usize) {
        let overlap = self.ranges[first..behind]
            .iter()
            .map(|kept| SeqRange {
                start: kept.start.max(range.start),
                end: kept.end.min(range.end),
            })
            .find(|overlap| overlap.start < overlap.end);
        if let Some(overlap) = overlap {
            self.on_duplicate(overlap);
        }
    }

    fn touch(&mut self, start: SeqNum) {
        self.recent.retain(|recent| *recent != start);
        self.recent.truncate(SACK_BLOCKS_MAX - 1);
        self.recent.insert(0, start);
    }

    /// Bytes were received that had been received before: the next acknowledgement says so.
    pub fn on_duplicate(&mut self, range: SeqRange) {
        if range.start < range.end && self.duplicate.is_none() {
            self.duplicate = Some(range);
        }
    }

    /// Everything before `nxt` is in sequence now; where the sequence ends after the range that this may have joined.
    pub fn advance(&mut self, nxt: SeqNum) -> SeqNum {
        let count = self.ranges.partition_point(|range| range.start <= nxt);
        let mut reached = nxt;
        for range in self.ranges.drain(..count) {
            reached = reached.max(range.end);
            self.recent.retain(|start| *start != range.start);
        }
        reached
    }

    /// Blocks for the next acknowledgement, at most `max`: a duplicate first, then the ranges that changed last.
    pub fn sack_blocks(&self, max: usize) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        let mut put = |range: SeqRange| {
            if blocks.as_slice().len() < max {
                blocks.push((range.start.wire(), range.end.wire()));
            }
        };
        if let Some(duplicate) = self.duplicate {
            put(duplicate);
        }
        for start in &self.recent {
            let at = self.ranges.partition_point(|range| range.start < *start);
            if let Some(range) = self.ranges.get(at).filter(|range| range.start == *start) {
                put(*range);
            }
        }
        blocks
    }

    /// The duplicate has been reported.
    #[inline]
    pub fn on_reported(&mut self) {
        self.duplicate = None;
    }

    /// Whether an acknowledgement would carry blocks.
    #[inline]
    pub fn has_blocks(&self) -> bool {
        !self.ranges.is_empty() || self.duplicate.is_some()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(start: u64, end: u64) -> SeqRange {
        let zero = SeqNum::initial(0);
        SeqRange { start: zero + start, end: zero + end }
    }

    fn blocks(kept: &OutOfOrder) -> Vec<(u32, u32)> {
        kept.sack_blocks(3).as_slice().to_vec()
    }

    #[test]
    fn latest_range_is_reported_first() {
        let mut kept = OutOfOrder::default();
        for start in [10, 30, 50, 70] {
            assert!(kept.insert(range(start, start + 5)));
        }
        assert_eq!(blocks(&kept), [(70, 75), (50, 55), (30, 35)]);
        assert!(kept.insert(range(35, 50)));
        assert_eq!(blocks(&kept), [(30, 55), (70, 75), (10, 15)]);
        assert_eq!(kept.advance(SeqNum::initial(10)), SeqNum::initial(15));
        assert_eq!(blocks(&kept), [(30, 55), (70, 75)]);
    }

    #[test]
    fn segment_in_sequence_reports_what_it_repeats() {
        let mut kept = OutOfOrder::default();
        assert!(kept.insert(range(20, 30)) && kept.insert(range(40, 50)));
        kept.note_received(range(10, 20));
        assert_eq!(blocks(&kept), [(40, 50), (20, 30)]);
        kept.note_received(range(10, 45));
        assert_eq!(blocks(&kept)[0], (20, 30));
    }

    #[test]
    fn duplicate_is_reported_first_and_once() {
        let mut kept = OutOfOrder::default();
        assert!(kept.insert(range(10, 20)));
        assert!(kept.insert(range(15, 30)));
        assert_eq!(blocks(&kept), [(15, 20), (10, 30)]);
        kept.on_reported();
        assert_eq!(blocks(&kept), [(10, 30)]);
    }

    proptest! {
        #[test]
        fn ranges_are_those_of_a_set_of_bytes(
            steps in prop::collection::vec((0_u64..200, 1_u64..20), 1..60)
        ) {
            let (mut kept, mut set) = (OutOfOrder::default(), [false; 256]);
            for (start, len) in steps {
                let piece = range(start, start + len);
                let missing: u64 = kept.missing(piece).map(|gap| gap.end - gap.start).sum();
                let span = usize::try_from(start).unwrap()..usize::try_from(start + len).unwrap();
                let unset = set[span.clone()].iter().filter(|set| !**set).count();
                prop_assert_eq!(missing, unset as u64);
                prop_assert!(kept.insert(piece));
                set[span].fill(true);
                prop_assert_eq!(kept.bytes(), set.iter().filter(|set| **set).count() as u64);
                for pair in kept.ranges.windows(2) {
                    prop_assert!(pair[0].end < pair[1].start, "{:?}", kept.ranges);
                }
            }
        }
    }
}
