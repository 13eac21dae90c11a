//! One command behind a link.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::test_home::LinkTestHome;
use crate::home::{assert_valid, document, json_of, text};
use crate::support::{self, wait_for};

#[test]
fn delay_is_at_least_as_requested_and_exit_code_the_commands() {
    let Some(bench) = LinkTestHome::with(&["ping"]) else { return };
    for address in ["10.77.0.2", "fd77::2"] {
        let said = bench.stdout_of(&format!("--delay 20ms -- ping -c 1 -W 30 {address}"));
        let line = said.lines().find(|line| line.contains("min/avg/max")).unwrap();
        let least: f64 = line.split(['=', '/']).nth(4).unwrap().trim().parse().unwrap();
        assert!(least >= 40.0, "{said}");
    }
    let code = |script: &str| {
        bench.link(&["--isolated", "--", "sh", "-c", script]).status().unwrap().code()
    };
    assert_eq!(code("exit 7"), Some(7));
    assert_eq!(code("kill -9 $$"), Some(137));
}

#[test]
fn json_keeps_standard_output_for_the_document() {
    let Some(bench) = LinkTestHome::new() else { return };
    let output = bench.link("--json --rate 10mbit --isolated -- echo spoken").output().unwrap();
    assert!(text(&output.stderr).contains("spoken"));
    let document = json_of(&output);
    assert_eq!(document["exit"], 0);
    assert_eq!(document["command"], serde_json::json!(["echo", "spoken"]));
    assert!(document["link"].as_str().unwrap().contains("rate=10mbit"), "{document}");
    assert_valid(&document, "plumb.link/1");
}

#[test]
fn processes_that_a_command_leaves_behind_are_ended_and_counted() {
    let Some(bench) = LinkTestHome::new() else { return };
    let script = "setsid sleep 1000 & (sleep 1000 &) ; exit 0";
    let words = ["--isolated", "--report", "report.json", "--", "sh", "-c", script];
    let (code, stderr) = bench.exit_and_stderr(&words);
    assert!(code == Some(0) && stderr.contains("2 processes"), "{stderr}");
    let document = document(&std::fs::read_to_string(bench.path("report.json")).unwrap());
    assert_eq!(document["left"], 2);
}

#[test]
fn a_daemon_ends_with_its_command() {
    let Some(bench) = LinkTestHome::with(&["python3"]) else { return };
    let file = bench.path("lock");
    // The process between the two has ended and been waited for before the command ends.
    let script = format!(
        "import os, fcntl, time
lock = open('{}', 'w'); fcntl.flock(lock, fcntl.LOCK_EX)
child = os.fork()
if child: os.waitpid(child, 0); os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
time.sleep(1000)",
        file.display()
    );
    let (code, stderr) = bench.exit_and_stderr(&["--isolated", "--", "python3", "-c", &script]);
    assert!(code == Some(0) && stderr.contains("1 process "), "{stderr}");
    // The daemon held it for as long as it lived.
    std::fs::File::open(file).unwrap().try_lock().unwrap();
}

#[test]
fn signals_are_forwarded_to_the_command() {
    let Some(bench) = LinkTestHome::new() else { return };
    for (signal, answer) in [("TERM", "term"), ("HUP", "hup"), ("INT", "int"), ("USR1", "usr1")] {
        let script =
            format!("trap 'echo {answer}; exit 9' {signal}; echo up; while :; do sleep 0.01; done");
        let mut child = bench
            .link(&["--isolated", "--", "sh", "-c", &script])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "up");
        assert!(support::signal(child.id(), signal));
        assert_eq!(lines.next().unwrap().unwrap(), answer);
        assert_eq!(child.wait().unwrap().code(), Some(9));
    }
}

#[test]
fn a_running_link_is_changed_shown_and_taken_down_by_name() {
    let Some(bench) = LinkTestHome::new() else { return };
    let mut child = bench.start("mine", "--delay 1ms -- sleep 1000");
    bench.stdout_of("set mine --delay 30ms --rate 1mbit");
    let shown = bench.show("mine");
    assert_eq!(shown["changes"], 1);
    assert!(shown["link"].as_str().unwrap().contains("delay=30ms"), "{shown}");
    assert!(bench.stdout_of("list").starts_with("mine  "));
    let list = document(&bench.stdout_of("list --json"));
    assert_eq!(list["links"][0]["name"], "mine", "{list}");
    assert_valid(&list, "plumb.links/1");
    let inside = bench.stdout_of("exec mine near -- cat /proc/net/dev");
    assert!(inside.contains("plumb0"), "{inside}");
    bench.assert_rejected(&[("set mine --rate 0", "zero")]);
    bench.stdout_of("down mine");
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert_eq!(bench.names(), Vec::<String>::new());
}

