//! Stores that cannot be used, and processes that die: one clear message each, nothing lost.

use std::time::Duration;

use crate::program::{Measuring, Place, is_alive, wait_for};

#[test]
fn a_store_that_is_not_there_is_empty_or_says_what_to_do() {
    let place = Place::new();
    place.fine(&["runs"]);
    place.refused(&["show", "last"], 4, &["nothing has been measured", "run `plumb` first"]);
    assert!(!place.store().exists(), "reading makes no store");
}

#[test]
fn a_run_that_is_not_there_names_those_near_it() {
    let place = Place::new();
    place.measured();
    place.refused(&["show", "latency-lokal"], 2, &["there is no run", "latency-local-"]);
    place.refused(&["compare", "last", "last~7"], 2, &["last~7"]);
}

#[test]
fn other_files_are_left_alone() {
    let place = Place::new();
    let text = place.file("notes.txt", "not a store");
    let words = ["--store", text.to_str().unwrap(), "run", "call.kernel", "--launches=1"];
    place.refused(&words, 4, &["not a plumb store", "--store"]);
    assert_eq!(std::fs::read_to_string(text).unwrap(), "not a store");
}

#[test]
fn a_store_that_cannot_be_written_measures_nothing() {
    let place = Place::new();
    let words = ["run", "call.kernel", "--store=/proc/plumb.db"];
    place.refused(&words, 4, &["/proc/plumb.db", "--store"]);
    let doctor = place.fine(&["doctor", "--json", "--store=/proc/plumb.db"]).json();
    let checks = doctor["checks"].as_array().unwrap();
    let store = checks.iter().find(|check| check["id"] == "store").unwrap();
    assert_eq!(store["status"], "missing");
    assert_eq!(place.run(&["doctor", "--strict", "--store=/proc/plumb.db"]).code, Some(1));
}

#[test]
fn a_limit_on_the_size_of_files_ends_a_run_with_a_message_and_loses_nothing() {
    let place = Place::new();
    place.measured();
    let words = ["run", "call.kernel", "--launches=3", "--quick"];
    let outcome = place.run_with_files_up_to(60 << 10, &words);
    let told = &outcome.stderr;
    assert_eq!(outcome.code, Some(4), "{told}");
    assert!(told.contains("ulimit -f") && told.contains("cannot grow"), "{told}");
    assert!(!told.contains("bug"), "{told}");
    place.fine(&["store", "check"]);
    place.fine(&["show"]);
}

#[test]
fn a_store_of_a_newer_plumb_is_left_alone() {
    let place = Place::new();
    place.measured();
    let mut bytes = std::fs::read(place.store()).unwrap();
    // The user version: SQLite file format, §1.3.
    bytes[60..64].copy_from_slice(&999u32.to_be_bytes());
    std::fs::write(place.store(), &bytes).unwrap();
    place.refused(&["runs"], 4, &["999", "upgrade plumb"]);
    place.refused(&["run", "call.kernel", "--launches=1"], 4, &["upgrade plumb"]);
    assert_eq!(std::fs::read(place.store()).unwrap(), bytes);
}

#[test]
fn a_damaged_store_is_told_from_a_sound_one() {
    let place = Place::new();
    place.measured();
    assert!(place.fine(&["store", "check"]).stdout.contains("is sound"));
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
    let place = Place::new();
    place.measured();
    place.refused(&["store", "delete", "last"], 2, &["not the whole id", "plumb store delete"]);
    let runs = place.fine(&["runs", "--json"]).json();
    place.fine(&["store", "delete", runs["runs"][0]["id"].as_str().unwrap()]);
    assert_eq!(place.fine(&["runs", "--json"]).json()["runs"].as_array().unwrap().len(), 0);
}

#[test]
fn a_second_run_waits_for_nobody_and_says_who_measures() {
    let place = Place::new();
    let plan = place.plan_of_blocks(Duration::from_secs(10), 2);
    let first = place.measuring(&["run", plan]);
    let pid = first.pid().to_string();
    place.refused(&["run", "call.kernel", "--launches=1"], 4, &["is being measured into", &pid]);
    // Reading goes on meanwhile.
    let status = || place.fine(&["runs", "--json"]).json()["runs"][0]["status"].clone();
    assert_eq!(status(), "running");
    Measuring::signal(first.pid(), "KILL");
    first.outcome();
    assert_eq!(status(), "interrupted", "who was killed measures no more");
}

#[test]
fn a_peer_that_dies_is_replaced_and_the_run_goes_on() {
    let place = Place::new();
    // Long enough to kill the peer in the middle of a block.
    let plan = place.plan_of_blocks(Duration::from_secs(1), 3);
    let run = place.measuring(&["run", plan]);
    Measuring::signal(run.descendant("__peer").unwrap(), "KILL");
    let outcome = run.outcome();
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("tried again"), "{}", outcome.stderr);
    let shown = place.fine(&["show", "last", "--json"]).json();
    assert!(shown["results"][0]["summary"]["launches"].as_u64().unwrap() >= 3);
}

#[test]
fn no_process_outlives_a_killed_run() {
    let place = Place::new();
    let plan = place.plan_of_blocks(Duration::from_secs(10), 2);
    let run = place.measuring(&["run", plan]);
    let below = run.descendants();
    assert!(below.len() >= 2, "a worker and a peer: {below:?}");
    Measuring::signal(run.pid(), "KILL");
    run.outcome();
    wait_for("worker and peer to end", || !below.iter().any(|pid| is_alive(*pid)));
}
