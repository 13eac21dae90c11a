//! Round trips of small datagrams at a fixed rate: idle or under load, whole and by part.
//!
//! A probe leaves when it is due, whatever came back before, so a slow answer hides no other. Each carries four
//! stamps; both receptions are the kernel's own. The answering side sends nothing to an address that has not shown the
//! token and that it receives there, and never more than it got.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use plumb_base::stats::histogram::Histogram;
use plumb_base::time::Span;
use plumb_result::net::ProbeReflectorReport;
use plumb_sys::{datagram, socket, timer};

use super::connect::connect_udp;
use super::datagram::sequence_tracker::{SequenceStatus, SequenceTracker};
use super::progress::{AtomicRttHistogram, RttHistogram};
use super::report::{ProbeTimestamps, ProbesReport};
use super::test_spec::{ProbesSpec, TestSpec};
use plumb_clock::{ReceiveTimestamps, monotonic_ns, sleep_until};
use plumb_remote::address::BindAddress;
use plumb_remote::datagram_header::{TOKEN_BYTES, TestToken};
use plumb_remote::task_control::TestControl;
use plumb_remote::udp_handshake::{self, AddressCookie, UdpHandshakeError};

/// Bytes of the token, its number and the three stamps that travel; the fourth is its reception.
const DATAGRAM_MIN: usize = TOKEN_BYTES + 8 + 3 * 8;
/// Largest datagram that is sent or answered.
const DATAGRAM_MAX: usize = 9_000;
/// Most probes of one test.
pub const PROBES_MAX: u64 = 1_000_000;
/// How long the asking side shows its token.
const ANNOUNCE_TIMEOUT: Span = Span::from_secs(2);
/// After how long a blocked call looks whether the test is over.
const STOP_POLL: Duration = Duration::from_millis(50);
/// Room for datagrams that come while nobody reads.
const BUFFER_BYTES: i32 = 1 << 20;
/// Shortest and longest time that is waited for a probe or an answer that is missing.
const LINGER_MIN_NS: u64 = 200_000_000;
const LINGER_MAX_NS: u64 = 5_000_000_000;

/// When which probe is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RttProbeSchedule {
    /// Time between two.
    pub period_ns: u64,
    /// The first that counts.
    pub first: u64,
    /// How many there are, with those of the warm-up.
    pub count: u64,
}

impl RttProbeSchedule {
    /// The schedule of a test; the same on both sides.
    pub fn of(test: &TestSpec, probes: &ProbesSpec) -> Self {
        let period_ns = 1_000_000_000 / u64::from(probes.per_second.max(1));
        let first = test.warm_up_ns.div_ceil(period_ns);
        Self { period_ns, first, count: (test.planned_ns() / period_ns).min(PROBES_MAX) }
    }

    fn due_ns(self, began_ns: u64, sequence: u64) -> u64 {
        began_ns + sequence * self.period_ns
    }
}

/// How a number came; none for one that is not in the schedule.
fn record_arrival(tracker: &mut SequenceTracker, number: u64) -> Option<SequenceStatus> {
    let status = tracker.record(u32::try_from(number).ok()?);
    (status != SequenceStatus::OutOfRange).then_some(status)
}

fn number_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_le_bytes)
}

fn put(bytes: &mut [u8], at: usize, number: u64) {
    bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
}

const SEQUENCE: usize = TOKEN_BYTES;
const SENT: usize = SEQUENCE + 8;
const RECEIVED_THERE: usize = SENT + 8;
const SENT_THERE: usize = RECEIVED_THERE + 8;

/// The side that asks.
#[derive(Debug)]
pub struct ProbeSender {
    socket: UdpSocket,
    token: TestToken,
    schedule: RttProbeSchedule,
    datagram_bytes: usize,
    answered: Box<AtomicRttHistogram>,
    /// Whether everything was sent.
    is_sent: AtomicBool,
}

/// What the sending thread saw.
struct SentProbes {
    due: u64,
    sent: u64,
    refused: BTreeMap<String, u64>,
    lateness: Histogram,
}

/// One answer as it came, before anything is made of it.
struct ProbeReply {
    exchange: ProbeTimestamps,
    read_ns: u64,
}

