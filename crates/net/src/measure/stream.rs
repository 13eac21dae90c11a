//! Bulk TCP: connections that send or take as much as goes.
//!
//! The receiver's count is the truth. Left out: the calls on them (`super::carry`), and when everything is read
//! (`super::run`).

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use plumb_sys::epoll::{Epoll, Interest};
use plumb_sys::socket::{self, IntOption};
use plumb_sys::{fd, inet};

use super::bind::Bind;
use super::control::Control;
use super::datagram::meeting::MeetingError;
use super::hall::Hall;
use super::report::{StreamReport, StreamSample};
use super::seat::{Seat, Seating};
use super::spec::StreamsSpec;
use super::worker::Worker;
use crate::clock::steady_ns;
use crate::crew;
use crate::evidence::tcp::TcpSample;
use crate::protocol::token::{TOKEN_BYTES, Token};

/// What a connection sends first: the token and its number.
pub(super) const PREAMBLE_BYTES: usize = TOKEN_BYTES + 2;
/// What it is answered with.
const ACCEPTED: u8 = 0x06;
/// How long making a connection and its preamble may take.
const CONNECT: Duration = Duration::from_secs(10);

/// Connections that are made at the same time.
const AT_ONCE: usize = 32;

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

/// When a connection does what.
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

/// A counter with a cache line of its own, so that threads do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Counter(AtomicU64);

impl Counter {
    /// Sets it; one thread alone does.
    #[inline]
    pub(super) fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }
}

/// One connection of a test, at one end.
#[derive(Debug)]
pub struct Lane {
    index: u16,
    sends: bool,
    is_up: bool,
    pub(super) stream: TcpStream,
    /// Bytes a second that it sends at most.
    pub(super) send_max: Option<u64>,
    pub(super) bytes: Counter,
    pub(super) worker: Worker,
    pub(super) seat: OnceLock<Seat>,
    outcome: Mutex<Outcome>,
}

/// How a connection ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    /// Whether everything that was sent has come.
    pub(super) is_drained: bool,
    /// What broke it.
    pub(super) error: Option<String>,
}

impl Lane {
    fn new(index: u16, spec: &StreamsSpec, is_client: bool, stream: TcpStream) -> io::Result<Self> {
        let is_up = spec.client_sends(usize::from(index));
        let sends = is_up == is_client;
        let each = |rate: u64| (rate / u64::from(spec.streams.max(1))).max(1);
        let send_max = spec.rate_bytes_per_second.filter(|_| sends).map(each);
        stream.set_read_timeout(Some(crew::LOOK))?;
        stream.set_write_timeout(Some(crew::LOOK))?;
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

    /// Bytes and processor time so far, and the state of the connection.
    pub fn sample(&self) -> StreamSample {
        let (bytes, cpu_ns) = (self.bytes.0.load(Ordering::Relaxed), self.worker.cpu_ns());
        StreamSample { bytes, cpu_ns, tcp: TcpSample::read(self.stream.as_fd()) }
    }

    /// Notes how it ended.
    pub(super) fn conclude(&self, outcome: Outcome) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = outcome;
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
            served_with: u16::try_from(self.worker.served()).unwrap_or(u16::MAX),
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
    let all: Vec<usize> = (0..spec.connections()).collect();
    let mut lanes = Vec::with_capacity(all.len());
    for some in all.chunks(AT_ONCE) {
        for made in at_once(some, &one) {
            lanes.push(made.map_err(named)?);
        }
    }
    Ok(lanes)
}

/// Does the same for several at once: each waits for round trips.
fn at_once<T: Send>(
    all: &[usize],
    one: &(impl Fn(usize) -> io::Result<T> + Sync),
) -> Vec<io::Result<T>> {
    if let [only] = all {
        return vec![one(*only)];
    }
    let in_thread = || thread::Builder::new().name("connect".to_owned());
    thread::scope(|scope| {
        let begun: Vec<_> =
            all.iter().map(|&each| in_thread().spawn_scoped(scope, move || one(each))).collect();
        let ended = |thread: thread::ScopedJoinHandle<'_, io::Result<T>>| {
            thread
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("the thread that connects ended")))
        };
        begun.into_iter().map(|begun| begun.and_then(ended)).collect()
    })
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

/// Where the connections of a test are taken: the agent's half.
///
/// # Errors
/// The kernel's.
pub fn listen(spec: &StreamsSpec, at: Bind) -> io::Result<TcpListener> {
    let listener = at.open(TcpListener::bind)?;
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
