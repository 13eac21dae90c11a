//! UDP sockets of a host: what applications call.

use std::net::{IpAddr, SocketAddr};

use plumb_base::time::Instant;
use plumb_wire::machine::PortId;
use plumb_wire::packet::{Packet, Pool};
use plumb_wire::udp::PAYLOAD_LEN_MAX;

use super::IpHost;
use crate::ip::unspecified_like;
use crate::routing::PathError;
use crate::udp::{
    BindError, CopyPolicy, InboundDatagram, PAYLOAD_MAX_V4, PayloadSum, UdpId, UdpOptions, copied,
};

/// Why a datagram or an echo request was not sent; what was made for it is counted, and freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostSendError {
    /// There is no path.
    #[error(transparent)]
    Path(#[from] PathError),
    /// Longer than the path allows, and not to be fragmented.
    #[error("a packet of {len} bytes exceeds the path MTU of {mtu} and cannot be fragmented")]
    TooBig {
        /// Of the packet.
        len: usize,
        /// Of the path.
        mtu: u32,
    },
    /// The socket was closed.
    #[error("the socket is closed: open another")]
    Closed,
    /// No destination.
    #[error("the socket is not connected: connect it, or pass a destination")]
    NotConnected,
    /// A destination of the other family, or port 0.
    #[error(
        "a socket at {local} cannot send to {remote}: pass an address of its family and a port"
    )]
    Unreachable {
        /// Where the socket is.
        local: SocketAddr,
        /// The destination.
        remote: SocketAddr,
    },
    /// Longer than a datagram can be.
    #[error("{len} bytes do not fit into one datagram: send at most {max}")]
    TooLong {
        /// Bytes of payload.
        len: usize,
        /// Most that fit.
        max: usize,
    },
    /// No frame is free.
    #[error("no free frame for {0} bytes: send less at once, or give the pool more frames")]
    NoMemory(usize),
}

impl IpHost {
    /// Opens a socket at `local`: an unspecified address stands for all of its family, port 0 for
    /// any that is free.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn udp_bind(&mut self, local: SocketAddr, options: UdpOptions) -> Result<UdpId, BindError> {
        let ip = local.ip();
        if !ip.is_unspecified() && !self.interfaces.owns(ip) {
            return Err(BindError::NotLocal(ip));
        }
        self.udp.bind(local, options)
    }

    /// Connects a socket to a peer: it receives from nobody else, and gets ICMP errors about what it sent.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn udp_connect(
        &mut self,
        now: Instant,
        id: UdpId,
        remote: SocketAddr,
    ) -> Result<(), BindError> {
        self.core.now = now;
        let local = self.udp.local(id).ok_or(BindError::Closed)?;
        let path = self
            .current_path(local.ip(), remote.ip())
            .map_err(|_| BindError::Unconnectable { local, remote })?;
        self.udp.connect(id, path.source, remote)
    }

    /// Closes a socket and frees its queue.
    pub fn udp_close(&mut self, id: UdpId, pool: &mut Pool) {
        self.udp.close(id, pool);
    }

    /// The address of a socket.
    pub fn udp_local(&self, id: UdpId) -> Option<SocketAddr> {
        self.udp.local(id)
    }

    /// The next datagram of a socket.
    #[inline]
    pub fn udp_receive(&mut self, id: UdpId, pool: &Pool) -> Option<InboundDatagram> {
        self.udp.receive(id, pool)
    }

    /// A socket that received something since it was last returned.
    #[inline]
    pub fn poll_readable(&mut self) -> Option<UdpId> {
        self.udp.poll_readable()
    }

    /// Sends a copy of `payload` to `remote`, or to the connected peer.
    ///
    /// # Errors
    /// [`HostSendError`].
    pub fn udp_send(
        &mut self,
        now: Instant,
        id: UdpId,
        payload: &[u8],
        remote: Option<SocketAddr>,
        policy: CopyPolicy,
        pool: &mut Pool,
    ) -> Result<(), HostSendError> {
        self.core.now = now;
        let local = self.udp.local(id).ok_or(HostSendError::Closed)?;
        let remote = remote.or_else(|| self.udp.remote(id)).ok_or(HostSendError::NotConnected)?;
        if local.is_ipv4() != remote.is_ipv4() || remote.port() == 0 {
            return Err(HostSendError::Unreachable { local, remote });
        }
        check_payload_len(payload.len(), remote)?;
        let no_memory = HostSendError::NoMemory(payload.len());
        let (packet, sum) = copied(payload, policy, pool).ok_or(no_memory)?;
        match self.send_fast_path((local, remote), (packet, sum), pool) {
            Ok(()) => Ok(()),
            Err(packet) => self.send_slow_path((local, remote), (packet, sum), pool),
        }
    }

    /// Sends a datagram's payload, or what has been put in its place, back to its source.
    ///
    /// It leaves from the address that it was sent to, or from a suitable one if that was a group's.
    ///
    /// # Errors
    /// [`HostSendError`]; the packet is freed.
    #[inline]
    pub fn udp_reply(
        &mut self,
        now: Instant,
        datagram: InboundDatagram,
        pool: &mut Pool,
    ) -> Result<(), HostSendError> {
        self.core.now = now;
        let InboundDatagram { packet, remote, local, port } = datagram;
        self.send_reply((local, remote), port, (packet, PayloadSum::Unknown), pool)
    }

    /// Sends a copy of `payload` back to the source of a datagram, by the same rules, and frees the
    /// datagram's packet.
    ///
    /// # Errors
    /// [`HostSendError`].
    pub fn udp_reply_copy(
        &mut self,
        now: Instant,
        datagram: InboundDatagram,
        payload: &[u8],
        policy: CopyPolicy,
        pool: &mut Pool,
    ) -> Result<(), HostSendError> {
        self.core.now = now;
        let InboundDatagram { packet, remote, local, port } = datagram;
        pool.free(packet);
        check_payload_len(payload.len(), remote)?;
        let no_memory = HostSendError::NoMemory(payload.len());
        let copy = copied(payload, policy, pool).ok_or(no_memory)?;
        self.send_reply((local, remote), port, copy, pool)
    }

    /// Answers what came by `port` for `local`.
    #[inline]
    fn send_reply(
        &mut self,
        (mut local, remote): (SocketAddr, SocketAddr),
        port: PortId,
        (packet, sum): (Packet, PayloadSum),
        pool: &mut Pool,
    ) -> Result<(), HostSendError> {
        let packet = match self.send_fast_path((local, remote), (packet, sum), pool) {
            Ok(()) => return Ok(()),
            Err(packet) => packet,
        };
        if !self.interfaces[port].owns(local.ip()) {
            local.set_ip(unspecified_like(local.ip()));
        }
        self.send_slow_path((local, remote), (packet, sum), pool)
    }
}

#[inline]
pub(super) fn check_payload_len(len: usize, remote: SocketAddr) -> Result<(), HostSendError> {
    let max = match remote.ip() {
        IpAddr::V4(_) => PAYLOAD_MAX_V4,
        IpAddr::V6(_) => PAYLOAD_LEN_MAX,
    };
    if len > max { Err(HostSendError::TooLong { len, max }) } else { Ok(()) }
}
