//! `plumb net` as its users run it: over an agent's standard streams, between namespaces, over ssh; an agent among
//! untrusted clients; and experiments against another host.

use serde_json::Value;

use crate::home::{TestHome, assert_valid, document};
use crate::support::PLUMB;

mod agent_process;
mod connection_loss;
mod errors;
mod host_pair;
mod http_documents;
mod http_peers;
mod impaired_link;
mod iperf3;
mod malformed_messages;
mod nat;
mod remote_experiments;
mod ssh;
mod stamp;
mod untrusted_clients;
mod uptime;
mod watch;

/// The command that gives an agent's standard streams.
fn agent() -> String {
    format!("{PLUMB} agent --stdio")
}

#[test]
fn a_measurement_is_one_valid_document_and_a_run_like_any_other() {
    let bench = TestHome::new();
    let via = agent();
    let words = ["net", "--via", &via, "127.0.0.1", "--json", "--idle=300ms", "-t", "400ms"];
    let text = bench.stdout_of(&[&words[..], &["--warm-up=100ms", "-P", "2"]].concat());
    let found = document(&text);
    assert_valid(&found, "plumb.net/1");
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
    let shown = document(&bench.stdout_of(&["show", "last", "--json"]));
    assert_eq!(shown["run"]["id"], run);
    assert!(shown["results"].as_array().unwrap().len() >= 8, "{shown}");
    let again = document(&bench.stdout_of(&["net", "--show", "last", "--json"]));
    assert_eq!(again["phases"], found["phases"]);
    assert!(bench.stdout_of(&["runs"]).contains(run));
    bench.stdout_of(&["export", "last", "--format", "csv"]);
    bench.assert_refused(&["rerun", "last"], &["measured between two hosts", "plumb"]);
}

