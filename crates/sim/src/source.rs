//! Open-loop sources: datagrams at moments that nothing in the network changes.
//!
//! A datagram is as long as its source says to every link, and holds only headers and what its sink wants to know.

use std::net::Ipv4Addr;

use plumb_base::seed::{RandomStream, Seed};
use plumb_base::time::{Instant, Span};
use plumb_link::rate::ConstantRate;
use plumb_wire::compose::PacketTemplate;
use plumb_wire::ip::{Ecn, IpProtocol, TrafficClass};
use plumb_wire::option::OptionArea;
use plumb_wire::packet::{Packet, Pool};
use plumb_wire::tcp::{TcpFlags, TcpHeader};
use plumb_wire::{ipv4, udp};
use rand::Rng as _;

use crate::host::{address_of, service_port};
use crate::scenario::{PACKET_MIN, SendPattern, SourceSpec};

/// Bytes of headers.
const HEADERS: usize = ipv4::HEADER_LEN + udp::HEADER_LEN;
// Behind them the moment at which it was sent, and its length on links.
const _: () = assert!(HEADERS + 8 + 4 == PACKET_MIN as usize, "what a packet holds");
/// Where IPv4's header says what follows it.
const PROTOCOL_OFFSET: usize = 9;
/// The upper half of the network that hosts are numbered in from below.
const FORGED: u32 = 0x0a80_0000;

/// A source, and the account of its sink. What it is, is beside it: there may be a million.
#[derive(Debug)]
pub struct TrafficSource {
    /// The packet without its variable parts.
    template: Box<[u8; PACKET_MIN as usize]>,
    tag: u32,
    clock: ConstantRate,
    stream: RandomStream,
    next: Instant,
    /// Of an on–off source: when it falls silent.
    silent_from: Instant,
    counts: SourceCounts,
    /// Which histogram its delays are counted in.
    pub delays: u32,
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
    /// The source of this number, which tags its packets; its delays are counted in histogram `delays`.
    pub fn new(
        spec: &SourceSpec,
        (index, delays): (u32, u32),
        (from, to): (Ipv4Addr, Ipv4Addr),
        seed: Seed,
        start: Instant,
    ) -> Self {
        let port = u16::try_from(1_024 + index % 64_000).expect("below 65,536");
        let mut template = PacketTemplate::new(from, to);
        template.traffic_class = TrafficClass::new(spec.dscp, Ecn::NotCapable);
        let template = template.udp(port, 9, &[0; 12]);
        let template = template.into_boxed_slice().try_into().expect("headers and 12 bytes");
        let peak = match spec.pattern {
            SendPattern::Constant { rate } | SendPattern::Poisson { rate } => rate,
            SendPattern::OnOff { peak, .. } | SendPattern::Web { peak, .. } => peak,
        };
        let mut source = Self {
            template,
            tag: SOURCE_TAG | index,
            clock: ConstantRate::new(peak),
            stream: seed.stream(&format!("source {index}")),
            next: start + spec.start,
            silent_from: start + spec.start,
            counts: SourceCounts::default(),
            delays,
        };
        if let Some((on, _)) = periods(&spec.pattern) {
            source.silent_from += on.draw(&mut source.stream);
        }
        source
    }

    /// When it sends next; [`Instant::NEVER`] after its end. `start` is that of the simulation.
    pub fn next(&self, spec: &SourceSpec, start: Instant) -> Instant {
        let is_over = spec.stop.is_some_and(|stop| self.next >= start + stop);
        if is_over { Instant::NEVER } else { self.next }
    }

    /// The packet that is due at `now`, and the bytes that links count beyond those it has; `None` without memory.
    pub fn send(
        &mut self,
        spec: &SourceSpec,
        now: Instant,
        pool: &mut Pool,
    ) -> Option<(Packet, u32)> {
        let size = if spec.is_size_exponential {
            bytes(exponential(&mut self.stream) * f64::from(spec.size))
        } else {
            spec.size
        };
        let size = size.max(PACKET_MIN);
        self.schedule(spec, now, size);
        let packet = match spec.floods {
            Some(group) => pool.packet_of(&self.forged_syn(spec.to, service_port(group))),
            None => pool.packet_of(&self.template[..]),
        };
        let mut packet = packet?;
        if spec.floods.is_none() {
            let payload = &mut pool.bytes_mut(&mut packet)[HEADERS..];
            payload[..8].copy_from_slice(&now.since_origin().as_ps().to_be_bytes());
            payload[8..12].copy_from_slice(&size.to_be_bytes());
        }
        packet.meta.flow = self.tag;
        self.counts.sent += 1;
        self.counts.sent_bytes += u64::from(size);
        Some((packet, size.saturating_sub(PACKET_MIN)))
    }

