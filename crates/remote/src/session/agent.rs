//! The agent's side of a session: one client, one test at a time.
//!
//! Left out: limits over all clients, which the driver knows, and the report cache.

use std::collections::VecDeque;

use plumb_base::time::{Instant, Span};

use super::{
    ControlSessionError, SessionChannel, SessionFault, SessionInput, SessionTiming, TaskTimes,
};
use crate::hello::ProtocolHello;
use crate::message::{
    MESSAGE_MAX, ReadyMessage, SessionMessage, TaskRefusal, TaskRequest, WelcomeMessage,
};
use crate::report_cache::ReportLookup;
use crate::token::TestToken;

/// How often a report that is not there yet is looked for.
const REFETCH_INTERVAL: Span = Span::from_ms(200);

/// What the agent's driver has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum AgentAction {
    /// Write these bytes.
    Send(Vec<u8>),
    /// Make ready for a test, then say [`AgentSession::on_prepared`].
    Prepare {
        /// The client's number for it.
        task: u32,
        /// The task.
        request: TaskRequest,
    },
    /// Give this message to the task.
    Data(Vec<u8>),
    /// Begin the test that is ready; say `AgentSession::finished` when it is over.
    Begin,
    /// End the test now; say `AgentSession::finished` with what there is.
    Halt,
    /// The client has the report of the test: forget it.
    Forget,
    /// The client is gone: a test that runs may end, and its report is kept; one that is ready goes.
    Abandon,
    /// Look for a report on the report cache, and say `AgentSession::found`.
    Fetch(TestToken),
    /// Close the connection; with why, unless all went well.
    Close(Option<ControlSessionError>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgentSessionState {
    Hello,
    Idle,
    Preparing { task: u32 },
    Prepared { task: u32, longest: Span },
    Running { task: u32 },
    Reporting { task: u32 },
    Fetching { token: TestToken, again: Option<Instant> },
    Closed,
}

impl AgentSessionState {
    const fn activity(self) -> &'static str {
        match self {
            Self::Hello => "waiting for the client's hello",
            Self::Idle => "waiting for a request",
            Self::Preparing { .. } => "making ready for a test",
            Self::Prepared { .. } => "waiting for the start of a test",
            Self::Running { .. } => "running a test",
            Self::Reporting { .. } => "delivering a report",
            Self::Fetching { .. } => "looking for a report",
            Self::Closed => "ending the session",
        }
    }
}

/// The agent's side of a session.
#[derive(Clone, Debug)]
pub struct AgentSession {
    channel: SessionChannel,
    welcome: WelcomeMessage,
    state: AgentSessionState,
    /// When the present state began, and when it must be over.
    since: Instant,
    until: Instant,
    actions: VecDeque<AgentAction>,
}

