//! iperf3's client: asks a server for a test, does its own side of it, and collects both sides' results.
//!
//! Everything that is waited for has a deadline, and an error says what was being done. Left out: how
//! the results are printed ([`super::report`]).

use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;

use plumb_base::time::{Instant, Span};
use plumb_sys::clock::{self, Clock};
use plumb_sys::epoll::{Epoll, Interest};
use plumb_sys::{socket, tcp_info, timer, transport};

use super::control::{Control, ControlError, NAP, Stop};
use super::dial::{self, DialError, Family};
use super::flight::{Flight, Flow};
use super::message::{COOKIE_LEN, Cookie, Message, REPORT_MAX};
use super::parameters::{Parameters, ParametersError, Protocol};
use super::record::{Overlap, Role, Test};
use super::results::{Results, ResultsError};
use super::stream::{Goal, Socket, udp};
use super::{now, stream_id};

/// How long a server may take for an answer.
const WAIT: Span = Span::from_secs(10);
/// How long a server may take to get its streams and its results together.
const WAIT_LONG: Span = Span::from_secs(30);
/// How long what is on its way may take after the end.
const DRAIN: Span = Span::from_secs(3);
/// Between tries to be let in.
const PAUSES: [Span; 3] = [Span::from_ms(50), Span::from_ms(100), Span::from_ms(200)];
/// Hellos on a UDP socket; the first goes at once, and each of the others after a longer wait.
const HELLOS: [Span; 4] =
    [Span::from_ms(500), Span::from_secs(1), Span::from_secs(2), Span::from_secs(4)];

/// What to measure, and with whom.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server: a name or an address, with a zone where it needs one.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Which of its addresses.
    pub family: Family,
    /// The address to come from.
    pub bind: Option<IpAddr>,
    /// How long connecting may take.
    pub patience: Span,
    /// How often to look at the streams.
    pub interval: Span,
    /// Bytes of a block; what suits the protocol where absent.
    pub length: Option<u32>,
    /// The test.
    pub parameters: Parameters,
}

/// What a client is told while the test runs.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Since the beginning of what is counted.
    pub at: Span,
    /// How long it will take; absent where bytes say so.
    pub of: Option<Span>,
    /// Bytes sent in the last interval.
    pub sent: u64,
    /// Bytes received in the last interval.
    pub received: u64,
    /// The length of that interval.
    pub interval: Span,
    /// Whether it is not counted.
    pub omitted: bool,
}

/// Why a test failed, and what was being done.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// What is asked for cannot be.
    #[error(transparent)]
    Parameters(#[from] ParametersError),
    /// No socket.
    #[error("{error} (while {stage})")]
    Dial {
        /// What was being done.
        stage: &'static str,
        /// What happened.
        error: DialError,
    },
    /// The control connection.
    #[error("{error} (while {stage})")]
    Control {
        /// What was being done.
        stage: &'static str,
        /// What happened.
        error: ControlError,
    },
    /// The server's side of a UDP stream never answered.
    #[error(
        "no answer to the hello of UDP stream {id}, which went {sent} times in {wait} (while connecting \
         the streams); UDP port {port} may be filtered on the way"
    )]
    Hello {
        /// The stream.
        id: u32,
        /// How often it was said.
        sent: usize,
        /// For how long.
        wait: Span,
        /// Where to.
        port: u16,
    },
    /// A stream ended before the test did.
    #[error("stream {id} broke: {why} (while running the test)")]
    Stream {
        /// Which.
        id: u32,
        /// What happened.
        why: String,
    },
    /// The server's results are not understood.
    #[error("{0} (while exchanging results)")]
    Results(#[from] ResultsError),
    /// The kernel's word, about something on this side.
    #[error("{why} (while {stage})")]
    System {
        /// What was being done.
        stage: &'static str,
        /// What happened.
        why: io::Error,
    },
    /// The user stopped it.
    #[error("stopped by its user (while running the test)")]
    Stopped,
}

/// A test that did not come to its end, and what there is of it.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Failure {
    /// Why.
    pub error: ClientError,
    /// As far as it came: absent where there was no connection.
    pub partial: Option<Box<Test>>,
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self { error, partial: None }
    }
}

impl From<ParametersError> for Failure {
    fn from(error: ParametersError) -> Self {
        ClientError::from(error).into()
    }
}

fn control_at(stage: &'static str) -> impl FnOnce(ControlError) -> ClientError {
    move |error| match error {
        ControlError::Stopped => ClientError::Stopped,
        error => ClientError::Control { stage, error },
    }
}

fn dial_at(stage: &'static str) -> impl FnOnce(DialError) -> ClientError {
    move |error| match error {
        DialError::Stopped => ClientError::Stopped,
        error => ClientError::Dial { stage, error },
    }
}

