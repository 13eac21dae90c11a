//! What was measured between two hosts, `plumb.net/1`.
//!
//! Every number's name ends in its unit, or it is a count or a share.

use std::collections::BTreeMap;

use plumb_base::stats::histogram::Histogram;
use plumb_base::stats::quantile::{self, samples_needed};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words;

mod reading;
mod summary;
pub use reading::{
    DatagramSample, HostReading, NetConnectionSample, NetDatagramSample, NetHostSample,
};
pub use summary::{LatencySummary, LoadSummary, NetOutage, NetProbeInterval, NetSummary};

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.net/1";

words! {
    /// How a measurement or a phase ended.
    #[derive(Default)]
    NetEnding {
        /// As planned.
        #[default]
        Complete = "complete",
        /// Its user stopped it.
        Stopped = "stopped",
        /// Something broke.
        Partial = "partial",
    }
}

words! {
    /// A direction, as this host sees it.
    #[derive(Default)]
    Direction {
        /// From here to there.
        #[default]
        Up = "up",
        /// From there to here.
        Down = "down",
    }
}

impl Direction {
    /// Up, or else down.
    pub const fn of(is_up: bool) -> Self {
        if is_up { Self::Up } else { Self::Down }
    }

    /// The sides of the sender and the receiver.
    pub const fn sides(self) -> [Side; 2] {
        match self {
            Self::Up => [Side::Here, Side::There],
            Self::Down => [Side::There, Side::Here],
        }
    }
}

words! {
    /// A side of a measurement.
    #[derive(Default)]
    Side {
        /// This host.
        #[default]
        Here = "here",
        /// The other host.
        There = "there",
    }
}

words! {
    /// What a phase measures.
    #[derive(Default)]
    PhaseName {
        /// Probes alone.
        #[default]
        Idle = "idle",
        /// Bulk TCP from there to here.
        Down = "down",
        /// Bulk TCP from here to there.
        Up = "up",
        /// Bulk TCP in both directions at once.
        Both = "both",
        /// Paced datagrams from there to here.
        UdpDown = "udp-down",
        /// Paced datagrams from here to there.
        UdpUp = "udp-up",
        /// Paced datagrams in both directions at once.
        UdpBoth = "udp-both",
        /// Requests and responses over TCP.
        ExchangeTcp = "exchange tcp",
        /// Requests and responses over UDP.
        ExchangeUdp = "exchange udp",
        /// Requests and responses over TLS.
        ExchangeTls = "exchange tls",
        /// Requests and responses over QUIC.
        ExchangeQuic = "exchange quic",
    }
}

words! {
    /// Whose count a rate is.
    #[derive(Default)]
    CountedBy {
        /// The receiver's.
        #[default]
        Receiver = "receiver",
        /// The sender's: the receiver's was lost.
        Sender = "sender",
        /// There is no rate: the phase ended before the time that counts.
        Nobody = "nobody",
    }
}

words! {
    /// Why a receiver of datagrams ended.
    #[derive(Default)]
    ReceiveEnding {
        /// Its report was lost.
        #[default]
        Unknown = "",
        /// Everything that was sent came.
        Complete = "complete",
        /// The sender ended, and nothing more came for the grace period.
        Grace = "grace",
        /// Nothing came any more, and no end either.
        Idle = "idle",
        /// The time allowed was over.
        Deadline = "deadline",
        /// It was told to.
        Stopped = "stopped",
    }
}

words! {
    /// What requests and responses go over.
    #[derive(Default)]
    RequestTransport {
        /// TCP as it is.
        #[default]
        Tcp = "tcp",
        /// TLS 1.3 over TCP.
        Tls = "tls",
        /// QUIC.
        Quic = "quic",
        /// UDP as it is.
        Udp = "udp",
    }
}

impl RequestTransport {
    /// What it is called in text.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Tls => "TLS 1.3",
            Self::Quic => "QUIC",
            Self::Udp => "UDP",
        }
    }
}

words! {
    /// When requests are sent.
    #[derive(Default)]
    RequestOrder {
        /// Each after the response to the one before.
        #[default]
        Closed = "closed",
        /// At even times, whatever comes back.
        Open = "open",
        /// Each over a connection of its own.
        Connect = "connect",
    }
}

