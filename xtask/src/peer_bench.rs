//! The race: plumb and its peers on the same CPUs, launch by launch in turn, and the ratios.
//!
//! Each launch is a fresh pair of processes on both sides. The order within a round is reversed
//! from round to round, so that drift falls on all alike. Nothing is stored.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

mod comparison;
pub mod link;
pub mod net;
mod peer_tool;
mod plumb_launch;
mod score;
pub mod stack;

use comparison::{BenchTool, PeerComparison};
use score::ComparisonScore;

/// Fewest launches of which an interval can be made.
const LAUNCHES_MIN: usize = 3;

/// How to race.
#[derive(Clone, Debug)]
pub struct BenchOptions {
    launches: usize,
    seconds: u32,
    only: String,
    plumb: PathBuf,
}

impl BenchOptions {
    /// Reads the command line; `root` is the workspace, where the binary is looked for.
    ///
    /// # Errors
    ///
    /// When an option is unknown, lacks its value, or has one that cannot be used.
    pub fn parse(arguments: &[String], root: &Path) -> anyhow::Result<Self> {
        let target = std::env::var_os("CARGO_TARGET_DIR");
        let target = target.map_or_else(|| root.join("target"), PathBuf::from);
        let mut options = Self {
            launches: 10,
            seconds: 1,
            only: String::new(),
            plumb: target.join("release/plumb"),
        };
        let mut arguments = arguments.iter();
        while let Some(name) = arguments.next() {
            let value = arguments.next().with_context(|| format!("{name} needs a value"))?;
            match name.as_str() {
                "--launches" => options.launches = value.parse().context("--launches")?,
                "--seconds" => options.seconds = value.parse().context("--seconds")?,
                "--only" => options.only.clone_from(value),
                "--plumb" => options.plumb = PathBuf::from(value),
                _ => bail!("{name} is no option; there are --launches, --seconds, --only, --plumb"),
            }
        }
        if options.launches < LAUNCHES_MIN || options.seconds == 0 {
            bail!("--launches is at least {LAUNCHES_MIN}, --seconds at least 1");
        }
        Ok(options)
    }
}

/// Runs every contest and prints the table; whether no target was missed.
///
/// # Errors
///
/// When a program cannot be run, or its output is not understood.
pub fn run(options: &BenchOptions, out: &mut dyn Write) -> anyhow::Result<bool> {
    if !options.plumb.is_file() {
        bail!("{} is missing: cargo build --release", options.plumb.display());
    }
    let cpus = comparison::cpus()?;
    let contests = PeerComparison::all(cpus.peer.is_some());
    let chosen: Vec<_> = contests.iter().filter(|c| c.name.contains(&options.only)).collect();
    if chosen.is_empty() {
        bail!("no contest has `{}` in its name", options.only);
    }
    writeln!(
        out,
        "{} launches of each side, in turn, on CPU {}; fresh processes for each launch.\n\
         A peer without a target prints a mean only and is shown for orientation.\n",
        options.launches, cpus
    )?;
    write!(out, "{}", score::HEADING)?;
    let mut scores = Vec::new();
    for contest in chosen {
        let results = run_comparison(contest, &cpus, options)
            .with_context(|| format!("the contest {} failed", contest.name))?;
        for (racer, values) in contest.racers.iter().zip(&results.values).skip(1) {
            let score = ComparisonScore::new(contest, *racer, &results.values[0], values)?;
            writeln!(out, "{score}")?;
            out.flush()?;
            scores.push(score);
        }
        if results.repeated > 0 {
            let (name, repeated) = (&contest.name, results.repeated);
            writeln!(
                out,
                "{name}: {repeated} launch(es) of a peer gave no figure and were repeated"
            )?;
        }
    }
    let verdicts: Vec<_> = scores.iter().flat_map(ComparisonScore::verdicts).collect();
    score::print_tally(out, &verdicts)
}

/// What a contest gave.
#[derive(Debug)]
struct ComparisonResults {
    /// The value of each launch, by racer.
    values: Vec<Vec<f64>>,
    /// Launches of peers that gave no figure and were made again.
    repeated: usize,
}

/// Runs every launch of a contest.
fn run_comparison(
    contest: &PeerComparison,
    cpus: &comparison::BenchCpus,
    options: &BenchOptions,
) -> anyhow::Result<ComparisonResults> {
    let values = vec![Vec::new(); contest.racers.len()];
    let mut results = ComparisonResults { values, repeated: 0 };
    let congestion = contest.congestion()?;
    let congestion = congestion.as_deref();
    for round in 0..options.launches {
        let forward = 0..contest.racers.len();
        let order: Vec<usize> =
            if round % 2 == 0 { forward.collect() } else { forward.rev().collect() };
        for index in order {
            let value = match contest.racers[index] {
                BenchTool::Plumb => plumb_launch::launch(
                    &options.plumb,
                    contest,
                    cpus,
                    options.seconds,
                    congestion,
                )?,
                peer => {
                    let launch =
                        || peer_tool::launch(peer, contest, cpus, options.seconds, congestion);
                    retry_peer(launch, &mut results.repeated)?
                }
            };
            results.values[index].push(value);
        }
    }
    Ok(results)
}

/// Tries a launch of a peer up to three times: on a busy machine sockperf sometimes ends without
/// a valid observation. Each repetition is counted, and told to the reader.
fn retry_peer(
    launch: impl Fn() -> anyhow::Result<f64>,
    repeated: &mut usize,
) -> anyhow::Result<f64> {
    for _ in 0..2 {
        if let Ok(value) = launch() {
            return Ok(value);
        }
        *repeated += 1;
    }
    launch()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> anyhow::Result<BenchOptions> {
        let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
        BenchOptions::parse(&arguments, Path::new("."))
    }

    #[test]
    fn a_peer_that_fails_twice_is_tried_again_and_one_that_always_fails_is_an_error() {
        let (left, mut repeated) = (std::cell::Cell::new(2), 0);
        let sometimes = || match left.replace(left.get() - 1) {
            0 => Ok(1.0),
            _ => bail!("no valid observations"),
        };
        assert!(retry_peer(sometimes, &mut repeated).is_ok());
        assert_eq!(repeated, 2);
        assert!(retry_peer(|| bail!("not installed"), &mut repeated).is_err());
    }

    #[test]
    fn options_are_read_and_bad_ones_refused() {
        let options = parse(&["--launches", "12", "--only", "tcp"]).unwrap();
        assert_eq!((options.launches, options.only.as_str()), (12, "tcp"));
        for bad in [&["--launches"][..], &["--launches", "2"], &["--seconds", "0"], &["--x", "1"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }
}
