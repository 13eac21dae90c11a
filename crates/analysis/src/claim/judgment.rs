//! From the cases of a claim to its verdict and its sentence.
//!
//! A claim about order holds when every case holds, is refuted by cases that contradict it or are
//! equivalent, beyond chance (Simes over all of its cases), and is open otherwise.

use std::collections::BTreeMap;

use plumb_base::stats::distribution::{student_cdf, student_quantile};
use plumb_base::stats::rank::simes;
use plumb_base::units::{Unit, significant};

use crate::cost_ratio::{CostRatio, within_run};
use crate::summary::{LAUNCHES_NEEDED, MeasuredCell, rounded};

/// Costs within this share of each other are practically equal.
const EQUIVALENCE_MARGIN: f64 = 0.02;

/// Chance of a false refutation that is accepted, for all cases of a claim.
const SIGNIFICANCE: f64 = 0.05;

/// Cases named in a sentence; the rest are counted.
const CASES_SHOWN: usize = 3;

/// The outcome of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// Every case agrees.
    Holds,
    /// Some case contradicts it.
    DoesNotHold,
    /// The cells are missing or too uncertain.
    NotDecided,
}

impl ClaimOutcome {
    /// As it is stored: `holds`, `does not hold`, `not decided`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::DoesNotHold => "does not hold",
            Self::NotDecided => "not decided",
        }
    }
}

/// A verdict with what it rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimJudgment {
    /// The verdict.
    pub outcome: ClaimOutcome,
    /// The effect that decided, in words with numbers.
    pub effect: String,
    /// The deciding case's value.
    pub estimate: Option<f64>,
    /// Its 95 % interval.
    pub ci95: Option<[f64; 2]>,
    /// What it would take to decide; empty when decided.
    pub needs: String,
}

impl ClaimJudgment {
    /// Nothing was measured that the claim speaks of.
    pub fn not_measured(needs: &str) -> Self {
        Self {
            outcome: ClaimOutcome::NotDecided,
            effect: "nothing in this run decides it".to_owned(),
            estimate: None,
            ci95: None,
            needs: needs.to_owned(),
        }
    }
}

/// Whether one case agrees with its claim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CaseOutcome {
    /// It agrees, with this probability of doing so by chance (0 for what is not a chance).
    Supports(f64),
    /// It contradicts, with this probability of doing so by chance.
    Contradicts(f64),
    /// Its interval decides neither; about so many more launches would.
    Undecided(Option<u64>),
    /// Alone it would decide; among all the cases that were looked at it may be chance.
    PerhapsChance,
}

impl CaseOutcome {
    /// How it stands with a claim that says the opposite.
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Supports(p) => Self::Contradicts(p),
            Self::Contradicts(p) => Self::Supports(p),
            open @ (Self::Undecided(_) | Self::PerhapsChance) => open,
        }
    }
}

/// One setting at which a claim is tested.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimCase {
    /// Where: cases of one placement are told together.
    pub placement: String,
    /// What, for people: `pipe/udp4 16`.
    pub label: String,
    /// The value: a ratio, or a quantity.
    pub value: Option<f64>,
    /// Its 95 % interval.
    pub ci95: Option<[f64; 2]>,
    /// The value as it is printed, with its unit.
    pub text: String,
    /// How it stands.
    pub outcome: CaseOutcome,
    /// How far it is from refuting (small) or confirming: what picks the deciding case.
    pub strength: f64,
}

/// Pairs of cells, and what was looked for in vain.
#[derive(Clone, Debug, Default)]
pub struct ClaimCases {
    /// The pairs found, each judged as an order: the first named is claimed to be the better.
    pub cases: Vec<ClaimCase>,
    /// Settings without the cells, for people.
    pub missing: Vec<String>,
}

impl ClaimCases {
    /// A case of every pair, and in words what it lacks where a cell has no twin.
    pub fn of_twins<'a>(
        twins: impl IntoIterator<Item = (&'a MeasuredCell<'a>, Option<&'a MeasuredCell<'a>>)>,
        case: impl Fn(&MeasuredCell<'_>, &MeasuredCell<'_>) -> ClaimCase,
        missing: impl Fn(&MeasuredCell<'_>) -> String,
    ) -> Self {
        let mut found = Self::default();
        for (first, twin) in twins {
            match twin {
                Some(twin) => found.cases.push(case(first, twin)),
                None => found.missing.push(missing(first)),
            }
        }
        found
    }
}

impl FromIterator<ClaimCase> for ClaimCases {
    fn from_iter<I: IntoIterator<Item = ClaimCase>>(cases: I) -> Self {
        Self { cases: cases.into_iter().collect(), missing: Vec::new() }
    }
}

