//! ICMP for IPv4 (RFC 792): a message's eight octets, and what follows them.
//!
//! Left out: when to send one, and when to believe one; extensions of errors (RFC 4884), which are
//! read as part of the quoted packet.

use std::net::Ipv4Addr;

use plumb_copy::Sum16;

use crate::checksum::nonzero;
use crate::icmp;
use crate::malformed::FormatError;

pub use crate::icmp::{HEADER_LEN, time_exceeded};

/// Codes of [`Icmpv4Message::Unreachable`] (RFC 792, RFC 1122 §3.2.2.1, RFC 1812 §5.2.7.1).
pub mod unreachable {
    /// The network cannot be reached.
    pub const NETWORK: u8 = 0;
    /// The host cannot be reached.
    pub const HOST: u8 = 1;
    /// The host does not speak the protocol.
    pub const PROTOCOL: u8 = 2;
    /// Nobody listens at the port.
    pub const PORT: u8 = 3;
    /// It would have to be fragmented, and must not be (RFC 1191).
    pub const FRAGMENTATION_NEEDED: u8 = 4;
    /// A source route failed.
    pub const SOURCE_ROUTE: u8 = 5;
    /// Forbidden by an administrator.
    pub const PROHIBITED: u8 = 13;
}

/// What a message says; its body follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Icmpv4Message {
    /// 0: the answer to a request, its body the request's.
    EchoReply {
        /// Whose request.
        identifier: u16,
        /// Which of its requests.
        sequence: u16,
    },
    /// 3: a packet could not be delivered; the body quotes its beginning.
    Unreachable {
        /// Why, of [`mod@unreachable`].
        code: u8,
        /// The MTU of the link it did not fit (RFC 1191 §4), or 0.
        next_hop_mtu: u16,
    },
    /// 5: there is a better first router; the body quotes the packet.
    Redirect {
        /// Which packets: 0 network, 1 host, and each for a type of service.
        code: u8,
        /// The better router.
        gateway: Ipv4Addr,
    },
    /// 8: shall be answered with the same body.
    EchoRequest {
        /// Whose request.
        identifier: u16,
        /// Which of its requests.
        sequence: u16,
    },
    /// 11: a packet or its parts were under way too long; the body quotes it.
    TimeExceeded {
        /// Why, of [`time_exceeded`].
        code: u8,
    },
    /// 12: a header makes no sense; the body quotes the packet.
    ParameterProblem {
        /// 0: the pointer shows where.
        code: u8,
        /// The octet at fault.
        pointer: u8,
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

impl Icmpv4Message {
    /// Whether it reports an error, to which no error must be sent (RFC 1122 §3.2.2).
    pub fn is_error(&self) -> bool {
        matches!(self.kind(), 3 | 4 | 5 | 11 | 12)
    }

    /// Its type.
    pub fn kind(&self) -> u8 {
        self.octets()[0]
    }

    /// Writes it, with the checksum over it and a body of this sum, to the first [`HEADER_LEN`]
    /// bytes of `out`. Panics when `out` is shorter.
    #[inline]
    pub fn emit(&self, body: Sum16, out: &mut [u8]) {
        icmp::emit(self.octets(), |sum| (sum + body).finish(), out);
    }

    /// The eight octets, with no checksum.
    #[inline]
    fn octets(self) -> [u8; HEADER_LEN] {
        let pair = |kind, first: u16, second: u16| {
            let ([a, b], [c, d]) = (first.to_be_bytes(), second.to_be_bytes());
            [kind, 0, 0, 0, a, b, c, d]
        };
        match self {
            Self::EchoReply { identifier, sequence } => pair(0, identifier, sequence),
            Self::EchoRequest { identifier, sequence } => pair(8, identifier, sequence),
            Self::Unreachable { code, next_hop_mtu } => {
                let [a, b] = next_hop_mtu.to_be_bytes();
                [3, code, 0, 0, 0, 0, a, b]
            }
            Self::Redirect { code, gateway } => {
                let [a, b, c, d] = gateway.octets();
                [5, code, 0, 0, a, b, c, d]
            }
            Self::TimeExceeded { code } => [11, code, 0, 0, 0, 0, 0, 0],
            Self::ParameterProblem { code, pointer } => [12, code, 0, 0, pointer, 0, 0, 0],
            Self::Other { kind, code, rest: [a, b, c, d] } => [kind, code, 0, 0, a, b, c, d],
        }
    }
}

/// A message as it came.
pub type Icmpv4Packet<'a> = icmp::IcmpPacket<'a, Icmpv4Version>;

/// Marks what came over IPv4.
#[derive(Clone, Copy, Debug)]
pub enum Icmpv4Version {}

impl Icmpv4Packet<'_> {
    /// The message, if its checksum is right.
    ///
    /// # Errors
    /// [`FormatError::Checksum`].
    #[inline]
    pub fn verify(self) -> Result<Self, FormatError> {
        self.checked(|_, sum| sum.finish())
    }

    /// What it says. An echo with a code other than 0 is [`Icmpv4Message::Other`].
    #[inline]
    pub fn message(&self) -> Icmpv4Message {
        let (first, second) = self.halves();
        let rest @ [pointer, ..] = self.rest();
        match (self.kind(), self.code()) {
            (0, 0) => Icmpv4Message::EchoReply { identifier: first, sequence: second },
            (8, 0) => Icmpv4Message::EchoRequest { identifier: first, sequence: second },
            (3, code) => Icmpv4Message::Unreachable { code, next_hop_mtu: second },
            (5, code) => Icmpv4Message::Redirect { code, gateway: Ipv4Addr::from(rest) },
            (11, code) => Icmpv4Message::TimeExceeded { code },
            (12, code) => Icmpv4Message::ParameterProblem { code, pointer },
            (kind, code) => Icmpv4Message::Other { kind, code, rest },
        }
    }
}

