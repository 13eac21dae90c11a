//! What an application calls to send and receive over a connection.
//!
//! The end of a write says what follows: nothing, more soon (MSG_MORE, TCP_CORK), or another record (MSG_EOR).

use std::collections::VecDeque;

use plumb_base::time::Instant;
use plumb_copy::Sum16;

use super::connection::{Connection, TcpSocketError};
use super::seq::SeqNum;
use super::socket::TcpState;

/// Bytes of memory that an empty send buffer may keep.
const IDLE_MEMORY: usize = 65_536;

/// What reading gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes.
    Data(usize),
    /// Nothing has arrived.
    Empty,
    /// The peer has sent everything.
    End,
}

impl Connection {
    /// Whether reading would give data, the end, or an error.
    #[inline]
    pub fn is_readable(&self) -> bool {
        self.rx.readable() > 0 || self.rx.is_finished || self.state == TcpState::Closed
    }

    /// Whether sending would take data, or fail: from a third of the buffer on, as Linux wakes its writers.
    pub fn is_writable(&self) -> bool {
        if !self.state.can_send() || self.tx.is_closed {
            return true;
        }
        self.state.is_synchronized() && self.tx.room() * 3 >= self.tx.buffer.capacity_limit()
    }

    /// Gives the memory of a large send buffer back that has nothing in it. Not to be called each time that this is so: a buffer that is
    /// soon filled again is costly to make anew.
    pub fn release_idle_memory(&mut self) {
        let tx = &mut self.tx;
        if tx.una >= tx.end && tx.buffer.memory() > IDLE_MEMORY {
            tx.buffer.release();
        }
    }

    /// Queues a copy of as much of `bytes` as there is room for; how many.
    ///
    /// # Errors
    /// [`TcpSocketError`].
    pub fn send(&mut self, now: Instant, bytes: &[u8]) -> Result<usize, TcpSocketError> {
        self.send_as(now, bytes, WriteEnd::Push)
    }

    /// The same, and what the end of `bytes` is; a record ends only where there was room for all of them.
    ///
    /// # Errors
    /// [`TcpSocketError`].
    pub fn send_as(
        &mut self,
        now: Instant,
        bytes: &[u8],
        how: WriteEnd,
    ) -> Result<usize, TcpSocketError> {
        self.check_sendable()?;
        self.tune_send_buffer();
        let len = bytes.len().min(self.tx.room());
        let tx = &mut self.tx;
        let end = tx.end + len as u64;
        tx.buffer.reserve(end, tx.end);
        tx.buffer.write(tx.end, &bytes[..len], None);
        tx.end = end;
        let is_cut = how == WriteEnd::Record && len < bytes.len();
        self.on_queued(now, len, if is_cut { WriteEnd::Push } else { how });
        Ok(len)
    }

