//! Timing over a channel: round trips, transfers, and messages checked one by one.
//!
//! Between two clock reads stands the operation and nothing else: buffers are made, filled and
//! touched before, samples go into memory reserved before, and nothing is printed or locked.

use std::io;

use plumb_base::units::format_bytes;
use plumb_sys::pages::Pages;

use super::canary::Canary;
use super::control::{PeerReport, PeerTask, Role};
use super::effort::KernelTimes;
use super::partner::Peer;
use super::payload;
use super::sampler;
use super::spec::{BlockReport, BlockSpec, ChannelSpec, LaunchSpec, Subject, Task};
use crate::clock::{ClockQuality, Stopwatch};
use crate::local::mechanism::{Carries, Mechanism};
use crate::local::{End, Fault, Mark, SLACK};
use account::{
    EffortStart, add_counts, discard_backwards, keep_forward, note_backwards, note_empty, silent,
    summarise_rates, summarise_times, transfer_sample,
};
pub(crate) use account::{batch_for, reserve};
use tracepoints::Tracepoints;

mod account;
mod answered;
mod breakdown;
mod exchange;
mod pilot;
mod reliability;
mod steady;
mod tracepoints;

/// Why a block has no report.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// It cannot be done over this channel on this host; the launch goes on.
    Impossible(String),
    /// Nothing got through a channel that loses messages, this time.
    Silent(String),
    /// The launch is over.
    Broken(String),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Broken(fault.to_string())
    }
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Self {
        Self::Broken(format!("the peer did not answer: {error}"))
    }
}

/// Milliseconds until a mark is repeated.
const MARK_WAIT_MS: i32 = 2;
/// Bytes that may wait in front of a mark at the slowest hop.
const MARK_PATH: u64 = 64 << 10;

/// Messages lost in a row, before any came, after which a block is given up.
const LOST_IN_A_ROW_MAX: u32 = 5;

/// A channel's open end, with what timing needs.
pub(crate) struct Bench<'a, E> {
    end: E,
    peer: &'a mut Peer,
    watch: Stopwatch,
    quality: ClockQuality,
    kernel: KernelTimes,
    mechanism: Mechanism,
    seed: u64,
    launch: LaunchSpec,
    tx: Pages,
    rx: Pages,
    size: usize,
    ack: usize,
    stamp_len: usize,
    /// Number of the last message stamped.
    number: u64,
    /// Operations of the task under way: round trips or transfers.
    done: u64,
    lost: u64,
    corrupted: u64,
    /// Whether the peer is in a task.
    in_task: bool,
    /// A mark is repeated after this long without an answer.
    mark_wait_ms: i32,
}

impl<'a, E: End> Bench<'a, E> {
    /// A bench over a fresh channel.
    pub(crate) fn new(
        end: E,
        peer: &'a mut Peer,
        launch: &LaunchSpec,
        channel: &ChannelSpec,
    ) -> Self {
        let watch = Stopwatch::new(launch.ticks_per_ns);
        // The peer's CPU is this host's only where the peer is.
        let theirs = launch.cpu_peer.filter(|_| !peer.is_apart());
        let cpus: Vec<u32> = launch.cpu_local.into_iter().chain(theirs).collect();
        Self {
            end,
            peer,
            watch,
            quality: watch.measure(),
            kernel: KernelTimes::new(cpus),
            mechanism: channel.mechanism,
            seed: launch.seed,
            launch: launch.clone(),
            tx: Pages::default(),
            rx: Pages::default(),
            size: 0,
            ack: 1,
            stamp_len: 0,
            number: 0,
            done: 0,
            lost: 0,
            corrupted: 0,
            in_task: false,
            mark_wait_ms: mark_wait_ms(&launch.subject),
        }
    }

