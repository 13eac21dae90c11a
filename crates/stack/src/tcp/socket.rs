//! Sockets as an application knows them: identifiers, states (RFC 9293 §3.3.2), events, and why one was not opened.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use thiserror::Error;

use crate::routing::PathError;

/// Identifies a connection; not reused after it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TcpId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl TcpId {
    /// A small number that no other connection of its host has at the same time: an index of tables beside the host's.
    #[inline]
    pub const fn slot(self) -> usize {
        self.index as usize
    }
}

/// Identifies a listener; not reused after it is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// What an application is told when it becomes so; each at most once until it is collected. Nobody is told again of what was left unread, or of
/// room that was left unused, before there is more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TcpEvent {
    /// Connections wait to be accepted.
    Acceptable(ListenerId),
    /// Reading gives data, the end, or an error.
    Readable(TcpId),
    /// The connection is open, or has room again after it took less than it was given.
    Writable(TcpId),
    /// Both directions have ended, or the connection failed: [`crate::host::IpHost::tcp_error`] says which.
    Closed(TcpId),
}

/// Why a connection or a listener was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TcpOpenError {
    /// Somebody listens there.
    #[error(
        "{0} is in use by another listener; choose another port, or port 0 for any that is free"
    )]
    ListenerInUse(SocketAddr),
    /// The pair of ends is taken, perhaps by an old connection in TIME-WAIT.
    #[error(
        "{local} and {remote} are the ends of another connection, or were until lately; \
         choose another local port, or port 0 for any that is free"
    )]
    InUse {
        /// Our end.
        local: SocketAddr,
        /// The peer's.
        remote: SocketAddr,
    },
    /// Not an address of the host.
    #[error(
        "{0} is not an address of this host; choose one that an interface has, or 0.0.0.0 or [::]"
    )]
    NotLocal(IpAddr),
    /// No port is free.
    #[error(
        "every ephemeral port of {0} is in use; close connections, wait for those in TIME-WAIT, or name a port"
    )]
    NoPort(IpAddr),
    /// Not the end of one peer.
    #[error("no connection can be opened to {0}: it must be the address of one host, with a port")]
    InvalidRemote(SocketAddr),
    /// Ends of two families.
    #[error("{local} and {remote} are of two families: take both from one")]
    Families {
        /// Our end.
        local: SocketAddr,
        /// The peer's.
        remote: SocketAddr,
    },
    /// There is no path.
    #[error(transparent)]
    Path(#[from] PathError),
}

/// How many of each there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpCounts {
    /// Connections, those included that are closed and still held by the application.
    pub connections: usize,
    /// Listeners.
    pub listeners: usize,
    /// Half-open connections of listeners.
    pub half_open: usize,
    /// Records in TIME-WAIT.
    pub time_wait: usize,
}

/// A state of a connection. LISTEN is a listener's, and a listener's half-open connections are in SYN-RECEIVED.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TcpState {
    /// A SYN was sent.
    SynSent,
    /// SYNs crossed, ours is not acknowledged.
    SynReceived,
    /// Open both ways.
    Established,
    /// We closed; our FIN is not acknowledged.
    FinWait1,
    /// We closed; the peer has not.
    FinWait2,
    /// The peer closed; we have not.
    CloseWait,
    /// Both closed at once; our FIN is not acknowledged.
    Closing,
    /// The peer closed, then we; our FIN is not acknowledged.
    LastAck,
    /// Both closed; old segments may still come.
    TimeWait,
    /// No connection.
    Closed,
}

impl TcpState {
    /// Its name, as RFC 9293 writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SynSent => "SYN-SENT",
            Self::SynReceived => "SYN-RECEIVED",
            Self::Established => "ESTABLISHED",
            Self::FinWait1 => "FIN-WAIT-1",
            Self::FinWait2 => "FIN-WAIT-2",
            Self::CloseWait => "CLOSE-WAIT",
            Self::Closing => "CLOSING",
            Self::LastAck => "LAST-ACK",
            Self::TimeWait => "TIME-WAIT",
            Self::Closed => "CLOSED",
        }
    }

    /// Whether both ends know each other's sequence numbers.
    #[inline]
    pub const fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::SynReceived | Self::Closed)
    }

    /// Whether we may still queue data.
    #[inline]
    pub const fn can_send(self) -> bool {
        matches!(self, Self::SynSent | Self::SynReceived | Self::Established | Self::CloseWait)
    }

    /// Whether data of the peer may still arrive.
    #[inline]
    pub const fn can_receive(self) -> bool {
        matches!(self, Self::Established | Self::FinWait1 | Self::FinWait2)
    }
}

impl fmt::Display for TcpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
