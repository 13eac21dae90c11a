//! A mirror below the sockets: it exchanges addresses and ports in the headers and touches nothing else.
//!
//! No checksum is verified and none is made, as an exchange changes no sum: what it costs is what
//! a stack cannot avoid. Everything but plain UDP to its port goes to the host. Left out: fragments
//! and extension headers, which the host gets.

use plumb_base::time::Instant;
use plumb_wire::ethernet::{self, EtherType, Frame, Tags};
use plumb_wire::machine::Port;
use plumb_wire::medium::Medium;
use plumb_wire::packet::{Packet, Pool};
use plumb_wire::protocol::Protocol;
use plumb_wire::{ipv4, ipv6, udp};

use crate::counters::Count;
use crate::host::Host;
use crate::interface::{Cast, Interface};
use crate::node::Application;

/// Turns the datagrams to one port of a host round before they reach it; the host gets everything else, and counts.
#[derive(Debug)]
pub struct Swap {
    port: u16,
    rest: Vec<Packet>,
}

impl Swap {
    /// A swapping mirror of UDP at `port` of every address of its host.
    pub fn new(port: u16) -> Self {
        Self { port, rest: Vec::new() }
    }
}

impl Application for Swap {
    #[inline]
    fn intercept(&mut self, port: Port, batch: &mut Vec<Packet>, host: &mut Host, pool: &mut Pool) {
        for mut packet in batch.drain(..) {
            let interface = host.interfaces.get(usize::from(port.0));
            let swapped = interface
                .is_some_and(|own| swap(own, self.port, pool.bytes_mut(&mut packet)).is_some());
            if swapped {
                host.counters.add(Count::Received);
                host.counters.add(Count::Swapped);
                host.counters.add(Count::Originated);
                host.push(port, packet, pool);
            } else {
                self.rest.push(packet);
            }
        }
        batch.append(&mut self.rest);
    }

    #[inline]
    fn handle(&mut self, _now: Instant, _host: &mut Host, _pool: &mut Pool) {}
}

/// Turns a frame round, if it is plain UDP for the port of an address of the interface.
#[inline]
fn swap(interface: &Interface, port: u16, bytes: &mut [u8]) -> Option<()> {
    let at = match interface.capabilities.medium {
        Medium::Ip => 0,
        Medium::Ethernet => {
            let frame = Frame::parse(bytes).ok()?;
            let plain = frame.tags() == Tags::Untagged && frame.destination() == interface.mac;
            let ip = matches!(frame.ether_type(), EtherType::IPV4 | EtherType::IPV6);
            (plain && ip && frame.source().is_unicast()).then_some(ethernet::HEADER_LEN)?
        }
    };
    let ip = &mut bytes[at..];
    let datagram_at = match ip.first()? >> 4 {
        4 => {
            let packet = ipv4::Packet::parse(ip).ok()?;
            let own = interface.cast4(packet.destination()) == Cast::Own
                && interface.admits4(packet.source());
            let plain = packet.options().is_empty() && !packet.fragment_field().is_fragment();
            let ours = addressed(packet.protocol(), packet.payload(), port);
            (own && plain && ours).then_some(ipv4::HEADER_LEN)?
        }
        6 => {
            let packet = ipv6::Packet::parse(ip).ok()?;
            let own = interface.cast6(packet.destination()) == Cast::Own
                && interface.admits6(packet.source());
            let ours = addressed(packet.next_header(), packet.payload(), port);
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
fn addressed(protocol: Protocol, payload: &[u8], port: u16) -> bool {
    protocol == Protocol::UDP
        && udp::Datagram::parse(payload).is_ok_and(|datagram| {
            datagram.destination_port() == port && datagram.source_port() != 0
        })
}
