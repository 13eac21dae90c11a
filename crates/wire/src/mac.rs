//! Ethernet addresses, and those that IP multicast maps to.
//!
//! Left out: who owns which address.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use thiserror::Error;

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

    /// The modified EUI-64 interface identifier made from it (RFC 4291, appendix A).
    pub const fn interface_id(self) -> [u8; 8] {
        let [a, b, c, d, e, f] = self.0;
        [a ^ 0x02, b, c, 0xff, 0xfe, d, e, f]
    }

    /// The link-local IPv6 address made from it (RFC 2464 §5).
    pub fn link_local(self) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets[..2].copy_from_slice(&[0xfe, 0x80]);
        octets[8..].copy_from_slice(&self.interface_id());
        Ipv6Addr::from(octets)
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
mod tests {
    use super::*;

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

    #[test]
    fn neither_a_group_nor_nobody_is_one_station() {
        assert!(MacAddr([2, 0, 0, 0, 0, 1]).is_unicast());
        assert!(!MacAddr::UNSPECIFIED.is_unicast());
        assert!(!MacAddr::BROADCAST.is_unicast());
    }
}
