//! An agent and its clients over time, by a virtual clock: messages in and out of turn, extreme numbers, silence, cuts,
//! half-open connections and suspensions, with what the agent promises asserted after every step.
//!
//! Sessions, places, reports, limits and the schedule of a test are the agent's own. What is played are its sockets and
//! threads, at their worst: nothing ends by itself before it is cut or told to. What is random comes from a seed;
//! `PLUMB_FUZZ_STEPS` says how many steps.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex};

use plumb_base::seed::{RandomStream, Seed};
use plumb_base::time::{Instant, Span};
use plumb_clock::monotonic_ns;
use plumb_remote::agent::{MeasurementAgent, ServedSession, SessionHost, TaskWork};
use plumb_remote::control_stream::ControlEvent;
use plumb_remote::datagram_header::TestToken;
use plumb_remote::log_limit::LogLimit;
use plumb_remote::message::{
    HEADER_BYTES, MESSAGE_MAX, Message, ProtocolHello, ServiceId, TaskRefusal, TaskRequest, encode,
    frame,
};
use plumb_remote::service::{AgentLimits, PreparedTask, TaskContext, TaskEvent, TaskService};
use plumb_remote::session::SessionTiming;
use plumb_remote::task_control::TestControl;
use plumb_result::net::RequestTransport;
use rand::{Rng as _, RngExt as _};

use crate::measure::progress::TestProgress;
use crate::measure::reading_schedule::{CHECK_INTERVAL_NS, ReadingSchedule};
use crate::measure::request_response::RequestPacing;
use crate::measure::test_run::START_TIMEOUT_NS;
use crate::measure::test_spec::{
    BulkTcpSpec, DatagramsSpec, MtuSearchSpec, PartSpec, ProbesSpec, RequestResponsePart, TestSpec,
    TransferDirection,
};
use crate::service::{PresenceWatch, admit, shows_client_liveness, times};

/// How many steps unless told otherwise.
const STEPS: u64 = 30_000;
const PEERS: usize = 8;
const SECOND: u64 = 1_000_000_000;
const SEED: u64 = 0x6167_656e;
/// Most bytes of one input beside a message.
const NOISE_MAX: usize = 600;
/// Lines of the log a minute.
const LINES: u32 = 20;
/// What a peer that is gone may still be sent.
const SENT_AFTER_LOSS: Span = Span::from_secs(2);
const LIMITS: fn() -> AgentLimits = || AgentLimits {
    duration_max: Span::from_secs(600),
    streams_max: 16,
    clients_max: 6,
    tests_max: 3,
    ..AgentLimits::default()
};
const EXTREMES: [u64; 12] = [
    0,
    1,
    2,
    9_999_999,
    10_000_000,
    SECOND,
    600 * SECOND,
    600 * SECOND + 1,
    3_600 * SECOND,
    u64::MAX / 2,
    u64::MAX - 1,
    u64::MAX,
];

/// A test whose sockets and threads are played.
struct PlayedTest {
    spec: TestSpec,
    control: Arc<TestControl>,
    watch: PresenceWatch,
    work: Option<TaskWork>,
    prepared: Instant,
    began: Option<(Instant, ReadingSchedule)>,
    wake: Instant,
    readings: u64,
    progress: TestProgress,
    /// Which connection it belongs to.
    owner: u64,
    /// When that was lost, by the time that this process ran.
    lost: Option<Span>,
    /// When data last showed that the client is there, by the same time.
    seen: Span,
    is_data_cut: bool,
}

type PlayedTests = Arc<Mutex<Vec<PlayedTest>>>;

/// Prepares tests that are played.
#[derive(Clone)]
struct PlayedService {
    tests: PlayedTests,
    clock: Arc<Mutex<Instant>>,
}

impl std::fmt::Debug for PlayedService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlayedService")
    }
}

impl TaskService for PlayedService {
    fn id(&self) -> ServiceId {
        ServiceId::LOAD
    }

