//! A block of streams: the worker's threads receive, and its first one reads clocks and counters between
//! them at even intervals.
//!
//! What arrived is what counts. A block ends when every stream's last message has come, and as many as were
//! sent. Left out: how the streams came to be (`super`).

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::{Scope, ScopedJoinHandle};

use plumb_base::time::Span;
use plumb_sys::clock::ClockId;
use plumb_sys::socket::IntOption;
use plumb_sys::{clock, socket, timer};

use super::CpuTimeTrace;
use super::cpu_load::CpuLoadProcess;
use super::process_tweaks::{MessageBuffer, stream_thread};
use super::sender::{LAST_MESSAGE, SenderProgress, SenderToWorker, WorkerToSender};
use crate::effort::{Canary, CpuReading, KernelTimes, postpone_tick};
use crate::launch_network::LaunchNetwork;
use crate::launch_protocol;
use crate::peer_handle::FarProcess;
use crate::report::{BlockError, BlockPartReport, BlockReport, summarize};
use crate::spec::{BlockSpec, BlockTask, TcpStreamsSpec};
use plumb_clock::Stopwatch;
use plumb_net::measure::bulk::{BulkFlow, Counter};

/// Intervals of a block: enough to find its warm-up.
const INTERVALS: u64 = 40;

/// Parts of a block that are its samples: what comes in an interval is a burst or none, and may cost less CPU
/// time than a clock tells apart.
const PARTS: usize = 8;

/// The streams' near ends and all that a block of them needs.
pub(super) struct StreamsReceiver {
    pub(super) spec: TcpStreamsSpec,
    pub(super) seed: u64,
    pub(super) stopwatch: Stopwatch,
    pub(super) sockets: Vec<TcpStream>,
    pub(super) network: LaunchNetwork,
    pub(super) sender: FarProcess,
    /// CPUs of which a part is taken away while a block is measured.
    pub(super) loaded_cpus: Vec<u32>,
    pub(super) kernel: KernelTimes,
    /// CPUs that both processes are bound to; none where the scheduler places them.
    pub(super) cpus: Vec<u32>,
    /// What is known about network and sockets, for the record.
    pub(super) facts: BTreeMap<String, String>,
}

/// What was read at once.
#[derive(Clone, Copy, Debug, Default)]
struct StreamsReading {
    ticks: u64,
    bytes: u64,
    receiver_cpu_ns: u64,
    /// None of a process of another host.
    sender_cpu_ns: Option<u64>,
}

/// What a block was, apart from its samples.
struct StreamsBlockRun {
    readings: Vec<StreamsReading>,
    report: BlockReport,
    /// Bytes of each stream.
    received: Vec<u64>,
}

impl StreamsReceiver {
    /// Measures one block.
    pub(super) fn measure(&mut self, block: &BlockSpec) -> Result<BlockReport, BlockError> {
        let (size, trace) = match block.task {
            BlockTask::Streams { size } => (size, None),
            BlockTask::StreamsTrace { size } => {
                let trace = CpuTimeTrace::new(self.sender.pid(), &self.cpus, self.stopwatch)?;
                (size, Some(trace))
            }
            _ => {
                let why = format!("{:?} does not apply to streams", block.task);
                return Err(BlockError::Unavailable(why));
            }
        };
        let size =
            usize::try_from(size).map_err(|error| BlockError::Unavailable(error.to_string()))?;
        let canary = Canary::before(self.stopwatch, block);
        let mut buffers = Vec::with_capacity(self.sockets.len());
        for _ in &self.sockets {
            buffers.push(MessageBuffer::new(size, self.spec.tweaks)?);
        }
        // After the canary, which is to notice what nobody meant to take.
        let share = self.start_cpu_load()?;
        let packets = self.network.packets_received();
        let StreamsBlockRun { readings: marks, mut report, received } =
            self.run_block(block, size, &mut buffers, trace.as_ref())?;
        let packets = packets.zip(self.network.packets_received());
        let stopped = self.sender.receive(SenderToWorker::Failed)?;
        let SenderToWorker::Stopped { messages, cpu: sender, progress: notes } = stopped else {
            return Err(unexpected_message(&stopped));
        };
        let sent: Vec<u64> = messages.iter().map(|count| count * size as u64).collect();
        if sent != received {
            return Err(BlockError::Failed(format!(
                "{sent:?} bytes were sent and {received:?} came"
            )));
        }
        self.check(&buffers, &mut report);
        report.effort.peer = sender;
        let total: u64 = received.iter().sum();
        let packets = packets.map(|(before, after)| after.saturating_sub(before));
        let packets_a_byte = packets
            .filter(|packets| *packets > 0 && total > 0)
            .map(|packets| packets as f64 / total as f64);
        report.counters.insert("messages".to_owned(), report.effort.operations);
        if let Some(packets) = packets {
            report.counters.insert("packets".to_owned(), packets);
        }
        self.network.add_counters(&mut report);
        if trace.is_none() {
            let costs = sender_bytes_per_cpu_second(&notes, size);
            self.add_responses(&marks, packets_a_byte, &costs, block, &mut report);
        }
        if share.is_some() {
            self.set_remote_cpu_load(false)?;
        }
        drop(share);
        report.effort.canary_ns = canary.after();
        Ok(report)
    }

