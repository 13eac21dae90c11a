//! A scenario's file on the command line, and the simulations of its points.

use std::collections::BTreeSet;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use clap::Args;
use plumb_analysis::document::sim::SimRun;
use plumb_base::time::Span;
use plumb_base::units::parse_bytes;
use plumb_base::units::quantity::parse_duration;
use plumb_clock::monotonic_ns;
use plumb_sim::scenario::{Scenario, SweepPoint, sweep_points};
use plumb_sim::simulation::Simulation;
use ring::digest::{SHA256, digest};

use super::report_document;
use super::trace::{PacketRecording, TraceDigest, hexadecimal};
use crate::cli::is_stopped;
use crate::cli::link::options::LocalFiles;
use crate::cli::output::CliOutput;
use crate::cli::progress::{ProgressBar, rough_duration};
use crate::problem::{ExitReason, Problem};

/// Which scenario, and how it is run.
#[derive(Clone, Debug, Args)]
pub struct ScenarioOptions {
    /// The scenario
    #[arg(value_name = "SCENARIO.toml")]
    file: PathBuf,
    /// Give a swept variable one value
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_assignment)]
    set: Vec<(String, String)>,
    /// Seed of every random choice, instead of the file's
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Duration, instead of the file's
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Span>,
    /// Compute the SHA-256 of every arrival of a packet
    #[arg(long)]
    digest: bool,
    /// Record every packet of every link in this pcapng file
    #[arg(long, value_name = "FILE.pcapng")]
    pcap: Option<PathBuf>,
    /// Memory that packets may take
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = parse_bytes)]
    pub memory: u64,
    /// Threads for each simulation, as far as its network can be divided [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Option<u32>,
}

/// A file with its scenarios.
#[derive(Debug)]
pub struct ScenarioFile {
    /// Its name.
    pub name: String,
    /// SHA-256 of its text.
    pub sha256: String,
    /// Its scenarios: one for each point of its sweep.
    pub points: Vec<SweptScenario>,
}

impl ScenarioFile {
    /// One of its scenarios cannot be simulated.
    pub fn rejected(&self, error: impl std::fmt::Display) -> Problem {
        let problem = Problem::rejected(error);
        Problem { what: format!("{}: {}", self.name, problem.what), ..problem }
    }

    /// What the user may not expect: queues with more room than was asked for.
    ///
    /// # Errors
    /// A scenario that cannot be simulated.
    pub fn warning(&self) -> Result<Option<String>, Problem> {
        let mut raised = BTreeSet::new();
        for point in &self.points {
            raised.extend(point.scenario.raised_limits().map_err(Problem::rejected)?);
        }
        Ok(raised.first().map(|first| {
            let others = match raised.len() {
                1 => String::new(),
                count => format!(" (and {} others)", count - 1),
            };
            format!(
                "the queue of {first}{others} has room for ten packets, the least that a limit in bdp comes to; write \
                 limit=4packets for fewer"
            )
        }))
    }
}

/// A scenario at a point of a sweep.
#[derive(Debug)]
pub struct SweptScenario {
    /// The point.
    pub point: SweepPoint,
    /// The scenario.
    pub scenario: Scenario,
}

/// Events between two looks at the clock and at signals.
const EVENTS: u64 = 20_000;

impl ScenarioOptions {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read or simulated.
    pub fn load(&self) -> Result<ScenarioFile, Problem> {
        let name = self.file.display().to_string();
        let text = std::fs::read_to_string(&self.file).map_err(|error| {
            Problem::usage(format!("cannot read '{name}'"))
                .because(error)
                .fix("name a file of TOML; 'plumb sim --help' shows one")
        })?;
        let points = self.points(&text, &name)?;
        let scenario = |point: SweepPoint| {
            let scenario = self.scenario(&text, &name, &point)?;
            Ok(SweptScenario { point, scenario })
        };
        let points = points.into_iter().map(scenario).collect::<Result<_, Problem>>()?;
        let sha256 = hexadecimal(digest(&SHA256, text.as_bytes()).as_ref());
        Ok(ScenarioFile { name, sha256, points })
    }

    /// The points of the sweep, of which `--set` leaves some.
    fn points(&self, text: &str, name: &str) -> Result<Vec<SweepPoint>, Problem> {
        let mut points = sweep_points(text, name).map_err(Problem::rejected)?;
        for (variable, value) in &self.set {
            for point in &mut points {
                let known: Vec<String> = point.values.keys().cloned().collect();
                let Some(slot) = point.values.get_mut(variable) else {
                    let what = format!("the sweep of {name} has no variable '{variable}'");
                    let known = known.iter().map(String::as_str);
                    return Err(Problem::usage(what).suggest(variable, known));
                };
                slot.clone_from(value);
            }
        }
        for point in &mut points {
            point.seed = self.seed;
        }
        let mut seen = BTreeSet::new();
        points.retain(|point| seen.insert(point.clone()));
        Ok(points)
    }

