//! Neighbour discovery for IPv6 (RFC 4861): solicitations and advertisements of neighbours. Of what is
//! between routers and hosts only the form is checked.
//!
//! Besides what parsing refuses, a receiver checks the hop limit of 255 and the addresses (RFC 4861
//! §6.1, §7.1, §8.1).

use std::net::Ipv6Addr;

use plumb_copy::Sum16;

use crate::checksum::PseudoHeader;
use crate::ethernet::MacAddr;
use crate::icmp::{self, IcmpMessage, IcmpPacket};
use crate::malformed::FormatError;

/// The hop limit of every message: one that a router passed on has less.
pub const HOP_LIMIT: u8 = 255;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

/// Flags of a `NeighborAdvertisement`; a host sets no other.
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// Types of the options that hold an Ethernet address.
const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;

/// One message, with what counts of its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpMessage {
    /// Who has this address?
    NeighborSolicitation {
        /// The address.
        target: Ipv6Addr,
        /// The sender's address on the link.
        source_mac: Option<MacAddr>,
    },
    /// The sender has this address.
    NeighborAdvertisement {
        /// The address.
        target: Ipv6Addr,
        /// The target's address on the link.
        target_mac: Option<MacAddr>,
        /// Whether it answers a solicitation.
        is_solicited: bool,
        /// Whether it shall replace what the receiver knows.
        overrides: bool,
    },
    /// To or from a router: a message of this type.
    Router(u8),
}

/// Whether an ICMPv6 type is one of neighbour discovery.
#[inline]
pub const fn is_ndp(kind: u8) -> bool {
    matches!(kind, ROUTER_SOLICITATION..=REDIRECT)
}

impl NdpMessage {
    /// Reads the message that an ICMPv6 packet holds.
    ///
    /// # Errors
    /// [`FormatError::Kind`] for another ICMPv6 message, [`FormatError::Code`],
    /// [`FormatError::Truncated`] or [`FormatError::OptionLength`].
    pub fn parse(packet: IcmpPacket<'_>) -> Result<Self, FormatError> {
        let kind = packet.kind();
        let fixed_len = match kind {
            ROUTER_SOLICITATION => 0,
            ROUTER_ADVERTISEMENT => 8,
            NEIGHBOR_SOLICITATION | NEIGHBOR_ADVERTISEMENT => 16,
            REDIRECT => 32,
            _ => return Err(FormatError::Kind),
        };
        if packet.code() != 0 {
            return Err(FormatError::Code);
        }
        let body = packet.body().split_at_checked(fixed_len);
        let (fixed, options) = body.ok_or(FormatError::Truncated)?;
        let [source_mac, target_mac] = link_addresses(options)?;
        let target = || Ipv6Addr::from(*fixed.first_chunk::<16>().expect("sixteen bytes"));
        Ok(match kind {
            NEIGHBOR_SOLICITATION => Self::NeighborSolicitation { target: target(), source_mac },
            NEIGHBOR_ADVERTISEMENT => Self::NeighborAdvertisement {
                target: target(),
                target_mac,
                is_solicited: packet.rest()[0] & SOLICITED != 0,
                overrides: packet.rest()[0] & OVERRIDE != 0,
            },
            _ => Self::Router(kind),
        })
    }

    /// Bytes of the ICMPv6 message that [`NdpMessage::emit`] writes.
    pub fn emitted_len(&self) -> usize {
        let option = match self {
            Self::NeighborSolicitation { source_mac: mac, .. }
            | Self::NeighborAdvertisement { target_mac: mac, .. } => mac.map_or(0, |_| 8),
            Self::Router(_) => 0,
        };
        icmp::HEADER_LEN + 16 + option
    }

    /// Writes the ICMPv6 message of a neighbour, with its checksum, to the front of `out`.
    ///
    /// Panics when `out` is shorter, and of [`NdpMessage::Router`].
    pub fn emit(&self, pseudo: PseudoHeader, out: &mut [u8]) {
        let (kind, flags, target, option, mac) = match *self {
            Self::NeighborSolicitation { target, source_mac } => {
                (NEIGHBOR_SOLICITATION, 0, target, SOURCE_LINK, source_mac)
            }
            Self::NeighborAdvertisement { target, target_mac, is_solicited, overrides } => {
                let solicited = if is_solicited { SOLICITED } else { 0 };
                let flags = solicited | if overrides { OVERRIDE } else { 0 };
                (NEIGHBOR_ADVERTISEMENT, flags, target, TARGET_LINK, target_mac)
            }
            Self::Router(_) => panic!("only messages of neighbours are written"),
        };
        let (head, body) = out[..self.emitted_len()].split_at_mut(icmp::HEADER_LEN);
        body[..16].copy_from_slice(&target.octets());
        if let Some(mac) = mac {
            body[16..18].copy_from_slice(&[option, 1]);
            body[18..].copy_from_slice(&mac.0);
        }
        let message = IcmpMessage::Other { kind, code: 0, rest: [flags, 0, 0, 0] };
        message.emit(Some(pseudo), body.len(), Sum16::of(body), head);
    }
}

