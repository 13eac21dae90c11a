//! `plumb net --iperf3 --json` as programs read it that were written for iperf3's JSON, and as plumb imports it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{ChildStderr, Command, Stdio};

use serde_json::Value;

use crate::home::{KilledOnDrop, TestHome, assert_valid, document};
use crate::support::PLUMB;

/// What the class for results of the package `iperf3` from PyPI makes of a document.
const READER: &str = "
import json, sys
from iperf3 import TestResult
result = TestResult(sys.stdin.read())
print(json.dumps({name: value for name, value in vars(result).items() if name not in ('text', 'json')}))
";

/// Runs the reader; nothing, visibly, where it is not installed.
#[expect(clippy::print_stdout, reason = "a test that cannot run says so")]
fn read_by_theirs(text: &str) -> Option<Value> {
    let mut python = Command::new("python3");
    // Where tools/setup.sh puts it.
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/consumers");
    python.env("PYTHONPATH", directory);
    let there = python.args(["-c", "import iperf3"]).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        println!("skipped: the Python package iperf3 is not installed; run 'make setup'");
        // No failure under CI: unlike Debian's packages, PyPI's cannot be had everywhere.
        return None;
    }
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/consumers");
    let mut child = Command::new("python3")
        .env("PYTHONPATH", directory)
        .args(["-c", READER])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 starts");
    child.stdin.take().expect("a pipe").write_all(text.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "their parser failed on {text}");
    Some(document(&String::from_utf8(output.stdout).expect("text")))
}

/// A running server.
pub struct Iperf3ServerProcess {
    child: KilledOnDrop,
    /// Kept open for further messages.
    stderr: BufReader<ChildStderr>,
    pub port: String,
}

impl Iperf3ServerProcess {
    pub fn start() -> Self {
        let mut child = Command::new(PLUMB)
            .args(["agent", "--iperf3", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("plumb starts");
        let mut stderr = BufReader::new(child.stderr.take().expect("a pipe"));
        let mut line = String::new();
        stderr.read_line(&mut line).expect("a line");
        let port = line.trim().rsplit(':').next().expect("a port").to_owned();
        Self { child: KilledOnDrop(child), stderr, port }
    }

    pub fn id(&self) -> u32 {
        self.child.0.id()
    }

    /// Kills it; what it has written on standard error.
    fn stderr_of_killed(self) -> String {
        let Self { child, mut stderr, .. } = self;
        drop(child);
        let mut text = String::new();
        stderr.read_to_string(&mut text).expect("text");
        text
    }
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

/// What their parser is to have found, name by name, with where the document has it.
fn assert_same_figures(theirs: &Value, ours: &Value) {
    let udp = ours["start"]["test_start"]["protocol"] == "UDP";
    let (sum, sent, received) = ("/end/sum", "/end/sum_sent", "/end/sum_received");
    let figures: &[(&str, String)] = &if udp {
        vec![
            ("bytes", format!("{sum}/bytes")),
            ("bps", format!("{sum}/bits_per_second")),
            ("jitter_ms", format!("{sum}/jitter_ms")),
            ("packets", format!("{sum}/packets")),
            ("lost_packets", format!("{sum}/lost_packets")),
        ]
    } else {
        vec![
            ("sent_bytes", format!("{sent}/bytes")),
            ("sent_bps", format!("{sent}/bits_per_second")),
            ("received_bytes", format!("{received}/bytes")),
            ("received_bps", format!("{received}/bits_per_second")),
            ("retransmits", format!("{sent}/retransmits")),
        ]
    };
    for (name, place) in figures {
        let expected = ours.pointer(place).unwrap_or_else(|| panic!("no {place} in {ours}"));
        let found = number(&theirs[*name]);
        assert!((found - number(expected)).abs() <= 1e-6 * found.abs(), "{name}: {theirs}");
    }
    assert_eq!(theirs["error"], Value::Null);
    assert_eq!(theirs["num_streams"], ours["start"]["test_start"]["num_streams"]);
    assert!(number(&theirs["local_cpu_total"]) >= 0.0);
}

#[test]
fn iperf3_consumers_and_import_read_every_mode_alike() {
    let bench = TestHome::new();
    let server = Iperf3ServerProcess::start();
    let modes: [&[&str]; 8] = [
        &[],
        &["--reverse"],
        &["--bidir"],
        &["-P", "3"],
        &["--udp", "-b", "20M"],
        &["--udp", "-b", "20M", "--reverse"],
        &["--udp", "-b", "20M", "--bidir"],
        &["--udp", "-b", "20M", "-P", "3"],
    ];
    for mode in modes {
        let words = ["net", "--iperf3", "127.0.0.1", "-p", &server.port, "-t", "1", "--json"];
        let text = bench.stdout_of(&[&words[..], mode].concat());
        let ours = document(&text);
        assert_valid(&ours, "plumb.iperf3/1");
        let file = bench.path("iperf3.json");
        std::fs::write(&file, &text).unwrap();
        let imported = bench.json_of(&["import", "iperf3", file.to_str().unwrap(), "--json"]);
        let id = imported["runs"][0]["id"].as_str().unwrap();
        let shown = bench.json_of(&["show", id, "--json"]);
        let rate = |suffix: &str| {
            let sum = format!("/end/sum_received{suffix}/bits_per_second");
            ours.pointer(&sum).map(|bits| number(bits) / 8.0)
        };
        let wanted: Vec<f64> = ["", "_bidir_reverse"].into_iter().filter_map(rate).collect();
        let results = shown["results"].as_array().unwrap().iter();
        let mut found: Vec<f64> = results
            .filter(|result| result["response"] == "throughput")
            .map(|result| number(&result["summary"]["mean"]))
            .collect();
        assert_eq!(found.len(), wanted.len(), "{mode:?}: {shown}");
        for wanted in wanted {
            let near = found.iter().position(|found| (found / wanted - 1.0).abs() < 1e-6);
            found.remove(near.unwrap_or_else(|| panic!("{mode:?}: no {wanted} in {found:?}")));
        }
        let Some(theirs) = read_by_theirs(&text) else { continue };
        assert_same_figures(&theirs, &ours);
    }
}

#[test]
fn a_flood_of_refused_clients_is_counted_in_few_lines() {
    let bench = TestHome::new();
    let server = Iperf3ServerProcess::start();
    // A cookie, and parameters of 4 GiB.
    let request = [&[b'a'; 37][..], &u32::MAX.to_be_bytes()].concat();
    let port: u16 = server.port.parse().unwrap();
    for _ in 0..200 {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.write_all(&request).unwrap();
        // Until the server closes it.
        drop(client.read_to_end(&mut Vec::new()));
    }
    bench.stdout_of(&["net", "--iperf3", "127.0.0.1", "-p", &server.port, "-t", "1"]);
    let text = server.stderr_of_killed();
    let lines = text.lines().filter(|line| line.contains("no test")).count();
    assert!((1..=60).contains(&lines), "{lines} lines: {text}");
}
