//! QUIC as a transport to be measured, through quinn: a thread of its own on each side.
//!
//! The runtime stands between a clock read and the kernel here, as it does in every program that
//! uses such a library; a figure of this file is one of the library as well. Left out: what is asked
//! ([`super::request_response`]).
//!
//! A stream begins with what it is for. That is written by hand, because its numbers are a promise to the other side's
//! version: 0, 2 and 3 have had a meaning.

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use plumb_clock::monotonic_ns;
use plumb_remote::datagram_header::{TOKEN_BYTES, TestToken};
use plumb_remote::secure::identity::NAME;
use plumb_remote::secure::{Fingerprint, HostIdentity};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Connection, Endpoint, EndpointConfig, RecvStream, SendStream, TokioRuntime, VarInt};

use super::bulk::Counter;
use super::pacer::Pacer;
use super::request_response::closed_loop::ClosedLoop;
use super::request_response::{self, RequestError, RequestPacing, RequestSpec, RequesterReport};
use super::tls;

mod paced;

/// Connections that a server serves at a time.
const CONNECTIONS_MAX: usize = 8;
/// Silence after which a connection is over.
const IDLE_MS: u32 = 5_000;
/// Protocol of the application, which QUIC wants named.
const ALPN: &[u8] = b"plumb-measure";
/// How often the server looks whether it should stop.
const STOP_POLL: Duration = Duration::from_millis(50);

/// The server of one session.
#[derive(Debug)]
pub struct QuicResponder {
    socket: UdpSocket,
    configuration: quinn::ServerConfig,
    token: TestToken,
    /// Nobody else is heard, so nothing is sent to anybody else.
    client: IpAddr,
    service: Arc<QuicResponderState>,
}

/// What is done on connections, and the result of it.
#[derive(Debug)]
struct QuicResponderState {
    /// The only requests and responses that are served.
    spec: RequestSpec,
    /// The most that they take and give, in bytes a second, over all connections.
    bytes_per_second: Option<u64>,
    /// When the first came, and bytes since.
    began_ns: OnceLock<u64>,
    bytes: AtomicU64,
    answered: Counter,
    /// The client says that it is done.
    is_over: AtomicBool,
}

impl QuicResponder {
    /// A server of requests and responses of these sizes for one client on a socket, at no more than so many bytes a
    /// second.
    ///
    /// # Errors
    /// A damaged identity.
    pub fn new(
        socket: UdpSocket,
        identity: &HostIdentity,
        token: TestToken,
        client: IpAddr,
        spec: &RequestSpec,
        bytes_per_second: Option<u64>,
    ) -> io::Result<Self> {
        let mut configuration = server_configuration(identity, transport_configuration())?;
        // The client does not move; an address that appears in the middle is not followed.
        configuration.migration(false);
        let service = QuicResponderState {
            spec: spec.clone(),
            bytes_per_second,
            began_ns: OnceLock::new(),
            bytes: AtomicU64::new(0),
            answered: Counter::default(),
            is_over: AtomicBool::new(false),
        };
        Ok(Self { socket, configuration, token, client, service: Arc::new(service) })
    }

    /// Requests answered.
    pub fn answered(&self) -> u64 {
        self.service.answered.get()
    }

    /// Serves until `stop` says so; connections and streams that were refused or broke.
    ///
    /// # Errors
    /// The socket's, and without a runtime.
    pub fn run(&self, stop: impl Fn() -> bool) -> io::Result<u64> {
        runtime()?.block_on(async {
            let endpoint = Endpoint::new(
                EndpointConfig::default(),
                Some(self.configuration.clone()),
                self.socket.try_clone()?,
                Arc::new(TokioRuntime),
            )?;
            let failed = self.accept(&endpoint, stop).await;
            tokio::time::timeout(Duration::from_secs(1), endpoint.wait_idle()).await.ok();
            Ok(failed)
        })
    }

