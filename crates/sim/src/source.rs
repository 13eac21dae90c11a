//! Open-loop sources: datagrams at moments that nothing in the network changes.
//!
//! A datagram is as long as its source says to every link, and holds only headers and what its sink wants to know.

use std::net::Ipv4Addr;

use plumb_base::seed::{RandomStream, Seed};
use plumb_base::stats::histogram::Histogram;
use plumb_base::time::{Instant, Span};
use plumb_link::rate::ConstantRate;
use plumb_wire::compose::PacketTemplate;
use plumb_wire::packet::{Packet, Pool};
use plumb_wire::{ipv4, udp};
use rand::Rng as _;

use crate::scenario::{PACKET_MIN, SendPattern, SourceSpec};

/// Bytes of headers.
const HEADERS: usize = ipv4::HEADER_LEN + udp::HEADER_LEN;
// Behind them the moment at which it was sent, and its length on links.
const _: () = assert!(HEADERS + 8 + 4 == PACKET_MIN as usize, "what a packet holds");
/// A source, and the account of its sink.
#[derive(Debug)]
pub struct TrafficSource {
    spec: SourceSpec,
    start: Instant,
    /// The packet without its variable parts.
    template: Vec<u8>,
    tag: u32,
    clock: ConstantRate,
    stream: RandomStream,
    next: Instant,
    /// Of an on–off source: when it falls silent.
    silent_from: Instant,
    counts: SourceCounts,
    delays: Histogram,
}

/// What a source sent and what arrived of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceCounts {
    /// Packets sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that arrived.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
}

impl TrafficSource {
    /// The source of this number, which tags its packets.
    pub fn new(
        spec: &SourceSpec,
        index: u32,
        (from, to): (Ipv4Addr, Ipv4Addr),
        seed: Seed,
        start: Instant,
    ) -> Self {
        let port = u16::try_from(1_024 + index % 64_000).expect("below 65,536");
        let template = PacketTemplate::new(from, to).udp(port, 9, &[0; 12]);
        let peak = match spec.pattern {
            SendPattern::Constant { rate } | SendPattern::Poisson { rate } => rate,
            SendPattern::OnOff { peak, .. } => peak,
        };
        let mut source = Self {
            start,
            template,
            tag: SOURCE_TAG | index,
            clock: ConstantRate::new(peak),
            stream: seed.stream(&format!("source {index}")),
            next: start + spec.start,
            silent_from: start + spec.start,
            counts: SourceCounts::default(),
            delays: Histogram::new(),
            spec: spec.clone(),
        };
        if let SendPattern::OnOff { on, shape, .. } = spec.pattern {
            source.silent_from += draw_period(&mut source.stream, on, shape);
        }
        source
    }

    /// When it sends next; [`Instant::NEVER`] after its end.
    pub fn next(&self) -> Instant {
        let is_over = self.spec.stop.is_some_and(|stop| self.next >= self.start + stop);
        if is_over { Instant::NEVER } else { self.next }
    }

    /// The packet that is due at `now`, and the bytes that links count beyond those it has; `None` without memory.
    pub fn send(&mut self, now: Instant, pool: &mut Pool) -> Option<(Packet, u32)> {
        let size = if self.spec.is_size_exponential {
            bytes(exponential(&mut self.stream) * f64::from(self.spec.size))
        } else {
            self.spec.size
        };
        let size = size.max(PACKET_MIN);
        self.schedule(now, size);
        let mut packet = pool.packet_of(&self.template)?;
        let payload = &mut pool.bytes_mut(&mut packet)[HEADERS..];
        payload[..8].copy_from_slice(&now.since_origin().as_ps().to_be_bytes());
        payload[8..12].copy_from_slice(&size.to_be_bytes());
        packet.meta.flow = self.tag;
        self.counts.sent += 1;
        self.counts.sent_bytes += u64::from(size);
        Some((packet, size.saturating_sub(PACKET_MIN)))
    }

