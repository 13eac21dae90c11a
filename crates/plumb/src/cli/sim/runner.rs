//! Simulations of the points of a scenario, as many beside each other as there are threads and memory for.

use std::num::NonZero;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use plumb_analysis::document::sim::SimRun;
use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use plumb_sim::simulation::Simulation;

use super::scenario_file::{ScenarioFile, ScenarioOptions, SweptScenario};
use super::stored_run::run_document;
use super::trace::{PacketRecording, TraceDigest};
use crate::cli::is_stopped;
use crate::cli::output::CliOutput;
use crate::cli::progress::{ProgressBar, rough_duration};
use crate::problem::{ExitReason, Problem};

/// Events between two updates and looks at signals.
const EVENTS: u64 = 20_000;

/// How far a simulation is, with the index of its point.
enum SimUpdate {
    /// A share of its virtual time is over.
    Progress(usize, f64),
    /// It has ended.
    Ended(usize, Result<Box<SimRun>, Problem>),
}

impl ScenarioOptions {
    /// Simulates points and gives each result to `take`, with the index of its point, in the order in which they end.
    ///
    /// # Errors
    /// Too much memory; an interruption; what `take` returns. Simulations that have not ended by then are dropped.
    pub fn run(
        &self,
        file: &ScenarioFile,
        points: &[&SweptScenario],
        output: &CliOutput,
        mut take: impl FnMut(usize, SimRun) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        if self.pcap.is_some() && points.len() > 1 {
            let what = format!(
                "{} has {} simulations, and a recording is of one",
                file.name,
                points.len()
            );
            return Err(Problem::usage(what)
                .fix("choose one with --set NAME=VALUE, and leave replications out"));
        }
        let limits = SimLimits::of_each(self, file, points)?;
        let mut progress = SimProgress::new(output, points.len());
        let next = AtomicUsize::new(0);
        let (sender, updates) = mpsc::channel();
        std::thread::scope(|scope| {
            for _ in 0..limits.simulations {
                let (sender, next, limits) = (sender.clone(), &next, &limits);
                scope.spawn(move || {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        let Some(point) = points.get(index) else { return };
                        // Nobody receives any more once one of them has failed.
                        let is_wanted =
                            |share| sender.send(SimUpdate::Progress(index, share)).is_ok();
                        let ended = self.simulate(file, point, limits, is_wanted).map(Box::new);
                        if sender.send(SimUpdate::Ended(index, ended)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            updates.into_iter().try_for_each(|update| match update {
                SimUpdate::Progress(index, share) => {
                    progress.draw(index, share);
                    Ok(())
                }
                SimUpdate::Ended(index, run) => {
                    progress.end(index);
                    take(index, *run?)
                }
            })
        })
    }

    /// Simulates a point while it `is_wanted`, which is told the share of its time that is over.
    fn simulate(
        &self,
        file: &ScenarioFile,
        point: &SweptScenario,
        limits: &SimLimits,
        is_wanted: impl Fn(f64) -> bool,
    ) -> Result<SimRun, Problem> {
        let scenario = point.scenario.clone();
        let (title, seed, duration) = (scenario.title.clone(), scenario.seed.0, scenario.duration);
        let began_ns = monotonic_ns();
        let mut simulation = Simulation::with_threads(scenario, limits.memory, limits.threads)
            .map_err(|error| file.rejected(error))?;
        let threads = u32::try_from(simulation.threads()).unwrap_or(u32::MAX);
        let recording = match &self.pcap {
            Some(path) => Some((path, record(&mut simulation, path)?)),
            None => None,
        };
        let digest = self.digest.then(|| TraceDigest::attach(&mut simulation));
        while simulation.run_some(EVENTS) {
            let share = simulation.elapsed().as_secs_f64() / duration.as_secs_f64();
            if is_stopped() || !is_wanted(share) {
                let what = "interrupted: an unfinished simulation is not kept";
                return Err(Problem::from_message(what, ExitReason::Interrupted));
            }
        }
        let report = simulation.finish();
        if let Some((path, recording)) = recording {
            recording.finish().map_err(|error| not_recorded(path, &error))?;
        }
        let mut run = run_document(&report, title, seed);
        run.wall_seconds = (monotonic_ns() - began_ns) as f64 / 1e9;
        run.threads = threads;
        run.trace_sha256 = digest.map(TraceDigest::finish);
        run.variables.clone_from(&point.point.values);
        run.replication = point.point.replication;
        Ok(run)
    }
}

fn record(simulation: &mut Simulation, path: &Path) -> Result<PacketRecording, Problem> {
    PacketRecording::attach(simulation, path).map_err(|error| not_recorded(path, &error))
}

fn not_recorded(path: &Path, error: &std::io::Error) -> Problem {
    Problem::usage(format!("cannot write '{}'", path.display()))
        .because(error)
        .fix("name a file that you may write, on a disk with room")
}

/// How many simulations run beside each other, and what each of them may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SimLimits {
    simulations: u64,
    threads: u32,
    /// In bytes.
    memory: u64,
}

impl SimLimits {
    fn of_each(
        options: &ScenarioOptions,
        file: &ScenarioFile,
        points: &[&SweptScenario],
    ) -> Result<Self, Problem> {
        let cpus = || std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = options.threads.unwrap_or_else(|| u32::try_from(cpus()).unwrap_or(u32::MAX));
        if points.len() < 2 || threads == 1 {
            return Ok(Self { simulations: 1, threads, memory: options.memory });
        }
        let mut most = 0;
        for point in points {
            let need = point.scenario.memory_need().map_err(|error| file.rejected(error))?;
            most = most.max(need.bytes());
        }
        Ok(Self::divide(threads, options.memory, points.len() as u64, most))
    }

    /// Of so many `points`, each of which needs `most` bytes at most: one thread each before one network in several.
    fn divide(threads: u32, memory: u64, points: u64, most: u64) -> Self {
        let fitting = memory / most.max(1);
        let simulations = points.min(fitting).clamp(1, u64::from(threads));
        let threads = u32::try_from(u64::from(threads) / simulations).unwrap_or(1);
        Self { simulations, threads, memory: memory / simulations }
    }
}

/// How far all simulations of a file are.
#[derive(Debug)]
struct SimProgress {
    bar: Option<ProgressBar>,
    began_ns: u64,
    /// The share of each that is done.
    shares: Vec<f64>,
    /// Their sum.
    done: f64,
    ended: usize,
}

impl SimProgress {
    fn new(output: &CliOutput, count: usize) -> Self {
        let shares = vec![0.0; count];
        Self {
            bar: ProgressBar::new(output),
            began_ns: monotonic_ns(),
            shares,
            done: 0.0,
            ended: 0,
        }
    }

    fn end(&mut self, index: usize) {
        self.ended += 1;
        self.draw(index, 1.0);
    }

    fn draw(&mut self, index: usize, share: f64) {
        let Some(bar) = &mut self.bar else { return };
        self.done += share - std::mem::replace(&mut self.shares[index], share);
        let count = self.shares.len();
        let done = self.done / count as f64;
        let spent = Span::from_ns(monotonic_ns() - self.began_ns).as_secs_f64();
        let left = rough_duration(Span::from_secs_f64(spent * (1.0 - done) / done.max(1e-6)));
        let of_all = match count {
            1 => String::new(),
            count => format!("  {} of {count} done", self.ended),
        };
        bar.draw(done, &format!("{left} left{of_all}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simulations_share_threads_and_memory_and_one_alone_has_all() {
        let divided = |threads, points, most| {
            let SimLimits { simulations, threads, memory } =
                SimLimits::divide(threads, 1_000, points, most);
            (simulations, threads, memory)
        };
        assert_eq!(divided(8, 1, 10), (1, 8, 1_000));
        assert_eq!(divided(8, 3, 10), (3, 2, 333));
        assert_eq!(divided(8, 100, 10), (8, 1, 125));
        // No more than memory is there for.
        assert_eq!(divided(8, 100, 400), (2, 4, 500));
        assert_eq!(divided(8, 100, 2_000), (1, 8, 1_000));
    }
}
