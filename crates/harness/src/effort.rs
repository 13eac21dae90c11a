//! What a block cost: CPU time by several clocks, interrupts and stolen time, the canary, and memory by the accessed bits of
//! its pages.
//!
//! The canary is a fixed computation before and after every block; when it slows down, so did the machine (rule 10).
//! Its independent chains fill every execution port, so that a busy sibling thread of the core shows as well as a lower
//! frequency; one dependent chain would hide it.

use std::fs;
use std::hint::black_box;

use plumb_base::time::Span;
use plumb_clock::Stopwatch;
use plumb_result::CpuUsage;
use plumb_sys::clock::{self, ClockId};
use plumb_sys::{process, sched, timer};

use crate::environment::noise::{CpuTimes, NoiseReader};
use crate::report::{BlockReport, EffortReport};
use crate::spec::BlockSpec;

/// One reading of this process's CPU clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuReading {
    process_ns: u64,
    thread_ns: u64,
    usage: process::ResourceUsage,
    cpu: Option<u32>,
}

impl CpuReading {
    /// Reads them.
    pub(crate) fn now() -> Self {
        Self {
            process_ns: clock::read_ns(ClockId::ProcessCpu),
            thread_ns: clock::read_ns(ClockId::ThreadCpu),
            usage: process::usage().unwrap_or_default(),
            cpu: sched::current_cpu().ok(),
        }
    }

    /// What was used since an earlier reading.
    pub(crate) fn since(self, earlier: Self) -> CpuUsage {
        let usage = u64::saturating_sub;
        let (now, before) = (self.usage, earlier.usage);
        CpuUsage {
            process_ns: usage(self.process_ns, earlier.process_ns),
            thread_ns: usage(self.thread_ns, earlier.thread_ns),
            user_ns: usage(now.user_ns, before.user_ns),
            system_ns: usage(now.system_ns, before.system_ns),
            switches_voluntary: usage(now.switches_voluntary, before.switches_voluntary),
            switches_involuntary: usage(now.switches_involuntary, before.switches_involuntary),
            page_faults: usage(now.page_faults, before.page_faults),
            migrations: u64::from(self.cpu != earlier.cpu),
        }
    }
}

/// Interrupt and steal time of some CPUs, from /proc/stat, whose grain is 10 ms.
#[derive(Debug)]
pub(crate) struct KernelTimes {
    /// None where /proc is not to be read: then there is nothing to report.
    reader: Option<NoiseReader>,
    before: CpuTimes,
    now: CpuTimes,
    /// All CPUs when empty.
    cpus: Vec<u32>,
}

impl KernelTimes {
    /// A reader for these CPUs; all of them when none is given.
    pub(crate) fn new(cpus: Vec<u32>) -> Self {
        let (before, now) = (CpuTimes::default(), CpuTimes::default());
        Self { reader: NoiseReader::open().ok(), before, now, cpus }
    }

    /// Reads the times from which [`Self::since_begin`] counts.
    pub(crate) fn begin(&mut self) {
        if let Some(reader) = &mut self.reader {
            // A failed reading leaves the last one: nothing seems to have gone by.
            drop(reader.cpu_times(&mut self.before));
        }
    }

    /// (softirq and irq, steal) in nanoseconds since the beginning.
    pub(crate) fn since_begin(&mut self) -> (u64, u64) {
        let Some(reader) = &mut self.reader else { return (0, 0) };
        if reader.cpu_times(&mut self.now).is_err() {
            return (0, 0);
        }
        let gone = self.now.since(&self.before, &self.cpus);
        (gone.softirq_ns + gone.irq_ns, gone.steal_ns)
    }
}

/// How long after a timed region of such a length the tick comes at the earliest, which notices that
/// the other side is gone or a message lost; 0 for its usual period.
pub(crate) fn postpone_tick(duration_ns: u64) {
    let ns = if duration_ns == 0 { 0 } else { duration_ns.saturating_add(TICK_MARGIN_NS) };
    // The timer is there and the time is one: nothing is left to refuse. Otherwise it ticks.
    drop(timer::postpone_tick(ns));
}

/// Regions last a little longer than they are to, and begin a little after they are told to.
const TICK_MARGIN_NS: u64 = 200_000_000;

/// Readings at the start of a timed region.
pub(crate) struct EffortMeter {
    ticks: u32,
    cpu: CpuReading,
    /// When it began, in ticks.
    pub(crate) at: u64,
    duration_ticks: u64,
    samples_max: usize,
}