impl ClaimCase {
    /// A case of "the first costs less than the second": a ratio above 1 agrees.
    ///
    /// Equal within 2 % by two one-sided tests contradicts, for the claim says less.
    pub fn order(
        placement: &str,
        label: String,
        first: &MeasuredCell<'_>,
        second: &MeasuredCell<'_>,
    ) -> Self {
        let Some(contrast) = within_run(first, second) else {
            return Self::too_few_launches(placement, label);
        };
        let standing = if contrast.is_equivalent(EQUIVALENCE_MARGIN) {
            CaseOutcome::Contradicts(contrast.p_equivalent(EQUIVALENCE_MARGIN))
        } else if contrast.excludes_one() && contrast.ratio > 1.0 {
            CaseOutcome::Supports(contrast.p)
        } else if contrast.excludes_one() {
            CaseOutcome::Contradicts(contrast.p)
        } else {
            CaseOutcome::Undecided(contrast.more_launches(EQUIVALENCE_MARGIN))
        };
        Self::of_ratio(placement, label, &contrast, standing)
    }

    /// The cost of the second over that of the first, which must lie within bounds, interval and all.
    pub fn ratio_within(
        placement: &str,
        label: String,
        (first, second): (&MeasuredCell<'_>, &MeasuredCell<'_>),
        bounds: (f64, f64),
    ) -> Self {
        let Some(contrast) = within_run(first, second) else {
            return Self::too_few_launches(placement, label);
        };
        let standing = match compare_with_bounds(contrast.ratio, contrast.ends(), bounds) {
            CaseOutcome::Contradicts(_) => CaseOutcome::Contradicts(contrast.p_outside(bounds)),
            other => other,
        };
        Self::of_ratio(placement, label, &contrast, standing)
    }

    /// The median of a cell, which must lie within bounds, interval and all.
    pub fn median_within(
        placement: &str,
        label: String,
        cell: &MeasuredCell<'_>,
        bounds: (f64, f64),
    ) -> Self {
        let unit = cell.cell.unit_type();
        Self::quantity(placement, label, cell.median(), cell.ends(), bounds, unit)
    }

    /// A quantity that must lie within `lo` and `hi`, interval and all.
    pub fn quantity(
        placement: &str,
        label: String,
        value: f64,
        ends: Option<[f64; 2]>,
        bounds: (f64, f64),
        unit: Unit,
    ) -> Self {
        let too_few = CaseOutcome::Undecided(Some(LAUNCHES_NEEDED as u64));
        let standing = ends.map_or(too_few, |ends| compare_with_bounds(value, ends, bounds));
        let text = ends.map_or_else(
            || unit.format(value, 3).to_string(),
            |[lo, hi]| {
                format!("{} ({}–{})", unit.format(value, 3), unit.format(lo, 3), unit.format(hi, 3))
            },
        );
        let (lo, hi) = bounds;
        // On a log scale, positive inside the bounds and negative outside.
        let strength = if value > 0.0 && hi > 0.0 {
            (hi / value).ln().min(if lo > 0.0 { (value / lo).ln() } else { f64::INFINITY })
        } else {
            0.0
        };
        Self {
            placement: placement.to_owned(),
            label,
            value: Some(value),
            ci95: ends,
            text,
            outcome: standing,
            strength,
        }
    }

    fn of_ratio(
        placement: &str,
        label: String,
        contrast: &CostRatio,
        standing: CaseOutcome,
    ) -> Self {
        let [lo, hi] = contrast.ends();
        let text = format!(
            "{}× ({}–{})",
            significant(contrast.ratio, 3),
            significant(lo, 3),
            significant(hi, 3)
        );
        Self {
            placement: placement.to_owned(),
            label,
            value: Some(contrast.ratio),
            ci95: Some([lo, hi]),
            text,
            outcome: standing,
            strength: contrast.ratio.ln(),
        }
    }

    fn too_few_launches(placement: &str, label: String) -> Self {
        Self {
            placement: placement.to_owned(),
            label,
            value: None,
            ci95: None,
            text: "too few launches".to_owned(),
            outcome: CaseOutcome::Undecided(Some(LAUNCHES_NEEDED as u64)),
            strength: f64::NEG_INFINITY,
        }
    }
}

/// A value and its 95 % interval against bounds: inside, outside, or across one of them.
fn compare_with_bounds(value: f64, [lo, hi]: [f64; 2], (least, most): (f64, f64)) -> CaseOutcome {
    if least <= lo && hi <= most {
        CaseOutcome::Supports(p_beyond(value, hi, most).max(p_beyond(-value, -lo, -least)))
    } else if hi < least {
        CaseOutcome::Contradicts(p_beyond(value, hi, least))
    } else if lo > most {
        CaseOutcome::Contradicts(p_beyond(-value, -lo, -most))
    } else {
        CaseOutcome::Undecided(None)
    }
}

