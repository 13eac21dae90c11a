//! Interfaces: a device's capabilities, this host's addresses there, and its output queue.
//!
//! The host follows the strong end system model (RFC 1122 §3.3.4.2): a packet must be for an address
//! of the interface that it came by. Multicast listener discovery (RFC 3810), which RFC 4861 §7.2.1 asks
//! for, is not implemented.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::{Index, IndexMut};

use plumb_base::time::Instant;
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::{DeviceCapabilities, Medium, PortId};
use plumb_wire::ndp::solicited_node;
use plumb_wire::packet::Packet;

use crate::route::IpPrefix;

/// How to make an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceConfig {
    /// What its device carries and does.
    pub capabilities: DeviceCapabilities,
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
            capabilities: DeviceCapabilities::plain(Medium::Ethernet, mtu),
            mac,
            addresses: Vec::new(),
            link_local: true,
        }
    }

    /// Of a plain device for bare IP packets, without addresses.
    pub const fn ip(mtu: u32) -> Self {
        Self {
            capabilities: DeviceCapabilities::plain(Medium::Ip, mtu),
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
    #[error("{0}/{1} is not a network: an IPv4 prefix has at most 32 bits, an IPv6 prefix 128")]
    PrefixLength(IpAddr, u8),
    /// An address that no station has.
    #[error("{0} cannot be the address of one host: choose a unicast address")]
    Address(IpAddr),
    /// The address is there already.
    #[error("{0} is already an address of this host: duplicate address")]
    DuplicateAddress(IpAddr),
    /// A link address that no station has.
    #[error("{0} is not a unicast MAC address: choose one like 02:00:00:00:00:01")]
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
pub enum DestinationKind {
    /// One of the interface's own addresses.
    Own,
    /// A multicast group that it is in, or a broadcast address.
    Group,
    /// Somebody else's.
    Other,
}

/// One address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The address.
    pub ip: IpAddr,
    /// Its network.
    pub prefix: IpPrefix,
    /// When it was last defended against a claim (RFC 5227 §2.4).
    pub defended: Option<Instant>,
}

/// One interface.
#[derive(Debug)]
pub struct HostInterface {
    /// What its device carries and does.
    pub capabilities: DeviceCapabilities,
    /// Its link address.
    pub mac: MacAddr,
    /// Its addresses.
    pub addresses: Vec<InterfaceAddress>,
    /// Frames that wait for the device.
    pub(crate) queue: VecDeque<Packet>,
    v4: Vec<(Ipv4Addr, Option<Ipv4Addr>)>,
    v6: Vec<Ipv6Addr>,
}

impl HostInterface {
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
        let prefix = IpPrefix::new(ip, len).ok_or(InterfaceError::PrefixLength(ip, len))?;
        if !is_unicast(ip) || prefix.broadcast().is_some_and(|all| IpAddr::V4(all) == ip) {
            return Err(InterfaceError::Address(ip));
        }
        if self.owns(ip) {
            return Err(InterfaceError::DuplicateAddress(ip));
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
        self.addresses.push(InterfaceAddress { ip, prefix, defended: None });
        Ok(())
    }

    /// Whether an address is one of its own.
    #[inline]
    pub fn owns(&self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(ip) => self.owns_v4(ip),
            IpAddr::V6(ip) => self.owns_v6(ip),
        }
    }

    /// Whether an IPv4 address is one of its own.
    #[inline]
    pub fn owns_v4(&self, ip: Ipv4Addr) -> bool {
        self.v4.iter().any(|&(own, _)| own == ip)
    }

    /// Whether an IPv6 address is one of its own.
    #[inline]
    pub fn owns_v6(&self, ip: Ipv6Addr) -> bool {
        self.v6.contains(&ip)
    }

    /// What an IPv4 destination means here.
    #[inline]
    pub fn classify_destination_v4(&self, ip: Ipv4Addr) -> DestinationKind {
        if self.owns_v4(ip) {
            return DestinationKind::Own;
        }
        let group = ip == ALL_HOSTS || ip.is_broadcast() || self.is_broadcast(ip);
        if group { DestinationKind::Group } else { DestinationKind::Other }
    }

    /// What an IPv6 destination means here.
    #[inline]
    pub fn classify_destination_v6(&self, ip: Ipv6Addr) -> DestinationKind {
        if self.owns_v6(ip) {
            return DestinationKind::Own;
        }
        let group = ip == ALL_NODES || ip == ALL_NODES_OF_INTERFACE || self.is_solicited(ip);
        if group { DestinationKind::Group } else { DestinationKind::Other }
    }

    /// Whether an IPv4 address is the directed broadcast of one of its networks.
    #[inline]
    pub fn is_broadcast(&self, ip: Ipv4Addr) -> bool {
        self.v4.iter().any(|&(_, broadcast)| broadcast == Some(ip))
    }

    /// Whether an IPv4 packet on the link may come from an address: not from one that no host has,
    /// from a group, from a broadcast address, or from this host itself (RFC 1122 §3.2.1.3).
    #[inline]
    pub fn accepts_source_v4(&self, source: Ipv4Addr) -> bool {
        !is_martian_v4(source)
            && !source.is_multicast()
            && !self.v4.iter().any(|&(own, all)| own == source || all == Some(source))
    }

    /// The same for IPv6 (RFC 4291 §2.7), save that a probe comes from no address (§2.5.2).
    #[inline]
    pub fn accepts_source_v6(&self, source: Ipv6Addr) -> bool {
        !is_martian_v6(source) && !source.is_multicast() && !self.owns_v6(source)
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

/// The interfaces of a host, by their ports.
#[derive(Debug, Default)]
pub(crate) struct Interfaces(Vec<HostInterface>);

impl Interfaces {
    /// Adds one.
    ///
    /// # Errors
    /// [`InterfaceError`]: nothing was changed.
    pub fn add(&mut self, interface: HostInterface) -> Result<PortId, InterfaceError> {
        if let Some(own) = interface.addresses.iter().find(|own| self.owns(own.ip)) {
            return Err(InterfaceError::DuplicateAddress(own.ip));
        }
        let number = u16::try_from(self.0.len()).ok().filter(|&number| number < u16::MAX);
        let port = PortId(number.ok_or(InterfaceError::TooMany)?);
        self.0.push(interface);
        Ok(port)
    }

    pub fn as_slice(&self) -> &[HostInterface] {
        &self.0
    }

    #[inline]
    pub fn get(&self, port: PortId) -> Option<&HostInterface> {
        self.0.get(usize::from(port.0))
    }

    pub fn interface_mut(&mut self, port: PortId) -> Option<&mut HostInterface> {
        self.0.get_mut(usize::from(port.0))
    }

    /// The first interface for which `predicate` holds.
    pub fn find(&self, predicate: impl Fn(&HostInterface) -> bool) -> Option<PortId> {
        self.iter().find(|(_, interface)| predicate(interface)).map(|(port, _)| port)
    }

    /// Each, by its port.
    pub fn iter(&self) -> impl Iterator<Item = (PortId, &HostInterface)> {
        (0..).map(PortId).zip(&self.0)
    }

    /// The interface that has an address.
    pub fn owner_of(&self, ip: IpAddr) -> Option<PortId> {
        self.find(|interface| interface.owns(ip))
    }

    /// Whether an address is one of the host's own.
    pub fn owns(&self, ip: IpAddr) -> bool {
        self.owner_of(ip).is_some()
    }

    /// Whether a link address is one of the host's own: what comes from there is of no other station (RFC
    /// 5227 §2.4).
    pub fn owns_mac(&self, mac: MacAddr) -> bool {
        self.0.iter().any(|interface| interface.mac == mac)
    }
}

impl Index<PortId> for Interfaces {
    type Output = HostInterface;

    #[inline]
    fn index(&self, port: PortId) -> &HostInterface {
        &self.0[usize::from(port.0)]
    }
}

impl IndexMut<PortId> for Interfaces {
    #[inline]
    fn index_mut(&mut self, port: PortId) -> &mut HostInterface {
        &mut self.0[usize::from(port.0)]
    }
}

/// The least MTU of a link for IPv4 (RFC 791 §3.2).
const MTU_MIN_V4: u32 = 68;
/// The least MTU of a link for IPv6 (RFC 8200 §5).
pub(crate) const MTU_MIN_V6: u32 = 1_280;

const ALL_HOSTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// All nodes of the link (RFC 4291 §2.7.1).
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const ALL_NODES_OF_INTERFACE: Ipv6Addr = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 1);

/// Whether an address can be that of one host on a link.
pub fn is_unicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !is_martian_v4(ip) && !ip.is_multicast(),
        IpAddr::V6(ip) => !is_martian_v6(ip) && !ip.is_multicast(),
    }
}

