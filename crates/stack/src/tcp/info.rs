//! What can be known about a connection: figures in the manner of Linux's `tcp_info`, and a trace of its segments.

use plumb_base::time::{Instant, Span};

use super::connection::Connection;
use super::receiver::ReceiverCounts;
use super::recovery::RecoveryPhase;
use super::sender::SenderCounts;
use super::socket::TcpState;
use crate::context::DeliveryFailureKind;

/// Figures of a connection. Sizes are bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// Its state.
    pub state: TcpState,
    /// What is being recovered from.
    pub phase: RecoveryPhase,
    /// Congestion window.
    pub cwnd: u64,
    /// Slow-start threshold.
    pub ssthresh: u64,
    /// Largest payload of segments sent.
    pub mss: u16,
    /// The same of those received, as far as seen.
    pub mss_received: u32,
    /// MTU of the path.
    pub path_mtu: u32,
    /// In flight.
    pub flight: u64,
    /// Unacknowledged.
    pub outstanding: u64,
    /// Buffered and not sent.
    pub unsent: u64,
    /// Received in sequence and not read.
    pub readable: u64,
    /// Whether the peer has sent everything, and all of it arrived.
    pub is_finished: bool,
    /// Said by SACK to have been received.
    pub sacked: u64,
    /// Taken for lost.
    pub lost: u64,
    /// Retransmitted and unacknowledged.
    pub retransmitted: u64,
    /// Window that the peer offers.
    pub send_window: u64,
    /// Window that we offer.
    pub receive_window: u64,
    /// Smoothed round-trip time.
    pub srtt: Option<Span>,
    /// Its mean deviation.
    pub rtt_variance: Span,
    /// Least round-trip time.
    pub rtt_min: Option<Span>,
    /// Retransmission timeout, backed off.
    pub rto: Span,
    /// Times that it has been doubled.
    pub backoff: u8,
    /// Whether segments have been seen out of order.
    pub reordering_seen: bool,
    /// Bytes a second that the pacer allows.
    pub pacing_rate: Option<u64>,
    /// Bytes delivered in all.
    pub delivered: u64,
    /// Whether timestamps, SACK, and ECN are in use.
    pub options: (bool, bool, bool),
    /// Shifts of the peer's and of our window, if both scale.
    pub window_scale: Option<(u8, u8)>,
    /// Memory of both buffers.
    pub memory: usize,
    /// What the network reported last without ending the connection, since the peer acknowledged something new (RFC 9293 §3.9.1.8).
    pub soft_error: Option<DeliveryFailureKind>,
    /// What was sent.
    pub sent: SenderCounts,
    /// What was received.
    pub received: ReceiverCounts,
}

/// A segment that was sent or received, and the sender's state after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRecord {
    /// The time.
    pub at: Instant,
    /// Which way, and for what.
    pub kind: TracedKind,
    /// Bytes of data before it in its direction's stream.
    pub offset: u64,
    /// Bytes of payload.
    pub len: u32,
    /// Bytes in flight.
    pub flight: u64,
    /// Congestion window.
    pub cwnd: u64,
    /// Slow-start threshold.
    pub ssthresh: u64,
    /// Smoothed round-trip time.
    pub srtt: Option<Span>,
    /// Window that the peer offers.
    pub send_window: u64,
}

/// What a traced segment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TracedKind {
    /// Sent for the first time.
    Sent,
    /// Sent again.
    Retransmitted,
    /// Received.
    Received,
}

/// The records of a connection, at most so many between two collections.
#[derive(Debug)]
pub(super) struct SegmentTrace {
    records: Vec<SegmentRecord>,
    max: usize,
    missed: u64,
}

impl SegmentTrace {
    pub fn new(max: usize) -> Self {
        Self { records: Vec::new(), max, missed: 0 }
    }

    pub fn push(&mut self, record: SegmentRecord) {
        if self.records.len() < self.max {
            self.records.push(record);
        } else {
            self.missed += 1;
        }
    }

    /// The records since the last call, and how many found no room.
    pub fn take(&mut self) -> (Vec<SegmentRecord>, u64) {
        (std::mem::take(&mut self.records), std::mem::take(&mut self.missed))
    }
}

impl Connection {
    /// Its figures.
    pub fn info(&self) -> TcpInfo {
        let (tx, rx) = (&self.tx, &self.rx);
        TcpInfo {
            state: self.state,
            phase: tx.recovery.phase(),
            cwnd: tx.congestion.window.cwnd,
            ssthresh: tx.congestion.window.ssthresh,
            mss: tx.size.payload(),
            mss_received: rx.mss,
            path_mtu: tx.size.mtu(),
            flight: tx.flight(),
            outstanding: tx.outstanding(),
            unsent: tx.end.saturating_since(tx.nxt),
            readable: rx.readable(),
            is_finished: rx.is_finished,
            sacked: tx.queue.sacked(),
            lost: tx.queue.lost(),
            retransmitted: tx.queue.retransmitted(),
            send_window: tx.window.end().saturating_since(tx.una),
            receive_window: rx.window.current(rx.nxt),
            srtt: tx.rtt.srtt(),
            rtt_variance: tx.rtt.variance(),
            rtt_min: tx.rtt.minimum(),
            rto: tx.rtt.rto(),
            backoff: tx.rtt.backoff(),
            reordering_seen: tx.recovery.rack.reordering_seen,
            pacing_rate: tx.pacing_rate(),
            delivered: tx.rate.delivered(),
            options: (self.agreed.timestamps, tx.options.sack, tx.options.ecn),
            window_scale: self.agreed.window_scale.map(|(ours, theirs)| (theirs, ours)),
            memory: tx.buffer.memory() + rx.buffer.memory(),
            soft_error: self.soft_error,
            sent: tx.counts,
            received: rx.counts,
        }
    }

    /// Begins to record segments, at most `max` between two calls of [`Connection::take_trace`].
    pub fn start_trace(&mut self, max: usize) {
        self.trace = Some(Box::new(SegmentTrace::new(max)));
    }

    /// The segments since the last call, and how many found no room.
    pub fn take_trace(&mut self) -> (Vec<SegmentRecord>, u64) {
        self.trace.as_mut().map(|trace| trace.take()).unwrap_or_default()
    }
}
