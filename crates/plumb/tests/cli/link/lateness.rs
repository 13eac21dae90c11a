//! The driver's lateness and priority.

use std::process::{Command, Stdio};

use plumb_clock::monotonic_ns;
use serde_json::Value;

use super::test_home::LinkTestHome;
use crate::home::{document, has_thread, json_of, text};
use crate::support::{signal, wait_for, with_descendants};

/// How long the link is frozen.
const FROZEN_NS: u64 = 100_000_000;
/// Longest sleep of a driver, part of which the freeze may hide.
const SLEEP_MAX_US: f64 = 10_000.0;

/// The descendant of the keeper with the driver's thread.
fn driver_of(keeper: u32) -> u32 {
    let mut found = None;
    wait_for("the driver's process", || {
        found = with_descendants(keeper).into_iter().find(|one| has_thread(*one, "link"));
        found.is_some()
    });
    found.unwrap()
}

#[test]
fn a_stopped_driver_is_reported_as_not_faithful() {
    let Some(bench) = LinkTestHome::with(&["ping"]) else { return };
    let report = bench.path("report.json");
    // Frames arrive all the time, also while the driver is stopped.
    let script = "ping -q -i 0.002 10.77.0.2 & until [ -e over ]; do sleep 0.01; done; kill $!";
    let words = ["--name", "frozen", "--delay", "5ms", "--isolated", "--report"];
    let words = [&words[..], &[report.to_str().unwrap(), "--", "sh", "-c", script]].concat();
    let link = bench.link(&words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for("the name", || bench.names() == ["frozen"]);
    let frames = || bench.show("frozen")["driver"]["frames"].as_u64().unwrap();
    wait_for("frames to cross", || frames() > 10);
    let driver = driver_of(link.id());
    assert!(signal(driver, "STOP"));
    let thawed = monotonic_ns() + FROZEN_NS;
    wait_for("the time to thaw", || monotonic_ns() >= thawed);
    assert!(signal(driver, "CONT"));
    let frozen_us = FROZEN_NS as f64 / 1e3 - SLEEP_MAX_US;
    let says_so = |document: &Value| {
        let worst_us = document["driver"]["absent_us_worst"].as_f64().unwrap();
        worst_us >= frozen_us && document["faithful"] == false
    };
    wait_for("the link to say so", || says_so(&bench.show("frozen")));
    bench.file("over", "");
    let output = link.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = document(&std::fs::read_to_string(report).unwrap());
    assert!(says_so(&document), "{document}");
    let driver = &document["driver"];
    assert!(driver["entered_late"].as_u64().unwrap() > 0, "{driver}");
    assert!(driver["missed"].as_u64().unwrap() > 0, "{driver}");
}

#[test]
fn a_driver_has_priority_but_its_command_has_not() {
    let Some(bench) = LinkTestHome::with(&["nice"]) else { return };
    let output = bench.link("--json --isolated -- nice").output().unwrap();
    let document = json_of(&output);
    let own = Command::new("nice").output().unwrap();
    assert!(text(&output.stderr).lines().any(|line| line == text(&own.stdout).trim()));
    let own: i64 = text(&own.stdout).trim().parse().unwrap();
    let driver = document["driver"]["nice"].as_i64().unwrap();
    assert!((-20..=own).contains(&driver), "{driver}");
}
