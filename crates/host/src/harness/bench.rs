//! Timing over a channel: round trips, transfers, and messages checked one by one.
//!
//! Between two clock reads stands the operation and nothing else: buffers are made, filled and
//! touched before, samples go into memory reserved before, and nothing is printed or locked.

use std::io;

use plumb_base::time::Span;
use plumb_base::units::format_bytes;
use plumb_sys::pages::Pages;
use plumb_sys::timer;

use super::canary::Canary;
use super::control::{PeerReport, PeerTask, Role};
use super::effort::{CpuReading, KernelTimes};
use super::partner::Peer;
use super::payload;
use super::sampler;
use super::spec::{
    BlockReport, BlockSpec, ChannelSpec, LaunchSpec, NOTHING_DELIVERED, Subject, Task,
};
use crate::clock::{ClockQuality, Stopwatch};
use crate::local::mechanism::{Carries, Mechanism};
use crate::local::{End, Fault, Mark, SLACK};
use exchange::Arrived;
use tracepoints::Tracepoints;

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

// What follows runs once a block and knows no channel: one copy of it serves them all.

/// Adds what both ends counted, and what the peer cost.
fn add_counts(own: &[(&str, u64)], peer: &PeerReport, report: &mut BlockReport) {
    report.effort.peer = peer.cpu;
    let own = own.iter().map(|(name, n)| ((*name).to_owned(), *n));
    for (name, n) in own.chain(peer.tally.iter().cloned()) {
        *report.counters.entry(name).or_default() += n;
    }
    report.counters.retain(|_, n| *n > 0);
    if report.counters.contains_key("corrupted") {
        report.flags.push("corrupted".to_owned());
    }
}

/// Summarises samples of so many operations each as times in nanoseconds.
fn summarise_times(
    ticks: &[u64],
    watch: Stopwatch,
    per_sample: f64,
    spec: &BlockSpec,
    report: &mut BlockReport,
) {
    let values: Vec<f64> = ticks.iter().map(|&t| watch.ns(t) / per_sample).collect();
    sampler::summarise(&values, 0.001, spec, report);
}

/// Summarises samples of ticks and bytes, of so many messages in all, as bytes a second.
fn summarise_rates(
    samples: Vec<(u64, u64)>,
    messages: u64,
    watch: Stopwatch,
    spec: &BlockSpec,
    report: &mut BlockReport,
) {
    report.counters.insert("messages".to_owned(), messages);
    report.batch = 1;
    let rate = |(t, n): (u64, u64)| n as f64 / (watch.ns(t).max(1.0) * 1e-9);
    let values: Vec<f64> = samples.into_iter().map(rate).collect();
    sampler::summarise(&values, 1.0, spec, report);
}

/// The ticks of a transfer and the messages that it delivered.
///
/// One that delivered nothing has no end: it is a sample all the same, of a rate of zero. Without
/// it the rate would be that of the transfers that got through.
fn transfer_sample(began: u64, arrived: Option<Arrived>) -> (u64, u64) {
    arrived.map_or((0, 0), |arrived| (arrived.at.wrapping_sub(began), arrived.messages.get()))
}

/// Says how many transfers delivered nothing.
fn note_empty(report: &mut BlockReport, samples: &[(u64, u64)]) {
    let empty = samples.iter().filter(|(_, delivered)| *delivered == 0).count() as u64;
    if empty > 0 {
        report.counters.insert("empty_transfers".to_owned(), empty);
        report.flags.push("empty-transfers".to_owned());
    }
}

/// Leaves out samples during which the clock went back, and says so, or that there is none at all.
fn keep_forward(ticks: &mut Vec<u64>, lost: u64, size: u64, report: &mut BlockReport) {
    if ticks.is_empty() {
        let none = format!("none of {lost} messages of {} came back", format_bytes(size));
        report.flags.push(format!("{NOTHING_DELIVERED}: {none}"));
    }
    note_backwards(report, discard_backwards(ticks, |&t| t));
}