/// One measurement between two hosts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetDocument {
    /// Always `plumb.net/1`.
    pub schema: String,
    /// The run in the store that holds it; null where it was not stored.
    pub run: Option<String>,
    /// When it began, in milliseconds since 1970 UTC.
    pub created_unix_ms: i64,
    /// The host as it was asked for.
    pub asked: String,
    /// The address that data went to.
    pub address: String,
    /// How it ended.
    pub ended: NetEnding,
    /// What broke, and what to do about it.
    pub problems: Vec<String>,
    /// What a reader must know.
    pub flags: Vec<String>,
    /// Times in which nothing came through.
    #[serde(default)]
    pub outages: Vec<NetOutage>,
    /// What was found, over all rounds; null in documents of before it was kept.
    #[serde(default)]
    pub summary: Option<NetSummary>,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// This host.
    pub here: NetHost,
    /// The other host.
    pub there: NetHost,
    /// Whether both are one machine, so that times of the whole host are of both sides.
    pub same_machine: bool,
    /// How the two clocks relate; null where nothing is known.
    pub clocks: Option<ClockSummary>,
    /// The longest packet that arrives from here there; null where it was not looked for.
    pub mtu: Option<MtuResult>,
    /// One entry for each phase, in the order they were measured.
    pub phases: Vec<NetPhase>,
}

/// What a host is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetHost {
    /// Its name.
    pub name: String,
    /// The version of plumb there.
    pub program: String,
    /// Its kernel's release.
    pub kernel: String,
    /// Its processor's model.
    pub processor: String,
    /// Processors that plumb may use there.
    pub cpus: u32,
    /// Settings of its network: `tcp.congestion`, `tcp.rmem`, `tcp.wmem`, `qdisc`.
    pub settings: BTreeMap<String, String>,
}

/// How the clocks of the two hosts relate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockSummary {
    /// Whether both sides read one clock, so that nothing had to be estimated.
    pub same: bool,
    /// Their clock less ours at the beginning, in nanoseconds.
    pub offset_ns: f64,
    /// The offset is nowhere further than this from what is said: half of the smallest round trip, or more.
    pub bound_ns: f64,
    /// By how much their clock gains, in parts per million.
    pub drift_ppm: f64,
    /// Times that a clock was set meanwhile.
    pub steps: u64,
    /// Exchanges that this rests on.
    pub exchanges: u64,
}

/// The longest packet that arrives, found out by packets that are not fragmented.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MtuResult {
    /// Bytes of the longest IP packet that arrives; null where that was not found out.
    pub path_bytes: Option<u64>,
    /// Bytes of the longest IP packet that was seen to arrive: the path may take longer ones where `path_bytes` is null.
    #[serde(default)]
    pub arrived_bytes: Option<u64>,
    /// Bytes of a datagram's data in the longest packet.
    pub payload_bytes: Option<u64>,
    /// What this host's kernel believes of the path afterwards; null where it does not say.
    pub kernel_bytes: Option<u64>,
    /// Whether this host's own interface takes no longer one.
    pub limited_here: bool,
    /// Whether a router said that a packet was too long.
    pub told_by_router: bool,
    /// Lengths on which nobody said anything.
    pub silent: u64,
    /// Packets sent to find out.
    pub probes: u64,
    /// Why it was not found out.
    pub problem: Option<String>,
    /// How long it took, which the store keeps.
    #[serde(skip)]
    pub seconds: f64,
}

/// One phase: everything that was measured at the same time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetPhase {
    /// What it measures.
    pub name: PhaseName,
    /// Which repetition, from 0.
    pub round: u32,
    /// Time that counts, in seconds.
    pub seconds: f64,
    /// Time before it that was measured but does not count.
    pub warm_up_seconds: f64,
    /// How it ended.
    pub ended: NetEnding,
    /// Bulk TCP: one entry a direction.
    pub flows: Vec<NetBulkFlow>,
    /// Datagrams at a paced rate: one entry a direction.
    #[serde(default)]
    pub datagrams: Vec<NetDatagrams>,
    /// Round trips of small datagrams at a fixed rate; null without them.
    pub probes: Option<NetProbes>,
    /// Requests and responses; null without them.
    pub exchange: Option<NetRequestResponse>,
    /// Processor time on this side in the time that counts; null where it is not known.
    pub cpu_here: Option<NetCpu>,
    /// The same on the other side.
    pub cpu_there: Option<NetCpu>,
    /// What the kernel's counters grew by on this side, in the whole phase.
    pub counters_here: BTreeMap<String, u64>,
    /// The same on the other side.
    pub counters_there: BTreeMap<String, u64>,
    /// Other tests that the agent ran meanwhile.
    pub overlapping_tests: u32,
    /// Time shared with them, in seconds.
    pub overlapping_seconds: f64,
    /// Readings of the connections, at every interval and on both sides.
    pub evidence: Vec<NetConnectionSample>,
    /// Readings of the streams of datagrams, likewise.
    #[serde(default)]
    pub datagram_evidence: Vec<NetDatagramSample>,
    /// Readings of both hosts, at the same moments.
    #[serde(default)]
    pub host_evidence: Vec<NetHostSample>,
}

