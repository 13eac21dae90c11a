//! The two sides of requests and responses in a test: who asks and who answers, and how they find each other.
//!
//! Every connection and every datagram shows the test's token first. What encrypts is authenticated by the
//! fingerprint that came over the control connection. Left out: the loops themselves.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::Duration;

use plumb_base::time::Span;
use plumb_sys::clock::{Clock, read_ns};
use plumb_sys::inet;

use super::turns::Progress;
use super::{Bounds, ExchangeError, ExchangeReport, Pacing, ResponsesReport};
use super::{ask_in_turn, datagram, each, open, with_connection};
use crate::clock::steady_ns;
use crate::measure::bind::Bind;
use crate::measure::control::Control;
use crate::measure::datagram::meeting;
use crate::measure::run::OVERRUN_NS;
use crate::measure::spec::{ExchangePart, TestSpec};
use crate::measure::stream::{self, ConnectError};
use crate::measure::transport::Transport;
use crate::measure::{quic, tls};
use crate::protocol::token::{TOKEN_BYTES, Token};
use crate::secure::{Fingerprint, Identity};

/// How long the side that asks shows its token before it gives up.
const ANNOUNCE: Span = Span::from_secs(5);
/// How long the side that answers waits for it: until well after a test must have begun.
const ADMIT: Span = Span::from_secs(40);
/// How long a single step of a short connection may take.
const STEP_MAX: Duration = Duration::from_secs(5);

/// How long before a test's connections are cut this side stops waiting by itself.
const PARTING_NS: u64 = 150_000_000;

/// The side that asks.
#[derive(Debug)]
pub struct Requester {
    part: ExchangePart,
    test: TestSpec,
    token: Token,
    address: SocketAddr,
    pinned: Option<Fingerprint>,
    line: Line,
    progress: Progress,
}

#[derive(Debug)]
enum Line {
    /// And how long it took to connect.
    Stream(TcpStream, u64),
    Datagrams(UdpSocket),
}

impl Requester {
    /// Connects to the agent's socket.
    ///
    /// # Errors
    /// [`ConnectError`].
    pub fn connect(
        address: SocketAddr,
        token: Token,
        part: &ExchangePart,
        test: &TestSpec,
        pinned: Option<Fingerprint>,
    ) -> Result<Self, ConnectError> {
        let line = match part.transport {
            Transport::Tcp | Transport::Tls => Self::stream(address, token),
            Transport::Udp | Transport::Quic => Self::datagrams(address),
        };
        let line = line.map_err(|error| ConnectError::of(address, error))?;
        let (part, test) = (part.clone(), test.clone());
        Ok(Self { part, test, token, address, pinned, line, progress: Progress::default() })
    }

    fn stream(address: SocketAddr, token: Token) -> io::Result<Line> {
        let began = steady_ns();
        let stream = stream::connect_in_time(address)?;
        let connect_ns = steady_ns() - began;
        stream.set_nodelay(true)?;
        stream::show(&stream, 0, token)?;
        stream.set_read_timeout(None)?;
        Ok(Line::Stream(stream, connect_ns))
    }

