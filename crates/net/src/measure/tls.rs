//! TCP as it is and TLS 1.3 over it, as transports to be measured: both blocking, a thread a connection.
//!
//! The server's certificate is made for the session and pinned by its fingerprint, which the client
//! has from the control connection. Left out: QUIC ([`super::quic`]), and what is asked
//! ([`super::transport`]).

use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use plumb_base::time::{Instant, Span};
use plumb_sys::clock::{Clock, read_ns};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};

use super::exchange::ExchangeError;
use super::transport::{self, HalfClose, Standing, Transport, TransportReport, TransportSpec};
use crate::clock::steady_ns;
use crate::secure::deadline::DeadlineStream;
use crate::secure::identity::NAME;
use crate::secure::verifier::{self, KeyHolder};
use crate::secure::{Fingerprint, Identity};

/// Connections that a server serves at a time.
const CONNECTIONS_MAX: usize = 8;
/// How long a single read or write may wait.
const STEP_MAX: Span = Span::from_secs(5);
/// How often an accept loop looks at its deadline.
const LOOK_EVERY_MS: i32 = 50;

/// A transport that could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The connection did not stand.
    #[error("{transport} to {address} did not stand ({error}); is its port open on the way?", transport = .transport.name())]
    Connect {
        /// Over what.
        transport: Transport,
        /// To where.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// It broke.
    #[error("{transport} broke ({error}); is the other side still running?", transport = .transport.name())]
    Broken {
        /// What.
        transport: Transport,
        /// Why.
        error: io::Error,
    },
    /// The exchange.
    #[error(transparent)]
    Exchange(#[from] ExchangeError),
    /// The certificate or the runtime of this side.
    #[error("this side cannot begin ({0}); the session's certificate may be damaged")]
    Setup(String),
}

/// The server of one session: over TCP, and over TLS where it has an identity.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    configuration: Option<Arc<ServerConfig>>,
    token: [u8; 16],
    /// Nobody else is heard.
    client: IpAddr,
}

impl Server {
    /// A server for one client on a socket that listens.
    ///
    /// # Errors
    /// A damaged identity, and the kernel's.
    pub fn new(
        listener: TcpListener,
        identity: Option<&Identity>,
        token: [u8; 16],
        client: IpAddr,
    ) -> Result<Self, TransportError> {
        let setup = |error: &dyn ToString| TransportError::Setup(error.to_string());
        listener.set_nonblocking(true).map_err(|error| setup(&error))?;
        let configuration = identity.map(server_configuration).transpose();
        let configuration = configuration.map_err(|error| setup(&error))?.map(Arc::new);
        Ok(Self { listener, configuration, token, client })
    }

    /// Serves until the deadline by the steady clock, or until `stop` says so; connections that were
    /// refused or broke.
    ///
    /// # Errors
    /// The listening socket's.
    pub fn run(&self, deadline_ns: u64, stop: impl Fn() -> bool) -> io::Result<u64> {
        let running = AtomicUsize::new(0);
        let failed = AtomicUsize::new(0);
        thread::scope(|scope| {
            while steady_ns() < deadline_ns && !stop() {
                if !plumb_sys::fd::poll_readable(self.listener.as_fd(), LOOK_EVERY_MS)? {
                    continue;
                }
                let Ok((socket, from)) = self.listener.accept() else { continue };
                if from.ip() != self.client || running.load(Ordering::Relaxed) >= CONNECTIONS_MAX {
                    failed.fetch_add(1, Ordering::Relaxed);
                    continue;
                }
                running.fetch_add(1, Ordering::Relaxed);
                let (running, failed) = (&running, &failed);
                scope.spawn(move || {
                    if self.serve(socket, deadline_ns).is_err() {
                        failed.fetch_add(1, Ordering::Relaxed);
                    }
                    running.fetch_sub(1, Ordering::Relaxed);
                });
            }
            Ok::<(), io::Error>(())
        })?;
        Ok(u64::try_from(failed.into_inner()).unwrap_or(u64::MAX))
    }

