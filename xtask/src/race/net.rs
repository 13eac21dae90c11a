//! The race of the networks: plumb's client and agent against iperf3's, between two namespaces that a veth
//! joins.
//!
//! Both sides of each launch are fresh processes, the client on one CPU and the server on another. The
//! namespaces have no names: they last as long as this process, however it ends. Left out: links that
//! delay or drop, where the link and not the program decides.

use std::fmt;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use plumb_base::stats::hierarchy::{self, Hierarchy, Pairing, Ratio};
use serde_json::Value;

use super::Options;
use super::contest::{self, Cpus, Placement};
use super::peer::{Server, run_client};
use super::score::{CONFIDENCE, SEED, Target, Verdict};

const CLIENT: &str = "10.78.0.1";
const SERVER: &str = "10.78.0.2";
const PORT: u16 = 5301;

/// One task for both programs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Task {
    name: String,
    /// Options of the client, which both spell alike.
    words: String,
    datagrams: bool,
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Program {
    Plumb,
    Iperf3,
}

/// What one launch gave.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Outcome {
    /// Gigabits a second at the receiver.
    gigabits: f64,
    /// Processor seconds of both programs for each gigabyte received.
    cpu_s_per_gigabyte: f64,
    /// Datagrams lost.
    lost: f64,
}

fn tasks() -> Vec<Task> {
    let mut tasks = Vec::new();
    for streams in [1, 4, 16] {
        for (way, word) in [("up", ""), ("down", " -R")] {
            let name = format!("tcp, {streams} stream(s), {way}");
            tasks.push(Task { name, words: format!("-P {streams}{word}"), datagrams: false });
        }
    }
    for (way, word) in [("up", ""), ("down", " -R")] {
        let name = format!("udp, 500 Mb/s, {way}");
        tasks.push(Task { name, words: format!("-u -b 500M -l 1400{word}"), datagrams: true });
    }
    tasks
}

/// Runs every task and prints its rows; whether no target was missed.
///
/// # Errors
/// When namespaces cannot be made, a program cannot be run, or its output is not understood.
pub fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<bool> {
    if !options.plumb.is_file() {
        bail!("{} is missing: cargo build --release", options.plumb.display());
    }
    let tasks: Vec<Task> =
        tasks().into_iter().filter(|task| task.name.contains(&options.only)).collect();
    if tasks.is_empty() {
        bail!("nothing has `{}` in its name", options.only);
    }
    let bed = Bed::new().context("two network namespaces and a veth: this needs root")?;
    let cpus = contest::cpus()?;
    writeln!(
        out,
        "{} launches of each side, in turn; client and server on CPU {cpus}, a veth between.\n\
         Rates are the receiver's; processor time is both programs', as each says itself.\n",
        options.launches
    )?;
    writeln!(
        out,
        "{:<28} {:<12} {:>9} {:>9}  {:<22} target",
        "task", "figure", "plumb", "iperf3", "ratio [95 %]"
    )?;
    let mut verdicts = Vec::new();
    for task in &tasks {
        let outcomes = race(task, &bed, &cpus, options)
            .with_context(|| format!("the race of `{}` failed", task.name))?;
        for row in rows(task, &outcomes)? {
            writeln!(out, "{row}")?;
            out.flush()?;
            verdicts.extend(row.verdict);
        }
    }
    let count = |wanted| verdicts.iter().filter(|verdict| **verdict == wanted).count();
    let (pass, close, miss) = (count(Verdict::Pass), count(Verdict::Close), count(Verdict::Miss));
    writeln!(out, "\n{pass} PASS, {close} CLOSE (not told apart from the target), {miss} MISS")?;
    Ok(miss == 0)
}

