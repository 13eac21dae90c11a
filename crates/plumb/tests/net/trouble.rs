//! Bad input and trouble of `plumb net`, by the commands that a user would have typed: each a named error with its fix
//! and its exit code, and what was measured until then kept and marked.
//!
//! Left out: what strangers do to an agent (`super::strangers`), and lost connections (`super::lost`).

use std::process::{Command, Output};

use plumb_net::protocol::frame::frame;
use plumb_net::protocol::hello::Hello;
use serde_json::Value;

use crate::daemon::{Daemon, until};
use crate::hosts::{Hosts, skip};
use crate::{Bench, PLUMB, agent, document};

/// Expects this end, with all of these words.
fn told(output: &Output, code: i32, parts: &[&str]) {
    let said = String::from_utf8_lossy(&output.stderr);
    let page = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{said}\n{page}");
    for part in parts {
        assert!(said.contains(part), "no '{part}' in\n{said}\n{page}");
    }
    assert!(!said.contains("plumb has a bug"), "{said}");
}

fn found(output: &Output) -> Value {
    document(std::str::from_utf8(&output.stdout).unwrap())
}

const QUICK: [&str; 5] = ["-t", "400ms", "--warm-up=100ms", "--idle=300ms", "--no-store"];

#[test]
fn hosts_that_are_not_known_not_there_or_refuse_are_named_by_the_real_ssh() {
    let bench = Bench::new();
    let net = |words: &[&str]| bench.plumb(&[&["net"][..], words].concat());
    told(&net(&["no-such-host.invalid"]), 2, &["is not known", "fix:"]);
    told(&net(&["tls:no-such-host.invalid"]), 2, &["is not known", "fix:"]);
    told(&net(&["no-such-host.invalid", "--pair", "x"]), 2, &["token", "fix:"]);
    if Command::new("ssh").arg("-V").output().is_err() {
        return skip("ssh is not installed; run 'make setup'");
    }
    told(&net(&["127.0.0.1:1"]), 4, &["refuses connections", "port 1", "fix: start sshd"]);
    told(&net(&["127.0.0.1:1", "--install"]), 4, &["could not copy", "refused", "fix:"]);
    told(&net(&["tls:127.0.0.1:1"]), 4, &["has not been paired", "fix:"]);
    let token = plumb_net::secure::Token::generate().unwrap().to_string();
    let words = ["127.0.0.1:1", "--pair", &token];
    told(&net(&words), 4, &["does not answer", "refused", "fix: start 'plumb agent --listen'"]);
}