/// About the two-sided probability that a quantity is beyond `bound` after all, which is above the upper end of its 95 %
/// interval: as far as Student's distribution with the fewest launches that have an interval reaches.
fn p_beyond(value: f64, end: f64, bound: f64) -> f64 {
    let freedom = LAUNCHES_NEEDED as f64 - 1.0;
    if bound.is_infinite() || end <= value {
        return if bound > value { 0.0 } else { 1.0 };
    }
    let scale = student_quantile(0.975, freedom);
    2.0 * student_cdf(-(bound - value) / (end - value) * scale, freedom)
}

/// A claim about every case: holds only if all agree and none is missing.
pub fn judge_all(pairs: ClaimCases, needs: &str) -> ClaimJudgment {
    let ClaimCases { cases, missing } = pairs;
    if cases.is_empty() {
        let needs =
            if missing.is_empty() { needs.to_owned() } else { needs_text(&[], &missing, needs) };
        return ClaimJudgment::not_measured(&needs);
    }
    let cases = adjust_for_cases(cases, |outcome| match outcome {
        CaseOutcome::Contradicts(p) => Some(p),
        _ => None,
    });
    let against: Vec<&ClaimCase> = cases.iter().filter(|case| contradicts(case)).collect();
    if let Some(strongest) = against.iter().min_by(|a, b| a.strength.total_cmp(&b.strength)) {
        return judgment_of(ClaimOutcome::DoesNotHold, effect_text(&cases), strongest);
    }
    let weakest = cases.iter().min_by(|a, b| a.strength.total_cmp(&b.strength));
    let Some(weakest) = weakest else { return ClaimJudgment::not_measured(needs) };
    judge_if_complete(ClaimOutcome::Holds, &cases, weakest, &missing, needs)
}

/// A claim that something happens somewhere: one agreeing case suffices.
pub fn judge_any(pairs: ClaimCases, needs: &str) -> ClaimJudgment {
    let ClaimCases { cases, missing } = pairs;
    let cases = adjust_for_cases(cases, |outcome| match outcome {
        CaseOutcome::Supports(p) => Some(p),
        _ => None,
    });
    let best = |wanted: fn(&ClaimCase) -> bool| {
        cases.iter().filter(|case| wanted(case)).max_by(|a, b| a.strength.total_cmp(&b.strength))
    };
    if let Some(case) = best(supports) {
        return judgment_of(ClaimOutcome::Holds, effect_text(&cases), case);
    }
    let Some(any) = best(|_| true) else { return ClaimJudgment::not_measured(needs) };
    judge_if_complete(ClaimOutcome::DoesNotHold, &cases, any, &missing, needs)
}

/// This outcome if every case is decided and none is missing.
fn judge_if_complete(
    outcome: ClaimOutcome,
    cases: &[ClaimCase],
    decisive: &ClaimCase,
    missing: &[String],
    needs: &str,
) -> ClaimJudgment {
    let open: Vec<&ClaimCase> = cases.iter().filter(|case| is_open(case)).collect();
    let is_complete = open.is_empty() && missing.is_empty();
    let outcome = if is_complete { outcome } else { ClaimOutcome::NotDecided };
    ClaimJudgment {
        needs: needs_text(&open, missing, needs),
        ..judgment_of(outcome, effect_text(cases), decisive)
    }
}

fn judgment_of(verdict: ClaimOutcome, effect: String, case: &ClaimCase) -> ClaimJudgment {
    ClaimJudgment {
        outcome: verdict,
        effect,
        estimate: case.value.map(rounded),
        ci95: case.ci95.map(|ends| ends.map(rounded)),
        needs: String::new(),
    }
}

fn supports(case: &ClaimCase) -> bool {
    matches!(case.outcome, CaseOutcome::Supports(_))
}

fn contradicts(case: &ClaimCase) -> bool {
    matches!(case.outcome, CaseOutcome::Contradicts(_))
}

fn is_open(case: &ClaimCase) -> bool {
    matches!(case.outcome, CaseOutcome::Undecided(_) | CaseOutcome::PerhapsChance)
}

/// Opens the cases that one alone would decide by, and that may be chance given how many were looked at.
fn adjust_for_cases(
    mut cases: Vec<ClaimCase>,
    decisive: fn(CaseOutcome) -> Option<f64>,
) -> Vec<ClaimCase> {
    let p: Vec<f64> = cases.iter().map(|case| decisive(case.outcome).unwrap_or(1.0)).collect();
    if simes(&p) > SIGNIFICANCE {
        for case in cases.iter_mut().filter(|case| decisive(case.outcome).is_some()) {
            case.outcome = CaseOutcome::PerhapsChance;
        }
    }
    cases
}

