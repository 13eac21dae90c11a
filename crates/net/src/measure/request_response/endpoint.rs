//! The two sides of requests and responses in a test: who asks and who answers, and how they find each other.
//!
//! Every connection and every datagram shows the test's token first. What encrypts is authenticated by the
//! fingerprint that came over the control connection. Left out: the loops themselves.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use plumb_base::time::Span;
use plumb_sys::clock::{ClockId, read_ns};
use plumb_sys::errno::{is_disconnect, is_transient};
use plumb_sys::socket;

use super::closed_loop::{request_per_connection, respond_per_connection};
use super::{
    RequestError, RequestPacing, RequestSpec, RequesterReport, ResponderBounds, ResponderReport,
    open_loop, request_in_turn, udp, with_connect_time,
};
use crate::measure::bulk::Counter;
use crate::measure::connect::{DataConnectError, connect_udp};
use crate::measure::test_spec::{OVERRUN_NS, RequestResponsePart, TestSpec};
use crate::measure::{quic, tls};
use plumb_clock::{monotonic_ns, now};
use plumb_remote::address::BindAddress;
use plumb_remote::datagram_header::{TOKEN_BYTES, TestToken};
use plumb_remote::secure::{DeadlineStream, Fingerprint, HostIdentity};
use plumb_remote::task_control::TestControl;
use plumb_remote::{token_listener, udp_handshake};
use plumb_result::net::RequestTransport;

/// How long the side that asks shows its token before it gives up.
const HANDSHAKE_TIMEOUT: Span = Span::from_secs(5);
/// How long the side that answers waits for it: until well after a test must have begun.
const ACCEPT_TIMEOUT: Span = Span::from_secs(40);
/// How long the side that asks waits for a single step of a short connection.
const STEP_MAX: Duration = Duration::from_secs(5);
/// How long the side that answers takes for all of a short connection.
const SHORT_CONNECTION_TIMEOUT: Span = Span::from_secs(5);

/// How long before a test's connections are cut this side stops waiting by itself.
const STOP_MARGIN_NS: u64 = 150_000_000;

/// The side that asks.
#[derive(Debug)]
pub struct Requester {
    part: RequestResponsePart,
    test: TestSpec,
    token: TestToken,
    address: SocketAddr,
    pinned: Option<Fingerprint>,
    socket: RequesterSocket,
    progress: Counter,
}

#[derive(Debug)]
enum RequesterSocket {
    /// And how long it took to connect.
    Stream(TcpStream, u64),
    Datagrams(UdpSocket),
}

impl Requester {
    /// Connects to the agent's socket.
    ///
    /// # Errors
    /// [`DataConnectError`].
    pub fn connect(
        address: SocketAddr,
        token: TestToken,
        part: &RequestResponsePart,
        test: &TestSpec,
        pinned: Option<Fingerprint>,
    ) -> Result<Self, DataConnectError> {
        let socket = match part.transport {
            RequestTransport::Tcp | RequestTransport::Tls => Self::stream(address, token),
            RequestTransport::Udp | RequestTransport::Quic => {
                connect_udp(address).map(RequesterSocket::Datagrams)
            }
        };
        let socket = socket.map_err(|error| DataConnectError::of(address, &error))?;
        let (part, test) = (part.clone(), test.clone());
        Ok(Self { part, test, token, address, pinned, socket, progress: Counter::default() })
    }

    fn stream(address: SocketAddr, token: TestToken) -> io::Result<RequesterSocket> {
        let began = monotonic_ns();
        let stream = token_listener::connect_with_timeout(address)?;
        let connect_ns = monotonic_ns() - began;
        stream.set_nodelay(true)?;
        token_listener::send_preamble(&stream, 0, token)?;
        stream.set_read_timeout(None)?;
        Ok(RequesterSocket::Stream(stream, connect_ns))
    }

    /// Requests answered so far, with those of the warm-up.
    pub fn answered(&self) -> u64 {
        self.progress.get()
    }

    /// Ends what is blocked.
    pub fn shut_down(&self) {
        match &self.socket {
            RequesterSocket::Stream(stream, _) => drop(stream.shutdown(Shutdown::Both)),
            RequesterSocket::Datagrams(socket) => drop(socket::shut_down(socket.as_fd())),
        }
    }

    /// Asks from now on, for as long as the test lasts.
    pub fn run(&self, control: &TestControl) -> RequesterReport {
        let asked = match &self.socket {
            RequesterSocket::Stream(stream, connect_ns) => {
                self.request_over_stream(stream, *connect_ns, control)
            }
            RequesterSocket::Datagrams(socket) => self.request_over_udp(socket, control),
        };
        let mut report = asked.unwrap_or_else(RequestError::into_partial);
        if control.is_halted() {
            // Halting the test breaks its connections: that is no error.
            report.error = None;
        }
        report
    }

