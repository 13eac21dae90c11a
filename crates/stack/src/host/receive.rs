//! The receive path, top to bottom: from a device's frame to a socket, a reply or a counted drop.

use std::net::{IpAddr, SocketAddr};

use plumb_wire::arp::ArpPacket;
use plumb_wire::ethernet::{EtherType, EthernetFrame, EthernetTags};
use plumb_wire::flow::FiveTuple;
use plumb_wire::icmp::parameter_problem;
use plumb_wire::ip::IpProtocol;
use plumb_wire::machine::{Medium, PortId};
use plumb_wire::packet::{ChecksumState, Packet, Pool};
use plumb_wire::tcp::TcpSegment;

use super::IpHost;
use crate::context::{DeliveryFailure, DeliveryFailureKind, HostEvent};
use crate::counters::{CounterId, ProtocolLayer};
use crate::icmp::{self, Icmp, IcmpAction, QuotedPacket, may_send_error};
use crate::interface::{HostInterface, MTU_MIN_V6};
use crate::ip::{self, FrameOrigin, IcmpErrorCause, IpIngress, Rejection};
use crate::neighbor::Reaction;
use crate::prediction::{FlowOwner, FrameHead};
use crate::reassembly::{FragmentDrop, ReassemblyOutcome};
use crate::tcp::segment::InboundSegment;
use crate::tcp::{TcpEnds, TcpId};
use crate::udp::{UdpDelivery, UdpDrop};

/// What a frame carries.
enum LinkPayload {
    Ip(FrameOrigin),
    /// ARP, at this offset.
    Arp(usize),
}

impl IpHost {
    /// Delivers a frame by header prediction.
    ///
    /// # Errors
    /// Returns the packet, as it came, if its flow is not known.
    #[inline]
    pub(super) fn receive_predicted(
        &mut self,
        port: PortId,
        packet: Packet,
        pool: &mut Pool,
    ) -> Result<(), Packet> {
        let (generation, bytes) = (self.receive_generation(), pool.bytes(&packet));
        let Some(interface) = self.interfaces.get(port) else { return Err(packet) };
        let place = (port, interface.capabilities.medium);
        let predicted = self.predictions.predict(generation, place, &packet, bytes);
        let Some((flow, at, end)) = predicted else { return Err(packet) };
        match flow.owner {
            FlowOwner::Udp(socket) => {
                let taken = self.udp.enqueue(socket, flow.ends, (at, end), flow.ecn, packet, pool);
                match taken {
                    Ok(()) => self.core.counters.add(CounterId::UdpDelivered),
                    Err(packet) => self.drop_packet(CounterId::UdpQueueFull, packet, pool),
                }
            }
            FlowOwner::Tcp(id) => {
                let pseudo = (packet.meta.checksum == ChecksumState::Plain).then_some(flow.pseudo);
                let arrival = (packet.meta.received, flow.ecn, 1);
                let Ok(segment) = TcpSegment::parse(&bytes[at..end]) else { return Err(packet) };
                let mut segment = InboundSegment::new(segment, pseudo, arrival);
                if !self.tcp.receive_expected(&mut self.core, id, &mut segment) {
                    return Err(packet);
                }
                pool.free(packet);
            }
        }
        Ok(())
    }

    /// An IP packet arrives soon: the memory of its TCP connection is fetched into caches, where there are more connections than they
    /// hold. The connection, if it is known.
    #[inline]
    pub fn expect_packet(&mut self, packet: &[u8]) -> Option<TcpId> {
        if !self.tcp.exceeds_caches() {
            return None;
        }
        let tuple =
            FiveTuple::of_packet(packet).filter(|tuple| tuple.protocol == IpProtocol::TCP)?;
        let local = SocketAddr::new(tuple.destination, tuple.destination_port);
        let remote = SocketAddr::new(tuple.source, tuple.source_port);
        self.tcp.expect(&TcpEnds { local, remote })
    }

    /// Receives a frame that was not predicted.
    #[inline]
    pub(super) fn receive_frame(&mut self, port: PortId, mut packet: Packet, pool: &mut Pool) {
        if let ChecksumState::Partial { .. } = packet.meta.checksum {
            // From a sender on this machine: nothing on the way can have corrupted it.
            packet.meta.checksum = ChecksumState::Verified;
        }
        let Some(interface) = self.interfaces.get(port) else {
            return self.drop_packet(CounterId::RxNoInterface, packet, pool);
        };
        match accept_link(interface, pool.bytes(&packet)) {
            Ok(LinkPayload::Ip(origin)) => self.receive_ip(port, origin, packet, pool),
            Ok(LinkPayload::Arp(at)) => self.receive_arp(port, at, packet, pool),
            Err(rejection) => self.reject(rejection, packet, pool),
        }
    }

