//! `plumb net` as its users run it: over an agent's standard streams, between namespaces, over ssh; an agent among
//! strangers; and experiments against another host.
//!
//! Left out: the protocol and the engines, which `plumb-net` tests, and how precise the figures are
//! (`tools/net_settings.py`).

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

mod daemon;
mod far;
mod hosts;
mod lost;
mod nat;
mod noise;
mod page;
mod ssh;
mod strangers;
mod trouble;
mod uptime;
mod web;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

mod behind;
mod iperf3;
mod stamp;
mod watch;

const PLUMB: &str = env!("CARGO_BIN_EXE_plumb");

struct Bench {
    directory: TempDir,
}

impl Bench {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().expect("a temporary directory") }
    }

    /// A command in the surroundings of a user of its own.
    fn command(&self, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(words)
            .env("PLUMB_STORE", self.home().join("plumb.db"))
            .env("XDG_RUNTIME_DIR", self.home())
            .env("HOME", self.home())
            .env_remove("XDG_DATA_HOME")
            .env_remove("PLUMB_SSH")
            .stdin(Stdio::null());
        command
    }

    fn home(&self) -> &Path {
        self.directory.path()
    }

    fn plumb(&self, words: &[&str]) -> Output {
        self.command(PLUMB, words).output().expect("plumb starts")
    }

    /// A script of the shell.
    fn shell(&self, script: &str) -> Output {
        Command::new("sh")
            .args(["-c", script])
            .env("HOME", self.directory.path())
            .stdin(Stdio::null())
            .output()
            .expect("a shell")
    }

    fn fine(&self, words: &[&str]) -> String {
        let output = self.plumb(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {:?}\n{said}", output.status);
        String::from_utf8(output.stdout).expect("text")
    }

    fn refused(&self, words: &[&str], told: &[&str]) {
        let output = self.plumb(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{words:?}");
        for part in told {
            assert!(said.contains(part), "{words:?}: no '{part}' in\n{said}");
        }
        assert!(!said.contains("plumb has a bug"), "{said}");
    }
}

fn agent() -> String {
    format!("{PLUMB} agent --stdio")
}

fn document(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// What a document has that its published schema does not allow.
fn schema_faults(schema: &str, found: &Value) -> Vec<String> {
    let path = format!("{}/../../docs/schema/{schema}.json", env!("CARGO_MANIFEST_DIR"));
    let schema = std::fs::read_to_string(path).expect("a schema");
    let validator = jsonschema::validator_for(&document(&schema)).expect("a sound schema");
    validator.iter_errors(found).map(|error| error.to_string()).collect()
}

#[test]
fn a_measurement_is_one_valid_document_and_a_run_like_any_other() {
    let bench = Bench::new();
    let via = agent();
    let words = ["net", "--via", &via, "127.0.0.1", "--json", "--idle=300ms", "-t", "400ms"];
    let text = bench.fine(&[&words[..], &["--warm-up=100ms", "-P", "2"]].concat());
    let found = document(&text);
    assert_eq!(schema_faults("plumb.net-1", &found), [] as [String; 0]);
    assert_eq!((&found["ended"], &found["same_machine"]), (&"complete".into(), &true.into()));
    let phases = found["phases"].as_array().unwrap();
    let names: Vec<_> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["idle", "down", "up"]);
    for phase in &phases[1..] {
        let flow = &phase["flows"][0];
        assert!(flow["bytes_per_second"].as_f64().unwrap() > 1e6, "{flow}");
        assert_eq!((&flow["counted_by"], &flow["streams"]), (&"receiver".into(), &2.into()));
        assert_eq!(flow["sent_bytes_total"], flow["received_bytes_total"]);
        assert!(flow["sender_cpu_ns_per_byte"].as_f64().unwrap() > 0.0, "{flow}");
        assert!(!phase["evidence"].as_array().unwrap().is_empty());
    }
    let run = found["run"].as_str().unwrap();
    let shown = document(&bench.fine(&["show", "last", "--json"]));
    assert_eq!(shown["run"]["id"], run);
    assert!(shown["results"].as_array().unwrap().len() >= 8, "{shown}");
    let again = document(&bench.fine(&["net", "--show", "last", "--json"]));
    assert_eq!(again["phases"], found["phases"]);
    assert!(bench.fine(&["runs"]).contains(run));
    bench.fine(&["export", "last", "--format", "csv"]);
    bench.refused(&["rerun", "last"], &["measured between two hosts", "plumb"]);
}

#[test]
fn a_window_beyond_what_the_kernel_allows_is_flagged_and_one_within_it_is_what_the_sockets_have() {
    let bench = Bench::new();
    let via = agent();
    let words = ["net", "--via", &via, "127.0.0.1", "--json", "--only", "up", "-t", "300ms"];
    let measure = |window: &str| {
        let more = ["--warm-up=100ms", "--probes", "0", "--no-store", "--window", window];
        document(&bench.fine(&[&words[..], &more].concat()))
    };
    let found = measure("64Ki");
    let flow = &found["phases"][0]["flows"][0];
    assert_eq!(flow["window_bytes"], 65_536, "{flow}");
    assert_eq!(
        (&flow["send_buffer_bytes"], &flow["receive_buffer_bytes"]),
        (&131_072.into(), &131_072.into())
    );
    assert!(!found["flags"].to_string().contains("a window of"), "{}", found["flags"]);
    let limit = std::fs::read_to_string("/proc/sys/net/core/wmem_max").unwrap_or_default();
    let limit: u64 = limit.trim().parse().unwrap_or(u64::MAX);
    if limit < 1_000_000_000 {
        let found = measure("1000000000");
        let cut = format!("the send buffer here has {limit} B");
        assert!(found["flags"].to_string().contains(&cut), "{}", found["flags"]);
    }
}

#[test]
fn paced_datagrams_are_a_phase_of_their_own_in_the_document_the_run_and_on_the_page() {
    let bench = Bench::new();
    let via = agent();
    let words =
        ["net", "--via", &via, "127.0.0.1", "--idle=200ms", "-t", "300ms", "--udp", "8mbit"];
    let found = document(&bench.fine(&[&words[..], &["--udp-size=1000", "--json"]].concat()));
    let phases = found["phases"].as_array().unwrap();
    let names: Vec<_> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["idle", "udp-down", "udp-up"]);
    for (phase, direction) in phases[1..].iter().zip(["down", "up"]) {
        let stream = &phase["datagrams"][0];
        assert_eq!((&stream["direction"], &stream["planned"]), (&direction.into(), &300.into()));
        assert_eq!((&stream["sent"], &stream["received"]), (&300.into(), &300.into()), "{stream}");
        assert_eq!((&stream["lost"], &stream["lost_at"]["path"]), (&0.into(), &0.into()));
        assert!(stream["one_way"]["least_ns"].as_f64().unwrap() > 0.0, "{stream}");
        assert!(stream["intervals"].as_array().unwrap().len() > 1, "{stream}");
        assert!(phase["flows"].as_array().unwrap().is_empty());
    }
    assert!(found["mtu"]["path_bytes"].as_u64().unwrap() > 1_000, "{}", found["mtu"]);
    assert_eq!((&found["clocks"]["same"], &found["clocks"]["steps"]), (&true.into(), &0.into()));
    let shown = bench.fine(&["show", "last", "--json"]);
    assert!(shown.contains("net.udp"), "{shown}");
    let page = bench.fine(&["net", "--show", "last"]);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in
        ["lost: none of 300", "8.00 Mb/s asked for", "one clock on both sides", "packet up:"]
    {
        assert!(page.contains(part), "no '{part}' in\n{page}");
    }
    bench.refused(&["net", "host", "--udp", "8mbit", "--window", "1Mi"], &["cannot be used with"]);
    bench.refused(&["net", "host", "--udp", "10"], &["1kbit to 400gbit"]);
    bench.refused(&["net", "host", "--udp-size", "100"], &["--udp <RATE>"]);
}

