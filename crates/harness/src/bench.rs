//! A bench over one channel: its operations, its pilot, and how the peer enters and leaves a task.
//!
//! Between two clock reads is the operation and nothing else: buffers are allocated, filled and touched before, samples
//! go into memory reserved before, and nothing is printed or locked.

use std::num::NonZeroU64;

use plumb_base::units::format_bytes;
use plumb_clock::{ClockQuality, Stopwatch};
use plumb_sys::memory::PageAlignedBuffer;

use crate::channel::{ChannelEnd, ChannelError, LossMarker, MessageOrMarker, RECEIVE_SLACK};
use crate::effort::{Canary, EffortMeter, KernelTimes, postpone_tick};
use crate::launch_protocol;
use crate::launch_protocol::{ControlPageWrite, PeerReport, PeerRole, PeerTask};
use crate::peer_handle::PeerHandle;
use crate::report::{BlockError, BlockOutcome, BlockReport};
use crate::spec::{
    BlockSpec, BlockTask, ChannelSpec, LaunchSpec, LaunchSubject, Mechanism, MessageShape,
};

mod breakdown;
mod delivery;
mod latency;
mod throughput;
mod tracepoints;

use delivery::nothing_delivered;
use tracepoints::TracepointProbe;

/// Milliseconds until a mark is repeated.
const MARKER_WAIT_MS: i32 = 2;
/// Bytes that may wait in front of a mark at the slowest hop.
const MARKER_QUEUE_BYTES: u64 = 64 << 10;

/// Messages lost in a row, before any came, after which a block is given up.
const LOST_IN_A_ROW_MAX: u32 = 5;

/// A mark is repeated this often.
const MARKERS_MAX: u32 = 100;

/// The longest that a pilot runs before it knows, give or take its last step.
const PILOT_NS_MAX: f64 = 1_000_000.0;

/// The part of a block that its pilot may run for: a short block that waits for a long pilot would be
/// further from its neighbours in time than it is long.
const PILOT_SHARE: f64 = 0.1;

/// A channel's open end, with what timing needs.
pub(crate) struct ChannelBench<'a, E> {
    end: E,
    peer: &'a mut PeerHandle,
    stopwatch: Stopwatch,
    quality: ClockQuality,
    kernel: KernelTimes,
    mechanism: Mechanism,
    seed: u64,
    launch: LaunchSpec,
    tx: PageAlignedBuffer,
    rx: PageAlignedBuffer,
    size: usize,
    ack: usize,
    stamp_len: usize,
    /// Number of the last message stamped.
    number: u64,
    /// Operations of the task under way: round trips or transfers.
    done: u64,
    lost: u64,
    /// Whether the tick is needed while something is timed: on a way on which messages are lost.
    needs_tick: bool,
    corrupted: u64,
    /// The peer's part in the task that it is in.
    role: Option<PeerRole>,
    /// A mark is repeated after this long without an answer.
    marker_wait_ms: i32,
}

impl<'a, E: ChannelEnd> ChannelBench<'a, E> {
    /// A bench over a fresh channel.
    pub(crate) fn new(
        end: E,
        peer: &'a mut PeerHandle,
        launch: &LaunchSpec,
        channel: &ChannelSpec,
    ) -> Self {
        let watch = Stopwatch::new(launch.ticks_per_ns);
        // The peer's CPU is this host's only where the peer is.
        let theirs = launch.cpu_peer.filter(|_| !peer.process.is_remote());
        let cpus: Vec<u32> = launch.cpu_local.into_iter().chain(theirs).collect();
        Self {
            end,
            peer,
            stopwatch: watch,
            quality: watch.measure(),
            kernel: KernelTimes::new(cpus),
            mechanism: channel.mechanism,
            seed: launch.seed,
            launch: launch.clone(),
            tx: PageAlignedBuffer::default(),
            rx: PageAlignedBuffer::default(),
            size: 0,
            ack: 1,
            stamp_len: 0,
            number: 0,
            done: 0,
            lost: 0,
            needs_tick: false,
            corrupted: 0,
            role: None,
            marker_wait_ms: marker_wait_ms(&launch.subject),
        }
    }

