//! IPv6 packets (RFC 8200).
//!
//! Left out: what a host does with them; jumbograms (RFC 2675), whose length field is zero.

use std::net::Ipv6Addr;

use crate::checksum::PseudoHeader;
use crate::ip::{IpProtocol, TrafficClass};
use crate::malformed::FormatError;

pub mod extension;

pub use extension::{EXTENSIONS_MAX, Ipv6Extensions};

/// Bytes of a header.
pub const HEADER_LEN: usize = 40;
/// The MTU that every link has (RFC 8200 §5).
pub const MTU_MIN: usize = 1_280;

/// A packet whose header has been read, and whose padding has been cut off.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6Packet<'a> {
    fixed: &'a [u8; HEADER_LEN],
    payload: &'a [u8],
}

impl<'a> Ipv6Packet<'a> {
    /// Reads the header. What lies beyond the payload length is padding and is cut off.
    ///
    /// # Errors
    /// [`FormatError::Version`] or [`FormatError::Truncated`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let (packet, len) = Self::parse_header(bytes)?;
        let payload = packet.payload.get(..len).ok_or(FormatError::Truncated)?;
        Ok(Self { payload, ..packet })
    }

    /// Reads the packet that an ICMPv6 error quotes: its payload may be shorter than it says.
    ///
    /// # Errors
    /// As [`Ipv6Packet::parse`]; [`FormatError::Truncated`] only when the header is not whole.
    pub fn parse_quoted(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let (packet, len) = Self::parse_header(bytes)?;
        let payload = packet.payload.get(..len).unwrap_or(packet.payload);
        Ok(Self { payload, ..packet })
    }

    #[inline]
    fn parse_header(bytes: &'a [u8]) -> Result<(Self, usize), FormatError> {
        let (fixed, payload) =
            bytes.split_first_chunk::<HEADER_LEN>().ok_or(FormatError::Truncated)?;
        if fixed[0] >> 4 != 6 {
            return Err(FormatError::Version);
        }
        let len = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        Ok((Self { fixed, payload }, len))
    }

    /// Traffic class.
    #[inline]
    pub fn traffic_class(&self) -> TrafficClass {
        TrafficClass(self.fixed[0] << 4 | self.fixed[1] >> 4)
    }

    /// Which flow, as its source numbers them: 20 bits.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        u32::from_be_bytes([0, self.fixed[1] & 0xf, self.fixed[2], self.fixed[3]])
    }

    /// What follows the header: an extension, or a transport.
    #[inline]
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(self.fixed[6])
    }

    /// How many more routers may pass it on.
    #[inline]
    pub fn hop_limit(&self) -> u8 {
        self.fixed[7]
    }

    /// Who sent it.
    #[inline]
    pub fn source(&self) -> Ipv6Addr {
        let [_, _, _, _, _, _, _, _, rest @ ..] = self.fixed;
        let source: [u8; 16] = *rest.first_chunk().expect("32 bytes");
        Ipv6Addr::from(source)
    }

    /// Who it is for, or the next router of a routing header.
    #[inline]
    pub fn destination(&self) -> Ipv6Addr {
        let destination: [u8; 16] = *self.fixed.last_chunk().expect("40 bytes");
        Ipv6Addr::from(destination)
    }

    /// What follows the header, extensions included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Its extension headers, to be walked to the transport.
    #[inline]
    pub fn extensions(&self) -> Ipv6Extensions<'a> {
        Ipv6Extensions::new(self.next_header(), self.payload)
    }

    /// What the checksum of a transport covers beside header and payload.
    ///
    /// With a routing header that is not at its end the destination is another: the last in it.
    #[inline]
    pub fn pseudo(&self, transport: IpProtocol) -> PseudoHeader {
        PseudoHeader::v6(self.source(), self.destination(), transport)
    }

    /// The header by itself.
    #[inline]
    pub fn header(&self) -> Ipv6Header {
        Ipv6Header {
            traffic_class: self.traffic_class(),
            flow_label: self.flow_label(),
            payload_len: u16::try_from(self.payload.len()).expect("cut to a 16-bit length"),
            next_header: self.next_header(),
            hop_limit: self.hop_limit(),
            source: self.source(),
            destination: self.destination(),
        }
    }
}

/// The header of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Header {
    /// Traffic class.
    pub traffic_class: TrafficClass,
    /// Which flow, of which the low 20 bits count.
    pub flow_label: u32,
    /// Bytes that follow the header, extensions included.
    pub payload_len: u16,
    /// What follows.
    pub next_header: IpProtocol,
    /// How many routers may pass it on.
    pub hop_limit: u8,
    /// Who sends it.
    pub source: Ipv6Addr,
    /// Who it is for.
    pub destination: Ipv6Addr,
}

