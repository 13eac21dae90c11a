//! The agent's side of a session: one client, one test at a time.

use std::collections::VecDeque;

use plumb_base::time::{Instant, Span};

use super::{
    ControlSessionError, SessionChannel, SessionFault, SessionInput, SessionTiming, TaskTimes,
};
use crate::datagram_header::TestToken;
use crate::message::{
    MESSAGE_MAX, Message, ProtocolHello, ReadyMessage, TaskRefusal, TaskRequest, WelcomeMessage,
};

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
enum AgentPhase {
    Hello,
    Idle,
    Preparing { task: u32 },
    Prepared { task: u32, longest: Span },
    Running { task: u32 },
    Reporting { task: u32 },
    Fetching { token: TestToken, again: Option<Instant> },
    Closed,
}

impl AgentPhase {
    const fn activity(self) -> &'static str {
        match self {
            Self::Hello => "waiting for the client's hello",
            Self::Idle => "waiting for a request",
            Self::Preparing { .. } => "preparing a test",
            Self::Prepared { .. } => "waiting for the start of a test",
            Self::Running { .. } => "running a test",
            Self::Reporting { .. } => "delivering a report",
            Self::Fetching { .. } => "looking for a report",
            Self::Closed => "ending the session",
        }
    }
}

/// What is kept under a token.
#[derive(Clone, Debug, PartialEq)]
pub enum ReportLookup {
    /// The report; it stays until the client says that it has it.
    Report(Vec<u8>),
    /// The test is not over.
    Running,
    /// Nothing.
    Missing,
}

