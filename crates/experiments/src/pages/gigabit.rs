//! What pages of study `gigabit` share.

pub(crate) use super::streams::*;

use plumb_base::units::significant;
use plumb_report::figure::against_factor::{FactorPlot, FactorScale};

pub(crate) const SHARE: FactorPlot = FactorPlot {
    factor: "cpu-share",
    label: "share of CPU (%)",
    unit: "count",
    scale: FactorScale::Linear,
    panel_factors: &["placement"],
    pictures: &[("Throughput", &["throughput"]), ("Bytes for each second of CPU", &SIDES)],
    power_law_responses: &["throughput"],
};

/// What each level gives, beside the others.
pub(crate) const LEVEL_PICTURES: &[(&str, &[&str], bool)] = &[
    ("Throughput", &["throughput"], false),
    ("Bytes for each second of CPU", &SIDES, false),
    ("Latency of a small message", &["latency"], false),
];

/// `97% to 101% (3 cells)`.
pub(crate) fn range(shares: &[f64]) -> Option<String> {
    let low = shares.iter().copied().reduce(f64::min)?;
    let high = shares.iter().copied().reduce(f64::max)?;
    let percent = |share: f64| format!("{}%", significant(share * 100.0, 3));
    Some(match (shares.len(), percent(low) == percent(high)) {
        (1, _) => percent(low),
        (cells, true) => format!("{} ({cells} cells)", percent(low)),
        (cells, false) => format!("{} to {} ({cells} cells)", percent(low), percent(high)),
    })
}
