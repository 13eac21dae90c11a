//! UDP datagrams: received ones validated and queued for their socket, sent ones given a header.
//!
//! Lengths and ports are checked as RFC 768 and RFC 8200 §8.1 say; the checksum is verified in one pass unless a
//! device did. How a payload is copied and summed is a [`CopyPolicy`], because its cost is measured.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use plumb_copy::{Sum16, copy_and_sum, sum};
use plumb_wire::checksum::PseudoHeader;
use plumb_wire::ip::{Ecn, IpProtocol};
use plumb_wire::ipv4;
use plumb_wire::machine::PortId;
use plumb_wire::malformed::FormatError;
use plumb_wire::packet::{ChecksumState, Packet, PacketMeta, Pool};
use plumb_wire::udp::{self, CHECKSUM_OFFSET, HEADER_LEN};

use super::{InboundDatagram, UdpId, UdpSocketState, UdpTable, frame_bytes};
use crate::ip::IpIngress;

/// The endpoints of a datagram, and the interface that it came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DatagramEndpoints {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub port: PortId,
}

impl DatagramEndpoints {
    #[inline]
    fn around(self, packet: Packet) -> InboundDatagram {
        InboundDatagram { packet, remote: self.remote, local: self.local, port: self.port }
    }
}

/// What happened to a datagram for a socket, or to the segments of a super-segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpDelivery {
    /// Their socket.
    pub socket: UdpId,
    /// Datagrams in its queue.
    pub delivered: usize,
    /// Datagrams dropped because its queue was full.
    pub queue_full: usize,
    /// Datagrams dropped for want of a free frame.
    pub no_memory: usize,
}

impl UdpDelivery {
    const fn none(socket: UdpId) -> Self {
        Self { socket, delivered: 0, queue_full: 0, no_memory: 0 }
    }
}

/// Why a datagram was not put into a socket's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpDrop {
    /// Malformed.
    Malformed(FormatError),
    /// Its destination port is 0.
    PortZero,
    /// No socket is bound to its destination.
    NoSocket,
    /// The socket's queue is full, by packets or by bytes.
    QueueFull,
}

impl UdpTable {
    /// Queues a datagram, whose packet is untrimmed, for its socket; of a super-segment, as many of its
    /// datagrams as there is room for.
    ///
    /// # Errors
    /// Returns the packet, as it came, with the reason.
    #[inline]
    pub fn handle_datagram(
        &mut self,
        ingress: &IpIngress,
        mut packet: Packet,
        pool: &mut Pool,
    ) -> Result<UdpDelivery, (Packet, UdpDrop)> {
        let header = match parse(ingress, &packet, &pool.bytes(&packet)[ingress.at..ingress.end]) {
            Ok(header) => header,
            Err(refused) => return Err((packet, refused)),
        };
        let local = SocketAddr::new(ingress.destination, header.destination);
        let remote = SocketAddr::new(ingress.source, header.source);
        let id = self.lookup(local, remote);
        let Some((id, socket)) = id.and_then(|id| Some((id, self.socket_mut(id)?))) else {
            return Err((packet, UdpDrop::NoSocket));
        };
        let ends = DatagramEndpoints { local, remote, port: ingress.port };
        let whole = socket.options.super_segments;
        let Some(segments) = packet.meta.segments.filter(|_| !whole) else {
            let range = (ingress.at, ingress.at + header.len);
            return match self.enqueue(id, ends, range, ingress.ecn, packet, pool) {
                Ok(()) => Ok(UdpDelivery { delivered: 1, ..UdpDelivery::none(id) }),
                Err(packet) => Err((packet, UdpDrop::QueueFull)),
            };
        };
        let size = usize::from(segments.size);
        pool.truncate(&mut packet, ingress.at + header.len);
        pool.trim_front(&mut packet, ingress.at);
        packet.meta.ecn = ingress.ecn;
        let mut delivery = UdpDelivery::none(id);
        socket.push_segments(size, header.len, &packet, ends, &mut delivery, pool);
        pool.free(packet);
        if delivery.delivered > 0 {
            self.announce(id);
        }
        Ok(delivery)
    }

