//! plumb's web server: one page, over HTTP/1.1 and HTTP/2, in the clear and encrypted, on one TCP port, and
//! over HTTP/3 on the UDP port of the same number.
//!
//! One thread with one runtime serves all of them, so that versions compare. The first byte tells what
//! a TCP connection speaks: 0x16 is a TLS handshake, `P` the preface of HTTP/2. Every wait has a deadline, and
//! connections are limited. Left out: every page but one, and every method but GET and HEAD.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;

use plumb_remote::address::source_prefix;
use plumb_remote::secure::verifier;
use plumb_remote::secure::{Fingerprint, HostIdentity};

mod h1;
mod h2;
mod h3;

/// How often the server looks whether it should stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// What a TLS connection begins with: a handshake record.
const TLS_RECORD: u8 = 0x16;
/// What the preface of HTTP/2 begins with; methods that begin so are not served.
const HTTP2_PREFACE: u8 = b'P';

/// What the server takes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpServerLimits {
    /// Connections at a time.
    pub connections: usize,
    /// Of them, from one address of IPv4, or 64 bits of IPv6.
    pub connections_per_address: usize,
    /// Who alone may ask; everybody where nobody is named.
    pub allowed_client: Option<IpAddr>,
    /// How long a handshake, a request's head or the writing of an answer may take, and how long a
    /// connection may be idle.
    pub step_timeout: Duration,
}

impl Default for HttpServerLimits {
    fn default() -> Self {
        Self {
            connections: 256,
            connections_per_address: 128,
            allowed_client: None,
            step_timeout: Duration::from_secs(10),
        }
    }
}

/// What the server has done.
#[derive(Debug, Default)]
pub struct HttpServerCounts {
    /// Connections that were served.
    pub connections: AtomicU64,
    /// Connections that were turned away because there were too many.
    pub refused: AtomicU64,
    /// Requests that were answered, with whatever status.
    pub requests: AtomicU64,
    /// Connections that ended with an error: silence, noise, a reset.
    pub failed: AtomicU64,
}

/// The server, listening.
#[derive(Debug)]
pub struct HttpServer {
    tcp: TcpListener,
    udp: UdpSocket,
    tls: Arc<ServerConfig>,
    quic: quinn::ServerConfig,
    fingerprint: Fingerprint,
    shared: HttpServerState,
}

/// What every connection needs.
#[derive(Clone, Debug)]
struct HttpServerState {
    limits: HttpServerLimits,
    counts: Arc<HttpServerCounts>,
    open: Arc<Mutex<OpenConnections>>,
}

/// The connections that are open, in the order in which they came.
#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    by_number: BTreeMap<u64, OpenConnection>,
}

#[derive(Debug)]
struct OpenConnection {
    /// Where it comes from, as far as that tells hosts apart.
    address: IpAddr,
    /// Its task, once there is one.
    task: Option<AbortHandle>,
}

/// A connection's place among those that may be.
#[derive(Debug)]
struct HttpConnectionSlot {
    shared: HttpServerState,
    number: u64,
}

/// The server could not begin.
#[derive(Debug, thiserror::Error)]
pub enum HttpServerError {
    /// The address.
    #[error(
        "cannot serve on {address} ({error}); choose an address of this host and a port that is free for TCP and UDP"
    )]
    Address {
        /// Which.
        address: SocketAddr,
        /// The system's word.
        error: io::Error,
    },
    /// The identity.
    #[error("this host's key cannot be used ({0}); remove it and start again")]
    Identity(String),
}

impl HttpServer {
    /// Listens on an address; port 0 is any that is free for TCP and UDP.
    ///
    /// # Errors
    /// [`HttpServerError`].
    pub fn bind(
        address: SocketAddr,
        identity: &HostIdentity,
        limits: HttpServerLimits,
    ) -> Result<Self, HttpServerError> {
        let fault = |error| HttpServerError::Address { address, error };
        let (tcp, udp) = bind_both(address).map_err(fault)?;
        tcp.set_nonblocking(true).map_err(fault)?;
        let identity_fault = |error: &dyn ToString| HttpServerError::Identity(error.to_string());
        let tls = configuration(identity, &[b"h2", b"http/1.1"]).map_err(|e| identity_fault(&e))?;
        let quic = h3::configuration(identity, &limits).map_err(|e| identity_fault(&e))?;
        let (counts, open) = (Arc::default(), Arc::default());
        let shared = HttpServerState { limits, counts, open };
        let fingerprint = identity.fingerprint();
        Ok(Self { tcp, udp, tls: Arc::new(tls), quic, fingerprint, shared })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel's.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.tcp.local_addr()
    }

