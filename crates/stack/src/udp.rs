//! UDP (RFC 768): sockets, who a datagram is for, and what waits to be read.
//!
//! A socket is bound to a port of one address or of all, and may be connected to one peer; the most
//! specific match gets a datagram. IPv4 and IPv6 are separate: an IPv6 socket sees no IPv4 (no
//! mapped addresses). Left out: IP, routes, and the device; a [`crate::host::Host`] has them.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plumb_base::seed::Seed;
use plumb_base::time::Instant;
use plumb_wire::ecn::Ecn;
use plumb_wire::machine::Port;
use plumb_wire::packet::{Packet, Pool};
use thiserror::Error;

mod demux;
mod ephemeral;
mod input;
pub mod output;

use demux::{Claim, Demux};
use ephemeral::EphemeralPorts;
pub(crate) use input::Ends;
pub use input::{Arrival, Delivery, Refused};
pub use output::CopyPolicy;
use plumb_wire::siphash::SipKey;

/// The name of a socket; of a socket that was closed it names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UdpId {
    index: u32,
    generation: u32,
}

/// What a socket may hold, and what it is ready to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// Datagrams that may wait to be read.
    pub receive_packets: usize,
    /// Bytes of frames that may wait to be read, unused room included, as Linux counts `truesize`:
    /// else one-byte datagrams would hold the whole pool.
    pub receive_bytes: usize,
    /// Whether a super-segment is handed over whole, rather than as the datagrams that it stands for.
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
pub struct Datagram {
    /// Its payload; the headers that it came with lie before it, in the headroom.
    pub packet: Packet,
    /// Who sent it.
    pub remote: SocketAddr,
    /// Which of our addresses it was sent to.
    pub local: SocketAddr,
    /// The interface that it came by.
    pub port: Port,
}

impl Datagram {
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
    /// Somebody else is there.
    #[error("{0} is in use by another socket; bind another port, or port 0 for any that is free")]
    InUse(SocketAddr),
    /// The address is none of the host's.
    #[error(
        "{0} is not an address of this host; bind one that an interface has, or 0.0.0.0 or [::] for all"
    )]
    NotLocal(IpAddr),
    /// No ephemeral port is free.
    #[error("every ephemeral port of {0} is in use; close sockets that are not needed")]
    NoPort(IpAddr),
    /// The peer's address cannot be talked to from the local one.
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
struct Socket {
    local: SocketAddr,
    remote: Option<SocketAddr>,
    options: UdpOptions,
    queue: VecDeque<Datagram>,
    /// Bytes of the frames in the queue.
    held: usize,
    /// Whether it is among those of which [`UdpTable::poll_readable`] will tell.
    announced: bool,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    socket: Option<Socket>,
}

