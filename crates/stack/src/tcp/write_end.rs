//! What follows the end of a write: nothing that it should wait for, more soon (MSG_MORE, TCP_CORK), or another record (MSG_EOR).

use std::collections::VecDeque;

use super::seq::SeqNum;

/// What follows a write, as the application says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WriteEnd {
    /// What was written may leave.
    #[default]
    Push,
    /// More follows soon: a small segment waits for it, at most a retransmission timeout (MSG_MORE).
    More,
    /// A record ends: what is written next is never in one segment with it (MSG_EOR).
    Record,
}

/// The ends of writes, as far as they matter to what leaves.
#[derive(Debug, Default)]
pub(super) struct WriteEnds {
    /// Small segments wait for more, whatever a write says (TCP_CORK).
    is_corked: bool,
    /// A small segment waits for more to be written.
    pub is_held: bool,
    /// More was to follow what was written last: it has no PSH.
    pub is_open: bool,
    /// Ends of records that are not acknowledged, if there are any.
    records: Option<Box<RecordEnds>>,
}

/// Sequence numbers at which records end, in order.
#[derive(Debug, Default)]
struct RecordEnds(VecDeque<SeqNum>);

impl WriteEnds {
    /// A write ended at `end`.
    #[inline]
    pub fn on_written(&mut self, end: SeqNum, how: WriteEnd) {
        self.is_open = how == WriteEnd::More;
        self.is_held = self.is_corked || self.is_open;
        if how == WriteEnd::Record {
            self.records.get_or_insert_default().0.push_back(end);
        }
    }

    /// Sets TCP_CORK; without it, what waited leaves.
    pub fn cork(&mut self, corked: bool) {
        if corked != self.is_corked {
            self.is_corked = corked;
            self.is_held = corked;
        }
    }

    /// What waits may leave as it is, until more is written: it waited long enough, or is asked for.
    pub fn release(&mut self) {
        self.is_held = false;
    }

    /// Everything before `una` is acknowledged; a write waits for the next one at most so long.
    #[inline]
    pub fn on_acked(&mut self, una: SeqNum) {
        self.is_held &= self.is_corked;
        if let Some(records) = &mut self.records {
            while records.0.pop_front_if(|end| *end <= una).is_some() {}
            if records.0.is_empty() {
                self.records = None;
            }
        }
    }

    /// Where the record ends that has the byte at `seq`; `None`: nowhere yet.
    #[inline]
    pub fn record_end(&self, seq: SeqNum) -> Option<SeqNum> {
        let records = &self.records.as_ref()?.0;
        records.get(records.partition_point(|end| *end <= seq)).copied()
    }

    /// Whether a record ends at `seq`.
    #[inline]
    pub fn ends_record(&self, seq: SeqNum) -> bool {
        self.records.as_ref().is_some_and(|records| records.0.binary_search(&seq).is_ok())
    }
}
