//! What plumb adds to iperf3's document, `plumb.iperf3/1`.
//!
//! All members that iperf3 has are there with iperf3's meaning, and are its to describe. Left out: those, but for
//! their being there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.iperf3/1";

/// A test of iperf3's protocol: what `iperf3 --json` prints, and exact counts beside it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3Document {
    /// Always `plumb.iperf3/1`.
    pub schema: String,
    /// What was agreed on, as iperf3 has it.
    pub start: Value,
    /// One by one, as iperf3 has them.
    pub intervals: Vec<Value>,
    /// Totals, as iperf3 has them.
    pub end: Value,
    /// Why it ended early, as iperf3 has it: then the rest is what there is.
    pub error: Option<String>,
    /// What iperf3 does not say.
    pub plumb: Iperf3Counts,
}

/// Exact counts of one side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3Counts {
    /// Program and version of that side.
    pub version: String,
    /// `client` or `server`.
    pub role: String,
    /// One entry a stream.
    pub streams: Vec<Iperf3StreamCounts>,
    /// Processor time of the program, in seconds.
    pub cpu_user_s: f64,
    /// Processor time of the kernel for it, in seconds.
    pub cpu_system_s: f64,
    /// Whether there were more intervals than are kept.
    pub intervals_truncated: bool,
    /// Other tests of the same server meanwhile; of a server only.
    pub overlap: Option<Iperf3Overlap>,
    /// The same of the other side, where that is plumb.
    pub remote: Option<Box<Self>>,
}

/// Exact counts of one stream at one end.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3StreamCounts {
    /// Its number, the same on both sides.
    pub id: u32,
    /// Its socket in the rest of the document.
    pub socket: u32,
    /// Whether this end sent.
    pub sender: bool,
    /// Bytes sent or received.
    pub bytes: u64,
    /// Whether a receiver came to the end of what was sent.
    pub drained: Option<bool>,
    /// Datagrams sent or received.
    pub packets: Option<u64>,
    /// Datagrams that never came.
    pub lost: Option<u64>,
    /// Datagrams that came after a later one, each counted once.
    pub out_of_order: Option<u64>,
    /// Datagrams that had come before.
    pub duplicates: Option<u64>,
    /// What went wrong.
    pub trouble: Option<String>,
}

/// Other tests that a server ran at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3Overlap {
    /// How many there were.
    pub tests: u32,
    /// Time during which there was at least one, in seconds.
    pub seconds: f64,
}
