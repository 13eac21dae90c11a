//! The send path, top to bottom: path, UDP header, IP header, next hop, link header, output queue.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plumb_wire::checksum::{self, PseudoHeader};
use plumb_wire::ethernet::{self, EtherType, EthernetTags, MacAddr};
use plumb_wire::ip::IpProtocol;
use plumb_wire::ipv4::{self, FragmentField};
use plumb_wire::ipv6;
use plumb_wire::machine::PortId;
use plumb_wire::packet::{ChecksumState, Packet, Pool, SegmentKind};
use plumb_wire::segmentation::{SegmentChecksums, SegmentError, segment_packet};
use plumb_wire::udp;

use super::udp::check_payload_len;
use super::{HostSendError, IpHost};
use crate::counters::CounterId;
use crate::fragmentation::{FragmentError, fragment_packet};
use crate::ip::{IpEgress, shift_offsets};
use crate::neighbor::{ControlFrame, Resolution};
use crate::routing::{NextHopLink, OutputPath};
use crate::udp::{PayloadSum, prepend_header};

/// Bytes of all headers of UDP over IPv4.
const HEADERS_V4: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN;
/// Bytes of all headers of UDP over IPv6: the most that have to come before a payload.
const HEADERS_V6: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + udp::HEADER_LEN;

/// A payload, and what is known about its sum.
pub(super) type Payload = (Packet, PayloadSum);

impl IpHost {
    /// Fast path: writes Ethernet, IP and UDP headers in one go over a cached path, to a known next hop, if
    /// the packet fits. The slow path sends the same bytes.
    ///
    /// # Errors
    /// Returns the packet, as it came, for the slow path.
    #[inline]
    pub(super) fn send_fast_path(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        (packet, sum): Payload,
        pool: &mut Pool,
    ) -> Result<(), Packet> {
        if local.is_ipv4() {
            self.send_headers::<HEADERS_V4>((local, remote), (packet, sum), pool)
        } else {
            self.send_headers::<HEADERS_V6>((local, remote), (packet, sum), pool)
        }
    }

