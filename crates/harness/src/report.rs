//! What a launch and its blocks gave: facts, samples, counts and cost, as plain data.
//!
//! Of raw samples warm-up is found and discarded; what stays is a histogram and a capped copy.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::num::TryFromIntError;

use plumb_base::stats::change_point::{self, SteadyState};
use plumb_base::stats::histogram::Histogram;
use plumb_base::stats::{autocorrelation, quantile};
use plumb_base::units::whole;
use plumb_result::CpuUsage;
use serde::{Deserialize, Serialize};

use crate::spec::BlockSpec;

/// What is known about a launch once it is open. What was set and what the kernel made of it: `congestion`, `sndbuf`,
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

/// Windows that a block's samples are cut into to look for its warm-up.
const WINDOWS: usize = 32;

/// One of several responses that a block gives at once, summarised as a block's own samples are.
pub(crate) fn summarize_part(
    response: String,
    values: &[f64],
    scale: f64,
    spec: &BlockSpec,
) -> BlockPartReport {
    let mut report = BlockReport::default();
    summarize(values, scale, spec, &mut report);
    let BlockReport { n, samples, histogram, histogram_scale, n_eff, .. } = report;
    BlockPartReport { response, n, samples, histogram, histogram_scale, n_eff }
}

/// Fills in the sample part of a report. `values` are in time order and in the response's unit;
/// `scale` is what one histogram count is worth in it.
pub fn summarize(values: &[f64], scale: f64, spec: &BlockSpec, report: &mut BlockReport) {
    let warmup = match steady_from(values) {
        SteadyState::From(index) => index,
        SteadyState::Never => {
            report.flags.push("no-steady-state".to_owned());
            0
        }
    };
    let (start, steady) = values.split_at(warmup);
    if warmup > 0 {
        let median = |part: &[f64]| quantile::of_sorted(&quantile::sorted(part), 0.5);
        let is_above = median(start) > median(steady);
        report.flags.push(if is_above { "warm-up-above" } else { "warm-up-below" }.to_owned());
    }
    let kept = steady.len().min(spec.samples_kept as usize);
    report.n = steady.len() as u64;
    report.warmup = warmup as u64;
    report.samples = steady[..kept].to_vec();
    report.histogram_scale = scale;
    if kept < steady.len() {
        let mut histogram = Histogram::new();
        for &value in steady {
            histogram.record(whole((value / scale).round()));
        }
        report.histogram = histogram.encode();
        report.n_eff = Some(autocorrelation::effective_sizes(steady));
    }
}

/// Where the samples become steady, by the change point of the medians of equal windows.
fn steady_from(values: &[f64]) -> SteadyState {
    let width = values.len() / WINDOWS;
    if width == 0 {
        return SteadyState::From(0);
    }
    let medians: Vec<f64> = values
        .chunks_exact(width)
        .take(WINDOWS)
        .map(|window| quantile::of_sorted(&quantile::sorted(window), 0.5))
        .collect();
    match change_point::steady_from(&medians) {
        SteadyState::From(window) => SteadyState::From(window * width),
        SteadyState::Never => SteadyState::Never,
    }
}

/// Operations a sample, so that it lasts as long as the clock needs.
pub(crate) fn batch_for(sample_min_ns: f64, operation_ns: f64) -> u32 {
    if operation_ns >= sample_min_ns {
        return 1;
    }
    let batch = whole((sample_min_ns / operation_ns).ceil());
    u32::try_from(batch).unwrap_or(u32::MAX).clamp(1, 1 << 20)
}

/// Memory for samples, touched.
pub(crate) fn reserve_samples(samples: usize) -> Vec<u64> {
    let mut memory = vec![1; samples];
    memory.clear();
    memory
}

/// Removes samples whose clock went back between its two reads, and says how many there were.
///
/// A counter that is not the same on every CPU does so when a process migrates; the difference
/// wraps to more than half the range, which no sample lasts.
pub(crate) fn discard_backwards<T>(
    samples: &mut Vec<T>,
    ticks: impl Fn(&T) -> u64,
    report: &mut BlockReport,
) {
    let before = samples.len();
    samples.retain(|sample| ticks(sample) < 1 << 63);
    let count = (before - samples.len()) as u64;
    if count > 0 {
        report.counters.insert("clock_backwards".to_owned(), count);
        report.flags.push("clock-backwards".to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::BlockTask;
    use super::*;

    fn spec(kept: u32) -> BlockSpec {
        BlockSpec {
            task: BlockTask::Latency { size: 64 },
            duration_ns: 1,
            samples_max: 10_000,
            samples_kept: kept,
            injected_ns: 0,
        }
    }

    /// Deterministic noise around 100 with an offset.
    fn noise(n: usize, offset: f64) -> impl Iterator<Item = f64> {
        (0..n as u64).map(move |i| {
            let hash = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 54;
            100.0 + offset + hash as f64 / 1024.0
        })
    }

    #[test]
    fn a_slow_start_is_found_and_discarded() {
        let values: Vec<f64> = noise(400, 50.0).chain(noise(2800, 0.0)).collect();
        let mut report = BlockReport::default();
        summarize(&values, 0.001, &spec(10_000), &mut report);
        assert!((300..=600).contains(&report.warmup), "{}", report.warmup);
        assert_eq!(report.n + report.warmup, 3200);
        assert_eq!(report.flags, ["warm-up-above"]);
        assert!(report.histogram.is_empty());
    }

    #[test]
    fn samples_beyond_the_cap_live_on_in_the_histogram() {
        let values: Vec<f64> = noise(3200, 0.0).collect();
        let mut report = BlockReport::default();
        summarize(&values, 0.001, &spec(100), &mut report);
        assert_eq!(report.samples.len(), 100);
        let histogram = Histogram::decode(&report.histogram).unwrap();
        assert_eq!(histogram.len(), report.n);
        let median = histogram.quantile(0.5) as f64 * report.histogram_scale;
        assert!((median - 100.5).abs() < 0.3, "{median}");
    }

    #[test]
    fn bursts_after_the_kept_samples_count_in_the_effective_size() {
        let burst = |i: usize| if i % 6_000 < 3_000 || i % 6_000 >= 3_090 { 0.0 } else { 500.0 };
        let values: Vec<f64> = noise(12_000, 0.0).enumerate().map(|(i, v)| v + burst(i)).collect();
        let mut report = BlockReport::default();
        summarize(&values, 0.001, &spec(1_000), &mut report);
        let [body, _, p99, _] = report.n_eff.unwrap();
        assert!(body > 6_000.0 && p99 < 600.0, "{body} {p99}");
    }

    #[test]
    fn operations_too_short_for_the_clock_are_batched() {
        assert_eq!(batch_for(2_000.0, 2_000.0), 1);
        assert_eq!(batch_for(2_000.0, 300.0), 7);
        assert_eq!(batch_for(2_000.0, 1e-9), 1 << 20);
        assert_eq!(batch_for(f64::INFINITY, 300.0), 1 << 20);
    }

    #[test]
    fn samples_of_a_clock_that_went_back_are_discarded() {
        let mut samples = vec![100, 5_u64.wrapping_sub(9), 200];
        let mut report = BlockReport::default();
        discard_backwards(&mut samples, |&t| t, &mut report);
        assert_eq!((&samples[..], report.counters["clock_backwards"]), (&[100, 200][..], 1));
    }
}
