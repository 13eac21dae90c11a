//! TCP sockets of a host: what applications call.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use plumb_base::time::Instant;
use plumb_wire::packet::Pool;

use super::IpHost;
use crate::interface::is_unicast;
use crate::tcp::config::{IpMarks, TcpConfig};
use crate::tcp::congestion::CongestionChoice;
use crate::tcp::{
    Connection, ListenerId, Received, TcpCounts, TcpEnds, TcpEvent, TcpId, TcpInfo, TcpOpenError,
    TcpSocketError, TcpState, WriteEnd,
};

impl IpHost {
    /// Listens at `local`: an unspecified address stands for every one of its family, port 0 for any that is free. At most `backlog`
    /// connections wait to be accepted, and as many half-open ones are remembered; beyond that SYN cookies are sent.
    ///
    /// # Errors
    /// [`TcpOpenError::ListenerInUse`], [`TcpOpenError::NotLocal`], [`TcpOpenError::NoPort`].
    pub fn tcp_listen(
        &mut self,
        local: SocketAddr,
        backlog: usize,
        config: impl Into<Arc<TcpConfig>>,
    ) -> Result<ListenerId, TcpOpenError> {
        if !local.ip().is_unspecified() && !self.interfaces.owns(local.ip()) {
            return Err(TcpOpenError::NotLocal(local.ip()));
        }
        self.tcp.listen(local, backlog, config.into())
    }

    /// The next connection that was opened to a listener.
    pub fn tcp_accept(&mut self, listener: ListenerId) -> Option<TcpId> {
        self.tcp.accept(listener)
    }

    /// Where a listener is.
    pub fn tcp_listening_at(&self, listener: ListenerId) -> Option<SocketAddr> {
        self.tcp.listening_at(listener)
    }

    /// Closes a listener; connections that were not accepted are reset.
    pub fn tcp_close_listener(&mut self, now: Instant, listener: ListenerId) {
        self.core.now = now;
        self.tcp.close_listener(&mut self.core, listener);
    }

    /// Opens a connection from `local`, an address of this host or unspecified, with port 0 for any that is free. It is open when
    /// [`TcpEvent::Writable`] comes, and failed when [`TcpEvent::Closed`] does.
    ///
    /// # Errors
    /// [`TcpOpenError`].
    pub fn tcp_connect(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        config: impl Into<Arc<TcpConfig>>,
        pool: &Pool,
    ) -> Result<TcpId, TcpOpenError> {
        self.core.now = now;
        if local.is_ipv4() != remote.is_ipv4() {
            return Err(TcpOpenError::Families { local, remote });
        }
        if !local.ip().is_unspecified() && !self.interfaces.owns(local.ip()) {
            return Err(TcpOpenError::NotLocal(local.ip()));
        }
        if remote.port() == 0 || !is_unicast(remote.ip()) {
            return Err(TcpOpenError::InvalidRemote(remote));
        }
        let (source, path) = self.connection_path((local.ip(), remote.ip()), pool)?;
        if let IpAddr::V4(ip) = remote.ip()
            && self.interfaces[path.port].is_broadcast(ip)
        {
            return Err(TcpOpenError::InvalidRemote(remote));
        }
        let ends = TcpEnds {
            local: SocketAddr::new(source, local.port()),
            remote: SocketAddr::new(remote.ip(), remote.port()),
        };
        self.tcp.connect(&mut self.core, ends, config.into(), path)
    }

    /// Queues a copy of as much of `bytes` as there is room for: how many. Where that is less than all of them,
    /// [`TcpEvent::Writable`] tells when there is more.
    ///
    /// # Errors
    /// [`TcpSocketError`].
    #[inline]
    pub fn tcp_send(
        &mut self,
        now: Instant,
        id: TcpId,
        bytes: &[u8],
    ) -> Result<usize, TcpSocketError> {
        self.tcp_send_as(now, id, bytes, WriteEnd::Push)
    }