    fn datagrams(address: SocketAddr) -> io::Result<Line> {
        let socket = match address {
            SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)),
        }?;
        socket.connect(address)?;
        Ok(Line::Datagrams(socket))
    }

    /// Requests answered so far, with those of the warm-up.
    pub fn answered(&self) -> u64 {
        self.progress.count()
    }

    /// Ends what is blocked.
    pub fn cut(&self) {
        match &self.line {
            Line::Stream(stream, _) => drop(stream.shutdown(Shutdown::Both)),
            Line::Datagrams(socket) => drop(inet::shut_down(socket.as_fd())),
        }
    }

    /// Asks from now on, for as long as the test lasts.
    pub fn work(&self, control: &Control) -> ExchangeReport {
        let asked = match &self.line {
            Line::Stream(stream, connect_ns) => self.ask_streams(stream, *connect_ns, control),
            Line::Datagrams(socket) => self.ask_datagrams(socket, control),
        };
        let mut report = asked.unwrap_or_else(ExchangeError::into_partial);
        if control.is_halted() {
            // Whoever ended the test ended this too.
            report.error = None;
        }
        report
    }

    fn ask_streams(
        &self,
        mut stream: &TcpStream,
        connect_ns: u64,
        control: &Control,
    ) -> Result<ExchangeReport, ExchangeError> {
        let (spec, progress) = (self.part.within(&self.test), &self.progress);
        let is_halted = || control.is_halted();
        let is_over = self.is_over(control);
        let is_encrypted = self.part.transport == Transport::Tls;
        let configuration = if is_encrypted { Some(self.configuration()?) } else { None };
        let asked = match (self.part.pacing, configuration) {
            (Pacing::Connect, None) => {
                each::ask(&spec, &self.token.0, progress, || self.connect_once(), is_halted)
            }
            (Pacing::Connect, Some(configuration)) => {
                let connect = || {
                    let mut stream = self.connect_once()?;
                    stream.write_all(&self.token.0)?;
                    tls::connect(stream, &configuration)
                };
                each::ask(&spec, &[], progress, connect, is_halted)
            }
            (Pacing::Closed, None) => ask_in_turn(&mut stream, &spec, progress)
                .map(|report| with_connection(report, connect_ns)),
            (Pacing::Open { per_second }, None) => {
                let close = || drop(stream.shutdown(Shutdown::Both));
                open::Line { reader: stream, writer: stream, close }
                    .ask(&spec, per_second, progress, &is_over)
                    .map(|report| with_connection(report, connect_ns))
            }
            (Pacing::Open { per_second }, Some(configuration)) => {
                let began = steady_ns();
                let secure =
                    tls::connect(stream, &configuration).map_err(ExchangeError::at_once)?;
                let stood_ns = connect_ns + steady_ns() - began;
                let (mut reader, mut writer) =
                    tls::split(secure).map_err(ExchangeError::at_once)?;
                let close = || drop(stream.shutdown(Shutdown::Both));
                let report = open::Line { reader: &mut reader, writer: &mut writer, close }
                    .ask(&spec, per_second, progress, &is_over)?;
                // As below.
                writer.say_goodbye().ok();
                Ok(with_connection(report, stood_ns))
            }
            (Pacing::Closed, Some(configuration)) => {
                let began = steady_ns();
                let mut secure =
                    tls::connect(stream, &configuration).map_err(ExchangeError::at_once)?;
                let stood_ns = connect_ns + steady_ns() - began;
                let report = ask_in_turn(&mut secure, &spec, progress)?;
                secure.conn.send_close_notify();
                // The other side has answered everything; whether it hears this changes nothing.
                secure.flush().ok();
                Ok(with_connection(report, stood_ns))
            }
        };
        stream.shutdown(Shutdown::Write).ok();
        asked
    }

    /// Whether the test was halted, or the time for what is still under way has passed.
    fn is_over<'a>(&self, control: &'a Control) -> impl Fn() -> bool + use<'a> {
        let long_ns = self.test.planned_ns().saturating_add(OVERRUN_NS - PARTING_NS);
        let long_ns = long_ns.saturating_add(self.test.drain_ns);
        let until_ns = control.began_ns().map_or(u64::MAX, |began| began.saturating_add(long_ns));
        move || control.is_halted() || steady_ns() >= until_ns
    }

    fn configuration(&self) -> Result<Arc<rustls::ClientConfig>, ExchangeError> {
        let configuration = tls::client_configuration(self.pin()?);
        configuration.map(Arc::new).map_err(|error| ExchangeError::at_once(io::Error::other(error)))
    }

    /// Nobody is spoken to whom the agent did not name.
    fn pin(&self) -> Result<Fingerprint, ExchangeError> {
        let missing = || io::Error::other("the agent gave no certificate for it");
        self.pinned.ok_or_else(|| ExchangeError::at_once(missing()))
    }

    fn connect_once(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.address, STEP_MAX)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(STEP_MAX))?;
        Ok(stream)
    }

    fn ask_datagrams(
        &self,
        socket: &UdpSocket,
        control: &Control,
    ) -> Result<ExchangeReport, ExchangeError> {
        let (spec, token) = (self.part.within(&self.test), &self.token.0);
        meeting::announce(socket, token, 0, ANNOUNCE, control.halted())
            .map_err(|error| ExchangeError::at_once(io::Error::other(error)))?;
        let is_over = self.is_over(control);
        if self.part.transport == Transport::Udp {
            let asked = datagram::ask(socket, token, &spec, &self.progress, &is_over);
            datagram::end(socket, token);
            return asked;
        }
        let pinned = self.pin()?;
        let own = socket.try_clone().map_err(ExchangeError::at_once)?;
        let is_halted = || control.is_halted();
        // One after another, nothing is under way when the time is over, and no clock is read to know that.
        let is_paced = matches!(self.part.pacing, Pacing::Open { .. });
        let is_over: &dyn Fn() -> bool = if is_paced { &is_over } else { &is_halted };
        quic::ask(own, self.address, pinned, *token, &spec, &self.progress, is_over)
    }
}

