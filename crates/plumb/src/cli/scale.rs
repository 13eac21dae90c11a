//! `plumb scale`: many machines, and whether communication keeps up with their processors.

use std::path::{Path, PathBuf};

use clap::Args;
use plumb_analysis::scale::{MachineSet, SpeedKind, archive};
use plumb_experiments::machines::{self, ClassFactor, HISTORY_NAME};
use plumb_report::scaling;
use plumb_store::export::run_file;
use plumb_store::import;
use plumb_store::record::{Cell, RunData};

use super::export::{check_writable, write_file};
use super::import::read_file;
use super::output::{CliOutput, CommandResult};
use super::{GlobalOptions, store};
use crate::VERSION;
use crate::problem::{ExitReason, Problem};

/// Compare machines: how much of a faster processor arrives in calls, pipes, TCP and HTTP
#[derive(Clone, Debug, Args)]
#[command(
    after_help = "A machine is a run file (plumb export RUN --format plumb), a run of the store, results of lmbench as it
writes them, or a row of an archive of comma-separated values (host, mhz, null_call_us, pipe_lat_us, …).
Slopes are on logarithmic axes: 1 keeps up with processors. Fewer than four machines get points and no slope.

Examples:
  plumb scale                                   the archive that comes with plumb, and the runs of the store
  plumb scale *.plumb                           run files of several machines
  plumb scale archive last results/x86_64/host.0
  plumb scale history.csv --speed clock --by none -o machines.html"
)]
pub struct ScaleCommand {
    /// Run files, stored runs, files of lmbench, archives; 'archive' is the one that comes with plumb
    #[arg(value_name = "FILE|RUN")]
    sources: Vec<String>,
    /// What stands for the speed of a processor: index (plumb-index/1), spec (SPECint92 as an archive notes it), integer
    /// (divisions a second) or clock (rate) [default: the kind that most machines have]
    #[arg(long, value_name = "KIND", value_parser = parse_speed)]
    speed: Option<SpeedKind>,
    /// Lines beside that of all machines: one for each architecture, or none
    #[arg(long, value_name = "CLASS", value_parser = ["architecture", "none"])]
    #[arg(default_value = "architecture")]
    by: String,
    /// Write a page with figures as well
    #[arg(long, short, value_name = "FILE.html")]
    output: Option<PathBuf>,
}

fn parse_speed(text: &str) -> Result<SpeedKind, String> {
    let kinds = SpeedKind::ALL.map(SpeedKind::name).join(", ");
    let found = SpeedKind::ALL.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| format!("there is no such speed: choose from {kinds}"))
}

impl ScaleCommand {
    /// Reads the machines and prints what they say.
    ///
    /// # Errors
    /// A source that is none, or that names no machine; a page that cannot be written.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        if let Some(path) = &self.output {
            check_writable(path)?;
        }
        let set = if self.sources.is_empty() {
            default_machines(global)?
        } else {
            let mut set = MachineSet::default();
            for source in &self.sources {
                add(&mut set, source, global)?;
            }
            set
        };
        let speed = self.speed.unwrap_or_else(|| set.usual_speed());
        if !set.machines.iter().any(|machine| machine.speed.contains_key(&speed)) {
            let known = SpeedKind::ALL
                .into_iter()
                .filter(|kind| set.machines.iter().any(|machine| machine.speed.contains_key(kind)));
            let known: Vec<&str> = known.map(SpeedKind::name).collect();
            return Err(Problem::usage(format!("no machine has a speed by {}", speed.label()))
                .because("each machine is placed by its speed")
                .fix(if known.is_empty() {
                    "measure one on each: plumb index".to_owned()
                } else {
                    format!("--speed {}", known.join(" or "))
                })
                .into());
        }
        let by = if self.by == "none" { ClassFactor::None } else { ClassFactor::Architecture };
        let document = machines::scale_document(&set, speed, by);
        if let Some(path) = &self.output {
            let page = scaling::page(&document, VERSION);
            write_file(path, page.as_bytes())?;
            output.note(&format!("{}: {} kB", path.display(), page.len().div_ceil(1_000)));
        }
        output.show(&document, |style| scaling::in_terminal(&document, style))?;
        Ok(ExitReason::Success)
    }
}

