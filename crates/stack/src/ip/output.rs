//! Packets on their way out: the path, the IP header, the neighbour, the link header, the queue.
//!
//! Left out: cutting (`fragment`, `segment`), and what a packet carries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plumb_base::time::Instant;
use plumb_wire::checksum;
use plumb_wire::ethernet::{self, EtherType, Tags};
use plumb_wire::ipv4::{self, FragmentField};
use plumb_wire::ipv6;
use plumb_wire::mac::MacAddr;
use plumb_wire::machine::Port;
use plumb_wire::medium::Medium;
use plumb_wire::packet::{ChecksumState, Packet, Pool, SegmentKind};

use super::{Egress, prepended};
use crate::counters::Count;
use crate::host::Host;
use crate::interface::{never_on_a_link4, never_on_a_link6};
use crate::neighbour::{Delivery, Means};
use crate::path::{Link, Path, PathError};

/// Bytes of the headers that may have to come before a payload: Ethernet, IPv6, UDP.
const HEADERS_MAX: usize = 14 + 40 + 8;

/// Why a packet was not sent; it was counted and its frame is free again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OutputError {
    /// Longer than the path allows, and not to be cut.
    #[error("a packet of {len} bytes does not fit the path's {mtu}, and must not be cut")]
    TooBig {
        /// Of the packet.
        len: usize,
        /// Of the path.
        mtu: u32,
    },
}

impl Host {
    /// The way from an address of ours, or from whichever suits where that is unspecified.
    ///
    /// # Errors
    /// [`PathError`] where there is none.
    #[inline]
    pub fn path(&mut self, now: Instant, local: IpAddr, remote: IpAddr) -> Result<Path, PathError> {
        let generation = self.generation();
        if let Some(path) = self.paths.lookup(now, local, remote, generation) {
            return Ok(*path);
        }
        self.find_path(now, local, remote)
    }

    fn find_path(
        &mut self,
        now: Instant,
        local: IpAddr,
        remote: IpAddr,
    ) -> Result<Path, PathError> {
        if self.interfaces.iter().any(|interface| interface.owns(remote)) {
            return Err(PathError::Own(remote));
        }
        let (port, gateway) = self.way_out(local, remote)?;
        let interface = &self.interfaces[usize::from(port.0)];
        let source = if local.is_unspecified() {
            interface.source_for(remote).ok_or(PathError::NoRoute(remote))?
        } else if interface.owns(local) {
            local
        } else {
            return Err(PathError::NotOurs(local));
        };
        let link = match (interface.capabilities.medium, remote) {
            (Medium::Ip, _) => Link::Bare,
            (Medium::Ethernet, IpAddr::V4(ip)) if ip.is_multicast() => {
                Link::Known(MacAddr::multicast_v4(ip))
            }
            (Medium::Ethernet, IpAddr::V4(ip))
                if ip.is_broadcast() || interface.is_broadcast(ip) =>
            {
                Link::Known(MacAddr::BROADCAST)
            }
            (Medium::Ethernet, IpAddr::V6(ip)) if ip.is_multicast() => {
                Link::Known(MacAddr::multicast_v6(ip))
            }
            (Medium::Ethernet, _) => Link::Unknown,
        };
        let mut path = Path {
            port,
            source,
            next_hop: gateway.unwrap_or(remote),
            mtu: interface.capabilities.mtu,
            cut: false,
            capabilities: interface.capabilities,
            link,
        };
        let mut until = Instant::NEVER;
        if let Some(learnt) = self.path_mtus.lookup(now, remote) {
            path.mtu = path.mtu.min(learnt.mtu);
            path.cut = learnt.cut;
            until = learnt.until;
        }
        self.paths.insert(local, remote, self.generation(), until, path);
        Ok(path)
    }

