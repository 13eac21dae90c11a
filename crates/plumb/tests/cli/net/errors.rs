//! Invalid input and failures of `plumb net`: one error each, with its exit code; partial results are kept and marked.

use std::process::Command;

use plumb_remote::message::{ProtocolHello, frame};

use super::agent_process::AgentProcess;
use super::host_pair::HostPair;
use super::{agent, net};
use crate::home::{TestHome, assert_ended, has_thread, json_of};
use crate::support::{PLUMB, skip, wait_for};

const QUICK: &str = "-t 1s --warm-up=100ms --idle=300ms --no-store";

#[test]
fn unreachable_hosts_are_named_with_their_fix() {
    let bench = TestHome::new();
    bench.assert_errors(&[
        ("net no-such-host.invalid", 2, "no-such-host.invalid"),
        ("net tls:no-such-host.invalid", 2, "no-such-host.invalid"),
        ("net no-such-host.invalid --pair x", 2, "token"),
    ]);
    if Command::new("ssh").arg("-V").output().is_err() {
        return skip("ssh is not installed; run 'make setup'");
    }
    let token = plumb_remote::secure::PairingToken::generate().unwrap().to_string();
    bench.assert_errors(&[
        ("net 127.0.0.1:1", 4, "start sshd"),
        ("net 127.0.0.1:1 --install", 4, "refused"),
        ("net tls:127.0.0.1:1", 4, "--pair"),
        (&format!("net 127.0.0.1:1 --pair {token}"), 4, "plumb agent --listen"),
    ]);
}

#[test]
fn what_another_host_says_is_printed_without_control_characters() {
    let bench = TestHome::new();
    let hostile = r"\033]0;owned\007\302\233m\177\r";
    for (said, expected) in [
        (format!("printf '{hostile}' >&2; exit 1"), "owned"),
        (format!("printf '{hostile}no hello'; sleep 1"), "owned"),
    ] {
        let script = bench.file("agent.sh", format!("{said}\n"));
        let output = bench.run(&["net", "--via", &format!("sh {script}"), "192.0.2.1"]);
        let text = output.stdout + &output.stderr;
        assert!(text.contains(expected), "{said}: {text}");
        let control = |c: &char| c.is_control() && *c != '\n';
        assert_eq!(text.chars().find(control), None, "{said}: {text:?}");
    }
}

