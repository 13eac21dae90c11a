//! Published claims, judged again from stored results.
//!
//! A claim holds only where it holds at every measured setting that it concerns. Verdicts and sentences are
//! computed. The claims themselves are the experiments'.

use std::collections::{BTreeMap, BTreeSet};

use plumb_base::units::{Unit, format_bytes};
use plumb_store::record::RunData;

use crate::document::{ClaimVerdict, ExpectationVerdict, PublishedNumber};
use crate::summary::{MeasuredCell, rounded};

mod judgment;

pub use judgment::{
    CaseOutcome, ClaimCase, ClaimCases, ClaimJudgment, ClaimOutcome, judge_all, judge_any,
};

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
    /// Where the same quantity is found today.
    pub today: FigureToday,
}

/// The quantity of a run that a published number can be compared with.
#[derive(Clone, Copy, Debug)]
pub enum FigureToday {
    /// Nothing.
    Nothing,
    /// The claim's estimate.
    Estimate,
    /// What this finds in the results.
    Found(FigureFinder),
}

/// Finds in the results the quantity that was published.
pub type FigureFinder = fn(&ClaimEvidence<'_>) -> Option<f64>;

impl PublishedFigure {
    /// A number that the estimate can be divided by.
    pub const fn comparable(
        label: &'static str,
        value: f64,
        unit: Unit,
        place: &'static str,
    ) -> Self {
        Self { label, value, unit, place, today: FigureToday::Estimate }
    }

    /// A ratio that the estimate can be divided by.
    pub const fn ratio(label: &'static str, value: f64, place: &'static str) -> Self {
        Self::comparable(label, value, Unit::Count, place)
    }

    /// A number that stands for itself.
    pub const fn alone(label: &'static str, value: f64, unit: Unit, place: &'static str) -> Self {
        Self { label, value, unit, place, today: FigureToday::Nothing }
    }

    /// The two ends of a range, set beside the ends that are found in the results.
    pub const fn range(
        (least, most): (f64, f64),
        unit: Unit,
        place: &'static str,
        [find_least, find_most]: [FigureFinder; 2],
    ) -> [Self; 2] {
        [
            Self {
                today: FigureToday::Found(find_least),
                ..Self::alone("least", least, unit, place)
            },
            Self { today: FigureToday::Found(find_most), ..Self::alone("most", most, unit, place) },
        ]
    }

    fn entry(&self, evidence: &ClaimEvidence<'_>, estimate: Option<f64>) -> PublishedNumber {
        let now = match self.today {
            FigureToday::Nothing => None,
            FigureToday::Estimate => estimate,
            FigureToday::Found(find) => find(evidence),
        };
        PublishedNumber {
            label: self.label.to_owned(),
            value: self.value,
            unit: self.unit.name().to_owned(),
            place: self.place.to_owned(),
            now: now.map(rounded),
            ratio: now.map(|now| rounded(now / self.value)),
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

impl PublishedClaim {
    /// A claim of a document without its other fields.
    pub const fn of(source: &'static str) -> Self {
        let judge: ClaimJudge = |_| ClaimJudgment::not_measured("");
        Self { id: "", claim: "", source, historical: None, figures: &[], judge }
    }

    /// Judges it again by what was measured.
    pub fn verdict(&self, experiment: &str, evidence: &ClaimEvidence<'_>) -> ClaimVerdict {
        let found = (self.judge)(evidence);
        ClaimVerdict {
            id: self.id.to_owned(),
            experiment: experiment.to_owned(),
            claim: self.claim.to_owned(),
            source: self.source.to_owned(),
            historical: self.historical.map(str::to_owned),
            published: self
                .figures
                .iter()
                .map(|figure| figure.entry(evidence, found.estimate))
                .collect(),
            verdict: found.outcome.name().to_owned(),
            effect: found.effect,
            estimate: found.estimate,
            ci95: found.ci95,
            needs: found.needs,
        }
    }
}

impl Expectation {
    /// Judges it by what was measured.
    pub fn verdict(&self, experiment: &str, evidence: &ClaimEvidence<'_>) -> ExpectationVerdict {
        let found = (self.judge)(evidence);
        ExpectationVerdict {
            id: self.id.to_owned(),
            experiment: experiment.to_owned(),
            statement: self.statement.to_owned(),
            basis: self.basis.to_owned(),
            verdict: found.outcome.name().to_owned(),
            effect: found.effect,
            estimate: found.estimate,
            ci95: found.ci95,
            needs: found.needs,
        }
    }
}

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

    /// Cells that pass the first test, each with its twin: the cell that passes the second and differs in
    /// nothing but this factor.
    pub fn twins(
        &self,
        experiment: &'static str,
        response: &'static str,
        factor: &str,
        is_first: impl Fn(&MeasuredCell<'_>) -> bool,
        is_second: impl Fn(&MeasuredCell<'_>) -> bool,
    ) -> Vec<(&'a MeasuredCell<'a>, Option<&'a MeasuredCell<'a>>)> {
        let rest = |cell: &MeasuredCell<'_>| cell.cell.factors.clone().without(factor);
        let twin = |first: &MeasuredCell<'_>| {
            let mut cells = self.cells(experiment, response);
            cells.find(|cell| is_second(cell) && rest(cell) == rest(first))
        };
        let firsts = self.cells(experiment, response).filter(|cell| is_first(cell));
        firsts.map(|first| (first, twin(first))).collect()
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
            .filter_map(|cell| {
                let wake = cell.text("wake").unwrap_or("block").to_owned();
                let placement = cell.level("placement").to_owned();
                (wake == "block").then_some(PlacementWake { placement, wake })
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
        self.cells(experiment, response).find(|cell| {
            cell.text("mechanism") == Some(mechanism)
                && cell.level("placement") == setting.placement
                && cell.text("wake").unwrap_or("block") == setting.wake
                && cell.int("size") == Some(size)
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
            let cells = self.cells(experiment, response);
            let cells = cells.filter(|cell| cell.text("mechanism") == Some(mechanism));
            cells.filter_map(|cell| cell.int("size")).collect()
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
                    found.cases.push(ClaimCase::order(&setting.placement, label, first, second));
                } else {
                    let place = &setting.placement;
                    found.missing.push(format!("{better} and {worse} at {bytes}, {place}"));
                }
            }
        }
        found
    }
}
