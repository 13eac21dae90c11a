//! Every testable statement beside the verdict that stored runs give on it.
//!
//! The newest run that decides a claim counts; without one, the newest that has an estimate, then the newest that
//! judged it at all.

use std::collections::BTreeMap;

use plumb_base::units::Unit;

use crate::document::ClaimVerdict;
use crate::document::list::{ClaimFigure, ClaimRow, ClaimTally};
use crate::registry::{Registry, StatementFigure, TestableStatement};
use crate::summary::rounded;

/// The verdict on a claim, and what it rests on.
#[derive(Clone, Debug, PartialEq)]
pub struct FoundVerdict {
    /// The verdict.
    pub verdict: ClaimVerdict,
    /// The id of a run, or the machines.
    pub basis: String,
    /// When the run began; empty without one.
    pub measured: String,
}

/// The verdicts found so far, by claim; runs are added from the newest to the oldest.
#[derive(Clone, Debug, Default)]
pub struct FoundVerdicts(BTreeMap<String, FoundVerdict>);

impl FoundVerdicts {
    /// Adds a verdict, unless one that was added before says as much.
    pub fn add(&mut self, found: FoundVerdict) {
        let known = self.0.get(&found.verdict.id);
        if known.is_none_or(|known| weight(&known.verdict) < weight(&found.verdict)) {
            self.0.insert(found.verdict.id.clone(), found);
        }
    }

    /// Whether nothing more can be learnt of any claim of an experiment.
    pub fn is_decided(&self, registry: &Registry, experiment: &str) -> bool {
        let claims = registry.find(experiment).map_or(&[][..], |known| known.claims);
        claims.iter().all(|claim| {
            self.0.get(claim.id).is_some_and(|found| weight(&found.verdict) == DECIDED)
        })
    }
}

const DECIDED: u8 = 2;

fn weight(verdict: &ClaimVerdict) -> u8 {
    match (is_decided(&verdict.verdict), verdict.estimate) {
        (true, _) => DECIDED,
        (false, Some(_)) => 1,
        (false, None) => 0,
    }
}

fn is_decided(verdict: &str) -> bool {
    matches!(verdict, "holds" | "does not hold")
}

/// A row for every statement, in their order.
pub fn rows(registry: &Registry, found: &FoundVerdicts) -> Vec<ClaimRow> {
    let row = |statement| row(registry, statement, found.0.get(&statement.id));
    registry.statements().iter().map(row).collect()
}

fn row(registry: &Registry, of: &TestableStatement, found: Option<&FoundVerdict>) -> ClaimRow {
    let verdict = found.map(|found| &found.verdict);
    let is_measured = verdict.is_some_and(|found| is_decided(&found.verdict) || weight(found) > 0);
    let word = match verdict {
        Some(found) if is_measured => found.verdict.as_str(),
        _ if of.is_encoded || verdict.is_some() => "not measured",
        _ => "no judge",
    };
    ClaimRow {
        id: of.id.clone(),
        document: of.document.clone(),
        author: of.author.clone(),
        place: of.place.clone(),
        statement: of.statement.clone(),
        figures: figures(of, verdict),
        verdict: word.to_owned(),
        effect: verdict.filter(|_| is_measured).map_or("", |found| &found.effect).to_owned(),
        estimate: verdict.and_then(|found| found.estimate),
        ci95: verdict.and_then(|found| found.ci95),
        basis: found.map_or("", |found| &found.basis).to_owned(),
        measured: found.map_or("", |found| &found.measured).to_owned(),
        experiment: of.experiment.clone(),
        to_decide: to_decide(registry, of, verdict),
        flaw: of.flaw.clone(),
    }
}

/// What would decide a statement that is not decided.
fn to_decide(
    registry: &Registry,
    of: &TestableStatement,
    verdict: Option<&ClaimVerdict>,
) -> String {
    let run = format!("plumb run {}", of.experiment);
    match verdict {
        Some(found) if is_decided(&found.verdict) => String::new(),
        Some(found) if !found.needs.is_empty() => found.needs.clone(),
        _ if of.is_encoded => run,
        _ if registry.find(&of.experiment).is_some() => format!("{run}, and {}", of.needs),
        _ => of.needs.clone(),
    }
}

