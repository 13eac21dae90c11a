//! The peers: sockperf, iperf3 and qperf, a fresh server and a fresh client for each launch.
//!
//! Each is run as its own documentation says for the question at hand, and placed by taskset(1).

use std::net::{TcpListener, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;

use super::{BenchCpus, BenchKind, BenchOptions, BenchTool, PeerComparison};

const HOST: &str = "127.0.0.1";

/// Runs one launch and gives its figure: nanoseconds of half a round trip, or bytes a second.
pub(super) fn launch(
    peer: BenchTool,
    contest: &PeerComparison,
    cpus: &BenchCpus,
    seconds: u32,
    congestion: Option<&str>,
) -> anyhow::Result<f64> {
    let port = free_port()?;
    let [local, remote, _] = cpus.lists(contest.placement);
    let [server, client] = command_lines(peer, contest, port, seconds, congestion);
    let protocol = if peer == BenchTool::Sockperf { contest.protocol } else { "tcp" };
    let server = [words(&format!("taskset -c {remote}")), server].concat();
    let tables = ["", "6"].map(|six| format!("/proc/net/{protocol}{six}"));
    let _server = PeerServer::start(&server, &tables, port)?;
    let text = run_client(&local, &client, seconds + 20)?;
    let value = match peer {
        BenchTool::Sockperf => percentile_us(&text, "50.000").map(|us| us * 1e3),
        BenchTool::Iperf3 => iperf3_bytes_s(&text),
        BenchTool::Qperf => qperf_figure(&text),
        BenchTool::Plumb => bail!("plumb is not its own peer"),
    };
    value.with_context(|| format!("{client:?} printed nothing that is understood:\n{text}"))
}

/// Server's and client's command lines.
fn command_lines(
    peer: BenchTool,
    contest: &PeerComparison,
    port: u16,
    seconds: u32,
    congestion: Option<&str>,
) -> [Vec<String>; 2] {
    let PeerComparison { kind, protocol, wake, size, .. } = contest;
    let lines = match peer {
        BenchTool::Plumb => [String::new(), String::new()],
        BenchTool::Sockperf => {
            let tcp = if *protocol == "tcp" { "--tcp" } else { "" };
            let spin = if *wake == "spin" { "--nonblocked" } else { "" };
            let both = format!("-i {HOST} -p {port} {tcp} {spin}");
            [
                format!("sockperf server {both}"),
                format!("sockperf ping-pong {both} -m {size} -t {seconds}"),
            ]
        }
        BenchTool::Iperf3 => {
            let congestion = congestion.map_or_else(String::new, |name| format!("-C {name}"));
            [
                format!("iperf3 -s -1 -p {port}"),
                format!("iperf3 -c {HOST} -p {port} -l {size} -t {seconds} -J {congestion}"),
            ]
        }
        BenchTool::Qperf => {
            let test = if *kind == BenchKind::Bulk { "bw" } else { "lat" };
            let both = format!("qperf --listen_port {port}");
            let how = format!("-t {seconds} -m {size} --unify_units --precision 6");
            [both.clone(), format!("{both} {how} {HOST} {protocol}_{test}")]
        }
    };
    lines.map(|line| words(&line))
}

pub(super) fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// A server that is ended when this is dropped.
#[derive(Debug)]
pub(super) struct PeerServer(Child);

impl PeerServer {
    /// Starts it and returns once the port is in one of these tables of the kernel's.
    pub fn start(line: &[String], tables: &[String], port: u16) -> anyhow::Result<Self> {
        let (program, words) = line.split_first().context("an empty command line")?;
        let child = Command::new(program)
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .with_context(|| format!("{program} cannot be run"))?;
        let mut server = Self(child);
        server.await_port(tables, port).with_context(|| format!("{line:?}"))?;
        Ok(server)
    }

    /// Returns once the port is bound: the servers do not announce it where it could be read.
    fn await_port(&mut self, tables: &[String], port: u16) -> anyhow::Result<()> {
        for _ in 0..500 {
            let read = |table: &String| std::fs::read_to_string(table).unwrap_or_default();
            if tables.iter().any(|table| is_listening(&read(table), port)) {
                return Ok(());
            }
            if let Some(status) = self.0.try_wait().context("the server is lost")? {
                bail!("the server ended at once ({status}); is it installed?");
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "the kernel has no event for a bound port"
            )]
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("the server did not listen on port {port} within 5 s")
    }
}

impl Drop for PeerServer {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a socket of the kernel's table awaits connections or datagrams there: what is left of the
/// connections of an earlier server does not.
fn is_listening(table: &str, port: u16) -> bool {
    const LISTENS: &str = "0A";
    const UNCONNECTED: &str = "07";
    let suffix = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut words = line.split_whitespace().skip(1);
        let is_there = words.next().is_some_and(|address| address.ends_with(&suffix));
        is_there && words.nth(1).is_some_and(|state| [LISTENS, UNCONNECTED].contains(&state))
    })
}

