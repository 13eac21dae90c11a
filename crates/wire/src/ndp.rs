//! Neighbour discovery for IPv6 (RFC 4861): the ICMPv6 messages and their options.
//!
//! Left out: when to send one, and when to believe one. Besides what parsing refuses, a receiver
//! checks the hop limit of 255 and the addresses (RFC 4861 §6.1, §7.1, §8.1).

use std::net::Ipv6Addr;

use plumb_copy::Sum16;

use crate::checksum::PseudoHeader;
use crate::ethernet::MacAddr;
use crate::icmpv6;
use crate::malformed::FormatError;

/// The hop limit of every message: one that a router passed on has less.
pub const HOP_LIMIT: u8 = 255;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

/// Flags of a `NeighborAdvertisement`.
const ROUTER: u8 = 0x80;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;

/// One message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpMessage<'a> {
    /// Routers, say who you are.
    RouterSolicitation {
        /// The sender's address on the link.
        options: NdpOptions<'a>,
    },
    /// A router says what a host needs to know.
    RouterAdvertisement {
        /// The router's words.
        router: RouterParameters,
        /// Its address on the link, the MTU, prefixes.
        options: NdpOptions<'a>,
    },
    /// Who has this address?
    NeighborSolicitation {
        /// The address.
        target: Ipv6Addr,
        /// The sender's address on the link.
        options: NdpOptions<'a>,
    },
    /// The sender has this address.
    NeighborAdvertisement {
        /// The address.
        target: Ipv6Addr,
        /// Whether the sender is a router.
        is_router: bool,
        /// Whether it answers a solicitation.
        is_solicited: bool,
        /// Whether it shall replace what the receiver knows.
        overrides: bool,
        /// The target's address on the link.
        options: NdpOptions<'a>,
    },
    /// There is a better first hop.
    Redirect {
        /// The better first hop.
        target: Ipv6Addr,
        /// For packets to this address.
        destination: Ipv6Addr,
        /// The target's address on the link, and the packet redirected.
        options: NdpOptions<'a>,
    },
}

/// What a router advertises beside options (RFC 4861 §4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouterParameters {
    /// The hop limit that hosts shall send with; 0 says nothing.
    pub hop_limit: u8,
    /// Managed (0x80) and other (0x40) configuration, preference (RFC 4191), reserved bits.
    pub flags: u8,
    /// How long it is a default router, in seconds; 0: it is none.
    pub lifetime_s: u16,
    /// How long a neighbour counts as reachable, in milliseconds; 0 says nothing.
    pub reachable_ms: u32,
    /// How long to wait between solicitations, in milliseconds; 0 says nothing.
    pub retransmit_ms: u32,
}

/// Whether an ICMPv6 type is one of neighbour discovery.
#[inline]
pub const fn is_ndp(kind: u8) -> bool {
    matches!(kind, ROUTER_SOLICITATION..=REDIRECT)
}

impl<'a> NdpMessage<'a> {
    /// Reads the message that an ICMPv6 packet holds.
    ///
    /// # Errors
    /// [`FormatError::Kind`] for another ICMPv6 message, [`FormatError::Code`],
    /// [`FormatError::Truncated`] or [`FormatError::OptionLength`].
    pub fn parse(packet: icmpv6::Icmpv6Packet<'a>) -> Result<Self, FormatError> {
        if !is_ndp(packet.kind()) {
            return Err(FormatError::Kind);
        }
        if packet.code() != 0 {
            return Err(FormatError::Code);
        }
        let body = packet.body();
        Ok(match packet.kind() {
            ROUTER_SOLICITATION => Self::RouterSolicitation { options: NdpOptions::new(body)? },
            ROUTER_ADVERTISEMENT => {
                let (&times, options) = body.split_first_chunk().ok_or(FormatError::Truncated)?;
                let router = router(packet.rest(), times);
                Self::RouterAdvertisement { router, options: NdpOptions::new(options)? }
            }
            NEIGHBOR_SOLICITATION => {
                let (target, options) = address(body)?;
                Self::NeighborSolicitation { target, options: NdpOptions::new(options)? }
            }
            NEIGHBOR_ADVERTISEMENT => {
                let (target, options) = address(body)?;
                let flags = packet.rest()[0];
                Self::NeighborAdvertisement {
                    target,
                    is_router: flags & ROUTER != 0,
                    is_solicited: flags & SOLICITED != 0,
                    overrides: flags & OVERRIDE != 0,
                    options: NdpOptions::new(options)?,
                }
            }
            _ => {
                let (target, rest) = address(body)?;
                let (destination, options) = address(rest)?;
                Self::Redirect { target, destination, options: NdpOptions::new(options)? }
            }
        })
    }

