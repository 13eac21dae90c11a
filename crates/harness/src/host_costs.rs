//! What this host costs by itself, without a peer: kernel calls, copying and summing a buffer, its clocks, an interrupt,
//! and its processor and memory: kernels of the processor index, loads that depend on one another, reading and copying.
//!
//! A call is far shorter than a clock read is worth, so a sample is the mean of a batch, with the measured cost of the
//! empty loop taken off (rule 2). A cold buffer was last touched so long ago that no cache still has it: each operation
//! takes the next of many buffers, which together are larger than any cache.

use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use plumb_base::seed::Seed;
use plumb_base::stats::quantile;
use plumb_base::time::Span;
use plumb_clock::Stopwatch;
use plumb_copy::ChecksumKernel;
use plumb_index::IndexKernel;
use plumb_sys::clock::{self as sys_clock, ClockId};
use plumb_sys::process::call;
use plumb_sys::sched;
use plumb_sys::timer::TimerFd;
use rand::seq::SliceRandom;

use crate::effort::{Canary, EffortMeter, KernelTimes};
use crate::report::{BlockError, BlockOutcome, BlockReport, batch_for, reserve_samples, summarize};
use crate::spec::{BlockSpec, BlockTask};

/// A launch of the worker alone.
#[derive(Debug)]
pub(crate) struct HostBench {
    watch: Stopwatch,
    cpus: Vec<u32>,
    checksums: ChecksumBench,
}

impl HostBench {
    /// Timed by this watch, on these CPUs.
    pub(crate) fn new(watch: Stopwatch, cpus: Vec<u32>) -> Self {
        Self { watch, cpus, checksums: ChecksumBench::default() }
    }

    /// Measures one block.
    pub(crate) fn measure(&mut self, spec: &BlockSpec) -> BlockOutcome {
        if let Some(report) = measure_call(spec, self.watch, &self.cpus)? {
            return Ok(report);
        }
        if let Some(report) = measure_processor(spec, self.watch, &self.cpus)? {
            return Ok(report);
        }
        match self.checksums.measure(spec, self.watch, &self.cpus)? {
            Some(report) => Ok(report),
            None => measure_unbatched(spec, self.watch),
        }
    }
}

/// Measures a block if its task is a kernel call.
fn measure_call(
    spec: &BlockSpec,
    watch: Stopwatch,
    cpus: &[u32],
) -> Result<Option<BlockReport>, BlockError> {
    let BlockTask::Call { call, via } = &spec.task else { return Ok(None) };
    let null = File::open("/dev/null")
        .map_err(|error| BlockError::Unavailable(format!("cannot open /dev/null: {error}")))?;
    let fd = null.as_fd();
    let now = ClockId::Monotonic;
    let report = match (call.as_str(), via.as_str()) {
        ("getpid", "syscall") => time(spec, watch, cpus, call::getpid_raw),
        ("getpid", "libc") => time(spec, watch, cpus, call::getpid_libc),
        ("getppid", "syscall") => time(spec, watch, cpus, call::getppid_raw),
        ("getppid", "libc") => time(spec, watch, cpus, call::getppid_libc),
        ("getuid", "syscall") => time(spec, watch, cpus, call::getuid_raw),
        ("getuid", "libc") => time(spec, watch, cpus, call::getuid_libc),
        ("invalid", "syscall") => time(spec, watch, cpus, call::invalid_raw),
        ("read-zero", "syscall") => time(spec, watch, cpus, || call::read_zero_raw(fd)),
        ("read-zero", "libc") => time(spec, watch, cpus, || call::read_zero_libc(fd)),
        ("clock-gettime", "syscall") => time(spec, watch, cpus, || sys_clock::read_syscall_ns(now)),
        ("clock-gettime", "vdso") => time(spec, watch, cpus, || sys_clock::read_ns(now)),
        _ => {
            return Err(BlockError::Unavailable(format!("{call} cannot be called through {via}")));
        }
    };
    Ok(Some(report))
}

/// The pilot ends after this many calls, or after this long.
const PILOT_CALLS: u32 = 2_000;
const PILOT_NS: f64 = 1e6;
/// Batches of the empty loop.
const EMPTY_BATCHES: usize = 200;