/// A port that neither TCP nor UDP uses just now.
fn free_port() -> anyhow::Result<u16> {
    for _ in 0..20 {
        let tcp = TcpListener::bind((HOST, 0)).context("no free port")?;
        let port = tcp.local_addr()?.port();
        if UdpSocket::bind((HOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port is free for both TCP and UDP")
}

pub(super) fn run_client(cpus: &str, line: &[String], limit: u32) -> anyhow::Result<String> {
    let output = Command::new("timeout")
        .args([&limit.to_string(), "taskset", "-c", cpus])
        .args(line)
        .stdin(Stdio::null())
        .output()
        .context("timeout(1) cannot be run")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        bail!("{line:?} failed with {}: {}{}", output.status, text.trim(), errors.trim());
    }
    Ok(text)
}

/// One of the percentiles that sockperf prints of half a round trip: `sockperf: ---> percentile 50.000 =    5.868`.
pub(super) fn percentile_us(text: &str, percent: &str) -> Option<f64> {
    let wanted = format!("percentile {percent}");
    let line = text.lines().find(|line| line.contains(&wanted))?;
    line.rsplit('=').next()?.trim().parse().ok()
}

/// What the receiver counted.
fn iperf3_bytes_s(text: &str) -> Option<f64> {
    let document: Value = serde_json::from_str(text).ok()?;
    Some(document["end"]["sum_received"]["bits_per_second"].as_f64()? / 8.0)
}

/// `    latency  =  27089.3 ns` or `    bw  =  6338904064 bytes/sec`: with unified units.
fn qperf_figure(text: &str) -> Option<f64> {
    let (_, figure) = text.lines().find_map(|line| line.split_once('='))?;
    let mut words = figure.split_whitespace();
    let value: f64 = words.next()?.parse().ok()?;
    matches!(words.next(), Some("ns" | "bytes/sec")).then_some(value)
}

/// One launch: nanoseconds of half a round trip, or bytes a second.
pub(super) fn launch_plumb(
    contest: &PeerComparison,
    cpus: &BenchCpus,
    options: &BenchOptions,
    congestion: Option<&str>,
) -> anyhow::Result<f64> {
    let seconds = options.seconds;
    let folder = tempfile::tempdir().context("no temporary folder for plan and store")?;
    let file = folder.path().join("race.toml");
    std::fs::write(&file, plan(contest, seconds, congestion)).context("the plan")?;
    let [_, _, both] = cpus.lists(contest.placement);
    let mut command = Command::new("timeout");
    command.args([&(seconds + 60).to_string(), "taskset", "-c", &both]).arg(&options.plumb);
    command.arg("run").arg(&file).args(["--json", "--no-progress", "--store"]);
    command.arg(folder.path().join("race.plumb"));
    let output = command.output().context("timeout(1) or taskset(1) cannot be run")?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let document = serde_json::from_slice(&output.stdout).context("plumb's output is not JSON")?;
    parse(&document, contest)
}

/// The contest as a plan of one launch with one block.
///
/// The block lasts as long as the peer's measuring: sockperf spends 400 ms of its time on warming
/// up and trims 50 ms off the end.
fn plan(contest: &PeerComparison, seconds: u32, congestion: Option<&str>) -> String {
    let (experiment, ms) = match contest.kind {
        BenchKind::PingPong => ("latency.local", seconds * 1000 - 450),
        BenchKind::Bulk => ("throughput.local", seconds * 1000),
    };
    let PeerComparison { protocol, size, placement, wake, .. } = contest;
    let mut plan = format!(
        "title = \"race\"\n\
         [limits]\n\
         launches_min = 1\nlaunches_max = 1\npasses = 1\n\
         block = \"{ms}ms\"\nsamples_max = 1000000\n\
         [[experiment]]\n\
         id = \"{experiment}\"\n\
         [experiment.factors]\n\
         mechanism = [\"{protocol}4\"]\nsize = [{size}]\n\
         placement = [\"{placement}\"]\nwake = [\"{wake}\"]\n"
    );
    let congestion = congestion.map(|name| format!("congestion = [\"{name}\"]\n"));
    plan.push_str(congestion.as_deref().unwrap_or_default());
    plan
}

/// The launch's median latency; or the bytes of its transfers over the wall time of all of them,
/// as iperf3 counts.
fn parse(document: &Value, contest: &PeerComparison) -> anyhow::Result<f64> {
    let response = match contest.kind {
        BenchKind::PingPong => "latency",
        BenchKind::Bulk => "throughput",
    };
    let results = document["results"].as_array().map_or(&[] as &[Value], Vec::as_slice);
    let result = results.iter().find(|result| result["response"] == response);
    let value = result.and_then(|result| match contest.kind {
        BenchKind::PingPong => result["summary"]["launch_medians"][0].as_f64(),
        BenchKind::Bulk => Some(contest.size as f64 / (result["cpu"]["wall"].as_f64()? * 1e-9)),
    });
    let value = value.filter(|value| value.is_finite() && *value > 0.0);
    value.with_context(|| {
        format!("the run document has no {response}; unavailable: {}", document["unavailable"])
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_port_is_awaited_by_who_listens_and_by_a_bound_datagram_socket_and_not_by_old_connections()
    {
        let line = |state: &str| {
            format!(
                "  sl  local_address rem_address   st\n   0: 02004E0A:14B5 01004E0A:C350 {state} 0:0\n"
            )
        };
        assert!(is_listening(&line("0A"), 5301));
        assert!(is_listening(&line("07"), 5301));
        assert!(!is_listening(&line("06"), 5301), "TIME_WAIT");
        assert!(!is_listening(&line("01"), 5301), "established");
        assert!(!is_listening(&line("0A"), 50_000), "the other side's port");
    }

    #[test]
    fn the_peers_own_words_are_understood() {
        let sockperf = "sockperf: ---> percentile 75.000 =    6.013\n\
                        sockperf: ---> percentile 50.000 =    5.868\n";
        let close = |found: Option<f64>, wanted: f64| (found.unwrap() - wanted).abs() < 1e-6;
        assert!(close(percentile_us(sockperf, "50.000"), 5.868));
        let iperf3 = r#"{"end": {"sum_received": {"bits_per_second": 8e9}}}"#;
        assert!(close(iperf3_bytes_s(iperf3), 1e9));
        assert!(close(qperf_figure("tcp_lat:\n    latency  =  27089.3 ns\n"), 27089.3));
        assert!(close(qperf_figure("tcp_bw:\n    bw  =  6338904064 bytes/sec\n"), 6_338_904_064.0));
    }

    #[test]
    fn other_words_are_not_taken_for_a_figure() {
        assert_eq!(percentile_us("sockperf: No messages were received", "50.000"), None);
        assert_eq!(iperf3_bytes_s(r#"{"error": "unable to connect"}"#), None);
        assert_eq!(qperf_figure("    latency  =  27.1 us\n"), None);
    }

    #[test]
    fn both_sides_of_sockperf_wait_in_the_way_of_the_contest() {
        for contest in PeerComparison::all(true).iter().filter(|c| c.kind == BenchKind::PingPong) {
            let [server, client] = command_lines(BenchTool::Sockperf, contest, 1, 1, None);
            for side in [server, client] {
                let spins = side.iter().any(|word| word == "--nonblocked");
                assert_eq!(spins, contest.wake == "spin", "{}", contest.name);
            }
        }
    }

    #[test]
    fn a_plan_is_toml_and_measures_as_long_as_sockperf_does() {
        for contest in PeerComparison::all(true) {
            let plan: toml::Table = plan(&contest, 1, Some("cubic")).parse().unwrap();
            let block = plan["limits"]["block"].as_str().unwrap();
            assert_eq!(block == "550ms", contest.kind == BenchKind::PingPong, "{block}");
        }
    }

    fn contest(kind: BenchKind) -> PeerComparison {
        PeerComparison::all(true)
            .into_iter()
            .find(|c| c.kind == kind)
            .expect("both kinds are raced")
    }

    #[test]
    fn the_figure_of_the_contests_response_is_read() {
        let document = json!({
            "results": [
                {"response": "other", "summary": {"launch_medians": [1.0]}},
                {"response": "latency", "summary": {"launch_medians": [5800.0]}},
                {"response": "throughput", "cpu": {"wall": 131_072.0}},
            ],
            "unavailable": [],
        });
        let close = |kind, wanted: f64| {
            (parse(&document, &contest(kind)).unwrap() / wanted - 1.0).abs() < 1e-9
        };
        assert!(close(BenchKind::PingPong, 5800.0));
        assert!(close(BenchKind::Bulk, 1e9));
    }

    #[test]
    fn a_document_without_the_result_says_why() {
        let document = json!({"results": [], "unavailable": [{"reason": "one CPU only"}]});
        let error = parse(&document, &contest(BenchKind::PingPong)).unwrap_err().to_string();
        assert!(error.contains("one CPU only"), "{error}");
    }
}
