//! Bad input and trouble of `plumb net`, by the commands that a user would have typed: each a named error with its fix
//! and its exit code, and what was measured until then kept and marked.

use std::process::Command;

use plumb_remote::frame::frame;
use plumb_remote::message::ProtocolHello;

use super::agent;
use super::agent_process::AgentProcess;
use super::host_pair::HostPair;
use crate::home::{TestHome, assert_ended, has_thread, json_of};
use crate::support::{PLUMB, skip, wait_for};

const QUICK: [&str; 5] = ["-t", "400ms", "--warm-up=100ms", "--idle=300ms", "--no-store"];

#[test]
fn the_real_ssh_names_hosts_that_cannot_be_reached() {
    let bench = TestHome::new();
    let net = |words: &[&str]| bench.plumb(&[&["net"][..], words].concat());
    assert_ended(&net(&["no-such-host.invalid"]), 2, &["is not known", "fix:"]);
    assert_ended(&net(&["tls:no-such-host.invalid"]), 2, &["is not known", "fix:"]);
    assert_ended(&net(&["no-such-host.invalid", "--pair", "x"]), 2, &["token", "fix:"]);
    if Command::new("ssh").arg("-V").output().is_err() {
        return skip("ssh is not installed; run 'make setup'");
    }
    assert_ended(&net(&["127.0.0.1:1"]), 4, &["refuses connections", "port 1", "fix: start sshd"]);
    assert_ended(&net(&["127.0.0.1:1", "--install"]), 4, &["could not copy", "refused", "fix:"]);
    assert_ended(&net(&["tls:127.0.0.1:1"]), 4, &["has not been paired", "fix:"]);
    let token = plumb_remote::secure::PairingToken::generate().unwrap().to_string();
    let words = ["127.0.0.1:1", "--pair", &token];
    assert_ended(
        &net(&words),
        4,
        &["does not answer", "refused", "fix: start 'plumb agent --listen'"],
    );
}

#[test]
fn a_paired_host_without_ssh_is_suggested_over_tls() {
    let bench = TestHome::new();
    let daemon = AgentProcess::start(&[]);
    bench.stdout_of(&["net", &daemon.host(), "--pair", &daemon.token]);
    let refusing = bench.path("refusing");
    let says = "echo 'ssh: connect to host 127.0.0.1 port 1: Connection refused' >&2; exit 255";
    std::fs::write(&refusing, says).unwrap();
    let refusing = format!("sh {}", refusing.display());
    let command = format!("plumb net tls:{}", daemon.host());
    // Refused by one that says so, by the real one where it is installed, and none at all.
    for (ssh, what) in [(&*refusing, "refuses"), ("ssh", ""), ("/no/such/ssh", "cannot run")] {
        let output = bench.plumb(&["net", "me@127.0.0.1:1", "--ssh", ssh]);
        assert_ended(&output, 4, &[what, "'127.0.0.1' is paired", &command, "fix:"]);
    }
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    bench.stdout_of(&[&words[..], &["--only", "idle"], &QUICK].concat());
    // A host that was not paired is told nothing of the kind.
    let output = bench.plumb(&["net", "127.0.0.2", "--ssh", &refusing]);
    assert_ended(&output, 4, &["refuses", "fix: start sshd"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("paired"));
}

#[test]
fn impossible_tests_are_refused_before_anything_starts() {
    let bench = TestHome::new();
    let started = bench.path("started");
    let via = format!("touch {}", started.display());
    for (words, parts) in [
        (&["--interval", "1ms"][..], &["10 ms apart", "fix: give --interval"][..]),
        (&["--length", "32Mi"], &["fix: give a --length"]),
        (&["-t", "2h"], &["fix: give --interval"]),
        (&["-P", "128", "-t", "10min"], &["connections", "fix: give --interval", "--streams"]),
        (&["--probes", "10000", "-t", "10min"], &["fix: give --probes"]),
        (&["--window", "2Gi"], &["fix: give a --window"]),
    ] {
        let output = bench.plumb(&[&["net", "--via", &via, "127.0.0.1"][..], words].concat());
        assert_ended(&output, 2, parts);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("defect"), "{words:?}");
    }
    assert!(!started.exists());
}

#[test]
fn an_agent_of_another_version_is_named_with_both() {
    let bench = TestHome::new();
    let mut hello = ProtocolHello::of_this_program("9.9.9 (later)");
    (hello.oldest, hello.newest) = (40, 50);
    let path = bench.path("hello");
    std::fs::write(&path, frame(&hello.encode())).unwrap();
    // It waits for what a client says, as an agent does.
    let via = format!("cat {} - >&1", path.display());
    let output = bench.plumb(&["net", "--via", &via, "127.0.0.1"]);
    assert_ended(
        &output,
        4,
        &["different versions", "9.9.9 (later)", "40 to 50", "fix:", "--install"],
    );
}

