//! What a command of `plumb stack` saw, `plumb.stack/1`.
//!
//! Left out: how packets were moved; the stack and the command line do that.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::SampleSummary;

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.stack/1";

/// One run of `plumb stack mirror`, `serve`, `ping`, `send` or `replay`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StackDocument {
    /// Always `plumb.stack/1`.
    pub schema: String,
    /// `mirror`, `serve`, `ping`, `send` or `replay`.
    pub command: String,
    /// Whose stack it was: `plumb` or `linux`.
    pub stack: String,
    /// The device; null for the kernel's stack.
    pub device: Option<StackDevice>,
    /// Addresses of plumb's stack, with the bits of their networks.
    pub addresses: Vec<String>,
    /// Wall time, in seconds.
    pub seconds: f64,
    /// Why it ended: `complete`, `duration`, `interrupted`, `silent`, `refused` or `device`.
    pub ended: String,
    /// Round trips, one entry a size of frames.
    pub exchanges: Vec<StackRoundTrips>,
    /// Services, and what they did.
    pub services: Vec<ServiceCount>,
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

/// A service and what it did.
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
