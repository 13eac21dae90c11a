//! What clocks can resolve, what reading them costs, and how far the counters of two CPUs differ.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use plumb_sys::affinity;
use plumb_sys::clock::{self as sys_clock, Clock};

use super::bench::{Trouble, batch_for};
use super::canary::Canary;
use super::sampler;
use super::spec::{BlockReport, BlockSpec, Task};
use crate::clock::Stopwatch;

/// Measures a block whose task is a clock.
pub(crate) fn measure(spec: &BlockSpec, watch: Stopwatch) -> Result<BlockReport, Trouble> {
    let canary = Canary::before(watch, spec);
    let values = match &spec.task {
        Task::ClockResolution { clock } => with_clock(clock, watch, Resolution { spec, watch }),
        Task::ClockReadCost { clock } => with_clock(clock, watch, ReadCost { spec, watch }),
        Task::ClockOffset { clock, cpu } if clock == "tsc" => offsets(spec, watch, *cpu),
        Task::ClockOffset { clock, .. } => Err(Trouble::Impossible(format!(
            "the kernel keeps {clock} the same on every CPU; only the counter itself may differ"
        ))),
        other => Err(Trouble::Impossible(format!("{other:?} needs a channel"))),
    }?;
    let mut report = BlockReport { batch: values.batch, ..BlockReport::default() };
    report.effort.canary_ns = canary.after();
    report.effort.operations = values.samples.len() as u64 * u64::from(values.batch);
    if values.batch > 1 {
        report.flags.push("batched".to_owned());
    }
    sampler::summarise(&values.samples, 0.001, spec, &mut report);
    Ok(report)
}

/// Samples, and operations a sample.
struct Values {
    samples: Vec<f64>,
    batch: u32,
}

/// Something to do with a clock whose reading is known at compile time.
trait WithClock {
    /// `unit_ns` is what one count of `read` is worth.
    fn run(self, unit_ns: f64, read: impl Fn() -> u64) -> Values;
}

fn with_clock(name: &str, watch: Stopwatch, what: impl WithClock) -> Result<Values, Trouble> {
    Ok(match name {
        "tsc" if watch == Stopwatch::new(None) => {
            return Err(Trouble::Impossible(
                "the time-stamp counter is not constant here, or the kernel calls it unstable"
                    .to_owned(),
            ));
        }
        "tsc" => what.run(watch.ns(1), sys_clock::ticks_begin),
        "monotonic" => what.run(1.0, || sys_clock::read_ns(Clock::Monotonic)),
        "monotonic-raw" => what.run(1.0, || sys_clock::read_ns(Clock::MonotonicRaw)),
        "monotonic-coarse" => what.run(1.0, || sys_clock::read_ns(Clock::MonotonicCoarse)),
        "realtime" => what.run(1.0, || sys_clock::read_ns(Clock::Realtime)),
        "gettimeofday" => what.run(1000.0, sys_clock::gettimeofday_us),
        "process-cpu" => what.run(1.0, || sys_clock::read_ns(Clock::ProcessCpu)),
        "thread-cpu" => what.run(1.0, || sys_clock::read_ns(Clock::ThreadCpu)),
        other => return Err(Trouble::Impossible(format!("'{other}' is not a clock plumb knows"))),
    })
}

/// The smallest positive step that reading in a loop can see.
struct Resolution<'a> {
    spec: &'a BlockSpec,
    watch: Stopwatch,
}

impl WithClock for Resolution<'_> {
    /// Each sample is one step: the clock is read until it has moved.
    fn run(self, unit_ns: f64, read: impl Fn() -> u64) -> Values {
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
        Values { samples, batch: 1 }
    }
}

/// The cost of one read, as the mean of a batch.
struct ReadCost<'a> {
    spec: &'a BlockSpec,
    watch: Stopwatch,
}

impl WithClock for ReadCost<'_> {
    fn run(self, _unit_ns: f64, read: impl Fn() -> u64) -> Values {
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
        Values { samples, batch }
    }
}

/// The request that ends the other thread.
const STOP: u64 = u64::MAX;

/// Exchanges of counter readings with a thread on another CPU; each sample bounds the offset.
///
/// As Cristian's algorithm (1989): the other CPU's reading lies between two of ours, so the offset
/// is known to half the round trip. A sample is the absolute distance of its reading from the
/// middle; the smallest round trips are the ones that tell something, and only they are kept.
fn offsets(spec: &BlockSpec, watch: Stopwatch, cpu: u32) -> Result<Values, Trouble> {
    if affinity::current_cpu().ok() == Some(cpu) {
        return Ok(Values { samples: vec![0.0], batch: 1 });
    }
    let request = AtomicU64::new(0);
    let answer = AtomicU64::new(0);
    let exchanges = (spec.samples_max as usize).clamp(100, 20_000);
    let bound = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let bound = affinity::bind(&[cpu]);
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
    let mut trips =
        bound.map_err(|error| Trouble::Impossible(format!("may not run on CPU {cpu}: {error}")))?;
    trips.sort_by(|a, b| a.0.total_cmp(&b.0));
    trips.truncate((trips.len() / 10).max(1));
    Ok(Values { samples: trips.into_iter().map(|(_, offset)| offset.abs()).collect(), batch: 1 })
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
