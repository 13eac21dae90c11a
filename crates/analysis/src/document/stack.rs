//! What a command of `plumb stack` saw, `plumb.stack/1`, and what happened to conformance scripts, `plumb.conform/1`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SampleSummary;

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.stack/1";

/// One run of `plumb stack mirror`, `serve`, `ping`, `send`, `get`, `transfer` or `replay`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StackDocument {
    /// Always `plumb.stack/1`.
    pub schema: String,
    /// `mirror`, `serve`, `ping`, `send`, `get`, `transfer` or `replay`.
    pub command: String,
    /// Whose stack it was: `plumb` or `linux`.
    pub stack: String,
    /// The device; null for the kernel's stack.
    pub device: Option<StackDevice>,
    /// Addresses of plumb's stack, with the bits of their networks.
    pub addresses: Vec<String>,
    /// Wall time, in seconds.
    pub seconds: f64,
    /// Why it ended: `complete`, `duration`, `interrupted`, `silent`, `refused`, `failed` or `device`.
    pub ended: String,
    /// Round trips, one entry a size of frames.
    pub exchanges: Vec<StackRoundTrips>,
    /// Services over UDP, and what they did.
    pub services: Vec<ServiceCount>,
    /// Services over TCP, and what they did.
    #[serde(default)]
    pub stream_services: Vec<StreamServiceCount>,
    /// TCP connections that the command opened.
    #[serde(default)]
    pub connections: Vec<StackConnection>,
    /// How fast frames were taken from memory.
    pub replay: Option<ReplayRate>,
    /// What the stack counted; what is zero is left out.
    pub stack_counters: BTreeMap<String, u64>,
    /// Packets that the stack dropped, by reason: those of the above that are drops.
    pub drop_counters: BTreeMap<String, u64>,
    /// What the device counted; what is zero is left out.
    pub device_counters: BTreeMap<String, u64>,
    /// Faults that were injected, by kind; what is zero is left out.
    pub fault_counters: BTreeMap<String, u64>,
    /// What a reader must know.
    pub flags: Vec<String>,
}

/// A device and how it was used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StackDevice {
    /// As it was asked for: `tap:plumb0`.
    pub name: String,
    /// Link address of plumb's stack; empty where there is none.
    pub mac: String,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// How it waited: `block`, `poll` or `spin`.
    pub wait: String,
    /// Most packets taken or given at a time.
    pub batch: u64,
}

/// Round trips with one peer at one size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StackRoundTrips {
    /// The peer: an address, or an address and a port.
    pub remote: String,
    /// Bytes of a frame as on Ethernet, without its check sequence.
    pub frame_bytes: u64,
    /// Bytes of payload.
    pub payload_bytes: u64,
    /// Packets sent.
    pub sent: u64,
    /// Of those, answered in time and unchanged.
    pub answered: u64,
    /// Of those, not answered in time.
    pub lost: u64,
    /// Answers that came after their time, or again.
    pub late: u64,
    /// Answers whose payload was not what was sent.
    pub corrupt: u64,
    /// ICMP errors about what was sent, and what could not be sent: no answer to ARP, no route.
    pub errors: u64,
    /// The first round trip, in nanoseconds, which includes finding the peer: not among the others.
    pub first_ns: Option<f64>,
    /// The other round trips, in nanoseconds. All are of one process, so there is no interval over launches.
    pub rtt: SampleSummary,
}

/// A service over UDP and what it did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceCount {
    /// `mirror`, `echo` or `discard`.
    pub name: String,
    /// UDP port.
    pub port: u16,
    /// Datagrams received.
    pub received: u64,
    /// Their bytes of payload.
    pub bytes: u64,
    /// Datagrams sent in answer.
    pub answered: u64,
    /// Not answered: from a port that answers by itself, which might go on for ever.
    pub from_service: u64,
    /// Not answered: sent to a group, of which every member would answer.
    pub to_group: u64,
    /// Answers that could not be sent.
    pub failed: u64,
}

/// A service over TCP and what it did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StreamServiceCount {
    /// `echo`, `discard`, `source` or `http`.
    pub name: String,
    /// TCP port.
    pub port: u16,
    /// Connections accepted.
    pub connections: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// HTTP requests answered with a file.
    pub requests: u64,
    /// HTTP requests refused.
    pub refused: u64,
    /// Connections that ended by an error.
    pub failed: u64,
    /// Connections ended for being idle.
    pub idle: u64,
}

