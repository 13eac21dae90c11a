//! The race of the networks: plumb's client and agent against iperf3's and sockperf's, between two namespaces
//! that a veth joins.
//!
//! Both sides of each launch are fresh processes, the client on one CPU and the server on another. plumb runs
//! in iperf3's protocol and in its own.

use std::io::Write;

use anyhow::Context;
use rand::RngExt as _;

use super::score::{self, BenchRow, BenchTable, RatioTarget, SEED, TargetVerdict, format_ratio};
use super::{BenchCpus, BenchOptions, cpus, retry_peer};

mod launch;

use launch::{BenchNetwork, LaunchFigures, launch};

/// Of both programs' senders, whatever this host's own is.
const CONGESTION: &str = "cubic";
const PORT: u16 = 5301;
/// sockperf's server does not listen where connections of an earlier one are not yet forgotten.
const EXCHANGE_PORT: u16 = 5302;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NetBenchKind {
    /// Bulk TCP.
    Streams,
    /// UDP at a rate that the path carries.
    Datagrams,
    /// Requests and responses, one after another.
    Exchange,
}

impl NetBenchKind {
    /// The two figures of a launch, with what plumb's of the peer's has to be.
    const fn figures(self) -> [(&'static str, Option<RatioTarget>); 2] {
        match self {
            Self::Streams => [
                ("Gb/s", Some(RatioTarget::AtLeast(1.0))),
                ("CPU s/GB", Some(RatioTarget::AtMost(1.0))),
            ],
            Self::Datagrams => [("most lost", Some(RatioTarget::AtMost(0.0))), ("CPU s/GB", None)],
            Self::Exchange => [("p50 µs", Some(RatioTarget::AtMost(1.02))), ("p99 µs", None)],
        }
    }
}

/// One task for both programs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct NetBenchCase {
    name: String,
    /// Options of the peer's client, which plumb in iperf3's mode spells alike.
    peer_options: String,
    /// Options of plumb's own client.
    plumb_options: String,
    kind: NetBenchKind,
    /// Whether plumb speaks its own protocol.
    is_own: bool,
}

/// Who does it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NetBenchProgram {
    Plumb,
    /// iperf3, or sockperf for requests and responses.
    Peer,
}

fn tasks() -> Vec<NetBenchCase> {
    let mut tasks = Vec::new();
    for is_own in [false, true] {
        for streams in [1, 4, 16] {
            for (way, word) in [("up", ""), ("down", " -R")] {
                let engine = if is_own { "own " } else { "" };
                tasks.push(NetBenchCase {
                    name: format!("{engine}tcp, {streams} stream(s), {way}"),
                    peer_options: format!("-C {CONGESTION} -P {streams}{word}"),
                    plumb_options: format!("-C {CONGESTION} -P {streams} --only {way}"),
                    kind: NetBenchKind::Streams,
                    is_own,
                });
            }
        }
    }
    for is_own in [false, true] {
        for (way, word) in [("up", ""), ("down", " -R")] {
            let engine = if is_own { "own " } else { "" };
            tasks.push(NetBenchCase {
                name: format!("{engine}udp, 500 Mb/s, {way}"),
                peer_options: format!("-u -b 500M -l 1400{word}"),
                plumb_options: format!("--udp 500mbit --udp-size 1400 --only {way}"),
                kind: NetBenchKind::Datagrams,
                is_own,
            });
        }
    }
    for (transport, word) in [("tcp", "--tcp"), ("udp", "")] {
        tasks.push(NetBenchCase {
            name: format!("exchange {transport}, 64 B"),
            peer_options: word.to_owned(),
            plumb_options: format!("--request-response {transport} --request 64"),
            kind: NetBenchKind::Exchange,
            is_own: true,
        });
    }
    tasks
}

/// Runs every task and prints its rows; whether no target was missed.
///
/// # Errors
/// When namespaces cannot be made, a program cannot be run, or its output is not understood.
pub fn run(options: &BenchOptions, out: &mut dyn Write) -> anyhow::Result<bool> {
    options.check_binary()?;
    let tasks = options.choose(tasks(), |task| &task.name)?;
    let bed = BenchNetwork::new().context("two network namespaces and a veth: this needs root")?;
    let cpus = cpus()?;
    writeln!(
        out,
        "{} launches of each side, in turn; client and server on CPU {cpus}, a veth between.\n\
         The peer is iperf3, and sockperf for requests and responses (exchange). Rates are the receiver's;\n\
         processor time is both programs', as each says itself; round trips are whole ones. Senders use {CONGESTION};\n\
         which program is first in a pair is drawn (seed {}).\n",
        options.launches, SEED.0
    )?;
    writeln!(
        out,
        "{:<28} {:<12} {:>9} {:>9}  {:<22} target",
        "task", "figure", "plumb", "peer", "ratio [95 %]"
    )?;
    let mut table = BenchTable::new(out);
    for task in &tasks {
        let outcomes = run_case(task, &bed, &cpus, options)
            .with_context(|| format!("the race of `{}` failed", task.name))?;
        table.print(rows(task, &outcomes)?)?;
    }
    table.finish()
}

