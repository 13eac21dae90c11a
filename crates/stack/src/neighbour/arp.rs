//! ARP (RFC 826) under the rules of RFC 5227: who is believed, who is answered.
//!
//! Nothing is learnt from replies that nobody asked for, from addresses of other networks, or about
//! addresses of this host. Left out: probing for conflicts before an address is used.

use std::net::{IpAddr, Ipv4Addr};

use plumb_base::time::{Instant, Span};
use plumb_wire::arp::{self, Operation};
use plumb_wire::ethernet::{self, EtherType, Tags};
use plumb_wire::mac::MacAddr;
use plumb_wire::machine::Port;
use plumb_wire::packet::{Packet, Pool};

use super::{Advertisement, Means, Outcome};
use crate::counters::{Count, Layer};
use crate::host::{Event, Host};

/// Least time between two defences of an address (RFC 5227 §1.1, `DEFEND_INTERVAL`).
const DEFEND_INTERVAL: Span = Span::from_secs(10);

impl Host {
    /// Takes an ARP packet.
    pub(crate) fn handle_arp(&mut self, now: Instant, port: Port, packet: Packet, pool: &mut Pool) {
        let parsed = arp::Packet::parse(pool.bytes(&packet));
        pool.free(packet);
        match parsed {
            Ok(message) => {
                let count = self.heed_arp(now, port, &message, pool);
                self.counters.add(count);
            }
            Err(malformed) => self.counters.add_malformed(Layer::Arp, malformed),
        }
    }

    /// Acts upon an ARP packet; its fate.
    fn heed_arp(
        &mut self,
        now: Instant,
        port: Port,
        message: &arp::Packet,
        pool: &mut Pool,
    ) -> Count {
        let interface = &self.interfaces[usize::from(port.0)];
        if !message.source_mac.is_unicast() {
            return Count::ArpMac;
        }
        let is_request = match message.operation {
            Operation::Request => true,
            Operation::Reply => false,
            Operation::Other(_) => return Count::ArpOperation,
        };
        let (source, target) = (message.source, message.target);
        if interface.owns4(source) {
            if self.has_mac(message.source_mac) {
                return Count::RxOwn;
            }
            return self.defend(now, port, source, message.source_mac, pool);
        }
        let for_us = interface.owns4(target);
        // RFC 5227 §2.1.1: a probe says nothing about its sender, but must be answered.
        if !source.is_unspecified() {
            let on_link = interface.is_on_link(source.into());
            let single = !source.is_multicast() && !source.is_broadcast();
            if !on_link || !single || interface.is_broadcast(source) {
                return Count::ArpForeign;
            }
        }
        if source.is_unspecified() {
            if !(is_request && for_us) {
                return Count::ArpNotForUs;
            }
            self.counters.add(Count::AddressDefended);
            self.answer_arp(port, message, pool);
            return Count::ArpAccepted;
        }
        let gratuitous = source == target;
        let outcome = {
            let mut means = Means { timers: &mut self.timers, counters: &mut self.counters, pool };
            let (neighbour, mac) = (IpAddr::V4(source), message.source_mac);
            if is_request || gratuitous {
                let create = is_request && for_us;
                self.neighbours.on_heard(now, port, neighbour, mac, create, &mut means)
            } else {
                let said = Advertisement { mac: Some(mac), solicited: true, overrides: false };
                self.neighbours.on_advertised(now, port, neighbour, said, &mut means)
            }
        };
        if is_request && for_us {
            self.answer_arp(port, message, pool);
        }
        match outcome {
            Outcome::Accepted(packets, mac) => {
                self.flush(port, mac, true, packets, pool);
                Count::ArpAccepted
            }
            // The cache is full of neighbours in use, and the request was answered all the same.
            Outcome::Unknown | Outcome::Ignored if is_request && for_us => Count::ArpAccepted,
            Outcome::Unknown => Count::ArpNotForUs,
            Outcome::Ignored => Count::ArpUnsolicited,
        }
    }

