//! Super-segments cut into the packets that they stand for, for devices that do not do it themselves.
//!
//! TCP and UDP over both families. Left out: making super-segments of packets, which
//! [`crate::coalesce`] does, and whether a device can do without.

use std::ops::Range;

use plumb_copy::{Sum16, copy_and_sum};

use crate::checksum::{PseudoHeader, nonzero};
use crate::ethernet::{EtherType, EthernetFrame};
use crate::ip::IpProtocol;
use crate::ipv6::extension::Ipv6Extension;
use crate::machine::Medium;
use crate::packet::{Batch, ChecksumState, Packet, PacketMeta, Pool, SegmentKind};
use crate::{ipv4, ipv6, tcp, udp};

/// Who completes the checksums of the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentChecksums {
    /// They are made here, while the payload is copied.
    Complete,
    /// The device: they are left partial.
    Partial,
}

/// Why a super-segment was not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// It is none, or its headers are not what it says.
    Impossible,
    /// There were not enough free frames.
    NoMemory,
}

/// Cuts a super-segment, as it would be handed to a device of `medium`, and appends its segments to
/// `out`; its own frame is freed.
///
/// Each segment repeats the headers, with its own lengths, identification (counting up) and sequence
/// number; FIN and PSH are on the last only, CWR on the first. A UDP checksum of 0, over IPv4,
/// remains "none".
///
/// # Errors
/// Gives the packet back, and leaves `out` as it was.
pub fn segment_packet(
    packet: Packet,
    medium: Medium,
    checksums: SegmentChecksums,
    pool: &mut Pool,
    out: &mut Batch,
) -> Result<(), (Packet, SegmentError)> {
    let bytes = pool.bytes(&packet);
    let plan = packet.meta.segments.filter(|segments| segments.size > 0).and_then(|segments| {
        let layout =
            SegmentLayout::of(bytes, medium).filter(|layout| layout.kind == segments.kind)?;
        let pseudo = layout.pseudo(bytes)?;
        let unsummed = !layout.is_tcp()
            && !layout.is_v6()
            && packet.meta.checksum == ChecksumState::Plain
            && layout.checksum_field(bytes) == 0;
        Some(SegmentPlan {
            layout,
            pseudo,
            identification: layout.identification(bytes),
            size: segments.size.into(),
            checksums: if unsummed { None } else { Some(checksums) },
        })
    });
    let Some(plan) = plan else { return Err((packet, SegmentError::Impossible)) };
    let before = out.len();
    let mut at = plan.layout.payload;
    loop {
        let end = packet.len().min(at + plan.size);
        let Some(segment) = plan.segment(at..end, &packet, pool) else {
            for segment in out.drain(before..) {
                pool.free(segment);
            }
            return Err((packet, SegmentError::NoMemory));
        };
        out.push(segment);
        at = end;
        if at == packet.len() {
            break;
        }
    }
    pool.free(packet);
    Ok(())
}

struct SegmentPlan {
    layout: SegmentLayout,
    pseudo: PseudoHeader,
    identification: u16,
    size: usize,
    /// `None`: there are none, and shall be none.
    checksums: Option<SegmentChecksums>,
}

