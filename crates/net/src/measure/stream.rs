//! Bulk TCP: connections, a thread each, that send or take as much as goes.
//!
//! The receiver's count is the truth; after the end of the time that counts the sender closes its direction and
//! the receiver reads on to the end of the stream. Left out: when everything is read (`super::run`).

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use plumb_sys::epoll::{Epoll, Interest};
use plumb_sys::pages::Pages;
use plumb_sys::socket::{self, IntOption};
use plumb_sys::{fd, inet};

use super::control::Control;
use super::datagram::meeting::MeetingError;
use super::hall::Hall;
use super::report::{StreamReport, StreamSample};
use super::seat::{Seat, Seating};
use super::spec::StreamsSpec;
use super::worker::Worker;
use crate::clock::{sleep_until, steady_ns};
use crate::evidence::tcp::TcpSample;
use crate::protocol::token::{TOKEN_BYTES, Token};

/// What a connection sends first: the token and its number.
pub(super) const PREAMBLE_BYTES: usize = TOKEN_BYTES + 2;
/// What it is answered with.
const ACCEPTED: u8 = 0x06;
/// How long making a connection and its preamble may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How much before its planned end a sender may end, whose beginning may have been earlier.
const EARLY_NS: u64 = 2_000_000_000;
/// How long to wait for the word that a test was stopped, and how often to look for it.
const WORD_NS: u64 = 1_000_000_000;
const WORD_LOOK_NS: u64 = 20_000_000;
/// How long after its beginning a thread is seated: its flow's packets come by then.
const SEAT_NS: u64 = 50_000_000;
/// After how long a blocked call looks whether the test is over.
const LOOK: Duration = Duration::from_millis(100);
const LOOK_NS: u64 = 100_000_000;

/// Why the connections of a test could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// Nothing takes connections there.
    #[error(
        "{address} refuses the test's data connection although the control connection stands; a firewall over \
         there rejects it: open that port, or give the agent one with --data-port; or the address is another host's: \
         name the agent's own with --to"
    )]
    Refused {
        /// Where to.
        address: SocketAddr,
    },
    /// Nothing came back.
    #[error(
        "the test's data connection to {address} was not answered in {seconds} s although the control connection \
         stands; a firewall or a NAT on the way drops it: open that port, give the agent one with --data-port, \
         or name another address with --to"
    )]
    Late {
        /// Where to.
        address: SocketAddr,
        /// How long was waited.
        seconds: u64,
    },
    /// Something else answers there.
    #[error(
        "what takes connections at {address} is not the agent of this test; the address leads to another host \
         than the control connection: name the agent's own with --to"
    )]
    Stranger {
        /// Where to.
        address: SocketAddr,
    },
    /// Datagrams did not get there, or their answers not back.
    #[error(transparent)]
    Unmet(#[from] MeetingError),
    /// No way leads there.
    #[error(
        "{address} cannot be reached from this host ({source}); check the address and the route to it, or name \
         another address of the agent with --to"
    )]
    Unreachable {
        /// Where to.
        address: SocketAddr,
        /// The kernel's word.
        source: io::Error,
    },
    /// An address that every link has.
    #[error(
        "{address} is link-local, and on which link is not said; add its zone, as in fe80::1%eth0"
    )]
    Zone {
        /// Where to.
        address: SocketAddr,
    },
    /// The kernel says no.
    #[error(
        "cannot connect to {address}: {source}; look at this host, or name another address with --to"
    )]
    Other {
        /// Where to.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
}

impl ConnectError {
    /// What the kernel's error means at this address.
    pub fn of(address: SocketAddr, source: io::Error) -> Self {
        use io::ErrorKind as Kind;
        let needs_zone = match address {
            SocketAddr::V6(v6) => v6.ip().is_unicast_link_local() && v6.scope_id() == 0,
            SocketAddr::V4(_) => false,
        };
        match source.kind() {
            _ if needs_zone => Self::Zone { address },
            Kind::ConnectionRefused => Self::Refused { address },
            Kind::TimedOut | Kind::WouldBlock => Self::Late { address, seconds: CONNECT.as_secs() },
            Kind::InvalidData | Kind::UnexpectedEof | Kind::ConnectionReset => {
                Self::Stranger { address }
            }
            Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::AddrNotAvailable => {
                Self::Unreachable { address, source }
            }
            _ => Self::Other { address, source },
        }
    }
}

/// When a connection's thread does what.
#[derive(Clone, Debug)]
pub struct Plan {
    /// When the test began, by the steady clock.
    pub began_ns: u64,
    /// When senders stop.
    pub end_ns: u64,
    /// When everybody stops.
    pub deadline_ns: u64,
    /// Bytes of one call.
    pub block_bytes: usize,
    /// Bytes a second that a receiver takes at most.
    pub take_max: Option<u64>,
    /// Who chooses the threads' CPUs.
    pub seating: Seating,
    /// Whether the test is to end.
    pub control: Arc<Control>,
}