    async fn accept(&self, endpoint: &Endpoint, stop: impl Fn() -> bool) -> u64 {
        let mut failed = 0;
        let mut tasks: Vec<tokio::task::JoinHandle<io::Result<()>>> = Vec::new();
        let is_over = || self.service.is_over.load(Ordering::Relaxed);
        while !stop() && !is_over() {
            let mut index = 0;
            while index < tasks.len() {
                if tasks[index].is_finished() {
                    let outcome = tasks.swap_remove(index).await;
                    failed += u64::from(!matches!(outcome, Ok(Ok(()))));
                } else {
                    index += 1;
                }
            }
            let incoming = match tokio::time::timeout(STOP_POLL, endpoint.accept()).await {
                Ok(Some(incoming)) => incoming,
                Ok(None) => break,
                Err(_) => continue,
            };
            let from = incoming.remote_address().ip();
            if from.to_canonical() != self.client.to_canonical() || tasks.len() >= CONNECTIONS_MAX {
                incoming.ignore();
                failed += 1;
                continue;
            }
            // A connected socket hears nobody but whoever has shown the token from there; any other is asked first
            // whether it hears us.
            if !incoming.remote_address_validated() && self.socket.peer_addr().is_err() {
                if let Err(error) = incoming.retry() {
                    error.into_incoming().ignore();
                }
                continue;
            }
            let (token, service) = (self.token, Arc::clone(&self.service));
            tasks.push(tokio::spawn(async move {
                let connection = incoming.await.map_err(io::Error::from)?;
                service.serve(&connection, &token).await
            }));
        }
        endpoint.close(VarInt::from_u32(0), b"over");
        // A task that waits for its rate ends with the runtime.
        let until = tokio::time::Instant::now() + Duration::from_secs(1);
        for task in tasks {
            let outcome = tokio::time::timeout_at(until, task).await;
            failed += u64::from(!matches!(outcome, Ok(Ok(Ok(())))));
        }
        failed
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn transport_configuration() -> quinn::TransportConfig {
    let mut configuration = quinn::TransportConfig::default();
    configuration.max_idle_timeout(Some(VarInt::from_u32(IDLE_MS).into()));
    configuration.max_concurrent_bidi_streams(VarInt::from_u32(4));
    configuration.max_concurrent_uni_streams(VarInt::from_u32(0));
    configuration.datagram_receive_buffer_size(None);
    configuration
}

impl QuicResponderState {
    /// Serves the streams of one connection, one after another, until the client closes it.
    async fn serve(&self, connection: &Connection, token: &TestToken) -> io::Result<()> {
        loop {
            match connection.accept_bi().await {
                Ok((mut send, mut receive)) => {
                    self.handle_stream(&mut send, &mut receive, token).await?;
                }
                Err(
                    quinn::ConnectionError::ApplicationClosed(_)
                    | quinn::ConnectionError::LocallyClosed,
                ) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn handle_stream(
        &self,
        send: &mut SendStream,
        receive: &mut RecvStream,
        token: &TestToken,
    ) -> io::Result<()> {
        let mut purpose = [0; PURPOSE_BYTES];
        receive.read_exact(&mut purpose).await.map_err(io::Error::other)?;
        match QuicStreamPurpose::decode(&purpose, token)? {
            QuicStreamPurpose::Done => {
                send.write_all(&[1]).await?;
                self.is_over.store(true, Ordering::Relaxed);
            }
            QuicStreamPurpose::Exchange { request_bytes, response_bytes } => {
                let agreed = (self.spec.request_bytes, self.spec.response_bytes);
                if agreed != (request_bytes, response_bytes) {
                    let why = "another measurement was agreed on";
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
                }
                self.respond(send, receive).await?;
            }
        }
        send.finish().map_err(io::Error::other)
    }

    async fn respond(&self, send: &mut SendStream, receive: &mut RecvStream) -> io::Result<()> {
        let spec = &self.spec;
        spec.check().map_err(io::Error::other)?;
        let (mut request, response) = (spec.request(), spec.response());
        let size = u64::from(spec.request_bytes) + u64::from(spec.response_bytes);
        loop {
            let Some(first) = receive.read(&mut request).await? else { return Ok(()) };
            receive.read_exact(&mut request[first..]).await.map_err(io::Error::other)?;
            if let Some(rate) = self.bytes_per_second {
                self.throttle(rate, size).await;
            }
            send.write_all(&response).await?;
            self.answered.add_one();
        }
    }

    /// Waits until so many bytes more are due; a client does not get more by connecting again.
    async fn throttle(&self, rate: u64, size: u64) {
        let began_ns = *self.began_ns.get_or_init(monotonic_ns);
        let before = self.bytes.fetch_add(size, Ordering::Relaxed);
        let left_ns = Pacer::new(began_ns, rate).due_ns(before).saturating_sub(monotonic_ns());
        if left_ns > 0 {
            tokio::time::sleep(Duration::from_nanos(left_ns)).await;
        }
    }
}

/// Asks what a spec says from a socket whose peer is ready; at the end the server is told that it is over.
/// `is_over` says whether the time for all of that has passed.
///
/// # Errors
/// [`RequestError`].
pub fn send_requests(
    socket: UdpSocket,
    address: SocketAddr,
    pinned: Fingerprint,
    token: TestToken,
    spec: &RequestSpec,
    progress: &Counter,
    is_over: &dyn Fn() -> bool,
) -> Result<RequesterReport, RequestError> {
    spec.check()?;
    let configuration = client_configuration(Some(pinned), transport_configuration())
        .map_err(RequestError::before_first)?;
    let client = QuicRequester { address, configuration, token, spec };
    let runtime = runtime().map_err(RequestError::before_first)?;
    runtime.block_on(async {
        let runtime = Arc::new(TokioRuntime);
        let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, runtime)
            .map_err(RequestError::before_first)?;
        let asked = if spec.pacing == RequestPacing::Connect {
            client.request_per_connection(&endpoint, progress, is_over).await
        } else {
            client.request_over_one(&endpoint, progress, is_over).await
        };
        // The other side is told, or it has gone.
        tokio::time::timeout(Duration::from_secs(1), endpoint.wait_idle()).await.ok();
        asked
    })
}

fn setup_error(error: impl Display) -> io::Error {
    let hint = "the session's certificate may be damaged";
    io::Error::other(format!("this side cannot start ({error}); {hint}"))
}

/// The server's side, with a certificate that the client knows or need not.
///
/// # Errors
/// A damaged identity.
pub fn server_configuration(
    identity: &HostIdentity,
    transport: quinn::TransportConfig,
) -> io::Result<quinn::ServerConfig> {
    let mut tls = tls::server_configuration(identity).map_err(setup_error)?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicServerConfig::try_from(tls).map_err(setup_error)?;
    let mut configuration = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    configuration.transport_config(Arc::new(transport));
    Ok(configuration)
}

/// The client's side, which trusts one certificate, or, where the other end is known by other means, any.
///
/// # Errors
/// Never, with the cryptography in use.
pub fn client_configuration(
    pinned: Option<Fingerprint>,
    transport: quinn::TransportConfig,
) -> io::Result<quinn::ClientConfig> {
    let mut tls = tls::client_configuration(pinned).map_err(setup_error)?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicClientConfig::try_from(tls).map_err(setup_error)?;
    let mut configuration = quinn::ClientConfig::new(Arc::new(crypto));
    configuration.transport_config(Arc::new(transport));
    Ok(configuration)
}

struct QuicRequester<'a> {
    address: SocketAddr,
    configuration: quinn::ClientConfig,
    token: TestToken,
    spec: &'a RequestSpec,
}

impl QuicRequester<'_> {
    /// A connection, and how long it took to stand.
    async fn connect(&self, endpoint: &Endpoint) -> io::Result<(Connection, u64)> {
        let address = self.address;
        let fault = |error: io::Error| {
            let hint = "is its port open on the way?";
            io::Error::other(format!(
                "the QUIC connection to {address} was not established ({error}); {hint}"
            ))
        };
        let began = monotonic_ns();
        let connecting = endpoint.connect_with(self.configuration.clone(), address, NAME);
        let connecting = connecting.map_err(|error| fault(io::Error::other(error)))?;
        let connection = connecting.await.map_err(|error| fault(error.into()))?;
        Ok((connection, monotonic_ns() - began))
    }

    async fn open(
        &self,
        connection: &Connection,
        purpose: QuicStreamPurpose,
    ) -> io::Result<(SendStream, RecvStream)> {
        let (mut send, receive) = connection.open_bi().await?;
        send.write_all(&purpose.encode(&self.token)).await?;
        Ok((send, receive))
    }

    /// Over one connection, whose standing is noted; then the server is told that it is over.
    async fn request_over_one(
        &self,
        endpoint: &Endpoint,
        progress: &Counter,
        is_over: &dyn Fn() -> bool,
    ) -> Result<RequesterReport, RequestError> {
        let connected = self.connect(endpoint).await;
        let (connection, stood_ns) = connected.map_err(RequestError::before_first)?;
        let asked = self.request_over_stream(&connection, progress, is_over).await;
        self.send_done(&connection).await;
        Ok(request_response::with_connect_time(asked?, stood_ns))
    }

    /// Each over a connection of its own.
    async fn request_per_connection(
        &self,
        endpoint: &Endpoint,
        progress: &Counter,
        is_over: &dyn Fn() -> bool,
    ) -> Result<RequesterReport, RequestError> {
        let (request, mut response) = (self.spec.request(), self.spec.response());
        let mut turns = ClosedLoop::new(self.spec, progress);
        while !is_over()
            && let Some(due) = turns.next_request()
        {
            match self.request_once(endpoint, &request, &mut response).await {
                Ok(connect_ns) => {
                    turns.on_response(due);
                    turns.on_connected(due, connect_ns);
                }
                Err(error) => return Err(turns.into_error(error)),
            }
        }
        let report = turns.into_report();
        if let Ok((connection, _)) = self.connect(endpoint).await {
            self.send_done(&connection).await;
        }
        Ok(report)
    }

    /// How long the connection took to stand.
    async fn request_once(
        &self,
        endpoint: &Endpoint,
        request: &[u8],
        response: &mut [u8],
    ) -> io::Result<u64> {
        let (connection, stood_ns) = self.connect(endpoint).await?;
        let (mut send, mut receive) = self.open(&connection, self.exchange_purpose()).await?;
        send.write_all(request).await?;
        send.finish().map_err(io::Error::other)?;
        receive.read_exact(response).await.map_err(io::Error::other)?;
        connection.close(VarInt::from_u32(0), b"over");
        Ok(stood_ns)
    }

    /// A server that does not hear it ends by its own deadline.
    async fn send_done(&self, connection: &Connection) {
        if let Ok((mut send, mut receive)) = self.open(connection, QuicStreamPurpose::Done).await {
            send.finish().ok();
            receive.read_exact(&mut [0]).await.ok();
        }
        connection.close(VarInt::from_u32(0), b"over");
    }

    const fn exchange_purpose(&self) -> QuicStreamPurpose {
        let RequestSpec { request_bytes, response_bytes, .. } = *self.spec;
        QuicStreamPurpose::Exchange { request_bytes, response_bytes }
    }

    async fn request_over_stream(
        &self,
        connection: &Connection,
        progress: &Counter,
        is_over: &dyn Fn() -> bool,
    ) -> Result<RequesterReport, RequestError> {
        let spec = self.spec;
        spec.check()?;
        let (mut send, mut receive) = self
            .open(connection, self.exchange_purpose())
            .await
            .map_err(RequestError::before_first)?;
        let asked = if let RequestPacing::Open { per_second } = spec.pacing {
            paced::send_requests(&mut send, &mut receive, spec, per_second, progress, is_over).await
        } else {
            self.request_in_turn(&mut send, &mut receive, progress, is_over).await
        };
        let report = asked?;
        send.finish().ok();
        Ok(report)
    }

    async fn request_in_turn(
        &self,
        send: &mut SendStream,
        receive: &mut RecvStream,
        progress: &Counter,
        is_over: &dyn Fn() -> bool,
    ) -> Result<RequesterReport, RequestError> {
        let spec = self.spec;
        let (request, mut response) = (spec.request(), spec.response());
        let mut turns = ClosedLoop::new(spec, progress);
        while !is_over()
            && let Some(due) = turns.next_request()
        {
            let asked = async {
                send.write_all(&request).await?;
                receive.read_exact(&mut response).await.map_err(io::Error::other)
            };
            if let Err(error) = asked.await {
                return Err(turns.into_error(error));
            }
            turns.on_response(due);
        }
        Ok(turns.into_report())
    }
}

/// Bytes of an order on the wire: what is not used is zero.
pub const PURPOSE_BYTES: usize = 64;
const EXCHANGE: u8 = 1;
const DONE: u8 = 4;

/// What a stream is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuicStreamPurpose {
    /// Requests and responses of these sizes.
    Exchange {
        /// Bytes of a request.
        request_bytes: u32,
        /// Bytes of a response.
        response_bytes: u32,
    },
    /// The client is done: no more connections come.
    Done,
}

impl QuicStreamPurpose {
    /// Its bytes, with the token before it.
    pub fn encode(self, token: &TestToken) -> [u8; PURPOSE_BYTES] {
        let mut bytes = [0; PURPOSE_BYTES];
        let (head, body) = bytes.split_at_mut(TOKEN_BYTES);
        head.copy_from_slice(&token.0);
        let written = match self {
            Self::Exchange { request_bytes, response_bytes } => {
                postcard::to_slice(&(EXCHANGE, request_bytes, response_bytes), body)
            }
            Self::Done => postcard::to_slice(&DONE, body),
        };
        written.expect("an order is shorter than its room");
        bytes
    }