/// The UDP sockets of a host.
#[derive(Debug)]
pub struct UdpTable {
    slots: Vec<Slot>,
    vacant: Vec<u32>,
    v4: Demux<Ipv4Addr>,
    v6: Demux<Ipv6Addr>,
    ephemeral: EphemeralPorts,
    /// How many sockets are at a port of a family (`true`: IPv6), for the choice of ephemeral ones.
    ports: BTreeMap<(bool, u16), u32>,
    /// Sockets that received something, each once, in the order in which that happened.
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
            v4: Demux::new(SipKey::new(seed, "demux v4")),
            v6: Demux::new(SipKey::new(seed, "demux v6")),
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
        if !self.claim(local, None, index) {
            return Err(BindError::InUse(local));
        }
        if self.vacant.pop().is_none() {
            self.slots.push(Slot::default());
        }
        *self.ports.entry((local.is_ipv6(), local.port())).or_insert(0) += 1;
        let slot = &mut self.slots[index as usize];
        slot.socket = Some(Socket {
            local,
            remote: None,
            options,
            queue: VecDeque::with_capacity(options.receive_packets.min(256)),
            held: 0,
            announced: false,
        });
        Ok(UdpId { index, generation: slot.generation })
    }

    /// Ties a socket to one peer, `local` being the address that it talks to that peer from: only
    /// what that peer sends to that address is received from now on, and ICMP errors are reported.
    ///
    /// The port remains what the socket was bound to; what it received before remains readable.
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
        if !self.claim(new_local, Some(remote), id.index) {
            return Err(BindError::InUse(new_local));
        }
        self.unclaim(old_local, old_remote);
        let socket = self.socket_mut(id).ok_or(BindError::Closed)?;
        socket.local = new_local;
        socket.remote = Some(remote);
        Ok(())
    }

    /// Closes a socket and frees what waited in it. Of a socket already closed it does nothing.
    pub fn close(&mut self, id: UdpId, pool: &mut Pool) {
        if self.socket(id).is_none() {
            return;
        }
        let slot = &mut self.slots[id.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let Some(socket) = slot.socket.take() else { return };
        self.vacant.push(id.index);
        self.unclaim(socket.local, socket.remote);
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

    /// The next datagram that waits in a socket.
    #[inline]
    pub fn receive(&mut self, id: UdpId, pool: &Pool) -> Option<Datagram> {
        let socket = self.socket_mut(id)?;
        let datagram = socket.queue.pop_front()?;
        socket.held -= frame_bytes(&datagram.packet, pool);
        Some(datagram)
    }

    /// A socket that received something since it was last told of, if there is one.
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

    /// Whom a socket is connected to.
    #[inline]
    pub fn remote(&self, id: UdpId) -> Option<SocketAddr> {
        self.socket(id)?.remote
    }

    /// What a socket may hold.
    pub fn options(&self, id: UdpId) -> Option<UdpOptions> {
        Some(self.socket(id)?.options)
    }

    /// The connected socket that sent a datagram from `local` to `remote`: the one that an ICMP
    /// error about it is for. Sockets that are not connected hear of no errors.
    pub fn sender_of(&self, local: SocketAddr, remote: SocketAddr) -> Option<UdpId> {
        let (p, q) = (local.port(), remote.port());
        let index = match (local.ip(), remote.ip()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => self.v4.find_connected(a, p, b, q),
            (IpAddr::V6(a), IpAddr::V6(b)) => self.v6.find_connected(a, p, b, q),
            _ => None,
        }?;
        Some(self.id(index))
    }

    /// The socket that a datagram from `remote` to `local` is for.
    pub fn receiver_of(&self, local: SocketAddr, remote: SocketAddr) -> Option<UdpId> {
        let (p, q) = (local.port(), remote.port());
        let index = match (local.ip(), remote.ip()) {
            (IpAddr::V4(a), IpAddr::V4(b)) => self.v4.look_up(a, p, b, q),
            (IpAddr::V6(a), IpAddr::V6(b)) => self.v6.look_up(a, p, b, q),
            _ => None,
        }?;
        Some(self.id(index))
    }

    /// Changes whenever a datagram may be for another socket than the one like it before.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn id(&self, index: u32) -> UdpId {
        UdpId { index, generation: self.slots[index as usize].generation }
    }

    #[inline]
    fn socket(&self, id: UdpId) -> Option<&Socket> {
        let slot = self.slots.get(id.index as usize)?;
        slot.socket.as_ref().filter(|_| slot.generation == id.generation)
    }

    #[inline]
    fn socket_mut(&mut self, id: UdpId) -> Option<&mut Socket> {
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

    fn claim(&mut self, local: SocketAddr, remote: Option<SocketAddr>, index: u32) -> bool {
        self.generation += 1;
        match claim_of(local, remote) {
            FamilyClaim::V4(claim) => self.v4.insert(claim, index),
            FamilyClaim::V6(claim) => self.v6.insert(claim, index),
        }
    }

    fn unclaim(&mut self, local: SocketAddr, remote: Option<SocketAddr>) {
        self.generation += 1;
        match claim_of(local, remote) {
            FamilyClaim::V4(claim) => self.v4.remove(claim),
            FamilyClaim::V6(claim) => self.v6.remove(claim),
        }
    }
}

enum FamilyClaim {
    V4(Claim<Ipv4Addr>),
    V6(Claim<Ipv6Addr>),
}

fn claim_of(local: SocketAddr, remote: Option<SocketAddr>) -> FamilyClaim {
    match local.ip() {
        IpAddr::V4(address) => {
            let remote = remote.and_then(|remote| match remote.ip() {
                IpAddr::V4(address) => Some((address, remote.port())),
                IpAddr::V6(_) => None,
            });
            FamilyClaim::V4(claim(address, address.is_unspecified(), local.port(), remote))
        }
        IpAddr::V6(address) => {
            let remote = remote.and_then(|remote| match remote.ip() {
                IpAddr::V6(address) => Some((address, remote.port())),
                IpAddr::V4(_) => None,
            });
            FamilyClaim::V6(claim(address, address.is_unspecified(), local.port(), remote))
        }
    }
}

fn claim<A>(local: A, every: bool, port: u16, remote: Option<(A, u16)>) -> Claim<A> {
    match remote {
        Some((remote, remote_port)) => Claim::Connected { local, port, remote, remote_port },
        None if every => Claim::Wildcard { port },
        None => Claim::Bound { local, port },
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
