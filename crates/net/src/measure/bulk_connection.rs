//! Bulk TCP as a part of a test: connections that send or receive as much as goes, and how they end.
//!
//! The receiver's count is the truth. After the end of the time that counts the sender closes its direction, and the
//! receiver reads on to the end of the stream.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use plumb_result::net::ThreadPlacement;
use plumb_sys::socket::IntOption;
use plumb_sys::{errno, socket};

use super::bulk::{BulkFlow, Counter, incompressible_block, receive_buffer};
use super::connect::{DataConnectError, connect_tcp, in_parallel};
use super::pacer::Pacer;
use super::report::{StreamReport, StreamSample};
use super::test_spec::BulkTcpSpec;
use super::thread::{ThreadCpuClock, ThreadPlacementPolicy, place_by_queue};
use crate::connection_pool::{self, NextCall, PooledConnection};
use crate::evidence::TcpSample;
use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use plumb_remote::address::BindAddress;
use plumb_remote::datagram_header::TestToken;
use plumb_remote::task_control::TestControl;
use plumb_remote::token_listener::{CONNECT_TIMEOUT, accept_all, send_preamble};

/// Connections that are made at the same time.
const PARALLEL_CONNECTS: usize = 32;
/// How much before its planned end a sender may end, whose beginning may have been earlier.
const START_SKEW_NS: u64 = 2_000_000_000;
/// How long to wait for the word that a test was stopped, and how often to look for it.
const STOP_WAIT_NS: u64 = 1_000_000_000;
const STOP_POLL_NS: u64 = 20_000_000;
/// How long after its beginning a connection's thread is placed: its flow's packets come by then.
const PLACEMENT_DELAY_NS: u64 = 50_000_000;
/// How long after its beginning a sender first limits what waits unsent in its socket, and again whenever it has sent
/// for twice as long. Megabytes there would take a slow link seconds to carry after the time that counts.
const UNSENT_DELAY_NS: u64 = 100_000_000;
/// The least of that limit; it is also at least a window, and what is sent in so long at the rate so far.
const UNSENT_MIN: u64 = 32 << 10;
const UNSENT_TIME_NS: u64 = 20_000_000;

/// When a connection does what.
#[derive(Clone, Debug)]
pub(super) struct TransferPlan {
    /// When the test began, by the steady clock.
    pub(super) began_ns: u64,
    /// When senders stop.
    pub(super) end_ns: u64,
    /// When everybody stops.
    pub(super) deadline_ns: u64,
    /// Bytes of one call.
    pub(super) block_bytes: usize,
    /// Bytes a second that a receiver takes at most.
    pub(super) receive_rate_max: Option<u64>,
    /// Who chooses the threads' CPUs.
    pub(super) placement: ThreadPlacementPolicy,
    /// Whether the test is to end.
    pub(super) control: Arc<TestControl>,
}

/// One connection of a test, at one end.
#[derive(Debug)]
pub(super) struct BulkConnection {
    index: u16,
    pub(super) sends: bool,
    pub(super) is_up: bool,
    stream: TcpStream,
    /// Bytes a second that it sends at most.
    send_rate_max: Option<u64>,
    /// Bytes so far.
    pub(super) bytes: Counter,
    cpu_clock: ThreadCpuClock,
    placement: OnceLock<ThreadPlacement>,
    outcome: Mutex<TransferOutcome>,
}

/// How a connection ended.
#[derive(Clone, Debug, Default)]
struct TransferOutcome {
    /// Whether everything that was sent has come.
    is_drained: bool,
    /// What broke it.
    error: Option<String>,
}

impl BulkConnection {
    fn new(index: u16, spec: &BulkTcpSpec, is_client: bool, stream: TcpStream) -> io::Result<Self> {
        let is_up = spec.client_sends(usize::from(index));
        let sends = is_up == is_client;
        let rate = spec.rate_bytes_per_second.filter(|_| sends);
        let send_rate_max = rate.map(|rate| (rate / u64::from(spec.streams.max(1))).max(1));
        stream.set_read_timeout(Some(connection_pool::CALL_TIMEOUT))?;
        stream.set_write_timeout(Some(connection_pool::CALL_TIMEOUT))?;
        if sends {
            // The thread keeps the rate; the kernel sends what it was given no faster than that either.
            if let Some(Ok(rate)) = send_rate_max.map(i32::try_from) {
                socket::set_option(stream.as_fd(), IntOption::MaxPacingRate, rate)?;
            }
        }
        Ok(Self {
            index,
            sends,
            is_up,
            stream,
            send_rate_max,
            bytes: Counter::default(),
            cpu_clock: ThreadCpuClock::default(),
            placement: OnceLock::new(),
            outcome: Mutex::default(),
        })
    }

