//! UDP (RFC 768): sockets, demultiplexing and receive queues.
//!
//! A socket is bound to a port of one address or of all, and may be connected to one peer; the most
//! specific match gets a datagram. IPv4 and IPv6 are separate: an IPv6 socket receives no IPv4 (no
//! mapped addresses).

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use plumb_base::seed::Seed;
use plumb_base::time::Instant;
use plumb_wire::flow::SipKey;
use plumb_wire::ip::Ecn;
use plumb_wire::machine::PortId;
use plumb_wire::packet::{Packet, Pool};
use thiserror::Error;

use crate::demux::{EphemeralPorts, SocketBinding, SocketDemux};

mod datagram;

pub use datagram::{CopyPolicy, UdpDelivery, UdpDrop};
pub(crate) use datagram::{DatagramEndpoints, PAYLOAD_MAX_V4, PayloadSum, copied, prepend_header};

/// Identifies a socket; not reused after it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UdpId {
    index: u32,
    generation: u32,
}

/// Bounds of a socket's receive queue, and what it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// Datagrams in the receive queue.
    pub receive_packets: usize,
    /// Bytes of frames in the receive queue, unused room included, as Linux counts `truesize`: else
    /// one-byte datagrams would hold the whole pool.
    pub receive_bytes: usize,
    /// Whether a super-segment is delivered whole, rather than as separate datagrams.
    pub super_segments: bool,
}

impl Default for UdpOptions {
    /// 256 datagrams, 512 KiB, no super-segments.
    fn default() -> Self {
        Self { receive_packets: 256, receive_bytes: 524_288, super_segments: false }
    }
}

/// A datagram that arrived.
#[derive(Debug)]
pub struct InboundDatagram {
    /// Its payload; the headers that it came with lie before it, in the headroom.
    pub packet: Packet,
    /// Its source.
    pub remote: SocketAddr,
    /// Its destination, one of our addresses or a group.
    pub local: SocketAddr,
    /// The interface that it came by.
    pub port: PortId,
}

impl InboundDatagram {
    /// The congestion notification that it arrived with.
    pub fn ecn(&self) -> Ecn {
        self.packet.meta.ecn
    }

    /// When its device received it.
    pub fn received(&self) -> Instant {
        self.packet.meta.received
    }
}

/// Why a socket cannot be bound or connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum BindError {
    /// Another socket is bound there.
    #[error("{0} is in use by another socket; bind another port, or port 0 for any that is free")]
    InUse(SocketAddr),
    /// Not an address of the host.
    #[error(
        "{0} is not an address of this host; bind one that an interface has, or 0.0.0.0 or [::] for all"
    )]
    NotLocal(IpAddr),
    /// No ephemeral port is free.
    #[error("every ephemeral port of {0} is in use; close sockets that are not needed")]
    NoPort(IpAddr),
    /// The peer cannot be reached from the local address.
    #[error(
        "{local} cannot be connected to {remote}: both must be of one family, with a port and an address of one host"
    )]
    Unconnectable {
        /// Our end.
        local: SocketAddr,
        /// The other end.
        remote: SocketAddr,
    },
    /// The socket was closed.
    #[error("the socket is closed")]
    Closed,
}

#[derive(Debug)]
struct UdpSocketState {
    local: SocketAddr,
    remote: Option<SocketAddr>,
    options: UdpOptions,
    queue: VecDeque<InboundDatagram>,
    /// Bytes of the frames in the queue.
    held: usize,
    /// Whether it is in `readable`.
    announced: bool,
}

#[derive(Debug, Default)]
struct UdpSlot {
    generation: u32,
    socket: Option<UdpSocketState>,
}