    fn request_over_stream(
        &self,
        mut stream: &TcpStream,
        connect_ns: u64,
        control: &TestControl,
    ) -> Result<RequesterReport, RequestError> {
        let (spec, progress) = (self.part.with_times_of(&self.test), &self.progress);
        let is_encrypted = self.part.transport == RequestTransport::Tls;
        let configuration = if is_encrypted { Some(self.configuration()?) } else { None };
        if self.part.pacing == RequestPacing::Connect {
            let asked = self.request_per_connection(&spec, configuration.as_ref(), control);
            stream.shutdown(Shutdown::Write).ok();
            return asked;
        }
        let is_over = self.is_over(control);
        let close = || drop(stream.shutdown(Shutdown::Both));
        let began = monotonic_ns();
        let secure = configuration.map(|configuration| tls::connect(stream, &configuration));
        let secure = secure.transpose().map_err(RequestError::before_first)?;
        let stood_ns = connect_ns + if is_encrypted { monotonic_ns() - began } else { 0 };
        let asked = match (self.part.pacing, secure) {
            (RequestPacing::Open { per_second }, None) => open_loop::send_requests(
                (stream, stream, close),
                &spec,
                per_second,
                progress,
                &is_over,
            ),
            (RequestPacing::Open { per_second }, Some(secure)) => {
                let (mut reader, mut writer) =
                    tls::split(secure).map_err(RequestError::before_first)?;
                let halves = (&mut reader, &mut writer, close);
                let report =
                    open_loop::send_requests(halves, &spec, per_second, progress, &is_over)?;
                // The peer has answered everything, so it does not matter whether this arrives.
                writer.send_close_notify().ok();
                Ok(report)
            }
            (_, None) => request_in_turn(&mut stream, &spec, progress),
            (_, Some(mut secure)) => {
                let report = request_in_turn(&mut secure, &spec, progress)?;
                secure.conn.send_close_notify();
                secure.flush().ok();
                Ok(report)
            }
        };
        stream.shutdown(Shutdown::Write).ok();
        asked.map(|report| with_connect_time(report, stood_ns))
    }

    fn request_per_connection(
        &self,
        spec: &RequestSpec,
        configuration: Option<&Arc<rustls::ClientConfig>>,
        control: &TestControl,
    ) -> Result<RequesterReport, RequestError> {
        let (token, progress) = (&self.token.0, &self.progress);
        let is_halted = || control.is_halted();
        let Some(configuration) = configuration else {
            let connect = || self.connect_once();
            return request_per_connection(spec, token, progress, connect, is_halted);
        };
        let connect = || {
            let mut stream = self.connect_once()?;
            stream.write_all(token)?;
            tls::connect(stream, configuration)
        };
        request_per_connection(spec, &[], progress, connect, is_halted)
    }

    /// Whether the test was halted, or the time for what is still under way has passed.
    fn is_over<'a>(&self, control: &'a TestControl) -> impl Fn() -> bool + use<'a> {
        let long_ns = self.test.planned_ns().saturating_add(OVERRUN_NS - STOP_MARGIN_NS);
        let long_ns = long_ns.saturating_add(self.test.drain_ns);
        let until_ns = control.began_ns().map_or(u64::MAX, |began| began.saturating_add(long_ns));
        move || control.is_halted() || monotonic_ns() >= until_ns
    }

    fn configuration(&self) -> Result<Arc<rustls::ClientConfig>, RequestError> {
        let configuration = tls::client_configuration(Some(self.pin()?));
        configuration
            .map(Arc::new)
            .map_err(|error| RequestError::before_first(io::Error::other(error)))
    }

    /// Nobody is spoken to whom the agent did not name.
    fn pin(&self) -> Result<Fingerprint, RequestError> {
        let missing = || io::Error::other("the agent gave no certificate for it");
        self.pinned.ok_or_else(|| RequestError::before_first(missing()))
    }

    fn connect_once(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.address, STEP_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STEP_MAX))?;
        Ok(stream)
    }

    fn request_over_udp(
        &self,
        socket: &UdpSocket,
        control: &TestControl,
    ) -> Result<RequesterReport, RequestError> {
        let (spec, token) = (self.part.with_times_of(&self.test), &self.token);
        udp_handshake::connect(socket, token, 0, HANDSHAKE_TIMEOUT, control.stop_flag())
            .map_err(|error| RequestError::before_first(io::Error::other(error)))?;
        let is_over = self.is_over(control);
        if self.part.transport == RequestTransport::Udp {
            let asked = udp::send_requests(socket, token, &spec, &self.progress, &is_over);
            udp::send_end(socket, token);
            return asked;
        }
        let pinned = self.pin()?;
        let own = socket.try_clone().map_err(RequestError::before_first)?;
        let is_halted = || control.is_halted();
        // One after another, nothing is under way when the time is over, and no clock is read to know that.
        let is_paced = matches!(self.part.pacing, RequestPacing::Open { .. });
        let is_over: &dyn Fn() -> bool = if is_paced { &is_over } else { &is_halted };
        quic::send_requests(own, self.address, pinned, *token, &spec, &self.progress, is_over)
    }
}