    /// Its options.
    pub fn options(&self) -> NdpOptions<'a> {
        match *self {
            Self::RouterSolicitation { options }
            | Self::RouterAdvertisement { options, .. }
            | Self::NeighborSolicitation { options, .. }
            | Self::NeighborAdvertisement { options, .. }
            | Self::Redirect { options, .. } => options,
        }
    }

    /// Bytes of the ICMPv6 message.
    pub fn emitted_len(&self) -> usize {
        let fixed = match self {
            Self::RouterSolicitation { .. } => 0,
            Self::RouterAdvertisement { .. } => 8,
            Self::NeighborSolicitation { .. } | Self::NeighborAdvertisement { .. } => 16,
            Self::Redirect { .. } => 32,
        };
        icmpv6::HEADER_LEN + fixed + self.options().as_bytes().len()
    }

    /// Writes the ICMPv6 message, with its checksum, to the first `Icmpv6Message::len` bytes of `out`.
    ///
    /// Panics when `out` is shorter.
    pub fn emit(&self, pseudo: PseudoHeader, out: &mut [u8]) {
        let out = &mut out[..self.emitted_len()];
        let (head, body) = out.split_at_mut(icmpv6::HEADER_LEN);
        let options = self.options().as_bytes();
        let (fixed, tail) = body.split_at_mut(body.len() - options.len());
        tail.copy_from_slice(options);
        let (kind, rest) = match *self {
            Self::RouterSolicitation { .. } => (ROUTER_SOLICITATION, [0; 4]),
            Self::RouterAdvertisement { router, .. } => {
                fixed[..4].copy_from_slice(&router.reachable_ms.to_be_bytes());
                fixed[4..].copy_from_slice(&router.retransmit_ms.to_be_bytes());
                let [a, b] = router.lifetime_s.to_be_bytes();
                (ROUTER_ADVERTISEMENT, [router.hop_limit, router.flags, a, b])
            }
            Self::NeighborSolicitation { target, .. } => {
                fixed.copy_from_slice(&target.octets());
                (NEIGHBOR_SOLICITATION, [0; 4])
            }
            Self::NeighborAdvertisement { target, is_router, is_solicited, overrides, .. } => {
                fixed.copy_from_slice(&target.octets());
                let flag = |set, flag| if set { flag } else { 0 };
                let flags = flag(is_router, ROUTER)
                    | flag(is_solicited, SOLICITED)
                    | flag(overrides, OVERRIDE);
                (NEIGHBOR_ADVERTISEMENT, [flags, 0, 0, 0])
            }
            Self::Redirect { target, destination, .. } => {
                fixed[..16].copy_from_slice(&target.octets());
                fixed[16..].copy_from_slice(&destination.octets());
                (REDIRECT, [0; 4])
            }
        };
        let message = icmpv6::Icmpv6Message::Other { kind, code: 0, rest };
        message.emit(pseudo, body.len(), Sum16::of(body), head);
    }
}

fn router([hop_limit, flags, high, low]: [u8; 4], times: [u8; 8]) -> RouterParameters {
    let [a, b, c, d, e, f, g, h] = times;
    RouterParameters {
        hop_limit,
        flags,
        lifetime_s: u16::from_be_bytes([high, low]),
        reachable_ms: u32::from_be_bytes([a, b, c, d]),
        retransmit_ms: u32::from_be_bytes([e, f, g, h]),
    }
}

fn address(bytes: &[u8]) -> Result<(Ipv6Addr, &[u8]), FormatError> {
    let (&address, rest): (&[u8; 16], _) =
        bytes.split_first_chunk().ok_or(FormatError::Truncated)?;
    Ok((address.into(), rest))
}

/// The group that whoever has `address` listens to (RFC 4291 §2.7.1): where solicitations go.
pub const fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let low = u16::from_be_bytes([b, c]);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | a as u16, low)
}

const SOURCE_LINK: u8 = 1;
const TARGET_LINK: u8 = 2;

/// One option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NdpOption<'a> {
    /// The Ethernet address of who sends the message.
    SourceLink(MacAddr),
    /// The Ethernet address of whom the message is about.
    TargetLink(MacAddr),
    /// Any other, or one of an unusual length.
    Other {
        /// Its type.
        kind: u8,
        /// What follows type and length: 8n + 6 bytes.
        data: &'a [u8],
    },
}

impl<'a> NdpOption<'a> {
    fn read(kind: u8, data: &'a [u8]) -> Self {
        match (kind, data) {
            (SOURCE_LINK, &[a, b, c, d, e, f]) => Self::SourceLink(MacAddr([a, b, c, d, e, f])),
            (TARGET_LINK, &[a, b, c, d, e, f]) => Self::TargetLink(MacAddr([a, b, c, d, e, f])),
            _ => Self::Other { kind, data },
        }
    }