    /// Reads one with the right token.
    ///
    /// # Errors
    /// Another token, or no order.
    pub fn decode(bytes: &[u8; PURPOSE_BYTES], token: &TestToken) -> io::Result<Self> {
        let refuse = |why| io::Error::new(io::ErrorKind::PermissionDenied, why);
        let body = &bytes[TOKEN_BYTES..];
        if !token.matches_prefix(bytes) {
            return Err(refuse("the connection does not show this session's token"));
        }
        let nonsense = || refuse("what the connection is for makes no sense");
        match body[0] {
            EXCHANGE => {
                let (request_bytes, response_bytes) =
                    postcard::from_bytes(&body[1..]).map_err(|_| nonsense())?;
                Ok(Self::Exchange { request_bytes, response_bytes })
            }
            DONE => Ok(Self::Done),
            _ => Err(nonsense()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::thread;

    use plumb_base::seed::Seed;
    use rand::RngExt as _;

    use super::*;
    use crate::measure::request_response::relay;
    use crate::measure::request_response::tests::held_up_by_the_path_alone;

    const TOKEN: TestToken = TestToken([7; 16]);

    fn spec() -> RequestSpec {
        RequestSpec {
            request_bytes: 64,
            response_bytes: 48,
            pacing: RequestPacing::Closed,
            warm_up_ns: 1_000_000,
            duration_ns: 50_000_000,
        }
    }

    type Asked = Result<RequesterReport, RequestError>;

    /// From a socket of its own.
    fn ask_at(
        address: SocketAddr,
        pinned: Fingerprint,
        token: TestToken,
        spec: &RequestSpec,
    ) -> Asked {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        send_requests(socket, address, pinned, token, spec, &Counter::default(), &|| false)
    }

    /// The result of a test at a server for `client`, how many requests that answered, and how many it refused.
    fn with_server(
        identity: &HostIdentity,
        client: Ipv4Addr,
        test: impl FnOnce(SocketAddr) -> Asked,
    ) -> (Asked, u64, u64) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let client = IpAddr::V4(client);
        let server = QuicResponder::new(socket, identity, TOKEN, client, &spec(), None).unwrap();
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            let running = scope.spawn(|| server.run(|| stop.load(Ordering::Relaxed)));
            let report = test(address);
            stop.store(true, Ordering::Relaxed);
            let failed = running.join().unwrap().unwrap();
            (report, server.answered(), failed)
        })
    }