fn system_at(stage: &'static str) -> impl FnOnce(io::Error) -> ClientError {
    move |why| ClientError::System { stage, why }
}

/// Does a test. `stop` is asked many times a second whether the user wants its end.
///
/// # Errors
/// Whatever ended it early, with what was measured until then.
pub fn run(
    options: &Options,
    stop: Stop<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<Test, Failure> {
    // Before anybody is bothered with what cannot be.
    agreed(options, 0)?;
    let stage = "asking for a test";
    let (mut control, server) = ask(options, stop)?;
    let (local, remote) = control.connection.addresses().map_err(system_at(stage))?;
    let segment = transport::max_segment(control.connection.as_fd()).unwrap_or(0);
    let parameters = agreed(options, segment)?;
    let mut test = Test {
        role: Role::Client { host: options.host.clone() },
        local,
        remote,
        cookie: control.cookie.to_string(),
        unix_ms: clock::read_ns(Clock::Realtime) / 1_000_000,
        parameters,
        interval: options.interval,
        segment,
        buffers: [0; 2],
        record: None,
        remote_results: None,
        overlap: Overlap::default(),
        error: None,
    };
    match perform(options, server, &mut control, &mut test, stop, progress) {
        Ok(()) => {
            control.connection.end(Span::from_secs(2));
            Ok(test)
        }
        Err(error) => {
            if matches!(error, ClientError::Stopped | ClientError::Stream { .. }) {
                control.connection.terminate();
            }
            test.error = Some(error.to_string());
            Err(Failure { error, partial: Some(Box::new(test)) })
        }
    }
}

/// The control connection and its cookie.
struct Line<'a> {
    connection: Control<'a>,
    cookie: Cookie,
}

impl Line<'_> {
    fn expect(&mut self, message: Message, wait: Span) -> Result<(), ControlError> {
        self.connection.expect(message, wait)
    }
}

/// Connects, and asks for a test. iperf3's server closes its listener after each test and opens another:
/// whoever comes between is cut off or refused, so it is tried a few times.
fn ask<'a>(options: &Options, stop: Stop<'a>) -> Result<(Line<'a>, SocketAddr), ClientError> {
    let stage = "asking for a test";
    let mut pauses = PAUSES.into_iter();
    loop {
        let asked = connect(options, stop).and_then(|(mut line, server)| {
            line.expect(Message::ParameterExchange, WAIT).map_err(control_at(stage))?;
            Ok((line, server))
        });
        match asked {
            Err(error) if is_between_tests(&error) => match pauses.next() {
                Some(pause) => timer::sleep_ns(pause.as_ns()),
                None => return Err(error),
            },
            other => return other,
        };
    }
}

fn is_between_tests(error: &ClientError) -> bool {
    match error {
        ClientError::Control { error: ControlError::Closed, .. } => true,
        ClientError::Dial { error: DialError::Connect { why, .. }, .. } => {
            // Reset: accepted by the kernel while iperf3 made its listener anew.
            matches!(why.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
        }
        _ => false,
    }
}

fn connect<'a>(options: &Options, stop: Stop<'a>) -> Result<(Line<'a>, SocketAddr), ClientError> {
    let stage = "connecting to the server";
    let addresses =
        dial::resolve(&options.host, options.port, options.family).map_err(dial_at(stage))?;
    let cookie = cookie().map_err(system_at(stage))?;
    let mut last = None;
    for address in addresses {
        match dial::tcp(address, options.bind, None, options.patience, stop) {
            Ok(stream) => {
                let connection =
                    Control::begin(stream, &cookie, WAIT, stop).map_err(control_at(stage))?;
                return Ok((Line { connection, cookie }, address));
            }
            Err(DialError::Stopped) => return Err(ClientError::Stopped),
            // A name with several addresses is reachable if one of them is.
            Err(error) => last = Some(error),
        }
    }
    let unknown =
        || DialError::Unknown { host: options.host.clone(), why: "no address".to_owned() };
    Err(dial_at(stage)(last.unwrap_or_else(unknown)))
}

fn cookie() -> io::Result<Cookie> {
    let mut chance = [0; COOKIE_LEN - 1];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut chance)?;
    Ok(Cookie::of_chance(&chance))
}

/// The parameters with the length that suits the path, where none was asked for.
fn agreed(options: &Options, segment: u32) -> Result<Parameters, ParametersError> {
    let mut parameters = options.parameters.clone();
    parameters.length = match (options.length, parameters.protocol) {
        (Some(length), _) => length,
        (None, Protocol::Tcp) => 128 << 10,
        (None, Protocol::Udp) if segment >= 64 => segment.min(super::parameters::DATAGRAM_MAX),
        (None, Protocol::Udp) => 1460,
    };
    parameters.check()?;
    Ok(parameters)
}