/// The UDP sockets of a host.
#[derive(Debug)]
pub struct UdpTable {
    slots: Vec<UdpSlot>,
    vacant: Vec<u32>,
    demux: SocketDemux,
    ephemeral: EphemeralPorts,
    /// How many sockets are at a port of a family (`true`: IPv6), for the choice of ephemeral ones.
    ports: BTreeMap<(bool, u16), u32>,
    /// Sockets that received something, each once, in that order.
    readable: VecDeque<UdpId>,
    generation: u64,
}

impl UdpTable {
    /// No sockets; hashes and ephemeral ports depend on the seed.
    pub fn new(seed: Seed) -> Self {
        let seed = seed.derive("udp");
        Self {
            slots: Vec::new(),
            vacant: Vec::new(),
            demux: SocketDemux::new(SipKey::new(seed, "demux")),
            ephemeral: EphemeralPorts::new(seed),
            ports: BTreeMap::new(),
            readable: VecDeque::new(),
            generation: 0,
        }
    }

    /// Opens a socket at `local`; an unspecified address stands for every one of its family, port 0
    /// for any that is free.
    ///
    /// Whether the address is the host's own is for the caller to know ([`BindError::NotLocal`]).
    ///
    /// # Errors
    /// [`BindError::InUse`] and [`BindError::NoPort`].
    pub fn bind(&mut self, local: SocketAddr, options: UdpOptions) -> Result<UdpId, BindError> {
        let local = self.with_port(local, None)?;
        let index = self.vacant.last().copied().unwrap_or_else(|| slot_index(self.slots.len()));
        if !self.insert_binding(local, None, index) {
            return Err(BindError::InUse(local));
        }
        if self.vacant.pop().is_none() {
            self.slots.push(UdpSlot::default());
        }
        *self.ports.entry((local.is_ipv6(), local.port())).or_insert(0) += 1;
        let slot = &mut self.slots[index as usize];
        slot.socket = Some(UdpSocketState {
            local,
            remote: None,
            options,
            queue: VecDeque::with_capacity(options.receive_packets.min(256)),
            held: 0,
            announced: false,
        });
        Ok(UdpId { index, generation: slot.generation })
    }

    /// Connects a socket to a peer, with `local` as its own address: it receives only what that peer sends to
    /// that address, and ICMP errors. What it received before remains readable.
    ///
    /// # Errors
    /// [`BindError::InUse`] when another socket is connected so, [`BindError::Unconnectable`], and
    /// [`BindError::Closed`].
    pub fn connect(
        &mut self,
        id: UdpId,
        local: IpAddr,
        remote: SocketAddr,
    ) -> Result<(), BindError> {
        let socket = self.socket(id).ok_or(BindError::Closed)?;
        let (old_local, old_remote) = (socket.local, socket.remote);
        let new_local = SocketAddr::new(local, old_local.port());
        let fits = local.is_ipv6() == old_local.is_ipv6()
            && local.is_ipv6() == remote.is_ipv6()
            && !local.is_unspecified()
            && !remote.ip().is_unspecified()
            && remote.port() != 0;
        if !fits {
            return Err(BindError::Unconnectable { local: new_local, remote });
        }
        if old_remote == Some(remote) && old_local == new_local {
            return Ok(());
        }
        if !self.insert_binding(new_local, Some(remote), id.index) {
            return Err(BindError::InUse(new_local));
        }
        self.remove_binding(old_local, old_remote);
        let socket = self.socket_mut(id).ok_or(BindError::Closed)?;
        socket.local = new_local;
        socket.remote = Some(remote);
        Ok(())
    }