    #[test]
    fn only_requests_that_were_agreed_on_with_the_token_and_the_certificate_are_answered() {
        let identity = HostIdentity::generate().unwrap();
        let pinned = identity.fingerprint();
        let at =
            |test: &dyn Fn(SocketAddr) -> Asked| with_server(&identity, Ipv4Addr::LOCALHOST, test);
        let (report, answered, failed) = at(&|address| ask_at(address, pinned, TOKEN, &spec()));
        let report = report.unwrap();
        assert!(report.answered > 0 && answered >= report.answered, "{report:?} {answered}");
        assert_eq!(failed, 0);
        let other = Fingerprint::of(b"another");
        let longer = RequestSpec { response_bytes: 49, ..spec() };
        let (report, answered, _) = at(&|address| ask_at(address, other, TOKEN, &spec()));
        assert!(report.is_err() && answered == 0, "{report:?}");
        let (report, answered, failed) =
            at(&|address| ask_at(address, pinned, TestToken([8; 16]), &spec()));
        assert!(report.is_err() && answered == 0 && failed >= 1, "{report:?} {failed}");
        let (report, answered, failed) = at(&|address| ask_at(address, pinned, TOKEN, &longer));
        assert!(report.is_err() && answered == 0 && failed >= 1, "{report:?} {failed}");
    }

