//! From raw samples to a block's report: warm-up found and discarded, a histogram, a capped copy.

use plumb_base::stats::autocorrelation;
use plumb_base::stats::change_point::{self, SteadyState};
use plumb_base::stats::histogram::Histogram;
use plumb_base::stats::quantile;
use plumb_base::units::whole;

use crate::report::{BlockPartReport, BlockReport};
use crate::spec::BlockSpec;

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
