//! QUIC as a transport to be measured, through quinn: a thread of its own on each side.
//!
//! The runtime stands between a clock read and the kernel here, as it does in every program that
//! uses such a library; a figure of this file is one of the library as well. Left out: what is asked
//! ([`super::transport`]).

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plumb_sys::clock::{Clock, read_ns};
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{Connection, Endpoint, EndpointConfig, RecvStream, SendStream, TokioRuntime, VarInt};

use super::exchange::turns::{Progress, Turns};
use super::exchange::{self, ExchangeError, ExchangeReport, ExchangeSpec, Pacing};
use super::tls::{self, TransportError};
use super::transport::{
    self, BLOCK_BYTES, Bulk, COUNT_BYTES, Count, ORDER_BYTES, Order, Standing, Transport,
    TransportReport, TransportSpec,
};
use crate::clock::steady_ns;
use crate::secure::identity::NAME;
use crate::secure::{Fingerprint, Identity};

/// Connections that a server serves at a time.
const CONNECTIONS_MAX: usize = 8;
/// Silence after which a connection is over.
const IDLE_MS: u32 = 5_000;
/// Protocol of the application, which QUIC wants named.
const ALPN: &[u8] = b"plumb-measure";
/// How often the server looks whether it should stop.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The server of one session.
#[derive(Debug)]
pub struct Server {
    socket: UdpSocket,
    configuration: quinn::ServerConfig,
    token: [u8; 16],
    /// Nobody else is heard, so nothing is sent to anybody else.
    client: IpAddr,
    service: Arc<Service>,
}

/// What is done on connections, and what came of it.
#[derive(Debug, Default)]
struct Service {
    /// The only requests and responses that are served, and nothing else then.
    agreed: Option<ExchangeSpec>,
    /// The most that they take and give, in bytes a second.
    bytes_per_second: Option<u64>,
    answered: Progress,
    /// The client says that it is done.
    is_over: AtomicBool,
}

impl Server {
    /// A server for one client on a socket.
    ///
    /// # Errors
    /// A damaged identity.
    pub fn new(
        socket: UdpSocket,
        identity: &Identity,
        token: [u8; 16],
        client: IpAddr,
    ) -> Result<Self, TransportError> {
        let setup = |error: &dyn ToString| TransportError::Setup(error.to_string());
        let mut tls = tls::server_configuration(identity).map_err(|error| setup(&error))?;
        tls.alpn_protocols = vec![ALPN.to_vec()];
        let crypto = QuicServerConfig::try_from(tls).map_err(|error| setup(&error))?;
        let mut configuration = quinn::ServerConfig::with_crypto(Arc::new(crypto));
        configuration.transport_config(Arc::new(transport_configuration()));
        // The client does not move; an address that appears in the middle is not followed.
        configuration.migration(false);
        Ok(Self { socket, configuration, token, client, service: Arc::default() })
    }

    /// Serves requests and responses of these sizes alone, at no more than so many bytes a second.
    #[must_use]
    pub fn for_exchange(mut self, spec: &ExchangeSpec, bytes_per_second: Option<u64>) -> Self {
        let agreed = Some(spec.clone());
        self.service = Arc::new(Service { agreed, bytes_per_second, ..Service::default() });
        self
    }

    /// Requests answered.
    pub fn answered(&self) -> u64 {
        self.service.answered.count()
    }

    /// Serves until the deadline by the steady clock, or until `stop` says so; connections and
    /// streams that were refused or broke.
    ///
    /// # Errors
    /// The socket's, and without a runtime.
    pub fn run(&self, deadline_ns: u64, stop: impl Fn() -> bool) -> io::Result<u64> {
        runtime()?.block_on(async {
            let endpoint = Endpoint::new(
                EndpointConfig::default(),
                Some(self.configuration.clone()),
                self.socket.try_clone()?,
                Arc::new(TokioRuntime),
            )?;
            let failed = self.accept(&endpoint, deadline_ns, stop).await;
            tokio::time::timeout(Duration::from_secs(1), endpoint.wait_idle()).await.ok();
            Ok(failed)
        })
    }

