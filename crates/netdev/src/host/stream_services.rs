//! Services over TCP: echo (RFC 862), discard (RFC 863), a source of bytes, and files over HTTP.
//!
//! Connections are bounded in number and each in its buffers and in time. None speaks before its peer has shown, by the handshake, that
//! it receives at its address.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

use plumb_base::time::{Instant, Span};
use plumb_stack::host::IpHost;
use plumb_stack::tcp::config::{BufferLimits, TcpConfig};
use plumb_stack::tcp::congestion::CongestionChoice;
use plumb_stack::tcp::{ListenerId, TcpEvent, TcpId, TcpOpenError};

use super::http_server::{FileDirectory, HttpSession};
use super::served_socket::{BytePattern, PIECE, ServedSocket, StreamServiceCounts, StreamStep};

/// Connections served at a time; more wait in the accept queues.
pub const CONNECTIONS_MAX: usize = 256;
/// Connections of one listener that wait to be accepted.
const BACKLOG: usize = 128;
/// Largest send and receive buffer of a connection: 256 connections hold 512 MiB at most.
const BUFFER_MAX: u32 = 1 << 20;
/// Time between two looks for idle connections.
const EXPIRY_INTERVAL: Span = Span::from_secs(1);

/// What is done with a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamServiceKind {
    /// Returns what it receives.
    Echo,
    /// Drops what it receives.
    Discard,
    /// Sends until the peer closes.
    Source,
    /// HTTP/1.1: the files of a directory.
    Http,
}

impl StreamServiceKind {
    /// How long a connection may be silent.
    const fn idle_max(self) -> Span {
        match self {
            Self::Http => Span::from_secs(30),
            Self::Echo | Self::Discard | Self::Source => Span::from_secs(600),
        }
    }
}

#[derive(Debug)]
struct StreamListener {
    id: ListenerId,
    offer: usize,
}

#[derive(Debug)]
struct StreamOffer {
    kind: StreamServiceKind,
    counts: StreamServiceCounts,
}

/// A connection and how far its service is.
#[derive(Debug)]
struct ServedConnection {
    offer: usize,
    progress: ServiceProgress,
    /// When something happened last.
    active: Instant,
}

#[derive(Debug)]
enum ServiceProgress {
    /// What was received and found no room to be returned.
    Echo(Vec<u8>),
    Discard,
    /// Bytes sent.
    Source(u64),
    Http(Box<HttpSession>),
    /// All is said: what the peer still sends is dropped until the connection ends.
    Closing,
}

/// Services at the TCP listeners of a host.
#[derive(Debug)]
pub struct StreamServices {
    listeners: Vec<StreamListener>,
    offers: Vec<StreamOffer>,
    connections: BTreeMap<TcpId, ServedConnection>,
    files: Option<FileDirectory>,
    config: Arc<TcpConfig>,
    pattern: BytePattern,
    scratch: Vec<u8>,
    expiry: Option<Instant>,
    /// Connections that go on without being told.
    ready: VecDeque<TcpId>,
}

impl StreamServices {
    /// No services yet; HTTP serves `files`.
    pub fn new(files: Option<FileDirectory>, congestion: CongestionChoice) -> Self {
        let buffer = BufferLimits { initial: 65_536, max: BUFFER_MAX };
        let config = TcpConfig {
            send_buffer: buffer,
            receive_buffer: buffer,
            congestion,
            ..TcpConfig::default()
        };
        Self {
            listeners: Vec::new(),
            offers: Vec::new(),
            connections: BTreeMap::new(),
            files,
            config: Arc::new(config),
            pattern: BytePattern::new(),
            scratch: vec![0; PIECE],
            expiry: None,
            ready: VecDeque::new(),
        }
    }

    /// Listens at each of `locals` and serves what connects.
    ///
    /// # Errors
    /// [`TcpOpenError`]; what was opened before stays open.
    pub fn open(
        &mut self,
        host: &mut IpHost,
        kind: StreamServiceKind,
        locals: impl IntoIterator<Item = SocketAddr>,
    ) -> Result<(), TcpOpenError> {
        let offer = self.offers.len();
        for local in locals {
            let id = host.tcp_listen(local, BACKLOG, Arc::clone(&self.config))?;
            self.listeners.push(StreamListener { id, offer });
        }
        self.offers.push(StreamOffer { kind, counts: StreamServiceCounts::default() });
        Ok(())
    }