    fn serve(&self, socket: TcpStream, deadline_ns: u64) -> io::Result<()> {
        socket.set_nonblocking(false)?;
        socket.set_nodelay(true)?;
        let mut stream = DeadlineStream::new(socket, Instant::NEVER, STEP_MAX);
        let Some(configuration) = &self.configuration else {
            return transport::obey(&mut stream, &self.token, deadline_ns);
        };
        // A client that trickles its handshake is ended by a deadline for all of it.
        stream.set_times(crate::clock::now() + STEP_MAX, STEP_MAX);
        let mut stream = accept(stream, configuration)?;
        stream.sock.set_times(Instant::NEVER, STEP_MAX);
        transport::obey(&mut stream, &self.token, deadline_ns)
    }
}

/// TLS 1.3 without tickets: every handshake is a whole one.
pub(super) fn server_configuration(identity: &Identity) -> Result<ServerConfig, rustls::Error> {
    let mut configuration = ServerConfig::builder_with_provider(verifier::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate()], identity.key())?;
    configuration.send_tls13_tickets = 0;
    Ok(configuration)
}

/// The server's handshake over anything that reads and writes.
pub(super) fn accept<S: Read + Write>(
    mut stream: S,
    configuration: &Arc<ServerConfig>,
) -> io::Result<StreamOwned<ServerConnection, S>> {
    let mut connection =
        ServerConnection::new(Arc::clone(configuration)).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(connection, stream))
}

/// The client's handshake over anything that reads and writes.
pub(super) fn connect<S: Read + Write>(
    mut stream: S,
    configuration: &Arc<ClientConfig>,
) -> io::Result<StreamOwned<ClientConnection, S>> {
    let name = ServerName::try_from(NAME).expect("the name is a word of letters");
    let mut connection =
        ClientConnection::new(Arc::clone(configuration), name).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(connection, stream))
}

