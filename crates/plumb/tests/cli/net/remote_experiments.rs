//! Experiments between this host and another one: from the command to a stored result, in bad company, and when one of the
//! two is gone.
//!
//! The other host is a namespace, entered by a command; `super::ssh` goes there by ssh.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use plumb_remote::message::{ProtocolHello, frame};
use serde_json::Value;

use super::host_pair::HostPair;
use crate::home::{TestHome, document};
use crate::support::{plumb_processes, signal, skip, wait_for};

/// Few and short, as a test needs it.
const SHORT: [&str; 6] = ["--quick", "--launches", "1", "--seed", "7", "--json"];

/// The subcommand that a far host runs.
const AGENT: &str = "agent";

/// What is measured of an experiment against the far host.
fn measured(hosts: &HostPair, experiment: &str, more: &[&str]) -> Value {
    let via = hosts.enter_far();
    let words = ["run", experiment, "--host", "far", "--via", &via];
    let output = hosts.plumb(&[&words[..], &SHORT, more].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{experiment} {more:?}: {said}");
    document(&String::from_utf8_lossy(&output.stdout))
}

/// The greatest value of every cell by these factors, which even a few samples have, by name; all are against the far
/// host.
fn values(found: &Value, factors: &[&str]) -> Vec<(String, f64)> {
    let results = found["results"].as_array().unwrap();
    let value = |result: &Value| {
        assert_eq!(result["factors"]["link"], "host: far", "{result}");
        let level = |name: &&str| result["factors"][*name].to_string().replace('"', "");
        let mut words: Vec<String> = factors.iter().map(level).collect();
        words.push(result["response"].as_str().unwrap().to_owned());
        (words.join(" "), result["summary"]["max"].as_f64().unwrap_or(0.0))
    };
    let mut values: Vec<(String, f64)> = results.iter().map(value).collect();
    values.sort_by(|a, b| a.0.cmp(&b.0));
    values
}

/// The values of exactly these cells.
fn assert_cells(found: &Value, factors: &[&str], expected: &[&str]) -> Vec<f64> {
    let (names, values): (Vec<String>, Vec<f64>) = values(found, factors).into_iter().unzip();
    assert_eq!(names, expected, "{}", found["unavailable"]);
    values
}

/// Measures an experiment until all of its cells have carried something, which short blocks on a busy machine may not:
/// some cells have no value then.
#[expect(clippy::print_stderr, reason = "a failed test says what was missing")]
fn assert_carries(
    hosts: &HostPair,
    (experiment, more): (&str, &[&str]),
    factors: &[&str],
    expected: &[&str],
) {
    wait_for(&format!("{experiment} carries something"), || {
        let found = measured(hosts, experiment, more);
        let values = values(&found, factors);
        let is_whole = values.iter().map(|(name, _)| name.as_str()).eq(expected.iter().copied());
        let carries = is_whole && values.iter().all(|(_, value)| *value > 0.0);
        if !carries {
            eprintln!("{values:?}, without: {}", found["unavailable"]);
        }
        carries
    });
}

/// Processes of plumb in the far host, by their hidden words; none of them is this test's own.
fn processes(hosts: &HostPair, word: &str) -> Vec<u32> {
    let inode = |path: PathBuf| std::fs::metadata(path).map(|data| data.ino()).ok();
    let far = hosts.bed.in_far(|| inode("/proc/thread-self/ns/net".into())).unwrap();
    let is_far = |process: &u32| inode(format!("/proc/{process}/ns/net").into()) == far;
    plumb_processes(&[word]).into_iter().filter(is_far).collect()
}

/// The first process of this kind, once there is one.
fn wait_for_process(hosts: &HostPair, word: &str) -> u32 {
    let mut found = Vec::new();
    wait_for(&format!("there is a {word}"), || {
        found = processes(hosts, word);
        !found.is_empty()
    });
    found[0]
}

#[test]
fn messages_and_transfers_cross_to_another_host() {
    let Some(hosts) = HostPair::new() else { return };
    let all = ["--set", "mechanism=tcp4,tcp6,udp4,udp6", "--set", "size=64,64Ki"];
    let found = measured(&hosts, "latency.remote", &all);
    let factors = ["mechanism", "size", "placement"];
    let mut expected = Vec::new();
    for mechanism in ["tcp4", "tcp6", "udp4", "udp6"] {
        expected.extend(["64", "65536"].map(|size| format!("{mechanism} {size} own-host latency")));
    }
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    let values = assert_cells(&found, &factors, &expected);
    assert!(values.iter().all(|value| *value > 0.0), "{values:?} of {expected:?}");
    let notes = &found["notes"];
    for note in ["host.name", "host.plumb", "host.kernel.release", "host.cpu.model", "host.cpus"] {
        assert!(notes[note].as_str().is_some_and(|text| !text.is_empty()), "{note}: {notes}");
    }
    assert!(notes["host.address"].as_str().unwrap().contains("10.77.0.2"), "{notes}");
    assert!(notes["host.round_trip_ns"].as_str().unwrap().parse::<u64>().unwrap() > 0);

    let some = ["--set", "mechanism=tcp4,udp4", "--set", "size=4Ki"];
    let expected =
        ["tcp4 throughput", "tcp4 throughput.acked", "udp4 throughput", "udp4 throughput.acked"];
    assert_carries(&hosts, ("throughput.remote", &some), &["mechanism"], &expected);

    let page = hosts.plumb(&["show", "last"]);
    let page =
        String::from_utf8_lossy(&page.stdout).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("Measured against host far at 10.77.0.2"), "{page}");
    let again = hosts.plumb(&["rerun", "last"]);
    let said = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(2), "{said}");
    assert!(
        said.contains("was measured against far") && said.contains("--host far --via"),
        "{said}"
    );
    wait_for("nothing is left there", || processes(&hosts, AGENT).is_empty());
    assert!(processes(&hosts, "__peer").is_empty());
}

