//! One launch of either program: its command lines, and what its output says.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use serde_json::Value;

use super::{EXCHANGE_PORT, NetBenchCase, NetBenchKind, NetBenchProgram, PORT};
use crate::peer_bench::peer_tool::{PeerServer, percentile_us, run_client, words};
use crate::peer_bench::{BenchCpus, BenchOptions};

/// What one launch gave: for each kind of task two figures, see [`NetBenchKind::figures`].
pub(super) type LaunchFigures = [f64; 2];

/// Command lines of a launch.
#[derive(Debug, PartialEq, Eq)]
struct CommandLines {
    /// Of a server that listens; none where the client starts the other side itself.
    server: Option<String>,
    client: String,
}

/// Runs one side of a task once.
pub(super) fn launch(
    program: NetBenchProgram,
    task: &NetBenchCase,
    bed: &BenchNetwork,
    cpus: &BenchCpus,
    options: &BenchOptions,
) -> anyhow::Result<LaunchFigures> {
    let [near, far, _] = cpus.lists("other-cpu");
    let agent = bed.far.words(&far, Vec::new()).join(" ");
    let CommandLines { server, client } =
        lines(program, task, &options.plumb, &agent, options.seconds);
    let _server = server
        .map(|line| {
            PeerServer::start(&bed.far.words(&far, words(&line)), &bed.far.tables(), port(task))
        })
        .transpose()?;
    // The part after a bar is one argument of the client: the command that starts the other side.
    let mut client: Vec<String> = match client.split_once('|') {
        Some((line, via)) => words(line).into_iter().chain([via.trim().to_owned()]).collect(),
        None => words(&client),
    };
    client = bed.near.words(&near, client);
    let text = run_client(&near, &client, options.seconds + 30)?;
    outcome(program, task, &text).with_context(|| format!("{client:?} said {text}"))
}

/// Where a task's server listens.
fn port(task: &NetBenchCase) -> u16 {
    if task.kind == NetBenchKind::Exchange { EXCHANGE_PORT } else { PORT }
}

fn lines(
    program: NetBenchProgram,
    task: &NetBenchCase,
    plumb: &Path,
    agent: &str,
    seconds: u32,
) -> CommandLines {
    let (plumb, words) = (plumb.display(), &task.peer_options);
    match (program, task.kind) {
        (NetBenchProgram::Plumb, NetBenchKind::Streams | NetBenchKind::Datagrams)
            if !task.is_own =>
        {
            CommandLines {
                server: Some(format!("{plumb} agent --iperf3 {SERVER}:{PORT} --one-off")),
                client: format!(
                    "{plumb} net --iperf3 {SERVER} -p {PORT} --json --quiet -t {seconds} {words}"
                ),
            }
        }
        (NetBenchProgram::Plumb, kind) => {
            let what = match kind {
                // As iperf3 counts: from the first byte, and without anything beside it.
                NetBenchKind::Streams | NetBenchKind::Datagrams => {
                    "--probes 0 --warm-up 0s".to_owned()
                }
                // sockperf spends 400 ms of its time on warming up.
                NetBenchKind::Exchange => "--warm-up 400ms".to_owned(),
            };
            let own = &task.plumb_options;
            CommandLines {
                server: None,
                client: format!(
                    "{plumb} net {SERVER} --json --quiet --no-store -t {seconds}s {what} {own} --via \
                     | {agent} {plumb} agent --stdio"
                ),
            }
        }
        (NetBenchProgram::Peer, NetBenchKind::Streams | NetBenchKind::Datagrams) => CommandLines {
            server: Some(format!("iperf3 -s -1 -p {PORT}")),
            client: format!("iperf3 -c {SERVER} -p {PORT} -J -t {seconds} {words}"),
        },
        (NetBenchProgram::Peer, NetBenchKind::Exchange) => CommandLines {
            server: Some(format!("sockperf server -i {SERVER} -p {EXCHANGE_PORT} {words}")),
            client: format!(
                "sockperf ping-pong -i {SERVER} -p {EXCHANGE_PORT} -m 64 -t {seconds} {words}"
            ),
        },
    }
}