impl SegmentPlan {
    /// The segment with bytes `range` of the super-segment; `None` without a free frame.
    fn segment(&self, range: Range<usize>, packet: &Packet, pool: &mut Pool) -> Option<Packet> {
        let layout = &self.layout;
        let offset = range.start - layout.payload;
        let is_last = range.end == packet.len();
        let mut segment = pool.allocate_for(layout.payload + range.len())?;
        segment.meta = PacketMeta {
            segments: None,
            checksum: match self.checksums {
                Some(SegmentChecksums::Partial) => ChecksumState::Partial {
                    start: u16::try_from(layout.transport).ok()?,
                    offset: layout.checksum_offset(),
                },
                _ => ChecksumState::Plain,
            },
            ..packet.meta
        };
        pool.append_from(&mut segment, packet, 0..layout.payload, |source, target| {
            target.copy_from_slice(source);
        });
        let mut sum = Sum16::ZERO;
        let sums = self.checksums == Some(SegmentChecksums::Complete);
        pool.append_from(&mut segment, packet, range, |source, target| {
            if sums {
                sum += copy_and_sum(source, target);
            } else {
                target.copy_from_slice(source);
            }
        });
        let bytes = pool.bytes_mut(&mut segment);
        let n = u16::try_from(offset / self.size).ok()?;
        layout.set_lengths(bytes, layout.nth_identification(bytes, self.identification, n))?;
        if layout.is_tcp() {
            let at = layout.transport + 4;
            let seq = u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            let seq = seq.wrapping_add(u32::try_from(offset).ok()?);
            bytes[at..at + 4].copy_from_slice(&seq.to_be_bytes());
            let flags = &mut bytes[layout.transport + 13];
            if !is_last {
                *flags &= !TCP_LAST;
            }
            if offset > 0 {
                *flags &= !TCP_FIRST;
            }
        }
        let checksum = match self.checksums {
            None => 0,
            Some(SegmentChecksums::Partial) => self.pseudo.partial(bytes.len() - layout.transport),
            Some(SegmentChecksums::Complete) => layout.checksum(bytes, self.pseudo, sum),
        };
        layout.set_checksum(bytes, checksum);
        Some(segment)
    }
}

/// Flags of TCP that only the last segment may carry, where they lie in octet 13.
pub const TCP_LAST: u8 = 0x01 | 0x08;
/// Congestion window reduced: only on the first (RFC 3168 §6.1.2), as Linux has it.
pub const TCP_FIRST: u8 = 0x80;
/// SYN, RST and URG: never on a super-segment.
pub const TCP_NEVER: u8 = 0x02 | 0x04 | 0x20;

/// Where the headers of a frame lie, in bytes from its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentLayout {
    /// Transport and family.
    pub kind: SegmentKind,
    /// The IP header.
    pub ip: usize,
    /// The transport's header.
    pub transport: usize,
    /// The payload.
    pub payload: usize,
}

impl SegmentLayout {
    /// The layout of a frame; `None` when it is not wholly one TCP segment or UDP datagram.
    #[inline]
    pub fn of(bytes: &[u8], medium: Medium) -> Option<Self> {
        let (ip, is_v6) = match medium {
            Medium::Ethernet => {
                let frame = EthernetFrame::parse(bytes).ok()?;
                match frame.ether_type() {
                    EtherType::IPV4 => (frame.header_len(), false),
                    EtherType::IPV6 => (frame.header_len(), true),
                    _ => return None,
                }
            }
            Medium::Ip => (0, bytes.first()? >> 4 == 6),
        };
        let (transport, protocol, end) = if is_v6 {
            let packet = ipv6::Ipv6Packet::parse(&bytes[ip..]).ok()?;
            let mut extensions = packet.extensions();
            for extension in extensions.by_ref() {
                if let Ipv6Extension::Fragment(_) = extension.ok()? {
                    return None;
                }
            }
            let end = ip + ipv6::HEADER_LEN + packet.payload().len();
            (ip + extensions.payload_at(), extensions.protocol(), end)
        } else {
            let packet = ipv4::Ipv4Packet::parse(&bytes[ip..]).ok()?;
            if packet.fragment_field().is_fragment() {
                return None;
            }
            let transport = ip + packet.header_len();
            (transport, packet.protocol(), transport + packet.payload().len())
        };
        if end != bytes.len() {
            return None;
        }
        let (kind, header_len) = match (protocol, is_v6) {
            (IpProtocol::UDP, false) => (SegmentKind::Udp4, udp::HEADER_LEN),
            (IpProtocol::UDP, true) => (SegmentKind::Udp6, udp::HEADER_LEN),
            (IpProtocol::TCP, false) => (SegmentKind::Tcp4, tcp_header_len(bytes, transport)?),
            (IpProtocol::TCP, true) => (SegmentKind::Tcp6, tcp_header_len(bytes, transport)?),
            _ => return None,
        };
        let payload = transport + header_len;
        (payload <= end).then_some(Self { kind, ip, transport, payload })
    }

    /// Whether the transport is TCP.
    #[inline]
    pub fn is_tcp(&self) -> bool {
        matches!(self.kind, SegmentKind::Tcp4 | SegmentKind::Tcp6)
    }

