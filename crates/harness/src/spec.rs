//! What the orchestrator asks of a worker: one launch and its blocks, as plain data.

use std::net::SocketAddr;

use plumb_base::units::format_bytes;
use serde::{Deserialize, Serialize};

mod program;

pub use program::SimulationSpec;
pub use program::{DisplayPath, DisplaySpec};
pub use program::{
    PacketBufferPolicy, StackEntry, TransferDefect, TransferLoad, TransferPath, TransferSpec,
    TransferTcp,
};

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
    /// The worker alone, in virtual time: nothing else on the machine changes what it finds.
    VirtualTime,
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
            Self::Alone | Self::VirtualTime | Self::Channel(_) | Self::Mirror(_) => None,
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

/// Where and by which clock a peer runs.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct PeerContext {
    /// The CPU to run on.
    pub(crate) cpu: Option<u32>,
    /// Rate of the time-stamp counter.
    pub(crate) ticks_per_ns: Option<f64>,
    /// Seed of the launch.
    pub(crate) seed: u64,
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
    /// For how many nanoseconds a packet may wait, after one that was received, for others to come with it: what
    /// the interrupt coalescing of a card does.
    pub interrupt_delay_ns: Option<u32>,
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
    /// Two of Linux's own routers, the wire between which takes packets of no more than so many bytes.
    NarrowRouters(u32),
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
    /// What carries a message there and back.
    pub transport: MirrorTransport,
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
    /// A capture file whose packets are replayed, as datagrams to the mirror; none replays one frame for ever.
    pub capture: Option<String>,
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

/// What carries a mirror's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum MirrorTransport {
    /// A datagram.
    #[default]
    Udp,
    /// A connection, which the mirror opened.
    Tcp,
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

names!(MirrorStack { Linux = "linux", Plumb = "plumb", Smoltcp = "smoltcp" });

names!(MirrorTransport { Udp = "udp", Tcp = "tcp" });

names!(MirrorDevice {
    Veth = "veth",
    Tap = "tap",
    Packet = "packet",
    Xdp = "xdp",
    Memory = "memory",
});

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

/// A way for one process to talk to another on the same machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Mechanism {
    /// pipe(2), one each way.
    Pipe,
    /// mkfifo(3), one each way, unlinked as soon as both ends are open.
    Fifo,
    /// socketpair(2), SOCK_STREAM.
    SocketpairStream,
    /// socketpair(2), SOCK_DGRAM.
    SocketpairDgram,
    /// socketpair(2), SOCK_SEQPACKET.
    SocketpairSeqpacket,
    /// unix(7) stream socket bound to a path.
    UnixStream,
    /// unix(7) stream socket with an abstract name.
    UnixStreamAbstract,
    /// unix(7) datagram sockets bound to paths.
    UnixDgram,
    /// unix(7) datagram sockets with abstract names.
    UnixDgramAbstract,
    /// TCP over IPv4 loopback.
    Tcp4,
    /// TCP over IPv6 loopback.
    Tcp6,
    /// UDP over IPv4 loopback.
    Udp4,
    /// UDP over IPv6 loopback.
    Udp6,
    /// POSIX message queues, mq_overview(7).
    MqPosix,
    /// System V message queues, msgget(2).
    MqSysv,
    /// eventfd(2): an eight-byte counter each way.
    Eventfd,
    /// futex(2) on a word in shared memory: a wake-up without data.
    Futex,
    /// Real-time signals, sigqueue(3) and sigwaitinfo(2).
    Signal,
    /// Ring in shared memory, both sides spinning.
    ShmSpin,
    /// Ring in shared memory, futex wake-ups.
    ShmFutex,
    /// Ring in shared memory, eventfd wake-ups.
    ShmEventfd,
    /// process_vm_writev(2) into the peer's memory, futex wake-ups.
    VmWritev,
    /// Pipe whose reader moves the bytes to its memory through splice(2) and a second pipe.
    Splice,
    /// Pipe filled by vmsplice(2): the writer's pages are lent, not copied.
    Vmsplice,
    /// sendfile(2) from a memory file to a TCP socket.
    Sendfile,
    /// TCP with MSG_ZEROCOPY sends.
    TcpZerocopy,
    /// TCP through io_uring(7) send and receive.
    Uring,
    /// TLS 1.3 over TCP.
    TlsTcp4,
    /// TLS 1.3 over a Unix stream socket.
    TlsUnix,
    /// HTTP/1.1 over TCP: each message a request or a response.
    Http1Tcp4,
    /// HTTP/1.1 over a Unix stream socket.
    Http1Unix,
    /// HTTP/2 over TCP, in the clear: each message a request or a response.
    Http2Tcp4,
    /// HTTP/2 over a Unix stream socket.
    Http2Unix,
    /// QUIC over IPv4 loopback: one stream each way.
    Quic4,
}

