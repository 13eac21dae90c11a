//! The receiving half of a connection: data in and out of sequence, the window that is offered, and what acknowledgements say.

use plumb_base::time::{Instant, Span};
use plumb_copy::Sum16;

use super::config::{BufferLimits, ChecksumPass, WindowEdge};
use super::delayed_ack::AckSchedule;
use super::reassembly::{OutOfOrder, SeqRange};
use super::ring::SeqRing;
use super::seq::SeqNum;
use super::window::ReceiveWindow;

/// The receiving half.
#[expect(clippy::struct_excessive_bools, reason = "each is a condition of its own")]
#[derive(Debug)]
pub(super) struct Receiver {
    pub irs: SeqNum,
    /// The next sequence number expected.
    pub nxt: SeqNum,
    /// Data from what the application has not read on.
    pub buffer: SeqRing,
    pub out_of_order: OutOfOrder,
    pub window: ReceiveWindow,
    pub acks: AckSchedule,
    /// Where the peer's FIN is, once it has been seen.
    pub fin: Option<SeqNum>,
    /// Whether the FIN was received in sequence.
    pub is_finished: bool,
    /// Size of the peer's segments, as far as seen.
    pub mss: u32,
    /// The peer's latest timestamp, and when it came (RFC 7323's TS.Recent).
    pub timestamp: Option<(u32, Instant)>,
    /// Where the last acknowledgement was (RFC 7323's Last.ACK.sent).
    pub last_ack: SeqNum,
    /// ECN: marks are echoed until the peer says that it reduced its window.
    pub echo_marks: bool,
    tuning: BufferTuning,
    pass: ChecksumPass,
    silly_window: bool,
    edge: WindowEdge,
    discards_out_of_order: bool,
    pub counts: ReceiverCounts,
}

/// Counters of the receiving side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiverCounts {
    /// Segments received; joined ones count as theirs.
    pub segments: u64,
    /// Bytes received in sequence.
    pub bytes: u64,
    /// Bytes received again.
    pub duplicate_bytes: u64,
    /// Segments out of order.
    pub out_of_order: u64,
    /// Segments of which something did not fit into the buffer.
    pub overflow: u64,
    /// Segments with a congestion mark.
    pub marks: u64,
}

/// Growth of the buffer with what the application reads in a round trip (dynamic right-sizing, Fisk and Feng 2001).
#[derive(Clone, Copy, Debug)]
struct BufferTuning {
    limits: BufferLimits,
    read: u64,
    since: Instant,
}

/// How the receiver is set up.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceiverOptions {
    pub limits: BufferLimits,
    pub pass: ChecksumPass,
    pub keeps_content: bool,
    pub silly_window: bool,
    pub edge: WindowEdge,
    pub discards_out_of_order: bool,
}

impl Receiver {
    /// After the peer's SYN at `irs`; `edge` is what our own offered.
    pub fn new(
        now: Instant,
        irs: SeqNum,
        (offered, shift): (u16, u8),
        timestamp: Option<u32>,
        acks: AckSchedule,
        options: &ReceiverOptions,
    ) -> Self {
        let nxt = irs + 1;
        Self {
            irs,
            nxt,
            buffer: SeqRing::new(nxt, options.limits.initial, options.keeps_content),
            out_of_order: OutOfOrder::default(),
            window: ReceiveWindow::new(nxt + u64::from(offered), shift),
            acks,
            fin: None,
            is_finished: false,
            mss: 536,
            timestamp: timestamp.map(|value| (value, now)),
            last_ack: nxt,
            echo_marks: false,
            tuning: BufferTuning { limits: options.limits, read: 0, since: now },
            pass: options.pass,
            silly_window: options.silly_window,
            edge: options.edge,
            discards_out_of_order: options.discards_out_of_order,
            counts: ReceiverCounts::default(),
        }
    }

    /// Behind the last data byte in sequence.
    #[inline]
    pub fn data_end(&self) -> SeqNum {
        if self.is_finished { self.nxt - 1 } else { self.nxt }
    }

    /// Bytes that the application may read.
    #[inline]
    pub fn readable(&self) -> u64 {
        self.data_end() - self.buffer.start()
    }

    /// Writes data in sequence to the buffer, without taking note of them: their sum. `None` where they do not fit.
    #[inline]
    pub fn stage(&mut self, payload: &[u8], sum: bool) -> Option<Sum16> {
        let end = self.nxt + payload.len() as u64;
        if end > self.buffer.limit() {
            return None;
        }
        self.buffer.reserve(end, self.nxt);
        Some(self.buffer.write(self.nxt, payload, sum.then_some(self.pass)))
    }

    /// Takes note of staged data.
    #[inline]
    pub fn commit(&mut self, now: Instant, len: u64, segment_len: u64) {
        self.nxt += len;
        self.counts.bytes += len;
        self.note_size(segment_len);
        self.acks.on_data(now, len, self.mss.into());
    }

    #[inline]
    fn note_size(&mut self, len: u64) {
        if len > u64::from(self.mss) {
            self.mss = u32::try_from(len.min(65_535)).unwrap_or(65_535);
        }
    }

