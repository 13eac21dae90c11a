//! A control connection that is lost while a test runs, and a peer that is: what is there is kept and marked, nobody
//! waits for what cannot come, and an agent that keeps its report is asked for it again.

use std::process::{Child, Output};

use plumb_clock::{monotonic_ns, sleep_until};

use super::agent;
use super::agent_process::paired_home;
use super::host_pair::HostPair;
use crate::home::{TestHome, assert_ended, descendant_with, has_thread, json_of};
use crate::support::{PLUMB, signal, wait_for};

/// Waits for its end; what it said.
fn end(child: Child) -> Output {
    let process = child.id();
    let output = std::thread::spawn(move || child.wait_with_output().unwrap());
    wait_for("plumb net has ended", || output.is_finished());
    let output = output.join().unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{process}")).exists());
    output
}

/// A measurement that begins with what it counts: no search for the longest packet is cut instead.
fn start(bench: &TestHome, words: &[&str]) -> Child {
    let mut command = bench.command_of(PLUMB, words);
    command.arg("--mtu=0s");
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn a_listening_agents_report_is_fetched_over_another_connection() {
    let (daemon, bench, host) = paired_home();
    // Without probes, whose threads begin before the agent has heard that the test does.
    let words = ["--only", "up,down", "--probes=0", "-t", "4s", "--warm-up=100ms"];
    let child = start(&bench, &[&["net", &host, "--json"], &words[..]].concat());
    let process = child.id();
    wait_for("streams are measured by both sides", || {
        has_thread(process, "measure") && has_thread(daemon.id(), "measure")
    });
    let carrier = descendant_with(process, "--forward").expect("the process of the session");
    assert!(signal(carrier, "KILL"));
    let output = end(child);
    let found = json_of(&output);
    let words = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{words}\n{found}");
    assert_eq!(found["ended"], "complete");
    let phases = found["phases"].as_array().unwrap();
    assert_eq!(phases.len(), 2, "it went on after that");
    for phase in phases {
        assert_eq!(phase["flows"][0]["counted_by"], "receiver");
        assert_eq!(
            phase["flows"][0]["sent_bytes_total"],
            phase["flows"][0]["received_bytes_total"]
        );
    }
    let flags = found["flags"].to_string();
    assert!(flags.contains("fetched over another one"), "{flags}");
}

#[test]
fn a_killed_peer_ends_the_test_with_a_partial_result() {
    for only in ["idle", "up", "down", "both"] {
        let bench = TestHome::new();
        let via = agent();
        let words = ["net", "--via", &via, "127.0.0.1", "--json", "--only", only];
        let child = start(&bench, &[&words[..], &["-t", "10min", "--idle", "10min"]].concat());
        let process = child.id();
        let mut agent = None;
        wait_for("there is an agent", || {
            agent = descendant_with(process, "--stdio");
            agent.is_some()
        });
        let agent = agent.unwrap();
        wait_for("both sides measure", || {
            has_thread(agent, "measure") && has_thread(process, "measure")
        });
        assert!(signal(agent, "KILL"));
        let output = end(child);
        let found = json_of(&output);
        assert_eq!(output.status.code(), Some(4), "{only}: {found}");
        assert_eq!(
            (&found["ended"], &found["phases"][0]["ended"]),
            (&"partial".into(), &"partial".into())
        );
        let problems = found["problems"].to_string();
        assert!(problems.contains("while running a test"), "{only}: {problems}");
        assert!(problems.contains("ended with that connection"), "{only}: {problems}");
        if only == "up" {
            // The sender counts, or nobody where it was killed during the warm-up.
            assert_ne!(found["phases"][0]["flows"][0]["counted_by"], "receiver", "{found}");
        }
    }
}

#[test]
fn a_listening_agent_that_is_killed_is_not_waited_for() {
    let (mut daemon, bench, host) = paired_home();
    let words = ["net", &host, "--json", "--only", "idle", "--idle", "10min"];
    let child = start(&bench, &words);
    let process = child.id();
    wait_for("probes are sent", || has_thread(process, "ask"));
    daemon.kill();
    let output = end(child);
    let found = json_of(&output);
    assert_eq!((output.status.code(), &found["ended"]), (Some(4), &"partial".into()), "{found}");
    assert!(found["problems"].to_string().contains("could not be fetched"), "{found}");
}

#[test]
fn an_agent_whose_client_is_killed_is_free_again() {
    let (daemon, bench, host) = paired_home();
    let before = daemon.resources();
    for only in ["idle", "up", "down"] {
        let words = ["net", &host, "--json", "--only", only, "-t", "10min", "--idle", "10min"];
        let child = start(&bench, &words);
        let process = child.id();
        wait_for("something is measured", || has_thread(process, "measure"));
        assert!(signal(process, "KILL"));
        end(child);
    }
    daemon.assert_resources_released(before);
}

#[test]
fn both_sides_notice_a_path_that_dies() {
    let Some(hosts) = HostPair::new() else { return };
    let daemon = hosts.start_agent(&[]);
    hosts.pair(&daemon);
    let before = daemon.resources();
    let host = format!("tls:{}", daemon.host());
    let child = hosts.start(&["net", &host, "--json", "--mtu=0s", "--only", "down", "-t", "10min"]);
    let process = child.id();
    wait_for("streams are measured", || has_thread(process, "measure"));
    hosts.ip(false, "route add blackhole 10.77.0.1/32");
    hosts.ip(false, "addr del 10.77.0.2/24 dev plumb1");
    let output = end(child);
    let found = json_of(&output);
    assert_eq!((output.status.code(), &found["ended"]), (Some(4), &"partial".into()), "{found}");
    let problems = found["problems"].to_string();
    assert!(problems.contains("half-open"), "{problems}");
    assert!(!found["phases"][0]["flows"].as_array().unwrap().is_empty(), "{found}");
    daemon.assert_resources_released(before);
}

#[test]
fn datagrams_to_a_host_that_vanished_end_long_before_its_session() {
    let Some(hosts) = HostPair::new() else { return };
    let daemon = hosts.start_agent(&[]);
    hosts.pair(&daemon);
    let before = daemon.resources();
    let host = format!("tls:{}", daemon.host());
    let words = ["--mtu=0s", "--only", "down", "--udp", "8mbit", "--probes", "0", "-t", "10min"];
    let child = hosts.start(&[&["net", &host, "--json"][..], &words].concat());
    let received = || hosts.near_count("Udp", "InDatagrams");
    wait_for("datagrams come", || received() > 100);
    // The client's host is as one without power: what is sent to it arrives nowhere, and nothing refuses it.
    hosts.ip(true, "route add blackhole 10.77.0.2/32");
    hosts.ip(true, "addr del 10.77.0.1/24 dev plumb0");
    wait_for("the agent sends no more", || !has_thread(daemon.id(), "measure"));
    assert!(daemon.resources().descriptors > before.descriptors, "its session is still open");
    let arrived = || hosts.near_count("Ip", "InReceives");
    let (then, quiet_ns) = (arrived(), 1_000_000_000);
    sleep_until(monotonic_ns() + quiet_ns);
    // Only TCP's retransmissions of the session are left; of datagrams there were hundreds a second.
    assert!(arrived() - then < 50, "{}", arrived() - then);
    assert_eq!(end(child).status.code(), Some(4));
    daemon.assert_resources_released(before);
}

#[test]
fn overlapping_tests_on_one_host_are_reported() {
    let Some(hosts) = HostPair::new() else { return };
    let via = hosts.via();
    let words = |time| {
        let what = ["--only", "up", "--mtu=0s", "--rate", "20mbit", "--no-store", "--json"];
        let words = [&["net", "--via", &via, "10.77.0.2", "-t", time, "--warm-up=0s"], &what[..]];
        words.concat()
    };
    let first = hosts.start(&words("10min"));
    let list = || std::fs::read_to_string("/proc/thread-self/net/unix").unwrap();
    wait_for("the first test runs", || hosts.bed.in_far(list).unwrap().contains("@plumb.test."));
    let second = hosts.plumb(&words("500ms"));
    assert!(signal(first.id(), "INT"));
    let first = first.wait_with_output().unwrap();
    for (output, code) in [(second, 0), (first, 130)] {
        assert_ended(&output, code, &[]);
        let found = json_of(&output);
        let phase = &found["phases"][0];
        assert_eq!(phase["overlapping_tests"], 1, "{phase}");
        assert!(phase["overlapping_seconds"].as_f64().unwrap() > 0.0);
        assert!(found["flags"].to_string().contains("other test(s)"), "{}", found["flags"]);
    }
    assert!(!hosts.bed.in_far(list).unwrap().contains("@plumb.test."), "nothing is left");
}
