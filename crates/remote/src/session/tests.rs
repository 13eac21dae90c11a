//! Both machines against each other and against everything that may come, in virtual time.

use super::agent::{AgentAction, AgentSession, ReportLookup};
use super::client::{ClientAction, ClientSession};
use super::*;
use crate::datagram_header::TestToken;
use crate::message::{ReadyMessage, ServiceId, TaskRequest, WelcomeMessage};

mod fuzz;

const TOKEN: TestToken = TestToken([7; 16]);

fn at(ms: u64) -> Instant {
    Instant::after_origin(Span::from_ms(ms))
}

fn request() -> TaskRequest {
    TaskRequest { service: ServiceId::LOAD, payload: vec![1; 40], to: None }
}

const TIMES: TaskTimes = TaskTimes { longest: Span::from_secs(2), quiet: Span::ZERO };

fn agent(now: Instant) -> AgentSession {
    let hello = ProtocolHello::of_this_program("agent");
    AgentSession::new(now, hello, WelcomeMessage::default(), SessionTiming::default())
}

fn client(now: Instant) -> ClientSession {
    ClientSession::new(now, ProtocolHello::of_this_program("client"), SessionTiming::default())
}

fn ready(task: u32) -> ReadyMessage {
    ReadyMessage { task, token: TOKEN, payload: vec![9] }
}

/// Both sides and what is under way between them, each direction cut after so many bytes.
struct Pair {
    now: Instant,
    agent: AgentSession,
    client: ClientSession,
    /// Bytes that may still pass to the agent and to the client.
    budget: [usize; 2],
    passed: [usize; 2],
    /// Whether a cut is told to both sides, or nothing comes any more.
    is_told: bool,
    agent_end: Option<Result<(), ControlSessionError>>,
    client_end: Option<Result<(), ControlSessionError>>,
    reports: u32,
    abandoned: u32,
    started: u32,
}

impl Pair {
    fn new(budget: [usize; 2], is_told: bool) -> Self {
        Self {
            now: at(0),
            agent: agent(at(0)),
            client: client(at(0)),
            budget,
            passed: [0; 2],
            is_told,
            agent_end: None,
            client_end: None,
            reports: 0,
            abandoned: 0,
            started: 0,
        }
    }

    fn carry(&mut self, to: usize, bytes: &[u8]) {
        let fit = bytes.len().min(self.budget[to] - self.passed[to]);
        self.passed[to] += fit;
        if fit > 0 {
            match to {
                0 => self.agent.handle_bytes(self.now, &bytes[..fit]),
                _ => self.client.handle_bytes(self.now, &bytes[..fit]),
            }
        }
        if fit < bytes.len() && self.is_told {
            self.agent.handle_closed();
            self.client.handle_closed();
        }
    }

    /// Everything that follows from what happened, without time going by.
    fn settle(&mut self) {
        loop {
            if let Some(action) = self.client.poll_action() {
                match action {
                    ClientAction::Send(bytes) => self.carry(0, &bytes),
                    ClientAction::Welcomed(_) => {
                        assert!(self.client.request(self.now, request(), TIMES));
                    }
                    ClientAction::Ready(_) => assert!(self.client.start(self.now)),
                    ClientAction::Reported(_) => {
                        self.reports += 1;
                        self.client.disconnect(self.now);
                    }
                    ClientAction::Refused(refusal) => panic!("{refusal}"),
                    ClientAction::Data(_) => {}
                    ClientAction::Close(error) => self.client_end = Some(error.map_or(Ok(()), Err)),
                }
            } else if let Some(action) = self.agent.poll_action() {
                match action {
                    AgentAction::Send(bytes) => self.carry(1, &bytes),
                    AgentAction::Prepare { task, .. } => {
                        self.agent.on_prepared(self.now, Ok((ready(task), TIMES)));
                    }
                    AgentAction::Begin => {
                        self.started += 1;
                        self.agent.on_finished(self.now, Vec::new());
                    }
                    AgentAction::Abandon => self.abandoned += 1,
                    AgentAction::Forget | AgentAction::Halt | AgentAction::Data(_) => {}
                    AgentAction::Fetch(_) => {
                        self.agent.on_report_lookup(self.now, ReportLookup::Missing);
                    }
                    AgentAction::Close(error) => self.agent_end = Some(error.map_or(Ok(()), Err)),
                }
            } else {
                return;
            }
        }
    }