#[test]
fn what_is_not_there_is_named_with_its_fix() {
    let bench = Bench::new();
    bench.refused(&["net", "no-such-host.invalid"], &["is not known", "fix:"]);
    bench.refused(&["net", "--via", "exit 127", "127.0.0.1"], &["there is no plumb", "--install"]);
    bench.refused(&["net", "--via", "echo hello", "127.0.0.1"], &["is not plumb", "hello"]);
    let refused = "echo 'ssh: connect to host x port 22: Connection refused' >&2; exit 255";
    bench.refused(&["net", "--via", refused, "127.0.0.1"], &["refuses connections", "fix:"]);
    let ended = ["net", "--via", "echo no such box >&2; exit 3", "127.0.0.1"];
    bench.refused(&ended, &["ended with 3", "no agent answered", "no such box", "fix:"]);
    bench.refused(&["net", "fe80::1"], &["on which link", "fe80::1%eth0"]);
    let both = ["net", "--via", "false", "127.0.0.1", "--exchange", "tcp", "--udp", "1mbit"];
    bench.refused(&both, &["--udp is of a direction", "--only down,up"]);
    bench.refused(&["net", "--stamp", "127.0.0.1", "-6"], &["no address of that family"]);
    bench.refused(&["net", "--http", "127.0.0.1", "-6"], &["no address of that family"]);
    bench.refused(&["net", "--stamp", "127.0.0.1", "-t", "30s"], &["cannot be used with"]);
    bench.refused(&["net", "--iperf3", "127.0.0.1:7"], &["127.0.0.1 --port 7"]);
    bench.refused(&["net", "-oProxyCommand=x"], &["unexpected argument"]);
    bench.refused(&["net", "--via", &agent(), "127.0.0.1", "--watch"], &["no terminal", "fix:"]);
    let words = ["net", "--via", &agent(), "127.0.0.1", "--only", "up", "-C", "nosuchcc"];
    bench.refused(&words, &["no congestion control 'nosuchcc'"]);
}