/// Times batches of an operation; each sample is nanoseconds an operation.
fn time<R>(
    spec: &BlockSpec,
    watch: Stopwatch,
    cpus: &[u32],
    operation: impl FnMut() -> R,
) -> BlockReport {
    time_as(spec, watch, cpus, operation, |ns| ns)
}

/// The same; each sample is what is made of the nanoseconds of an operation.
fn time_as<R>(
    spec: &BlockSpec,
    watch: Stopwatch,
    cpus: &[u32],
    mut operation: impl FnMut() -> R,
    sample: impl Fn(f64) -> f64,
) -> BlockReport {
    let quality = watch.measure();
    let canary = Canary::before(watch, spec);
    let one_ns = pilot(watch, &mut operation);
    let batch = batch_for(quality.sample_min_ns(), one_ns);
    // The same loop and the same two clock reads, around nothing.
    let empty: Vec<f64> =
        (0..EMPTY_BATCHES).map(|_| watch.ns(batch_ticks(watch, batch, &mut || ()))).collect();
    let empty = quantile::sorted(&empty);
    let overhead = quantile::of_sorted(&empty, 0.5);
    let overhead_spread = quantile::of_sorted(&empty, 0.75) - quantile::of_sorted(&empty, 0.25);

    let mut ticks = reserve_samples(spec.samples_max as usize);
    let mut kernel = KernelTimes::new(cpus.to_vec());
    let meter = EffortMeter::start(&mut kernel, watch, spec);
    loop {
        ticks.push(batch_ticks(watch, batch, &mut operation));
        if meter.is_over(ticks.len(), watch.end()) {
            break;
        }
    }
    let effort = meter.stop(&mut kernel, watch, ticks.len() as u64 * u64::from(batch));
    let mut report = BlockReport { batch, effort, ..BlockReport::default() };
    report.effort.canary_ns = canary.after();
    let each = |&t: &u64| ((watch.ns(t) - overhead) / f64::from(batch)).max(0.0);
    let mut values: Vec<f64> = ticks.iter().map(each).collect();
    let median = quantile::of_sorted(&quantile::sorted(&values), 0.5);
    // Rule 3: what is left must be worth three times what the subtraction leaves open.
    if median * f64::from(batch) < 3.0 * overhead_spread {
        report.flags.push("below-floor".to_owned());
    }
    report.flags.push("batched".to_owned());
    report.flags.push("overhead-subtracted".to_owned());
    for value in &mut values {
        *value = sample(*value);
    }
    summarize(&values, 0.001, spec, &mut report);
    report
}

/// About how long one operation takes, in nanoseconds, by growing numbers of it.
fn pilot<R>(watch: Stopwatch, operation: &mut impl FnMut() -> R) -> f64 {
    let mut count = 1;
    loop {
        let ns = watch.ns(batch_ticks(watch, count, operation));
        if count >= PILOT_CALLS || ns >= PILOT_NS {
            return (ns / f64::from(count)).max(0.1);
        }
        count *= 4;
    }
}

/// Ticks for a number of operations.
#[inline(never)]
fn batch_ticks<R>(watch: Stopwatch, count: u32, operation: &mut impl FnMut() -> R) -> u64 {
    let start = watch.begin();
    for _ in 0..count {
        black_box(operation());
    }
    watch.end().wrapping_sub(start)
}

/// Bytes of each of the two arenas: three times the largest last-level cache slice that one core
/// of a common server sees.
const ARENA: usize = 96 << 20;

/// Buffers lie this far apart at least: two lines, so that the neighbour's prefetch does not warm one.
const SLOT_GAP: usize = 256;

/// Whether this processor has a kernel of this name.
pub fn has_kernel(name: &str) -> bool {
    kernel(name).is_some_and(ChecksumKernel::available)
}

fn kernel(name: &str) -> Option<ChecksumKernel> {
    ChecksumKernel::ALL.iter().copied().find(|kernel| kernel.name() == name)
}

/// Two arenas, made when they are first needed.
#[derive(Debug, Default)]
struct ChecksumBench {
    source: Vec<u8>,
    target: Vec<u8>,
}