/// Where the thread of a connection ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadPlacement {
    /// The CPU that took in the flow's packets when the thread was seated; null where the kernel did not say, or the
    /// test ended before.
    pub served_by: Option<u32>,
    /// The kernel's number of the device's receive queue that the packets came by; null where it has none, as between
    /// two namespaces.
    pub queue: Option<u32>,
    /// The CPUs that the thread was bound to for that; empty where it was left to the scheduler.
    pub bound_to: Vec<u32>,
    /// Connections that the thread served, this one included: more than one where there are more of them than CPUs.
    #[serde(default)]
    pub served: u32,
}

/// Bulk TCP in one direction.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetBulkFlow {
    /// Which way.
    pub direction: Direction,
    /// Connections.
    pub streams: u32,
    /// The senders' congestion control.
    pub congestion: String,
    /// Whose count the rate is.
    pub counted_by: CountedBy,
    /// Bytes that arrived in the time that counts.
    pub bytes: u64,
    /// That time as the counting side measured it, in seconds.
    pub seconds: f64,
    /// Bytes a second that arrived.
    pub bytes_per_second: f64,
    /// The same for every interval, with those of the warm-up.
    pub intervals: Vec<NetInterval>,
    /// Bytes a second of each connection.
    pub streams_bytes_per_second: Vec<f64>,
    /// Socket buffers that were asked for; null where the kernels were left to tune them.
    pub window_bytes: Option<u64>,
    /// The smallest send buffer of the senders at the end, as their kernel keeps it: twice what it took of what was asked
    /// for; null where their report was lost.
    pub send_buffer_bytes: Option<u64>,
    /// The smallest receive buffer of the receivers, likewise.
    pub receive_buffer_bytes: Option<u64>,
    /// Where the senders' threads ran, one entry for each connection; empty where their report was lost.
    pub sender_seats: Vec<ThreadPlacement>,
    /// The same of the receivers' threads.
    pub receiver_seats: Vec<ThreadPlacement>,
    /// All bytes that the senders handed to their kernel.
    pub sent_bytes_total: u64,
    /// All bytes that the receivers took, with the warm-up and what came after the end.
    pub received_bytes_total: u64,
    /// Whether every receiver came to the end of its stream.
    pub drained: bool,
    /// Segments sent again in the time that counts.
    pub retransmitted_segments: u64,
    /// Bytes sent again.
    pub retransmitted_bytes: u64,
    /// Bytes of a segment's data.
    pub mss_bytes: u32,
    /// The smallest round trip that the senders' kernel saw, in nanoseconds.
    pub rtt_min_ns: f64,
    /// The mean of its smoothed round trips.
    pub rtt_mean_ns: f64,
    /// What the senders waited for; null where the senders' report was lost.
    pub waits: Option<SenderLimits>,
    /// What a byte that arrived cost.
    #[serde(flatten)]
    pub costs: ByteCosts,
}

/// What a byte of one direction cost both sides in the time that counts, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ByteCosts {
    /// Processor time of the threads that send: of no other thread of plumb's, nor of the other direction's; null where it
    /// is not known.
    #[serde(default)]
    pub sender_cpu_ns_per_byte: Option<f64>,
    /// The same of the threads that receive.
    #[serde(default)]
    pub receiver_cpu_ns_per_byte: Option<f64>,
    /// Time that all processors of the sending host spent in softirqs, for whatever program. What interrupted the
    /// sending threads may be in their time too. Null where both directions share it.
    #[serde(default)]
    pub sender_softirq_ns_per_byte: Option<f64>,
    /// The same of the receiving host.
    #[serde(default)]
    pub receiver_softirq_ns_per_byte: Option<f64>,
}

/// Shares of the time that counts, as the senders' kernel saw them (TCP_INFO); together 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SenderLimits {
    /// Held back by the network: congestion window, pacing, or the device.
    pub network: f64,
    /// Held back by the receiver's window.
    pub receive_window: f64,
    /// Held back by the send buffer.
    pub send_buffer: f64,
    /// Nothing to send: the application was behind.
    pub application: f64,
}

