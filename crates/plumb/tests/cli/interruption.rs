//! Runs that are stopped by Ctrl-C and finished later; those killed outright are in `kills.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use plumb_host::clock::monotonic_ns;
use plumb_store::record::{CellStatus, RunStatus};
use plumb_store::sqlite::{Mode, Store};
use serde_json::Value;

use crate::program::{Measuring, Place, is_alive, wait_for};

/// A plan of four cells in two groups that lasts for a few seconds.
const PLAN: [&str; 6] = [
    "run",
    "latency.local",
    "--launches=12",
    "--set=mechanism=pipe,socketpair-stream",
    "--set=size=64,4Ki",
    "--set=placement=same-cpu",
];

/// So long that a program which waits for the end of its block is told from one that does not,
/// however slow the machine.
const BLOCK: Duration = Duration::from_secs(20);

/// Every cell of a run, with or without numbers.
fn cells(document: &Value) -> BTreeSet<String> {
    ["results", "unavailable"]
        .iter()
        .flat_map(|part| document[*part].as_array().unwrap())
        .map(|cell| format!("{} {} {}", cell["experiment"], cell["factors"], cell["response"]))
        .collect()
}

fn blocks_stored(place: &Place) -> u64 {
    let runs = place.run(&["runs", "--json"]).json();
    runs["runs"][0]["blocks"].as_u64().unwrap_or(0)
}

#[test]
fn ctrl_c_once_reports_what_is_there_and_the_run_can_be_finished() {
    let place = Place::new();
    let run = place.measuring(&PLAN);
    wait_for("a stored block", || blocks_stored(&place) > 0);
    Measuring::signal(run.pid(), "INT");
    let outcome = run.outcome();
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("plumb run --resume"), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("latency"), "{}", outcome.stdout);
    let stopped = place.fine(&["show", "last", "--json"]).json();
    assert_eq!(stopped["run"]["status"], "interrupted");

    let resumed = place.fine(&["run", "--resume", "last", "--json"]).json();
    assert_eq!(resumed["run"]["id"], stopped["run"]["id"]);
    assert_eq!(resumed["run"]["status"], "complete");
    assert_eq!(cells(&resumed), cells(&stopped));
    for result in resumed["results"].as_array().unwrap() {
        assert!(result["summary"]["launches"].as_u64().unwrap() >= 12, "{result}");
    }
}

#[test]
fn what_a_budget_did_not_reach_is_said_and_measured_by_resuming() {
    let place = Place::new();
    // Some of the study's 1,800 cells, and never all.
    let cut = place.fine(&["run", "ipc", "--quick", "--budget=2s"]);
    assert!(cut.stderr.contains("the budget was spent before"), "{}", cut.stderr);
    let first = place.fine(&["show", "last", "--json"]).json();
    assert_eq!(first["run"]["status"], "interrupted");
    place.fine(&["run", "--resume", "last", "--budget=2s"]);
    let second = place.fine(&["show", "last", "--json"]).json();
    assert_eq!(second["run"]["id"], first["run"]["id"]);
    let measured = |run: &Value| run["results"].as_array().unwrap().len();
    assert!(measured(&second) > measured(&first), "{} {}", measured(&first), measured(&second));
}

#[test]
fn a_run_killed_after_its_last_block_and_before_its_round_was_settled_is_finished_by_resuming() {
    let place = Place::new();
    let mut words = PLAN.to_vec();
    words[2] = "--launches=2";
    place.fine(&words);
    // What SIGKILL at that moment leaves behind: every block, and no cell settled.
    let mut store = Store::open(&place.store(), Mode::Write).unwrap();
    let id = store.runs().unwrap()[0].run.id.clone();
    let data = store.load(&id).unwrap();
    for cell in &data.cells {
        store.set_cell_status(&id, cell.id, &CellStatus::Open).unwrap();
    }
    store.update_run(&id, RunStatus::Interrupted, &data.run.notes).unwrap();
    drop(store);

    let resumed = place.fine(&["run", "--resume", "last", "--json"]).json();
    assert_eq!(resumed["run"]["status"], "complete");
    let store = Store::open(&place.store(), Mode::Read).unwrap();
    for cell in store.load(&id).unwrap().cells {
        assert!(matches!(cell.status, CellStatus::Done(_)), "{}: {:?}", cell.key(), cell.status);
    }
}

#[test]
fn ctrl_c_twice_ends_at_once_and_leaves_no_process() {
    let place = Place::new();
    let plan = place.plan_of_blocks(BLOCK, 2);
    let run = place.measuring(&["run", plan]);
    let below = run.descendants();
    let began = monotonic_ns();
    Measuring::signal(run.pid(), "INT");
    Measuring::signal(run.pid(), "INT");
    // Signals of one kind that arrive together count as one (signal(7)).
    wait_for("the end of the run, or its second signal", || {
        Measuring::signal_if_alive(run.pid(), "INT")
    });
    let outcome = run.outcome();
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    wait_for("worker and peer to end", || !below.iter().any(|pid| is_alive(*pid)));
    let waited = Duration::from_nanos(monotonic_ns() - began);
    assert!(waited < BLOCK / 2, "it waited for its block: {waited:?}");
}
