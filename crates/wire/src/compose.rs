//! Whole valid packets in one call: for tests, fuzzing and tools.
//!
//! Not for a host's own packets, which are made in place. Left out: what is seldom sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plumb_copy::Sum16;

use crate::checksum::PseudoHeader;
use crate::ethernet::{self, EtherType, EthernetTags, MacAddr};
use crate::icmp::{self, IcmpMessage};
use crate::ip::{self, Fragment, IpProtocol, TrafficClass};
use crate::ipv4::{self, FragmentField};
use crate::option::OptionArea;
use crate::{arp, ipv6, ndp, tcp, udp};

/// From whom to whom, over what, and how the headers say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketTemplate {
    /// The Ethernet addresses; `None` makes a bare IP packet.
    pub link: Option<LinkTemplate>,
    /// Who sends.
    pub source: IpAddr,
    /// Who receives: of the same family.
    pub destination: IpAddr,
    /// How many routers may pass it on.
    pub hop_limit: u8,
    /// Type of service or traffic class.
    pub traffic_class: TrafficClass,
    /// Options of an IPv4 header.
    pub options: OptionArea,
}

/// The addresses and tags of an Ethernet frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkTemplate {
    /// Who sends.
    pub source: MacAddr,
    /// Who receives.
    pub destination: MacAddr,
    /// VLAN tags.
    pub tags: EthernetTags,
}

impl LinkTemplate {
    /// Untagged, from `source` to `destination`.
    pub const fn new(source: MacAddr, destination: MacAddr) -> Self {
        Self { source, destination, tags: EthernetTags::Untagged }
    }

    /// A frame around `payload`.
    pub fn frame(&self, ether_type: EtherType, payload: &[u8]) -> Vec<u8> {
        let Self { source, destination, tags } = *self;
        let header = ethernet::EthernetHeader { destination, source, tags, ether_type };
        let mut bytes = vec![0; header.header_len()];
        header.emit(&mut bytes);
        bytes.extend(payload);
        bytes
    }
}

impl PacketTemplate {
    /// Of bare IP packets with a hop limit of 64.
    ///
    /// Panics when the addresses are of two families.
    pub fn new(source: impl Into<IpAddr>, destination: impl Into<IpAddr>) -> Self {
        let (source, destination) = (source.into(), destination.into());
        assert_eq!(source.is_ipv4(), destination.is_ipv4(), "a path has one family");
        Self {
            link: None,
            source,
            destination,
            hop_limit: 64,
            traffic_class: TrafficClass(0),
            options: OptionArea::EMPTY,
        }
    }

    /// The same in Ethernet frames.
    #[must_use]
    pub const fn over(self, link: LinkTemplate) -> Self {
        Self { link: Some(link), ..self }
    }

    /// The way back: addresses exchanged on both layers.
    #[must_use]
    pub fn reversed(self) -> Self {
        let link = self.link.map(|link| LinkTemplate {
            source: link.destination,
            destination: link.source,
            ..link
        });
        Self { link, source: self.destination, destination: self.source, ..self }
    }

    /// What a transport's checksum covers beside it.
    pub fn pseudo(&self, protocol: IpProtocol) -> PseudoHeader {
        PseudoHeader::between(self.source, self.destination, protocol)
            .expect("a path has one family")
    }

    /// A packet of `protocol` around `payload`, at most 65,535 bytes long.
    pub fn packet(&self, protocol: IpProtocol, payload: &[u8]) -> Vec<u8> {
        self.packet_with(FragmentField::DONT_FRAGMENT, 0, protocol, payload)
    }

    /// A UDP datagram.
    pub fn udp(&self, source_port: u16, destination_port: u16, payload: &[u8]) -> Vec<u8> {
        let header = udp::UdpHeader::new(source_port, destination_port, payload.len())
            .with_checksum(self.pseudo(IpProtocol::UDP), Sum16::of(payload));
        let mut bytes = vec![0; udp::HEADER_LEN];
        header.emit(&mut bytes);
        bytes.extend(payload);
        self.packet(IpProtocol::UDP, &bytes)
    }

    /// A TCP segment; the checksum of `header` is computed.
    pub fn tcp(&self, header: tcp::TcpHeader, payload: &[u8]) -> Vec<u8> {
        let pseudo = self.pseudo(IpProtocol::TCP);
        let header = header.with_checksum(pseudo, payload.len(), Sum16::of(payload));
        let mut bytes = vec![0; header.header_len()];
        header.emit(&mut bytes);
        bytes.extend(payload);
        self.packet(IpProtocol::TCP, &bytes)
    }

    /// An echo request.
    pub fn echo_request(&self, identifier: u16, sequence: u16, data: &[u8]) -> Vec<u8> {
        self.icmp(IcmpMessage::EchoRequest { identifier, sequence }, data)
    }

    /// An echo reply.
    pub fn echo_reply(&self, identifier: u16, sequence: u16, data: &[u8]) -> Vec<u8> {
        self.icmp(IcmpMessage::EchoReply { identifier, sequence }, data)
    }