/// A client that trusts one certificate.
pub(super) fn client_configuration(pinned: Fingerprint) -> Result<ClientConfig, rustls::Error> {
    let mut configuration = ClientConfig::builder_with_provider(verifier::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(KeyHolder::pinned(pinned))
        .with_no_client_auth();
    configuration.resumption = rustls::client::Resumption::disabled();
    Ok(configuration)
}

/// Measures TCP, or TLS over it where a certificate is pinned, against a [`Server`].
///
/// # Errors
/// [`TransportError`].
pub fn measure(
    address: SocketAddr,
    pinned: Option<Fingerprint>,
    spec: &TransportSpec,
) -> Result<TransportReport, TransportError> {
    let Some(pinned) = pinned else {
        return measure_over(Transport::Tcp, spec, || connect_tcp(address));
    };
    let configuration = client_configuration(pinned);
    let configuration =
        Arc::new(configuration.map_err(|error| TransportError::Setup(error.to_string()))?);
    measure_over(Transport::Tls, spec, || connect_tls(address, &configuration))
}

fn measure_over<S: HalfClose>(
    transport: Transport,
    spec: &TransportSpec,
    connect: impl Fn() -> Result<(S, Standing), TransportError>,
) -> Result<TransportReport, TransportError> {
    let broken = |error| TransportError::Broken { transport, error };
    let mut standing = Vec::with_capacity(usize::from(spec.connections));
    for _ in 0..spec.connections {
        let (mut stream, stood) = connect()?;
        transport::ask_nothing(&mut stream, &spec.token).map_err(broken)?;
        stream.close_writing().ok();
        standing.push(stood);
    }
    let exchange = transport::ask_exchange(&mut connect()?.0, spec)?;
    let up = transport::ask_up(&mut connect()?.0, spec).map_err(broken)?;
    let deadline_ns = steady_ns().saturating_add(spec.bulk_ns).saturating_add(30_000_000_000);
    let down = transport::ask_down(&mut connect()?.0, spec, deadline_ns).map_err(broken)?;
    Ok(TransportReport { transport, standing, exchange, up, down })
}

fn connect_tcp(address: SocketAddr) -> Result<(DeadlineStream, Standing), TransportError> {
    let fault = |error| TransportError::Connect { transport: Transport::Tcp, address, error };
    let cpu = read_ns(Clock::ThreadCpu);
    let began = steady_ns();
    let socket = TcpStream::connect_timeout(&address, Duration::from(STEP_MAX)).map_err(fault)?;
    let connect_ns = steady_ns() - began;
    let cpu_ns = read_ns(Clock::ThreadCpu) - cpu;
    socket.set_nodelay(true).map_err(fault)?;
    let stream = DeadlineStream::new(socket, Instant::NEVER, STEP_MAX);
    Ok((stream, Standing { connect_ns, handshake_ns: 0, cpu_ns }))
}

type TlsStream = StreamOwned<ClientConnection, DeadlineStream>;

fn connect_tls(
    address: SocketAddr,
    configuration: &Arc<ClientConfig>,
) -> Result<(TlsStream, Standing), TransportError> {
    let fault = |error| TransportError::Connect { transport: Transport::Tls, address, error };
    let (stream, stood) = connect_tcp(address)?;
    let cpu = read_ns(Clock::ThreadCpu);
    let began = steady_ns();
    let stream = connect(stream, configuration).map_err(fault)?;
    let handshake_ns = steady_ns() - began;
    let cpu_ns = stood.cpu_ns + read_ns(Clock::ThreadCpu) - cpu;
    Ok((stream, Standing { handshake_ns, cpu_ns, ..stood }))
}

impl HalfClose for DeadlineStream {
    fn close_writing(&mut self) -> io::Result<()> {
        self.socket().shutdown(Shutdown::Write)
    }
}

impl HalfClose for StreamOwned<ServerConnection, DeadlineStream> {
    fn close_writing(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        self.flush()
    }
}

impl HalfClose for StreamOwned<ClientConnection, DeadlineStream> {
    fn close_writing(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        self.flush()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::AtomicBool;

    use super::*;

    pub(in super::super) fn short_spec(token: [u8; 16]) -> TransportSpec {
        let mut spec = TransportSpec::with_token(token);
        (spec.connections, spec.bulk_ns) = (3, 50_000_000);
        (spec.exchange.warm_up_ns, spec.exchange.duration_ns) = (1_000_000, 50_000_000);
        spec
    }

    fn with_server(
        identity: Option<&Identity>,
        test: impl FnOnce(SocketAddr) -> Result<TransportReport, TransportError>,
    ) -> (Result<TransportReport, TransportError>, u64) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let server = Server::new(listener, identity, [7; 16], client).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let (server, stop, deadline) = (&server, &stop, steady_ns() + 60_000_000_000);
            let running =
                scope.spawn(move || server.run(deadline, || stop.load(Ordering::Relaxed)));
            let report = test(address);
            stop.store(true, Ordering::Relaxed);
            (report, running.join().unwrap().unwrap())
        })
    }

    fn is_whole(report: &TransportReport) {
        assert_eq!(report.standing.len(), 3);
        assert!(report.exchange.answered > 0);
        for bulk in [report.up, report.down] {
            assert!(bulk.bytes > 0 && bulk.duration_ns > 0, "{bulk:?}");
            assert!(bulk.cpu_client_ns > 0 && bulk.cpu_server_ns > 0, "{bulk:?}");
            // Only whole blocks are sent, and all of them arrive.
            assert_eq!(bulk.bytes % u64::try_from(transport::BLOCK_BYTES).unwrap(), 0);
        }
    }

    #[test]
    fn tcp_and_tls_answer_the_same_questions() {
        let spec = short_spec([7; 16]);
        let (report, failed) = with_server(None, |address| measure(address, None, &spec));
        is_whole(&report.unwrap());
        assert_eq!(failed, 0);
        let identity = Identity::generate().unwrap();
        let pinned = Some(identity.fingerprint());
        let (report, failed) =
            with_server(Some(&identity), |address| measure(address, pinned, &spec));
        let report = report.unwrap();
        is_whole(&report);
        assert_eq!(failed, 0);
        assert!(report.standing.iter().all(|stood| stood.handshake_ns > 0));
    }

    #[test]
    fn another_certificate_and_a_wrong_token_are_refused() {
        let identity = Identity::generate().unwrap();
        let spec = short_spec([7; 16]);
        let other = Some(Fingerprint::of(b"another"));
        let (report, _) = with_server(Some(&identity), |address| measure(address, other, &spec));
        assert!(matches!(report, Err(TransportError::Connect { .. })), "{report:?}");
        let wrong = short_spec([8; 16]);
        let (report, failed) = with_server(None, |address| measure(address, None, &wrong));
        assert!(report.is_err());
        assert_eq!(failed, 1);
    }
}
