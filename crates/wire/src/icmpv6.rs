//! ICMP for IPv6 (RFC 4443): a message's eight octets, and what follows them.
//!
//! Left out: when to send one, and when to believe one; neighbour discovery (`ndp`) and multicast
//! listeners, which are [`Icmpv6Message::Other`] here.

use plumb_copy::Sum16;

use crate::checksum::PseudoHeader;
use crate::icmp;
use crate::malformed::FormatError;

pub use crate::icmp::{HEADER_LEN, time_exceeded};

/// Codes of [`Icmpv6Message::Unreachable`] (RFC 4443 §3.1).
pub mod unreachable {
    /// There is no route.
    pub const NO_ROUTE: u8 = 0;
    /// Forbidden by an administrator.
    pub const PROHIBITED: u8 = 1;
    /// The destination is beyond the source's scope.
    pub const SCOPE: u8 = 2;
    /// The address cannot be reached.
    pub const ADDRESS: u8 = 3;
    /// Nobody listens at the port.
    pub const PORT: u8 = 4;
    /// The source address failed a policy.
    pub const SOURCE_POLICY: u8 = 5;
    /// The route rejects it.
    pub const REJECT_ROUTE: u8 = 6;
}

/// Codes of [`Icmpv6Message::ParameterProblem`] (RFC 4443 §3.4, RFC 7112).
pub mod parameter_problem {
    /// A field holds what it cannot.
    pub const FIELD: u8 = 0;
    /// Nobody knows the next header.
    pub const NEXT_HEADER: u8 = 1;
    /// Nobody knows the option.
    pub const OPTION: u8 = 2;
    /// The first fragment does not hold every header.
    pub const INCOMPLETE_CHAIN: u8 = 3;
}

/// What a message says; its body follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmpv6Message {
    /// 1: a packet could not be delivered; the body quotes its beginning.
    Unreachable {
        /// Why, of [`mod@unreachable`].
        code: u8,
    },
    /// 2: a packet did not fit the next link; the body quotes its beginning.
    PacketTooBig {
        /// That link's MTU.
        mtu: u32,
    },
    /// 3: a packet or its parts were under way too long; the body quotes it.
    TimeExceeded {
        /// Why, of [`time_exceeded`].
        code: u8,
    },
    /// 4: a header makes no sense; the body quotes the packet.
    ParameterProblem {
        /// What, of [`parameter_problem`].
        code: u8,
        /// The octet at fault, from the packet's first.
        pointer: u32,
    },
    /// 128: shall be answered with the same body.
    EchoRequest {
        /// Whose request.
        identifier: u16,
        /// Which of its requests.
        sequence: u16,
    },
    /// 129: the answer to a request, its body the request's.
    EchoReply {
        /// Whose request.
        identifier: u16,
        /// Which of its requests.
        sequence: u16,
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

impl Icmpv6Message {
    /// Whether it reports an error, to which no error must be sent (RFC 4443 §2.1, §2.4 (e)).
    pub fn is_error(&self) -> bool {
        self.kind() < 128
    }

    /// Its type.
    pub fn kind(&self) -> u8 {
        self.octets()[0]
    }

    /// Writes it to the first [`HEADER_LEN`] bytes of `out`, with the checksum over the
    /// pseudo-header, it, and a body of `body_len` bytes and this sum.
    ///
    /// Panics when `out` is shorter.
    #[inline]
    pub fn emit(&self, pseudo: PseudoHeader, body_len: usize, body: Sum16, out: &mut [u8]) {
        let len = HEADER_LEN + body_len;
        icmp::emit(self.octets(), |sum| pseudo.checksum(len, sum + body), out);
    }

    /// The eight octets, with no checksum.
    #[inline]
    fn octets(self) -> [u8; HEADER_LEN] {
        let long = |kind, code, value: u32| {
            let [a, b, c, d] = value.to_be_bytes();
            [kind, code, 0, 0, a, b, c, d]
        };
        let pair = |first: u16, second: u16| u32::from(first) << 16 | u32::from(second);
        match self {
            Self::Unreachable { code } => long(1, code, 0),
            Self::PacketTooBig { mtu } => long(2, 0, mtu),
            Self::TimeExceeded { code } => long(3, code, 0),
            Self::ParameterProblem { code, pointer } => long(4, code, pointer),
            Self::EchoRequest { identifier, sequence } => long(128, 0, pair(identifier, sequence)),
            Self::EchoReply { identifier, sequence } => long(129, 0, pair(identifier, sequence)),
            Self::Other { kind, code, rest } => long(kind, code, u32::from_be_bytes(rest)),
        }
    }
}

/// A message as it came.
pub type Icmpv6Packet<'a> = icmp::IcmpPacket<'a, Icmpv6Version>;

/// Marks what came over IPv6.
#[derive(Clone, Copy, Debug)]
pub enum Icmpv6Version {}

impl Icmpv6Packet<'_> {
    /// The message, if its checksum is right.
    ///
    /// # Errors
    /// [`FormatError::Checksum`].
    #[inline]
    pub fn verify(self, pseudo: PseudoHeader) -> Result<Self, FormatError> {
        self.checked(|len, sum| pseudo.checksum(len, sum))
    }

    /// What it says. An echo with a code other than 0 is [`Icmpv6Message::Other`].
    #[inline]
    pub fn message(&self) -> Icmpv6Message {
        let (identifier, sequence) = self.halves();
        let rest = self.rest();
        let value = u32::from_be_bytes(rest);
        match (self.kind(), self.code()) {
            (1, code) => Icmpv6Message::Unreachable { code },
            // RFC 4443 §3.2: the code is "ignored by the receiver".
            (2, _) => Icmpv6Message::PacketTooBig { mtu: value },
            (3, code) => Icmpv6Message::TimeExceeded { code },
            (4, code) => Icmpv6Message::ParameterProblem { code, pointer: value },
            (128, 0) => Icmpv6Message::EchoRequest { identifier, sequence },
            (129, 0) => Icmpv6Message::EchoReply { identifier, sequence },
            (kind, code) => Icmpv6Message::Other { kind, code, rest },
        }
    }
}

