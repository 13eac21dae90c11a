//! iperf3's document with what plumb adds to it, `plumb.iperf3/1`.
//!
//! All members that iperf3 has are there with iperf3's meaning, and are its to describe.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::words;

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.iperf3/1";

words! {
    /// A side of a test.
    #[derive(Default)]
    Iperf3Side {
        /// It asked for the test.
        #[default]
        Client = "client",
        /// It was asked.
        Server = "server",
    }
}

/// A test of iperf3's protocol: what `iperf3 --json` prints, and exact counts beside it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Iperf3Document {
    /// Always `plumb.iperf3/1`.
    pub schema: &'static str,
    /// The title that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The text that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub extra_data: Option<String>,
    /// What was agreed on, as iperf3 has it.
    #[schemars(with = "Value")]
    pub start: Iperf3Start,
    /// One by one, as iperf3 has them.
    #[schemars(with = "Vec<Value>")]
    pub intervals: Vec<Iperf3IntervalReport>,
    /// Totals, as iperf3 has them.
    #[schemars(with = "Value")]
    pub end: Iperf3End,
    /// The server's own report, where it is JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_output_json: Option<Value>,
    /// The server's own report, where it is text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_output_text: Option<Value>,
    /// Why it ended early: then the rest is what there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What iperf3 does not say: exact counts of this side, and of the other where it is plumb.
    pub plumb: Iperf3Counts,
}

/// Exact counts of one side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Iperf3Counts {
    /// Program and version of that side.
    pub version: String,
    /// That side.
    pub role: Iperf3Side,
    /// One entry a stream.
    pub streams: Vec<Iperf3StreamCounts>,
    /// Processor time of the program, in seconds.
    pub cpu_user_s: f64,
    /// Processor time of the kernel for it, in seconds.
    pub cpu_system_s: f64,
    /// Whether there were more intervals than are kept.
    pub intervals_truncated: bool,
    /// Other tests of the same server meanwhile; of a server only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overlap: Option<Iperf3Overlap>,
    /// The same of the other side, where that is plumb.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drained: Option<bool>,
    /// Datagrams sent or received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    /// Datagrams that never came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<u64>,
    /// Datagrams that came after a later one, each counted once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_of_order: Option<u64>,
    /// Datagrams that had come before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duplicates: Option<u64>,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
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

/// What was agreed on.
#[derive(Clone, Debug, Serialize)]
pub struct Iperf3Start {
    /// Streams with their addresses.
    pub connected: Vec<Iperf3Connected>,
    /// This program.
    pub version: String,
    /// This system.
    pub system_info: String,
    /// When it began.
    pub timestamp: Iperf3Timestamp,
    /// The server, of a client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connecting_to: Option<Iperf3Endpoint>,
    /// The client, of a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accepted_connection: Option<Iperf3Endpoint>,
    /// What every connection of it began with.
    pub cookie: String,
    /// The largest segment that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_mss: Option<u32>,
    /// The largest segment that there is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_mss_default: Option<u32>,
    /// Bits a second of each stream; 0 is without limit.
    pub target_bitrate: u64,
    /// Bits a second at which the kernel paces each stream; 0 is not at all.
    pub fq_rate: u64,
    /// Bytes of socket buffers that were asked for; 0 is the system's choice.
    pub sock_bufsize: u32,
    /// Bytes of the send buffer.
    pub sndbuf_actual: u32,
    /// Bytes of the receive buffer.
    pub rcvbuf_actual: u32,
    /// The test.
    pub test_start: Iperf3TestStart,
}

/// A stream's addresses.
#[derive(Clone, Debug, Serialize)]
pub struct Iperf3Connected {
    /// Number of its socket.
    pub socket: u32,
    /// This side's address.
    pub local_host: String,
    /// This side's port.
    pub local_port: u16,
    /// The other side's address.
    pub remote_host: String,
    /// The other side's port.
    pub remote_port: u16,
}

