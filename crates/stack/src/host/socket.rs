//! UDP sockets of a host: what applications call.
//!
//! Left out: which socket a datagram is for, and its header (`udp`).

use std::net::{IpAddr, SocketAddr};

use plumb_base::time::Instant;
use plumb_wire::machine::Port;
use plumb_wire::packet::{Packet, Pool};
use plumb_wire::protocol::Protocol;
use plumb_wire::udp::{HEADER_LEN, PAYLOAD_LEN_MAX};

use super::{Host, unspecified_like};
use crate::ip::{Egress, OutputError};
use crate::path::PathError;
use crate::udp::output::{PAYLOAD_MAX_V4, PayloadSum, copied, prepend_header};
use crate::udp::{BindError, CopyPolicy, Datagram, UdpId, UdpOptions};

/// Why a datagram was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// There is no way there.
    #[error(transparent)]
    Path(#[from] PathError),
    /// It does not fit the path.
    #[error(transparent)]
    Output(#[from] OutputError),
    /// The socket was closed.
    #[error("the socket is closed: open another")]
    Closed,
    /// Nobody to send it to.
    #[error("the socket is not connected: connect it, or say whom to send to")]
    NotConnected,
    /// An IPv4 socket cannot send to IPv6, nor the other way round; port 0 is nobody's.
    #[error(
        "a socket at {local} cannot send to {remote}: take an address of its family and a port"
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

impl Host {
    /// Opens a socket at `local`: an unspecified address stands for all of its family, port 0 for
    /// any that is free.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn udp_bind(&mut self, local: SocketAddr, options: UdpOptions) -> Result<UdpId, BindError> {
        let ip = local.ip();
        if !ip.is_unspecified() && !self.interfaces.iter().any(|interface| interface.owns(ip)) {
            return Err(BindError::NotLocal(ip));
        }
        self.udp.bind(local, options)
    }

    /// Ties a socket to one peer: it hears nobody else, and ICMP errors about what it sent.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn udp_connect(
        &mut self,
        now: Instant,
        id: UdpId,
        remote: SocketAddr,
    ) -> Result<(), BindError> {
        let local = self.udp.local(id).ok_or(BindError::Closed)?;
        let path = self
            .path(now, local.ip(), remote.ip())
            .map_err(|_| BindError::Unconnectable { local, remote })?;
        self.udp.connect(id, path.source, remote)
    }

    /// Closes a socket and frees what waits in it.
    pub fn udp_close(&mut self, id: UdpId, pool: &mut Pool) {
        self.udp.close(id, pool);
    }

    /// Where a socket is.
    pub fn udp_local(&self, id: UdpId) -> Option<SocketAddr> {
        self.udp.local(id)
    }

    /// The next datagram of a socket.
    #[inline]
    pub fn udp_receive(&mut self, id: UdpId, pool: &Pool) -> Option<Datagram> {
        self.udp.receive(id, pool)
    }

    /// A socket that received something since it was last named.
    #[inline]
    pub fn poll_readable(&mut self) -> Option<UdpId> {
        self.udp.poll_readable()
    }

    /// Sends a copy of `payload` to `remote`, or to the connected peer.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn udp_send(
        &mut self,
        now: Instant,
        id: UdpId,
        payload: &[u8],
        remote: Option<SocketAddr>,
        policy: CopyPolicy,
        pool: &mut Pool,
    ) -> Result<(), SendError> {
        let (local, remote) = self.ends(id, remote)?;
        fits(payload.len(), remote)?;
        let no_memory = SendError::NoMemory(payload.len());
        let (packet, sum) = copied(payload, policy, pool).ok_or(no_memory)?;
        self.send_between(now, (local, remote), (packet, sum), pool)
    }

    /// Sends a payload in place, without a copy, to `remote` or to the connected peer.
    ///
    /// The packet needs headroom for every header: it is fresh, or was received and trimmed.
    ///
    /// # Errors
    /// [`SendError`]; the packet is gone all the same.
    #[inline]
    pub fn udp_send_packet(
        &mut self,
        now: Instant,
        id: UdpId,
        packet: Packet,
        remote: Option<SocketAddr>,
        pool: &mut Pool,
    ) -> Result<(), SendError> {
        match self.ends(id, remote) {
            Ok(ends) => self.send_between(now, ends, (packet, PayloadSum::Unknown), pool),
            Err(error) => {
                pool.free(packet);
                Err(error)
            }
        }
    }

    /// Sends a datagram's payload, or what has been put in its place, back to where it came from.
    ///
    /// It leaves from the address that it was sent to, or, if that was a group's, from one that
    /// suits.
    ///
    /// # Errors
    /// [`SendError`]; the packet is gone all the same.
    #[inline]
    pub fn udp_reply(
        &mut self,
        now: Instant,
        datagram: Datagram,
        pool: &mut Pool,
    ) -> Result<(), SendError> {
        let Datagram { packet, remote, local, port } = datagram;
        self.send_back(now, (local, remote), port, (packet, PayloadSum::Unknown), pool)
    }

    /// Sends a copy of `payload` back to where a datagram came from, by the same rules, and frees the
    /// datagram's packet.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn udp_answer(
        &mut self,
        now: Instant,
        datagram: Datagram,
        payload: &[u8],
        policy: CopyPolicy,
        pool: &mut Pool,
    ) -> Result<(), SendError> {
        let Datagram { packet, remote, local, port } = datagram;
        pool.free(packet);
        fits(payload.len(), remote)?;
        let no_memory = SendError::NoMemory(payload.len());
        let copied = copied(payload, policy, pool).ok_or(no_memory)?;
        self.send_back(now, (local, remote), port, copied, pool)
    }

    /// Sends an answer to what came by `port` for `local`.
    #[inline]
    fn send_back(
        &mut self,
        now: Instant,
        (mut local, remote): (SocketAddr, SocketAddr),
        port: Port,
        (packet, sum): (Packet, PayloadSum),
        pool: &mut Pool,
    ) -> Result<(), SendError> {
        let packet = match self.express(now, local, remote, (packet, sum), pool) {
            Ok(()) => return Ok(()),
            Err(packet) => packet,
        };
        if !self.interfaces[usize::from(port.0)].owns(local.ip()) {
            local.set_ip(unspecified_like(local.ip()));
        }
        self.send_generally(now, (local, remote), (packet, sum), pool)
    }

    #[inline]
    fn send_between(
        &mut self,
        now: Instant,
        (local, remote): (SocketAddr, SocketAddr),
        (packet, sum): (Packet, PayloadSum),
        pool: &mut Pool,
    ) -> Result<(), SendError> {
        match self.express(now, local, remote, (packet, sum), pool) {
            Ok(()) => Ok(()),
            Err(packet) => self.send_generally(now, (local, remote), (packet, sum), pool),
        }
    }

    pub(super) fn send_generally(
        &mut self,
        now: Instant,
        (local, remote): (SocketAddr, SocketAddr),
        (packet, sum): (Packet, PayloadSum),
        pool: &mut Pool,
    ) -> Result<(), SendError> {
        let found = fits(packet.len(), remote)
            .and_then(|()| Ok(self.path(now, local.ip(), remote.ip())?));
        let path = match found {
            Ok(path) => path,
            Err(error) => {
                pool.free(packet);
                return Err(error);
            }
        };
        let sum = match sum {
            PayloadSum::Unwanted if remote.is_ipv4() => sum,
            _ if path.capabilities.checksum_tx => PayloadSum::Offloaded,
            sum => sum,
        };
        let Some(mut packet) = self.with_headroom(packet, pool) else { return Ok(()) };
        let source = SocketAddr::new(path.source, local.port());
        prepend_header(source, remote, sum, &mut packet, pool);
        if let Some(segments) = &mut packet.meta.segments {
            segments.header_len = u16::try_from(HEADER_LEN).expect("eight");
        }
        let egress = Egress::new(Protocol::UDP, packet.meta.ecn);
        Ok(self.transmit(now, &path, remote.ip(), egress, packet, pool)?)
    }

    /// Where a socket sends from and to.
    #[inline]
    fn ends(
        &self,
        id: UdpId,
        remote: Option<SocketAddr>,
    ) -> Result<(SocketAddr, SocketAddr), SendError> {
        let local = self.udp.local(id).ok_or(SendError::Closed)?;
        let remote = remote.or_else(|| self.udp.remote(id)).ok_or(SendError::NotConnected)?;
        if local.is_ipv4() != remote.is_ipv4() || remote.port() == 0 {
            return Err(SendError::Unreachable { local, remote });
        }
        Ok((local, remote))
    }
}

#[inline]
fn fits(len: usize, remote: SocketAddr) -> Result<(), SendError> {
    let max = match remote.ip() {
        IpAddr::V4(_) => PAYLOAD_MAX_V4,
        IpAddr::V6(_) => PAYLOAD_LEN_MAX,
    };
    if len > max { Err(SendError::TooLong { len, max }) } else { Ok(()) }
}
