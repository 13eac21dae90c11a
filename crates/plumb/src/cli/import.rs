//! `plumb import`: results of other tools, and run files of other hosts, as runs of the store.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use plumb_analysis::document::list::{RUNS_SCHEMA, RunsDocument};
use plumb_base::seed::Seed;
use plumb_report::printable;
use plumb_store::import::{self, ImportFormat};
use plumb_store::record::RunRecord;
use plumb_store::sqlite::StoreMode;

use super::output::{CliOutput, CommandResult};
use super::{GlobalOptions, store};
use crate::problem::{ExitReason, Problem};

/// Read a run file, or results of iperf3, netperf, sockperf, qperf, flent or lmbench, into the store
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  sockperf ping-pong -i 127.0.0.1 -t 5 > s.txt && plumb import sockperf s.txt
  iperf3 -c 127.0.0.1 -J > i.json && plumb import iperf3 i.json
  netperf -H host -t TCP_RR -j -- -k all > n.txt && plumb import netperf n.txt
  qperf host -v conf tcp_bw tcp_lat > q.txt && plumb import qperf q.txt
  plumb import plumb other-machine.plumb     what 'plumb export --format plumb' wrote there
  plumb import flent rrul-2026-11-21T093659.flent.gz
  plumb import lmbench results/x86_64-linux-gnu/host.0")]
pub struct ImportCommand {
    /// The tool that wrote it
    tool: ImportTool,
    /// The file, or - for standard input
    file: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ImportTool {
    Lmbench,
    Sockperf,
    Iperf3,
    Netperf,
    Qperf,
    Flent,
    Plumb,
}

impl ImportTool {
    const fn format(self) -> ImportFormat {
        match self {
            Self::Lmbench => ImportFormat::Lmbench,
            Self::Sockperf => ImportFormat::Sockperf,
            Self::Iperf3 => ImportFormat::Iperf3,
            Self::Netperf => ImportFormat::Netperf,
            Self::Qperf => ImportFormat::Qperf,
            Self::Flent => ImportFormat::Flent,
            Self::Plumb => ImportFormat::Plumb,
        }
    }
}

/// Notes of an import to print, with their prefixes.
const CAVEATS: &[(&str, &str)] = &[
    ("import.unread", ""),
    ("import.skipped", "not measured, or in an unknown unit: "),
    ("import.assumed", "assumed: "),
];

/// Longest file that is read, a hundred times more than these tools write.
const BYTES_MAX: u64 = 256 << 20;

impl ImportCommand {
    /// Stores the results in the file, one run each.
    ///
    /// # Errors
    /// The file cannot be read or is not of that tool; the store cannot be written.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        let name = self.file.display().to_string();
        let bytes = read_file(&self.file).map_err(|error| {
            Problem::usage(format!("cannot read {name}"))
                .because(error)
                .fix("name a file that another tool wrote, or - for standard input")
        })?;
        let format = self.tool.format();
        let runs = import::parse(format, &bytes).map_err(|error| {
            let problem = Problem::usage(format!("cannot import {name}")).because(error);
            match import::detect(&bytes) {
                Some(other) if other != format => {
                    problem.fix(format!("it looks like {other}: plumb import {other} {name}"))
                }
                _ => problem,
            }
        })?;
        let mut store = store::open(global, StoreMode::Write)?;
        let mut entries = Vec::new();
        for mut run in runs {
            let now = plumb_clock::unix_ms();
            if run.run.created_unix_ms == 0 {
                run.run.created_unix_ms = now;
            }
            run.run.notes.insert(RunRecord::IMPORT_FILE.to_owned(), file_name(&self.file));
            let taken = store.header(&run.run.id)?;
            if taken.as_ref().is_some_and(|it| it.created_unix_ms == run.run.created_unix_ms) {
                return Err(Problem::usage(format!("the run of {name} is in the store already"))
                    .fix(format!("plumb show {}", run.run.id))
                    .into());
            }
            if run.run.id.is_empty() || taken.is_some() {
                // Need not be unique: the store skips ids that are taken.
                let bits = Seed(plumb_clock::monotonic_ns()).derive("run id").0;
                run.run.id = store.new_run_id(&run.run.title, run.run.created_unix_ms, bits)?;
            }
            store.insert(&run)?;
            output.note(&format!("{}: {} results", run.run.id, run.cells.len()));
            for (note, meaning) in CAVEATS {
                if let Some(caveat) = run.run.notes.get(*note) {
                    output.note(&printable::line(&format!("{meaning}{caveat}")));
                }
            }
            entries.push(super::stored_runs::entry_of(&run));
        }
        if output.json {
            output.document(&RunsDocument {
                schema: RUNS_SCHEMA.to_owned(),
                store: store.path().display().to_string(),
                runs: entries,
            })?;
        } else if let Some(last) = entries.last() {
            output.note(&format!("next: plumb show {}", last.id));
        }
        Ok(ExitReason::Success)
    }
}

/// The file's name without its directories, which are private.
fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Reads a file of another tool, or standard input; not one that is far larger than any of them.
///
/// # Errors
/// It cannot be read, or is too large.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let taken = if path.as_os_str() == "-" {
        io::stdin().lock().take(BYTES_MAX + 1).read_to_end(&mut bytes)?
    } else {
        File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?
    };
    if taken as u64 > BYTES_MAX {
        return Err(io::Error::other("it is larger than 256 MiB"));
    }
    Ok(bytes)
}
