//! A control connection that is lost while a test runs, and a peer that is: what is there is kept and marked, nobody
//! waits for what cannot come, and an agent that keeps its report is asked for it again. Left out: the sessions at every
//! cut (`plumb_net::protocol`).

use std::process::{Child, Output};

use serde_json::Value;

use crate::daemon::{Daemon, until};
use crate::hosts::Hosts;
use crate::{Bench, PLUMB, agent, document};

/// The process below `parent`, at any depth, whose command line has this word.
fn child_with(parent: u32, word: &str) -> Option<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let children = std::fs::read_to_string(path).ok()?;
    children.split_whitespace().filter_map(|child| child.parse().ok()).find_map(|child: u32| {
        let line = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        let is_it = line.split(|byte| *byte == 0).any(|found| found == word.as_bytes());
        if is_it { Some(child) } else { child_with(child, word) }
    })
}

/// A process and all that are below it, itself first.
pub fn with_descendants(process: u32) -> Vec<u32> {
    let path = format!("/proc/{process}/task/{process}/children");
    let children = std::fs::read_to_string(path).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    std::iter::once(process).chain(children.flat_map(with_descendants)).collect()
}

/// Whether a process has a thread of this name: what it is doing.
pub fn has_thread(process: u32, name: &str) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    tasks
        .filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok())
        .any(|found| found.trim() == name)
}

fn kill(process: u32) {
    let status = std::process::Command::new("kill").args(["-KILL", &process.to_string()]).status();
    assert!(status.unwrap().success());
}

/// Waits for its end; what it said.
fn end(child: Child) -> Output {
    let process = child.id();
    let output = std::thread::spawn(move || child.wait_with_output().unwrap());
    until("plumb net has ended", || output.is_finished());
    let output = output.join().unwrap();
    assert!(!std::path::Path::new(&format!("/proc/{process}")).exists());
    output
}

fn said(output: &Output) -> Value {
    document(std::str::from_utf8(&output.stdout).unwrap())
}

/// A measurement that begins with what it counts: no search for the longest packet is cut instead.
fn start(bench: &Bench, words: &[&str]) -> Child {
    let mut command = bench.command(PLUMB, words);
    command.arg("--mtu=0s");
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command.spawn().unwrap()
}