#[test]
fn a_dropped_data_connection_is_named_with_its_fixes() {
    let Some(hosts) = HostPair::new() else { return };
    // What comes from the near host arrives, and nothing goes back: one-way reachability, as behind a firewall.
    hosts.ip(false, "route add blackhole 10.77.0.1/32");
    let via = hosts.via();
    let words = [&["net", "--via", &via, "10.77.0.2", "--only", "up"][..], &QUICK].concat();
    let fixes = ["10.77.0.2", "was not answered in 10 s", "open that port", "--data-port", "--to"];
    assert_ended(&hosts.plumb(&words), 4, &[&["firewall"][..], &fixes].concat());
    // Without a connection every probe is lost, which is a result that says so.
    let words = ["net", "--via", &via, "10.77.0.2", "--only", "idle", "--idle=300ms", "--json"];
    let output = hosts.plumb(&words);
    assert_ended(&output, 0, &[]);
    let found = json_of(&output);
    let probes = &found["phases"][0]["probes"];
    assert!(probes["answered"] == 0 && probes["sent"].as_u64() > Some(0), "{probes}");
    assert!(found["flags"].to_string().contains("every probe was lost"), "{found}");
}

#[test]
fn an_agent_behind_a_firewall_is_told_apart_from_one_that_is_not_there() {
    let Some(hosts) = HostPair::new() else { return };
    let daemon = hosts.start_agent(&[]);
    hosts.pair(&daemon);
    let host = format!("tls:{}", daemon.host());
    hosts.ip(false, "route add blackhole 10.77.0.1/32");
    assert_ended(
        &hosts.plumb(&["net", &host]),
        4,
        &["does not answer", "fix: a firewall may drop"],
    );
    hosts.ip(false, "route del blackhole 10.77.0.1/32");
    // It is let through again, and an agent that has gone refuses.
    drop(daemon);
    assert_ended(
        &hosts.plumb(&["net", &host]),
        4,
        &["refused", "fix: start 'plumb agent --listen' there"],
    );
}

#[test]
fn a_firewall_that_drops_udp_alone_is_flagged() {
    let Some(hosts) = HostPair::new() else { return };
    hosts.ip(false, "rule add ipproto udp to 10.77.0.1 blackhole");
    let via = hosts.via();
    let words = ["net", "--via", &via, "10.77.0.2", "--json", "--only", "idle,up"];
    let output = hosts.plumb(&[&words[..], &QUICK].concat());
    assert_ended(&output, 0, &[]);
    let found = json_of(&output);
    assert!(found["phases"][1]["flows"][0]["bytes_per_second"].as_f64().unwrap() > 0.0);
    assert!(found["flags"].to_string().contains("firewall may let TCP through and UDP not"));
}

#[test]
fn a_wrong_data_address_is_named_with_its_fix() {
    let Some(hosts) = HostPair::new() else { return };
    let via = hosts.via();
    let to = |address: &str| {
        let words = ["net", "--via", &via, "10.77.0.2", "--to", address, "--only", "up"];
        hosts.plumb(&[&words[..], &QUICK].concat())
    };
    // No route; a neighbour that is not there; the near host itself, as when an agent is behind a NAT.
    assert_ended(&to("203.0.113.9"), 4, &["203.0.113.9", "unreachable", "fix:", "--to"]);
    assert_ended(&to("10.77.0.77"), 4, &["10.77.0.77", "fix:", "--to"]);
    hosts.ip(true, "addr replace 127.0.0.1/8 dev lo");
    hosts.ip(true, "link set lo up");
    assert_ended(&to("127.0.0.1"), 4, &["127.0.0.1", "refuses", "fix:", "--to"]);
    assert_ended(&to("no-such-host.invalid"), 2, &["is not known", "fix:"]);
    // An agent that has no address that leads there.
    hosts.ip(true, "route add blackhole 10.77.0.2/32");
    let inside = format!("--via={via}");
    let output = hosts.plumb(&["net", &inside, "-4"]);
    assert_ended(&output, 4, &["no address of", "its addresses are", "fix: name one with --to"]);
}

