//! Which tests ran at the same time as one: of this agent, and of others on this host.
//!
//! A test is noted when it ends, and looks for those that ended before it and for those that still run. Over ssh each
//! client has an agent of its own, and they share the network: while a test runs, a socket without a file bears its
//! name, which the kernel lists and takes away with its process; one that ends tells those that still run when it ran.
//! Tests of all users count, so any of them can announce one that is none; what is announced is counted, and trusted with
//! nothing else.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::{fs, io};

use plumb_clock::monotonic_ns;
use serde::{Deserialize, Serialize};

use crate::task_control::TestControl;

/// What the names begin with.
const PREFIX: &str = "plumb.test.";
/// Where the kernel lists sockets without files, of this network namespace, each behind an `@`.
const UNIX_SOCKETS: &str = "/proc/thread-self/net/unix";
/// The most tests that are reported: more than an agent that is of any use runs at once.
const TESTS_MAX: usize = 256;
/// Bytes that are told: process, beginning, end.
const NOTICE_BYTES: usize = 3 * 8;

/// Other tests that the agent ran at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestOverlap {
    /// How many there were.
    pub tests: u32,
    /// Time during which there was at least one.
    pub during_ns: u64,
}

/// The times of tests, as far as they may still matter.
#[derive(Clone, Debug, Default)]
pub(crate) struct OverlapTracker {
    /// Those that are ready or run.
    live: Vec<Arc<TestControl>>,
    /// Beginning and end of those that are over.
    finished: Vec<(u64, u64)>,
}

impl OverlapTracker {
    /// Notes that a test is ready; when it begins, its control tells.
    fn enter(&mut self, test: &Arc<TestControl>) {
        self.live.push(Arc::clone(test));
    }

    /// Forgets a test that has ended, begun or not.
    fn leave(&mut self, test: &Arc<TestControl>) {
        self.live.retain(|live| !Arc::ptr_eq(live, test));
    }

    /// Tests that are ready or run.
    pub(crate) const fn live(&self) -> usize {
        self.live.len()
    }

    /// When each that runs began.
    fn running(&self) -> impl Iterator<Item = u64> {
        self.live.iter().filter_map(|test| test.began_ns())
    }

    /// Notes that a test which is not among the live ones any more has ended, and says with which others it overlapped:
    /// these of other agents among them.
    pub(crate) fn finish(
        &mut self,
        began_ns: u64,
        ended_ns: u64,
        elsewhere: &[(u64, u64)],
    ) -> TestOverlap {
        let running = self.running().map(|began| (began, ended_ns));
        let mut others: Vec<(u64, u64)> = self
            .finished
            .iter()
            .copied()
            .chain(running)
            .chain(elsewhere.iter().copied())
            .map(|(from, to)| (from.max(began_ns), to.min(ended_ns)))
            .filter(|(from, to)| from < to)
            .collect();
        others.sort_unstable();
        let (mut during_ns, mut covered) = (0, began_ns);
        for &(from, to) in &others {
            during_ns += to.saturating_sub(from.max(covered));
            covered = covered.max(to);
        }
        self.finished.push((began_ns, ended_ns));
        let earliest = self.running().min().unwrap_or(u64::MAX);
        self.finished.retain(|&(_, to)| to > earliest);
        TestOverlap { tests: u32::try_from(others.len()).unwrap_or(u32::MAX), during_ns }
    }
}

/// Finds out which other tests ran at the same time as a task.
#[derive(Debug)]
pub struct OverlapWatch {
    tracker: Arc<Mutex<OverlapTracker>>,
    control: Arc<TestControl>,
    others: Option<ConcurrentTests>,
}

impl OverlapWatch {
    /// Of a task that has not begun.
    pub(crate) fn new(tracker: Arc<Mutex<OverlapTracker>>, control: Arc<TestControl>) -> Self {
        locked(&tracker).enter(&control);
        Self { tracker, control, others: None }
    }

    /// Takes in what others have announced; to be called now and then while the task runs.
    pub fn poll(&mut self) {
        if self.others.is_none()
            && let Some(began_ns) = self.control.began_ns()
        {
            self.others = Some(ConcurrentTests::open(process_tag(), began_ns));
        }
        self.others.iter_mut().for_each(ConcurrentTests::receive_notices);
    }

    /// The task has ended: what ran beside it.
    pub fn finish(mut self) -> TestOverlap {
        let Some(began_ns) = self.control.began_ns() else { return TestOverlap::default() };
        let ended_ns = monotonic_ns();
        let elsewhere = self.others.take().map(|others| others.close(ended_ns)).unwrap_or_default();
        let mut tracker = locked(&self.tracker);
        tracker.leave(&self.control);
        tracker.finish(began_ns, ended_ns, &elsewhere)
    }
}

impl Drop for OverlapWatch {
    /// A test that ends before its beginning, or by a bug, runs beside none from then on.
    fn drop(&mut self) {
        locked(&self.tracker).leave(&self.control);
    }
}

pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What this process has drawn; zero where there is no chance to be had.
fn process_tag() -> u64 {
    static OWN: OnceLock<u64> = OnceLock::new();
    *OWN.get_or_init(|| plumb_clock::entropy().unwrap_or(0))
}

/// One test: what its process has drawn to be told apart, as numbers of processes are not unique beyond a container; and when it began by the clock that all of this host share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ConcurrentTest {
    process: u64,
    began_ns: u64,
}

impl ConcurrentTest {
    fn address(self) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("{PREFIX}{}.{}", self.process, self.began_ns))
    }

    /// The test that a line of the kernel's list names, if it is one.
    fn parse_listing(line: &str) -> Option<Self> {
        let (_, name) = line.rsplit_once(' ')?;
        let (process, began) = name.strip_prefix('@')?.strip_prefix(PREFIX)?.split_once('.')?;
        Some(Self { process: process.parse().ok()?, began_ns: began.parse().ok()? })
    }
}

/// A test as those of other agents see it, and what they have told it.
#[derive(Debug)]
struct ConcurrentTests {
    own: ConcurrentTest,
    /// None where the kernel gives none: then nobody is known.
    socket: Option<UnixDatagram>,
    /// When those that are over have ended.
    ended: BTreeMap<ConcurrentTest, u64>,
}

