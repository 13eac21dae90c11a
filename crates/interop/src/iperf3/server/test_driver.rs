//! One test of a server, from its cookie to its goodbye: the session's driver.
//!
//! Left out: which connection belongs to which test ([`super`]).

use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender};

use plumb_base::time::{Instant, Span};
use plumb_sys::errno::is_transient;
use plumb_sys::fd;
use plumb_sys::socket;
use plumb_sys::socket::InetSocketKind;
use plumb_sys::socket::IntOption;

use super::{BitrateLimiter, Iperf3ServerEvent, Iperf3ServerState, Iperf3TestSlot};
use crate::iperf3::message::{Iperf3Cookie, Iperf3ErrorCode};
use crate::iperf3::parameters::{Iperf3Parameters, Iperf3Transport};
use crate::iperf3::record::{Iperf3Role, Iperf3Test};
use crate::iperf3::report;
use crate::iperf3::results::Iperf3Results;
use crate::iperf3::session::{Iperf3Action, Iperf3Session, Iperf3State};
use crate::iperf3::stream::{ByteBudget, Iperf3Socket, udp};
use crate::iperf3::transfer::{Iperf3Flow, Iperf3Transfer};
use crate::iperf3::{sockets, stream_id};
use plumb_clock::now;

/// The longest wait before the server's own end is looked for again.
const STOP_POLL_INTERVAL: Span = Span::from_ms(20);
/// How long what is on its way may take after the end.
const DRAIN: Span = Span::from_secs(3);
/// After how long without a byte what has not come will not.
const DRAIN_QUIET: Span = Span::from_ms(500);
/// The same of datagrams, which nobody sends again.
const DRAIN_QUIET_UDP: Span = Span::from_ms(100);
/// How long a receiver may get nothing before its test is given up.
const RECEIVE_TIMEOUT: Span = Span::from_secs(120);

/// A client that is silent for so long is asked whether it is there, and again, so often.
const KEEPALIVE_SECONDS: i32 = 5;
const KEEPALIVE_PROBES: i32 = 2;
/// After how long a client that acknowledges nothing is gone: what its test sends ends with it.
const USER_TIMEOUT_MS: i32 = 15_000;

/// What a test has been given.
#[derive(Debug)]
pub(super) struct Iperf3Admission {
    pub(super) id: u64,
    pub(super) cookie: Iperf3Cookie,
    pub(super) client: SocketAddr,
    pub(super) streams: Receiver<TcpStream>,
}

/// A driver's own failure, and the protocol's number for it.
struct DriverError {
    why: String,
    fault: Iperf3ErrorCode,
}

impl DriverError {
    fn stream(why: impl Display) -> Self {
        Self { why: format!("a stream could not be had: {why}"), fault: Iperf3ErrorCode::STREAM }
    }
}

/// A test while it is conducted.
struct Iperf3TestDriver<'a> {
    control: TcpStream,
    admitted: &'a Iperf3Admission,
    shared: &'a Iperf3ServerState,
    /// Given back once all that is left is a goodbye.
    slot: Option<Iperf3TestSlot>,
    session: Iperf3Session,
    local: SocketAddr,
    test: Option<Iperf3Test>,
    transfer: Option<Iperf3Transfer>,
    streams: Vec<Iperf3Flow>,
    parameters: Arc<Iperf3Parameters>,
    /// The next look at the streams, and the end of what is not counted.
    tick: Instant,
    counted: Option<Instant>,
    /// Bytes received, and since when there have been no more.
    received: (u64, Instant),
    /// What it may still move, where there is a limit.
    bitrate_limiter: Option<BitrateLimiter>,
    end: Option<Result<(), String>>,
}

