//! TCP between the packets of a host and its connections: segments that arrived, and those of connections whose turn it is to send.

use std::net::{IpAddr, SocketAddr};

use plumb_base::time::{Instant, Span};
use plumb_copy::Sum16;
use plumb_wire::checksum::PseudoHeader;
use plumb_wire::ip::{IpProtocol, TrafficClass};
use plumb_wire::machine::PortId;
use plumb_wire::packet::{ChecksumState, HEADROOM, Packet, Pool, SegmentKind, SegmentationInfo};
use plumb_wire::tcp::{CHECKSUM_OFFSET, PlainTcpHeader, TcpHeader, TcpSegment};
use plumb_wire::{ethernet, ipv4, ipv6};

use super::IpHost;
use super::send::{header_v4, header_v6};
use crate::counters::{CounterId, ProtocolLayer};
use crate::interface::Interfaces;
use crate::ip::{IpEgress, IpIngress, Rejection};
use crate::prediction::{FlowOwner, FrameHead};
use crate::routing::{NextHopLink, OutputPath, PathError, Routing};
use crate::tcp::segment::{InboundSegment, OutboundSegment};
use crate::tcp::{PathLimits, TcpEnds, TcpEntry, TcpPath, TcpReply};

/// When connections that found no free frame try again, if nothing happens before.
const RETRY: Span = Span::from_ms(1);

/// Most payload of a super-segment: an IP packet of 65,535 bytes with the largest headers.
const SUPER_SEGMENT_MAX: u32 = 65_535 - 40 - 60;

/// Payload that is worth being written from where it lies: below, a copy costs less than another part of a write.
const GATHERED_MIN: usize = 4_096;

/// What is assumed of a path that routing does not have.
const UNROUTED: TcpPath =
    TcpPath { limits: PathLimits { mtu: 1_280, super_segment: 0 }, port: PortId(0) };

/// Why a connection stopped sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnEnd {
    /// It has no more, or has had its turn.
    Done,
    /// The device takes no more.
    Interrupted,
    /// No frame is free.
    NoMemory,
}

impl IpHost {
    /// Receives a TCP segment, whose packet is untrimmed, or one that a device joined of several.
    #[inline]
    pub(super) fn receive_tcp(&mut self, ingress: &IpIngress, packet: Packet, pool: &mut Pool) {
        let bytes = &pool.bytes(&packet)[ingress.at..ingress.end];
        let (ends, mut segment) = match read(ingress, &packet, bytes) {
            Ok(read) => read,
            Err(rejection) => return self.reject(rejection, packet, pool),
        };
        let (core, routing, interfaces) = (&mut self.core, &mut self.routing, &self.interfaces);
        let moment = (core.now, self.neighbors.generation());
        let mut paths = |ends: &TcpEnds| look_up(routing, interfaces, moment, ends, pool);
        let reply = self.tcp.handle_segment(core, &ends, &mut segment, &mut paths);
        if let Some(id) = self.tcp.received_again().filter(|_| packet.meta.segments.is_none())
            && let Some(head) = FrameHead::of(ingress, pool.bytes(&packet))
        {
            let generation = self.receive_generation();
            self.predictions.learn(generation, &head, ingress, FlowOwner::Tcp(id));
        }
        pool.free(packet);
        if let Some(reply) = reply {
            self.send_without_connection(&reply, pool);
        }
    }

    /// Sends the SYN-ACKs that are due again.
    pub(super) fn repeat_syn_acks(&mut self, pool: &mut Pool) {
        loop {
            let (core, routing, interfaces) = (&mut self.core, &mut self.routing, &self.interfaces);
            let moment = (core.now, self.neighbors.generation());
            let mut paths = |ends: &TcpEnds| look_up(routing, interfaces, moment, ends, pool);
            let Some(reply) = self.tcp.poll_half_open(core, &mut paths) else { return };
            self.send_without_connection(&reply, pool);
        }
    }

    fn send_without_connection(&mut self, reply: &TcpReply, pool: &mut Pool) {
        let TcpReply { ends, segment } = reply;
        let Ok(path) = self.current_path(ends.local.ip(), ends.remote.ip()) else {
            self.core.counters.add(CounterId::Originated);
            return self.core.counters.add(CounterId::TxNoRoute);
        };
        match pool.allocate() {
            Some(packet) => self.send_segment(&path, ends, segment, (packet, Sum16::ZERO), pool),
            None => self.core.counters.add(CounterId::NoMemory),
        }
    }

    /// The path of a connection.
    pub(super) fn connection_path(
        &mut self,
        (local, remote): (IpAddr, IpAddr),
        pool: &Pool,
    ) -> Result<(IpAddr, TcpPath), PathError> {
        let path = self.current_path(local, remote)?;
        Ok((path.source, tcp_path(&path, pool)))
    }

