//! Sockets as an application knows them: identifiers, events, and why one was not opened.

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
