//! One stream of a test: its socket, what it counted, and what tells it to stop.
//!
//! A worker owns its counters and only stores to them; whoever reports only loads. Left out: the loops
//! themselves ([`tcp`], [`udp`]), and what is made of the counts ([`super::transfer`]).

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use plumb_base::time::{Instant, Span};
use plumb_sys::fd;
use plumb_sys::memory::PageAlignedBuffer;

use plumb_net::measure::bulk::incompressible_block;
use plumb_net::measure::datagram::sequence_tracker::SequenceTracker;

pub mod tcp;
pub mod udp;

/// How soon a worker that waits for its socket notices that it is to stop.
pub const SOCKET_TIMEOUT: Span = Span::from_ms(20);

/// The socket of a stream.
#[derive(Debug)]
pub enum Iperf3Socket {
    /// A connection.
    Tcp(TcpStream),
    /// A socket that is connected to one address.
    Udp(UdpSocket),
}

impl Iperf3Socket {
    /// Both its addresses: this side's, then the other's.
    ///
    /// # Errors
    /// The kernel's: it is connected no longer.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        match self {
            Self::Tcp(socket) => Ok((socket.local_addr()?, socket.peer_addr()?)),
            Self::Udp(socket) => Ok((socket.local_addr()?, socket.peer_addr()?)),
        }
    }

    /// Its number in this process, by which reports name it.
    pub fn number(&self) -> u32 {
        self.as_fd().as_raw_fd().unsigned_abs()
    }

    /// Makes its calls wait for no longer than a tick.
    ///
    /// # Errors
    /// The kernel's.
    pub fn limit_waits(&self) -> io::Result<()> {
        let tick = Some(SOCKET_TIMEOUT.into());
        match self {
            Self::Tcp(socket) => {
                socket.set_nonblocking(false)?;
                socket.set_read_timeout(tick)?;
                socket.set_write_timeout(tick)
            }
            Self::Udp(socket) => {
                socket.set_nonblocking(false)?;
                socket.set_read_timeout(tick)?;
                socket.set_write_timeout(tick)
            }
        }
    }
}

impl AsFd for Iperf3Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Udp(socket) => socket.as_fd(),
        }
    }
}

/// What a stream counted, from its beginning or between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Iperf3Count {
    /// Bytes sent, or received.
    pub bytes: u64,
    /// Datagrams sent; of a receiver, the highest number that came.
    pub packets: u64,
    /// Datagrams that never came, below the highest that did.
    pub lost: i64,
    /// Datagrams that came after a higher number.
    pub out_of_order: u64,
    /// Datagrams that came again.
    pub duplicates: u64,
    /// Smoothed difference of transit times, in seconds; as it stands, not a difference.
    pub jitter_s: f64,
}

impl Iperf3Count {
    /// What was added since an earlier count.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(earlier.bytes),
            packets: self.packets.saturating_sub(earlier.packets),
            lost: self.lost - earlier.lost,
            out_of_order: self.out_of_order.saturating_sub(earlier.out_of_order),
            duplicates: self.duplicates.saturating_sub(earlier.duplicates),
            jitter_s: self.jitter_s,
        }
    }
}

/// The counters of one worker, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct StreamMeter {
    bytes: AtomicU64,
    packets: AtomicU64,
    lost: AtomicU64,
    late: AtomicU64,
    duplicates: AtomicU64,
    jitter_ns: AtomicU64,
    last_ns: AtomicU64,
    is_over: AtomicBool,
    error: Mutex<Option<String>>,
}

