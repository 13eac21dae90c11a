//! What one side of a test saw for itself.
//!
//! Readings are cumulative since the test began, so that whoever reads them may take any interval. Left out:
//! putting the two sides together.

use std::collections::BTreeMap;

use plumb_remote::overlap::TestOverlap;
use plumb_result::net::{HostReading, ProbeReflectorReport, ThreadPlacement};
use serde::{Deserialize, Serialize};

use super::request_response::{RequesterReport, ResponderReport};
use crate::evidence::{HostFacts, TcpSample};
use crate::measure::datagram::endpoint::DatagramsReport;
use crate::measure::mtu::MtuPartReport;

/// One side's report on a test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TestReport {
    /// What is known about this side before anything is measured.
    pub host: HostFacts,
    /// When everything was read, and what the host had done by then.
    pub moments: Vec<HostSample>,
    /// One entry for each part, in the order of the test.
    pub parts: Vec<TestPartReport>,
    /// What the kernel's counters grew by from the start to the end, those that grew.
    pub counters: BTreeMap<String, u64>,
    /// Other tests of the same agent meanwhile.
    pub overlap: TestOverlap,
    /// How it ended.
    pub ended: TestEnding,
}

/// How one side of a test ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TestEnding {
    /// As planned.
    #[default]
    Complete,
    /// Somebody asked for it to stop.
    Stopped,
    /// Something broke, and what.
    Broken(String),
}

/// One reading of everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// Time since the test began.
    pub at_ns: u64,
    /// What the host and this process had used.
    pub host: HostReading,
    /// By how much the host's real-time clock was ahead of its steady one: what grows at once was set.
    pub real_ahead_ns: i64,
}

/// One part, as one side saw it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TestPartReport {
    /// Bulk TCP.
    Streams(StreamsReport),
    /// Probes, as the side that asks saw them.
    Probes(Box<ProbesReport>),
    /// Probes, as the side that answers saw them.
    Answers(ProbeReflectorReport),
    /// Requests and responses, as the side that asks saw them.
    Exchange(Box<RequesterReport>),
    /// Requests and responses, as the side that answers saw them.
    Responses(ResponderReport),
    /// Paced datagrams.
    Datagrams(Box<DatagramsReport>),
    /// The longest packet that arrives.
    Mtu(MtuPartReport),
}

/// Bulk TCP, as one side saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamsReport {
    /// One entry a connection.
    pub streams: Vec<StreamReport>,
}

/// One connection, as one end saw it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamReport {
    /// Its number, from 0, the same at both ends.
    pub index: u16,
    /// Whether this end sent.
    pub sends: bool,
    /// Whether the client's end is the one that sent.
    pub is_up: bool,
    /// The address of this end.
    pub local: String,
    /// The address of the other end, as seen here.
    pub remote: String,
    /// Congestion control of this end.
    pub congestion: String,
    /// Bytes and connection state, one entry for each of the report's moments.
    pub samples: Vec<StreamSample>,
    /// Its send buffer as its kernel keeps it, which is twice what can be asked for: SO_SNDBUF at the end.
    pub send_buffer_bytes: u64,
    /// Its receive buffer: SO_RCVBUF at the end.
    pub receive_buffer_bytes: u64,
    /// All bytes sent or received, with the warm-up and what was drained after the end.
    pub bytes_total: u64,
    /// Whether a receiver came to the end of the stream, and a sender closed it with nothing left to send.
    pub is_drained: bool,
    /// Where this end's thread ran, which served 0 connections where it never did.
    pub placement: ThreadPlacement,
    /// What went wrong.
    pub error: Option<String>,
}

/// One reading of one connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamSample {
    /// Bytes handed to the kernel or taken from it since the start.
    pub bytes: u64,
    /// Processor time of the thread that hands or takes them: CLOCK_THREAD_CPUTIME_ID.
    pub cpu_ns: u64,
    /// TCP_INFO.
    pub tcp: TcpSample,
}

/// Probes, as the side that asks saw them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbesReport {
    /// Datagrams that were due in the time that counts.
    pub due: u64,
    /// Of them, those that the kernel took.
    pub sent: u64,
    /// Of them, those that were answered in time.
    pub answered: u64,
    /// Answers that came again.
    pub duplicated: u64,
    /// Answers that came after a later one's.
    pub reordered: u64,
    /// Answers that the socket had no room for.
    pub overflowed: u64,
    /// Sends that the kernel refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Time on the path and in the kernels: all of the round trip but the agent's own time. Nanoseconds,
    /// HdrHistogram V2.
    pub path: Vec<u8>,
    /// Time as an application sees that asks at this rate: from when a probe was due until its answer was
    /// read. Nanoseconds, HdrHistogram V2.
    pub application: Vec<u8>,
    /// How late probes left. Nanoseconds, HdrHistogram V2.
    pub lateness: Vec<u8>,
    /// The four stamps of each, in the order they were answered, the first so many.
    pub exchanges: Vec<ProbeTimestamps>,
}

/// The four stamps of one probe: the first and last by the client's steady clock, the others by the agent's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeTimestamps {
    /// Its number.
    pub sequence: u64,
    /// Given to the kernel.
    pub sent_ns: u64,
    /// Received there by the kernel.
    pub received_there_ns: u64,
    /// Given to the kernel there.
    pub sent_there_ns: u64,
    /// Received by the kernel.
    pub received_ns: u64,
}
