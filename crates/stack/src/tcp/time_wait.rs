//! TIME-WAIT (RFC 9293 §3.6.1): what a connection leaves behind, so that nothing of it is taken for part of the next.

use std::collections::BTreeSet;

use plumb_base::time::{Instant, Span};
use plumb_wire::tcp::TcpFlags;

use super::config::IpMarks;
use super::connection::TcpEnds;
use super::handshake::TimestampClock;
use super::receive::SegmentDrop;
use super::segment::{InboundSegment, OutboundSegment};
use super::seq::SeqNum;
use super::slab::Slab;
use super::tuple::PackedEnds;

/// What a connection in TIME-WAIT leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWaitState {
    /// The next sequence number that we would send.
    pub snd_nxt: SeqNum,
    /// The next that we expect.
    pub rcv_nxt: SeqNum,
    /// Our window, as it is written.
    pub window: u16,
    /// The peer's latest timestamp, where both use them.
    pub timestamp: Option<u32>,
    /// Our timestamp clock.
    pub clock: TimestampClock,
    /// What our packets have in their IP headers.
    pub marks: IpMarks,
    /// When it ends.
    pub until: Instant,
    /// How long it lasts, after a FIN that comes again.
    pub duration: Span,
}

/// A pair of ends in TIME-WAIT.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeWaitRecord {
    ends: PackedEnds,
    window: u16,
    snd_nxt: u32,
    rcv_nxt: u32,
    timestamp: Option<u32>,
    clock: TimestampClock,
    marks: IpMarks,
    until: Instant,
    duration: Span,
}

/// What a segment means to ends in TIME-WAIT.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TimeWaitFate {
    /// Nothing is to be done.
    Accepted,
    /// The peer's FIN again: its acknowledgement got lost.
    Repeats(OutboundSegment),
    /// To be dropped.
    Dropped(SegmentDrop),
    /// To be dropped, and answered with this acknowledgement, if not too often.
    Challenge(SegmentDrop, OutboundSegment),
    /// The SYN of a new connection, whose initial sequence number must be beyond this one.
    Reopens(u32),
}

impl TimeWaitRecord {
    pub fn ends(&self) -> TcpEnds {
        self.ends.ends()
    }

    /// What a segment whose checksum is right means (RFC 9293 §3.10.7.4, TIME-WAIT).
    fn classify(&self, now: Instant, segment: &InboundSegment<'_>) -> TimeWaitFate {
        let has = |flags| segment.flags.contains(flags);
        if has(TcpFlags::RST) {
            // RFC 1337 §3, fix 1.
            return TimeWaitFate::Dropped(SegmentDrop::Suspicious);
        }
        let progress = self
            .timestamp
            .zip(segment.options.timestamps)
            .map(|(recent, (value, _))| value.wrapping_sub(recent).cast_signed());
        let is_old = progress.is_some_and(|progress| progress < 0);
        if has(TcpFlags::SYN) && !has(TcpFlags::ACK) && !is_old {
            // RFC 9293 §3.10.7.4 and RFC 6191 §2: a later timestamp or sequence number.
            let is_beyond = segment.seq.wrapping_sub(self.rcv_nxt).cast_signed() > 0;
            if is_beyond || progress.is_some_and(|progress| progress > 0) {
                return TimeWaitFate::Reopens(self.snd_nxt);
            }
        }
        if is_old {
            return TimeWaitFate::Challenge(SegmentDrop::OldTimestamp, self.acknowledgement(now));
        }
        if has(TcpFlags::SYN) {
            return TimeWaitFate::Challenge(SegmentDrop::Suspicious, self.acknowledgement(now));
        }
        if !has(TcpFlags::ACK) {
            return TimeWaitFate::Dropped(SegmentDrop::NoAck);
        }
        let end = SeqNum::initial(segment.seq) + segment.seq_len();
        if has(TcpFlags::FIN) && end.wire() == self.rcv_nxt {
            return TimeWaitFate::Repeats(self.acknowledgement(now));
        }
        if segment.seq_len() == 0 && segment.seq == self.rcv_nxt {
            return TimeWaitFate::Accepted;
        }
        TimeWaitFate::Challenge(SegmentDrop::OutOfWindow, self.acknowledgement(now))
    }

    fn acknowledgement(&self, now: Instant) -> OutboundSegment {
        let timestamps = self.timestamp.map(|recent| (self.clock.value(now), recent));
        let seq = SeqNum::initial(self.snd_nxt);
        let segment = OutboundSegment::acknowledgement(seq, self.rcv_nxt, self.window, timestamps);
        OutboundSegment { marks: self.marks, ..segment }
    }
}

/// The records of a host, at most so many, by when they end.
#[derive(Debug)]
pub(super) struct TimeWaitTable {
    records: Slab<TimeWaitRecord>,
    order: BTreeSet<(Instant, u32)>,
    max: usize,
}

impl TimeWaitTable {
    /// No records, and never more than `max`.
    pub fn new(max: usize) -> Self {
        Self { records: Slab::default(), order: BTreeSet::new(), max: max.max(1) }
    }

    /// Whether another record needs room, and the one that is to make it: the first that would end.
    pub fn excess(&self) -> Option<u32> {
        let is_full = self.records.len() >= self.max;
        self.order.first().filter(|_| is_full).map(|(_, index)| *index)
    }

    pub fn insert(&mut self, ends: &TcpEnds, state: &TimeWaitState) -> u32 {
        let index = self.records.insert(TimeWaitRecord {
            ends: PackedEnds::new(ends),
            window: state.window,
            snd_nxt: state.snd_nxt.wire(),
            rcv_nxt: state.rcv_nxt.wire(),
            timestamp: state.timestamp,
            clock: state.clock,
            marks: state.marks,
            until: state.until,
            duration: state.duration,
        });
        self.order.insert((state.until, index));
        index
    }

    #[inline]
    pub fn get(&self, index: u32) -> Option<&TimeWaitRecord> {
        self.records.get(index)
    }

    pub fn remove(&mut self, index: u32) -> Option<TimeWaitRecord> {
        let record = self.records.remove(index)?;
        self.order.remove(&(record.until, index));
        Some(record)
    }

    /// Handles a segment whose checksum is right: a repeated FIN restarts the record's time.
    pub fn handle_segment(
        &mut self,
        now: Instant,
        index: u32,
        segment: &InboundSegment<'_>,
    ) -> TimeWaitFate {
        let Some(record) = self.records.get_mut(index) else {
            return TimeWaitFate::Dropped(SegmentDrop::Closed);
        };
        let fate = record.classify(now, segment);
        if let TimeWaitFate::Repeats(_) = fate {
            self.order.remove(&(record.until, index));
            record.until = now + record.duration;
            self.order.insert((record.until, index));
        }
        fate
    }

    /// When the next record ends.
    pub fn deadline(&self) -> Option<Instant> {
        self.order.first().map(|(until, _)| *until)
    }

    /// One that is over.
    pub fn due(&self, now: Instant) -> Option<u32> {
        self.order.first().filter(|(until, _)| *until <= now).map(|(_, index)| *index)
    }

    /// Records kept.
    pub fn len(&self) -> usize {
        self.records.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_wait_record_takes_at_most_96_bytes() {
        assert!(size_of::<Option<TimeWaitRecord>>() <= 96);
    }
}