    /// Measures one block.
    pub(crate) fn measure(&mut self, spec: &BlockSpec) -> Result<BlockReport, Trouble> {
        let canary = Canary::before(self.watch, spec);
        self.corrupted = 0;
        let mut report = match &spec.task {
            Task::Latency { size } => self.latency(spec, *size, false),
            Task::RoundTrip { size } => self.round_trips(spec, *size),
            Task::Breakdown { size } => self.broken_down(spec, *size),
            Task::WriteWriteRead { size } => self.latency(spec, *size, true),
            Task::Throughput { size } => self.throughput(spec, *size),
            Task::ThroughputAcked { size } => self.throughput_acked(spec, *size),
            Task::Answered { size } => self.answered(spec, *size),
            Task::Behind { size, ahead, count } => self.behind(spec, *size, *ahead, *count),
            Task::Steady { size, interval_ns } => self.steady(spec, *size, *interval_ns),
            Task::Reliability { size, receiver_pause_ns, fault } => {
                self.reliability(spec, *size, *receiver_pause_ns, fault)
            }
            other => Err(Trouble::Impossible(format!("{other:?} needs no channel"))),
        };
        if let Err(Trouble::Impossible(_) | Trouble::Silent(_)) = &report {
            self.leave_task()?;
        }
        if let Err(Trouble::Silent(reason)) = report {
            report = Ok(silent(self.lost, &reason));
        }
        if let Ok(report) = &mut report {
            report.effort.canary_ns = canary.after();
        }
        report
    }

    /// Gets the peer out of a task that was given up.
    fn leave_task(&mut self) -> Result<(), Trouble> {
        if self.in_task {
            self.finish_lossy()?;
            self.peer_done()?;
        }
        Ok(())
    }

    /// The whole round trip of a message.
    fn round_trips(&mut self, spec: &BlockSpec, size: u64) -> Result<BlockReport, Trouble> {
        self.prepare(size)?;
        self.begin(Role::Echo, spec.injected_ns)?;
        let trip_ns = self.pilot(spec, |bench| bench.round_trip(false))?;
        self.finish_echo()?;
        self.begin(Role::Echo, spec.injected_ns)?;
        let (mut report, ticks) =
            self.repeat(spec, trip_ns, size, |bench| bench.round_trip(false))?;
        let peer = self.finish_echo()?;
        self.conclude(&mut report, &peer);
        let per_sample = f64::from(report.batch);
        summarise_times(&ticks, self.watch, per_sample, spec, &mut report);
        Ok(report)
    }

    /// Where the time of a round trip goes, seen by the probes that suit who is at the other end.
    fn broken_down(&mut self, spec: &BlockSpec, size: u64) -> Result<BlockReport, Trouble> {
        if tracepoints::suit(&self.launch.subject) {
            let mut probe = Tracepoints::new(self, &self.launch)?;
            return self.breakdown(spec, size, &mut probe);
        }
        let Some(page) = self.peer.page().cloned() else {
            return Err(Trouble::Impossible("nobody looks into another host".to_owned()));
        };
        let mut probe = breakdown::Edges::new(page);
        self.breakdown(spec, size, &mut probe)
    }

    /// Half the round trip of a message.
    fn latency(
        &mut self,
        spec: &BlockSpec,
        size: u64,
        split: bool,
    ) -> Result<BlockReport, Trouble> {
        if split && (size < 2 || self.mechanism.carries() != Carries::Stream || !E::STAMPED) {
            return Err(Trouble::Impossible(format!(
                "a request in two writes needs a byte stream, which {} is not",
                self.mechanism.name()
            )));
        }
        self.prepare(size)?;
        self.begin(Role::Echo, spec.injected_ns)?;
        let trip_ns = self.pilot(spec, |bench| bench.round_trip(split))?;
        self.finish_echo()?;

        self.begin(Role::Echo, spec.injected_ns)?;
        let (mut report, ticks) =
            self.repeat(spec, trip_ns, size, |bench| bench.round_trip(split))?;
        let peer = self.finish_echo()?;
        self.conclude(&mut report, &peer);
        let per_sample = 2.0 * f64::from(report.batch);
        summarise_times(&ticks, self.watch, per_sample, spec, &mut report);
        Ok(report)
    }

