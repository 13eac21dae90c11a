//! A datagram on its way in: is it sound, whom is it for, is there room.
//!
//! Lengths and ports as RFC 768 and RFC 8200 §8.1 say; the checksum is verified in one pass unless a
//! device did. Left out: the ICMP error that a refusal may call for.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

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

/// What became of a datagram that is for a socket, or of those that a super-segment stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Whose they are.
    pub socket: UdpId,
    /// Datagrams in its queue.
    pub delivered: usize,
    /// Datagrams dropped because its queue was full.
    pub queue_full: usize,
    /// Datagrams dropped for want of a free frame.
    pub no_memory: usize,
}

impl Delivery {
    const fn none(socket: UdpId) -> Self {
        Self { socket, delivered: 0, queue_full: 0, no_memory: 0 }
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
    /// is for; of a super-segment, as many of its datagrams as there is room for.
    ///
    /// # Errors
    /// Gives the packet back, as it came, with the reason.
    #[inline]
    pub fn handle_datagram(
        &mut self,
        arrival: &Arrival,
        mut packet: Packet,
        pool: &mut Pool,
    ) -> Result<Delivery, (Packet, Refused)> {
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
            return match self.take(id, ends, range, arrival.ecn, packet, pool) {
                Ok(()) => Ok(Delivery { delivered: 1, ..Delivery::none(id) }),
                Err(packet) => Err((packet, Refused::QueueFull)),
            };
        };
        let size = usize::from(segments.size);
        pool.truncate(&mut packet, arrival.at + header.len);
        pool.trim_front(&mut packet, arrival.at);
        packet.meta.ecn = arrival.ecn;
        let mut delivery = Delivery::none(id);
        socket.take_each(size, header.len, &packet, ends, &mut delivery, pool);
        pool.free(packet);
        if delivery.delivered > 0 {
            self.announce(id);
        }
        Ok(delivery)
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
    /// Whether the packet may wait here.
    #[inline]
    fn has_room(&self, packet: &Packet, pool: &Pool) -> bool {
        self.queue.len() < self.options.receive_packets
            && self.held + frame_bytes(packet, pool) <= self.options.receive_bytes
    }

    #[inline]
    fn take(&mut self, datagram: Datagram, pool: &Pool) -> &mut Datagram {
        self.held += frame_bytes(&datagram.packet, pool);
        self.queue.push_back(datagram);
        self.queue.back_mut().expect("one was put there")
    }

    /// Takes the datagrams that a super-segment of `len` bytes stands for, in frames of their own,
    /// and counts what became of each.
    fn take_each(
        &mut self,
        size: usize,
        len: usize,
        super_segment: &Packet,
        ends: Ends,
        delivery: &mut Delivery,
        pool: &mut Pool,
    ) {
        let mut at = HEADER_LEN;
        loop {
            let end = len.min(at + size.max(1));
            let fate = match cut(super_segment, at..end, pool) {
                Some(packet) if self.has_room(&packet, pool) => {
                    self.take(ends.around(packet), pool);
                    &mut delivery.delivered
                }
                Some(packet) => {
                    pool.free(packet);
                    &mut delivery.queue_full
                }
                None => &mut delivery.no_memory,
            };
            *fate += 1;
            // Without payload, too, it is one datagram.
            if end >= len {
                break;
            }
            at = end;
        }
    }
}

/// One datagram's payload out of a super-segment; none when no frame is free.
fn cut(super_segment: &Packet, range: Range<usize>, pool: &mut Pool) -> Option<Packet> {
    let mut packet = pool.allocate_for(range.len())?;
    packet.meta = Meta { segments: None, ..super_segment.meta };
    let copied = pool.append_from(&mut packet, super_segment, range, |source, target| {
        target.copy_from_slice(source);
    });
    assert!(copied, "a fresh frame has the room that was asked for");
    Some(packet)
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
