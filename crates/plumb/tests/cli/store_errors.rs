//! Stores that cannot be used, and processes that are killed: one error each, and no data lost.

use std::time::Duration;

use crate::home::{TestHome, assert_ended, is_alive, text};
use crate::support::{PLUMB, signal, skip, wait_for};

#[test]
fn a_missing_store_is_empty_and_is_not_created_by_reading() {
    let place = TestHome::new();
    place.assert_success("runs");
    place.assert_errors(&[("show last", 4, "`plumb`"), ("explain", 4, "`plumb`")]);
    assert!(!place.store().exists());
}

#[test]
fn a_missing_run_names_similar_ones() {
    let place = TestHome::new();
    place.with_stored_run();
    place.assert_errors(&[
        ("show latency-lokal", 2, "latency-local-"),
        ("compare last last~7", 2, "last~7"),
        ("explain lost", 2, "lost"),
        ("store delete last", 2, "plumb store delete latency-local-"),
    ]);
    let id = || place.json_of("runs --json")["runs"][0]["id"].as_str().map(str::to_owned);
    place.assert_success(&["store", "delete", &id().unwrap()]);
    assert_eq!(id(), None);
}

#[test]
fn a_store_that_cannot_be_written_measures_nothing() {
    let place = TestHome::new();
    let file = place.file("notes.txt", "not a store");
    place.assert_errors(&[
        ("--store notes.txt run call.kernel --launches=1", 4, "--store"),
        ("run call.kernel --store=/proc/plumb.db", 4, "/proc/plumb.db"),
    ]);
    assert_eq!(std::fs::read_to_string(file).unwrap(), "not a store");
    let doctor = place.json_of("doctor --json --store=/proc/plumb.db");
    let checks = doctor["checks"].as_array().unwrap();
    let store = checks.iter().find(|check| check["id"] == "store").unwrap();
    assert_eq!(store["status"], "missing");
    assert_eq!(place.run("doctor --strict --store=/proc/plumb.db").code, Some(1));
}

#[test]
fn a_store_on_a_full_or_read_only_file_system_is_named_as_such() {
    let place = TestHome::new();
    for (options, named) in
        [("size=16k", "its file system is full"), ("ro", "cannot write the store")]
    {
        let run = format!("{PLUMB} run call.kernel --launches=1 --quick --store small/plumb.db");
        let script =
            format!("mkdir -p small && mount -t tmpfs -o {options} none small && exec {run}");
        let output = place.command_of("unshare", &["-rm", "sh", "-c", &script]).output().unwrap();
        if text(&output.stderr).contains("unshare") {
            return skip("no namespaces here");
        }
        assert_ended(&output, 4, &[named]);
    }
}

#[test]
fn a_file_size_limit_ends_a_run_and_loses_nothing() {
    let place = TestHome::new();
    place.with_stored_run();
    let words = ["--fsize=61440", "--", PLUMB, "run", "call.kernel", "--launches=3", "--quick"];
    let output = place.command_of("prlimit", &words).output().unwrap();
    assert_ended(&output, 4, &["ulimit -f"]);
    place.assert_success("store check");
    place.assert_success("show");
}

#[test]
fn a_store_of_a_newer_plumb_is_left_alone() {
    let place = TestHome::new();
    place.with_stored_run();
    let mut bytes = std::fs::read(place.store()).unwrap();
    // The user version: SQLite file format, §1.3.
    bytes[60..64].copy_from_slice(&999u32.to_be_bytes());
    std::fs::write(place.store(), &bytes).unwrap();
    place
        .assert_errors(&[("runs", 4, "999"), ("run call.kernel --launches=1", 4, "upgrade plumb")]);
    assert_eq!(std::fs::read(place.store()).unwrap(), bytes);
}

#[test]
fn store_check_finds_damage() {
    let place = TestHome::new();
    place.with_stored_run();
    place.assert_success("store check");
    let mut bytes = std::fs::read(place.store()).unwrap();
    let middle = bytes.len() / 2;
    let end = bytes.len().min(middle + 16_384);
    bytes[middle..end].fill(0xa5);
    std::fs::write(place.store(), &bytes).unwrap();
    assert_eq!(place.run("store check").code, Some(4));
}

#[test]
fn a_second_run_is_refused_while_one_measures() {
    let place = TestHome::new();
    let plan = place.plan_of_blocks(Duration::from_mins(1), 2);
    let first = place.start_measurement(&["run", plan]);
    let pid = first.pid().to_string();
    place.assert_error("run call.kernel --launches=1", 4, &[&pid]);
    // Reading is allowed meanwhile.
    let status = || place.json_of("runs --json")["runs"][0]["status"].clone();
    assert_eq!(status(), "running");
    signal(first.pid(), "KILL");
    first.outcome();
    assert_eq!(status(), "interrupted");
}

#[test]
fn a_killed_peer_is_replaced_and_the_run_goes_on() {
    let place = TestHome::new();
    // Killed in the middle of its only block.
    let plan = place.plan_of_blocks(Duration::from_secs(8), 1);
    let run = place.start_measurement(&["run", plan]);
    wait_for("a peer to kill", || {
        run.descendant("__peer").is_some_and(|peer| signal(peer, "KILL"))
    });
    let outcome = run.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    let shown = place.json_of("show last --json");
    assert!(shown["results"][0]["summary"]["launches"].as_u64().unwrap() >= 1);
}

#[test]
fn no_process_outlives_a_killed_run() {
    let place = TestHome::new();
    let plan = place.plan_of_blocks(Duration::from_mins(1), 2);
    let run = place.start_measurement(&["run", plan]);
    let below = run.descendants();
    assert!(below.len() >= 2, "a worker and a peer: {below:?}");
    signal(run.pid(), "KILL");
    run.outcome();
    wait_for("worker and peer to end", || !below.iter().any(|pid| is_alive(*pid)));
}
