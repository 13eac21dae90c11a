//! What simulations found, `plumb.sim/1`, and what they say about a congestion control, `plumb.congestion/1`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.sim/1";

/// One or several simulations of a scenario.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimDocument {
    /// Always `plumb.sim/1`.
    pub schema: String,
    /// The file of the scenario.
    pub file: String,
    /// SHA-256 of its text, in hexadecimal digits.
    pub file_sha256: String,
    /// One entry a point of its sweep; one of all where it has none.
    pub runs: Vec<SimRun>,
}

/// One simulation. Figures are of the time after the warm-up; rates are bits a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimRun {
    /// The values of swept variables.
    pub variables: BTreeMap<String, String>,
    /// Which replication of them, from 0.
    pub replication: u64,
    /// What the scenario is called.
    pub title: String,
    /// What every random draw came from.
    pub seed: u64,
    /// Virtual seconds that passed, warm-up included.
    pub seconds: f64,
    /// Of them, the warm-up.
    pub warmup_seconds: f64,
    /// Real seconds that it took.
    pub wall_seconds: f64,
    /// Threads that simulated it at most: one where its network, or the memory allowed, could not be divided.
    #[serde(default)]
    pub threads: u32,
    /// Events.
    pub events: u64,
    /// Packets that crossed a link.
    pub packet_hops: u64,
    /// SHA-256 of every arrival of a packet, where it was asked for: the same for the same scenario and seed.
    pub trace_sha256: Option<String>,
    /// Goodput of all connections together.
    pub goodput: f64,
    /// Jain's index of their goodputs; null of fewer than two.
    pub fairness: Option<f64>,
    /// TCP connections.
    pub flows: Vec<SimFlow>,
    /// Open-loop sources.
    pub sources: Vec<SimSource>,
    /// Processors of hosts.
    pub processors: Vec<SimProcessor>,
    /// Both directions of each link.
    pub links: Vec<SimLink>,
    /// Packets for which there was no route.
    pub misdirected: u64,
    /// Laws of conservation and causality that do not hold: a bug of plumb, if ever there is any.
    pub violations: Vec<String>,
}

/// One TCP connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimFlow {
    /// The name of its group.
    pub name: String,
    /// The sending host.
    pub from: String,
    /// The receiving host.
    pub to: String,
    /// Congestion control.
    pub congestion: String,
    /// When it was opened, in seconds.
    pub start_seconds: f64,
    /// When everything had arrived, or it was aborted; null while it sends.
    pub end_seconds: Option<f64>,
    /// Why it failed.
    pub error: Option<String>,
    /// Bits a second received in sequence.
    pub goodput: f64,
    /// Bytes received in sequence.
    pub received_bytes: u64,
    /// Segments sent, retransmissions included.
    pub segments: u64,
    /// Segments retransmitted.
    pub retransmits: u64,
    /// Retransmission timeouts.
    pub timeouts: u64,
    /// Fast recoveries.
    pub recoveries: u64,
    /// Reductions for congestion marks.
    pub marks: u64,
    /// Mean of the smoothed round trip over samples, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Least round trip, in milliseconds, warm-up included.
    pub rtt_ms_min: Option<f64>,
    /// Median from when a write was due until it had been read, in milliseconds, where the bytes of writes at a rate end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms_p50: Option<f64>,
    /// Its 99th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms_p99: Option<f64>,
    /// Over time; empty where there are too many connections.
    pub series: Vec<SimFlowSample>,
}

/// A connection at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimFlowSample {
    /// Seconds since the beginning.
    pub at: f64,
    /// Congestion window, in bytes.
    pub cwnd: u64,
    /// Bytes in flight.
    pub flight: u64,
    /// Smoothed round trip, in milliseconds.
    pub rtt_ms: Option<f64>,
    /// Bytes received in sequence so far.
    pub received_bytes: u64,
}

/// An open-loop source.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimSource {
    /// Its name.
    pub name: String,
    /// The sending host.
    pub from: String,
    /// The receiving host.
    pub to: String,
    /// How many sources these figures are of: those of a name are one where there are more than a thousand.
    pub count: u64,
    /// Bits a second sent.
    pub sent: f64,
    /// Bits a second received.
    pub received: f64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets received.
    pub packets_received: u64,
    /// One-way delay, in milliseconds: the middle.
    pub delay_ms_p50: f64,
    /// The same, of 99 in 100 at most.
    pub delay_ms_p99: f64,
    /// The longest.
    pub delay_ms_max: f64,
}

/// The processor of a host, over the whole simulation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimProcessor {
    /// Its host.
    pub host: String,
    /// Share of time that it was busy.
    pub busy: f64,
    /// Interrupts.
    pub interrupts: u64,
    /// Packets received.
    pub received: u64,
    /// Packets sent.
    pub sent: u64,
    /// Packets that found the ring full.
    pub dropped: u64,
}

/// One direction of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SimLink {
    /// `router1 > router2`.
    pub name: String,
    /// What it is, as text.
    pub asked: String,
    /// Share of its rate that was used; null where it has none.
    pub utilisation: Option<f64>,
    /// Packets that entered.
    pub packets_in: u64,
    /// Packets that left.
    pub packets_out: u64,
    /// Bytes that left, overhead included.
    pub bytes_out: u64,
    /// Packets that went no further.
    pub discarded: u64,
    /// The same by reason, over the whole simulation; what is zero is left out.
    pub discards: BTreeMap<String, u64>,
    /// Share of packets that went no further.
    pub loss: f64,
    /// Packets marked "congestion experienced".
    pub marked: u64,
    /// Packets that waited on average, over time.
    pub queue_mean: f64,
    /// The most that a packet found.
    pub queue_max: u64,
    /// How long packets waited, in milliseconds: the middle.
    pub wait_ms_p50: f64,
    /// The same, of 99 in 100 at most.
    pub wait_ms_p99: f64,
    /// Packets that waited, over time in seconds; empty where there are too many links.
    pub queue: Vec<(f64, u64)>,
}

/// The name of the shape of [`CongestionDocument`].
pub const CONGESTION_SCHEMA: &str = "plumb.congestion/1";

/// The questions of RFC 9743 about a congestion control.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CongestionDocument {
    /// Always `plumb.congestion/1`.
    pub schema: String,
    /// The congestion control.
    pub congestion: String,
    /// Those that it is compared with.
    pub standards: Vec<String>,
    /// What every random draw came from.
    pub seed: u64,
    /// Real seconds that it took.
    pub wall_seconds: f64,
    /// The answers.
    pub findings: Vec<CongestionAnswer>,
    /// Questions that are not answered: their sections, and why.
    pub unanswered: Vec<(String, String)>,
}

/// One answer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CongestionAnswer {
    /// Section of RFC 9743.
    pub section: String,
    /// What it is about.
    pub topic: String,
    /// What was measured.
    pub measure: String,
    /// Its unit.
    pub unit: String,
    /// `higher` or `lower`.
    pub better: String,
    /// With this congestion control.
    pub value: f64,
    /// With each of the standards in its place.
    pub standards: Vec<f64>,
    /// Whether it is worse by a quarter than with all of them.
    pub look: bool,
}