/// Does the test; how it went.
pub(super) fn run_test(
    control: TcpStream,
    admitted: &Iperf3Admission,
    shared: &Iperf3ServerState,
    slot: Iperf3TestSlot,
    notices: &Sender<Iperf3ServerEvent>,
) -> Iperf3ServerEvent {
    let client = admitted.client;
    let begun = now();
    shared.note_begin(admitted.id, begun);
    let failed = |why: String| Iperf3ServerEvent::Failed { client, why };
    let ready = control.set_nodelay(true).and_then(|()| enable_keepalive(&control));
    let local = match ready.and_then(|()| control.local_addr()) {
        Ok(local) => local,
        Err(error) => {
            shared.note_end(admitted.id, now());
            return failed(format!("the control connection broke: {error}"));
        }
    };
    let mut driver = Iperf3TestDriver {
        control,
        admitted,
        shared,
        slot: Some(slot),
        session: Iperf3Session::begin(begun, shared.limits),
        local,
        test: None,
        transfer: None,
        streams: Vec::new(),
        parameters: Arc::default(),
        tick: Instant::NEVER,
        counted: None,
        received: (0, begun),
        bitrate_limiter: None,
        end: None,
    };
    driver.run(notices);
    let overlap = shared.note_end(admitted.id, now());
    let result = driver.end.take().unwrap_or(Ok(()));
    let Some(mut test) = driver.test.take() else {
        return failed(result.err().unwrap_or_default());
    };
    if let Some(transfer) = driver.transfer.take() {
        test.record = Some(transfer.finish(&driver.parameters));
    }
    test.overlap = overlap;
    test.error = result.err();
    Iperf3ServerEvent::Ended(Box::new(test))
}

