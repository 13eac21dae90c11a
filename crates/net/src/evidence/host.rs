//! The host and this process: processor time by clock and kind, and what the host is.
//!
//! Process times are the kernel's own of this process; softirq, irq, steal and busy times are the whole host's,
//! from /proc/stat, whose grain is 10 ms. Two sides on one host therefore see the same of the latter. Left out:
//! which part of the softirq time is the test's, which nobody knows.

use std::fs;

use plumb_sys::clock::{ClockId, read_ns};
use plumb_sys::{probe, process};
use serde::{Deserialize, Serialize};

use crate::measure::clock_offset::ClockIdentity;

/// Processor time so far, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReading {
    /// This process: CLOCK_PROCESS_CPUTIME_ID.
    pub process_ns: u64,
    /// This process in user mode: getrusage(2).
    pub user_ns: u64,
    /// This process in the kernel: getrusage(2).
    pub system_ns: u64,
    /// Its voluntary context switches.
    pub switches_voluntary: u64,
    /// Its involuntary context switches.
    pub switches_involuntary: u64,
    /// All processors of the host, doing anything.
    pub host_busy_ns: u64,
    /// All processors of the host, in softirqs.
    pub host_softirq_ns: u64,
    /// All processors of the host, in interrupts.
    pub host_irq_ns: u64,
    /// Taken from the host by its hypervisor.
    pub host_steal_ns: u64,
}

impl HostReading {
    /// Reads it all; what cannot be read is zero.
    pub fn now() -> Self {
        let usage = process::usage().unwrap_or_default();
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let mut reading =
            parse_proc_stat(&stat, 1_000_000_000 / probe::user_ticks_per_second().max(1));
        reading.process_ns = read_ns(ClockId::ProcessCpu);
        reading.user_ns = usage.user_ns;
        reading.system_ns = usage.system_ns;
        reading.switches_voluntary = usage.switches_voluntary;
        reading.switches_involuntary = usage.switches_involuntary;
        reading
    }

    /// What was used since an earlier reading.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            process_ns: self.process_ns.saturating_sub(earlier.process_ns),
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
            system_ns: self.system_ns.saturating_sub(earlier.system_ns),
            switches_voluntary: self.switches_voluntary.saturating_sub(earlier.switches_voluntary),
            switches_involuntary: self
                .switches_involuntary
                .saturating_sub(earlier.switches_involuntary),
            host_busy_ns: self.host_busy_ns.saturating_sub(earlier.host_busy_ns),
            host_softirq_ns: self.host_softirq_ns.saturating_sub(earlier.host_softirq_ns),
            host_irq_ns: self.host_irq_ns.saturating_sub(earlier.host_irq_ns),
            host_steal_ns: self.host_steal_ns.saturating_sub(earlier.host_steal_ns),
        }
    }
}

/// The first line of /proc/stat (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq, steal.
fn parse_proc_stat(stat: &str, tick_ns: u64) -> HostReading {
    let line = stat.lines().next().and_then(|line| line.strip_prefix("cpu ")).unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    let ns = |at: usize| ticks.get(at).copied().unwrap_or(0).saturating_mul(tick_ns);
    HostReading {
        host_busy_ns: ns(0) + ns(1) + ns(2) + ns(5) + ns(6),
        host_irq_ns: ns(5),
        host_softirq_ns: ns(6),
        host_steal_ns: ns(7),
        ..HostReading::default()
    }
}

/// What a host is, as far as it explains a result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostFacts {
    /// Its name.
    pub name: String,
    /// Its kernel's release.
    pub kernel: String,
    /// Its processor's model.
    pub processor: String,
    /// Processors that this process may use.
    pub cpus: u32,
    /// Congestion control that connections have unless told otherwise.
    pub congestion: String,
    /// Queueing discipline that interfaces have unless told otherwise.
    pub queue: String,
    /// net.ipv4.tcp_rmem.
    pub receive_buffer: String,
    /// net.ipv4.tcp_wmem.
    pub send_buffer: String,
    /// Identifies the machine and its boot: the same for two sides on one host.
    pub boot: String,
    /// Which time namespace the process is in: with another one it reads its clocks shifted.
    pub time_namespace: String,
}

impl HostFacts {
    /// Reads them; what cannot be read is empty.
    pub fn read() -> Self {
        let file = |path: &str| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ")
        };
        let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = processors
            .lines()
            .find_map(|line| line.strip_prefix("model name").and_then(|rest| rest.split_once(':')));
        let clock = ClockIdentity::here();
        let cpus = plumb_sys::sched::allowed_cpus().map_or(0, |cpus| cpus.len());
        Self {
            name: file("/proc/sys/kernel/hostname"),
            kernel: file("/proc/sys/kernel/osrelease"),
            processor: model.map_or_else(String::new, |(_, model)| model.trim().to_owned()),
            cpus: u32::try_from(cpus).unwrap_or(0),
            congestion: file("/proc/sys/net/ipv4/tcp_congestion_control"),
            queue: file("/proc/sys/net/core/default_qdisc"),
            receive_buffer: file("/proc/sys/net/ipv4/tcp_rmem"),
            send_buffer: file("/proc/sys/net/ipv4/tcp_wmem"),
            boot: clock.boot_id,
            time_namespace: clock.time_namespace,
        }
    }

    /// What tells its clock from another's.
    pub fn clock(&self) -> ClockIdentity {
        ClockIdentity { boot_id: self.boot.clone(), time_namespace: self.time_namespace.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_proc_stat_gives_busy_and_softirq_time() {
        let stat = "cpu  100 1 50 9000 7 2 30 4 0 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        let reading = parse_proc_stat(stat, 10_000_000);
        assert_eq!(reading.host_busy_ns, 183 * 10_000_000);
        assert_eq!(reading.host_softirq_ns, 30 * 10_000_000);
        assert_eq!(reading.host_steal_ns, 4 * 10_000_000);
        assert_eq!(parse_proc_stat("intr 5", 10).host_busy_ns, 0);
    }

    #[test]
    fn time_that_this_process_uses_is_counted() {
        let before = HostReading::now();
        let mut sum = 0_u64;
        while read_ns(ClockId::ProcessCpu) < before.process_ns + 20_000_000 {
            sum = std::hint::black_box(sum + 1);
        }
        let used = HostReading::now().since(&before);
        assert!(used.process_ns >= 20_000_000, "{used:?}");
        assert!(used.user_ns + used.system_ns > 0, "{used:?}");
    }
}