    fn receive_arp(&mut self, port: PortId, at: usize, packet: Packet, pool: &mut Pool) {
        let parsed = ArpPacket::parse(&pool.bytes(&packet)[at..]);
        pool.free(packet);
        match parsed {
            Ok(message) => {
                let mut cx = self.core.context(pool);
                let reaction =
                    self.neighbors.handle_arp(&mut cx, &mut self.interfaces, port, &message);
                self.react(port, true, reaction, pool);
            }
            Err(error) => self.core.counters.add_malformed(ProtocolLayer::Arp, error),
        }
    }

    /// Receives an IP packet, and the datagram that it may complete.
    #[inline]
    fn receive_ip(
        &mut self,
        port: PortId,
        mut origin: FrameOrigin,
        mut packet: Packet,
        pool: &mut Pool,
    ) {
        loop {
            let interface = &self.interfaces[port];
            let bytes = &pool.bytes(&packet)[origin.at..];
            let ingress = match ip::accept(interface, port, bytes, origin) {
                Ok(ingress) => ingress,
                Err(rejection) => return self.reject(rejection, packet, pool),
            };
            if !ingress.is_fragment() {
                return self.deliver(ingress, packet, pool);
            }
            // The link sent the fragments to a group only if their destination is one.
            let group = ingress.group && !interface.owns(ingress.destination);
            let Some(datagram) = self.receive_fragment(ingress, packet, pool) else { return };
            origin = FrameOrigin { at: 0, group, reassembled: true, ..origin };
            packet = datagram;
        }
    }

    /// Takes a fragment to reassembly; the datagram that it completed.
    #[cold]
    fn receive_fragment(
        &mut self,
        mut ingress: IpIngress,
        mut packet: Packet,
        pool: &mut Pool,
    ) -> Option<Packet> {
        ingress.trim(&mut packet, pool);
        let evicted = self.reassembly.evicted();
        let outcome = self.reassembly.handle_fragment(self.core.now, packet, pool);
        let evicted = usize::try_from(self.reassembly.evicted() - evicted).unwrap_or(0);
        self.core.counters.add_many(CounterId::ReassemblyEvicted, evicted);
        self.arm_reassembly();
        match outcome {
            ReassemblyOutcome::Kept => self.core.counters.add(CounterId::FragmentAccepted),
            ReassemblyOutcome::Complete(datagram) => {
                self.core.counters.add(CounterId::FragmentAccepted);
                self.core.counters.add(CounterId::Reassembled);
                return Some(datagram);
            }
            ReassemblyOutcome::Dropped(packet, reason) => {
                self.reject(fragment_rejection(reason, ingress), packet, pool);
            }
        }
        None
    }

    /// Delivers a whole datagram, whose packet is untrimmed, to its transport.
    #[inline]
    fn deliver(&mut self, mut ingress: IpIngress, mut packet: Packet, pool: &mut Pool) {
        if ingress.protocol == IpProtocol::UDP {
            return self.receive_udp(&ingress, packet, pool);
        }
        if ingress.protocol == IpProtocol::TCP {
            return self.receive_tcp(&ingress, packet, pool);
        }
        ingress.trim(&mut packet, pool);
        let rejection = match (ingress.protocol, ingress.source) {
            (IpProtocol::ICMPV4, IpAddr::V4(_)) | (IpProtocol::ICMPV6, IpAddr::V6(_)) => {
                return self.receive_icmp(&ingress, packet, pool);
            }
            (IpProtocol::NO_NEXT, IpAddr::V6(_)) => Rejection::Drop(CounterId::RxNoNextHeader),
            _ => Rejection::Report(CounterId::RxProtocol, IcmpErrorCause::Protocol, ingress),
        };
        self.reject(rejection, packet, pool);
    }

