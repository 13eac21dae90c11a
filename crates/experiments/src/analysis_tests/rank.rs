//! Ranks of runs whose truth is known.

use crate::list::registry;
use plumb_analysis::document::RankTable;
use plumb_analysis::rank::tables;

use plumb_analysis::fixture::{SyntheticRun, local};
use plumb_analysis::summary::measured_cells;

fn table_of(medians: &[(&str, f64)], response: &str, size: u64) -> RankTable {
    let mut synthetic = SyntheticRun::new(1);
    let experiment = if response == "latency" { "latency.local" } else { "throughput.local" };
    for (mechanism, median) in medians {
        let factors = local(mechanism, "same-cpu", size);
        synthetic.measure(experiment, response, factors, *median);
    }
    tables(&registry(), &measured_cells(&synthetic.data)).remove(0)
}

#[test]
fn mechanisms_whose_ratio_may_be_one_share_a_rank() {
    let medians = [("tcp4", 3000.0), ("pipe", 1000.0), ("fifo", 1001.0), ("udp4", 2000.0)];
    let table = table_of(&medians, "latency", 64);
    let ranks: Vec<(u32, bool)> = table.rows.iter().map(|row| (row.rank, row.tied)).collect();
    assert_eq!(ranks, [(1, true), (1, true), (3, false), (4, false)]);
    assert!((table.rows[3].ratio_to_best - 3.0).abs() < 0.05);
    assert_eq!(table.published, None);
}

#[test]
fn the_published_order_stands_beside_todays_and_each_relation_is_judged() {
    let medians = [("tcp4", 2000.0), ("pipe", 1000.0), ("udp4", 2500.0)];
    let table = table_of(&medians, "latency", 16);
    let published = table.published.unwrap();
    assert_eq!(published.order, ["udp4", "tcp4", "pipe"]);
    let verdicts: Vec<&str> =
        published.relations.iter().map(|relation| relation.verdict.as_str()).collect();
    assert_eq!(verdicts, ["does not hold"; 3]);
    let pipe = &table.rows[0];
    assert_eq!((pipe.published_rank, pipe.rank_among_published), (Some(3), Some(1)));
}

#[test]
fn more_throughput_is_a_better_rank() {
    let medians = [("tcp4", 3e9), ("pipe", 2e9), ("udp4", 1e9)];
    let table = table_of(&medians, "throughput.acked", 65_536);
    let order: Vec<&str> = table.rows.iter().map(|row| row.mechanism.as_str()).collect();
    assert_eq!(order, ["tcp4", "pipe", "udp4"]);
    let relations = table.published.unwrap().relations;
    assert!(relations.iter().all(|relation| relation.verdict == "holds"), "{relations:?}");
    assert!((table.rows[2].ratio_to_best - 3.0).abs() < 0.05);
}

#[test]
fn a_mechanism_that_was_not_measured_leaves_its_relations_open() {
    let table = table_of(&[("tcp4", 2000.0), ("udp4", 1000.0)], "latency", 16);
    let relations = table.published.unwrap().relations;
    let verdicts: Vec<&str> = relations.iter().map(|r| r.verdict.as_str()).collect();
    assert_eq!(verdicts, ["holds", "not decided", "not decided"]);
}
