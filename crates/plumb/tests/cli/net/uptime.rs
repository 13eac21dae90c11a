//! Hosts that have been up for longer than a span of time holds, which is 213 days.
//!
//! Says `skipped:` where time namespaces are not allowed, and fails for that under CI=true.

use std::process::Command;

use super::agent_process::AgentProcess;
use super::iperf3::Iperf3ServerProcess;
use crate::home::{TestHome, document};
use crate::support::{PLUMB, skip};

/// Run before a command, makes it find its host up for 219 days and more.
const LONG_UP: [&str; 5] = ["unshare", "-T", "--fork", "--monotonic", "19000000"];

fn is_allowed() -> bool {
    let tried = Command::new(LONG_UP[0]).args(&LONG_UP[1..]).arg("true").status();
    let is_allowed = tried.is_ok_and(|status| status.success());
    if !is_allowed {
        skip("no time namespaces here");
    }
    is_allowed
}

/// What a command says on a host that has been up for long.
fn told(bench: &TestHome, words: &[&str]) -> String {
    let all = [&LONG_UP[1..], &[PLUMB], words].concat();
    let output = bench.command_of(LONG_UP[0], &all).output().expect("unshare starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words:?}: {:?}\n{said}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn either_host_may_have_a_long_uptime() {
    if !is_allowed() {
        return;
    }
    let bench = TestHome::new();
    let quick = ["127.0.0.1", "--only", "idle,up", "-t", "200ms", "--warm-up", "50ms", "--json"];
    let rest = ["--idle", "200ms", "--mtu=0s", "--no-store", "--udp", "1mbit"];
    let agent = format!("{PLUMB} agent --stdio");
    let agent_long_up = format!("{} {agent}", LONG_UP.join(" "));
    let words = |via| [&["net", "--via", via][..], &quick, &rest].concat();
    let here_is_old = document(&told(&bench, &words(&agent)));
    let there_is_old = bench.json_of(&words(&agent_long_up));
    for found in [here_is_old, there_is_old] {
        assert_eq!(found["ended"], "complete", "{found}");
        assert_eq!(found["phases"][0]["ended"], "complete", "{found}");
        let stream = &found["phases"][1]["datagrams"][0];
        assert!(stream["received"].as_u64() > Some(0), "{stream}");
        assert_eq!(stream["ending"], "complete", "{stream}");
    }
}

#[test]
fn pairing_and_iperf3_work_after_long_uptime() {
    if !is_allowed() {
        return;
    }
    let bench = TestHome::new();
    let daemon = AgentProcess::start(&[]);
    told(&bench, &["net", &daemon.host(), "--pair", &daemon.token]);
    let server = Iperf3ServerProcess::start();
    let words = ["net", "--iperf3", "127.0.0.1", "-p", &server.port, "--json"];
    let load = ["--udp", "-b", "20M", "-t", "1"];
    let found = document(&told(&bench, &[&words[..], &load].concat()));
    let sum = &found["end"]["sum"];
    assert!(sum["packets"].as_u64().is_some_and(|packets| packets > 10), "{found}");
    assert!(sum["jitter_ms"].as_f64().is_some_and(|ms| ms < 1_000.0), "{found}");
}