/// A moment.
#[derive(Clone, Debug, Serialize)]
pub struct Iperf3Timestamp {
    /// In words.
    pub time: String,
    /// In seconds since 1970.
    pub timesecs: u64,
    /// In milliseconds since 1970.
    pub timemillisecs: u64,
}

/// Where a control connection goes, or comes from.
#[derive(Clone, Debug, Serialize)]
pub struct Iperf3Endpoint {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// The test that was agreed on.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub struct Iperf3TestStart {
    pub protocol: &'static str,
    pub num_streams: u32,
    pub blksize: u32,
    pub omit: u32,
    pub duration: u32,
    pub bytes: u64,
    pub blocks: u64,
    pub reverse: u8,
    pub tos: u8,
    pub target_bitrate: u64,
    pub bidir: u8,
    pub fqrate: u64,
    pub interval: f64,
    pub gso: u8,
    pub gro: u8,
}

/// All streams during one interval.
#[derive(Clone, Debug, Serialize)]
pub struct Iperf3IntervalReport {
    /// One by one.
    pub streams: Vec<Iperf3Summary>,
    /// Together.
    pub sum: Iperf3Summary,
    /// Together, of the streams in the other direction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_bidir_reverse: Option<Iperf3Summary>,
}

/// Totals.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub struct Iperf3End {
    pub streams: Vec<Iperf3EndStream>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum: Option<Iperf3Summary>,
    pub sum_sent: Iperf3Summary,
    pub sum_received: Iperf3Summary,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_bidir_reverse: Option<Iperf3Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_sent_bidir_reverse: Option<Iperf3Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sum_received_bidir_reverse: Option<Iperf3Summary>,
    pub cpu_utilization_percent: Iperf3CpuUtilization,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender_tcp_congestion: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver_tcp_congestion: Option<String>,
}

/// Processor time over wall time, in percent.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub struct Iperf3CpuUtilization {
    pub host_total: f64,
    pub host_user: f64,
    pub host_system: f64,
    pub remote_total: f64,
    pub remote_user: f64,
    pub remote_system: f64,
}

/// One stream's totals: of both its sides, or of its datagrams.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Iperf3EndStream {
    /// What was sent, of TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sender: Option<Iperf3Summary>,
    /// What was received, of TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receiver: Option<Iperf3Summary>,
    /// Both, of UDP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub udp: Option<Iperf3Summary>,
}

/// Figures of a stream, or of several.
#[derive(Clone, Debug, Default, Serialize)]
#[expect(missing_docs, reason = "the names are the format's own")]
pub struct Iperf3Summary {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket: Option<u32>,
    pub start: f64,
    pub end: f64,
    pub seconds: f64,
    pub bytes: u64,
    pub bits_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retransmits: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snd_cwnd: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snd_wnd: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rttvar: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pmtu: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reorder: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_snd_cwnd: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_snd_wnd: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rtt: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_rtt: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_rtt: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_packets: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packets: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_percent: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub out_of_order: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub omitted: Option<bool>,
    pub sender: bool,
}

impl Iperf3Summary {
    /// Of so many bytes between two moments.
    pub fn of(start: f64, end: f64, bytes: u64, sender: bool) -> Self {
        let seconds = (end - start).max(0.0);
        let bits_per_second = if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 };
        Self { start, end, seconds, bytes, bits_per_second, sender, ..Self::default() }
    }

    /// With what a receiver of datagrams knows.
    #[must_use]
    pub fn with_datagrams(mut self, packets: u64, lost: i64, jitter_s: f64) -> Self {
        let share = if packets > 0 { 100.0 * lost as f64 / packets as f64 } else { 0.0 };
        self.jitter_ms = Some(jitter_s * 1e3);
        self.lost_packets = Some(lost);
        self.packets = Some(packets);
        self.lost_percent = Some(share);
        self
    }
}
