//! Ethernet addresses, and frames (IEEE 802.3) with up to two VLAN tags (IEEE 802.1Q, 802.1ad), without the check sequence.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

use crate::malformed::FormatError;

/// Bytes of an untagged header.
pub const HEADER_LEN: usize = 14;
/// Bytes of one tag.
pub const TAG_LEN: usize = 4;

/// What a frame carries; below 0x600 a length, of IEEE 802.2 frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4 (RFC 894).
    pub const IPV4: Self = Self(0x0800);
    /// ARP (RFC 826).
    pub const ARP: Self = Self(0x0806);
    /// A VLAN tag (IEEE 802.1Q).
    pub const VLAN: Self = Self(0x8100);
    /// IPv6 (RFC 2464).
    pub const IPV6: Self = Self(0x86dd);
    /// A provider's VLAN tag, in front of another (IEEE 802.1ad, QinQ).
    pub const PROVIDER_VLAN: Self = Self(0x88a8);

    /// Whether a tag follows, and not a payload.
    #[inline]
    pub fn is_tag(self) -> bool {
        self == Self::VLAN || self == Self::PROVIDER_VLAN
    }
}

/// One VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EthernetTag {
    /// Which kind: [`EtherType::VLAN`] or [`EtherType::PROVIDER_VLAN`].
    pub kind: EtherType,
    /// Tag control information: 3 bits of priority, 1 of drop eligibility, 12 of VLAN.
    pub control: u16,
}

impl EthernetTag {
    /// An 802.1Q tag of this VLAN, of which the low twelve bits count, with priority 0.
    pub const fn vlan(vlan: u16) -> Self {
        Self { kind: EtherType::VLAN, control: vlan & 0xfff }
    }

    /// The VLAN's number; 0 when the tag only carries a priority.
    #[inline]
    pub const fn number(self) -> u16 {
        self.control & 0xfff
    }

    /// The priority code point, 0 to 7.
    #[inline]
    pub const fn priority(self) -> u8 {
        (self.control >> 13) as u8
    }
}

/// The tags of a frame. A third would be taken for its payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EthernetTags {
    /// None.
    #[default]
    Untagged,
    /// One.
    Single(EthernetTag),
    /// Two.
    Double {
        /// The provider's, first in the frame.
        outer: EthernetTag,
        /// The customer's.
        inner: EthernetTag,
    },
}

impl EthernetTags {
    /// Bytes in the header.
    #[inline]
    pub const fn len(self) -> usize {
        match self {
            Self::Untagged => 0,
            Self::Single(_) => TAG_LEN,
            Self::Double { .. } => 2 * TAG_LEN,
        }
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(self) -> bool {
        matches!(self, Self::Untagged)
    }
}

/// A frame whose header has been read.
#[derive(Clone, Copy, Debug)]
pub struct EthernetFrame<'a> {
    fixed: &'a [u8; HEADER_LEN],
    /// Control of each tag, and the type of what follows it.
    tags: &'a [u8],
    ether_type: EtherType,
    payload: &'a [u8],
}

