//! What a link says of its own punctuality: a freeze, precedence, and the clocks that it goes by.
//!
//! Left out: that what it calls late was late, which `plumb_host` tests with an independent witness.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use plumb_host::clock::monotonic_ns;
use serde_json::Value;

use crate::bench::{Bench, installed, text, wait_for};

/// How long the link is frozen.
const FROZEN_NS: u64 = 100_000_000;
/// What may hide in it: the longest sleep of a driver.
const SLEEP_MAX_US: f64 = 10_000.0;

fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args([name, &process.to_string()]).status().unwrap().success());
}

/// The process below the keeper that drives the link: the one with a thread of that name.
fn driver_of(keeper: u32) -> u32 {
    let mut found = None;
    wait_for("the driver's process", || {
        let children = format!("/proc/{keeper}/task/{keeper}/children");
        let children = std::fs::read_to_string(children).unwrap_or_default();
        found = children.split_whitespace().filter_map(|child| child.parse().ok()).find(|child| {
            let threads = std::fs::read_dir(format!("/proc/{child}/task")).into_iter().flatten();
            threads.flatten().any(|thread| {
                std::fs::read_to_string(thread.path().join("comm"))
                    .is_ok_and(|name| name == "link\n")
            })
        });
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn a_link_that_was_frozen_for_a_tenth_of_a_second_says_so_in_every_report() {
    let Some(bench) = Bench::new() else { return };
    if !installed("ping") {
        return;
    }
    let report = bench.directory.path().join("report.json");
    // Frames cross all the time, and go on to come while nobody takes them.
    let script = "echo up; exec ping -q -i 0.002 -c 400 -W 5 10.77.0.2";
    let words = ["--name", "frozen", "--delay", "5ms", "--isolated", "--report"];
    let words = [&words[..], &[report.to_str().unwrap(), "--", "sh", "-c", script]].concat();
    let mut link =
        bench.link(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(link.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "up");
    let driver = driver_of(link.id());
    signal(driver, "-STOP");
    let thawed = monotonic_ns() + FROZEN_NS;
    wait_for("the time to thaw", || monotonic_ns() >= thawed);
    signal(driver, "-CONT");
    let shown: Value = serde_json::from_str(&bench.said(&["show", "frozen", "--json"])).unwrap();
    lines.by_ref().for_each(drop);
    let output = link.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let document: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    for document in [&shown, &document] {
        let told = &document["driver"];
        let frozen_us = FROZEN_NS as f64 / 1e3 - SLEEP_MAX_US;
        assert!(told["absent_us_worst"].as_f64().unwrap() >= frozen_us, "{told}");
        assert_eq!(document["faithful"], false);
    }
    let driver = &document["driver"];
    assert!(driver["entered_late"].as_u64().unwrap() > 0, "{driver}");
    assert!(driver["missed"].as_u64().unwrap() > 0, "{driver}");
    for told in ["Deadlines missed:", "stopped or put aside", "may have entered late"] {
        assert!(said.contains(told), "no '{told}' in {said}");
    }
}

#[test]
fn a_page_calls_a_link_late_when_its_document_does_and_only_then() {
    let Some(bench) = Bench::new() else { return };
    let report = bench.directory.path().join("report.json");
    let words = ["--stats", "--isolated", "--report", report.to_str().unwrap(), "--", "true"];
    let (code, said) = bench.failed(&words);
    assert_eq!(code, Some(0), "{said}");
    let document: Value = serde_json::from_slice(&std::fs::read(report).unwrap()).unwrap();
    let driver = &document["driver"];
    for (number, told) in [
        ("missed", "Deadlines missed:"),
        ("absences", "stopped or put aside"),
        ("entered_late", "may have entered late"),
    ] {
        assert_eq!(driver[number] != 0, said.contains(told), "{number}: {driver} {said}");
    }
    let precision = format!("Moments waited for: {}", driver["precision"].as_str().unwrap());
    assert!(said.contains(&precision), "{said}");
}

#[test]
fn a_driver_goes_before_others_where_it_may_and_its_command_does_not() {
    let Some(bench) = Bench::new() else { return };
    if !installed("nice") {
        return;
    }
    let output = bench.link(&["--json", "--isolated", "--", "nice"]).output().unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let own = Command::new("nice").output().unwrap();
    assert!(text(&output.stderr).lines().any(|line| line == text(&own.stdout).trim()));
    let own: i64 = text(&own.stdout).trim().parse().unwrap();
    let driver = document["driver"]["nice"].as_i64().unwrap();
    assert!((-20..=own).contains(&driver), "{driver}");
}

/// Nobody sets the clocks that a link goes by, so that no step of the time of day moves a frame. Its
/// recordings tell the time of day, and a check compares with the kernel's stamps, which are of it.
#[test]
fn no_part_of_a_link_reads_the_time_of_day() {
    fn check(place: &Path) {
        if place.ends_with("emulate/check") {
            return;
        }
        if place.is_dir() {
            for entry in std::fs::read_dir(place).unwrap() {
                check(&entry.unwrap().path());
            }
            return;
        }
        let source = std::fs::read_to_string(place).unwrap();
        for word in ["SystemTime", "Realtime", "gettimeofday"] {
            assert!(!source.contains(word), "{} reads the time of day: {word}", place.display());
        }
    }
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for place in [
        "host/src/emulate",
        "host/src/emulate.rs",
        "host/src/gateway",
        "host/src/lab",
        "host/src/clock/timeline.rs",
        "sys/src/tun.rs",
        "sys/src/epoll.rs",
        "link/src",
        "plumb/src/link",
        "plumb/src/cli/link",
    ] {
        check(&crates.join(place));
    }
}