impl ChecksumBench {
    /// Measures a block if its task is one of copying or summing.
    fn measure(
        &mut self,
        spec: &BlockSpec,
        watch: Stopwatch,
        cpus: &[u32],
    ) -> Result<Option<BlockReport>, BlockError> {
        let BlockTask::Checksum { operation, kernel: name, size, cold } = &spec.task else {
            return Ok(None);
        };
        let size = usize::try_from(*size)?;
        if size > ARENA / 2 {
            return Err(BlockError::Unavailable(format!("at most {} bytes are summed", ARENA / 2)));
        }
        let kernel = match kernel(name) {
            None if operation == "copy" => ChecksumKernel::best().if_available(),
            kernel => kernel.and_then(ChecksumKernel::if_available),
        };
        let Some(kernel) = kernel else {
            return Err(BlockError::Unavailable(format!("there is no kernel '{name}' here")));
        };
        if self.source.is_empty() {
            // Different bytes everywhere, so that no page stands for another.
            self.source = (0..ARENA).map(|i| (i ^ (i >> 8)).to_le_bytes()[0]).collect();
            self.target = vec![1; ARENA];
        }
        let mut slots = BufferSlots::new(size, *cold);
        let (source, target) = (&self.source, &mut self.target);
        let report = match operation.as_str() {
            "copy" => time(spec, watch, cpus, || {
                let at = slots.next();
                target[at..at + size].copy_from_slice(black_box(&source[at..at + size]));
                black_box(&mut target[at..at + size]);
            }),
            "sum" => time(spec, watch, cpus, || {
                let at = slots.next();
                kernel.sum(black_box(&source[at..at + size])).finish()
            }),
            "separate" => time(spec, watch, cpus, || {
                let at = slots.next();
                target[at..at + size].copy_from_slice(black_box(&source[at..at + size]));
                kernel.sum(black_box(&target[at..at + size])).finish()
            }),
            "fused" => time(spec, watch, cpus, || {
                let at = slots.next();
                let source = black_box(&source[at..at + size]);
                kernel.copy_and_sum(source, black_box(&mut target[at..at + size])).finish()
            }),
            "bare" => time(spec, watch, cpus, || {
                let at = slots.next();
                kernel.copy(black_box(&source[at..at + size]), &mut target[at..at + size]);
                black_box(&mut target[at..at + size]);
            }),
            other => {
                return Err(BlockError::Unavailable(format!("there is no operation '{other}'")));
            }
        };
        Ok(Some(report))
    }
}

/// The places of buffers in the arena, one after the other but never beside the last.
struct BufferSlots {
    apart: usize,
    count: usize,
    stride: usize,
    at: usize,
}

impl BufferSlots {
    fn new(size: usize, cold: bool) -> Self {
        let apart = size.next_multiple_of(64) + SLOT_GAP;
        let count = if cold { (ARENA - size) / apart } else { 1 };
        // Coprime with the count, so that every slot comes once before any comes again; and large,
        // so that no prefetcher follows.
        let mut stride = (count * 5 / 8).max(1);
        while gcd(stride, count) != 1 {
            stride += 1;
        }
        Self { apart, count, stride, at: 0 }
    }

