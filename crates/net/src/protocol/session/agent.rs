//! The agent's side of a session: one client, one test at a time.
//!
//! Left out: limits over all clients, which the driver knows, and the shelf.

use std::collections::VecDeque;
use std::net::IpAddr;

use plumb_base::time::{Instant, Span};

use super::{Fault, Heard, Line, SessionError, Timing};
use crate::measure::report::TestReport;
use crate::measure::spec::TestSpec;
use crate::protocol::hello::Hello;
use crate::protocol::message::{MESSAGE_MAX, Message, Ready, Refusal, Welcome};
use crate::protocol::shelf::Found;
use crate::protocol::token::Token;

/// How often a report that is not there yet is looked for.
const LOOK_AGAIN: Span = Span::from_ms(200);

/// What the agent's driver has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Write these bytes.
    Send(Vec<u8>),
    /// Make ready for a test, then say [`AgentSession::prepared`].
    Prepare {
        /// The client's number for it.
        test: u32,
        /// The test.
        spec: Box<TestSpec>,
        /// Where its data will go, by the client's view.
        to: Option<IpAddr>,
    },
    /// Begin the test that is ready; say [`AgentSession::finished`] when it is over.
    Begin,
    /// End the test now; say [`AgentSession::finished`] with what there is.
    Halt,
    /// The client has the report of the test: forget it.
    Forget,
    /// The client is gone: a test that runs may end, and its report is kept; one that is ready goes.
    Abandon,
    /// Look for a report on the shelf, and say [`AgentSession::found`].
    Fetch(Token),
    /// Close the connection; with why, unless all went well.
    Close(Option<SessionError>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Hello,
    Idle,
    Preparing { test: u32, longest: Span },
    Prepared { test: u32, longest: Span },
    Running { test: u32 },
    Reporting { test: u32 },
    Fetching { token: Token, again: Option<Instant> },
    Over,
}

impl State {
    const fn doing(self) -> &'static str {
        match self {
            Self::Hello => "waiting for the client's hello",
            Self::Idle => "waiting for a request",
            Self::Preparing { .. } => "making ready for a test",
            Self::Prepared { .. } => "waiting for the start of a test",
            Self::Running { .. } => "running a test",
            Self::Reporting { .. } => "delivering a report",
            Self::Fetching { .. } => "looking for a report",
            Self::Over => "ending the session",
        }
    }
}

/// The agent's side of a session.
#[derive(Clone, Debug)]
pub struct AgentSession {
    line: Line,
    welcome: Welcome,
    state: State,
    /// When the present state began, and when it must be over.
    since: Instant,
    until: Instant,
    actions: VecDeque<Action>,
}

impl AgentSession {
    /// A session with a client that has just come.
    pub fn new(now: Instant, hello: Hello, welcome: Welcome, timing: Timing) -> Self {
        Self {
            line: Line::new(now, hello, timing),
            welcome,
            state: State::Hello,
            since: now,
            until: now + timing.hello,
            actions: VecDeque::new(),
        }
    }

