//! Interfaces: a device's capabilities, this host's addresses there, and what waits to be sent.
//!
//! The host follows the strong end system model (RFC 1122 §3.3.4.2): a packet must be for an address
//! of the interface that it came by. Left out: the device itself, routes, learning addresses, and
//! multicast listener discovery (RFC 3810), which RFC 4861 §7.2.1 asks for: no switch is told of the
//! groups in which this host hears solicitations.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plumb_base::time::Instant;
use plumb_wire::mac::MacAddr;
use plumb_wire::medium::{Capabilities, Medium};
use plumb_wire::ndp::solicited_node;
use plumb_wire::packet::Packet;

use crate::route::Prefix;

/// How to make an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceConfig {
    /// What its device carries and does.
    pub capabilities: Capabilities,
    /// Its link address; of no meaning without Ethernet.
    pub mac: MacAddr,
    /// Its addresses, each with the bits of its network.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Whether it also gets the link-local IPv6 address that follows from its link address.
    pub link_local: bool,
}

impl InterfaceConfig {
    /// Of a plain Ethernet device, with a link-local address and no other.
    pub const fn ethernet(mac: MacAddr, mtu: u32) -> Self {
        Self {
            capabilities: Capabilities::plain(Medium::Ethernet, mtu),
            mac,
            addresses: Vec::new(),
            link_local: true,
        }
    }

    /// Of a plain device for bare IP packets, without addresses.
    pub const fn ip(mtu: u32) -> Self {
        Self {
            capabilities: Capabilities::plain(Medium::Ip, mtu),
            mac: MacAddr::UNSPECIFIED,
            addresses: Vec::new(),
            link_local: false,
        }
    }

    /// The same with one more address.
    #[must_use]
    pub fn with_address(mut self, address: impl Into<IpAddr>, prefix_len: u8) -> Self {
        self.addresses.push((address.into(), prefix_len));
        self
    }
}

/// Why an interface cannot be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InterfaceError {
    /// Too many bits for the family.
    #[error("{0}/{1} is no network: a prefix of IPv4 has at most 32 bits, one of IPv6 128")]
    PrefixLength(IpAddr, u8),
    /// An address that no station has.
    #[error("{0} cannot be the address of one host: choose a unicast address")]
    Address(IpAddr),
    /// The address is there already.
    #[error("{0} is an address of this host already: give each address once")]
    Twice(IpAddr),
    /// A link address that no station has.
    #[error("{0} cannot be the address of one Ethernet station: choose one like 02:00:00:00:00:01")]
    Mac(MacAddr),
    /// The link is too small for IP.
    #[error("an MTU of {mtu} is too small: IPv{version} needs {least} bytes")]
    Mtu {
        /// The device's.
        mtu: u32,
        /// The family that has an address there.
        version: u8,
        /// What it needs.
        least: u32,
    },
    /// More interfaces than ports.
    #[error("a host has at most 65,535 interfaces")]
    TooMany,
}

/// What a destination address means at an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// One of the interface's own addresses.
    Own,
    /// A multicast group that it is in, or a broadcast address.
    Group,
    /// Somebody else's.
    Other,
}

/// One address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address {
    /// The address.
    pub ip: IpAddr,
    /// Its network.
    pub prefix: Prefix,
    /// When it was last defended against a claim (RFC 5227 §2.4).
    pub defended: Option<Instant>,
}

/// One interface.
#[derive(Debug)]
pub struct Interface {
    /// What its device carries and does.
    pub capabilities: Capabilities,
    /// Its link address.
    pub mac: MacAddr,
    /// Its addresses.
    pub addresses: Vec<Address>,
    /// Frames that wait for the device.
    pub(crate) queue: VecDeque<Packet>,
    v4: Vec<(Ipv4Addr, Option<Ipv4Addr>)>,
    v6: Vec<Ipv6Addr>,
}

impl Interface {
    /// An interface as described.
    ///
    /// # Errors
    /// When an address or the MTU cannot be.
    pub fn new(config: &InterfaceConfig) -> Result<Self, InterfaceError> {
        let ethernet = config.capabilities.medium == Medium::Ethernet;
        if ethernet && !config.mac.is_unicast() {
            return Err(InterfaceError::Mac(config.mac));
        }
        let mut interface = Self {
            capabilities: config.capabilities,
            mac: config.mac,
            addresses: Vec::new(),
            queue: VecDeque::new(),
            v4: Vec::new(),
            v6: Vec::new(),
        };
        for &(ip, len) in &config.addresses {
            interface.add(ip, len)?;
        }
        let mtu = config.capabilities.mtu;
        if config.link_local && ethernet && mtu >= MTU_MIN_V6 {
            let ip = IpAddr::V6(config.mac.link_local());
            if !interface.owns(ip) {
                interface.add(ip, 64)?;
            }
        }
        Ok(interface)
    }

