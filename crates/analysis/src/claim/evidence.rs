//! Looking up the cells that a claim speaks of.
//!
//! Left out: judging them (`crate::claim::finding`).

use std::collections::{BTreeMap, BTreeSet};

use plumb_base::units::format_bytes;
use plumb_store::record::RunData;

use super::judgment::ClaimCase;
use crate::cost_ratio;
use crate::summary::MeasuredCell;

/// The measured cells of a run.
#[derive(Clone, Copy, Debug)]
pub struct ClaimEvidence<'a> {
    measured: &'a [MeasuredCell<'a>],
    notes: &'a BTreeMap<String, String>,
}

/// What two cells must share to be compared: placement and wake mode.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacementWake {
    /// Placement of both processes.
    pub placement: String,
    /// How the receiver waits.
    pub wake: String,
}

/// Pairs of cells, and what was looked for in vain.
#[derive(Clone, Debug, Default)]
pub struct ClaimCases {
    /// The pairs found, each judged as an order: the first named is claimed to be the better.
    pub cases: Vec<ClaimCase>,
    /// Settings without the cells, for people.
    pub missing: Vec<String>,
}

impl<'a> ClaimEvidence<'a> {
    /// The evidence of a run.
    pub const fn new(data: &'a RunData, measured: &'a [MeasuredCell<'a>]) -> Self {
        Self { measured, notes: &data.run.notes }
    }

    /// A fact about the measurement, as a number.
    pub fn note_number(&self, name: &str) -> Option<f64> {
        self.notes.get(name)?.parse().ok()
    }

    /// A fact about the measurement, in words.
    pub fn note_text(&self, name: &str) -> Option<&'a str> {
        self.notes.get(name).map(String::as_str)
    }

    /// Every cell of an experiment and response.
    pub fn cells(
        &self,
        experiment: &'static str,
        response: &'static str,
    ) -> impl Iterator<Item = &'a MeasuredCell<'a>> {
        self.measured.iter().filter(move |measured| {
            measured.cell.experiment == experiment && measured.cell.response == response
        })
    }

    /// The settings at which blocking receivers were measured; the published figures are of
    /// blocking calls.
    pub fn settings(&self, experiment: &'static str, response: &'static str) -> Vec<PlacementWake> {
        let found: BTreeSet<PlacementWake> = self
            .cells(experiment, response)
            .filter_map(|measured| {
                let factors = &measured.cell.factors;
                let wake = factors.text("wake").unwrap_or("block");
                let placement = factors.text("placement").unwrap_or("unknown");
                (wake == "block").then(|| PlacementWake {
                    placement: placement.to_owned(),
                    wake: wake.to_owned(),
                })
            })
            .collect();
        found.into_iter().collect()
    }

    /// The cell of a mechanism at a setting and size; the first congestion control that was used.
    pub fn cell_at(
        &self,
        experiment: &'static str,
        response: &'static str,
        mechanism: &str,
        setting: &PlacementWake,
        size: i64,
    ) -> Option<&'a MeasuredCell<'a>> {
        self.cells(experiment, response).find(|measured| {
            let factors = &measured.cell.factors;
            factors.text("mechanism") == Some(mechanism)
                && factors.text("placement").unwrap_or("unknown") == setting.placement
                && factors.text("wake").unwrap_or("block") == setting.wake
                && factors.int("size") == Some(size)
        })
    }

    /// The sizes at which all of these mechanisms were measured somewhere.
    pub fn sizes(
        &self,
        experiment: &'static str,
        response: &'static str,
        mechanisms: &[&str],
    ) -> Vec<i64> {
        let of = |mechanism: &str| -> BTreeSet<i64> {
            self.cells(experiment, response)
                .filter(|measured| measured.cell.factors.text("mechanism") == Some(mechanism))
                .filter_map(|measured| measured.cell.factors.int("size"))
                .collect()
        };
        let mut sizes: Option<BTreeSet<i64>> = None;
        for mechanism in mechanisms {
            let found = of(mechanism);
            sizes = Some(sizes.map_or(found.clone(), |sizes| &sizes & &found));
        }
        sizes.unwrap_or_default().into_iter().collect()
    }

    /// Compares mechanisms pair by pair, at every blocking placement and each size given.
    ///
    /// Each pair claims that its first mechanism costs less than its second.
    pub fn order_cases(
        &self,
        experiment: &'static str,
        response: &'static str,
        pairs: &[(i64, &str, &str)],
    ) -> ClaimCases {
        let mut found = ClaimCases::default();
        for setting in self.settings(experiment, response) {
            for (size, better, worse) in pairs {
                let cell =
                    |mechanism| self.cell_at(experiment, response, mechanism, &setting, *size);
                let bytes = format_bytes(u64::try_from(*size).unwrap_or(0));
                if let (Some(first), Some(second)) = (cell(better), cell(worse)) {
                    let label = format!("{worse}/{better} {bytes}");
                    let contrast = cost_ratio::within_run(first, second);
                    found.cases.push(ClaimCase::order(&setting.placement, label, contrast));
                } else {
                    let place = &setting.placement;
                    found.missing.push(format!("{better} and {worse} at {bytes}, {place}"));
                }
            }
        }
        found
    }
}
