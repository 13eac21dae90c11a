//! What the orchestrator asks of a worker: one launch and its blocks, as plain data.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::peer_protocol::PeerContext;

mod mechanism;

pub use mechanism::{MESSAGE_SIZE_MAX, Mechanism, MessageShape, MessageSizeError, WakeMode};

/// Everything a launch holds constant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LaunchSpec {
    /// What stands between worker and peer, if anything.
    pub subject: LaunchSubject,
    /// The CPU of the worker; left to the scheduler when absent.
    pub cpu_local: Option<u32>,
    /// The CPU of the peer; left to the scheduler when absent.
    pub cpu_peer: Option<u32>,
    /// Time-stamp counter ticks a nanosecond, or none to use CLOCK_MONOTONIC_RAW.
    pub ticks_per_ns: Option<f64>,
    /// Seed of everything random in this launch (environment size, payloads, ports).
    pub seed: u64,
    /// Deadline of any one block, after which the worker gives up with an error.
    pub deadline_ns: u64,
}

/// What a launch is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LaunchSubject {
    /// The worker alone: clocks, kernel calls, checksums.
    Alone,
    /// A local channel to the peer.
    Channel(ChannelSpec),
    /// A stack that mirrors datagrams, reached over a network device.
    Mirror(MirrorSpec),
    /// A channel to the peer, in another network namespace.
    Remote(Box<RemoteSpec>),
    /// Streams from another process, a thread each at both ends.
    Streams(Box<TcpStreamsSpec>),
    /// A web page, fetched from another process.
    PageLoads(Box<PageLoadSpec>),
}

impl LaunchSubject {
    /// What is crossed, where anything is.
    pub fn path(&self) -> Option<&PathSpec> {
        match self {
            Self::Remote(remote) => Some(&remote.path),
            Self::Streams(streams) => streams.path.as_ref(),
            Self::PageLoads(visits) => visits.path.as_ref(),
            Self::Alone | Self::Channel(_) | Self::Mirror(_) => None,
        }
    }

    /// The other host, where the far process is on one.
    pub fn other_host(&self) -> Option<&HostSpec> {
        match &self.path()?.kind {
            PathKind::Host(host) => Some(host),
            _ => None,
        }
    }

    /// The channel, where it is one.
    pub fn channel(&self) -> Option<&ChannelSpec> {
        match self {
            Self::Channel(channel) => Some(channel),
            Self::Remote(remote) => Some(&remote.channel),
            _ => None,
        }
    }
}

impl LaunchSpec {
    /// The CPUs that neither worker nor peer is bound to; all, where none is left.
    pub(crate) fn spare_cpus(&self, allowed: &[u32]) -> Vec<u32> {
        let taken = [self.cpu_local, self.cpu_peer];
        let left: Vec<u32> =
            allowed.iter().copied().filter(|cpu| !taken.contains(&Some(*cpu))).collect();
        if left.is_empty() { allowed.to_vec() } else { left }
    }

    /// Where a peer on this host runs.
    pub(crate) fn peer_context(&self) -> PeerContext {
        PeerContext { cpu: self.cpu_peer, ticks_per_ns: self.ticks_per_ns, seed: self.seed }
    }
}

/// A channel between two network namespaces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RemoteSpec {
    /// The channel: over sockets.
    pub channel: ChannelSpec,
    /// What it crosses.
    pub path: PathSpec,
}

/// What a remote channel crosses.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathSpec {
    /// What it is called in results.
    pub name: String,
    /// What it is.
    pub kind: PathKind,
    /// MTU of both sides' devices, in bytes; of another host's it is not asked.
    pub mtu: u32,
    /// About how long a small message and its answer take, in nanoseconds.
    pub round_trip_ns: u64,
    /// The slowest rate on it, in bits a second, where any is known.
    pub rate: Option<u64>,
    /// What the devices of a virtual Ethernet do by themselves.
    pub device: DeviceOptions,
}

/// What the devices of a virtual Ethernet do by themselves; what is absent stays as the kernel has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceOptions {
    /// Whether they take segments longer than a packet, as one that cuts them itself does.
    pub segmentation: Option<bool>,
    /// Whether they join the packets that they receive (GRO), which they do in batches (NAPI).
    pub coalescing: Option<bool>,
}

