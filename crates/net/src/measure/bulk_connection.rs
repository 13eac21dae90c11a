//! Bulk TCP: connections that send or take as much as goes.
//!
//! The receiver's count is the truth. Left out: the calls on them (`super::carry`), and when everything is read
//! (`super::run`).

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use plumb_sys::fd;
use plumb_sys::fd::{Epoll, EpollInterest};
use plumb_sys::socket;
use plumb_sys::socket::IntOption;

use super::report::{StreamReport, StreamSample};
use super::test_spec::BulkTcpSpec;
use super::thread_cpu_clock::ThreadCpuClock;
use super::thread_placement::{ThreadPlacement, ThreadPlacementPolicy};
use crate::connection_pool;
use crate::evidence::tcp::TcpSample;
use plumb_clock::monotonic_ns;
use plumb_remote::address::BindAddress;
use plumb_remote::task_control::TestControl;
use plumb_remote::token::TestToken;
use plumb_remote::token_listener::{CONNECT_TIMEOUT, accept_all, send_preamble};
use plumb_remote::udp_handshake::UdpHandshakeError;

/// Connections that are made at the same time.
const PARALLEL_CONNECTS: usize = 32;

/// Why the connections of a test could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DataConnectError {
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
    TimedOut {
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
    NotTheAgent {
        /// Where to.
        address: SocketAddr,
    },
    /// Datagrams did not get there, or their answers not back.
    #[error(transparent)]
    UdpHandshake(#[from] UdpHandshakeError),
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
    MissingZone {
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

impl DataConnectError {
    /// What the kernel's error means at this address.
    pub fn of(address: SocketAddr, source: io::Error) -> Self {
        use io::ErrorKind as Kind;
        let needs_zone = match address {
            SocketAddr::V6(v6) => v6.ip().is_unicast_link_local() && v6.scope_id() == 0,
            SocketAddr::V4(_) => false,
        };
        match source.kind() {
            _ if needs_zone => Self::MissingZone { address },
            Kind::ConnectionRefused => Self::Refused { address },
            Kind::TimedOut | Kind::WouldBlock => {
                Self::TimedOut { address, seconds: CONNECT_TIMEOUT.as_secs() }
            }
            Kind::InvalidData | Kind::UnexpectedEof | Kind::ConnectionReset => {
                Self::NotTheAgent { address }
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
pub struct TransferPlan {
    /// When the test began, by the steady clock.
    pub began_ns: u64,
    /// When senders stop.
    pub end_ns: u64,
    /// When everybody stops.
    pub deadline_ns: u64,
    /// Bytes of one call.
    pub block_bytes: usize,
    /// Bytes a second that a receiver takes at most.
    pub receive_rate_max: Option<u64>,
    /// Who chooses the threads' CPUs.
    pub placement: ThreadPlacementPolicy,
    /// Whether the test is to end.
    pub control: Arc<TestControl>,
}

/// A counter with a cache line of its own, so that threads do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct PaddedCounter(AtomicU64);

impl PaddedCounter {
    /// Sets it; one thread alone does.
    #[inline]
    pub(super) fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }
}

/// One connection of a test, at one end.
#[derive(Debug)]
pub struct BulkConnection {
    index: u16,
    sends: bool,
    is_up: bool,
    pub(super) stream: TcpStream,
    /// Bytes a second that it sends at most.
    pub(super) send_rate_max: Option<u64>,
    pub(super) bytes: PaddedCounter,
    pub(super) cpu_clock: ThreadCpuClock,
    pub(super) placement: OnceLock<ThreadPlacement>,
    outcome: Mutex<TransferOutcome>,
}

/// How a connection ended.
#[derive(Clone, Debug, Default)]
pub(super) struct TransferOutcome {
    /// Whether everything that was sent has come.
    pub(super) is_drained: bool,
    /// What broke it.
    pub(super) error: Option<String>,
}

impl BulkConnection {
    fn new(index: u16, spec: &BulkTcpSpec, is_client: bool, stream: TcpStream) -> io::Result<Self> {
        let is_up = spec.client_sends(usize::from(index));
        let sends = is_up == is_client;
        let each = |rate: u64| (rate / u64::from(spec.streams.max(1))).max(1);
        let send_max = spec.rate_bytes_per_second.filter(|_| sends).map(each);
        stream.set_read_timeout(Some(connection_pool::CALL_TIMEOUT))?;
        stream.set_write_timeout(Some(connection_pool::CALL_TIMEOUT))?;
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
        let (bytes, worker, placement) =
            (PaddedCounter::default(), ThreadCpuClock::default(), OnceLock::new());
        Ok(Self {
            index,
            sends,
            is_up,
            stream,
            send_rate_max: send_max,
            bytes,
            cpu_clock: worker,
            placement,
            outcome,
        })
    }

    /// Bytes and processor time so far, and the state of the connection.
    pub fn sample(&self) -> StreamSample {
        let (bytes, cpu_ns) = (self.bytes.0.load(Ordering::Relaxed), self.cpu_clock.cpu_ns());
        StreamSample { bytes, cpu_ns, tcp: TcpSample::read(self.stream.as_fd()) }
    }

    /// Notes how it ended.
    pub(super) fn conclude(&self, outcome: TransferOutcome) {
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
            placement: self.placement.get().cloned().unwrap_or_default(),
            served_with: u16::try_from(self.cpu_clock.connections()).unwrap_or(u16::MAX),
            error: outcome.error,
        }
    }
}

/// Makes all connections of a test: the client's half.
///
/// # Errors
/// [`DataConnectError`], at the first that cannot be made.
pub fn connect(
    address: SocketAddr,
    spec: &BulkTcpSpec,
    token: TestToken,
) -> Result<Vec<Arc<BulkConnection>>, DataConnectError> {
    let one = |index: usize| {
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        let stream = connect_one(address, spec)?;
        send_preamble(&stream, index, token)?;
        BulkConnection::new(index, spec, true, stream).map(Arc::new)
    };
    let named = |error| DataConnectError::of(address, error);
    let all: Vec<usize> = (0..spec.connections()).collect();
    let mut lanes = Vec::with_capacity(all.len());
    for some in all.chunks(PARALLEL_CONNECTS) {
        for made in connect_in_parallel(some, &one) {
            lanes.push(made.map_err(named)?);
        }
    }
    Ok(lanes)
}

/// Does the same for several at once: each waits for round trips.
fn connect_in_parallel<T: Send>(
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

/// A connection whose buffers are set before its window scale is settled.
fn connect_one(address: SocketAddr, spec: &BulkTcpSpec) -> io::Result<TcpStream> {
    let made: OwnedFd = socket::open(address.is_ipv6(), socket::InetSocketKind::Stream)?;
    set_window(&made, spec)?;
    match socket::connect(made.as_fd(), address) {
        Err(error) if !socket::is_in_progress(&error) => return Err(error),
        _ => {}
    }
    let epoll = Epoll::new()?;
    epoll.add(made.as_fd(), 0, EpollInterest { read: false, write: true })?;
    let mut events = Vec::with_capacity(1);
    let until = monotonic_ns() + u64::try_from(CONNECT_TIMEOUT.as_nanos()).unwrap_or(u64::MAX);
    while events.is_empty() {
        let left_ms = until.saturating_sub(monotonic_ns()) / 1_000_000;
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

fn set_window(socket: &OwnedFd, spec: &BulkTcpSpec) -> io::Result<()> {
    let Some(bytes) = spec.window_bytes else { return Ok(()) };
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    socket::set_option(socket.as_fd(), IntOption::SendBuffer, bytes)?;
    socket::set_option(socket.as_fd(), IntOption::ReceiveBuffer, bytes)
}

/// Where the connections of a test are taken: the agent's half.
///
/// # Errors
/// The kernel's.
pub fn listen(spec: &BulkTcpSpec, at: BindAddress) -> io::Result<TcpListener> {
    let listener = at.open(TcpListener::bind)?;
    listener.set_nonblocking(true)?;
    let socket = OwnedFd::from(listener);
    set_window(&socket, spec)?;
    Ok(TcpListener::from(socket))
}

/// Takes all connections of a test until the steady clock shows `until_ns`; others are refused.
///
/// # Errors
/// TimedOut when not all came in time, Interrupted when the test was halted, and the kernel's.
pub fn accept(
    listener: &TcpListener,
    spec: &BulkTcpSpec,
    token: TestToken,
    until_ns: u64,
    control: &TestControl,
) -> io::Result<Vec<Arc<BulkConnection>>> {
    accept_all(listener, spec.connections(), token, until_ns, control, |index, stream| {
        BulkConnection::new(index, spec, false, stream).map(Arc::new)
    })
}
