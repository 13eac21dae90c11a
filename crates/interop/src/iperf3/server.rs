//! iperf3's server: takes connections, knows which test each belongs to, and gives each test a thread.
//!
//! A connection says its cookie first. One thread reads all that have not said it yet, however slowly
//! they do, and holds a bounded number of them for a bounded time. Left out: what a test does
//! (`conduct`), and what it says ([`super::session`]).

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use plumb_base::time::{Instant, Span};
use plumb_base::units::Rate;
use plumb_remote::token_listener::PreambleListener;
use plumb_sys::socket;
use plumb_sys::socket::InetSocketKind;

use super::message::{COOKIE_LEN, Iperf3Cookie, Iperf3Message};
use super::record::{Iperf3ConcurrentTests, Iperf3Test};
use super::session::Iperf3Limits;

pub mod test_driver;

/// Connections that have not said their cookie: more than these, and the oldest has to go.
const PENDING_MAX: usize = 256;
/// How long a connection may take for its cookie.
const COOKIE_TIMEOUT: Span = Span::from_secs(10);
/// Streams that wait for their test to take them.
const STREAMS_WAITING: usize = 256;
/// Tests that wait for nothing but a goodbye.
const FINISHING_MAX: usize = 64;
/// Connections that the kernel holds for a listener.
const BACKLOG: i32 = 256;
/// How soon the server notices that it is to end.
const TICK_MS: i32 = 100;
/// Tests of which it is remembered when they ran.
const TEST_TIMES_MAX: usize = 4096;

/// Seconds of the rate that may come at once.
const DEPTH_S: u128 = 5;
/// Blocks of each stream that may.
const DEPTH_BLOCKS: u128 = 4;

/// What a server is to be.
#[derive(Clone, Debug)]
pub struct Iperf3ServerOptions {
    /// Where it listens, each for its own family only.
    pub addresses: Vec<SocketAddr>,
    /// How many tests run at the same time; iperf3 has one.
    pub tests_max: usize,
    /// Whether it ends after one test.
    pub one_off: bool,
    /// What a test may be.
    pub limits: Iperf3Limits,
    /// How often to look at the streams of a test.
    pub interval: Span,
}