    fn add(&mut self, ip: IpAddr, len: u8) -> Result<(), InterfaceError> {
        let prefix = Prefix::new(ip, len).ok_or(InterfaceError::PrefixLength(ip, len))?;
        if !is_unicast(ip) || prefix.broadcast().is_some_and(|all| IpAddr::V4(all) == ip) {
            return Err(InterfaceError::Address(ip));
        }
        if self.owns(ip) {
            return Err(InterfaceError::Twice(ip));
        }
        let (version, least) = if ip.is_ipv4() { (4, MTU_MIN_V4) } else { (6, MTU_MIN_V6) };
        let mtu = self.capabilities.mtu;
        if mtu < least {
            return Err(InterfaceError::Mtu { mtu, version, least });
        }
        match ip {
            IpAddr::V4(v4) => self.v4.push((v4, prefix.broadcast())),
            IpAddr::V6(v6) => self.v6.push(v6),
        }
        self.addresses.push(Address { ip, prefix, defended: None });
        Ok(())
    }

    /// Whether an address is one of its own.
    #[inline]
    pub fn owns(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.owns4(ip),
            IpAddr::V6(ip) => self.owns6(ip),
        }
    }

    /// Whether an IPv4 address is one of its own.
    #[inline]
    pub fn owns4(&self, ip: Ipv4Addr) -> bool {
        self.v4.iter().any(|&(own, _)| own == ip)
    }

    /// Whether an IPv6 address is one of its own.
    #[inline]
    pub fn owns6(&self, ip: Ipv6Addr) -> bool {
        self.v6.contains(&ip)
    }

    /// What an IPv4 destination means here.
    #[inline]
    pub fn cast4(&self, ip: Ipv4Addr) -> Cast {
        if self.owns4(ip) {
            return Cast::Own;
        }
        let group = ip == ALL_HOSTS || ip.is_broadcast() || self.is_broadcast(ip);
        if group { Cast::Group } else { Cast::Other }
    }

    /// What an IPv6 destination means here.
    #[inline]
    pub fn cast6(&self, ip: Ipv6Addr) -> Cast {
        if self.owns6(ip) {
            return Cast::Own;
        }
        let group = ip == ALL_NODES || ip == ALL_NODES_OF_INTERFACE || self.is_solicited(ip);
        if group { Cast::Group } else { Cast::Other }
    }

    /// Whether an IPv4 address is the directed broadcast of one of its networks.
    #[inline]
    pub fn is_broadcast(&self, ip: Ipv4Addr) -> bool {
        self.v4.iter().any(|&(_, broadcast)| broadcast == Some(ip))
    }

    /// Whether an IPv4 packet on the link may come from an address: not from one that no host has,
    /// from a group, from a broadcast address, or from this host itself (RFC 1122 §3.2.1.3).
    #[inline]
    pub fn admits4(&self, source: Ipv4Addr) -> bool {
        !never_on_a_link4(source)
            && !source.is_multicast()
            && !self.v4.iter().any(|&(own, all)| own == source || all == Some(source))
    }

    /// The same for IPv6 (RFC 4291 §2.7), save that a probe comes from no address (§2.5.2).
    #[inline]
    pub fn admits6(&self, source: Ipv6Addr) -> bool {
        !never_on_a_link6(source) && !source.is_multicast() && !self.owns6(source)
    }

    fn is_solicited(&self, ip: Ipv6Addr) -> bool {
        self.v6.iter().any(|&own| solicited_node(own) == ip)
    }

    /// Whether an address is on a network of this link.
    pub fn is_on_link(&self, ip: IpAddr) -> bool {
        self.addresses.iter().any(|address| address.prefix.contains(ip))
    }

    /// The address to talk to `remote` from: on its network, else of its scope, else any of its
    /// family (RFC 6724 §5, the rules that fixed addresses leave).
    pub fn source_for(&self, remote: IpAddr) -> Option<IpAddr> {
        let family = || self.addresses.iter().filter(|a| a.ip.is_ipv4() == remote.is_ipv4());
        let link_local = is_link_local(remote);
        family()
            .filter(|address| is_link_local(address.ip) == link_local)
            .max_by_key(|address| {
                let on_link = address.prefix.contains(remote);
                (on_link, if on_link { address.prefix.len() } else { 0 })
            })
            .or_else(|| family().next())
            .map(|address| address.ip)
    }
}

/// The least MTU of a link for IPv4 (RFC 791 §3.2).
pub const MTU_MIN_V4: u32 = 68;
/// The least MTU of a link for IPv6 (RFC 8200 §5).
pub const MTU_MIN_V6: u32 = 1_280;

