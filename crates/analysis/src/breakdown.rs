//! Round trips in parts: the mean of each part, and that they sum to the whole (rule 18).
//!
//! Means, because they alone add up; their intervals are over launches. Left out: how the parts
//! are measured and corrected, and what they are called on a page.

use std::collections::{BTreeMap, BTreeSet};

use plumb_base::stats::distribution::student_quantile;

use crate::document::{BreakdownSummary, MeanEstimate, PartMean};
use crate::summary::{CONFIDENCE, LAUNCHES_NEEDED, MeasuredCell, rounded};

/// The response that no probe accounts for; a cell with it has been broken down.
pub const UNEXPLAINED: &str = "unexplained";

/// The whole, with the probes off.
pub const WHOLE: &str = "rtt";

/// The whole, with the probes on.
pub const PROBED: &str = "rtt-probed";

/// Every round trip that was broken down, in the order of its cells.
pub fn breakdowns(measured: &[MeasuredCell<'_>]) -> Vec<BreakdownSummary> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for cell in measured {
        let key = (cell.cell.experiment.as_str(), cell.cell.factors.to_string());
        if !seen.insert(key.clone()) {
            continue;
        }
        let group: Vec<&MeasuredCell<'_>> = measured
            .iter()
            .filter(|other| (other.cell.experiment.as_str(), other.cell.factors.to_string()) == key)
            .collect();
        found.extend(breakdown(&group));
    }
    found
}

