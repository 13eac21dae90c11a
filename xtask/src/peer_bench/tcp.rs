//! The race of TCP: plumb's beside smoltcp's, beside copies alone, and beside Linux's.
//!
//! Each launch is a fresh process of one program (`plumb-race-tcp`) that has all of them: what differs is the stack.

use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use plumb_base::units::Unit;
use serde_json::Value;

use super::score::{self, BenchRow, BenchTable, RatioTarget, format_ratio};
use super::{BenchCpus, BenchOptions};

/// One task for two sides.
#[derive(Clone, Copy, Debug)]
struct TcpBenchCase {
    name: &'static str,
    /// Arguments of both sides.
    task: &'static str,
    /// Arguments of plumb's side, and of the other.
    sides: [&'static str; 2],
    /// The member of the answer that counts, and its unit.
    figure: (&'static str, Unit),
    /// What plumb's figure has to be, as a multiple of the other.
    target: Option<RatioTarget>,
}

const RATE: (&str, Unit) = ("bytes_per_second", Unit::BytesPerSecond);

const ROUND_TRIP: (&str, Unit) = ("p50_ns", Unit::Nanoseconds);

/// In memory, on one CPU.
const CASES: &[TcpBenchCase] = &[
    TcpBenchCase {
        name: "memory, in place, smoltcp",
        task: "memory --api in-place",
        sides: ["--stack plumb", "--stack smoltcp"],
        figure: RATE,
        target: Some(RatioTarget::AtLeast(3.0)),
    },
    TcpBenchCase {
        name: "memory, in place, two copies",
        task: "memory --api in-place",
        sides: ["--stack plumb", "--stack copies"],
        figure: RATE,
        target: Some(RatioTarget::AtLeast(0.5)),
    },
    TcpBenchCase {
        name: "memory, slices, smoltcp",
        task: "memory --api slices",
        sides: ["--stack plumb", "--stack smoltcp"],
        figure: RATE,
        target: None,
    },
    TcpBenchCase {
        name: "memory, slices, two copies",
        task: "memory --api slices",
        sides: ["--stack plumb", "--stack copies"],
        figure: RATE,
        target: None,
    },
];

/// In memory, with many connections on one side and ten on the other.
const CONNECTION_CASES: &[TcpBenchCase] = &[
    TcpBenchCase {
        name: "connections, one hot",
        task: "connections --spread hot",
        sides: [MANY, FEW],
        figure: SEGMENT,
        target: Some(RatioTarget::AtMost(1.2)),
    },
    TcpBenchCase {
        name: "connections, any of them",
        task: "connections --spread uniform",
        sides: [MANY, FEW],
        figure: SEGMENT,
        target: None,
    },
];

const SEGMENT: (&str, Unit) = ("segment_ns", Unit::Nanoseconds);
const MANY: &str = "--count 100000";
const FEW: &str = "--count 10";

/// What instructions and memory are called among the cases.
const COUNTED: &str = "connections, instructions and memory";
/// Segments of which instructions are counted.
const COUNTED_SEGMENTS: u64 = 20_000;

/// Over a TAP or a veth: each at one CPU and at two. Linux without iperf3 is shown and has no target.
const WIRED_CASES: &[TcpBenchCase] = &[
    TcpBenchCase {
        name: "up, smoltcp",
        task: "up",
        sides: ["--stack plumb", "--stack smoltcp"],
        figure: RATE,
        target: Some(RatioTarget::AtLeast(4.0)),
    },
    TcpBenchCase {
        name: "down, smoltcp",
        task: "down",
        sides: ["--stack plumb", "--stack smoltcp"],
        figure: RATE,
        target: Some(RatioTarget::AtLeast(4.0)),
    },
    TcpBenchCase {
        name: "up, iperf3 over veth",
        task: "up",
        sides: ["--stack plumb", "--stack iperf3"],
        figure: RATE,
        target: Some(RatioTarget::AtLeast(0.9)),
    },
    TcpBenchCase {
        name: "up, Linux over veth",
        task: "up",
        sides: ["--stack plumb", "--stack linux"],
        figure: RATE,
        target: None,
    },
    TcpBenchCase {
        name: "down, iperf3 over veth",
        task: "down",
        sides: ["--stack plumb", "--stack iperf3"],
        figure: RATE,
        target: Some(RatioTarget::AtLeast(0.9)),
    },
    TcpBenchCase {
        name: "down, Linux over veth",
        task: "down",
        sides: ["--stack plumb", "--stack linux"],
        figure: RATE,
        target: None,
    },
    TcpBenchCase {
        name: "64 B, Linux over veth",
        task: "exchange",
        sides: ["--stack plumb", "--stack linux"],
        figure: ROUND_TRIP,
        target: Some(RatioTarget::AtMost(1.0)),
    },
    TcpBenchCase {
        name: "64 B, smoltcp",
        task: "exchange",
        sides: ["--stack plumb", "--stack smoltcp"],
        figure: ROUND_TRIP,
        target: None,
    },
];

/// Runs every case and prints its row; whether no target was missed.
///
/// # Errors
/// When the program cannot be run, or what it says is not understood.
pub fn run(options: &BenchOptions, out: &mut dyn Write) -> anyhow::Result<bool> {
    let program = options.plumb.with_file_name("plumb-race-tcp");
    if !program.is_file() {
        bail!("{} is missing: make race-tcp builds it", program.display());
    }
    let cpus = super::cpus()?;
    let cases = options.choose(cases(cpus), |(name, ..)| name)?;
    writeln!(
        out,
        "{} launches of each side, in turn, on CPU {}. In memory: one thread, MTU 1500, one frame a segment, every checksum\n\
         computed and verified, buffers of 256 KiB, at most 64 frames on the link; plumb with CUBIC, smoltcp without\n\
         congestion control (its default), both with timestamps. In place, a stack's buffer is the application's memory.\n\
         Else against Linux with CUBIC: plumb over a TAP that leaves checksums and segmentation to the kernel, smoltcp over one\n\
         that leaves nothing; Linux's own other side over a veth. Of connections, 100,000 stand beside 10.\n",
        options.launches, cpus
    )?;
    writeln!(out, "{:<30} {:>10} {:>10}  {:<22} target", "task", "plumb", "other", "ratio [95 %]")?;
    let mut table = BenchTable::new(out);
    for (name, case, cpus) in &cases {
        if name == COUNTED {
            table.print(counted_rows(&program)?)?;
            continue;
        }
        let values = measure(&program, case, *cpus, options)
            .with_context(|| format!("the race of `{name}` failed"))?;
        table.print([row(name, case, &values)?])?;
    }
    table.finish()
}

/// Instructions of a segment and its acknowledgement with many connections beside those with ten, and the memory of an idle one.
fn counted_rows(program: &Path) -> anyhow::Result<Vec<BenchRow>> {
    let mut rows = Vec::new();
    for spread in ["hot", "uniform"] {
        let [many, few] = [MANY, FEW].map(|count| instructions(program, count, spread));
        let (many, few) = (many?, few?);
        let columns = format!(
            "{:<30} {many:>10.0} {few:>10.0}  {:<22.3}",
            format!("connections, instructions, {spread}"),
            many / few
        );
        let target = RatioTarget::AtMost(1.05);
        rows.push(BenchRow::new(&columns, Some((target, target.of_count(many / few)))));
    }
    let mut command = Command::new(program);
    command.arg("connections").args(MANY.split_whitespace()).args(["--segments", "0"]);
    let answer = answer_of(&mut command)?;
    let bytes = answer["idle_bytes"].as_f64().context("no idle_bytes")?;
    let target = RatioTarget::AtMost(2_048.0);
    let columns = format!("{:<30} {bytes:>8.0} B", "connections, memory of an idle one");
    rows.push(BenchRow::new(&columns, Some((target, target.of_count(bytes)))));
    Ok(rows)
}

/// Instructions a segment, as valgrind counts them: of a run with segments less those of one without.
fn instructions(program: &Path, count: &str, spread: &str) -> anyhow::Result<f64> {
    let counted = |segments: u64| -> anyhow::Result<f64> {
        let mut command = Command::new("valgrind");
        command.args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]);
        command.arg(program).args(["connections", "--spread", spread]);
        command.args(count.split_whitespace()).args(["--segments", &segments.to_string()]);
        let output = command.output().context("valgrind(1) cannot be run")?;
        let said = String::from_utf8_lossy(&output.stderr);
        let refs = said.lines().find_map(|line| line.split("refs:").nth(1));
        let refs = refs.with_context(|| format!("{command:?} counted nothing: {said}"))?;
        refs.trim().replace(',', "").parse().context("valgrind's count is no number")
    };
    Ok((counted(COUNTED_SEGMENTS)? - counted(0)?) / COUNTED_SEGMENTS as f64)
}