    /// Until both have ended; time goes from deadline to deadline.
    fn run(&mut self) {
        for _ in 0..2_000 {
            self.settle();
            let next = self.agent.deadline().min(self.client.deadline());
            if next == Instant::NEVER {
                return;
            }
            assert!(next >= self.now, "a deadline in the past: {next:?} at {:?}", self.now);
            self.now = next;
            self.agent.handle_timeout(next);
            self.client.handle_timeout(next);
        }
        panic!(
            "both sides should have ended: {} and {}",
            self.agent.activity(),
            self.client.activity()
        );
    }
}

#[test]
fn a_whole_test_passes_and_both_sides_part_in_peace() {
    let mut pair = Pair::new([usize::MAX; 2], true);
    pair.run();
    assert_eq!((pair.agent_end, pair.client_end), (Some(Ok(())), Some(Ok(()))));
    assert_eq!((pair.reports, pair.started, pair.abandoned), (1, 1, 0));
    assert_eq!(pair.now, at(0));
}

#[test]
fn a_connection_cut_at_any_byte_ends_both_sides_with_a_named_state() {
    let mut whole = Pair::new([usize::MAX; 2], true);
    whole.run();
    for way in 0..2 {
        for cut in 0..whole.passed[way] {
            for is_told in [true, false] {
                let mut budget = [usize::MAX; 2];
                budget[way] = cut;
                let mut pair = Pair::new(budget, is_told);
                pair.run();
                let ends = [pair.agent_end, pair.client_end].map(|end| end.expect("both ended"));
                let errors: Vec<_> = ends.iter().filter_map(|end| end.as_ref().err()).collect();
                // The very last word may be missing without anybody missing it.
                assert!(!errors.is_empty() || pair.reports == 1, "way {way} cut {cut}");
                assert!(errors.iter().all(|error| !error.activity.is_empty()));
                // Nobody waits longer than the longest state and a silence.
                assert!(pair.now <= at(700_000), "{:?}", pair.now);
            }
        }
    }
}

#[test]
fn two_sides_with_nothing_to_say_keep_each_other_alive() {
    let mut pair = Pair::new([usize::MAX; 2], true);
    // A client that greets and then asks for nothing.
    let mut told = Vec::new();
    while pair.now < at(60_000) {
        while let Some(action) = pair.client.poll_action() {
            if let ClientAction::Send(bytes) = action {
                pair.agent.handle_bytes(pair.now, &bytes);
            }
        }
        while let Some(action) = pair.agent.poll_action() {
            match action {
                AgentAction::Send(bytes) => pair.client.handle_bytes(pair.now, &bytes),
                other => told.push(other),
            }
        }
        let next = pair.agent.deadline().min(pair.client.deadline());
        if next > pair.now {
            pair.now = next;
        }
        pair.agent.handle_timeout(pair.now);
        pair.client.handle_timeout(pair.now);
    }
    assert!(!pair.agent.is_over() && !pair.client.is_over());
    assert!(told.is_empty(), "{told:?}");
}

#[test]
fn a_half_open_connection_is_noticed_by_its_silence() {
    let mut session = agent(at(0));
    session.handle_bytes(at(0), &frame(&ProtocolHello::of_this_program("client").encode()));
    let mut now = at(0);
    while !session.is_over() {
        while session.poll_action().is_some() {}
        now = session.deadline();
        session.handle_timeout(now);
    }
    let error = session.close_error().unwrap();
    assert_eq!(error.fault, SessionFault::Silent(SessionTiming::default().silence));
    assert_eq!(error.activity, "waiting for a request");
    assert_eq!(now, at(12_000));
}