    /// Whether the family is IPv6.
    #[inline]
    pub fn is_v6(&self) -> bool {
        matches!(self.kind, SegmentKind::Tcp6 | SegmentKind::Udp6)
    }

    /// Where the transport's checksum is, from its header's first byte.
    #[inline]
    pub fn checksum_offset(&self) -> u16 {
        if self.is_tcp() { tcp::CHECKSUM_OFFSET } else { udp::CHECKSUM_OFFSET }
    }

    /// What the transport's checksum covers beside header and payload.
    #[inline]
    pub fn pseudo(&self, bytes: &[u8]) -> Option<PseudoHeader> {
        let protocol = if self.is_tcp() { IpProtocol::TCP } else { IpProtocol::UDP };
        if self.is_v6() {
            ipv6::Ipv6Packet::parse(&bytes[self.ip..]).ok().map(|packet| packet.pseudo(protocol))
        } else {
            ipv4::Ipv4Packet::parse(&bytes[self.ip..]).ok().map(|packet| packet.pseudo())
        }
    }

    /// The checksum that the transport should have, its payload summing to `payload`.
    #[inline]
    pub fn checksum(&self, bytes: &[u8], pseudo: PseudoHeader, payload: Sum16) -> u16 {
        let at = self.transport + usize::from(self.checksum_offset());
        let header =
            Sum16::of(&bytes[self.transport..at]) + Sum16::of(&bytes[at + 2..self.payload]);
        let checksum = pseudo.checksum(bytes.len() - self.transport, header + payload);
        if self.is_tcp() { checksum } else { nonzero(checksum) }
    }

    /// Writes the length fields for a frame of `len` bytes, and the identification of IPv4 with the
    /// header's checksum.
    pub fn set_lengths(&self, bytes: &mut [u8], identification: u16) -> Option<()> {
        let len = bytes.len();
        if self.is_v6() {
            let payload = u16::try_from(len - self.ip - ipv6::HEADER_LEN).ok()?;
            bytes[self.ip + 4..self.ip + 6].copy_from_slice(&payload.to_be_bytes());
        } else {
            let total = u16::try_from(len - self.ip).ok()?;
            let header = &mut bytes[self.ip..self.transport];
            header[2..4].copy_from_slice(&total.to_be_bytes());
            header[4..6].copy_from_slice(&identification.to_be_bytes());
            header[10..12].fill(0);
            let checksum = Sum16::of(header).finish();
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        if !self.is_tcp() {
            let length = u16::try_from(len - self.transport).ok()?;
            bytes[self.transport + 4..self.transport + 6].copy_from_slice(&length.to_be_bytes());
        }
        Some(())
    }

    /// Writes the transport's checksum field.
    #[inline]
    pub fn set_checksum(&self, bytes: &mut [u8], checksum: u16) {
        let at = self.transport + usize::from(self.checksum_offset());
        bytes[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
    }

    /// The transport's checksum field.
    #[inline]
    pub fn checksum_field(&self, bytes: &[u8]) -> u16 {
        let at = self.transport + usize::from(self.checksum_offset());
        u16::from_be_bytes([bytes[at], bytes[at + 1]])
    }

    /// The identification of IPv4; 0 of IPv6.
    #[inline]
    pub fn identification(&self, bytes: &[u8]) -> u16 {
        if self.is_v6() { 0 } else { u16::from_be_bytes([bytes[self.ip + 4], bytes[self.ip + 5]]) }
    }

    /// The identification of the segment `n` after one that has `first`.
    ///
    /// Packets that may not be fragmented need none, and have 0 (RFC 6864 §4.1); any others count
    /// up, as Linux makes them.
    #[inline]
    pub fn nth_identification(&self, bytes: &[u8], first: u16, n: u16) -> u16 {
        let atomic = !self.is_v6() && bytes[self.ip + 6] & 0x40 != 0 && first == 0;
        if atomic { 0 } else { first.wrapping_add(n) }
    }
}

fn tcp_header_len(bytes: &[u8], transport: usize) -> Option<usize> {
    tcp::TcpSegment::parse(&bytes[transport..]).ok().map(|segment| segment.header_len())
}