#[test]
fn streams_and_pages_cross_to_another_host_with_what_they_cost_both() {
    let Some(hosts) = HostPair::new() else { return };
    let expected = ["receiver-cpu", "sender-cpu", "throughput"];
    assert_carries(&hosts, ("scaling.lan", &[]), &[], &expected);
    let streams = ["--set", "cpus=1", "--set", "streams=3"];
    let expected = ["3 receiver-cpu", "3 sender-cpu", "3 throughput"];
    assert_carries(&hosts, ("scaling.smp", &streams), &["streams"], &expected);
    let ways = ["--set", "way=keep-alive,http2,http3"];
    let expected = ["http2 page", "http3 page", "keep-alive page"];
    assert_carries(&hosts, ("scaling.http", &ways), &["way"], &expected);
    let chosen = ["--set", "cpu-share=100", "--set", "response=sender-cpu"];
    assert_carries(&hosts, ("host.peak", &chosen), &["cpu-share"], &["100 sender-cpu"]);
}

#[test]
fn devices_of_a_real_host_are_left_alone() {
    let Some(hosts) = HostPair::new() else { return };
    let via = hosts.enter_far();
    let words = ["run", "host.mtu", "--quick", "--host", "far", "--via", &via, "--json"];
    let output = hosts.plumb(&words);
    let found = document(&String::from_utf8_lossy(&output.stdout));
    assert!(found["results"].as_array().unwrap().is_empty());
    let told = found["unavailable"].to_string();
    assert!(told.contains("does not change the devices") && told.contains("ip link set"), "{told}");
}

#[test]
fn a_host_that_is_not_there_or_not_plumb_is_named_with_its_fix() {
    let bench = TestHome::new();
    let run = |more: &[&str], told: &[&str]| {
        bench.assert_refused(&[&["run", "latency.remote", "--quick"][..], more].concat(), told);
    };
    run(&["--host", "no-such-host.invalid"], &["is not known", "fix:"]);
    run(&["--host", "tls:box"], &["an agent that listens", "--via"]);
    run(&["--host", "a b"], &["is not a host", "fix:"]);
    run(&["--to", "10.0.0.1"], &["--to needs --host"]);
    run(&["--via", "exit 127;"], &["there is no plumb", "--install"]);
    run(&["--via", "exit 3;"], &["no plumb on", "ended with 3"]);
    let older = "echo \"error: unrecognized subcommand 'agent'\" >&2; exit 2;";
    run(
        &["--host", "box", "--via", older],
        &["'box' has another plumb", "plumb net box --install"],
    );
    let mut hello = ProtocolHello::of_this_program("0.0.1 (abc)");
    (hello.oldest, hello.newest) = (1, 1);
    let octal: Vec<String> =
        frame(&hello.encode()).iter().map(|byte| format!("\\{byte:03o}")).collect();
    let octal = octal.concat();
    // A login may print something first.
    let skewed = format!("printf 'hello\\n{octal}';");
    run(&["--host", "box", "--via", &skewed], &["another plumb: 0.0.1 (abc)", "--install"]);
    let refused = "echo 'ssh: connect to host x port 22: Connection refused' >&2; exit 255;";
    run(&["--via", refused], &["refuses connections", "fix:"]);
    let local = ["run", "latency.local", "--quick", "--host", "box"];
    bench.assert_refused(
        &local,
        &["no experiment of this plan uses another host", "--set link=host"],
    );
    // Without a host the level is no result, and says what would make it one.
    let output = bench.plumb(&["run", "latency.remote", "--quick", "--set", "link=host", "--json"]);
    let found = document(&String::from_utf8_lossy(&output.stdout));
    assert!(found["unavailable"].to_string().contains("--host user@host"), "{found}");
}

