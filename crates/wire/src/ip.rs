//! What headers of both IP families say in the same way: protocol numbers (IANA, "Assigned Internet Protocol Numbers"), traffic class,
//! congestion notification, and the place of a fragment.

use crate::malformed::FormatError;

/// An IPv4 protocol or IPv6 next-header number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options (RFC 8200 §4.3).
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP (RFC 792).
    pub const ICMPV4: Self = Self(1);
    /// IPv4 in IP (RFC 2003).
    pub const IPV4: Self = Self(4);
    /// TCP (RFC 9293).
    pub const TCP: Self = Self(6);
    /// UDP (RFC 768).
    pub const UDP: Self = Self(17);
    /// IPv6 in IP (RFC 2473).
    pub const IPV6: Self = Self(41);
    /// IPv6 routing header (RFC 8200 §4.4).
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header (RFC 8200 §4.5).
    pub const FRAGMENT: Self = Self(44);
    /// Encapsulating security payload (RFC 4303).
    pub const ESP: Self = Self(50);
    /// Authentication header (RFC 4302).
    pub const AUTHENTICATION: Self = Self(51);
    /// ICMPv6 (RFC 4443).
    pub const ICMPV6: Self = Self(58);
    /// Nothing follows (RFC 8200 §4.7).
    pub const NO_NEXT: Self = Self(59);
    /// IPv6 destination options (RFC 8200 §4.6).
    pub const DESTINATION: Self = Self(60);
}

/// Six bits of differentiated services, two of congestion notification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrafficClass(pub u8);

impl TrafficClass {
    /// Of a code point, of which the low six bits count, and the ECN field.
    #[inline]
    pub const fn new(dscp: u8, ecn: Ecn) -> Self {
        Self(dscp << 2 | ecn.bits())
    }

    /// The differentiated services code point, 0 to 63.
    #[inline]
    pub const fn dscp(self) -> u8 {
        self.0 >> 2
    }

    /// The congestion notification field.
    #[inline]
    pub const fn ecn(self) -> Ecn {
        Ecn::from_bits(self.0)
    }

    /// The same with another ECN field.
    #[inline]
    #[must_use]
    pub const fn with_ecn(self, ecn: Ecn) -> Self {
        Self(self.0 & !0b11 | ecn.bits())
    }
}

impl From<Ecn> for TrafficClass {
    #[inline]
    fn from(ecn: Ecn) -> Self {
        Self::new(0, ecn)
    }
}

/// The ECN field of an IP header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Not ECN-capable transport.
    #[default]
    NotCapable = 0b00,
    /// ECN-capable transport (1); the L4S identifier (RFC 9331).
    Capable1 = 0b01,
    /// ECN-capable transport (0).
    Capable0 = 0b10,
    /// Congestion experienced.
    Congestion = 0b11,
}

impl Ecn {
    /// The field's two bits.
    #[inline]
    pub const fn bits(self) -> u8 {
        self as u8
    }

    /// The field in the low two bits of a type-of-service or traffic-class octet.
    #[inline]
    pub const fn from_bits(octet: u8) -> Self {
        match octet & 0b11 {
            0b00 => Self::NotCapable,
            0b01 => Self::Capable1,
            0b10 => Self::Capable0,
            _ => Self::Congestion,
        }
    }
}

/// Bytes of an IPv6 fragment header.
pub const FRAGMENT_HEADER_LEN: usize = 8;

/// The most bytes that fragments may add up to: what a 16-bit length can say.
const DATAGRAM_MAX: usize = 65_535;

/// The place of one fragment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fragment {
    /// Which datagram, among those of one source, destination (and protocol, in IPv4); 16 bits in
    /// IPv4.
    pub identification: u32,
    /// Where its data begin in the datagram's payload, in bytes; a multiple of 8.
    pub offset: u16,
    /// Whether more follow.
    pub more: bool,
}

impl Fragment {
    /// Whether it is a whole datagram (RFC 6946: an atomic fragment).
    #[inline]
    pub const fn is_atomic(&self) -> bool {
        self.offset == 0 && !self.more
    }