    /// Measures one block.
    pub(crate) fn measure(&mut self, spec: &BlockSpec) -> BlockOutcome {
        let canary = Canary::before(self.stopwatch, spec);
        self.corrupted = 0;
        let mut report = match &spec.task {
            BlockTask::Latency { size } => self.latency(spec, *size, false),
            BlockTask::RoundTrip { size } => {
                self.echoes(spec, *size, 1.0, |bench| bench.round_trip(false))
            }
            BlockTask::Breakdown { size } => self.measure_breakdown(spec, *size),
            BlockTask::WriteWriteRead { size } => self.latency(spec, *size, true),
            BlockTask::Throughput { size } => self.throughput(spec, *size),
            BlockTask::ThroughputAcked { size } => self.throughput_acked(spec, *size),
            BlockTask::AnsweredShare { size } => self.answered_share(spec, *size),
            BlockTask::RoundTripBehindLoad { size, ahead, count } => {
                self.round_trip_behind_load(spec, *size, *ahead, *count)
            }
            BlockTask::SteadyRate { size, interval_ns } => self.steady(spec, *size, *interval_ns),
            BlockTask::Reliability { size, receiver_pause_ns, fault } => {
                self.reliability(spec, *size, *receiver_pause_ns, fault)
            }
            _ => Err(BlockError::wrong_task("a channel")),
        };
        if let Err(BlockError::Unavailable(_) | BlockError::NothingDelivered(_)) = &report {
            self.leave_task()?;
        }
        if let Err(BlockError::NothingDelivered(reason)) = report {
            report = Ok(nothing_delivered(self.lost, &reason));
        }
        if let Ok(report) = &mut report {
            report.effort.canary_ns = canary.after();
        }
        report
    }

    /// Gets the peer out of a task that was given up.
    fn leave_task(&mut self) -> Result<(), BlockError> {
        if self.role.is_some() {
            self.finish_lossy()?;
            self.peer_done()?;
        }
        Ok(())
    }

    /// Where the time of a round trip goes, seen by the probes that suit who is at the other end.
    fn measure_breakdown(&mut self, spec: &BlockSpec, size: u64) -> BlockOutcome {
        if tracepoints::needs_tracepoints(&self.launch.subject) {
            let mut probe = TracepointProbe::new(self, &self.launch)?;
            return self.breakdown(spec, size, &mut probe);
        }
        let Some(page) = self.peer.page.clone() else {
            return Err(BlockError::needs_local_peer());
        };
        self.breakdown(spec, size, &mut breakdown::MirrorEdgeProbe { page })
    }

    /// Makes the buffers of a task, touched, so that no page fault is left for the timed region.
    fn prepare(&mut self, size: u64) -> Result<(), BlockError> {
        self.mechanism
            .check_size(size)
            .map_err(|error| BlockError::Unavailable(error.to_string()))?;
        self.size = usize::try_from(size)?;
        self.ack = match self.mechanism.message_shape() {
            MessageShape::Fixed(_) => self.size,
            _ => 1,
        };
        self.stamp_len =
            if E::SENDS_GIVEN_BYTES { launch_protocol::payload_stamp_len(self.size) } else { 0 };
        self.tx = launch_protocol::payload_pattern(self.seed, self.size);
        self.rx = PageAlignedBuffer::filled(1, self.size + RECEIVE_SLACK);
        self.end.prepare(&self.tx, &mut self.rx)?;
        self.end.drain()?;
        drop(self.end.take_counters());
        Ok(())
    }

    /// Starts the peer on its part, in which it spins for so long at each message.
    /// It is not interrupted for as long as that is to be timed; 0 for a task of which nothing is.
    fn begin(&mut self, role: PeerRole, delay_ns: u64, quiet_ns: u64) -> Result<(), BlockError> {
        self.peer.write(ControlPageWrite::DelayNs(delay_ns))?;
        self.peer.write(ControlPageWrite::Stop(false))?;
        self.peer.write(ControlPageWrite::Last(0))?;
        self.done = 0;
        // Discard the pilot's counts.
        self.lost = 0;
        drop(self.end.take_counters());
        let quiet_ns = if self.needs_tick { 0 } else { quiet_ns };
        let task = PeerTask { role, size: self.size as u64, ack: self.ack as u64, quiet_ns };
        self.peer.begin(task)?;
        self.role = Some(role);
        Ok(())
    }