    /// Bytes of it, type and length included.
    pub fn emitted_len(&self) -> usize {
        match self {
            Self::SourceLink(_) | Self::TargetLink(_) => 8,
            Self::Other { data, .. } => 2 + data.len(),
        }
    }

    /// Writes it to the first [`NdpOption::emitted_len`] bytes of `out`.
    ///
    /// Panics when `out` is shorter, or its length is not a multiple of 8 below 2,048.
    pub fn emit(&self, out: &mut [u8]) {
        let len = self.emitted_len();
        assert!(len.is_multiple_of(8), "an option is a multiple of 8 bytes long");
        let out = &mut out[..len];
        out[1] = u8::try_from(len / 8).expect("an option is shorter than 2,048 bytes");
        let (kind, data) = match self {
            Self::SourceLink(mac) => (SOURCE_LINK, &mac.0[..]),
            Self::TargetLink(mac) => (TARGET_LINK, &mac.0[..]),
            Self::Other { kind, data } => (*kind, *data),
        };
        out[0] = kind;
        out[2..].copy_from_slice(data);
    }
}

/// The options of one message: every length is known to be right.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NdpOptions<'a>(&'a [u8]);

impl<'a> NdpOptions<'a> {
    /// Those that `bytes` hold.
    ///
    /// # Errors
    /// [`FormatError::OptionLength`] when a length is zero or leaves the message (RFC 4861 §6.1, §7.1:
    /// the whole message is dropped).
    pub fn new(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            rest = split(rest).ok_or(FormatError::OptionLength)?.1;
        }
        Ok(Self(bytes))
    }

    /// The options as they came.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.0
    }

    /// One by one.
    pub fn items(&self) -> impl Iterator<Item = NdpOption<'a>> + use<'a> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (item, behind) = split(rest)?;
            rest = behind;
            Some(NdpOption::read(item[0], &item[2..]))
        })
    }

    /// The Ethernet address that the sender says is its own.
    pub fn source_link(&self) -> Option<MacAddr> {
        self.items().find_map(|item| match item {
            NdpOption::SourceLink(mac) => Some(mac),
            _ => None,
        })
    }

    /// The Ethernet address that the sender says is the target's.
    pub fn target_link(&self) -> Option<MacAddr> {
        self.items().find_map(|item| match item {
            NdpOption::TargetLink(mac) => Some(mac),
            _ => None,
        })
    }
}

