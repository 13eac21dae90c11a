//! From the cases of a claim to its verdict and its sentence.
//!
//! A claim about order holds when every case holds, is refuted by any case that contradicts it
//! beyond chance (Holm over its cases) or is equivalent, and is open otherwise. Left out: finding
//! the cases.

use std::collections::BTreeMap;

use plumb_base::stats::rank::holm;
use plumb_base::units::significant;

use super::evidence::Pairs;
use crate::contrast::Contrast;
use crate::summary::rounded;

/// Costs within this share of each other are practically equal.
const MARGIN: f64 = 0.02;

/// Chance of a false refutation that is accepted, for all cases of a claim.
const LEVEL: f64 = 0.05;

/// Cases named in a sentence; the rest are counted.
const NAMED: usize = 3;

/// What became of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every case agrees.
    Holds,
    /// Some case contradicts it.
    DoesNotHold,
    /// The cells are missing or too uncertain.
    NotDecided,
}

impl Verdict {
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
pub struct Finding {
    /// The verdict.
    pub verdict: Verdict,
    /// The effect that decided, in words with numbers.
    pub effect: String,
    /// The deciding case's value.
    pub estimate: Option<f64>,
    /// Its 95 % interval.
    pub ci95: Option<[f64; 2]>,
    /// What it would take to decide; empty when decided.
    pub needs: String,
}

impl Finding {
    /// Nothing was measured that the claim speaks of.
    pub fn missing(needs: &str) -> Self {
        Self {
            verdict: Verdict::NotDecided,
            effect: "not measured in this run".to_owned(),
            estimate: None,
            ci95: None,
            needs: needs.to_owned(),
        }
    }
}

/// Whether one case agrees with its claim.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Standing {
    /// It agrees, beyond its interval.
    For,
    /// It contradicts, with this probability of doing so by chance (0 for what is not a chance).
    Against(f64),
    /// Its interval decides neither; about so many more launches would.
    Open(Option<u64>),
}

/// One setting at which a claim is tested.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Where: cases of one placement are told together.
    pub placement: String,
    /// What, for people: `pipe/udp4 16`.
    pub label: String,
    /// The value: a ratio, or a quantity.
    pub value: Option<f64>,
    /// Its 95 % interval.
    pub ends: Option<[f64; 2]>,
    /// The value as it is printed, with its unit.
    pub text: String,
    /// How it stands.
    pub standing: Standing,
    /// How far it is from refuting (small) or confirming: what picks the deciding case.
    pub strength: f64,
}

impl Case {
    /// A case of "the first costs less than the second": a ratio above 1 agrees.
    ///
    /// Equal within 2 % by two one-sided tests contradicts, for the claim says less.
    pub fn order(placement: &str, label: String, contrast: Option<Contrast>) -> Self {
        let Some(contrast) = contrast else { return Self::unreplicated(placement, label) };
        let standing = if contrast.is_equivalent(MARGIN) {
            Standing::Against(0.0)
        } else if contrast.excludes_one() && contrast.ratio > 1.0 {
            Standing::For
        } else if contrast.excludes_one() {
            Standing::Against(contrast.p)
        } else {
            Standing::Open(contrast.more_launches(MARGIN))
        };
        Self::of_ratio(placement, label, &contrast, standing)
    }

    /// A ratio that must lie within `lo` and `hi`, interval and all.
    pub fn ratio_within(
        placement: &str,
        label: String,
        contrast: Option<Contrast>,
        (lo, hi): (f64, f64),
    ) -> Self {
        let Some(contrast) = contrast else { return Self::unreplicated(placement, label) };
        let standing = standing_of(contrast.ends(), (lo, hi));
        Self::of_ratio(placement, label, &contrast, standing)
    }

    /// A quantity that must lie within `lo` and `hi`, interval and all.
    pub fn quantity(
        placement: &str,
        label: String,
        value: f64,
        ends: Option<[f64; 2]>,
        bounds: (f64, f64),
        unit: plumb_base::units::Unit,
    ) -> Self {
        let too_few = Standing::Open(Some(crate::summary::LAUNCHES_NEEDED as u64));
        let standing = ends.map_or(too_few, |ends| standing_of(ends, bounds));
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
            ends,
            text,
            standing,
            strength,
        }
    }

    fn of_ratio(placement: &str, label: String, contrast: &Contrast, standing: Standing) -> Self {
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
            ends: Some([lo, hi]),
            text,
            standing,
            strength: contrast.ratio.ln(),
        }
    }

    fn unreplicated(placement: &str, label: String) -> Self {
        Self {
            placement: placement.to_owned(),
            label,
            value: None,
            ends: None,
            text: "too few launches".to_owned(),
            standing: Standing::Open(Some(crate::summary::LAUNCHES_NEEDED as u64)),
            strength: f64::NEG_INFINITY,
        }
    }
}

/// An interval against bounds: inside, outside, or across one of them.
fn standing_of([lo, hi]: [f64; 2], (least, most): (f64, f64)) -> Standing {
    if least <= lo && hi <= most {
        Standing::For
    } else if hi < least || lo > most {
        Standing::Against(0.0)
    } else {
        Standing::Open(None)
    }
}