/// Every launch of a task: plumb's, then iperf3's.
fn race(
    task: &Task,
    bed: &Bed,
    cpus: &Cpus,
    options: &Options,
) -> anyhow::Result<[Vec<Outcome>; 2]> {
    let mut outcomes = [Vec::new(), Vec::new()];
    for round in 0..options.launches {
        let mut order = [Program::Plumb, Program::Iperf3];
        if round % 2 == 1 {
            order.reverse();
        }
        for program in order {
            let outcome = launch(program, task, bed, cpus, options)?;
            outcomes[usize::from(program == Program::Iperf3)].push(outcome);
        }
    }
    Ok(outcomes)
}

fn launch(
    program: Program,
    task: &Task,
    bed: &Bed,
    cpus: &Cpus,
    options: &Options,
) -> anyhow::Result<Outcome> {
    let (server, client) = command_lines(program, task, &options.plumb, options.seconds);
    let [near, far, _] = cpus.lists(Placement::OtherCpu);
    let server = bed.far.words(&far, server);
    let tables = bed.far.tables();
    let _server = Server::start_in(&server, &tables, PORT)?;
    let client = bed.near.words(&near, client);
    let text = run_client(&near, &client, options.seconds + 30)?;
    let report: Value = serde_json::from_str(&text).context("the report is no JSON")?;
    outcome(&report, task).with_context(|| format!("{client:?} said {text}"))
}

/// Server's and client's words.
fn command_lines(
    program: Program,
    task: &Task,
    plumb: &Path,
    seconds: u32,
) -> (Vec<String>, Vec<String>) {
    let plumb = plumb.display();
    let (server, client) = match program {
        Program::Plumb => (
            format!("{plumb} agent --iperf3 {SERVER}:{PORT} --one-off"),
            format!("{plumb} net --iperf3 {SERVER} -p {PORT} --json --quiet"),
        ),
        Program::Iperf3 => {
            (format!("iperf3 -s -1 -p {PORT}"), format!("iperf3 -c {SERVER} -p {PORT} -J"))
        }
    };
    let client = format!("{client} -t {seconds} {}", task.words);
    let words = |line: String| line.split_whitespace().map(str::to_owned).collect();
    (words(server), words(client))
}

/// The same members of both programs' documents.
fn outcome(report: &Value, task: &Task) -> anyhow::Result<Outcome> {
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
    let lost = if task.datagrams { number(&end["sum"]["lost_packets"])? } else { 0.0 };
    Ok(Outcome { gigabits: bits / 1e9, cpu_s_per_gigabyte: share * seconds / (bytes / 1e9), lost })
}

/// One line of the table.
#[derive(Debug)]
struct Row<'a> {
    task: &'a str,
    figure: &'static str,
    medians: [f64; 2],
    ratio: Option<Ratio>,
    target: Option<Target>,
    verdict: Option<Verdict>,
}

fn rows<'a>(task: &'a Task, outcomes: &[Vec<Outcome>; 2]) -> anyhow::Result<Vec<Row<'a>>> {
    let of = |figure: fn(&Outcome) -> f64| -> [Vec<f64>; 2] {
        [0, 1].map(|program| outcomes[program].iter().map(figure).collect())
    };
    let ratio = |figure, values: [Vec<f64>; 2], target: Option<Target>| {
        let launches = |values: &[f64]| {
            Hierarchy::new(values.iter().map(|value| vec![vec![*value]]).collect())
        };
        let [ours, theirs] = [launches(&values[0]), launches(&values[1])];
        let ratio = hierarchy::ratio(&theirs, &ours, Pairing::Paired, CONFIDENCE, SEED)
            .context("too few launches for an interval")?;
        anyhow::Ok(Row {
            task: &task.name,
            figure,
            medians: [ours.quantile(0.5), theirs.quantile(0.5)],
            verdict: target.map(|target| target.judge(ratio.estimate, ratio.interval)),
            ratio: Some(ratio),
            target,
        })
    };
    if !task.datagrams {
        return Ok(vec![
            ratio("Gb/s", of(|outcome| outcome.gigabits), Some(Target::AtLeast(1.0)))?,
            ratio("CPU s/GB", of(|outcome| outcome.cpu_s_per_gigabyte), Some(Target::AtMost(1.0)))?,
        ]);
    }
    let lost = of(|outcome| outcome.lost);
    let worst = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let medians = [worst(&lost[0]), worst(&lost[1])];
    let verdict = if medians[0] > 0.0 { Verdict::Miss } else { Verdict::Pass };
    let lost = Row {
        task: &task.name,
        figure: "most lost",
        medians,
        ratio: None,
        target: Some(Target::AtMost(0.0)),
        verdict: Some(verdict),
    };
    let cpu = ratio("CPU s/GB", of(|outcome| outcome.cpu_s_per_gigabyte), None)?;
    Ok(vec![lost, cpu])
}

