//! Applications on a host: mirror, echo (RFC 862) and discard (RFC 863) over UDP.
//!
//! None amplifies: one answer for one datagram, none to a group, and none to a port that answers by itself.

use std::net::SocketAddr;
use std::ops::AddAssign;

use plumb_base::time::Instant;
use plumb_wire::ethernet::{self, EtherType, EthernetFrame, EthernetTags};
use plumb_wire::ip::IpProtocol;
use plumb_wire::machine::{Machine, Medium, PortId};
use plumb_wire::packet::{Batch, Packet, Pool};
use plumb_wire::{ipv4, ipv6, udp};

use crate::host::IpHost;
use crate::interface::{DestinationKind, HostInterface};
use crate::udp::{BindError, CopyPolicy, InboundDatagram, UdpId, UdpOptions};

/// Uses the sockets of a host.
pub trait HostApplication {
    /// Removes packets before the host sees them; default: none.
    #[inline]
    fn intercept(
        &mut self,
        _port: PortId,
        _batch: &mut Batch,
        _host: &mut IpHost,
        _pool: &mut Pool,
    ) {
    }

    /// Handles what was received and what is due: called after packets, and at its deadline.
    fn handle(&mut self, now: Instant, host: &mut IpHost, pool: &mut Pool);

    /// When it wants to be called though nothing was received.
    fn deadline(&self) -> Option<Instant> {
        None
    }
}

/// A host with an application on it, as one machine.
#[derive(Debug)]
pub struct HostNode<A> {
    /// The host.
    pub host: IpHost,
    /// Its application.
    pub application: A,
}

impl<A: HostApplication> Machine for HostNode<A> {
    #[inline]
    fn handle_packets(&mut self, now: Instant, port: PortId, batch: &mut Batch, pool: &mut Pool) {
        self.application.intercept(port, batch, &mut self.host, pool);
        if !batch.is_empty() {
            self.host.handle_packets(now, port, batch, pool);
        }
        self.application.handle(now, &mut self.host, pool);
    }

    #[inline]
    fn poll_packets(
        &mut self,
        now: Instant,
        port: PortId,
        batch: &mut Batch,
        max: usize,
        pool: &mut Pool,
    ) {
        self.host.poll_packets(now, port, batch, max, pool);
    }

    #[inline]
    fn tail(&self, packet: &Packet) -> [&[u8]; 2] {
        self.host.tail(packet)
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        [self.host.deadline(), self.application.deadline()].into_iter().flatten().min()
    }

    fn handle_deadline(&mut self, now: Instant, pool: &mut Pool) {
        if self.host.deadline().is_some_and(|deadline| deadline <= now) {
            self.host.handle_deadline(now, pool);
        }
        self.application.handle(now, &mut self.host, pool);
    }
}

/// What a service does with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UdpService {
    /// Sends it back in the frame that it came in: its payload is not copied.
    Mirror,
    /// Copies it into the application's memory and sends a copy of that back, as programs do.
    Echo(CopyPolicy),
    /// Counts it.
    Discard,
}

/// What a service did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServiceCounts {
    /// Datagrams received.
    pub received: u64,
    /// Their bytes of payload.
    pub bytes: u64,
    /// Datagrams sent back.
    pub sent: u64,
    /// Not answered: from a port that answers by itself, which might loop forever.
    pub from_service: u64,
    /// Not answered: sent to a group.
    pub to_group: u64,
    /// Answers that the host did not take: no path, too long, no free frame.
    pub failed: u64,
}

impl AddAssign for ServiceCounts {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.bytes += other.bytes;
        self.sent += other.sent;
        self.from_service += other.from_service;
        self.to_group += other.to_group;
        self.failed += other.failed;
    }
}

/// Observes datagrams that reach a service.
pub trait ServiceObserver {
    /// A datagram was read from its socket.
    fn on_datagram(&mut self);
}

impl ServiceObserver for () {
    #[inline]
    fn on_datagram(&mut self) {}
}

/// Ports of services that answer any datagram: echo, daytime, quote, chargen, time.
const ANSWERING: [u16; 5] = [7, 13, 17, 19, 37];

/// Services at the UDP sockets of a host.
#[derive(Debug, Default)]
pub struct UdpServices<W = ()> {
    offers: Vec<BoundService>,
    /// The application's memory.
    memory: Vec<u8>,
    watch: W,
}

#[derive(Debug)]
struct BoundService {
    id: UdpId,
    port: u16,
    service: UdpService,
    served: ServiceCounts,
}

impl<W: ServiceObserver> UdpServices<W> {
    /// No services yet; `watch` observes every datagram.
    pub const fn new(watch: W) -> Self {
        Self { offers: Vec::new(), memory: Vec::new(), watch }
    }