    /// The counts of each service, in the order in which they were opened.
    pub fn counts(&self) -> impl Iterator<Item = StreamServiceCounts> {
        self.offers.iter().map(|offer| offer.counts)
    }

    /// Serves what has happened, and those that go on, once each.
    pub fn handle(&mut self, now: Instant, host: &mut IpHost) {
        for id in std::mem::take(&mut self.ready) {
            self.serve(now, id, host);
        }
        while let Some(event) = host.poll_tcp_event() {
            match event {
                TcpEvent::Acceptable(_) => self.accept(now, host),
                TcpEvent::Readable(id) | TcpEvent::Writable(id) => self.serve(now, id, host),
                TcpEvent::Closed(id) => self.end(now, id, host),
            }
        }
        if self.expiry.is_some_and(|expiry| expiry <= now) {
            self.end_idle(now, host);
        }
    }

    /// When idle connections are looked for; at once while one has more to do.
    pub fn deadline(&self) -> Option<Instant> {
        if self.ready.is_empty() { self.expiry } else { Some(Instant::ORIGIN) }
    }

    fn accept(&mut self, now: Instant, host: &mut IpHost) {
        let mut sources = Vec::new();
        for listener in &self.listeners {
            while self.connections.len() < CONNECTIONS_MAX {
                let Some(id) = host.tcp_accept(listener.id) else { break };
                let offer = &mut self.offers[listener.offer];
                offer.counts.connections += 1;
                let progress = match offer.kind {
                    StreamServiceKind::Echo => ServiceProgress::Echo(Vec::new()),
                    StreamServiceKind::Discard => ServiceProgress::Discard,
                    StreamServiceKind::Source => ServiceProgress::Source(0),
                    StreamServiceKind::Http => ServiceProgress::Http(Box::default()),
                };
                let connection = ServedConnection { offer: listener.offer, progress, active: now };
                self.connections.insert(id, connection);
                sources.extend((offer.kind == StreamServiceKind::Source).then_some(id));
                self.expiry.get_or_insert(now + EXPIRY_INTERVAL);
            }
        }
        // A source sends first: nothing tells it to.
        for id in sources {
            self.serve(now, id, host);
        }
    }

    fn serve(&mut self, now: Instant, id: TcpId, host: &mut IpHost) {
        let Some(connection) = self.connections.get_mut(&id) else { return };
        connection.active = now;
        let counts = &mut self.offers[connection.offer].counts;
        let socket = &mut ServedSocket { host, id, now, counts };
        let step = match &mut connection.progress {
            ServiceProgress::Echo(held) => socket.echo(held, &mut self.scratch),
            ServiceProgress::Discard => socket.drain(),
            ServiceProgress::Source(sent) => socket.produce(sent, &self.pattern),
            ServiceProgress::Http(session) => {
                session.serve(socket, self.files.as_ref(), &mut self.scratch)
            }
            ServiceProgress::Closing => socket.drain().map(|_| StreamStep::Wait),
        };
        match step {
            Ok(StreamStep::Wait) => {}
            Ok(StreamStep::Yield) => {
                if !self.ready.contains(&id) {
                    self.ready.push_back(id);
                }
            }
            Ok(StreamStep::Finish) => {
                connection.progress = ServiceProgress::Closing;
                // Where it is closed already, its end is told.
                let _ = host.tcp_shutdown(now, id);
            }
            Ok(StreamStep::Abort) | Err(_) => {
                counts.failed += 1;
                host.tcp_abort(now, id);
                self.forget(now, id, host);
            }
        }
    }

