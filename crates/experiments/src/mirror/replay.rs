//! Frames from memory, one over and over or those of a capture, through plumb's stack and back: no network, no kernel.
//!
//! What is timed is everything that a packet needs: being put into a frame of the pool, the stack both ways,
//! and giving the frame back. Cold packets lie where they were put once, in more memory than any
//! cache holds, and only their headers are written anew.
//!
//! Of a capture's packets the lengths and contents are kept, as datagrams to the mirror behind headers of its own.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs;

use plumb_base::time::Instant;
use plumb_clock::Stopwatch;
use plumb_harness::mirror::mirror_process::{
    DatagramMirror, MirrorControl, MirrorFlow, MirrorSetup, ReplayTask,
};
use plumb_harness::report::LaunchFault;
use plumb_harness::spec::TurnaroundPoint;
use plumb_stack::host::IpHost;
use plumb_stack::service::{HostNode, SwapMirror};
use plumb_wire::capture::CaptureReader;
use plumb_wire::machine::{DeviceCapabilities, Machine, Medium, PortId};
use plumb_wire::packet::{ChecksumState, HEADROOM, LARGE_FRAME, Packet, Pool, PoolConfig};

use super::{MirrorNode, StackEdgeTimer, mirror_node};

/// Bytes of packets under way at once: they fit a first-level cache with room for the stack.
const BATCH_BYTES: usize = 24 << 10;
const BATCH_MAX: usize = 64;

/// Memory of cold packets: more than a core's share of any last-level cache.
const COLD_BYTES: usize = 96 << 20;

/// Headers of a UDP datagram over Ethernet and IPv4: written anew for a cold packet, and taken off every packet of a capture.
const HEADERS: usize = 14 + 20 + 8;

/// The port that frames come by.
const PORT: PortId = PortId(0);

/// A stack and the frames that are fed to it.
pub(super) struct StackReplayMirror {
    machine: ReplayMachine,
    ends: MirrorFlow,
    turn: TurnaroundPoint,
    watch: Stopwatch,
    batch: Vec<Packet>,
    packets: u64,
    /// What datagrams carry, where they are a capture's.
    payloads: Vec<Vec<u8>>,
    buffers: Option<ReplayBuffers>,
}

/// The memory of one replay.
struct ReplayBuffers {
    /// One, or those of a capture.
    frames: Vec<Vec<u8>>,
    pool: Pool,
    /// Packets under way at once.
    count: usize,
    /// Packets in the queue, where they are to be cold.
    waiting: VecDeque<Packet>,
}

impl StackReplayMirror {
    pub(super) fn new(site: &MirrorSetup) -> Result<Self, LaunchFault> {
        let turn = site.spec.turnaround;
        let unsummed = is_unsummed(turn);
        // An interface of the longest datagrams, which a memory has no reason to refuse.
        let plain = DeviceCapabilities::plain(Medium::Ethernet, 65_535);
        let host: IpHost =
            super::host(site, DeviceCapabilities { checksum_tx: unsummed, ..plain })?;
        let machine = if turn == TurnaroundPoint::Swap {
            let application = SwapMirror::new(site.local.port());
            ReplayMachine::Swap(Box::new(HostNode { host, application }))
        } else {
            let edges = StackEdgeTimer::new(site.watch);
            ReplayMachine::Node(Box::new(mirror_node(host, site.local, turn, edges)?))
        };
        let batch = Vec::with_capacity(BATCH_MAX);
        let payloads = site.spec.capture.as_deref().map_or(Ok(Vec::new()), payloads_of_capture);
        Ok(Self {
            payloads: payloads.map_err(LaunchFault::Unavailable)?,
            machine,
            ends: MirrorFlow::of(site),
            turn,
            watch: site.watch,
            batch,
            packets: 0,
            buffers: None,
        })
    }

    /// Lets the stack learn the client's link address, as it would from the client's question.
    fn resolve_client(&mut self, pool: &mut Pool) -> Result<(), LaunchFault> {
        let question = pool.packet_of(&self.ends.resolution());
        self.batch.extend(question);
        self.exchange(pool);
        let answered = !self.batch.is_empty();
        pool.free_all(&mut self.batch);
        if answered {
            return Ok(());
        }
        Err(LaunchFault::Failed("the stack did not answer the neighbor query".to_owned()))
    }

    /// The batch through the stack: what comes out takes the place of what went in.
    #[inline]
    fn exchange(&mut self, pool: &mut Pool) {
        // Nothing in a replay waits for time to pass.
        let now = Instant::ORIGIN;
        match &mut self.machine {
            ReplayMachine::Node(machine) => exchange(machine.as_mut(), now, &mut self.batch, pool),
            ReplayMachine::Swap(machine) => exchange(machine.as_mut(), now, &mut self.batch, pool),
        }
    }