fn outcome(
    program: NetBenchProgram,
    task: &NetBenchCase,
    text: &str,
) -> anyhow::Result<LaunchFigures> {
    if (program, task.kind) == (NetBenchProgram::Peer, NetBenchKind::Exchange) {
        // Half of a round trip each.
        let of = |percent| percentile_us(text, percent).map(|us| 2.0 * us);
        return Ok([of("50.000").context("no median")?, of("99.000").context("no percentile 99")?]);
    }
    let report: Value = serde_json::from_str(text).context("the report is no JSON")?;
    if program == NetBenchProgram::Plumb && task.is_own {
        own(&report, task)
    } else {
        iperf3(&report, task)
    }
}

/// The members that iperf3 and plumb in its mode both have.
fn iperf3(report: &Value, task: &NetBenchCase) -> anyhow::Result<LaunchFigures> {
    let end = &report["end"];
    let number = |value: &Value| value.as_f64().context("a figure is missing");
    // Of UDP, old versions have one sum only.
    let sum = if end["sum_received"].is_object() { &end["sum_received"] } else { &end["sum"] };
    let (bits, seconds) = (number(&sum["bits_per_second"])?, number(&sum["seconds"])?);
    let cpu = &end["cpu_utilization_percent"];
    let share = (number(&cpu["host_total"])? + number(&cpu["remote_total"])?) / 100.0;
    let bytes = number(&sum["bytes"])?;
    if bytes <= 0.0 {
        bail!("nothing was received");
    }
    let cpu_s_per_gigabyte = share * seconds / (bytes / 1e9);
    if task.kind == NetBenchKind::Datagrams {
        return Ok([number(&end["sum"]["lost_packets"])?, cpu_s_per_gigabyte]);
    }
    Ok([bits / 1e9, cpu_s_per_gigabyte])
}

/// The same of plumb's own document.
fn own(report: &Value, task: &NetBenchCase) -> anyhow::Result<LaunchFigures> {
    let number = |value: &Value| value.as_f64().context("a figure is missing");
    let phase = &report["phases"][0];
    if task.kind == NetBenchKind::Exchange {
        let latency = &phase["exchange"]["latency"];
        return Ok([number(&latency["p50_ns"])? / 1e3, number(&latency["p99_ns"])? / 1e3]);
    }
    // Of whole processes, as the other program counts them.
    let cost = |bytes: f64| {
        if bytes <= 0.0 {
            bail!("nothing was received");
        }
        let seconds = number(&phase["cpu_here"]["process_seconds"])?
            + number(&phase["cpu_there"]["process_seconds"])?;
        Ok(seconds / (bytes / 1e9))
    };
    if task.kind == NetBenchKind::Datagrams {
        let stream = &phase["datagrams"][0];
        let bytes = number(&stream["received"])? * number(&stream["datagram_bytes"])?;
        return Ok([number(&stream["lost"])?, cost(bytes)?]);
    }
    let flow = &phase["flows"][0];
    Ok([number(&flow["bytes_per_second"])? * 8.0 / 1e9, cost(number(&flow["bytes"])?)?])
}

/// The client's address.
const CLIENT: &str = "10.78.0.1";
/// The server's address.
pub(super) const SERVER: &str = "10.78.0.2";

/// A network namespace, held by a process that ends when its input does: with this one, at the latest.
#[derive(Debug)]
pub(super) struct BenchNamespace(Child);

impl BenchNamespace {
    fn new() -> anyhow::Result<Self> {
        let child = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .context("unshare(1) cannot be run")?;
        let mut namespace = Self(child);
        let own = std::fs::read_link("/proc/self/ns/net")?;
        let of = format!("/proc/{}/ns/net", namespace.0.id());
        // It has left this one once the link says so; it says nothing itself.
        while std::fs::read_link(&of).map_or(true, |link| link == own) {
            if let Some(status) = namespace.0.try_wait()? {
                bail!("no namespace: unshare ended with {status}");
            }
            std::thread::yield_now();
        }
        Ok(namespace)
    }