    /// Bytes and processor time so far, and the state of the connection.
    pub(super) fn sample(&self) -> StreamSample {
        let (bytes, cpu_ns) = (self.bytes.get(), self.cpu_clock.cpu_ns());
        StreamSample { bytes, cpu_ns, tcp: TcpSample::read(self.stream.as_fd()) }
    }

    /// What this end saw.
    pub(super) fn report(&self, samples: Vec<StreamSample>) -> StreamReport {
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
            bytes_total: self.bytes.get(),
            samples,
            is_drained: outcome.is_drained,
            placement: ThreadPlacement {
                served: u32::try_from(self.cpu_clock.connections()).unwrap_or(u32::MAX),
                ..self.placement.get().cloned().unwrap_or_default()
            },
            error: outcome.error,
        }
    }
}

/// Makes all connections of a test: the client's half.
///
/// # Errors
/// [`DataConnectError`], at the first that cannot be made.
pub(super) fn connect(
    address: SocketAddr,
    spec: &BulkTcpSpec,
    token: TestToken,
) -> Result<Vec<Arc<BulkConnection>>, DataConnectError> {
    let one = |index: usize| {
        let index = u16::try_from(index).unwrap_or(u16::MAX);
        let socket = socket::open(address.is_ipv6(), socket::InetSocketKind::Stream)?;
        // Before the window scale is settled.
        set_window(&socket, spec)?;
        if spec.client_sends(usize::from(index)) {
            set_congestion(&socket, spec)?;
        }
        let stream = connect_tcp(socket, address, Span::from(CONNECT_TIMEOUT), &|| false)?;
        send_preamble(&stream, index, token)?;
        BulkConnection::new(index, spec, true, stream).map(Arc::new)
    };
    let all: Vec<usize> = (0..spec.connections()).collect();
    let mut connections = Vec::with_capacity(all.len());
    for some in all.chunks(PARALLEL_CONNECTS) {
        for made in in_parallel(some.iter().copied(), &one) {
            let made = made.and_then(|made| made);
            connections.push(made.map_err(|error| DataConnectError::of(address, &error))?);
        }
    }
    Ok(connections)
}

fn set_window(socket: &OwnedFd, spec: &BulkTcpSpec) -> io::Result<()> {
    let Some(bytes) = spec.window_bytes else { return Ok(()) };
    let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
    socket::set_option(socket.as_fd(), IntOption::SendBuffer, bytes)?;
    socket::set_option(socket.as_fd(), IntOption::ReceiveBuffer, bytes)
}

/// Before the connection begins: one that began with bbr stays paced.
fn set_congestion(socket: &OwnedFd, spec: &BulkTcpSpec) -> io::Result<()> {
    let Some(name) = &spec.congestion else { return Ok(()) };
    socket::set_congestion(socket.as_fd(), name).map_err(|error| {
        let why = format!("the sending host has no congestion control '{name}'");
        io::Error::new(error.kind(), format!("{why} ({error})"))
    })
}

/// Where the connections of a test are taken: the agent's half.
///
/// # Errors
/// The kernel's.
pub(super) fn listen(spec: &BulkTcpSpec, at: BindAddress) -> io::Result<TcpListener> {
    let listener = at.open(TcpListener::bind)?;
    listener.set_nonblocking(true)?;
    let socket = OwnedFd::from(listener);
    set_window(&socket, spec)?;
    if (0..spec.connections()).any(|index| !spec.client_sends(index)) {
        set_congestion(&socket, spec)?;
    }
    Ok(TcpListener::from(socket))
}