/// The side that answers.
#[derive(Debug)]
pub struct Responder {
    part: ExchangePart,
    test: TestSpec,
    token: Token,
    rate_max: Option<u64>,
    key: Option<Key>,
    door: Door,
}

/// A key of this test only, and what a TLS server makes of it.
#[derive(Debug)]
struct Key {
    identity: Identity,
    configuration: Arc<rustls::ServerConfig>,
}

impl Key {
    fn generate() -> io::Result<Self> {
        let identity = Identity::generate().map_err(io::Error::other)?;
        let configuration = tls::server_configuration(&identity).map_err(io::Error::other)?;
        Ok(Self { identity, configuration: Arc::new(configuration) })
    }
}

#[derive(Debug)]
enum Door {
    Listener(TcpListener),
    /// And the first connection that showed the token.
    Met(TcpListener, TcpStream),
    Socket(UdpSocket),
}

impl Responder {
    /// A socket for whoever shows the token.
    ///
    /// # Errors
    /// The kernel's; without randomness for a key.
    pub fn bind(
        part: &ExchangePart,
        test: &TestSpec,
        token: Token,
        rate_max: Option<u64>,
        at: Bind,
    ) -> io::Result<Self> {
        let key = match part.transport {
            Transport::Tls | Transport::Quic => Some(Key::generate()?),
            Transport::Tcp | Transport::Udp => None,
        };
        let door = match part.transport {
            Transport::Tcp | Transport::Tls => {
                let listener = at.open(TcpListener::bind)?;
                listener.set_nonblocking(true)?;
                Door::Listener(listener)
            }
            Transport::Udp | Transport::Quic => Door::Socket(at.open(UdpSocket::bind)?),
        };
        let (part, test) = (part.clone(), test.clone());
        Ok(Self { part, test, token, rate_max, key, door })
    }

    /// Where it is found.
    ///
    /// # Errors
    /// The kernel's.
    pub fn port(&self) -> io::Result<u16> {
        let address = match &self.door {
            Door::Listener(listener) | Door::Met(listener, _) => listener.local_addr(),
            Door::Socket(socket) => socket.local_addr(),
        };
        address.map(|address| address.port())
    }

