//! Between two hosts of a lab behind a link: what plumb says against what the link counted and was told to be.
//!
//! Says `skipped:` where namespaces are not allowed, and fails for that under CI=true.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::agent;
use crate::home::{Arguments, TestHome, document, has_thread};
use crate::support::{PLUMB, signal, skip, wait_for, with_descendants};

/// A lab of the hosts a and b, which is taken down at the end.
struct ImpairedLab {
    bench: TestHome,
}

impl ImpairedLab {
    /// `None`, said so, where there can be none.
    fn new(shape: &[&str]) -> Option<Self> {
        let bench = TestHome::new();
        let output = bench.plumb(&[&["link", "up", "lab", "--hosts", "a,b"][..], shape].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        let missing = ["may not make a network namespace", "/dev/net/tun"];
        if !output.status.success() && missing.iter().any(|part| said.contains(part)) {
            skip("no namespaces or no TUN here");
            return None;
        }
        assert!(output.status.success(), "{said}");
        Some(Self { bench })
    }

    /// What plumb says on a of the way to b, whose agent is started by `agent` there.
    fn net_with(&self, agent: &str, arguments: &(impl Arguments + ?Sized)) -> Value {
        let mut line = self.line(agent, arguments);
        line.push("--no-store".to_owned());
        self.bench.json_of(&line)
    }

    /// The arguments of a measurement on a of the path to b.
    fn line(&self, agent: &str, arguments: &(impl Arguments + ?Sized)) -> Vec<String> {
        let known = self.bench.stdout_of("link exec lab a -- getent ahostsv4 b");
        let address = known.split_whitespace().next().expect("b has an address");
        let net = format!(
            "link exec lab a -- {PLUMB} net --via '{PLUMB} link exec lab b -- {agent}' {address} --json"
        );
        [net.list(), arguments.list()].concat()
    }

    fn net(&self, arguments: &(impl Arguments + ?Sized)) -> Value {
        self.net_with(&agent(), arguments)
    }

    /// Frames that the link has dropped in a direction so far.
    fn dropped(&self, direction: &str) -> u64 {
        let shown = self.bench.json_of("link show lab --json");
        let directions = shown["directions"].as_array().expect("a link has directions");
        let is_meant =
            |found: &&Value| found["name"].as_str().is_some_and(|name| name.ends_with(direction));
        let found = directions.iter().find(is_meant).expect("a direction of that name");
        let discarded = found["discarded"].as_object().expect("counts by reason");
        discarded.values().filter_map(Value::as_u64).sum()
    }
}

impl Drop for ImpairedLab {
    fn drop(&mut self) {
        self.bench.plumb("link down lab");
    }
}

#[test]
fn datagrams_that_are_lost_are_those_that_the_link_dropped() {
    // Lost at random, and for want of room at twice the rate that the link has.
    for (shape, rate) in [
        (&["--rate", "20mbit", "--delay", "5ms", "--loss", "2%"][..], "4mbit"),
        (&["--rate", "5mbit", "--delay", "1ms", "--limit", "20packets"][..], "10mbit"),
    ] {
        let Some(lab) = ImpairedLab::new(shape) else { return };
        for direction in ["down", "up"] {
            let before = lab.dropped(direction);
            let words = ["--only", direction, "--udp", rate, "-t", "1s", "--probes", "0"];
            let found = lab.net(&words);
            let dropped = lab.dropped(direction) - before;
            let stream = &found["phases"][0]["datagrams"][0];
            let lost = stream["lost"].as_u64().unwrap();
            assert!(lost > 0 && stream["lost_at"]["path"] == lost, "{shape:?}: {stream}");
            // The link drops some of what is not measured, too: the end is said until it is heard.
            assert!(lost <= dropped && dropped <= lost + 5, "{shape:?}: {dropped} {stream}");
        }
    }
}

#[test]
fn an_outage_is_the_first_line_the_exit_code_and_red_on_the_page() {
    // Two seconds of each five, so that four seconds have one, whole or cut by their ends.
    let dark = "blackout=5s/2s";
    let shape = ["--rate", "20mbit", "--delay", "5ms", "--up", dark, "--down", dark];
    let Some(lab) = ImpairedLab::new(&shape) else { return };
    let line =
        lab.line(&agent(), "--only down -t 4s --warm-up 500ms --mtu=0s --drain-timeout 2min");
    let line: Vec<String> = line.into_iter().filter(|word| word != "--json").collect();
    let output = lab.bench.plumb(&line);
    let page = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{page}\n{said}");
    assert!(page.starts_with("! OUTAGE"), "{page}");
    let html = lab.bench.path("net.html");
    lab.bench.assert_success(&["report", "last", "-o", html.to_str().unwrap()]);
    let html = std::fs::read_to_string(html).unwrap();
    assert!(html.contains("<p class=\"box bad\"><strong>OUTAGE"), "{html}");
}

#[test]
fn a_path_that_is_merely_slow_has_no_outage() {
    // Fewer packets a second than probes, and a queue of a second.
    let shape = ["--rate", "200kbit", "--delay", "50ms", "--limit", "20packets"];
    let Some(lab) = ImpairedLab::new(&shape) else { return };
    let found = lab.net("--only down,up -t 4s --warm-up 1s --mtu=0s --drain-timeout 30s");
    assert_eq!(found["outages"], Value::Array(Vec::new()), "{}", found["outages"]);
    assert!(!found["summary"]["warnings"].to_string().contains("OUTAGE"), "{}", found["summary"]);
}

#[test]
fn one_way_delays_are_at_least_the_links() {
    let shape = ["--up", "delay=5ms", "--down", "delay=20ms"];
    let Some(lab) = ImpairedLab::new(&shape) else { return };
    let found = lab.net("--only idle --idle 600ms");
    assert_eq!(found["clocks"]["same"], true, "{}", found["clocks"]);
    let probes = &found["phases"][0]["probes"];
    let least = |way: &str| probes[way]["least_ns"].as_f64().unwrap();
    let (up, down) = (least("one_way_up"), least("one_way_down"));
    assert!(up >= 5e6 && down >= 20e6 && down - up > 10e6, "up {up}, down {down}");
    assert_eq!(probes["one_way_up"]["bound_ns"], 0.0);
}

#[test]
fn another_clocks_offset_is_found_within_its_bound() {
    let shape = ["--up", "delay=5ms", "--down", "delay=20ms"];
    let shifted = ["-T", "--fork", "--monotonic", "100"];
    let can = Command::new("unshare").args(shifted).arg("true").status();
    if !can.is_ok_and(|status| status.success()) {
        return skip("no time namespaces here");
    }
    let Some(lab) = ImpairedLab::new(&shape) else { return };
    let agent = format!("unshare {} {PLUMB} agent --stdio", shifted.join(" "));
    let found = lab.net_with(&agent, &["--only", "idle", "--idle", "600ms"]);
    let clocks = &found["clocks"];
    let number = |name: &str| clocks[name].as_f64().unwrap();
    let (offset, bound) = (number("offset_ns"), number("bound_ns"));
    assert_eq!((&clocks["same"], &clocks["steps"]), (&false.into(), &0.into()), "{clocks}");
    assert!(bound >= 12.5e6, "half of 25 ms: {clocks}");
    assert!((offset - 100e9).abs() <= bound, "{clocks}");
    for (way, truth) in [("one_way_up", 5e6), ("one_way_down", 20e6)] {
        let delay = &found["phases"][0]["probes"][way];
        let (least, bound) = (&delay["least_ns"], &delay["bound_ns"]);
        let off = least.as_f64().unwrap() - truth;
        assert!(off.abs() <= bound.as_f64().unwrap(), "{way}: {delay}");
    }
}

#[test]
fn the_path_mtu_is_found_with_and_without_icmp() {
    for (mtu, told) in [("1400", true), ("1400/silent", false)] {
        let Some(lab) = ImpairedLab::new(&["--delay", "1ms", "--mtu", mtu]) else { return };
        let found = lab.net("--only idle --idle 100ms --mtu");
        let answer = &found["mtu"];
        let bytes = (&answer["path_bytes"], &answer["payload_bytes"]);
        assert_eq!(bytes, (&1400.into(), &1372.into()), "{found}");
        assert_eq!(answer["told_by_router"], told, "{answer}");
        assert_eq!(answer["kernel_bytes"], if told { 1400 } else { 1500 }, "{answer}");
        let is_flagged = found["flags"].to_string().contains("longer than 1400 bytes vanish");
        assert_eq!(is_flagged, !told, "{}", found["flags"]);
    }
}

#[test]
fn an_interrupted_path_mtu_search_is_stored() {
    // Four round trips of 200 ms for each try of a length that vanishes: it goes on for long.
    let Some(lab) = ImpairedLab::new(&["--delay", "100ms", "--mtu", "1400/silent"]) else { return };
    for (name, victim, code, ended) in
        [("INT", "net", 130, "stopped"), ("KILL", "agent", 4, "partial")]
    {
        let words = ["--only", "idle", "--mtu=10min"];
        let line = lab.line(&agent(), &words);
        let mut command = lab.bench.command_of(PLUMB, &line);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut sides = Vec::new();
        wait_for("both sides search", || {
            sides = with_descendants(child.id());
            sides.retain(|&process| has_thread(process, "measure"));
            sides.len() == 2
        });
        // The search tries longer ones when the shortest has arrived.
        let before = lab.dropped("up");
        wait_for("a longer packet has vanished", || lab.dropped("up") > before);
        assert!(signal(sides[usize::from(victim == "agent")], name));
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(!said.contains("nothing was measured"), "{said}");
        let found = document(std::str::from_utf8(&output.stdout).unwrap());
        assert_eq!(found["ended"], ended, "{found}");
        assert!(found["mtu"]["problem"].as_str().unwrap().contains("called off"), "{found}");
        if victim == "agent" {
            assert!(found["problems"].to_string().contains("control connection"), "{found}");
        }
        let arrived = found["mtu"]["arrived_bytes"].as_u64().unwrap();
        assert!((576..=1_400).contains(&arrived), "{found}");
        assert!(found["mtu"]["probes"].as_u64().unwrap() > 1, "{found}");
        // The measurement is stored as a run and marked.
        let run = found["run"].as_str().unwrap();
        assert!(lab.bench.stdout_of("runs").contains(run), "{found}");
        let again = lab.bench.json_of(&["net", "--show", run, "--json"]);
        assert_eq!((&again["mtu"], &again["ended"]), (&found["mtu"], &found["ended"]));
        let shown = lab.bench.json_of(&["show", run, "--json"]);
        let results = shown["results"].as_array().unwrap();
        assert_eq!(results.len(), 1, "{shown}");
        assert_eq!(results[0]["experiment"], "net.mtu", "{shown}");
        assert_eq!(results[0]["summary"]["max"].as_f64(), Some(arrived as f64), "{shown}");
        assert!(results[0].to_string().contains("partial"), "{shown}");
    }
}