    /// Takes bytes as they came.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if self.is_over() {
            return;
        }
        self.line.push(now, bytes);
        while !self.is_over() {
            match self.line.next(now, MESSAGE_MAX) {
                Ok(Heard::Nothing) => break,
                Ok(Heard::Quiet) => {}
                Ok(Heard::Greeted) => {
                    let welcome = Message::Welcome(self.welcome.clone());
                    self.line.say(now, &welcome);
                    self.enter(now, State::Idle, self.line.timing.idle);
                }
                Ok(Heard::Message(message)) => self.handle_message(now, message),
                Err(fault) => self.fail(fault),
            }
        }
    }

    /// Takes one message.
    pub fn handle_message(&mut self, now: Instant, message: Message) {
        let timing = self.line.timing;
        match (self.state, message) {
            (State::Over, _) => {}
            (State::Idle, Message::Request { test, spec, to }) => {
                let longest = Span::from_ns(spec.longest_ns());
                self.actions.push_back(Action::Prepare { test, spec, to });
                self.enter(now, State::Preparing { test, longest }, timing.answer);
            }
            (State::Idle, Message::Fetch { token }) => {
                self.actions.push_back(Action::Fetch(token));
                self.enter(now, State::Fetching { token, again: None }, timing.idle);
            }
            (State::Prepared { test, longest }, Message::Start { test: started })
                if test == started =>
            {
                self.actions.push_back(Action::Begin);
                self.enter(now, State::Running { test }, longest + timing.answer);
            }
            (
                State::Prepared { test, .. } | State::Running { test },
                Message::Stop { test: stopped },
            ) if test == stopped => {
                self.actions.push_back(Action::Halt);
                self.enter(now, State::Running { test }, timing.answer);
            }
            // The report may have crossed either.
            (
                State::Reporting { test },
                Message::Stop { test: said } | Message::Start { test: said },
            ) if test == said => {}
            (State::Reporting { test }, Message::Received { test: received })
                if test == received =>
            {
                self.actions.push_back(Action::Forget);
                self.enter(now, State::Idle, timing.idle);
            }
            (State::Idle, Message::Bye) => self.end(None),
            (_, Message::Bye) => self.fail(Fault::Closed),
            (_, message) => self.fail(Fault::Unexpected(message.name())),
        }
    }

    /// The test that was asked for is ready, or is not to be.
    pub fn prepared(&mut self, now: Instant, outcome: Result<Ready, Refusal>) {
        let State::Preparing { test, longest } = self.state else { return };
        let timing = self.line.timing;
        match outcome {
            Ok(ready) => {
                self.line.say(now, &Message::Ready(ready));
                self.enter(now, State::Prepared { test, longest }, timing.start);
            }
            Err(refusal) => {
                self.line.say(now, &Message::Refused(refusal));
                self.enter(now, State::Idle, timing.idle);
            }
        }
    }

    /// The test is over, and this is its report.
    pub fn finished(&mut self, now: Instant, report: TestReport) {
        let (State::Running { test } | State::Prepared { test, .. }) = self.state else { return };
        let within = self.report(now, test, Box::new(report));
        self.enter(now, State::Reporting { test }, within);
    }

    /// What the shelf holds of the report that was asked for.
    pub fn found(&mut self, now: Instant, found: Found) {
        let State::Fetching { token, .. } = self.state else { return };
        let timing = self.line.timing;
        match found {
            Found::Report(report) => {
                let within = self.report(now, 0, report);
                self.enter(now, State::Reporting { test: 0 }, within);
            }
            Found::Nothing => {
                self.line.say(now, &Message::Refused(Refusal::NoReport));
                self.enter(now, State::Idle, timing.idle);
            }
            Found::Running => {
                self.state = State::Fetching { token, again: Some(now + LOOK_AGAIN) };
            }
        }
    }

    /// Sends a report: how long it may be on its way and be acknowledged.
    fn report(&mut self, now: Instant, test: u32, report: Box<TestReport>) -> Span {
        self.line.say(now, &Message::Report { test, report });
        let bytes = self.line.out.back().map_or(0, Vec::len);
        self.line.timing.answer + Timing::of_bytes(bytes)
    }

    /// Refuses whoever is there, and ends.
    pub fn refuse(&mut self, now: Instant, refusal: Refusal) {
        if !self.is_over() {
            self.line.say(now, &Message::Refused(refusal));
            self.end(None);
        }
    }

    /// The connection has ended.
    pub fn handle_closed(&mut self) {
        match self.state {
            State::Over => {}
            State::Idle => self.end(None),
            _ => {
                let fault = self.line.closed();
                self.fail(fault);
            }
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
        if let State::Fetching { token, again: Some(again) } = self.state
            && now >= again
        {
            self.state = State::Fetching { token, again: None };
            self.actions.push_back(Action::Fetch(token));
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
        let again = match self.state {
            State::Over => return Instant::NEVER,
            State::Fetching { again: Some(again), .. } => again,
            _ => Instant::NEVER,
        };
        self.until.min(again).min(self.line.deadline())
    }

    /// Whether nothing more happens.
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// When the state has lasted too long.
    #[cfg(test)]
    pub(crate) const fn deadline_of_state(&self) -> Instant {
        self.until
    }

    /// What it is doing, for errors and logs.
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
    }

    fn fail(&mut self, fault: Fault) {
        let during = self.state.doing();
        self.end(Some(SessionError { during, fault }));
    }

    fn end(&mut self, error: Option<SessionError>) {
        let has_test = matches!(
            self.state,
            State::Preparing { .. } | State::Prepared { .. } | State::Running { .. }
        );
        if has_test {
            self.actions.push_back(Action::Abandon);
        }
        self.actions.push_back(Action::Close(error));
        self.state = State::Over;
    }
}