    /// Lets `write` fill room of the buffer in place, at most `max` bytes; it returns how many it wrote.
    ///
    /// # Errors
    /// [`TcpSocketError`].
    pub fn send_with(
        &mut self,
        now: Instant,
        max: usize,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<usize, TcpSocketError> {
        self.check_sendable()?;
        self.tune_send_buffer();
        let tx = &mut self.tx;
        let end = tx.end + max.min(tx.room()) as u64;
        tx.buffer.reserve(end, tx.end);
        let room = tx.buffer.contiguous_mut(tx.end, end);
        let most = room.len();
        let len = write(room).min(most);
        tx.end += len as u64;
        self.on_queued(now, len, WriteEnd::Push);
        Ok(len)
    }

    /// Queues up to `max` bytes, whatever they are; how many.
    ///
    /// # Errors
    /// [`TcpSocketError`].
    pub fn send_any(&mut self, now: Instant, max: usize) -> Result<usize, TcpSocketError> {
        self.check_sendable()?;
        self.tune_send_buffer();
        let tx = &mut self.tx;
        let len = max.min(tx.room());
        let end = tx.end + len as u64;
        tx.buffer.reserve(end, tx.end);
        tx.end = end;
        self.on_queued(now, len, WriteEnd::Push);
        Ok(len)
    }

    fn check_sendable(&self) -> Result<(), TcpSocketError> {
        match self.error {
            Some(error) => Err(error),
            None if self.tx.is_closed => Err(TcpSocketError::Shutdown),
            None if !self.state.can_send() => Err(TcpSocketError::Closed),
            None => Ok(()),
        }
    }

    #[inline]
    fn on_queued(&mut self, now: Instant, len: usize, how: WriteEnd) {
        if len > 0 {
            self.tx.writes.on_written(self.tx.end, how);
            self.is_ready = true;
            if self.tx.queue.is_empty() {
                self.timers.progress = now;
            }
        }
    }

    /// Twice the congestion window, so that one is buffered while another is in flight.
    #[inline]
    fn tune_send_buffer(&mut self) {
        let wanted = self
            .tx
            .congestion
            .window
            .cwnd
            .saturating_mul(2)
            .min(self.config.send_buffer.max.into());
        self.tx.buffer.raise_limit(usize::try_from(wanted).unwrap_or(usize::MAX));
    }

    /// Copies received data to `out`.
    ///
    /// # Errors
    /// [`TcpSocketError`], once what was received before has been read.
    pub fn receive(&mut self, now: Instant, out: &mut [u8]) -> Result<Received, TcpSocketError> {
        let len = usize::try_from(self.rx.readable()).unwrap_or(usize::MAX).min(out.len());
        if len == 0 {
            return self.received_nothing(out.is_empty());
        }
        let start = self.rx.buffer.start();
        self.rx.buffer.read(start, &mut out[..len], None);
        self.on_read(now, len);
        Ok(Received::Data(len))
    }

    /// Lets `read` have received data in place, as far as they lie in one piece; it returns how many bytes it is done with.
    ///
    /// # Errors
    /// [`TcpSocketError`], once what was received before has been read.
    pub fn receive_with(
        &mut self,
        now: Instant,
        read: impl FnOnce(&[u8]) -> usize,
    ) -> Result<Received, TcpSocketError> {
        let piece = self.rx.buffer.contiguous(self.rx.buffer.start(), self.rx.data_end());
        if piece.is_empty() {
            return self.received_nothing(false);
        }
        let most = piece.len();
        let len = read(piece).min(most);
        self.on_read(now, len);
        Ok(Received::Data(len))
    }

    /// Discards up to `max` bytes of received data.
    ///
    /// # Errors
    /// [`TcpSocketError`], once what was received before has been read.
    pub fn discard(&mut self, now: Instant, max: usize) -> Result<Received, TcpSocketError> {
        let len = usize::try_from(self.rx.readable()).unwrap_or(usize::MAX).min(max);
        if len == 0 {
            return self.received_nothing(max == 0);
        }
        self.on_read(now, len);
        Ok(Received::Data(len))
    }

    fn received_nothing(&self, asked_nothing: bool) -> Result<Received, TcpSocketError> {
        match self.error {
            _ if asked_nothing => Ok(Received::Empty),
            _ if self.rx.is_finished => Ok(Received::End),
            Some(error) => Err(error),
            None if self.state == TcpState::Closed => Err(TcpSocketError::Closed),
            None => Ok(Received::Empty),
        }
    }

    fn on_read(&mut self, now: Instant, len: usize) {
        let start = self.rx.buffer.start() + len as u64;
        self.rx.on_read(now, start, self.tx.rtt.srtt());
        if self.state.is_synchronized() && self.rx.should_announce_window() {
            self.rx.acks.demand();
            self.is_ready = true;
        }
    }

    /// Whether small segments leave at once; where they do, so does what waits for more, as in Linux.
    pub fn set_nodelay(&mut self, nodelay: bool) {
        self.tx.options.nagle = !nodelay;
        if nodelay {
            self.tx.writes.release();
        }
        self.is_ready = true;
    }

    /// Whether every small segment waits for more, at most a retransmission timeout (Linux's TCP_CORK).
    pub fn set_cork(&mut self, corked: bool) {
        self.tx.writes.cork(corked);
        self.is_ready = true;
    }

    /// Whether the bytes that it sends can be read.
    #[inline]
    pub const fn keeps_content(&self) -> bool {
        self.tx.buffer.keeps_content()
    }

    /// The payload of such a segment where it lies.
    #[inline]
    pub fn payload(&self, seq: SeqNum, len: usize) -> [&[u8]; 2] {
        let (buffer, end) = (&self.tx.buffer, seq + len as u64);
        let first = buffer.contiguous(seq, end);
        [first, buffer.contiguous(seq + first.len() as u64, end)]
    }

    /// Writes payload from `seq` on, of a segment that [`Connection::poll_segment`] gave; its sum, unless `sum` says that nobody needs it.
    #[inline]
    pub fn copy_payload(&self, seq: SeqNum, out: &mut [u8], sum: bool) -> Sum16 {
        let pass = sum.then_some(self.config.checksum_pass);
        self.tx.buffer.read(seq, out, pass)
    }
}

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

    /// Data that waits may leave as it is, until more is written: it waited long enough, or is asked for.
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
