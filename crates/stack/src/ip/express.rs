//! The short way out: a UDP payload over a path of which everything is known, in one pass.
//!
//! Ethernet, a neighbour whose address is there, one packet that fits: all three headers are written
//! at once. Whatever is not so simple is given back for the general way (`output`), which sends
//! the same bytes. Left out: everything else.

use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

use plumb_base::time::Instant;
use plumb_wire::checksum::Pseudo;
use plumb_wire::ethernet::{self, EtherType, Tags};
use plumb_wire::packet::{ChecksumState, Packet, Pool};
use plumb_wire::protocol::Protocol;
use plumb_wire::udp::{self, CHECKSUM_OFFSET};
use plumb_wire::{ipv4, ipv6};

use super::Egress;
use super::output::{header4, header6};
use crate::counters::Count;
use crate::host::Host;
use crate::path::{Link, Path};
use crate::udp::output::PayloadSum;

/// Bytes of all headers over IPv4.
const HEADERS_V4: usize = ethernet::HEADER_LEN + ipv4::HEADER_LEN + udp::HEADER_LEN;
/// Bytes of all headers over IPv6.
const HEADERS_V6: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + udp::HEADER_LEN;

impl Host {
    /// Sends a payload, of which `sum` is known, from an address of ours to `remote`.
    ///
    /// # Errors
    /// Gives the packet back, as it came, when the path or the packet is not so simple.
    #[inline]
    pub(crate) fn express(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        (packet, sum): (Packet, PayloadSum),
        pool: &mut Pool,
    ) -> Result<(), Packet> {
        match (local, remote) {
            (SocketAddr::V4(local), SocketAddr::V4(remote)) => {
                self.express4(now, local, remote, (packet, sum), pool)
            }
            (SocketAddr::V6(local), SocketAddr::V6(remote)) => {
                self.express6(now, local, remote, (packet, sum), pool)
            }
            _ => Err(packet),
        }
    }

    #[inline]
    fn express4(
        &mut self,
        now: Instant,
        local: SocketAddrV4,
        remote: SocketAddrV4,
        (mut packet, sum): (Packet, PayloadSum),
        pool: &mut Pool,
    ) -> Result<(), Packet> {
        let destination = *remote.ip();
        let ends = (IpAddr::V4(*local.ip()), IpAddr::V4(destination));
        let Some(path) = self.paths.lookup(now, ends.0, ends.1, self.generation()) else {
            return Err(packet);
        };
        let (Link::Known(mac), IpAddr::V4(source)) = (path.link, path.source) else {
            return Err(packet);
        };
        if !is_simple(path, &packet, HEADERS_V4, pool) {
            return Err(packet);
        }
        let (port, partial) = (path.port, path.capabilities.checksum_tx);
        let header = udp::Header::new(local.port(), remote.port(), packet.len());
        let pseudo = Pseudo::v4(source, destination, Protocol::UDP);
        let header = finished(header, pseudo, (partial, sum), &packet, pool);
        let egress = Egress::new(Protocol::UDP, packet.meta.ecn);
        let ip = header4(source, destination, egress, udp::HEADER_LEN + packet.len());
        let interface = &mut self.interfaces[usize::from(port.0)];
        let frame = ethernet::Header {
            destination: mac,
            source: interface.mac,
            tags: Tags::Untagged,
            ether_type: EtherType::IPV4,
        };
        packet.meta.checksum = checksum_state(partial && !is_unwanted(sum), HEADERS_V4);
        let out: &mut [u8; HEADERS_V4] = pool
            .prepend(&mut packet, HEADERS_V4)
            .first_chunk_mut()
            .expect("as long as was asked for");
        frame.emit(&mut out[..ethernet::HEADER_LEN]);
        ip.emit(&mut out[ethernet::HEADER_LEN..]);
        header.emit(&mut out[HEADERS_V4 - udp::HEADER_LEN..]);
        self.counters.add(Count::Originated);
        self.push(port, packet, pool);
        Ok(())
    }

    #[inline]
    fn express6(
        &mut self,
        now: Instant,
        local: SocketAddrV6,
        remote: SocketAddrV6,
        (mut packet, sum): (Packet, PayloadSum),
        pool: &mut Pool,
    ) -> Result<(), Packet> {
        let destination = *remote.ip();
        let ends = (IpAddr::V6(*local.ip()), IpAddr::V6(destination));
        // RFC 8200 §8.1: over IPv6 there is no datagram without a checksum.
        let sum = match sum {
            PayloadSum::Unwanted => PayloadSum::Unknown,
            sum => sum,
        };
        let Some(path) = self.paths.lookup(now, ends.0, ends.1, self.generation()) else {
            return Err(packet);
        };
        let (Link::Known(mac), IpAddr::V6(source)) = (path.link, path.source) else {
            return Err(packet);
        };
        if !is_simple(path, &packet, HEADERS_V6, pool) {
            return Err(packet);
        }
        let (port, partial) = (path.port, path.capabilities.checksum_tx);
        let header = udp::Header::new(local.port(), remote.port(), packet.len());
        let pseudo = Pseudo::v6(source, destination, Protocol::UDP);
        let header = finished(header, pseudo, (partial, sum), &packet, pool);
        let egress = Egress::new(Protocol::UDP, packet.meta.ecn);
        let ip = header6(source, destination, egress, udp::HEADER_LEN + packet.len());
        let interface = &mut self.interfaces[usize::from(port.0)];
        let frame = ethernet::Header {
            destination: mac,
            source: interface.mac,
            tags: Tags::Untagged,
            ether_type: EtherType::IPV6,
        };
        packet.meta.checksum = checksum_state(partial, HEADERS_V6);
        let out: &mut [u8; HEADERS_V6] = pool
            .prepend(&mut packet, HEADERS_V6)
            .first_chunk_mut()
            .expect("as long as was asked for");
        frame.emit(&mut out[..ethernet::HEADER_LEN]);
        ip.emit(&mut out[ethernet::HEADER_LEN..]);
        header.emit(&mut out[HEADERS_V6 - udp::HEADER_LEN..]);
        self.counters.add(Count::Originated);
        self.push(port, packet, pool);
        Ok(())
    }
}

#[inline]
fn is_simple(path: &Path, packet: &Packet, headers: usize, pool: &Pool) -> bool {
    let fits = packet.len() + headers - ethernet::HEADER_LEN <= path.mtu as usize;
    let room = pool.headroom(packet) >= headers;
    fits && room && !path.cut && packet.meta.segments.is_none()
}

#[inline]
fn finished(
    header: udp::Header,
    pseudo: Pseudo,
    (partial, sum): (bool, PayloadSum),
    packet: &Packet,
    pool: &Pool,
) -> udp::Header {
    match sum {
        PayloadSum::Unwanted => header,
        _ if partial => header.with_partial(pseudo),
        PayloadSum::Known(sum) => header.with_checksum(pseudo, sum),
        PayloadSum::Unknown | PayloadSum::Offloaded => {
            header.with_checksum(pseudo, plumb_copy::sum(pool.bytes(packet)))
        }
    }
}

#[inline]
fn is_unwanted(sum: PayloadSum) -> bool {
    matches!(sum, PayloadSum::Unwanted)
}

#[inline]
fn checksum_state(partial: bool, headers: usize) -> ChecksumState {
    if partial {
        let start = u16::try_from(headers - udp::HEADER_LEN).expect("at most 54");
        ChecksumState::Partial { start, offset: CHECKSUM_OFFSET }
    } else {
        ChecksumState::Plain
    }
}