/// The JSON that a run of the program prints.
fn answer_of(command: &mut Command) -> anyhow::Result<Value> {
    let output = command.output().with_context(|| format!("{command:?} cannot be run"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    serde_json::from_slice(&output.stdout).context("its answer is not JSON")
}

/// The cases by their names, and the CPUs of both ends.
fn cases(cpus: BenchCpus) -> Vec<(String, TcpBenchCase, [u32; 2])> {
    let local = cpus.local;
    let in_memory = CASES.iter().chain(CONNECTION_CASES);
    let in_memory = in_memory.map(|case| (case.name.to_owned(), *case, [local; 2]));
    let counted = (COUNTED.to_owned(), CONNECTION_CASES[0], [local; 2]);
    let one = ("one CPU", [local; 2]);
    let two = cpus.peer.map(|peer| ("two CPUs", [peer, local]));
    let wired = [Some(one), two].into_iter().flatten().flat_map(|(place, cpus)| {
        WIRED_CASES.iter().map(move |case| (format!("{}, {place}", case.name), *case, cpus))
    });
    in_memory.chain([counted]).chain(wired).collect()
}

/// The figure of every launch of both sides, whose order is reversed from round to round.
fn measure(
    program: &Path,
    case: &TcpBenchCase,
    [near, far]: [u32; 2],
    options: &BenchOptions,
) -> anyhow::Result<[Vec<f64>; 2]> {
    let mut values = [Vec::new(), Vec::new()];
    for round in 0..options.launches {
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for side in order {
            let mut command = Command::new("taskset");
            command.args(["-c", &format!("{near},{far}")]).arg(program);
            command.args(case.task.split_whitespace());
            command.args(case.sides[side].split_whitespace());
            command.arg("--seconds").arg(options.seconds.to_string());
            command.arg("--cpus").arg(format!("{near},{far}"));
            let answer = answer_of(&mut command)?;
            let figure = answer[case.figure.0].as_f64();
            values[side].push(figure.with_context(|| format!("no {}: {answer}", case.figure.0))?);
        }
    }
    Ok(values)
}

fn row(name: &str, case: &TcpBenchCase, values: &[Vec<f64>; 2]) -> anyhow::Result<BenchRow> {
    let [ours, theirs] = values.each_ref().map(|side| score::launches(side.iter().copied()));
    let ratio = score::paired_ratio(&ours, &theirs)?;
    let [ours, theirs] =
        [ours, theirs].map(|side| case.figure.1.format(side.median(), 3).to_string());
    let shown = format_ratio(&ratio);
    let columns = format!("{name:<30} {ours:>10} {theirs:>10}  {shown:<22}");
    Ok(BenchRow::new(&columns, case.target.map(|target| target.of_ratio(&ratio))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer_bench::score::TargetVerdict;

    #[test]
    fn a_rate_below_its_multiple_misses() {
        let of =
            |ours: f64| row("memory", &CASES[0], &[vec![ours; 6], vec![1e9; 6]]).unwrap().verdicts;
        assert_eq!(of(3.1e9), [TargetVerdict::Pass]);
        assert_eq!(of(2.9e9), [TargetVerdict::Miss]);
    }

    #[test]
    fn every_case_has_a_name_of_its_own() {
        let cases = cases(BenchCpus { local: 1, peer: Some(0) });
        let names: std::collections::BTreeSet<_> = cases.iter().map(|(name, ..)| name).collect();
        let in_memory = CASES.len() + CONNECTION_CASES.len() + 1;
        assert_eq!(names.len(), in_memory + 2 * WIRED_CASES.len());
    }
}