#[test]
fn the_report_of_an_agent_that_listens_is_fetched_over_another_connection() {
    let daemon = Daemon::start(&[]);
    let bench = Bench::new();
    bench.fine(&["net", &daemon.host(), "--pair", &daemon.token]);
    let host = format!("tls:{}", daemon.host());
    let words = ["net", &host, "--json", "--only", "up,down", "-t", "1500ms", "--warm-up=100ms"];
    let child = start(&bench, &words);
    let process = child.id();
    until("streams are measured", || has_thread(process, "measure"));
    kill(child_with(process, "--forward").expect("the process that carries the session"));
    let output = end(child);
    let found = said(&output);
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
fn a_peer_that_is_killed_ends_the_test_long_before_its_planned_end() {
    for only in ["idle", "up", "down", "both"] {
        let bench = Bench::new();
        let via = agent();
        let words = ["net", "--via", &via, "127.0.0.1", "--json", "--only", only];
        let child = start(&bench, &[&words[..], &["-t", "10min", "--idle", "10min"]].concat());
        let process = child.id();
        let mut agent = None;
        until("there is an agent", || {
            agent = child_with(process, "--stdio");
            agent.is_some()
        });
        let agent = agent.unwrap();
        until("both sides measure", || {
            has_thread(agent, "measure") && has_thread(process, "measure")
        });
        kill(agent);
        let output = end(child);
        let found = said(&output);
        assert_eq!(output.status.code(), Some(4), "{only}: {found}");
        assert_eq!(
            (&found["ended"], &found["phases"][0]["ended"]),
            (&"partial".into(), &"partial".into())
        );
        let problems = found["problems"].to_string();
        assert!(problems.contains("while running a test"), "{only}: {problems}");
        assert!(problems.contains("ended with that connection"), "{only}: {problems}");
    }
}

#[test]
fn a_listening_agent_that_is_killed_is_not_waited_for() {
    let mut daemon = Daemon::start(&[]);
    let bench = Bench::new();
    bench.fine(&["net", &daemon.host(), "--pair", &daemon.token]);
    let host = format!("tls:{}", daemon.host());
    let words = ["net", &host, "--json", "--only", "idle", "--idle", "10min"];
    let child = start(&bench, &words);
    let process = child.id();
    until("probes are sent", || has_thread(process, "ask"));
    daemon.kill();
    let output = end(child);
    let found = said(&output);
    assert_eq!((output.status.code(), &found["ended"]), (Some(4), &"partial".into()), "{found}");
    assert!(found["problems"].to_string().contains("could not be fetched"), "{found}");
}

#[test]
fn an_agent_whose_client_is_killed_is_free_again_long_before_the_planned_end() {
    let daemon = Daemon::start(&[]);
    let bench = Bench::new();
    bench.fine(&["net", &daemon.host(), "--pair", &daemon.token]);
    let before = daemon.holding();
    let host = format!("tls:{}", daemon.host());
    for only in ["idle", "up", "down"] {
        let words = ["net", &host, "--json", "--only", only, "-t", "10min", "--idle", "10min"];
        let child = start(&bench, &words);
        let process = child.id();
        until("something is measured", || has_thread(process, "measure"));
        kill(process);
        end(child);
    }
    daemon.settles(before);
}

#[test]
fn a_path_that_dies_in_the_middle_leaves_two_half_open_connections_that_both_sides_notice() {
    let Some(hosts) = Hosts::new() else { return };
    let daemon = hosts.daemon(&[]);
    hosts.pair(&daemon);
    let before = daemon.holding();
    let host = format!("tls:{}", daemon.host());
    let child = hosts.start(&["net", &host, "--json", "--mtu=0s", "--only", "down", "-t", "10min"]);
    let process = child.id();
    until("streams are measured", || has_thread(process, "measure"));
    hosts.ip(false, "route add blackhole 10.77.0.1/32");
    hosts.ip(false, "addr del 10.77.0.2/24 dev plumb1");
    let output = end(child);
    let found = said(&output);
    assert_eq!((output.status.code(), &found["ended"]), (Some(4), &"partial".into()), "{found}");
    let problems = found["problems"].to_string();
    assert!(problems.contains("half-open"), "{problems}");
    assert!(!found["phases"][0]["flows"].as_array().unwrap().is_empty(), "{found}");
    daemon.settles(before);
}

#[test]
fn clients_with_an_agent_each_on_one_host_are_told_that_they_shared_it() {
    let Some(hosts) = Hosts::new() else { return };
    let via = hosts.via();
    let words = |time| {
        let what = ["--only", "up", "--mtu=0s", "--rate", "20mbit", "--no-store", "--json"];
        let words = [&["net", "--via", &via, "10.77.0.2", "-t", time, "--warm-up=0s"], &what[..]];
        words.concat()
    };
    let first = hosts.start(&words("5s"));
    let list = || std::fs::read_to_string("/proc/thread-self/net/unix").unwrap();
    until("the first test runs", || hosts.bed.in_b(list).unwrap().contains("@plumb.test."));
    let second = hosts.plumb(&words("500ms"));
    let first = first.wait_with_output().unwrap();
    for output in [second, first] {
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let found = document(std::str::from_utf8(&output.stdout).unwrap());
        let phase = &found["phases"][0];
        assert_eq!(phase["overlapping_tests"], 1, "{phase}");
        assert!(phase["overlapping_seconds"].as_f64().unwrap() > 0.0);
        assert!(found["flags"].to_string().contains("other test(s)"), "{}", found["flags"]);
    }
    assert!(!hosts.bed.in_b(list).unwrap().contains("@plumb.test."), "nothing is left");
}