#[test]
fn a_paired_host_without_ssh_is_named_with_the_command_that_needs_none() {
    let bench = Bench::new();
    let daemon = Daemon::start(&[]);
    bench.fine(&["net", &daemon.host(), "--pair", &daemon.token]);
    let refusing = bench.home().join("refusing");
    let says = "echo 'ssh: connect to host 127.0.0.1 port 1: Connection refused' >&2; exit 255";
    std::fs::write(&refusing, says).unwrap();
    let refusing = format!("sh {}", refusing.display());
    let command = format!("plumb net tls:{}", daemon.host());
    // Refused by one that says so, by the real one where it is installed, and none at all.
    for (ssh, what) in [(&*refusing, "refuses"), ("ssh", ""), ("/no/such/ssh", "cannot run")] {
        let output = bench.plumb(&["net", "me@127.0.0.1:1", "--ssh", ssh]);
        told(&output, 4, &[what, "'127.0.0.1' is paired", &command, "fix:"]);
    }
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    bench.fine(&[&words[..], &["--only", "idle"], &QUICK].concat());
    // A host that was not paired is told nothing of the kind.
    let output = bench.plumb(&["net", "127.0.0.2", "--ssh", &refusing]);
    told(&output, 4, &["refuses", "fix: start sshd"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("paired"));
}

#[test]
fn what_no_test_may_ask_for_is_told_with_its_option_before_anything_is_started() {
    let bench = Bench::new();
    let started = bench.home().join("started");
    let via = format!("touch {}", started.display());
    for (words, parts) in [
        (&["--interval", "1ms"][..], &["10 ms apart", "fix: give --interval"][..]),
        (&["--block", "32Mi"], &["fix: give a --block"]),
        (&["-t", "2h"], &["fix: give --interval"]),
        (&["-P", "128", "-t", "10min"], &["connections", "fix: give --interval", "--streams"]),
        (&["--probes", "10000", "-t", "10min"], &["fix: give --probes"]),
        (&["--window", "2Gi"], &["fix: give a --window"]),
    ] {
        let output = bench.plumb(&[&["net", "--via", &via, "127.0.0.1"][..], words].concat());
        told(&output, 2, parts);
        assert!(!String::from_utf8_lossy(&output.stderr).contains("defect"), "{words:?}");
    }
    assert!(!started.exists());
}

#[test]
fn an_agent_of_another_version_is_named_with_both_versions_and_the_way_out() {
    let bench = Bench::new();
    let mut hello = Hello::of_this_program("9.9.9 (later)");
    (hello.oldest, hello.newest) = (40, 50);
    let path = bench.home().join("hello");
    std::fs::write(&path, frame(&hello.encode())).unwrap();
    // It waits for what a client says, as an agent does.
    let via = format!("cat {} - >&1", path.display());
    let output = bench.plumb(&["net", "--via", &via, "127.0.0.1"]);
    told(&output, 4, &["different versions", "9.9.9 (later)", "40 to 50", "fix:", "--install"]);
}

#[test]
fn a_data_connection_that_is_dropped_on_the_way_is_named_with_three_ways_out() {
    let Some(hosts) = Hosts::new() else { return };
    // What comes from the near host arrives, and nothing goes back: one-way reachability, as behind a firewall.
    hosts.ip(false, "route add blackhole 10.77.0.1/32");
    let via = hosts.via();
    let words = [&["net", "--via", &via, "10.77.0.2", "--only", "up"][..], &QUICK].concat();
    let fixes = ["10.77.0.2", "was not answered in 10 s", "open that port", "--data-port", "--to"];
    told(&hosts.plumb(&words), 4, &[&["firewall"][..], &fixes].concat());
    // Without a connection every probe is lost, which is a result that says so.
    let words = ["net", "--via", &via, "10.77.0.2", "--only", "idle", "--idle=300ms", "--json"];
    let output = hosts.plumb(&words);
    told(&output, 0, &[]);
    let found = found(&output);
    let probes = &found["phases"][0]["probes"];
    assert_eq!((&probes["answered"], probes["sent"].as_u64()), (&0.into(), Some(60)), "{probes}");
    assert!(found["flags"].to_string().contains("every probe was lost"), "{found}");
}

#[test]
fn an_agent_behind_a_firewall_is_told_apart_from_one_that_is_not_there() {
    let Some(hosts) = Hosts::new() else { return };
    let daemon = hosts.daemon(&[]);
    hosts.pair(&daemon);
    let host = format!("tls:{}", daemon.host());
    hosts.ip(false, "route add blackhole 10.77.0.1/32");
    told(&hosts.plumb(&["net", &host]), 4, &["does not answer", "fix: a firewall may drop"]);
    hosts.ip(false, "route del blackhole 10.77.0.1/32");
    // It is let through again, and an agent that has gone refuses.
    drop(daemon);
    told(&hosts.plumb(&["net", &host]), 4, &["refused", "fix: start 'plumb agent --listen' there"]);
}

#[test]
fn datagrams_that_a_firewall_drops_while_tcp_passes_leave_a_result_that_says_so() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.ip(false, "rule add ipproto udp to 10.77.0.1 blackhole");
    let via = hosts.via();
    let words = ["net", "--via", &via, "10.77.0.2", "--json", "--only", "idle,up"];
    let output = hosts.plumb(&[&words[..], &QUICK].concat());
    told(&output, 0, &[]);
    let found = found(&output);
    assert!(found["phases"][1]["flows"][0]["bytes_per_second"].as_f64().unwrap() > 1e6);
    assert!(found["flags"].to_string().contains("firewall may let TCP through and UDP not"));
}