    /// Opens a socket of the host and serves it.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn open(
        &mut self,
        host: &mut IpHost,
        service: UdpService,
        local: SocketAddr,
        options: UdpOptions,
    ) -> Result<(), BindError> {
        let id = host.udp_bind(local, options)?;
        let port = host.udp_local(id).map_or(local.port(), |local| local.port());
        self.offers.push(BoundService { id, port, service, served: ServiceCounts::default() });
        Ok(())
    }

    /// The counts of each socket, in the order in which they were opened.
    pub fn counts(&self) -> impl Iterator<Item = ServiceCounts> {
        self.offers.iter().map(|offer| offer.served)
    }

    /// The counts of all sockets since the last call.
    pub fn take_counts(&mut self) -> ServiceCounts {
        let mut all = ServiceCounts::default();
        for offer in &mut self.offers {
            all += std::mem::take(&mut offer.served);
        }
        all
    }

    #[inline]
    fn serve(
        &mut self,
        now: Instant,
        index: usize,
        datagram: InboundDatagram,
        host: &mut IpHost,
        pool: &mut Pool,
    ) {
        self.watch.on_datagram();
        let answers_itself = self.is_answering_port(datagram.remote.port());
        let interface = host.interfaces().get(usize::from(datagram.port.0));
        let is_ours = interface.is_some_and(|interface| interface.owns(datagram.local.ip()));
        let BoundService { service, served, .. } = &mut self.offers[index];
        served.received += 1;
        served.bytes += datagram.packet.len() as u64;
        let refused = match service {
            UdpService::Discard => return pool.free(datagram.packet),
            _ if !is_ours => Some(&mut served.to_group),
            _ if answers_itself => Some(&mut served.from_service),
            _ => None,
        };
        if let Some(refused) = refused {
            *refused += 1;
            return pool.free(datagram.packet);
        }
        let sent = match *service {
            UdpService::Echo(policy) => {
                self.memory.clear();
                self.memory.extend_from_slice(pool.bytes(&datagram.packet));
                host.udp_reply_copy(now, datagram, &self.memory, policy, pool)
            }
            _ => host.udp_reply(now, datagram, pool),
        };
        match sent {
            Ok(()) => served.sent += 1,
            Err(_) => served.failed += 1,
        }
    }

    /// Whether something answers at a remote port, as far as its number tells.
    #[inline]
    fn is_answering_port(&self, port: u16) -> bool {
        let is_ours =
            |offer: &BoundService| offer.service != UdpService::Discard && offer.port == port;
        ANSWERING.contains(&port) || self.offers.iter().any(is_ours)
    }
}

impl<W: ServiceObserver> HostApplication for UdpServices<W> {
    #[inline]
    fn handle(&mut self, now: Instant, host: &mut IpHost, pool: &mut Pool) {
        while let Some(id) = host.poll_readable() {
            let Some(index) = self.offers.iter().position(|offer| offer.id == id) else { continue };
            while let Some(datagram) = host.udp_receive(id, pool) {
                self.serve(now, index, datagram, host, pool);
            }
        }
    }
}

/// A mirror below the sockets: swaps addresses and ports in the headers of plain UDP datagrams to its port.
///
/// No checksum is verified or computed, as swapping changes no sum: the least that any stack could cost. The
/// host gets everything else, fragments and extension headers included.
#[derive(Debug)]
pub struct SwapMirror {
    port: u16,
    rest: Vec<Packet>,
}

impl SwapMirror {
    /// A swapping mirror of UDP at `port` of every address of its host.
    pub fn new(port: u16) -> Self {
        Self { port, rest: Vec::new() }
    }
}

impl HostApplication for SwapMirror {
    #[inline]
    fn intercept(&mut self, port: PortId, batch: &mut Batch, host: &mut IpHost, pool: &mut Pool) {
        for mut packet in batch.drain(..) {
            let interface = host.interfaces().get(usize::from(port.0));
            let swapped = interface
                .is_some_and(|own| swap(own, self.port, pool.bytes_mut(&mut packet)).is_some());
            if swapped {
                host.send_swapped(port, packet, pool);
            } else {
                self.rest.push(packet);
            }
        }
        batch.append(&mut self.rest);
    }

    #[inline]
    fn handle(&mut self, _now: Instant, _host: &mut IpHost, _pool: &mut Pool) {}
}

/// Swaps the headers of a frame, if it is plain UDP for the port of an address of the interface.
#[inline]
fn swap(interface: &HostInterface, port: u16, bytes: &mut [u8]) -> Option<()> {
    let at = match interface.capabilities.medium {
        Medium::Ip => 0,
        Medium::Ethernet => {
            let frame = EthernetFrame::parse(bytes).ok()?;
            let plain =
                frame.tags() == EthernetTags::Untagged && frame.destination() == interface.mac;
            let ip = matches!(frame.ether_type(), EtherType::IPV4 | EtherType::IPV6);
            (plain && ip && frame.source().is_unicast()).then_some(ethernet::HEADER_LEN)?
        }
    };
    let ip = &mut bytes[at..];
    let datagram_at = match ip.first()? >> 4 {
        4 => {
            let packet = ipv4::Ipv4Packet::parse(ip).ok()?;
            let own = interface.classify_destination_v4(packet.destination())
                == DestinationKind::Own
                && interface.accepts_source_v4(packet.source());
            let plain = packet.options().is_empty() && !packet.fragment_field().is_fragment();
            let ours = is_addressed(packet.protocol(), packet.payload(), port);
            (own && plain && ours).then_some(ipv4::HEADER_LEN)?
        }
        6 => {
            let packet = ipv6::Ipv6Packet::parse(ip).ok()?;
            let own = interface.classify_destination_v6(packet.destination())
                == DestinationKind::Own
                && interface.accepts_source_v6(packet.source());
            let ours = is_addressed(packet.next_header(), packet.payload(), port);
            (own && ours).then_some(ipv6::HEADER_LEN)?
        }
        _ => return None,
    };
    udp::swap_ports(&mut ip[datagram_at..]);
    if datagram_at == ipv4::HEADER_LEN {
        ipv4::swap_addresses(ip);
    } else {
        ipv6::swap_addresses(ip);
    }
    if at > 0 {
        let (to, from) = bytes[..12].split_at_mut(6);
        to.swap_with_slice(from);
    }
    Some(())
}

/// Whether this is a datagram for the port, from a port that can be answered.
#[inline]
fn is_addressed(protocol: IpProtocol, payload: &[u8], port: u16) -> bool {
    protocol == IpProtocol::UDP
        && udp::UdpDatagram::parse(payload).is_ok_and(|datagram| {
            datagram.destination_port() == port && datagram.source_port() != 0
        })
}

#[cfg(test)]
mod tests;