/// Takes all connections of a test until the steady clock shows `until_ns`; others are refused.
///
/// # Errors
/// TimedOut when not all came in time, Interrupted when the test was halted, and the kernel's.
pub(super) fn accept(
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

/// Serves these connections, all senders or all receivers, on this thread until all have ended.
pub(super) fn run_transfers(connections: &[&BulkConnection], plan: &TransferPlan) {
    let Some(first) = connections.first() else { return };
    // A thread serving several flows is not placed: each would want it elsewhere.
    let placement =
        if connections.len() > 1 { ThreadPlacementPolicy::Free } else { plan.placement };
    let plan = &TransferPlan { placement, ..plan.clone() };
    let mut transfers = Vec::with_capacity(connections.len());
    for &connection in connections {
        connection.cpu_clock.begin(connections.len());
        if !connection.sends {
            // The preamble's answer leaves the socket in delayed-ACK mode; without TCP_QUICKACK the test is slower.
            socket::set_option(connection.stream.as_fd(), IntOption::QuickAck, 1).ok();
        }
        let rate = if connection.sends { connection.send_rate_max } else { plan.receive_rate_max };
        transfers.push(BulkTransfer {
            connection,
            plan,
            flow: BulkFlow::default(),
            pace: rate.map(|rate| Pacer::new(plan.began_ns, rate)),
            // A fiftieth of a second's at most, so that a slow rate is no row of bursts.
            call_bytes_max: rate.map_or(usize::MAX, |rate| {
                usize::try_from((rate / 50).max(1)).unwrap_or(usize::MAX)
            }),
            unsent_bytes_max: usize::MAX,
            limit_unsent_ns: plan.began_ns.saturating_add(UNSENT_DELAY_NS),
            phase: TransferPhase::Transferring,
        });
    }
    let mut buffer = if first.sends {
        incompressible_block(plan.block_bytes)
    } else {
        receive_buffer(plan.block_bytes)
    };
    connection_pool::serve(&mut transfers, &mut buffer);
    // Until all have ended, the thread works for all.
    for connection in connections {
        connection.cpu_clock.end();
    }
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransferPhase {
    /// Bytes are sent, or received.
    Transferring,
    /// All is sent, and the receiver closes when it has read everything.
    Closing,
    /// The stream ended early: until then, word may come that the test was stopped.
    AwaitingStop(u64),
    Done,
}

/// One connection and how far it has come.
struct BulkTransfer<'a> {
    connection: &'a BulkConnection,
    plan: &'a TransferPlan,
    flow: BulkFlow,
    pace: Option<Pacer>,
    call_bytes_max: usize,
    /// The most that may wait unsent in its socket, and when that is to be set anew.
    unsent_bytes_max: usize,
    limit_unsent_ns: u64,
    phase: TransferPhase,
}

impl BulkTransfer<'_> {
    fn send(&mut self, block: &[u8]) -> io::Result<NextCall> {
        let now_ns = monotonic_ns();
        if now_ns >= self.plan.end_ns || self.plan.control.is_halted() {
            self.connection.stream.shutdown(Shutdown::Write)?;
            self.phase = TransferPhase::Closing;
            return Ok(NextCall::Socket);
        }
        self.place_thread(now_ns);
        self.limit_unsent(now_ns);
        let due_ns = self.due_ns().min(self.plan.end_ns);
        if due_ns > now_ns {
            return Ok(NextCall::At(due_ns));
        }
        let most = self.call_bytes_max.min(self.unsent_bytes_max);
        self.flow.send(self.connection.stream.as_fd(), block, most)?;
        self.connection.bytes.set(self.flow.bytes);
        Ok(NextCall::Socket)
    }

    /// Limits what waits unsent in the socket to a window, or to what is sent in a short while.
    #[inline]
    fn limit_unsent(&mut self, now_ns: u64) {
        if now_ns < self.limit_unsent_ns {
            return;
        }
        let elapsed_ns = now_ns.saturating_sub(self.plan.began_ns).max(1);
        self.limit_unsent_ns = now_ns.saturating_add(elapsed_ns);
        let tcp = TcpSample::read(self.connection.stream.as_fd());
        let short_while = tcp.acked_bytes.saturating_mul(UNSENT_TIME_NS) / elapsed_ns;
        let window = u64::from(tcp.cwnd_segments) * u64::from(tcp.mss_bytes);
        let unsent = window.max(short_while).max(UNSENT_MIN);
        let unsent = i32::try_from(unsent).unwrap_or(i32::MAX);
        // The kernel goes on past the limit to the end of a buffer, of 64 KiB at most.
        self.unsent_bytes_max = usize::try_from(unsent).unwrap_or(usize::MAX);
        socket::set_option(self.connection.stream.as_fd(), IntOption::UnsentMax, unsent).ok();
    }

    /// Waits for the end that says that everything has come.
    fn close(&mut self) -> io::Result<NextCall> {
        match socket::receive(self.connection.stream.as_fd(), &mut [0; 64], true) {
            Ok(0) => return Ok(self.end(true, None)),
            Err(error) if !errno::is_transient(&error) => return Err(error),
            _ => {}
        }
        let is_late = monotonic_ns() >= self.plan.deadline_ns || self.plan.control.is_halted();
        Ok(if is_late { self.end(false, None) } else { NextCall::Socket })
    }

    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<NextCall> {
        let socket = self.connection.stream.as_fd();
        if self.flow.receive(socket, buffer, self.call_bytes_max)? == Some(0) {
            self.phase = TransferPhase::AwaitingStop(monotonic_ns() + STOP_WAIT_NS);
            return self.await_stop();
        }
        self.connection.bytes.set(self.flow.bytes);
        let now_ns = monotonic_ns();
        if now_ns >= self.plan.deadline_ns || self.plan.control.is_halted() {
            return Ok(self.end(false, None));
        }
        self.place_thread(now_ns);
        let due_ns = self.due_ns().min(self.plan.deadline_ns);
        Ok(if due_ns > now_ns { NextCall::At(due_ns) } else { NextCall::Socket })
    }

    /// What the end of a stream means: before its time, the sender was stopped, or is gone. Who stopped it says so
    /// over the control connection, which may be later.
    fn await_stop(&mut self) -> io::Result<NextCall> {
        let TransferPhase::AwaitingStop(until_ns) = self.phase else { return Ok(NextCall::Done) };
        let now_ns = monotonic_ns();
        let counted = self.plan.end_ns.saturating_sub(START_SKEW_NS);
        if now_ns >= counted || self.plan.control.is_halted() {
            return Ok(self.end(true, None));
        }
        if now_ns < until_ns {
            return Ok(NextCall::At(now_ns + STOP_POLL_NS));
        }
        Err(io::Error::new(
            io::ErrorKind::UnexpectedEof,
            "its sender closed it before the time was over, as when it is killed",
        ))
    }

    /// When the next byte is due.
    #[inline]
    fn due_ns(&self) -> u64 {
        self.pace.map_or(0, |pace| pace.due_ns(self.flow.bytes))
    }

    /// Places this thread, once, when it is time.
    #[inline]
    fn place_thread(&self, now_ns: u64) {
        if now_ns >= self.plan.began_ns.saturating_add(PLACEMENT_DELAY_NS) {
            let socket = self.connection.stream.as_fd();
            self.connection.placement.get_or_init(|| place_by_queue(socket, self.plan.placement));
        }
    }

    fn end(&mut self, is_drained: bool, error: Option<String>) -> NextCall {
        let stream = &self.connection.stream;
        if !is_drained {
            // A reset, as a FIN would claim that all data was sent.
            socket::reset_on_close(stream.as_fd()).ok();
        }
        stream.shutdown(Shutdown::Both).ok();
        *self.connection.outcome.lock().unwrap_or_else(PoisonError::into_inner) =
            TransferOutcome { is_drained, error };
        self.phase = TransferPhase::Done;
        NextCall::Done
    }
}

