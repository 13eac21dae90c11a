//! Everything that is said after the hellos, and how long each may be.
//!
//! A variant's place is its name on the wire (postcard): new ones are added at the end, and none is taken
//! away within a version. Left out: who may say what when (`super::session`).

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::token::Token;
use crate::measure::report::TestReport;
use crate::measure::spec::TestSpec;
use crate::secure::Fingerprint;

/// Longest message where no report may come.
pub const MESSAGE_MAX: usize = 16 << 10;
/// Longest report.
pub const REPORT_MAX: usize = 64 << 20;

/// One message of either side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// Agent: the versions agree; this is what I allow.
    Welcome(Welcome),
    /// Client: make ready for this test.
    Request {
        /// The client's number for it.
        test: u32,
        /// The test.
        spec: Box<TestSpec>,
        /// Where its data will go, by the client's view: the agent's own address unless it is translated on the way.
        to: Option<IpAddr>,
    },
    /// Agent: ready.
    Ready(Ready),
    /// Client: begin.
    Start {
        /// Which.
        test: u32,
    },
    /// Client: end it now and report what there is.
    Stop {
        /// Which.
        test: u32,
    },
    /// Agent: this is what I saw.
    Report {
        /// Which; 0 for one that was fetched.
        test: u32,
        /// The report.
        report: Box<TestReport>,
    },
    /// Client: I have the report, forget it.
    Received {
        /// Which test's.
        test: u32,
    },
    /// Client: give me the report of a test whose connection was lost.
    Fetch {
        /// Its token.
        token: Token,
    },
    /// Agent: no.
    Refused(Refusal),
    /// Either: are you there?
    Ping(u32),
    /// Either: yes.
    Pong(u32),
    /// Either: this is the end.
    Bye,
}

impl Message {
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
        }
    }

    /// Its bytes, without a frame around them.
    pub fn encode(&self) -> Vec<u8> {
        postcard::to_stdvec(self).expect("every message is plain data")
    }

    /// Reads one; none for bytes that are no message, or go on after it.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        match postcard::take_from_bytes(bytes) {
            Ok((message, [])) => Some(message),
            _ => None,
        }
    }
}

/// What an agent allows, and how it may be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Its program's version and commit.
    pub program: String,
    /// The longest test.
    pub duration_max_ns: u64,
    /// The most that it takes or sends, in bytes a second; none is no limit.
    pub rate_max: Option<u64>,
    /// Connections of one test.
    pub streams_max: u16,
    /// Probes a second.
    pub probes_max: u32,
    /// How long a report is kept for a client that went away.
    pub kept_ns: u64,
    /// Its own addresses, for a client that knows none.
    pub addresses: Vec<String>,
}

/// A test that is ready to begin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ready {
    /// Which.
    pub test: u32,
    /// Shown by everything that belongs to it.
    pub token: Token,
    /// Where each part is listened for; 0 for one that needs nothing.
    pub ports: Vec<u16>,
    /// The most that the agent takes or sends in each part of this test that has no rate of its own, in bytes a
    /// second.
    pub rate_max: Option<u64>,
    /// What the agent's certificates of this test are known by: one for each part, where it encrypts.
    pub certificates: Vec<Option<Fingerprint>>,
}

/// Why an agent does not do what was asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// As many tests as it allows are under way.
    #[error(
        "the agent is busy: {running} tests run there and it allows {allowed}; try again later, or start it \
         with a larger --tests, and without --data-port"
    )]
    Busy {
        /// How many.
        running: u32,
        /// How many it allows.
        allowed: u32,
    },
    /// As many clients as it allows are there.
    #[error(
        "the agent has {peers} clients, which is all that it allows; try again later, or start it with a \
         larger --peers"
    )]
    TooManyPeers {
        /// How many.
        peers: u32,
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
    /// The request makes no sense.
    #[error(
        "the agent cannot make sense of the test: {0}; this is a defect of plumb, report it with the command"
    )]
    Nonsense(String),
    /// The agent could not make what it needs.
    #[error("the agent could not make ready: {0}; look at its host")]
    Trouble(String),
    /// No report is kept under this token.
    #[error("the agent keeps no report of that test; it was fetched already, or its time is over")]
    NoReport,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_as_they_were_written_and_never_with_something_after_them() {
        let messages = [
            Message::Start { test: 7 },
            Message::Fetch { token: Token([3; 16]) },
            Message::Refused(Refusal::Busy { running: 4, allowed: 4 }),
            Message::Bye,
        ];
        for message in messages {
            let mut bytes = message.encode();
            assert_eq!(Message::decode(&bytes).as_ref(), Some(&message));
            bytes.push(0);
            assert_eq!(Message::decode(&bytes), None);
        }
    }

    /// A changed order of variants would be a new version of the protocol.
    #[test]
    fn the_first_byte_of_every_message_stays_what_it_is() {
        let first = |message: Message| message.encode()[0];
        assert_eq!(first(Message::Welcome(Welcome::default())), 0);
        assert_eq!(first(Message::Start { test: 0 }), 3);
        assert_eq!(first(Message::Received { test: 0 }), 6);
        assert_eq!(first(Message::Ping(0)), 9);
        assert_eq!(first(Message::Bye), 11);
    }
}