impl ProbeSender {
    /// A socket towards the agent's.
    ///
    /// # Errors
    /// The kernel's: no route to the address, for one.
    pub fn connect(
        address: SocketAddr,
        token: TestToken,
        test: &TestSpec,
        probes: &ProbesSpec,
    ) -> io::Result<Self> {
        let socket = connect_udp(address)?;
        prepare(&socket)?;
        Ok(Self {
            socket,
            token,
            schedule: RttProbeSchedule::of(test, probes),
            datagram_bytes: datagram_bytes(probes),
            answered: Box::default(),
            is_sent: AtomicBool::new(false),
        })
    }

    /// Shows the agent's side the token, and that its answers arrive, without which it answers no probe. Where UDP is
    /// filtered all probes are lost, and what is measured beside them is measured all the same.
    ///
    /// # Errors
    /// The test was halted, and the kernel's.
    pub fn announce(&self, control: &TestControl) -> Result<(), UdpHandshakeError> {
        let stop = control.stop_flag();
        let met = udp_handshake::connect(&self.socket, &self.token, 0, ANNOUNCE_TIMEOUT, stop);
        self.socket.set_read_timeout(Some(STOP_POLL))?;
        match met {
            Err(UdpHandshakeError::NoReply { .. }) => Ok(()),
            met => met,
        }
    }

    /// Round trips so far, of those that count.
    pub fn round_trips(&self) -> RttHistogram {
        self.answered.snapshot()
    }

    /// Asks at the fixed rate, and listens for as long as answers may come.
    pub fn run(&self, began_ns: u64, deadline_ns: u64, control: &TestControl) -> ProbesReport {
        std::thread::scope(|scope| {
            let name = std::thread::Builder::new().name("ask".to_owned());
            let sending = name.spawn_scoped(scope, || self.send(began_ns, control));
            let (answers, mut report) = match &sending {
                Ok(_) => self.receive_replies(deadline_ns, control),
                Err(_) => (Vec::new(), ProbesReport::default()),
            };
            if let Ok(Ok(sent)) = sending.map(std::thread::ScopedJoinHandle::join) {
                (report.due, report.sent) = (sent.due, sent.sent);
                report.refused = sent.refused;
                report.lateness = sent.lateness.encode();
            }
            self.conclude(began_ns, answers, &mut report);
            report
        })
    }

    fn send(&self, began_ns: u64, control: &TestControl) -> SentProbes {
        timer::set_timer_slack_ns(1).ok();
        let mut sent =
            SentProbes { due: 0, sent: 0, refused: BTreeMap::new(), lateness: Histogram::new() };
        let mut datagram = vec![0; self.datagram_bytes];
        datagram[..TOKEN_BYTES].copy_from_slice(&self.token.0);
        for sequence in 0..self.schedule.count {
            if control.is_halted() {
                break;
            }
            let due_ns = self.schedule.due_ns(began_ns, sequence);
            sleep_until(due_ns);
            put(&mut datagram, SEQUENCE, sequence);
            let now = monotonic_ns();
            put(&mut datagram, SENT, now);
            let outcome = socket::send(self.socket.as_fd(), &datagram);
            if sequence < self.schedule.first {
                continue;
            }
            sent.due += 1;
            sent.lateness.record(now.saturating_sub(due_ns));
            match outcome {
                Ok(_) => sent.sent += 1,
                Err(error) => *sent.refused.entry(error.kind().to_string()).or_default() += 1,
            }
        }
        self.is_sent.store(true, Ordering::Release);
        sent
    }