#[test]
fn an_address_that_leads_nowhere_or_to_somebody_else_is_named_with_its_fix() {
    let Some(hosts) = Hosts::new() else { return };
    let via = hosts.via();
    let to = |address: &str| {
        let words = ["net", "--via", &via, "10.77.0.2", "--to", address, "--only", "up"];
        hosts.plumb(&[&words[..], &QUICK].concat())
    };
    // No route; a neighbour that is not there; the near host itself, as when an agent is behind a NAT.
    told(&to("203.0.113.9"), 4, &["203.0.113.9", "unreachable", "fix:", "--to"]);
    told(&to("10.77.0.77"), 4, &["10.77.0.77", "fix:", "--to"]);
    hosts.ip(true, "addr replace 127.0.0.1/8 dev lo");
    hosts.ip(true, "link set lo up");
    told(&to("127.0.0.1"), 4, &["127.0.0.1", "refuses", "fix:", "--to"]);
    told(&to("no-such-host.invalid"), 2, &["is not known", "fix:"]);
    // An agent that has no address that leads there.
    hosts.ip(true, "route add blackhole 10.77.0.2/32");
    let inside = format!("--via={via}");
    let output = hosts.plumb(&["net", &inside, "-4"]);
    told(&output, 4, &["no address of", "it says that it has", "fix: name one with --to"]);
}

#[test]
fn link_local_addresses_with_a_zone_are_measured_and_one_without_is_named() {
    let Some(hosts) = Hosts::new() else { return };
    hosts.ip(true, "addr add fe80::1/64 dev plumb0 nodad");
    hosts.ip(false, "addr add fe80::2/64 dev plumb1 nodad");
    let via = hosts.via();
    let words = ["net", "--via", &via, "fe80::2%plumb0", "--json", "--only", "idle,up,down"];
    let output = hosts.plumb(&[&words[..], &QUICK].concat());
    told(&output, 0, &[]);
    let result = found(&output);
    // As it was asked for, since without its zone it could not be measured again.
    assert_eq!(result["address"], "fe80::2%plumb0");
    assert_eq!(result["phases"][0]["probes"]["answered"], result["phases"][0]["probes"]["sent"]);
    assert!(result["phases"][2]["flows"][0]["bytes_per_second"].as_f64().unwrap() > 1e6);
    let without = ["net", "--via", &via, "fe80::2", "--only", "up"];
    told(&hosts.plumb(&[&without[..], &QUICK].concat()), 2, &["fe80::2", "fix:", "%"]);
    let nowhere = ["net", "--via", &via, "fe80::2%nosuch0", "--only", "up"];
    told(
        &hosts.plumb(&[&nowhere[..], &QUICK].concat()),
        2,
        &["no interface 'nosuch0'", "fe80::2%nosuch0", "fix:"],
    );
    // And an agent that listens there.
    let daemon = hosts.bed.in_b(|| Daemon::at("[fe80::2%plumb1]:0", &[])).unwrap();
    let host = format!("[fe80::2%plumb0]:{}", daemon.address.port());
    told(&hosts.plumb(&["net", &host, "--pair", &daemon.token]), 0, &[]);
    let words = ["net", &format!("tls:{host}"), "--only", "idle"];
    told(&hosts.plumb(&[&words[..], &QUICK].concat()), 0, &[]);
}