    /// Lets connections send by `port`, each in its turn, until `max` frames wait for the device.
    #[inline]
    pub(super) fn poll_connections(&mut self, port: PortId, max: usize, pool: &mut Pool) {
        let max = max.min(self.config.output_queue);
        while self.interfaces[port].queue.len() < max {
            let Some(mut turn) = self.tcp.begin_turn(port) else { return };
            self.tails.connection = turn.index;
            let end = self.take_turn(port, max, &mut turn.entry, pool);
            self.tcp.end_turn(&mut self.core, turn, end != TurnEnd::Done);
            if end == TurnEnd::NoMemory {
                self.core.timers.arm(self.output_timer, self.core.now + RETRY);
                return;
            }
        }
    }

    fn take_turn(
        &mut self,
        port: PortId,
        max: usize,
        entry: &mut TcpEntry,
        pool: &mut Pool,
    ) -> TurnEnd {
        let ends = entry.connection.ends();
        let Ok(path) = self.current_path(ends.local.ip(), ends.remote.ip()) else {
            self.lose_segments(entry);
            return TurnEnd::Done;
        };
        if path.port != port {
            // Routes have changed: it is the other device's, which may have been asked already.
            entry.port = path.port;
            self.core.timers.arm(self.output_timer, self.core.now + RETRY);
            return TurnEnd::Done;
        }
        if path.link == NextHopLink::Unknown && entry.connection.was_acknowledged(self.core.now) {
            self.neighbors.confirm(&mut self.core, port, path.next_hop);
        }
        if entry.connection.take_advice() {
            self.neighbors.doubt(&mut self.core, port, path.next_hop);
        }
        while entry.turn > 0 {
            let room = max.saturating_sub(self.interfaces[port].queue.len());
            if room == 0 {
                return TurnEnd::Interrupted;
            }
            // Frames are at hand before segments are made: what a connection has sent has left it.
            let Some((mut limits, frames)) = frame_limits(&path, pool) else {
                return TurnEnd::NoMemory;
            };
            let is_offloaded = limits.super_segment > 0;
            if !is_offloaded {
                limits.super_segment = run_limit(entry, frames.min(room));
            }
            entry.connection.on_path(limits);
            // Used where it was written: to move it in larger pieces would wait for the writes.
            let mut segment = entry.connection.poll_segment(self.core.now);
            let Some(segment) = &mut segment else { break };
            entry.turn = entry.turn.saturating_sub(segment.len.max(1));
            if is_offloaded || segment.len <= usize::from(segment.size) {
                self.send_data(&path, (&ends, entry), segment, pool);
            } else {
                self.send_run(&path, (&ends, entry), segment, pool);
            }
        }
        TurnEnd::Done
    }

    /// Sends a segment, for which a frame is free.
    #[inline]
    pub(super) fn send_data(
        &mut self,
        path: &OutputPath,
        (ends, entry): (&TcpEnds, &TcpEntry),
        segment: &OutboundSegment,
        pool: &mut Pool,
    ) {
        let gathers = path.capabilities.gathers
            && segment.len >= GATHERED_MIN
            && entry.connection.keeps_content()
            && path.link != NextHopLink::Unknown
            && !path.allow_fragmentation;
        if gathers {
            let mut packet = pool.allocate().expect("a frame was free");
            packet.tail = self.tails.push(segment.seq, segment.len);
            return self.send_segment(path, ends, segment, (packet, Sum16::ZERO), pool);
        }
        let mut packet = pool.allocate_for(segment.len).expect("a frame was free");
        let mut sum = Sum16::ZERO;
        if segment.len > 0 {
            let room = pool.append(&mut packet, segment.len).expect("a frame for the payload");
            let sums = !path.capabilities.checksum_tx;
            sum = entry.connection.copy_payload(segment.seq, room, sums);
        }
        self.send_segment(path, ends, segment, (packet, sum), pool);
    }

    /// A connection without a path: what it sends is lost.
    #[cold]
    fn lose_segments(&mut self, entry: &mut TcpEntry) {
        while entry.connection.poll_segment(self.core.now).is_some() {
            self.core.counters.add(CounterId::Originated);
            self.core.counters.add(CounterId::TxNoRoute);
        }
    }