/// What a server tells about its tests.
#[derive(Debug)]
pub enum Iperf3ServerEvent {
    /// A test was agreed on.
    Began {
        /// The client.
        client: SocketAddr,
    },
    /// One came to its end, or not: then `error` is set.
    Ended(Box<Iperf3Test>),
    /// One failed before there was anything of it.
    Failed {
        /// The client.
        client: SocketAddr,
        /// Why.
        why: String,
    },
    /// A client was turned away, because there was no room.
    Refused {
        /// The client.
        client: SocketAddr,
    },
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum Iperf3ServerError {
    /// The address is taken, or is none of this machine's.
    #[error("cannot listen on {address}: {why}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// The kernel's word.
        why: io::Error,
    },
    /// The kernel's word, about something else.
    #[error("the server cannot go on: {0}")]
    System(#[from] io::Error),
}

/// A server that listens.
#[derive(Debug)]
pub struct Iperf3Server {
    listeners: Vec<TcpListener>,
    options: Iperf3ServerOptions,
}

/// What all tests of a server share.
#[derive(Debug)]
struct Iperf3ServerState {
    limits: Iperf3Limits,
    interval: Span,
    /// Where a test waits for its streams, by its cookie.
    streams_by_cookie: Mutex<BTreeMap<Iperf3Cookie, SyncSender<TcpStream>>>,
    /// When tests ran: of those that still do there is no end.
    test_times: Mutex<VecDeque<(u64, Instant, Option<Instant>)>>,
    /// Only one test at a time connects streams of UDP: a hello does not say whose it is.
    udp_handshake: Mutex<()>,
    stopping: AtomicBool,
    /// Tests that have not come to their goodbye.
    running: AtomicUsize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Iperf3ServerState {
    /// A test begins.
    fn note_begin(&self, id: u64, at: Instant) {
        let mut times = locked(&self.test_times);
        if times.len() >= TEST_TIMES_MAX {
            times.pop_front();
        }
        times.push_back((id, at, None));
    }

    /// It ends: what ran beside it.
    fn note_end(&self, id: u64, at: Instant) -> Iperf3ConcurrentTests {
        let mut times = locked(&self.test_times);
        let Some(own) = times.iter_mut().find(|time| time.0 == id) else {
            return Iperf3ConcurrentTests::default();
        };
        own.2 = Some(at);
        let begin = own.1;
        let mut overlap = Iperf3ConcurrentTests::default();
        for (_, start, end) in times.iter().filter(|time| time.0 != id) {
            let together = end.unwrap_or(at).min(at).saturating_since((*start).max(begin));
            if together > Span::ZERO {
                overlap.tests += 1;
                overlap.duration += together;
            }
        }
        // Tests that ended before the oldest running one began overlap with none.
        let running = times.iter().filter(|time| time.2.is_none()).map(|time| time.1);
        let oldest = running.min().unwrap_or(Instant::NEVER);
        times.retain(|time| time.2.is_none_or(|end| end > oldest));
        overlap
    }
}

impl Iperf3Server {
    /// Listens.
    ///
    /// # Errors
    /// An address cannot be had.
    pub fn bind(options: Iperf3ServerOptions) -> Result<Self, Iperf3ServerError> {
        let mut listeners: Vec<TcpListener> = Vec::new();
        for address in &options.addresses {
            let mut address = *address;
            // Two families on any port are on the same one.
            if address.port() == 0
                && let Some(first) = listeners.first()
            {
                address.set_port(first.local_addr()?.port());
            }
            let fail = |why| Iperf3ServerError::Listen { address, why };
            let socket = socket::open(address.is_ipv6(), InetSocketKind::Stream).map_err(fail)?;
            socket::bind(&socket, address).map_err(fail)?;
            socket::listen(&socket, BACKLOG).map_err(fail)?;
            listeners.push(socket.into());
        }
        Ok(Self { listeners, options })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel's.
    pub fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Serves until `stop` says so, or one test is over where that is all there is to be.
    ///
    /// # Errors
    /// The kernel has no means left to wait for connections.
    pub fn serve(
        &self,
        stop: &mut dyn FnMut() -> bool,
        notice: &mut dyn FnMut(Iperf3ServerEvent),
    ) -> Result<(), Iperf3ServerError> {
        let (notices, heard) = mpsc::channel();
        let shared = Arc::new(Iperf3ServerState {
            limits: self.options.limits,
            interval: self.options.interval,
            streams_by_cookie: Mutex::default(),
            test_times: Mutex::default(),
            udp_handshake: Mutex::default(),
            stopping: AtomicBool::new(false),
            running: AtomicUsize::new(0),
        });
        let mut door = Iperf3AcceptLoop {
            pending: PreambleListener::new(&self.listeners, PENDING_MAX, COOKIE_TIMEOUT)?,
            tests_max: self.options.tests_max.max(1),
            next_id: 0,
            shared,
            notices,
            tests: Vec::new(),
        };
        let result = door.run(self.options.one_off, stop, &heard, notice);
        door.shared.stopping.store(true, Ordering::Relaxed);
        for test in door.tests.drain(..) {
            // A test that panicked has been told by the hook.
            test.join().ok();
        }
        heard.try_iter().for_each(notice);
        result
    }
}

/// One of the places for tests, given back when it is dropped.
#[derive(Debug)]
struct Iperf3TestSlot(Arc<Iperf3ServerState>);

impl Iperf3TestSlot {
    fn take(shared: Arc<Iperf3ServerState>) -> Self {
        shared.running.fetch_add(1, Ordering::AcqRel);
        Self(shared)
    }
}

impl Drop for Iperf3TestSlot {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Where connections come in.
struct Iperf3AcceptLoop<'a> {
    pending: PreambleListener<'a, COOKIE_LEN>,
    tests_max: usize,
    /// Of the next test.
    next_id: u64,
    shared: Arc<Iperf3ServerState>,
    notices: Sender<Iperf3ServerEvent>,
    tests: Vec<JoinHandle<()>>,
}

impl Iperf3AcceptLoop<'_> {
    fn run(
        &mut self,
        one_off: bool,
        stop: &mut dyn FnMut() -> bool,
        heard: &Receiver<Iperf3ServerEvent>,
        notice: &mut dyn FnMut(Iperf3ServerEvent),
    ) -> Result<(), Iperf3ServerError> {
        while !stop() {
            for (cookie, stream, client) in self.pending.poll(TICK_MS)? {
                self.admit(stream, client, Iperf3Cookie::received(cookie));
            }
            self.tests.retain(|test| !test.is_finished());
            let mut over = false;
            for said in heard.try_iter() {
                over |=
                    matches!(said, Iperf3ServerEvent::Ended(_) | Iperf3ServerEvent::Failed { .. });
                notice(said);
            }
            if one_off && over {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A connection with a cookie is a stream of a test that waits for it, or asks for a test.
    fn admit(&mut self, stream: TcpStream, client: SocketAddr, cookie: Iperf3Cookie) {
        if let Some(sender) = locked(&self.shared.streams_by_cookie).get(&cookie) {
            // More streams than a test has are closed.
            sender.try_send(stream).ok();
            return;
        }
        self.tests.retain(|test| !test.is_finished());
        // A test that only waits for its client's goodbye keeps nobody out.
        let running = self.shared.running.load(Ordering::Acquire);
        if running >= self.tests_max || self.tests.len() >= self.tests_max + FINISHING_MAX {
            // There is room for one byte in a buffer that is empty; a client that is gone needs none.
            socket::send(stream.as_fd(), &[Iperf3Message::AccessDenied.byte()]).ok();
            self.notices.send(Iperf3ServerEvent::Refused { client }).ok();
            return;
        }
        let (sender, streams) = mpsc::sync_channel(STREAMS_WAITING);
        locked(&self.shared.streams_by_cookie).insert(cookie, sender);
        let (shared, notices, id) = (self.shared.clone(), self.notices.clone(), self.next_id);
        self.next_id += 1;
        let place = Iperf3TestSlot::take(self.shared.clone());
        let admitted = test_driver::Iperf3Admission { id, cookie, client, streams };
        let work = move || {
            let said = test_driver::run_test(stream, &admitted, &shared, place, &notices);
            locked(&shared.streams_by_cookie).remove(&admitted.cookie);
            notices.send(said).ok();
        };
        let Ok(test) = std::thread::Builder::new().name("iperf3-test".to_owned()).spawn(work)
        else {
            // There are no more threads.
            locked(&self.shared.streams_by_cookie).remove(&cookie);
            self.notices.send(Iperf3ServerEvent::Refused { client }).ok();
            return;
        };
        self.tests.push(test);
    }
}

/// What a test may still move: the server's limit against what is seen to go, whatever its client said before.
///
/// A budget of bits that fills at the limit's rate and holds five seconds of it, over which iperf3 takes its mean, and
/// some blocks of each stream, because a sender that is paced gives them to the kernel whole.
#[derive(Clone, Copy, Debug)]
struct BitrateLimiter {
    rate: Rate,
    /// What it holds when it is full, and what has been taken of that, in bits.
    depth: u128,
    taken: u128,
    /// Bytes of the test at the last look, and when that was.
    bytes: u64,
    looked: Instant,
}

impl BitrateLimiter {
    /// A full one; `block_bytes` are those of one block of every stream together.
    fn new(rate: Rate, block_bytes: u64, began: Instant) -> Self {
        let blocks = u128::from(block_bytes) * 8 * DEPTH_BLOCKS;
        let depth = u128::from(rate.bits_per_second()) * DEPTH_S + blocks;
        Self { rate, depth, taken: 0, bytes: 0, looked: began }
    }

    /// Takes what has come and gone since the last look of a test that had so many bytes in all; whether it was
    /// there.
    fn admit(&mut self, bytes: u64, now: Instant) -> bool {
        let elapsed = u128::from(now.saturating_since(self.looked).as_ns());
        let filled = u128::from(self.rate.bits_per_second()) * elapsed / 1_000_000_000;
        let moved = u128::from(bytes.saturating_sub(self.bytes)) * 8;
        self.taken = self.taken.saturating_sub(filled).saturating_add(moved);
        (self.bytes, self.looked) = (bytes, now);
        self.taken <= self.depth
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared() -> Iperf3ServerState {
        Iperf3ServerState {
            limits: Iperf3Limits::default(),
            interval: Span::from_secs(1),
            streams_by_cookie: Mutex::default(),
            test_times: Mutex::default(),
            udp_handshake: Mutex::default(),
            stopping: AtomicBool::new(false),
            running: AtomicUsize::new(0),
        }
    }

    #[test]
    fn tests_that_ran_at_the_same_time_know_of_each_other() {
        let at = |seconds| Instant::ORIGIN + Span::from_secs(seconds);
        let shared = shared();
        shared.note_begin(1, at(0));
        shared.note_begin(2, at(4));
        let duration = Span::from_secs(6);
        assert_eq!(shared.note_end(1, at(10)), Iperf3ConcurrentTests { tests: 1, duration });
        shared.note_begin(3, at(11));
        let duration = Span::from_secs(6 + 1);
        assert_eq!(shared.note_end(2, at(12)), Iperf3ConcurrentTests { tests: 2, duration });
        assert_eq!(shared.note_end(3, at(12)).tests, 1);
        assert!(locked(&shared.test_times).is_empty(), "nobody is left who could ask");
        shared.note_begin(4, at(13));
        assert_eq!(shared.note_end(4, at(14)), Iperf3ConcurrentTests::default());
    }

    /// After how many looks, 20 ms apart, a test that moves so many bits a second is ended.
    fn ends_after(rate: u64, limit: u64) -> Option<u64> {
        let limit = Rate::from_bits_per_second(limit).unwrap();
        let mut allowance = BitrateLimiter::new(limit, 128 << 10, Instant::ORIGIN);
        (1..100_000).find(|look| {
            let now = Instant::ORIGIN + Span::from_ms(20) * *look;
            !allowance.admit(rate / 8 * look / 50, now)
        })
    }

    #[test]
    fn a_test_is_ended_by_what_it_moves_and_not_at_its_limit() {
        assert_eq!(ends_after(1_000_000, 1_000_000), None, "for half an hour");
        // The depth is 5 Mb and four blocks, 9.2 Mb in all: at 94 Mb/s a tenth of a second.
        let looks = ends_after(94_000_000, 1_000_000).expect("it is too fast");
        assert!((5..=6).contains(&looks), "{looks}");
        assert!(ends_after(1_100_000, 1_000_000).is_some(), "a tenth too fast is too fast");
    }

    #[test]
    fn blocks_that_come_whole_and_a_pause_are_no_faster_than_their_mean() {
        let limit = Rate::from_bits_per_second(100_000).unwrap();
        let mut allowance = BitrateLimiter::new(limit, 128 << 10, Instant::ORIGIN);
        // A block every 10.5 s, as a sender at 100 kb/s has it.
        for block in 1..1_000_u64 {
            let now = Instant::ORIGIN + Span::from_ms(10_500) * block;
            assert!(allowance.admit(block * (128 << 10), now), "block {block}");
        }
    }
}