/// The report of a block in which nothing got through: no samples, and why.
fn silent(lost: u64, reason: &str) -> BlockReport {
    let mut report = BlockReport { batch: 1, histogram_scale: 1.0, ..BlockReport::default() };
    report.counters.insert("lost".to_owned(), lost);
    report.flags.push(format!("{NOTHING_DELIVERED}: {reason}"));
    report
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

/// Readings at the start of a timed region.
struct EffortStart {
    ticks: u32,
    cpu: CpuReading,
    at: u64,
}

impl EffortStart {
    fn now(kernel: &mut KernelTimes, watch: Stopwatch) -> Self {
        kernel.begin();
        Self { ticks: timer::ticks(), cpu: CpuReading::now(), at: watch.begin() }
    }

    /// The report of a region that began here and ends now.
    fn report(&self, kernel: &mut KernelTimes, watch: Stopwatch, operations: u64) -> BlockReport {
        let wall = watch.end().wrapping_sub(self.at);
        let local = CpuReading::now().since(self.cpu);
        let mut report = BlockReport::default();
        report.effort.local = local;
        (report.effort.softirq_ns, report.effort.steal_ns) = kernel.since_begin();
        report.effort.wall_ns = Span::from_secs_f64(watch.ns(wall) * 1e-9).as_ns();
        report.effort.operations = operations;
        report
            .counters
            .insert("interruptions".to_owned(), u64::from(timer::ticks().wrapping_sub(self.ticks)));
        report
    }
}

/// Removes samples whose clock went back between its two reads; how many there were.
///
/// A counter that is not the same on every CPU does so when a process migrates; the difference
/// wraps to more than half the range, which no sample lasts.
pub(crate) fn discard_backwards<T>(samples: &mut Vec<T>, ticks: impl Fn(&T) -> u64) -> u64 {
    let before = samples.len();
    samples.retain(|sample| ticks(sample) < 1 << 63);
    (before - samples.len()) as u64
}

/// Says that the clock went back.
fn note_backwards(report: &mut BlockReport, count: u64) {
    if count > 0 {
        report.counters.insert("clock_backwards".to_owned(), count);
        report.flags.push("clock-backwards".to_owned());
    }
}

/// Operations a sample, so that it lasts as long as the clock needs.
pub(crate) fn batch_for(sample_min_ns: f64, operation_ns: f64) -> u32 {
    if operation_ns >= sample_min_ns {
        return 1;
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates"
    )]
    let batch = (sample_min_ns / operation_ns).ceil() as u32;
    batch.clamp(1, 1 << 20)
}

/// Memory for samples, touched.
pub(crate) fn reserve(samples: usize) -> Vec<u64> {
    let mut memory = vec![1; samples];
    memory.clear();
    memory
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    #[test]
    fn samples_during_which_the_clock_went_back_are_discarded_and_counted() {
        let mut samples = vec![100, 5_u64.wrapping_sub(9), 200];
        assert_eq!(discard_backwards(&mut samples, |&t| t), 1);
        assert_eq!(samples, [100, 200]);
    }

    #[test]
    fn a_transfer_that_delivers_nothing_is_a_sample_of_zero_and_no_matter_of_the_clock() {
        let some = |at, n| Some(Arrived { at, messages: NonZeroU64::new(n).unwrap() });
        let mut samples: Vec<(u64, u64)> =
            [some(3_000, 4), None, some(9_000, 2)].map(|a| transfer_sample(1_000, a)).to_vec();
        assert_eq!(discard_backwards(&mut samples, |&(ticks, _)| ticks), 0);
        let mut report = BlockReport::default();
        note_empty(&mut report, &samples);
        assert_eq!(report.counters["empty_transfers"], 1);
        assert_eq!(report.flags, ["empty-transfers"]);
        let spec = BlockSpec {
            task: Task::Throughput { size: 1 },
            duration_ns: 1,
            samples_max: 10,
            samples_kept: 10,
            injected_ns: 0,
        };
        summarise_rates(samples, 12, Stopwatch::new(None), &spec, &mut report);
        assert_eq!(report.n, 3);
        let rounded: Vec<f64> = report.samples.iter().map(|rate| rate.round()).collect();
        assert_eq!(rounded, [2e6, 0.0, 250_000.0]);
    }

    #[test]
    fn an_operation_too_short_for_the_clock_is_batched_until_it_is_not() {
        assert_eq!(batch_for(2_000.0, 2_000.0), 1);
        assert_eq!(batch_for(2_000.0, 300.0), 7);
        assert_eq!(batch_for(2_000.0, 1e-9), 1 << 20);
        assert_eq!(batch_for(f64::INFINITY, 300.0), 1 << 20);
    }
}