fn perform(
    options: &Options,
    server: SocketAddr,
    line: &mut Line<'_>,
    test: &mut Test,
    stop: Stop<'_>,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), ClientError> {
    let parameters = Arc::new(test.parameters.clone());
    let stage = "agreeing on the parameters";
    line.connection.tell(&parameters.to_json(), WAIT).map_err(control_at(stage))?;
    line.expect(Message::CreateStreams, WAIT_LONG).map_err(control_at(stage))?;
    let flows = streams(options, server, line, &parameters, stop)?;
    test.buffers = flows.first().map_or([0; 2], |flow| dial::buffers(flow.socket.as_fd()));
    let stage = "waiting for the server to start";
    line.expect(Message::TestStart, WAIT_LONG).map_err(control_at(stage))?;
    line.expect(Message::TestRunning, WAIT).map_err(control_at(stage))?;
    let goal = Arc::new(Goal::new(parameters.bytes()).map_err(system_at(stage))?);
    if parameters.omit_seconds == 0 {
        goal.begin();
    }
    let mut flight = Flight::begin(flows, &parameters, &goal, false).map_err(system_at(stage))?;
    let mut watch = Watch { options, parameters: &parameters, goal: &goal, stop, progress };
    let ran = watch.run(&mut flight, &mut line.connection);
    if let Err(error) = ran {
        test.record = Some(flight.finish(&parameters));
        return Err(error);
    }
    let ended = end(&mut flight, &mut line.connection);
    let record = flight.finish(&parameters);
    let own = record.results().to_json();
    test.record = Some(record);
    ended?;
    let stage = "exchanging results";
    line.connection.tell(&own, WAIT).map_err(control_at(stage))?;
    let theirs =
        line.connection.listen(REPORT_MAX, "results", WAIT_LONG).map_err(control_at(stage))?;
    let theirs = Results::of_json(&theirs)?;
    if let Some(record) = test.record.as_mut().filter(|_| parameters.omit_seconds == 0) {
        record.account_for(&theirs);
    }
    test.remote_results = Some(theirs);
    line.expect(Message::DisplayResults, WAIT).map_err(control_at(stage))
}

/// Stops sending, tells the server, and receives what is still on its way.
fn end(flight: &mut Flight, control: &mut Control<'_>) -> Result<(), ClientError> {
    let stage = "ending the test";
    let rtt = tcp_info::read(control.as_fd())
        .map_or(Span::ZERO, |facts| Span::from_us(facts.rtt_us.into()));
    flight.stop();
    control.say(Message::TestEnd, WAIT).map_err(control_at(stage))?;
    control.expect(Message::ExchangeResults, WAIT_LONG).map_err(control_at(stage))?;
    // What the server sent before it heard of the end is half a round trip behind its answer at most,
    // or waits where the path is narrow.
    let quiet = (rtt * 2).max(Span::from_ms(50));
    flight.drain(|_| None, quiet, DRAIN);
    Ok(())
}

/// Connects every stream, in the order that the server expects.
fn streams(
    options: &Options,
    server: SocketAddr,
    line: &Line<'_>,
    parameters: &Parameters,
    stop: Stop<'_>,
) -> Result<Vec<Flow>, ClientError> {
    let stage = "connecting the streams";
    let mut flows = Vec::new();
    for (index, sends) in parameters.client_sends().into_iter().enumerate() {
        let id = stream_id(index);
        let socket = match parameters.protocol {
            Protocol::Tcp => {
                let wait = options.patience;
                let stream = dial::tcp(server, options.bind, Some(parameters), wait, stop)
                    .map_err(dial_at(stage))?;
                send_all(&stream, line.cookie.bytes()).map_err(system_at(stage))?;
                Socket::Tcp(stream)
            }
            Protocol::Udp => {
                let socket = dial::udp(server, options.bind, parameters).map_err(dial_at(stage))?;
                greet(&socket, id, server.port(), stop)?;
                Socket::Udp(socket)
            }
        };
        flows.push(Flow { id, sends, socket });
    }
    Ok(flows)
}

fn send_all(stream: &std::net::TcpStream, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;

    stream.set_write_timeout(Some(WAIT.into()))?;
    (&*stream).write_all(bytes)
}