/// A claim about every case: holds only if all agree and none is missing.
pub fn every(pairs: Pairs, needs: &str) -> Finding {
    let Pairs { cases, missing } = pairs;
    if cases.is_empty() {
        return Finding::missing(needs);
    }
    let cases = adjusted(cases);
    let against: Vec<&Case> = cases.iter().filter(|case| is_against(case)).collect();
    let open: Vec<&Case> =
        cases.iter().filter(|case| matches!(case.standing, Standing::Open(_))).collect();
    let effect = told(&cases);
    if let Some(strongest) = against.iter().min_by(|a, b| a.strength.total_cmp(&b.strength)) {
        return decided(Verdict::DoesNotHold, effect, strongest);
    }
    let weakest = cases.iter().min_by(|a, b| a.strength.total_cmp(&b.strength));
    let Some(weakest) = weakest else { return Finding::missing(needs) };
    if open.is_empty() && missing.is_empty() {
        return decided(Verdict::Holds, effect, weakest);
    }
    Finding {
        needs: wanting(&open, &missing, needs),
        ..decided(Verdict::NotDecided, effect, weakest)
    }
}

/// A claim that something happens somewhere: one agreeing case suffices.
pub fn some(pairs: Pairs, needs: &str) -> Finding {
    let Pairs { cases, missing } = pairs;
    let effect = told(&cases);
    let best = |wanted: fn(&Case) -> bool| {
        cases.iter().filter(|case| wanted(case)).max_by(|a, b| a.strength.total_cmp(&b.strength))
    };
    if let Some(case) = best(|case| case.standing == Standing::For) {
        return decided(Verdict::Holds, effect, case);
    }
    let Some(any) = best(|_| true) else { return Finding::missing(needs) };
    let open: Vec<&Case> =
        cases.iter().filter(|case| matches!(case.standing, Standing::Open(_))).collect();
    if open.is_empty() && missing.is_empty() {
        return decided(Verdict::DoesNotHold, effect, any);
    }
    Finding { needs: wanting(&open, &missing, needs), ..decided(Verdict::NotDecided, effect, any) }
}

fn decided(verdict: Verdict, effect: String, case: &Case) -> Finding {
    Finding {
        verdict,
        effect,
        estimate: case.value.map(rounded),
        ci95: case.ends.map(|ends| ends.map(rounded)),
        needs: String::new(),
    }
}

fn is_against(case: &Case) -> bool {
    matches!(case.standing, Standing::Against(_))
}

/// Opens the contradictions that may be chance, given how many cases were looked at.
fn adjusted(mut cases: Vec<Case>) -> Vec<Case> {
    let p: Vec<f64> = cases
        .iter()
        .map(|case| match case.standing {
            Standing::Against(p) => p,
            _ => 1.0,
        })
        .collect();
    for (case, p) in cases.iter_mut().zip(holm(&p)) {
        if is_against(case) && p >= LEVEL {
            case.standing = Standing::Open(None);
        }
    }
    cases
}

/// How the cases stand, placement by placement, the deciding ones with their values.
fn told(cases: &[Case]) -> String {
    let mut by_placement: BTreeMap<&str, Vec<&Case>> = BTreeMap::new();
    for case in cases {
        by_placement.entry(&case.placement).or_default().push(case);
    }
    let parts: Vec<String> = by_placement
        .into_iter()
        .map(|(placement, cases)| {
            let told = told_at(&cases);
            if placement.is_empty() { told } else { format!("{placement}: {told}") }
        })
        .collect();
    parts.join("; ")
}

fn told_at(cases: &[&Case]) -> String {
    let chosen = |wanted: &dyn Fn(&Case) -> bool| -> Vec<&Case> {
        let mut chosen: Vec<&Case> = cases.iter().copied().filter(|case| wanted(case)).collect();
        chosen.sort_by(|a, b| a.strength.total_cmp(&b.strength));
        chosen
    };
    let total = cases.len();
    let mut parts = Vec::new();
    for (word, group) in [
        ("agree", chosen(&|case| case.standing == Standing::For)),
        ("contradict", chosen(&is_against)),
        ("undecided", chosen(&|case| matches!(case.standing, Standing::Open(_)))),
    ] {
        if group.is_empty() {
            continue;
        }
        let named: Vec<String> =
            group.iter().take(NAMED).map(|case| format!("{} {}", case.label, case.text)).collect();
        let rest = match group.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        parts.push(format!("{} of {total} {word} ({}{rest})", group.len(), named.join(", ")));
    }
    parts.join(", ")
}

/// What would decide: launches for the open cases, cells for the missing ones.
fn wanting(open: &[&Case], missing: &[String], needs: &str) -> String {
    let more = open
        .iter()
        .filter_map(|case| match case.standing {
            Standing::Open(more) => more,
            _ => None,
        })
        .max();
    let mut parts = Vec::new();
    if let Some(more) = more {
        parts.push(format!("about {more} more launches"));
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