impl Iperf3TestDriver<'_> {
    fn run(&mut self, notices: &Sender<Iperf3ServerEvent>) {
        loop {
            while let Some(action) = self.session.poll_action() {
                // Before the client hears that it is over: its next test may follow at once.
                if matches!(self.session.stage(), Iperf3State::AwaitingDone | Iperf3State::Ended) {
                    self.slot = None;
                }
                let done = self.apply(action, notices);
                if let Err(error) = done {
                    self.session.fail_driver(error.why, error.fault);
                }
            }
            if self.end.is_some() {
                return;
            }
            if self.shared.stopping.load(Ordering::Relaxed) {
                self.session.terminate();
                continue;
            }
            self.receive_control(STOP_POLL_INTERVAL);
            self.check_streams();
            self.session.timeout(now());
        }
    }

    fn apply(
        &mut self,
        action: Iperf3Action,
        notices: &Sender<Iperf3ServerEvent>,
    ) -> Result<(), DriverError> {
        match action {
            Iperf3Action::Send(bytes) => self.send(&bytes),
            Iperf3Action::AcceptStreams(parameters) => {
                self.begin_test(*parameters);
                notices.send(Iperf3ServerEvent::Began { client: self.admitted.client }).ok();
                self.accept_streams()
            }
            Iperf3Action::Start => self.start(),
            Iperf3Action::Stop => {
                if let Some(transfer) = &mut self.transfer {
                    transfer.stop();
                    transfer.end_streams();
                }
                Ok(())
            }
            Iperf3Action::Drain(theirs) => {
                self.drain(*theirs);
                Ok(())
            }
            Iperf3Action::End(result) => {
                self.end = Some(result.map_err(|error| error.to_string()));
                Ok(())
            }
        }
    }

    /// Sends over the control connection. A client that takes nothing for so long is gone.
    fn send(&self, bytes: &[u8]) -> Result<(), DriverError> {
        use std::io::Write;

        let broken = |error: io::Error| DriverError {
            why: format!("the control connection broke: {error}"),
            fault: Iperf3ErrorCode::CLOSED,
        };
        self.control.set_write_timeout(Some(STOP_POLL_INTERVAL.into())).map_err(broken)?;
        // All of it has a time, however little is read at once: 10 s, and those of a path of 100 kb/s.
        let least = Span::from_us(80) * u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        let mut until = now() + Span::from_secs(10) + least;
        let mut is_stopping = false;
        let mut rest = bytes;
        while !rest.is_empty() {
            if !is_stopping && self.shared.stopping.load(Ordering::Relaxed) {
                (is_stopping, until) = (true, until.min(now() + Span::from_secs(1)));
            }
            if now() >= until {
                return Err(broken(io::ErrorKind::TimedOut.into()));
            }
            match (&self.control).write(rest) {
                Ok(0) => return Err(broken(io::ErrorKind::WriteZero.into())),
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if is_transient(&error) => {}
                Err(error) => return Err(broken(error)),
            }
        }
        Ok(())
    }

    /// Waits for the client's next bytes, for so long at most.
    fn receive_control(&mut self, wait: Span) {
        let left = self.session.deadline().min(self.tick).min(self.counted.unwrap_or(self.tick));
        let wait = left.saturating_since(now()).min(wait);
        let ms = i32::try_from(wait.as_ns().div_ceil(1_000_000)).unwrap_or(1);
        match fd::poll_readable(self.control.as_fd(), ms) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) if is_transient(&error) => return,
            Err(_) => return self.session.close(now()),
        }
        let mut buffer = [0; 4096];
        match socket::receive(self.control.as_fd(), &mut buffer, false) {
            Ok(0) => self.session.close(now()),
            Ok(read) => self.session.receive(now(), &buffer[..read]),
            Err(error) if is_transient(&error) => {}
            Err(_) => self.session.close(now()),
        }
    }

    fn begin_test(&mut self, parameters: Iperf3Parameters) {
        let segment = socket::max_segment(self.control.as_fd()).unwrap_or(0);
        self.parameters = Arc::new(parameters.clone());
        let addresses = (self.local, self.admitted.client);
        let (cookie, interval) = (self.admitted.cookie, self.shared.interval);
        let role = Iperf3Role::Server;
        let test = Iperf3Test::begin(role, addresses, cookie, parameters, interval, segment);
        self.test = Some(test);
    }

    /// Lets the client connect its streams, and takes them.
    fn accept_streams(&mut self) -> Result<(), DriverError> {
        let sends = self.parameters.client_sends();
        let sockets = match self.parameters.protocol {
            Iperf3Transport::Tcp => self.open_tcp(sends.len())?,
            Iperf3Transport::Udp => self.open_udp(sends.len())?,
        };
        let Some(sockets) = sockets else { return Ok(()) };
        let flows = sockets.into_iter().zip(&sends).enumerate();
        self.streams = flows
            .map(|(index, (socket, client))| Iperf3Flow {
                id: stream_id(index),
                sends: !client,
                socket,
            })
            .collect();
        if let (Some(test), Some(flow)) = (&mut self.test, self.streams.first()) {
            test.buffers = sockets::buffers(flow.socket.as_fd());
        }
        self.session.streams_ready(now());
        Ok(())
    }

    /// Whether the session has ended meanwhile; sends what it has to say until then.
    fn is_session_over(&mut self) -> bool {
        self.receive_control(Span::ZERO);
        self.session.timeout(now());
        if self.shared.stopping.load(Ordering::Relaxed) {
            self.session.terminate();
        }
        self.session.deadline() == Instant::NEVER
    }

    fn request_streams(&mut self) -> Result<(), DriverError> {
        self.session.accepting_streams();
        match self.session.poll_action() {
            Some(Iperf3Action::Send(bytes)) => self.send(&bytes),
            _ => Ok(()),
        }
    }

    /// None where the session ended before all were there.
    fn open_tcp(&mut self, count: usize) -> Result<Option<Vec<Iperf3Socket>>, DriverError> {
        self.request_streams()?;
        let mut sockets = Vec::with_capacity(count);
        while sockets.len() < count {
            match self.admitted.streams.recv_timeout(STOP_POLL_INTERVAL.into()) {
                Ok(stream) => {
                    let v6 = self.local.is_ipv6();
                    sockets::set_stream_options(stream.as_fd(), v6, &self.parameters)
                        .map_err(DriverError::stream)?;
                    sockets.push(Iperf3Socket::Tcp(stream));
                }
                Err(_) if self.is_session_over() => return Ok(None),
                Err(_) => {}
            }
        }
        Ok(Some(sockets))
    }

    /// The same for UDP: each hello has a socket of its own, bound before the one before is answered.
    fn open_udp(&mut self, count: usize) -> Result<Option<Vec<Iperf3Socket>>, DriverError> {
        let shared = self.shared;
        let _greeting = loop {
            match shared.udp_handshake.try_lock() {
                Ok(greeting) => break greeting,
                Err(std::sync::TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(std::sync::TryLockError::WouldBlock) => {
                    self.receive_control(STOP_POLL_INTERVAL);
                    if self.is_session_over() {
                        return Ok(None);
                    }
                }
            }
        };
        let mut sockets: Vec<UdpSocket> = Vec::with_capacity(count);
        let mut next = Some(self.listen_udp()?);
        self.request_streams()?;
        while let Some(listener) = next.take() {
            let Some(client) = self.await_hello(&listener, &sockets)? else { return Ok(None) };
            socket::connect(listener.as_fd(), client).map_err(DriverError::stream)?;
            if sockets.len() + 1 < count {
                next = Some(self.listen_udp()?);
            }
            listener.send(&udp::UDP_CONNECT_REPLY).map_err(DriverError::stream)?;
            sockets.push(listener);
        }
        Ok(Some(sockets.into_iter().map(Iperf3Socket::Udp).collect()))
    }

    fn listen_udp(&self) -> Result<UdpSocket, DriverError> {
        let socket = socket::open(self.local.is_ipv6(), InetSocketKind::Datagram)
            .map_err(DriverError::stream)?;
        sockets::set_stream_options(socket.as_fd(), self.local.is_ipv6(), &self.parameters)
            .map_err(DriverError::stream)?;
        socket::bind(&socket, self.local).map_err(DriverError::stream)?;
        Ok(UdpSocket::from(socket))
    }

    /// The address of the next hello. It has to be the client's own: whoever says hello gets datagrams
    /// sent to, and only the control connection shows who is really there.
    fn await_hello(
        &mut self,
        listener: &UdpSocket,
        answered: &[UdpSocket],
    ) -> Result<Option<SocketAddr>, DriverError> {
        let mut buffer = [0; 64];
        loop {
            if fd::poll_readable(listener.as_fd(), 20).unwrap_or(false)
                && let Ok((len, from)) = listener.recv_from(&mut buffer)
                && len == udp::UDP_CONNECT_MESSAGE.len()
                && same_host(from.ip(), self.admitted.client.ip())
            {
                return Ok(Some(from));
            }
            // An answer may be lost on its way: then the hello comes again.
            for socket in answered {
                if socket::receive(socket.as_fd(), &mut buffer, false).is_ok_and(|len| len == 4) {
                    socket.send(&udp::UDP_CONNECT_REPLY).ok();
                }
            }
            if self.is_session_over() {
                return Ok(None);
            }
        }
    }

    fn start(&mut self) -> Result<(), DriverError> {
        let flows = std::mem::take(&mut self.streams);
        // The client says when it is over.
        let goal = Arc::new(ByteBudget::new(None).map_err(DriverError::stream)?);
        let transfer = Iperf3Transfer::begin(flows, &self.parameters, &goal, true)
            .map_err(DriverError::stream)?;
        let began = transfer.began();
        let omit = Span::from_secs(self.parameters.omit_seconds.into());
        self.counted = (omit > Span::ZERO).then(|| began + omit);
        self.tick = began + self.shared.interval;
        self.received = (0, began);
        self.bitrate_limiter = self.shared.limits.bitrate.map(|rate| {
            let streams = u64::try_from(self.parameters.client_sends().len()).unwrap_or(u64::MAX);
            let blocks = streams.saturating_mul(self.parameters.length.into());
            BitrateLimiter::new(rate, blocks, began)
        });
        self.transfer = Some(transfer);
        Ok(())
    }

    /// Looks at the streams where it is time to.
    fn check_streams(&mut self) {
        let Some(transfer) = &mut self.transfer else { return };
        let at = now();
        let moved = transfer.total_bytes();
        if let Some(allowance) = &mut self.bitrate_limiter
            && !allowance.admit(moved, at)
            && let Some(rate) = self.shared.limits.bitrate
        {
            transfer.stop();
            self.bitrate_limiter = None;
            let why = format!("more than {rate}, which this server allows, went over all streams");
            return self.session.fail_driver(why, Iperf3ErrorCode::RATE);
        }
        if let Some(from) = self.counted.filter(|from| at >= *from) {
            transfer.tick(from, true);
            transfer.end_omission(from);
            (self.counted, self.tick) = (None, from + self.shared.interval);
            self.received = (0, at);
        }
        if at < self.tick {
            return;
        }
        transfer.tick(at, self.counted.is_some());
        self.tick = (self.tick + self.shared.interval).max(at);
        let (_, received) = transfer.bytes();
        if received > self.received.0 {
            self.received = (received, at);
        }
        let receives = self.parameters.client_sends().contains(&true);
        if receives && at.saturating_since(self.received.1) > RECEIVE_TIMEOUT {
            let why = format!("nothing came over any stream for {RECEIVE_TIMEOUT}");
            self.session.fail_driver(why, Iperf3ErrorCode::SILENCE);
        }
    }

    /// Receives what the client says it sent, and tells it what came.
    fn drain(&mut self, theirs: Iperf3Results) {
        let (Some(mut transfer), Some(test)) = (self.transfer.take(), &mut self.test) else {
            return;
        };
        // The other side's omitted time begins at another moment, so the counts cannot be compared.
        let comparable = self.parameters.omit_seconds == 0;
        let sent = |id| {
            let stream = theirs.stream(id).filter(|_| comparable)?;
            Some((stream.bytes, stream.packets))
        };
        let quiet = match self.parameters.protocol {
            Iperf3Transport::Tcp => DRAIN_QUIET,
            Iperf3Transport::Udp => DRAIN_QUIET_UDP,
        };
        transfer.drain(sent, quiet, DRAIN);
        let mut record = transfer.finish(&self.parameters);
        if comparable {
            record.count_trailing_loss(&theirs);
        }
        let mut results = record.results();
        test.record = Some(record);
        test.remote_results = Some(theirs);
        results.extra = serde_json::to_value(report::counts(test)).ok();
        if self.parameters.server_report {
            results.report = serde_json::to_value(report::document(test)).ok();
        }
        (self.tick, self.counted) = (Instant::NEVER, None);
        self.session.finished(now(), &results);
    }
}

/// Lets the kernel find out when the client is gone without a word: datagrams are sent to it as long as it seems there.
fn enable_keepalive(control: &TcpStream) -> io::Result<()> {
    for (option, value) in [
        (IntOption::KeepAliveIdle, KEEPALIVE_SECONDS),
        (IntOption::KeepAliveInterval, KEEPALIVE_SECONDS),
        (IntOption::KeepAliveCount, KEEPALIVE_PROBES),
        (IntOption::UserTimeout, USER_TIMEOUT_MS),
        (IntOption::KeepAlive, 1),
    ] {
        socket::set_option(control.as_fd(), option, value)?;
    }
    Ok(())
}

/// Whether two addresses are one host's: IPv4 may be written as IPv6.
fn same_host(a: IpAddr, b: IpAddr) -> bool {
    a.to_canonical() == b.to_canonical()
}
