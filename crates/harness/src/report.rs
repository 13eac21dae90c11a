//! What a launch and its blocks gave: facts, samples, counts and cost, as plain data.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::num::TryFromIntError;

use serde::{Deserialize, Serialize};

/// What is known of a launch once it is open. What was set and what the kernel made of it: `congestion`, `sndbuf`,
/// `rcvbuf`, …; without a channel, what the clock resolves here: `resolution_ns`, `read_cost_ns`.
pub type LaunchFacts = BTreeMap<String, String>;

/// Flag of a block without samples, because nothing got through a channel that loses messages; what
/// was lost follows it after a colon.
pub const NOTHING_DELIVERED: &str = "nothing-delivered";

/// The outcome of a block.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockReport {
    /// Operations per sample.
    pub batch: u32,
    /// Samples after warm-up.
    pub n: u64,
    /// Samples discarded as warm-up.
    pub warmup: u64,
    /// First samples in time order, in the response's unit.
    pub samples: Vec<f64>,
    /// Encoded histogram of all samples; empty when `samples` holds them all.
    pub histogram: Vec<u8>,
    /// What one histogram count is worth in the response's unit.
    pub histogram_scale: f64,
    /// Independent samples that all of them are worth for the median, p90, p99 and p99.9; none where
    /// `samples` holds them all.
    pub n_eff: Option<[f64; 4]>,
    /// Further responses of the same operations, where a task gives several at once: then this
    /// report's own samples are those of no response, and each cell takes its part.
    pub parts: Vec<BlockPartReport>,
    /// CPU time and disturbances.
    pub effort: EffortReport,
    /// Things counted.
    pub counters: BTreeMap<String, u64>,
    /// What was odd.
    pub flags: Vec<String>,
}

/// The samples of one of several responses that a task gives at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockPartReport {
    /// The response.
    pub response: String,
    /// Samples after warm-up.
    pub n: u64,
    /// First samples in time order, in the response's unit.
    pub samples: Vec<f64>,
    /// Encoded histogram of all samples; empty when `samples` holds them all.
    pub histogram: Vec<u8>,
    /// What one histogram count is worth in the response's unit.
    pub histogram_scale: f64,
    /// Independent samples that all of them are worth for the median, p90, p99 and p99.9; none where
    /// `samples` holds them all.
    pub n_eff: Option<[f64; 4]>,
}

/// CPU time and disturbances of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EffortReport {
    /// The worker.
    pub local: CpuUsage,
    /// The peer.
    pub peer: CpuUsage,
    /// Softirq and irq time of the CPUs used.
    pub softirq_ns: u64,
    /// Steal time of the CPUs used.
    pub steal_ns: u64,
    /// Canary kernel before the block.
    pub canary_ns: f64,
    /// Wall time of the timed region.
    pub wall_ns: u64,
    /// Operations in it.
    pub operations: u64,
}

/// CPU time of one side between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuUsage {
    /// CLOCK_PROCESS_CPUTIME_ID.
    pub process_ns: u64,
    /// CLOCK_THREAD_CPUTIME_ID.
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

/// Why a launch or a part of it cannot be had.
#[derive(Clone, Debug, PartialEq, thiserror::Error, Serialize, Deserialize)]
pub enum LaunchFault {
    /// The host lacks it or forbids it: a result, not a failure.
    #[error("{0}")]
    Unavailable(String),
    /// Something broke.
    #[error("{0}")]
    Failed(String),
}

impl LaunchFault {
    /// What was tried, and the kernel's answer.
    pub(crate) fn failed(what: &str, source: impl Display) -> Self {
        Self::Failed(format!("cannot {what}: {source}"))
    }
}

/// What measuring a block comes to.
pub(crate) type BlockOutcome = Result<BlockReport, BlockError>;

/// Why a block has no report.
#[derive(Debug)]
pub(crate) enum BlockError {
    /// It cannot be done over this channel on this host; the launch goes on.
    Unavailable(String),
    /// Nothing got through a channel that loses messages, this time.
    NothingDelivered(String),
    /// The launch is over.
    Failed(String),
}

impl BlockError {
    /// A task of another subject: the experiment asks for what cannot be.
    pub(crate) fn wrong_task(subject: &str) -> Self {
        Self::Unavailable(format!("this block's task cannot be measured over {subject}"))
    }

    /// What looks into both processes of a launch whose peer is elsewhere.
    pub(crate) fn needs_local_peer() -> Self {
        Self::Unavailable("a breakdown needs both processes on this host".to_owned())
    }
}

impl From<io::Error> for BlockError {
    fn from(error: io::Error) -> Self {
        Self::Failed(format!("the peer did not answer: {error}"))
    }
}

impl From<TryFromIntError> for BlockError {
    fn from(error: TryFromIntError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

impl From<LaunchFault> for BlockError {
    fn from(error: LaunchFault) -> Self {
        match error {
            LaunchFault::Unavailable(reason) => Self::Unavailable(reason),
            LaunchFault::Failed(reason) => Self::Failed(reason),
        }
    }
}