impl SenderLimits {
    /// Of the shares that the kernel counts; its counts and the clock are read one after the other, so what
    /// exceeds the whole is cut.
    pub fn of(busy: f64, receive_window: f64, send_buffer: f64) -> Self {
        let part = |value: f64, most: f64| {
            if value.is_finite() { value.clamp(0.0, most) } else { 0.0 }
        };
        let busy = part(busy, 1.0);
        let receive_window = part(receive_window, busy);
        let send_buffer = part(send_buffer, busy - receive_window);
        Self {
            network: busy - receive_window - send_buffer,
            receive_window,
            send_buffer,
            application: 1.0 - busy,
        }
    }
}

/// The rate of one interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetInterval {
    /// When it began, in seconds since the test began.
    pub from_seconds: f64,
    /// When it ended.
    pub to_seconds: f64,
    /// Bytes a second.
    pub bytes_per_second: f64,
    /// Whether it is of the time that counts.
    pub counts: bool,
}

/// Datagrams at a paced rate in one direction: all of them, with those of the warm-up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetDatagrams {
    /// Which way.
    pub direction: Direction,
    /// Bytes of payload of each.
    pub datagram_bytes: u32,
    /// Bytes of payload a second that were asked for.
    pub asked_bytes_per_second: f64,
    /// Those that were due; null where the sender's report was lost.
    pub planned: Option<u64>,
    /// Those that the sender numbered: what it sent, and what its own queue refused; null where it is not known.
    pub sent: Option<u64>,
    /// Different ones that arrived; null where the receiver's report was lost.
    pub received: Option<u64>,
    /// Time from the first that arrived to the last, in seconds.
    pub seconds: f64,
    /// Bytes of payload a second that arrived in it.
    pub bytes_per_second: f64,
    /// The same for every interval, with those before and after the time that counts.
    pub intervals: Vec<NetInterval>,
    /// Those that were numbered and never arrived; null where either is not known.
    pub lost: Option<u64>,
    /// Their share.
    pub loss: Option<f64>,
    /// Where they were lost; null where either side's report was lost.
    pub lost_at: Option<NetLossLocations>,
    /// Runs of consecutive lost ones.
    pub loss_runs: u64,
    /// The longest of them.
    pub loss_run_max: u64,
    /// Those that came after a later one (RFC 4737).
    pub reordered: u64,
    /// After how many later ones the most belated came.
    pub reordered_extent_max: u64,
    /// Second and further copies.
    pub duplicated: u64,
    /// Those that came too late to be told from copies.
    pub too_old: u64,
    /// Jitter of RFC 3550 at the end, in nanoseconds.
    pub jitter_ns: f64,
    /// One way, by the clocks' estimated offset; null where nothing is known about the clocks.
    pub one_way: Option<OneWayDelay>,
    /// Ninety-nine in a hundred left no later than this after their time, in nanoseconds; null where the sender's
    /// report was lost.
    pub late_p99_ns: Option<f64>,
    /// The latest.
    pub late_max_ns: Option<f64>,
    /// How often the sender's buffer was full, so that it waited; null where its report was lost.
    pub sender_waits: Option<u64>,
    /// Whether the sender ended before all that were due had left.
    pub cut_short: bool,
    /// How the receiver ended.
    pub ending: ReceiveEnding,
    /// What a byte of payload cost: to the sender of those that it sent, to the receiver of those that it received.
    #[serde(flatten)]
    pub costs: ByteCosts,
    /// Processor time of the thread that sends for each datagram, in nanoseconds; null where it is not known.
    #[serde(default)]
    pub sender_cpu_ns_per_datagram: Option<f64>,
    /// The same of the thread that receives.
    #[serde(default)]
    pub receiver_cpu_ns_per_datagram: Option<f64>,
    /// What else the sender saw; null where its report was lost.
    #[serde(default)]
    pub sender: Option<NetDatagramSender>,
    /// What else the receiver saw; null where its report was lost.
    #[serde(default)]
    pub receiver: Option<NetDatagramReceiver>,
}

/// What a sender of datagrams saw beside how many there were.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetDatagramSender {
    /// Half of them left no later than this after their time, in nanoseconds.
    pub late_p50_ns: f64,
    /// Datagrams that leave by one call at this rate.
    pub batch: u64,
    /// Calls.
    pub calls: u64,
    /// Whether the kernel cut calls up into datagrams (UDP_SEGMENT).
    pub segmentation: bool,
    /// The most bytes seen in this host's own queues, as its kernel counts them.
    pub queued_bytes_max: u64,
    /// Refusals by the far host or a router (ICMP).
    pub unreachable: u64,
    /// Whether the receiver said that it heard the end.
    pub end_heard: bool,
}

