//! iperf3's client: asks a server for a test, does its own side of it, and collects both sides' results.
//!
//! Everything that is waited for has a deadline, and an error says what was being done. Left out: how
//! the results are printed ([`super::report`]).

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;

use plumb_base::time::{Instant, Span};
use plumb_sys::errno::is_transient;
use plumb_sys::{fd, socket, timer};

use super::control::{Iperf3Control, Iperf3ControlError, STOP_POLL_INTERVAL, StopCheck};
use super::message::{COOKIE_LEN, Iperf3Cookie, Iperf3Message, REPORT_MAX};
use super::parameters::{Iperf3Parameters, Iperf3Transport, ParametersError};
use super::record::{Iperf3Role, Iperf3Test};
use super::results::{Iperf3Results, Iperf3ResultsError};
use super::sockets::{self, Iperf3AddressFamily, Iperf3SocketError};
use super::stream::{ByteBudget, Iperf3Socket, udp};
use super::stream_id;
use super::transfer::{Iperf3Flow, Iperf3Transfer};
use plumb_clock::now;

/// How long a server may take for an answer.
const REPLY_TIMEOUT: Span = Span::from_secs(10);
/// How long a server may take to get its streams and its results together.
const STREAMS_TIMEOUT: Span = Span::from_secs(30);
/// How long what is on its way may take after the end.
const DRAIN_TIMEOUT: Span = Span::from_secs(3);
/// Between tries to be let in.
const RETRY_DELAYS: [Span; 3] = [Span::from_ms(50), Span::from_ms(100), Span::from_ms(200)];
/// Hellos on a UDP socket; the first goes at once, and each of the others after a longer wait.
const HELLO_TIMEOUTS: [Span; 4] =
    [Span::from_ms(500), Span::from_secs(1), Span::from_secs(2), Span::from_secs(4)];

/// What to measure, and with whom.
#[derive(Clone, Debug)]
pub struct Iperf3ClientOptions {
    /// The server: a name or an address, with a zone where it needs one.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Which of its addresses.
    pub family: Iperf3AddressFamily,
    /// The address to come from.
    pub bind: Option<IpAddr>,
    /// How long connecting may take.
    pub connect_timeout: Span,
    /// How often to look at the streams.
    pub interval: Span,
    /// Bytes of a block; what suits the protocol where absent.
    pub length: Option<u32>,
    /// The test.
    pub parameters: Iperf3Parameters,
}