    /// Where its `len` bytes of data end in the datagram's payload.
    ///
    /// # Errors
    /// [`FormatError::Fragment`] when they are none, are not a multiple of 8 though more follow, or
    /// end beyond what a length field can say.
    #[inline]
    pub fn end(&self, len: usize) -> Result<usize, FormatError> {
        let end = usize::from(self.offset) + len;
        if len == 0 || end > DATAGRAM_MAX || (self.more && !len.is_multiple_of(8)) {
            return Err(FormatError::Fragment);
        }
        Ok(end)
    }

    /// Writes an IPv6 fragment header, before data of `next`, to the first [`FRAGMENT_HEADER_LEN`] bytes of
    /// `out`. Panics when `out` is shorter.
    #[inline]
    pub fn emit_v6(&self, next: IpProtocol, out: &mut [u8]) {
        let out: &mut [u8; FRAGMENT_HEADER_LEN] =
            out.first_chunk_mut().expect("room for the header");
        let [a, b] = (self.offset & !7 | u16::from(self.more)).to_be_bytes();
        let [c, d, e, f] = self.identification.to_be_bytes();
        *out = [next.0, 0, a, b, c, d, e, f];
    }

    /// Reads an IPv6 fragment header, whose first octet says what follows it.
    #[inline]
    pub(crate) fn parse_v6(bytes: [u8; FRAGMENT_HEADER_LEN]) -> Self {
        let [_, _, a, b, c, d, e, f] = bytes;
        Self {
            identification: u32::from_be_bytes([c, d, e, f]),
            offset: u16::from_be_bytes([a, b & !7]),
            more: b & 1 == 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_octet_splits_into_its_two_fields_and_back() {
        for octet in 0..=255 {
            let class = TrafficClass(octet);
            assert_eq!(TrafficClass::new(class.dscp(), class.ecn()), class);
            let marked = class.with_ecn(Ecn::Congestion);
            assert_eq!((marked.dscp(), marked.ecn()), (class.dscp(), Ecn::Congestion));
        }
    }

    #[test]
    fn the_field_survives_both_ways_whatever_the_other_bits_are() {
        for octet in 0..=255 {
            assert_eq!(Ecn::from_bits(octet).bits(), octet & 0b11);
        }
    }

    #[test]
    fn impossible_fragments_are_refused() {
        let at = |offset, more| Fragment { identification: 1, offset, more };
        assert_eq!(at(0, true).end(8), Ok(8));
        assert_eq!(at(8, false).end(3), Ok(11));
        assert_eq!(at(0, true).end(9), Err(FormatError::Fragment));
        assert_eq!(at(16, false).end(0), Err(FormatError::Fragment));
        assert_eq!(at(65_528, false).end(7), Ok(65_535));
        assert_eq!(at(65_528, false).end(8), Err(FormatError::Fragment));
    }

    proptest! {
        #[test]
        fn a_header_emitted_is_read_back(
            identification in any::<u32>(), offset in 0..8_192_u16, more in any::<bool>(),
        ) {
            let fragment = Fragment { identification, offset: offset * 8, more };
            let mut bytes = [0xee; FRAGMENT_HEADER_LEN];
            fragment.emit_v6(IpProtocol::UDP, &mut bytes);
            prop_assert_eq!(bytes[0], IpProtocol::UDP.0);
            prop_assert_eq!(Fragment::parse_v6(bytes), fragment);
        }

        #[test]
        fn bytes_read_are_emitted_again_but_for_reserved_bits(mut bytes in any::<[u8; FRAGMENT_HEADER_LEN]>()) {
            bytes[1] = 0;
            bytes[3] &= !0b110;
            let mut again = [0; FRAGMENT_HEADER_LEN];
            Fragment::parse_v6(bytes).emit_v6(IpProtocol(bytes[0]), &mut again);
            prop_assert_eq!(again, bytes);
        }
    }
}
