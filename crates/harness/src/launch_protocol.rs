//! What the processes of a launch send each other outside timed regions: orchestrator and worker over a pipe; worker and
//! peer over a socket, and over a shared page by which the worker steers a peer in the middle of a task; worker and
//! supervisor as a task of an agent's session.
//!
//! Messages that are measured contain a number in front, then bytes that both sides can make for themselves.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_remote::message;
use plumb_remote::session::TaskTimes;
use plumb_result::CpuUsage;
use plumb_sys::fd;
use plumb_sys::memory::{PageAlignedBuffer, SharedMap};
use rand::Rng as _;
use serde::{Deserialize, Serialize};

use crate::channel::STOP_FLAG_OFFSET;
use crate::report::{BlockError, BlockOutcome, BlockReport, LaunchFacts, LaunchFault};
use crate::spec::{BlockSpec, ChannelSpec, LaunchSpec, MirrorSpec, PeerContext, TcpStreamsSpec};

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

/// What happened to messages that were checked one by one.
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

/// One side of the control socket.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    file: File,
}

impl ControlSocket {
    /// Over a connected stream socket.
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Self { file: File::from(fd) }
    }

    /// Whether something is said, or the other side is gone, within some milliseconds.
    pub(crate) fn is_readable_within(&self, timeout_ms: i32) -> io::Result<bool> {
        fd::poll_readable(self.file.as_fd(), timeout_ms)
    }

    /// The same socket once more.
    pub(crate) fn try_clone(&self) -> io::Result<Self> {
        Ok(Self { file: self.file.try_clone()? })
    }

    /// Says something.
    pub(crate) fn send<T: Serialize>(&mut self, message: &T) -> io::Result<()> {
        message::write(&mut self.file, message)
    }

    /// Hears something; an error when the other side is gone.
    pub(crate) fn receive<T: for<'de> Deserialize<'de>>(&mut self) -> io::Result<T> {
        message::read(&mut self.file)?
            .ok_or_else(|| io::Error::new(io::ErrorKind::UnexpectedEof, "the other process died"))
    }
}

impl AsFd for ControlSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

const PAGE_SIZE: usize = 4096;
const COUNT_OFFSET: usize = 64;
const DELAY_OFFSET: usize = 128;
const LAST_OFFSET: usize = 192;
const PROBING_OFFSET: usize = 256;

/// The page, mapped.
#[derive(Clone, Debug)]
pub(crate) struct ControlPage {
    map: Arc<SharedMap>,
}

impl ControlPage {
    /// A new page, and the descriptor to inherit.
    pub(crate) fn create() -> io::Result<(Self, OwnedFd)> {
        let file = fd::memory_file(c"plumb-page", PAGE_SIZE as u64)?;
        Ok((Self::open(&file)?, file))
    }

    /// The page behind an inherited descriptor.
    pub(crate) fn open(file: &OwnedFd) -> io::Result<Self> {
        Ok(Self { map: Arc::new(SharedMap::new(file.as_fd(), PAGE_SIZE)?) })
    }

    /// The mapping, for a watch that obeys the stop flag.
    pub(crate) fn map(&self) -> Arc<SharedMap> {
        Arc::clone(&self.map)
    }

    /// The number of the task's last operation, counted from 1, once the worker has decided; 0
    /// before.
    ///
    /// A number and not a flag: a peer that looks late must not take the end of the next operation
    /// for the end of this one.
    #[inline]
    pub(crate) fn last(&self) -> u64 {
        self.map.double_word(LAST_OFFSET).load(Acquire)
    }

    /// Whether the peer of a lossy channel should leave its task.
    #[inline]
    pub(crate) fn stop(&self) -> bool {
        self.map.word(STOP_FLAG_OFFSET).load(Acquire) != 0
    }

    /// Whether a mirror should time packets at its edges.
    #[inline]
    pub(crate) fn probing(&self) -> bool {
        self.map.word(PROBING_OFFSET).load(Acquire) != 0
    }

    /// Switches a mirror's own clock reads on or off.
    #[inline]
    pub(crate) fn set_probing(&self, probing: bool) {
        self.map.word(PROBING_OFFSET).store(u32::from(probing), Release);
    }