    /// Ends a task with one more operation, a round trip whose content is checked in full or a transfer, and adds what
    /// both ends counted to the report.
    fn finish(&mut self, report: &mut BlockReport) -> Result<PeerReport, BlockError> {
        if E::LOSSY {
            self.finish_lossy()?;
        } else {
            self.peer.write(ControlPageWrite::Last(self.done + 1))?;
            if self.role == Some(PeerRole::Echo) {
                self.round_trip(false)?;
                self.corrupted += u64::from(self.rx[..self.size] != self.tx[..self.size]);
            } else {
                self.peer.write(ControlPageWrite::Count(1))?;
                self.transfer(1)?;
            }
            if matches!(self.launch.subject, LaunchSubject::Mirror(_)) {
                // It counts no messages of a stream: the flag ends its task, at the next tick.
                self.peer.write(ControlPageWrite::Stop(true))?;
            }
        }
        let peer = self.peer_done()?;
        self.add_counts(report, &peer);
        Ok(peer)
    }

    /// Ends a task on a lossy channel: the mark ends it at once, the stop flag at the next tick.
    fn finish_lossy(&mut self) -> Result<(), BlockError> {
        self.peer.write(ControlPageWrite::Stop(true))?;
        Ok(self.end.send_marker(LossMarker { value: 0xFFFF_FFFF, at: 0 })?)
    }

    fn peer_done(&mut self) -> Result<PeerReport, BlockError> {
        if let Some(control) = self.peer.process.control() {
            self.end.keep_going(control)?;
        }
        let report = self.peer.done()?;
        self.role = None;
        Ok(report)
    }

    /// Runs an operation in a task of its own until it is known how long one takes; nanoseconds.
    fn pilot_task(
        &mut self,
        spec: &BlockSpec,
        role: PeerRole,
        operation: impl FnMut(&mut Self) -> Result<(), ChannelError>,
    ) -> Result<f64, BlockError> {
        let is_echo = role == PeerRole::Echo;
        self.begin(role, if is_echo { spec.injected_ns } else { 0 }, 0)?;
        if !is_echo {
            self.peer.write(ControlPageWrite::Count(1))?;
        }
        let one_ns = self.pilot(spec, operation)?;
        self.finish(&mut BlockReport::default())?;
        Ok(one_ns)
    }

    /// Runs an operation in growing numbers until it is known how long one takes; nanoseconds.
    pub(super) fn pilot(
        &mut self,
        spec: &BlockSpec,
        mut operation: impl FnMut(&mut Self) -> Result<(), ChannelError>,
    ) -> Result<f64, BlockError> {
        let enough_ns = PILOT_NS_MAX.min(PILOT_SHARE * spec.duration_ns as f64);
        let mut lost_in_a_row = 0;
        let mut count = 2_u32;
        loop {
            let start = self.stopwatch.begin();
            let mut done = 0;
            while done < count {
                match operation(self) {
                    Ok(()) => {
                        done += 1;
                        lost_in_a_row = 0;
                    }
                    Err(ChannelError::TimedOut) if E::LOSSY => {
                        self.needs_tick = true;
                        lost_in_a_row += 1;
                        give_up_after(lost_in_a_row, self.size as u64)?;
                    }
                    Err(fault) => return Err(fault.into()),
                }
            }
            let elapsed = self.stopwatch.ns(self.stopwatch.end().wrapping_sub(start));
            if elapsed >= enough_ns || count >= 1 << 20 {
                return Ok((elapsed / f64::from(count)).max(0.1));
            }
            count *= 4;
        }
    }

    /// One round trip; a stale reply on a lossy channel is passed over.
    #[inline]
    pub(super) fn round_trip(&mut self, split: bool) -> Result<(), ChannelError> {
        self.number += 1;
        launch_protocol::stamp_payload(&mut self.tx, self.stamp_len, self.number);
        if split {
            let (first, second) = self.tx.split_at(self.size / 2);
            self.end.send(first)?;
            self.end.send(second)?;
        } else {
            self.end.send(&self.tx[..self.size])?;
        }
        loop {
            self.end.receive(&mut self.rx, self.size)?;
            if self.rx[..self.stamp_len] == self.tx[..self.stamp_len] {
                break;
            }
            if !E::LOSSY {
                self.corrupted += 1;
                break;
            }
        }
        self.done += 1;
        Ok(())
    }

    /// One transfer of `count` messages, which the peer has been told, and its acknowledgement: what arrived, if
    /// anything did.
    #[inline]
    pub(super) fn transfer(&mut self, count: u64) -> Result<Option<TransferArrival>, ChannelError> {
        if E::LOSSY {
            return self.transfer_lossy(count);
        }
        self.number += 1;
        launch_protocol::stamp_payload(&mut self.tx, self.stamp_len, self.number);
        for _ in 0..count {
            self.end.send(&self.tx[..self.size])?;
        }
        self.end.receive(&mut self.rx, self.ack)?;
        let at = self.stopwatch.end();
        self.done += 1;
        Ok(NonZeroU64::new(count).map(|messages| TransferArrival { at, messages }))
    }

