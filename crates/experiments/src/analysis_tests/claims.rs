//! How claims are judged, on runs whose truth is known.

use super::ipc_claims::calls;
use crate::claims::TABLE_1;
use crate::list::registry;
use plumb_analysis::build::{expectations, verdicts};
use plumb_analysis::document::{ClaimVerdict, ExpectationVerdict};
use plumb_analysis::fixture::{SyntheticRun, local};
use plumb_analysis::summary::measured_cells;
use plumb_store::record::Factors;
use std::collections::{BTreeMap, BTreeSet};

const PLACES: [&str; 2] = ["same-cpu", "same-cache"];

pub(super) fn judged(synthetic: &SyntheticRun) -> BTreeMap<String, ClaimVerdict> {
    verdicts(&registry(), &synthetic.data, &measured_cells(&synthetic.data))
        .into_iter()
        .map(|verdict| (verdict.id.clone(), verdict))
        .collect()
}

pub(super) fn verdict(synthetic: &SyntheticRun, id: &str) -> String {
    let judged = judged(synthetic);
    judged
        .get(id)
        .map_or_else(|| expected(synthetic)[id].verdict.clone(), |judged| judged.verdict.clone())
}

pub(super) fn expected(synthetic: &SyntheticRun) -> BTreeMap<String, ExpectationVerdict> {
    expectations(&registry(), &synthetic.data, &measured_cells(&synthetic.data))
        .into_iter()
        .map(|verdict| (verdict.id.clone(), verdict))
        .collect()
}

/// The three published mechanisms at the three published sizes, as Table 1 has them.
fn as_published(response: &str) -> SyntheticRun {
    let mut synthetic = SyntheticRun::new(1);
    for order in TABLE_1.iter().filter(|order| order.response == response) {
        for placement in PLACES {
            for (mechanism, cost) in order.mechanisms.into_iter().zip([1.0, 1.2, 1.5]) {
                let size = u64::try_from(order.size).unwrap();
                let factors = local(mechanism, placement, size);
                let (experiment, value) = if response == "latency" {
                    ("latency.local", 10_000.0 * cost)
                } else {
                    ("throughput.local", 1e8 / cost)
                };
                synthetic.measure(experiment, response, factors, value);
            }
        }
    }
    synthetic
}

fn change(synthetic: &mut SyntheticRun, chosen: impl Fn(&Factors) -> bool, by: f64) {
    let cells = &synthetic.data.cells;
    let ids: BTreeSet<i64> =
        cells.iter().filter(|cell| chosen(&cell.factors)).map(|cell| cell.id).collect();
    assert!(!ids.is_empty());
    for block in synthetic.data.blocks.iter_mut().filter(|block| ids.contains(&block.cell)) {
        block.samples.iter_mut().for_each(|sample| *sample *= by);
    }
}

#[test]
fn a_claim_that_fails_at_one_placement_does_not_hold_and_says_where() {
    let mut synthetic = as_published("latency");
    let fast_pipe = |factors: &Factors| {
        factors.text("mechanism") == Some("pipe") && factors.text("placement") == Some("same-cpu")
    };
    change(&mut synthetic, fast_pipe, 0.2);
    let judged = &judged(&synthetic)["ipc.latency.pipe-slower-than-sockets"];
    assert_eq!(judged.verdict, "does not hold");
    assert!(judged.effect.contains("same-cpu: 6 of 6 contradict"), "{}", judged.effect);
    assert!(judged.effect.contains("same-cache: 6 of 6 agree"), "{}", judged.effect);
    assert!(judged.ci95.unwrap()[1] < 1.0 && judged.needs.is_empty());
}

#[test]
fn equal_costs_refute_an_order() {
    let mut synthetic = as_published("latency");
    change(&mut synthetic, |f| f.text("mechanism") == Some("pipe"), 1.2 / 1.5);
    assert_eq!(verdict(&synthetic, "ipc.latency.pipe-slower-than-sockets"), "does not hold");
}