    /// Bytes a second over long transfers, a transfer a sample.
    fn throughput(&mut self, spec: &BlockSpec, size: u64) -> Result<BlockReport, Trouble> {
        if !E::QUEUES {
            return Err(Trouble::Impossible(format!(
                "{} holds one message at a time: there is no stream of them to time",
                self.mechanism.name()
            )));
        }
        self.prepare(size)?;
        self.begin(Role::Sink, 0)?;
        self.peer.set_count(1)?;
        let one_ns = self.pilot(spec, |bench| bench.transfer(1).map(drop))?;
        // Where no clock is shared the first message of a transfer only begins it.
        // From the first arrival to the last: of few messages, the first wakes the peer while the next queue up.
        let least = if self.is_timed_there() { 8 } else { 1 };
        let count = self.messages_for(spec, one_ns)?.max(least);
        self.finish_sink()?;

        let samples_max = usize::try_from(spec.samples_max).unwrap_or(usize::MAX);
        let mut samples: Vec<(u64, u64)> = Vec::with_capacity(samples_max);
        self.begin(Role::Sink, 0)?;
        self.peer.set_count(count)?;
        let effort = self.effort();
        let duration = self.watch.ticks(spec.duration_ns as f64);
        let mut empty = 0;
        let mut messages = 0;
        loop {
            let t0 = self.watch.begin();
            let outcome = self.transfer(count);
            messages += count;
            let arrived = match outcome {
                Ok(arrived) => arrived,
                Err(Fault::TimedOut) if E::LOSSY => None,
                Err(fault) => return Err(fault.into()),
            };
            samples.push(self.sample(t0, arrived));
            empty += u32::from(arrived.is_none());
            if empty as usize == samples.len() {
                give_up_after(empty, size)?;
            }
            let elapsed = self.watch.end().wrapping_sub(effort.at);
            if samples.len() == samples_max || elapsed >= duration {
                break;
            }
        }
        let mut report = self.report(&effort, messages);
        note_backwards(&mut report, discard_backwards(&mut samples, |&(t, _)| t));
        let peer = self.finish_sink()?;
        self.conclude(&mut report, &peer);
        report.counters.insert("messages_per_transfer".to_owned(), count);
        note_empty(&mut report, &samples);
        if E::LOSSY {
            report.flags.push("receiver-timed".to_owned());
        }
        let bytes = samples.iter().map(|&(ticks, n)| (ticks, n * size)).collect();
        summarise_rates(bytes, messages, self.watch, spec, &mut report);
        Ok(report)
    }

    /// Bytes a second when every message is acknowledged before the next.
    fn throughput_acked(&mut self, spec: &BlockSpec, size: u64) -> Result<BlockReport, Trouble> {
        self.prepare(size)?;
        let role = if E::LOSSY { Role::Ack } else { Role::Sink };
        let exchange = |bench: &mut Self| {
            if E::LOSSY { bench.acked_message() } else { bench.transfer(1).map(drop) }
        };
        self.begin(role, 0)?;
        self.peer.set_count(1)?;
        let one_ns = self.pilot(spec, exchange)?;
        self.finish_sink()?;
        self.begin(role, 0)?;
        let (mut report, ticks) = self.repeat(spec, one_ns, size, exchange)?;
        let peer = self.finish_sink()?;
        self.conclude(&mut report, &peer);
        let bytes = (size * u64::from(report.batch)) as f64;
        let watch = self.watch;
        let values: Vec<f64> =
            ticks.iter().map(|&t| bytes / (watch.ns(t).max(1.0) * 1e-9)).collect();
        sampler::summarise(&values, 1.0, spec, &mut report);
        Ok(report)
    }

    /// The closed loop: one operation after another, each timed, or each batch of them when one
    /// would be too short for the clock.
    fn repeat(
        &mut self,
        spec: &BlockSpec,
        one_ns: f64,
        size: u64,
        operation: impl Fn(&mut Self) -> Result<(), Fault>,
    ) -> Result<(BlockReport, Vec<u64>), Trouble> {
        let batch = batch_for(self.quality.sample_min_ns(), one_ns);
        let samples_max = usize::try_from(spec.samples_max).unwrap_or(usize::MAX);
        let mut ticks = reserve(samples_max);
        let effort = self.effort();
        let duration = self.watch.ticks(spec.duration_ns as f64);
        let mut lost = 0;
        loop {
            let t0 = self.watch.begin();
            let mut outcome = Ok(());
            for _ in 0..batch {
                outcome = operation(self);
                if outcome.is_err() {
                    break;
                }
            }
            let t1 = self.watch.end();
            match outcome {
                Ok(()) => ticks.push(t1.wrapping_sub(t0)),
                // A lost datagram is counted; its time is the timer's, not the channel's.
                Err(Fault::TimedOut) if E::LOSSY => {
                    self.lost += 1;
                    lost += 1;
                    if ticks.is_empty() {
                        give_up_after(lost, size)?;
                    }
                }
                Err(fault) => return Err(fault.into()),
            }
            if ticks.len() == samples_max || t1.wrapping_sub(effort.at) >= duration {
                break;
            }
        }
        let mut report = self.report(&effort, self.done);
        keep_forward(&mut ticks, self.lost, size, &mut report);
        report.batch = batch;
        if batch > 1 {
            report.flags.push("batched".to_owned());
        }
        Ok((report, ticks))
    }