/// The numbers of a statement, each beside the same number of its claim as measured here.
fn figures(of: &TestableStatement, verdict: Option<&ClaimVerdict>) -> Vec<ClaimFigure> {
    let published = verdict.map_or(&[][..], |found| &found.published);
    let figure = |figure: &StatementFigure| {
        let (factor, unit) = stored_unit(&figure.unit);
        let value = figure.value * factor;
        let same = published.iter().find(|known| {
            let is_unit = known.unit == unit || (unit == "ratio" && known.unit == "count");
            is_unit && (known.value - value).abs() <= 1e-6 * value.abs()
        });
        let here = same.and_then(|known| known.now);
        ClaimFigure {
            name: figure.name.clone(),
            value: rounded(value),
            unit: unit.to_owned(),
            here,
            ratio: here.map(|here| rounded(here / value)),
        }
    };
    of.figures.iter().map(figure).collect()
}

/// What a number in a document's unit is multiplied by to be in a stored one; units without one stay.
fn stored_unit(unit: &str) -> (f64, &str) {
    let (factor, stored) = match unit {
        "percent" => (0.01, Unit::Share),
        "us" => (1e3, Unit::Nanoseconds),
        "ms" => (1e6, Unit::Nanoseconds),
        "s" => (1e9, Unit::Nanoseconds),
        "bit/s" => (0.125, Unit::BytesPerSecond),
        other => return (1.0, other),
    };
    (factor, stored.name())
}

/// The rows counted, a document at a time, in their order.
pub fn tallies(rows: &[ClaimRow]) -> Vec<ClaimTally> {
    let tally = |rows: &[ClaimRow]| {
        let count = |verdict: &str| rows.iter().filter(|row| row.verdict == verdict).count() as u64;
        ClaimTally {
            document: rows[0].document.clone(),
            claims: rows.len() as u64,
            hold: count("holds"),
            do_not_hold: count("does not hold"),
            not_decided: count("not decided"),
            not_measured: count("not measured"),
            no_judge: count("no judge"),
        }
    };
    rows.chunk_by(|a, b| a.document == b.document).map(tally).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::PublishedNumber;

    fn found(verdict: &str, estimate: Option<f64>, basis: &str) -> FoundVerdict {
        let verdict = ClaimVerdict {
            id: "a.b".to_owned(),
            experiment: "latency.local".to_owned(),
            claim: String::new(),
            source: String::new(),
            historical: None,
            published: vec![PublishedNumber {
                label: "share".to_owned(),
                value: 0.28,
                unit: "share".to_owned(),
                place: String::new(),
                now: Some(0.14),
                ratio: Some(0.5),
            }],
            verdict: verdict.to_owned(),
            effect: "0.14".to_owned(),
            estimate,
            ci95: None,
            needs: String::new(),
        };
        FoundVerdict { verdict, basis: basis.to_owned(), measured: String::new() }
    }

    fn registry() -> Registry {
        let statement = TestableStatement {
            id: "a.b".to_owned(),
            document: "ipc".to_owned(),
            experiment: "latency.local".to_owned(),
            is_encoded: true,
            figures: vec![StatementFigure {
                name: "most".to_owned(),
                value: 28.0,
                unit: "percent".to_owned(),
            }],
            ..TestableStatement::default()
        };
        Registry::new([]).with_statements(Box::leak(Box::new([statement])))
    }

    #[test]
    fn an_older_decision_counts_more_than_a_newer_doubt() {
        let mut verdicts = FoundVerdicts::default();
        for (verdict, estimate, basis) in [
            ("not decided", None, "newest"),
            ("not decided", Some(1.0), "newer"),
            ("holds", Some(1.2), "old"),
            ("does not hold", Some(0.9), "oldest"),
        ] {
            verdicts.add(found(verdict, estimate, basis));
        }
        let row = rows(&registry(), &verdicts).remove(0);
        assert_eq!((row.verdict.as_str(), row.basis.as_str()), ("holds", "old"));
        assert_eq!(row.to_decide, "");
    }

    #[test]
    fn a_figure_stands_beside_the_same_quantity_in_one_unit() {
        let mut verdicts = FoundVerdicts::default();
        verdicts.add(found("holds", Some(0.14), "run"));
        let figure = rows(&registry(), &verdicts)[0].figures[0].clone();
        assert_eq!((figure.value, figure.unit.as_str()), (0.28, "share"));
        assert_eq!((figure.here, figure.ratio), (Some(0.14), Some(0.5)));
    }

    #[test]
    fn what_was_never_measured_names_the_command() {
        let rows = rows(&registry(), &FoundVerdicts::default());
        assert_eq!(rows[0].verdict, "not measured");
        assert_eq!(rows[0].to_decide, "plumb run latency.local");
        assert_eq!(tallies(&rows)[0].not_measured, 1);
    }
}