impl fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [ours, theirs] = self.medians;
        write!(f, "{:<28} {:<12} {ours:>9.3} {theirs:>9.3}  ", self.task, self.figure)?;
        let ratio = self.ratio.map_or_else(String::new, |ratio| {
            format!("{:.3} [{:.3}, {:.3}]", ratio.estimate, ratio.interval.lo, ratio.interval.hi)
        });
        write!(f, "{ratio:<22}")?;
        if let (Some(target), Some(verdict)) = (self.target, self.verdict) {
            write!(f, " {target} {verdict}")?;
        }
        Ok(())
    }
}

/// A network namespace, held by a process that ends when its input does: with this one, at the latest.
#[derive(Debug)]
struct Namespace(Child);

impl Namespace {
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
    fn words(&self, cpu: &str, command: Vec<String>) -> Vec<String> {
        let pid = self.0.id().to_string();
        let mut words: Vec<String> =
            ["nsenter", "-t", &pid, "-n", "taskset", "-c", cpu].map(str::to_owned).into();
        words.extend(command);
        words
    }

    /// Where the kernel lists who listens in it.
    fn tables(&self) -> [String; 2] {
        ["tcp", "tcp6"].map(|table| format!("/proc/{}/net/{table}", self.0.id()))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two namespaces and a veth between.
#[derive(Debug)]
struct Bed {
    near: Namespace,
    far: Namespace,
}

impl Bed {
    fn new() -> anyhow::Result<Self> {
        let (near, far) = (Namespace::new()?, Namespace::new()?);
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
    use serde_json::json;

    use super::*;

    fn task(datagrams: bool) -> Task {
        Task { name: "task".to_owned(), words: String::new(), datagrams }
    }

    #[test]
    fn both_programs_get_the_same_words() {
        for task in tasks() {
            let plumb = Path::new("plumb");
            for program in [Program::Plumb, Program::Iperf3] {
                let (_, client) = command_lines(program, &task, plumb, 3);
                let line = client.join(" ");
                assert!(line.ends_with(&format!("-t 3 {}", task.words)), "{line}");
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
        let wanted = Outcome { gigabits: 8.0, cpu_s_per_gigabyte: 1.5, lost: 0.0 };
        assert_eq!(outcome(&report, &task(false)).unwrap(), wanted);
        assert!(outcome(&json!({"end": {}}), &task(false)).is_err());
        let lost = outcome(&report, &task(true)).unwrap().lost;
        assert!((lost - 7.0).abs() < 1e-9);
    }

    #[test]
    fn a_slower_program_misses_and_a_lost_datagram_does_too() {
        let of = |gigabits: f64, lost: f64| Outcome { gigabits, cpu_s_per_gigabyte: 1.0, lost };
        let outcomes = [vec![of(9.0, 0.0), of(9.1, 1.0), of(9.2, 0.0)], vec![of(10.0, 5.0); 3]];
        let stream = task(false);
        let verdicts = |task: &Task| -> Vec<Option<Verdict>> {
            rows(task, &outcomes).unwrap().iter().map(|row| row.verdict).collect()
        };
        assert_eq!(verdicts(&stream), [Some(Verdict::Miss), Some(Verdict::Pass)]);
        assert_eq!(verdicts(&task(true))[0], Some(Verdict::Miss));
    }
}