    async fn accept(&self, endpoint: &Endpoint, deadline_ns: u64, stop: impl Fn() -> bool) -> u64 {
        let mut failed = 0;
        let mut tasks: Vec<tokio::task::JoinHandle<io::Result<()>>> = Vec::new();
        let is_over = || self.service.is_over.load(Ordering::Relaxed);
        while steady_ns() < deadline_ns && !stop() && !is_over() {
            let mut index = 0;
            while index < tasks.len() {
                if tasks[index].is_finished() {
                    let outcome = tasks.swap_remove(index).await;
                    failed += u64::from(!matches!(outcome, Ok(Ok(()))));
                } else {
                    index += 1;
                }
            }
            let incoming = match tokio::time::timeout(LOOK_EVERY, endpoint.accept()).await {
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
                service.serve(&connection, &token, deadline_ns).await
            }));
        }
        endpoint.close(VarInt::from_u32(0), b"over");
        for task in tasks {
            let outcome = tokio::time::timeout(Duration::from_secs(1), task).await;
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

impl Service {
    /// Serves the streams of one connection, one after another, until the client closes it.
    async fn serve(
        &self,
        connection: &Connection,
        token: &[u8; 16],
        deadline_ns: u64,
    ) -> io::Result<()> {
        loop {
            match connection.accept_bi().await {
                Ok((mut send, mut receive)) => {
                    self.obey(&mut send, &mut receive, token, deadline_ns).await?;
                }
                Err(
                    quinn::ConnectionError::ApplicationClosed(_)
                    | quinn::ConnectionError::LocallyClosed,
                ) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    async fn obey(
        &self,
        send: &mut SendStream,
        receive: &mut RecvStream,
        token: &[u8; 16],
        deadline_ns: u64,
    ) -> io::Result<()> {
        let mut order = [0; ORDER_BYTES];
        receive.read_exact(&mut order).await.map_err(io::Error::other)?;
        let order = Order::decode(&order, token)?;
        if !self.has_agreed(order) {
            let why = "another measurement was agreed on";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        match order {
            Order::Nothing => send.write_all(&[1]).await?,
            Order::Over => {
                send.write_all(&[1]).await?;
                self.is_over.store(true, Ordering::Relaxed);
            }
            Order::Exchange { request_bytes, response_bytes } => {
                let spec = ExchangeSpec {
                    request_bytes,
                    response_bytes,
                    pacing: Pacing::Closed,
                    warm_up_ns: 0,
                    duration_ns: 1,
                };
                spec.check().map_err(io::Error::other)?;
                self.answer(send, receive, &spec, deadline_ns).await?;
            }
            Order::Up => {
                let (count, _) = drain(receive, deadline_ns).await?;
                send.write_all(&count.encode()).await?;
            }
            Order::Down { duration_ns } => {
                let cpu = read_ns(Clock::ThreadCpu);
                pour(send, duration_ns).await?;
                let cpu_ns = read_ns(Clock::ThreadCpu) - cpu;
                send.write_all(&Count { cpu_ns, ..Count::default() }.encode()).await?;
            }
        }
        send.finish().map_err(io::Error::other)
    }

    fn has_agreed(&self, order: Order) -> bool {
        match (&self.agreed, order) {
            (None, _) | (Some(_), Order::Over) => true,
            (Some(spec), Order::Exchange { request_bytes, response_bytes }) => {
                (spec.request_bytes, spec.response_bytes) == (request_bytes, response_bytes)
            }
            (Some(_), Order::Nothing | Order::Up | Order::Down { .. }) => false,
        }
    }

    async fn answer(
        &self,
        send: &mut SendStream,
        receive: &mut RecvStream,
        spec: &ExchangeSpec,
        deadline_ns: u64,
    ) -> io::Result<()> {
        let mut request = vec![0_u8; spec.request_bytes as usize];
        let response = vec![0x61_u8; spec.response_bytes as usize];
        let (began_ns, mut bytes) = (steady_ns(), 0_u128);
        while steady_ns() < deadline_ns {
            let Some(first) = receive.read(&mut request).await? else { return Ok(()) };
            receive.read_exact(&mut request[first..]).await.map_err(io::Error::other)?;
            send.write_all(&response).await?;
            self.answered.add_one();
            if let Some(rate) = self.bytes_per_second {
                bytes += u128::from(spec.request_bytes) + u128::from(spec.response_bytes);
                let after = bytes * 1_000_000_000 / u128::from(rate.max(1));
                wait_until(began_ns + u64::try_from(after).unwrap_or(u64::MAX / 2)).await;
            }
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the test went on beyond its deadline"))
    }
}

/// Lets the runtime do other things until the steady clock shows `until_ns`.
async fn wait_until(until_ns: u64) {
    let left = until_ns.saturating_sub(steady_ns());
    if left > 0 {
        tokio::time::sleep(Duration::from_nanos(left)).await;
    }
}

async fn pour(send: &mut SendStream, duration_ns: u64) -> io::Result<()> {
    let block = vec![0x64_u8; BLOCK_BYTES];
    let end = steady_ns() + duration_ns;
    while steady_ns() < end {
        send.write_all(&block).await?;
    }
    Ok(())
}

/// Counts until the end of the stream; with its last bytes.
async fn drain(receive: &mut RecvStream, deadline_ns: u64) -> io::Result<(Count, Vec<u8>)> {
    let mut block = vec![0_u8; BLOCK_BYTES];
    let mut tail = Vec::with_capacity(COUNT_BYTES);
    let cpu = read_ns(Clock::ThreadCpu);
    let (mut bytes, mut first, mut last) = (0, None, 0);
    while let Some(read) = receive.read(&mut block).await? {
        last = steady_ns();
        first.get_or_insert(last);
        bytes += u64::try_from(read).unwrap_or(0);
        transport::keep_last(&mut tail, &block[..read]);
        if last > deadline_ns {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "bulk data beyond its deadline"));
        }
    }
    let cpu_ns = read_ns(Clock::ThreadCpu) - cpu;
    Ok((Count { bytes, duration_ns: last - first.unwrap_or(last), cpu_ns }, tail))
}

/// Measures QUIC against a [`Server`] whose certificate is pinned.
///
/// # Errors
/// [`TransportError`].
pub fn measure(
    address: SocketAddr,
    pinned: Fingerprint,
    spec: &TransportSpec,
) -> Result<TransportReport, TransportError> {
    let client = Client { address, configuration: client_configuration(pinned)?, spec };
    let runtime = runtime().map_err(|error| TransportError::Setup(error.to_string()))?;
    runtime.block_on(client.measure())
}

/// The requests and responses of a spec alone, from a socket whose peer is ready; at the end the server is
/// told that it is over.
///
/// # Errors
/// [`ExchangeError`].
pub fn ask(
    socket: UdpSocket,
    address: SocketAddr,
    pinned: Fingerprint,
    spec: &TransportSpec,
    progress: &Progress,
    is_halted: &dyn Fn() -> bool,
) -> Result<ExchangeReport, ExchangeError> {
    spec.exchange.check()?;
    let other = |error: TransportError| ExchangeError::at_once(io::Error::other(error));
    let configuration = client_configuration(pinned).map_err(other)?;
    let client = Client { address, configuration, spec };
    let runtime = runtime().map_err(ExchangeError::at_once)?;
    runtime.block_on(async {
        let runtime = Arc::new(TokioRuntime);
        let endpoint = Endpoint::new(EndpointConfig::default(), None, socket, runtime)
            .map_err(ExchangeError::at_once)?;
        let asked = if spec.exchange.pacing == Pacing::Connect {
            client.ask_each(&endpoint, progress, is_halted).await
        } else {
            client.ask_over_one(&endpoint, progress, is_halted).await
        };
        // The other side is told, or it has gone.
        tokio::time::timeout(Duration::from_secs(1), endpoint.wait_idle()).await.ok();
        asked
    })
}

fn client_configuration(pinned: Fingerprint) -> Result<quinn::ClientConfig, TransportError> {
    let setup = |error: &dyn ToString| TransportError::Setup(error.to_string());
    let mut tls = tls::client_configuration(pinned).map_err(|error| setup(&error))?;
    tls.alpn_protocols = vec![ALPN.to_vec()];
    let crypto = QuicClientConfig::try_from(tls).map_err(|error| setup(&error))?;
    let mut configuration = quinn::ClientConfig::new(Arc::new(crypto));
    configuration.transport_config(Arc::new(transport_configuration()));
    Ok(configuration)
}

struct Client<'a> {
    address: SocketAddr,
    configuration: quinn::ClientConfig,
    spec: &'a TransportSpec,
}

impl Client<'_> {
    async fn measure(&self) -> Result<TransportReport, TransportError> {
        let any: IpAddr = if self.address.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
        let endpoint = Endpoint::client((any, 0).into())
            .map_err(|error| TransportError::Setup(error.to_string()))?;
        let mut standing = Vec::with_capacity(usize::from(self.spec.connections));
        for _ in 0..self.spec.connections {
            let (connection, stood) = self.connect(&endpoint).await?;
            self.ask_nothing(&connection).await.map_err(broken)?;
            connection.close(VarInt::from_u32(0), b"over");
            standing.push(stood);
        }
        let (connection, _) = self.connect(&endpoint).await?;
        let exchange = self.ask_exchange(&connection, &Progress::default(), &|| false).await?;
        let up = self.ask_up(&connection).await.map_err(broken)?;
        let down = self.ask_down(&connection).await.map_err(broken)?;
        connection.close(VarInt::from_u32(0), b"over");
        // The other side is told, or it has gone.
        tokio::time::timeout(Duration::from_secs(1), endpoint.wait_idle()).await.ok();
        Ok(TransportReport { transport: Transport::Quic, standing, exchange, up, down })
    }

    async fn connect(&self, endpoint: &Endpoint) -> Result<(Connection, Standing), TransportError> {
        let address = self.address;
        let fault = |error| TransportError::Connect { transport: Transport::Quic, address, error };
        let cpu = read_ns(Clock::ThreadCpu);
        let began = steady_ns();
        let connection = endpoint
            .connect_with(self.configuration.clone(), address, NAME)
            .map_err(|error| fault(io::Error::other(error)))?
            .await
            .map_err(|error| fault(error.into()))?;
        let handshake_ns = steady_ns() - began;
        let cpu_ns = read_ns(Clock::ThreadCpu) - cpu;
        Ok((connection, Standing { connect_ns: 0, handshake_ns, cpu_ns }))
    }

    async fn open(
        &self,
        connection: &Connection,
        order: Order,
    ) -> io::Result<(SendStream, RecvStream)> {
        let (mut send, receive) = connection.open_bi().await?;
        send.write_all(&order.encode(&self.spec.token)).await?;
        Ok((send, receive))
    }

    async fn ask_nothing(&self, connection: &Connection) -> io::Result<()> {
        let (mut send, mut receive) = self.open(connection, Order::Nothing).await?;
        send.finish().map_err(io::Error::other)?;
        receive.read_exact(&mut [0]).await.map_err(io::Error::other)
    }

    /// Over one connection, whose standing is noted; then the server is told that it is over.
    async fn ask_over_one(
        &self,
        endpoint: &Endpoint,
        progress: &Progress,
        is_halted: &dyn Fn() -> bool,
    ) -> Result<ExchangeReport, ExchangeError> {
        let other = |error: TransportError| ExchangeError::at_once(io::Error::other(error));
        let (connection, stood) = self.connect(endpoint).await.map_err(other)?;
        let asked = self.ask_exchange(&connection, progress, is_halted).await;
        self.say_over(&connection).await;
        Ok(exchange::with_connection(asked?, stood.handshake_ns))
    }

    /// Each over a connection of its own.
    async fn ask_each(
        &self,
        endpoint: &Endpoint,
        progress: &Progress,
        is_halted: &dyn Fn() -> bool,
    ) -> Result<ExchangeReport, ExchangeError> {
        let request = vec![0x71_u8; self.spec.exchange.request_bytes as usize];
        let mut response = vec![0_u8; self.spec.exchange.response_bytes as usize];
        let mut turns = Turns::new(&self.spec.exchange, progress);
        while !is_halted()
            && let Some(due) = turns.due()
        {
            match self.ask_once(endpoint, &request, &mut response).await {
                Ok(connect_ns) => {
                    turns.answered(due);
                    turns.connected(due, connect_ns);
                }
                Err(error) => return Err(turns.broken(error)),
            }
        }
        let report = turns.conclude();
        if let Ok((connection, _)) = self.connect(endpoint).await {
            self.say_over(&connection).await;
        }
        Ok(report)
    }

    /// How long the connection took to stand.
    async fn ask_once(
        &self,
        endpoint: &Endpoint,
        request: &[u8],
        response: &mut [u8],
    ) -> io::Result<u64> {
        let (connection, stood) = self.connect(endpoint).await.map_err(io::Error::other)?;
        let (mut send, mut receive) = self.open(&connection, self.exchange_order()).await?;
        send.write_all(request).await?;
        send.finish().map_err(io::Error::other)?;
        receive.read_exact(response).await.map_err(io::Error::other)?;
        connection.close(VarInt::from_u32(0), b"over");
        Ok(stood.handshake_ns)
    }

    /// A server that does not hear it ends by its own deadline.
    async fn say_over(&self, connection: &Connection) {
        if let Ok((mut send, mut receive)) = self.open(connection, Order::Over).await {
            send.finish().ok();
            receive.read_exact(&mut [0]).await.ok();
        }
        connection.close(VarInt::from_u32(0), b"over");
    }

    const fn exchange_order(&self) -> Order {
        let ExchangeSpec { request_bytes, response_bytes, .. } = self.spec.exchange;
        Order::Exchange { request_bytes, response_bytes }
    }

    async fn ask_exchange(
        &self,
        connection: &Connection,
        progress: &Progress,
        is_halted: &dyn Fn() -> bool,
    ) -> Result<ExchangeReport, ExchangeError> {
        let spec = &self.spec.exchange;
        spec.check()?;
        let (mut send, mut receive) =
            self.open(connection, self.exchange_order()).await.map_err(ExchangeError::at_once)?;
        let request = vec![0x71_u8; spec.request_bytes as usize];
        let mut response = vec![0_u8; spec.response_bytes as usize];
        let mut turns = Turns::new(spec, progress);
        while !is_halted()
            && let Some(due) = turns.due()
        {
            if turns.is_paced() {
                wait_until(due).await;
                turns.note_start(due, steady_ns());
            }
            let asked = async {
                send.write_all(&request).await?;
                receive.read_exact(&mut response).await.map_err(io::Error::other)
            };
            if let Err(error) = asked.await {
                return Err(turns.broken(error));
            }
            turns.answered(due);
        }
        let report = turns.conclude();
        send.finish().ok();
        Ok(report)
    }

    async fn ask_up(&self, connection: &Connection) -> io::Result<Bulk> {
        let (mut send, mut receive) = self.open(connection, Order::Up).await?;
        let cpu = read_ns(Clock::ThreadCpu);
        pour(&mut send, self.spec.bulk_ns).await?;
        send.finish().map_err(io::Error::other)?;
        let mut count = [0; COUNT_BYTES];
        receive.read_exact(&mut count).await.map_err(io::Error::other)?;
        // What is still under way is sent by this thread too, until the count has come.
        let cpu_client_ns = read_ns(Clock::ThreadCpu) - cpu;
        let Count { bytes, duration_ns, cpu_ns } = Count::decode(&count);
        Ok(Bulk { bytes, duration_ns, cpu_client_ns, cpu_server_ns: cpu_ns })
    }

    async fn ask_down(&self, connection: &Connection) -> io::Result<Bulk> {
        let order = Order::Down { duration_ns: self.spec.bulk_ns };
        let (mut send, mut receive) = self.open(connection, order).await?;
        let deadline_ns = steady_ns().saturating_add(self.spec.bulk_ns) + 30_000_000_000;
        let (count, tail) = drain(&mut receive, deadline_ns).await?;
        send.finish().map_err(io::Error::other)?;
        let server = transport::last_count(&tail)?;
        let Count { bytes, duration_ns, cpu_ns } = count;
        let bytes = bytes.saturating_sub(u64::try_from(COUNT_BYTES).unwrap_or(0));
        Ok(Bulk { bytes, duration_ns, cpu_client_ns: cpu_ns, cpu_server_ns: server.cpu_ns })
    }
}

fn broken(error: io::Error) -> TransportError {
    TransportError::Broken { transport: Transport::Quic, error }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::super::tls::tests::short_spec;
    use super::*;

    fn with_server(
        identity: &Identity,
        client: Ipv4Addr,
        test: impl FnOnce(SocketAddr) -> Result<TransportReport, TransportError>,
    ) -> (Result<TransportReport, TransportError>, u64) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let server = Server::new(socket, identity, [7; 16], IpAddr::V4(client)).unwrap();
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

    #[test]
    fn quic_answers_the_same_questions_as_tcp() {
        let identity = Identity::generate().unwrap();
        let spec = short_spec([7; 16]);
        let (report, failed) = with_server(&identity, Ipv4Addr::LOCALHOST, |address| {
            measure(address, identity.fingerprint(), &spec)
        });
        let report = report.unwrap();
        assert_eq!((report.standing.len(), failed), (3, 0));
        assert!(report.standing.iter().all(|stood| stood.handshake_ns > 0 && stood.cpu_ns > 0));
        assert!(report.exchange.answered > 0);
        for bulk in [report.up, report.down] {
            assert!(bulk.duration_ns > 0 && bulk.cpu_client_ns > 0 && bulk.cpu_server_ns > 0);
            assert!(bulk.bytes > 0, "{bulk:?}");
            assert_eq!(bulk.bytes % u64::try_from(BLOCK_BYTES).unwrap(), 0);
        }
    }

    #[test]
    fn another_certificate_or_a_wrong_token_is_refused() {
        let identity = Identity::generate().unwrap();
        let spec = short_spec([7; 16]);
        let (report, _) = with_server(&identity, Ipv4Addr::LOCALHOST, |address| {
            measure(address, Fingerprint::of(b"another"), &spec)
        });
        assert!(matches!(report, Err(TransportError::Connect { .. })), "{report:?}");
        let wrong = short_spec([8; 16]);
        let (report, failed) = with_server(&identity, Ipv4Addr::LOCALHOST, |address| {
            measure(address, identity.fingerprint(), &wrong)
        });
        assert!(matches!(report, Err(TransportError::Broken { .. })), "{report:?}");
        assert_eq!(failed, 1);
    }

    #[test]
    fn a_port_that_has_not_shown_that_it_hears_us_is_sent_one_retry_and_no_more() {
        let identity = Identity::generate().unwrap();
        let pinned = identity.fingerprint();
        let (report, _) = with_server(&identity, Ipv4Addr::LOCALHOST, |address| {
            // The first datagram of a client, sent again from a port that never answers.
            let middle = UdpSocket::bind("127.0.0.1:0").unwrap();
            middle.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let at = middle.local_addr().unwrap();
            thread::spawn(move || measure(at, pinned, &short_spec([7; 16])));
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
            measure(address, pinned, &short_spec([7; 16]))
        });
        assert!(report.is_ok(), "{report:?}");
    }

    #[test]
    fn an_address_that_did_not_ask_hears_nothing() {
        let identity = Identity::generate().unwrap();
        let elsewhere = Ipv4Addr::new(127, 0, 0, 9);
        let (report, failed) = with_server(&identity, elsewhere, |address| {
            let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
            // What looks like a QUIC Initial of version 1 at full size.
            let mut initial = vec![0_u8; 1_200];
            initial[..6].copy_from_slice(&[0xc0, 0, 0, 0, 1, 8]);
            stranger.send_to(&initial, address).unwrap();
            stranger.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            assert!(stranger.recv(&mut [0; 2_000]).is_err(), "nothing comes back");
            measure(address, identity.fingerprint(), &short_spec([7; 16]))
        });
        assert!(report.is_err());
        assert!(failed >= 1);
    }
}
