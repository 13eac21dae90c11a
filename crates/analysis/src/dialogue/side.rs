//! One direction of a connection: what of its data is new, how soon they are acknowledged, and stalls of its small segments.

use std::collections::VecDeque;

use super::SegmentRecord;

/// Segments whose acknowledgment is awaited, at most.
const AWAITED_MAX: usize = 64;
/// Holes that are remembered, at most but for splits.
const HOLES_MAX: usize = 64;
/// What comes a round trip after an acknowledgment, give or take so much, was held for it by Nagle's algorithm (RFC 9293 §3.7.4); after
/// short waits an eighth of the wait.
const RELEASED_NS: u64 = 2_000_000;

/// Most payload of a segment in an Ethernet frame.
const ETHERNET_MSS: u32 = 1_460;

/// What a segment's data are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SegmentData {
    /// None, or a probe of a byte that is there already.
    None,
    /// At least the last of them had not been sent before.
    New {
        /// How many had not been.
        bytes: u64,
    },
    /// All had been sent before.
    Again,
}

/// One direction.
#[derive(Debug, Default)]
pub(super) struct DirectionState {
    /// Number behind the highest byte seen.
    pub next: Option<u32>,
    pub segments: u64,
    pub bytes: u64,
    pub retransmissions: u64,
    /// Bytes that were sent, as later numbers or acknowledgments show, and never passed.
    pub missing: u64,
    /// Begins and ends of what is missing before data that passed: lost before the point of capture, it comes later.
    holes: Vec<(u32, u32)>,
    /// The longest payload that is not of several segments, joined before they were captured: what is shorter is small.
    longest: u32,
    /// Ends of segments and when they passed.
    awaited: VecDeque<(u32, u64)>,
    /// Soonest acknowledgment: from the point of capture to the receiver and back.
    pub rtt_ns: Option<u64>,
    /// When data passed last.
    last_ns: u64,
    /// The end of a small segment that is not acknowledged: it holds the next small one, though not (as Linux does it) full ones.
    small: Option<u32>,
    /// When a lone acknowledgment of it passed.
    released_ns: Option<u64>,
    pub stalls: u64,
    pub stalled_ns: u64,
}

/// Whether `a` is behind `b` in sequence (RFC 9293 §3.4).
pub(super) const fn is_after(a: u32, b: u32) -> bool {
    a != b && a.wrapping_sub(b) < 1 << 31
}

impl DirectionState {
    /// Takes a segment of this direction; `other_rtt_ns` is the round trip to its sender.
    pub fn send(&mut self, segment: &SegmentRecord<'_>, other_rtt_ns: Option<u64>) -> SegmentData {
        self.segments += 1;
        let begin = segment.seq.wrapping_add(u32::from(segment.is_syn));
        let data_end = begin.wrapping_add(segment.len);
        let Some(next) = self.next else {
            self.next = Some(data_end.wrapping_add(u32::from(segment.is_fin)));
            if segment.is_syn {
                self.awaited.push_back((begin, segment.time_ns));
            }
            return self.accept(segment, data_end, u64::from(segment.len), other_rtt_ns);
        };
        if segment.is_syn && segment.len == 0 {
            self.retransmissions += 1;
            self.awaited.clear();
            return SegmentData::None;
        }
        let end = data_end.wrapping_add(u32::from(segment.is_fin));
        if segment.len == 0 {
            if is_after(end, next) && segment.is_fin {
                self.next = Some(end);
            }
            return SegmentData::None;
        }
        if !is_after(data_end, next) {
            let is_probe = segment.len == 1 && data_end == next;
            if is_probe {
                return SegmentData::None;
            }
            self.retransmissions += 1;
            let filled = self.fill(begin, segment.len);
            self.missing -= filled;
            self.bytes += filled;
            // Which of the copies is acknowledged is not known (Karn's algorithm, RFC 6298 §3).
            self.awaited.clear();
            self.small = None;
            return SegmentData::Again;
        }
        if is_after(begin, next) {
            self.missing += u64::from(begin.wrapping_sub(next));
            if self.holes.len() < HOLES_MAX {
                self.holes.push((next, begin));
            }
        }
        let new = u64::from(data_end.wrapping_sub(next).min(segment.len));
        self.next = Some(end);
        self.accept(segment, data_end, new, other_rtt_ns)
    }

    /// How many bytes of a segment had been missing.
    fn fill(&mut self, begin: u32, len: u32) -> u64 {
        let mut filled = 0;
        for (from, to) in std::mem::take(&mut self.holes) {
            let size = to.wrapping_sub(from);
            let (skipped, at) = if is_after(begin, from) {
                (0, begin.wrapping_sub(from).min(size))
            } else {
                (from.wrapping_sub(begin), 0)
            };
            let overlap = len.saturating_sub(skipped).min(size - at);
            filled += u64::from(overlap);
            let rest = (from.wrapping_add(at + overlap), to);
            let parts = if overlap == 0 {
                [(from, to), (to, to)]
            } else {
                [(from, from.wrapping_add(at)), rest]
            };
            self.holes.extend(parts.into_iter().filter(|(from, to)| from != to));
        }
        filled
    }

    fn accept(
        &mut self,
        segment: &SegmentRecord<'_>,
        end: u32,
        bytes: u64,
        other_rtt_ns: Option<u64>,
    ) -> SegmentData {
        if bytes == 0 {
            return SegmentData::None;
        }
        self.bytes += bytes;
        if segment.len <= ETHERNET_MSS {
            self.longest = self.longest.max(segment.len);
        }
        if segment.len < self.longest || segment.len < 536 {
            self.count_stall(segment.time_ns, other_rtt_ns.unwrap_or(0));
            self.small = Some(end);
        }
        self.last_ns = segment.time_ns;
        if self.awaited.len() < AWAITED_MAX {
            self.awaited.push_back((end, segment.time_ns));
        }
        SegmentData::New { bytes }
    }

    /// Counts a small segment that was held for the acknowledgment of the last one, and the time since the data before it.
    fn count_stall(&mut self, time_ns: u64, other_rtt_ns: u64) {
        let Some(released_ns) = self.released_ns.take() else { return };
        let held_ns = time_ns - self.last_ns;
        let slack = RELEASED_NS.min(held_ns / 8);
        if held_ns > 0 && (time_ns - released_ns).abs_diff(other_rtt_ns) <= slack {
            self.stalls += 1;
            self.stalled_ns = self.stalled_ns.saturating_add(held_ns);
        }
    }

    /// Takes an acknowledgment from the other end; `is_pure` is one without data.
    pub fn acknowledge(&mut self, ack: u32, time_ns: u64, is_pure: bool) {
        while let Some((end, sent_ns)) = self.awaited.front().copied() {
            if is_after(end, ack) {
                break;
            }
            self.awaited.pop_front();
            if end == ack {
                let rtt = time_ns - sent_ns;
                self.rtt_ns = Some(self.rtt_ns.map_or(rtt, |least| least.min(rtt)));
            }
        }
        if !is_pure {
            (self.small, self.released_ns) = (None, None);
            return;
        }
        if self.small.take_if(|end| !is_after(*end, ack)).is_some() {
            self.released_ns = Some(time_ns);
        }
        if let Some(next) = self.next
            && is_after(ack, next)
            && self.bytes > 0
        {
            // Acknowledged, so it was sent, and is not in the capture.
            self.missing += u64::from(ack.wrapping_sub(next));
            self.next = Some(ack);
        }
    }
}