    /// The interface and the router towards an address.
    fn way_out(&self, local: IpAddr, remote: IpAddr) -> Result<(Port, Option<IpAddr>), PathError> {
        let (limited, everybody) = match remote {
            IpAddr::V4(ip) => (ip.is_multicast() || ip.is_broadcast(), ip.is_broadcast()),
            IpAddr::V6(ip) => (ip.is_multicast() || ip.is_unicast_link_local(), false),
        };
        let nowhere = match remote {
            IpAddr::V4(ip) => never_on_a_link4(ip) && !everybody,
            IpAddr::V6(ip) => never_on_a_link6(ip),
        };
        if nowhere {
            return Err(PathError::Nowhere(remote));
        }
        let owner = self.interfaces.iter().position(|interface| interface.owns(local));
        if let Some(owner) = owner
            && (limited || self.interfaces[owner].is_on_link(remote))
        {
            return Ok((port_of(owner), None));
        }
        if let Some(route) = self.routes.lookup(remote) {
            // A group or a link-local address is on the link, whatever the route says.
            return Ok((route.port, route.gateway.filter(|_| !limited)));
        }
        let any = self.interfaces.iter().position(|interface| {
            limited && interface.addresses.iter().any(|own| own.ip.is_ipv4() == remote.is_ipv4())
        });
        any.map(|any| (port_of(any), None)).ok_or(PathError::NoRoute(remote))
    }

