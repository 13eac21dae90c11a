//! From raw samples to a block's report: warm-up found and discarded, a histogram, a capped copy.

use plumb_base::stats::changepoint::{self, Steady};
use plumb_base::stats::histogram::Histogram;
use plumb_base::stats::quantile;

use super::spec::{BlockReport, BlockSpec};

/// Windows that a block's samples are cut into to look for its warm-up.
const WINDOWS: usize = 32;

/// Fills in the sample part of a report. `values` are in time order and in the response's unit;
/// `scale` is what one histogram count is worth in it.
pub(crate) fn summarise(values: &[f64], scale: f64, spec: &BlockSpec, report: &mut BlockReport) {
    let warmup = match steady_from(values) {
        Steady::From(index) => index,
        Steady::Never => {
            report.flags.push("no-steady-state".to_owned());
            0
        }
    };
    let steady = &values[warmup..];
    let kept = steady.len().min(spec.samples_kept as usize);
    report.n = steady.len() as u64;
    report.warmup = warmup as u64;
    report.samples = steady[..kept].to_vec();
    report.histogram_scale = scale;
    if kept < steady.len() {
        let mut histogram = Histogram::new();
        for &value in steady {
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a float cast saturates; samples are not negative"
            )]
            histogram.record((value / scale).round() as u64);
        }
        report.histogram = histogram.encode();
    }
}

/// Where the samples become steady, by the change point of the medians of equal windows.
fn steady_from(values: &[f64]) -> Steady {
    let width = values.len() / WINDOWS;
    if width == 0 {
        return Steady::From(0);
    }
    let medians: Vec<f64> = values
        .chunks_exact(width)
        .take(WINDOWS)
        .map(|window| quantile::of_sorted(&quantile::sorted(window), 0.5))
        .collect();
    match changepoint::steady_from(&medians) {
        Steady::From(window) => Steady::From(window * width),
        Steady::Never => Steady::Never,
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::Task;
    use super::*;

    fn spec(kept: u32) -> BlockSpec {
        BlockSpec {
            task: Task::Latency { size: 64 },
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
        summarise(&values, 0.001, &spec(10_000), &mut report);
        assert!((300..=600).contains(&report.warmup), "{}", report.warmup);
        assert_eq!(report.n + report.warmup, 3200);
        assert!(report.histogram.is_empty());
    }

    #[test]
    fn samples_beyond_the_cap_live_on_in_the_histogram() {
        let values: Vec<f64> = noise(3200, 0.0).collect();
        let mut report = BlockReport::default();
        summarise(&values, 0.001, &spec(100), &mut report);
        assert_eq!(report.samples.len(), 100);
        let histogram = Histogram::decode(&report.histogram).unwrap();
        assert_eq!(histogram.len(), report.n);
        let median = histogram.quantile(0.5) as f64 * report.histogram_scale;
        assert!((median - 100.5).abs() < 0.3, "{median}");
    }
}
