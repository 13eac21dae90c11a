//! Published claims, judged again from stored results.
//!
//! A claim holds only where it holds at every measured setting that it concerns. Verdicts and sentences are
//! computed. The claims themselves are the experiments'.

use plumb_store::record::RunData;

use plumb_base::units::Unit;

use crate::document::{ClaimVerdict, ExpectationVerdict, PublishedNumber};
use crate::registry::Registry;
use crate::summary::{MeasuredCell, rounded};

mod evidence;
mod judgment;

pub use evidence::{ClaimCases, ClaimEvidence, PlacementWake};
pub use judgment::{CaseOutcome, ClaimCase, ClaimJudgment, ClaimOutcome, judge_all, judge_any};

/// Judges a claim by what was measured.
pub type ClaimJudge = fn(&ClaimEvidence<'_>) -> ClaimJudgment;

/// One published claim and how it is judged.
#[derive(Clone, Copy, Debug)]
pub struct PublishedClaim {
    /// Stable id: `ipc.latency.pipe-slower-than-sockets`.
    pub id: &'static str,
    /// The claim, in one sentence.
    pub claim: &'static str,
    /// Where it was published.
    pub source: &'static str,
    /// The historical figure, where the document gives one.
    pub historical: Option<&'static str>,
    /// Its numbers, as published.
    pub figures: &'static [PublishedFigure],
    /// How it is judged.
    pub judge: ClaimJudge,
}

/// A published number.
#[derive(Clone, Copy, Debug)]
pub struct PublishedFigure {
    /// What it is of: `getpid()`, `512 KB against 64 KB`.
    pub label: &'static str,
    /// The number, in its unit; of a range the middle.
    pub value: f64,
    /// Its unit; a ratio counts.
    pub unit: Unit,
    /// Table, figure or section.
    pub place: &'static str,
    /// Whether the claim's estimate is the same quantity, so that their ratio means something.
    pub is_comparable: bool,
}

impl PublishedFigure {
    /// A number that the estimate can be divided by.
    pub const fn comparable(
        label: &'static str,
        value: f64,
        unit: Unit,
        place: &'static str,
    ) -> Self {
        Self { label, value, unit, place, is_comparable: true }
    }

    /// A number that stands for itself.
    pub const fn alone(label: &'static str, value: f64, unit: Unit, place: &'static str) -> Self {
        Self { label, value, unit, place, is_comparable: false }
    }

    fn entry(&self, estimate: Option<f64>) -> PublishedNumber {
        let ratio = estimate.filter(|_| self.is_comparable).map(|now| now / self.value);
        PublishedNumber {
            label: self.label.to_owned(),
            value: self.value,
            unit: self.unit.name().to_owned(),
            place: self.place.to_owned(),
            ratio: ratio.map(rounded),
        }
    }
}

/// A statement of our own, from a standard or from arithmetic; shown apart from published claims.
#[derive(Clone, Copy, Debug)]
pub struct Expectation {
    /// Stable id.
    pub id: &'static str,
    /// What is expected, in one sentence.
    pub statement: &'static str,
    /// What it rests on.
    pub basis: &'static str,
    /// How it is judged.
    pub judge: ClaimJudge,
}

/// Judges every claim whose experiment is part of the run.
///
/// A claim whose cells are missing is not decided, and says what would measure them.
pub fn verdicts(
    registry: &Registry,
    data: &RunData,
    measured: &[MeasuredCell<'_>],
) -> Vec<ClaimVerdict> {
    let evidence = ClaimEvidence::new(data, measured);
    let in_run = |id: &str| data.cells.iter().any(|cell| cell.experiment == id);
    let experiments = registry.iter().filter(|(id, _)| in_run(id));
    let claims =
        experiments.flat_map(|(id, analysis)| analysis.claims.iter().map(move |claim| (id, claim)));
    claims
        .map(|(experiment, claim)| {
            let finding = (claim.judge)(&evidence);
            ClaimVerdict {
                id: claim.id.to_owned(),
                experiment: experiment.to_owned(),
                claim: claim.claim.to_owned(),
                source: claim.source.to_owned(),
                historical: claim.historical.map(str::to_owned),
                published: claim
                    .figures
                    .iter()
                    .map(|figure| figure.entry(finding.estimate))
                    .collect(),
                verdict: finding.outcome.name().to_owned(),
                effect: finding.effect,
                estimate: finding.estimate,
                ci95: finding.ci95,
                needs: finding.needs,
            }
        })
        .collect()
}

/// Judges every expectation whose experiment is part of the run.
pub fn expectations(
    registry: &Registry,
    data: &RunData,
    measured: &[MeasuredCell<'_>],
) -> Vec<ExpectationVerdict> {
    let evidence = ClaimEvidence::new(data, measured);
    let in_run = |id: &str| data.cells.iter().any(|cell| cell.experiment == id);
    let mut verdicts = Vec::new();
    for (experiment, analysis) in registry.iter().filter(|(id, _)| in_run(id)) {
        verdicts.extend(analysis.expectations.iter().map(|expectation| {
            let finding = (expectation.judge)(&evidence);
            ExpectationVerdict {
                id: expectation.id.to_owned(),
                experiment: experiment.to_owned(),
                statement: expectation.statement.to_owned(),
                basis: expectation.basis.to_owned(),
                verdict: finding.outcome.name().to_owned(),
                effect: finding.effect,
                estimate: finding.estimate,
                ci95: finding.ci95,
                needs: finding.needs,
            }
        }));
    }
    verdicts
}