    /// What its certificate is known by, where it has one.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.key.as_ref().map(|key| key.identity.fingerprint())
    }

    /// Waits for the connection, where there is one to wait for.
    ///
    /// # Errors
    /// It did not come in time, the test was halted, and the kernel's.
    pub fn meet(&mut self, until_ns: u64, control: &Control) -> io::Result<()> {
        let Door::Listener(listener) = &self.door else { return Ok(()) };
        let mut came =
            stream::accept_all(listener, 1, self.token, until_ns, control, |_, stream| {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(None)?;
                Ok(stream)
            })?;
        if let Some(stream) = came.pop() {
            self.door = Door::Met(listener.try_clone()?, stream);
        }
        Ok(())
    }

    /// Ends what is blocked.
    pub fn cut(&self) {
        match &self.door {
            Door::Met(_, stream) => drop(stream.shutdown(Shutdown::Both)),
            Door::Socket(socket) if self.part.transport == Transport::Udp => {
                drop(inet::shut_down(socket.as_fd()));
            }
            Door::Socket(_) | Door::Listener(_) => {}
        }
    }

    /// Answers until the other side is done, the test is halted, or [`Self::cut`].
    pub fn work(&self, deadline_ns: impl Fn() -> u64, control: &Control) -> ResponsesReport {
        let cpu = read_ns(Clock::ThreadCpu);
        let is_over = || control.is_halted() || steady_ns() >= deadline_ns();
        let mut report = match &self.door {
            Door::Met(listener, stream) if self.part.pacing == Pacing::Connect => {
                self.answer_each(listener, stream, is_over)
            }
            Door::Met(_, stream) => self.answer_stream(stream, control, is_over),
            Door::Socket(socket) => self.answer_datagrams(socket, control, is_over),
            // It is not asked to work before it has met.
            Door::Listener(_) => ResponsesReport::default(),
        };
        report.cpu_ns = read_ns(Clock::ThreadCpu) - cpu;
        if control.is_halted() {
            report.error = None;
        }
        report
    }

    fn bounds<'a>(&self, is_over: &'a dyn Fn() -> bool) -> Bounds<'a> {
        Bounds { deadline_ns: None, bytes_per_second: self.rate_max, is_over }
    }

    fn answer_stream(
        &self,
        mut stream: &TcpStream,
        control: &Control,
        is_over: impl Fn() -> bool,
    ) -> ResponsesReport {
        let (spec, bounds) = (self.part.within(&self.test), self.bounds(&is_over));
        let mut report = ResponsesReport::default();
        let count = &mut report.answered;
        let outcome = match &self.key {
            None => super::answer_in_turn(&mut stream, &spec, bounds, count),
            Some(key) => tls::accept(stream, &key.configuration)
                .and_then(|mut secure| super::answer_in_turn(&mut secure, &spec, bounds, count)),
        };
        stream.shutdown(Shutdown::Both).ok();
        let is_end = |error: &io::Error| is_parting(error) && control.is_ended_on_purpose(true);
        report.error = outcome.err().filter(|error| !is_end(error)).map(|error| error.to_string());
        report
    }

    fn answer_each(
        &self,
        listener: &TcpListener,
        leash: &TcpStream,
        is_over: impl Fn() -> bool,
    ) -> ResponsesReport {
        let spec = self.part.within(&self.test);
        let (mut request, response) = (spec.request(), spec.response());
        // The first connection stays until the client is done: its end is the end.
        let is_gone = || !matches!(leash.peek(&mut [0]), Err(error) if is_waiting(&error));
        let is_over = || is_over() || is_gone();
        let bounds = self.bounds(&is_over);
        let size = u64::from(spec.request_bytes) + u64::from(spec.response_bytes);
        let (began_ns, mut bytes) = (steady_ns(), 0);
        let mut serve = |mut stream: TcpStream| {
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(STEP_MAX))?;
            stream.set_write_timeout(Some(STEP_MAX))?;
            let mut token = [0; TOKEN_BYTES];
            stream.read_exact(&mut token)?;
            if !self.token.opens(&token) {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            if let Some(key) = &self.key {
                let mut secure = tls::accept(&stream, &key.configuration)?;
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
            .and_then(|client| each::answer(listener, client.ip(), &mut serve, is_over));
        match outcome {
            Ok((answered, strange)) => {
                ResponsesReport { answered, strange, ..ResponsesReport::default() }
            }
            Err(error) => {
                ResponsesReport { error: Some(error.to_string()), ..ResponsesReport::default() }
            }
        }
    }

    fn answer_datagrams(
        &self,
        socket: &UdpSocket,
        control: &Control,
        is_over: impl Fn() -> bool,
    ) -> ResponsesReport {
        let broken = |error: String| ResponsesReport { error: Some(error), ..Default::default() };
        let (spec, token) = (self.part.within(&self.test), &self.token.0);
        let client = match meeting::admit(socket, token, ADMIT, control.halted()) {
            Ok(client) => client,
            Err(error) => return broken(error.to_string()),
        };
        if socket.set_read_timeout(None).is_err() {
            return broken("its socket cannot wait".to_owned());
        }
        let Some(key) = &self.key else {
            return datagram::answer(socket, token, &spec, self.bounds(&is_over));
        };
        let answered = socket.try_clone().map_err(|error| error.to_string()).and_then(|socket| {
            let (identity, client) = (&key.identity, client.ip());
            let server = quic::Server::new(socket, identity, *token, client, &spec, self.rate_max);
            let server = server.map_err(|error| error.to_string())?;
            let failed = server.run(u64::MAX, is_over).map_err(|error| error.to_string())?;
            Ok((server.answered(), failed))
        });
        match answered {
            Ok((answered, strange)) => {
                ResponsesReport { answered, strange, ..ResponsesReport::default() }
            }
            Err(error) => broken(error),
        }
    }
}

/// Whether the other side has closed the connection.
fn is_parting(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe)
}

/// Nothing there yet, and no end either.
fn is_waiting(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