/// Makes the echo request at the front of `message` the reply to it, checksum included: right when
/// the reply goes from the request's destination to its source.
///
/// Panics when `message` has no eight octets: parse it first.
#[inline]
pub fn answer_echo(message: &mut [u8]) {
    icmp::set_kind(message, 129, std::convert::identity);
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use proptest::prelude::*;

    use super::*;
    use crate::ip::IpProtocol;

    fn pseudo() -> PseudoHeader {
        let source: Ipv6Addr = "2001:db8::1".parse().unwrap();
        PseudoHeader::v6(source, "2001:db8::2".parse().unwrap(), IpProtocol::ICMPV6)
    }

    fn message() -> impl Strategy<Value = Icmpv6Message> {
        let pair = || (any::<u16>(), any::<u16>());
        let code = any::<u8>;
        let known =
            |kind: u8, code: u8| (1..=4).contains(&kind) || matches!((kind, code), (128 | 129, 0));
        prop_oneof![
            code().prop_map(|code| Icmpv6Message::Unreachable { code }),
            any::<u32>().prop_map(|mtu| Icmpv6Message::PacketTooBig { mtu }),
            code().prop_map(|code| Icmpv6Message::TimeExceeded { code }),
            (code(), any::<u32>())
                .prop_map(|(code, pointer)| Icmpv6Message::ParameterProblem { code, pointer }),
            pair().prop_map(|(identifier, sequence)| Icmpv6Message::EchoReply {
                identifier,
                sequence
            }),
            pair().prop_map(|(identifier, sequence)| Icmpv6Message::EchoRequest {
                identifier,
                sequence
            }),
            (code(), code(), any::<[u8; 4]>())
                .prop_filter("another", move |(kind, code, _)| !known(*kind, *code))
                .prop_map(|(kind, code, rest)| Icmpv6Message::Other { kind, code, rest }),
        ]
    }

    #[test]
    fn the_pseudo_header_is_part_of_the_sum() {
        let message = Icmpv6Message::EchoRequest { identifier: 1, sequence: 2 };
        let mut bytes = [0; HEADER_LEN];
        message.emit(pseudo(), 0, Sum16::ZERO, &mut bytes);
        assert!(Icmpv6Packet::parse(&bytes).unwrap().verify(pseudo()).is_ok());
        let other = PseudoHeader::v6(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, IpProtocol::ICMPV6);
        let verified = Icmpv6Packet::parse(&bytes).unwrap().verify(other);
        assert_eq!(verified.err(), Some(FormatError::Checksum));
    }

    proptest! {
        #[test]
        fn a_message_emitted_is_read_back_and_verifies(
            message in message(), body in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut bytes = vec![0xee; HEADER_LEN];
            message.emit(pseudo(), body.len(), Sum16::of(&body), &mut bytes);
            bytes.extend(&body);
            let packet = Icmpv6Packet::parse(&bytes).unwrap().verify(pseudo()).unwrap();
            prop_assert_eq!(packet.message(), message);
            prop_assert_eq!(packet.body(), &body);
        }

        #[test]
        fn an_echo_is_answered_in_place(
            identifier in any::<u16>(), sequence in any::<u16>(), body in any::<[u8; 5]>(),
        ) {
            let mut bytes = vec![0; HEADER_LEN];
            let request = Icmpv6Message::EchoRequest { identifier, sequence };
            request.emit(pseudo(), 5, Sum16::of(&body), &mut bytes);
            bytes.extend(body);
            answer_echo(&mut bytes);
            let packet = Icmpv6Packet::parse(&bytes).unwrap().verify(pseudo()).unwrap();
            prop_assert_eq!(packet.message(), Icmpv6Message::EchoReply { identifier, sequence });
        }

        #[test]
        fn bytes_read_are_emitted_again_but_for_unused_ones(mut bytes in any::<[u8; 12]>()) {
            match bytes[0] {
                1 | 3 => bytes[4..8].fill(0),
                2 => bytes[1] = 0,
                _ => {}
            }
            bytes[2..4].fill(0);
            let checksum = pseudo().checksum(12, Sum16::of(&bytes));
            bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
            let packet = Icmpv6Packet::parse(&bytes).unwrap().verify(pseudo()).unwrap();
            let mut again = [0; HEADER_LEN];
            packet.message().emit(pseudo(), 4, Sum16::of(packet.body()), &mut again);
            prop_assert_eq!(&again[..], &bytes[..8]);
        }
    }
}