#[test]
fn another_version_and_another_program_are_named() {
    let mut newer = ProtocolHello::of_this_program("9.0");
    (newer.oldest, newer.newest) = (40, 50);
    for (first, expected) in [
        (frame(&newer.encode()), "different versions"),
        (b"SSH-2.0-OpenSSH_9.2\r\n".to_vec(), "SSH-2.0-OpenSSH_9.2"),
        (b"bash: plumb: command not found\n".to_vec(), "command not found"),
    ] {
        let mut session = client(at(0));
        session.handle_bytes(at(0), &first);
        session.handle_closed();
        let error = session.close_error().unwrap();
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn a_client_passes_over_a_banner_and_an_agent_does_not() {
    let hello = frame(&ProtocolHello::of_this_program("other").encode());
    let greeted = [&b"Welcome to box!\n"[..], &hello].concat();
    let mut session = client(at(0));
    for piece in greeted.chunks(7) {
        session.handle_bytes(at(0), piece);
    }
    assert_eq!(session.activity(), "waiting for the agent's limits");
    let mut session = agent(at(0));
    session.handle_bytes(at(0), &greeted);
    let error = session.close_error().unwrap();
    assert!(matches!(error.fault, SessionFault::Hello(HelloError::NotPlumb { .. })), "{error}");
    // However long a login talks, no more than its limit is held.
    let mut session = client(at(0));
    while !session.is_over() {
        assert!(session.pending_bytes() <= BANNER_BYTES_MAX);
        session.handle_bytes(at(0), &[b'.'; 1 << 10]);
    }
}

/// An agent's session brought to a state, by number.
fn agent_in(state: usize) -> AgentSession {
    let mut session = agent(at(0));
    if state == 0 {
        return session;
    }
    session.handle_bytes(at(0), &frame(&ProtocolHello::of_this_program("client").encode()));
    let request = Message::Request { task: 1, request: request() };
    let steps: [&dyn Fn(&mut AgentSession); 5] = [
        &|session| session.handle_message(at(0), request.clone()),
        &|session| session.on_prepared(at(0), Ok((ready(1), TIMES))),
        &|session| session.handle_message(at(0), Message::Start { task: 1 }),
        &|session| session.on_finished(at(0), Vec::new()),
        &|session| {
            session.handle_message(at(0), Message::Received { task: 1 });
            session.handle_message(at(0), Message::Fetch { token: TOKEN });
        },
    ];
    for step in &steps[..state - 1] {
        step(&mut session);
    }
    assert!(!session.is_over());
    session
}

const AGENT_STATES: usize = 7;

/// A client's session brought to a state, by number.
fn client_in(state: usize) -> ClientSession {
    let mut session = client(at(0));
    let steps: [&dyn Fn(&mut ClientSession); 6] = [
        &|session| {
            session.handle_bytes(at(0), &frame(&ProtocolHello::of_this_program("agent").encode()));
        },
        &|session| {
            session.handle_message(at(0), Message::Welcome(WelcomeMessage::default()));
        },
        &|session| assert!(session.request(at(0), request(), TIMES)),
        &|session| session.handle_message(at(0), Message::Ready(ready(1))),
        &|session| assert!(session.start(at(0))),
        &|session| assert!(session.stop(at(0))),
    ];
    for step in &steps[..state] {
        step(&mut session);
    }
    assert!(!session.is_over());
    session
}

const CLIENT_STATES: usize = 7;

fn messages() -> Vec<Message> {
    vec![
        Message::Welcome(WelcomeMessage::default()),
        Message::Request { task: 1, request: request() },
        Message::Ready(ready(1)),
        Message::Ready(ready(2)),
        Message::Start { task: 1 },
        Message::Start { task: 2 },
        Message::Stop { task: 1 },
        Message::Report { task: 1, payload: Vec::new() },
        Message::Report { task: 0, payload: Vec::new() },
        Message::Received { task: 1 },
        Message::Fetch { token: TOKEN },
        Message::Refused(TaskRefusal::NoReport),
        Message::Ping(3),
        Message::Pong(3),
        Message::Bye,
        Message::Data { task: 1, payload: vec![3] },
    ]
}

#[test]
fn a_long_report_has_the_time_that_a_slow_path_needs_and_no_more() {
    // Three megabytes, of which a few have come, at the client that has asked for them to be sent.
    let bytes = [&3_000_000_u32.to_le_bytes()[..], &[0; 100]].concat();
    let mut session = client_in(6);
    let SessionTiming { answer, silence, .. } = SessionTiming::default();
    let mut now = Instant::ORIGIN;
    session.handle_bytes(now, &bytes);
    let end = now + answer + Span::from_secs(240);
    while now < end {
        assert!(!session.is_over(), "{now:?}");
        now += silence.min(end - now) / 2 + Span::from_ms(1);
        session.handle_bytes(now, &[0]);
        session.handle_timeout(now);
    }
    assert!(session.is_over());
    // The agent gives as much to be read and acknowledged.
    let mut session = agent_in(4);
    session.on_finished(at(0), vec![0; 1_700_000]);
    assert!(session.channel.until > at(0) + answer + Span::from_secs(100));
}

/// What the sessions of both sides have alike.
trait AnySession {
    fn handle_bytes(&mut self, now: Instant, bytes: &[u8]);
    fn handle_timeout(&mut self, now: Instant);
    fn deadline(&self) -> Instant;
    fn is_over(&self) -> bool;
    fn activity(&self) -> &'static str;
    /// Bytes that it holds and cannot read yet.
    fn pending_bytes(&self) -> usize;
    /// Why it closed, if that was its last action.
    fn close_error(&mut self) -> Option<ControlSessionError>;
}

macro_rules! any_session {
    ($session:ty, $action:ident) => {
        impl AnySession for $session {
            fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
                self.handle_bytes(now, bytes);
            }
            fn handle_timeout(&mut self, now: Instant) {
                self.handle_timeout(now);
            }
            fn deadline(&self) -> Instant {
                self.deadline()
            }
            fn is_over(&self) -> bool {
                self.is_over()
            }
            fn activity(&self) -> &'static str {
                self.activity()
            }
            fn pending_bytes(&self) -> usize {
                self.pending_bytes()
            }
            fn close_error(&mut self) -> Option<ControlSessionError> {
                match std::iter::from_fn(|| self.poll_action()).last() {
                    Some($action::Close(error)) => error,
                    _ => None,
                }
            }
        }
    };
}

