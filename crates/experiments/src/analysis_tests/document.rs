//! The document of a run whose truth is known: its cells, ladder, ranks and ratios.

use crate::list::registry;
use plumb_analysis::build::{build, trust};
use plumb_analysis::document::{RUN_SCHEMA, RankTable, RunDocument, schema};
use plumb_analysis::fixture::{SyntheticDesign, SyntheticRun, local};
use plumb_analysis::ladder::rungs;
use plumb_analysis::rank::tables;
use plumb_analysis::ratio::ratios;
use plumb_analysis::summary::measured_cells;
use plumb_store::record::{CellStatus, Factors};

fn synthetic() -> SyntheticRun {
    let mut synthetic = SyntheticRun::new(1);
    synthetic.design = SyntheticDesign { rounds: 5, samples: 40, ..SyntheticDesign::default() };
    synthetic.measure("latency.local", "latency", local("pipe", "same-cpu", 16), 1_000.0);
    synthetic.measure("latency.local", "latency", local("tcp4", "same-cpu", 16), 4_000.0);
    let reason = "the kernel has no io_uring".to_owned();
    let cell = synthetic.cell("latency.local", "latency", local("uring", "same-cpu", 16));
    cell.status = CellStatus::Unavailable(reason);
    synthetic
}

#[test]
fn a_document_is_stable() {
    let mut document = build(&registry(), &synthetic().data);
    // They change with every entry of docs/claims.toml, and are counted in a test of their own.
    document.statements.clear();
    insta::assert_json_snapshot!(document);
}

#[test]
fn more_than_a_fifth_of_disturbed_blocks_is_not_trusted() {
    let mut data = synthetic().data;
    assert!(trust(&data).trusted);
    data.blocks[0].flags = vec!["steal: 10 ms".to_owned(), "batched".to_owned()];
    data.blocks[1].flags = vec!["canary".to_owned()];
    assert!(trust(&data).trusted, "2 of 10");
    data.blocks[2].flags = vec!["migration".to_owned()];
    let judged = trust(&data);
    assert!(!judged.trusted && judged.flagged == 3, "{judged:?}");
    data.blocks[2].flags.push("simulated".to_owned());
    let judged = trust(&data);
    assert_eq!((judged.blocks, judged.flagged), (9, 2), "what is simulated is not disturbed");
    assert_eq!(judged.flags["steal"], 1);
}

#[test]
fn an_empty_or_damaged_run_still_makes_a_document() {
    let mut data = synthetic().data;
    data.launches.clear();
    let document = build(&registry(), &data);
    assert!(document.results.is_empty());
    assert_eq!(document.unavailable.len(), 3);
    for block in &mut data.blocks {
        block.samples = vec![f64::NAN, f64::INFINITY];
        block.n = u64::MAX / 4;
    }
    data.launches = synthetic().data.launches;
    build(&registry(), &data);
}

#[test]
fn a_document_validates_against_its_published_schema() {
    let published = schema::all().into_iter().find(|p| p.name == RUN_SCHEMA).unwrap();
    let value = serde_json::to_value(build(&registry(), &synthetic().data)).unwrap();
    assert!(jsonschema::is_valid(&published.schema, &value));
    let other = serde_json::json!({ "schema": "plumb.run/2" });
    assert!(!jsonschema::is_valid(&published.schema, &other));
}

fn laddered() -> RunDocument {
    let mut synthetic = SyntheticRun::new(1);
    let call = |call: &str, via: &str| Factors::default().with("call", call).with("via", via);
    synthetic.measure("latency.local", "latency", local("tcp4", "same-cache", 64), 20_000.0);
    synthetic.measure("latency.local", "latency", local("tcp4", "same-cpu", 64), 4_000.0);
    synthetic.measure("latency.local", "latency", local("pipe", "same-cpu", 64), 1_000.0);
    synthetic.measure("call.kernel", "call", call("getpid", "syscall"), 100.0);
    synthetic.measure("call.kernel", "call", call("clock-gettime", "vdso"), 20.0);
    synthetic.data.run.title = "ladder".to_owned();
    build(&registry(), &synthetic.data)
}

#[test]
fn rungs_climb_from_the_cheapest_boundary_and_keep_placements_together() {
    let document = laddered();
    let order: Vec<(&str, Option<&str>)> = document
        .ladder
        .iter()
        .map(|rung| (rung.label.as_str(), rung.placement.as_deref()))
        .collect();
    assert_eq!(
        order,
        [
            ("clock-gettime, vDSO", None),
            ("getpid, system call", None),
            ("pipe", Some("same-cpu")),
            ("tcp4", Some("same-cpu")),
            ("tcp4", Some("same-cache")),
        ]
    );
    assert!((document.ladder[2].calls.unwrap() - 10.0).abs() < 0.2);
}

#[test]
fn cpu_times_are_of_one_crossing_and_the_sentence_says_who_ran() {
    // The fixture charges a quarter of the round trip here and a fifth to the peer.
    let rung = &laddered().ladder[4];
    assert!((rung.cpu_local.unwrap() / 5_000.0 - 1.0).abs() < 0.02, "{rung:?}");
    assert!((rung.idle_share.unwrap() - 0.55).abs() < 0.01);
    assert_eq!(
        rung.sentence,
        "55% an idle CPU waking up (75% in the kernel), 200 system calls, 5.0 × one CPU."
    );
}

#[test]
fn sides_that_run_at_once_are_told_so() {
    let mut document = laddered();
    let result = &mut document.results[0];
    result.cpu.peer = result.cpu.wall;
    let told = &rungs(&registry(), &document)[4].sentence;
    assert!(told.contains("both sides run at once for part of it"), "{told}");
}

#[test]
fn a_result_without_a_median_is_no_rung() {
    let mut document = laddered();
    document.results[2].summary.median = None;
    assert!(rungs(&registry(), &document).iter().all(|rung| rung.label != "pipe"));
}

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

fn mirror(stack: &str, device: &str, frame: u64) -> Factors {
    let factors = Factors::default().with("stack", stack).with("device", device);
    factors.with("placement", "same-cpu").with("wake", "block").with("frame", frame)
}

#[test]
fn stacks_are_set_against_each_other_at_equal_settings_only() {
    let mut synthetic = SyntheticRun::new(3);
    for frame in [60, 1514] {
        let ns = frame as f64 + 4_000.0;
        synthetic.measure("mirror.rtt", "rtt", mirror("linux", "veth", frame), ns);
        synthetic.measure("mirror.rtt", "rtt", mirror("plumb", "tap", frame), ns * 0.8);
    }
    let found = ratios(&registry(), &measured_cells(&synthetic.data));
    assert_eq!(found.len(), 2, "{found:?}");
    for ratio in &found {
        assert_eq!(ratio.of["frame"], ratio.to["frame"]);
        assert!(ratio.ci95[0] < 0.8 && 0.8 < ratio.ci95[1], "{ratio:?}");
    }
}