    #[inline]
    fn next(&mut self) -> usize {
        self.at += self.stride;
        // A stride is at most the count; a division here would be timed with every operation.
        if self.at >= self.count {
            self.at -= self.count;
        }
        self.at * self.apart
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Measures a block whose task is a clock or an interrupt.
fn measure_unbatched(spec: &BlockSpec, watch: Stopwatch) -> BlockOutcome {
    let canary = Canary::before(watch, spec);
    let values = match &spec.task {
        BlockTask::ClockResolution { clock } => {
            ClockSampler { spec, watch, steps: true }.sample(clock)
        }
        BlockTask::ClockReadCost { clock } => {
            ClockSampler { spec, watch, steps: false }.sample(clock)
        }
        BlockTask::ClockOffset { clock, cpu } if clock == "tsc" => offsets(spec, watch, *cpu),
        BlockTask::ClockOffset { clock, .. } => Err(BlockError::Unavailable(format!(
            "the kernel keeps {clock} the same on every CPU; only the counter itself may differ"
        ))),
        BlockTask::Interrupt => interrupts(spec, watch),
        _ => Err(BlockError::wrong_task("this host alone")),
    }?;
    let mut report = BlockReport { batch: values.batch, ..BlockReport::default() };
    report.effort.canary_ns = canary.after();
    report.effort.operations = values.samples.len() as u64 * u64::from(values.batch);
    if values.batch > 1 {
        report.flags.push("batched".to_owned());
    }
    summarize(&values.samples, 0.001, spec, &mut report);
    Ok(report)
}

/// Samples, and operations a sample.
struct ClockSamples {
    samples: Vec<f64>,
    batch: u32,
}

/// Samples a clock whose reading is known at compile time.
struct ClockSampler<'a> {
    spec: &'a BlockSpec,
    watch: Stopwatch,
    /// Its steps; the cost of a read otherwise.
    steps: bool,
}

impl ClockSampler<'_> {
    fn sample(&self, name: &str) -> Result<ClockSamples, BlockError> {
        Ok(match name {
            "tsc" if self.watch == Stopwatch::new(None) => {
                return Err(BlockError::Unavailable(
                    "the time-stamp counter is not constant here, or the kernel calls it unstable"
                        .to_owned(),
                ));
            }
            "tsc" => self.run(self.watch.ns(1), sys_clock::ticks_begin),
            "monotonic" => self.run(1.0, || sys_clock::read_ns(ClockId::Monotonic)),
            "monotonic-raw" => self.run(1.0, || sys_clock::read_ns(ClockId::MonotonicRaw)),
            "monotonic-coarse" => self.run(1.0, || sys_clock::read_ns(ClockId::MonotonicCoarse)),
            "realtime" => self.run(1.0, || sys_clock::read_ns(ClockId::Realtime)),
            "gettimeofday" => self.run(1000.0, sys_clock::gettimeofday_us),
            "process-cpu" => self.run(1.0, || sys_clock::read_ns(ClockId::ProcessCpu)),
            "thread-cpu" => self.run(1.0, || sys_clock::read_ns(ClockId::ThreadCpu)),
            other => {
                return Err(BlockError::Unavailable(format!(
                    "'{other}' is not a clock plumb knows"
                )));
            }
        })
    }

    /// `unit_ns` is what one count of `read` is worth.
    fn run(&self, unit_ns: f64, read: impl Fn() -> u64) -> ClockSamples {
        if self.steps { self.smallest_steps(unit_ns, read) } else { self.read_costs(read) }
    }

    /// The smallest positive steps that reading in a loop can see: the clock is read until it has moved.
    fn smallest_steps(&self, unit_ns: f64, read: impl Fn() -> u64) -> ClockSamples {
        let mut samples = Vec::with_capacity(self.spec.samples_max as usize);
        let start = self.watch.begin();
        let duration = self.watch.ticks(self.spec.duration_ns as f64);
        while samples.len() < self.spec.samples_max as usize {
            let first = read();
            let mut next = read();
            while next <= first && self.watch.end().wrapping_sub(start) < duration * 4 {
                next = read();
            }
            if next > first {
                samples.push((next - first) as f64 * unit_ns);
            }
            if self.watch.end().wrapping_sub(start) >= duration && !samples.is_empty() {
                break;
            }
            if self.watch.end().wrapping_sub(start) >= duration * 4 {
                break;
            }
        }
        ClockSamples { samples, batch: 1 }
    }

    /// The cost of one read, as the mean of a batch.
    fn read_costs(&self, read: impl Fn() -> u64) -> ClockSamples {
        let time = |count: u32| {
            let start = self.watch.begin();
            for _ in 0..count {
                black_box(read());
            }
            self.watch.ns(self.watch.end().wrapping_sub(start))
        };
        let pilot = time(1000) / 1000.0;
        let batch = batch_for(self.watch.measure().sample_min_ns(), pilot);
        let mut samples = Vec::with_capacity(self.spec.samples_max as usize);
        let start = self.watch.begin();
        let duration = self.watch.ticks(self.spec.duration_ns as f64);
        while samples.len() < self.spec.samples_max as usize {
            samples.push(time(batch) / f64::from(batch));
            if self.watch.end().wrapping_sub(start) >= duration {
                break;
            }
        }
        ClockSamples { samples, batch }
    }
}

/// How soon a timer interrupts: long after the call that sets it has returned.
const INTERRUPT_AFTER: Span = Span::from_us(50);
/// And for how long the interrupt is awaited: other interrupts are rare in that time.
const INTERRUPT_AWAITED: Span = Span::from_us(100);