    /// One packet after the other put into the pool's frames and taken out again.
    fn warm(&mut self, task: &ReplayTask, stage: ReplayBuffers) -> Result<Vec<f64>, LaunchFault> {
        let ReplayBuffers { frames, mut pool, count, .. } = stage;
        let state = self.state();
        let mut frames = frames.iter().cycle();
        self.repeat(
            task,
            count,
            &mut pool,
            |batch, pool| {
                for frame in frames.by_ref().take(count) {
                    let Some(packet) = pool.packet_of(frame) else { break };
                    batch.push(packet);
                }
                // In place: a packet that is changed just before it is moved stalls the processor.
                if state != ChecksumState::Plain {
                    for packet in batch {
                        packet.meta.checksum = state;
                    }
                }
            },
            |batch, pool| pool.free_all(batch),
        )
    }

    /// Packets that wait in a long row, of which the first come next and go to the end again.
    fn cold(&mut self, task: &ReplayTask, stage: ReplayBuffers) -> Result<Vec<f64>, LaunchFault> {
        let ReplayBuffers { frames, mut pool, count, waiting } = stage;
        let Some(frame) = frames.first().filter(|_| frames.len() == 1) else {
            return Err(LaunchFault::Unavailable("a capture is replayed warm".to_owned()));
        };
        let state = self.state();
        let row = RefCell::new(waiting);
        self.repeat(
            task,
            count,
            &mut pool,
            |batch, pool| {
                for mut packet in row.borrow_mut().drain(..count) {
                    pool.bytes_mut(&mut packet)[..HEADERS].copy_from_slice(&frame[..HEADERS]);
                    packet.meta.checksum = state;
                    packet.meta.segments = None;
                    batch.push(packet);
                }
            },
            |batch, _| row.borrow_mut().extend(batch.drain(..)),
        )
    }

    /// Batches until the time is over; nanoseconds a packet, batch by batch.
    fn repeat(
        &mut self,
        task: &ReplayTask,
        count: usize,
        pool: &mut Pool,
        mut fill: impl FnMut(&mut Vec<Packet>, &mut Pool),
        mut empty: impl FnMut(&mut Vec<Packet>, &mut Pool),
    ) -> Result<Vec<f64>, LaunchFault> {
        let mut samples = Vec::with_capacity(task.samples_max);
        let mut mirrored = 0;
        let begin = self.watch.begin();
        while samples.len() < task.samples_max {
            let start = self.watch.begin();
            fill(&mut self.batch, pool);
            self.exchange(pool);
            mirrored += self.batch.len();
            empty(&mut self.batch, pool);
            let end = self.watch.end();
            samples.push(self.watch.ns(end.wrapping_sub(start)) / count as f64);
            if end.wrapping_sub(begin) >= task.duration_ticks {
                break;
            }
        }
        let asked = samples.len() * count;
        if mirrored != asked {
            let fault = format!("{mirrored} of {asked} datagrams were mirrored");
            return Err(LaunchFault::Failed(fault));
        }
        self.packets += asked as u64;
        Ok(samples)
    }

    /// Whether the stack is told that a device has verified the sum.
    fn state(&self) -> ChecksumState {
        if is_unsummed(self.turn) { ChecksumState::Verified } else { ChecksumState::Plain }
    }
}

impl DatagramMirror for StackReplayMirror {
    fn mirror(&mut self, _reins: &MirrorControl) -> Result<(), LaunchFault> {
        Err(LaunchFault::Unavailable("memory has no client".to_owned()))
    }

    fn prepare(&mut self, task: &ReplayTask) -> Result<(), LaunchFault> {
        let frames: Vec<Vec<u8>> = if self.payloads.is_empty() {
            vec![self.ends.datagram(task.frame)]
        } else {
            self.payloads.iter().map(|payload| self.ends.datagram_of(payload)).collect()
        };
        let longest = frames.iter().map(Vec::len).max().unwrap_or(0);
        let count = batch_of(longest);
        let room = if is_large(longest) { LARGE_FRAME } else { ORDINARY };
        let waiting = if task.cold { COLD_BYTES / room } else { 0 };
        let mut pool = Pool::new(pool_config(longest, waiting + 2 * count));
        self.resolve_client(&mut pool)?;
        let waiting =
            frames.iter().cycle().take(waiting).filter_map(|frame| pool.packet_of(frame)).collect();
        self.buffers = Some(ReplayBuffers { frames, pool, count, waiting });
        Ok(())
    }

