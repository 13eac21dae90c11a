//! The client's side of a session: it asks, one test at a time.
//!
//! Left out: the measuring itself, and coming back after a lost connection, which is a new session.

use std::collections::VecDeque;

use plumb_base::time::{Instant, Span};

use super::{
    ControlSessionError, SessionChannel, SessionFault, SessionInput, SessionTiming, TaskTimes,
};
use crate::datagram_header::TestToken;
use crate::message::{
    MESSAGE_MAX, Message, ProtocolHello, REPORT_MAX, ReadyMessage, TaskRefusal, TaskRequest,
    WelcomeMessage,
};

/// What the client's driver has to do or to know.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientAction {
    /// Write these bytes.
    Send(Vec<u8>),
    /// The agent is there, and this is what it allows.
    Welcomed(WelcomeMessage),
    /// The test is ready: connect, then say [`ClientSession::start`].
    Ready(ReadyMessage),
    /// What the agent saw.
    Reported(Vec<u8>),
    /// A message of the task.
    Data(Vec<u8>),
    /// The agent does not do it; the session goes on.
    Refused(TaskRefusal),
    /// Close the connection; with why, unless all went well.
    Close(Option<ControlSessionError>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientPhase {
    Hello,
    AwaitingWelcome,
    Idle,
    Requested { task: u32, times: TaskTimes },
    Ready { task: u32, times: TaskTimes },
    Running { task: u32 },
    Stopping { task: u32 },
    Fetching,
    Closed,
}

impl ClientPhase {
    const fn activity(self) -> &'static str {
        match self {
            Self::Hello => "waiting for the agent's hello",
            Self::AwaitingWelcome => "waiting for the agent's limits",
            Self::Idle => "between two tests",
            Self::Requested { .. } => "waiting for the agent to prepare",
            Self::Ready { .. } => "connecting the streams of a test",
            Self::Running { .. } => "running a test",
            Self::Stopping { .. } => "waiting for the report of a stopped test",
            Self::Fetching => "fetching a report",
            Self::Closed => "ending the session",
        }
    }

    /// The task that is ready, runs or is being stopped.
    const fn active_task(self) -> Option<u32> {
        match self {
            Self::Ready { task, .. } | Self::Running { task } | Self::Stopping { task } => {
                Some(task)
            }
            _ => None,
        }
    }

    /// Whose report may come; 0 for one that is fetched.
    const fn reporting_task(self) -> Option<u32> {
        if matches!(self, Self::Fetching) { Some(0) } else { self.active_task() }
    }
}

/// The client's side of a session.
#[derive(Clone, Debug)]
pub struct ClientSession {
    channel: SessionChannel,
    state: ClientPhase,
    /// When the state must be over, without the time of a report that has begun to come.
    due_without_report: Instant,
    actions: VecDeque<ClientAction>,
    tasks: u32,
}

impl ClientSession {
    /// A session over a connection that has just been made.
    pub fn new(now: Instant, hello: ProtocolHello, timing: SessionTiming) -> Self {
        Self {
            channel: SessionChannel::new(now, hello, timing, true),
            state: ClientPhase::Hello,
            due_without_report: now + timing.hello,
            actions: VecDeque::new(),
            tasks: 0,
        }
    }

    /// Asks for a test whose data goes to this address. False when another is under way.
    pub fn request(&mut self, now: Instant, request: TaskRequest, times: TaskTimes) -> bool {
        if self.state != ClientPhase::Idle {
            return false;
        }
        self.tasks = self.tasks.wrapping_add(1).max(1);
        let task = self.tasks;
        self.channel.send(now, &Message::Request { task, request });
        self.enter(now, ClientPhase::Requested { task, times }, self.channel.timing.answer);
        true
    }

    /// Everything is connected: the test begins. False when none is ready.
    pub fn start(&mut self, now: Instant) -> bool {
        let ClientPhase::Ready { task, times } = self.state else { return false };
        self.channel.send(now, &Message::Start { task });
        self.enter(now, ClientPhase::Running { task }, times.longest + self.channel.timing.answer);
        true
    }

    /// Ends the test that is ready or runs; its report still comes. False when there is none.
    pub fn stop(&mut self, now: Instant) -> bool {
        let (ClientPhase::Ready { task, .. } | ClientPhase::Running { task }) = self.state else {
            return false;
        };
        self.channel.send(now, &Message::Stop { task });
        self.enter(now, ClientPhase::Stopping { task }, self.channel.timing.answer);
        true
    }

    /// Sends a message of the task that is ready or runs. False when there is none.
    pub fn send_data(&mut self, now: Instant, payload: Vec<u8>) -> bool {
        let (ClientPhase::Ready { task, .. } | ClientPhase::Running { task }) = self.state else {
            return false;
        };
        self.channel.send(now, &Message::Data { task, payload });
        true
    }

    /// Asks for the report of a test whose connection was lost; waits so long for its end.
    pub fn fetch(&mut self, now: Instant, token: TestToken, longest: Span) -> bool {
        if self.state != ClientPhase::Idle {
            return false;
        }
        self.channel.send(now, &Message::Fetch { token });
        self.enter(now, ClientPhase::Fetching, longest + self.channel.timing.answer);
        true
    }