    /// The fingerprint of its certificate.
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// What it has done so far.
    pub fn counts(&self) -> Arc<HttpServerCounts> {
        Arc::clone(&self.shared.counts)
    }

    /// Serves until `stop` says so.
    ///
    /// # Errors
    /// The sockets', and without a runtime.
    pub fn run(&self, stop: impl Fn() -> bool) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let tcp = tokio::net::TcpListener::from_std(self.tcp.try_clone()?)?;
            let endpoint = quinn::Endpoint::new(
                quinn::EndpointConfig::default(),
                Some(self.quic.clone()),
                self.udp.try_clone()?,
                Arc::new(quinn::TokioRuntime),
            )?;
            let acceptor = TlsAcceptor::from(Arc::clone(&self.tls));
            let streams = tokio::spawn(accept(tcp, acceptor, self.shared.clone()));
            let datagrams = tokio::spawn(h3::accept(endpoint.clone(), self.shared.clone()));
            while !stop() {
                tokio::time::sleep(STOP_POLL_INTERVAL).await;
            }
            streams.abort();
            datagrams.abort();
            endpoint.close(quinn::VarInt::from_u32(0x100), b"");
            tokio::time::timeout(STOP_POLL_INTERVAL, endpoint.wait_idle()).await.ok();
            Ok(())
        })
    }
}

/// TCP and UDP on one port.
fn bind_both(address: SocketAddr) -> io::Result<(TcpListener, UdpSocket)> {
    const TRIES: usize = 16;
    let mut tried = 0;
    loop {
        tried += 1;
        let tcp = TcpListener::bind(address)?;
        match UdpSocket::bind(tcp.local_addr()?) {
            Ok(udp) => return Ok((tcp, udp)),
            // A port that is free for TCP may not be for UDP: then another, where any will do.
            Err(_) if address.port() == 0 && tried < TRIES => {}
            Err(error) => return Err(error),
        }
    }
}

/// TLS 1.3 with the protocols that may be spoken over it.
fn configuration(
    identity: &HostIdentity,
    protocols: &[&[u8]],
) -> Result<ServerConfig, rustls::Error> {
    let mut configuration = ServerConfig::builder_with_provider(verifier::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate()], identity.key())?;
    configuration.send_tls13_tickets = 0;
    configuration.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
    Ok(configuration)
}

async fn accept(tcp: tokio::net::TcpListener, acceptor: TlsAcceptor, shared: HttpServerState) {
    loop {
        let Ok((stream, from)) = tcp.accept().await else {
            // The connection's, or passes: too many open files, for one, until some are closed.
            tokio::time::sleep(STOP_POLL_INTERVAL).await;
            continue;
        };
        let Some(place) = shared.acquire_slot(from.ip()) else { continue };
        let acceptor = acceptor.clone();
        place.spawn(async move |shared| serve(stream, acceptor, &shared).await);
    }
}

async fn serve(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    shared: &HttpServerState,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut first = [0];
    let seen = shared.with_timeout(stream.peek(&mut first)).await?;
    match first[0] {
        _ if seen == 0 => Ok(()),
        TLS_RECORD => {
            let stream = shared.with_timeout(acceptor.accept(stream)).await?;
            match stream.get_ref().1.alpn_protocol() {
                Some(b"h2") => h2::serve(stream, shared).await,
                _ => h1::serve(stream, shared).await,
            }
        }
        HTTP2_PREFACE => h2::serve(stream, shared).await,
        _ => h1::serve(stream, shared).await,
    }
}