/// Interrupts of a timer for which nobody waits, as the longest gap between two readings of the clock around its
/// expiry.
fn interrupts(spec: &BlockSpec, watch: Stopwatch) -> Result<ClockSamples, BlockError> {
    let fault = |error| BlockError::Unavailable(format!("cannot set a timer: {error}"));
    let timer = TimerFd::new().map_err(fault)?;
    let [awaited, duration] =
        [INTERRUPT_AWAITED.as_ns(), spec.duration_ns].map(|ns| watch.ticks(ns as f64));
    let mut samples = reserve_samples(spec.samples_max as usize);
    let begin = watch.begin();
    while samples.len() < spec.samples_max as usize {
        timer.set(INTERRUPT_AFTER.as_ns()).map_err(fault)?;
        let start = watch.begin();
        let (mut last, mut longest) = (start, 0);
        while last.wrapping_sub(start) < awaited {
            let now = watch.end();
            longest = longest.max(now.wrapping_sub(last));
            last = now;
        }
        samples.push(longest);
        if last.wrapping_sub(begin) >= duration {
            break;
        }
    }
    let samples = samples.into_iter().map(|ticks| watch.ns(ticks)).collect();
    Ok(ClockSamples { samples, batch: 1 })
}

/// The request that ends the other thread.
const STOP: u64 = u64::MAX;

/// Exchanges of counter readings with a thread on another CPU; each sample bounds the offset.
///
/// As Cristian's algorithm (1989): the other CPU's reading lies between two of ours, so the offset
/// is known to half the round trip. A sample is the absolute distance of its reading from the
/// middle; the smallest round trips are the ones that tell something, and only they are kept.
fn offsets(spec: &BlockSpec, watch: Stopwatch, cpu: u32) -> Result<ClockSamples, BlockError> {
    if sched::current_cpu().ok() == Some(cpu) {
        return Ok(ClockSamples { samples: vec![0.0], batch: 1 });
    }
    let request = AtomicU64::new(0);
    let answer = AtomicU64::new(0);
    let exchanges = (spec.samples_max as usize).clamp(100, 20_000);
    let bound = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let bound = sched::bind(&[cpu]);
            let mut last = 0;
            if bound.is_err() {
                answer.store(STOP, Ordering::Release);
                return bound;
            }
            loop {
                let wanted = request.load(Ordering::Acquire);
                if wanted == STOP {
                    return Ok(());
                }
                if wanted != last {
                    last = wanted;
                    answer.store(watch.begin(), Ordering::Release);
                }
                std::hint::spin_loop();
            }
        });
        let exchanged = exchange(watch, &request, &answer, exchanges);
        request.store(STOP, Ordering::Release);
        let bound = other.join().unwrap_or(Ok(()));
        bound.map(|()| exchanged)
    });
    let mut trips = bound
        .map_err(|error| BlockError::Unavailable(format!("may not run on CPU {cpu}: {error}")))?;
    trips.sort_by(|a, b| a.0.total_cmp(&b.0));
    trips.truncate((trips.len() / 10).max(1));
    Ok(ClockSamples {
        samples: trips.into_iter().map(|(_, offset)| offset.abs()).collect(),
        batch: 1,
    })
}

/// (round trip, offset of the other's reading from its middle), in nanoseconds.
fn exchange(
    watch: Stopwatch,
    request: &AtomicU64,
    answer: &AtomicU64,
    count: usize,
) -> Vec<(f64, f64)> {
    let mut trips = Vec::with_capacity(count);
    for number in 1..=count as u64 {
        answer.store(0, Ordering::Relaxed);
        let sent = watch.begin();
        request.store(number, Ordering::Release);
        let theirs = loop {
            let theirs = answer.load(Ordering::Acquire);
            if theirs != 0 {
                break theirs;
            }
            std::hint::spin_loop();
        };
        let got = watch.end();
        if theirs == STOP {
            break;
        }
        let trip = watch.ns(got.wrapping_sub(sent));
        let after_sent = watch.ns(theirs.wrapping_sub(sent));
        // A reading before ours wraps to a huge number: it is behind by the difference.
        let after_sent =
            if after_sent > 1e15 { -watch.ns(sent.wrapping_sub(theirs)) } else { after_sent };
        trips.push((trip, after_sent - trip / 2.0));
    }
    trips
}

/// Loads that are one operation, so that the loop around them does not count.
const LOADS: u32 = 512;
/// Bytes between two places that are loaded from: a line, and the one that is fetched with it.
const LINE: usize = 128;
/// The largest memory that is walked over.
const SIZE_MAX: u64 = 1 << 30;