    /// Messages in the transfer under way.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.map.double_word(COUNT_OFFSET).load(Acquire)
    }

    /// How long the peer spins after each message: an injected delay, or a slow receiver.
    #[inline]
    pub(crate) fn delay_ns(&self) -> u64 {
        self.map.double_word(DELAY_OFFSET).load(Acquire)
    }

    /// Writes one of its words.
    #[inline]
    pub(crate) fn write(&self, steer: ControlPageWrite) {
        match steer {
            ControlPageWrite::Last(last) => self.map.double_word(LAST_OFFSET).store(last, Release),
            ControlPageWrite::Count(count) => {
                self.map.double_word(COUNT_OFFSET).store(count, Release);
            }
            ControlPageWrite::Stop(stop) => {
                self.map.word(STOP_FLAG_OFFSET).store(u32::from(stop), Release);
            }
            ControlPageWrite::DelayNs(ns) => self.map.double_word(DELAY_OFFSET).store(ns, Release),
        }
    }
}

/// A word of the page that the peer reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ControlPageWrite {
    /// The number of the last operation.
    Last(u64),
    /// Messages of a transfer.
    Count(u64),
    /// Whether to leave the task.
    Stop(bool),
    /// A spin after each message.
    DelayNs(u64),
}

/// What a worker says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum WorkerMessage {
    /// The channel is open and both sides are placed; or why not.
    Ready(Result<LaunchFacts, LaunchFault>),
    /// One block is done, or failed; after `Unavailable` the launch continues.
    Block(Result<Box<BlockReport>, LaunchFault>),
}

/// What the orchestrator says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum OrchestratorMessage {
    /// Open this launch.
    Launch(LaunchSpec),
    /// Measure this block.
    Measure(BlockSpec),
    /// End.
    Quit,
}

/// The worker's words with the orchestrator.
pub(super) struct OrchestratorPipe {
    stdout: io::Stdout,
    stdin: io::Stdin,
}

impl OrchestratorPipe {
    pub(super) fn new() -> Self {
        Self { stdout: io::stdout(), stdin: io::stdin() }
    }

    pub(super) fn send(&mut self, message: &WorkerMessage) -> io::Result<()> {
        message::write(&mut self.stdout.lock(), message)
    }

    pub(super) fn receive(&mut self) -> io::Result<Option<OrchestratorMessage>> {
        message::read(&mut self.stdin.lock())
    }

    /// Answers every block with `measure` until told to quit or something breaks for good.
    pub(super) fn serve(
        &mut self,
        mut measure: impl FnMut(&BlockSpec) -> BlockOutcome,
    ) -> io::Result<()> {
        while let Some(OrchestratorMessage::Measure(spec)) = self.receive()? {
            let outcome = measure(&spec).map(Box::new).map_err(|error| match error {
                BlockError::Unavailable(reason) | BlockError::NothingDelivered(reason) => {
                    LaunchFault::Unavailable(reason)
                }
                BlockError::Failed(reason) => LaunchFault::Failed(reason),
            });
            let is_broken = matches!(outcome, Err(LaunchFault::Failed(_)));
            self.send(&WorkerMessage::Block(outcome))?;
            if is_broken {
                break;
            }
        }
        Ok(())
    }
}

/// The bytes of a launch: the same in worker and peer.
pub(crate) fn payload_pattern(seed: u64, size: usize) -> PageAlignedBuffer {
    let mut bytes = PageAlignedBuffer::filled(1, size);
    Seed(seed).stream("payload").fill_bytes(&mut bytes);
    bytes
}

/// Bytes of a message that hold its number.
pub(crate) fn payload_stamp_len(size: usize) -> usize {
    size.min(8)
}

/// Writes a number into the front of a message.
#[inline]
pub(crate) fn stamp_payload(message: &mut [u8], len: usize, number: u64) {
    message[..len].copy_from_slice(&number.to_le_bytes()[..len]);
}

/// Reads the number from the front of a message.
#[inline]
pub(crate) fn payload_number(message: &[u8], len: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..len].copy_from_slice(&message[..len]);
    u64::from_le_bytes(bytes)
}