/// The Ethernet addresses of the sender and of the target that a message's options name.
///
/// # Errors
/// [`FormatError::OptionLength`] when a length is zero or leaves the message (RFC 4861 §6.1, §7.1: the
/// whole message is dropped).
fn link_addresses(mut options: &[u8]) -> Result<[Option<MacAddr>; 2], FormatError> {
    let mut found = [None; 2];
    while !options.is_empty() {
        let len = options.get(1).map_or(0, |units| usize::from(*units) * 8);
        let split = options.split_at_checked(len).filter(|_| len > 0);
        let (option, rest) = split.ok_or(FormatError::OptionLength)?;
        // An address of another length is not one of Ethernet.
        if let &[kind @ (SOURCE_LINK | TARGET_LINK), 1, a, b, c, d, e, f] = option {
            found[usize::from(kind - SOURCE_LINK)].get_or_insert(MacAddr([a, b, c, d, e, f]));
        }
        options = rest;
    }
    Ok(found)
}

/// The group that whoever has `address` listens to (RFC 4291 §2.7.1): where solicitations go.
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let low = u16::from_be_bytes([b, c]);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | a as u16, low)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ip::IpProtocol;

    fn pseudo(source: &str, destination: &str) -> PseudoHeader {
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        PseudoHeader::v6(source, destination, IpProtocol::ICMPV6)
    }

    fn read(bytes: &[u8]) -> Result<NdpMessage, FormatError> {
        NdpMessage::parse(IcmpPacket::parse(bytes, Some(pseudo("fe80::1", "fe80::2"))).unwrap())
    }

    #[test]
    fn a_solicitation_is_read_and_goes_to_its_group() {
        let target: Ipv6Addr = "fe80::c001:2ff:fe40:0".parse().unwrap();
        assert_eq!(solicited_node(target).to_string(), "ff02::1:ff40:0");
        let mut bytes = vec![135, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend(target.octets());
        bytes.extend([1, 1, 0xc2, 0x00, 0x54, 0xf5, 0x00, 0x00]);
        let pseudo = pseudo("fe80::c000:54ff:fef5:0", "ff02::1:ff40:0");
        let sum = pseudo.checksum(bytes.len(), Sum16::of(&bytes));
        bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        let packet = IcmpPacket::parse(&bytes, Some(pseudo)).unwrap().verify().unwrap();
        let source_mac = Some(MacAddr([0xc2, 0, 0x54, 0xf5, 0, 0]));
        let expected = NdpMessage::NeighborSolicitation { target, source_mac };
        assert_eq!(NdpMessage::parse(packet), Ok(expected));
    }

    #[test]
    fn what_the_rfc_refuses_is_named() {
        assert_eq!(read(&[128, 0, 0, 0, 0, 0, 0, 0]), Err(FormatError::Kind));
        assert_eq!(read(&[133, 1, 0, 0, 0, 0, 0, 0]), Err(FormatError::Code));
        assert_eq!(read(&[133, 0, 0, 0, 0, 0, 0, 0]), Ok(NdpMessage::Router(133)));
        for (kind, least) in [(134, 16), (135, 24), (136, 24), (137, 40)] {
            let mut bytes = vec![0; least];
            bytes[0] = kind;
            assert!(read(&bytes).is_ok());
            assert_eq!(read(&bytes[..least - 1]), Err(FormatError::Truncated));
            for options in [&[1][..], &[1, 0, 0, 0, 0, 0, 0, 0], &[1, 2, 0, 0, 0, 0, 0, 0]] {
                let bytes = [&bytes, options].concat();
                assert_eq!(read(&bytes), Err(FormatError::OptionLength), "{options:?}");
            }
        }
    }

    #[test]
    fn only_the_first_address_of_ethernets_length_is_taken() {
        let mut bytes = [0; 24];
        bytes[0] = 135;
        let long = [[1, 2, 7, 7, 7, 7, 7, 7], [7; 8]].concat();
        for (options, expected) in [
            (long.clone(), None),
            ([&long[..], &[1, 1, 2, 0, 0, 0, 0, 9], &[1, 1, 0, 0, 0, 0, 0, 0]].concat(), Some(9)),
        ] {
            let source_mac = expected.map(|last| MacAddr([2, 0, 0, 0, 0, last]));
            let target = Ipv6Addr::UNSPECIFIED;
            let expected = NdpMessage::NeighborSolicitation { target, source_mac };
            assert_eq!(read(&[&bytes[..], &options].concat()), Ok(expected));
        }
    }

    proptest! {
        #[test]
        fn a_message_emitted_is_read_back_and_verifies(
            target in any::<Ipv6Addr>(), mac in any::<Option<[u8; 6]>>(),
            [advertises, is_solicited, overrides] in any::<[bool; 3]>(),
        ) {
            let mac = mac.map(MacAddr);
            let message = if advertises {
                NdpMessage::NeighborAdvertisement { target, target_mac: mac, is_solicited, overrides }
            } else {
                NdpMessage::NeighborSolicitation { target, source_mac: mac }
            };
            let pseudo = pseudo("fe80::1", "fe80::2");
            let mut bytes = vec![0xee; message.emitted_len()];
            message.emit(pseudo, &mut bytes);
            let packet = IcmpPacket::parse(&bytes, Some(pseudo)).unwrap().verify().unwrap();
            prop_assert_eq!(NdpMessage::parse(packet), Ok(message));
        }
    }
}