    /// Closes a socket and frees its queue; nothing if it is closed already.
    pub fn close(&mut self, id: UdpId, pool: &mut Pool) {
        if self.socket(id).is_none() {
            return;
        }
        let slot = &mut self.slots[id.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let Some(socket) = slot.socket.take() else { return };
        self.vacant.push(id.index);
        self.remove_binding(socket.local, socket.remote);
        let port = (socket.local.is_ipv6(), socket.local.port());
        if let Some(count) = self.ports.get_mut(&port) {
            *count -= 1;
            if *count == 0 {
                self.ports.remove(&port);
            }
        }
        for datagram in socket.queue {
            pool.free(datagram.packet);
        }
        self.readable.retain(|readable| *readable != id);
    }

    /// The next datagram of a socket.
    #[inline]
    pub fn receive(&mut self, id: UdpId, pool: &Pool) -> Option<InboundDatagram> {
        let socket = self.socket_mut(id)?;
        let datagram = socket.queue.pop_front()?;
        socket.held -= frame_bytes(&datagram.packet, pool);
        Some(datagram)
    }

    /// A socket that received something since it was last returned.
    pub fn poll_readable(&mut self) -> Option<UdpId> {
        let id = self.readable.pop_front()?;
        if let Some(socket) = self.socket_mut(id) {
            socket.announced = false;
        }
        Some(id)
    }

    /// Where a socket is: its address, unspecified for all, and its port.
    #[inline]
    pub fn local(&self, id: UdpId) -> Option<SocketAddr> {
        Some(self.socket(id)?.local)
    }

    /// The peer that a socket is connected to.
    #[inline]
    pub fn remote(&self, id: UdpId) -> Option<SocketAddr> {
        self.socket(id)?.remote
    }

    /// The connected socket between `local` and `remote`, which gets ICMP errors about what it sent.
    pub fn connected_socket(&self, local: SocketAddr, remote: SocketAddr) -> Option<UdpId> {
        self.demux.bound_to(SocketBinding::Connected(local, remote)).map(|index| self.id(index))
    }

    /// The socket that a datagram from `remote` to `local` is for.
    pub fn lookup(&self, local: SocketAddr, remote: SocketAddr) -> Option<UdpId> {
        self.demux.lookup(local, remote).map(|index| self.id(index))
    }

    /// Changes whenever a datagram may be for another socket than before.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn id(&self, index: u32) -> UdpId {
        UdpId { index, generation: self.slots[index as usize].generation }
    }

    #[inline]
    fn socket(&self, id: UdpId) -> Option<&UdpSocketState> {
        let slot = self.slots.get(id.index as usize)?;
        slot.socket.as_ref().filter(|_| slot.generation == id.generation)
    }

    #[inline]
    fn socket_mut(&mut self, id: UdpId) -> Option<&mut UdpSocketState> {
        let slot = self.slots.get_mut(id.index as usize)?;
        slot.socket.as_mut().filter(|_| slot.generation == id.generation)
    }

    /// `local` with an ephemeral port, if it has none.
    fn with_port(
        &mut self,
        local: SocketAddr,
        remote: Option<SocketAddr>,
    ) -> Result<SocketAddr, BindError> {
        if local.port() != 0 {
            return Ok(SocketAddr::new(local.ip(), local.port()));
        }
        let (ports, v6) = (&self.ports, local.is_ipv6());
        let port = self
            .ephemeral
            .choose(local.ip(), remote, |port| !ports.contains_key(&(v6, port)))
            .ok_or(BindError::NoPort(local.ip()))?;
        Ok(SocketAddr::new(local.ip(), port))
    }

    fn insert_binding(
        &mut self,
        local: SocketAddr,
        remote: Option<SocketAddr>,
        index: u32,
    ) -> bool {
        self.generation += 1;
        self.demux.insert(SocketBinding::new(local, remote), index)
    }

    fn remove_binding(&mut self, local: SocketAddr, remote: Option<SocketAddr>) {
        self.generation += 1;
        self.demux.remove(SocketBinding::new(local, remote));
    }
}

/// Bytes of the frame that a packet occupies.
#[inline]
fn frame_bytes(packet: &Packet, pool: &Pool) -> usize {
    pool.headroom(packet) + packet.len() + pool.tailroom(packet)
}

fn slot_index(len: usize) -> u32 {
    u32::try_from(len).expect("fewer than 2^32 sockets")
}

#[cfg(test)]
mod tests;