    /// Receives on every stream for as long as a block lasts, and until its last message has come.
    fn run_block(
        &mut self,
        block: &BlockSpec,
        size: usize,
        buffers: &mut [MessageBuffer],
        trace: Option<&CpuTimeTrace>,
    ) -> Result<StreamsBlockRun, BlockError> {
        let tallies: Vec<Counter> = buffers.iter().map(|_| Counter::default()).collect();
        let mut marks = Vec::with_capacity(usize::try_from(INTERVALS).unwrap_or(0) + 1);
        std::thread::scope(|scope| {
            let receivers = match self.receivers(scope, &tallies, buffers) {
                Ok(receivers) => receivers,
                Err(error) => {
                    self.shut_down_streams();
                    return Err(BlockError::Failed(format!("cannot receive: {error}")));
                }
            };
            let outcome = self.sample_block(block, size, &tallies, &receivers, &mut marks, trace);
            if outcome.is_err() {
                self.shut_down_streams();
            }
            let joined = receivers.into_iter().map(|receiver| {
                let panicked = |_| Err(io::Error::other("a receiving thread panicked"));
                receiver.join().unwrap_or_else(panicked)
            });
            let received = joined.collect::<io::Result<Vec<u64>>>();
            let report = outcome?;
            let received =
                received.map_err(|error| BlockError::Failed(format!("a stream broke: {error}")))?;
            Ok(StreamsBlockRun { readings: marks, report, received })
        })
    }

