//! `plumb sweep`: the simulations of a sweep, of which each is kept in a file of its own, in parts by any number of processes.

use std::path::{Path, PathBuf};

use clap::Args;
use plumb_analysis::document::sim::SimRun;

use super::output::{CliOutput, CommandResult};
use super::sim::scenario_file::{ScenarioFile, ScenarioOptions, SweptScenario};
use super::sim::{document, show};
use super::{GlobalOptions, handle_stop_signals};
use crate::problem::{ExitReason, Problem};

/// Simulate a part of a sweep, and keep each simulation in a file
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Each simulation is kept in a file of the folder, whose name depends on the scenario, the point of its sweep, the options
and the version of plumb. One that is there is not run again, so that a sweep that was cut goes on where it was, and parts
that several machines have done are merged by copying their files into one folder. When every point is there, the whole is
printed and stored as a run. Without --shard, SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT are used.

Examples:
  plumb sweep scenarios/fairness.toml --results fairness
  plumb sweep scenarios/fairness.toml --results fairness --shard 3/8      the third of eight parts")]
pub struct SweepCommand {
    #[command(flatten)]
    scenario: ScenarioOptions,
    /// The folder for results
    #[arg(long, value_name = "DIR")]
    results: PathBuf,
    /// Which part of how many: every COUNT-th point
    #[arg(long, value_name = "PART/COUNT", value_parser = parse_shard)]
    shard: Option<SweepShard>,
    /// Do not store the whole as a run
    #[arg(long)]
    no_store: bool,
}

/// A part of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct SweepShard {
    /// From 0.
    part: usize,
    count: usize,
}

impl SweepCommand {
    /// Runs what is missing of the part, and prints everything once it is complete.
    ///
    /// # Errors
    /// A file or folder that cannot be read or written; an interruption.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        let file = self.scenario.load()?;
        let shard = match self.shard {
            Some(shard) => shard,
            None => shard_of_batch(&|name| std::env::var(name).ok())?,
        };
        std::fs::create_dir_all(&self.results)
            .map_err(|error| not_written(&self.results, &error))?;
        handle_stop_signals()?;
        let own = || {
            file.points
                .iter()
                .enumerate()
                .filter(move |(index, _)| index % shard.count == shard.part)
        };
        let missing: Vec<&SweptScenario> = own()
            .map(|(_, point)| point)
            .filter(|point| !self.path(&file, point).is_file())
            .collect();
        let (all, found) = (own().count(), own().count() - missing.len());
        self.scenario.run(&file, &missing, output, |index, run| {
            keep(&self.path(&file, missing[index]), &run)
        })?;
        if found > 0 {
            output.note(&format!("{found} of {all} simulations were there already"));
        }
        let mut runs = Vec::new();
        for point in &file.points {
            let path = self.path(&file, point);
            if path.is_file() {
                runs.push(read(&path)?);
            }
        }
        if runs.len() < file.points.len() {
            let (there, all) = (runs.len(), file.points.len());
            output.note(&format!(
                "{there} of {all} simulations are there; the other parts are missing"
            ));
            return Ok(ExitReason::Success);
        }
        let store = (!self.no_store).then_some(global);
        show(&document(&file, runs), false, store, output)
    }

    fn path(&self, file: &ScenarioFile, point: &SweptScenario) -> PathBuf {
        self.results.join(format!("{}.json", self.scenario.key(file, point)))
    }
}

/// Writes a result whole or not at all.
fn keep(path: &Path, run: &SimRun) -> Result<(), Problem> {
    let text = serde_json::to_string(run)
        .map_err(|error| Problem::failure("cannot write the result as JSON").because(error))?;
    let part = path.with_extension(format!("{}.part", std::process::id()));
    std::fs::write(&part, text)
        .and_then(|()| std::fs::rename(&part, path))
        .map_err(|error| not_written(path, &error))
}

fn read(path: &Path) -> Result<SimRun, Problem> {
    let wrong = |why: String| {
        Problem::failure(format!("'{}' is not the result of a simulation", path.display()))
            .because(why)
            .fix("remove it; the simulation is then run again")
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))
}

fn not_written(path: &Path, error: &std::io::Error) -> Problem {
    Problem::usage(format!("cannot write '{}'", path.display()))
        .because(error)
        .fix("name a folder that you may write to")
}

fn parse_shard(text: &str) -> Result<SweepShard, String> {
    let wrong = || "write PART/COUNT with a part from 1 to COUNT, as in 3/8".to_owned();
    let (part, count) = text.split_once('/').ok_or_else(wrong)?;
    let (part, count) = (part.parse::<usize>(), count.parse::<usize>());
    match (part, count) {
        (Ok(part), Ok(count)) if (1..=count).contains(&part) => {
            Ok(SweepShard { part: part - 1, count })
        }
        _ => Err(wrong()),
    }
}

/// The part that an array job of a batch system is, the whole otherwise.
fn shard_of_batch(variable: &dyn Fn(&str) -> Option<String>) -> Result<SweepShard, Problem> {
    let number = |name: &str| variable(name).and_then(|text| text.parse::<usize>().ok());
    let names = ["SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", "SLURM_ARRAY_TASK_MIN"];
    let [Some(id), Some(count), min] = names.map(number) else {
        return Ok(SweepShard { part: 0, count: 1 });
    };
    let part = id.checked_sub(min.unwrap_or(0)).filter(|part| *part < count);
    part.map(|part| SweepShard { part, count }).ok_or_else(|| {
        Problem::usage(format!("task {id} is not one of the {count} tasks of this array job"))
            .because("SLURM_ARRAY_TASK_ID and SLURM_ARRAY_TASK_COUNT do not agree")
            .fix("give the part: --shard PART/COUNT")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_count_from_one_and_make_up_the_whole() {
        assert_eq!(parse_shard("1/8"), Ok(SweepShard { part: 0, count: 8 }));
        assert_eq!(parse_shard("8/8"), Ok(SweepShard { part: 7, count: 8 }));
        for wrong in ["0/8", "9/8", "1/0", "1", "a/b", "-1/8"] {
            assert!(parse_shard(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_array_job_says_which_part_it_is() {
        let job = |id: &'static str, count: &'static str| {
            move |name: &str| match name {
                "SLURM_ARRAY_TASK_ID" => Some(id.to_owned()),
                "SLURM_ARRAY_TASK_COUNT" => Some(count.to_owned()),
                "SLURM_ARRAY_TASK_MIN" => Some("1".to_owned()),
                _ => None,
            }
        };
        assert_eq!(shard_of_batch(&job("3", "8")), Ok(SweepShard { part: 2, count: 8 }));
        assert_eq!(shard_of_batch(&|_| None), Ok(SweepShard { part: 0, count: 1 }));
        assert!(shard_of_batch(&job("9", "8")).is_err());
    }
}