/// Measures a block if its task is one of these.
fn measure_processor(
    spec: &BlockSpec,
    watch: Stopwatch,
    cpus: &[u32],
) -> Result<Option<BlockReport>, BlockError> {
    match &spec.task {
        BlockTask::IndexKernel { kernel } => measure_kernel(spec, watch, cpus, kernel).map(Some),
        BlockTask::Memory { operation, size } if *size <= SIZE_MAX => {
            measure_memory(spec, watch, cpus, operation, usize::try_from(*size)?).map(Some)
        }
        BlockTask::Memory { .. } => {
            Err(BlockError::Unavailable(format!("at most {SIZE_MAX} bytes are walked over")))
        }
        _ => Ok(None),
    }
}

fn measure_kernel(
    spec: &BlockSpec,
    watch: Stopwatch,
    cpus: &[u32],
    name: &str,
) -> Result<BlockReport, BlockError> {
    let Some(kernel) = IndexKernel::from_name(name) else {
        return Err(BlockError::Unavailable(format!("the processor index has no kernel '{name}'")));
    };
    let mut prepared = kernel.prepare();
    let mut checked = prepared.run_checked();
    let report = time(spec, watch, cpus, || {
        if let Err(error) = prepared.run_checked() {
            checked = Err(error);
        }
    });
    checked.map_err(|error| BlockError::Failed(error.to_string()))?;
    Ok(report)
}

fn measure_memory(
    spec: &BlockSpec,
    watch: Stopwatch,
    cpus: &[u32],
    operation: &str,
    size: usize,
) -> Result<BlockReport, BlockError> {
    let rate = |ns: f64| size as f64 / ns.max(1e-3) * 1e9;
    // Different bytes everywhere, so that no page stands for another.
    let bytes = || -> Vec<u8> { (0..size).map(|i| (i ^ (i >> 8)).to_le_bytes()[0]).collect() };
    Ok(match operation {
        "load" => {
            let chain = ring(size);
            let mut at = 0;
            let walk = || {
                for _ in 0..LOADS {
                    at = chain[at as usize];
                }
                at
            };
            time_as(spec, watch, cpus, walk, |ns| ns / f64::from(LOADS))
        }
        "read" => {
            let source = bytes();
            time_as(spec, watch, cpus, || plumb_copy::sum(black_box(&source)).finish(), rate)
        }
        "copy" => {
            let (source, mut target) = (bytes(), vec![1; size]);
            let copy = || {
                target.copy_from_slice(black_box(&source));
                black_box(&mut target);
            };
            time_as(spec, watch, cpus, copy, rate)
        }
        other => return Err(BlockError::Unavailable(format!("there is no operation '{other}'"))),
    })
}

/// Memory of about this size in which every place names the next one, all in one ring in random order.
fn ring(size: usize) -> Vec<u32> {
    const STEP: usize = LINE / size_of::<u32>();
    let places = (size / LINE).max(2);
    let mut order: Vec<u32> =
        (0..places).filter_map(|place| u32::try_from(place * STEP).ok()).collect();
    order.shuffle(&mut Seed(1).stream("ring"));
    let mut ring = vec![0; places * STEP];
    for (place, next) in order.iter().zip(order.iter().cycle().skip(1)) {
        ring[*place as usize] = *next;
    }
    // The walk begins at 0, which is on the ring like every other place.
    ring
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn cold_buffers_are_all_visited_before_any_comes_again() {
        for size in [60, 1514, 65_536, 1 << 20] {
            let mut slots = BufferSlots::new(size, true);
            let seen: BTreeSet<usize> = (0..slots.count).map(|_| slots.next()).collect();
            assert_eq!(seen.len(), slots.count);
            assert!(seen.iter().all(|at| at + size <= ARENA));
            assert!(slots.count * size > ARENA / 6);
        }
        let mut warm = BufferSlots::new(1514, false);
        assert_eq!((warm.next(), warm.next()), (0, 0));
    }

    #[test]
    fn a_walk_visits_every_place_before_it_returns() {
        for size in [256, 16 << 10, 1 << 20] {
            let ring = ring(size);
            let (mut at, mut steps) = (0, 0);
            loop {
                at = ring[at as usize];
                steps += 1;
                if at == 0 {
                    break;
                }
            }
            assert_eq!(steps, (size / LINE).max(2));
        }
    }
}