impl PooledConnection for BulkTransfer<'_> {
    fn socket(&self) -> BorrowedFd<'_> {
        self.connection.stream.as_fd()
    }

    fn is_reading(&self) -> bool {
        !(self.connection.sends && self.phase == TransferPhase::Transferring)
    }

    #[inline]
    fn call(&mut self, buffer: &mut [u8]) -> NextCall {
        let next = match self.phase {
            TransferPhase::Transferring if self.connection.sends => self.send(buffer),
            TransferPhase::Transferring => self.receive(buffer),
            TransferPhase::Closing => self.close(),
            TransferPhase::AwaitingStop(_) => self.await_stop(),
            TransferPhase::Done => return NextCall::Done,
        };
        next.unwrap_or_else(|error| {
            self.fail(&error);
            NextCall::Done
        })
    }

    fn fail(&mut self, error: &io::Error) {
        if self.phase != TransferPhase::Done {
            self.end(false, Some(error.to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_sender_before_a_slow_reader_keeps_little_unsent() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (reader, _) = listener.accept().unwrap();
        let spec = BulkTcpSpec::one(crate::measure::test_spec::TransferDirection::Up);
        let connection = BulkConnection::new(0, &spec, true, stream).unwrap();
        let unlimited = socket::option(connection.stream.as_fd(), IntOption::UnsentMax).unwrap();
        let began_ns = monotonic_ns();
        let end_ns = began_ns + 60_000_000_000;
        let control = Arc::<TestControl>::default();
        let plan = TransferPlan {
            began_ns,
            end_ns,
            deadline_ns: end_ns,
            block_bytes: 1 << 17,
            receive_rate_max: None,
            placement: ThreadPlacementPolicy::Free,
            control: Arc::clone(&control),
        };
        thread::scope(|scope| {
            scope.spawn(|| run_transfers(&[&connection], &plan));
            loop {
                assert!(monotonic_ns() < end_ns, "{:?}", connection.sample());
                socket::receive(reader.as_fd(), &mut [0; 4096], true).ok();
                let limit = socket::option(connection.stream.as_fd(), IntOption::UnsentMax);
                let limit = limit.unwrap();
                let unsent = connection.sample().tcp.unsent_bytes;
                if limit != unlimited && i64::from(unsent) <= i64::from(limit) {
                    break;
                }
                thread::yield_now();
            }
            control.halt();
            drop(reader);
        });
    }
}
