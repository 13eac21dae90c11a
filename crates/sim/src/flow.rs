//! One TCP connection of a simulation: what it has to send, all at once or by an application that writes lines at a rate or
//! what another connection brought, and what was seen of it.

use plumb_base::stats::sparse_histogram::SparseHistogram;
use plumb_base::time::{Instant, Span};
use plumb_stack::tcp::{ReceiverCounts, SenderCounts, TcpId, TcpInfo};

use crate::scenario::{FlowSpec, TimedWrites};

/// One connection.
#[derive(Debug)]
pub struct SimulatedFlow {
    /// What was asked for.
    pub spec: FlowSpec,
    /// Its group.
    pub group: u32,
    /// The sending end, once it is open.
    pub client: Option<TcpId>,
    /// The receiving end, once it is accepted.
    pub server: Option<TcpId>,
    /// Bytes that are still to be written.
    pub left: u64,
    /// The application that writes at times, or relays.
    pub application: Option<Box<FlowApplication>>,
    /// When everything had arrived, or it was aborted.
    pub ended: Option<Instant>,
    /// Why it failed.
    pub error: Option<String>,
    /// Figures when the warm-up ended.
    pub at_warmup: FlowCounts,
    /// Figures last taken of it.
    pub last: FlowCounts,
    /// Samples over time, where they are kept.
    pub series: Vec<FlowSample>,
    rtt_sum: Span,
    rtt_samples: u64,
    /// Least round trip.
    pub rtt_min: Option<Span>,
    /// Round trip last measured, smoothed.
    pub srtt: Option<Span>,
}

/// Counters of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct FlowCounts {
    /// By the sender.
    pub sent: SenderCounts,
    /// By the receiver.
    pub received: ReceiverCounts,
}

/// A connection at a moment.
#[derive(Clone, Copy, Debug)]
pub struct FlowSample {
    /// Since the beginning.
    pub at: Span,
    /// Congestion window, in bytes.
    pub cwnd: u64,
    /// Bytes in flight.
    pub flight: u64,
    /// Smoothed round trip.
    pub srtt: Option<Span>,
    /// Bytes received in sequence so far.
    pub received: u64,
}

impl SimulatedFlow {
    /// One that is not open.
    pub fn new(spec: FlowSpec, group: u32) -> Self {
        Self {
            spec,
            group,
            client: None,
            server: None,
            left: spec.bytes.unwrap_or(u64::MAX),
            application: None,
            ended: None,
            error: None,
            at_warmup: FlowCounts::default(),
            last: FlowCounts::default(),
            series: Vec::new(),
            rtt_sum: Span::ZERO,
            rtt_samples: 0,
            rtt_min: None,
            srtt: None,
        }
    }

    /// The application that writes it, where it has not all its bytes at once.
    pub fn writer(&mut self) -> Option<&mut FlowApplication> {
        self.application.as_deref_mut().filter(|it| it.writes.is_some() || it.upstream.is_some())
    }

    /// Bytes that can be written now.
    pub fn ready(&mut self) -> u64 {
        let left = self.left;
        self.writer().map_or(left, |application| application.ready.min(left))
    }

    /// Takes figures of both ends, as far as there are any.
    pub fn observe(&mut self, client: Option<&TcpInfo>, server: Option<&TcpInfo>) {
        if let Some(client) = client {
            self.last.sent = client.sent;
            self.srtt = client.srtt.or(self.srtt);
            self.rtt_min = client.rtt_min.or(self.rtt_min);
        }
        if let Some(server) = server {
            self.last.received = server.received;
        }
    }

    /// Takes what only its receiving end knows from what another part of the simulation keeps of that.
    pub fn add_receiver(&mut self, receiver: &Self) {
        self.server = receiver.server;
        if receiver.last.received.segments > self.last.received.segments {
            self.last.received = receiver.last.received;
        }
        let is_first = receiver.ended.is_some_and(|at| self.ended.is_none_or(|own| at < own));
        if is_first || self.error.is_none() {
            self.error = receiver.error.clone().or(self.error.take());
        }
        self.ended = self.ended.into_iter().chain(receiver.ended).min();
    }

    /// It has ended, unless it had before; whether it had not.
    pub fn end(&mut self, now: Instant) -> bool {
        self.ended.replace(self.ended.unwrap_or(now)).is_none()
    }

    /// Counts a sample of the round trip.
    pub fn sample_rtt(&mut self, srtt: Option<Span>) {
        if let Some(srtt) = srtt {
            self.rtt_sum += srtt;
            self.rtt_samples += 1;
        }
    }

    /// Mean of the sampled round trips.
    pub fn rtt_mean(&self) -> Option<Span> {
        (self.rtt_samples > 0).then(|| self.rtt_sum / self.rtt_samples)
    }

    /// The warm-up has ended: what was counted until now does not count.
    pub fn end_warmup(&mut self) {
        self.at_warmup = self.last;
        (self.rtt_sum, self.rtt_samples) = (Span::ZERO, 0);
        if let Some(application) = &mut self.application {
            application.delays = SparseHistogram::new();
        }
    }
}

/// Bytes that a host holds for a connection that it passes on to another, at most.
pub(crate) const RELAY_BUFFER: u64 = 32 << 10;

/// The application at the ends of a connection.
#[derive(Clone, Debug, Default)]
pub struct FlowApplication {
    /// When it writes, if it does so at times.
    pub writes: Option<TimedWrites>,
    /// The connection whose bytes are passed on by this one.
    pub upstream: Option<u32>,
    /// The connection that passes this one's bytes on.
    pub downstream: Option<u32>,
    /// The connection at whose beginning the bytes that end here are written at times.
    pub origin: Option<u32>,
    /// Bytes to be written now.
    pub ready: u64,
    /// Bytes that were read.
    pub read: u64,
    /// From when a write was due until it was read, where it ends.
    pub delays: SparseHistogram,
    /// When it wrote first.
    begun: Option<Instant>,
    /// Writes that were due so far.
    made: u64,
}

impl FlowApplication {
    /// Makes what is due by `now`, the first at the first call; when the next is.
    pub fn make(&mut self, now: Instant) -> Option<Instant> {
        let writes = self.writes?;
        let begun = *self.begun.get_or_insert(now);
        let due = now.saturating_since(begun).as_ps() / writes.interval.as_ps().max(1) + 1;
        self.ready += (due - self.made) * u64::from(writes.bytes);
        self.made = due;
        Some(begun + writes.interval * due)
    }

    /// When it wrote first, and how.
    pub fn times(&self) -> Option<(Instant, TimedWrites)> {
        Some((self.begun?, self.writes?))
    }

    /// Bytes have been read where they end, that were written at these times.
    pub fn end_reading(&mut self, now: Instant, len: u64, times: (Instant, TimedWrites)) {
        let (begun, writes) = times;
        let known = self.read / u64::from(writes.bytes);
        self.read += len;
        for number in known..self.read / u64::from(writes.bytes) {
            self.delays.record(now.saturating_since(begun + writes.interval * number).as_ns());
        }
    }
}