/// What stands between two namespaces, or between two hosts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PathKind {
    /// A virtual Ethernet, and nothing else.
    Veth,
    /// The link that plumb itself runs behind, by its text.
    Outer(String),
    /// An emulated link, by its text.
    Link(String),
    /// So many of Linux's own routers, a namespace each, with a virtual Ethernet between neighbours.
    Routers(u8),
    /// Whatever there is between this host and another real one.
    Host(HostSpec),
}

impl RemoteSpec {
    /// A name for messages and records: `tcp4 over lan-1g`.
    pub fn name(&self) -> String {
        format!("{} over {}", self.channel.mechanism.name(), self.path.name)
    }
}

impl PathSpec {
    /// About how long a message of so many bytes and its answer of as many take, in nanoseconds.
    pub fn exchange_ns(&self, there: u64, back: u64) -> u64 {
        let bits = u128::from(there + back) * 8;
        let sending = self.rate.map_or(0, |rate| bits * 1_000_000_000 / u128::from(rate.max(1)));
        self.round_trip_ns.saturating_add(u64::try_from(sending).unwrap_or(u64::MAX))
    }
}

/// Another host, and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HostSpec {
    /// What it is called.
    pub name: String,
    /// The program, with its arguments, that gives the standard streams of a supervisor there.
    pub command: Vec<String>,
    /// The version that the supervisor must have: this program's.
    pub version: String,
    /// Where its IPv4 sockets are reached; the port does not matter.
    pub v4: Option<SocketAddr>,
    /// Where its IPv6 sockets are.
    pub v6: Option<SocketAddr>,
    /// The CPUs there that its processes may use.
    pub cpus: Vec<u32>,
}

/// A mirror and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MirrorSpec {
    /// Whose stack mirrors.
    pub stack: MirrorStack,
    /// What the frames come through.
    pub device: MirrorDevice,
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// How client and mirror wait.
    pub wake: WakeMode,
    /// Where the datagram turns round, and what is summed.
    pub turnaround: TurnaroundPoint,
    /// Whether the test bed's devices leave checksums open, as they do when both ends are on one
    /// machine; otherwise every frame is one that could be on a wire.
    pub offloads: bool,
    /// Whether the kernel at the mirror's side decodes every frame as well, down to finding that the
    /// address is not its own; otherwise it drops them at its first look.
    pub contended: bool,
    /// Packets that the mirror takes at a time.
    pub batch: u16,
}

impl MirrorSpec {
    /// A name for messages and records: `plumb over tap`.
    pub fn name(&self) -> String {
        format!("{} over {}", self.stack.name(), self.device.name())
    }
}

/// Whose stack mirrors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MirrorStack {
    /// The kernel's, under a process that receives and sends.
    Linux,
    /// plumb's.
    Plumb,
    /// smoltcp's, from a program of its own.
    Smoltcp,
}

/// What the frames of a mirror come through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MirrorDevice {
    /// A veth pair, the kernel's own stack at its end.
    Veth,
    /// A TAP.
    Tap,
    /// A packet socket on the end of a veth pair.
    Packet,
    /// An AF_XDP socket on the end of a veth pair.
    Xdp,
    /// Memory: no client and no kernel; the same frame over and over.
    Memory,
}

impl MirrorStack {
    /// Every stack.
    pub const ALL: [Self; 3] = [Self::Linux, Self::Plumb, Self::Smoltcp];

    /// The name used in plans and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::Plumb => "plumb",
            Self::Smoltcp => "smoltcp",
        }
    }

    /// The stack of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stack| stack.name() == name)
    }
}

impl MirrorDevice {
    /// Every device.
    pub const ALL: [Self; 5] = [Self::Veth, Self::Tap, Self::Packet, Self::Xdp, Self::Memory];

    /// The name used in plans and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Veth => "veth",
            Self::Tap => "tap",
            Self::Packet => "packet",
            Self::Xdp => "xdp",
            Self::Memory => "memory",
        }
    }

    /// The device of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|device| device.name() == name)
    }
}

