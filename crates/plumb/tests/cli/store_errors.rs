//! Stores that cannot be used, and processes that die: one clear message each, nothing lost.

use std::time::Duration;

use crate::home::{TestHome, assert_ended, is_alive};
use crate::support::{PLUMB, signal, wait_for};

#[test]
fn a_store_that_is_not_there_is_empty_or_says_what_to_do() {
    let place = TestHome::new();
    place.assert_success(&["runs"]);
    place.assert_error(&["show", "last"], 4, &["nothing has been measured", "run `plumb` first"]);
    assert!(!place.store().exists(), "reading makes no store");
}

#[test]
fn a_run_that_is_not_there_names_those_near_it() {
    let place = TestHome::new();
    place.with_stored_run();
    place.assert_error(&["show", "latency-lokal"], 2, &["there is no run", "latency-local-"]);
    place.assert_error(&["compare", "last", "last~7"], 2, &["last~7"]);
}

#[test]
fn other_files_are_left_alone() {
    let place = TestHome::new();
    let text = place.file("notes.txt", "not a store");
    let words = ["--store", &text, "run", "call.kernel", "--launches=1"];
    place.assert_error(&words, 4, &["not a plumb store", "--store"]);
    assert_eq!(std::fs::read_to_string(text).unwrap(), "not a store");
}

#[test]
fn a_store_that_cannot_be_written_measures_nothing() {
    let place = TestHome::new();
    let words = ["run", "call.kernel", "--store=/proc/plumb.db"];
    place.assert_error(&words, 4, &["/proc/plumb.db", "--store"]);
    let doctor = place.assert_success(&["doctor", "--json", "--store=/proc/plumb.db"]).json();
    let checks = doctor["checks"].as_array().unwrap();
    let store = checks.iter().find(|check| check["id"] == "store").unwrap();
    assert_eq!(store["status"], "missing");
    assert_eq!(place.run(&["doctor", "--strict", "--store=/proc/plumb.db"]).code, Some(1));
}

#[test]
fn a_file_size_limit_ends_a_run_and_loses_nothing() {
    let place = TestHome::new();
    place.with_stored_run();
    let words = ["--fsize=61440", "--", PLUMB, "run", "call.kernel", "--launches=3", "--quick"];
    let output = place.command_of("prlimit", &words).output().unwrap();
    assert_ended(&output, 4, &["ulimit -f", "cannot grow"]);
    place.assert_success(&["store", "check"]);
    place.assert_success(&["show"]);
}

#[test]
fn a_store_of_a_newer_plumb_is_left_alone() {
    let place = TestHome::new();
    place.with_stored_run();
    let mut bytes = std::fs::read(place.store()).unwrap();
    // The user version: SQLite file format, §1.3.
    bytes[60..64].copy_from_slice(&999u32.to_be_bytes());
    std::fs::write(place.store(), &bytes).unwrap();
    place.assert_error(&["runs"], 4, &["999", "upgrade plumb"]);
    place.assert_error(&["run", "call.kernel", "--launches=1"], 4, &["upgrade plumb"]);
    assert_eq!(std::fs::read(place.store()).unwrap(), bytes);
}

#[test]
fn a_damaged_store_is_told_from_a_sound_one() {
    let place = TestHome::new();
    place.with_stored_run();
    assert!(place.assert_success(&["store", "check"]).stdout.contains("is sound"));
    let mut bytes = std::fs::read(place.store()).unwrap();
    let middle = bytes.len() / 2;
    let end = bytes.len().min(middle + 16_384);
    bytes[middle..end].fill(0xa5);
    std::fs::write(place.store(), &bytes).unwrap();
    let outcome = place.run(&["store", "check"]);
    assert_eq!(outcome.code, Some(4), "{}{}", outcome.stdout, outcome.stderr);
}

#[test]
fn deleting_takes_the_whole_id() {
    let place = TestHome::new();
    place.with_stored_run();
    place.assert_error(
        &["store", "delete", "last"],
        2,
        &["not the whole id", "plumb store delete"],
    );
    let runs = place.assert_success(&["runs", "--json"]).json();
    place.assert_success(&["store", "delete", runs["runs"][0]["id"].as_str().unwrap()]);
    assert_eq!(
        place.assert_success(&["runs", "--json"]).json()["runs"].as_array().unwrap().len(),
        0
    );
}

#[test]
fn a_second_run_waits_for_nobody_and_says_who_measures() {
    let place = TestHome::new();
    let plan = place.plan_of_blocks(Duration::from_mins(1), 2);
    let first = place.start_measurement(&["run", plan]);
    let pid = first.pid().to_string();
    place.assert_error(
        &["run", "call.kernel", "--launches=1"],
        4,
        &["is being measured into", &pid],
    );
    // Reading goes on meanwhile.
    let status = || place.assert_success(&["runs", "--json"]).json()["runs"][0]["status"].clone();
    assert_eq!(status(), "running");
    signal(first.pid(), "KILL");
    first.outcome();
    assert_eq!(status(), "interrupted", "who was killed measures no more");
}

#[test]
fn a_peer_that_dies_is_replaced_and_the_run_goes_on() {
    let place = TestHome::new();
    // Killed in the middle of its only block.
    let plan = place.plan_of_blocks(Duration::from_secs(8), 1);
    let run = place.start_measurement(&["run", plan]);
    wait_for("a peer to kill", || {
        run.descendant("__peer").is_some_and(|peer| signal(peer, "KILL"))
    });
    let outcome = run.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("tried again"), "{}", outcome.stderr);
    let shown = place.assert_success(&["show", "last", "--json"]).json();
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