    /// An ICMP message of the path's family.
    pub fn icmp(&self, message: IcmpMessage, body: &[u8]) -> Vec<u8> {
        let (protocol, pseudo) = icmp::protocol_between(self.source, self.destination);
        let mut bytes = vec![0; icmp::HEADER_LEN];
        message.emit(pseudo, body.len(), Sum16::of(body), &mut bytes);
        bytes.extend(body);
        self.packet(protocol, &bytes)
    }

    /// A neighbour discovery message, with the hop limit that it must have.
    pub fn ndp(&self, message: ndp::NdpMessage) -> Vec<u8> {
        let mut bytes = vec![0; message.emitted_len()];
        message.emit(self.pseudo(IpProtocol::ICMPV6), &mut bytes);
        Self { hop_limit: ndp::HOP_LIMIT, ..*self }.packet(IpProtocol::ICMPV6, &bytes)
    }

    /// One fragment: `data` of a datagram of `protocol`.
    pub fn fragment(&self, fragment: Fragment, protocol: IpProtocol, data: &[u8]) -> Vec<u8> {
        match self.source {
            IpAddr::V4(_) => {
                let [.., a, b] = fragment.identification.to_be_bytes();
                let identification = u16::from_be_bytes([a, b]);
                self.packet_with(FragmentField::of(&fragment), identification, protocol, data)
            }
            IpAddr::V6(_) => {
                let mut payload = vec![0; ip::FRAGMENT_HEADER_LEN];
                fragment.emit_v6(protocol, &mut payload);
                payload.extend(data);
                self.packet(IpProtocol::FRAGMENT, &payload)
            }
        }
    }

    /// `payload` of a datagram of `protocol`, in fragments of at most `size` bytes of it each.
    ///
    /// Panics when `size` is not a multiple of 8, or 0.
    pub fn fragments(
        &self,
        identification: u32,
        protocol: IpProtocol,
        payload: &[u8],
        size: usize,
    ) -> Vec<Vec<u8>> {
        assert!(size.is_multiple_of(8), "fragments begin at multiples of 8");
        let pieces = payload.chunks(size).enumerate();
        pieces
            .map(|(index, data)| {
                let at = index * size;
                let offset = u16::try_from(at).expect("a datagram is at most 65,535 bytes long");
                let more = at + data.len() < payload.len();
                self.fragment(Fragment { identification, offset, more }, protocol, data)
            })
            .collect()
    }

    /// An IPv6 packet with these extension headers, each without the octet that says what follows it,
    /// before `payload` of `protocol`.
    ///
    /// Panics on a path of IPv4.
    pub fn extended(
        &self,
        extensions: &[(IpProtocol, &[u8])],
        protocol: IpProtocol,
        payload: &[u8],
    ) -> Vec<u8> {
        assert!(self.source.is_ipv6(), "only IPv6 has extension headers");
        let (mut next, mut bytes) = (protocol, payload.to_vec());
        for &(own, header) in extensions.iter().rev() {
            bytes = [&[next.0], header, &bytes].concat();
            next = own;
        }
        self.packet(next, &bytes)
    }

    fn packet_with(
        &self,
        fragment: FragmentField,
        identification: u16,
        protocol: IpProtocol,
        payload: &[u8],
    ) -> Vec<u8> {
        let payload_len = u16::try_from(payload.len()).expect("a packet's length fits");
        let (mut bytes, ether_type) = match (self.source, self.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                let header = ipv4::Ipv4Header {
                    traffic_class: self.traffic_class,
                    hop_limit: self.hop_limit,
                    options: self.options,
                    fragment,
                    identification,
                    ..ipv4::Ipv4Header::new(source, destination, protocol, payload_len)
                };
                let mut bytes = vec![0; header.header_len()];
                header.emit(&mut bytes);
                (bytes, EtherType::IPV4)
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                let header = ipv6::Ipv6Header {
                    traffic_class: self.traffic_class,
                    hop_limit: self.hop_limit,
                    ..ipv6::Ipv6Header::new(source, destination, protocol, payload_len)
                };
                let mut bytes = vec![0; ipv6::HEADER_LEN];
                header.emit(&mut bytes);
                (bytes, EtherType::IPV6)
            }
            _ => unreachable!("a path has one family"),
        };
        bytes.extend(payload);
        match self.link {
            Some(link) => link.frame(ether_type, &bytes),
            None => bytes,
        }
    }
}

/// A broadcast frame: who has `target`?
pub fn arp_request(mac: MacAddr, source: Ipv4Addr, target: Ipv4Addr) -> Vec<u8> {
    let operation = arp::ArpOperation::Request;
    let target_mac = MacAddr::UNSPECIFIED;
    let packet = arp::ArpPacket { operation, source_mac: mac, source, target_mac, target };
    arp_frame(packet, MacAddr::BROADCAST)
}

/// A frame to `target`: `source` is at `mac`.
pub fn arp_reply(mac: MacAddr, source: Ipv4Addr, target_mac: MacAddr, target: Ipv4Addr) -> Vec<u8> {
    let operation = arp::ArpOperation::Reply;
    let packet = arp::ArpPacket { operation, source_mac: mac, source, target_mac, target };
    arp_frame(packet, target_mac)
}