    /// The same where anything may vanish, the acknowledgement too: a mark, repeated until it is
    /// answered, asks how much came and when the last of it did, by the counter both CPUs share.
    fn transfer_lossy(&mut self, count: u64) -> Result<Option<TransferArrival>, ChannelError> {
        for _ in 0..count {
            self.end.send(&self.tx[..self.size])?;
        }
        self.done += 1;
        let number = self.done & 0xFFFF_FFFF;
        for _ in 0..MARKERS_MAX {
            self.end.send_marker(LossMarker { value: number, at: 0 })?;
            while self.end.wait_readable(self.marker_wait_ms)? {
                let MessageOrMarker::Marker(answer) =
                    self.end.receive_any(&mut self.rx, self.size)?
                else {
                    continue;
                };
                if answer.value >> 32 == number {
                    let delivered = answer.value & 0xFFFF_FFFF;
                    self.lost += count.saturating_sub(delivered);
                    return Ok(NonZeroU64::new(delivered)
                        .map(|messages| TransferArrival { at: answer.at, messages }));
                }
            }
        }
        self.lost += count;
        Err(ChannelError::TimedOut)
    }

    /// Whether transfers are timed by the peer alone, whose clock is another.
    pub(super) fn is_timed_by_peer(&self) -> bool {
        E::LOSSY && self.peer.process.is_remote()
    }

    /// One message and its one-byte acknowledgement on a lossy channel.
    #[inline]
    pub(super) fn acked_message(&mut self) -> Result<(), ChannelError> {
        self.number += 1;
        launch_protocol::stamp_payload(&mut self.tx, self.stamp_len, self.number);
        self.end.send(&self.tx[..self.size])?;
        loop {
            self.end.receive(&mut self.rx, 1)?;
            if self.rx[0] == self.tx[0] {
                self.done += 1;
                return Ok(());
            }
        }
    }

    fn start_effort(&mut self, spec: &BlockSpec) -> EffortMeter {
        let meter = EffortMeter::start(&mut self.kernel, self.stopwatch, spec);
        if self.needs_tick {
            postpone_tick(0);
        }
        meter
    }

    /// The report of a timed region that ends here.
    fn region_report(&mut self, start: &EffortMeter, operations: u64) -> BlockReport {
        start.report(&mut self.kernel, self.stopwatch, operations)
    }

    /// Adds what both ends counted, and what the peer cost.
    fn add_counts(&mut self, report: &mut BlockReport, peer: &PeerReport) {
        report.effort.peer = peer.cpu;
        let ours = [("lost", self.lost), ("corrupted", self.corrupted)];
        let own = self.end.take_counters().into_iter().chain(ours);
        let own = own.map(|(name, n)| (name.to_owned(), n));
        for (name, n) in own.chain(peer.counters.iter().cloned()) {
            *report.counters.entry(name).or_default() += n;
        }
        report.counters.retain(|_, n| *n > 0);
        if report.counters.contains_key("corrupted") {
            report.flags.push("corrupted".to_owned());
        }
    }
}

/// How long an answer to a mark may take: not long here, and more than a round trip elsewhere.
fn marker_wait_ms(subject: &LaunchSubject) -> i32 {
    let LaunchSubject::Remote(remote) = subject else { return MARKER_WAIT_MS };
    let exchange_ms = remote.path.exchange_ns(MARKER_QUEUE_BYTES, 0) / 1_000_000;
    MARKER_WAIT_MS.saturating_add(i32::try_from(exchange_ms).unwrap_or(i32::MAX))
}

/// Gives a block up when so many messages in a row were lost that none may ever come.
fn give_up_after(lost_in_a_row: u32, size: u64) -> Result<(), BlockError> {
    if lost_in_a_row < LOST_IN_A_ROW_MAX {
        return Ok(());
    }
    Err(BlockError::NothingDelivered(format!(
        "{lost_in_a_row} messages of {} in a row were lost: some buffer on the way does not hold one",
        format_bytes(size)
    )))
}

/// What a transfer delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TransferArrival {
    /// The counter when the last of it had arrived; of datagrams from another host, nanoseconds since the first had.
    pub(super) at: u64,
    /// How many messages it was.
    pub(super) messages: NonZeroU64,
}