#[test]
fn cells_that_are_missing_leave_a_claim_open_with_what_would_measure_them() {
    let mut synthetic = as_published("latency");
    let gone = |cell: &plumb_store::record::Cell| cell.factors.int("size") == Some(65_536);
    let ids: BTreeSet<i64> =
        synthetic.data.cells.iter().filter(|cell| gone(cell)).map(|cell| cell.id).collect();
    synthetic.data.blocks.retain(|block| !ids.contains(&block.cell));
    let judged = &judged(&synthetic)["ipc.latency.ranks"];
    assert_eq!(judged.verdict, "not decided");
    assert!(judged.needs.contains("plumb run latency.local"), "{}", judged.needs);
}

#[test]
fn too_few_launches_leave_a_claim_open() {
    let mut synthetic = as_published("latency");
    synthetic.data.blocks.retain(|block| block.launch % 10 < 2);
    let judged = &judged(&synthetic)["ipc.latency.ranks"];
    assert_eq!(judged.verdict, "not decided");
    assert!(judged.needs.contains("more launches"), "{}", judged.needs);
}

#[test]
fn only_claims_of_measured_experiments_are_judged() {
    let judged = judged(&as_published("latency"));
    let latency = crate::list::all().find(|experiment| experiment.id == "latency.local").unwrap();
    let of_latency: BTreeSet<&str> = latency.analysis.claims.iter().map(|claim| claim.id).collect();
    assert!(judged.keys().all(|id| of_latency.contains(id.as_str())), "{:?}", judged.keys());
    assert!(verdicts(&registry(), &SyntheticRun::new(1).data, &[]).is_empty());
}

#[test]
fn claim_ids_are_unique_and_most_experiments_have_some() {
    let of = |experiment: &'static crate::definition::Experiment| {
        let claims = experiment.analysis.claims.iter().map(|claim| claim.id);
        claims.chain(experiment.analysis.expectations.iter().map(|expectation| expectation.id))
    };
    let ids: BTreeSet<&str> = crate::list::all().flat_map(of).collect();
    assert_eq!(ids.len(), crate::list::all().flat_map(of).count());
    // Claims about breakdowns and indexes are judged with other results.
    let without = ["breakdown.local", "index.cpu", "index.memory"];
    for experiment in crate::list::all().filter(|experiment| !without.contains(&experiment.id)) {
        assert!(of(experiment).next().is_some(), "{}", experiment.id);
    }
}

#[test]
fn a_published_number_stands_beside_what_is_measured_today() {
    let pipe = &judged(&as_published("latency"))["ipc.latency.pipe-range"];
    let [least, most] = pipe.published.as_slice() else { panic!("{:?}", pipe.published) };
    assert!((least.now.unwrap() / 15_000.0 - 1.0).abs() < 0.02, "{least:?}");
    assert!((least.ratio.unwrap() / (15_000.0 / 8_000.0) - 1.0).abs() < 0.02, "{least:?}");
    assert!((most.ratio.unwrap() / (15_000.0 / 300_000.0) - 1.0).abs() < 0.02, "{most:?}");
    let getpid = &judged(&calls(50.0, 60.0))["ipc.call.getpid-25ns"];
    let ratios: Vec<f64> = getpid.published.iter().filter_map(|then| then.ratio).collect();
    assert!((ratios[0] - 2.0).abs() < 0.05 && (ratios[1] - 50.0 / 27.0).abs() < 0.05, "{ratios:?}");
}

#[test]
fn a_run_counts_every_testable_statement_of_its_document() {
    let document = crate::list::run_document(&as_published("latency").data);
    for tally in &document.statements {
        let open: usize = tally.open.values().map(Vec::len).sum();
        let id = format!("{}.", tally.document);
        let judged = document.claims.iter().filter(|claim| claim.id.starts_with(&id)).count();
        assert_eq!((tally.judged, tally.testable - tally.encoded), (judged as u64, open as u64));
    }
    let ipc = document.statements.iter().find(|tally| tally.document == "ipc").unwrap();
    assert!(ipc.encoded > ipc.judged && ipc.open.contains_key("latency.local"), "{ipc:?}");
}