impl EffortMeter {
    pub(crate) fn start(kernel: &mut KernelTimes, watch: Stopwatch, spec: &BlockSpec) -> Self {
        kernel.begin();
        postpone_tick(spec.duration_ns);
        let duration_ticks = watch.ticks(spec.duration_ns as f64);
        let samples_max = spec.samples_max as usize;
        let (ticks, cpu) = (timer::ticks(), CpuReading::now());
        Self { ticks, cpu, at: watch.begin(), duration_ticks, samples_max }
    }

    /// Whether the block has all its samples, or its time is over.
    #[inline]
    pub(crate) fn is_over(&self, samples: usize, now: u64) -> bool {
        samples >= self.samples_max || now.wrapping_sub(self.at) >= self.duration_ticks
    }

    /// The effort of a region that began here and ends now; the canary is timed later.
    pub(crate) fn stop(
        &self,
        kernel: &mut KernelTimes,
        watch: Stopwatch,
        operations: u64,
    ) -> EffortReport {
        let wall = watch.end().wrapping_sub(self.at);
        let local = CpuReading::now().since(self.cpu);
        let (softirq_ns, steal_ns) = kernel.since_begin();
        postpone_tick(0);
        let wall_ns = Span::from_secs_f64(watch.ns(wall) * 1e-9).as_ns();
        EffortReport { local, softirq_ns, steal_ns, wall_ns, operations, ..EffortReport::default() }
    }

    /// The same as a report that also counts the timer's interruptions.
    pub(crate) fn report(
        &self,
        kernel: &mut KernelTimes,
        watch: Stopwatch,
        operations: u64,
    ) -> BlockReport {
        let interruptions = u64::from(timer::ticks().wrapping_sub(self.ticks));
        let effort = self.stop(kernel, watch, operations);
        let mut report = BlockReport { effort, ..BlockReport::default() };
        report.counters.insert("interruptions".to_owned(), interruptions);
        report
    }
}

/// Which computation it is: canaries of different ones cannot be compared.
pub const CANARY_COMPUTATION: &str = "wide";

/// Turns of the computation around a block of [`FULL_LENGTH_FROM_NS`] or more: about a third of a millisecond.
const TURNS: u64 = 200_000;

/// A shorter block has a shorter canary, as it would otherwise be further from its neighbours in time
/// than it is long. What it took is given for [`TURNS`] all the same.
const FULL_LENGTH_FROM_NS: u64 = 3_000_000;

/// Fewer turns than this would be mostly the two reads of the clock and the first misses.
const TURNS_MIN: u64 = TURNS / 8;

/// A canary that was timed before a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canary {
    watch: Stopwatch,
    turns: u64,
    before_ns: f64,
}

impl Canary {
    /// Times it before a block.
    pub(crate) fn before(watch: Stopwatch, spec: &BlockSpec) -> Self {
        let turns = turns(spec.duration_ns);
        Self { watch, turns, before_ns: time_computation(watch, turns) }
    }

    /// Times it again after the block: nanoseconds of [`TURNS`] turns, the mean of both.
    pub(crate) fn after(self) -> f64 {
        f64::midpoint(self.before_ns, time_computation(self.watch, self.turns))
    }
}

/// The turns around a block of so many nanoseconds.
fn turns(duration_ns: u64) -> u64 {
    (TURNS * duration_ns.min(FULL_LENGTH_FROM_NS) / FULL_LENGTH_FROM_NS).max(TURNS_MIN)
}

/// How long [`TURNS`] turns of the computation take, in nanoseconds, by so many of them. Its own speed
/// does not matter; that it takes the same time around every block does.
fn time_computation(watch: Stopwatch, turns: u64) -> f64 {
    let start = watch.begin();
    let mut chains = black_box([1_u64, 2, 3, 4, 5, 6, 7, 8]);
    for turn in 0..turns {
        for (places, chain) in (1_u32..).zip(&mut chains) {
            *chain = (*chain ^ turn).rotate_left(places);
        }
    }
    black_box(chains);
    watch.ns(watch.end().wrapping_sub(start)) * TURNS as f64 / turns as f64
}

/// Bytes, in whole pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UsedMemory {
    /// Code and constants of programs and libraries, as mapped from their files.
    pub code: u64,
    /// Variables, stacks and heap.
    pub data: u64,
}