/// The agent's side of a session.
#[derive(Clone, Debug)]
pub struct AgentSession {
    pub(super) channel: SessionChannel,
    welcome: WelcomeMessage,
    state: AgentPhase,
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
            channel: SessionChannel::new(now, hello, timing, false),
            welcome,
            state: AgentPhase::Hello,
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
                    let welcome = Message::Welcome(self.welcome.clone());
                    self.channel.send(now, &welcome);
                    self.enter(now, AgentPhase::Idle, self.channel.timing.idle);
                }
                Ok(SessionInput::Message(message)) => self.handle_message(now, message),
                Err(fault) => self.fail(fault),
            }
        }
    }

    /// Takes one message.
    pub fn handle_message(&mut self, now: Instant, message: Message) {
        let timing = self.channel.timing;
        match (self.state, message) {
            (AgentPhase::Closed, _) => {}
            (AgentPhase::Idle, Message::Request { task, request }) => {
                self.actions.push_back(AgentAction::Prepare { task, request });
                self.enter(now, AgentPhase::Preparing { task }, timing.answer);
            }
            (AgentPhase::Idle, Message::Fetch { token }) => {
                self.actions.push_back(AgentAction::Fetch(token));
                self.enter(now, AgentPhase::Fetching { token, again: None }, timing.idle);
            }
            (AgentPhase::Prepared { task, longest }, Message::Start { task: started })
                if task == started =>
            {
                self.actions.push_back(AgentAction::Begin);
                self.enter(now, AgentPhase::Running { task }, longest + timing.answer);
            }
            (
                AgentPhase::Prepared { task, .. } | AgentPhase::Running { task },
                Message::Stop { task: stopped },
            ) if task == stopped => {
                self.actions.push_back(AgentAction::Halt);
                self.enter(now, AgentPhase::Running { task }, timing.answer);
            }
            // The report may have crossed either.
            (
                AgentPhase::Reporting { task },
                Message::Stop { task: said } | Message::Start { task: said },
            ) if task == said => {}
            (AgentPhase::Reporting { task }, Message::Received { task: received })
                if task == received =>
            {
                self.actions.push_back(AgentAction::Forget);
                self.enter(now, AgentPhase::Idle, timing.idle);
            }
            (
                AgentPhase::Prepared { task, .. } | AgentPhase::Running { task },
                Message::Data { task: of, payload },
            ) if task == of => self.actions.push_back(AgentAction::Data(payload)),
            (AgentPhase::Reporting { task }, Message::Data { task: of, .. }) if task == of => {}
            (AgentPhase::Idle, Message::Bye) => self.end(None),
            (_, Message::Bye) => self.fail(SessionFault::Closed),
            (_, message) => self.fail(SessionFault::Unexpected(message.name())),
        }
    }

    /// The test that was asked for is ready, or is not to be.
    pub fn on_prepared(
        &mut self,
        now: Instant,
        outcome: Result<(ReadyMessage, TaskTimes), TaskRefusal>,
    ) {
        let AgentPhase::Preparing { task } = self.state else { return };
        let timing = self.channel.timing;
        match outcome {
            Ok((ready, TaskTimes { longest, quiet })) => {
                self.channel.quiet = quiet;
                self.channel.send(now, &Message::Ready(ready));
                self.enter(now, AgentPhase::Prepared { task, longest }, timing.start);
            }
            Err(refusal) => {
                self.channel.send(now, &Message::Refused(refusal));
                self.enter(now, AgentPhase::Idle, timing.idle);
            }
        }
    }

    /// The test is over, and this is its report.
    pub fn on_finished(&mut self, now: Instant, report: Vec<u8>) {
        let (AgentPhase::Running { task } | AgentPhase::Prepared { task, .. }) = self.state else {
            return;
        };
        let within = self.report(now, task, report);
        self.enter(now, AgentPhase::Reporting { task }, within);
    }

    /// Sends a message of the task that is ready or runs.
    pub fn send_data(&mut self, now: Instant, payload: Vec<u8>) {
        if let AgentPhase::Running { task } | AgentPhase::Prepared { task, .. } = self.state {
            self.channel.send(now, &Message::Data { task, payload });
        }
    }

    /// What the report cache holds.
    pub fn on_report_lookup(&mut self, now: Instant, found: ReportLookup) {
        let AgentPhase::Fetching { token, .. } = self.state else { return };
        let timing = self.channel.timing;
        match found {
            ReportLookup::Report(report) => {
                let within = self.report(now, 0, report);
                self.enter(now, AgentPhase::Reporting { task: 0 }, within);
            }
            ReportLookup::Missing => {
                self.channel.send(now, &Message::Refused(TaskRefusal::NoReport));
                self.enter(now, AgentPhase::Idle, timing.idle);
            }
            ReportLookup::Running => {
                self.state = AgentPhase::Fetching { token, again: Some(now + REFETCH_INTERVAL) };
            }
        }
    }

    /// Sends a report: how long it may be on its way and be acknowledged.
    fn report(&mut self, now: Instant, task: u32, payload: Vec<u8>) -> Span {
        self.channel.send(now, &Message::Report { task, payload });
        let bytes = self.channel.out.back().map_or(0, Vec::len);
        self.channel.timing.answer + SessionTiming::of_bytes(bytes)
    }

    /// Refuses whoever is there, and ends.
    pub fn refuse(&mut self, now: Instant, refusal: TaskRefusal) {
        if !self.is_over() {
            self.channel.send(now, &Message::Refused(refusal));
            self.end(None);
        }
    }

    /// The connection has ended.
    pub fn handle_closed(&mut self) {
        match self.state {
            AgentPhase::Closed => {}
            AgentPhase::Idle => self.end(None),
            _ => {
                let fault = self.channel.close_fault();
                self.fail(fault);
            }
        }
    }

    /// The task does not take its messages.
    pub fn handle_overrun(&mut self) {
        if !self.is_over() {
            self.fail(SessionFault::Overrun);
        }
    }

    /// The time of [`Self::deadline`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.is_over() {
            return;
        }
        if let Err(fault) = self.channel.handle_timeout(now) {
            return self.fail(fault);
        }
        if let AgentPhase::Fetching { token, again: Some(again) } = self.state
            && now >= again
        {
            self.state = AgentPhase::Fetching { token, again: None };
            self.actions.push_back(AgentAction::Fetch(token));
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
            AgentPhase::Closed => return Instant::NEVER,
            AgentPhase::Fetching { again: Some(again), .. } => again,
            _ => Instant::NEVER,
        };
        again.min(self.channel.deadline())
    }

    /// Whether nothing more happens.
    pub fn is_over(&self) -> bool {
        self.state == AgentPhase::Closed
    }

    /// What it is doing, for errors and logs.
    pub fn activity(&self) -> &'static str {
        self.state.activity()
    }

    /// Bytes that came and are no whole message yet.
    pub fn pending_bytes(&self) -> usize {
        self.channel.deframer.pending().len()
    }

    fn enter(&mut self, now: Instant, state: AgentPhase, within: Span) {
        if state == AgentPhase::Idle {
            self.channel.quiet = Span::ZERO;
        }
        self.state = state;
        self.channel.enter(now, within);
    }

    fn fail(&mut self, fault: SessionFault) {
        let during = self.state.activity();
        self.end(Some(ControlSessionError { activity: during, fault }));
    }

    fn end(&mut self, error: Option<ControlSessionError>) {
        let has_test = matches!(
            self.state,
            AgentPhase::Preparing { .. } | AgentPhase::Prepared { .. } | AgentPhase::Running { .. }
        );
        if has_test {
            self.actions.push_back(AgentAction::Abandon);
        }
        self.actions.push_back(AgentAction::Close(error));
        self.state = AgentPhase::Closed;
    }
}