/// Where a datagram turns round in a mirror, and what is summed on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum TurnaroundPoint {
    /// At the UDP level: verified on the way in, summed on the way out.
    Udp,
    /// At the UDP level, without any UDP checksum.
    UdpUnsummed,
    /// At the application: copied out and in, each with its sum in the same pass.
    Fused,
    /// At the application: copied and summed in two passes.
    Separate,
    /// At the application: copied, not summed.
    CopiedUnsummed,
    /// Below UDP: addresses and ports swapped, which leaves every sum as it is.
    Swap,
}

/// A mechanism and how it is set up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ChannelSpec {
    /// Which mechanism.
    pub mechanism: Mechanism,
    /// How receivers wait.
    pub wake: WakeMode,
    /// Socket options; ignored by mechanisms without sockets.
    pub options: SocketOptions,
}

/// Options of the sockets of a launch; `None` leaves the kernel's default.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SocketOptions {
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// TCP_QUICKACK, set again before every receive because the kernel forgets it.
    pub quickack: bool,
    /// SO_SNDBUF and SO_RCVBUF in bytes, as asked for (Linux doubles them).
    pub buffer: Option<u64>,
    /// TCP_CONGESTION.
    pub congestion: Option<String>,
    /// TCP_WINDOW_CLAMP: the most that a receiver offers, whatever its buffer holds.
    pub window: Option<u64>,
    /// IP_MTU_DISCOVER of UDP over IPv4: whether routers may cut a packet. Where they may not, every one
    /// is sent whole, whatever the path has told before (ip(7), IP_PMTUDISC_PROBE).
    pub fragments: Option<bool>,
    /// Largest UDP datagram sent: longer messages are cut by the application. `None` uses UDP's
    /// own limit of 65,507 bytes (65,527 over IPv6) and leaves the rest to IP.
    pub datagram_max: Option<u64>,
    /// Share of UDP datagrams that the sender drops on purpose, in parts per million.
    pub loss_ppm: u32,
    /// SO_BUSY_POLL of TCP: how long a blocking receive asks the device before it sleeps.
    pub busy_poll_us: Option<u32>,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            nodelay: true,
            quickack: false,
            buffer: None,
            congestion: None,
            window: None,
            fragments: None,
            datagram_max: None,
            loss_ppm: 0,
            busy_poll_us: None,
        }
    }
}

/// Streams and what both of their processes are given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TcpStreamsSpec {
    /// What they cross; loopback where there is nothing.
    pub path: Option<PathSpec>,
    /// How many.
    pub streams: u16,
    /// CPUs that both processes may use, the first that are allowed; where absent, each process has the
    /// CPU of its own that the launch names.
    pub cpus: Option<u16>,
    /// Percent of their CPUs that both processes have; the rest is taken from them.
    pub cpu_percent: u8,
    /// Options of every socket.
    pub options: SocketOptions,
    /// SO_RCVLOWAT of the receivers while a block is measured.
    pub low_water: Option<u32>,
    /// What both processes ask of the kernel for themselves.
    pub tweaks: ProcessTweaks,
}

/// What a process asks of the kernel for itself, to be disturbed less.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessTweaks {
    /// All of its memory stays in memory (mlockall(2)).
    pub locked: bool,
    /// Its threads run before all that have no real-time priority (SCHED_FIFO).
    pub real_time: bool,
    /// Its messages lie in a huge page.
    pub huge_pages: bool,
}

impl TcpStreamsSpec {
    /// A name for messages and records: `4 streams over veth`.
    pub fn name(&self) -> String {
        let over = self.path.as_ref().map_or("loopback", |path| path.name.as_str());
        let streams = if self.streams == 1 { "stream" } else { "streams" };
        format!("{} {streams} over {over}", self.streams)
    }
}

/// What is visited, and how.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PageLoadSpec {
    /// What stands between the two; loopback where there is nothing.
    pub path: Option<PathSpec>,
    /// The way to fetch the page, as the program names it.
    pub fetch_mode: String,
}

impl PageLoadSpec {
    /// A name for messages and records: `http2 over lan-1g`.
    pub fn name(&self) -> String {
        let over = self.path.as_ref().map_or("loopback", |path| path.name.as_str());
        format!("{} over {over}", self.fetch_mode)
    }
}

