//! Readings of connections, datagram streams and hosts while a test runs.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Direction, Side};

/// One reading of one connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetConnectionSample {
    /// On which side.
    pub side: Side,
    /// The connection's number.
    pub stream: u32,
    /// When, in seconds since the test began on that side.
    pub at_seconds: f64,
    /// Bytes handed to the kernel or taken from it so far.
    pub bytes: u64,
    /// Processor time of the thread that sends or receives so far, in nanoseconds; null in documents of before it was
    /// kept.
    #[serde(default)]
    pub cpu_ns: Option<u64>,
    /// TCP_INFO; each name ends in its unit, or is a count; 1 and 0 for yes and no.
    pub tcp: BTreeMap<String, f64>,
}

/// One reading of one end of a stream of datagrams.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetDatagramSample {
    /// On which side.
    pub side: Side,
    /// Which way.
    pub direction: Direction,
    /// When, in nanoseconds since the test began on that side.
    pub at_ns: u64,
    /// How far it was.
    #[serde(flatten)]
    pub count: DatagramSample,
}

/// How far one side of a stream of datagrams was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DatagramSample {
    /// Datagrams sent, or different ones received, so far.
    pub datagrams: u64,
    /// Their bytes of payload.
    pub bytes: u64,
    /// Processor time of the thread that sends or receives so far, in nanoseconds: CLOCK_THREAD_CPUTIME_ID.
    pub cpu_ns: u64,
}

/// One reading of one host: processor time so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NetHostSample {
    /// On which side.
    pub side: Side,
    /// When, in nanoseconds since the test began on that side.
    pub at_ns: u64,
    /// What had been used.
    #[serde(flatten)]
    pub used: HostReading,
}

/// Processor time so far, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HostReading {
    /// plumb's process: CLOCK_PROCESS_CPUTIME_ID.
    pub process_ns: u64,
    /// Of it, in user mode: getrusage(2).
    pub user_ns: u64,
    /// Of it, in the kernel: getrusage(2).
    pub system_ns: u64,
    /// Its voluntary context switches.
    pub switches_voluntary: u64,
    /// Its involuntary context switches.
    pub switches_involuntary: u64,
    /// All processors of the host, doing anything: of every program there, as all that follows.
    pub host_busy_ns: u64,
    /// All processors of the host, in softirqs.
    pub host_softirq_ns: u64,
    /// All processors of the host, in interrupts.
    pub host_irq_ns: u64,
    /// Taken from the host by its hypervisor.
    pub host_steal_ns: u64,
}

impl HostReading {
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
