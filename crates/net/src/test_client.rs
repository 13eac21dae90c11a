//! The client's half of a test: asks the agent for it, connects, measures, and takes the agent's report.
//!
//! Whatever happens to the control connection, a test that has begun ends with what this side saw.

use std::net::SocketAddr;
use std::sync::Arc;
use std::{io, thread};

use plumb_base::time::{Instant, Span};
use plumb_clock::now;
use plumb_remote::client::{self, ClientEvent};
use plumb_remote::control_stream::{ControlEvent, ControlStream};
use plumb_remote::datagram_header::TestToken;
use plumb_remote::message::{ServiceId, TaskRefusal, TaskRequest, WelcomeMessage, decode, encode};
use plumb_remote::session::{ControlSessionError, SessionFault, SessionTiming};
use plumb_remote::task_control::TestControl;

use crate::measure::connect::DataConnectError;
use crate::measure::progress::{StallDetector, TestProgress};
use crate::measure::report::{TestEnding, TestReport};
use crate::measure::test_run::{TestPorts, TestRun};
use crate::measure::test_spec::TestSpec;
use crate::service::times;

/// How much later than this side the agent may end a test by itself.
const AGENT_GRACE: Span = Span::from_secs(2);

/// How long nothing may come of a test whose agent has lost its session, until the agent is held to be gone.
const STALL_TIMEOUT: Span = Span::from_secs(3);
/// How often it is asked whether the user wants to stop.
const POLL_INTERVAL: Span = Span::from_ms(100);