/// Whether no packet on a link may come from, or go to, this address: this network, loopback,
/// reserved (RFC 1122 §3.2.1.3). The limited broadcast is among the reserved.
#[inline]
pub(crate) fn is_martian_v4(ip: Ipv4Addr) -> bool {
    let [first, ..] = ip.octets();
    first == 0 || first == 127 || first >= 240
}

/// The same for IPv6: unspecified, loopback, IPv4-mapped (RFC 4291 §2.5).
#[inline]
pub(crate) fn is_martian_v6(ip: Ipv6Addr) -> bool {
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

    fn interface() -> HostInterface {
        let config = InterfaceConfig::ethernet(MAC, 1_500)
            .with_address(ip("192.0.2.1"), 24)
            .with_address(ip("10.9.0.1"), 16)
            .with_address(ip("2001:db8::1"), 64);
        HostInterface::new(&config).unwrap()
    }

    #[test]
    fn destinations_are_classified() {
        let interface = interface();
        for (text, cast) in [
            ("192.0.2.1", DestinationKind::Own),
            ("192.0.2.255", DestinationKind::Group),
            ("10.9.255.255", DestinationKind::Group),
            ("255.255.255.255", DestinationKind::Group),
            ("224.0.0.1", DestinationKind::Group),
            ("224.0.0.5", DestinationKind::Other),
            ("192.0.2.2", DestinationKind::Other),
        ] {
            assert_eq!(interface.classify_destination_v4(text.parse().unwrap()), cast, "{text}");
        }
        for (text, cast) in [
            ("2001:db8::1", DestinationKind::Own),
            ("fe80::ff:fe00:1", DestinationKind::Own),
            ("ff02::1", DestinationKind::Group),
            ("ff02::1:ff00:1", DestinationKind::Group),
            ("ff02::1:ff00:2", DestinationKind::Other),
            ("ff02::2", DestinationKind::Other),
            ("2001:db8::2", DestinationKind::Other),
        ] {
            assert_eq!(interface.classify_destination_v6(text.parse().unwrap()), cast, "{text}");
        }
    }

    #[test]
    fn source_address_is_the_nearest() {
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
    fn invalid_interfaces_are_refused() {
        let refused = |config: &InterfaceConfig| HostInterface::new(config).unwrap_err();
        let plain = || InterfaceConfig::ethernet(MAC, 1_500);
        for bad in ["0.0.0.0", "127.0.0.1", "224.0.0.1", "255.255.255.255", "::1", "ff02::1"] {
            let error = refused(&plain().with_address(ip(bad), 0));
            assert_eq!(error, InterfaceError::Address(ip(bad)));
        }
        let broadcast = refused(&plain().with_address(ip("10.0.0.255"), 24));
        assert_eq!(broadcast, InterfaceError::Address(ip("10.0.0.255")));
        let twice = plain().with_address(ip("10.0.0.1"), 24).with_address(ip("10.0.0.1"), 8);
        assert_eq!(refused(&twice), InterfaceError::DuplicateAddress(ip("10.0.0.1")));
        let bits = refused(&plain().with_address(ip("10.0.0.1"), 33));
        assert_eq!(bits, InterfaceError::PrefixLength(ip("10.0.0.1"), 33));
        let mac = InterfaceConfig::ethernet(MacAddr::BROADCAST, 1_500);
        assert_eq!(refused(&mac), InterfaceError::Mac(MacAddr::BROADCAST));
        let small = InterfaceConfig::ip(1_279).with_address(ip("2001:db8::1"), 64);
        assert_eq!(refused(&small), InterfaceError::Mtu { mtu: 1_279, version: 6, least: 1_280 });
    }
}