    /// Starts a thread for each stream.
    fn receivers<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        tallies: &'scope [Counter],
        buffers: &'scope mut [MessageBuffer],
    ) -> io::Result<Vec<ScopedJoinHandle<'scope, io::Result<u64>>>> {
        let mut receivers = Vec::with_capacity(self.sockets.len());
        for ((socket, tally), buffer) in self.sockets.iter().zip(tallies).zip(buffers) {
            // A descriptor of its own, so that the receiver itself stays free for the others.
            let socket = socket.try_clone()?;
            let tweaks = self.spec.tweaks;
            let receive = move || {
                tweaks.apply_to_thread()?;
                receive(socket.as_fd(), tally, buffer.bytes_mut())
            };
            receivers.push(stream_thread("receiver").spawn_scoped(scope, receive)?);
        }
        Ok(receivers)
    }

    /// Has the sender begin, reads clocks and counters at every interval, and has it stop.
    fn sample_block(
        &mut self,
        block: &BlockSpec,
        size: usize,
        tallies: &[Counter],
        receivers: &[ScopedJoinHandle<'_, io::Result<u64>>],
        marks: &mut Vec<StreamsReading>,
        trace: Option<&CpuTimeTrace>,
    ) -> Result<BlockReport, BlockError> {
        self.set_low_water(self.spec.low_water)?;
        let note_every_ns = self.sender.is_remote().then_some(block.duration_ns / PARTS as u64);
        let size_bytes = size as u64;
        let begin = WorkerToSender::Begin { size: size_bytes, progress_every_ns: note_every_ns };
        self.sender.send(&begin)?;
        match self.sender.receive(SenderToWorker::Failed)? {
            SenderToWorker::Begun => {}
            other => return Err(unexpected_message(&other)),
        }
        self.kernel.begin();
        postpone_tick(block.duration_ns);
        let (ticks, cpu) = (timer::ticks(), CpuReading::now());
        let interval = self.stopwatch.ticks((block.duration_ns / INTERVALS) as f64).max(1);
        let first = self.read_counters(tallies)?;
        marks.push(first);
        for index in 1..=INTERVALS {
            self.sleep_until(first.ticks.wrapping_add(interval * index));
            marks.push(self.read_counters(tallies)?);
            if receivers.iter().any(ScopedJoinHandle::is_finished) {
                return Err(BlockError::Failed("a stream ended before its time".to_owned()));
            }
        }
        let last = marks.last().copied().unwrap_or(first);
        let mut report = BlockReport { batch: 1, ..BlockReport::default() };
        report.effort.local = CpuReading::now().since(cpu);
        (report.effort.softirq_ns, report.effort.steal_ns) = self.kernel.since_begin();
        let wall_ns = self.stopwatch.ns(last.ticks.wrapping_sub(first.ticks));
        report.effort.wall_ns = Span::from_secs_f64(wall_ns * 1e-9).as_ns();
        report.effort.operations = (last.bytes - first.bytes) / size_bytes.max(1);
        let interruptions = u64::from(timer::ticks().wrapping_sub(ticks));
        postpone_tick(0);
        report.counters.insert("interruptions".to_owned(), interruptions);
        if let Some(trace) = trace {
            report.parts = trace.record()?;
            report.flags.push("probe-corrected".to_owned());
        }
        // The rest may be less than the low-water mark.
        self.set_low_water(self.spec.low_water.and(Some(1)))?;
        self.sender.send(&WorkerToSender::Stop)?;
        Ok(report)
    }

    fn start_cpu_load(&self) -> Result<Option<CpuLoadProcess>, BlockError> {
        if self.loaded_cpus.is_empty() {
            return Ok(None);
        }
        let share = CpuLoadProcess::start(&self.loaded_cpus, self.spec.cpu_percent);
        let share = share.map_err(|error| BlockError::Failed(error.to_string()))?;
        self.set_remote_cpu_load(true)?;
        Ok(Some(share))
    }

    /// The same on another host, where the sender is on one.
    fn set_remote_cpu_load(&self, is_taken: bool) -> Result<(), BlockError> {
        let Some(host) = &self.network.remote_host else { return Ok(()) };
        let shared = host.supervisor.lock().set_cpu_load(is_taken);
        shared.map_err(|error| BlockError::Failed(error.to_string()))
    }

    fn set_low_water(&self, bytes: Option<u32>) -> Result<(), BlockError> {
        let Some(bytes) = bytes else { return Ok(()) };
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        for socket in &self.sockets {
            socket::set_option(socket.as_fd(), IntOption::LowWater, bytes)
                .map_err(|error| BlockError::Failed(format!("cannot set SO_RCVLOWAT: {error}")))?;
        }
        Ok(())
    }

    /// Wakes every thread that still waits.
    fn shut_down_streams(&self) {
        for socket in &self.sockets {
            // One that is closed already needs no closing.
            drop(socket.shutdown(Shutdown::Both));
        }
    }

    fn read_counters(&self, tallies: &[Counter]) -> Result<StreamsReading, BlockError> {
        // A process of another host says itself in the end what it has used.
        let sender_cpu_ns = self.sender.pid().map(clock::process_cpu_ns).transpose();
        let gone = |error| BlockError::Failed(format!("the sender is gone: {error}"));
        let sender_cpu_ns = sender_cpu_ns.map_err(gone)?;
        Ok(StreamsReading {
            ticks: self.stopwatch.end(),
            bytes: tallies.iter().map(Counter::get).sum(),
            receiver_cpu_ns: clock::read_ns(ClockId::ProcessCpu),
            sender_cpu_ns,
        })
    }

    fn sleep_until(&self, ticks: u64) {
        loop {
            let left = ticks.wrapping_sub(self.stopwatch.end());
            // Past it, the difference wraps.
            if left == 0 || left >= 1 << 63 {
                return;
            }
            timer::sleep_ns(Span::from_secs_f64(self.stopwatch.ns(left) * 1e-9).as_ns());
        }
    }

    /// Looks at what came last.
    fn check(&self, buffers: &[MessageBuffer], report: &mut BlockReport) {
        let size = buffers.first().map_or(0, |buffer| buffer.bytes().len());
        let pattern = launch_protocol::payload_pattern(self.seed, size);
        let is_whole = |buffer: &&MessageBuffer| buffer.bytes().get(1..) == pattern.get(1..);
        let corrupted = buffers.len() - buffers.iter().filter(is_whole).count();
        if corrupted > 0 {
            report.counters.insert("corrupted".to_owned(), corrupted as u64);
            report.flags.push("corrupted".to_owned());
        }
    }

    /// Makes the responses of what was read.
    fn add_responses(
        &self,
        marks: &[StreamsReading],
        packets_a_byte: Option<f64>,
        costs: &[f64],
        block: &BlockSpec,
        report: &mut BlockReport,
    ) {
        let rate = |pair: &[StreamsReading]| {
            let seconds =
                self.stopwatch.ns(pair[1].ticks.wrapping_sub(pair[0].ticks)).max(1.0) * 1e-9;
            (pair[1].bytes - pair[0].bytes) as f64 / seconds
        };
        let rates: Vec<f64> = marks.windows(2).map(rate).collect();
        // For its warm-up alone: a stream comes in bursts, whose middle is not what it carries.
        summarize(&rates, 1.0, block, report);
        let warmup = usize::try_from(report.warmup).unwrap_or(0);
        let steady = marks.get(warmup..).unwrap_or(marks);
        let ends: Vec<StreamsReading> =
            part_boundaries(steady.len()).map(|index| steady[index]).collect();
        let each = |value: &dyn Fn(StreamsReading, StreamsReading) -> f64| -> Vec<f64> {
            let values = ends.windows(2).map(|pair| value(pair[0], pair[1]));
            values.filter(|value| value.is_finite()).collect()
        };
        let bytes = |a: StreamsReading, b: StreamsReading| (b.bytes - a.bytes) as f64;
        let seconds = |a: StreamsReading, b: StreamsReading| {
            self.stopwatch.ns(b.ticks.wrapping_sub(a.ticks)) * 1e-9
        };
        let of = |ns: u64, before: u64| ns.saturating_sub(before) as f64;
        // Unknown is NaN, which is left out below.
        let sender = |a: StreamsReading, b: StreamsReading| match (b.sender_cpu_ns, a.sender_cpu_ns)
        {
            (Some(now), Some(before)) => of(now, before),
            _ => f64::NAN,
        };
        let receiver =
            |a: StreamsReading, b: StreamsReading| of(b.receiver_cpu_ns, a.receiver_cpu_ns);
        let mut add = |response: &str, samples: Vec<f64>| {
            report.parts.push(BlockPartReport {
                response: response.to_owned(),
                n: samples.len() as u64,
                samples,
                histogram: Vec::new(),
                histogram_scale: 1.0,
                n_eff: None,
            });
        };
        add("throughput", each(&|a, b| bytes(a, b) / seconds(a, b)));
        if self.sender.is_remote() {
            // Without the parts in which the streams began.
            let intervals = rates.len().max(1);
            let first = (warmup * costs.len()).div_ceil(intervals).min(costs.len());
            add("sender-cpu", costs[first..].to_vec());
        } else {
            add("sender-cpu", each(&|a, b| bytes(a, b) / (sender(a, b) * 1e-9)));
        }
        add("receiver-cpu", each(&|a, b| bytes(a, b) / (receiver(a, b) * 1e-9)));
        if let Some(packets) = packets_a_byte {
            add("packets", each(&|a, b| packets * bytes(a, b) / seconds(a, b)));
            let both = |a, b| sender(a, b) + receiver(a, b);
            add("packet-cpu", each(&|a, b| both(a, b) / (packets * bytes(a, b))));
        }
    }
}