    /// A SYN from an address that no node has.
    fn forged_syn(&mut self, to: u32, port: u16) -> Vec<u8> {
        let [a, b, c, d, seq @ ..] = self.stream.next_u64().to_be_bytes();
        let header = TcpHeader {
            source_port: u16::from_be_bytes([a | 0x80, b]),
            destination_port: port,
            seq: u32::from_be_bytes(seq),
            ack: 0,
            flags: TcpFlags::SYN,
            window: u16::MAX,
            checksum: 0,
            urgent: 0,
            options: OptionArea::EMPTY,
        };
        let from = Ipv4Addr::from_bits(FORGED | u32::from_be_bytes([0, 0, c, d]));
        PacketTemplate::new(from, address_of(to)).tcp(header, &[])
    }

    /// A SYN of it has arrived.
    pub fn receive_syn(&mut self) {
        self.counts.received += 1;
        self.counts.received_bytes += u64::from(PACKET_MIN);
    }

    fn schedule(&mut self, spec: &SourceSpec, now: Instant, size: u32) {
        let bits = u64::from(size) * 8;
        if let SendPattern::Poisson { rate } = spec.pattern {
            let mean = f64::from(spec.size) * 8e12 / rate.bits_per_second() as f64;
            self.next = now + picoseconds(exponential(&mut self.stream) * mean);
            return;
        }
        self.next = self.clock.finish(now, bits);
        let Some((on, off)) = periods(&spec.pattern) else { return };
        while self.next >= self.silent_from {
            let begins = self.silent_from + off.draw(&mut self.stream);
            self.next = self.next.max(begins);
            self.silent_from = begins + on.draw(&mut self.stream);
        }
    }

    /// A packet of it has arrived, which took as long as is returned; `None` of one that is no such packet.
    pub fn receive(&mut self, now: Instant, packet: &[u8]) -> Option<Span> {
        let field = |at: usize| packet.get(HEADERS + at..).and_then(<[u8]>::first_chunk);
        let (sent, size) = (field(0).copied()?, packet.get(HEADERS + 8..)?);
        let sent = Instant::after_origin(Span::from_ps(u64::from_be_bytes(sent)));
        let size = size.first_chunk()?;
        self.counts.received += 1;
        self.counts.received_bytes += u64::from(u32::from_be_bytes(*size));
        Some(now.saturating_since(sent))
    }

    /// What it sent and what arrived.
    pub fn counts(&self) -> SourceCounts {
        self.counts
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
    let bytes = pool.bytes(packet);
    if bytes.get(PROTOCOL_OFFSET) == Some(&IpProtocol::TCP.0) {
        return 0;
    }
    let size = bytes.get(HEADERS + 8..).and_then(<[u8]>::first_chunk);
    size.map_or(0, |size| u32::from_be_bytes(*size).saturating_sub(PACKET_MIN))
}

/// Durations of a mean in picoseconds: exponential, or Pareto's of a shape above 1.
#[derive(Clone, Copy, Debug)]
struct PeriodDistribution {
    mean: f64,
    shape: Option<f64>,
}

impl PeriodDistribution {
    fn draw(self, stream: &mut RandomStream) -> Span {
        picoseconds(match self.shape {
            None => exponential(stream) * self.mean,
            Some(shape) => self.mean * (shape - 1.0) / shape * open_unit(stream).powf(-1.0 / shape),
        })
    }
}

/// How long a source sends, and is silent, where it does either for a time.
fn periods(pattern: &SendPattern) -> Option<(PeriodDistribution, PeriodDistribution)> {
    let law = |mean: Span, shape| PeriodDistribution { mean: mean.as_ps() as f64, shape };
    match *pattern {
        SendPattern::OnOff { on, off, shape, .. } => Some((law(on, shape), law(off, shape))),
        SendPattern::Web { peak, page, shape, think } => {
            let mean = page as f64 * 8e12 / peak.bits_per_second() as f64;
            Some((PeriodDistribution { mean, shape: Some(shape) }, law(think, None)))
        }
        SendPattern::Constant { .. } | SendPattern::Poisson { .. } => None,
    }
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