    /// A connection has ended in both directions, or by an error.
    fn end(&mut self, now: Instant, id: TcpId, host: &mut IpHost) {
        let Some(connection) = self.connections.get(&id) else { return };
        if host.tcp_error(id).is_some() {
            self.offers[connection.offer].counts.failed += 1;
        }
        host.tcp_close(now, id);
        self.forget(now, id, host);
    }

    fn forget(&mut self, now: Instant, id: TcpId, host: &mut IpHost) {
        let was_full = self.connections.len() >= CONNECTIONS_MAX;
        self.connections.remove(&id);
        if was_full {
            self.accept(now, host);
        }
    }

    fn end_idle(&mut self, now: Instant, host: &mut IpHost) {
        let is_idle = |connection: &ServedConnection| {
            let kind = self.offers[connection.offer].kind;
            now.saturating_since(connection.active) >= kind.idle_max()
        };
        let idle: Vec<TcpId> = self
            .connections
            .iter()
            .filter(|(_, connection)| is_idle(connection))
            .map(|(&id, _)| id)
            .collect();
        for id in idle {
            self.offers[self.connections[&id].offer].counts.idle += 1;
            host.tcp_abort(now, id);
            self.forget(now, id, host);
        }
        self.expiry = (!self.connections.is_empty()).then(|| now + EXPIRY_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;
    use plumb_stack::host::HostConfig;
    use plumb_stack::interface::InterfaceConfig;
    use plumb_stack::tcp::Received;
    use plumb_wire::machine::{Machine as _, PortId};
    use plumb_wire::packet::{Pool, PoolConfig};

    use super::*;

    fn host(octet: u8) -> IpHost {
        let mut host = IpHost::new(HostConfig::default(), Seed(octet.into()));
        let interface = InterfaceConfig::ip(1_500).with_address([192, 0, 2, octet], 24);
        host.add_interface(&interface).unwrap();
        host
    }

    /// Two clients want a large file each: neither is given more than a piece of it before the other.
    #[test]
    fn file_is_read_a_piece_at_a_turn() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("large"), vec![7; 3_000_000]).unwrap();
        let files = FileDirectory::open(place.path()).unwrap();
        let mut services = StreamServices::new(Some(files), CongestionChoice::Cubic);
        let (mut server, mut client) = (host(2), host(1));
        let at: SocketAddr = "192.0.2.2:80".parse().unwrap();
        services.open(&mut server, StreamServiceKind::Http, [at]).unwrap();
        let mut pool = Pool::new(PoolConfig::default());
        let mut now = Instant::after_origin(Span::from_secs(1));
        let any: SocketAddr = "192.0.2.1:0".parse().unwrap();
        let ids =
            [0, 1].map(|_| client.tcp_connect(now, any, at, TcpConfig::default(), &pool).unwrap());
        let (mut batch, mut received, mut asked) = (Vec::new(), [0; 2], false);
        while received.iter().any(|len| *len < 3_000_000) {
            client.poll_packets(now, PortId(0), &mut batch, 256, &mut pool);
            server.handle_packets(now, PortId(0), &mut batch, &mut pool);
            let before = services.counts().next().unwrap().sent;
            services.handle(now, &mut server);
            let sent = services.counts().next().unwrap().sent - before;
            // Readable or writable, and its turn besides; a head is a few hundred bytes.
            assert!(sent <= 4 * PIECE as u64 + 1_000, "{sent} bytes in one turn");
            server.poll_packets(now, PortId(0), &mut batch, 256, &mut pool);
            client.handle_packets(now, PortId(0), &mut batch, &mut pool);
            if !asked && ids.iter().all(|id| client.tcp_is_writable(*id)) {
                asked = true;
                for id in ids {
                    client.tcp_send(now, id, b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
                }
            }
            for (id, received) in ids.iter().zip(&mut received) {
                while let Ok(Received::Data(len)) = client.tcp_receive_with(now, *id, <[u8]>::len) {
                    *received += len;
                }
            }
            now += Span::from_ms(1);
            for host in [&mut server, &mut client] {
                host.handle_deadline(now, &mut pool);
            }
            assert!(
                now < Instant::after_origin(Span::from_secs(60)),
                "{received:?} bytes after a minute"
            );
        }
    }
}