/// What a receiver of datagrams saw beside what came.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetDatagramReceiver {
    /// Its socket's buffer, as its kernel keeps it: twice what it took of what was asked for.
    pub buffer_bytes: u64,
    /// The buffer that was asked for.
    pub buffer_asked_bytes: u64,
    /// Calls that received something.
    pub calls: u64,
    /// Whether the kernel joined datagrams (UDP_GRO).
    pub joined: bool,
    /// Datagrams that its socket had no room for, copies included; joined ones count once.
    pub overflowed: u64,
    /// Datagrams that were not of this stream.
    pub foreign: u64,
    /// Those with a number that was never to be sent.
    pub impossible: u64,
    /// How many were reordered by 1, 2, 3, 4 to 7, 8 to 15 later ones and so on.
    pub reordered_extents: Vec<u64>,
}

/// Where lost datagrams were lost.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetLossLocations {
    /// Refused by the queue of the sender's own device, or dropped by it later, as far as its count of everybody's packets
    /// grew.
    pub sender_queue: u64,
    /// Between the two sockets.
    pub path: u64,
    /// Without room in the receiver's socket.
    pub receiver_buffer: u64,
    /// Whether the receiver's kernel joined datagrams, so that more of them may have been lost there.
    pub receiver_buffer_at_least: bool,
    /// What the sender's host dropped meanwhile of everybody's packets, by its own counters.
    pub sender_host: BTreeMap<String, u64>,
    /// The same of the receiver's host.
    pub receiver_host: BTreeMap<String, u64>,
}

/// Round trips of small datagrams at a fixed rate.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetProbes {
    /// How many a second.
    pub per_second: u32,
    /// Those that were due in the time that counts.
    pub due: u64,
    /// Those that this host's kernel took.
    pub sent: u64,
    /// Those that were answered in time.
    pub answered: u64,
    /// Those that were sent and not answered in time.
    pub lost: u64,
    /// Of them, those that never came there; null where that is not known.
    pub lost_up: Option<u64>,
    /// Of them, those whose answer did not come.
    pub lost_down: Option<u64>,
    /// Answers that came again.
    pub duplicated: u64,
    /// Answers that came after a later one's.
    pub reordered: u64,
    /// Datagrams for which a socket of this host had no room.
    pub overflowed_here: u64,
    /// The same there.
    pub overflowed_there: Option<u64>,
    /// Sends that this host's kernel refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Time on the path and in both kernels.
    pub path: Option<NetDistribution>,
    /// Time as an application sees that asks at this rate: from when a probe was due until its answer was read.
    pub application: Option<NetDistribution>,
    /// How late probes left.
    pub lateness: Option<NetDistribution>,
    /// Round trips that could follow each other in a minute: a minute over the mean of the shortest 95 in 100.
    pub round_trips_per_minute: Option<f64>,
    /// One way up, by the clocks' estimated offset.
    pub one_way_up: Option<OneWayDelay>,
    /// One way down.
    pub one_way_down: Option<OneWayDelay>,
    /// The probes of each interval in the time that counts.
    #[serde(default)]
    pub intervals: Vec<NetProbeInterval>,
    /// What the answering side saw; null where its report was lost.
    #[serde(default)]
    pub there: Option<ProbeReflectorReport>,
}

/// Probes, as the side that answers saw them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProbeReflectorReport {
    /// Probes that came there, each counted once: this and the next three are of the time that counts.
    pub received: u64,
    /// Probes that came there again.
    pub duplicated: u64,
    /// Probes that came there after a later one.
    pub reordered: u64,
    /// Answers that the kernel there took.
    pub answered: u64,
    /// Datagrams without the test's token, which were not answered, from the beginning on.
    pub strange: u64,
    /// Datagrams that the socket there had no room for.
    #[serde(default)]
    pub overflowed: u64,
}