const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_OF_INTERFACE: Ipv6Addr = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 1);

/// Whether an address can be that of one host on a link.
pub fn is_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !never_on_a_link4(ip) && !ip.is_multicast(),
        IpAddr::V6(ip) => !never_on_a_link6(ip) && !ip.is_multicast(),
    }
}

/// Whether no packet on a link may come from, or go to, this address: this network, loopback,
/// reserved (RFC 1122 §3.2.1.3). The limited broadcast is among the reserved.
#[inline]
pub(crate) fn never_on_a_link4(ip: Ipv4Addr) -> bool {
    let [first, ..] = ip.octets();
    first == 0 || first == 127 || first >= 240
}

/// The same for IPv6: unspecified, loopback, IPv4-mapped (RFC 4291 §2.5).
#[inline]
pub(crate) fn never_on_a_link6(ip: Ipv6Addr) -> bool {
    let bits = ip.to_bits();
    bits <= 1 || bits >> 32 == 0xffff
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => {
            ip.is_unicast_link_local() || (ip.is_multicast() && ip.octets()[1] & 0xf == 2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn interface() -> Interface {
        let config = InterfaceConfig::ethernet(MAC, 1_500)
            .with_address(ip("192.0.2.1"), 24)
            .with_address(ip("10.9.0.1"), 16)
            .with_address(ip("2001:db8::1"), 64);
        Interface::new(&config).unwrap()
    }

    #[test]
    fn it_knows_its_own_addresses_its_groups_and_nobody_elses() {
        let interface = interface();
        for (text, cast) in [
            ("192.0.2.1", Cast::Own),
            ("192.0.2.255", Cast::Group),
            ("10.9.255.255", Cast::Group),
            ("255.255.255.255", Cast::Group),
            ("224.0.0.1", Cast::Group),
            ("224.0.0.5", Cast::Other),
            ("192.0.2.2", Cast::Other),
        ] {
            assert_eq!(interface.cast4(text.parse().unwrap()), cast, "{text}");
        }
        for (text, cast) in [
            ("2001:db8::1", Cast::Own),
            ("fe80::ff:fe00:1", Cast::Own),
            ("ff02::1", Cast::Group),
            ("ff02::1:ff00:1", Cast::Group),
            ("ff02::1:ff00:2", Cast::Other),
            ("ff02::2", Cast::Other),
            ("2001:db8::2", Cast::Other),
        ] {
            assert_eq!(interface.cast6(text.parse().unwrap()), cast, "{text}");
        }
    }

    #[test]
    fn it_talks_from_the_address_that_is_nearest() {
        let interface = interface();
        for (remote, source) in [
            ("192.0.2.7", "192.0.2.1"),
            ("10.9.3.3", "10.9.0.1"),
            ("2001:db8::9", "2001:db8::1"),
            ("2001:db9::9", "2001:db8::1"),
            ("fe80::9", "fe80::ff:fe00:1"),
            ("ff02::1:ff00:9", "fe80::ff:fe00:1"),
        ] {
            assert_eq!(interface.source_for(ip(remote)), Some(ip(source)), "{remote}");
        }
    }

    #[test]
    fn impossible_configurations_are_refused_with_the_reason() {
        let refused = |config: &InterfaceConfig| Interface::new(config).unwrap_err();
        let plain = || InterfaceConfig::ethernet(MAC, 1_500);
        for bad in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "::1", "ff02::1"] {
            let error = refused(&plain().with_address(ip(bad), 0));
            assert_eq!(error, InterfaceError::Address(ip(bad)));
        }
        let broadcast = refused(&plain().with_address(ip("10.0.0.255"), 24));
        assert_eq!(broadcast, InterfaceError::Address(ip("10.0.0.255")));
        let twice = plain().with_address(ip("10.0.0.1"), 24).with_address(ip("10.0.0.1"), 8);
        assert_eq!(refused(&twice), InterfaceError::Twice(ip("10.0.0.1")));
        let bits = refused(&plain().with_address(ip("10.0.0.1"), 33));
        assert_eq!(bits, InterfaceError::PrefixLength(ip("10.0.0.1"), 33));
        let mac = InterfaceConfig::ethernet(MacAddr::BROADCAST, 1_500);
        assert_eq!(refused(&mac), InterfaceError::Mac(MacAddr::BROADCAST));
        let small = InterfaceConfig::ip(1_279).with_address(ip("2001:db8::1"), 64);
        assert_eq!(refused(&small), InterfaceError::Mtu { mtu: 1_279, version: 6, least: 1_280 });
    }
}