/// What a client is told while the test runs.
#[derive(Clone, Copy, Debug)]
pub struct Iperf3Progress {
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
pub enum Iperf3ClientError {
    /// What is asked for cannot be.
    #[error(transparent)]
    Parameters(#[from] ParametersError),
    /// No socket.
    #[error("{error} (while {stage})")]
    Socket {
        /// What was being done.
        stage: &'static str,
        /// What happened.
        error: Iperf3SocketError,
    },
    /// The control connection.
    #[error("{error} (while {stage})")]
    Control {
        /// What was being done.
        stage: &'static str,
        /// What happened.
        error: Iperf3ControlError,
    },
    /// The server's side of a UDP stream never answered.
    #[error(
        "no answer to the hello of UDP stream {id}, which went {sent} times in {wait} (while connecting \
         the streams); UDP port {port} may be filtered on the way"
    )]
    UdpHandshake {
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
    Results(#[from] Iperf3ResultsError),
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
pub struct Iperf3TestError {
    /// Why.
    pub error: Iperf3ClientError,
    /// As far as it came: absent where there was no connection.
    pub partial: Option<Box<Iperf3Test>>,
}

impl From<Iperf3ClientError> for Iperf3TestError {
    fn from(error: Iperf3ClientError) -> Self {
        Self { error, partial: None }
    }
}

impl From<ParametersError> for Iperf3TestError {
    fn from(error: ParametersError) -> Self {
        Iperf3ClientError::from(error).into()
    }
}

fn control_at(stage: &'static str) -> impl FnOnce(Iperf3ControlError) -> Iperf3ClientError {
    move |error| match error {
        Iperf3ControlError::Stopped => Iperf3ClientError::Stopped,
        error => Iperf3ClientError::Control { stage, error },
    }
}

fn socket_at(stage: &'static str) -> impl FnOnce(Iperf3SocketError) -> Iperf3ClientError {
    move |error| match error {
        Iperf3SocketError::Stopped => Iperf3ClientError::Stopped,
        error => Iperf3ClientError::Socket { stage, error },
    }
}

fn system_at(stage: &'static str) -> impl FnOnce(io::Error) -> Iperf3ClientError {
    move |why| Iperf3ClientError::System { stage, why }
}

/// Does a test. `stop` is asked many times a second whether the user wants its end.
///
/// # Errors
/// The reason why it ended early, with what was measured until then.
pub fn run(
    options: &Iperf3ClientOptions,
    stop: StopCheck<'_>,
    progress: &mut dyn FnMut(Iperf3Progress),
) -> Result<Iperf3Test, Iperf3TestError> {
    // Before anybody is bothered with what cannot be.
    negotiated_parameters(options, 0)?;
    let stage = "asking for a test";
    let (mut control, server) = request_test(options, stop)?;
    let segment = socket::max_segment(control.as_fd()).unwrap_or(0);
    let parameters = negotiated_parameters(options, segment)?;
    let role = Iperf3Role::Client { host: options.host.clone() };
    let addresses = control.addresses().map_err(system_at(stage))?;
    let (cookie, interval) = (*control.cookie(), options.interval);
    let mut test = Iperf3Test::begin(role, addresses, cookie, parameters, interval, segment);
    match perform(options, server, &mut control, &mut test, stop, progress) {
        Ok(()) => {
            control.finish(Span::from_secs(2));
            Ok(test)
        }
        Err(error) => {
            if matches!(error, Iperf3ClientError::Stopped | Iperf3ClientError::Stream { .. }) {
                control.terminate();
            }
            test.error = Some(error.to_string());
            Err(Iperf3TestError { error, partial: Some(Box::new(test)) })
        }
    }
}

/// Connects, and asks for a test. iperf3's server closes its listener after each test and opens another:
/// whoever comes between is cut off or refused, so it is tried a few times.
fn request_test<'a>(
    options: &Iperf3ClientOptions,
    stop: StopCheck<'a>,
) -> Result<(Iperf3Control<'a>, SocketAddr), Iperf3ClientError> {
    let stage = "asking for a test";
    let mut pauses = RETRY_DELAYS.into_iter();
    loop {
        let asked = connect(options, stop).and_then(|(mut control, server)| {
            control
                .expect(Iperf3Message::ParameterExchange, REPLY_TIMEOUT)
                .map_err(control_at(stage))?;
            Ok((control, server))
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

fn is_between_tests(error: &Iperf3ClientError) -> bool {
    match error {
        Iperf3ClientError::Control { error: Iperf3ControlError::Closed, .. } => true,
        Iperf3ClientError::Socket { error: Iperf3SocketError::Connect { why, .. }, .. } => {
            // Reset: accepted by the kernel while iperf3 made its listener anew.
            matches!(why.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset)
        }
        _ => false,
    }
}

fn connect<'a>(
    options: &Iperf3ClientOptions,
    stop: StopCheck<'a>,
) -> Result<(Iperf3Control<'a>, SocketAddr), Iperf3ClientError> {
    let stage = "connecting to the server";
    let addresses =
        sockets::resolve(&options.host, options.port, options.family).map_err(socket_at(stage))?;
    let cookie = cookie().map_err(system_at(stage))?;
    let mut last = None;
    for address in addresses {
        match sockets::tcp(address, options.bind, None, options.connect_timeout, stop) {
            Ok(stream) => {
                let control = Iperf3Control::begin(stream, cookie, REPLY_TIMEOUT, stop)
                    .map_err(control_at(stage))?;
                return Ok((control, address));
            }
            Err(Iperf3SocketError::Stopped) => return Err(Iperf3ClientError::Stopped),
            // A name with several addresses is reachable if one of them is.
            Err(error) => last = Some(error),
        }
    }
    let unknown = || Iperf3SocketError::UnknownHost {
        host: options.host.clone(),
        why: "no address".to_owned(),
    };
    Err(socket_at(stage)(last.unwrap_or_else(unknown)))
}

fn cookie() -> io::Result<Iperf3Cookie> {
    let mut chance = [0; COOKIE_LEN - 1];
    plumb_sys::fill_random(&mut chance)?;
    Ok(Iperf3Cookie::from_random(&chance))
}

/// The parameters with the length that suits the path, where none was asked for.
fn negotiated_parameters(
    options: &Iperf3ClientOptions,
    segment: u32,
) -> Result<Iperf3Parameters, ParametersError> {
    let mut parameters = options.parameters.clone();
    parameters.length = match (options.length, parameters.protocol) {
        (Some(length), _) => length,
        (None, Iperf3Transport::Tcp) => 128 << 10,
        (None, Iperf3Transport::Udp) if segment >= 64 => {
            segment.min(super::parameters::DATAGRAM_MAX)
        }
        (None, Iperf3Transport::Udp) => 1460,
    };
    parameters.check()?;
    Ok(parameters)
}

fn perform(
    options: &Iperf3ClientOptions,
    server: SocketAddr,
    control: &mut Iperf3Control<'_>,
    test: &mut Iperf3Test,
    stop: StopCheck<'_>,
    progress: &mut dyn FnMut(Iperf3Progress),
) -> Result<(), Iperf3ClientError> {
    let parameters = Arc::new(test.parameters.clone());
    let stage = "agreeing on the parameters";
    control.send_json(&parameters.to_json(), REPLY_TIMEOUT).map_err(control_at(stage))?;
    control.expect(Iperf3Message::CreateStreams, STREAMS_TIMEOUT).map_err(control_at(stage))?;
    let flows = streams(options, server, control, &parameters, stop)?;
    test.buffers = flows.first().map_or([0; 2], |flow| sockets::buffers(flow.socket.as_fd()));
    let stage = "waiting for the server to start";
    control.expect(Iperf3Message::TestStart, STREAMS_TIMEOUT).map_err(control_at(stage))?;
    control.expect(Iperf3Message::TestRunning, REPLY_TIMEOUT).map_err(control_at(stage))?;
    let budget = Arc::new(ByteBudget::new(parameters.bytes()).map_err(system_at(stage))?);
    if parameters.omit_seconds == 0 {
        budget.begin();
    }
    let mut transfer =
        Iperf3Transfer::begin(flows, &parameters, &budget, false).map_err(system_at(stage))?;
    let mut watch =
        Iperf3TestLoop { options, parameters: &parameters, budget: &budget, stop, progress };
    let ran = watch.run(&mut transfer, control);
    if let Err(error) = ran {
        test.record = Some(transfer.finish(&parameters));
        return Err(error);
    }
    let ended = end(&mut transfer, control);
    let record = transfer.finish(&parameters);
    let own = record.results().to_json();
    test.record = Some(record);
    ended?;
    let stage = "exchanging results";
    control.send_json(&own, REPLY_TIMEOUT).map_err(control_at(stage))?;
    let theirs =
        control.receive_json(REPORT_MAX, "results", STREAMS_TIMEOUT).map_err(control_at(stage))?;
    let theirs = Iperf3Results::of_json(&theirs)?;
    if let Some(record) = test.record.as_mut().filter(|_| parameters.omit_seconds == 0) {
        record.count_trailing_loss(&theirs);
    }
    test.remote_results = Some(theirs);
    control.expect(Iperf3Message::DisplayResults, REPLY_TIMEOUT).map_err(control_at(stage))
}

/// Stops sending, tells the server, and receives what is still on its way.
fn end(
    transfer: &mut Iperf3Transfer,
    control: &mut Iperf3Control<'_>,
) -> Result<(), Iperf3ClientError> {
    let stage = "ending the test";
    let rtt = socket::tcp_info(control.as_fd())
        .map_or(Span::ZERO, |facts| Span::from_us(facts.rtt_us.into()));
    transfer.stop();
    control.send_message(Iperf3Message::TestEnd, REPLY_TIMEOUT).map_err(control_at(stage))?;
    control.expect(Iperf3Message::ExchangeResults, STREAMS_TIMEOUT).map_err(control_at(stage))?;
    // Data that the server sent before it learnt of the end comes half a round trip after its answer at most,
    // or later where a queue holds it.
    let quiet = (rtt * 2).max(Span::from_ms(50));
    transfer.drain(|_| None, quiet, DRAIN_TIMEOUT);
    Ok(())
}

/// Connects every stream, in the order that the server expects.
fn streams(
    options: &Iperf3ClientOptions,
    server: SocketAddr,
    control: &Iperf3Control<'_>,
    parameters: &Iperf3Parameters,
    stop: StopCheck<'_>,
) -> Result<Vec<Iperf3Flow>, Iperf3ClientError> {
    let stage = "connecting the streams";
    let mut flows = Vec::new();
    for (index, sends) in parameters.client_sends().into_iter().enumerate() {
        let id = stream_id(index);
        let socket = match parameters.protocol {
            Iperf3Transport::Tcp => {
                let wait = options.connect_timeout;
                let stream = sockets::tcp(server, options.bind, Some(parameters), wait, stop)
                    .map_err(socket_at(stage))?;
                send_all(&stream, control.cookie().bytes()).map_err(system_at(stage))?;
                Iperf3Socket::Tcp(stream)
            }
            Iperf3Transport::Udp => {
                let socket =
                    sockets::udp(server, options.bind, parameters).map_err(socket_at(stage))?;
                udp_handshake(&socket, id, server.port(), stop)?;
                Iperf3Socket::Udp(socket)
            }
        };
        flows.push(Iperf3Flow { id, sends, socket });
    }
    Ok(flows)
}

fn send_all(stream: &std::net::TcpStream, bytes: &[u8]) -> io::Result<()> {
    use std::io::Write;

    stream.set_write_timeout(Some(REPLY_TIMEOUT.into()))?;
    (&*stream).write_all(bytes)
}

/// Says hello until it is answered: either may be lost on the way.
fn udp_handshake(
    stream: &UdpSocket,
    id: u32,
    port: u16,
    stop: StopCheck<'_>,
) -> Result<(), Iperf3ClientError> {
    let stage = "connecting the streams";
    let mut buffer = [0; 128];
    let mut wait = Span::ZERO;
    for patience in HELLO_TIMEOUTS {
        wait += patience;
        // One that is refused was sent before the server was there.
        stream.send(&udp::UDP_CONNECT_MESSAGE).ok();
        let deadline = now() + patience;
        loop {
            let left = deadline.saturating_since(now());
            if left < Span::from_ms(1) {
                break;
            }
            if stop() {
                return Err(Iperf3ClientError::Stopped);
            }
            stream
                .set_read_timeout(Some(left.min(STOP_POLL_INTERVAL).into()))
                .map_err(system_at(stage))?;
            match socket::receive(stream.as_fd(), &mut buffer, true) {
                Ok(len) if udp::is_connect_reply(&buffer[..len]) => return Ok(()),
                Ok(_) => {}
                Err(error)
                    if is_transient(&error) || error.kind() == io::ErrorKind::ConnectionRefused => {
                }
                Err(error) => return Err(system_at(stage)(error)),
            }
        }
    }
    Err(Iperf3ClientError::UdpHandshake { id, sent: HELLO_TIMEOUTS.len(), wait, port })
}

/// What is watched while data flows.
struct Iperf3TestLoop<'a> {
    options: &'a Iperf3ClientOptions,
    parameters: &'a Iperf3Parameters,
    budget: &'a ByteBudget,
    stop: StopCheck<'a>,
    progress: &'a mut dyn FnMut(Iperf3Progress),
}

impl Iperf3TestLoop<'_> {
    /// Returns at the end of the test.
    fn run(
        &mut self,
        transfer: &mut Iperf3Transfer,
        control: &mut Iperf3Control<'_>,
    ) -> Result<(), Iperf3ClientError> {
        let stage = "running the test";
        let omit = Span::from_secs(self.parameters.omit_seconds.into());
        let end = self.parameters.seconds().map(|seconds| Span::from_secs(seconds.into()));
        let end = end.map_or(Instant::NEVER, |end| transfer.began() + end);
        let mut counted = (omit > Span::ZERO).then(|| transfer.began() + omit);
        let mut tick = transfer.began() + self.options.interval;
        let mut before = (0, 0, transfer.began());
        loop {
            let at = now();
            if at >= end {
                return Ok(());
            }
            if (self.stop)() {
                return Err(Iperf3ClientError::Stopped);
            }
            if let Some(from) = counted.filter(|from| at >= *from) {
                transfer.tick(from, true);
                transfer.end_omission(from);
                self.budget.begin();
                (counted, before, tick) = (None, (0, 0, from), from + self.options.interval);
            }
            if at >= tick {
                transfer.tick(at, counted.is_some());
                self.report_progress(transfer, at, counted.is_some(), &mut before);
                tick = (tick + self.options.interval).max(at);
            }
            let next = tick.min(end).min(counted.unwrap_or(Instant::NEVER));
            let nap = next.saturating_since(at).min(STOP_POLL_INTERVAL);
            let (fds, mut ready) = ([control.as_fd(), self.budget.event.as_fd()], [false; 2]);
            match fd::wait_readable(&fds, &mut ready, Some(nap.as_ns())) {
                Err(error) if !is_transient(&error) => return Err(system_at(stage)(error)),
                _ => {}
            }
            if ready[0] {
                return Err(unexpected_message(control, stage));
            }
            if ready[1] && self.budget.event.wait(0).map_err(system_at(stage))? {
                if self.budget.is_reached() {
                    return Ok(());
                }
                if let Some((id, why)) = transfer.stream_error() {
                    return Err(stream_error(control, id, why));
                }
                if transfer.is_over() {
                    let why = "every stream ended before the test did".to_owned();
                    return Err(stream_error(control, stream_id(0), why));
                }
            }
        }
    }

    fn report_progress(
        &mut self,
        transfer: &Iperf3Transfer,
        at: Instant,
        omitted: bool,
        before: &mut (u64, u64, Instant),
    ) {
        let (sent, received) = transfer.bytes();
        (self.progress)(Iperf3Progress {
            at: at.saturating_since(transfer.counted()),
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
fn unexpected_message(control: &mut Iperf3Control<'_>, stage: &'static str) -> Iperf3ClientError {
    let error = match control.receive_message(REPLY_TIMEOUT) {
        Ok(message) => Iperf3ControlError::Unexpected(message),
        Err(error) => error,
    };
    control_at(stage)(error)
}

/// Why a stream broke: the server may say so itself, a moment later.
fn stream_error(control: &mut Iperf3Control<'_>, id: u32, why: String) -> Iperf3ClientError {
    match control.receive_message(Span::from_ms(500)) {
        Err(error @ (Iperf3ControlError::Refused(_) | Iperf3ControlError::Terminated)) => {
            Iperf3ClientError::Control { stage: "running the test", error }
        }
        _ => Iperf3ClientError::Stream { id, why },
    }
}
