//! What a block cost: CPU time by several clocks, and what disturbed it.

use std::fs::File;
use std::io::{Read, Seek};

use plumb_sys::clock::{self, Clock};
use plumb_sys::{affinity, process};

use super::spec::CpuUse;

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
    stat: Option<File>,
    text: String,
    /// The lines of interest: `cpu0`, …; all CPUs when empty.
    names: Vec<String>,
}

/// Nanoseconds a tick of /proc/stat: USER_HZ is 100 on every architecture Linux supports today.
const USER_TICK_NS: u64 = 10_000_000;

impl KernelTimes {
    /// A reader for these CPUs; all of them when none is given.
    pub(crate) fn new(cpus: &[u32]) -> Self {
        Self {
            stat: File::open("/proc/stat").ok(),
            text: String::with_capacity(1 << 16),
            names: cpus.iter().map(|cpu| format!("cpu{cpu}")).collect(),
        }
    }

    /// (softirq and irq, steal) in nanoseconds since boot.
    pub(crate) fn read(&mut self) -> (u64, u64) {
        let Some(stat) = &mut self.stat else { return (0, 0) };
        self.text.clear();
        if stat.rewind().and_then(|()| stat.read_to_string(&mut self.text)).is_err() {
            return (0, 0);
        }
        sum_lines(&self.text, &self.names)
    }
}

/// Columns of proc_pid_stat's /proc/stat: user nice system idle iowait irq softirq steal.
fn sum_lines(text: &str, names: &[String]) -> (u64, u64) {
    let mut sums = (0, 0);
    for line in text.lines() {
        let mut fields = line.split_ascii_whitespace();
        let Some(name) = fields.next() else { continue };
        let wanted =
            if names.is_empty() { name == "cpu" } else { names.iter().any(|own| own == name) };
        if wanted {
            let ticks: Vec<u64> = fields.map_while(|field| field.parse().ok()).collect();
            let at = |index: usize| ticks.get(index).copied().unwrap_or(0) * USER_TICK_NS;
            sums.0 += at(5) + at(6);
            sums.1 += at(7);
        }
    }
    sums
}

/// A fixed piece of integer work of about a millisecond; how long it took, in nanoseconds.
///
/// Its own speed does not matter; that it takes the same time before every block does (rule 10).
pub(crate) fn canary(watch: crate::clock::Stopwatch) -> f64 {
    let start = watch.begin();
    let mut state = std::hint::black_box(0x9E37_79B9_u64);
    for _ in 0..CANARY_STEPS {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state ^= state >> 29;
    }
    std::hint::black_box(state);
    watch.ns(watch.end().wrapping_sub(start))
}

const CANARY_STEPS: u32 = 500_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupt_and_steal_columns_are_summed_for_the_cpus_asked_for() {
        let text = "cpu  9 9 9 9 9 9 9 9\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 1 1 1 1 1 1 1\nintr 5\n";
        assert_eq!(sum_lines(text, &["cpu0".to_owned()]), (13 * USER_TICK_NS, 8 * USER_TICK_NS));
        assert_eq!(sum_lines(text, &[]), (18 * USER_TICK_NS, 9 * USER_TICK_NS));
        assert_eq!(sum_lines("cpu0 garbage", &["cpu0".to_owned()]), (0, 0));
    }

    #[test]
    fn work_is_seen_by_every_cpu_clock() {
        let before = CpuReading::now();
        let spent = canary(crate::clock::Stopwatch::new(None));
        let used = CpuReading::now().since(before);
        assert!(used.process_ns > 0 && used.thread_ns > 0);
        assert!(used.thread_ns as f64 <= spent * 3.0 + 1e6);
    }
}
