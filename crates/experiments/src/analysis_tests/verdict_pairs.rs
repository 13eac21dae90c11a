//! Every judged statement: results that give *holds*, and results that give *does not hold*.

use std::collections::BTreeSet;

use plumb_analysis::fixture::SyntheticRun;

use super::claims::verdict;
use super::{distributed_claims, gigabit_claims, ipc_claims, scaling_claims, stack_claims};
use crate::definition::Experiment;
use crate::list;

/// Statements, and results that are as they say or not.
pub(super) type VerdictPair = (&'static [&'static str], fn(bool) -> SyntheticRun);

/// The statements of these pairs are judged by either result.
const PAIRS: [&[VerdictPair]; 6] = [
    ipc_claims::PAIRS,
    stack_claims::PAIRS,
    gigabit_claims::PAIRS,
    gigabit_claims::SIMULATED,
    scaling_claims::PAIRS,
    distributed_claims::PAIRS,
];

/// What a statement's two results must give that can happen but need not, or that no machine decides alone.
const WITHOUT_REFUTATION: [(&[VerdictPair], [&str; 2]); 3] = [
    (ipc_claims::NEVER_REFUTED, ["holds", "not decided"]),
    (gigabit_claims::NEVER_DECIDED, ["not decided", "not decided"]),
    (scaling_claims::NEVER_DECIDED, ["not decided", "not decided"]),
];

/// All pairs, each with the verdicts of its two results.
fn all_pairs() -> impl Iterator<Item = (&'static VerdictPair, [&'static str; 2])> {
    let both = PAIRS.iter().map(|pairs| (*pairs, ["holds", "does not hold"]));
    let tables = both.chain(WITHOUT_REFUTATION);
    tables.flat_map(|(pairs, verdicts)| pairs.iter().map(move |pair| (pair, verdicts)))
}

#[test]
fn every_judged_statement_can_hold_and_can_fail() {
    let mut wrong = Vec::new();
    for ((ids, make), verdicts) in all_pairs() {
        for (results, expected) in [true, false].map(make).iter().zip(verdicts) {
            for id in *ids {
                let found = verdict(results, id);
                if found != expected {
                    wrong.push(format!("{id}: {found}, not {expected}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn no_judged_statement_lacks_its_two_results() {
    let of = |experiment: &'static Experiment| {
        let claims = experiment.analysis.claims.iter().map(|claim| claim.id);
        claims.chain(experiment.analysis.expectations.iter().map(|expectation| expectation.id))
    };
    let in_code: BTreeSet<&str> = list::all().flat_map(of).collect();
    let paired: Vec<&str> = all_pairs().flat_map(|((ids, _), _)| *ids).copied().collect();
    let in_tables: BTreeSet<&str> = paired.iter().copied().collect();
    assert_eq!(in_tables, in_code);
    assert_eq!(paired.len(), in_tables.len(), "a statement has two pairs");
}
