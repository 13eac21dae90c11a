//! The client's side of a session: it asks, one test at a time.
//!
//! Left out: the measuring itself, and coming back after a lost connection, which is a new session.

use std::collections::VecDeque;
use std::net::IpAddr;

use plumb_base::time::{Instant, Span};

use super::{Fault, Heard, Line, SessionError, Timing};
use crate::measure::report::TestReport;
use crate::measure::spec::TestSpec;
use crate::protocol::hello::Hello;
use crate::protocol::message::{MESSAGE_MAX, Message, REPORT_MAX, Ready, Refusal, Welcome};
use crate::protocol::token::Token;

/// What the client's driver has to do or to know.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write these bytes.
    Send(Vec<u8>),
    /// The agent is there, and this is what it allows.
    Welcomed(Welcome),
    /// The test is ready: connect, then say [`ClientSession::start`].
    Ready(Ready),
    /// What the agent saw.
    Reported(Box<TestReport>),
    /// The agent does not do it; the session goes on.
    Refused(Refusal),
    /// Close the connection; with why, unless all went well.
    Close(Option<SessionError>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Hello,
    Welcoming,
    Idle,
    Requested { test: u32, longest: Span },
    Ready { test: u32, longest: Span },
    Running { test: u32 },
    Stopping { test: u32 },
    Fetching,
    Over,
}

impl State {
    const fn doing(self) -> &'static str {
        match self {
            Self::Hello => "waiting for the agent's hello",
            Self::Welcoming => "waiting for the agent's limits",
            Self::Idle => "between two tests",
            Self::Requested { .. } => "waiting for the agent to make ready",
            Self::Ready { .. } => "connecting the streams of a test",
            Self::Running { .. } => "running a test",
            Self::Stopping { .. } => "waiting for the report of a stopped test",
            Self::Fetching => "fetching a report",
            Self::Over => "ending the session",
        }
    }

    /// Whether a report may come.
    const fn takes_report(self) -> bool {
        matches!(
            self,
            Self::Ready { .. } | Self::Running { .. } | Self::Stopping { .. } | Self::Fetching
        )
    }
}

/// The client's side of a session.
#[derive(Clone, Debug)]
pub struct ClientSession {
    line: Line,
    state: State,
    since: Instant,
    until: Instant,
    /// The same without the time of a report that has begun to come.
    due: Instant,
    actions: VecDeque<Action>,
    tests: u32,
}

impl ClientSession {
    /// A session over a connection that has just been made.
    pub fn new(now: Instant, hello: Hello, timing: Timing) -> Self {
        Self {
            line: Line::new(now, hello, timing),
            state: State::Hello,
            since: now,
            until: now + timing.hello,
            due: now + timing.hello,
            actions: VecDeque::new(),
            tests: 0,
        }
    }

    /// Asks for a test whose data goes to this address. False when another is under way.
    pub fn request(&mut self, now: Instant, spec: &TestSpec, to: Option<IpAddr>) -> bool {
        if self.state != State::Idle {
            return false;
        }
        self.tests = self.tests.wrapping_add(1).max(1);
        let test = self.tests;
        let longest = Span::from_ns(spec.longest_ns());
        self.line.say(now, &Message::Request { test, spec: Box::new(spec.clone()), to });
        self.enter(now, State::Requested { test, longest }, self.line.timing.answer);
        true
    }

    /// Everything is connected: the test begins. False when none is ready.
    pub fn start(&mut self, now: Instant) -> bool {
        let State::Ready { test, longest } = self.state else { return false };
        self.line.say(now, &Message::Start { test });
        self.enter(now, State::Running { test }, longest + self.line.timing.answer);
        true
    }

    /// Ends the test that is ready or runs; its report still comes. False when there is none.
    pub fn stop(&mut self, now: Instant) -> bool {
        let (State::Ready { test, .. } | State::Running { test }) = self.state else {
            return false;
        };
        self.line.say(now, &Message::Stop { test });
        self.enter(now, State::Stopping { test }, self.line.timing.answer);
        true
    }

    /// Asks for the report of a test whose connection was lost; waits so long for its end.
    pub fn fetch(&mut self, now: Instant, token: Token, longest: Span) -> bool {
        if self.state != State::Idle {
            return false;
        }
        self.line.say(now, &Message::Fetch { token });
        self.enter(now, State::Fetching, longest + self.line.timing.answer);
        true
    }