impl ConcurrentTests {
    /// Shows a test that has begun.
    fn open(process: u64, began_ns: u64) -> Self {
        let own = ConcurrentTest { process, began_ns };
        let bind = || -> io::Result<UnixDatagram> {
            let socket = UnixDatagram::bind_addr(&own.address()?)?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        Self { own, socket: bind().ok(), ended: BTreeMap::new() }
    }

    /// Takes what was told. The kernel keeps a few, so it is to be asked now and then.
    fn receive_notices(&mut self) {
        let Some(socket) = &self.socket else { return };
        let mut bytes = [0; NOTICE_BYTES + 1];
        while let Ok(len) = socket.recv(&mut bytes) {
            let Some((test, ended_ns)) = decode_notice(&bytes[..len]) else { continue };
            if self.ended.len() < TESTS_MAX && test.process != self.own.process {
                self.ended.insert(test, ended_ns);
            }
        }
    }

    /// Tells the others that the test is over: beginning and end of each that ran beside it, as far as it did.
    fn close(mut self, ended_ns: u64) -> Vec<(u64, u64)> {
        // Names are anybody's, and need not be text.
        let list = fs::read(UNIX_SOCKETS).unwrap_or_default();
        let list = String::from_utf8_lossy(&list);
        let mut others: BTreeMap<ConcurrentTest, u64> = BTreeMap::new();
        for test in list.lines().filter_map(ConcurrentTest::parse_listing).take(TESTS_MAX) {
            if test.process == self.own.process {
                continue;
            }
            if let (Some(socket), Ok(address)) = (&self.socket, test.address())
                && let Err(error) =
                    socket.send_to_addr(&encode_notice(self.own, ended_ns), &address)
                && matches!(
                    error.kind(),
                    io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionRefused
                )
            {
                // It has ended, and its own notice counts.
                continue;
            }
            others.insert(test, ended_ns);
        }
        self.receive_notices();
        // Once closed, it is still listed while a forked child has a copy of the descriptor, before its execve(2).
        if let Some(socket) = &self.socket {
            socket.shutdown(Shutdown::Both).ok();
        }
        // Tests that are still listed run on, whatever their notices said.
        self.ended.append(&mut others);
        self.ended.into_iter().map(|(test, ended_ns)| (test.began_ns, ended_ns)).collect()
    }
}

fn encode_notice(test: ConcurrentTest, ended_ns: u64) -> [u8; NOTICE_BYTES] {
    let mut bytes = [0; NOTICE_BYTES];
    bytes[..8].copy_from_slice(&test.process.to_le_bytes());
    bytes[8..16].copy_from_slice(&test.began_ns.to_le_bytes());
    bytes[16..].copy_from_slice(&ended_ns.to_le_bytes());
    bytes
}

fn decode_notice(bytes: &[u8]) -> Option<(ConcurrentTest, u64)> {
    let (process, rest) = bytes.split_first_chunk()?;
    let (began, rest) = rest.split_first_chunk()?;
    let ended_ns = u64::from_le_bytes(rest.try_into().ok()?);
    let test = ConcurrentTest {
        process: u64::from_le_bytes(*process),
        began_ns: u64::from_le_bytes(*began),
    };
    (test.began_ns <= ended_ns).then_some((test, ended_ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_shared_with_others_counts_once_however_many_there_are() {
        let mut tracker = OverlapTracker::default();
        let begin = |tracker: &mut OverlapTracker, began_ns| {
            let test = Arc::<TestControl>::default();
            tracker.enter(&test);
            test.begin_at(began_ns);
            test
        };
        let finish = |tracker: &mut OverlapTracker, test, ended_ns, elsewhere: &[_]| {
            tracker.leave(&test);
            tracker.finish(test.began_ns().unwrap(), ended_ns, elsewhere)
        };
        let [long, short, late] = [10, 40, 50].map(|began| begin(&mut tracker, began));
        let both = |during_ns| TestOverlap { tests: 2, during_ns };
        assert_eq!(finish(&mut tracker, short, 60, &[]), both(20));
        assert_eq!(finish(&mut tracker, late, 90, &[]), both(40));
        assert_eq!(finish(&mut tracker, long, 100, &[]), both(50));
        assert!(tracker.live.is_empty() && tracker.finished.is_empty());
        let alone = begin(&mut tracker, 105);
        assert_eq!(finish(&mut tracker, alone, 110, &[]), TestOverlap::default());
        // Beside tests of other agents.
        let elsewhere = [(0, 205), (0, 215), (212, 220), (230, 299)];
        let beside = begin(&mut tracker, 210);
        let overlap = finish(&mut tracker, beside, 240, &elsewhere);
        assert_eq!(overlap, TestOverlap { tests: 3, during_ns: 20 });
    }

    #[test]
    fn a_test_that_begins_after_its_end_overlaps_none() {
        let tracker = Arc::<Mutex<OverlapTracker>>::default();
        let watch = || {
            let control = Arc::<TestControl>::default();
            (OverlapWatch::new(Arc::clone(&tracker), Arc::clone(&control)), control)
        };
        let (early, control) = watch();
        assert_eq!(early.finish(), TestOverlap::default());
        control.begin();
        let (next, control) = watch();
        control.begin();
        assert_eq!(next.finish(), TestOverlap::default());
        assert_eq!(locked(&tracker).live(), 0);
    }

    #[test]
    fn a_name_that_is_no_text_hides_no_test() {
        let [one, two] = processes();
        let name = [b"\xff\xfe".as_slice(), &one.to_le_bytes()].concat();
        let name = SocketAddr::from_abstract_name(name).unwrap();
        let _forged = UnixDatagram::bind_addr(&name).unwrap();
        let test = ConcurrentTests::open(one, 3_000_001);
        let _other = ConcurrentTests::open(two, 3_000_002);
        assert_eq!(of(test.close(3_000_100), &[3_000_002]), [(3_000_002, 3_000_100)]);
    }

    #[test]
    fn nobody_says_that_a_test_has_ended_which_runs() {
        let [one, two] = processes();
        let test = ConcurrentTests::open(one, 4_000_001);
        let other = ConcurrentTests::open(two, 4_000_002);
        let forger = UnixDatagram::unbound().unwrap();
        let notice = encode_notice(other.own, 4_000_003);
        forger.send_to_addr(&notice, &test.own.address().unwrap()).unwrap();
        assert_eq!(of(test.close(4_000_100), &[4_000_002]), [(4_000_002, 4_000_100)]);
    }

    /// Numbers that no other process draws meanwhile.
    fn processes<const N: usize>() -> [u64; N] {
        let own = u64::from(std::process::id());
        std::array::from_fn(|index| own * 8 + index as u64)
    }

    /// Of these alone: other programs may run tests meanwhile.
    fn of(others: Vec<(u64, u64)>, began: &[u64]) -> Vec<(u64, u64)> {
        others.into_iter().filter(|(from, _)| began.contains(from)).collect()
    }

    #[test]
    fn whoever_ends_first_tells_and_whoever_runs_on_is_seen() {
        let [one, two, three] = processes();
        let (long, early) =
            (ConcurrentTests::open(one, 1_000_001), ConcurrentTests::open(two, 1_000_030));
        let began = [1_000_001, 1_000_030, 1_000_050];
        // The copy that a forked child has before its execve(2).
        let _copy = early.socket.as_ref().map(|socket| socket.try_clone().unwrap());
        assert_eq!(of(early.close(1_000_040), &began), [(1_000_001, 1_000_040)]);
        let late = ConcurrentTests::open(three, 1_000_050);
        let expected = [(1_000_030, 1_000_040), (1_000_050, 1_000_100)];
        assert_eq!(of(long.close(1_000_100), &began), expected);
        assert_eq!(of(late.close(1_000_110), &began), [(1_000_001, 1_000_100)]);
    }

    #[test]
    fn tests_of_the_same_process_and_what_makes_no_sense_are_not_counted() {
        let [own, foreign] = processes();
        let mut first = ConcurrentTests::open(own, 2_000_001);
        let second = ConcurrentTests::open(own, 2_000_002);
        let junk = UnixDatagram::unbound().unwrap();
        let backwards =
            encode_notice(ConcurrentTest { process: foreign, began_ns: 2_000_009 }, 2_000_003);
        for bytes in [&b"hello"[..], &[0; NOTICE_BYTES + 1], &backwards] {
            junk.send_to_addr(bytes, &first.own.address().unwrap()).unwrap();
        }
        first.receive_notices();
        let began = [2_000_001, 2_000_002, 2_000_009];
        assert!(of(first.close(2_000_100), &began).is_empty());
        assert!(of(second.close(2_000_100), &began).is_empty());
    }
}
