//! The summary of a cell that another tool measured.
//!
//! Left out: intervals and effective sizes, which no printed summary supports.

use plumb_store::record::ImportedSummary;

use crate::document::SampleSummary;

/// What the tool printed, in our shape, and what a reader must know about it.
pub fn summary(imported: &ImportedSummary) -> (SampleSummary, Vec<String>) {
    let percentile = |name: &str| imported.percentiles.get(name).copied();
    let is = |statistic: &str| (imported.statistic == statistic).then_some(imported.value);
    let summary = SampleSummary {
        n: imported.n.unwrap_or(0),
        min: imported.min,
        q1: percentile("p25"),
        median: is("median")
            .or_else(|| is("median of repeated runs"))
            .or_else(|| percentile("p50")),
        q3: percentile("p75"),
        p90: percentile("p90"),
        p99: percentile("p99"),
        p999: percentile("p99.9").or_else(|| percentile("p999")),
        max: imported.max,
        // The share of all that arrived is the mean over them.
        mean: is("mean").or_else(|| is("total")),
        ..SampleSummary::default()
    };
    let mut flags = vec![format!(
        "imported: {} printed this {}; no launches, no interval, percentiles as it printed them",
        imported.tool, imported.statistic
    )];
    if summary.median.is_none() && summary.mean.is_none() {
        flags.push(format!("{}: {}", imported.statistic, imported.value));
    }
    (summary, flags)
}
