//! A datagram on its way in: is it sound, whom is it for, is there room.
//!
//! Lengths and ports as RFC 768 and RFC 8200 §8.1 say; the checksum is verified in one pass unless a
//! device did. Left out: the ICMP error that a refusal may call for.

use std::net::{IpAddr, SocketAddr};

use plumb_wire::checksum::Pseudo;
use plumb_wire::ecn::Ecn;
use plumb_wire::machine::Port;
use plumb_wire::malformed::Malformed;
use plumb_wire::packet::{ChecksumState, Meta, Packet, Pool};
use plumb_wire::protocol::Protocol;
use plumb_wire::udp::{self, HEADER_LEN};

use super::{Datagram, Socket, UdpId, UdpTable, frame_bytes};

/// What IP knows of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Who sent it.
    pub source: IpAddr,
    /// Which of our addresses, or groups, it was sent to.
    pub destination: IpAddr,
    /// The interface that it came by.
    pub port: Port,
    /// Where in its packet's data the UDP header begins.
    pub at: usize,
    /// Where there the IP payload ends.
    pub end: usize,
    /// The congestion notification that it came with.
    pub ecn: Ecn,
}

/// Between whom a datagram went, and by which interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ends {
    pub local: SocketAddr,
    pub remote: SocketAddr,
    pub port: Port,
}

impl Ends {
    #[inline]
    fn around(self, packet: Packet) -> Datagram {
        Datagram { packet, remote: self.remote, local: self.local, port: self.port }
    }
}

/// Why a datagram was not put into a socket's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It breaks the format.
    Malformed(Malformed),
    /// It is for port 0, which is nobody's.
    PortZero,
    /// No socket is there.
    NoSocket,
    /// The socket's queue is full: it holds as many packets or bytes as it may.
    QueueFull,
}

impl UdpTable {
    /// Takes a datagram, of whose packet nothing has been trimmed, into the queue of the socket that it
    /// is for.
    ///
    /// # Errors
    /// Gives the packet back, as it came, with the reason.
    #[inline]
    pub fn handle_datagram(
        &mut self,
        arrival: &Arrival,
        mut packet: Packet,
        pool: &mut Pool,
    ) -> Result<UdpId, (Packet, Refused)> {
        let header = match parse(arrival, &packet, &pool.bytes(&packet)[arrival.at..arrival.end]) {
            Ok(header) => header,
            Err(refused) => return Err((packet, refused)),
        };
        let local = SocketAddr::new(arrival.destination, header.destination);
        let remote = SocketAddr::new(arrival.source, header.source);
        let Some(id) = self.receiver_of(local, remote) else {
            return Err((packet, Refused::NoSocket));
        };
        let Some(socket) = self.socket_mut(id) else {
            return Err((packet, Refused::NoSocket));
        };
        let ends = Ends { local, remote, port: arrival.port };
        let whole = socket.options.super_segments;
        let Some(segments) = packet.meta.segments.filter(|_| !whole) else {
            let range = (arrival.at, arrival.at + header.len);
            let taken = self.take(id, ends, range, arrival.ecn, packet, pool);
            return taken.map(|()| id).map_err(|packet| (packet, Refused::QueueFull));
        };
        let size = usize::from(segments.size);
        pool.truncate(&mut packet, arrival.at + header.len);
        pool.trim_front(&mut packet, arrival.at);
        packet.meta.ecn = arrival.ecn;
        socket.take_each(size, header.len, &packet, ends, pool);
        pool.free(packet);
        self.announce(id);
        Ok(id)
    }

    /// Puts a datagram whose header is at `from` of its packet, and that ends at `to`, into the queue of
    /// a socket.
    ///
    /// # Errors
    /// Gives the packet back, as it came, when the queue is full.
    #[inline]
    pub(crate) fn take(
        &mut self,
        id: UdpId,
        ends: Ends,
        (from, to): (usize, usize),
        ecn: Ecn,
        packet: Packet,
        pool: &mut Pool,
    ) -> Result<(), Packet> {
        let Some(socket) = self.socket_mut(id) else { return Err(packet) };
        if !socket.has_room(&packet, pool) {
            return Err(packet);
        }
        let datagram = socket.take(ends.around(packet), pool);
        // In place: a packet that is changed just before it is moved stalls the processor, which
        // cannot forward the small stores to the wide load.
        pool.truncate(&mut datagram.packet, to);
        pool.trim_front(&mut datagram.packet, from + HEADER_LEN);
        datagram.packet.meta.ecn = ecn;
        if !socket.announced {
            self.announce(id);
        }
        Ok(())
    }

    fn announce(&mut self, id: UdpId) {
        let Some(socket) = self.socket_mut(id) else { return };
        if !std::mem::replace(&mut socket.announced, true) {
            self.readable.push_back(id);
        }
    }
}

impl Socket {
    /// Whether the packet may wait here; counted when it may not.
    #[inline]
    fn has_room(&mut self, packet: &Packet, pool: &Pool) -> bool {
        let fits = self.queue.len() < self.options.receive_packets
            && self.held + frame_bytes(packet, pool) <= self.options.receive_bytes;
        self.refused += u64::from(!fits);
        fits
    }

    #[inline]
    fn take(&mut self, datagram: Datagram, pool: &Pool) -> &mut Datagram {
        self.held += frame_bytes(&datagram.packet, pool);
        self.queue.push_back(datagram);
        self.queue.back_mut().expect("one was put there")
    }

    /// Takes the datagrams that a super-segment of `len` bytes stands for, in frames of their own;
    /// those for which there is no room, or no frame, are counted as refused.
    fn take_each(
        &mut self,
        size: usize,
        len: usize,
        super_segment: &Packet,
        ends: Ends,
        pool: &mut Pool,
    ) {
        let mut at = HEADER_LEN;
        while at < len {
            let end = len.min(at + size.max(1));
            let Some(mut packet) = pool.allocate_for(end - at) else {
                self.refused += 1;
                at = end;
                continue;
            };
            packet.meta = Meta { segments: None, ..super_segment.meta };
            let copied = self.has_room(&packet, pool)
                && pool.append_from(&mut packet, super_segment, at..end, |source, target| {
                    target.copy_from_slice(source);
                });
            if copied {
                self.take(ends.around(packet), pool);
            } else {
                pool.free(packet);
            }
            at = end;
        }
    }
}

struct Header {
    source: u16,
    destination: u16,
    /// Bytes of header and payload.
    len: usize,
}

#[inline]
fn parse(arrival: &Arrival, packet: &Packet, bytes: &[u8]) -> Result<Header, Refused> {
    // IP may carry more than the datagram; Linux, too, cuts it off.
    let datagram = udp::Datagram::parse(bytes).map_err(Refused::Malformed)?;
    let destination = datagram.destination_port();
    if destination == 0 {
        return Err(Refused::PortZero);
    }
    if packet.meta.checksum == ChecksumState::Plain {
        let verified = match (arrival.source, arrival.destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => {
                datagram.verify_v4(Pseudo::v4(source, destination, Protocol::UDP))
            }
            (IpAddr::V6(source), IpAddr::V6(destination)) => {
                datagram.verify_v6(Pseudo::v6(source, destination, Protocol::UDP))
            }
            _ => Err(Malformed::Version),
        };
        verified.map_err(Refused::Malformed)?;
    }
    let len = HEADER_LEN + datagram.payload().len();
    Ok(Header { source: datagram.source_port(), destination, len })
}