    #[test]
    fn a_stream_carries_as_many_at_a_time_as_are_under_way() {
        let identity = HostIdentity::generate().unwrap();
        let pacing = RequestPacing::Open { per_second: 100 };
        let paced = RequestSpec { pacing, duration_ns: 500_000_000, warm_up_ns: 0, ..spec() };
        let each_way_ns = 50_000_000;
        let (report, answered, failed) = with_server(&identity, Ipv4Addr::LOCALHOST, |server| {
            let relay = relay::DelayingUdpRelay::before(server, each_way_ns, |_| false);
            ask_at(relay.address, identity.fingerprint(), TOKEN, &paced)
        });
        let report = report.unwrap();
        assert_eq!((report.due, report.answered, answered, failed), (50, 50, 50, 0), "{report:?}");
        held_up_by_the_path_alone(&report, 2 * each_way_ns);
    }

    #[test]
    fn a_port_that_has_not_shown_that_it_hears_us_is_sent_one_retry_and_no_more() {
        let identity = HostIdentity::generate().unwrap();
        let pinned = identity.fingerprint();
        let (report, ..) = with_server(&identity, Ipv4Addr::LOCALHOST, |address| {
            // The first datagram of a client, sent again from a port that never answers.
            let middle = UdpSocket::bind("127.0.0.1:0").unwrap();
            middle.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let at = middle.local_addr().unwrap();
            thread::spawn(move || ask_at(at, pinned, TOKEN, &spec()));
            let mut buffer = [0; 2_000];
            let asked = middle.recv(&mut buffer).unwrap();
            let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
            silent.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
            for _ in 0..2 {
                silent.send_to(&buffer[..asked], address).unwrap();
                let mut answer = [0; 2_000];
                let length = silent.recv(&mut answer).unwrap();
                assert_eq!(answer[0] >> 4, 0xf, "a Retry");
                assert!(length < asked, "{length} bytes for {asked}");
                assert!(silent.recv(&mut answer).is_err(), "and nothing after it");
            }
            ask_at(address, pinned, TOKEN, &spec())
        });
        assert!(report.is_ok(), "{report:?}");
    }

