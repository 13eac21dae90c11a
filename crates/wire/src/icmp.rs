//! ICMP for IPv4 (RFC 792) and for IPv6 (RFC 4443): a message's eight octets, and what follows them.
//!
//! One type for both: what they say differs in its numbers alone. Whoever has a pseudo-header, which only
//! ICMPv6 covers, means ICMPv6. Extensions of errors (RFC 4884) are read as part of the quoted packet.

use std::net::IpAddr;

use plumb_copy::Sum16;

use crate::checksum::{PseudoHeader, nonzero, updated};
use crate::ip::IpProtocol;
use crate::malformed::FormatError;

/// Bytes before the body.
pub const HEADER_LEN: usize = 8;

/// Codes of a message that a packet or its parts were under way too long (RFC 792, RFC 4443 §3.3).
pub mod time_exceeded {
    /// The hop limit was used up.
    pub const HOP_LIMIT: u8 = 0;
    /// Fragments were missing for too long.
    pub const REASSEMBLY: u8 = 1;
}

/// Codes of [`IcmpMessage::Unreachable`] over IPv4 (RFC 792, RFC 1122 §3.2.2.1, RFC 1812 §5.2.7.1).
pub mod unreachable_v4 {
    /// The network cannot be reached.
    pub const NETWORK: u8 = 0;
    /// The host cannot be reached.
    pub const HOST: u8 = 1;
    /// The host does not speak the protocol.
    pub const PROTOCOL: u8 = 2;
    /// The port is closed.
    pub const PORT: u8 = 3;
    /// Forbidden by an administrator.
    pub const PROHIBITED: u8 = 13;
}

/// The same over IPv6 (RFC 4443 §3.1).
pub mod unreachable_v6 {
    /// There is no route.
    pub const NO_ROUTE: u8 = 0;
    /// Forbidden by an administrator.
    pub const PROHIBITED: u8 = 1;
    /// The address cannot be reached.
    pub const ADDRESS: u8 = 3;
    /// The port is closed.
    pub const PORT: u8 = 4;
}

/// Codes of [`IcmpMessage::ParameterProblem`] (RFC 4443 §3.4, RFC 7112); IPv4 has the first.
pub mod parameter_problem {
    /// A field holds what it cannot.
    pub const FIELD: u8 = 0;
    /// The next header is unknown.
    pub const NEXT_HEADER: u8 = 1;
    /// The option is unknown.
    pub const OPTION: u8 = 2;
    /// The first fragment does not hold every header.
    pub const INCOMPLETE_CHAIN: u8 = 3;
}

/// Of [`IcmpMessage::PacketTooBig`] over IPv4 (RFC 1191): type and code.
const FRAGMENTATION_NEEDED: (u8, u8) = (3, 4);

/// What a message says; its body follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcmpMessage {
    /// To be answered with the same body.
    EchoRequest {
        /// The host that asks.
        identifier: u16,
        /// Which of its requests.
        sequence: u16,
    },
    /// The answer to a request, its body the request's.
    EchoReply {
        /// The host that asks.
        identifier: u16,
        /// Which of its requests.
        sequence: u16,
    },
    /// A packet could not be delivered; the body quotes its beginning.
    Unreachable {
        /// Why, of [`unreachable_v4`] or [`unreachable_v6`].
        code: u8,
    },
    /// A packet did not fit the next link; the body quotes its beginning.
    PacketTooBig {
        /// That link's MTU; over IPv4 of 16 bits, and 0 where the router does not say.
        mtu: u32,
    },
    /// A packet or its parts were under way too long; the body quotes it.
    TimeExceeded {
        /// Why, of [`time_exceeded`].
        code: u8,
    },
    /// A header makes no sense; the body quotes the packet.
    ParameterProblem {
        /// What, of [`parameter_problem`].
        code: u8,
        /// The octet at fault, from the packet's first; over IPv4 one of the first 256.
        pointer: u32,
    },
    /// Any other.
    Other {
        /// Its type.
        kind: u8,
        /// Its code.
        code: u8,
        /// The last four of the eight octets.
        rest: [u8; 4],
    },
}