impl<'a> EthernetFrame<'a> {
    /// Reads the header and its tags.
    ///
    /// # Errors
    /// [`FormatError::Truncated`].
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let (fixed, payload) =
            bytes.split_first_chunk::<HEADER_LEN>().ok_or(FormatError::Truncated)?;
        let ether_type = EtherType(u16::from_be_bytes([fixed[12], fixed[13]]));
        if ether_type.is_tag() {
            return Self::parse_tagged(fixed, payload);
        }
        Ok(Self { fixed, tags: &[], ether_type, payload })
    }

    fn parse_tagged(fixed: &'a [u8; HEADER_LEN], behind: &'a [u8]) -> Result<Self, FormatError> {
        let next = |at: usize| {
            let octets: &[u8; 2] = behind.get(at..)?.first_chunk()?;
            Some(EtherType(u16::from_be_bytes(*octets)))
        };
        let mut len = TAG_LEN;
        let mut ether_type = next(2).ok_or(FormatError::Truncated)?;
        if ether_type.is_tag() {
            len += TAG_LEN;
            ether_type = next(TAG_LEN + 2).ok_or(FormatError::Truncated)?;
        }
        let (tags, payload) = behind.split_at(len);
        Ok(Self { fixed, tags, ether_type, payload })
    }

    /// Who it is for.
    #[inline]
    pub fn destination(&self) -> MacAddr {
        let [a, b, c, d, e, f, ..] = *self.fixed;
        MacAddr([a, b, c, d, e, f])
    }

    /// Who sent it.
    #[inline]
    pub fn source(&self) -> MacAddr {
        let [_, _, _, _, _, _, a, b, c, d, e, f, _, _] = *self.fixed;
        MacAddr([a, b, c, d, e, f])
    }

    /// Its VLAN tags.
    #[inline]
    pub fn tags(&self) -> EthernetTags {
        let tag = |[a, b]: [u8; 2], [c, d]: [u8; 2]| EthernetTag {
            kind: EtherType(u16::from_be_bytes([a, b])),
            control: u16::from_be_bytes([c, d]),
        };
        let first = [self.fixed[12], self.fixed[13]];
        match *self.tags {
            [a, b, _, _] => EthernetTags::Single(tag(first, [a, b])),
            [a, b, c, d, e, f, ..] => {
                EthernetTags::Double { outer: tag(first, [a, b]), inner: tag([c, d], [e, f]) }
            }
            _ => EthernetTags::Untagged,
        }
    }

    /// What it carries.
    #[inline]
    pub fn ether_type(&self) -> EtherType {
        self.ether_type
    }

    /// What follows the header, padding included.
    #[inline]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Bytes of header, tags included.
    #[inline]
    pub fn header_len(&self) -> usize {
        HEADER_LEN + self.tags.len()
    }

    /// The header by itself.
    #[inline]
    pub fn header(&self) -> EthernetHeader {
        EthernetHeader {
            destination: self.destination(),
            source: self.source(),
            tags: self.tags(),
            ether_type: self.ether_type,
        }
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EthernetHeader {
    /// Who it is for.
    pub destination: MacAddr,
    /// Who sends it.
    pub source: MacAddr,
    /// VLAN tags.
    pub tags: EthernetTags,
    /// What follows.
    pub ether_type: EtherType,
}

impl EthernetHeader {
    /// Bytes of it.
    #[inline]
    pub const fn header_len(&self) -> usize {
        HEADER_LEN + self.tags.len()
    }

    /// Writes it to the first [`EthernetHeader::header_len`] bytes of `out`.
    ///
    /// Panics when `out` is shorter.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        let fixed: &mut [u8; HEADER_LEN] = out.first_chunk_mut().expect("room for the header");
        fixed[..6].copy_from_slice(&self.destination.0);
        fixed[6..12].copy_from_slice(&self.source.0);
        let first = match self.tags {
            EthernetTags::Untagged => self.ether_type,
            EthernetTags::Single(tag) | EthernetTags::Double { outer: tag, .. } => tag.kind,
        };
        fixed[12..].copy_from_slice(&first.0.to_be_bytes());
        match self.tags {
            EthernetTags::Untagged => {}
            EthernetTags::Single(tag) => put_tag(&mut out[HEADER_LEN..], tag, self.ether_type),
            EthernetTags::Double { outer, inner } => {
                put_tag(&mut out[HEADER_LEN..], outer, inner.kind);
                put_tag(&mut out[HEADER_LEN + TAG_LEN..], inner, self.ether_type);
            }
        }
    }
}

/// The control of a tag, and the type of what follows it.
fn put_tag(out: &mut [u8], tag: EthernetTag, next: EtherType) {
    out[..2].copy_from_slice(&tag.control.to_be_bytes());
    out[2..4].copy_from_slice(&next.0.to_be_bytes());
}

/// A 48-bit Ethernet address, in the order of transmission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// Every station: `ff:ff:ff:ff:ff:ff`.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// No station: all zero.
    pub const UNSPECIFIED: Self = Self([0; 6]);

    /// The group address of an IPv4 multicast group: `01:00:5e` and its low 23 bits (RFC 1112 §6.4).
    #[inline]
    pub const fn multicast_v4(group: Ipv4Addr) -> Self {
        let [_, b, c, d] = group.octets();
        Self([0x01, 0x00, 0x5e, b & 0x7f, c, d])
    }

    /// The group address of an IPv6 multicast group: `33:33` and its low 32 bits (RFC 2464 §7).
    #[inline]
    pub const fn multicast_v6(group: Ipv6Addr) -> Self {
        let [.., a, b, c, d] = group.octets();
        Self([0x33, 0x33, a, b, c, d])
    }

    /// Whether it is that of every station.
    #[inline]
    pub fn is_broadcast(self) -> bool {
        self == Self::BROADCAST
    }

    /// Whether it names a group of stations: multicast or broadcast.
    #[inline]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 == 1
    }

    /// Whether it can be the address of one station: neither a group nor all zero.
    #[inline]
    pub fn is_unicast(self) -> bool {
        !self.is_group() && self != Self::UNSPECIFIED
    }

    /// The link-local IPv6 address (RFC 2464 §5) with the modified EUI-64 interface identifier (RFC 4291,
    /// appendix A) made from it.
    pub fn link_local(self) -> Ipv6Addr {
        let [a, b, c, d, e, f] = self.0;
        Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 0x02, b, c, 0xff, 0xfe, d, e, f])
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, f] = self.0;
        write!(formatter, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
    }
}

/// Text that is not an Ethernet address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "`{0}` is not an Ethernet address: write six pairs of hexadecimal digits, 02:00:00:00:00:01"
)]
pub struct ParseMacAddrError(String);

