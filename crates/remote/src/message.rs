//! Every message after the hellos, and how long each may be.
//!
//! A variant's position is its name on the wire (postcard): new ones go last, and none is removed within a version.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::token::TestToken;

/// Longest message, reports aside.
pub const MESSAGE_MAX: usize = 16 << 10;
/// Longest report.
pub const REPORT_MAX: usize = 64 << 20;

/// A kind of task that an agent can do; its payloads are opaque to the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServiceId(pub u8);

impl ServiceId {
    /// Traffic between the client and the agent.
    pub const LOAD: Self = Self(1);
    /// The far process of a launch.
    pub const LAUNCH: Self = Self(2);
}

/// What a client asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRequest {
    /// Who does it.
    pub service: ServiceId,
    /// The service's own description of the task.
    pub payload: Vec<u8>,
    /// Where the data will go, as the client sees it: the agent's address unless it is translated on the way.
    pub to: Option<IpAddr>,
}

/// One message of either side.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SessionMessage {
    /// Agent: the versions agree; these are the limits.
    Welcome(WelcomeMessage),
    /// Client: prepare this task.
    Request {
        /// The client's number for it.
        task: u32,
        /// The task.
        request: TaskRequest,
    },
    /// Agent: prepared.
    Ready(ReadyMessage),
    /// Client: start.
    Start {
        /// Which.
        task: u32,
    },
    /// Client: end the task now and report.
    Stop {
        /// Which.
        task: u32,
    },
    /// Agent: the report.
    Report {
        /// Which task's; 0 for one that was fetched.
        task: u32,
        /// The service's own report.
        payload: Vec<u8>,
    },
    /// Client: the report arrived and need not be kept.
    Received {
        /// Which task's.
        task: u32,
    },
    /// Client: send the report of a task whose connection was lost.
    Fetch {
        /// Its token.
        token: TestToken,
    },
    /// Agent: no.
    Refused(TaskRefusal),
    /// Either: keep-alive.
    Ping(u32),
    /// Either: reply to a keep-alive.
    Pong(u32),
    /// Either: end of the session.
    Bye,
    /// Either: a message of the task itself.
    Data {
        /// Which.
        task: u32,
        /// The service's own message.
        payload: Vec<u8>,
    },
}

impl SessionMessage {
    /// Its bytes, without a frame around them.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads one; none for bytes that are no message, or go on after it.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes)
    }

    /// What it is called in an error.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Welcome(_) => "welcome",
            Self::Request { .. } => "request",
            Self::Ready(_) => "ready",
            Self::Start { .. } => "start",
            Self::Stop { .. } => "stop",
            Self::Report { .. } => "report",
            Self::Received { .. } => "received",
            Self::Fetch { .. } => "fetch",
            Self::Refused(_) => "refused",
            Self::Ping(_) => "ping",
            Self::Pong(_) => "pong",
            Self::Bye => "bye",
            Self::Data { .. } => "data",
        }
    }
}

/// A message or a payload as bytes, without a frame around them.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("every message is plain data")
}

/// Reads a message or a payload; none for bytes that are anything else, or go on after it.
pub fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Some(message),
        _ => None,
    }
}

/// What an agent allows, and how it may be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WelcomeMessage {
    /// Its program's version and commit.
    pub program: String,
    /// The longest test.
    pub duration_max_ns: u64,
    /// The most that it receives or sends, in bytes a second; none is no limit.
    pub rate_max: Option<u64>,
    /// Connections of one test.
    pub streams_max: u16,
    /// Probes a second.
    pub probes_max: u32,
    /// How long a report is kept for a client that lost its connection.
    pub report_retention_ns: u64,
    /// Its own addresses, for a client that knows none.
    pub addresses: Vec<String>,
    /// What it can do.
    pub services: Vec<ServiceId>,
}

/// A task that is prepared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadyMessage {
    /// Which.
    pub task: u32,
    /// Shown by every connection and datagram of the task.
    pub token: TestToken,
    /// What the service's client needs to connect.
    pub payload: Vec<u8>,
}

/// Why an agent does not do a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum TaskRefusal {
    /// As many tasks as it allows are running.
    #[error(
        "the agent is busy: {running} tests run there and it allows {allowed}; try again later, or start it \
         with a larger --max-tests, and without --data-port"
    )]
    TestLimit {
        /// How many.
        running: u32,
        /// How many it allows.
        allowed: u32,
    },
    /// As many clients as it allows are connected.
    #[error(
        "the agent has {clients} clients, which is all that it allows; try again later, or start it with a \
         larger --max-clients"
    )]
    ClientLimit {
        /// How many.
        clients: u32,
    },
    /// Beyond a limit of the agent.
    #[error(
        "the agent allows {what} of {allowed} at most, and {asked} was asked for; ask for less, or start \
         it with other limits"
    )]
    Limit {
        /// What is limited.
        what: String,
        /// What was asked for.
        asked: u64,
        /// What is allowed.
        allowed: u64,
    },
    /// The request is not valid.
    #[error(
        "the agent rejects the test as invalid: {0}; this is a bug in plumb, report it with the command"
    )]
    InvalidSpec(String),
    /// The agent could not open or start what the task needs.
    #[error("the agent could not set up the test: {0}")]
    SetupFailed(String),
    /// No report is kept under this token.
    #[error(
        "the agent keeps no report of that test; it was fetched already, or its retention time is over"
    )]
    NoReport,
    /// It does not offer the service.
    #[error("the agent does not offer this kind of test")]
    NoService,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_as_they_were_written_and_never_with_something_after_them() {
        let messages = [
            SessionMessage::Start { task: 7 },
            SessionMessage::Fetch { token: TestToken([3; 16]) },
            SessionMessage::Refused(TaskRefusal::TestLimit { running: 4, allowed: 4 }),
            SessionMessage::Bye,
        ];
        for message in messages {
            let mut bytes = message.encode();
            assert_eq!(SessionMessage::decode(&bytes).as_ref(), Some(&message));
            bytes.push(0);
            assert_eq!(SessionMessage::decode(&bytes), None);
        }
    }

    /// A changed order of variants would be a new version of the protocol.
    #[test]
    fn the_first_byte_of_every_message_stays_what_it_is() {
        let first = |message: SessionMessage| message.encode()[0];
        assert_eq!(first(SessionMessage::Welcome(WelcomeMessage::default())), 0);
        assert_eq!(first(SessionMessage::Start { task: 0 }), 3);
        assert_eq!(first(SessionMessage::Received { task: 0 }), 6);
        assert_eq!(first(SessionMessage::Ping(0)), 9);
        assert_eq!(first(SessionMessage::Bye), 11);
        assert_eq!(first(SessionMessage::Data { task: 0, payload: Vec::new() }), 12);
    }
}