/// How long the worker's connections or datagrams are waited for.
pub(super) const ADMISSION_TIMEOUT: Span = Span::from_secs(15);
/// The longest launch.
const DURATION_MAX: Span = Span::from_secs(7 * 86_400);
/// What a worker has time for beside two blocks before it is thought to be gone.
const SILENCE_MARGIN: Span = Span::from_secs(30);

/// The task that a worker asks for.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaunchRequest {
    /// What is opened.
    pub(crate) work: LaunchWork,
    /// The CPU of the process that is started; of a sender, where its streams name no number of CPUs.
    pub(crate) cpu: Option<u32>,
    /// Seed of the launch.
    pub(crate) seed: u64,
    /// Deadline of a block.
    pub(crate) deadline_ns: u64,
}

/// What is opened on the other host.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum LaunchWork {
    /// One connection, to see that the way is free and how long it is.
    Probe,
    /// The far end of a channel, for the peer.
    Channel(ChannelSpec),
    /// The far ends of streams, for the process that sends.
    Streams(Box<TcpStreamsSpec>),
    /// A page, served to the address that has shown the token.
    Page,
}

impl LaunchRequest {
    /// A request that starts nothing.
    pub(super) const fn probe() -> Self {
        Self { work: LaunchWork::Probe, cpu: None, seed: 0, deadline_ns: 0 }
    }

    /// How long it may take, and how long either side may be silent: nothing may be said during a block.
    pub(super) fn times(&self) -> TaskTimes {
        let quiet = Span::from_ns(self.deadline_ns) * 2 + SILENCE_MARGIN;
        TaskTimes { longest: DURATION_MAX, quiet }
    }

    /// Whether its socket is one of datagrams.
    pub(super) const fn is_datagram(&self) -> bool {
        matches!(&self.work, LaunchWork::Channel(channel) if channel.mechanism.is_lossy())
    }

    /// The congestion control that its connections begin with: the host's default where there is none.
    pub(super) fn congestion(&self) -> Option<&str> {
        let options = match &self.work {
            LaunchWork::Channel(channel) => &channel.options,
            LaunchWork::Streams(streams) => &streams.options,
            LaunchWork::Probe | LaunchWork::Page => return None,
        };
        options.congestion.as_deref()
    }

    /// The connections that show the token.
    pub(super) const fn connections(&self) -> u16 {
        match &self.work {
            LaunchWork::Streams(spec) => spec.streams,
            LaunchWork::Probe | LaunchWork::Channel(_) | LaunchWork::Page => 1,
        }
    }
}

/// What a supervisor is asked while its launch lasts.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum SupervisorRequest {
    /// A message to the process that was started.
    ToProcess(Vec<u8>),
    /// Write to the page that the peer reads.
    WritePage(ControlPageWrite),
    /// Take CPU time away from the process that sends; or no longer.
    SetCpuLoad(bool),
    /// What the process that serves has used.
    ServerCpuTime,
}

/// What a supervisor says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum SupervisorReply {
    /// The way is free to this host.
    Admitted(RemoteHostInfo),
    /// What was to be started runs; what is known about its sockets.
    Ready(BTreeMap<String, String>),
    /// That host cannot do it, or something broke.
    Refused(LaunchFault),
    /// A message from the process that was started.
    FromProcess(Vec<u8>),
    /// It is on the page.
    PageWritten,
    /// CPU time is taken away, or no longer; or why it may not be.
    CpuLoadSet(Result<(), LaunchFault>),
    /// Where the page is served.
    Serving(SocketAddr),
    /// CPU time that the process that serves has used.
    ServerCpuTime(u64),
}

/// The host that a supervisor is on, as it says itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteHostInfo {
    /// What a result must be read beside: kernel, processor, congestion control.
    pub facts: BTreeMap<String, String>,
    /// The CPUs that its processes may use.
    pub cpus: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_survives_in_the_bytes_of_its_message() {
        let mut message = payload_pattern(3, 5);
        let len = payload_stamp_len(message.len());
        stamp_payload(&mut message, len, 0x01_0203_0405);
        assert_eq!(payload_number(&message, len), 0x01_0203_0405);
        assert_eq!(payload_pattern(3, 5)[..], payload_pattern(3, 9)[..5]);
        assert_ne!(payload_pattern(3, 64)[..], payload_pattern(4, 64)[..]);
    }
}