/// A frame from the sender that `packet` names.
pub fn arp_frame(packet: arp::ArpPacket, destination: MacAddr) -> Vec<u8> {
    let mut bytes = [0; arp::LEN];
    packet.emit(&mut bytes);
    LinkTemplate::new(packet.source_mac, destination).frame(EtherType::ARP, &bytes)
}

/// A frame to the target's group: who has `target`? `mac` and `source` are the sender's.
pub fn neighbor_solicitation(mac: MacAddr, source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let group = ndp::solicited_node(target);
    let link = LinkTemplate::new(mac, MacAddr::multicast_v6(group));
    let message = ndp::NdpMessage::NeighborSolicitation { target, source_mac: Some(mac) };
    PacketTemplate::new(source, group).over(link).ndp(message)
}

/// A frame to `asker` at `asker_mac`: `target` is at `mac`.
pub fn neighbor_advertisement(
    mac: MacAddr,
    target: Ipv6Addr,
    asker_mac: MacAddr,
    asker: Ipv6Addr,
) -> Vec<u8> {
    let (target_mac, is_solicited, overrides) = (Some(mac), true, true);
    let message =
        ndp::NdpMessage::NeighborAdvertisement { target, target_mac, is_solicited, overrides };
    PacketTemplate::new(target, asker).over(LinkTemplate::new(mac, asker_mac)).ndp(message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ethernet::EthernetFrame;
    use crate::flow::FiveTuple;

    const HERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const THERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

    fn paths() -> [PacketTemplate; 2] {
        let v4 = PacketTemplate::new(Ipv4Addr::new(192, 0, 2, 1), Ipv4Addr::new(192, 0, 2, 2));
        let v6 = PacketTemplate::new(
            "2001:db8::1".parse::<Ipv6Addr>().unwrap(),
            "2001:db8::2".parse::<Ipv6Addr>().unwrap(),
        );
        [v4, v6].map(|path| path.over(LinkTemplate::new(HERE, THERE)))
    }

    /// The transport's header and payload, of a packet that is right up to there.
    fn transport(frame: &[u8]) -> &[u8] {
        let frame = EthernetFrame::parse(frame).unwrap();
        match frame.ether_type() {
            EtherType::IPV4 => {
                ipv4::Ipv4Packet::parse(frame.payload()).unwrap().verify().unwrap().payload()
            }
            EtherType::IPV6 => {
                let mut extensions = ipv6::Ipv6Packet::parse(frame.payload()).unwrap().extensions();
                assert!(extensions.by_ref().all(|extension| extension.is_ok()));
                extensions.payload()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_datagram_is_right_in_both_families_and_its_flow_is_told() {
        for path in paths() {
            let frame = path.udp(1_000, 7, b"hello");
            let datagram = udp::UdpDatagram::parse(transport(&frame)).unwrap();
            let pseudo = path.pseudo(IpProtocol::UDP);
            assert_eq!(datagram.verify_v6(pseudo).unwrap().payload(), b"hello");
            let flow = FiveTuple::of_frame(&frame).unwrap();
            assert_eq!((flow.source_port, flow.destination_port), (1_000, 7));
            assert_eq!((flow.source, flow.protocol), (path.source, IpProtocol::UDP));
            let back = FiveTuple::of_frame(&path.reversed().udp(7, 1_000, &[])).unwrap();
            assert_eq!((back.source, back.source_port), (flow.destination, 7));
            assert_ne!(flow.words(), back.words());
            let bare = PacketTemplate { link: None, ..path }.udp(1_000, 7, b"hello");
            assert_eq!(FiveTuple::of_packet(&bare), Some(flow));
        }
    }

    #[test]
    fn fragments_cover_their_datagram_and_only_a_whole_one_or_for_sockets_the_first_has_ports() {
        let payload: Vec<u8> = (0..100).collect();
        for path in paths() {
            let fragments = path.fragments(9, IpProtocol::UDP, &payload, 48);
            let mut covered = Vec::new();
            for (index, frame) in fragments.iter().enumerate() {
                covered.extend(transport(frame));
                assert_eq!(FiveTuple::of_frame(frame).unwrap().source_port, 0);
                // 0, 1, 2, 3 at the front are both ports.
                let sockets = FiveTuple::of_sockets(frame).unwrap();
                let ports = if index == 0 { (0x0001, 0x0203) } else { (0, 0) };
                assert_eq!((sockets.source_port, sockets.destination_port), ports);
            }
            assert_eq!((covered, fragments.len()), (payload.clone(), 3));
        }
    }

    #[test]
    fn extension_headers_do_not_hide_a_flow() {
        let [_, path] = paths();
        let options: (_, &[u8]) = (IpProtocol::DESTINATION, &[0, 1, 4, 0, 0, 0, 0]);
        let frame = path.extended(&[options, options], IpProtocol::UDP, &[0, 5, 0, 6, 0, 8, 0, 0]);
        let flow = FiveTuple::of_frame(&frame).unwrap();
        assert_eq!((flow.source_port, flow.destination_port), (5, 6));
        assert_eq!(FiveTuple::of_sockets(&frame), Some(flow));
    }
}