impl IcmpMessage {
    /// Writes it to the first [`HEADER_LEN`] bytes of `out`, with the checksum over the pseudo-header
    /// that ICMPv6 has, it, and a body of `body_len` bytes and this sum.
    ///
    /// Panics when `out` is shorter.
    #[inline]
    pub fn emit(self, pseudo: Option<PseudoHeader>, body_len: usize, body: Sum16, out: &mut [u8]) {
        let out: &mut [u8; HEADER_LEN] = out.first_chunk_mut().expect("room for the message");
        *out = self.octets(pseudo.is_some());
        let checksum = checksum(pseudo, HEADER_LEN + body_len, Sum16::of(out) + body);
        out[2..4].copy_from_slice(&checksum.to_be_bytes());
    }

    /// The eight octets, with no checksum.
    #[inline]
    fn octets(self, v6: bool) -> [u8; HEADER_LEN] {
        let kind = |v4, of_v6| if v6 { of_v6 } else { v4 };
        let pair = |first: u16, second: u16| u32::from(first) << 16 | u32::from(second);
        let (kind, code, value) = match self {
            Self::EchoRequest { identifier, sequence } => {
                (kind(8, 128), 0, pair(identifier, sequence))
            }
            Self::EchoReply { identifier, sequence } => {
                (kind(0, 129), 0, pair(identifier, sequence))
            }
            Self::Unreachable { code } => (kind(3, 1), code, 0),
            Self::PacketTooBig { mtu } if v6 => (2, 0, mtu),
            Self::PacketTooBig { mtu } => {
                let (kind, code) = FRAGMENTATION_NEEDED;
                (kind, code, mtu.min(u16::MAX.into()))
            }
            Self::TimeExceeded { code } => (kind(11, 3), code, 0),
            Self::ParameterProblem { code, pointer } if v6 => (4, code, pointer),
            Self::ParameterProblem { code, pointer } => (12, code, pointer << 24),
            Self::Other { kind, code, rest } => (kind, code, u32::from_be_bytes(rest)),
        };
        let [a, b, c, d] = value.to_be_bytes();
        [kind, code, 0, 0, a, b, c, d]
    }
}

/// The checksum of a message of `len` bytes whose sum, its own place being zero, is `sum`.
#[inline]
fn checksum(pseudo: Option<PseudoHeader>, len: usize, sum: Sum16) -> u16 {
    pseudo.map_or_else(|| sum.finish(), |pseudo| pseudo.checksum(len, sum))
}

/// The protocol of messages between two addresses of one family, and the pseudo-header that its checksum
/// covers.
#[inline]
pub fn protocol_between(source: IpAddr, destination: IpAddr) -> (IpProtocol, Option<PseudoHeader>) {
    if source.is_ipv4() {
        return (IpProtocol::ICMPV4, None);
    }
    (IpProtocol::ICMPV6, PseudoHeader::between(source, destination, IpProtocol::ICMPV6))
}

/// Whether no error must be sent about a message of this type: an error itself, or a redirect
/// (RFC 1122 §3.2.2, RFC 4443 §2.4 (e)).
pub const fn forbids_errors(kind: u8, v6: bool) -> bool {
    if v6 { kind < 128 || kind == 137 } else { matches!(kind, 3 | 4 | 5 | 11 | 12) }
}

/// A message as it came.
#[derive(Clone, Copy, Debug)]
pub struct IcmpPacket<'a> {
    fixed: &'a [u8; HEADER_LEN],
    body: &'a [u8],
    pseudo: Option<PseudoHeader>,
}

impl<'a> IcmpPacket<'a> {
    /// Reads a message: of ICMPv6 where there is a pseudo-header.
    ///
    /// The checksum is not looked at: see [`IcmpPacket::verify`].
    ///
    /// # Errors
    /// [`FormatError::Truncated`]: also for less than eight octets, which no known message has.
    #[inline]
    pub fn parse(bytes: &'a [u8], pseudo: Option<PseudoHeader>) -> Result<Self, FormatError> {
        let (fixed, body) = bytes.split_first_chunk().ok_or(FormatError::Truncated)?;
        Ok(Self { fixed, body, pseudo })
    }

