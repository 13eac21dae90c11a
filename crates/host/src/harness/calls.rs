//! The cost of one trivial kernel call, raw and through libc, with the vDSO as contrast.
//!
//! A call is far shorter than a clock read is worth, so each sample is the mean of a batch, with
//! the measured cost of the empty loop taken off (rule 2).

use std::fs::File;
use std::hint::black_box;
use std::os::fd::AsFd;

use plumb_base::stats::quantile;
use plumb_base::time::Span;
use plumb_sys::clock::{self as sys_clock, Clock};
use plumb_sys::process::call;

use super::bench::{Trouble, batch_for, reserve};
use super::canary::Canary;
use super::effort::{CpuReading, KernelTimes};
use super::sampler;
use super::spec::{BlockReport, BlockSpec, Task};
use crate::clock::Stopwatch;

/// Measures a block if its task is a kernel call.
pub(crate) fn measure(
    spec: &BlockSpec,
    watch: Stopwatch,
    cpus: &[u32],
) -> Result<Option<BlockReport>, Trouble> {
    let Task::Call { call, via } = &spec.task else { return Ok(None) };
    let null = File::open("/dev/null")
        .map_err(|error| Trouble::Impossible(format!("cannot open /dev/null: {error}")))?;
    let fd = null.as_fd();
    let now = Clock::Monotonic;
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
            return Err(Trouble::Impossible(format!("{call} cannot be called through {via}")));
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
pub(super) fn time<R>(
    spec: &BlockSpec,
    watch: Stopwatch,
    cpus: &[u32],
    mut operation: impl FnMut() -> R,
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

    let samples_max = spec.samples_max as usize;
    let mut ticks = reserve(samples_max);
    let mut kernel = KernelTimes::new(cpus.to_vec());
    kernel.begin();
    let cpu = CpuReading::now();
    let start = watch.begin();
    let duration = watch.ticks(spec.duration_ns as f64);
    while ticks.len() < samples_max {
        ticks.push(batch_ticks(watch, batch, &mut operation));
        if watch.end().wrapping_sub(start) >= duration {
            break;
        }
    }
    let wall = watch.end().wrapping_sub(start);
    let used = CpuReading::now().since(cpu);
    let (softirq_ns, steal_ns) = kernel.since_begin();

    let mut report = BlockReport { batch, ..BlockReport::default() };
    report.effort.local = used;
    report.effort.canary_ns = canary.after();
    report.effort.softirq_ns = softirq_ns;
    report.effort.steal_ns = steal_ns;
    report.effort.wall_ns = Span::from_secs_f64(watch.ns(wall) * 1e-9).as_ns();
    report.effort.operations = ticks.len() as u64 * u64::from(batch);
    let each = |&t: &u64| ((watch.ns(t) - overhead) / f64::from(batch)).max(0.0);
    let values: Vec<f64> = ticks.iter().map(each).collect();
    let median = quantile::of_sorted(&quantile::sorted(&values), 0.5);
    // Rule 3: what is left must be worth three times what the subtraction leaves open.
    if median * f64::from(batch) < 3.0 * overhead_spread {
        report.flags.push("below-floor".to_owned());
    }
    report.flags.push("batched".to_owned());
    report.flags.push("overhead-subtracted".to_owned());
    sampler::summarise(&values, 0.001, spec, &mut report);
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