impl Plan {
    /// Waits until `total` bytes are due at a rate, in bytes a second, but not beyond a time or the test's end.
    fn keep(&self, rate: Option<u64>, total: u64, until_ns: u64) {
        let Some(rate) = rate else { return };
        let due_ns = u128::from(total) * 1_000_000_000 / u128::from(rate.max(1));
        let due_ns = u64::try_from(due_ns).unwrap_or(u64::MAX);
        let due_ns = self.began_ns.saturating_add(due_ns).min(until_ns);
        while steady_ns() < due_ns && !self.control.is_halted() {
            sleep_until(due_ns.min(steady_ns() + LOOK_NS));
        }
    }
}

/// Bytes of a call at a rate: a fiftieth of a second's at most, so that a slow rate is no row of bursts.
fn one_call(block_bytes: usize, rate: Option<u64>) -> usize {
    let due = rate.map_or(u64::MAX, |rate| (rate / 50).max(1));
    usize::try_from(due).map_or(block_bytes, |due| due.min(block_bytes))
}

/// A counter with a cache line of its own, so that threads do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// One connection of a test, at one end.
#[derive(Debug)]
pub struct Lane {
    index: u16,
    sends: bool,
    is_up: bool,
    stream: TcpStream,
    /// Bytes a second that it sends at most.
    send_max: Option<u64>,
    bytes: Counter,
    worker: Worker,
    seat: OnceLock<Seat>,
    outcome: Mutex<Outcome>,
}

#[derive(Clone, Debug, Default)]
struct Outcome {
    is_drained: bool,
    error: Option<String>,
}

impl Lane {
    fn new(index: u16, spec: &StreamsSpec, is_client: bool, stream: TcpStream) -> io::Result<Self> {
        let is_up = spec.client_sends(usize::from(index));
        let sends = is_up == is_client;
        let each = |rate: u64| (rate / u64::from(spec.streams.max(1))).max(1);
        let send_max = spec.rate_bytes_per_second.filter(|_| sends).map(each);
        stream.set_read_timeout(Some(LOOK))?;
        stream.set_write_timeout(Some(LOOK))?;
        if sends {
            if let Some(name) = &spec.congestion {
                socket::set_congestion(stream.as_fd(), name).map_err(|error| {
                    let why = format!("the sending host has no congestion control '{name}'");
                    io::Error::new(error.kind(), format!("{why} ({error})"))
                })?;
            }
            // The thread keeps the rate; the kernel sends what it was given no faster than that either.
            if let Some(Ok(rate)) = send_max.map(i32::try_from) {
                socket::set_option(stream.as_fd(), IntOption::MaxPacingRate, rate)?;
            }
        }
        let outcome = Mutex::default();
        let (bytes, worker, seat) = (Counter::default(), Worker::default(), OnceLock::new());
        Ok(Self { index, sends, is_up, stream, send_max, bytes, worker, seat, outcome })
    }

    /// Sends or takes until the end.
    pub fn work(&self, plan: &Plan) {
        self.worker.begin();
        let outcome = if self.sends { self.send(plan) } else { self.take(plan) };
        let outcome = outcome
            .unwrap_or_else(|error| Outcome { is_drained: false, error: Some(error.to_string()) });
        if !outcome.is_drained {
            // What is under way is of no use to anybody; an end would promise that it was all.
            inet::reset_on_close(self.stream.as_fd()).ok();
        }
        self.stream.shutdown(Shutdown::Both).ok();
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = outcome;
        self.worker.end();
    }

    fn send(&self, plan: &Plan) -> io::Result<Outcome> {
        let block = incompressible(plan.block_bytes);
        let block = &block[..one_call(block.len(), self.send_max)];
        let socket = self.stream.as_fd();
        let mut total = 0_u64;
        loop {
            let now = steady_ns();
            if now >= plan.end_ns || plan.control.is_halted() {
                break;
            }
            self.sit(plan, now);
            match socket::send(socket, block) {
                Ok(sent) => {
                    total += sent as u64;
                    self.bytes.0.store(total, Ordering::Relaxed);
                }
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error),
            }
            plan.keep(self.send_max, total, plan.end_ns);
        }
        self.stream.shutdown(Shutdown::Write)?;
        // The receiver closes when it has read everything.
        let mut rest = [0_u8; 64];
        while steady_ns() < plan.deadline_ns && !plan.control.is_halted() {
            match socket::receive(socket, &mut rest, true) {
                Ok(0) => return Ok(Outcome { is_drained: true, error: None }),
                Ok(_) => {}
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Outcome::default())
    }