    /// Takes its leave.
    pub fn disconnect(&mut self, now: Instant) {
        if !self.is_over() {
            self.channel.send(now, &Message::Bye);
            self.end(None);
        }
    }

    /// Takes bytes as they came.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if self.is_over() {
            return;
        }
        self.channel.push(now, bytes);
        while !self.is_over() {
            let limit =
                if self.state.reporting_task().is_some() { REPORT_MAX } else { MESSAGE_MAX };
            match self.channel.next(now, limit) {
                Ok(SessionInput::Nothing) => break,
                Ok(SessionInput::Handled) => {}
                Ok(SessionInput::HelloAgreed) => {
                    self.enter(now, ClientPhase::AwaitingWelcome, self.channel.timing.answer);
                }
                Ok(SessionInput::Message(message)) => self.handle_message(now, message),
                Err(fault) => self.fail(fault),
            }
        }
        if self.state.reporting_task().is_some()
            && let Some(bytes) = self.channel.deframer.announced()
        {
            // Once for each report, however long it takes: its length was refused if it cannot be.
            self.channel.until = self.due_without_report + SessionTiming::of_bytes(bytes);
        }
    }

    /// Takes one message.
    pub fn handle_message(&mut self, now: Instant, message: Message) {
        // A client between two tests waits for nobody but itself.
        let idle = Span::from_ps(u64::MAX);
        match (self.state, message) {
            (ClientPhase::Closed, _) => {}
            (ClientPhase::AwaitingWelcome, Message::Welcome(welcome)) => {
                self.actions.push_back(ClientAction::Welcomed(welcome));
                self.enter(now, ClientPhase::Idle, idle);
            }
            (ClientPhase::Requested { task, times }, Message::Ready(ready))
                if ready.task == task =>
            {
                self.channel.quiet = times.quiet;
                self.actions.push_back(ClientAction::Ready(ready));
                self.enter(now, ClientPhase::Ready { task, times }, self.channel.timing.start);
            }
            (ClientPhase::Requested { .. } | ClientPhase::Fetching, Message::Refused(refusal)) => {
                self.actions.push_back(ClientAction::Refused(refusal));
                self.enter(now, ClientPhase::Idle, idle);
            }
            (state, Message::Data { task, payload }) if state.active_task() == Some(task) => {
                self.actions.push_back(ClientAction::Data(payload));
            }
            (state, Message::Report { task, payload }) if state.reporting_task() == Some(task) => {
                self.channel.send(now, &Message::Received { task });
                self.actions.push_back(ClientAction::Reported(payload));
                self.enter(now, ClientPhase::Idle, idle);
            }
            // An agent may refuse whoever comes.
            (_, Message::Refused(refusal)) => self.fail(SessionFault::Refused(refusal)),
            (_, Message::Bye) => self.fail(SessionFault::Closed),
            (_, message) => self.fail(SessionFault::Unexpected(message.name())),
        }
    }

    /// The connection has ended.
    pub fn handle_closed(&mut self) {
        if !self.is_over() {
            let fault = self.channel.close_fault();
            self.fail(fault);
        }
    }

    /// The time of [`Self::deadline`] has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.is_over() {
            return;
        }
        if let Err(fault) = self.channel.handle_timeout(now) {
            self.fail(fault);
        }
    }

    /// The next bytes to write.
    pub fn poll_send(&mut self) -> Option<Vec<u8>> {
        self.channel.out.pop_front()
    }

    /// What is to be done next.
    pub fn poll_action(&mut self) -> Option<ClientAction> {
        match self.channel.out.pop_front() {
            Some(bytes) => Some(ClientAction::Send(bytes)),
            None => self.actions.pop_front(),
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn deadline(&self) -> Instant {
        if self.is_over() { Instant::NEVER } else { self.channel.deadline() }
    }

    /// Whether a test is asked for or under way.
    pub const fn has_test(&self) -> bool {
        !matches!(
            self.state,
            ClientPhase::Idle
                | ClientPhase::Closed
                | ClientPhase::Hello
                | ClientPhase::AwaitingWelcome
        )
    }

    /// Whether nothing more happens.
    pub fn is_over(&self) -> bool {
        self.state == ClientPhase::Closed
    }

    /// What it is doing, for errors.
    pub fn activity(&self) -> &'static str {
        self.state.activity()
    }

    /// Bytes that came and are no whole message yet.
    pub fn pending_bytes(&self) -> usize {
        self.channel.deframer.pending().len()
    }

    fn enter(&mut self, now: Instant, state: ClientPhase, within: Span) {
        if state == ClientPhase::Idle {
            self.channel.quiet = Span::ZERO;
        }
        self.state = state;
        self.channel.enter(now, within);
        self.due_without_report = self.channel.until;
    }

    fn fail(&mut self, fault: SessionFault) {
        let during = self.state.activity();
        self.end(Some(ControlSessionError { activity: during, fault }));
    }

    fn end(&mut self, error: Option<ControlSessionError>) {
        self.actions.push_back(ClientAction::Close(error));
        self.state = ClientPhase::Closed;
    }
}
