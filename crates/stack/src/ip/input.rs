//! Frames and IP packets on their way in: each header read once, each refusal counted by its reason.
//!
//! Left out: IPv4 (`v4`) and IPv6 (`v6`) themselves, and what the transports do with what passed.

use plumb_base::time::Instant;
use plumb_wire::ethernet::{EtherType, Frame, Tags};
use plumb_wire::machine::Port;
use plumb_wire::medium::Medium;
use plumb_wire::packet::{ChecksumState, Packet, Pool};
use plumb_wire::protocol::Protocol;

use super::prediction::Head;
use super::{Ingress, Origin};
use crate::counters::{Count, Layer};
use crate::host::Host;
use crate::icmp::Fault;
use crate::udp;

mod v4;
mod v6;

impl Host {
    /// Takes one frame of a device.
    #[inline]
    pub(crate) fn handle_frame(
        &mut self,
        now: Instant,
        port: Port,
        mut packet: Packet,
        pool: &mut Pool,
    ) {
        if let ChecksumState::Partial { .. } = packet.meta.checksum {
            // Of a sender on this machine, between whom and here nothing can have broken it.
            packet.meta.checksum = ChecksumState::Verified;
        }
        let Some(interface) = self.interfaces.get(usize::from(port.0)) else {
            return self.drop_packet(Count::RxNoInterface, packet, pool);
        };
        if interface.capabilities.medium == Medium::Ip {
            return match pool.bytes(&packet).first().map(|byte| byte >> 4) {
                Some(6) => self.handle_ipv6(now, port, Origin::default(), packet, pool),
                _ => self.handle_ipv4(now, port, Origin::default(), packet, pool),
            };
        }
        let frame = match Frame::parse(pool.bytes(&packet)) {
            Ok(frame) => frame,
            Err(malformed) => {
                self.counters.add_malformed(Layer::Ethernet, malformed);
                return pool.free(packet);
            }
        };
        let destination = frame.destination();
        let group = destination.is_group();
        if destination != interface.mac && !group {
            return self.drop_packet(Count::RxOtherStation, packet, pool);
        }
        if !frame.source().is_unicast() {
            return self.drop_packet(Count::RxSourceMac, packet, pool);
        }
        match frame.tags() {
            Tags::Untagged => {}
            // IEEE 802.1Q §6.9: VLAN 0 only carries a priority.
            Tags::Single(tag) if tag.number() == 0 => {}
            Tags::Single(_) | Tags::Double { .. } => {
                return self.drop_packet(Count::RxVlan, packet, pool);
            }
        }
        let (ether_type, header_len) = (frame.ether_type(), frame.header_len());
        let origin = Origin { at: header_len, group, reassembled: false };
        match ether_type {
            EtherType::IPV4 => self.handle_ipv4(now, port, origin, packet, pool),
            EtherType::IPV6 => self.handle_ipv6(now, port, origin, packet, pool),
            EtherType::ARP => {
                pool.trim_front(&mut packet, header_len);
                self.handle_arp(now, port, packet, pool);
            }
            _ => self.drop_packet(Count::RxEtherType, packet, pool),
        }
    }

    /// Takes a whole datagram for this host to its transport.
    #[inline]
    pub(crate) fn handle_datagram(
        &mut self,
        now: Instant,
        ingress: &Ingress,
        packet: Packet,
        pool: &mut Pool,
    ) {
        match ingress.protocol {
            Protocol::UDP => {
                let arrival = udp::Arrival {
                    source: ingress.source,
                    destination: ingress.destination,
                    port: ingress.port,
                    at: usize::from(ingress.header_len),
                    end: packet.len(),
                    ecn: packet.meta.ecn,
                };
                self.handle_udp(now, ingress, &arrival, packet, pool);
            }
            Protocol::ICMPV4 if ingress.source.is_ipv4() => {
                self.handle_icmpv4(now, ingress, packet, pool);
            }
            Protocol::ICMPV6 if ingress.source.is_ipv6() => {
                self.handle_icmpv6(now, ingress, packet, pool);
            }
            Protocol::NO_NEXT if ingress.source.is_ipv6() => {
                self.drop_packet(Count::RxNoNextHeader, packet, pool);
            }
            _ => {
                self.counters.add(Count::RxProtocol);
                self.report(now, ingress, Fault::Protocol, packet, pool);
            }
        }
    }

    /// Takes a UDP datagram, of whose packet nothing has been trimmed, to its socket.
    #[inline]
    fn handle_udp(
        &mut self,
        now: Instant,
        ingress: &Ingress,
        arrival: &udp::Arrival,
        packet: Packet,
        pool: &mut Pool,
    ) {
        let head = Head::of(arrival, pool.bytes(&packet)).filter(|_| !ingress.group);
        match self.udp.handle_datagram(arrival, packet, pool) {
            Ok(delivery) => {
                self.count_delivery(delivery);
                if let Some(head) = head {
                    self.learn_flow(&head, arrival, delivery.socket);
                }
            }
            Err((mut packet, refused)) => {
                pool.truncate(&mut packet, arrival.end);
                pool.trim_front(&mut packet, arrival.at - usize::from(ingress.header_len));
                self.refuse_udp(now, ingress, refused, packet, pool);
            }
        }
    }

    #[inline]
    fn count_delivery(&mut self, delivery: udp::Delivery) {
        let udp::Delivery { delivered, queue_full, no_memory, .. } = delivery;
        self.counters.add_many(Count::Split, delivered + queue_full + no_memory - 1);
        self.counters.add_many(Count::UdpDelivered, delivered);
        self.counters.add_many(Count::UdpQueueFull, queue_full);
        self.counters.add_many(Count::UdpNoMemory, no_memory);
    }

    #[cold]
    fn refuse_udp(
        &mut self,
        now: Instant,
        ingress: &Ingress,
        refused: udp::Refused,
        packet: Packet,
        pool: &mut Pool,
    ) {
        let count = match refused {
            udp::Refused::Malformed(malformed) => {
                self.counters.add_malformed(Layer::Udp, malformed);
                return pool.free(packet);
            }
            udp::Refused::PortZero => Count::UdpPort,
            udp::Refused::QueueFull => Count::UdpQueueFull,
            udp::Refused::NoSocket => {
                self.counters.add(Count::UdpNoSocket);
                return self.report(now, ingress, Fault::Port, packet, pool);
            }
        };
        self.drop_packet(count, packet, pool);
    }

    /// Counts a packet under a reason and frees it.
    #[cold]
    pub(crate) fn drop_packet(&mut self, count: Count, packet: Packet, pool: &mut Pool) {
        self.counters.add(count);
        pool.free(packet);
    }
}