    #[inline]
    fn receive_udp(&mut self, ingress: &IpIngress, packet: Packet, pool: &mut Pool) {
        let head = FrameHead::of(ingress, pool.bytes(&packet)).filter(|_| !ingress.group);
        match self.udp.handle_datagram(ingress, packet, pool) {
            Ok(delivery) => {
                self.count_delivery(delivery);
                if let Some(head) = head {
                    let generation = self.receive_generation();
                    let owner = FlowOwner::Udp(delivery.socket);
                    self.predictions.learn(generation, &head, ingress, owner);
                }
            }
            Err((packet, reason)) => {
                self.reject(udp_rejection(reason, *ingress), packet, pool);
            }
        }
    }

    #[inline]
    fn count_delivery(&mut self, delivery: UdpDelivery) {
        let UdpDelivery { delivered, queue_full, no_memory, .. } = delivery;
        let counters = &mut self.core.counters;
        counters.add_many(CounterId::Split, delivered + queue_full + no_memory - 1);
        counters.add_many(CounterId::UdpDelivered, delivered);
        counters.add_many(CounterId::UdpQueueFull, queue_full);
        counters.add_many(CounterId::UdpNoMemory, no_memory);
    }

    fn receive_icmp(&mut self, ingress: &IpIngress, packet: Packet, pool: &mut Pool) {
        match icmp::read_message(ingress, &packet, pool) {
            Ok(IcmpAction::Echo) => self.reply_to_echo(ingress, packet, pool),
            Ok(IcmpAction::EchoReply(identifier, sequence)) => {
                let mut cx = self.core.context(pool);
                self.icmp.handle_echo_reply(&mut cx, ingress, (identifier, sequence), packet);
            }
            Ok(IcmpAction::Neighbor(message)) => {
                pool.free(packet);
                let mut cx = self.core.context(pool);
                let reaction =
                    self.neighbors.handle_ndp(&mut cx, &self.interfaces, ingress, message);
                self.react(ingress.port, false, reaction, pool);
            }
            Ok(IcmpAction::Error(quoted)) => {
                let counter = self.receive_error(ingress, quoted, pool);
                self.drop_packet(counter, packet, pool);
            }
            Err(rejection) => self.reject(rejection, packet, pool),
        }
    }

    fn reply_to_echo(&mut self, ingress: &IpIngress, mut packet: Packet, pool: &mut Pool) {
        self.core.counters.add(CounterId::EchoAnswered);
        let Ok(path) = self.current_path(ingress.reply_source(), ingress.source) else {
            self.core.counters.add(CounterId::Originated);
            return self.drop_packet(CounterId::TxNoRoute, packet, pool);
        };
        let egress = icmp::make_reply(ingress, path.source, &mut packet, pool);
        // A reply that does not fit is counted where that is found.
        let _ = self.send_on_path(&path, ingress.source, egress, packet, pool);
    }

    /// Counts a message of a neighbor, and sends the reply and the packets that were queued for it.
    fn react(&mut self, port: PortId, is_ipv4: bool, reaction: Reaction, pool: &mut Pool) {
        self.core.counters.add(reaction.fate);
        if let Some(frame) = reaction.reply {
            self.send_control(port, &frame, pool);
        }
        for packet in reaction.released {
            self.send_to_mac(port, reaction.mac, is_ipv4, packet, pool);
        }
    }

    /// Handles an ICMP error; what to count it as.
    fn receive_error(
        &mut self,
        ingress: &IpIngress,
        quoted: Option<(DeliveryFailureKind, QuotedPacket)>,
        pool: &Pool,
    ) -> CounterId {
        let Some((kind, quoted)) = quoted else { return CounterId::IcmpErrorUnmatched };
        let Some((local, remote)) = self.sender_of(ingress, kind, &quoted) else {
            return CounterId::IcmpErrorUnmatched;
        };
        if let DeliveryFailureKind::TooBig(mtu) = kind {
            if remote.is_ipv6() && mtu < MTU_MIN_V6 {
                return CounterId::IcmpTooSmall;
            }
            // A packet that fits was not refused for its size.
            if mtu >= quoted.len {
                return CounterId::IcmpErrorUnmatched;
            }
            let current = self.current_path(local.ip(), remote.ip()).map_or(0, |path| path.mtu);
            if self.routing.on_too_big(self.core.now, remote.ip(), mtu, current) {
                self.core.counters.add(CounterId::PathMtuLearned);
                self.shrink_segments(&quoted, pool);
            }
        }
        let udp = match quoted.protocol {
            IpProtocol::UDP => self.udp.connected_socket(local, remote),
            _ => None,
        };
        let failure = DeliveryFailure { kind, reporter: ingress.source, local, remote, udp };
        self.core.push_event(HostEvent::DeliveryFailed(failure));
        CounterId::IcmpErrorAccepted
    }

