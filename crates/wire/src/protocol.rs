//! IP protocol numbers: what follows an IP header (IANA, "Assigned Internet Protocol Numbers").
//!
//! Left out: those that nothing here parses, beyond their being carried.

use std::fmt;

/// An IPv4 protocol or IPv6 next-header number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options (RFC 8200 §4.3).
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP (RFC 792).
    pub const ICMPV4: Self = Self(1);
    /// IGMP (RFC 9776).
    pub const IGMP: Self = Self(2);
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

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::HOP_BY_HOP => f.write_str("hop-by-hop"),
            Self::ICMPV4 => f.write_str("icmp"),
            Self::IGMP => f.write_str("igmp"),
            Self::IPV4 => f.write_str("ipv4"),
            Self::TCP => f.write_str("tcp"),
            Self::UDP => f.write_str("udp"),
            Self::IPV6 => f.write_str("ipv6"),
            Self::ROUTING => f.write_str("routing"),
            Self::FRAGMENT => f.write_str("fragment"),
            Self::ESP => f.write_str("esp"),
            Self::AUTHENTICATION => f.write_str("ah"),
            Self::ICMPV6 => f.write_str("icmpv6"),
            Self::NO_NEXT => f.write_str("none"),
            Self::DESTINATION => f.write_str("destination"),
            Self(number) => write!(f, "protocol {number}"),
        }
    }
}
