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
use plumb_sys::clock::{self, Clock};
use plumb_sys::inet::{self, Kind};
use plumb_sys::socket::{self, IntOption};
use plumb_sys::{fd, transport};

use super::allowance::Allowance;
use super::{Notice, Place, Shared};
use crate::iperf3::flight::{Flight, Flow};
use crate::iperf3::message::{Cookie, Fault};
use crate::iperf3::parameters::{Parameters, Protocol};
use crate::iperf3::record::{Overlap, Role, Test};
use crate::iperf3::report;
use crate::iperf3::results::Results;
use crate::iperf3::session::{Action, Session, Stage};
use crate::iperf3::stream::{Goal, Socket, udp};
use crate::iperf3::{dial, now, stream_id};

/// The longest wait before the server's own end is looked for again.
const NAP: Span = Span::from_ms(20);
/// How long what is on its way may take after the end.
const DRAIN: Span = Span::from_secs(3);
/// After how long without a byte what has not come will not.
const QUIET: Span = Span::from_ms(500);
/// The same of datagrams, which nobody sends again.
const QUIET_DATAGRAMS: Span = Span::from_ms(100);
/// How long a receiver may get nothing before its test is given up.
const SILENCE: Span = Span::from_secs(120);

/// A client that is silent for so long is asked whether it is there, and again, so often.
const ALIVE_SECONDS: i32 = 5;
const ALIVE_QUESTIONS: i32 = 2;
/// After how long a client that acknowledges nothing is gone: what its test sends ends with it.
const GONE_MS: i32 = 15_000;

/// What a test has been given.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) id: u64,
    pub(super) cookie: Cookie,
    pub(super) client: SocketAddr,
    pub(super) streams: Receiver<TcpStream>,
}

/// A driver's own failure, and the protocol's number for it.
struct Trouble {
    why: String,
    fault: Fault,
}

impl Trouble {
    fn stream(why: &dyn Display) -> Self {
        Self { why: format!("a stream could not be had: {why}"), fault: Fault::STREAM }
    }
}

/// A test while it is conducted.
struct Conduct<'a> {
    control: TcpStream,
    seat: &'a Seat,
    shared: &'a Shared,
    /// Given back once all that is left is a goodbye.
    place: Option<Place>,
    session: Session,
    local: SocketAddr,
    test: Option<Test>,
    flight: Option<Flight>,
    flows: Vec<Flow>,
    parameters: Arc<Parameters>,
    /// The next look at the streams, and the end of what is not counted.
    tick: Instant,
    counted: Option<Instant>,
    /// Bytes received, and since when there have been no more.
    received: (u64, Instant),
    /// What it may still move, where there is a limit.
    allowance: Option<Allowance>,
    end: Option<Result<(), String>>,
}

/// Does the test; how it went.
pub(super) fn conduct(
    control: TcpStream,
    seat: &Seat,
    shared: &Shared,
    place: Place,
    notices: &Sender<Notice>,
) -> Notice {
    let client = seat.client;
    let begun = now();
    shared.note_begin(seat.id, begun);
    let failed = |why: String| Notice::Failed { client, why };
    let ready = control.set_nodelay(true).and_then(|()| watch_over(&control));
    let local = match ready.and_then(|()| control.local_addr()) {
        Ok(local) => local,
        Err(error) => {
            shared.note_end(seat.id, now());
            return failed(format!("the control connection broke: {error}"));
        }
    };
    let mut conduct = Conduct {
        control,
        seat,
        shared,
        place: Some(place),
        session: Session::begin(begun, shared.limits),
        local,
        test: None,
        flight: None,
        flows: Vec::new(),
        parameters: Arc::default(),
        tick: Instant::NEVER,
        counted: None,
        received: (0, begun),
        allowance: None,
        end: None,
    };
    conduct.run(notices);
    let overlap = shared.note_end(seat.id, now());
    let result = conduct.end.take().unwrap_or(Ok(()));
    let Some(mut test) = conduct.test.take() else {
        return failed(result.err().unwrap_or_default());
    };
    if let Some(flight) = conduct.flight.take() {
        test.record = Some(flight.finish(&conduct.parameters));
    }
    test.overlap = overlap;
    test.error = result.err();
    Notice::Ended(Box::new(test))
}