    fn prepare(&self, payload: &[u8], context: TaskContext) -> Result<PreparedTask, TaskRefusal> {
        let TaskContext { limits, control, overlap, .. } = context;
        let (spec, _) = admit(payload, &limits)?;
        let (now, times) = (*self.clock.lock().unwrap(), times(&spec));
        let watch = PresenceWatch::new(now, &spec, Arc::clone(&control));
        self.tests.lock().unwrap().push(PlayedTest {
            spec,
            control,
            watch,
            work: None,
            prepared: now,
            began: None,
            wake: now,
            readings: 0,
            progress: TestProgress::default(),
            owner: 0,
            lost: None,
            seen: Span::ZERO,
            is_data_cut: false,
        });
        let run = Box::new(move |messages| {
            drop((messages, overlap));
            vec![7; 100]
        });
        Ok(PreparedTask { ready: Vec::new(), times, outlives_session: true, run })
    }
}

/// What a session is given instead of a connection and threads.
struct PlayedHost {
    number: u64,
    tests: PlayedTests,
    events: SyncSender<ControlEvent<TaskEvent>>,
    event_queue: Receiver<ControlEvent<TaskEvent>>,
    /// What the client has yet to read; none once it does not read any more.
    sent: RefCell<Option<VecDeque<Vec<u8>>>>,
}

impl SessionHost for PlayedHost {
    fn send(&self, bytes: Vec<u8>) -> bool {
        let mut sent = self.sent.borrow_mut();
        sent.as_mut().is_some_and(|sent| {
            sent.push_back(bytes);
            sent.len() <= 64
        })
    }

    fn events(&self) -> SyncSender<ControlEvent<TaskEvent>> {
        self.events.clone()
    }

    fn start(&self, work: TaskWork) -> io::Result<()> {
        let mut tests = self.tests.lock().unwrap();
        let test = tests.last_mut().expect("it was prepared a moment ago");
        (test.work, test.owner) = (Some(work), self.number);
        Ok(())
    }
}

/// One connection, with what its client knows.
struct Connection {
    session: ServedSession,
    host: PlayedHost,
    is_half_open: bool,
    heard: Instant,
    task: u32,
    stage: Stage,
}

/// What a client would do next if it kept to the protocol.
#[derive(Clone, Copy)]
enum Stage {
    Request,
    Start,
    Wait,
    Receive,
}

struct World {
    agent: Arc<MeasurementAgent>,
    tests: PlayedTests,
    clock: Arc<Mutex<Instant>>,
    now: Instant,
    /// Of the time until now, that in which this process ran.
    ran: Span,
    connections: Vec<Option<Connection>>,
    made: u64,
    tokens: VecDeque<TestToken>,
    log: LogLimit,
    lines: VecDeque<Instant>,
    random: RandomStream,
    counts: Counts,
}

/// What was reached, so that a fuzzer that reaches nothing fails.
#[derive(Debug, Default)]
struct Counts {
    admitted: u64,
    begun: u64,
    cut_at_deadline: u64,
    ended_for_loss: u64,
    faults: u64,
    overrun: u64,
    fetched: u64,
    left_out: u64,
    tests_most: usize,
}