/// What shape of message a mechanism carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageShape {
    /// Bytes without boundaries, any size.
    Stream,
    /// Whole messages; of the kernel's queues up to a limit, beyond which they are sent in parts.
    Messages,
    /// A fixed number of bytes and nothing else.
    Fixed(u64),
}

// The cheapest idea first.
names!(Mechanism {
    Eventfd = "eventfd": "eventfd counters",
    Futex = "futex": "futex wake-ups on a shared word, no data",
    Signal = "signal": "real-time signals with a value",
    ShmSpin = "shm-spin": "shared-memory ring, both sides spin",
    ShmFutex = "shm-futex": "shared-memory ring, futex wake-ups",
    ShmEventfd = "shm-eventfd": "shared-memory ring, eventfd wake-ups",
    VmWritev = "vm-writev": "process_vm_writev(2) into the peer, futex wake-ups",
    Pipe = "pipe": "pipe(2), one each way",
    Fifo = "fifo": "named pipe, one each way",
    Splice = "splice": "pipe read through splice(2)",
    Vmsplice = "vmsplice": "pipe filled by vmsplice(2)",
    SocketpairStream = "socketpair-stream": "socketpair(2), stream",
    SocketpairDgram = "socketpair-dgram": "socketpair(2), datagrams",
    SocketpairSeqpacket = "socketpair-seqpacket": "socketpair(2), sequenced packets",
    UnixStream = "unix-stream": "Unix stream socket, bound to a path",
    UnixStreamAbstract = "unix-stream-abstract": "Unix stream socket, abstract name",
    UnixDgram = "unix-dgram": "Unix datagram sockets, bound to paths",
    UnixDgramAbstract = "unix-dgram-abstract": "Unix datagram sockets, abstract names",
    MqPosix = "mq-posix": "POSIX message queues",
    MqSysv = "mq-sysv": "System V message queues",
    Udp4 = "udp4": "UDP over IPv4 loopback",
    Udp6 = "udp6": "UDP over IPv6 loopback",
    Tcp4 = "tcp4": "TCP over IPv4 loopback",
    Tcp6 = "tcp6": "TCP over IPv6 loopback",
    Sendfile = "sendfile": "sendfile(2) from a memory file to TCP",
    TcpZerocopy = "tcp-zerocopy": "TCP with MSG_ZEROCOPY",
    Uring = "uring": "TCP through io_uring",
    TlsUnix = "tls-unix": "TLS 1.3 over a Unix stream socket",
    TlsTcp4 = "tls-tcp4": "TLS 1.3 over TCP",
    Http1Unix = "http1-unix": "HTTP/1.1 requests and responses over a Unix stream socket",
    Http1Tcp4 = "http1-tcp4": "HTTP/1.1 requests and responses over TCP",
    Http2Unix = "http2-unix": "HTTP/2 requests and responses over a Unix stream socket",
    Http2Tcp4 = "http2-tcp4": "HTTP/2 requests and responses over TCP",
    Quic4 = "quic4": "a QUIC stream over IPv4 loopback",
});

impl Mechanism {
    /// What it can carry.
    pub const fn message_shape(self) -> MessageShape {
        match self {
            Self::Eventfd | Self::Signal => MessageShape::Fixed(8),
            Self::Futex => MessageShape::Fixed(4),
            Self::SocketpairDgram
            | Self::SocketpairSeqpacket
            | Self::UnixDgram
            | Self::UnixDgramAbstract
            | Self::MqPosix
            | Self::MqSysv
            | Self::Udp4
            | Self::Udp6
            | Self::Http1Tcp4
            | Self::Http1Unix
            | Self::Http2Tcp4
            | Self::Http2Unix => MessageShape::Messages,
            _ => MessageShape::Stream,
        }
    }

    /// Whether it may lose messages without an error.
    pub const fn is_lossy(self) -> bool {
        matches!(self, Self::Udp4 | Self::Udp6)
    }

    /// The ways in which a receiver can wait for it.
    pub const fn wake_modes(self) -> &'static [WakeMode] {
        match self {
            Self::ShmSpin => &[WakeMode::Spin],
            Self::Futex | Self::Signal | Self::ShmFutex | Self::VmWritev | Self::Quic4 => {
                &[WakeMode::Block]
            }
            Self::MqSysv | Self::Splice | Self::Uring | Self::Http2Tcp4 | Self::Http2Unix => {
                &[WakeMode::Block, WakeMode::Spin]
            }
            _ => &[WakeMode::Block, WakeMode::Poll, WakeMode::Epoll, WakeMode::Spin],
        }
    }

    /// Checks a message size, saying what would do.
    pub fn check_size(self, size: u64) -> Result<(), MessageSizeError> {
        let fault = |limit: String| Err(MessageSizeError { mechanism: self.name(), size, limit });
        match self.message_shape() {
            MessageShape::Fixed(bytes) if size != bytes => {
                fault(format!("it carries exactly {bytes} bytes"))
            }
            _ if size == 0 => fault("a message has at least 1 byte".to_owned()),
            _ if self == Self::Splice && size > SPLICE_MESSAGE_MAX => fault(format!(
                "the far side gathers a message in a pipe, which holds {}",
                format_bytes(SPLICE_MESSAGE_MAX)
            )),
            _ if size > MESSAGE_SIZE_MAX => {
                fault(format!("plumb sends at most {} at once", format_bytes(MESSAGE_SIZE_MAX)))
            }
            _ => Ok(()),
        }
    }
}