#[test]
fn traces_and_hops_of_a_running_link_are_changed() {
    let Some(bench) = LinkTestHome::new() else { return };
    for (name, text) in [
        ("first", "1\n2\n"),
        ("second", "0.001 1514\n"),
        ("delays", "5ms\n"),
        ("schedule", "1ms hop 2 delay=7ms\n1h hop 1 loss=3%\n"),
    ] {
        bench.file(name, text);
    }
    let link = "--up rate=trace:first --hop delay=1ms --schedule schedule -- sleep 1000";
    let mut child = bench.start("traced", link);
    let state = || bench.show("traced");
    wait_for("the first line", || state()["changes"] == 1);
    // The contents of files are sent with a change, so the files may be removed later.
    bench.stdout_of("set traced --loss 1%");
    bench.stdout_of("set traced 'hop 1 up rate=trace:second' --down 'hop 2 delay=replay:delays'");
    for name in ["first", "second", "delays"] {
        std::fs::remove_file(bench.path(name)).unwrap();
    }
    bench.stdout_of("set traced --up 'hop 2 rate=3mbit'");
    bench.assert_rejected(&[
        ("set traced 'hop 3 rate=3mbit'", "from 1"),
        ("set traced --up rate=trace:first", "first"),
    ]);
    let document = state();
    let link = document["link"].as_str().unwrap().to_owned();
    let [one, two] = link.split(';').collect::<Vec<_>>()[..] else { panic!("{link}") };
    assert!(one.starts_with("rate=trace:second") && one.contains("loss=0.01"), "{link}");
    let (up, down) = two.split_once('|').unwrap();
    assert!(up.contains("rate=3mbit") && up.contains("delay=7ms"), "{link}");
    assert!(down.contains("loss=0.01") && down.contains("delay=replay:"), "{link}");
    assert_eq!(document["changes"], 4);
    assert_valid(&document, "plumb.link/1");
    bench.stdout_of("down traced");
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

#[test]
fn packets_are_recorded_at_either_end() {
    let Some(bench) = LinkTestHome::with(&["ping", "tshark"]) else { return };
    let ping = "ping -c 1 -W 30 10.77.0.2";
    bench.stdout_of(&format!("--delay 10ms --pcap near --pcap-far far --isolated -- {ping}"));
    for file in ["near", "far"] {
        let line = format!("-r {file} -T fields -e icmp.type icmp");
        let output = bench.command_of("tshark", &line).output().unwrap();
        assert_eq!(text(&output.stdout).lines().count(), 2, "{file}");
    }
}

/// A run over the link that it is behind, as JSON, in a script that has it as `measure`.
fn measured(bench: &LinkTestHome, script: &str) -> Value {
    let store = bench.path("store");
    let measure = "measure() { plumb run latency.remote --quick --set mechanism=udp4 --set size=64 \
                   --set placement=same-cpu --launches 1 --json; }";
    let script = format!("cd '{}'; {measure}\n{script}", bench.home().display());
    let words = ["--name", "moving", "--delay", "1ms", "--isolated", "--", "sh", "-c", &script];
    let output = bench.link(&words).env("PLUMB_STORE", &store).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let document = json_of(&output);
    assert!(!document["results"].as_array().unwrap().is_empty(), "{document}");
    document
}

#[test]
fn a_run_names_its_link_as_it_was_at_the_start() {
    let Some(bench) = LinkTestHome::new() else { return };
    let document = measured(&bench, "plumb link set moving --delay 7ms; measure");
    assert_eq!(document["notes"]["link.outer"], "delay=7ms");
    assert_eq!(document["notes"]["link.outer.after"], Value::Null);
    assert_eq!(document["results"][0]["factors"]["link"], "outer: delay=7ms");
}

#[test]
fn a_link_change_during_a_run_flags_its_results() {
    let Some(bench) = LinkTestHome::new() else { return };
    let script = "(measure > run.json; touch over) &
        while [ ! -e over ]; do
            plumb link set moving --delay 2ms; plumb link set moving --delay 3ms
        done 2> /dev/null
        cat run.json";
    let document = measured(&bench, script);
    let after = document["notes"]["link.outer.after"].as_str().unwrap();
    assert!(after.starts_with("delay="), "{document}");
    let flags = document["results"][0]["flags"].to_string();
    assert!(flags.contains("link-changed"), "{document}");
}