    #[inline]
    fn send_headers<const N: usize>(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        (mut packet, sum): Payload,
        pool: &mut Pool,
    ) -> Result<(), Packet> {
        let neighbors = self.neighbors.generation();
        let path = self.routing.cached(self.core.now, neighbors, local.ip(), remote.ip());
        let Some(path) = path.filter(|path| fits_fast_path(path, &packet, N, pool)) else {
            return Err(packet);
        };
        let (source, destination) = (path.source, remote.ip());
        let pseudo = PseudoHeader::between(source, destination, IpProtocol::UDP);
        let (NextHopLink::Known(mac), Some(pseudo)) = (path.link, pseudo) else {
            return Err(packet);
        };
        let port = path.port;
        let sum = sum.on_path(destination.is_ipv4(), path.capabilities.checksum_tx);
        let ports = (local.port(), remote.port());
        let header = sum.header(ports, pseudo, &packet, pool);
        let egress = IpEgress::new(IpProtocol::UDP, packet.meta.ecn);
        let len = udp::HEADER_LEN + packet.len();
        packet.meta.checksum = sum.checksum_state(N - udp::HEADER_LEN);
        let out: &mut [u8; N] =
            pool.prepend(&mut packet, N).first_chunk_mut().expect("as long as was asked for");
        let (link, rest) = out.split_at_mut(ethernet::HEADER_LEN);
        self.link_header(port, mac, destination.is_ipv4()).emit(link);
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                header_v4(source, destination, egress, len).emit(rest);
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                header_v6(source, destination, egress, len).emit(rest);
            }
            _ => unreachable!("a pseudo-header joins addresses of one family"),
        }
        header.emit(&mut out[N - udp::HEADER_LEN..]);
        self.core.counters.add(CounterId::Originated);
        self.push_to_queue(port, packet, pool);
        Ok(())
    }

    pub(super) fn send_slow_path(
        &mut self,
        (local, remote): (SocketAddr, SocketAddr),
        (packet, sum): Payload,
        pool: &mut Pool,
    ) -> Result<(), HostSendError> {
        let found = check_payload_len(packet.len(), remote)
            .and_then(|()| Ok(self.current_path(local.ip(), remote.ip())?));
        let path = match found {
            Ok(path) => path,
            Err(error) => {
                pool.free(packet);
                return Err(error);
            }
        };
        let sum = sum.on_path(remote.is_ipv4(), path.capabilities.checksum_tx);
        let Some(mut packet) = self.with_headroom(packet, pool) else { return Ok(()) };
        let source = SocketAddr::new(path.source, local.port());
        prepend_header(source, remote, sum, &mut packet, pool);
        if let Some(segments) = &mut packet.meta.segments {
            segments.header_len = u16::try_from(udp::HEADER_LEN).expect("eight");
        }
        let egress = IpEgress::new(IpProtocol::UDP, packet.meta.ecn);
        self.send_on_path(&path, remote.ip(), egress, packet, pool)
    }

    /// Sends `packet`, a whole transport segment or message, from `path.source` to `remote`; a packet that
    /// cannot be sent for want of room is counted.
    ///
    /// # Errors
    /// [`HostSendError::TooBig`]; the packet is freed.
    #[inline]
    pub(super) fn send_on_path(
        &mut self,
        path: &OutputPath,
        remote: IpAddr,
        egress: IpEgress,
        packet: Packet,
        pool: &mut Pool,
    ) -> Result<(), HostSendError> {
        let Some(mut packet) = self.with_headroom(packet, pool) else { return Ok(()) };
        self.core.counters.add(CounterId::Originated);
        let header_len = if remote.is_ipv4() { ipv4::HEADER_LEN } else { ipv6::HEADER_LEN };
        let len = header_len + packet.len();
        let largest = match packet.meta.segments {
            None => len,
            Some(segments) => {
                header_len + usize::from(segments.header_len) + usize::from(segments.size)
            }
        };
        let fits = largest <= path.mtu as usize;
        if len > ipv4::PACKET_LEN_MAX || (!fits && !egress.may_fragment) {
            self.drop_packet(CounterId::TxTooBig, packet, pool);
            return Err(HostSendError::TooBig { len, mtu: path.mtu });
        }
        let allow_fragmentation = path.allow_fragmentation || !fits;
        self.write_ip_header(path.source, remote, egress, allow_fragmentation, &mut packet, pool);
        if !fits {
            return self.send_fragments(path, remote, packet, pool);
        }
        self.send_to_next_hop(path, remote, packet, pool);
        Ok(())
    }

    /// The packet, moved to another frame if its own has no room for headers; counted if no frame is free.
    #[inline]
    fn with_headroom(&mut self, packet: Packet, pool: &mut Pool) -> Option<Packet> {
        if pool.headroom(&packet) >= HEADERS_V6 {
            return Some(packet);
        }
        let mut moved = pool.copy_of(&packet, 0..packet.len());
        if let Some(moved) = &mut moved {
            moved.meta = packet.meta;
        } else {
            self.core.counters.add(CounterId::Originated);
            self.core.counters.add(CounterId::TxNoMemory);
        }
        pool.free(packet);
        moved
    }

    #[inline]
    fn write_ip_header(
        &mut self,
        source: IpAddr,
        remote: IpAddr,
        egress: IpEgress,
        allow_fragmentation: bool,
        packet: &mut Packet,
        pool: &mut Pool,
    ) {
        match (source, remote) {
            (IpAddr::V4(source), IpAddr::V4(remote)) => {
                let mut header = header_v4(source, remote, egress, packet.len());
                if allow_fragmentation {
                    header.fragment = FragmentField::WHOLE;
                }
                if allow_fragmentation || packet.meta.segments.is_some() {
                    header.identification = self.core.next_identification();
                }
                header.emit(pool.prepend(packet, ipv4::HEADER_LEN));
                shift_offsets(&mut packet.meta, 20);
            }
            (IpAddr::V6(source), IpAddr::V6(remote)) => {
                let header = header_v6(source, remote, egress, packet.len());
                header.emit(pool.prepend(packet, ipv6::HEADER_LEN));
                shift_offsets(&mut packet.meta, 40);
            }
            _ => unreachable!("a path joins addresses of one family"),
        }
    }

    /// Sends an IP packet that is longer than its path allows, in fragments.
    #[cold]
    fn send_fragments(
        &mut self,
        path: &OutputPath,
        remote: IpAddr,
        packet: Packet,
        pool: &mut Pool,
    ) -> Result<(), HostSendError> {
        let (identification, mut fragments) = (self.core.random_identification(), Vec::new());
        let mtu = path.mtu as usize;
        match fragment_packet(packet, mtu, identification, pool, &mut fragments) {
            Ok(()) => {
                self.core.counters.add_many(CounterId::Originated, fragments.len() - 1);
                for fragment in fragments {
                    self.send_to_next_hop(path, remote, fragment, pool);
                }
                Ok(())
            }
            Err((packet, FragmentError::NoMemory)) => {
                self.drop_packet(CounterId::TxNoMemory, packet, pool);
                Ok(())
            }
            Err((packet, _)) => {
                let len = packet.len();
                self.drop_packet(CounterId::TxTooBig, packet, pool);
                Err(HostSendError::TooBig { len, mtu: path.mtu })
            }
        }
    }

    /// Sends an IP packet, whole or a fragment, to the next hop of its path; it is queued where the link
    /// address of that is not known.
    #[inline]
    fn send_to_next_hop(
        &mut self,
        path: &OutputPath,
        remote: IpAddr,
        packet: Packet,
        pool: &mut Pool,
    ) {
        let is_ipv4 = path.source.is_ipv4();
        match path.link {
            NextHopLink::Bare => self.enqueue(path.port, packet, pool),
            NextHopLink::Known(mac) => self.send_to_mac(path.port, mac, is_ipv4, packet, pool),
            NextHopLink::Unknown => {
                let mut cx = self.core.context(pool);
                let (interface, from) = (&self.interfaces[path.port], (path.port, path.source));
                match self.neighbors.resolve(&mut cx, interface, from, path.next_hop, packet) {
                    Resolution::Send(packet, mac, until) => {
                        let neighbors = self.neighbors.generation();
                        self.routing.on_resolved(neighbors, remote, mac, until);
                        self.send_to_mac(path.port, mac, is_ipv4, packet, pool);
                    }
                    Resolution::Queued(Some(solicitation)) => {
                        self.send_control(path.port, &solicitation, pool);
                    }
                    Resolution::Queued(None) => {}
                }
            }
        }
    }

    /// Sends a frame of ARP or neighbor discovery.
    pub(super) fn send_control(&mut self, port: PortId, frame: &ControlFrame, pool: &mut Pool) {
        match pool.packet_of(frame.bytes()) {
            Some(packet) => {
                self.core.counters.add(CounterId::Originated);
                self.enqueue(port, packet, pool);
            }
            None => self.core.counters.add(CounterId::NoMemory),
        }
    }

    /// Prepends the Ethernet header to an IP packet and queues it.
    #[inline]
    pub(super) fn send_to_mac(
        &mut self,
        port: PortId,
        destination: MacAddr,
        is_ipv4: bool,
        mut packet: Packet,
        pool: &mut Pool,
    ) {
        let header = self.link_header(port, destination, is_ipv4);
        header.emit(pool.prepend(&mut packet, ethernet::HEADER_LEN));
        shift_offsets(&mut packet.meta, 14);
        self.enqueue(port, packet, pool);
    }

    #[inline]
    pub(super) fn link_header(
        &self,
        port: PortId,
        destination: MacAddr,
        is_ipv4: bool,
    ) -> ethernet::EthernetHeader {
        let source = self.interfaces[port].mac;
        let ether_type = if is_ipv4 { EtherType::IPV4 } else { EtherType::IPV6 };
        ethernet::EthernetHeader { destination, source, tags: EthernetTags::Untagged, ether_type }
    }

    /// Queues a frame for its device, segmented and with a checksum where the device does neither.
    #[inline]
    fn enqueue(&mut self, port: PortId, mut packet: Packet, pool: &mut Pool) {
        let capabilities = self.interfaces[port].capabilities;
        if let Some(segments) = packet.meta.segments {
            let is_offloaded = match segments.kind {
                SegmentKind::Tcp4 | SegmentKind::Tcp6 => capabilities.segments_tcp,
                SegmentKind::Udp4 | SegmentKind::Udp6 => capabilities.segments_udp,
            };
            if !is_offloaded {
                return self.enqueue_segments(port, packet, pool);
            }
        }
        if let ChecksumState::Partial { start, offset } = packet.meta.checksum
            && !capabilities.checksum_tx
        {
            let bytes = pool.bytes_mut(&mut packet);
            let complete = checksum::complete(bytes, usize::from(start), usize::from(offset));
            debug_assert!(complete, "the transport put its checksum inside of the packet");
            packet.meta.checksum = ChecksumState::Plain;
        }
        self.push_to_queue(port, packet, pool);
    }

    /// Queues the segments of a super-segment for a device that takes none.
    #[cold]
    fn enqueue_segments(&mut self, port: PortId, packet: Packet, pool: &mut Pool) {
        let capabilities = self.interfaces[port].capabilities;
        let checksums = if capabilities.checksum_tx {
            SegmentChecksums::Partial
        } else {
            SegmentChecksums::Complete
        };
        let mut segments = Vec::new();
        match segment_packet(packet, capabilities.medium, checksums, pool, &mut segments) {
            Ok(()) => {
                self.core.counters.add_many(CounterId::Originated, segments.len() - 1);
                for segment in segments {
                    self.push_to_queue(port, segment, pool);
                }
            }
            Err((packet, SegmentError::NoMemory)) => {
                self.drop_packet(CounterId::TxNoMemory, packet, pool);
            }
            Err((packet, SegmentError::Impossible)) => {
                self.drop_packet(CounterId::TxTooBig, packet, pool);
            }
        }
    }

    /// Sends a received frame that was turned round in place.
    #[inline]
    pub(crate) fn send_swapped(&mut self, port: PortId, packet: Packet, pool: &mut Pool) {
        self.core.counters.add(CounterId::Received);
        self.core.counters.add(CounterId::UdpSwapped);
        self.core.counters.add(CounterId::Originated);
        self.push_to_queue(port, packet, pool);
    }

    #[inline]
    pub(super) fn push_to_queue(&mut self, port: PortId, packet: Packet, pool: &mut Pool) {
        let queue = &mut self.interfaces[port].queue;
        if queue.len() >= self.config.output_queue {
            return self.drop_packet(CounterId::TxQueueFull, packet, pool);
        }
        queue.push_back(packet);
    }
}

#[inline]
fn fits_fast_path(path: &OutputPath, packet: &Packet, headers: usize, pool: &Pool) -> bool {
    let fits = packet.len() + headers - ethernet::HEADER_LEN <= path.mtu as usize;
    let room = pool.headroom(packet) >= headers;
    fits && room && !path.allow_fragmentation && packet.meta.segments.is_none()
}

#[inline]
pub(super) fn header_v4(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    egress: IpEgress,
    payload_len: usize,
) -> ipv4::Ipv4Header {
    let len = u16::try_from(payload_len).expect("a packet's length was checked");
    ipv4::Ipv4Header {
        traffic_class: egress.class,
        hop_limit: egress.hop_limit,
        ..ipv4::Ipv4Header::new(source, destination, egress.protocol, len)
    }
}

#[inline]
pub(super) fn header_v6(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    egress: IpEgress,
    payload_len: usize,
) -> ipv6::Ipv6Header {
    let len = u16::try_from(payload_len).expect("a packet's length was checked");
    ipv6::Ipv6Header {
        traffic_class: egress.class,
        hop_limit: egress.hop_limit,
        ..ipv6::Ipv6Header::new(source, destination, egress.protocol, len)
    }
}