/// The side that answers.
#[derive(Debug)]
pub struct Responder {
    part: RequestResponsePart,
    test: TestSpec,
    token: TestToken,
    rate_max: Option<u64>,
    certificate: Option<TestCertificate>,
    socket: ResponderSocket,
}

/// A key of this test only, and what a TLS server makes of it.
#[derive(Debug)]
struct TestCertificate {
    identity: HostIdentity,
    configuration: Arc<rustls::ServerConfig>,
}

impl TestCertificate {
    fn generate() -> io::Result<Self> {
        let identity = HostIdentity::generate().map_err(io::Error::other)?;
        let configuration = tls::server_configuration(&identity).map_err(io::Error::other)?;
        Ok(Self { identity, configuration: Arc::new(configuration) })
    }
}

#[derive(Debug)]
enum ResponderSocket {
    Listener(TcpListener),
    /// And the first connection that showed the token.
    Accepted(TcpListener, TcpStream),
    Socket(UdpSocket),
}

impl Responder {
    /// A socket for whoever shows the token.
    ///
    /// # Errors
    /// The kernel's; without randomness for a key.
    pub fn bind(
        part: &RequestResponsePart,
        test: &TestSpec,
        token: TestToken,
        rate_max: Option<u64>,
        at: BindAddress,
    ) -> io::Result<Self> {
        let certificate = match part.transport {
            RequestTransport::Tls | RequestTransport::Quic => Some(TestCertificate::generate()?),
            RequestTransport::Tcp | RequestTransport::Udp => None,
        };
        let socket = match part.transport {
            RequestTransport::Tcp | RequestTransport::Tls => {
                let listener = at.open(TcpListener::bind)?;
                listener.set_nonblocking(true)?;
                ResponderSocket::Listener(listener)
            }
            RequestTransport::Udp | RequestTransport::Quic => {
                ResponderSocket::Socket(at.open(UdpSocket::bind)?)
            }
        };
        let (part, test) = (part.clone(), test.clone());
        Ok(Self { part, test, token, rate_max, certificate, socket })
    }

    /// Where it is found.
    ///
    /// # Errors
    /// The kernel's.
    pub fn port(&self) -> io::Result<u16> {
        let address = match &self.socket {
            ResponderSocket::Listener(listener) | ResponderSocket::Accepted(listener, _) => {
                listener.local_addr()
            }
            ResponderSocket::Socket(socket) => socket.local_addr(),
        };
        address.map(|address| address.port())
    }