    fn receive_replies(
        &self,
        deadline_ns: u64,
        control: &TestControl,
    ) -> (Vec<ProbeReply>, ProbesReport) {
        let room = usize::try_from(self.schedule.count).unwrap_or(0);
        let mut answers: Vec<ProbeReply> = Vec::with_capacity(room);
        let mut report = ProbesReport::default();
        let mut seen = SequenceTracker::new(self.schedule.count);
        let mut stamps = ReceiveTimestamps::begin();
        let mut buffer = vec![0; DATAGRAM_MAX];
        let (mut longest_ns, mut sent_ns) = (0_u64, None);
        loop {
            let received = datagram::receive_with_timestamp(self.socket.as_fd(), &mut buffer);
            let read_ns = monotonic_ns();
            if let Ok((len, real_ns)) = received
                && let Some(arrival) = self.classify_reply(&buffer[..len], &mut seen)
            {
                let sent_ns = number_at(&buffer, SENT);
                stamps.sample_clocks();
                // Nothing comes before it was sent.
                let stamped = real_ns.and_then(|stamp_ns| stamps.to_steady_ns(stamp_ns));
                let stamped = stamped.filter(|&ns| ns >= sent_ns);
                let received_ns = stamped.unwrap_or(read_ns).min(read_ns);
                let exchange = ProbeTimestamps {
                    sequence: number_at(&buffer, SEQUENCE),
                    sent_ns,
                    received_there_ns: number_at(&buffer, RECEIVED_THERE),
                    sent_there_ns: number_at(&buffer, SENT_THERE),
                    received_ns,
                };
                longest_ns = longest_ns.max(read_ns.saturating_sub(exchange.sent_ns));
                if exchange.sequence >= self.schedule.first {
                    report.duplicated += u64::from(!arrival.is_new());
                    report.reordered += u64::from(matches!(arrival, SequenceStatus::Late { .. }));
                    if arrival.is_new() && answers.len() < room {
                        answers.push(ProbeReply { exchange, read_ns });
                        self.answered.record(exchange.path_ns());
                    }
                }
            }
            if read_ns >= deadline_ns || control.is_halted() {
                break;
            }
            if self.is_sent.load(Ordering::Acquire) {
                let sent_ns = *sent_ns.get_or_insert(read_ns);
                let patience = (4 * longest_ns).clamp(LINGER_MIN_NS, LINGER_MAX_NS);
                let patience = if seen.unique() == 0 { 2_000_000_000 } else { patience };
                let Some(missing) = seen.last_missing() else { break };
                let sent_after = (self.schedule.count - 1 - missing) * self.schedule.period_ns;
                if read_ns >= (sent_ns + patience).saturating_sub(sent_after) {
                    break;
                }
            }
        }
        report.overflowed = socket::receive_drops(self.socket.as_fd()).map_or(0, u64::from);
        (answers, report)
    }

    /// How an answer of this test came; none for anything else.
    fn classify_reply(&self, bytes: &[u8], seen: &mut SequenceTracker) -> Option<SequenceStatus> {
        if bytes.len() != self.datagram_bytes || !self.token.matches_prefix(bytes) {
            return None;
        }
        record_arrival(seen, number_at(bytes, SEQUENCE))
    }

    fn conclude(&self, began_ns: u64, answers: Vec<ProbeReply>, report: &mut ProbesReport) {
        let (mut path, mut application) = (Histogram::new(), Histogram::new());
        report.answered = answers.len() as u64;
        for ProbeReply { exchange, read_ns } in &answers {
            path.record(exchange.path_ns());
            let due_ns = self.schedule.due_ns(began_ns, exchange.sequence);
            application.record(read_ns.saturating_sub(due_ns));
        }
        report.path = path.encode();
        report.application = application.encode();
        report.exchanges = answers.into_iter().map(|answer| answer.exchange).collect();
    }
}

impl ProbeTimestamps {
    /// The round trip without the time that the answering side had it.
    pub const fn path_ns(&self) -> u64 {
        let there = self.sent_there_ns.saturating_sub(self.received_there_ns);
        self.received_ns.saturating_sub(self.sent_ns).saturating_sub(there)
    }
}

/// Bytes of probes as they are sent, each way.
pub fn datagram_bytes(probes: &ProbesSpec) -> usize {
    usize::from(probes.datagram_bytes).clamp(DATAGRAM_MIN, DATAGRAM_MAX)
}

fn prepare(socket: &UdpSocket) -> io::Result<()> {
    socket.set_read_timeout(Some(STOP_POLL))?;
    socket::set_option(socket.as_fd(), socket::IntOption::ReceiveBuffer, BUFFER_BYTES).ok();
    datagram::enable_receive_timestamps(socket.as_fd())
}

/// When probes come, as the answering side can tell from those that came: their times, each less its number of periods,
/// differ by what they waited on the path.
#[derive(Clone, Copy, Debug, Default)]
struct ProbeArrivalTimes {
    /// Time of the first probe if all had waited as little as the fastest, and as long as the slowest.
    first_ns: Option<(u64, u64)>,
}

impl ProbeArrivalTimes {
    fn observe(&mut self, schedule: &RttProbeSchedule, sequence: u64, at_ns: u64) {
        let first = at_ns.saturating_sub(sequence.saturating_mul(schedule.period_ns));
        let (least, most) = self.first_ns.unwrap_or((first, first));
        self.first_ns = Some((least.min(first), most.max(first)));
    }