impl World {
    fn new(seed: Seed) -> Self {
        let clock = Arc::new(Mutex::new(Instant::ORIGIN));
        let tests = PlayedTests::default();
        let service = PlayedService { tests: Arc::clone(&tests), clock: Arc::clone(&clock) };
        let timing = SessionTiming::default();
        let agent = MeasurementAgent::new("fuzzed", LIMITS(), timing, vec![Box::new(service)]);
        Self {
            agent,
            tests,
            clock,
            now: Instant::ORIGIN,
            ran: Span::ZERO,
            connections: (0..PEERS).map(|_| None).collect(),
            made: 0,
            tokens: VecDeque::new(),
            log: LogLimit::new(LINES),
            lines: VecDeque::new(),
            random: seed.stream("agent over time"),
            counts: Counts::default(),
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.random.random_range(0..one_in) == 0
    }

    fn extreme(&mut self) -> u64 {
        EXTREMES[self.random.random_range(0..EXTREMES.len())]
    }

    /// Mostly a number of this range, else an extreme one.
    fn number(&mut self, usual: std::ops::Range<u64>) -> u64 {
        if self.chance(12) { self.extreme() } else { self.random.random_range(usual) }
    }

    fn small<T: TryFrom<u64>>(&mut self, usual: std::ops::Range<u64>, most: T) -> T {
        T::try_from(self.number(usual)).unwrap_or(most)
    }

    fn part(&mut self) -> PartSpec {
        match self.random.random_range(0..5_u8) {
            0 => {
                let direction =
                    [TransferDirection::Up, TransferDirection::Down, TransferDirection::Both];
                let direction = direction[self.random.random_range(0..3)];
                PartSpec::Streams(BulkTcpSpec {
                    streams: self.small(1..9, u16::MAX),
                    block_bytes: self.small(1..1 << 20, u32::MAX),
                    window_bytes: self.chance(4).then(|| self.small(1..1 << 20, u32::MAX)),
                    rate_bytes_per_second: self.chance(4).then(|| self.number(1..1 << 30)),
                    ..BulkTcpSpec::one(direction)
                })
            }
            1 => PartSpec::Probes(ProbesSpec {
                per_second: self.small(1..1_000, u32::MAX),
                datagram_bytes: self.small(0..9_000, u16::MAX),
            }),
            2 => PartSpec::Exchange(RequestResponsePart {
                transport: [RequestTransport::Tcp, RequestTransport::Udp, RequestTransport::Quic]
                    [self.random.random_range(0..3)],
                request_bytes: self.small(40..65_000, u32::MAX),
                response_bytes: self.small(40..1_000, u32::MAX),
                pacing: match self.random.random_range(0..3_u8) {
                    0 => RequestPacing::Closed,
                    1 => RequestPacing::Connect,
                    _ => RequestPacing::Open { per_second: self.small(1..1_000, u32::MAX) },
                },
            }),
            3 => PartSpec::Datagrams(DatagramsSpec {
                is_up: self.random.random(),
                rate_bits_per_second: self.number(1_000..SECOND),
                datagram_bytes: self.small(40..1_500, u16::MAX),
            }),
            _ => PartSpec::Mtu(MtuSearchSpec { patience_ns: self.number(0..SECOND) }),
        }
    }

    fn spec(&mut self) -> TestSpec {
        let parts = self.small(1..4, 9_usize).min(9);
        TestSpec {
            warm_up_ns: self.number(0..SECOND),
            duration_ns: self.number(1..40 * SECOND),
            interval_ns: self.number(10_000_000..2 * SECOND),
            drain_ns: self.number(0..10 * SECOND),
            parts: (0..parts).map(|_| self.part()).collect(),
        }
    }

    /// A message of a client that knows this number of a task: mostly what is due, else any.
    fn message(&mut self, task: u32, stage: Stage) -> Message {
        let task = if self.chance(24) { self.small(0..2, u32::MAX) } else { task };
        let any = match stage {
            _ if self.chance(5) => self.random.random_range(0..24_u8),
            Stage::Request => [0, 0, 0, 16][self.random.random_range(0..4)],
            Stage::Start => [7, 7, 19][self.random.random_range(0..3)],
            Stage::Wait => [18, 18, 18, 18, 18, 19, 12][self.random.random_range(0..7)],
            Stage::Receive => 13,
        };
        match any {
            0..=6 => {
                let mut payload = encode(&self.spec());
                if self.chance(16) {
                    let at = self.random.random_range(0..payload.len());
                    payload[at] = self.random.random();
                }
                let service =
                    if self.chance(16) { ServiceId(self.random.random()) } else { ServiceId::LOAD };
                Message::Request { task, request: TaskRequest { service, payload, to: None } }
            }
            7..=11 => Message::Start { task },
            12 => Message::Stop { task },
            13..=15 => Message::Received { task },
            16 | 17 => {
                let known = self.random.random_range(0..self.tokens.len() + 1);
                let token = self.tokens.get(known).copied().unwrap_or(TestToken([0xff; 16]));
                Message::Fetch { token }
            }
            18 => Message::Ping(self.random.random()),
            19..=21 => {
                let bytes = self.small(0..40, MESSAGE_MAX).min(MESSAGE_MAX - 64);
                Message::Data { task, payload: vec![0; bytes] }
            }
            22 => Message::Bye,
            _ => Message::Refused(TaskRefusal::NoReport),
        }
    }

    fn input(&mut self, task: u32, stage: Stage) -> Vec<u8> {
        let message = self.message(task, stage);
        let mut bytes = frame(&message.encode());
        if matches!(message, Message::Data { .. }) && self.chance(3) {
            // Many at once, as a client that waits for nothing sends them.
            bytes = bytes.repeat(self.random.random_range(1..100));
            bytes.truncate(2 * MESSAGE_MAX);
        }
        match self.random.random_range(0..40_u8) {
            0 => {
                let at = self.random.random_range(0..bytes.len());
                bytes[at] = self.random.random();
            }
            1 => bytes.truncate(self.random.random_range(1..=bytes.len())),
            2 => {
                let len = self.extreme().to_le_bytes();
                bytes[..HEADER_BYTES].copy_from_slice(&len[..HEADER_BYTES]);
            }
            3 => {
                bytes.resize(self.random.random_range(1..NOISE_MAX), 0);
                self.random.fill_bytes(&mut bytes);
            }
            _ => {}
        }
        bytes
    }

    fn log_line(&mut self) {
        match self.log.admit(self.now) {
            Some(_) => self.lines.push_back(self.now),
            None => self.counts.left_out += 1,
        }
        // As many at the end of one minute, and as many at the beginning of the next.
        if self.lines.len() > 2 * LINES as usize {
            let first = self.lines.pop_front().expect("there are some");
            assert!(self.now.saturating_since(first) >= Span::from_secs(60), "it logs too fast");
        }
    }

    fn connect(&mut self, place: usize) {
        self.made += 1;
        let (events, event_queue) = mpsc::sync_channel(1_024);
        let host = PlayedHost {
            number: self.made,
            tests: Arc::clone(&self.tests),
            events,
            event_queue,
            sent: RefCell::new(Some(VecDeque::new())),
        };
        let session = ServedSession::new(&self.agent, self.now);
        let (heard, task) = (self.now, self.random.random_range(0..4));
        let connection =
            Connection { session, host, is_half_open: false, heard, task, stage: Stage::Request };
        self.connections[place] = Some(connection);
        self.log_line();
        let hello = frame(&ProtocolHello::of_this_program("fuzzer").encode());
        let hello = if self.chance(10) { self.input(1, Stage::Request) } else { hello };
        self.deliver(place, Some(ControlEvent::Bytes(hello)));
    }

    /// Gives a session what happened, and has it do what there is to do.
    fn deliver(&mut self, place: usize, event: Option<ControlEvent<TaskEvent>>) {
        let Some(connection) = &mut self.connections[place] else { return };
        if matches!(event, Some(ControlEvent::Bytes(_))) {
            connection.heard = self.now;
        }
        connection.session.handle_event(self.now, event);
        let before = self.tests.lock().unwrap().len();
        let ended = connection.session.act(self.now, &connection.host);
        self.counts.admitted += (self.tests.lock().unwrap().len() - before) as u64;
        let held = connection.session.pending_bytes();
        assert!(held <= HEADER_BYTES + MESSAGE_MAX + 2 * MESSAGE_MAX, "{held}");
        let Some(ended) = ended else { return };
        let number = connection.host.number;
        self.connections[place] = None;
        for test in self.tests.lock().unwrap().iter_mut().filter(|test| test.owner == number) {
            test.lost = Some(self.ran);
        }
        self.log_line();
        if let Err(error) = ended {
            self.counts.faults += 1;
            self.counts.overrun += u64::from(error.to_string().contains("faster"));
            self.log_line();
        }
    }

    /// What a client does with what it was sent.
    fn read(&mut self, place: usize) {
        let Some(connection) = &mut self.connections[place] else { return };
        let sent: Vec<_> =
            connection.host.sent.borrow_mut().iter_mut().flatten().map(std::mem::take).collect();
        if let Some(queue) = connection.host.sent.borrow_mut().as_mut() {
            queue.clear();
        }
        for bytes in sent {
            match Message::decode(&bytes[HEADER_BYTES..]) {
                Some(Message::Ready(ready)) => {
                    (connection.task, connection.stage) = (ready.task, Stage::Start);
                    self.tokens.push_back(ready.token);
                }
                Some(Message::Report { task, .. }) => {
                    self.counts.fetched += u64::from(task == 0);
                    (connection.task, connection.stage) = (task, Stage::Receive);
                }
                _ => {}
            }
        }
        if self.tokens.len() > 16 {
            self.tokens.pop_front();
        }
    }

    fn step(&mut self) {
        self.disturb();
        self.run_due();
        let (by, is_suspended) = match self.random.random_range(0..10_000_u16) {
            0 => (Span::from_ns(self.random.random_range(0..3_600 * SECOND)), true),
            1..=5 => (Span::from_ns(self.random.random_range(0..30 * SECOND)), true),
            6..=15 => (Span::from_ns(self.random.random_range(0..600 * SECOND)), false),
            16..=1_500 => (Span::from_ns(self.random.random_range(0..3 * SECOND)), false),
            1_501..=2_500 => {
                (self.next_due().saturating_since(self.now).min(Span::from_secs(3)), false)
            }
            _ => (Span::from_ns(self.random.random_range(0..SECOND / 20)), false),
        };
        self.advance(by, is_suspended);
        self.check();
    }

    /// Something happens at one connection.
    fn disturb(&mut self) {
        let place = self.random.random_range(0..PEERS);
        let Some(connection) = &mut self.connections[place] else {
            return if self.chance(3) {
                self.connect(place);
            };
        };
        if connection.is_half_open {
            return;
        }
        let (task, stage, number) = (connection.task, connection.stage, connection.host.number);
        match self.random.random_range(0..60_u8) {
            0 => {
                self.cut_data(number);
                self.deliver(place, Some(ControlEvent::Closed));
            }
            1 => self.deliver(place, Some(ControlEvent::Closed)),
            2 => {
                self.cut_data(number);
                self.connections[place].as_mut().expect("it is there").is_half_open = true;
            }
            3 => {
                *self.connections[place].as_ref().expect("it is there").host.sent.borrow_mut() =
                    None;
            }
            4 => self.cut_data(number),
            5 => self.tests.lock().unwrap().iter_mut().for_each(|test| test.is_data_cut = false),
            6..=9 => {}
            _ => {
                let bytes = self.input(task, stage);
                if let Some(connection) = &mut self.connections[place] {
                    connection.stage = match stage {
                        Stage::Receive => Stage::Request,
                        Stage::Start => Stage::Wait,
                        stage => stage,
                    };
                }
                self.deliver(place, Some(ControlEvent::Bytes(bytes)));
            }
        }
        self.read(place);
    }

    /// The last of a client's data comes now.
    fn cut_data(&mut self, owner: u64) {
        let mut tests = self.tests.lock().unwrap();
        for test in tests.iter_mut().filter(|test| test.owner == owner && !test.is_data_cut) {
            test.progress.peer_activity += 1;
            (test.seen, test.is_data_cut) = (self.ran, true);
        }
    }

    /// Lets time pass; what is due in it is done when it is due, or at the end where the process is suspended.
    fn advance(&mut self, by: Span, is_suspended: bool) {
        let until = self.now + by;
        let mut at_once = 0;
        loop {
            let due = self.next_due().max(self.now);
            let next = if is_suspended { until } else { due.min(until) };
            if next > self.now {
                at_once = 0;
                if !is_suspended {
                    self.ran += next.saturating_since(self.now);
                }
            }
            self.now = next;
            *self.clock.lock().unwrap() = next;
            if due > next {
                return;
            }
            at_once += 1;
            assert!(at_once < 1_000, "it spins at {:?}", self.now);
            self.run_due();
        }
    }

    fn next_due(&self) -> Instant {
        let sessions =
            self.connections.iter().flatten().map(|connection| connection.session.deadline());
        let tests = self.tests.lock().unwrap();
        let tests = tests.iter().map(|test| test.wake).collect::<Vec<_>>();
        sessions.chain(tests).min().unwrap_or(Instant::NEVER)
    }

    fn run_due(&mut self) {
        for place in 0..PEERS {
            let due = |connection: &Connection| self.now >= connection.session.deadline();
            if self.connections[place].as_ref().is_some_and(due) {
                self.deliver(place, None);
            }
        }
        self.run_tests();
        for place in 0..PEERS {
            while let Some(connection) = &self.connections[place]
                && let Ok(event) = connection.host.event_queue.try_recv()
            {
                self.deliver(place, Some(event));
            }
        }
    }

    /// Turns of the threads of all tests that are due, or that were told something.
    fn run_tests(&mut self) {
        let mut ended = Vec::new();
        let (now, ran) = (self.now, self.ran);
        self.tests.lock().unwrap().retain_mut(|test| {
            let is_over = test.turn(now, ran, &mut self.counts);
            if is_over {
                ended.extend(test.work.take());
            }
            !is_over
        });
        for work in ended {
            work(&|| now);
        }
    }

    fn check(&mut self) {
        let limits = LIMITS();
        let tests = self.tests.lock().unwrap();
        self.counts.tests_most = self.counts.tests_most.max(tests.len());
        let (clients, places) = self.agent.active_counts();
        assert_eq!(places as usize, tests.len(), "every place is of a test that goes on");
        assert!(places <= limits.tests_max && clients <= limits.clients_max);
        let (reports, bytes, overlapping) = self.agent.kept_counts();
        assert!(reports <= 64 && bytes <= 32 << 20, "{reports} reports of {bytes} bytes");
        assert_eq!(overlapping, tests.len(), "nothing overlaps that is over");
        let mut sockets = self.connections.iter().flatten().count();
        for test in tests.iter() {
            test.check(self.now, self.ran);
            sockets += test.sockets();
        }
        let most =
            usize::try_from(limits.tests_max).unwrap() * (16 + 2 * usize::from(limits.streams_max));
        assert!(sockets <= most + PEERS, "{sockets} descriptors");
        drop(tests);
        for connection in self.connections.iter().flatten() {
            let silent = self.now.saturating_since(connection.heard);
            assert!(silent < Span::from_secs(20), "nothing was heard for {silent}");
        }
    }
}

impl PlayedTest {
    /// One turn; whether the test is over.
    fn turn(&mut self, now: Instant, ran: Span, counts: &mut Counts) -> bool {
        let now_ns = now.since_origin().as_ns();
        let Some((_, schedule)) = &mut self.began else {
            let until = self.prepared + Span::from_ns(START_TIMEOUT_NS);
            self.wake = until;
            if self.control.began_ns().is_some() && !self.control.is_halted() {
                counts.begun += 1;
                self.began = Some((now, ReadingSchedule::new(&self.spec, now_ns)));
                (self.wake, self.seen) = (now, ran);
                self.progress.sends_datagrams = self.sends_datagrams();
                return false;
            }
            return self.control.is_halted() || now >= until;
        };
        if self.control.is_halted() {
            return true;
        }
        if now < self.wake {
            return false;
        }
        if !self.is_data_cut {
            self.progress.peer_activity += 1;
            self.seen = ran;
        }
        if schedule.is_due(now_ns) {
            self.readings += 1;
            schedule.on_reading(now_ns);
        }
        self.watch.observe(now, &self.progress);
        if self.control.is_halted() {
            counts.ended_for_loss += 1;
            return true;
        }
        if schedule.is_over(now_ns) {
            counts.cut_at_deadline += 1;
            return true;
        }
        let wake_ns = schedule.wake_ns(now_ns);
        assert!(wake_ns > now_ns && wake_ns <= now_ns + CHECK_INTERVAL_NS, "{wake_ns} at {now_ns}");
        self.wake = Instant::after_origin(Span::from_ns(wake_ns));
        false
    }

