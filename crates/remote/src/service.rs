//! What an agent can do: services that prepare tasks, and tasks, each run by a thread of its own.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use plumb_base::time::Span;

use crate::address::BindAddress;
use crate::control_stream::ControlEvent;
use crate::datagram_header::TestToken;
use crate::message::{ServiceId, TaskRefusal};
use crate::overlap::OverlapWatch;
use crate::session::TaskTimes;
use crate::task_control::TestControl;

/// What an agent allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentLimits {
    /// Bytes a second that a test may send, and as many that it may have taken; none is no limit.
    pub rate_max: Option<u64>,
    /// The longest test.
    pub duration_max: Span,
    /// Streams of one test in each direction.
    pub streams_max: u16,
    /// Probes a second of one test.
    pub probes_max: u32,
    /// Clients at a time.
    pub clients_max: u32,
    /// Tests at a time, of all clients.
    pub tests_max: u32,
    /// How long a report is kept for a client that went away; zero ends the test with its connection.
    pub report_retention: Span,
    /// The port that data is taken at; 0 is any. One other than 0 allows one test at a time.
    pub data_port: u16,
    /// The only address that data is taken at; none is the one that the client goes to, or any.
    pub data_address: Option<IpAddr>,
}

impl Default for AgentLimits {
    fn default() -> Self {
        Self {
            rate_max: None,
            duration_max: Span::from_secs(3_600),
            streams_max: 128,
            probes_max: 10_000,
            clients_max: 32,
            tests_max: 8,
            report_retention: Span::from_secs(300),
            data_port: 0,
            data_address: None,
        }
    }
}

/// Events of a task's thread for the session.
#[derive(Debug)]
pub enum TaskEvent {
    /// A message to the client.
    Data(TestToken, Vec<u8>),
    /// The task has ended, with this report.
    Finished(TestToken, Vec<u8>),
}

/// One kind of task.
pub trait TaskService: fmt::Debug + Send + Sync {
    /// Its number in requests.
    fn id(&self) -> ServiceId;

    /// Checks a request and opens what it needs, without waiting for the client.
    ///
    /// # Errors
    /// Why it cannot be done.
    fn prepare(&self, payload: &[u8], context: TaskContext) -> Result<PreparedTask, TaskRefusal>;
}

/// What a task is given.
#[derive(Debug)]
pub struct TaskContext {
    /// Shown by every connection and datagram of the task.
    pub token: TestToken,
    /// Where its sockets are bound.
    pub bind: BindAddress,
    /// What the agent allows.
    pub limits: AgentLimits,
    /// Its start and end.
    pub control: Arc<TestControl>,
    /// Other tests at the same time.
    pub overlap: OverlapWatch,
}

/// A task that waits for its client.
pub struct PreparedTask {
    /// What the client needs to connect.
    pub ready: Vec<u8>,
    /// How long it may take.
    pub times: TaskTimes,
    /// Whether it goes on when its session is lost, and its report is kept.
    pub outlives_session: bool,
    /// Does it; gives the report.
    pub run: Box<dyn FnOnce(TaskMessages) -> Vec<u8> + Send>,
}

impl fmt::Debug for PreparedTask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PreparedTask").field("times", &self.times).finish_non_exhaustive()
    }
}

/// A running task's messages from and to its client.
#[derive(Debug)]
pub struct TaskMessages {
    /// From the client; closed when the task is to end, or the session has.
    pub inbox: Receiver<Vec<u8>>,
    /// To the client.
    pub outbox: TaskOutbox,
}

/// Sends a task's messages to its client.
#[derive(Clone)]
pub struct TaskOutbox {
    pub(crate) token: TestToken,
    pub(crate) events: SyncSender<ControlEvent<TaskEvent>>,
}

impl fmt::Debug for TaskOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskOutbox").field("token", &self.token).finish_non_exhaustive()
    }
}

impl TaskOutbox {
    /// Sends one message; false when the session has ended.
    pub fn send(&self, payload: Vec<u8>) -> bool {
        self.events.send(ControlEvent::Local(TaskEvent::Data(self.token, payload))).is_ok()
    }
}
