//! The race of simulators: plumb's beside ns-3, the same dumbbell, and whether both find the same.
//!
//! Each launch is a fresh process. Packet-hops are packets that crossed a link, in ns-3 counted by a run of its own.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde_json::Value;

use super::BenchOptions;
use super::score::{self, BenchRow, BenchTable, RatioTarget, TargetVerdict, format_ratio};

/// Name, connections, simulated seconds, and what the ratio of speeds has to be: of one thread, and of two.
const CASES: [(&str, u32, u32, [Option<RatioTarget>; 2]); 3] = [
    ("10 connections", 10, 5, [Some(RatioTarget::AtLeast(40.0)), None]),
    ("100 connections", 100, 5, [None, Some(RatioTarget::AtLeast(100.0))]),
    ("1,000 connections", 1_000, 5, [None; 2]),
];
/// Threads of plumb's simulator.
const THREADS: [u32; 2] = [1, 2];
/// How far apart throughput and loss of the two may be.
const DIFFERENCE_MAX: f64 = 0.05;

/// What one simulation said.
#[derive(Clone, Copy, Debug)]
struct SimOutcome {
    wall: f64,
    hops: f64,
    goodput: f64,
    loss: f64,
}

/// Runs every case and prints its row; whether no target was missed.
///
/// # Errors
/// When a program cannot be run, or what it says is not understood.
pub fn run(options: &BenchOptions, out: &mut dyn Write) -> anyhow::Result<bool> {
    let folder = options.plumb.parent().context("a binary in a folder")?;
    let programs = [folder.join("examples/race"), folder.join("ns3-dumbbell")];
    if let Some(missing) = programs.iter().find(|program| !program.is_file()) {
        bail!("{} is missing: make race-sim builds it", missing.display());
    }
    let cpus = super::cpus()?;
    let [one, _, both] = cpus.lists("other-cpu");
    let cases = options.choose(CASES.to_vec(), |case| case.0)?;
    writeln!(
        out,
        "{} launches of each side, in turn, on CPU {one}, two threads on {both}. A dumbbell: Reno, 1 Gb/s, 24 ms, 2,000 packets of\n\
         buffer; all headers are real and payload is only counted on both sides; ns-3 built by its distribution, routed by nix vectors.\n",
        options.launches
    )?;
    writeln!(
        out,
        "{:>11} {:>7} {:>14} {:>14}  {:<22} {:>17} {:>17}  target",
        "connections",
        "threads",
        "plumb, hops/s",
        "ns-3, hops/s",
        "ratio [95 %]",
        "goodput, Mb/s",
        "loss, ‰"
    )?;
    let mut table = BenchTable::new(out);
    for (name, connections, seconds, targets) in cases {
        let values = measure(&programs, [&one, &both], (connections, seconds), options.launches)
            .with_context(|| format!("the race of {name} failed"))?;
        let rows = THREADS.iter().zip(&values).zip(targets);
        let rows = rows.map(|((threads, ours), target)| {
            row((connections, *threads), target, [ours, &values[THREADS.len()]])
        });
        table.print(rows.collect::<anyhow::Result<Vec<_>>>()?)?;
    }
    table.finish()
}

/// What plumb said with each number of threads, and what ns-3 did.
fn measure(
    programs: &[PathBuf; 2],
    [one, both]: [&str; 2],
    (connections, seconds): (u32, u32),
    launches: usize,
) -> anyhow::Result<[Vec<SimOutcome>; 3]> {
    let task = [connections.to_string(), seconds.to_string(), "1".to_owned()];
    let task = task.each_ref().map(String::as_str);
    let with = |last| [task.as_slice(), &[last]].concat();
    let counted = launch(&programs[1], one, &with("count"))?;
    let mut values = [Vec::new(), Vec::new(), Vec::new()];
    for round in 0..launches {
        for side in (0..3).map(|turn| (round + turn) % 3) {
            values[side].push(match side {
                0 => launch(&programs[0], one, &with("1"))?,
                1 => launch(&programs[0], both, &with("2"))?,
                _ => SimOutcome { hops: counted.hops, ..launch(&programs[1], one, &task)? },
            });
        }
    }
    Ok(values)
}

fn launch(program: &Path, cpus: &str, arguments: &[&str]) -> anyhow::Result<SimOutcome> {
    let mut command = Command::new("taskset");
    command.arg("-c").arg(cpus).arg(program).args(arguments);
    let output = command.output().context("taskset(1) cannot be run")?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let answer: Value = serde_json::from_slice(&output.stdout).context("its answer is not JSON")?;
    let number = |name: &str| answer[name].as_f64().with_context(|| format!("no {name}: {answer}"));
    Ok(SimOutcome {
        wall: number("wall")?,
        hops: number("hops")?,
        goodput: number("goodput")?,
        loss: number("loss")?,
    })
}

fn row(
    (connections, threads): (u32, u32),
    target: Option<RatioTarget>,
    values: [&Vec<SimOutcome>; 2],
) -> anyhow::Result<BenchRow> {
    let speed =
        |side: &Vec<SimOutcome>| score::launches(side.iter().map(|one| one.hops / one.wall));
    let [ours, theirs] = values.map(speed);
    let ratio = score::paired_ratio(&ours, &theirs)?;
    let [a, b] = values.map(|side| side[0]);
    let columns = format!(
        "{connections:>11} {threads:>7} {:>14.0} {:>14.0}  {:<22} {:>17} {:>17}",
        ours.median(),
        theirs.median(),
        format_ratio(&ratio),
        format!("{:.1} | {:.1}", a.goodput / 1e6, b.goodput / 1e6),
        format!("{:.3} | {:.3}", a.loss * 1e3, b.loss * 1e3),
    );
    let mut row = BenchRow::new(&columns, target.map(|target| target.of_ratio(&ratio)));
    if !agree(a.goodput, b.goodput) || !agree(a.loss, b.loss) {
        row.line += "\n            throughput or loss differ by more than 5 %";
        row.verdicts.push(TargetVerdict::Miss);
    }
    Ok(row)
}

fn agree(a: f64, b: f64) -> bool {
    (a - b).abs() <= DIFFERENCE_MAX * a.max(b)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulators_that_find_different_things_miss() {
        let outcome = SimOutcome { wall: 1.0, hops: 1e6, goodput: 9e8, loss: 1e-3 };
        let of = |ours: SimOutcome| {
            let theirs = vec![SimOutcome { hops: 1e4, ..outcome }; 6];
            row((10, 1), CASES[0].3[0], [&vec![ours; 6], &theirs]).unwrap().verdicts
        };
        assert_eq!(of(outcome), [TargetVerdict::Pass]);
        assert_eq!(of(SimOutcome { hops: 3e5, ..outcome }), [TargetVerdict::Miss]);
        let differs = SimOutcome { loss: 1.2e-3, ..outcome };
        assert_eq!(of(differs), [TargetVerdict::Pass, TargetVerdict::Miss]);
    }
}
