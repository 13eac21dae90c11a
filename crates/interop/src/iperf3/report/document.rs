//! The parts of iperf3's document, member by member.
//!
//! Left out: the document itself and its figures, and how they are filled in ([`super`]).

use serde::Serialize;

use super::Iperf3Summary;

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