    /// The message, if its checksum is right.
    ///
    /// # Errors
    /// [`FormatError::Checksum`].
    #[inline]
    pub fn verify(self) -> Result<Self, FormatError> {
        let sum = Sum16::of(self.fixed) + Sum16::of(self.body);
        match checksum(self.pseudo, HEADER_LEN + self.body.len(), sum) {
            0 => Ok(self),
            _ => Err(FormatError::Checksum),
        }
    }

    /// Whether it is of ICMPv6.
    #[inline]
    pub fn is_v6(&self) -> bool {
        self.pseudo.is_some()
    }

    /// Its type.
    #[inline]
    pub fn kind(&self) -> u8 {
        self.fixed[0]
    }

    /// Its code.
    #[inline]
    pub fn code(&self) -> u8 {
        self.fixed[1]
    }

    /// The last four of the eight octets.
    #[inline]
    pub fn rest(&self) -> [u8; 4] {
        let [.., a, b, c, d] = *self.fixed;
        [a, b, c, d]
    }

    /// What follows the eight octets: an echo's data, or the beginning of the packet at fault.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// What it says. An echo with a code other than 0 is [`IcmpMessage::Other`].
    #[inline]
    pub fn message(&self) -> IcmpMessage {
        let rest @ [a, b, c, d] = self.rest();
        let (identifier, sequence) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let value = u32::from_be_bytes(rest);
        match (self.is_v6(), self.kind(), self.code()) {
            (false, 8, 0) | (true, 128, 0) => IcmpMessage::EchoRequest { identifier, sequence },
            (false, 0, 0) | (true, 129, 0) => IcmpMessage::EchoReply { identifier, sequence },
            // RFC 4443 §3.2: the code is "ignored by the receiver".
            (true, 2, _) => IcmpMessage::PacketTooBig { mtu: value },
            (false, kind, code) if (kind, code) == FRAGMENTATION_NEEDED => {
                IcmpMessage::PacketTooBig { mtu: sequence.into() }
            }
            (false, 3, code) | (true, 1, code) => IcmpMessage::Unreachable { code },
            (false, 11, code) | (true, 3, code) => IcmpMessage::TimeExceeded { code },
            (false, 12, code) => IcmpMessage::ParameterProblem { code, pointer: a.into() },
            (true, 4, code) => IcmpMessage::ParameterProblem { code, pointer: value },
            (_, kind, code) => IcmpMessage::Other { kind, code, rest },
        }
    }
}