    fn scenario(&self, text: &str, name: &str, point: &SweepPoint) -> Result<Scenario, Problem> {
        let mut scenario =
            Scenario::from_toml(text, name, point, &LocalFiles).map_err(Problem::rejected)?;
        if let Some(duration) = self.duration {
            scenario.duration = duration;
            scenario.check().map_err(Problem::rejected)?;
        }
        Ok(scenario)
    }

    /// What tells the simulation of a point from every other: its file, point and options, in digits.
    pub fn key(&self, file: &ScenarioFile, point: &SweptScenario) -> String {
        let SweepPoint { values, replication, seed } = &point.point;
        let text = format!(
            "{} {} {values:?} {replication} {seed:?} {:?} {}",
            crate::VERSION,
            file.sha256,
            self.duration,
            self.digest
        );
        hexadecimal(digest(&SHA256, text.as_bytes()).as_ref())
    }

    /// Simulates a point.
    ///
    /// # Errors
    /// Too much memory; an interruption.
    pub fn run(
        &self,
        file: &ScenarioFile,
        point: &SweptScenario,
        progress: &mut SimProgress,
    ) -> Result<SimRun, Problem> {
        let scenario = point.scenario.clone();
        let (title, seed, duration) = (scenario.title.clone(), scenario.seed.0, scenario.duration);
        let began_ns = monotonic_ns();
        let cpus = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = self.threads.unwrap_or_else(|| u32::try_from(cpus()).unwrap_or(u32::MAX));
        let mut simulation = Simulation::with_threads(scenario, self.memory, threads)
            .map_err(|error| file.rejected(error))?;
        let threads = u32::try_from(simulation.threads()).unwrap_or(u32::MAX);
        let recording = self.record(file, &mut simulation)?;
        let digest = self.digest.then(|| TraceDigest::attach(&mut simulation));
        while simulation.run_some(EVENTS) {
            if is_stopped() {
                let what = "interrupted; nothing of this simulation was kept";
                return Err(Problem::from_message(what, ExitReason::Interrupted));
            }
            progress.draw(simulation.elapsed().as_secs_f64() / duration.as_secs_f64());
        }
        let report = simulation.finish();
        if let Some((path, recording)) = recording {
            recording.finish().map_err(|error| not_recorded(path, &error))?;
        }
        let mut run = report_document::run(&report, title, seed);
        run.wall_seconds = (monotonic_ns() - began_ns) as f64 / 1e9;
        run.threads = threads;
        run.trace_sha256 = digest.map(TraceDigest::finish);
        run.variables.clone_from(&point.point.values);
        run.replication = point.point.replication;
        progress.done += 1;
        Ok(run)
    }
}

impl ScenarioOptions {
    /// Records a simulation, where that is wanted.
    fn record(
        &self,
        file: &ScenarioFile,
        simulation: &mut Simulation,
    ) -> Result<Option<(&Path, PacketRecording)>, Problem> {
        let Some(path) = &self.pcap else { return Ok(None) };
        if file.points.len() > 1 {
            return Err(Problem::usage(format!(
                "{} has {} simulations, and a recording is of one",
                file.name,
                file.points.len()
            ))
            .fix("choose one with --set NAME=VALUE, and leave replications out"));
        }
        let recording = PacketRecording::attach(simulation, path);
        recording
            .map(|recording| Some((&**path, recording)))
            .map_err(|error| not_recorded(path, &error))
    }
}

fn not_recorded(path: &Path, error: &std::io::Error) -> Problem {
    Problem::usage(format!("cannot write '{}'", path.display()))
        .because(error)
        .fix("name a file that you may write, on a disk with room")
}

/// How far all simulations of a file are.
#[derive(Debug)]
pub struct SimProgress {
    bar: Option<ProgressBar>,
    began_ns: u64,
    count: usize,
    done: usize,
}

impl SimProgress {
    /// Of so many simulations.
    pub fn new(output: &CliOutput, count: usize) -> Self {
        Self { bar: ProgressBar::new(output), began_ns: monotonic_ns(), count, done: 0 }
    }

    /// `share` of the current one is done.
    fn draw(&mut self, share: f64) {
        let Some(bar) = &mut self.bar else { return };
        let done = (self.done as f64 + share) / self.count as f64;
        let spent = Span::from_ns(monotonic_ns() - self.began_ns).as_secs_f64();
        let left = rough_duration(Span::from_secs_f64(spent * (1.0 - done) / done.max(1e-6)));
        let which = match self.count {
            1 => String::new(),
            count => format!("  {} of {count}", self.done + 1),
        };
        bar.draw(done, &format!("{left} left{which}"));
    }
}

fn parse_assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, as in buffer=1bdp")?;
    Ok((name.to_owned(), value.to_owned()))
}
