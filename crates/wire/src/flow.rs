//! The flow of a packet: its five-tuple, for hashing and for telling exchanges apart.
//!
//! Left out: the hash, whose key its user keeps.

use std::net::{IpAddr, Ipv6Addr};

use crate::ethernet::{EtherType, EthernetFrame};
use crate::ipv6::extension::Ipv6Extension;
use crate::protocol::IpProtocol;
use crate::{ipv4, ipv6};

/// Who sends to whom, over which transport. Ports are 0 where there are none, and in fragments:
/// only the first has them, and all must belong to one flow. [`FiveTuple::of_sockets`] reads them there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FiveTuple {
    /// Who sends.
    pub source: IpAddr,
    /// Who receives.
    pub destination: IpAddr,
    /// What the IP packet carries behind every extension header.
    pub protocol: IpProtocol,
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
}

impl FiveTuple {
    /// The flow of an Ethernet frame; `None` for other than IP, and for what is malformed.
    #[inline]
    pub fn of_frame(bytes: &[u8]) -> Option<Self> {
        Self::of_ethernet(bytes, PortScope::Whole)
    }

    /// The same with the ports of a datagram's first fragment too: between which sockets the whole
    /// of it is.
    #[inline]
    pub fn of_sockets(bytes: &[u8]) -> Option<Self> {
        Self::of_ethernet(bytes, PortScope::First)
    }

    #[inline]
    fn of_ethernet(bytes: &[u8], ports: PortScope) -> Option<Self> {
        let frame = EthernetFrame::parse(bytes).ok()?;
        match frame.ether_type() {
            EtherType::IPV4 => Self::v4(&ipv4::Ipv4Packet::parse(frame.payload()).ok()?, ports),
            EtherType::IPV6 => Self::v6(&ipv6::Ipv6Packet::parse(frame.payload()).ok()?, ports),
            _ => None,
        }
    }

    /// The flow of an IP packet of either family; `None` for what is malformed.
    #[inline]
    pub fn of_packet(bytes: &[u8]) -> Option<Self> {
        match bytes.first()? >> 4 {
            4 => Self::of_v4(&ipv4::Ipv4Packet::parse(bytes).ok()?),
            6 => Self::of_v6(&ipv6::Ipv6Packet::parse(bytes).ok()?),
            _ => None,
        }
    }

    /// The flow of an IPv4 packet; `None` when its transport's ports are cut off.
    #[inline]
    pub fn of_v4(packet: &ipv4::Ipv4Packet<'_>) -> Option<Self> {
        Self::v4(packet, PortScope::Whole)
    }

    #[inline]
    fn v4(packet: &ipv4::Ipv4Packet<'_>, of: PortScope) -> Option<Self> {
        let field = packet.fragment_field();
        let has_ports = of.are_in(field.offset(), field.more());
        let payload = has_ports.then(|| packet.payload());
        let (source_port, destination_port) = ports(packet.protocol(), payload)?;
        let (source, destination) = (packet.source().into(), packet.destination().into());
        let protocol = packet.protocol();
        Some(Self { source, destination, protocol, source_port, destination_port })
    }

    /// The flow of an IPv6 packet; `None` when its extension headers are malformed or its
    /// transport's ports cut off.
    #[inline]
    pub fn of_v6(packet: &ipv6::Ipv6Packet<'_>) -> Option<Self> {
        Self::v6(packet, PortScope::Whole)
    }

    #[inline]
    fn v6(packet: &ipv6::Ipv6Packet<'_>, of: PortScope) -> Option<Self> {
        let mut extensions = packet.extensions();
        let mut has_ports = true;
        for extension in extensions.by_ref() {
            if let Ipv6Extension::Fragment(fragment) = extension.ok()? {
                has_ports = of.are_in(fragment.offset, fragment.more);
            }
        }
        let protocol = extensions.protocol();
        let payload = has_ports.then(|| extensions.payload());
        let (source_port, destination_port) = ports(protocol, payload)?;
        let (source, destination) = (packet.source().into(), packet.destination().into());
        Some(Self { source, destination, protocol, source_port, destination_port })
    }

    /// The flow of the answers.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..self
        }
    }

    /// The same for equal flows and different for others: what a keyed hash takes. IPv4 addresses
    /// are written as IPv6 ones mapped to them.
    #[inline]
    pub fn words(&self) -> [u64; 5] {
        let [a, b] = halves(self.source);
        let [c, d] = halves(self.destination);
        let ports = u64::from(self.source_port) << 16 | u64::from(self.destination_port);
        [a, b, c, d, u64::from(self.protocol.0) << 32 | ports]
    }
}

/// Which packets' ports count.
#[derive(Clone, Copy, Debug)]
enum PortScope {
    /// Those of whole datagrams.
    Whole,
    /// Those of first fragments too.
    First,
}

impl PortScope {
    /// Whether a packet has them: what is at the front of a datagram, and, for some, all of it.
    #[inline]
    const fn are_in(self, offset: u16, more: bool) -> bool {
        offset == 0 && (!more || matches!(self, Self::First))
    }
}

#[inline]
fn halves(address: IpAddr) -> [u64; 2] {
    let bits = match address {
        IpAddr::V4(address) => Ipv6Addr::to_bits(address.to_ipv6_mapped()),
        IpAddr::V6(address) => address.to_bits(),
    };
    let [a, b, c, d, e, f, g, h, low @ ..] = bits.to_be_bytes();
    [u64::from_be_bytes([a, b, c, d, e, f, g, h]), u64::from_be_bytes(low)]
}

/// The ports at the front of a transport's header; `payload` is `None` where they do not count.
#[inline]
fn ports(protocol: IpProtocol, payload: Option<&[u8]>) -> Option<(u16, u16)> {
    match (protocol, payload) {
        (IpProtocol::UDP | IpProtocol::TCP, Some(payload)) => {
            let &[a, b, c, d] = payload.first_chunk()?;
            Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
        }
        _ => Some((0, 0)),
    }
}