/// A TCP connection of plumb's stack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StackConnection {
    /// Our end: an address and a port.
    pub local: String,
    /// The peer's.
    pub remote: String,
    /// `send` or `receive`.
    pub direction: String,
    /// Our congestion control.
    pub congestion: String,
    /// Bytes delivered to the peer, or received from it.
    pub bytes: u64,
    /// Time from the opened connection until the last of them was delivered, in seconds.
    pub seconds: f64,
    /// Bytes a second over that time.
    pub bytes_per_second: f64,
    /// Time from the SYN until the connection was open, in nanoseconds; null where it never was.
    pub setup_ns: Option<f64>,
    /// Largest payload of segments sent, in bytes.
    pub mss: u64,
    /// Segments sent, retransmissions included.
    pub segments_sent: u64,
    /// Segments received.
    pub segments_received: u64,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Expiries of the retransmission timer.
    pub timeouts: u64,
    /// Segments received out of order.
    pub out_of_order: u64,
    /// Smoothed round-trip time at the end, in nanoseconds.
    pub srtt_ns: Option<f64>,
    /// Least round-trip time, in nanoseconds.
    pub rtt_min_ns: Option<f64>,
    /// Why it failed; null where it did not.
    pub error: Option<String>,
    /// The HTTP response; null for other transfers.
    pub http: Option<StackHttpResponse>,
    /// Its figures over time.
    pub series: Vec<StackConnectionSample>,
}

/// An HTTP response.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StackHttpResponse {
    /// What was asked for.
    pub url: String,
    /// Status code.
    pub status: u16,
    /// Bytes of the body, where the head told them.
    pub length: Option<u64>,
}

/// Figures of a connection at one moment, of its sending side unless said otherwise.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StackConnectionSample {
    /// Time since the SYN, in seconds.
    pub seconds: f64,
    /// Bytes delivered to the peer, or received from it.
    pub bytes: u64,
    /// Congestion window, in bytes.
    pub cwnd_bytes: u64,
    /// Slow-start threshold, in bytes; null before the first congestion.
    pub ssthresh_bytes: Option<u64>,
    /// Bytes in flight.
    pub flight_bytes: u64,
    /// Window that the peer offers, in bytes.
    pub send_window_bytes: u64,
    /// Window that we offer, in bytes.
    pub receive_window_bytes: u64,
    /// Smoothed round-trip time, in nanoseconds.
    pub srtt_ns: Option<f64>,
    /// Segments retransmitted so far.
    pub retransmits: u64,
}

/// Frames from memory through the stack.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplayRate {
    /// Where the frames came from: a file's name, or `frame`.
    pub source: String,
    /// Different frames.
    pub frames: u64,
    /// Bytes of all of them.
    pub frame_bytes: u64,
    /// Packets that went in.
    pub received: u64,
    /// Packets that came out.
    pub sent: u64,
    /// Packets that went in each second.
    pub packets_per_second: f64,
    /// Wall time for each, in nanoseconds.
    pub ns_per_packet: f64,
    /// Of that, what the memory device takes by itself: the same frames without a stack.
    pub device_ns_per_packet: f64,
}

/// The name of this document's shape.
pub const CONFORM_SCHEMA: &str = "plumb.conform/1";

/// One run of `plumb stack conform`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConformDocument {
    /// Always `plumb.conform/1`.
    pub schema: String,
    /// Scripts that passed.
    pub passed: u64,
    /// Scripts that failed or are malformed.
    pub failed: u64,
    /// Scripts that need what is not there.
    pub unsupported: u64,
    /// One entry for each script.
    pub scripts: Vec<ConformScript>,
}

/// What happened to one script.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ConformScript {
    /// Its path.
    pub file: String,
    /// `passed`, `failed`, `unsupported` or `malformed`.
    pub outcome: String,
    /// Line of the event at which it ended, from 1; null if it passed.
    pub line: Option<u32>,
    /// Column, from 1; null if it passed.
    pub column: Option<u32>,
    /// What was expected and what came, or what it needs; empty if it passed.
    pub reason: String,
}