    /// After this, a probe would have waited four times as long as any did; never where none came.
    fn latest_ns(&self, schedule: &RttProbeSchedule, sequence: u64) -> u64 {
        self.first_ns.map_or(u64::MAX, |(least, most)| {
            let patience = (4 * (most - least)).clamp(LINGER_MIN_NS, LINGER_MAX_NS);
            least.saturating_add((sequence + 1) * schedule.period_ns).saturating_add(patience)
        })
    }
}

/// The side that answers.
#[derive(Debug)]
pub struct ProbeReflector {
    socket: UdpSocket,
    token: TestToken,
    schedule: RttProbeSchedule,
    datagram_bytes: usize,
    answered: AtomicU64,
    cookie: AddressCookie,
    is_admitted: bool,
    /// Datagrams before the first of the test's own.
    strange: u64,
}

impl ProbeReflector {
    /// A socket for whoever shows the token in probes of so many bytes.
    ///
    /// # Errors
    /// The kernel's.
    pub fn bind(
        token: TestToken,
        test: &TestSpec,
        probes: &ProbesSpec,
        at: BindAddress,
    ) -> io::Result<Self> {
        let socket = at.open(UdpSocket::bind)?;
        prepare(&socket)?;
        Ok(Self {
            socket,
            token,
            schedule: RttProbeSchedule::of(test, probes),
            datagram_bytes: datagram_bytes(probes),
            answered: AtomicU64::new(0),
            cookie: AddressCookie::draw()?,
            is_admitted: false,
            strange: 0,
        })
    }

    /// Waits for who asks, until the test begins or the steady clock shows `until_ns`: where UDP is filtered, nobody
    /// comes.
    pub fn accept_peer(&mut self, until_ns: u64, control: &TestControl) {
        let mut buffer = vec![0; DATAGRAM_MAX];
        while !self.is_admitted
            && !control.is_halted()
            && control.began_ns().is_none()
            && monotonic_ns() < until_ns
        {
            let mut strange = 0;
            self.is_admitted = self.admit(&mut buffer, &mut strange);
            self.strange += strange;
        }
    }