    fn take(&self, plan: &Plan) -> io::Result<Outcome> {
        let mut block = Pages::filled(1, plan.block_bytes);
        let block = &mut block[..one_call(plan.block_bytes, plan.take_max)];
        let socket = self.stream.as_fd();
        let mut total = 0_u64;
        loop {
            match socket::receive(socket, block, true) {
                Ok(0) => return Self::end(plan),
                Ok(taken) => {
                    total += taken as u64;
                    self.bytes.0.store(total, Ordering::Relaxed);
                }
                Err(error) if is_pause(&error) => {}
                Err(error) => return Err(error),
            }
            let now = steady_ns();
            if now >= plan.deadline_ns || plan.control.is_halted() {
                return Ok(Outcome::default());
            }
            self.sit(plan, now);
            plan.keep(plan.take_max, total, plan.deadline_ns);
        }
    }

    /// Seats this thread, once, when it is time.
    #[inline]
    fn sit(&self, plan: &Plan, now_ns: u64) {
        if now_ns >= plan.began_ns.saturating_add(SEAT_NS) {
            self.seat.get_or_init(|| Seat::take(self.stream.as_fd(), plan.seating));
        }
    }

    /// What the end of a stream means: before its time, the sender was stopped, or is gone.
    fn end(plan: &Plan) -> io::Result<Outcome> {
        let is_early = || {
            let counted = plan.end_ns.saturating_sub(EARLY_NS);
            steady_ns() < counted && !plan.control.is_halted()
        };
        // Who stopped it says so over the control connection, which may be later.
        let until_ns = steady_ns() + WORD_NS;
        while is_early() && steady_ns() < until_ns {
            sleep_until(steady_ns() + WORD_LOOK_NS);
        }
        if is_early() {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "its sender closed it before the time was over, as when it is killed",
            ));
        }
        Ok(Outcome { is_drained: true, error: None })
    }

    /// Bytes and processor time so far, and the state of the connection.
    pub fn sample(&self) -> StreamSample {
        let (bytes, cpu_ns) = (self.bytes.0.load(Ordering::Relaxed), self.worker.cpu_ns());
        StreamSample { bytes, cpu_ns, tcp: TcpSample::read(self.stream.as_fd()) }
    }

    /// Whether this end sends.
    pub const fn sends(&self) -> bool {
        self.sends
    }

    /// Bytes so far, whether they were sent, and whether up.
    pub fn progress(&self) -> (u64, bool) {
        (self.bytes.0.load(Ordering::Relaxed), self.is_up)
    }

    /// What this end saw.
    pub fn report(&self, samples: Vec<StreamSample>) -> StreamReport {
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let text = |address: io::Result<SocketAddr>| {
            address.map_or_else(|_| String::new(), |address| address.to_string())
        };
        let buffer = |which: IntOption| {
            let bytes = socket::option(self.stream.as_fd(), which).unwrap_or(0);
            u64::try_from(bytes).unwrap_or(0)
        };
        StreamReport {
            index: self.index,
            sends: self.sends,
            is_up: self.is_up,
            local: text(self.stream.local_addr()),
            remote: text(self.stream.peer_addr()),
            congestion: socket::congestion(self.stream.as_fd()).unwrap_or_default(),
            send_buffer_bytes: buffer(IntOption::SendBuffer),
            receive_buffer_bytes: buffer(IntOption::ReceiveBuffer),
            bytes_total: self.bytes.0.load(Ordering::Relaxed),
            samples,
            is_drained: outcome.is_drained,
            seat: self.seat.get().cloned().unwrap_or_default(),
            error: outcome.error,
        }
    }
}

/// A call that may be made again: interrupted, or the time to look around has come.
pub(super) fn is_pause(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Bytes that nothing on the way can make fewer: xorshift64*, always the same.
fn incompressible(len: usize) -> Pages {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Pages::filled(0, len);
    for word in bytes.chunks_mut(8) {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        let random = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        word.copy_from_slice(&random[..word.len()]);
    }
    bytes
}

/// Makes all connections of a test: the client's half.
///
/// # Errors
/// [`ConnectError`], at the first that cannot be made.
pub fn connect(
    address: SocketAddr,
    spec: &StreamsSpec,
    token: Token,
) -> Result<Vec<Arc<Lane>>, ConnectError> {
    let one = |index: usize| {
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        let stream = connect_one(address, spec)?;
        show(&stream, index, token)?;
        Lane::new(index, spec, true, stream).map(Arc::new)
    };
    let named = |error| ConnectError::of(address, error);
    (0..spec.connections()).map(|index| one(index).map_err(named)).collect()
}

/// Connects within the time that there is for it.
pub(super) fn connect_in_time(address: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, CONNECT)
}