/// What `work` uses (proc_pid_clear_refs(5), `Referenced` of proc_pid_smaps(5)); `None` where the kernel does not say.
///
/// # Errors
/// `work` fails.
pub fn memory_used_by<E>(work: impl FnOnce() -> Result<(), E>) -> Result<Option<UsedMemory>, E> {
    let is_cleared = fs::write("/proc/self/clear_refs", "1").is_ok();
    flush_tlb();
    work()?;
    let smaps = fs::read_to_string("/proc/self/smaps").ok().filter(|_| is_cleared);
    Ok(smaps.map(|text| parse_smaps(&text)))
}

/// Pages that are in a TLB would be used unseen. A mapping that ends with more pages between its first and its last than the kernel
/// flushes one by one (some 30) empties those of all CPUs that this process runs on.
fn flush_tlb() {
    // More than malloc keeps (malloc(3), M_MMAP_THRESHOLD).
    let mut mapping = vec![0_u8; 64 << 20];
    for end in [0, mapping.len() - 1] {
        mapping[end] = 1;
    }
    black_box(&mapping);
}

fn parse_smaps(text: &str) -> UsedMemory {
    let mut used = UsedMemory::default();
    let mut is_file = false;
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace();
        let first = words.next().unwrap_or_default();
        if !first.ends_with(':') {
            // Addresses, permissions, offset, device, inode, and perhaps a path; what was written to of a file is this process's own.
            let permissions = words.next().unwrap_or_default();
            let path = words.nth(3).unwrap_or_default();
            is_file = path.starts_with('/') && !permissions.contains('w');
        } else if first == "Referenced:" {
            let kib: u64 = words.next().and_then(|number| number.parse().ok()).unwrap_or_default();
            *(if is_file { &mut used.code } else { &mut used.data }) += kib << 10;
        }
    }
    used
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_canary_works_while_it_is_heard() {
        let before = CpuReading::now();
        let spent = 2.0 * time_computation(Stopwatch::new(None), TURNS);
        let used = CpuReading::now().since(before);
        assert!(used.process_ns > 0 && used.thread_ns > 0);
        assert!(used.thread_ns as f64 <= spent * 3.0 + 1e6);
    }

    #[test]
    fn a_short_block_has_a_short_canary() {
        assert_eq!(turns(u64::MAX), TURNS);
        assert_eq!(turns(FULL_LENGTH_FROM_NS), TURNS);
        assert_eq!(turns(FULL_LENGTH_FROM_NS / 4), TURNS / 4);
        assert_eq!(turns(0), TURNS_MIN);
    }

    #[test]
    fn short_and_whole_canaries_say_the_same_of_one_machine() {
        let watch = Stopwatch::new(None);
        // The minimum of many, taken in turn: disturbances only add time, and a slow phase of the machine hits both.
        let mut quickest = [f64::INFINITY; 2];
        for _ in 0..200 {
            for (quickest, turns) in quickest.iter_mut().zip([TURNS_MIN, TURNS]) {
                *quickest = quickest.min(time_computation(watch, turns));
            }
        }
        let [short, whole] = quickest;
        println!("short {short} ns, whole {whole} ns");
        assert!((short / whole - 1.0).abs() < 0.5, "{short} {whole}");
    }

    #[test]
    fn memory_that_work_touches_is_used_and_what_it_leaves_alone_is_not() {
        // More than other tests use, in other threads of this process.
        let mut memory = vec![1_u8; 64 << 20];
        // A kernel without CONFIG_PROC_PAGE_MONITOR does not say.
        let Some(idle) = memory_used_by(|| Ok::<_, ()>(())).unwrap() else { return };
        let busy = memory_used_by(|| {
            memory.iter_mut().step_by(4_096).for_each(|byte| *byte += 1);
            Ok::<_, ()>(())
        });
        let busy = busy.unwrap().unwrap();
        assert!(busy.data >= 63 << 20 && idle.data < 32 << 20, "{idle:?} and {busy:?}");
        assert!(idle.code > 0, "{idle:?}");
        assert_eq!(memory.first(), Some(&2), "the work was done");
    }

    #[test]
    fn code_is_what_is_mapped_from_files_and_not_written_to() {
        let text = "55-56 r-xp 0 fe:00 247026   /usr/bin/cat\nRss:   8 kB\nReferenced:   8 kB\n\
                    57-58 rw-p 0 fe:00 247026   /usr/bin/cat\nReferenced:   4 kB\n\
                    60-61 rw-p 0 00:00 0   [heap]\nReferenced:   16 kB\nVmFlags: rd wr\n\
                    62-63 r--p 0 fe:00 9   /usr/lib/libc.so.6\nReferenced:   32 kB\n";
        assert_eq!(parse_smaps(text), UsedMemory { code: 40 << 10, data: 20 << 10 });
    }
}