    /// Queues for a socket the datagram that lies at `from..to` of its packet.
    ///
    /// # Errors
    /// Returns the packet, as it came, when the queue is full.
    #[inline]
    pub(crate) fn enqueue(
        &mut self,
        id: UdpId,
        ends: DatagramEndpoints,
        (from, to): (usize, usize),
        ecn: Ecn,
        packet: Packet,
        pool: &mut Pool,
    ) -> Result<(), Packet> {
        let Some(socket) = self.socket_mut(id) else { return Err(packet) };
        if !socket.has_room(&packet, pool) {
            return Err(packet);
        }
        let datagram = socket.push(ends.around(packet), pool);
        // Trimmed in place: modifying a packet just before moving it causes a store-forwarding stall.
        pool.truncate(&mut datagram.packet, to);
        pool.trim_front(&mut datagram.packet, from + HEADER_LEN);
        datagram.packet.meta.ecn = ecn;
        if !socket.announced {
            self.announce(id);
        }
        Ok(())
    }

    fn announce(&mut self, id: UdpId) {
        let Some(socket) = self.socket_mut(id) else { return };
        if !std::mem::replace(&mut socket.announced, true) {
            self.readable.push_back(id);
        }
    }
}

impl UdpSocketState {
    /// Whether the packet may be queued.
    #[inline]
    fn has_room(&self, packet: &Packet, pool: &Pool) -> bool {
        self.queue.len() < self.options.receive_packets
            && self.held + frame_bytes(packet, pool) <= self.options.receive_bytes
    }

    #[inline]
    fn push(&mut self, datagram: InboundDatagram, pool: &Pool) -> &mut InboundDatagram {
        self.held += frame_bytes(&datagram.packet, pool);
        self.queue.push_back(datagram);
        self.queue.back_mut().expect("one was put there")
    }

    /// Queues the datagrams of a super-segment of `len` bytes, each in its own frame, and counts the fate of
    /// each.
    fn push_segments(
        &mut self,
        size: usize,
        len: usize,
        super_segment: &Packet,
        ends: DatagramEndpoints,
        delivery: &mut UdpDelivery,
        pool: &mut Pool,
    ) {
        let mut at = HEADER_LEN;
        loop {
            let end = len.min(at + size.max(1));
            let fate = match cut(super_segment, at..end, pool) {
                Some(packet) if self.has_room(&packet, pool) => {
                    self.push(ends.around(packet), pool);
                    &mut delivery.delivered
                }
                Some(packet) => {
                    pool.free(packet);
                    &mut delivery.queue_full
                }
                None => &mut delivery.no_memory,
            };
            *fate += 1;
            // An empty one is one datagram.
            if end >= len {
                break;
            }
            at = end;
        }
    }
}

/// The payload of one datagram of a super-segment; `None` when no frame is free.
fn cut(super_segment: &Packet, range: Range<usize>, pool: &mut Pool) -> Option<Packet> {
    let mut packet = pool.copy_of(super_segment, range)?;
    packet.meta = PacketMeta { segments: None, ..super_segment.meta };
    Some(packet)
}

struct CheckedUdpHeader {
    source: u16,
    destination: u16,
    /// Bytes of header and payload.
    len: usize,
}

#[inline]
fn parse(ingress: &IpIngress, packet: &Packet, bytes: &[u8]) -> Result<CheckedUdpHeader, UdpDrop> {
    // IP may carry more than the datagram, which is cut off, as Linux does.
    let datagram = udp::UdpDatagram::parse(bytes).map_err(UdpDrop::Malformed)?;
    let destination = datagram.destination_port();
    if destination == 0 {
        return Err(UdpDrop::PortZero);
    }
    if packet.meta.checksum == ChecksumState::Plain {
        let verified = match (ingress.source, ingress.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                datagram.verify_v4(PseudoHeader::v4(source, destination, IpProtocol::UDP))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                datagram.verify_v6(PseudoHeader::v6(source, destination, IpProtocol::UDP))
            }
            _ => Err(FormatError::Version),
        };
        verified.map_err(UdpDrop::Malformed)?;
    }
    let len = HEADER_LEN + datagram.payload().len();
    Ok(CheckedUdpHeader { source: datagram.source_port(), destination, len })
}