/// The parts of one setting; none where nothing says what is unexplained.
fn breakdown(group: &[&MeasuredCell<'_>]) -> Option<BreakdownSummary> {
    let of = |response: &str, slowest: f64| {
        let cell = group.iter().find(|cell| cell.cell.response == response)?;
        Some(cell.means_by_round(slowest)).filter(|means| !means.is_empty())
    };
    let first = group.first()?;
    if group.iter().any(|cell| cell.cell.response == IN_STACK_RESPONSE) {
        return None;
    }
    let unexplained = of(UNEXPLAINED, 0.0)?;
    let parts: Vec<(&str, BTreeMap<u32, f64>)> = group
        .iter()
        .map(|cell| (cell.cell.response.as_str(), cell.means_by_round(0.0)))
        .filter(|(name, means)| !NON_PART_RESPONSES.contains(name) && !means.is_empty())
        .collect();
    let sums: BTreeMap<u32, f64> = unexplained
        .iter()
        .map(|(round, rest)| {
            let parts = parts.iter().filter_map(|(_, means)| means.get(round));
            (*round, rest + parts.sum::<f64>())
        })
        .collect();
    let unexplained_mean = mean(unexplained.values().copied())?;
    let sum = parts.iter().filter_map(|(_, means)| mean(means.values().copied()));
    let sum = unexplained_mean.mean + sum.map(|part| part.mean).sum::<f64>();
    let parts = parts.iter().filter_map(|(name, means)| {
        let MeanEstimate { mean, ci95 } = mean(means.values().copied())?;
        (mean > 0.0).then(|| PartMean {
            part: (*name).to_owned(),
            mean,
            ci95: ci95.map(positive),
            share: rounded(mean / sum),
        })
    });
    let (whole, probed) = (of(WHOLE, TRIMMED_SHARE), of(PROBED, TRIMMED_SHARE));
    let cost = whole.as_ref().zip(probed.as_ref()).and_then(|(off, on)| {
        let paired = on.iter().filter_map(|(round, on)| Some(on / off.get(round)? - 1.0));
        mean(paired)
    });
    let shares = unexplained.iter().filter_map(|(round, rest)| Some(rest / sums.get(round)?));
    let unexplained_share = mean(shares)?;
    Some(BreakdownSummary {
        experiment: first.cell.experiment.clone(),
        factors: crate::summary::factors(first.cell),
        parts: parts.collect(),
        unexplained_share: MeanEstimate {
            ci95: unexplained_share.ci95.map(positive),
            ..unexplained_share
        },
        unexplained: MeanEstimate { ci95: unexplained_mean.ci95.map(positive), ..unexplained_mean },
        sum: rounded(sum),
        whole: whole.and_then(|means| mean(means.values().copied())),
        probed: probed.and_then(|means| mean(means.values().copied())),
        probe_cost: cost,
        launches: sums.len() as u64,
    })
}

/// The share of round trips that is left out as somebody else's doing: the parts come without it, so
/// the whole must be taken without it too.
const TRIMMED_SHARE: f64 = 0.02;

/// Responses that are not parts.
const NON_PART_RESPONSES: [&str; 3] = [UNEXPLAINED, WHOLE, PROBED];

/// The response of an experiment that looks at one stretch of a round trip, not at all of it.
const IN_STACK_RESPONSE: &str = "stack";

/// An interval of what cannot be negative.
fn positive([low, high]: [f64; 2]) -> [f64; 2] {
    [low.max(0.0), high]
}

/// The mean of launches and Student's interval around it; none of nothing, nor of what is no number.
fn mean(launches: impl Iterator<Item = f64>) -> Option<MeanEstimate> {
    let values: Vec<f64> = launches.filter(|value| value.is_finite()).collect();
    let count = values.len() as f64;
    if values.is_empty() {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count;
    let ci95 = (values.len() >= LAUNCHES_NEEDED).then(|| {
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let error = (squares / (count - 1.0) / count).sqrt();
        let half = student_quantile(f64::midpoint(1.0, CONFIDENCE), count - 1.0) * error;
        [rounded(mean - half), rounded(mean + half)]
    });
    Some(MeanEstimate { mean: rounded(mean), ci95 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{SyntheticRun, local};
    use crate::summary::measured_cells;

    fn synthetic() -> SyntheticRun {
        let mut synthetic = SyntheticRun::new(5);
        let factors = || local("tcp4", "same-cpu", 64);
        for (part, ns) in [("send-path", 2_000.0), ("wake-up", 1_000.0), ("unexplained", 250.0)] {
            synthetic.measure("breakdown.local", part, factors(), ns);
        }
        synthetic.constant("breakdown.local", "device", factors(), 0.0);
        synthetic.measure("breakdown.local", WHOLE, factors(), 3_250.0);
        synthetic.measure("breakdown.local", PROBED, factors(), 3_575.0);
        synthetic
    }

    #[test]
    fn parts_that_occur_and_the_unexplained_sum_to_the_whole() {
        let mut synthetic = synthetic();
        // Nothing to break down here.
        synthetic.measure("latency.local", "latency", local("pipe", "same-cpu", 64), 1_000.0);
        let found = breakdowns(&measured_cells(&synthetic.data));
        assert_eq!(found.len(), 1);
        let found = &found[0];
        let names: Vec<&str> = found.parts.iter().map(|part| part.part.as_str()).collect();
        assert_eq!(names, ["send-path", "wake-up"]);
        let sum = found.parts.iter().map(|part| part.mean).sum::<f64>() + found.unexplained.mean;
        assert!((sum - found.sum).abs() < 1e-3);
        let whole = found.whole.as_ref().unwrap();
        assert!((found.sum / whole.mean - 1.0).abs() < 0.01, "{found:?}");
        let shares: f64 = found.parts.iter().map(|part| part.share).sum();
        assert!((shares + found.unexplained_share.mean - 1.0).abs() < 0.01);
        // The round trip with the probes over the one without.
        let cost = found.probe_cost.clone().unwrap();
        let [low, high] = cost.ci95.unwrap();
        assert!(low < 0.1 && 0.1 < high && (cost.mean - 0.1).abs() < 0.01, "{cost:?}");
    }

    #[test]
    fn what_somebody_else_did_to_a_few_round_trips_is_in_neither_whole() {
        let mut synthetic = synthetic();
        let whole = synthetic.data.cells.iter().find(|cell| cell.response == WHOLE).unwrap().id;
        for block in synthetic.data.blocks.iter_mut().filter(|block| block.cell == whole) {
            block.samples[7] = 5e6;
        }
        let found = &breakdowns(&measured_cells(&synthetic.data))[0];
        let whole = found.whole.as_ref().unwrap().mean;
        assert!((found.sum / whole - 1.0).abs() < 0.02, "{whole} {}", found.sum);
    }
}