    /// Answers so far.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// Where it listens.
    ///
    /// # Errors
    /// The kernel's.
    pub fn port(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    /// Answers until the test is halted, or over once every probe has been heard or would have been; `planned_ns` and
    /// `deadline_ns` say when it is over and when it has to be, as soon as that is known.
    pub fn run(
        &self,
        planned_ns: impl Fn() -> u64,
        deadline_ns: impl Fn() -> u64,
        control: &TestControl,
    ) -> ProbeReflectorReport {
        let mut report =
            ProbeReflectorReport { strange: self.strange, ..ProbeReflectorReport::default() };
        let mut seen = SequenceTracker::new(self.schedule.count);
        let mut stamps = ReceiveTimestamps::begin();
        let mut buffer = vec![0; DATAGRAM_MAX];
        // Twice, because the path may duplicate them.
        let mut answers_left = 2 * self.schedule.count;
        let mut is_admitted = self.is_admitted;
        let mut arrivals = ProbeArrivalTimes::default();
        while !control.is_halted() {
            let now_ns = monotonic_ns();
            let is_over = || {
                let missing = seen.last_missing();
                missing.is_none_or(|last| now_ns >= arrivals.latest_ns(&self.schedule, last))
            };
            if now_ns >= deadline_ns() || now_ns >= planned_ns() && is_over() {
                break;
            }
            if !is_admitted {
                is_admitted = self.admit(&mut buffer, &mut report.strange);
                continue;
            }
            let received = datagram::receive_with_timestamp(self.socket.as_fd(), &mut buffer);
            let Ok((len, real_ns)) = received else { continue };
            let read_ns = monotonic_ns();
            let bytes = &mut buffer[..len];
            // A longer one would be answered by more than the agent has allowed.
            if len != self.datagram_bytes || !self.token.matches_prefix(bytes) {
                match udp_handshake::reply_to(&self.token, bytes) {
                    // A client whose welcome was lost asks again.
                    Some(reply) => drop(self.socket.send(&reply)),
                    None => report.strange += 1,
                }
                continue;
            }
            let sequence = number_at(bytes, SEQUENCE);
            let Some(arrival) = record_arrival(&mut seen, sequence) else {
                report.strange += 1;
                continue;
            };
            arrivals.observe(&self.schedule, sequence, read_ns);
            let counts = u64::from(sequence >= self.schedule.first);
            *if arrival.is_new() { &mut report.received } else { &mut report.duplicated } += counts;
            if matches!(arrival, SequenceStatus::Late { .. }) {
                report.reordered += counts;
            }
            if answers_left == 0 {
                continue;
            }
            answers_left -= 1;
            stamps.sample_clocks();
            let stamped = real_ns.and_then(|stamp_ns| stamps.to_steady_ns(stamp_ns));
            let received_ns = stamped.unwrap_or(read_ns).min(read_ns);
            put(bytes, RECEIVED_THERE, received_ns);
            let now = monotonic_ns();
            put(bytes, SENT_THERE, now);
            if socket::send(self.socket.as_fd(), bytes).is_ok() {
                report.answered += counts;
                self.answered.fetch_add(1, Ordering::Relaxed);
            }
        }
        report.overflowed = socket::receive_drops(self.socket.as_fd()).map_or(0, u64::from);
        report
    }

    /// Waits for one datagram of whoever has no address yet, and keeps to its sender if that shows the cookie.
    fn admit(&self, buffer: &mut [u8], strange: &mut u64) -> bool {
        let Ok((len, from)) = self.socket.recv_from(buffer) else { return false };
        let bytes = &buffer[..len];
        *strange += u64::from(!self.token.matches_prefix(bytes));
        self.cookie.admits(&self.socket, &self.token, bytes, from)
            && self.socket.connect(from).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::test_spec::PartSpec;

    #[test]
    fn who_has_heard_every_probe_ends_by_itself_when_the_test_is_over_and_no_sooner() {
        answers_until_the_end(&[0, 1, 2]);
    }

    #[test]
    fn who_has_not_heard_a_probe_ends_by_itself_when_it_would_have_come() {
        answers_until_the_end(&[0, 1]);
        answers_until_the_end(&[0, 2]);
    }

    /// Sends these of three probes, the first of which is of the warm-up.
    fn answers_until_the_end(sent: &[u64]) {
        let probes = ProbesSpec { per_second: 1_000, datagram_bytes: 0 };
        let (warm_up_ns, duration_ns) = (1_000_000, 2_000_000);
        let parts = vec![PartSpec::Probes(probes.clone())];
        let test = TestSpec { warm_up_ns, duration_ns, interval_ns: 0, drain_ns: 0, parts };
        let schedule = RttProbeSchedule::of(&test, &probes);
        let token = TestToken([7; TOKEN_BYTES]);
        let at = BindAddress::default();
        let reflector = ProbeReflector::bind(token, &test, &probes, at).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(("127.0.0.1", reflector.port().unwrap())).unwrap();
        // Has the token, and has not shown that it receives what it asks for.
        let unproven = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut question = [0; DATAGRAM_MIN];
        question[..TOKEN_BYTES].copy_from_slice(&token.0);
        unproven.send_to(&question, client.peer_addr().unwrap()).unwrap();
        let (control, over_ns) = (TestControl::default(), AtomicU64::new(u64::MAX));
        let deadline_ns = monotonic_ns() + 60_000_000_000;
        std::thread::scope(|scope| {
            let answering = scope.spawn(|| {
                reflector.run(|| over_ns.load(Ordering::Acquire), || deadline_ns, &control)
            });
            let stop = control.stop_flag();
            udp_handshake::connect(&client, &token, 0, Span::from_secs(30), stop).unwrap();
            unproven.set_nonblocking(true).unwrap();
            assert!(unproven.recv(&mut [0; DATAGRAM_MIN]).is_err(), "it was answered");
            client.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let mut bytes = [0; DATAGRAM_MIN];
            // Longer than was said, which is not answered: the first answer is to the first of the others.
            let mut longer = [0; DATAGRAM_MAX];
            longer[..TOKEN_BYTES].copy_from_slice(&token.0);
            client.send(&longer).unwrap();
            assert_eq!((schedule.first, schedule.count), (1, 3));
            for &sequence in sent {
                bytes[..TOKEN_BYTES].copy_from_slice(&token.0);
                put(&mut bytes, SEQUENCE, sequence);
                client.send(&bytes).unwrap();
                client.recv(&mut bytes).unwrap();
            }
            assert!(!answering.is_finished());
            over_ns.store(0, Ordering::Release);
            let report = answering.join().unwrap();
            let counted = sent.len() as u64 - 1;
            assert_eq!((report.received, report.answered), (counted, counted), "{report:?}");
            assert_eq!((report.strange, report.duplicated), (1, 0), "{report:?}");
            assert!(monotonic_ns() < deadline_ns, "it waited for the other side's word");
        });
    }
}