/// Makes the echo request at the front of `message` the reply to it, checksum included.
///
/// Panics when `message` has no eight octets: parse it first.
#[inline]
pub fn answer_echo(message: &mut [u8]) {
    // A reply without a bit set sums to zero, and no update can tell that from minus zero: 0xffff is
    // right of either.
    icmp::set_kind(message, 0, nonzero);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_reply_to_a_request_of_zeros_has_a_right_checksum() {
        let mut message = [0; 16];
        Icmpv4Message::EchoRequest { identifier: 0, sequence: 0 }.emit(Sum16::ZERO, &mut message);
        answer_echo(&mut message);
        assert_eq!(Sum16::of(&message).finish(), 0, "{message:02x?}");
    }

    fn message() -> impl Strategy<Value = Icmpv4Message> {
        let pair = || (any::<u16>(), any::<u16>());
        let code = any::<u8>;
        let known = |kind: u8, code: u8| {
            matches!(kind, 3 | 5 | 11 | 12) || (matches!(kind, 0 | 8) && code == 0)
        };
        prop_oneof![
            pair().prop_map(|(identifier, sequence)| Icmpv4Message::EchoReply {
                identifier,
                sequence
            }),
            pair().prop_map(|(identifier, sequence)| Icmpv4Message::EchoRequest {
                identifier,
                sequence
            }),
            (code(), any::<u16>())
                .prop_map(|(code, next_hop_mtu)| Icmpv4Message::Unreachable { code, next_hop_mtu }),
            (code(), any::<Ipv4Addr>())
                .prop_map(|(code, gateway)| Icmpv4Message::Redirect { code, gateway }),
            code().prop_map(|code| Icmpv4Message::TimeExceeded { code }),
            (code(), any::<u8>())
                .prop_map(|(code, pointer)| Icmpv4Message::ParameterProblem { code, pointer }),
            (code(), code(), any::<[u8; 4]>())
                .prop_filter("another", move |(kind, code, _)| !known(*kind, *code))
                .prop_map(|(kind, code, rest)| Icmpv4Message::Other { kind, code, rest }),
        ]
    }

    #[test]
    fn an_echo_request_as_ping_sends_it_is_read_and_answered() {
        // Identifier 1, sequence 1, "abcdefghijklmnopqrstuvwabcdefghi": Windows's, checksum 4d5a.
        let mut bytes = vec![0x08, 0x00, 0x4d, 0x5a, 0x00, 0x01, 0x00, 0x01];
        bytes.extend(b"abcdefghijklmnopqrstuvwabcdefghi");
        let packet = Icmpv4Packet::parse(&bytes).unwrap().verify().unwrap();
        let (identifier, sequence) = (1, 1);
        assert_eq!(packet.message(), Icmpv4Message::EchoRequest { identifier, sequence });
        answer_echo(&mut bytes);
        assert_eq!(bytes[..4], [0x00, 0x00, 0x55, 0x5a]);
        let packet = Icmpv4Packet::parse(&bytes).unwrap().verify().unwrap();
        assert_eq!(packet.message(), Icmpv4Message::EchoReply { identifier, sequence });
    }

    #[test]
    fn no_error_answers_an_error() {
        assert!(Icmpv4Message::TimeExceeded { code: 0 }.is_error());
        assert!(Icmpv4Message::Other { kind: 4, code: 0, rest: [0; 4] }.is_error());
        assert!(!Icmpv4Message::EchoRequest { identifier: 0, sequence: 0 }.is_error());
    }

    proptest! {
        #[test]
        fn a_message_emitted_is_read_back_and_verifies(
            message in message(), body in proptest::collection::vec(any::<u8>(), 0..100),
        ) {
            let mut bytes = vec![0xee; HEADER_LEN];
            message.emit(Sum16::of(&body), &mut bytes);
            bytes.extend(&body);
            let packet = Icmpv4Packet::parse(&bytes).unwrap().verify().unwrap();
            prop_assert_eq!(packet.message(), message);
            prop_assert_eq!(packet.body(), &body);
        }

        #[test]
        fn bytes_read_are_emitted_again_but_for_unused_ones(mut bytes in any::<[u8; 12]>()) {
            match bytes[0] {
                3 => bytes[4..6].fill(0),
                11 => bytes[4..8].fill(0),
                12 => bytes[5..8].fill(0),
                _ => {}
            }
            bytes[2..4].fill(0);
            let checksum = Sum16::of(&bytes).finish();
            bytes[2..4].copy_from_slice(&checksum.to_be_bytes());
            let packet = Icmpv4Packet::parse(&bytes).unwrap().verify().unwrap();
            let mut again = [0; HEADER_LEN];
            packet.message().emit(Sum16::of(packet.body()), &mut again);
            prop_assert_eq!(&again[..], &bytes[..8]);
        }
    }
}