impl AgentSession {
    /// A session with a client that has just come.
    pub fn new(
        now: Instant,
        hello: ProtocolHello,
        welcome: WelcomeMessage,
        timing: SessionTiming,
    ) -> Self {
        Self {
            channel: SessionChannel::new(now, hello, timing),
            welcome,
            state: AgentSessionState::Hello,
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
        self.channel.push(now, bytes);
        while !self.is_over() {
            match self.channel.next(now, MESSAGE_MAX) {
                Ok(SessionInput::Nothing) => break,
                Ok(SessionInput::Handled) => {}
                Ok(SessionInput::HelloAgreed) => {
                    let welcome = SessionMessage::Welcome(self.welcome.clone());
                    self.channel.send(now, &welcome);
                    self.enter(now, AgentSessionState::Idle, self.channel.timing.idle);
                }
                Ok(SessionInput::Message(message)) => self.handle_message(now, message),
                Err(fault) => self.fail(fault),
            }
        }
    }

    /// Takes one message.
    pub fn handle_message(&mut self, now: Instant, message: SessionMessage) {
        let timing = self.channel.timing;
        match (self.state, message) {
            (AgentSessionState::Closed, _) => {}
            (AgentSessionState::Idle, SessionMessage::Request { task, request }) => {
                self.actions.push_back(AgentAction::Prepare { task, request });
                self.enter(now, AgentSessionState::Preparing { task }, timing.answer);
            }
            (AgentSessionState::Idle, SessionMessage::Fetch { token }) => {
                self.actions.push_back(AgentAction::Fetch(token));
                self.enter(now, AgentSessionState::Fetching { token, again: None }, timing.idle);
            }
            (
                AgentSessionState::Prepared { task, longest },
                SessionMessage::Start { task: started },
            ) if task == started => {
                self.actions.push_back(AgentAction::Begin);
                self.enter(now, AgentSessionState::Running { task }, longest + timing.answer);
            }
            (
                AgentSessionState::Prepared { task, .. } | AgentSessionState::Running { task },
                SessionMessage::Stop { task: stopped },
            ) if task == stopped => {
                self.actions.push_back(AgentAction::Halt);
                self.enter(now, AgentSessionState::Running { task }, timing.answer);
            }
            // The report may have crossed either.
            (
                AgentSessionState::Reporting { task },
                SessionMessage::Stop { task: said } | SessionMessage::Start { task: said },
            ) if task == said => {}
            (
                AgentSessionState::Reporting { task },
                SessionMessage::Received { task: received },
            ) if task == received => {
                self.actions.push_back(AgentAction::Forget);
                self.enter(now, AgentSessionState::Idle, timing.idle);
            }
            (
                AgentSessionState::Prepared { task, .. } | AgentSessionState::Running { task },
                SessionMessage::Data { task: of, payload },
            ) if task == of => self.actions.push_back(AgentAction::Data(payload)),
            (AgentSessionState::Reporting { task }, SessionMessage::Data { task: of, .. })
                if task == of => {}
            (AgentSessionState::Idle, SessionMessage::Bye) => self.end(None),
            (_, SessionMessage::Bye) => self.fail(SessionFault::Closed),
            (_, message) => self.fail(SessionFault::Unexpected(message.name())),
        }
    }

    /// The test that was asked for is ready, or is not to be.
    pub fn on_prepared(
        &mut self,
        now: Instant,
        outcome: Result<(ReadyMessage, TaskTimes), TaskRefusal>,
    ) {
        let AgentSessionState::Preparing { task } = self.state else { return };
        let timing = self.channel.timing;
        match outcome {
            Ok((ready, TaskTimes { longest, quiet })) => {
                self.channel.quiet = quiet;
                self.channel.send(now, &SessionMessage::Ready(ready));
                self.enter(now, AgentSessionState::Prepared { task, longest }, timing.start);
            }
            Err(refusal) => {
                self.channel.send(now, &SessionMessage::Refused(refusal));
                self.enter(now, AgentSessionState::Idle, timing.idle);
            }
        }
    }

    /// The test is over, and this is its report.
    pub fn on_finished(&mut self, now: Instant, report: Vec<u8>) {
        let (AgentSessionState::Running { task } | AgentSessionState::Prepared { task, .. }) =
            self.state
        else {
            return;
        };
        let within = self.report(now, task, report);
        self.enter(now, AgentSessionState::Reporting { task }, within);
    }

    /// Sends a message of the task that is ready or runs.
    pub fn send_data(&mut self, now: Instant, payload: Vec<u8>) {
        if let AgentSessionState::Running { task } | AgentSessionState::Prepared { task, .. } =
            self.state
        {
            self.channel.send(now, &SessionMessage::Data { task, payload });
        }
    }

    /// What the report cache holds.
    pub fn on_report_lookup(&mut self, now: Instant, found: ReportLookup) {
        let AgentSessionState::Fetching { token, .. } = self.state else { return };
        let timing = self.channel.timing;
        match found {
            ReportLookup::Report(report) => {
                let within = self.report(now, 0, report);
                self.enter(now, AgentSessionState::Reporting { task: 0 }, within);
            }
            ReportLookup::Missing => {
                self.channel.send(now, &SessionMessage::Refused(TaskRefusal::NoReport));
                self.enter(now, AgentSessionState::Idle, timing.idle);
            }
            ReportLookup::Running => {
                self.state =
                    AgentSessionState::Fetching { token, again: Some(now + REFETCH_INTERVAL) };
            }
        }
    }

    /// Sends a report: how long it may be on its way and be acknowledged.
    fn report(&mut self, now: Instant, task: u32, payload: Vec<u8>) -> Span {
        self.channel.send(now, &SessionMessage::Report { task, payload });
        let bytes = self.channel.out.back().map_or(0, Vec::len);
        self.channel.timing.answer + SessionTiming::of_bytes(bytes)
    }

    /// Refuses whoever is there, and ends.
    pub fn refuse(&mut self, now: Instant, refusal: TaskRefusal) {
        if !self.is_over() {
            self.channel.send(now, &SessionMessage::Refused(refusal));
            self.end(None);
        }
    }

    /// The connection has ended.
    pub fn handle_closed(&mut self) {
        match self.state {
            AgentSessionState::Closed => {}
            AgentSessionState::Idle => self.end(None),
            _ => {
                let fault = self.channel.close_fault();
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
            return self
                .fail(SessionFault::DeadlinePassed(self.until.saturating_since(self.since)));
        }
        if let AgentSessionState::Fetching { token, again: Some(again) } = self.state
            && now >= again
        {
            self.state = AgentSessionState::Fetching { token, again: None };
            self.actions.push_back(AgentAction::Fetch(token));
        }
        if let Err(fault) = self.channel.handle_timeout(now) {
            self.fail(fault);
        }
    }

    /// What is to be done next.
    pub fn poll_action(&mut self) -> Option<AgentAction> {
        match self.channel.out.pop_front() {
            Some(bytes) => Some(AgentAction::Send(bytes)),
            None => self.actions.pop_front(),
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn deadline(&self) -> Instant {
        let again = match self.state {
            AgentSessionState::Closed => return Instant::NEVER,
            AgentSessionState::Fetching { again: Some(again), .. } => again,
            _ => Instant::NEVER,
        };
        self.until.min(again).min(self.channel.deadline())
    }

    /// Whether nothing more happens.
    pub fn is_over(&self) -> bool {
        self.state == AgentSessionState::Closed
    }

    /// When the state has lasted too long.
    #[cfg(test)]
    pub(crate) const fn deadline_of_state(&self) -> Instant {
        self.until
    }

    /// What it is doing, for errors and logs.
    pub fn activity(&self) -> &'static str {
        self.state.activity()
    }

    /// Bytes that came and are no whole message yet.
    pub fn pending_bytes(&self) -> usize {
        self.channel.deframer.pending().len()
    }

    fn enter(&mut self, now: Instant, state: AgentSessionState, within: Span) {
        if state == AgentSessionState::Idle {
            self.channel.quiet = Span::ZERO;
        }
        self.state = state;
        self.since = now;
        self.until = now + within;
    }

    fn fail(&mut self, fault: SessionFault) {
        let during = self.state.activity();
        self.end(Some(ControlSessionError { activity: during, fault }));
    }

    fn end(&mut self, error: Option<ControlSessionError>) {
        let has_test = matches!(
            self.state,
            AgentSessionState::Preparing { .. }
                | AgentSessionState::Prepared { .. }
                | AgentSessionState::Running { .. }
        );
        if has_test {
            self.actions.push_back(AgentAction::Abandon);
        }
        self.actions.push_back(AgentAction::Close(error));
        self.state = AgentSessionState::Closed;
    }
}