    /// Sends packets whose neighbour's address has become known.
    pub(super) fn flush(
        &mut self,
        port: Port,
        mac: MacAddr,
        is_ipv4: bool,
        packets: Vec<Packet>,
        pool: &mut Pool,
    ) {
        for packet in packets {
            self.frame(port, mac, is_ipv4, packet, pool);
        }
    }

    /// Whether a link address is one of ours: what comes from there is no other station's (RFC 5227
    /// §2.4).
    pub(super) fn has_mac(&self, mac: MacAddr) -> bool {
        self.interfaces.iter().any(|interface| interface.mac == mac)
    }

    /// Somebody claims an address of ours: it is reported, and answered at most every ten seconds
    /// (RFC 5227 §2.4 (b)).
    fn defend(
        &mut self,
        now: Instant,
        port: Port,
        address: Ipv4Addr,
        mac: MacAddr,
        pool: &mut Pool,
    ) -> Count {
        let ip = IpAddr::V4(address);
        self.push_event(Event::AddressConflict { port, address: ip, mac });
        let interface = &mut self.interfaces[usize::from(port.0)];
        let own_mac = interface.mac;
        let claimed = interface.addresses.iter_mut().find(|own| own.ip == ip);
        if let Some(claimed) = claimed
            && claimed.defended.is_none_or(|at| now.saturating_since(at) >= DEFEND_INTERVAL)
        {
            claimed.defended = Some(now);
            self.counters.add(Count::AddressDefended);
            let announcement = arp::Packet {
                operation: Operation::Request,
                source_mac: own_mac,
                source: address,
                target_mac: MacAddr::UNSPECIFIED,
                target: address,
            };
            self.send_arp(port, MacAddr::BROADCAST, &announcement, pool);
        }
        Count::AddressConflict
    }

    fn answer_arp(&mut self, port: Port, request: &arp::Packet, pool: &mut Pool) {
        let reply = arp::Packet {
            operation: Operation::Reply,
            source_mac: self.interfaces[usize::from(port.0)].mac,
            source: request.target,
            target_mac: request.source_mac,
            target: request.source,
        };
        self.send_arp(port, request.source_mac, &reply, pool);
    }

    /// Asks for a neighbour's address: everybody, or the neighbour itself.
    pub(crate) fn solicit_arp(
        &mut self,
        port: Port,
        target: Ipv4Addr,
        mac: Option<MacAddr>,
        source: Option<IpAddr>,
        pool: &mut Pool,
    ) {
        let interface = &self.interfaces[usize::from(port.0)];
        let source =
            source.filter(|source| interface.is_on_link(target.into()) && source.is_ipv4());
        let source = source.or_else(|| interface.source_for(target.into()));
        let Some(IpAddr::V4(source)) = source else { return };
        let request = arp::Packet {
            operation: Operation::Request,
            source_mac: interface.mac,
            source,
            target_mac: MacAddr::UNSPECIFIED,
            target,
        };
        self.send_arp(port, mac.unwrap_or(MacAddr::BROADCAST), &request, pool);
    }

    fn send_arp(
        &mut self,
        port: Port,
        destination: MacAddr,
        message: &arp::Packet,
        pool: &mut Pool,
    ) {
        let mut bytes = [0; ethernet::HEADER_LEN + arp::LEN];
        let header = ethernet::Header {
            destination,
            source: self.interfaces[usize::from(port.0)].mac,
            tags: Tags::Untagged,
            ether_type: EtherType::ARP,
        };
        header.emit(&mut bytes);
        message.emit(&mut bytes[ethernet::HEADER_LEN..]);
        match pool.packet_of(&bytes) {
            Some(packet) => {
                self.counters.add(Count::Originated);
                self.enqueue(port, packet, pool);
            }
            None => self.counters.add(Count::NoMemory),
        }
    }
}
