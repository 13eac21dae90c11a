//! The client: asks an agent for one test after another, and measures its own half.
//!
//! Whatever happens to the control connection, a test that has begun ends with what this side saw. Left out:
//! starting an agent, and what the two reports mean together.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;

use plumb_base::time::{Instant, Span};

use crate::clock::now;
use crate::measure::control::Control;
use crate::measure::live::Progress;
use crate::measure::report::{Ended, TestReport};
use crate::measure::run::Course;
use crate::measure::spec::TestSpec;
use crate::measure::standstill::Standstill;
use crate::measure::stream::ConnectError;
use crate::protocol::hello::Hello;
use crate::protocol::message::{Ready, Refusal, Welcome};
use crate::protocol::session::client::{Action, ClientSession};
use crate::protocol::session::{Fault, SessionError, Timing};
use crate::protocol::token::Token;
use crate::transport::{Event, Pump, Stream};

/// How much later than this side the agent may end a test by itself.
const AGENT_BEHIND: Span = Span::from_secs(2);

/// How often it is asked whether the user wants to stop.
const LOOK: Span = Span::from_ms(100);

/// Why a test did not come about.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The session ended.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The agent does not do it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The data connections could not be made.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The agent gave up before the test began.
    #[error("the agent could not begin the test: {0}; ask for something that its host can do")]
    Broken(String),
    /// This host has no more threads.
    #[error("cannot start a thread: {0}; end other programs, or raise the limit on processes")]
    Threads(io::Error),
    /// The user wanted it.
    #[error("stopped")]
    Stopped,
}

/// What came of a test.
#[derive(Debug)]
pub struct Outcome {
    /// What this side saw.
    pub here: TestReport,
    /// What the agent saw, or why that is not known.
    pub there: Result<TestReport, SessionError>,
    /// Under which the agent's report may be fetched later.
    pub token: Token,
    /// The rate that the agent allowed, in bytes a second.
    pub rate_max: Option<u64>,
}

/// A session with an agent.
#[derive(Debug)]
pub struct Client {
    pump: Pump<Own>,
    session: ClientSession,
    welcome: Welcome,
    /// Why the session ended, once it has.
    error: Option<SessionError>,
}

/// What the client's own threads say.
enum Own {
    Connected(Box<Result<Course, ConnectError>>),
    Progress(Box<Progress>),
    Over(Box<TestReport>),
}

impl Client {
    /// Greets the agent at the other end of a stream.
    ///
    /// # Errors
    /// It is no agent, of another version, full, or does not answer in time.
    pub fn connect(stream: Stream, program: &str, timing: Timing) -> Result<Self, ClientError> {
        let session = ClientSession::new(now(), Hello::of_this_program(program), timing);
        let pump = Pump::start(stream).map_err(ClientError::Threads)?;
        let mut client = Self { pump, session, welcome: Welcome::default(), error: None };
        loop {
            match client.next(Instant::NEVER) {
                Some(Happening::Session(Action::Welcomed(welcome))) => {
                    client.welcome = welcome;
                    return Ok(client);
                }
                _ if client.is_over() => return Err(client.farewell().into()),
                _ => {}
            }
        }
    }

    /// What the agent allows.
    pub const fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Whether nothing more can be asked.
    pub fn is_over(&self) -> bool {
        self.session.is_over()
    }

