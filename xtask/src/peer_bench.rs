//! The race: plumb and its peers on the same CPUs, launch by launch in turn, and the ratios.
//!
//! Each launch is a fresh pair of processes on both sides. The order within a round is reversed
//! from round to round, so that drift falls on all alike. Nothing is stored.

use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

pub mod link;
pub mod net;
mod peer_tool;
mod score;
pub mod sim;
pub mod stack;
pub mod tcp;

use score::{BenchRow, BenchTable, RatioTarget};

/// Fewest launches of which an interval can be made.
const LAUNCHES_MIN: usize = 6;

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

    /// The contests that are asked for by their names.
    fn choose<T>(&self, mut all: Vec<T>, name: impl Fn(&T) -> &str) -> anyhow::Result<Vec<T>> {
        all.retain(|contest| name(contest).contains(&self.only));
        if all.is_empty() {
            bail!("no contest has `{}` in its name", self.only);
        }
        Ok(all)
    }

    fn check_binary(&self) -> anyhow::Result<()> {
        if !self.plumb.is_file() {
            bail!("{} is missing: cargo build --release", self.plumb.display());
        }
        Ok(())
    }
}

/// Runs every contest and prints the table; whether no target was missed.
///
/// # Errors
///
/// When a program cannot be run, or its output is not understood.
pub fn run(options: &BenchOptions, out: &mut dyn Write) -> anyhow::Result<bool> {
    options.check_binary()?;
    let cpus = cpus()?;
    let chosen =
        options.choose(PeerComparison::all(cpus.peer.is_some()), |contest| &contest.name)?;
    writeln!(
        out,
        "{} launches of each side, in turn, on CPU {}; fresh processes for each launch.\n\
         A peer without a target prints a mean only and is shown for orientation.\n",
        options.launches, cpus
    )?;
    write!(out, "{}", score::HEADING)?;
    let mut table = BenchTable::new(out);
    for contest in &chosen {
        let results = run_comparison(contest, &cpus, options)
            .with_context(|| format!("the contest {} failed", contest.name))?;
        for (racer, values) in contest.racers.iter().zip(&results.values).skip(1) {
            table.print([score::compare(contest, *racer, &results.values[0], values)?])?;
        }
        if results.repeated > 0 {
            let (name, repeated) = (&contest.name, results.repeated);
            let text = "launch(es) of a peer gave no figure and were repeated";
            table.print([BenchRow::new(&format!("{name}: {repeated} {text}"), None)])?;
        }
    }
    table.finish()
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
    cpus: &BenchCpus,
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
                BenchTool::Plumb => peer_tool::launch_plumb(contest, cpus, options, congestion)?,
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
/// a valid observation, and iperf3's server of 3.12 refuses the first connection. Each repetition is counted.
fn retry_peer<T>(
    launch: impl Fn() -> anyhow::Result<T>,
    repeated: &mut usize,
) -> anyhow::Result<T> {
    for _ in 0..2 {
        if let Ok(value) = launch() {
            return Ok(value);
        }
        *repeated += 1;
    }
    launch()
}

/// One setting, and everyone who measures it; plumb comes first.
#[derive(Clone, Debug)]
pub(super) struct PeerComparison {
    pub name: String,
    pub kind: BenchKind,
    /// `tcp` or `udp`.
    pub protocol: &'static str,
    /// `same-cpu` or `other-cpu`.
    pub placement: &'static str,
    /// `block` or `spin`.
    pub wake: &'static str,
    pub size: u64,
    pub racers: Vec<BenchTool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BenchKind {
    /// Half a round trip, in nanoseconds.
    PingPong,
    /// Bytes a second at the receiver.
    Bulk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BenchTool {
    Plumb,
    Sockperf,
    Iperf3,
    /// Prints a mean only, and half the time of a round trip by dividing: shown, not a target.
    Qperf,
}

impl BenchTool {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Plumb => "plumb",
            Self::Sockperf => "sockperf",
            Self::Iperf3 => "iperf3",
            Self::Qperf => "qperf",
        }
    }

    /// Which figure of a launch is compared.
    pub const fn statistic(self) -> &'static str {
        match self {
            Self::Plumb | Self::Sockperf => "median",
            Self::Iperf3 | Self::Qperf => "mean",
        }
    }
}