    /// Makes the buffers of a task, touched, so that no page fault is left for the timed region.
    fn prepare(&mut self, size: u64) -> Result<(), Trouble> {
        self.mechanism.check_size(size).map_err(|error| Trouble::Impossible(error.to_string()))?;
        self.size = usize::try_from(size).map_err(|e| Trouble::Impossible(e.to_string()))?;
        self.ack = match self.mechanism.carries() {
            Carries::Fixed(_) => self.size,
            _ => 1,
        };
        self.stamp_len = if E::STAMPED { payload::stamp_len(self.size) } else { 0 };
        self.tx = payload::pattern(self.seed, self.size);
        self.rx = Pages::filled(1, self.size + SLACK);
        self.end.prepare(&self.tx, &mut self.rx)?;
        self.end.drain()?;
        drop(self.end.tally());
        Ok(())
    }

    /// Starts the peer on its part, in which it spins for so long at each message.
    fn begin(&mut self, role: Role, delay_ns: u64) -> Result<(), Trouble> {
        self.peer.set_delay_ns(delay_ns)?;
        self.peer.set_stop(false)?;
        self.peer.set_last(0)?;
        self.done = 0;
        // What the pilot counted is not the block's.
        self.lost = 0;
        drop(self.end.tally());
        let task = PeerTask { role, size: self.size as u64, ack: self.ack as u64 };
        self.peer.begin(task)?;
        self.in_task = true;
        Ok(())
    }

    /// Ends an echo task with one more round trip, whose content is checked in full.
    fn finish_echo(&mut self) -> Result<PeerReport, Trouble> {
        if E::LOSSY {
            self.finish_lossy()?;
        } else {
            self.peer.set_last(self.done + 1)?;
            self.round_trip(false)?;
            if self.rx[..self.size] != self.tx[..self.size] {
                self.corrupted += 1;
            }
        }
        self.peer_done()
    }

    /// Ends a sink task with one more transfer.
    fn finish_sink(&mut self) -> Result<PeerReport, Trouble> {
        if E::LOSSY {
            self.finish_lossy()?;
        } else {
            self.peer.set_last(self.done + 1)?;
            self.peer.set_count(1)?;
            self.transfer(1)?;
        }
        self.peer_done()
    }

    /// Ends a task on a lossy channel: the mark ends it at once, the stop flag at the next tick.
    fn finish_lossy(&mut self) -> Result<(), Trouble> {
        self.peer.set_stop(true)?;
        Ok(self.end.send_mark(Mark { value: 0xFFFF_FFFF, at: 0 })?)
    }

    fn peer_done(&mut self) -> Result<PeerReport, Trouble> {
        let report = self.peer.done()?;
        self.in_task = false;
        Ok(report)
    }

    fn effort(&mut self) -> EffortStart {
        EffortStart::now(&mut self.kernel, self.watch)
    }

    /// The report of a timed region that ends here.
    fn report(&mut self, start: &EffortStart, operations: u64) -> BlockReport {
        start.report(&mut self.kernel, self.watch, operations)
    }

    /// Adds what both ends counted.
    fn conclude(&mut self, report: &mut BlockReport, peer: &PeerReport) {
        let mut counts: Vec<(&str, u64)> = self.end.tally().into_iter().collect();
        counts.extend([("lost", self.lost), ("corrupted", self.corrupted)]);
        add_counts(&counts, peer, report);
    }
}

/// How long an answer to a mark may take: not long here, and more than a round trip elsewhere.
fn mark_wait_ms(subject: &Subject) -> i32 {
    let Subject::Remote(remote) = subject else { return MARK_WAIT_MS };
    let exchange_ms = remote.path.exchange_ns(MARK_PATH, 0) / 1_000_000;
    MARK_WAIT_MS.saturating_add(i32::try_from(exchange_ms).unwrap_or(i32::MAX))
}

/// Gives a block up when so many messages in a row were lost that none may ever come.
fn give_up_after(lost_in_a_row: u32, size: u64) -> Result<(), Trouble> {
    if lost_in_a_row < LOST_IN_A_ROW_MAX {
        return Ok(());
    }
    Err(Trouble::Silent(format!(
        "{lost_in_a_row} messages of {} in a row were lost: some buffer on the way does not hold one",
        format_bytes(size)
    )))
}