    /// The path of the quoted segment's connection has got narrower.
    fn shrink_segments(&mut self, quoted: &QuotedPacket, pool: &Pool) {
        if quoted.protocol == IpProtocol::TCP
            && let Ok((_, path)) = self.connection_path((quoted.source, quoted.destination), pool)
        {
            let (local, remote) = quoted.endpoints();
            self.tcp.on_path(&mut self.core, &TcpEnds { local, remote }, path.limits);
        }
    }

    /// The endpoints of a quoted packet, if this host sent it; the connection of a segment has been told.
    fn sender_of(
        &mut self,
        ingress: &IpIngress,
        kind: DeliveryFailureKind,
        quoted: &QuotedPacket,
    ) -> Option<(SocketAddr, SocketAddr)> {
        if !self.interfaces[ingress.port].owns(quoted.source) {
            return None;
        }
        if quoted.protocol == IpProtocol::TCP {
            let (local, remote) = quoted.endpoints();
            let (ends, seq) = (TcpEnds { local, remote }, quoted.sequence());
            let is_believed = self.tcp.handle_error(&mut self.core, &ends, kind, seq);
            return is_believed.then_some((local, remote));
        }
        if !self.routing.is_destination(quoted.destination) {
            return None;
        }
        if quoted.protocol == IpProtocol::UDP {
            let (local, remote) = quoted.endpoints();
            return self.udp.lookup(local, remote).map(|_| (local, remote));
        }
        let at = |ip| SocketAddr::new(ip, 0);
        self.icmp
            .awaits(quoted.echo_request()?)
            .then(|| (at(quoted.source), at(quoted.destination)))
    }

    /// Gives up the datagrams whose time is over, and reports them to the senders of first fragments.
    pub(super) fn expire_fragments(&mut self, pool: &mut Pool) {
        while let Some(first) = self.reassembly.poll_expired(self.core.now, pool) {
            self.core.counters.add(CounterId::ReassemblyTimeout);
            let Some(first) = first else { continue };
            // It was accepted when it came, by the interface that still accepts it.
            let bytes = pool.bytes(&first);
            let is_ipv6 = bytes.first().is_some_and(|byte| byte >> 4 == 6);
            let origin = FrameOrigin { is_ipv6, ..FrameOrigin::default() };
            let ingress = self
                .interfaces
                .iter()
                .find_map(|(port, interface)| ip::accept(interface, port, bytes, origin).ok());
            match ingress {
                Some(ingress) => {
                    self.report_error(&ingress, IcmpErrorCause::Reassembly, first, pool);
                }
                None => pool.free(first),
            }
        }
        self.arm_reassembly();
    }

    fn arm_reassembly(&mut self) {
        match self.reassembly.deadline() {
            Some(at) => self.core.timers.arm(self.reassembly_timer, at),
            None => self.core.timers.cancel(self.reassembly_timer),
        }
    }

    /// Counts a packet that is not accepted, reports it to its sender where that is due, and frees it.
    #[cold]
    pub(super) fn reject(&mut self, rejection: Rejection, mut packet: Packet, pool: &mut Pool) {
        match rejection {
            Rejection::Malformed(layer, error) => {
                self.core.counters.add_malformed(layer, error);
                pool.free(packet);
            }
            Rejection::Drop(counter) => self.drop_packet(counter, packet, pool),
            Rejection::Report(counter, cause, mut ingress) => {
                self.core.counters.add(counter);
                ingress.trim(&mut packet, pool);
                self.report_error(&ingress, cause, packet, pool);
            }
        }
    }

    /// Reports what is wrong with `packet`, which begins with its IP header, and frees it.
    #[cold]
    fn report_error(
        &mut self,
        ingress: &IpIngress,
        cause: IcmpErrorCause,
        mut packet: Packet,
        pool: &mut Pool,
    ) {
        if may_send_error(ingress, cause, pool.bytes(&packet))
            && self.icmp.take_error_token(&mut self.core.context(pool))
            && let Ok(path) = self.current_path(ingress.reply_source(), ingress.source)
        {
            let mut cx = self.core.context(pool);
            let message = Icmp::error_message(&mut cx, ingress, cause, path.source, &mut packet);
            if let Some((message, egress)) = message {
                // An error that does not fit is counted where that is found.
                let _ = self.send_on_path(&path, ingress.source, egress, message, pool);
            }
        }
        pool.free(packet);
    }
}