/// The largest message plumb sends: its buffers are allocated before measuring.
pub const MESSAGE_SIZE_MAX: u64 = 64 << 20;

/// The largest message that a pipe of the largest usual size surely holds: its pages need not be
/// full.
const SPLICE_MESSAGE_MAX: u64 = 512 << 10;

/// A message size that a mechanism cannot carry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("size {size} is not possible over {mechanism}: {limit}")]
pub struct MessageSizeError {
    mechanism: &'static str,
    size: u64,
    limit: String,
}

/// How a receiver waits for the next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum WakeMode {
    /// Asleep in the receiving call itself; in poll(2) of HTTP/2, and in its runtime's epoll(7) of QUIC.
    Block,
    /// Asleep in poll(2), then a receiving call.
    Poll,
    /// Asleep in epoll_wait(2), then a receiving call.
    Epoll,
    /// Never asleep: non-blocking calls, or loads, in a loop.
    Spin,
}

names!(WakeMode { Block = "block", Poll = "poll", Epoll = "epoll", Spin = "spin" });

/// Options of the sockets of a launch; `None` leaves the kernel's default.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SocketOptions {
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// TCP_QUICKACK, set again before every receive because the kernel forgets it.
    pub quickack: bool,
    /// SO_SNDBUF in bytes, as asked for (Linux doubles it).
    pub send_buffer: Option<u64>,
    /// SO_RCVBUF, likewise.
    pub receive_buffer: Option<u64>,
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
            send_buffer: None,
            receive_buffer: None,
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
    /// The way to fetch the page, as the program names it; or the path of a file.
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
#[expect(missing_docs, reason = "the variant's comment describes its only field")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum BlockTask {
    /// The whole round trip of a message of this many bytes.
    RoundTrip { size: u64 },
    /// Where the time of a round trip goes, part by part; the parts come in `BlockReport::parts`.
    Breakdown { size: u64 },
    /// Time a packet from memory, through a mirror's stack and back, and packets a second; the peer's own times. Of
    /// a mirror with a capture the frame's size means nothing.
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
    Latency { size: u64 },
    /// A long transfer in messages of this size, one final one-byte acknowledgement.
    Throughput { size: u64 },
    /// Whether each message is answered, one at a time: the share of those that are.
    AnsweredShare { size: u64 },
    /// Whether a message and its answer cross on a TCP connection of their own: the share that do.
    ConnectedShare { size: u64 },
    /// In how many packets the answer to a datagram comes.
    ReplyPackets { size: u64 },
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
    Streams { size: u64 },
    /// The same with the kernel's tracepoints on for a while: where the CPU time of both processes goes.
    StreamsTrace { size: u64 },
    /// The whole page, again and again.
    PageLoad,
    /// One message of this size, one one-byte acknowledgement.
    ThroughputAcked { size: u64 },
    /// A request written in two parts before the reply is read (what Nagle's rule delays).
    WriteWriteRead { size: u64 },
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
    /// Transfers over plumb's own TCP; the responses come in `BlockReport::parts`.
    Transfer(Box<TransferSpec>),
    /// A simulated cell; the responses come in `BlockReport::parts`.
    Simulation(SimulationSpec),
    /// Drawings on a structured display; the responses come in `BlockReport::parts`.
    Display(Box<DisplaySpec>),
    /// One kernel call.
    Call {
        /// `getpid`, `getppid`, `getuid`, `invalid`, `read-zero`, `clock-gettime`.
        call: String,
        /// `syscall`, `libc` or `vdso`.
        via: String,
    },
    /// Time of one pass of a kernel of the processor index, whose result is checked.
    IndexKernel { kernel: String },
    /// Memory: time of a load that depends on the last, or bytes a second.
    Memory {
        /// `load`, `read` or `copy`.
        operation: String,
        /// Bytes that are walked over.
        size: u64,
    },
    /// What one interrupt takes from a process that spins.
    Interrupt,
    /// Smallest positive step of a clock.
    ClockResolution { clock: String },
    /// Cost of one read of a clock.
    ClockReadCost { clock: String },
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
        matches!(
            self,
            Self::Breakdown { .. }
                | Self::Replay { .. }
                | Self::Streams { .. }
                | Self::StreamsTrace { .. }
                | Self::Transfer(_)
                | Self::Simulation(_)
                | Self::Display(_)
        )
    }
}