/// Shows the token on connection `index`, and waits until it is taken.
pub(super) fn show(mut stream: &TcpStream, index: u16, token: Token) -> io::Result<()> {
    let mut preamble = [0; PREAMBLE_BYTES];
    preamble[..TOKEN_BYTES].copy_from_slice(&token.0);
    preamble[TOKEN_BYTES..].copy_from_slice(&index.to_le_bytes());
    stream.set_read_timeout(Some(CONNECT))?;
    stream.write_all(&preamble)?;
    let mut answer = [0];
    stream.read_exact(&mut answer)?;
    if answer != [ACCEPTED] {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(())
}

/// A connection whose buffers are set before its window scale is settled.
fn connect_one(address: SocketAddr, spec: &StreamsSpec) -> io::Result<TcpStream> {
    let made: OwnedFd = inet::socket(address.is_ipv6(), inet::Kind::Stream)?;
    set_window(&made, spec)?;
    match inet::connect(made.as_fd(), address) {
        Err(error) if !inet::is_in_progress(&error) => return Err(error),
        _ => {}
    }
    let epoll = Epoll::new()?;
    epoll.add(made.as_fd(), 0, Interest { read: false, write: true })?;
    let mut events = Vec::with_capacity(1);
    let until = steady_ns() + u64::try_from(CONNECT.as_nanos()).unwrap_or(u64::MAX);
    while events.is_empty() {
        let left_ms = until.saturating_sub(steady_ns()) / 1_000_000;
        if left_ms == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match epoll.wait(&mut events, i32::try_from(left_ms).unwrap_or(i32::MAX)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
    }
    fd::set_nonblocking(made.as_fd(), false)?;
    let stream = TcpStream::from(made);
    match stream.take_error()? {
        Some(error) => Err(error),
        None => Ok(stream),
    }
}

fn set_window(socket: &OwnedFd, spec: &StreamsSpec) -> io::Result<()> {
    let Some(bytes) = spec.window_bytes else { return Ok(()) };
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    socket::set_option(socket.as_fd(), IntOption::SendBuffer, bytes)?;
    socket::set_option(socket.as_fd(), IntOption::ReceiveBuffer, bytes)
}

/// Where the connections of a test are taken: the agent's half. `port` 0 is any.
///
/// # Errors
/// The kernel's.
pub fn listen(spec: &StreamsSpec, port: u16) -> io::Result<TcpListener> {
    // Both families where the host has IPv6: an IPv4 client is then seen as a mapped address.
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
        .or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))?;
    listener.set_nonblocking(true)?;
    let socket = OwnedFd::from(listener);
    set_window(&socket, spec)?;
    Ok(TcpListener::from(socket))
}

/// Takes all connections of a test until the steady clock shows `until_ns`; strangers are turned away.
///
/// # Errors
/// TimedOut when not all came in time, Interrupted when the test was halted, and the kernel's.
pub fn accept(
    listener: &TcpListener,
    spec: &StreamsSpec,
    token: Token,
    until_ns: u64,
    control: &Control,
) -> io::Result<Vec<Arc<Lane>>> {
    accept_all(listener, spec.connections(), token, until_ns, control, |index, stream| {
        Lane::new(index, spec, false, stream).map(Arc::new)
    })
}

/// Takes as many connections as are wanted, each made into what is wanted of it.
pub(super) fn accept_all<T>(
    listener: &TcpListener,
    wanted: usize,
    token: Token,
    until_ns: u64,
    control: &Control,
    take: impl Fn(u16, TcpStream) -> io::Result<T>,
) -> io::Result<Vec<T>> {
    let mut places: Vec<Option<T>> = (0..wanted).map(|_| None).collect();
    let mut hall = Hall::open(listener)?;
    while places.iter().any(Option::is_none) {
        if control.is_halted() {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if steady_ns() >= until_ns {
            return Err(io::ErrorKind::TimedOut.into());
        }
        for (index, stream) in hall.greet(token)? {
            let Some(place) = places.get_mut(usize::from(index)) else { continue };
            if place.is_some() {
                continue;
            }
            // An end that cannot be as asked is no end: the client must not begin.
            let mut accepted = stream.try_clone()?;
            *place = Some(take(index, stream)?);
            accepted.write_all(&[ACCEPTED])?;
        }
    }
    Ok(places.into_iter().flatten().collect())
}

/// `address` with another port; a zone stays.
pub const fn with_port(address: SocketAddr, port: u16) -> SocketAddr {
    let mut address = address;
    address.set_port(port);
    address
}
