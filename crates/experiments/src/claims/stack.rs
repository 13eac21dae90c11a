//! What the claims of study `stack` share: stacks and devices set side by side.

use plumb_analysis::claim::{ClaimCase, ClaimCases, ClaimEvidence};
use plumb_analysis::cost_ratio::{self};
use plumb_analysis::registry::{RatioLevels, RatioPair};
use plumb_analysis::summary::MeasuredCell;
use plumb_store::record::Factors;

/// The document that the claims of study `stack` come from.
pub const KJELLERSTEDT: &str = "Kjellerstedt, Implementing a High Performance TCP/IP Stack, 1997";

/// The cells of one response.
pub(crate) struct ResponseCells {
    pub(crate) experiment: &'static str,
    pub(crate) response: &'static str,
}

impl ResponseCells {
    /// "The first costs less than the second", at every setting that both were measured at.
    pub(crate) fn order(
        &self,
        evidence: &ClaimEvidence<'_>,
        first: &LevelFilter<'_>,
        second: &LevelFilter<'_>,
        chosen: fn(&Factors) -> bool,
    ) -> ClaimCases {
        let mut pairs = ClaimCases::default();
        for (a, b) in self.matched_pairs(evidence, first, second) {
            if chosen(&a.cell.factors) {
                let (place, label) = pair_label(&a.cell.factors, first, second);
                pairs.cases.push(ClaimCase::order(&place, label, cost_ratio::within_run(a, b)));
            }
        }
        pairs
    }

    /// The ratio of the second to the first within bounds, at every such setting.
    pub(crate) fn ratio(
        &self,
        evidence: &ClaimEvidence<'_>,
        first: &LevelFilter<'_>,
        second: &LevelFilter<'_>,
        bounds: (f64, f64),
        chosen: impl Fn(&Factors) -> bool,
    ) -> ClaimCases {
        let mut pairs = ClaimCases::default();
        for (a, b) in self.matched_pairs(evidence, first, second) {
            if chosen(&b.cell.factors) {
                let (place, label) = pair_label(&a.cell.factors, first, second);
                let contrast = cost_ratio::within_run(a, b);
                pairs.cases.push(ClaimCase::ratio_within(&place, label, contrast, bounds));
            }
        }
        pairs
    }

    /// Pairs of cells that differ in nothing but the levels that pick them, and in factors that
    /// only one of them has.
    fn matched_pairs<'a>(
        &self,
        evidence: &ClaimEvidence<'a>,
        first: &LevelFilter<'_>,
        second: &LevelFilter<'_>,
    ) -> Vec<(&'a MeasuredCell<'a>, &'a MeasuredCell<'a>)> {
        let all = || evidence.cells(self.experiment, self.response);
        let picked = |levels: &LevelFilter<'_>, factors: &Factors| {
            levels.iter().all(|(name, level)| factors.text(name) == Some(*level))
        };
        let named = |name: &str| first.iter().chain(second).any(|(known, _)| *known == name);
        let mut found = Vec::new();
        for a in all().filter(|a| picked(first, &a.cell.factors)) {
            for b in all().filter(|b| picked(second, &b.cell.factors)) {
                let agrees = a.cell.factors.0.iter().all(|(name, level)| {
                    named(name) || b.cell.factors.level(name).is_none_or(|other| other == level)
                });
                if agrees {
                    found.push((a, b));
                }
            }
        }
        found
    }
}

/// Levels that pick a cell.
pub(crate) type LevelFilter<'a> = [(&'a str, &'a str)];

/// Where a pair stands, and what it is: the placement, then every other level they share.
pub(crate) fn pair_label(
    factors: &Factors,
    first: &LevelFilter<'_>,
    second: &LevelFilter<'_>,
) -> (String, String) {
    let word = |levels: &LevelFilter<'_>| levels.first().map_or("", |(_, level)| level).to_owned();
    let named = |name: &str| first.iter().chain(second).any(|(known, _)| *known == name);
    let shared: Vec<String> = factors
        .0
        .iter()
        .filter(|(name, _)| name.as_str() != "placement" && !named(name))
        .map(|(_, level)| level.to_string())
        .collect();
    let place = factors.text("placement").unwrap_or_default().to_owned();
    (place, format!("{}/{} {}", word(second), word(first), shared.join(" ")))
}

pub(crate) fn frame(factors: &Factors) -> Option<i64> {
    factors.int("frame")
}

pub(crate) fn is_long(factors: &Factors) -> bool {
    frame(factors).is_some_and(|bytes| bytes >= 1514)
}

pub(crate) const LINUX: RatioLevels = &[("stack", "linux")];
pub(crate) const PLUMB: RatioLevels = &[("stack", "plumb")];
pub(crate) const SMOLTCP: RatioLevels = &[("stack", "smoltcp")];

/// A ratio of two stacks, whose devices may differ.
pub(crate) const fn stacks(response: &'static str, of: RatioLevels, to: RatioLevels) -> RatioPair {
    RatioPair { response, of, to, free: &["device"] }
}

/// A ratio of two levels at settings that agree otherwise.
pub(crate) const fn levels(response: &'static str, of: RatioLevels, to: RatioLevels) -> RatioPair {
    RatioPair { response, of, to, free: &[] }
}