impl HttpServerState {
    /// A place for one more connection. Where all are taken, the oldest connection of the address with the most gives its
    /// place to an address with fewer: no few of them keep everybody else out.
    fn acquire_slot(&self, address: IpAddr) -> Option<HttpConnectionSlot> {
        if !self.is_allowed(address) {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let address = source_prefix(address);
        let mut open = self.lock_open();
        let has_room = open.count(address) < self.limits.connections_per_address
            && (open.by_number.len() < self.limits.connections || open.evict_for(address));
        if !has_room {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let number = open.next;
        open.next += 1;
        open.by_number.insert(number, OpenConnection { address, task: None });
        self.counts.connections.fetch_add(1, Ordering::Relaxed);
        Some(HttpConnectionSlot { shared: self.clone(), number })
    }

    fn lock_open(&self) -> MutexGuard<'_, OpenConnections> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an address may be sent anything at all.
    fn is_allowed(&self, address: IpAddr) -> bool {
        self.limits
            .allowed_client
            .is_none_or(|client| client.to_canonical() == address.to_canonical())
    }

    /// What a step gives, unless it takes too long.
    async fn with_timeout<T>(&self, step: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        tokio::time::timeout(self.limits.step_timeout, step).await.unwrap_or_else(|_| {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the client was silent for too long"))
        })
    }

    fn count_request(&self) {
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
    }
}

impl OpenConnections {
    fn count(&self, address: IpAddr) -> usize {
        self.by_number.values().filter(|open| open.address == address).count()
    }

    /// Ends the oldest connection of the address with the most, where that has more than this one.
    fn evict_for(&mut self, address: IpAddr) -> bool {
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for open in self.by_number.values() {
            *counts.entry(open.address).or_default() += 1;
        }
        let here = counts.get(&address).copied().unwrap_or(0);
        let most = counts.into_iter().max_by_key(|(_, count)| *count);
        let Some((most, _)) = most.filter(|(_, count)| *count > here + 1) else { return false };
        let oldest = self.by_number.iter().find(|(_, open)| open.address == most);
        let oldest = oldest.map(|(number, _)| *number);
        let evicted = oldest.and_then(|number| self.by_number.remove(&number));
        if let Some(task) = evicted.as_ref().and_then(|open| open.task.as_ref()) {
            task.abort();
        }
        evicted.is_some()
    }
}

impl HttpConnectionSlot {
    /// Serves the connection in a task of its own, which ends when its place is given away.
    fn spawn<F: Future<Output = io::Result<()>> + Send + 'static>(
        self,
        serve: impl FnOnce(HttpServerState) -> F + Send + 'static,
    ) {
        let (shared, number) = (self.shared.clone(), self.number);
        let task = tokio::spawn(async move {
            if serve(self.shared.clone()).await.is_err() {
                self.shared.counts.failed.fetch_add(1, Ordering::Relaxed);
            }
        });
        if let Some(open) = shared.lock_open().by_number.get_mut(&number) {
            open.task = Some(task.abort_handle());
        }
    }
}

impl Drop for HttpConnectionSlot {
    fn drop(&mut self) {
        self.shared.lock_open().by_number.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_of_ipv6_has_no_more_places_than_one_address_of_ipv4() {
        let limits = HttpServerLimits { connections_per_address: 2, ..HttpServerLimits::default() };
        let shared = HttpServerState { limits, counts: Arc::default(), open: Arc::default() };
        let enter = |ip: &str| shared.acquire_slot(ip.parse().unwrap());
        let held = [enter("2001:db8:0:7::1"), enter("2001:db8:0:7::2")];
        assert!(held.iter().all(Option::is_some));
        assert!(enter("2001:db8:0:7::3").is_none());
        assert!(enter("2001:db8:0:8::1").is_some());
        drop(held);
        assert!(enter("2001:db8:0:7::3").is_some());
        assert!(shared.lock_open().by_number.is_empty());
    }

    #[test]
    fn two_addresses_with_all_places_keep_no_third_out() {
        let limits = HttpServerLimits {
            connections: 8,
            connections_per_address: 4,
            ..HttpServerLimits::default()
        };
        let shared = HttpServerState { limits, counts: Arc::default(), open: Arc::default() };
        let enter = |last: u8| shared.acquire_slot([192, 0, 2, last].into());
        let held: Vec<_> = (0..8).map(|n| enter(n % 2)).collect();
        assert!(held.iter().all(Option::is_some));
        let third: Vec<_> = (0..8).filter_map(|_| enter(2)).collect();
        // No more than the others keep.
        assert_eq!(third.len(), 2);
        let open = shared.lock_open();
        assert_eq!(open.by_number.len(), 8);
        assert!(!open.by_number.contains_key(&0), "the oldest made room");
    }
}
