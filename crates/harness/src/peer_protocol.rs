//! What worker and peer send each other outside timed regions.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::report::{CpuUsage, LaunchFault};
use crate::spec::{ChannelSpec, MirrorSpec, PeerContext};

/// What the worker says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum WorkerToPeer {
    /// Take over the far end.
    Attach(Box<AttachPeer>),
    /// Begin a task.
    Begin(PeerTask),
    /// End.
    Quit,
}

/// All that a peer needs to take over its end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct AttachPeer {
    /// The end.
    pub(crate) end: PeerEnd,
    /// Inherited descriptors by number.
    pub(crate) fds: Vec<i32>,
    /// The shared page's descriptor.
    pub(crate) page_fd: i32,
    /// Where it runs.
    pub(crate) context: PeerContext,
}

/// What a peer takes over.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum PeerEnd {
    /// The other end of a channel.
    Channel {
        /// The channel.
        channel: ChannelSpec,
        /// Numbers handed over.
        numbers: Vec<i64>,
        /// Whether the worker is on another host: then no counter is shared with it.
        is_remote: bool,
    },
    /// The mirror's side of a test bed.
    Mirror {
        /// What it is.
        mirror: MirrorSpec,
        /// The interface at its side, where there is one.
        interface: String,
        /// Its link address.
        mac: [u8; 6],
        /// The client's link address.
        client_mac: [u8; 6],
        /// Where it answers.
        local: SocketAddr,
        /// Who asks.
        client: SocketAddr,
    },
}

/// What the peer does in a task until it is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PeerTask {
    /// Its part.
    pub(crate) role: PeerRole,
    /// Message size in bytes.
    pub(crate) size: u64,
    /// Acknowledgement size in bytes.
    pub(crate) ack: u64,
    /// How long it is not to be interrupted.
    pub(crate) quiet_ns: u64,
}

/// The peer's part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PeerRole {
    /// Send every message back.
    Echo,
    /// Take transfers of as many messages as the page says; acknowledge each.
    Sink,
    /// Answer every message with its first byte; lossy channels only.
    Ack,
    /// Send messages, one after another, until the page says stop; the last begins with a one.
    Source,
    /// Take one transfer and check every message of it.
    Check,
    /// Mirror frames from memory, and time it.
    Replay {
        /// Whether payloads must have left the caches.
        cold: bool,
        /// Wall time to aim at.
        duration_ns: u64,
        /// Most samples.
        samples_max: u32,
    },
}

/// What the peer says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum PeerToWorker {
    /// The channel's other end is made; or why not.
    Attached(Result<(), LaunchFault>),
    /// Something broke in a task.
    Failed(String),
    /// CPU clocks are read; the task has begun.
    Armed,
    /// The task is over.
    Done(Box<PeerReport>),
}

/// What the peer saw of a task.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerReport {
    /// CPU time.
    pub(crate) cpu: CpuUsage,
    /// What its end counted.
    pub(crate) counters: Vec<(String, u64)>,
    /// Messages checked: whole, in place, for the first time.
    pub(crate) delivery: DeliveryCounts,
    /// What it timed itself, in nanoseconds.
    pub(crate) times: Vec<(String, Vec<f64>)>,
}

/// What became of messages that were checked one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeliveryCounts {
    /// Messages that came, whatever their state.
    pub(crate) arrived: u64,
    /// Of these, those that had come before.
    pub(crate) duplicated: u64,
    /// Those that came after a later one.
    pub(crate) reordered: u64,
    /// Those whose content was wrong.
    pub(crate) corrupted: u64,
}