    fn run(&self, line: &str) -> anyhow::Result<()> {
        let output = Command::new("nsenter")
            .args(["-t", &self.0.id().to_string(), "-n"])
            .args(line.split_whitespace())
            .output()
            .context("nsenter(1) cannot be run")?;
        if !output.status.success() {
            bail!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// A command in it, on a CPU.
    pub fn words(&self, cpu: &str, command: Vec<String>) -> Vec<String> {
        let pid = self.0.id().to_string();
        let mut words: Vec<String> =
            ["nsenter", "-t", &pid, "-n", "taskset", "-c", cpu].map(str::to_owned).into();
        words.extend(command);
        words
    }

    /// Where the kernel lists who listens in it.
    pub fn tables(&self) -> [String; 4] {
        ["tcp", "tcp6", "udp", "udp6"].map(|table| format!("/proc/{}/net/{table}", self.0.id()))
    }
}

impl Drop for BenchNamespace {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two namespaces and a veth between.
#[derive(Debug)]
pub(super) struct BenchNetwork {
    pub(super) near: BenchNamespace,
    pub(super) far: BenchNamespace,
}

impl BenchNetwork {
    pub fn new() -> anyhow::Result<Self> {
        let (near, far) = (BenchNamespace::new()?, BenchNamespace::new()?);
        near.run(&format!("ip link add race0 type veth peer name race0 netns {}", far.0.id()))?;
        for (side, address) in [(&near, CLIENT), (&far, SERVER)] {
            side.run(&format!("ip address add {address}/24 dev race0"))?;
            side.run("ip link set lo up")?;
            side.run("ip link set race0 up")?;
        }
        Ok(Self { near, far })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn task(kind: NetBenchKind, is_own: bool) -> NetBenchCase {
        let word = |text: &str| text.to_owned();
        NetBenchCase {
            name: word("task"),
            peer_options: word("-P 4"),
            plumb_options: word("-P 4"),
            kind,
            is_own,
        }
    }

    fn is_close(found: LaunchFigures, wanted: LaunchFigures) -> bool {
        found.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-9)
    }

    #[test]
    fn both_programs_get_the_same_words() {
        let plumb = Path::new("plumb");
        for task in super::super::tasks() {
            for program in [NetBenchProgram::Plumb, NetBenchProgram::Peer] {
                let CommandLines { server, client } = lines(program, &task, plumb, "nsenter", 3);
                let is_via = program == NetBenchProgram::Plumb && task.is_own;
                assert_eq!(server.is_none(), is_via, "{client}");
                assert_eq!(client.contains('|'), is_via, "{client}");
                let words = if is_via { &task.plumb_options } else { &task.peer_options };
                assert!(client.contains(words.as_str()), "{client}");
            }
        }
    }

    #[test]
    fn a_report_gives_the_receivers_rate_and_the_time_of_both_processors() {
        let report = json!({"end": {
            "sum": {"lost_packets": 7},
            "sum_received": {"bits_per_second": 8e9, "seconds": 2.0, "bytes": 2e9},
            "cpu_utilization_percent": {"host_total": 50.0, "remote_total": 100.0},
        }});
        let streams = task(NetBenchKind::Streams, false);
        assert!(is_close(iperf3(&report, &streams).unwrap(), [8.0, 1.5]));
        assert!(iperf3(&json!({"end": {}}), &streams).is_err());
        let lost = iperf3(&report, &task(NetBenchKind::Datagrams, false)).unwrap();
        assert!(is_close(lost, [7.0, 1.5]));
        let report = json!({"phases": [{"flows": [{"bytes_per_second": 1e9, "bytes": 4e9}],
            "cpu_here": {"process_seconds": 1.0}, "cpu_there": {"process_seconds": 2.0}}]});
        assert!(is_close(own(&report, &task(NetBenchKind::Streams, true)).unwrap(), [8.0, 0.75]));
    }

    #[test]
    fn round_trips_are_whole_ones_on_both_sides() {
        let task = task(NetBenchKind::Exchange, true);
        let sockperf = "sockperf: ---> percentile 99.000 =   20.000\n\
                        sockperf: ---> percentile 50.000 =   10.500\n";
        assert!(is_close(outcome(NetBenchProgram::Peer, &task, sockperf).unwrap(), [21.0, 40.0]));
        let plumb = json!({"phases": [{"exchange": {"latency": {"p50_ns": 21e3, "p99_ns": 4e4}}}]});
        let found = outcome(NetBenchProgram::Plumb, &task, &plumb.to_string()).unwrap();
        assert!(is_close(found, [21.0, 40.0]));
    }
}