    /// Runs one test with the agent, whose data is reached at `address` (whose port does not matter).
    ///
    /// # Errors
    /// The test did not begin. Once it has, there is an outcome.
    pub fn run(
        &mut self,
        address: SocketAddr,
        spec: &TestSpec,
        watch: &mut dyn FnMut(Progress),
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Outcome, ClientError> {
        let ready = self.request(spec, address)?;
        let control = Arc::<Control>::default();
        let course = self.open(address, spec, &ready, &control, is_stopped)?;
        let over = self.pump.sender();
        self.session.start(now());
        control.begin();
        let work = move || {
            let report = course.run(&mut |progress| {
                // A driver that is behind does without.
                over.try_send(Event::Own(Own::Progress(Box::new(progress)))).ok();
            });
            over.send(Event::Own(Own::Over(Box::new(report)))).ok();
        };
        thread::Builder::new().name("test".to_owned()).spawn(work).map_err(ClientError::Threads)?;
        let (mut here, mut there) = (None::<TestReport>, None);
        let mut patience = Instant::NEVER;
        let mut standstill = Standstill::new(now(), spec);
        let mut is_left = false;
        loop {
            match self.next(now() + LOOK) {
                Some(Happening::Own(Own::Progress(progress))) => {
                    standstill.note(now(), &progress);
                    watch(*progress);
                }
                Some(Happening::Own(Own::Over(report))) => {
                    patience = now() + AGENT_BEHIND;
                    here = Some(*report);
                }
                Some(Happening::Session(Action::Reported(report))) => there = Some(*report),
                _ => {}
            }
            if here.is_some() && (there.is_some() || self.is_over()) {
                break;
            }
            if let Some(here) = &here {
                // The agent ends by itself what ended here as planned; of what did not, it would wait for
                // the rest.
                if here.ended != Ended::Complete || now() >= patience {
                    self.session.stop(now());
                }
            } else if !control.is_halted() && is_stopped() {
                // The word first: of connections that close without it, the agent asks why.
                self.session.stop(now());
                control.halt();
            } else if !control.is_halted()
                && self.is_over()
                && there.is_none()
                && (self.welcome.kept_ns == 0 || standstill.has_lasted(now()))
            {
                // An agent that keeps nothing ends its half with its connection; another may be gone for good.
                is_left = true;
                control.halt();
            }
        }
        let there = there.ok_or_else(|| self.farewell());
        let mut here = here.unwrap_or_default();
        if is_left && here.ended == Ended::Stopped {
            let why = "it was ended before its time, because the agent was lost";
            here.ended = Ended::Broken(why.to_owned());
        }
        Ok(Outcome { here, there, token: ready.token, rate_max: ready.rate_max })
    }

    fn request(&mut self, spec: &TestSpec, address: SocketAddr) -> Result<Ready, ClientError> {
        if !self.session.request(now(), spec, Some(address.ip())) {
            return Err(self.farewell().into());
        }
        loop {
            match self.next(Instant::NEVER) {
                Some(Happening::Session(Action::Ready(ready))) => return Ok(ready),
                Some(Happening::Session(Action::Refused(refusal))) => return Err(refusal.into()),
                _ if self.is_over() => return Err(self.farewell().into()),
                _ => {}
            }
        }
    }

    /// Connects everything, in a thread, because the session goes on meanwhile.
    fn open(
        &mut self,
        address: SocketAddr,
        spec: &TestSpec,
        ready: &Ready,
        control: &Arc<Control>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Course, ClientError> {
        let (spec, ready, control) = (spec.clone(), ready.clone(), Arc::clone(control));
        let connected = self.pump.sender();
        let work = move || {
            let course = Course::connect(&spec, &ready, address, control);
            connected.send(Event::Own(Own::Connected(Box::new(course)))).ok();
        };
        let name = thread::Builder::new().name("connect".to_owned());
        name.spawn(work).map_err(ClientError::Threads)?;
        loop {
            match self.next(now() + LOOK) {
                Some(Happening::Own(Own::Connected(course))) => {
                    return (*course).map_err(|error| self.reason(error));
                }
                Some(Happening::Session(Action::Reported(report))) => {
                    let Ended::Broken(why) = report.ended else { return Err(ClientError::Stopped) };
                    return Err(ClientError::Broken(why));
                }
                _ if self.is_over() => return Err(self.farewell().into()),
                _ if is_stopped() => {
                    self.give_up();
                    return Err(ClientError::Stopped);
                }
                _ => {}
            }
        }
    }

    /// Why a connection was not made: the agent knows best, where it is the cause.
    fn reason(&mut self, error: ConnectError) -> ClientError {
        match self.give_up() {
            Some(Ended::Broken(why)) => ClientError::Broken(why),
            _ => ClientError::Connect(error),
        }
    }

    /// Ends a test that has not begun, so that the next can be asked for; what the agent says of it.
    fn give_up(&mut self) -> Option<Ended> {
        self.session.stop(now());
        loop {
            // A report that has come may still wait to be told of.
            let is_idle = !self.session.has_test();
            match self.next(now() + LOOK) {
                Some(Happening::Session(Action::Reported(report))) => return Some(report.ended),
                None if is_idle => return None,
                _ => {}
            }
        }
    }

    /// Fetches the report of a test whose control connection was lost; waits for its end for `longest` at most.
    ///
    /// # Errors
    /// The agent keeps none, or the session ended.
    pub fn fetch(&mut self, token: Token, longest: Span) -> Result<TestReport, ClientError> {
        if !self.session.fetch(now(), token, longest) {
            return Err(self.farewell().into());
        }
        loop {
            match self.next(Instant::NEVER) {
                Some(Happening::Session(Action::Reported(report))) => return Ok(*report),
                Some(Happening::Session(Action::Refused(refusal))) => return Err(refusal.into()),
                _ if self.is_over() => return Err(self.farewell().into()),
                _ => {}
            }
        }
    }

    /// Takes its leave of the agent.
    pub fn leave(mut self) {
        self.session.leave(now());
        while let Some(action) = self.session.poll_action() {
            if let Action::Send(bytes) = action {
                self.pump.send(bytes);
            }
        }
        self.pump.close();
    }

    /// Why the session ended.
    fn farewell(&mut self) -> SessionError {
        while let Some(action) = self.session.poll_action() {
            if let Action::Close(error) = action {
                self.error = error;
            }
        }
        let closed = || SessionError { during: self.session.doing(), fault: Fault::Closed };
        self.error.clone().unwrap_or_else(closed)
    }

    /// What happens next; none when `until` comes first, or something that was dealt with.
    fn next(&mut self, until: Instant) -> Option<Happening> {
        while let Some(action) = self.session.poll_action() {
            match action {
                Action::Send(bytes) => {
                    if !self.pump.send(bytes) {
                        self.session.handle_closed();
                    }
                }
                Action::Close(error) => self.error = error,
                action => return Some(Happening::Session(action)),
            }
        }
        if self.is_over() && until == Instant::NEVER {
            return None;
        }
        let wait = self.session.deadline().min(until).saturating_since(now());
        let event = self.pump.wait(wait.into());
        let happening = match event {
            Some(Event::Bytes(bytes)) => {
                self.session.handle_bytes(now(), &bytes);
                None
            }
            Some(Event::Closed) => {
                self.session.handle_closed();
                None
            }
            Some(Event::Own(own)) => Some(Happening::Own(own)),
            None => None,
        };
        if now() >= self.session.deadline() {
            self.session.handle_timeout(now());
        }
        happening
    }
}

enum Happening {
    Session(Action),
    Own(Own),
}