    fn sends_datagrams(&self) -> bool {
        let sends = |part: &PartSpec| matches!(part, PartSpec::Datagrams(part) if !part.is_up);
        self.spec.parts.iter().any(sends)
    }

    /// Connections, and a socket of each part.
    fn sockets(&self) -> usize {
        self.spec.parts.iter().map(|part| 2 + part.connections()).sum()
    }

    fn check(&self, now: Instant, ran: Span) {
        let TestSpec { warm_up_ns, duration_ns, drain_ns, .. } = self.spec;
        let longest_ns: u128 =
            [warm_up_ns, duration_ns, drain_ns, SECOND / 4].map(u128::from).iter().sum();
        assert!(longest_ns <= u128::from(SECOND) * (600 + 60 + 1), "{:?}", self.spec);
        let (from, longest_ns) = match &self.began {
            None => (self.prepared, 30 * u128::from(SECOND)),
            Some((began, _)) => (*began, longest_ns),
        };
        let gone_ns = u128::from(now.saturating_since(from).as_ns());
        assert!(gone_ns < longest_ns, "its place is not free: {:?}", self.spec);
        assert!(self.readings <= 20_004, "{} readings of {:?}", self.readings, self.spec);
        // A client that is sent no datagrams counts as present while its session lasts.
        let gone = if self.sends_datagrams() {
            Some(self.seen)
        } else if shows_client_liveness(&self.spec) {
            self.lost.map(|lost| lost.max(self.seen))
        } else {
            None
        };
        if let Some(gone) = gone.filter(|_| self.began.is_some() && self.is_data_cut) {
            let since = ran.saturating_sub(gone);
            assert!(since <= SENT_AFTER_LOSS, "sent to nobody for {since}: {:?}", self.spec);
        }
    }
}

#[test]
fn the_agent_keeps_its_promises_at_any_time() {
    let wanted = std::env::var("PLUMB_FUZZ_STEPS").ok().and_then(|steps| steps.parse().ok());
    let wanted: u64 = wanted.unwrap_or(STEPS);
    let (mut world, began_ns) = (World::new(Seed(SEED)), monotonic_ns());
    for step in 1..=wanted {
        world.step();
        // Moments end after half a year.
        if step % 1_000_000 == 0 {
            let counts = std::mem::take(&mut world.counts);
            world = World { counts, ..World::new(Seed(SEED + step)) };
        }
    }
    let seconds = Span::from_ns(monotonic_ns() - began_ns).as_secs_f64();
    println!("{wanted} steps over {:?} took {seconds:.1} s: {:?}", world.now, world.counts);
    let counts = &world.counts;
    for reached in [
        counts.admitted,
        counts.begun,
        counts.cut_at_deadline,
        counts.ended_for_loss,
        counts.faults,
        counts.overrun,
        counts.fetched,
        counts.left_out,
    ] {
        assert!(reached > wanted / 30_000, "{counts:?}");
    }
    assert_eq!(counts.tests_most, 3, "{counts:?}");
}