#[test]
fn an_agent_answers_from_the_address_that_it_was_asked_at_whichever_its_kernel_would_choose() {
    let Some(hosts) = Hosts::new() else { return };
    // A second address of each version: answers would leave from the first.
    hosts.ip(false, "addr add 10.77.0.99/24 dev plumb1");
    hosts.ip(false, "addr add fd77::99/64 dev plumb1 nodad preferred_lft 0");
    let via = hosts.via();
    for address in ["10.77.0.99", "fd77::99"] {
        let what = ["--only", "idle", "--exchange", "udp,quic", "--mtu=2s"];
        let words = [&["net", "--via", &via, address, "--json"][..], &what, &QUICK].concat();
        let output = hosts.plumb(&words);
        told(&output, 0, &[]);
        let result = found(&output);
        let probes = &result["phases"][0]["probes"];
        assert_eq!(probes["answered"], probes["sent"], "{address}: {probes}");
        assert!(result["mtu"]["path_bytes"].as_u64().is_some(), "{address}: {}", result["mtu"]);
        let paced = ["net", "--via", &via, address, "--json", "--only", "up", "--udp", "1mbit"];
        let output = hosts.plumb(&[&paced[..], &QUICK].concat());
        told(&output, 0, &[]);
        assert_eq!(found(&output)["phases"][0]["datagrams"][0]["lost"], 0, "{address}");
    }
}

#[test]
fn a_path_that_loses_everything_in_the_middle_of_a_test_leaves_a_marked_result() {
    let Some(hosts) = Hosts::new() else { return };
    let via = hosts.via();
    let words = ["net", "--via", &via, "10.77.0.2", "--json", "--only", "up", "-t", "3s"];
    let child =
        hosts.start(&[&words[..], &["--mtu=0s", "--warm-up=100ms", "--drain", "1s"]].concat());
    let process = child.id();
    until("streams are measured", || {
        let tasks = std::fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten();
        tasks.flatten().any(|task| {
            let name = std::fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            name.trim() == "measure"
        })
    });
    // The control connection goes another way, and stands.
    hosts.ip(false, "link set plumb1 down");
    let output = child.wait_with_output().unwrap();
    told(&output, 4, &[]);
    let found = found(&output);
    assert_eq!(found["ended"], "partial", "{found}");
    assert!(found["flags"].to_string().contains("had not arrived"), "{found}");
    assert!(found["run"].is_string(), "what there is was stored");
}

#[test]
fn a_control_algorithm_that_the_sending_host_lacks_is_named_by_that_host() {
    let bench = Bench::new();
    let via = agent();
    for only in ["up", "down", "both"] {
        let words = ["net", "--via", &via, "127.0.0.1", "--only", only, "-C", "nosuchcc"];
        told(&bench.plumb(&words), 4, &["no congestion control 'nosuchcc'", "fix:"]);
    }
}

#[test]
fn a_full_disk_is_named_where_it_matters_and_costs_no_result() {
    let bench = Bench::new();
    let full = bench.home().join("full");
    std::fs::create_dir(&full).unwrap();
    // A file system of one page, full, in a mount namespace of its own.
    let within = |script: &str| {
        let script = format!(
            "mount -t tmpfs -o size=4k,mode=700 tmpfs {0} && mkdir {0}/home && head -c 4096 /dev/zero >{0}/home/filler; \
             export HOME={0}/home; {script}",
            full.display()
        );
        let words = ["--mount", "--propagation", "private", "sh", "-c", &script];
        bench.command("unshare", &words).output().unwrap()
    };
    if !within("true").status.success() {
        return skip("mount namespaces are not allowed");
    }
    let listening = within(&format!("unset PLUMB_STORE; exec {PLUMB} agent --listen 127.0.0.1:0"));
    told(&listening, 4, &["No space left on device", "fix: make", "room"]);
    let words = "net --via \"$VIA\" 127.0.0.1 --only idle --idle 300ms";
    let measured = within(&format!(
        "export VIA='{}'; export PLUMB_STORE=$HOME/plumb.db; exec {PLUMB} {words} --json",
        agent()
    ));
    told(&measured, 4, &["fix:"]);
    let found = found(&measured);
    assert_eq!(
        found["ended"], "complete",
        "what was measured is printed though it cannot be stored"
    );
}
