//! Where the headers of a TCP segment or UDP datagram lie in its frame, and writing what differs
//! between the segments of one super-segment.
//!
//! Left out: fragments, and packets with bytes behind their IP length.

use crate::checksum::{PseudoHeader, nonzero};
use crate::ethernet::{EtherType, EthernetFrame};
use crate::ipv6::extension::Ipv6Extension;
use crate::medium::Medium;
use crate::packet::SegmentKind;
use crate::protocol::IpProtocol;
use crate::{ipv4, ipv6, tcp, udp};
use plumb_copy::Sum16;

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