#[test]
fn a_paired_host_without_ssh_is_suggested_over_tls() {
    let bench = TestHome::new();
    let daemon = AgentProcess::start(&[]);
    bench.stdout_of(&["net", &daemon.host(), "--pair", &daemon.token]);
    let script = "echo 'ssh: connect to host 127.0.0.1 port 1: Connection refused' >&2; exit 255";
    let refusing = format!("sh {}", bench.file("refusing", script));
    let tls = format!("net tls:{}", daemon.host());
    // A refusal, a real one where ssh is installed, and no ssh at all.
    for ssh in [&refusing, "ssh", "/no/such/ssh"] {
        let output = bench.plumb(&["net", "me@127.0.0.1:1", "--ssh", ssh]);
        assert_ended(&output, 4, &[&format!("plumb {tls}")]);
    }
    bench.stdout_of(&format!("{tls} --only idle {QUICK}"));
    let output = bench.plumb(&["net", "127.0.0.2", "--ssh", &refusing]);
    assert_ended(&output, 4, &["start sshd"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("paired"));
}

#[test]
fn tests_out_of_range_are_rejected_before_anything_starts() {
    let bench = TestHome::new();
    for (options, name) in [
        ("--interval 1ms", "--interval"),
        ("--length 32Mi", "--length"),
        ("-t 2h", "--interval"),
        ("-P 128 -t 10min", "--streams"),
        ("--probes 10000 -t 10min", "--probes"),
        ("--window 2Gi", "--window"),
    ] {
        bench.assert_errors(&[(
            &format!("net --via 'touch started' 127.0.0.1 {options}"),
            2,
            name,
        )]);
    }
    assert!(!bench.path("started").exists());
}

#[test]
fn an_agent_of_another_version_is_named_with_both() {
    let bench = TestHome::new();
    let mut hello = ProtocolHello::of_this_program("9.9.9 (later)");
    (hello.oldest, hello.newest) = (40, 50);
    bench.file("hello", frame(&hello.encode()));
    // It waits for the client, as an agent does.
    let output = bench.plumb("net --via 'cat hello - >&1' 127.0.0.1");
    assert_ended(&output, 4, &["9.9.9 (later)", "40 to 50", "--install"]);
}

#[test]
fn a_dropped_data_connection_is_named_with_its_fixes() {
    let Some(hosts) = HostPair::new() else { return };
    // Packets to the far host arrive, and none go back, as behind a firewall.
    hosts.ip(false, "route add blackhole 10.77.0.1/32");
    let output = hosts.plumb(&format!("{} --only up {QUICK}", hosts.net()));
    assert_ended(&output, 4, &["10.77.0.2", "--data-port", "--to"]);
    // Without a connection every probe is lost, which is a result.
    let found = hosts.json_of(&format!("{} --only idle --idle=300ms --json", hosts.net()));
    let probes = &found["phases"][0]["probes"];
    assert!(probes["answered"] == 0 && probes["sent"].as_u64() > Some(0), "{probes}");
    assert!(found["flags"].to_string().contains("every probe"), "{found}");
}

#[test]
fn a_firewall_and_a_missing_agent_are_distinguished() {
    let Some(hosts) = HostPair::new() else { return };
    let daemon = hosts.start_agent(&[]);
    hosts.pair(&daemon);
    let host = format!("tls:{}", daemon.host());
    hosts.ip(false, "route add blackhole 10.77.0.1/32");
    assert_ended(&hosts.plumb(&["net", &host]), 4, &["firewall"]);
    hosts.ip(false, "route del blackhole 10.77.0.1/32");
    drop(daemon);
    assert_ended(&hosts.plumb(&["net", &host]), 4, &["plumb agent --listen"]);
}

#[test]
fn a_firewall_that_drops_udp_alone_is_flagged() {
    let Some(hosts) = HostPair::new() else { return };
    hosts.ip(false, "rule add ipproto udp to 10.77.0.1 blackhole");
    let found = hosts.json_of(&format!("{} --json --only idle,up {QUICK}", hosts.net()));
    assert!(found["phases"][1]["flows"][0]["bytes_per_second"].as_f64().unwrap() > 0.0);
    assert!(found["flags"].to_string().contains("firewall"), "{}", found["flags"]);
}

#[test]
fn a_wrong_data_address_is_named_with_its_fix() {
    let Some(hosts) = HostPair::new() else { return };
    hosts.ip(true, "addr replace 127.0.0.1/8 dev lo");
    hosts.ip(true, "link set lo up");
    // No route; no such neighbor; the near host itself, as when an agent is behind NAT; an unknown name.
    for (address, code) in
        [("203.0.113.9", 4), ("10.77.0.77", 4), ("127.0.0.1", 4), ("no-such-host.invalid", 2)]
    {
        let line = format!("{} --to {address} --only up {QUICK}", hosts.net());
        assert_ended(&hosts.plumb(&line), code, &[address]);
    }
    // None of the agent's addresses can be reached.
    hosts.ip(true, "route add blackhole 10.77.0.2/32");
    assert_ended(&hosts.plumb(&format!("net -4 --via '{}'", hosts.via())), 4, &["--to"]);
}

#[test]
fn link_local_addresses_need_their_zone() {
    let Some(hosts) = HostPair::new() else { return };
    hosts.ip(true, "addr add fe80::1/64 dev plumb0 nodad");
    hosts.ip(false, "addr add fe80::2/64 dev plumb1 nodad");
    let net = |address: &str| format!("net --via '{}' {address} {QUICK}", hosts.via());
    let result = hosts.json_of(&format!("{} --json --only idle,up,down", net("fe80::2%plumb0")));
    // With its zone, without which it could not be measured again.
    assert_eq!(result["address"], "fe80::2%plumb0");
    assert!(result["phases"][0]["probes"]["answered"].as_u64() > Some(0), "{result}");
    assert!(result["phases"][2]["flows"][0]["bytes_per_second"].as_f64() > Some(0.0), "{result}");
    assert_ended(&hosts.plumb(&net("fe80::2")), 2, &["fe80::2%"]);
    assert_ended(&hosts.plumb(&net("fe80::2%nosuch0")), 2, &["nosuch0"]);
    // An agent that listens there.
    let daemon = hosts.bed.in_far(|| AgentProcess::at("[fe80::2%plumb1]:0", &[])).unwrap();
    let host = format!("[fe80::2%plumb0]:{}", daemon.address.port());
    assert_ended(&hosts.plumb(&["net", &host, "--pair", &daemon.token]), 0, &[]);
    assert_ended(&hosts.plumb(&format!("net tls:{host} --only idle {QUICK}")), 0, &[]);
}

#[test]
fn an_agent_answers_from_the_address_asked() {
    let Some(hosts) = HostPair::new() else { return };
    // A second address of each version: answers would leave from the first.
    hosts.ip(false, "addr add 10.77.0.99/24 dev plumb1");
    hosts.ip(false, "addr add fd77::99/64 dev plumb1 nodad preferred_lft 0");
    for address in ["10.77.0.99", "fd77::99"] {
        let net = format!("net --via '{}' {address} --json {QUICK}", hosts.via());
        let options = "--only idle --request-response udp,quic --mtu=30s";
        let result = hosts.json_of(&format!("{net} {options}"));
        let probes = &result["phases"][0]["probes"];
        assert!(probes["answered"].as_u64() > Some(0), "{address}: {probes}");
        assert!(result["mtu"]["path_bytes"].as_u64().is_some(), "{address}: {}", result["mtu"]);
        let result = hosts.json_of(&format!("{net} --only up --udp 1mbit"));
        let stream = &result["phases"][0]["datagrams"][0];
        assert!(stream["received"].as_u64() > Some(0), "{address}: {stream}");
    }
}

#[test]
fn a_path_that_loses_everything_leaves_a_marked_result() {
    let Some(hosts) = HostPair::new() else { return };
    let options = "--json --only up -t 10s --mtu=0s --warm-up=100ms --drain-timeout 1s";
    let child = hosts.start(&format!("{} {options}", hosts.net()));
    let process = child.id();
    wait_for("streams to be measured", || has_thread(process, "measure"));
    // The control connection goes another way, and stands.
    hosts.ip(false, "link set plumb1 down");
    let output = child.wait_with_output().unwrap();
    assert_ended(&output, 4, &[]);
    let found = json_of(&output);
    assert_eq!(found["ended"], "partial", "{found}");
    assert!(!found["flags"].as_array().unwrap().is_empty(), "{found}");
    assert!(found["run"].is_string(), "what there is was stored");
}

#[test]
fn an_unknown_congestion_control_is_named() {
    let bench = TestHome::new();
    // This host knows what it has before anything is measured; the other one says so when it is asked.
    for (only, code) in [("up", 2), ("down", 4), ("both", 2)] {
        let line = format!("{} --only {only} -C nosuchcc", net());
        bench.assert_errors(&[(&line, code, "'nosuchcc'")]);
    }
}

#[test]
fn a_full_disk_is_named_where_it_matters_and_costs_no_result() {
    let bench = TestHome::new();
    let full = bench.path("full");
    std::fs::create_dir(&full).unwrap();
    // A file system of one page, full, in a mount namespace of its own.
    let within = |script: &str| {
        let script = format!(
            "mount -t tmpfs -o size=4k,mode=700 tmpfs {0} && mkdir {0}/home && head -c 4096 /dev/zero >{0}/home/filler; \
             export HOME={0}/home; {script}",
            full.display()
        );
        let words = ["--mount", "--propagation", "private", "sh", "-c", &script];
        bench.command_of("unshare", &words).output().unwrap()
    };
    if !within("true").status.success() {
        return skip("mount namespaces are not allowed");
    }
    let listening = within(&format!("unset PLUMB_STORE; exec {PLUMB} agent --listen 127.0.0.1:0"));
    assert_ended(&listening, 4, &["No space left on device"]);
    let words = "net --via \"$VIA\" 127.0.0.1 --only idle --idle 300ms";
    let measured = within(&format!(
        "export VIA='{}'; export PLUMB_STORE=$HOME/plumb.db; exec {PLUMB} {words} --json",
        agent()
    ));
    assert_ended(&measured, 4, &["fix:"]);
    let found = json_of(&measured);
    assert_eq!(
        found["ended"], "complete",
        "what was measured is printed though it cannot be stored"
    );
}