    /// Writes TCP, IP and link header in one go before a payload with this sum; where the next hop's link address is not known, on the
    /// general path, which sends the same bytes.
    #[inline]
    fn send_segment(
        &mut self,
        path: &OutputPath,
        ends: &TcpEnds,
        segment: &OutboundSegment,
        (mut packet, sum): (Packet, Sum16),
        pool: &mut Pool,
    ) {
        let (source, destination) = (path.source, ends.remote.ip());
        let Some(pseudo) = PseudoHeader::between(source, destination, IpProtocol::TCP) else {
            return pool.free(packet);
        };
        let is_offloaded = path.capabilities.checksum_tx;
        let header = SegmentHeader::new(ends, segment);
        let (header_len, len) = (header.header_len(), header.header_len() + segment.len);
        let egress = IpEgress {
            hop_limit: segment.marks.hop_limit,
            class: TrafficClass::new(segment.marks.dscp, segment.ecn),
            ..IpEgress::new(IpProtocol::TCP, segment.ecn)
        };
        let link = match path.link {
            NextHopLink::Known(mac) => Some(self.link_header(path.port, mac, source.is_ipv4())),
            NextHopLink::Bare | NextHopLink::Unknown => None,
        };
        let is_general = path.link == NextHopLink::Unknown || path.allow_fragmentation;
        let before = if is_general { 0 } else { headers_before(path) };
        let description = (before, header_len, is_offloaded);
        if is_general {
            describe(segment, description, source.is_ipv4(), &mut packet);
            let out = pool.prepend(&mut packet, header_len);
            header.emit((pseudo, segment.len, sum), is_offloaded, out);
            // One that does not fit is counted where that is found.
            let _ = self.send_on_path(path, destination, egress, packet, pool);
            return;
        }
        self.core.counters.add(CounterId::Originated);
        let queue = &mut self.interfaces[path.port].queue;
        if queue.len() >= self.config.output_queue {
            return self.drop_packet(CounterId::TxQueueFull, packet, pool);
        }
        // Queued before it is changed: what is changed and then moved causes a store-forwarding stall.
        queue.push_back(packet);
        let packet = queue.back_mut().expect("it has just been queued");
        describe(segment, description, source.is_ipv4(), packet);
        let is_super_segment = packet.meta.segments.is_some();
        let out = pool.prepend(packet, before + header_len);
        header.emit((pseudo, segment.len, sum), is_offloaded, &mut out[before..]);
        if let Some(link) = link {
            link.emit(out);
        }
        let ip_at = if link.is_some() { ethernet::HEADER_LEN } else { 0 };
        let out = &mut out[ip_at..];
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let mut header = header_v4(source, destination, egress, len);
                if is_super_segment {
                    header.identification = self.core.next_identification();
                }
                header.emit(out);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                header_v6(source, destination, egress, len).emit(out);
            }
            _ => unreachable!("a pseudo-header joins addresses of one family"),
        }
    }
}

/// The segment of a packet, and its ends.
#[inline]
fn read<'a>(
    ingress: &IpIngress,
    packet: &Packet,
    bytes: &'a [u8],
) -> Result<(TcpEnds, InboundSegment<'a>), Rejection> {
    let pseudo = match packet.meta.checksum {
        ChecksumState::Plain => {
            PseudoHeader::between(ingress.source, ingress.destination, IpProtocol::TCP)
        }
        ChecksumState::Verified | ChecksumState::Partial { .. } => None,
    };
    let arrival = (packet.meta.received, ingress.ecn, 1);
    let segment = TcpSegment::parse(bytes)
        .map_err(|error| Rejection::Malformed(ProtocolLayer::Tcp, error))?;
    let mut segment = InboundSegment::new(segment, pseudo, arrival);
    if let Some(joined) = packet.meta.segments.filter(|joined| joined.size > 0) {
        let count = segment.payload.len().div_ceil(joined.size.into()).max(1);
        segment.count = u16::try_from(count).unwrap_or(u16::MAX);
    }
    // RFC 1122 §4.2.3.10.
    if ingress.group || ingress.source.is_unspecified() {
        return Err(Rejection::Drop(CounterId::TcpGroup));
    }
    let port = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let (source_port, destination_port) = (port(0), port(2));
    if source_port == 0 || destination_port == 0 {
        return Err(Rejection::Drop(CounterId::TcpPort));
    }
    let ends = TcpEnds {
        local: SocketAddr::new(ingress.destination, destination_port),
        remote: SocketAddr::new(ingress.source, source_port),
    };
    Ok((ends, segment))
}

/// The header of a segment, in the form that is cheaper to write where that will do.
enum SegmentHeader {
    Plain(PlainTcpHeader),
    General(TcpHeader),
}