fn unexpected_message(message: &SenderToWorker) -> BlockError {
    BlockError::Failed(match message {
        SenderToWorker::Failed(reason) => format!("the sender failed: {reason}"),
        other => format!("the sender sent an unexpected {other:?}"),
    })
}

/// Where the parts of so many marks begin and end: as even as they can be.
fn part_boundaries(marks: usize) -> impl Iterator<Item = usize> {
    let intervals = marks.saturating_sub(1);
    let parts = PARTS.min(intervals);
    (0..=parts).filter(move |_| parts > 0).map(move |part| intervals * part / parts)
}

/// Bytes for each second of CPU between two notes of a sender and the next.
fn sender_bytes_per_cpu_second(notes: &[SenderProgress], size: usize) -> Vec<f64> {
    let between = |pair: &[SenderProgress]| {
        let messages = pair[1].messages.saturating_sub(pair[0].messages);
        let ns = pair[1].cpu_ns.saturating_sub(pair[0].cpu_ns);
        messages as f64 * size as f64 / (ns as f64 * 1e-9)
    };
    notes.windows(2).map(between).filter(|value| value.is_finite()).collect()
}

/// Receives messages until the last has come; bytes.
fn receive(fd: BorrowedFd<'_>, tally: &Counter, message: &mut [u8]) -> io::Result<u64> {
    let mut flow = BulkFlow::default();
    loop {
        flow.receive_message(fd, message, tally)?;
        if message[0] == LAST_MESSAGE {
            return Ok(flow.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_block_cover_it_from_end_to_end() {
        for marks in [2, 3, 7, 41] {
            let ends: Vec<usize> = part_boundaries(marks).collect();
            assert_eq!((ends[0], ends[ends.len() - 1]), (0, marks - 1));
            assert!(ends.windows(2).all(|pair| pair[0] < pair[1]), "{ends:?}");
        }
        assert_eq!((part_boundaries(0).count(), part_boundaries(1).count()), (0, 0));
    }
}