    fn replay(&mut self, task: &ReplayTask) -> Result<Vec<f64>, LaunchFault> {
        let Some(stage) = self.buffers.take() else {
            return Err(LaunchFault::Failed("the replay was not prepared".to_owned()));
        };
        if task.cold { self.cold(task, stage) } else { self.warm(task, stage) }
    }

    fn tally(&mut self) -> Vec<(String, u64)> {
        vec![("packets".to_owned(), std::mem::take(&mut self.packets))]
    }
}

fn is_unsummed(turn: TurnaroundPoint) -> bool {
    matches!(turn, TurnaroundPoint::UdpUnsummed | TurnaroundPoint::CopiedUnsummed)
}

/// What turns the packets round.
enum ReplayMachine {
    Node(Box<MirrorNode>),
    /// Below UDP: addresses and ports swapped, no sum touched.
    Swap(Box<HostNode<SwapMirror>>),
}

#[inline]
fn exchange<M: Machine>(machine: &mut M, now: Instant, batch: &mut Vec<Packet>, pool: &mut Pool) {
    machine.handle_packets(now, PORT, batch, pool);
    machine.poll_packets(now, PORT, batch, usize::MAX, pool);
}

/// Bytes of an ordinary frame.
const ORDINARY: usize = 2_048;

fn is_large(frame: usize) -> bool {
    HEADROOM + frame > ORDINARY
}

/// Packets under way at once.
fn batch_of(frame: usize) -> usize {
    (BATCH_BYTES / frame).clamp(1, BATCH_MAX)
}

/// Frames for so many packets of this length, and a few for whatever else a stack says.
fn pool_config(frame: usize, count: usize) -> PoolConfig {
    let few = 8;
    let many = u32::try_from(count).unwrap_or(u32::MAX);
    let size = u32::try_from(ORDINARY).expect("2 KiB");
    if is_large(frame) {
        PoolConfig { count: few, size, large: many }
    } else {
        PoolConfig { count: many + few, size, large: 0 }
    }
}

/// Packets that are taken of a capture, the first ones.
const PACKETS_MAX: usize = 4_096;

/// Bytes of a file that is read at all.
const FILE_MAX: u64 = 256 << 20;

/// The most that a datagram over IPv4 carries.
const PAYLOAD_MAX: usize = 65_535 - 20 - 8;

/// What each packet of a capture carries as a datagram in a frame of its length.
///
/// # Errors
/// Says what is wrong with the file.
pub(crate) fn payloads_of_capture(path: &str) -> Result<Vec<Vec<u8>>, String> {
    let fault = |why: &dyn std::fmt::Display| format!("cannot replay '{path}': {why}");
    let len = fs::metadata(path).map_err(|error| fault(&error))?.len();
    if len > FILE_MAX {
        let why = format!(
            "it has {len} bytes, and at most {FILE_MAX} are read; cut it with 'editcap -c'"
        );
        return Err(fault(&why));
    }
    let file = fs::read(path).map_err(|error| fault(&error))?;
    let mut payloads = Vec::new();
    for packet in CaptureReader::new(&file).map_err(|error| fault(&error))?.take(PACKETS_MAX) {
        let packet = packet.map_err(|error| fault(&error))?;
        let payload = packet.bytes.get(HEADERS..).unwrap_or_default();
        payloads.push(payload[..payload.len().min(PAYLOAD_MAX)].to_vec());
    }
    if payloads.is_empty() { Err(fault(&"it has no packet")) } else { Ok(payloads) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_keep_their_length_and_what_is_no_capture_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.pcap");
        let path = path.to_str().unwrap();
        let mut file = Vec::new();
        // The classic format's header (magic, 2.4, zone, accuracy, snap length, Ethernet), then packets.
        for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1] {
            file.extend(word.to_le_bytes());
        }
        for len in [20_u32, 60, 1_514] {
            for word in [0, 0, len, len] {
                file.extend(word.to_le_bytes());
            }
            file.extend(vec![7; usize::try_from(len).unwrap()]);
        }
        fs::write(path, &file).unwrap();
        let lengths: Vec<usize> = payloads_of_capture(path).unwrap().iter().map(Vec::len).collect();
        assert_eq!(lengths, [0, 18, 1_472]);
        for (bytes, why) in
            [(&file[..24], "no packet"), (&b"hello"[..], "text"), (&file[..90], "cut off")]
        {
            fs::write(path, bytes).unwrap();
            assert!(
                payloads_of_capture(path).unwrap_err().contains(why),
                "{why}: {:?}",
                payloads_of_capture(path)
            );
        }
        assert!(payloads_of_capture("/nowhere.pcap").unwrap_err().contains("/nowhere.pcap"));
    }
}