    /// The same, and what the end of `bytes` is; a record ends only where there was room for all of them.
    ///
    /// # Errors
    /// [`TcpSocketError`].
    #[inline]
    pub fn tcp_send_as(
        &mut self,
        now: Instant,
        id: TcpId,
        bytes: &[u8],
        how: WriteEnd,
    ) -> Result<usize, TcpSocketError> {
        let sent =
            self.with_connection(now, id, |connection| connection.send_as(now, bytes, how))??;
        if sent < bytes.len() {
            self.tcp.want_room(id);
        }
        Ok(sent)
    }

    /// Lets `write` fill up to `max` bytes of the send buffer in place, as far as they lie in one piece; it returns how many it wrote.
    /// Where there is no room, [`TcpEvent::Writable`] tells when there is.
    ///
    /// # Errors
    /// [`TcpSocketError`].
    #[inline]
    pub fn tcp_send_with(
        &mut self,
        now: Instant,
        id: TcpId,
        max: usize,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<usize, TcpSocketError> {
        let sent =
            self.with_connection(now, id, |connection| connection.send_with(now, max, write))??;
        if sent < max {
            self.tcp.want_room(id);
        }
        Ok(sent)
    }

    /// Sends up to `max` bytes, whatever they are; how many. Where there is no room, [`TcpEvent::Writable`] tells when there is.
    ///
    /// # Errors
    /// [`TcpSocketError`].
    #[inline]
    pub fn tcp_send_any(
        &mut self,
        now: Instant,
        id: TcpId,
        max: usize,
    ) -> Result<usize, TcpSocketError> {
        let sent = self.with_connection(now, id, |connection| connection.send_any(now, max))??;
        if sent < max {
            self.tcp.want_room(id);
        }
        Ok(sent)
    }

    /// Copies received data to `out`.
    ///
    /// # Errors
    /// [`TcpSocketError`], once what was received before has been read.
    #[inline]
    pub fn tcp_receive(
        &mut self,
        now: Instant,
        id: TcpId,
        out: &mut [u8],
    ) -> Result<Received, TcpSocketError> {
        self.with_connection(now, id, |connection| connection.receive(now, out))?
    }

    /// Lets `read` have received data in place, as far as they lie in one piece; it returns how many bytes it is done with.
    ///
    /// # Errors
    /// [`TcpSocketError`], once what was received before has been read.
    #[inline]
    pub fn tcp_receive_with(
        &mut self,
        now: Instant,
        id: TcpId,
        read: impl FnOnce(&[u8]) -> usize,
    ) -> Result<Received, TcpSocketError> {
        self.with_connection(now, id, |connection| connection.receive_with(now, read))?
    }

    /// Discards up to `max` bytes of received data.
    ///
    /// # Errors
    /// [`TcpSocketError`], once what was received before has been read.
    #[inline]
    pub fn tcp_discard(
        &mut self,
        now: Instant,
        id: TcpId,
        max: usize,
    ) -> Result<Received, TcpSocketError> {
        self.with_connection(now, id, |connection| connection.discard(now, max))?
    }

    /// Whether there is something to be read: data, or that there will be no more.
    #[inline]
    pub fn tcp_is_readable(&self, id: TcpId) -> bool {
        self.tcp.connection(id).is_some_and(Connection::is_readable)
    }

    /// Nothing more will be sent on a connection; what arrives can still be read.
    ///
    /// # Errors
    /// [`TcpSocketError::Closed`] if there is no such connection.
    pub fn tcp_shutdown(&mut self, now: Instant, id: TcpId) -> Result<(), TcpSocketError> {
        self.with_connection(now, id, |connection| connection.shutdown(now))
    }

    /// The application has done with a connection, which ends by itself: what was sent is still delivered. With data that were not
    /// read, it is reset (RFC 2525 §2.17).
    pub fn tcp_close(&mut self, now: Instant, id: TcpId) {
        self.core.now = now;
        self.tcp.release(&mut self.core, id, |connection| connection.close(now));
    }

    /// Resets a connection, with which the application has done.
    pub fn tcp_abort(&mut self, now: Instant, id: TcpId) {
        self.core.now = now;
        self.tcp.release(&mut self.core, id, Connection::abort);
    }

    /// Whether small segments of a connection leave at once.
    ///
    /// # Errors
    /// [`TcpSocketError::Closed`] if there is no such connection.
    pub fn tcp_set_nodelay(
        &mut self,
        now: Instant,
        id: TcpId,
        nodelay: bool,
    ) -> Result<(), TcpSocketError> {
        self.with_connection(now, id, |connection| connection.set_nodelay(nodelay))
    }

    /// Whether every small segment of a connection waits for more (Linux's TCP_CORK).
    ///
    /// # Errors
    /// [`TcpSocketError::Closed`] if there is no such connection.
    pub fn tcp_set_cork(
        &mut self,
        now: Instant,
        id: TcpId,
        corked: bool,
    ) -> Result<(), TcpSocketError> {
        self.with_connection(now, id, |connection| connection.set_cork(corked))
    }

    /// Sets the congestion control of a connection anew; its window stays.
    ///
    /// # Errors
    /// [`TcpSocketError::Closed`] if there is no such connection.
    pub fn tcp_set_congestion(
        &mut self,
        now: Instant,
        id: TcpId,
        choice: CongestionChoice,
    ) -> Result<(), TcpSocketError> {
        self.with_connection(now, id, |connection| connection.set_congestion(choice))
    }

    /// Changes what may change of a connection's configuration while it is open: `nagle`, `keep_alive`, `user_timeout`, `marks`.
    ///
    /// # Errors
    /// [`TcpSocketError::Closed`] if there is no such connection.
    pub fn tcp_reconfigure(
        &mut self,
        now: Instant,
        id: TcpId,
        change: impl FnOnce(&mut TcpConfig),
    ) -> Result<(), TcpSocketError> {
        self.with_connection(now, id, |connection| connection.reconfigure(now, change))
    }

    /// Sets what the RSTs have in their IP headers that answer segments for nobody.
    pub const fn tcp_set_reset_marks(&mut self, marks: IpMarks) {
        self.tcp.marks = marks;
    }

    #[inline]
    fn with_connection<R>(
        &mut self,
        now: Instant,
        id: TcpId,
        act: impl FnOnce(&mut Connection) -> R,
    ) -> Result<R, TcpSocketError> {
        self.core.now = now;
        self.tcp.with(&mut self.core, id, act)
    }

    /// The figures of a connection.
    pub fn tcp_info(&self, id: TcpId) -> Option<TcpInfo> {
        self.tcp.connection(id).map(Connection::info)
    }

    /// The state of a connection.
    pub fn tcp_state(&self, id: TcpId) -> Option<TcpState> {
        self.tcp.state(id)
    }

    /// Why a connection failed, if it did.
    pub fn tcp_error(&self, id: TcpId) -> Option<TcpSocketError> {
        self.tcp.connection(id)?.error()
    }

    /// Whether there is room to send on a connection, or an error to be told.
    pub fn tcp_is_writable(&self, id: TcpId) -> bool {
        self.tcp.connection(id).is_none_or(Connection::is_writable)
    }

    /// Our end of a connection.
    pub fn tcp_local(&self, id: TcpId) -> Option<SocketAddr> {
        self.tcp.connection(id).map(|connection| connection.ends().local)
    }

    /// The peer's end of a connection.
    pub fn tcp_remote(&self, id: TcpId) -> Option<SocketAddr> {
        self.tcp.connection(id).map(|connection| connection.ends().remote)
    }

    /// Something that happened to a listener or connection; each kind once for each until it is returned.
    #[inline]
    pub fn poll_tcp_event(&mut self) -> Option<TcpEvent> {
        self.tcp.poll_event()
    }

    /// How many connections, listeners and records there are.
    pub fn tcp_counts(&self) -> TcpCounts {
        self.tcp.counts()
    }
}