/// Requests from here, and the other host's responses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetRequestResponse {
    /// Over what.
    pub transport: RequestTransport,
    /// When they were sent.
    pub pacing: RequestOrder,
    /// How many a second were to be sent; null but at `open`.
    pub per_second: Option<u32>,
    /// Bytes of a request.
    pub request_bytes: u32,
    /// Bytes of a response.
    pub response_bytes: u32,
    /// Requests that were due in the time that counts.
    pub due: u64,
    /// Those that were answered.
    pub answered: u64,
    /// Those that were not answered in time: datagrams only.
    pub lost: u64,
    /// The time that counted, in seconds.
    pub seconds: f64,
    /// Requests answered a second.
    pub requests_per_second: f64,
    /// From when a request was due, or at `closed` sent, until its whole response was read.
    pub latency: Option<NetDistribution>,
    /// How late requests left, at `open`.
    pub lateness: Option<NetDistribution>,
    /// Until a connection could be used, its encryption included.
    pub connect: Option<NetDistribution>,
    /// Processor time of the threads that ask for each request, in nanoseconds, without interrupts.
    pub asking_cpu_ns_per_request: Option<f64>,
    /// The same of the thread that answers.
    pub answering_cpu_ns_per_request: Option<f64>,
}

/// Delays of one direction, in nanoseconds: those above the least need no common clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OneWayDelay {
    /// The least, by the estimated offset of the clocks.
    pub least_ns: f64,
    /// The least, and so every other, is not further than this from what is said: the bound on the offset. Zero
    /// where both sides read one clock.
    pub bound_ns: f64,
    /// Half of all are no longer than the least and this.
    pub above_p50_ns: f64,
    /// Nine in ten.
    #[serde(default)]
    pub above_p90_ns: f64,
    /// Ninety-nine in a hundred.
    pub above_p99_ns: f64,
    /// The longest.
    #[serde(default)]
    pub above_max_ns: f64,
}

impl OneWayDelay {
    /// Of delays; `None` without any.
    pub fn of(delays_ns: &[f64], bound_ns: f64) -> Option<Self> {
        let sorted = quantile::sorted(delays_ns);
        let least_ns = *sorted.first()?;
        let above = |p: f64| quantile::of_sorted(&sorted, p) - least_ns;
        Some(Self {
            least_ns,
            bound_ns,
            above_p50_ns: above(0.5),
            above_p90_ns: above(0.9),
            above_p99_ns: above(0.99),
            above_max_ns: above(1.0),
        })
    }
}

/// A distribution of times, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetDistribution {
    /// How many.
    pub n: u64,
    /// The least.
    pub min_ns: f64,
    /// The mean.
    pub mean_ns: f64,
    /// Half are no longer.
    pub p50_ns: f64,
    /// Nine in ten; null where fewer than 36 are too few to say.
    pub p90_ns: Option<f64>,
    /// Ninety-nine in a hundred; null where fewer than 368 are too few to say.
    pub p99_ns: Option<f64>,
    /// 999 in a thousand; null where fewer than 3,688 are too few to say.
    pub p999_ns: Option<f64>,
    /// The longest.
    pub max_ns: f64,
    /// All of them, which the store keeps: HdrHistogram V2.
    #[serde(skip)]
    pub histogram: Vec<u8>,
}

impl NetDistribution {
    /// Of an HdrHistogram V2; `None` where it is empty. What so few cannot tell is not told.
    pub fn of(encoded: &[u8]) -> Option<Self> {
        let histogram =
            Histogram::decode(encoded).ok().filter(|histogram| !histogram.is_empty())?;
        let at = |p: f64| histogram.quantile(p) as f64;
        let told = |p: f64| (histogram.len() >= samples_needed(p, 0.95)).then(|| at(p));
        let sum: f64 = histogram.iter_recorded().map(|(value, n)| value as f64 * n as f64).sum();
        Some(Self {
            n: histogram.len(),
            min_ns: histogram.min() as f64,
            mean_ns: sum / histogram.len() as f64,
            p50_ns: at(0.5),
            p90_ns: told(0.9),
            p99_ns: told(0.99),
            p999_ns: told(0.999),
            max_ns: histogram.max() as f64,
            histogram: encoded.to_vec(),
        })
    }
}

/// Processor time of one side in the time that counts, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetCpu {
    /// That time itself.
    pub wall_seconds: f64,
    /// plumb's process.
    pub process_seconds: f64,
    /// Of it, in user mode.
    pub user_seconds: f64,
    /// Of it, in the kernel.
    pub system_seconds: f64,
    /// All processors of the host, doing anything: of every program there.
    pub host_busy_seconds: f64,
    /// All processors of the host, in softirqs: of every program there.
    pub host_softirq_seconds: f64,
    /// All processors of the host, in interrupts.
    pub host_irq_seconds: f64,
    /// Taken from the host by its hypervisor.
    pub host_steal_seconds: f64,
}