impl StreamMeter {
    /// Sets the number of bytes; only the worker calls it.
    #[inline]
    pub fn set_bytes(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    /// Sets the number of datagrams; only the worker calls it.
    #[inline]
    pub fn set_packets(&self, packets: u64) {
        self.packets.store(packets, Ordering::Relaxed);
    }

    /// Notes when the last byte came; only the worker calls it.
    #[inline]
    pub fn set_last(&self, moment: Instant) {
        self.last_ns.store(moment.since_origin().as_ns(), Ordering::Relaxed);
    }

    /// Sets what a receiver of datagrams knows; only the worker calls it.
    #[inline]
    pub fn set_account(&self, account: &SequenceTracker, jitter_ns: f64) {
        // As many were sent as the greatest number says, as iperf3 has it.
        self.packets.store(account.next(), Ordering::Relaxed);
        self.lost.store(account.missing(), Ordering::Relaxed);
        self.late.store(account.late(), Ordering::Relaxed);
        self.duplicates.store(account.duplicates(), Ordering::Relaxed);
        let jitter_ns = Span::from_secs_f64(jitter_ns * 1e-9).as_ns();
        self.jitter_ns.store(jitter_ns, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn count(&self) -> Iperf3Count {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Iperf3Count {
            bytes: load(&self.bytes),
            packets: load(&self.packets),
            lost: i64::try_from(load(&self.lost)).unwrap_or(i64::MAX),
            out_of_order: load(&self.late),
            duplicates: load(&self.duplicates),
            jitter_s: Span::from_ns(load(&self.jitter_ns)).as_secs_f64(),
        }
    }

    /// When the last byte came, as far as it was noted.
    pub fn last(&self) -> Instant {
        Instant::after_origin(Span::from_ns(self.last_ns.load(Ordering::Relaxed)))
    }

    /// Why the worker ended before it was told to.
    pub fn error(&self) -> Option<String> {
        self.error.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Its worker has ended.
    pub fn end(&self, result: Result<(), &io::Error>, switch: &StopFlag, goal: &ByteBudget) {
        // Once it is stopping the other side may close as it likes.
        if let Err(error) = result
            && !switch.is_stopping()
        {
            self.set_error(error.to_string());
        }
        self.is_over.store(true, Ordering::Release);
        goal.event.notify();
    }

    /// Whether its worker has ended.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Notes why it ended.
    pub fn set_error(&self, why: String) {
        *self.error.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(why);
    }
}

/// What all workers of a test look at before each call.
#[derive(Debug, Default)]
pub struct StopFlag(AtomicU8);

impl StopFlag {
    const STOPPING: u8 = 1;
    const OFF: u8 = 2;

    /// Senders stop; receivers go on, and note when their last byte came.
    pub fn stop(&self) {
        self.0.fetch_max(Self::STOPPING, Ordering::Relaxed);
    }

    /// Everybody stops.
    pub fn stop_all(&self) {
        self.0.store(Self::OFF, Ordering::Relaxed);
    }

    /// Whether senders are to stop.
    #[inline]
    pub fn is_stopping(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// Whether everybody is.
    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::OFF
    }
}

/// An eventfd that is readable when a worker has ended, or when enough bytes have gone.
#[derive(Debug)]
pub struct CompletionEventFd(OwnedFd);

impl CompletionEventFd {
    /// One that is not readable yet.
    ///
    /// # Errors
    /// The kernel's: there are no descriptors left.
    pub fn new() -> io::Result<Self> {
        fd::eventfd().map(Self)
    }

    /// Makes it readable. A counter that is full is so already.
    pub fn notify(&self) {
        fd::write(self.0.as_fd(), &1_u64.to_ne_bytes()).ok();
    }

    /// Waits until it is readable, for so long at most, and takes its count.
    ///
    /// # Errors
    /// The kernel's.
    pub fn wait(&self, patience_ms: i32) -> io::Result<bool> {
        let is_readable = fd::poll_readable(self.0.as_fd(), patience_ms)?;
        if is_readable {
            fd::read(self.0.as_fd(), &mut [0; 8])?;
        }
        Ok(is_readable)
    }
}

impl AsFd for CompletionEventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// How many bytes a test is to move, over all its streams, from when it counts on; without end where nobody said.
#[derive(Debug)]
pub struct ByteBudget {
    bytes: u64,
    /// What no stream has taken on yet.
    left_to_claim: AtomicU64,
    left_to_send: AtomicU64,
    left_to_receive: AtomicU64,
    /// Rings when one of both is reached, or a worker ends.
    pub event: CompletionEventFd,
}

impl ByteBudget {
    /// A goal of so many bytes each way.
    ///
    /// # Errors
    /// The kernel's: there are no descriptors left.
    pub fn new(bytes: Option<u64>) -> io::Result<Self> {
        let all = || AtomicU64::new(u64::MAX);
        Ok(Self {
            bytes: bytes.unwrap_or(u64::MAX),
            left_to_claim: all(),
            left_to_send: all(),
            left_to_receive: all(),
            event: CompletionEventFd::new()?,
        })
    }

    /// Counts from here on: until then there is no end.
    pub fn begin(&self) {
        for left in [&self.left_to_receive, &self.left_to_send, &self.left_to_claim] {
            left.store(self.bytes, Ordering::Relaxed);
        }
    }

    /// How many of so many bytes may still be taken on by a stream, which then sends them.
    #[inline]
    pub fn claim(&self, bytes: usize) -> usize {
        let before = spend(&self.left_to_claim, bytes).unwrap_or(u64::MAX);
        usize::try_from(before.min(bytes as u64)).unwrap_or(bytes)
    }

    /// So many bytes were sent.
    #[inline]
    pub fn sent(&self, bytes: usize) {
        self.moved(&self.left_to_send, bytes);
    }

    /// So many bytes came.
    #[inline]
    pub fn received(&self, bytes: usize) {
        self.moved(&self.left_to_receive, bytes);
    }

    #[inline]
    fn moved(&self, left: &AtomicU64, bytes: usize) {
        if spend(left, bytes).is_some_and(|before| before > 0 && before <= bytes as u64) {
            self.event.notify();
        }
    }

    /// Whether all was sent, or all was received.
    pub fn is_reached(&self) -> bool {
        self.left_to_send.load(Ordering::Relaxed) == 0
            || self.left_to_receive.load(Ordering::Relaxed) == 0
    }
}

/// Takes so many off what is left: how much that was. None where there is no end: nothing is shared between streams then.
#[inline]
fn spend(left: &AtomicU64, bytes: usize) -> Option<u64> {
    if left.load(Ordering::Relaxed) == u64::MAX {
        return None;
    }
    let less = |left: u64| Some(left.saturating_sub(bytes as u64));
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).ok()
}

/// Bytes to send: a repeating pattern, or chance that nobody on the way can compress.
pub fn payload(len: usize, repeating: bool) -> PageAlignedBuffer {
    if !repeating {
        return incompressible_block(len);
    }
    let mut block = PageAlignedBuffer::filled(1, len);
    for (digit, byte) in (b'0'..=b'9').cycle().zip(block.iter_mut()) {
        *byte = digit;
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_shared_exactly_and_rings_once_it_is_received() {
        let goal = ByteBudget::new(Some(250)).unwrap();
        assert_eq!(goal.claim(1_000), 1_000, "what does not count has no end");
        goal.sent(1_000);
        goal.begin();
        assert_eq!(
            [goal.claim(100), goal.claim(100), goal.claim(100), goal.claim(100)],
            [100, 100, 50, 0]
        );
        // All is taken on, and not yet sent.
        goal.sent(249);
        assert!(!goal.event.wait(0).unwrap() && !goal.is_reached());
        goal.sent(1);
        assert!(goal.event.wait(0).unwrap() && goal.is_reached());
        let goal = ByteBudget::new(Some(250)).unwrap();
        goal.received(1_000);
        goal.begin();
        goal.received(249);
        assert!(!goal.event.wait(0).unwrap() && !goal.is_reached());
        goal.received(10);
        goal.received(10);
        assert!(goal.event.wait(0).unwrap() && goal.is_reached());
        assert!(!goal.event.wait(0).unwrap(), "it is silent again");
        assert_eq!(ByteBudget::new(None).unwrap().claim(7), 7);
    }

    #[test]
    fn a_switch_is_never_turned_on_again() {
        let switch = StopFlag::default();
        assert!(!switch.is_stopping());
        switch.stop_all();
        switch.stop();
        assert!(switch.is_stopping() && switch.is_stopped());
    }

    #[test]
    fn a_pattern_repeats_and_chance_does_not() {
        assert_eq!(&payload(12, true)[..], b"012345678901");
        let chance = payload(4096, false);
        assert_eq!(chance.len(), 4096);
        assert!(chance[..2048] != chance[2048..]);
    }
}