    /// Takes its leave.
    pub fn leave(&mut self, now: Instant) {
        if !self.is_over() {
            self.line.say(now, &Message::Bye);
            self.end(None);
        }
    }

    /// Takes bytes as they came.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if self.is_over() {
            return;
        }
        self.line.push(now, bytes);
        while !self.is_over() {
            let limit = if self.state.takes_report() { REPORT_MAX } else { MESSAGE_MAX };
            match self.line.next(now, limit) {
                Ok(Heard::Nothing) => break,
                Ok(Heard::Quiet) => {}
                Ok(Heard::Greeted) => self.enter(now, State::Welcoming, self.line.timing.answer),
                Ok(Heard::Message(message)) => self.handle_message(now, message),
                Err(fault) => self.fail(fault),
            }
        }
        if self.state.takes_report()
            && let Some(bytes) = self.line.deframer.announced()
        {
            // Once for each report, however long it takes: its length was refused if it cannot be.
            self.until = self.due + Timing::of_bytes(bytes);
        }
    }

    /// Takes one message.
    pub fn handle_message(&mut self, now: Instant, message: Message) {
        // A client between two tests waits for nobody but itself.
        let idle = Span::from_ps(u64::MAX);
        match (self.state, message) {
            (State::Over, _) => {}
            (State::Welcoming, Message::Welcome(welcome)) => {
                self.actions.push_back(Action::Welcomed(welcome));
                self.enter(now, State::Idle, idle);
            }
            (State::Requested { test, longest }, Message::Ready(ready)) if ready.test == test => {
                self.actions.push_back(Action::Ready(ready));
                self.enter(now, State::Ready { test, longest }, self.line.timing.start);
            }
            (State::Requested { .. } | State::Fetching, Message::Refused(refusal)) => {
                self.actions.push_back(Action::Refused(refusal));
                self.enter(now, State::Idle, idle);
            }
            (
                State::Ready { test, .. } | State::Running { test } | State::Stopping { test },
                Message::Report { test: reported, report },
            ) if test == reported => {
                self.line.say(now, &Message::Received { test });
                self.actions.push_back(Action::Reported(report));
                self.enter(now, State::Idle, idle);
            }
            (State::Fetching, Message::Report { test: 0, report }) => {
                self.line.say(now, &Message::Received { test: 0 });
                self.actions.push_back(Action::Reported(report));
                self.enter(now, State::Idle, idle);
            }
            // An agent may refuse whoever comes.
            (_, Message::Refused(refusal)) => self.fail(Fault::Refused(refusal)),
            (_, Message::Bye) => self.fail(Fault::Closed),
            (_, message) => self.fail(Fault::Unexpected(message.name())),
        }
    }

    /// The connection has ended.
    pub fn handle_closed(&mut self) {
        if !self.is_over() {
            let fault = self.line.closed();
            self.fail(fault);
        }
    }

    /// The time of [`Self::deadline`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.is_over() {
            return;
        }
        if now >= self.until {
            return self.fail(Fault::Late(self.until.saturating_since(self.since)));
        }
        if let Err(fault) = self.line.handle_timeout(now) {
            self.fail(fault);
        }
    }

    /// What is to be done next.
    pub fn poll_action(&mut self) -> Option<Action> {
        match self.line.out.pop_front() {
            Some(bytes) => Some(Action::Send(bytes)),
            None => self.actions.pop_front(),
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn deadline(&self) -> Instant {
        if self.is_over() { Instant::NEVER } else { self.until.min(self.line.deadline()) }
    }

    /// Whether a test is asked for or under way.
    pub const fn has_test(&self) -> bool {
        !matches!(self.state, State::Idle | State::Over | State::Hello | State::Welcoming)
    }

    /// Whether nothing more happens.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// What it is doing, for errors.
    pub fn doing(&self) -> &'static str {
        self.state.doing()
    }

    /// Bytes that came and are no whole message yet.
    pub fn pending_bytes(&self) -> usize {
        self.line.deframer.pending().len()
    }

    fn enter(&mut self, now: Instant, state: State, within: Span) {
        self.state = state;
        self.since = now;
        self.until = now + within;
        self.due = self.until;
    }

    fn fail(&mut self, fault: Fault) {
        let during = self.state.doing();
        self.end(Some(SessionError { during, fault }));
    }

    fn end(&mut self, error: Option<SessionError>) {
        self.actions.push_back(Action::Close(error));
        self.state = State::Over;
    }
}