    /// The fingerprint of its certificate, where it has one.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.certificate.as_ref().map(|key| key.identity.fingerprint())
    }

    /// Waits for the connection, where there is one to wait for.
    ///
    /// # Errors
    /// It did not come in time, the test was halted, and the kernel's.
    pub fn accept(&mut self, until_ns: u64, control: &TestControl) -> io::Result<()> {
        let ResponderSocket::Listener(listener) = &self.socket else { return Ok(()) };
        let mut came =
            token_listener::accept_all(listener, 1, self.token, until_ns, control, |_, stream| {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(None)?;
                Ok(stream)
            })?;
        if let Some(stream) = came.pop() {
            self.socket = ResponderSocket::Accepted(listener.try_clone()?, stream);
        }
        Ok(())
    }

    /// Ends what is blocked.
    pub fn shut_down(&self) {
        match &self.socket {
            ResponderSocket::Accepted(_, stream) => drop(stream.shutdown(Shutdown::Both)),
            ResponderSocket::Socket(socket) if self.part.transport == RequestTransport::Udp => {
                drop(socket::shut_down(socket.as_fd()));
            }
            ResponderSocket::Socket(_) | ResponderSocket::Listener(_) => {}
        }
    }

    /// Answers until the other side is done, the test is halted, or `Self::cut`.
    pub fn run(&self, deadline_ns: impl Fn() -> u64, control: &TestControl) -> ResponderReport {
        let cpu = read_ns(ClockId::ThreadCpu);
        let is_over = || control.is_halted() || monotonic_ns() >= deadline_ns();
        let mut report = match &self.socket {
            ResponderSocket::Accepted(listener, stream)
                if self.part.pacing == RequestPacing::Connect =>
            {
                self.respond_per_connection(listener, stream, &deadline_ns, is_over)
            }
            ResponderSocket::Accepted(_, stream) => {
                self.respond_over_stream(stream, control, is_over)
            }
            ResponderSocket::Socket(socket) => self.respond_over_udp(socket, is_over),
            // It is not asked to work before it has met.
            ResponderSocket::Listener(_) => ResponderReport::default(),
        };
        report.cpu_ns = read_ns(ClockId::ThreadCpu) - cpu;
        if control.is_halted() {
            report.error = None;
        }
        report
    }

    fn bounds<'a>(&self, is_over: &'a dyn Fn() -> bool) -> ResponderBounds<'a> {
        ResponderBounds { bytes_per_second: self.rate_max, is_over }
    }

    fn respond_over_stream(
        &self,
        mut stream: &TcpStream,
        control: &TestControl,
        is_over: impl Fn() -> bool,
    ) -> ResponderReport {
        let (spec, bounds) = (self.part.with_times_of(&self.test), self.bounds(&is_over));
        let mut report = ResponderReport::default();
        let count = &mut report.answered;
        let outcome = match &self.certificate {
            None => super::respond_in_turn(&mut stream, &spec, bounds, count),
            Some(key) => tls::accept(stream, &key.configuration)
                .and_then(|mut secure| super::respond_in_turn(&mut secure, &spec, bounds, count)),
        };
        stream.shutdown(Shutdown::Both).ok();
        let is_end = |error: &io::Error| is_disconnect(error) && control.is_stop_requested(true);
        report.error = outcome.err().filter(|error| !is_end(error)).map(|error| error.to_string());
        report
    }

    fn respond_per_connection(
        &self,
        listener: &TcpListener,
        leash: &TcpStream,
        deadline_ns: &dyn Fn() -> u64,
        is_over: impl Fn() -> bool,
    ) -> ResponderReport {
        let spec = self.part.with_times_of(&self.test);
        let (mut request, response) = (spec.request(), spec.response());
        // The first connection stays until the client is done: its end is the end.
        let is_gone = || !matches!(leash.peek(&mut [0]), Err(error) if is_transient(&error));
        let is_over = || is_over() || is_gone();
        let bounds = self.bounds(&is_over);
        let size = u64::from(spec.request_bytes) + u64::from(spec.response_bytes);
        let (began_ns, mut bytes) = (monotonic_ns(), 0);
        let mut serve = |stream: TcpStream| {
            stream.set_nodelay(true)?;
            let left = Span::from_ns(deadline_ns().saturating_sub(monotonic_ns()));
            let longest = left.min(SHORT_CONNECTION_TIMEOUT);
            let mut stream = DeadlineStream::new(stream, now() + longest, longest);
            let mut token = [0; TOKEN_BYTES];
            stream.read_exact(&mut token)?;
            if !self.token.matches_prefix(&token) {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            if let Some(key) = &self.certificate {
                let mut secure = tls::accept(&mut stream, &key.configuration)?;
                secure.read_exact(&mut request)?;
                secure.write_all(&response)?;
                secure.conn.send_close_notify();
                secure.flush()?;
            } else {
                stream.read_exact(&mut request)?;
                stream.write_all(&response)?;
            }
            bytes += size;
            bounds.allow(began_ns, bytes)
        };
        let outcome = leash
            .set_nonblocking(true)
            .and_then(|()| leash.peer_addr())
            .and_then(|client| respond_per_connection(listener, client.ip(), &mut serve, is_over));
        report_of(outcome)
    }

    fn respond_over_udp(&self, socket: &UdpSocket, is_over: impl Fn() -> bool) -> ResponderReport {
        let (spec, token) = (self.part.with_times_of(&self.test), &self.token);
        let met = udp_handshake::accept(socket, token, ACCEPT_TIMEOUT, &is_over);
        let client = match met.map_err(io::Error::other) {
            Ok(client) => client,
            Err(error) => return report_of(Err(error)),
        };
        if socket.set_read_timeout(None).is_err() {
            return report_of(Err(io::Error::other("its socket cannot wait")));
        }
        let Some(key) = &self.certificate else {
            return udp::respond(socket, token, &spec, self.bounds(&is_over));
        };
        report_of(socket.try_clone().and_then(|socket| {
            let (identity, client) = (&key.identity, client.ip());
            let server =
                quic::QuicResponder::new(socket, identity, *token, client, &spec, self.rate_max)?;
            let failed = server.run(is_over)?;
            Ok((server.answered(), failed))
        }))
    }
}

/// How many were answered and how many were strange, or what broke.
fn report_of(outcome: io::Result<(u64, u64)>) -> ResponderReport {
    let (answered, strange) = *outcome.as_ref().unwrap_or(&(0, 0));
    let error = outcome.err().map(|error| error.to_string());
    ResponderReport { answered, strange, error, ..ResponderReport::default() }
}