/// The largest payload over IPv4; over IPv6 it is [`plumb_wire::udp::PAYLOAD_LEN_MAX`].
pub(crate) const PAYLOAD_MAX_V4: usize = ipv4::PACKET_LEN_MAX - ipv4::HEADER_LEN - HEADER_LEN;

/// How a payload is copied into a packet and summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyPolicy {
    /// Copied and summed in one pass.
    #[default]
    Fused,
    /// Copied, then summed.
    Separate,
    /// Copied only, without a checksum; over IPv6, which requires one (RFC 8200 §8.1), summed as well.
    NoChecksum,
}

/// What is known about the sum of a payload.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PayloadSum {
    /// The sum.
    Known(Sum16),
    /// Not summed yet.
    Unknown,
    /// No checksum wanted, if the family allows that.
    Unwanted,
    /// The device sums it.
    Offloaded,
}

impl PayloadSum {
    /// What is to be done on a path: over IPv6 there must be a checksum (RFC 8200 §8.1), and a device may
    /// compute it.
    #[inline]
    pub fn on_path(self, is_ipv4: bool, is_offloaded: bool) -> Self {
        match self {
            Self::Unwanted if is_ipv4 => Self::Unwanted,
            _ if is_offloaded => Self::Offloaded,
            Self::Unwanted => Self::Unknown,
            known => known,
        }
    }

    /// The header between these ports before a payload, with its checksum.
    #[inline]
    pub fn header(
        self,
        (source, destination): (u16, u16),
        pseudo: PseudoHeader,
        payload: &Packet,
        pool: &Pool,
    ) -> udp::UdpHeader {
        let header = udp::UdpHeader::new(source, destination, payload.len());
        match self {
            Self::Known(sum) => header.with_checksum(pseudo, sum),
            Self::Unknown => header.with_checksum(pseudo, sum(pool.bytes(payload))),
            Self::Unwanted => header,
            Self::Offloaded => header.with_partial(pseudo),
        }
    }

    /// The state of the checksum of a packet whose UDP header is at `start`.
    #[inline]
    pub fn checksum_state(self, start: usize) -> ChecksumState {
        if let Self::Offloaded = self {
            let start = u16::try_from(start).expect("behind headers");
            ChecksumState::Partial { start, offset: CHECKSUM_OFFSET }
        } else {
            ChecksumState::Plain
        }
    }
}

/// A packet with a copy of `payload`, and its sum as `policy` says.
///
/// `None` when the pool has no frame for it.
#[inline]
pub(crate) fn copied(
    payload: &[u8],
    policy: CopyPolicy,
    pool: &mut Pool,
) -> Option<(Packet, PayloadSum)> {
    let mut packet = pool.allocate_for(payload.len())?;
    let Some(room) = pool.append(&mut packet, payload.len()) else {
        pool.free(packet);
        return None;
    };
    let known = match policy {
        CopyPolicy::Fused => PayloadSum::Known(copy_and_sum(payload, room)),
        CopyPolicy::Separate => {
            room.copy_from_slice(payload);
            PayloadSum::Known(sum(room))
        }
        CopyPolicy::NoChecksum => {
            room.copy_from_slice(payload);
            PayloadSum::Unwanted
        }
    };
    Some((packet, known))
}

/// Prepends a UDP header, with `payload` as it is [on the path](PayloadSum::on_path).
///
/// A partial checksum's `start` is 0: prepending further headers moves it. Panics without headroom, for
/// addresses of two families, or for a payload longer than [`PAYLOAD_MAX_V4`].
#[inline]
pub(crate) fn prepend_header(
    source: SocketAddr,
    destination: SocketAddr,
    payload: PayloadSum,
    packet: &mut Packet,
    pool: &mut Pool,
) {
    let pseudo = PseudoHeader::between(source.ip(), destination.ip(), IpProtocol::UDP)
        .expect("both ends are of one family");
    let header = payload.header((source.port(), destination.port()), pseudo, packet, pool);
    packet.meta.checksum = payload.checksum_state(0);
    header.emit(pool.prepend(packet, HEADER_LEN));
}