/// Why a test did not come about.
#[derive(Debug, thiserror::Error)]
pub enum AgentClientError {
    /// The session ended.
    #[error(transparent)]
    Session(#[from] ControlSessionError),
    /// The agent does not do it.
    #[error(transparent)]
    Refused(#[from] TaskRefusal),
    /// The data connections could not be made.
    #[error(transparent)]
    Connect(#[from] DataConnectError),
    /// The agent gave up before the test began.
    #[error("the agent could not begin the test: {0}; ask for something that its host can do")]
    AgentFailed(String),
    /// This host has no more threads.
    #[error("cannot start a thread: {0}; end other programs, or raise the limit on processes")]
    Threads(io::Error),
    /// The user wanted it.
    #[error("stopped")]
    Stopped,
}

impl From<client::TaskClientError> for AgentClientError {
    fn from(error: client::TaskClientError) -> Self {
        match error {
            client::TaskClientError::Session(error) => Self::Session(error),
            client::TaskClientError::Refused(refusal) => Self::Refused(refusal),
            client::TaskClientError::Threads(error) => Self::Threads(error),
        }
    }
}

/// The result of a test.
#[derive(Debug)]
pub struct TestOutcome {
    /// What this side saw.
    pub here: TestReport,
    /// What the agent saw, or why that is not known.
    pub there: Result<TestReport, ControlSessionError>,
    /// Under which the agent's report may be fetched later.
    pub token: TestToken,
    /// The rate that the agent allowed, in bytes a second.
    pub rate_max: Option<u64>,
}

/// A session with an agent.
#[derive(Debug)]
pub struct AgentClient {
    client: client::TaskClient<ClientThreadEvent>,
}

/// What the client's own threads say.
#[derive(Debug)]
enum ClientThreadEvent {
    Connected(Box<Result<TestRun, DataConnectError>>),
    Progress(Box<TestProgress>),
    Finished(Box<TestReport>),
}

impl AgentClient {
    /// Greets the agent at the other end of a stream.
    ///
    /// # Errors
    /// It is no agent, of another version, full, or does not answer in time.
    pub fn connect(
        stream: ControlStream,
        program: &str,
        timing: SessionTiming,
    ) -> Result<Self, AgentClientError> {
        Ok(Self { client: client::TaskClient::connect(stream, program, timing)? })
    }

    /// What the agent allows.
    pub const fn welcome(&self) -> &WelcomeMessage {
        self.client.welcome()
    }

    /// Whether nothing more can be asked.
    pub fn is_over(&self) -> bool {
        self.client.is_over()
    }

    /// Runs one test with the agent, whose data is reached at `address` (whose port does not matter).
    ///
    /// # Errors
    /// The test did not begin. Once it has, there is an outcome.
    pub fn run(
        &mut self,
        address: SocketAddr,
        spec: &TestSpec,
        watch: &mut dyn FnMut(TestProgress),
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<TestOutcome, AgentClientError> {
        let (token, ready) = self.request(spec, address)?;
        let control = Arc::<TestControl>::default();
        let run = self.connect_data(address, spec, token, &ready, &control, is_stopped)?;
        self.client.start();
        control.begin();
        self.start(run)?;
        let (mut here, mut there) = (None::<TestReport>, None);
        let mut patience = Instant::NEVER;
        let mut standstill = StallDetector::new(now(), STALL_TIMEOUT);
        let mut is_left = false;
        loop {
            match self.client.next_event(now() + POLL_INTERVAL) {
                Some(ClientEvent::Local(ClientThreadEvent::Progress(progress))) => {
                    standstill.observe(now(), &progress);
                    if progress.is_reading {
                        watch(*progress);
                    }
                }
                Some(ClientEvent::Local(ClientThreadEvent::Finished(report))) => {
                    patience = now() + AGENT_GRACE;
                    here = Some(*report);
                }
                Some(ClientEvent::Reported(report)) => there = Some(decode_report(&report)),
                _ => {}
            }
            if here.is_some() && (there.is_some() || self.is_over()) {
                break;
            }
            if let Some(here) = &here {
                // The agent ends by itself what ended here as planned; of what did not, it would wait for
                // the rest.
                if here.ended != TestEnding::Complete || now() >= patience {
                    self.client.stop();
                }
            } else if !control.is_halted() && is_stopped() {
                // The word first: of connections that close without it, the agent asks why.
                self.client.stop();
                control.halt();
            } else if !control.is_halted()
                && self.is_over()
                && there.is_none()
                && (self.welcome().report_retention_ns == 0 || standstill.is_stalled(now()))
            {
                // An agent that keeps nothing ends its half with its connection; another may be gone for good.
                is_left = true;
                control.halt();
            }
        }
        let there = there.unwrap_or_else(|| Err(self.client.end_reason()));
        let mut here = here.unwrap_or_default();
        if is_left && here.ended == TestEnding::Stopped {
            let why = "it was ended before its time, because the agent was lost";
            here.ended = TestEnding::Broken(why.to_owned());
        }
        Ok(TestOutcome { here, there, token, rate_max: ready.rate_max })
    }

    /// Measures in a thread, because the session goes on meanwhile.
    fn start(&self, run: TestRun) -> Result<(), AgentClientError> {
        let over = self.client.sender();
        let work = move || {
            let report = run.run(&mut |progress| {
                // A driver that is behind does without.
                over.try_send(ControlEvent::Local(ClientThreadEvent::Progress(Box::new(progress))))
                    .ok();
            });
            over.send(ControlEvent::Local(ClientThreadEvent::Finished(Box::new(report)))).ok();
        };
        let name = thread::Builder::new().name("test".to_owned());
        name.spawn(work).map(drop).map_err(AgentClientError::Threads)
    }

    fn request(
        &mut self,
        spec: &TestSpec,
        address: SocketAddr,
    ) -> Result<(TestToken, TestPorts), AgentClientError> {
        let request =
            TaskRequest { service: ServiceId::LOAD, payload: encode(spec), to: Some(address.ip()) };
        let ready = self.client.request(request, times(spec))?;
        let ports = decode(&ready.payload).ok_or_else(undecodable)?;
        Ok((ready.token, ports))
    }

    /// Connects everything, in a thread, because the session goes on meanwhile.
    fn connect_data(
        &mut self,
        address: SocketAddr,
        spec: &TestSpec,
        token: TestToken,
        ready: &TestPorts,
        control: &Arc<TestControl>,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<TestRun, AgentClientError> {
        let (spec, ready, control) = (spec.clone(), ready.clone(), Arc::clone(control));
        let connected = self.client.sender();
        let work = move || {
            let run = TestRun::connect(&spec, token, &ready, address, control);
            connected.send(ControlEvent::Local(ClientThreadEvent::Connected(Box::new(run)))).ok();
        };
        let name = thread::Builder::new().name("connect".to_owned());
        name.spawn(work).map_err(AgentClientError::Threads)?;
        loop {
            match self.client.next_event(now() + POLL_INTERVAL) {
                Some(ClientEvent::Local(ClientThreadEvent::Connected(run))) => {
                    return (*run).map_err(|error| self.connect_failure(error));
                }
                Some(ClientEvent::Reported(report)) => {
                    let TestEnding::Broken(why) = decode_report(&report)?.ended else {
                        return Err(AgentClientError::Stopped);
                    };
                    return Err(AgentClientError::AgentFailed(why));
                }
                _ if self.is_over() => return Err(self.client.end_reason().into()),
                _ if is_stopped() => {
                    self.abort_test();
                    return Err(AgentClientError::Stopped);
                }
                _ => {}
            }
        }
    }

    /// Why a connection was not made: the agent knows best, where it is the cause.
    fn connect_failure(&mut self, error: DataConnectError) -> AgentClientError {
        match self.abort_test() {
            Some(TestEnding::Broken(why)) => AgentClientError::AgentFailed(why),
            _ => AgentClientError::Connect(error),
        }
    }

    /// Ends a test that has not begun, so that the next can be asked for; what the agent says about it.
    fn abort_test(&mut self) -> Option<TestEnding> {
        self.client.stop();
        loop {
            // A report that has come may still wait to be told about.
            let is_idle = !self.client.has_task();
            match self.client.next_event(now() + POLL_INTERVAL) {
                Some(ClientEvent::Reported(report)) => {
                    return decode_report(&report).ok().map(|report| report.ended);
                }
                None if is_idle => return None,
                _ => {}
            }
        }
    }

    /// Fetches the report of a test whose control connection was lost; waits for its end for `longest` at most.
    ///
    /// # Errors
    /// The agent keeps none, or the session ended.
    pub fn fetch(
        &mut self,
        token: TestToken,
        longest: Span,
    ) -> Result<TestReport, AgentClientError> {
        Ok(decode_report(&self.client.fetch(token, longest)?)?)
    }

    /// Takes its leave of the agent.
    pub fn disconnect(self) {
        self.client.disconnect();
    }
}

fn undecodable() -> ControlSessionError {
    ControlSessionError { activity: "reading the agent's answer", fault: SessionFault::Undecodable }
}

fn decode_report(report: &[u8]) -> Result<TestReport, ControlSessionError> {
    decode(report).ok_or_else(undecodable)
}