/// Validates the link header of a frame.
#[inline]
fn accept_link(interface: &HostInterface, bytes: &[u8]) -> Result<LinkPayload, Rejection> {
    if interface.capabilities.medium == Medium::Ip {
        let is_ipv6 = bytes.first().is_some_and(|byte| byte >> 4 == 6);
        return Ok(LinkPayload::Ip(FrameOrigin { is_ipv6, ..FrameOrigin::default() }));
    }
    let frame = EthernetFrame::parse(bytes)
        .map_err(|error| Rejection::Malformed(ProtocolLayer::Ethernet, error))?;
    let destination = frame.destination();
    let group = destination.is_group();
    if destination != interface.mac && !group {
        return Err(Rejection::Drop(CounterId::RxOtherMac));
    }
    if !frame.source().is_unicast() {
        return Err(Rejection::Drop(CounterId::RxSourceMac));
    }
    match frame.tags() {
        EthernetTags::Untagged => {}
        // IEEE 802.1Q §6.9: VLAN 0 only carries a priority.
        EthernetTags::Single(tag) if tag.number() == 0 => {}
        EthernetTags::Single(_) | EthernetTags::Double { .. } => {
            return Err(Rejection::Drop(CounterId::RxVlan));
        }
    }
    let at = frame.header_len();
    let origin = FrameOrigin { at, is_ipv6: false, group, reassembled: false };
    match frame.ether_type() {
        EtherType::IPV4 => Ok(LinkPayload::Ip(origin)),
        EtherType::IPV6 => Ok(LinkPayload::Ip(FrameOrigin { is_ipv6: true, ..origin })),
        EtherType::ARP => Ok(LinkPayload::Arp(at)),
        _ => Err(Rejection::Drop(CounterId::RxEtherType)),
    }
}

#[cold]
fn udp_rejection(reason: UdpDrop, ingress: IpIngress) -> Rejection {
    match reason {
        UdpDrop::Malformed(error) => Rejection::Malformed(ProtocolLayer::Udp, error),
        UdpDrop::PortZero => Rejection::Drop(CounterId::UdpPort),
        UdpDrop::QueueFull => Rejection::Drop(CounterId::UdpQueueFull),
        UdpDrop::NoSocket => {
            Rejection::Report(CounterId::UdpNoSocket, IcmpErrorCause::Port, ingress)
        }
    }
}

fn fragment_rejection(reason: FragmentDrop, ingress: IpIngress) -> Rejection {
    let field = parameter_problem::FIELD;
    let fragment_header = u32::from(ingress.header_len).saturating_sub(8);
    let (counter, cause) = match reason {
        FragmentDrop::Duplicate => (CounterId::FragmentDuplicate, None),
        FragmentDrop::Overlap | FragmentDrop::DatagramDiscarded => {
            (CounterId::FragmentOverlap, None)
        }
        FragmentDrop::TooManyGaps | FragmentDrop::Impossible => {
            (CounterId::FragmentImpossible, None)
        }
        FragmentDrop::MixedEcn => (CounterId::FragmentEcn, None),
        FragmentDrop::Memory => (CounterId::FragmentMemory, None),
        // RFC 8200 §4.5 names the octets; RFC 7112 §5 the code.
        FragmentDrop::Unaligned => {
            (CounterId::FragmentImpossible, Some(IcmpErrorCause::Parameter(field, 4)))
        }
        FragmentDrop::TooLong => {
            let at = fragment_header + 2;
            (CounterId::FragmentImpossible, Some(IcmpErrorCause::Parameter(field, at)))
        }
        FragmentDrop::HeaderChain => {
            let code = parameter_problem::INCOMPLETE_CHAIN;
            (CounterId::FragmentHeaderChain, Some(IcmpErrorCause::Parameter(code, 0)))
        }
    };
    match cause.filter(|_| ingress.source.is_ipv6()) {
        Some(cause) => Rejection::Report(counter, cause, ingress),
        None => Rejection::Drop(counter),
    }
}