/// Makes the echo request at the front of `message` the reply to it, checksum included: of ICMPv6 right
/// when the reply goes from the request's destination to its source.
///
/// Panics when `message` has no eight octets: parse it first.
#[inline]
pub fn answer_echo(message: &mut [u8], v6: bool) {
    let fixed: &mut [u8; HEADER_LEN] = message.first_chunk_mut().expect("a whole message");
    let old = u16::from_be_bytes([fixed[0], fixed[1]]);
    let checksum = u16::from_be_bytes([fixed[2], fixed[3]]);
    fixed[0] = if v6 { 129 } else { 0 };
    let new = u16::from_be_bytes([fixed[0], fixed[1]]);
    // A reply without a bit set sums to zero, and no update can tell that from minus zero: 0xffff is
    // right of either.
    let checksum = nonzero(updated(checksum, old, new));
    fixed[2..4].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;

    /// Of ICMP for IPv4, and of ICMPv6.
    fn families() -> [Option<PseudoHeader>; 2] {
        let ends = (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1), Ipv6Addr::LOCALHOST);
        [None, Some(PseudoHeader::v6(ends.0, ends.1, IpProtocol::ICMPV6))]
    }

    fn bytes_of(message: IcmpMessage, body: &[u8], pseudo: Option<PseudoHeader>) -> Vec<u8> {
        let mut bytes = vec![0xee; HEADER_LEN];
        message.emit(pseudo, body.len(), Sum16::of(body), &mut bytes);
        bytes.extend(body);
        bytes
    }

    fn message() -> impl Strategy<Value = IcmpMessage> {
        let pair = || (any::<u16>(), any::<u16>());
        let known = |kind: u8| matches!(kind, 0..=4 | 8 | 11 | 12 | 128 | 129);
        prop_oneof![
            pair()
                .prop_map(|(identifier, sequence)| IcmpMessage::EchoReply { identifier, sequence }),
            pair().prop_map(|(identifier, sequence)| IcmpMessage::EchoRequest {
                identifier,
                sequence
            }),
            (5..=255_u8).prop_map(|code| IcmpMessage::Unreachable { code }),
            any::<u16>().prop_map(|mtu| IcmpMessage::PacketTooBig { mtu: mtu.into() }),
            any::<u8>().prop_map(|code| IcmpMessage::TimeExceeded { code }),
            any::<(u8, u8)>().prop_map(|(code, pointer)| {
                IcmpMessage::ParameterProblem { code, pointer: pointer.into() }
            }),
            any::<(u8, u8, [u8; 4])>()
                .prop_filter("another", move |(kind, ..)| !known(*kind))
                .prop_map(|(kind, code, rest)| IcmpMessage::Other { kind, code, rest }),
        ]
    }

    #[test]
    fn the_reply_to_a_request_of_zeros_has_a_right_checksum() {
        let request = IcmpMessage::EchoRequest { identifier: 0, sequence: 0 };
        let mut bytes = bytes_of(request, &[0; 8], None);
        answer_echo(&mut bytes, false);
        assert_eq!(Sum16::of(&bytes).finish(), 0, "{bytes:02x?}");
    }

    #[test]
    fn an_echo_request_as_ping_sends_it_is_read_and_answered() {
        // Identifier 1, sequence 1, "abcdefghijklmnopqrstuvwabcdefghi": Windows's, checksum 4d5a.
        let mut bytes = vec![0x08, 0x00, 0x4d, 0x5a, 0x00, 0x01, 0x00, 0x01];
        bytes.extend(b"abcdefghijklmnopqrstuvwabcdefghi");
        let packet = IcmpPacket::parse(&bytes, None).unwrap().verify().unwrap();
        let (identifier, sequence) = (1, 1);
        assert_eq!(packet.message(), IcmpMessage::EchoRequest { identifier, sequence });
        answer_echo(&mut bytes, false);
        assert_eq!(bytes[..4], [0x00, 0x00, 0x55, 0x5a]);
    }

    #[test]
    fn the_pseudo_header_is_part_of_the_sum() {
        let message = IcmpMessage::EchoRequest { identifier: 1, sequence: 2 };
        let [_, pseudo] = families();
        let bytes = bytes_of(message, &[], pseudo);
        let other = PseudoHeader::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, IpProtocol::ICMPV6);
        let verified = IcmpPacket::parse(&bytes, Some(other)).unwrap().verify();
        assert_eq!(verified.err(), Some(FormatError::Checksum));
    }

    #[test]
    fn no_error_answers_an_error_or_a_redirect() {
        for (kind, forbidden) in [(3, [true; 2]), (8, [false, true]), (128, [false; 2])] {
            assert_eq!([forbids_errors(kind, false), forbids_errors(kind, true)], forbidden);
        }
        assert!(forbids_errors(5, false) && forbids_errors(137, true));
    }

    proptest! {
        #[test]
        fn a_message_emitted_is_read_back_and_verifies(
            message in message(), body in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            for pseudo in families() {
                let bytes = bytes_of(message, &body, pseudo);
                let packet = IcmpPacket::parse(&bytes, pseudo).unwrap().verify().unwrap();
                prop_assert_eq!(packet.message(), message);
                prop_assert_eq!(packet.body(), &body);
            }
        }

        #[test]
        fn an_echo_is_answered_in_place(
            identifier in any::<u16>(), sequence in any::<u16>(), body in any::<[u8; 5]>(),
        ) {
            for pseudo in families() {
                let request = IcmpMessage::EchoRequest { identifier, sequence };
                let mut bytes = bytes_of(request, &body, pseudo);
                answer_echo(&mut bytes, pseudo.is_some());
                let packet = IcmpPacket::parse(&bytes, pseudo).unwrap().verify().unwrap();
                prop_assert_eq!(packet.message(), IcmpMessage::EchoReply { identifier, sequence });
            }
        }
    }
}