/// Every launch of a task. Which program is first is drawn each time: this machine has periods of its own, and turns
/// that come back regularly would share them.
fn run_case(
    task: &NetBenchCase,
    bed: &BenchNetwork,
    cpus: &BenchCpus,
    options: &BenchOptions,
) -> anyhow::Result<[Vec<LaunchFigures>; 2]> {
    let mut outcomes = [Vec::new(), Vec::new()];
    let mut chance = SEED.stream(&task.name);
    for _ in 0..options.launches {
        let mut order = [NetBenchProgram::Plumb, NetBenchProgram::Peer];
        if chance.random_bool(0.5) {
            order.reverse();
        }
        for program in order {
            let launch = || launch(program, task, bed, cpus, options);
            let outcome = match program {
                NetBenchProgram::Plumb => launch()?,
                NetBenchProgram::Peer => retry_peer(launch, &mut 0)?,
            };
            outcomes[usize::from(program == NetBenchProgram::Peer)].push(outcome);
        }
    }
    Ok(outcomes)
}

fn rows(task: &NetBenchCase, outcomes: &[Vec<LaunchFigures>; 2]) -> anyhow::Result<Vec<BenchRow>> {
    let figures = task.kind.figures().into_iter().enumerate();
    let rows = figures.map(|(index, (figure, target))| {
        let values = outcomes.each_ref().map(|side| side.iter().map(|it| it[index]).collect());
        row(task, figure, target, &values)
    });
    rows.collect()
}

/// A row of a ratio to the peer; or of what must not happen in any launch of plumb's, whatever the peer's do.
fn row(
    task: &NetBenchCase,
    figure: &str,
    target: Option<RatioTarget>,
    values: &[Vec<f64>; 2],
) -> anyhow::Result<BenchRow> {
    let (shown, ratio, target) = if target == Some(RatioTarget::AtMost(0.0)) {
        let worst = values.each_ref().map(|values| values.iter().copied().fold(0.0, f64::max));
        let verdict = if worst[0] > 0.0 { TargetVerdict::Miss } else { TargetVerdict::Pass };
        (worst, String::new(), target.map(|target| (target, verdict)))
    } else {
        let [ours, theirs] =
            values.each_ref().map(|values| score::launches(values.iter().copied()));
        let ratio = score::paired_ratio(&ours, &theirs)?;
        let medians = [ours.median(), theirs.median()];
        (medians, format_ratio(&ratio), target.map(|target| target.of_ratio(&ratio)))
    };
    let (name, [ours, theirs]) = (&task.name, shown);
    let columns = format!("{name:<28} {figure:<12} {ours:>9.3} {theirs:>9.3}  {ratio:<22}");
    Ok(BenchRow::new(&columns, target))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(kind: NetBenchKind) -> NetBenchCase {
        NetBenchCase {
            name: "task".to_owned(),
            peer_options: String::new(),
            plumb_options: String::new(),
            kind,
            is_own: false,
        }
    }

    #[test]
    fn a_slower_program_misses_and_a_lost_datagram_does_too() {
        let verdicts = |kind, outcomes: &[Vec<LaunchFigures>; 2]| -> Vec<Option<TargetVerdict>> {
            let rows = rows(&task(kind), outcomes).unwrap();
            rows.iter().map(|row| row.verdicts.first().copied()).collect()
        };
        let slower = [[[9.0, 1.0], [9.1, 1.0], [9.2, 1.0]].repeat(2), vec![[10.0, 1.0]; 6]];
        assert_eq!(
            verdicts(NetBenchKind::Streams, &slower),
            [Some(TargetVerdict::Miss), Some(TargetVerdict::Pass)]
        );
        let lost = [[[0.0, 1.0], [1.0, 1.0], [0.0, 1.0]].repeat(2), vec![[5.0, 1.0]; 6]];
        assert_eq!(verdicts(NetBenchKind::Datagrams, &lost), [Some(TargetVerdict::Miss), None]);
        let level = [vec![[20.2, 40.0]; 6], vec![[20.0, 30.0]; 6]];
        assert_eq!(verdicts(NetBenchKind::Exchange, &level), [Some(TargetVerdict::Pass), None]);
    }
}