    #[test]
    fn an_address_that_did_not_ask_hears_nothing() {
        let identity = HostIdentity::generate().unwrap();
        let elsewhere = Ipv4Addr::new(127, 0, 0, 9);
        let (report, answered, failed) = with_server(&identity, elsewhere, |address| {
            let unknown_client = UdpSocket::bind("127.0.0.1:0").unwrap();
            // Looks like a QUIC Initial of version 1 at full size.
            let mut initial = vec![0_u8; 1_200];
            initial[..6].copy_from_slice(&[0xc0, 0, 0, 0, 1, 8]);
            unknown_client.send_to(&initial, address).unwrap();
            unknown_client.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            assert!(unknown_client.recv(&mut [0; 2_000]).is_err(), "nothing comes back");
            ask_at(address, identity.fingerprint(), TOKEN, &spec())
        });
        assert!(report.is_err() && answered == 0);
        assert!(failed >= 1);
    }

    #[test]
    fn an_order_is_read_as_it_was_written_with_the_token_only() {
        let token = TestToken([7; TOKEN_BYTES]);
        let most =
            QuicStreamPurpose::Exchange { request_bytes: u32::MAX, response_bytes: u32::MAX };
        for order in [most, QuicStreamPurpose::Done] {
            assert_eq!(QuicStreamPurpose::decode(&order.encode(&token), &token).unwrap(), order);
            assert!(
                QuicStreamPurpose::decode(&order.encode(&token), &TestToken([8; TOKEN_BYTES]))
                    .is_err()
            );
        }
    }

    /// Another number would be another version of the protocol.
    #[test]
    fn the_numbers_of_orders_stay_what_they_are() {
        let small = QuicStreamPurpose::Exchange { request_bytes: 5, response_bytes: 6 };
        assert_eq!(small.encode(&TestToken([0; TOKEN_BYTES]))[TOKEN_BYTES..][..4], [1, 5, 6, 0]);
        assert_eq!(
            QuicStreamPurpose::Done.encode(&TestToken([0; TOKEN_BYTES]))[TOKEN_BYTES..][..2],
            [4, 0]
        );
    }

    #[test]
    fn no_bytes_make_an_order_panic() {
        let seed = Seed(0x6f72_6465);
        println!("seed {seed:?}");
        let mut random = seed.stream("order");
        for _ in 0..100_000 {
            let mut bytes = [0; PURPOSE_BYTES];
            random.fill(&mut bytes[TOKEN_BYTES..]);
            if random.random() {
                bytes[TOKEN_BYTES] %= 5;
            }
            let _either = QuicStreamPurpose::decode(&bytes, &TestToken([0; TOKEN_BYTES]));
        }
    }
}