#[test]
fn a_peer_that_is_killed_leaves_a_partial_result_that_says_so() {
    let bench = Bench::new();
    let via = format!("timeout -s KILL 2 {PLUMB} agent --stdio");
    let words = ["net", "--via", &via, "127.0.0.1", "--json", "--only", "up", "-t", "4s"];
    let output = bench.plumb(&words);
    assert_eq!(output.status.code(), Some(4));
    let found = document(&String::from_utf8(output.stdout).expect("text"));
    assert_eq!(found["ended"], "partial");
    assert!(found["problems"][0].as_str().unwrap().contains("while running a test"), "{found}");
    assert_eq!(found["phases"][0]["flows"][0]["counted_by"], "sender");
}

#[test]
fn requests_and_responses_go_from_the_command_to_a_stored_result() {
    let bench = Bench::new();
    let via = agent();
    let mut words = vec!["net", "--via", &via, "127.0.0.1", "-t", "300ms", "--warm-up", "50ms"];
    words.extend([
        "--json",
        "--exchange",
        "tcp,udp,tls,quic",
        "--request",
        "100",
        "--response",
        "60",
    ]);
    let found = document(&bench.fine(&words));
    assert_eq!(found["ended"], "complete", "{found}");
    let phases = found["phases"].as_array().unwrap();
    let names: Vec<_> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["exchange tcp", "exchange udp", "exchange tls", "exchange quic"]);
    for phase in phases {
        let exchange = &phase["exchange"];
        assert!(exchange["requests_per_second"].as_f64().unwrap() > 10.0, "{exchange}");
        let latency = &exchange["latency"];
        assert!(latency["max_ns"].as_f64() >= latency["p50_ns"].as_f64(), "{exchange}");
        let can_tell = latency["n"].as_u64() >= Some(3_688);
        assert_eq!(latency["p999_ns"].is_number(), can_tell, "{exchange}");
        for side in ["asking", "answering"] {
            let cost = exchange[format!("{side}_cpu_ns_per_request")].as_f64().unwrap();
            assert!(cost > 0.0, "{exchange}");
        }
    }
    let shown = document(&bench.fine(&["show", "last", "--json"]));
    let results = shown["results"].as_array().unwrap();
    let of = |transport: &str, response: &str| {
        let is_it = |it: &&Value| {
            (&it["factors"]["transport"], &it["response"]) == (&transport.into(), &response.into())
        };
        results.iter().filter(is_it).count()
    };
    for transport in ["tcp", "udp", "tls", "quic"] {
        for response in ["latency", "rate", "cpu.asking", "cpu.answering"] {
            assert_eq!(of(transport, response), 1, "{transport} {response}: {shown}");
        }
    }
    assert!(bench.fine(&["net", "--show", "last"]).contains("over QUIC, one after another"));
    let refused = ["net", "--via", &via, "127.0.0.1", "--exchange", "udp", "--connect-each"];
    bench.refused(&refused, &["UDP has no connections"]);
    let refused = ["net", "--via", &via, "127.0.0.1", "--exchange", "udp", "--response", "65"];
    bench.refused(&refused, &["no longer than requests"]);
}
