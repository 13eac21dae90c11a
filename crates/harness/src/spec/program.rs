//! Blocks that the program carries out itself: a drawing on a structured display, a simulation, a transfer over plumb's TCP.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A drawing, which is repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DisplaySpec {
    /// Its name.
    pub drawing: String,
    /// The name of the mode that it is drawn in.
    pub mode: String,
    /// What lies between client and display.
    pub path: DisplayPath,
}

/// What lies between a client and a display.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DisplayPath {
    /// In real time on this host: the name of a local path.
    Local(String),
    /// None: what the drawing takes of the display's memory.
    Memory,
    /// In virtual time, a link of this text.
    Virtual {
        /// The link.
        link: String,
        /// How long the processors of client and display take, in percent of this one.
        slower_percent: [u64; 2],
        /// Whether both share the client's processor.
        is_shared: bool,
        /// Nanoseconds of this processor that the client computes for each item that it adds.
        #[serde(default)]
        item_ns: u32,
    },
}

/// An experiment at one setting, to be simulated with a seed of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SimulationSpec {
    /// Id of the experiment.
    pub experiment: String,
    /// The level of each factor, as text.
    pub levels: BTreeMap<String, String>,
}

impl SimulationSpec {
    /// The level of a factor; empty where it has none.
    pub fn level(&self, factor: &str) -> &str {
        self.levels.get(factor).map_or("", String::as_str)
    }
}

/// A transfer, which is repeated with other seeds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransferSpec {
    /// What lies between both ends.
    pub path: TransferPath,
    /// What is sent.
    pub load: TransferLoad,
    /// How TCP works, at every end that is plumb's.
    pub tcp: TransferTcp,
}

/// What lies between the ends of a transfer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TransferPath {
    /// A link of this text, in virtual time: hosts take none.
    Virtual(String),
    /// Memory, in real time: both hosts in one thread.
    Memory,
    /// A TAP, in real time, with Linux's TCP at the other side.
    Tap {
        /// Whether plumb sends, and Linux receives.
        sends: bool,
        /// Share of frames that are lost each way, in parts per million.
        loss_ppm: u32,
    },
}

/// What is sent, and how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransferLoad {
    /// A file, as fast as it is taken and read.
    Bulk {
        /// Its bytes.
        bytes: u64,
        /// Bytes of each write.
        write: u32,
        /// What each write costs the application beside.
        entry: StackEntry,
    },
    /// Lines at their times: what a terminal shows.
    Lines {
        /// How many.
        count: u32,
        /// Bytes of each.
        line: u32,
        /// From one to the next.
        interval_ns: u64,
    },
    /// Lines as fast as they are taken, read one at an interval.
    SlowReader {
        /// How many.
        count: u32,
        /// Bytes of each.
        line: u32,
        /// Bytes of each read.
        read: u32,
        /// From one read to the next.
        interval_ns: u64,
    },
}

/// How an application calls the stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StackEntry {
    /// As a function.
    Call,
    /// As a server in a thread of its own: Send, Receive, Reply.
    Message,
}

/// Deliberate changes to TCP's behavior.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferTcp {
    /// As it was before 1988: a constant window, no SACK, loss noticed by the timer only.
    pub is_early: bool,
    /// Its defects.
    pub defects: Vec<TransferDefect>,
    /// A retransmission timeout that is always this long.
    pub fixed_rto_ns: Option<u64>,
    /// Every segment is acknowledged at once.
    pub prompt_acks: bool,
    /// Bytes of an IP packet, at most.
    pub packet: Option<u16>,
    /// Buffers of the receiver, one size; else the window grows as TCP has it.
    pub receive_buffer: Option<u32>,
    /// Packet buffers of the receiving host.
    pub packet_buffers: PacketBufferPolicy,
}

/// A defect of an implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TransferDefect {
    /// A timeout retransmits all that is unacknowledged.
    RetransmitAll,
    /// Segments out of order are discarded.
    DiscardOutOfOrder,
    /// Retransmissions are measured as if they were originals.
    MeasureRetransmissions,
    /// Every opening of the window is announced, and used, however small.
    SillyWindow,
    /// Loss is noticed by timeouts only.
    TimeoutOnly,
    /// Every segment is acknowledged twice.
    DuplicateAcks,
}

/// How a receiving host keeps packets until they are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PacketBufferPolicy {
    /// Not at all: bytes go into the connection's ring at once.
    #[default]
    Ring,
    /// In buffers of one size, which were there from the start.
    Fixed,
    /// The same, with a window for packets as long as is expected of the application.
    Hinted,
    /// The same, and partly filled ones are copied together.
    Compacted,
    /// In buffers of the smallest of several sizes that is enough.
    Sized,
    /// In buffers from a free list, which grows and shrinks by chunks: as many buffers as a connection needs.
    Chunks,
    /// The same, by a quarter as many.
    SmallChunks,
    /// The same, by four times as many.
    LargeChunks,
    /// In memory from the general allocator, packet by packet.
    Malloc,
}

names!(TransferDefect {
    RetransmitAll = "go-back-n",
    DiscardOutOfOrder = "discards-out-of-order",
    MeasureRetransmissions = "measures-retransmissions",
    SillyWindow = "silly-window",
    TimeoutOnly = "timeouts-only",
    DuplicateAcks = "duplicate-acks",
});

names!(PacketBufferPolicy {
    Ring = "ring",
    Fixed = "fixed",
    Hinted = "hinted",
    Compacted = "compacted",
    Sized = "sized",
    Chunks = "chunks",
    SmallChunks = "small-chunks",
    LargeChunks = "large-chunks",
    Malloc = "malloc",
});