impl SegmentHeader {
    #[inline]
    fn new(ends: &TcpEnds, segment: &OutboundSegment) -> Self {
        if segment.options.is_empty() {
            return Self::Plain(PlainTcpHeader {
                source_port: ends.local.port(),
                destination_port: ends.remote.port(),
                seq: segment.seq.wire(),
                ack: segment.ack,
                flags: segment.flags,
                window: segment.window,
                timestamps: segment.timestamps,
            });
        }
        Self::General(TcpHeader {
            source_port: ends.local.port(),
            destination_port: ends.remote.port(),
            seq: segment.seq.wire(),
            ack: segment.ack,
            flags: segment.flags,
            window: segment.window,
            checksum: 0,
            urgent: 0,
            options: segment.option_area(),
        })
    }

    #[inline]
    fn header_len(&self) -> usize {
        match self {
            Self::Plain(header) => header.header_len(),
            Self::General(header) => header.header_len(),
        }
    }

    /// Writes it before a payload of this length and sum, or with a checksum that the device completes.
    #[inline]
    fn emit(
        &self,
        (pseudo, len, sum): (PseudoHeader, usize, Sum16),
        is_offloaded: bool,
        out: &mut [u8],
    ) {
        let partial = is_offloaded.then(|| pseudo.partial(self.header_len() + len));
        match self {
            Self::Plain(header) => {
                let checksum = partial.unwrap_or_else(|| header.checksum(pseudo, len, sum));
                header.emit(checksum, out);
            }
            Self::General(header) => match partial {
                Some(checksum) => TcpHeader { checksum, ..*header }.emit(out),
                None => header.with_checksum(pseudo, len, sum).emit(out),
            },
        }
    }
}

/// Bytes of headers before that of TCP on a path whose next hop is known.
#[inline]
pub(super) fn headers_before(path: &OutputPath) -> usize {
    let link = if path.link == NextHopLink::Bare { 0 } else { ethernet::HEADER_LEN };
    link + if path.source.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN }
}

/// Describes a segment to the device: its checksum, and how to cut it. Its header of `header_len` bytes comes after `before` others.
#[inline]
fn describe(
    segment: &OutboundSegment,
    (before, header_len, is_offloaded): (usize, usize, bool),
    is_ipv4: bool,
    packet: &mut Packet,
) {
    let short = |len: usize| u16::try_from(len).expect("bytes of headers");
    packet.meta.ecn = segment.ecn;
    if is_offloaded {
        let start = short(before);
        packet.meta.checksum = ChecksumState::Partial { start, offset: CHECKSUM_OFFSET };
    }
    if segment.len > usize::from(segment.size) {
        packet.meta.segments = Some(SegmentationInfo {
            kind: if is_ipv4 { SegmentKind::Tcp4 } else { SegmentKind::Tcp6 },
            size: segment.size,
            header_len: short(before + header_len),
        });
    }
}

/// The path between two ends, at a moment with this generation of neighbors.
fn look_up(
    routing: &mut Routing,
    interfaces: &Interfaces,
    (now, neighbors): (Instant, u64),
    ends: &TcpEnds,
    pool: &Pool,
) -> TcpPath {
    let (local, remote) = (ends.local.ip(), ends.remote.ip());
    let path = routing.path(now, interfaces, neighbors, local, remote);
    path.map_or(UNROUTED, |path| tcp_path(&path, pool))
}

/// What a path means to a connection, whatever frames are free.
fn tcp_path(path: &OutputPath, pool: &Pool) -> TcpPath {
    let frames = pool.frames();
    let fits = HEADROOM + path.mtu as usize <= frames.size as usize;
    let room = frames.size - u32::try_from(HEADROOM).expect("a small number");
    let mtu = if fits || frames.large > 0 { path.mtu } else { room };
    let is_super = path.capabilities.segments_tcp && frames.large > 0;
    let super_segment = if is_super { SUPER_SEGMENT_MAX } else { 0 };
    TcpPath { limits: PathLimits { mtu, super_segment }, port: path.port }
}

/// The same with the frames that are free now, and how many segments of one frame they hold; `None` if not one.
#[inline]
fn frame_limits(path: &OutputPath, pool: &Pool) -> Option<(PathLimits, usize)> {
    let (ordinary, large) = pool.available();
    let limits = tcp_path(path, pool).limits;
    let fits = HEADROOM + limits.mtu as usize <= pool.frames().size as usize;
    let frames = if fits { ordinary } else { ordinary.min(large) };
    let super_segment = if large > 0 { limits.super_segment } else { 0 };
    (frames > 0).then_some((PathLimits { super_segment, ..limits }, frames))
}

/// Most payload of a run of segments, in so many frames and what is left of the turn.
#[inline]
fn run_limit(entry: &TcpEntry, frames: usize) -> u32 {
    let payload = usize::from(entry.connection.segment_payload());
    let segments = frames.min(entry.turn.div_ceil(payload));
    u32::try_from(segments * payload).expect("little more than a turn")
}