    fn schedule(&mut self, now: Instant, size: u32) {
        let bits = u64::from(size) * 8;
        match self.spec.pattern {
            SendPattern::Constant { .. } => self.next = self.clock.finish(now, bits),
            SendPattern::Poisson { rate } => {
                let mean = f64::from(self.spec.size) * 8e12 / rate.bits_per_second() as f64;
                self.next = now + picoseconds(exponential(&mut self.stream) * mean);
            }
            SendPattern::OnOff { on, off, shape, .. } => {
                self.next = self.clock.finish(now, bits);
                while self.next >= self.silent_from {
                    let silence = draw_period(&mut self.stream, off, shape);
                    let begins = self.silent_from + silence;
                    self.next = self.next.max(begins);
                    self.silent_from = begins + draw_period(&mut self.stream, on, shape);
                }
            }
        }
    }

    /// A packet of it has arrived.
    pub fn receive(&mut self, now: Instant, packet: &[u8]) {
        let field = |at: usize| packet.get(HEADERS + at..).and_then(<[u8]>::first_chunk);
        let (Some(sent), Some(size)) = (field(0).copied(), packet.get(HEADERS + 8..)) else {
            return;
        };
        let sent = Instant::after_origin(Span::from_ps(u64::from_be_bytes(sent)));
        let Some(size) = size.first_chunk() else { return };
        self.counts.received += 1;
        self.counts.received_bytes += u64::from(u32::from_be_bytes(*size));
        self.delays.record(now.saturating_since(sent).as_ns());
    }

    /// What it is.
    pub fn spec(&self) -> &SourceSpec {
        &self.spec
    }

    /// What it sent and what arrived.
    pub fn counts(&self) -> SourceCounts {
        self.counts
    }

    /// One-way delays of what arrived, in nanoseconds.
    pub fn delays(&self) -> &Histogram {
        &self.delays
    }

    /// Forgets the delays so far.
    pub fn clear_delays(&mut self) {
        self.delays = Histogram::new();
    }
}

/// Set in the tag of a source's packet, beside the source's number; in that of a host's there is the node that it goes to.
const SOURCE_TAG: u32 = 1 << 31;

/// Tags a packet of a host.
#[inline]
pub fn set_destination(packet: &mut Packet, node: u32) {
    debug_assert!(node < SOURCE_TAG, "nodes were counted");
    packet.meta.flow = node;
}

/// The node that a packet of a host goes to, or the number of the source that sent it.
///
/// # Errors
/// The source.
#[inline]
pub fn destination_or_source(packet: &Packet) -> Result<u32, u32> {
    let tag = packet.meta.flow;
    if tag & SOURCE_TAG == 0 { Ok(tag) } else { Err(tag ^ SOURCE_TAG) }
}

/// The bytes that links count beyond those that a packet has.
#[inline]
pub fn extra_len(packet: &Packet, pool: &Pool) -> u32 {
    if packet.meta.flow & SOURCE_TAG == 0 {
        return 0;
    }
    let size = pool.bytes(packet).get(HEADERS + 8..).and_then(<[u8]>::first_chunk);
    size.map_or(0, |size| u32::from_be_bytes(*size).saturating_sub(PACKET_MIN))
}

/// A duration of this mean: Pareto's of a shape above 1, or exponential.
fn draw_period(stream: &mut RandomStream, mean: Span, shape: Option<f64>) -> Span {
    let mean = mean.as_ps() as f64;
    picoseconds(match shape {
        None => exponential(stream) * mean,
        Some(shape) => mean * (shape - 1.0) / shape * open_unit(stream).powf(-1.0 / shape),
    })
}

/// Exponentially distributed with mean 1.
fn exponential(stream: &mut RandomStream) -> f64 {
    -open_unit(stream).ln()
}

/// A number between 0 and 1, neither included.
pub(crate) fn open_unit(stream: &mut RandomStream) -> f64 {
    ((stream.next_u64() >> 11) as f64 + 0.5) / 9_007_199_254_740_992.0
}

/// At least one, so that time goes on.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates"
)]
fn picoseconds(ps: f64) -> Span {
    Span::from_ps((ps.round() as u64).max(1))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates"
)]
fn bytes(bytes: f64) -> u32 {
    bytes.round() as u32
}
