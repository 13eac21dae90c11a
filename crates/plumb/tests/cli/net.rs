//! `plumb net`: with agents on standard streams, in namespaces and over ssh; agents and untrusted clients; experiments
//! against another host.

use plumb_report::terminal::format_bit_rate;
use serde_json::Value;

use crate::home::{TestHome, assert_valid};
use crate::support::PLUMB;

mod agent_process;
mod connection_loss;
mod errors;
mod host_pair;
mod http;
mod impaired_link;
mod iperf3;
mod malformed_messages;
mod memory;
mod nat;
mod remote_experiments;
mod ssh;
mod stamp;
mod untrusted_clients;
mod uptime;
mod watch;

/// The command of an agent on standard streams.
fn agent() -> String {
    format!("{PLUMB} agent --stdio")
}

/// The command line of a measurement with such an agent.
fn net() -> String {
    format!("net --via '{}' 127.0.0.1", agent())
}

#[test]
fn a_measurement_is_one_valid_document_and_a_run_like_any_other() {
    let bench = TestHome::new();
    let net = net();
    let found = bench.json_of(&format!("{net} --json --idle=300ms -t 1s --warm-up=100ms -P 2"));
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
    let shown = bench.json_of("show last --json");
    assert_eq!(shown["run"]["id"], run);
    assert!(shown["results"].as_array().unwrap().len() >= 8, "{shown}");
    let again = bench.json_of("net --show last --json");
    assert_eq!(again["phases"], found["phases"]);
    // The same figure everywhere: the summary's is that of the stored cell and of every page.
    let load = &found["summary"]["loads"][0];
    let results = shown["results"].as_array().unwrap();
    let is_rate =
        |cell: &&Value| cell["response"] == "received" && cell["factors"]["load"] == "down";
    let stored = results.iter().find(is_rate).unwrap();
    assert_eq!(load["bytes_per_second"], stored["summary"]["mean"], "of one round");
    let [summary, flow] =
        [load, &phases[1]["flows"][0]].map(|of| of["bytes_per_second"].as_f64().unwrap());
    assert!((summary / flow - 1.0).abs() < 1e-6, "one round: {summary} {flow}");
    let rate = format_bit_rate(summary);
    assert_eq!(bench.stdout_of("show last"), bench.stdout_of("net --show last"));
    let page = bench.path("net.html");
    bench.assert_success(&["report", "last", "-o", page.to_str().unwrap()]);
    let page = std::fs::read_to_string(page).unwrap();
    for text in [&bench.stdout_of("show last"), &page] {
        assert!(text.contains(&rate), "{rate}: {text}");
    }
    for title in ["Rate", "Round trips", "Round trips of all rounds"] {
        assert!(page.contains(&format!("<title>{title}</title>")), "{title}: {page}");
    }
    assert!(bench.stdout_of("runs").contains(run));
    bench.stdout_of("export last --format csv");
    bench.assert_errors(&[("rerun last", 2, "plumb net")]);
}

#[test]
fn a_window_beyond_the_kernels_limit_is_flagged() {
    let bench = TestHome::new();
    let net = net();
    let measure = |window: &str| {
        let options = "--json --only up -t 300ms --warm-up=100ms --probes 0 --no-store --window";
        bench.json_of(&format!("{net} {options} {window}"))
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
    let options = "--idle=200ms -t 300ms --udp 8mbit --udp-size=1000 --json";
    let found = bench.json_of(&format!("{} {options}", net()));
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
    let shown = bench.stdout_of("show last --json");
    assert!(shown.contains("net.udp"), "{shown}");
    assert!(bench.stdout_of("net --show last --details").contains("8.00 Mb/s"));
}

#[test]
fn invalid_and_unreachable_targets_are_named() {
    let bench = TestHome::new();
    let net = net();
    bench.assert_errors(&[
        ("net --via 'exit 127' 127.0.0.1", 4, "--install"),
        ("net --via 'echo hello' 127.0.0.1", 4, "hello"),
        ("net --via 'echo no such box >&2; exit 3' 127.0.0.1", 4, "no such box"),
        ("net fe80::1", 2, "fe80::1%eth0"),
        ("net --via false 127.0.0.1 --request-response tcp --udp 1mbit", 2, "--only down,up"),
        ("net --stamp 127.0.0.1 -6", 2, "127.0.0.1"),
        ("net --http 127.0.0.1 -6", 2, "127.0.0.1"),
        ("net --stamp 127.0.0.1 -P 2", 2, "--streams"),
        ("net --iperf3 127.0.0.1:7", 2, "127.0.0.1 --port 7"),
        ("net -oProxyCommand=x", 2, "-o"),
        ("net 127.0.0.1 --http 127.0.0.1:9", 2, "--http"),
        ("net --count=3 127.0.0.1", 2, "--stamp"),
        ("net host --udp 8mbit --window 1Mi", 2, "--window"),
        ("net host --udp 10", 2, "1kbit to 400gbit"),
        ("net host --udp-size 100", 2, "--udp <RATE>"),
        (&format!("{net} --watch"), 2, "--watch"),
        (&format!("{net} --request-response udp --connect-per-request"), 2, "UDP"),
        (&format!("{net} --request-response udp --response 65"), 2, "no longer than requests"),
    ]);
}

#[test]
fn requests_and_responses_are_measured_and_stored() {
    let bench = TestHome::new();
    // Long enough for some answers even if a side waits for a CPU.
    let options =
        "-t 2s --warm-up 50ms --request-response tcp,udp,tls,quic --request 100 --response 60";
    let found = bench.json_of(&format!("{} --json {options}", net()));
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
    let shown = bench.json_of("show last --json");
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
    assert!(bench.stdout_of("net --show last").contains("QUIC"));
}