any_session!(AgentSession, AgentAction);
any_session!(ClientSession, ClientAction);

#[test]
fn every_message_in_every_state_is_taken_or_ends_the_session_with_its_name() {
    let agents =
        (0..AGENT_STATES).map(|state| -> Box<dyn AnySession> { Box::new(agent_in(state)) });
    let clients =
        (0..CLIENT_STATES).map(|state| -> Box<dyn AnySession> { Box::new(client_in(state)) });
    let sessions = || agents.clone().chain(clients.clone());
    for message in messages() {
        for mut session in sessions() {
            let doing = session.activity();
            session.handle_bytes(at(1), &frame(&message.encode()));
            assert!(session.is_over() || session.deadline() < Instant::NEVER, "{message:?}");
            let is_over = session.is_over();
            match session.close_error() {
                Some(error) => assert_eq!(error.activity, doing, "{message:?}"),
                None => assert!(!is_over || message == Message::Bye, "{message:?}"),
            }
        }
    }
}

#[test]
fn every_state_has_a_deadline_whatever_pings_come() {
    for state in 0..AGENT_STATES {
        let mut session = agent_in(state);
        let mut steps = 0;
        while !session.is_over() {
            let now = session.deadline();
            // A client that is alive but never says anything that helps.
            if state > 0 {
                session.handle_bytes(now, &frame(&Message::Ping(1).encode()));
            }
            session.handle_timeout(now);
            while let Some(action) = session.poll_action() {
                if let AgentAction::Fetch(_) = action {
                    session.on_report_lookup(now, ReportLookup::Running);
                }
            }
            steps += 1;
            assert!(steps < 10_000 && now < at(601_000), "state {state} at {now:?}");
        }
    }
}

#[test]
fn a_report_is_fetched_by_its_token_after_the_connection_was_lost() {
    let mut session = agent_in(1);
    while session.poll_action().is_some() {}
    session.handle_message(at(0), Message::Fetch { token: TOKEN });
    assert_eq!(session.poll_action(), Some(AgentAction::Fetch(TOKEN)));
    // The test is not over: it is looked for again, and nothing is said meanwhile.
    session.on_report_lookup(at(0), ReportLookup::Running);
    assert_eq!(session.deadline(), at(200));
    session.handle_timeout(at(200));
    assert_eq!(session.poll_action(), Some(AgentAction::Fetch(TOKEN)));
    session.on_report_lookup(at(200), ReportLookup::Report(Vec::new()));
    assert!(matches!(session.poll_action(), Some(AgentAction::Send(_))));
    session.handle_message(at(300), Message::Received { task: 0 });
    assert_eq!(session.poll_action(), Some(AgentAction::Forget));
    assert_eq!(session.activity(), "waiting for a request");
}