    /// Takes data at `seq`, cut to the window, wherever they lie; `segment_len` is what one segment had of them.
    pub fn receive(&mut self, now: Instant, seq: SeqNum, payload: &[u8], segment_len: u64) {
        let end = seq + payload.len() as u64;
        let range = SeqRange {
            start: seq.max(self.nxt),
            end: end.min(self.buffer.limit()).min(self.fin.unwrap_or(end)),
        };
        self.note_duplicate(seq, end);
        if range.start >= range.end {
            if end > self.buffer.limit() {
                self.counts.overflow += 1;
            }
            // RFC 9293 §3.10.7.4: an unacceptable segment is acknowledged.
            self.acks.demand();
            return;
        }
        if end > self.buffer.limit() {
            self.counts.overflow += 1;
        }
        if range.start > self.nxt {
            self.receive_out_of_order(range, seq, payload);
            return;
        }
        let fills_gap = !self.out_of_order.is_empty();
        self.out_of_order.note_received(range);
        let kept = self.out_of_order.end().unwrap_or(self.nxt);
        self.write_missing(range, seq, payload, kept);
        let reached = self.out_of_order.advance(range.end);
        let len = reached - self.nxt;
        self.commit(now, len, segment_len);
        if fills_gap || seq < range.start {
            // RFC 5681 §4.2: a segment that fills a gap is acknowledged at once.
            self.acks.demand();
        }
    }

    fn note_duplicate(&mut self, seq: SeqNum, end: SeqNum) {
        if seq < self.nxt && end > seq {
            let duplicate = SeqRange { start: seq, end: end.min(self.nxt) };
            self.counts.duplicate_bytes += duplicate.end - duplicate.start;
            self.out_of_order.on_duplicate(duplicate);
        }
    }

    fn receive_out_of_order(&mut self, range: SeqRange, seq: SeqNum, payload: &[u8]) {
        self.counts.out_of_order += 1;
        self.acks.demand();
        if self.discards_out_of_order {
            return;
        }
        let kept = self.out_of_order.end().unwrap_or(self.nxt);
        self.write_missing(range, seq, payload, kept);
        self.out_of_order.insert(range);
    }

    /// Writes the parts of a payload that are not in the buffer yet: those that are stay as they were received first.
    fn write_missing(&mut self, range: SeqRange, seq: SeqNum, payload: &[u8], kept: SeqNum) {
        self.buffer.reserve(range.end.max(kept), kept);
        let Self { buffer, out_of_order, .. } = self;
        for gap in out_of_order.missing(range) {
            let from = usize::try_from(gap.start - seq).expect("within the payload");
            let to = usize::try_from(gap.end - seq).expect("within the payload");
            buffer.write(gap.start, &payload[from..to], None);
        }
    }

    /// The application has read up to `start`.
    #[inline]
    pub fn on_read(&mut self, now: Instant, start: SeqNum, srtt: Option<Span>) {
        self.tuning.read += start - self.buffer.start();
        self.buffer.advance(start);
        self.release_if_over();
        self.tune(now, srtt);
    }

    /// The FIN is next in sequence: nothing follows it.
    pub fn finish(&mut self) {
        self.nxt += 1;
        self.is_finished = true;
        self.acks.demand();
        self.release_if_over();
    }

    /// Gives the memory back once everything has been received and read.
    fn release_if_over(&mut self) {
        if self.is_finished && self.readable() == 0 {
            self.buffer.release();
        }
    }

    /// Lets the buffer hold twice what was read in the last round trip.
    #[inline]
    fn tune(&mut self, now: Instant, srtt: Option<Span>) {
        let BufferTuning { limits, read, since } = self.tuning;
        let Some(srtt) = srtt else { return };
        if now.saturating_since(since) < srtt {
            return;
        }
        let wanted =
            usize::try_from(read.saturating_mul(2)).unwrap_or(usize::MAX).min(limits.max as usize);
        self.buffer.raise_limit(wanted);
        self.tuning = BufferTuning { limits, read: 0, since: now };
    }

    /// The window of the next segment, and what its acknowledgement number is.
    #[inline]
    pub fn offer(&mut self) -> u16 {
        let opening = self.opening();
        self.window.offer(self.nxt, opening)
    }

    #[inline]
    fn opening(&self) -> u64 {
        // A window that the field cannot express is not offered, nor is it worth an update.
        let limit = self.buffer.limit().min(self.window.largest(self.nxt));
        let any = self.silly_window || self.edge == WindowEdge::Exact;
        self.window.opening(limit, self.buffer.capacity_limit(), self.mss.into(), any)
    }

    /// RFC 9293 §3.4: whether some of a segment that takes `len` sequence numbers is in the window. In steps, an empty one at the right
    /// edge passes, as in Linux.
    #[inline]
    pub fn is_acceptable(&self, seq: SeqNum, len: u64) -> bool {
        let (nxt, edge) = (self.nxt, self.window.edge());
        let edge = match self.edge {
            WindowEdge::Steps if len == 0 => return seq >= nxt && seq <= edge,
            WindowEdge::Steps => edge,
            WindowEdge::Exact => edge.max(nxt + (self.buffer.limit() - self.data_end())),
        };
        if len == 0 {
            return seq == nxt || seq >= nxt && seq < edge;
        }
        let end = seq + len;
        edge > nxt && end > nxt && seq < edge
    }

    /// Whether the window that the peer knows has become so much smaller than the real one that it should be told.
    #[inline]
    pub fn should_announce_window(&self) -> bool {
        if self.is_finished {
            return false;
        }
        let opening = self.opening();
        let current = self.window.current(self.nxt);
        let worth = (2 * u64::from(self.mss)).min(self.buffer.capacity_limit() as u64 / 2);
        if self.edge == WindowEdge::Exact {
            // As FreeBSD: two segments, and a quarter of the buffer.
            let quarter = self.buffer.capacity_limit() as u64 / 4;
            return opening >= 2 * u64::from(self.mss) && opening >= quarter;
        }
        opening > 0
            && (self.silly_window
                || opening >= worth && current <= self.buffer.capacity_limit() as u64 / 2
                || current < u64::from(self.mss))
    }
}
