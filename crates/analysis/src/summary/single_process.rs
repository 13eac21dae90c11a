//! The summary of one series of samples, all from one process.
//!
//! Left out: intervals over launches, which one process cannot give.

use plumb_base::stats::{autocorrelation, quantile};

use crate::document::SampleSummary;

/// Confidence that a percentile must support to be shown.
const CONFIDENCE: f64 = 0.95;

/// Quantiles for figures: fortieths, then the tail as far as there are samples.
const TAIL: [f64; 3] = [0.99, 0.995, 0.999];

/// Samples in time order; percentiles that their effective number does not support are withheld,
/// and what is missing is said.
pub fn summary(series: &[f64]) -> (SampleSummary, Vec<String>) {
    let sorted = quantile::sorted(series);
    let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else {
        return (SampleSummary::default(), Vec::new());
    };
    let n_eff = autocorrelation::effective_sizes(series);
    // Of the next lower percentile whose support is known.
    let size = |p: f64| {
        let place = autocorrelation::SUPPORTED.iter().rposition(|&known| known <= p);
        n_eff[place.unwrap_or(0)]
    };
    let supported = |p: f64| quantile::samples_needed(p, CONFIDENCE) as f64 <= size(p);
    let mut flags = Vec::new();
    let mut percentile = |p: f64, name: &str| {
        if supported(p) {
            return Some(quantile::of_sorted(&sorted, p));
        }
        let needed = quantile::samples_needed(p, CONFIDENCE);
        if flags.is_empty() {
            flags.push(format!(
                "{name} needs {needed} independent samples, and these are worth {:.0}",
                size(p)
            ));
        }
        None
    };
    let (p90, p99, p999) =
        (percentile(0.9, "p90"), percentile(0.99, "p99"), percentile(0.999, "p99.9"));
    let even = (0..=39).map(|step| f64::from(step) / 40.0);
    let grid = even.chain(TAIL.into_iter().filter(|&p| supported(p)));
    let summary = SampleSummary {
        launches: 1,
        n: sorted.len() as u64,
        n_eff: n_eff[0],
        min: Some(min),
        q1: Some(quantile::of_sorted(&sorted, 0.25)),
        median: Some(quantile::of_sorted(&sorted, 0.5)),
        q3: Some(quantile::of_sorted(&sorted, 0.75)),
        p90,
        p99,
        p999,
        p90_ci95: None,
        p99_ci95: None,
        p999_ci95: None,
        max: Some(max),
        mean: Some(sorted.iter().sum::<f64>() / sorted.len() as f64),
        printed: None,
        ci95: None,
        modes: Vec::new(),
        quantiles: grid.map(|p| [p, quantile::of_sorted(&sorted, p)]).collect(),
        launch_medians: Vec::new(),
    };
    (summary, flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_shown_only_where_there_are_samples_for_it() {
        // Knuth's multiplicative hash: as good as independent.
        let series: Vec<f64> =
            (0..1_000).map(|at: u32| f64::from(at.wrapping_mul(2_654_435_761))).collect();
        let (summary, flags) = summary(&series);
        assert!(summary.p99.is_some() && summary.p999.is_none(), "{summary:?}");
        assert!(flags[0].starts_with("p99.9 needs 3688"), "{flags:?}");
        assert!(summary.min <= summary.q1 && summary.q1 <= summary.median);
        assert!(summary.quantiles.iter().all(|[p, _]| *p < 0.999));
    }

    #[test]
    fn nothing_has_no_quantiles() {
        assert_eq!(summary(&[]), (SampleSummary::default(), Vec::new()));
    }
}