    /// Sends `packet`, a whole transport segment or message, from `path.source` to `remote`.
    ///
    /// It is cut where it must and may be; it waits where the neighbour's address is not known; what
    /// cannot be sent for want of room is counted.
    ///
    /// # Errors
    /// [`OutputError::TooBig`]; the packet is gone all the same.
    #[inline]
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        path: &Path,
        remote: IpAddr,
        egress: Egress,
        packet: Packet,
        pool: &mut Pool,
    ) -> Result<(), OutputError> {
        let Some(mut packet) = self.with_headroom(packet, pool) else { return Ok(()) };
        self.counters.add(Count::Originated);
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
            self.counters.add(Count::TxTooBig);
            pool.free(packet);
            return Err(OutputError::TooBig { len, mtu: path.mtu });
        }
        if !fits {
            return self.transmit_cut(now, path, remote, egress, packet, pool);
        }
        match (path.source, remote) {
            (IpAddr::V4(source), IpAddr::V4(remote)) => {
                let mut header = header4(source, remote, egress, packet.len());
                if path.cut {
                    header.fragment = FragmentField::WHOLE;
                    header.identification = self.next_identification();
                } else if packet.meta.segments.is_some() {
                    header.identification = self.next_identification();
                }
                header.emit(pool.prepend(&mut packet, ipv4::HEADER_LEN));
                prepended(&mut packet.meta, 20);
            }
            (IpAddr::V6(source), IpAddr::V6(remote)) => {
                let header = header6(source, remote, egress, packet.len());
                header.emit(pool.prepend(&mut packet, ipv6::HEADER_LEN));
                prepended(&mut packet.meta, 40);
            }
            _ => unreachable!("a path joins addresses of one family"),
        }
        self.link(now, path, remote, packet, pool);
        Ok(())
    }

    /// The packet, moved to another frame if its own has no room for headers; counted if there is no
    /// other.
    #[inline]
    pub(crate) fn with_headroom(&mut self, packet: Packet, pool: &mut Pool) -> Option<Packet> {
        if pool.headroom(&packet) >= HEADERS_MAX {
            return Some(packet);
        }
        let len = packet.len();
        let mut moved = pool.allocate_for(len);
        let fits = moved.as_mut().is_some_and(|moved| {
            moved.meta = packet.meta;
            pool.append_from(moved, &packet, 0..len, |from, to| to.copy_from_slice(from))
        });
        pool.free(packet);
        if !fits {
            self.counters.add(Count::Originated);
            self.counters.add(Count::TxNoMemory);
            if let Some(moved) = moved.take() {
                pool.free(moved);
            }
        }
        moved
    }

    /// Sends an IP packet, whole or a fragment, to the next hop of its path.
    #[inline]
    pub(crate) fn link(
        &mut self,
        now: Instant,
        path: &Path,
        remote: IpAddr,
        packet: Packet,
        pool: &mut Pool,
    ) {
        match path.link {
            Link::Bare => self.enqueue(path.port, packet, pool),
            Link::Known(mac) => self.frame(path.port, mac, path.source.is_ipv4(), packet, pool),
            Link::Unknown => {
                let mut means =
                    Means { timers: &mut self.timers, counters: &mut self.counters, pool };
                let delivery =
                    self.neighbours.deliver(now, path.port, path.next_hop, packet, &mut means);
                match delivery {
                    Delivery::Ready(packet, mac, until) => {
                        let generation = self.generation();
                        self.paths.resolve(remote, mac, until, generation);
                        self.frame(path.port, mac, path.source.is_ipv4(), packet, pool);
                    }
                    Delivery::Waiting { solicit: true } => {
                        self.solicit(path.port, path.next_hop, None, Some(path.source), pool);
                    }
                    Delivery::Waiting { solicit: false } => {}
                }
            }
        }
    }

    /// Puts the Ethernet header before an IP packet and queues it.
    #[inline]
    pub(crate) fn frame(
        &mut self,
        port: Port,
        destination: MacAddr,
        is_ipv4: bool,
        mut packet: Packet,
        pool: &mut Pool,
    ) {
        let header = ethernet::Header {
            destination,
            source: self.interfaces[usize::from(port.0)].mac,
            tags: Tags::Untagged,
            ether_type: if is_ipv4 { EtherType::IPV4 } else { EtherType::IPV6 },
        };
        header.emit(pool.prepend(&mut packet, ethernet::HEADER_LEN));
        prepended(&mut packet.meta, 14);
        self.enqueue(port, packet, pool);
    }

    /// Queues a frame for its device, made into what the device takes.
    #[inline]
    pub(crate) fn enqueue(&mut self, port: Port, mut packet: Packet, pool: &mut Pool) {
        let capabilities = self.interfaces[usize::from(port.0)].capabilities;
        if let Some(segments) = packet.meta.segments {
            let takes = match segments.kind {
                SegmentKind::Tcp4 | SegmentKind::Tcp6 => capabilities.segments_tcp,
                SegmentKind::Udp4 | SegmentKind::Udp6 => capabilities.segments_udp,
            };
            if !takes {
                return self.enqueue_cut(port, packet, pool);
            }
        }
        if let ChecksumState::Partial { start, offset } = packet.meta.checksum
            && !capabilities.checksum_tx
        {
            let complete = checksum::complete(
                pool.bytes_mut(&mut packet),
                usize::from(start),
                usize::from(offset),
            );
            debug_assert!(complete, "the transport put its checksum inside of the packet");
            packet.meta.checksum = ChecksumState::Plain;
        }
        self.push(port, packet, pool);
    }

    #[inline]
    pub(crate) fn push(&mut self, port: Port, packet: Packet, pool: &mut Pool) {
        let queue = &mut self.interfaces[usize::from(port.0)].queue;
        if queue.len() >= self.config.output_queue {
            self.counters.add(Count::TxQueueFull);
            pool.free(packet);
            return;
        }
        queue.push_back(packet);
    }
}

#[inline]
pub(crate) fn header4(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    egress: Egress,
    payload_len: usize,
) -> ipv4::Header {
    let len = u16::try_from(payload_len).expect("a packet's length was checked");
    ipv4::Header {
        traffic_class: egress.class,
        hop_limit: egress.hop_limit,
        ..ipv4::Header::new(source, destination, egress.protocol, len)
    }
}

#[inline]
pub(crate) fn header6(
    source: Ipv6Addr,
    destination: Ipv6Addr,
    egress: Egress,
    payload_len: usize,
) -> ipv6::Header {
    let len = u16::try_from(payload_len).expect("a packet's length was checked");
    ipv6::Header {
        traffic_class: egress.class,
        hop_limit: egress.hop_limit,
        ..ipv6::Header::new(source, destination, egress.protocol, len)
    }
}

#[inline]
pub(crate) fn port_of(index: usize) -> Port {
    Port(u16::try_from(index).expect("interfaces are at most 65,535"))
}
