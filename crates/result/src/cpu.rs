//! The CPU time of one side of a measurement.

use serde::{Deserialize, Serialize};

/// CPU time between two readings, by several clocks, and what disturbed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuUsage {
    /// CLOCK_PROCESS_CPUTIME_ID.
    pub process_ns: u64,
    /// CLOCK_THREAD_CPUTIME_ID of the measuring thread.
    pub thread_ns: u64,
    /// getrusage user time.
    pub user_ns: u64,
    /// getrusage system time.
    pub system_ns: u64,
    /// Voluntary context switches.
    pub switches_voluntary: u64,
    /// Involuntary context switches.
    pub switches_involuntary: u64,
    /// Minor and major page faults.
    pub page_faults: u64,
    /// 1 when the thread ended on another CPU than it began on.
    pub migrations: u64,
}