/// One block: what to measure, and for how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockSpec {
    /// What to measure.
    pub task: BlockTask,
    /// Wall time to aim at for the timed region.
    pub duration_ns: u64,
    /// Most samples to take; the duration ends the block earlier or later than this.
    pub samples_max: u32,
    /// Samples to send back raw; the histogram holds the rest.
    pub samples_kept: u32,
    /// A spin added to each operation before the reply, to prove that a known delay is found.
    pub injected_ns: u64,
}

/// What a block measures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BlockTask {
    /// The whole round trip of a message of this many bytes.
    RoundTrip {
        /// Message size in bytes.
        size: u64,
    },
    /// Where the time of a round trip goes, part by part; the parts come in `BlockReport::parts`.
    Breakdown {
        /// Message size in bytes.
        size: u64,
    },
    /// Time a packet from memory, through a mirror's stack and back; the peer's own times.
    Replay {
        /// Frame size in bytes, link header included.
        frame: u64,
        /// Whether the payload has left the caches before its packet comes.
        cold: bool,
    },
    /// Time of one copy, sum, or both over a buffer.
    Checksum {
        /// `copy`, `sum`, `separate` or `fused`.
        operation: String,
        /// The instruction set: a name of `plumb_copy::Kernel`.
        kernel: String,
        /// Bytes.
        size: u64,
        /// Whether the bytes have left the caches.
        cold: bool,
    },
    /// Half the round trip of a message of this many bytes, echoed whole.
    Latency {
        /// Message size in bytes.
        size: u64,
    },
    /// A long transfer in messages of this size, one final one-byte acknowledgement.
    Throughput {
        /// Message size in bytes.
        size: u64,
    },
    /// Whether each message is answered, one at a time: the share of those that are.
    AnsweredShare {
        /// Message size in bytes.
        size: u64,
    },
    /// Whether a message and its answer cross on a TCP connection of their own: the share that do.
    ConnectedShare {
        /// Message size in bytes.
        size: u64,
    },
    /// In how many packets the answer to a datagram comes.
    ReplyPackets {
        /// Message size in bytes.
        size: u64,
    },
    /// The whole round trip of a message sent right behind others that nobody answers.
    RoundTripBehindLoad {
        /// Message size in bytes.
        size: u64,
        /// Size of those ahead.
        ahead: u64,
        /// How many.
        count: u32,
    },
    /// A stream towards the worker, which notes how much comes in each interval once it is steady.
    SteadyRate {
        /// Message size in bytes.
        size: u64,
        /// The least length of an interval.
        interval_ns: u64,
    },
    /// All streams of the launch at once, in messages of this size; the responses come in
    /// `BlockReport::parts`.
    Streams {
        /// Message size in bytes.
        size: u64,
    },
    /// The whole page, again and again.
    PageLoad,
    /// One message of this size, one one-byte acknowledgement.
    ThroughputAcked {
        /// Message size in bytes.
        size: u64,
    },
    /// A request written in two parts before the reply is read (what Nagle's rule delays).
    WriteWriteRead {
        /// Message size in bytes; the parts are its halves.
        size: u64,
    },
    /// Every message checked for loss, duplication, order and content.
    Reliability {
        /// Message size in bytes.
        size: u64,
        /// Pause of the receiver after each message.
        receiver_pause_ns: u64,
        /// What the samples are: `lost`, `duplicated`, `reordered`, `corrupted` or `delivered`,
        /// each as a share of the messages sent. Everything is counted all the same.
        fault: String,
    },
    /// One kernel call.
    Call {
        /// `getpid`, `getppid`, `getuid`, `invalid`, `read-zero`, `clock-gettime`.
        call: String,
        /// `syscall`, `libc` or `vdso`.
        via: String,
    },
    /// Smallest positive step of a clock.
    ClockResolution {
        /// `tsc`, `monotonic`, …
        clock: String,
    },
    /// Cost of one read of a clock.
    ClockReadCost {
        /// `tsc`, `monotonic`, …
        clock: String,
    },
    /// Offset of the time-stamp counter of another CPU against the worker's.
    ClockOffset {
        /// The clock.
        clock: String,
        /// The other CPU.
        cpu: u32,
    },
}

impl BlockTask {
    /// Whether one block of it serves several responses, which come in `BlockReport::parts`.
    pub const fn has_parts(&self) -> bool {
        matches!(self, Self::Breakdown { .. } | Self::Streams { .. })
    }
}