/// The archive that comes with plumb, and the runs of the store that say something of this machine.
///
/// # Errors
/// The store cannot be read.
pub fn default_machines(global: &GlobalOptions) -> Result<MachineSet, Problem> {
    let mut set = machines::history();
    let Some(store) = store::open_if_there(global)? else { return Ok(set) };
    let experiments = store.experiments()?;
    for listing in store.runs()?.into_iter().take(RUNS_READ) {
        let names = experiments.get(&listing.run.id);
        let says = |name: &String| name.starts_with("scaling.") || name.starts_with("index.");
        if names.is_some_and(|names| names.iter().any(says)) {
            set.extend(machines::machine_of(&store.load(&listing.run.id)?));
        }
    }
    Ok(set)
}

/// Newest runs of the store that are looked at without being named.
const RUNS_READ: usize = 100;

/// Adds the machines of one source.
fn add(set: &mut MachineSet, source: &str, global: &GlobalOptions) -> Result<(), Problem> {
    if source == "archive" {
        let found = machines::history();
        set.notes.extend(found.notes);
        set.extend(found.machines);
        return Ok(());
    }
    let runs = if Path::new(source).is_file() {
        let bytes = read_file(Path::new(source))
            .map_err(|error| Problem::usage(format!("cannot read {source}")).because(error))?;
        match file_machines(source, &bytes)? {
            FileContent::Archive(found) => {
                set.notes.extend(found.notes);
                set.extend(found.machines);
                return Ok(());
            }
            FileContent::Runs(runs) => runs,
        }
    } else {
        let of_store = store::read(global, source).map_err(|problem| Problem {
            what: format!("there is no file '{source}', and as a run: {}", problem.what),
            ..problem
        })?;
        vec![of_store]
    };
    let mut found = Vec::new();
    for run in &runs {
        let without = |cell: &&Cell| {
            cell.imported.is_none() && !run.blocks.iter().any(|block| block.cell == cell.id)
        };
        let missing = run.cells.iter().filter(without).count();
        if missing > 0 {
            let cells = run.cells.len();
            set.notes.push(format!("{source}: {missing} of {cells} cells have no result"));
        }
        found.extend(machines::machine_of(run));
    }
    if found.is_empty() {
        return Err(Problem::usage(format!("{source} says nothing of a machine"))
            .because("it has none of the quantities that are compared over machines")
            .fix("export a run of plumb study scaling, plumb index or plumb run latency.local"));
    }
    set.extend(found);
    Ok(())
}

enum FileContent {
    Archive(MachineSet),
    Runs(Vec<RunData>),
}

/// What a file holds, by its content.
fn file_machines(source: &str, bytes: &[u8]) -> Result<FileContent, Problem> {
    let refused = |error: &dyn std::fmt::Display| {
        Problem::usage(format!("cannot use {source}")).because(error)
    };
    let text = String::from_utf8_lossy(bytes);
    if run_file::is_run_file(&text) {
        let run = run_file::read(&text).map_err(|error| {
            refused(&error).fix("export it again: plumb export RUN --format plumb -o FILE")
        })?;
        return Ok(FileContent::Runs(vec![run]));
    }
    if archive::is_archive(&text) {
        let name = Path::new(source).file_stem().unwrap_or_default().to_string_lossy();
        let name = if name == HISTORY_NAME { HISTORY_NAME } else { &name };
        let found = archive::read(&text, name).map_err(|error| {
            refused(&error).fix("correct the file; plumb help scale has the columns")
        })?;
        return Ok(FileContent::Archive(found));
    }
    let Some(format) = import::detect(bytes) else {
        return Err(refused(
            &"it is neither a run file nor an archive, nor the output of a tool that plumb imports",
        )
        .fix("name a file of plumb export --format plumb, of lmbench, or a .csv archive"));
    };
    let runs = import::parse(format, bytes)
        .map_err(|error| refused(&error).fix(format!("plumb import {format} {source}")))?;
    Ok(FileContent::Runs(runs))
}