impl Conduct<'_> {
    fn run(&mut self, notices: &Sender<Notice>) {
        loop {
            while let Some(action) = self.session.poll_action() {
                // Before the client hears that it is over: its next test may follow at once.
                if matches!(self.session.stage(), Stage::Goodbye | Stage::Ended) {
                    self.place = None;
                }
                let done = self.act(action, notices);
                if let Err(trouble) = done {
                    self.session.fail_driver(trouble.why, trouble.fault);
                }
            }
            if self.end.is_some() {
                return;
            }
            if self.shared.stopping.load(Ordering::Relaxed) {
                self.session.terminate();
                continue;
            }
            self.hear(NAP);
            self.look();
            self.session.timeout(now());
        }
    }

    fn act(&mut self, action: Action, notices: &Sender<Notice>) -> Result<(), Trouble> {
        match action {
            Action::Send(bytes) => self.send(&bytes),
            Action::Open(parameters) => {
                self.agree(*parameters);
                notices.send(Notice::Began { client: self.seat.client }).ok();
                self.open()
            }
            Action::Start => self.start(),
            Action::Stop => {
                if let Some(flight) = &mut self.flight {
                    flight.stop();
                    flight.end_streams();
                }
                Ok(())
            }
            Action::Drain(theirs) => {
                self.drain(*theirs);
                Ok(())
            }
            Action::End(result) => {
                self.end = Some(result.map_err(|error| error.to_string()));
                Ok(())
            }
        }
    }

    /// Sends over the control connection. A client that takes nothing for so long is gone.
    fn send(&self, bytes: &[u8]) -> Result<(), Trouble> {
        use std::io::Write;

        let broken = |error: io::Error| Trouble {
            why: format!("the control connection broke: {error}"),
            fault: Fault::CLOSED,
        };
        self.control.set_write_timeout(Some(NAP.into())).map_err(broken)?;
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
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock
                    | io::ErrorKind::TimedOut
                    | io::ErrorKind::Interrupted => {}
                    _ => return Err(broken(error)),
                },
            }
        }
        Ok(())
    }

    /// Waits for the client's next bytes, for so long at most.
    fn hear(&mut self, wait: Span) {
        let left = self.session.deadline().min(self.tick).min(self.counted.unwrap_or(self.tick));
        let wait = left.saturating_since(now()).min(wait);
        let ms = i32::try_from(wait.as_ns().div_ceil(1_000_000)).unwrap_or(1);
        match fd::poll_readable(self.control.as_fd(), ms) {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return,
            Err(_) => return self.session.close(now()),
        }
        let mut buffer = [0; 4096];
        match socket::receive(self.control.as_fd(), &mut buffer, false) {
            Ok(0) => self.session.close(now()),
            Ok(read) => self.session.receive(now(), &buffer[..read]),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => {}
                _ => self.session.close(now()),
            },
        }
    }

    fn agree(&mut self, parameters: Parameters) {
        let segment = transport::max_segment(self.control.as_fd()).unwrap_or(0);
        self.parameters = Arc::new(parameters.clone());
        self.test = Some(Test {
            role: Role::Server,
            local: self.local,
            remote: self.seat.client,
            cookie: self.seat.cookie.to_string(),
            unix_ms: clock::read_ns(Clock::Realtime) / 1_000_000,
            parameters,
            interval: self.shared.interval,
            segment,
            buffers: [0; 2],
            record: None,
            remote_results: None,
            overlap: Overlap::default(),
            error: None,
        });
    }

    /// Lets the client connect its streams, and takes them.
    fn open(&mut self) -> Result<(), Trouble> {
        let sends = self.parameters.client_sends();
        let sockets = match self.parameters.protocol {
            Protocol::Tcp => self.open_tcp(sends.len())?,
            Protocol::Udp => self.open_udp(sends.len())?,
        };
        let Some(sockets) = sockets else { return Ok(()) };
        let flows = sockets.into_iter().zip(&sends).enumerate();
        self.flows = flows
            .map(|(index, (socket, client))| Flow { id: stream_id(index), sends: !client, socket })
            .collect();
        if let (Some(test), Some(flow)) = (&mut self.test, self.flows.first()) {
            test.buffers = dial::buffers(flow.socket.as_fd());
        }
        self.session.streams_ready(now());
        Ok(())
    }

    /// Whether the session has ended meanwhile; sends what it has to say until then.
    fn waits_in_vain(&mut self) -> bool {
        self.hear(Span::ZERO);
        self.session.timeout(now());
        if self.shared.stopping.load(Ordering::Relaxed) {
            self.session.terminate();
        }
        self.session.deadline() == Instant::NEVER
    }

    fn invite(&mut self) -> Result<(), Trouble> {
        self.session.listening();
        match self.session.poll_action() {
            Some(Action::Send(bytes)) => self.send(&bytes),
            _ => Ok(()),
        }
    }

    /// None where the session ended before all were there.
    fn open_tcp(&mut self, count: usize) -> Result<Option<Vec<Socket>>, Trouble> {
        self.invite()?;
        let mut sockets = Vec::with_capacity(count);
        while sockets.len() < count {
            match self.seat.streams.recv_timeout(NAP.into()) {
                Ok(stream) => {
                    let v6 = self.local.is_ipv6();
                    dial::prepare(stream.as_fd(), v6, &self.parameters)
                        .map_err(|error| Trouble::stream(&error))?;
                    sockets.push(Socket::Tcp(stream));
                }
                Err(_) if self.waits_in_vain() => return Ok(None),
                Err(_) => {}
            }
        }
        Ok(Some(sockets))
    }

    /// The same for UDP: each hello has a socket of its own, bound before the one before is answered.
    fn open_udp(&mut self, count: usize) -> Result<Option<Vec<Socket>>, Trouble> {
        let shared = self.shared;
        let _greeting = loop {
            match shared.greeting.try_lock() {
                Ok(greeting) => break greeting,
                Err(std::sync::TryLockError::Poisoned(poisoned)) => break poisoned.into_inner(),
                Err(std::sync::TryLockError::WouldBlock) => {
                    self.hear(NAP);
                    if self.waits_in_vain() {
                        return Ok(None);
                    }
                }
            }
        };
        let mut sockets: Vec<UdpSocket> = Vec::with_capacity(count);
        let mut next = Some(self.listen_udp()?);
        self.invite()?;
        while let Some(listener) = next.take() {
            let Some(client) = self.await_hello(&listener, &sockets)? else { return Ok(None) };
            inet::connect(listener.as_fd(), client).map_err(|error| Trouble::stream(&error))?;
            if sockets.len() + 1 < count {
                next = Some(self.listen_udp()?);
            }
            listener.send(&udp::ANSWER).map_err(|error| Trouble::stream(&error))?;
            sockets.push(listener);
        }
        Ok(Some(sockets.into_iter().map(Socket::Udp).collect()))
    }

    fn listen_udp(&self) -> Result<UdpSocket, Trouble> {
        let socket = inet::socket(self.local.is_ipv6(), Kind::Datagram)
            .map_err(|error| Trouble::stream(&error))?;
        dial::prepare(socket.as_fd(), self.local.is_ipv6(), &self.parameters)
            .map_err(|error| Trouble::stream(&error))?;
        inet::bind(&socket, self.local).map_err(|error| Trouble::stream(&error))?;
        Ok(UdpSocket::from(socket))
    }

    /// The address of the next hello. It has to be the client's own: whoever says hello gets datagrams
    /// sent to, and only the control connection shows who is really there.
    fn await_hello(
        &mut self,
        listener: &UdpSocket,
        answered: &[UdpSocket],
    ) -> Result<Option<SocketAddr>, Trouble> {
        let mut buffer = [0; 64];
        loop {
            if fd::poll_readable(listener.as_fd(), 20).unwrap_or(false)
                && let Ok((len, from)) = listener.recv_from(&mut buffer)
                && len == udp::HELLO.len()
                && same_host(from.ip(), self.seat.client.ip())
            {
                return Ok(Some(from));
            }
            // An answer may be lost on its way: then the hello comes again.
            for socket in answered {
                if socket::receive(socket.as_fd(), &mut buffer, false).is_ok_and(|len| len == 4) {
                    socket.send(&udp::ANSWER).ok();
                }
            }
            if self.waits_in_vain() {
                return Ok(None);
            }
        }
    }

    fn start(&mut self) -> Result<(), Trouble> {
        let flows = std::mem::take(&mut self.flows);
        // The client says when it is over.
        let goal = Arc::new(Goal::new(None).map_err(|error| Trouble::stream(&error))?);
        let flight = Flight::begin(flows, &self.parameters, &goal, true)
            .map_err(|error| Trouble::stream(&error))?;
        let began = flight.began();
        let omit = Span::from_secs(self.parameters.omit_seconds.into());
        self.counted = (omit > Span::ZERO).then(|| began + omit);
        self.tick = began + self.shared.interval;
        self.received = (0, began);
        self.allowance = self.shared.limits.bitrate.map(|rate| {
            let streams = u64::try_from(self.parameters.client_sends().len()).unwrap_or(u64::MAX);
            let blocks = streams.saturating_mul(self.parameters.length.into());
            Allowance::new(rate, blocks, began)
        });
        self.flight = Some(flight);
        Ok(())
    }

    /// Looks at the streams where it is time to.
    fn look(&mut self) {
        let Some(flight) = &mut self.flight else { return };
        let at = now();
        let moved = flight.moved();
        if let Some(allowance) = &mut self.allowance
            && !allowance.take(moved, at)
            && let Some(rate) = self.shared.limits.bitrate
        {
            flight.stop();
            self.allowance = None;
            let why = format!("more than {rate}, which this server allows, went over all streams");
            return self.session.fail_driver(why, Fault::RATE);
        }
        if let Some(from) = self.counted.filter(|from| at >= *from) {
            flight.tick(from, true);
            flight.end_omission(from);
            (self.counted, self.tick) = (None, from + self.shared.interval);
            self.received = (0, at);
        }
        if at < self.tick {
            return;
        }
        flight.tick(at, self.counted.is_some());
        self.tick = (self.tick + self.shared.interval).max(at);
        let (_, received) = flight.bytes();
        if received > self.received.0 {
            self.received = (received, at);
        }
        let receives = self.parameters.client_sends().contains(&true);
        if receives && at.saturating_since(self.received.1) > SILENCE {
            let why = format!("nothing came over any stream for {SILENCE}");
            self.session.fail_driver(why, Fault::SILENCE);
        }
    }

    /// Receives what the client says it sent, and tells it what came.
    fn drain(&mut self, theirs: Results) {
        let (Some(mut flight), Some(test)) = (self.flight.take(), &mut self.test) else { return };
        // What was omitted was omitted at another moment there, so the counts do not compare.
        let comparable = self.parameters.omit_seconds == 0;
        let sent = |id| {
            let stream = theirs.stream(id).filter(|_| comparable)?;
            Some((stream.bytes, stream.packets))
        };
        let quiet = match self.parameters.protocol {
            Protocol::Tcp => QUIET,
            Protocol::Udp => QUIET_DATAGRAMS,
        };
        flight.drain(sent, quiet, DRAIN);
        let mut record = flight.finish(&self.parameters);
        if comparable {
            record.account_for(&theirs);
        }
        let mut results = record.results();
        test.record = Some(record);
        test.remote_results = Some(theirs);
        results.extra = Some(report::exact(test));
        if self.parameters.server_report {
            results.report = serde_json::to_value(report::Report::of(test)).ok();
        }
        (self.tick, self.counted) = (Instant::NEVER, None);
        self.session.finished(now(), &results);
    }
}

/// Lets the kernel find out when the client is gone without a word: datagrams are sent to it as long as it seems there.
fn watch_over(control: &TcpStream) -> io::Result<()> {
    for (option, value) in [
        (IntOption::KeepAliveIdle, ALIVE_SECONDS),
        (IntOption::KeepAliveInterval, ALIVE_SECONDS),
        (IntOption::KeepAliveCount, ALIVE_QUESTIONS),
        (IntOption::UserTimeout, GONE_MS),
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
