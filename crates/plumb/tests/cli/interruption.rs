//! Runs that are interrupted by Ctrl-C and resumed; killed ones are in `tests/launch/run_kills.rs`.

use std::collections::BTreeSet;
use std::time::Duration;

use plumb_clock::monotonic_ns;
use plumb_store::record::{CellStatus, RunStatus};
use plumb_store::sqlite::{Store, StoreMode};
use serde_json::Value;

use crate::home::{TestHome, is_alive};
use crate::support::{signal, wait_for};

/// A run of four cells in two groups that takes several seconds.
const RUN: &str = "run latency.local --set=mechanism=pipe,socketpair-stream --set=size=64,4Ki \
                   --set=placement=same-cpu --launches";

/// The longest block of a plan, to notice a program that waits for its end.
const BLOCK: Duration = Duration::from_mins(1);

/// Every cell of a run, with or without numbers.
fn cells(document: &Value) -> BTreeSet<String> {
    ["results", "unavailable"]
        .iter()
        .flat_map(|part| document[*part].as_array().unwrap())
        .map(|cell| format!("{} {} {}", cell["experiment"], cell["factors"], cell["response"]))
        .collect()
}

fn blocks_stored(place: &TestHome) -> u64 {
    let runs = place.run("runs --json").json();
    runs["runs"][0]["blocks"].as_u64().unwrap_or(0)
}

#[test]
fn ctrl_c_once_leaves_a_run_that_can_be_finished() {
    let place = TestHome::new();
    let run = place.start_measurement(&format!("{RUN}=24"));
    wait_for("a stored block", || blocks_stored(&place) > 0);
    signal(run.pid(), "INT");
    let outcome = run.outcome();
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    assert!(outcome.stdout.contains("latency"), "{}", outcome.stdout);
    let stopped = place.json_of("show last --json");
    assert_eq!(stopped["run"]["status"], "interrupted");

    let resumed = place.json_of("run --resume last --json");
    assert_eq!(resumed["run"]["id"], stopped["run"]["id"]);
    assert_eq!(resumed["run"]["status"], "complete");
    assert_eq!(cells(&resumed), cells(&stopped));
    for result in resumed["results"].as_array().unwrap() {
        assert!(result["summary"]["launches"].as_u64().unwrap() >= 24, "{result}");
    }
}

#[test]
fn resuming_measures_what_the_budget_did_not_reach() {
    let place = TestHome::new();
    // Some of the study's 1,800 cells, and never all.
    place.assert_success("run ipc --quick --budget=2s");
    let first = place.json_of("show last --json");
    assert_eq!(first["run"]["status"], "interrupted");
    place.assert_success("run --resume last --budget=6s");
    let second = place.json_of("show last --json");
    assert_eq!(second["run"]["id"], first["run"]["id"]);
    let measured = |run: &Value| run["results"].as_array().unwrap().len();
    assert!(measured(&second) > measured(&first), "{} {}", measured(&first), measured(&second));
}

#[test]
fn a_run_killed_before_its_cells_were_settled_is_resumed() {
    let place = TestHome::new();
    place.assert_success(&format!("{RUN}=2"));
    // As SIGKILL at that moment would leave the store: every block, and no cell settled.
    let mut store = Store::open(&place.store(), StoreMode::Write).unwrap();
    let id = store.runs().unwrap()[0].run.id.clone();
    let data = store.load(&id).unwrap();
    for cell in &data.cells {
        store.set_cell_status(&id, cell.id, &CellStatus::Open).unwrap();
    }
    store.update_run(&id, RunStatus::Interrupted, &data.run.notes).unwrap();
    drop(store);

    let resumed = place.json_of("run --resume last --json");
    assert_eq!(resumed["run"]["status"], "complete");
    let store = Store::open(&place.store(), StoreMode::Read).unwrap();
    for cell in store.load(&id).unwrap().cells {
        assert!(matches!(cell.status, CellStatus::Done(_)), "{}: {:?}", cell.key(), cell.status);
    }
}

#[test]
fn ctrl_c_twice_ends_at_once_and_leaves_no_process() {
    let place = TestHome::new();
    let plan = place.plan_of_blocks(BLOCK, 2);
    let run = place.start_measurement(&["run", plan]);
    let below = run.descendants();
    let began_ns = monotonic_ns();
    signal(run.pid(), "INT");
    signal(run.pid(), "INT");
    // Signals of one kind that arrive together count as one (signal(7)).
    wait_for("the end of the run", || {
        let has_ended = !is_alive(run.pid());
        has_ended || !signal(run.pid(), "INT")
    });
    let outcome = run.outcome();
    assert_eq!(outcome.code, Some(130), "{}", outcome.stderr);
    wait_for("worker and peer to end", || !below.iter().any(|pid| is_alive(*pid)));
    let waited = Duration::from_nanos(monotonic_ns() - began_ns);
    assert!(waited < BLOCK / 2, "it waited for its block: {waited:?}");
}