#[test]
fn a_window_beyond_the_kernels_limit_is_flagged() {
    let bench = TestHome::new();
    let via = agent();
    let words = ["net", "--via", &via, "127.0.0.1", "--json", "--only", "up", "-t", "300ms"];
    let measure = |window: &str| {
        let more = ["--warm-up=100ms", "--probes", "0", "--no-store", "--window", window];
        document(&bench.stdout_of(&[&words[..], &more].concat()))
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
fn paced_datagrams_are_a_phase_of_document_run_and_page() {
    let bench = TestHome::new();
    let via = agent();
    let words =
        ["net", "--via", &via, "127.0.0.1", "--idle=200ms", "-t", "300ms", "--udp", "8mbit"];
    let found = document(&bench.stdout_of(&[&words[..], &["--udp-size=1000", "--json"]].concat()));
    let phases = found["phases"].as_array().unwrap();
    let names: Vec<_> = phases.iter().map(|phase| phase["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["idle", "udp-down", "udp-up"]);
    for (phase, direction) in phases[1..].iter().zip(["down", "up"]) {
        let stream = &phase["datagrams"][0];
        assert_eq!((&stream["direction"], &stream["planned"]), (&direction.into(), &300.into()));
        // A busy host may lose some, but at its ends, never on the way.
        let number = |name: &str| stream[name].as_u64().unwrap();
        assert!((1..=300).contains(&number("received")), "{stream}");
        assert_eq!(number("received") + number("lost"), number("sent"), "{stream}");
        assert_eq!(stream["lost_at"]["path"], 0, "{stream}");
        assert!(stream["one_way"]["least_ns"].as_f64().unwrap() > 0.0, "{stream}");
        assert!(stream["intervals"].as_array().unwrap().len() > 1, "{stream}");
        assert!(phase["flows"].as_array().unwrap().is_empty());
    }
    assert!(found["mtu"]["path_bytes"].as_u64().unwrap() > 1_000, "{}", found["mtu"]);
    assert_eq!((&found["clocks"]["same"], &found["clocks"]["steps"]), (&true.into(), &0.into()));
    let shown = bench.stdout_of(&["show", "last", "--json"]);
    assert!(shown.contains("net.udp"), "{shown}");
    let page = bench.stdout_of(&["net", "--show", "last"]);
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["of 300", "8.00 Mb/s asked for", "one clock on both sides", "packet up:"] {
        assert!(page.contains(part), "no '{part}' in\n{page}");
    }
    bench.assert_refused(
        &["net", "host", "--udp", "8mbit", "--window", "1Mi"],
        &["cannot be used with"],
    );
    bench.assert_refused(&["net", "host", "--udp", "10"], &["1kbit to 400gbit"]);
    bench.assert_refused(&["net", "host", "--udp-size", "100"], &["--udp <RATE>"]);
}

#[test]
fn what_is_not_there_is_named_with_its_fix() {
    let bench = TestHome::new();
    bench.assert_refused(&["net", "no-such-host.invalid"], &["is not known", "fix:"]);
    bench.assert_refused(
        &["net", "--via", "exit 127", "127.0.0.1"],
        &["there is no plumb", "--install"],
    );
    bench.assert_refused(&["net", "--via", "echo hello", "127.0.0.1"], &["is not plumb", "hello"]);
    let refused = "echo 'ssh: connect to host x port 22: Connection refused' >&2; exit 255";
    bench.assert_refused(&["net", "--via", refused, "127.0.0.1"], &["refuses connections", "fix:"]);
    let ended = ["net", "--via", "echo no such box >&2; exit 3", "127.0.0.1"];
    bench.assert_refused(&ended, &["ended with 3", "no agent answered", "no such box", "fix:"]);
    bench.assert_refused(&["net", "fe80::1"], &["on which link", "fe80::1%eth0"]);
    let both =
        ["net", "--via", "false", "127.0.0.1", "--request-response", "tcp", "--udp", "1mbit"];
    bench.assert_refused(&both, &["--udp needs a direction", "--only down,up"]);
    bench.assert_refused(&["net", "--stamp", "127.0.0.1", "-6"], &["no address of that family"]);
    bench.assert_refused(&["net", "--http", "127.0.0.1", "-6"], &["no address of that family"]);
    bench.assert_refused(&["net", "--stamp", "127.0.0.1", "-P", "2"], &["cannot be used with"]);
    bench.assert_refused(&["net", "--iperf3", "127.0.0.1:7"], &["127.0.0.1 --port 7"]);
    bench.assert_refused(&["net", "-oProxyCommand=x"], &["unexpected argument"]);
    bench.assert_refused(
        &["net", "--via", &agent(), "127.0.0.1", "--watch"],
        &["no terminal", "fix:"],
    );
    let words = ["net", "--via", &agent(), "127.0.0.1", "--only", "up", "-C", "nosuchcc"];
    bench.assert_refused(&words, &["no congestion control 'nosuchcc'"]);
}

#[test]
fn requests_and_responses_are_measured_and_stored() {
    let bench = TestHome::new();
    let via = agent();
    let mut words = vec!["net", "--via", &via, "127.0.0.1", "-t", "300ms", "--warm-up", "50ms"];
    words.extend([
        "--json",
        "--request-response",
        "tcp,udp,tls,quic",
        "--request",
        "100",
        "--response",
        "60",
    ]);
    let found = document(&bench.stdout_of(&words));
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
    let shown = document(&bench.stdout_of(&["show", "last", "--json"]));
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
    assert!(bench.stdout_of(&["net", "--show", "last"]).contains("over QUIC, one after another"));
    let refused =
        ["net", "--via", &via, "127.0.0.1", "--request-response", "udp", "--connect-per-request"];
    bench.assert_refused(&refused, &["UDP has no connections"]);
    let refused =
        ["net", "--via", &via, "127.0.0.1", "--request-response", "udp", "--response", "65"];
    bench.assert_refused(&refused, &["no longer than requests"]);
}