/// The first option, of at least 8 bytes, and what is behind it.
fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let len = usize::from(*bytes.get(1)?) * 8;
    if len == 0 { None } else { bytes.split_at_checked(len) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::MacAddr;
    use crate::ip::IpProtocol;
    use proptest::prelude::*;

    fn pseudo(source: &str, destination: &str) -> PseudoHeader {
        let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
        PseudoHeader::v6(source, destination, IpProtocol::ICMPV6)
    }

    prop_compose! {
        fn router_words()(
            hop_limit in any::<u8>(), flags in any::<u8>(), lifetime_s in any::<u16>(),
            reachable_ms in any::<u32>(), retransmit_ms in any::<u32>(),
        ) -> RouterParameters {
            RouterParameters { hop_limit, flags, lifetime_s, reachable_ms, retransmit_ms }
        }
    }

    fn message() -> impl Strategy<Value = NdpMessage<'static>> {
        const LINK: [u8; 8] = [1, 1, 2, 0, 0, 0, 0, 9];
        let options = || (0..2_usize).prop_map(|n| NdpOptions::new(&LINK[..n * 8]).unwrap());
        let address = any::<Ipv6Addr>;
        prop_oneof![
            options().prop_map(|options| NdpMessage::RouterSolicitation { options }),
            (router_words(), options())
                .prop_map(|(router, options)| NdpMessage::RouterAdvertisement { router, options }),
            (address(), options())
                .prop_map(|(target, options)| NdpMessage::NeighborSolicitation { target, options }),
            (address(), any::<[bool; 3]>(), options()).prop_map(
                |(target, [is_router, is_solicited, overrides], options)| {
                    NdpMessage::NeighborAdvertisement {
                        target,
                        is_router,
                        is_solicited,
                        overrides,
                        options,
                    }
                }
            ),
            (address(), address(), options()).prop_map(|(target, destination, options)| {
                NdpMessage::Redirect { target, destination, options }
            }),
        ]
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
        let packet = icmpv6::Icmpv6Packet::parse(&bytes).unwrap().verify(pseudo).unwrap();
        let message = NdpMessage::parse(packet).unwrap();
        let NdpMessage::NeighborSolicitation { target: read, options } = message else {
            panic!("{message:?}")
        };
        assert_eq!(read, target);
        assert_eq!(options.source_link(), Some(MacAddr([0xc2, 0, 0x54, 0xf5, 0, 0])));
    }

    #[test]
    fn what_the_rfc_refuses_is_named() {
        let parse =
            |bytes: &[u8]| NdpMessage::parse(icmpv6::Icmpv6Packet::parse(bytes).unwrap()).err();
        assert_eq!(parse(&[128, 0, 0, 0, 0, 0, 0, 0]), Some(FormatError::Kind));
        assert_eq!(parse(&[133, 1, 0, 0, 0, 0, 0, 0]), Some(FormatError::Code));
        assert_eq!(parse(&[133, 0, 0, 0, 0, 0, 0, 0]), None);
        for (kind, least) in [(134, 16), (135, 24), (136, 24), (137, 40)] {
            let mut bytes = vec![0; least];
            bytes[0] = kind;
            assert_eq!(parse(&bytes), None);
            assert_eq!(parse(&bytes[..least - 1]), Some(FormatError::Truncated));
            bytes.push(1);
            assert_eq!(parse(&bytes), Some(FormatError::OptionLength));
        }
    }

    proptest! {
        #[test]
        fn a_message_emitted_is_read_back_and_verifies(message in message()) {
            let pseudo = pseudo("fe80::1", "fe80::2");
            let mut bytes = vec![0xee; message.emitted_len()];
            message.emit(pseudo, &mut bytes);
            let packet = icmpv6::Icmpv6Packet::parse(&bytes).unwrap().verify(pseudo).unwrap();
            prop_assert_eq!(NdpMessage::parse(packet), Ok(message));
        }

        #[test]
        fn bytes_read_are_emitted_again_but_for_reserved_ones(
            kind in 133..=137_u8, mut bytes in any::<[u8; 40]>(),
        ) {
            (bytes[0], bytes[1]) = (kind, 0);
            let (reserved, fixed) =
                [(4, 8), (8, 16), (4, 24), (5, 24), (4, 40)][usize::from(kind - 133)];
            if kind != 134 {
                bytes[reserved..8].fill(0);
            }
            if kind == 136 {
                bytes[4] &= 0xe0;
            }
            bytes[2..4].fill(0);
            let pseudo = pseudo("fe80::1", "fe80::2");
            let sum = pseudo.checksum(fixed, Sum16::of(&bytes[..fixed]));
            bytes[2..4].copy_from_slice(&sum.to_be_bytes());
            let packet = icmpv6::Icmpv6Packet::parse(&bytes[..fixed]).unwrap();
            let mut again = [0xee; 40];
            NdpMessage::parse(packet).unwrap().emit(pseudo, &mut again);
            prop_assert_eq!(&again[..fixed], &bytes[..fixed]);
        }
    }

    fn item() -> impl Strategy<Value = NdpOption<'static>> {
        const BYTES: [u8; 64] = [9; 64];
        prop_oneof![
            any::<[u8; 6]>().prop_map(|mac| NdpOption::SourceLink(MacAddr(mac))),
            any::<[u8; 6]>().prop_map(|mac| NdpOption::TargetLink(MacAddr(mac))),
            (6..=255_u8, 0..7_usize)
                .prop_map(|(kind, n)| NdpOption::Other { kind, data: &BYTES[..n * 8 + 6] }),
        ]
    }

    #[test]
    fn a_length_of_zero_or_beyond_the_message_is_refused() {
        for bytes in [&[1][..], &[1, 0], &[1, 0, 0, 0, 0, 0, 0, 0], &[1, 2, 0, 0, 0, 0, 0, 0]] {
            assert_eq!(NdpOptions::new(bytes), Err(FormatError::OptionLength), "{bytes:?}");
        }
    }

    #[test]
    fn an_address_of_another_link_is_not_taken_for_ethernets() {
        let bytes = [[1, 2, 7, 7, 7, 7, 7, 7], [7; 8]].concat();
        let options = NdpOptions::new(&bytes).unwrap();
        assert_eq!(options.source_link(), None);
        let data = &bytes[2..];
        assert_eq!(options.items().next(), Some(NdpOption::Other { kind: 1, data }));
    }

    proptest! {
        #[test]
        fn options_emitted_are_read_back(items in proptest::collection::vec(item(), 0..6)) {
            let mut bytes = vec![];
            for item in &items {
                let from = bytes.len();
                bytes.resize(from + item.emitted_len(), 0xee);
                item.emit(&mut bytes[from..]);
            }
            let options = NdpOptions::new(&bytes).unwrap();
            prop_assert_eq!(options.items().collect::<Vec<_>>(), items);
        }
    }
}