impl PeerComparison {
    /// Every contest that a machine with one or more CPUs can hold.
    pub fn all(several_cpus: bool) -> Vec<Self> {
        let settings = [("same-cpu", "block"), ("other-cpu", "block"), ("other-cpu", "spin")];
        let settings = &settings[..if several_cpus { 3 } else { 1 }];
        let ping_pong = |protocol, (placement, wake)| {
            let peers = [BenchTool::Plumb, BenchTool::Sockperf, BenchTool::Qperf];
            Self {
                name: format!("{protocol} ping-pong {placement} {wake}"),
                kind: BenchKind::PingPong,
                protocol,
                placement,
                wake,
                size: 64,
                racers: peers[..if wake == "block" { 3 } else { 2 }].to_vec(),
            }
        };
        let ping_pongs = ["tcp", "udp"]
            .into_iter()
            .flat_map(|protocol| settings.iter().map(move |setting| ping_pong(protocol, *setting)));
        let placement = if several_cpus { "other-cpu" } else { "same-cpu" };
        let bulk = Self {
            name: format!("tcp bulk {placement}"),
            kind: BenchKind::Bulk,
            protocol: "tcp",
            placement,
            wake: "block",
            size: 128 * 1024,
            racers: vec![BenchTool::Plumb, BenchTool::Iperf3, BenchTool::Qperf],
        };
        ping_pongs.chain([bulk]).collect()
    }

    /// The congestion control of both sides: sockperf cannot choose, so ping-pongs use this host's
    /// default; bulk transfers use CUBIC, which every kernel has and which does not pace.
    pub fn congestion(&self) -> anyhow::Result<Option<String>> {
        const DEFAULT: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
        match (self.protocol, self.kind) {
            ("udp", _) => Ok(None),
            (_, BenchKind::Bulk) => Ok(Some("cubic".to_owned())),
            (_, BenchKind::PingPong) => {
                let name = std::fs::read_to_string(DEFAULT).context(DEFAULT)?;
                Ok(Some(name.trim().to_owned()))
            }
        }
    }

    /// What plumb's value has to be, as a multiple of this racer's; none where the two figures are
    /// not the same quantity.
    fn target(&self, racer: BenchTool) -> Option<RatioTarget> {
        match (self.kind, racer) {
            (BenchKind::PingPong, BenchTool::Sockperf) => Some(RatioTarget::AtMost(1.02)),
            (BenchKind::Bulk, BenchTool::Iperf3) => Some(RatioTarget::AtLeast(1.00)),
            _ => None,
        }
    }
}

/// The CPUs of the race: the client's, and the server's when it has another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BenchCpus {
    pub local: u32,
    pub peer: Option<u32>,
}

impl BenchCpus {
    /// CPU lists for `taskset -c`: client, server, and both.
    pub fn lists(self, placement: &str) -> [String; 3] {
        let local = self.local.to_string();
        match (placement, self.peer) {
            ("other-cpu", Some(peer)) => {
                let both = format!("{local},{peer}");
                [local, peer.to_string(), both]
            }
            _ => [local.clone(), local.clone(), local],
        }
    }
}

impl fmt::Display for BenchCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some(peer) => write!(f, "{} and {peer}", self.local),
            None => write!(f, "{}", self.local),
        }
    }
}

/// The last CPU that this process may use, and the last other one that is no thread of the same
/// core (or, failing that, any other).
pub(super) fn cpus() -> anyhow::Result<BenchCpus> {
    let status = std::fs::read_to_string("/proc/self/status").context("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let allowed = list.and_then(parse_list).context("no Cpus_allowed_list in /proc/self/status")?;
    let (local, others) = allowed.split_last().context("no CPU is allowed")?;
    let siblings = format!("/sys/devices/system/cpu/cpu{local}/topology/thread_siblings_list");
    let siblings = std::fs::read_to_string(siblings).ok();
    let siblings = siblings.as_deref().and_then(parse_list).unwrap_or_default();
    let apart = others.iter().rev().find(|cpu| !siblings.contains(cpu));
    Ok(BenchCpus { local: *local, peer: apart.or(others.last()).copied() })
}

/// `0-2,7` as numbers.
fn parse_list(list: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        cpus.extend(first.parse::<u32>().ok()?..=last.parse().ok()?);
    }
    Some(cpus)
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
        assert!(retry_peer::<f64>(|| bail!("not installed"), &mut repeated).is_err());
    }

    #[test]
    fn options_are_read_and_bad_ones_refused() {
        let options = parse(&["--launches", "12", "--only", "tcp"]).unwrap();
        assert_eq!((options.launches, options.only.as_str()), (12, "tcp"));
        for bad in [&["--launches"][..], &["--launches", "2"], &["--seconds", "0"], &["--x", "1"]] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn lists_of_cpus_are_read() {
        assert_eq!(parse_list("\t0-2,7\n"), Some(vec![0, 1, 2, 7]));
        assert_eq!(parse_list("x"), None);
    }

    #[test]
    fn one_cpu_holds_only_contests_on_one_cpu() {
        assert!(PeerComparison::all(false).iter().all(|c| c.placement == "same-cpu"));
        assert!(PeerComparison::all(true).iter().any(|c| c.wake == "spin"));
    }

    #[test]
    fn every_contest_has_one_racer_with_a_target() {
        for contest in PeerComparison::all(true) {
            let targets = contest.racers.iter().filter(|racer| contest.target(**racer).is_some());
            assert_eq!(targets.count(), 1, "{}", contest.name);
        }
    }
}