impl Ipv6Header {
    /// Before `payload_len` bytes: hop limit 64, no traffic class, no flow label.
    #[inline]
    pub const fn new(
        source: Ipv6Addr,
        destination: Ipv6Addr,
        next_header: IpProtocol,
        payload_len: u16,
    ) -> Self {
        Self {
            traffic_class: TrafficClass(0),
            flow_label: 0,
            payload_len,
            next_header,
            hop_limit: 64,
            source,
            destination,
        }
    }

    /// What the checksum of a transport covers beside header and payload.
    #[inline]
    pub fn pseudo(&self, transport: IpProtocol) -> PseudoHeader {
        PseudoHeader::v6(self.source, self.destination, transport)
    }

    /// Writes it to the first [`HEADER_LEN`] bytes of `out`. Panics when `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let out: &mut [u8; HEADER_LEN] = out.first_chunk_mut().expect("room for the header");
        let word = 6 << 28 | u32::from(self.traffic_class.0) << 20 | self.flow_label & 0xf_ffff;
        out[..4].copy_from_slice(&word.to_be_bytes());
        out[4..6].copy_from_slice(&self.payload_len.to_be_bytes());
        out[6] = self.next_header.0;
        out[7] = self.hop_limit;
        out[8..24].copy_from_slice(&self.source.octets());
        out[24..].copy_from_slice(&self.destination.octets());
    }
}

/// Counts one router in the header at the front of `packet`, in place.
///
/// Returns the hop limit left; `None`, and nothing changed, when there is none to take.
///
/// Panics when `packet` has no whole header: parse it first.
#[inline]
pub fn decrement_hop_limit(packet: &mut [u8]) -> Option<u8> {
    let left = packet[7].checked_sub(1)?;
    packet[7] = left;
    Some(left)
}

/// Changes the traffic class in the header at the front of `packet`, in place.
///
/// Panics when `packet` has no whole header: parse it first.
#[inline]
pub fn set_traffic_class(packet: &mut [u8], class: TrafficClass) {
    packet[0] = packet[0] & 0xf0 | class.0 >> 4;
    packet[1] = packet[1] & 0x0f | class.0 << 4;
}

/// Exchanges source and destination in the header at the front of `packet`: the transport's
/// checksum stays right.
///
/// Panics when `packet` has no whole header: parse it first.
#[inline]
pub fn swap_addresses(packet: &mut [u8]) {
    let (source, destination) = packet[8..HEADER_LEN].split_at_mut(16);
    source.swap_with_slice(destination);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn header()(
            class in any::<u8>(), flow_label in 0..=0xf_ffff_u32, payload_len in 0..2_000_u16,
            next_header in any::<u8>(), hop_limit in any::<u8>(),
            source in any::<Ipv6Addr>(), destination in any::<Ipv6Addr>(),
        ) -> Ipv6Header {
            Ipv6Header {
                traffic_class: TrafficClass(class), flow_label, payload_len,
                next_header: IpProtocol(next_header), hop_limit, source, destination,
            }
        }
    }

    #[test]
    fn every_impossible_packet_is_named() {
        let mut bytes = [0; 42];
        Ipv6Header::new(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, IpProtocol::UDP, 2)
            .emit(&mut bytes);
        assert!(Ipv6Packet::parse(&bytes).is_ok());
        assert_eq!(Ipv6Packet::parse(&bytes[..41]).err(), Some(FormatError::Truncated));
        assert_eq!(Ipv6Packet::parse_quoted(&bytes[..41]).unwrap().payload(), &[0]);
        assert_eq!(Ipv6Packet::parse_quoted(&bytes[..39]).err(), Some(FormatError::Truncated));
        bytes[0] = 0x40;
        assert_eq!(Ipv6Packet::parse(&bytes).err(), Some(FormatError::Version));
    }

    proptest! {
        #[test]
        fn a_header_emitted_is_read_back(header in header(), padding in 0..4_usize) {
            let len = HEADER_LEN + usize::from(header.payload_len) + padding;
            let mut bytes = vec![0xee; len];
            header.emit(&mut bytes);
            prop_assert_eq!(Ipv6Packet::parse(&bytes).unwrap().header(), header);
        }

        #[test]
        fn changes_in_place_change_nothing_else(header in header(), class in any::<u8>()) {
            let mut bytes = vec![0xee; HEADER_LEN + usize::from(header.payload_len)];
            header.emit(&mut bytes);
            let left = decrement_hop_limit(&mut bytes);
            prop_assert_eq!(left, header.hop_limit.checked_sub(1));
            set_traffic_class(&mut bytes, TrafficClass(class));
            swap_addresses(&mut bytes);
            let expected = Ipv6Header {
                traffic_class: TrafficClass(class),
                hop_limit: left.unwrap_or(0),
                source: header.destination,
                destination: header.source,
                ..header
            };
            prop_assert_eq!(Ipv6Packet::parse(&bytes).unwrap().header(), expected);
        }
    }
}