impl FromStr for MacAddr {
    type Err = ParseMacAddrError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = || ParseMacAddrError(text.to_owned());
        let mut octets = [0; 6];
        let mut parts = text.split([':', '-']);
        for octet in &mut octets {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(fail)?;
            if !part.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                return Err(fail());
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| fail())?;
        }
        if parts.next().is_some() { Err(fail()) } else { Ok(Self(octets)) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn mac() -> impl Strategy<Value = MacAddr> {
        any::<[u8; 6]>().prop_map(MacAddr)
    }

    fn tag() -> impl Strategy<Value = EthernetTag> {
        let kind = prop_oneof![Just(EtherType::VLAN), Just(EtherType::PROVIDER_VLAN)];
        (kind, any::<u16>()).prop_map(|(kind, control)| EthernetTag { kind, control })
    }

    fn header() -> impl Strategy<Value = EthernetHeader> {
        let tags = prop_oneof![
            Just(EthernetTags::Untagged),
            tag().prop_map(EthernetTags::Single),
            (tag(), tag()).prop_map(|(outer, inner)| EthernetTags::Double { outer, inner }),
        ];
        let ether_type =
            any::<u16>().prop_map(EtherType).prop_filter("no third tag", |t| !t.is_tag());
        (mac(), mac(), tags, ether_type).prop_map(|(destination, source, tags, ether_type)| {
            EthernetHeader { destination, source, tags, ether_type }
        })
    }

    #[test]
    fn a_double_tagged_frame_is_read() {
        let bytes = [
            0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0, 0, 0, 0, 0x01, // addresses
            0x88, 0xa8, 0x00, 0x64, 0x81, 0x00, 0x70, 0x05, 0x08, 0x00, 0x45,
        ];
        let frame = EthernetFrame::parse(&bytes).unwrap();
        assert!(frame.destination().is_broadcast());
        assert_eq!(frame.source().to_string(), "02:00:00:00:00:01");
        let EthernetTags::Double { outer, inner } = frame.tags() else {
            panic!("{:?}", frame.tags())
        };
        assert_eq!((outer.number(), outer.priority()), (100, 0));
        assert_eq!((inner.number(), inner.priority()), (5, 3));
        assert_eq!((frame.ether_type(), frame.payload()), (EtherType::IPV4, &[0x45][..]));
    }

    #[test]
    fn a_header_cut_anywhere_is_truncated() {
        let bytes = [[2; 12].as_slice(), &[0x81, 0, 0, 1, 0x81, 0, 0, 2, 8, 0]].concat();
        assert_eq!(EthernetFrame::parse(&bytes).unwrap().header_len(), bytes.len());
        for len in 0..bytes.len() {
            assert_eq!(
                EthernetFrame::parse(&bytes[..len]).err(),
                Some(FormatError::Truncated),
                "{len}"
            );
        }
    }

    proptest! {
        #[test]
        fn a_header_emitted_is_read_back(header in header(), payload in any::<[u8; 3]>()) {
            let mut bytes = vec![0xee; header.header_len()];
            header.emit(&mut bytes);
            bytes.extend(payload);
            let frame = EthernetFrame::parse(&bytes).unwrap();
            prop_assert_eq!(frame.header(), header);
            prop_assert_eq!(frame.payload(), &payload);
        }
    }

    #[test]
    fn multicast_groups_map_as_the_rfcs_say() {
        let all_hosts = MacAddr::multicast_v4(Ipv4Addr::new(224, 0, 0, 1));
        assert_eq!(all_hosts.to_string(), "01:00:5e:00:00:01");
        // The high bit of the second octet is lost: 32 groups share an address.
        let high = MacAddr::multicast_v4(Ipv4Addr::new(239, 129, 2, 3));
        assert_eq!(high.to_string(), "01:00:5e:01:02:03");
        let solicited = "ff02::1:ff00:1234".parse().unwrap();
        assert_eq!(MacAddr::multicast_v6(solicited).to_string(), "33:33:ff:00:12:34");
        assert!(all_hosts.is_group() && !all_hosts.is_broadcast());
    }

    #[test]
    fn a_link_local_address_inverts_the_universal_bit() {
        let mac: MacAddr = "34:56:78:9a:bc:de".parse().unwrap();
        assert_eq!(mac.link_local(), "fe80::3656:78ff:fe9a:bcde".parse::<Ipv6Addr>().unwrap());
    }

    #[test]
    fn text_survives_both_ways_and_nonsense_is_refused() {
        let mac = MacAddr([0x02, 0, 0xab, 0xcd, 0xef, 0x01]);
        assert_eq!(mac.to_string().parse(), Ok(mac));
        for text in ["", "02:00", "02:00:00:00:00:00:00", "02:00:00:00:00:0g", "+2:00:00:00:00:01"]
        {
            assert!(text.parse::<MacAddr>().is_err(), "{text}");
        }
    }
}
