//! A scenario's file on the command line, and the points of its sweep.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use plumb_base::time::Span;
use plumb_base::units::parse_bytes;
use plumb_base::units::quantity::parse_duration;
use plumb_sim::scenario::{Scenario, SweepPoint, sweep_points};
use ring::digest::{SHA256, digest};

use super::trace::hexadecimal;
use crate::cli::link::options::LocalFiles;
use crate::problem::Problem;

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
    pub digest: bool,
    /// Record every packet of every link in this pcapng file
    #[arg(long, value_name = "FILE.pcapng")]
    pub pcap: Option<PathBuf>,
    /// Memory that packets may take
    #[arg(long, value_name = "BYTES", default_value = "4GiB", value_parser = parse_bytes)]
    pub memory: u64,
    /// Threads: for simulations beside each other, or for the parts of one network [default: one per CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub threads: Option<u32>,
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
}

fn parse_assignment(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("write NAME=VALUE, as in buffer=1bdp")?;
    Ok((name.to_owned(), value.to_owned()))
}