/// Says hello until it is answered: either may be lost on the way.
fn greet(stream: &UdpSocket, id: u32, port: u16, stop: Stop<'_>) -> Result<(), ClientError> {
    let stage = "connecting the streams";
    let mut buffer = [0; 128];
    let mut wait = Span::ZERO;
    for patience in HELLOS {
        wait += patience;
        // One that is refused was sent before the server was there.
        stream.send(&udp::HELLO).ok();
        let deadline = now() + patience;
        loop {
            let left = deadline.saturating_since(now());
            if left < Span::from_ms(1) {
                break;
            }
            if stop() {
                return Err(ClientError::Stopped);
            }
            stream.set_read_timeout(Some(left.min(NAP).into())).map_err(system_at(stage))?;
            match socket::receive(stream.as_fd(), &mut buffer, true) {
                Ok(len) if udp::is_answer(&buffer[..len]) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(system_at(stage)(error)),
            }
        }
    }
    Err(ClientError::Hello { id, sent: HELLOS.len(), wait, port })
}

/// What is watched while data flows.
struct Watch<'a> {
    options: &'a Options,
    parameters: &'a Parameters,
    goal: &'a Goal,
    stop: Stop<'a>,
    progress: &'a mut dyn FnMut(Progress),
}

impl Watch<'_> {
    /// Returns at the end of the test.
    fn run(&mut self, flight: &mut Flight, control: &mut Control<'_>) -> Result<(), ClientError> {
        const CONTROL: u64 = 0;
        let stage = "running the test";
        let epoll = Epoll::new().map_err(system_at(stage))?;
        let read = Interest { read: true, write: false };
        epoll.add(control.as_fd(), CONTROL, read).map_err(system_at(stage))?;
        epoll.add(self.goal.bell.as_fd(), 1, read).map_err(system_at(stage))?;
        let omit = Span::from_secs(self.parameters.omit_seconds.into());
        let end = self.parameters.seconds().map(|seconds| Span::from_secs(seconds.into()));
        let end = end.map_or(Instant::NEVER, |end| flight.began() + end);
        let mut counted = (omit > Span::ZERO).then(|| flight.began() + omit);
        let mut tick = flight.began() + self.options.interval;
        let mut before = (0, 0, flight.began());
        let mut events = Vec::new();
        loop {
            let at = now();
            if at >= end {
                return Ok(());
            }
            if (self.stop)() {
                return Err(ClientError::Stopped);
            }
            if let Some(from) = counted.filter(|from| at >= *from) {
                flight.tick(from, true);
                flight.end_omission(from);
                self.goal.begin();
                (counted, before, tick) = (None, (0, 0, from), from + self.options.interval);
            }
            if at >= tick {
                flight.tick(at, counted.is_some());
                self.tell(flight, at, counted.is_some(), &mut before);
                tick = (tick + self.options.interval).max(at);
            }
            let next = tick.min(end).min(counted.unwrap_or(Instant::NEVER));
            let nap = next.saturating_since(at).min(NAP);
            let ms = i32::try_from(nap.as_ns().div_ceil(1_000_000)).unwrap_or(100);
            match epoll.wait(&mut events, ms) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(system_at(stage)(error));
                }
                _ => {}
            }
            if events.iter().any(|event| event.token == CONTROL) {
                return Err(spoken(control, stage));
            }
            if !events.is_empty() && self.goal.bell.wait(0).map_err(system_at(stage))? {
                if self.goal.is_reached() {
                    return Ok(());
                }
                if let Some((id, why)) = flight.trouble() {
                    return Err(broken(control, id, why));
                }
                if flight.is_over() {
                    let why = "every stream ended before the test did".to_owned();
                    return Err(broken(control, stream_id(0), why));
                }
            }
        }
    }

    fn tell(
        &mut self,
        flight: &Flight,
        at: Instant,
        omitted: bool,
        before: &mut (u64, u64, Instant),
    ) {
        let (sent, received) = flight.bytes();
        (self.progress)(Progress {
            at: at.saturating_since(flight.counted()),
            of: self.parameters.seconds().map(|seconds| {
                let counted =
                    if omitted { seconds } else { seconds - self.parameters.omit_seconds };
                Span::from_secs(counted.into())
            }),
            sent: sent.saturating_sub(before.0),
            received: received.saturating_sub(before.1),
            interval: at.saturating_since(before.2),
            omitted,
        });
        *before = (sent, received, at);
    }
}

/// What the server said while nothing was expected of it.
fn spoken(control: &mut Control<'_>, stage: &'static str) -> ClientError {
    let error = match control.hear(WAIT) {
        Ok(message) => ControlError::Unexpected(message),
        Err(error) => error,
    };
    control_at(stage)(error)
}

/// Why a stream broke: the server may say so itself, a moment later.
fn broken(control: &mut Control<'_>, id: u32, why: String) -> ClientError {
    match control.hear(Span::from_ms(500)) {
        Err(error @ (ControlError::Refused(_) | ControlError::Terminated)) => {
            ClientError::Control { stage: "running the test", error }
        }
        _ => ClientError::Stream { id, why },
    }
}