#[test]
fn a_data_address_out_of_reach_is_named() {
    let Some(hosts) = HostPair::new() else { return };
    let via = hosts.enter_far();
    let refused = |to: &str| {
        let words =
            ["run", "latency.remote", "--quick", "--host", "far", "--via", &via, "--to", to];
        let output = hosts.plumb(&words);
        assert_eq!(output.status.code(), Some(4));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    // Here nobody listens at the port that is told there.
    let said = refused("127.0.0.1");
    assert!(said.contains("no data gets to 'far'") && said.contains("refuses"), "{said}");
    let said = refused("10.77.0.99");
    assert!(said.contains("no data gets to 'far'") && said.contains("fix:"), "{said}");
}

#[test]
fn whichever_process_is_killed_nothing_is_left_on_the_other_host() {
    let Some(hosts) = HostPair::new() else { return };
    let via = hosts.enter_far();
    let words = ["run", "latency.remote", "--paper", "--host", "far", "--via", &via];
    let words = [&words[..], &["--set", "mechanism=tcp4", "--set", "size=64"]].concat();
    let mut run = hosts.start(&words);
    wait_for_process(&hosts, "__peer");
    run.kill().unwrap();
    run.wait().unwrap();
    wait_for("all of them are gone", || {
        processes(&hosts, "__peer").is_empty() && processes(&hosts, AGENT).is_empty()
    });
    let mut run = hosts.start(&words);
    wait_for_process(&hosts, "__peer");
    let agent = wait_for_process(&hosts, AGENT);
    let peers = processes(&hosts, "__peer");
    assert!(signal(agent, "KILL"));
    wait_for("its peer is gone with the agent", || {
        let now = processes(&hosts, "__peer");
        peers.iter().all(|peer| !now.contains(peer))
    });
    run.kill().unwrap();
    run.wait().unwrap();
}

#[test]
fn a_killed_peer_costs_a_launch_and_a_lost_host_the_run() {
    let Some(mut hosts) = HostPair::new() else { return };
    let via = hosts.enter_far();
    let words = ["run", "latency.remote", "--paper", "--host", "far", "--via", &via, "--json"];
    let words = [&words[..], &["--set", "mechanism=tcp4", "--set", "size=64"]].concat();
    let blocks = |hosts: &HostPair| -> i64 {
        let found = hosts.plumb(&["show", "last", "--json"]);
        let text = String::from_utf8_lossy(&found.stdout).into_owned();
        let found: Value = serde_json::from_str(&text).unwrap_or_default();
        found["trust"]["blocks"].as_i64().unwrap_or(0)
    };
    let run = hosts.start(&words);
    wait_for("something is stored", || blocks(&hosts) > 0);
    // One that has just ended with its launch cannot be killed.
    wait_for("a peer is killed", || signal(wait_for_process(&hosts, "__peer"), "KILL"));
    let before = blocks(&hosts);
    wait_for("it goes on with another launch", || blocks(&hosts) > before + 1);
    hosts.forget_far();
    for agent in processes(&hosts, AGENT) {
        signal(agent, "KILL");
    }
    let output = run.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        // A machine so fast that the run was over first has nothing to show here.
        return skip("the run ended before its host did");
    }
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("no longer reached") && said.contains("--resume"), "{said}");
    let found = document(&String::from_utf8_lossy(&output.stdout));
    assert_eq!(found["run"]["status"], "interrupted", "{found}");
    assert!(found["notes"]["host.lost"].as_str().is_some(), "{}", found["notes"]);
    assert!(!found["results"].as_array().unwrap().is_empty());
}