#[test]
fn link_local_addresses_need_their_zone() {
    let Some(hosts) = HostPair::new() else { return };
    hosts.ip(true, "addr add fe80::1/64 dev plumb0 nodad");
    hosts.ip(false, "addr add fe80::2/64 dev plumb1 nodad");
    let via = hosts.via();
    let words = ["net", "--via", &via, "fe80::2%plumb0", "--json", "--only", "idle,up,down"];
    let output = hosts.plumb(&[&words[..], &QUICK].concat());
    assert_ended(&output, 0, &[]);
    let result = json_of(&output);
    // As it was asked for, since without its zone it could not be measured again.
    assert_eq!(result["address"], "fe80::2%plumb0");
    assert!(result["phases"][0]["probes"]["answered"].as_u64() > Some(0), "{result}");
    assert!(result["phases"][2]["flows"][0]["bytes_per_second"].as_f64() > Some(0.0), "{result}");
    let without = ["net", "--via", &via, "fe80::2", "--only", "up"];
    assert_ended(&hosts.plumb(&[&without[..], &QUICK].concat()), 2, &["fe80::2", "fix:", "%"]);
    let nowhere = ["net", "--via", &via, "fe80::2%nosuch0", "--only", "up"];
    assert_ended(
        &hosts.plumb(&[&nowhere[..], &QUICK].concat()),
        2,
        &["no interface 'nosuch0'", "fe80::2%nosuch0", "fix:"],
    );
    // And an agent that listens there.
    let daemon = hosts.bed.in_far(|| AgentProcess::at("[fe80::2%plumb1]:0", &[])).unwrap();
    let host = format!("[fe80::2%plumb0]:{}", daemon.address.port());
    assert_ended(&hosts.plumb(&["net", &host, "--pair", &daemon.token]), 0, &[]);
    let words = ["net", &format!("tls:{host}"), "--only", "idle"];
    assert_ended(&hosts.plumb(&[&words[..], &QUICK].concat()), 0, &[]);
}

#[test]
fn an_agent_answers_from_the_address_asked() {
    let Some(hosts) = HostPair::new() else { return };
    // A second address of each version: answers would leave from the first.
    hosts.ip(false, "addr add 10.77.0.99/24 dev plumb1");
    hosts.ip(false, "addr add fd77::99/64 dev plumb1 nodad preferred_lft 0");
    let via = hosts.via();
    for address in ["10.77.0.99", "fd77::99"] {
        let what = ["--only", "idle", "--request-response", "udp,quic", "--mtu=30s"];
        let words = [&["net", "--via", &via, address, "--json"][..], &what, &QUICK].concat();
        let output = hosts.plumb(&words);
        assert_ended(&output, 0, &[]);
        let result = json_of(&output);
        let probes = &result["phases"][0]["probes"];
        assert!(probes["answered"].as_u64() > Some(0), "{address}: {probes}");
        assert!(result["mtu"]["path_bytes"].as_u64().is_some(), "{address}: {}", result["mtu"]);
        let paced = ["net", "--via", &via, address, "--json", "--only", "up", "--udp", "1mbit"];
        let output = hosts.plumb(&[&paced[..], &QUICK].concat());
        assert_ended(&output, 0, &[]);
        let stream = &json_of(&output)["phases"][0]["datagrams"][0];
        assert!(stream["received"].as_u64() > Some(0), "{address}: {stream}");
    }
}

#[test]
fn a_path_that_loses_everything_leaves_a_marked_result() {
    let Some(hosts) = HostPair::new() else { return };
    let via = hosts.via();
    let words = ["net", "--via", &via, "10.77.0.2", "--json", "--only", "up", "-t", "10s"];
    let child = hosts
        .start(&[&words[..], &["--mtu=0s", "--warm-up=100ms", "--drain-timeout", "1s"]].concat());
    let process = child.id();
    wait_for("streams to be measured", || has_thread(process, "measure"));
    // The control connection goes another way, and stands.
    hosts.ip(false, "link set plumb1 down");
    let output = child.wait_with_output().unwrap();
    assert_ended(&output, 4, &[]);
    let found = json_of(&output);
    assert_eq!(found["ended"], "partial", "{found}");
    assert!(found["flags"].to_string().contains("had not arrived"), "{found}");
    assert!(found["run"].is_string(), "what there is was stored");
}

#[test]
fn a_control_algorithm_that_the_sending_host_lacks_is_named_by_that_host() {
    let bench = TestHome::new();
    let via = agent();
    for only in ["up", "down", "both"] {
        let words = ["net", "--via", &via, "127.0.0.1", "--only", only, "-C", "nosuchcc"];
        assert_ended(&bench.plumb(&words), 4, &["no congestion control 'nosuchcc'", "fix:"]);
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
    assert_ended(&listening, 4, &["No space left on device", "fix: make", "room"]);
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