/// How the cases stand, placement by placement, the deciding ones with their values.
fn effect_text(cases: &[ClaimCase]) -> String {
    let mut by_placement: BTreeMap<&str, Vec<&ClaimCase>> = BTreeMap::new();
    for case in cases {
        by_placement.entry(&case.placement).or_default().push(case);
    }
    let parts: Vec<String> = by_placement
        .into_iter()
        .map(|(placement, cases)| {
            let told = placement_text(&cases);
            if placement.is_empty() { told } else { format!("{placement}: {told}") }
        })
        .collect();
    parts.join("; ")
}

fn placement_text(cases: &[&ClaimCase]) -> String {
    let chosen = |wanted: &dyn Fn(&ClaimCase) -> bool| -> Vec<&ClaimCase> {
        let mut chosen: Vec<&ClaimCase> =
            cases.iter().copied().filter(|case| wanted(case)).collect();
        chosen.sort_by(|a, b| a.strength.total_cmp(&b.strength));
        chosen
    };
    let total = cases.len();
    let mut parts = Vec::new();
    for (word, group) in [
        ("agree", chosen(&supports)),
        ("contradict", chosen(&contradicts)),
        ("undecided", chosen(&is_open)),
    ] {
        if group.is_empty() {
            continue;
        }
        let named: Vec<String> = group
            .iter()
            .take(CASES_SHOWN)
            .map(|case| format!("{} {}", case.label, case.text))
            .collect();
        let rest = match group.len().saturating_sub(CASES_SHOWN) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        parts.push(format!("{} of {total} {word} ({}{rest})", group.len(), named.join(", ")));
    }
    parts.join(", ")
}

/// What would decide: launches for the open cases, cells for the missing ones.
fn needs_text(open: &[&ClaimCase], missing: &[String], needs: &str) -> String {
    let more = open
        .iter()
        .filter_map(|case| match case.outcome {
            CaseOutcome::Undecided(more) => more,
            _ => None,
        })
        .max();
    let mut parts = Vec::new();
    if let Some(more) = more {
        parts.push(format!("about {more} more launches"));
    } else if open.iter().any(|case| case.outcome == CaseOutcome::PerhapsChance) {
        parts.push("some more launches: with so few, what is seen may be chance".to_owned());
    } else if !open.is_empty() {
        parts.push("more launches than is practical, or the effect is at the edge".to_owned());
    }
    if let Some(first) = missing.first() {
        let rest = match missing.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        parts.push(format!("{first}{rest}: {needs}"));
    }
    parts.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_agreeing_case_of_twenty_must_stand_the_correction_for_all() {
        let judged = |p: f64, count: usize| {
            let case = ClaimCase {
                placement: "same-cpu".to_owned(),
                label: "pipe/udp4 16".to_owned(),
                value: Some(1.1),
                ci95: Some([1.01, 1.2]),
                text: "1.1".to_owned(),
                outcome: CaseOutcome::Supports(p),
                strength: 0.1,
            };
            let other = ClaimCase { outcome: CaseOutcome::Undecided(None), ..case.clone() };
            let mut cases = vec![other; count - 1];
            cases.push(case);
            judge_any(ClaimCases { cases, missing: Vec::new() }, "more launches")
        };
        assert_eq!(judged(0.02, 1).outcome, ClaimOutcome::Holds);
        assert_eq!(judged(0.002, 20).outcome, ClaimOutcome::Holds);
        let open = judged(0.02, 20);
        assert_eq!(open.outcome, ClaimOutcome::NotDecided);
        assert!(open.needs.starts_with("some more launches"), "{}", open.needs);
    }

    #[test]
    fn a_claim_whose_cases_all_contradict_it_needs_no_more_than_each() {
        let case = |outcome| ClaimCase {
            outcome,
            ..ClaimCase::quantity(
                "",
                "a/b".to_owned(),
                0.5,
                Some([0.4, 0.6]),
                (1.0, 2.0),
                Unit::Count,
            )
        };
        let judged = |outcomes: &[CaseOutcome]| {
            judge_all(outcomes.iter().map(|outcome| case(*outcome)).collect(), "").outcome
        };
        let against = CaseOutcome::Contradicts(0.031);
        assert_eq!(judged(&[against; 4]), ClaimOutcome::DoesNotHold);
        let most = [against, against, against, CaseOutcome::Supports(0.0)];
        assert_eq!(judged(&most), ClaimOutcome::DoesNotHold);
        let some = [against, CaseOutcome::Supports(0.0), CaseOutcome::Supports(0.0)];
        assert_eq!(judged(&some), ClaimOutcome::NotDecided);
    }
}
