//! What a block cost: CPU time by several clocks, and what disturbed it.

use plumb_sys::clock::{self, Clock};
use plumb_sys::{affinity, process};

use super::spec::CpuUse;
use crate::environment::noise::{CpuTimes, NoiseReader};

/// One reading of this process's CPU clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CpuReading {
    process_ns: u64,
    thread_ns: u64,
    usage: process::Usage,
    cpu: Option<u32>,
}

impl CpuReading {
    /// Reads them.
    pub(crate) fn now() -> Self {
        Self {
            process_ns: clock::read_ns(Clock::ProcessCpu),
            thread_ns: clock::read_ns(Clock::ThreadCpu),
            usage: process::usage().unwrap_or_default(),
            cpu: affinity::current_cpu().ok(),
        }
    }

    /// What was used since an earlier reading.
    pub(crate) fn since(self, earlier: Self) -> CpuUse {
        let usage = |now: u64, before: u64| now.saturating_sub(before);
        CpuUse {
            process_ns: usage(self.process_ns, earlier.process_ns),
            thread_ns: usage(self.thread_ns, earlier.thread_ns),
            user_ns: usage(self.usage.user_ns, earlier.usage.user_ns),
            system_ns: usage(self.usage.system_ns, earlier.usage.system_ns),
            switches_voluntary: usage(
                self.usage.switches_voluntary,
                earlier.usage.switches_voluntary,
            ),
            switches_involuntary: usage(
                self.usage.switches_involuntary,
                earlier.usage.switches_involuntary,
            ),
            page_faults: usage(self.usage.page_faults, earlier.usage.page_faults),
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
