//! The client's side of a session, driven over a stream: one task at a time, and events of the caller's own threads.

use std::io;
use std::sync::mpsc::SyncSender;

use plumb_base::time::{Instant, Span};
use plumb_clock::now;

use crate::control_stream::{ControlEvent, ControlStream, StreamPump};
use crate::datagram_header::TestToken;
use crate::message::{ProtocolHello, ReadyMessage, TaskRefusal, TaskRequest, WelcomeMessage};
use crate::session::client::{ClientAction, ClientSession};
use crate::session::{ControlSessionError, SessionFault, SessionTiming, TaskTimes};

/// Why an agent did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum TaskClientError {
    /// The session ended.
    #[error(transparent)]
    Session(#[from] ControlSessionError),
    /// The agent refused.
    #[error(transparent)]
    Refused(#[from] TaskRefusal),
    /// This host has no more threads.
    #[error("cannot start a thread: {0}; end other programs, or raise the limit on processes")]
    Threads(io::Error),
}

/// What happens to a client.
#[derive(Debug)]
pub enum ClientEvent<T> {
    /// The agent's report on the task.
    Reported(Vec<u8>),
    /// A message of the task.
    Data(Vec<u8>),
    /// Something of the caller's own.
    Local(T),
}

/// A session with an agent; `T` is what the caller's own threads send it.
#[derive(Debug)]
pub struct TaskClient<T> {
    pump: StreamPump<T>,
    session: ClientSession,
    welcome: WelcomeMessage,
    /// Why the session ended, once it has.
    error: Option<ControlSessionError>,
}

impl<T: Send + 'static> TaskClient<T> {
    /// Exchanges hellos with the agent at the other end of a stream.
    ///
    /// # Errors
    /// It is no agent, of another version, full, or does not answer in time.
    pub fn connect(
        stream: ControlStream,
        program: &str,
        timing: SessionTiming,
    ) -> Result<Self, TaskClientError> {
        let session = ClientSession::new(now(), ProtocolHello::of_this_program(program), timing);
        let pump = StreamPump::start(stream).map_err(TaskClientError::Threads)?;
        let mut client = Self { pump, session, welcome: WelcomeMessage::default(), error: None };
        client.welcome = client.wait_for(|action| match action {
            ClientAction::Welcomed(welcome) => Some(welcome),
            _ => None,
        })?;
        Ok(client)
    }

    /// What the agent allows.
    pub const fn welcome(&self) -> &WelcomeMessage {
        &self.welcome
    }

    /// Whether nothing more can be asked.
    pub fn is_over(&self) -> bool {
        self.session.is_over()
    }

    /// Whether a task is requested or under way.
    pub const fn has_task(&self) -> bool {
        self.session.has_test()
    }

    /// For the caller's own threads: what they send is among the events.
    pub fn sender(&self) -> SyncSender<ControlEvent<T>> {
        self.pump.sender()
    }

    /// Requests a task, and waits until the agent is ready for it.
    ///
    /// # Errors
    /// The agent refuses, or the session ended.
    pub fn request(
        &mut self,
        request: TaskRequest,
        times: TaskTimes,
    ) -> Result<ReadyMessage, TaskClientError> {
        if !self.session.request(now(), request, times) {
            return Err(self.end_reason().into());
        }
        self.wait_for(|action| match action {
            ClientAction::Ready(ready) => Some(ready),
            _ => None,
        })
    }

    /// Starts the task that is ready.
    pub fn start(&mut self) {
        self.session.start(now());
    }

    /// Ends the task that is ready or runs; its report still comes.
    pub fn stop(&mut self) {
        self.session.stop(now());
    }

    /// Sends a message of the task. False when there is none.
    pub fn send_data(&mut self, payload: Vec<u8>) -> bool {
        let is_sent = self.session.send_data(now(), payload);
        self.flush();
        is_sent
    }

    /// Fetches the report of a task whose session was lost; waits for its end for `longest` at most.
    ///
    /// # Errors
    /// The agent keeps none, or the session ended.
    pub fn fetch(&mut self, token: TestToken, longest: Span) -> Result<Vec<u8>, TaskClientError> {
        if !self.session.fetch(now(), token, longest) {
            return Err(self.end_reason().into());
        }
        self.wait_for(|action| match action {
            ClientAction::Reported(report) => Some(report),
            _ => None,
        })
    }

    /// Waits for what was asked for, or a refusal.
    fn wait_for<R>(
        &mut self,
        wanted: impl Fn(ClientAction) -> Option<R>,
    ) -> Result<R, TaskClientError> {
        loop {
            match self.next_action(Instant::NEVER) {
                Some(Action::Session(ClientAction::Refused(refusal))) => return Err(refusal.into()),
                Some(Action::Session(action)) => {
                    if let Some(found) = wanted(action) {
                        return Ok(found);
                    }
                }
                _ if self.is_over() => return Err(self.end_reason().into()),
                _ => {}
            }
        }
    }

    /// Ends the session.
    pub fn disconnect(mut self) {
        self.session.disconnect(now());
        self.flush();
        self.pump.close();
    }

    /// Why the session ended.
    pub fn end_reason(&mut self) -> ControlSessionError {
        while let Some(action) = self.session.poll_action() {
            if let ClientAction::Close(error) = action {
                self.error = error;
            }
        }
        let closed = || ControlSessionError {
            activity: self.session.activity(),
            fault: SessionFault::Closed,
        };
        self.error.clone().unwrap_or_else(closed)
    }

    /// What happens next; none when `until` comes first, or something that was dealt with.
    pub fn next_event(&mut self, until: Instant) -> Option<ClientEvent<T>> {
        match self.next_action(until)? {
            Action::Local(event) => Some(ClientEvent::Local(event)),
            Action::Session(ClientAction::Reported(report)) => Some(ClientEvent::Reported(report)),
            Action::Session(ClientAction::Data(payload)) => Some(ClientEvent::Data(payload)),
            Action::Session(_) => None,
        }
    }

    /// Writes what the session has to send.
    fn flush(&mut self) {
        while let Some(bytes) = self.session.poll_send() {
            if !self.pump.send(bytes) {
                self.session.handle_closed();
            }
        }
    }

    fn next_action(&mut self, until: Instant) -> Option<Action<T>> {
        while let Some(action) = self.session.poll_action() {
            match action {
                ClientAction::Send(bytes) => {
                    if !self.pump.send(bytes) {
                        self.session.handle_closed();
                    }
                }
                ClientAction::Close(error) => self.error = error,
                action => return Some(Action::Session(action)),
            }
        }
        if self.is_over() && until == Instant::NEVER {
            return None;
        }
        let wait = self.session.deadline().min(until).saturating_since(now());
        let event = match self.pump.wait(wait.into()) {
            Some(ControlEvent::Bytes(bytes)) => {
                self.session.handle_bytes(now(), &bytes);
                None
            }
            Some(ControlEvent::Closed) => {
                self.session.handle_closed();
                None
            }
            Some(ControlEvent::Local(event)) => Some(Action::Local(event)),
            None => None,
        };
        if now() >= self.session.deadline() {
            self.session.handle_timeout(now());
        }
        event
    }
}

enum Action<T> {
    Session(ClientAction),
    Local(T),
}
