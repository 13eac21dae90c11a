//! `plumb export`: a run in other formats.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use plumb_experiments::list::run_document;
use plumb_report::{csv, markdown, printable, prometheus};
use plumb_store::export;
use plumb_store::record::RunData;
use plumb_store::sqlite::StoreMode;

use super::output::{CliOutput, CommandResult};
use super::{GlobalOptions, store};
use crate::problem::{ExitReason, Problem};

/// Write a run as JSON, JSON lines, CSV, Markdown, HdrHistogram logs, Prometheus metrics or a run file
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb export last --format csv -o run.csv
  plumb export last --format jsonl | duckdb -c \"select * from read_json('/dev/stdin')\"
  plumb export last --format hdr -o run.hlog
  plumb export last --format plumb --anonymous -o this-machine.plumb
  plumb export last --format prometheus -o /var/lib/prometheus/node-exporter/plumb.prom")]
pub struct ExportCommand {
    /// A run: its id, a prefix of it, last or last~N
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// The format
    #[arg(long, short, default_value = "json")]
    format: ExportFormat,
    /// Take out host names and addresses; for --format plumb
    #[arg(long)]
    anonymous: bool,
    /// Where to write it [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// The run document, plumb.run/1
    Json,
    /// One object per block, with its raw samples
    Jsonl,
    /// One line per result
    Csv,
    /// GitHub-flavored tables
    Markdown,
    /// HdrHistogram interval log, one histogram per block
    Hdr,
    /// Metrics for node exporter's textfile collector
    Prometheus,
    /// A run file: everything that is stored, for plumb scale on another machine
    Plumb,
}

impl ExportCommand {
    /// Writes the run.
    ///
    /// # Errors
    /// No such run, or a file that cannot be written.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        let store = store::open(global, StoreMode::Read)?;
        let data = store::load(&store, &self.run)?;
        let format = if output.json { ExportFormat::Json } else { self.format };
        if self.anonymous && format != ExportFormat::Plumb {
            return Err(Problem::usage("--anonymous is for run files")
                .because("other formats keep what is stored of the hosts")
                .fix("add --format plumb, or leave --anonymous out")
                .into());
        }
        let bytes = render(&data, format, self.anonymous)?;
        match &self.output {
            None => output.bytes(&bytes)?,
            Some(path) => {
                write_file(path, &bytes)?;
                output.note(&format!("wrote {}", path.display()));
            }
        }
        Ok(ExitReason::Success)
    }
}

fn render(data: &RunData, format: ExportFormat, is_anonymous: bool) -> Result<Vec<u8>, Problem> {
    let mut bytes = Vec::new();
    let text = match format {
        ExportFormat::Json => {
            let text = serde_json::to_string_pretty(&run_document(data))
                .map_err(|error| Problem::failure("cannot write the run as JSON").because(error))?;
            printable::json(&text).into_owned() + "\n"
        }
        ExportFormat::Jsonl => {
            export::jsonl(data, &mut bytes).map_err(Problem::rejected)?;
            printable::json(&String::from_utf8_lossy(&bytes)).into_owned()
        }
        ExportFormat::Csv => csv::results(&run_document(data)),
        ExportFormat::Markdown => markdown::run(&run_document(data)),
        ExportFormat::Prometheus => prometheus::run(&run_document(data)),
        ExportFormat::Plumb => {
            let text = export::run_file::write(data, is_anonymous)
                .map_err(|error| Problem::failure("cannot write the run file").because(error))?;
            printable::json(&text).into_owned()
        }
        ExportFormat::Hdr => {
            export::hdr(data, &mut bytes).map_err(Problem::rejected)?;
            printable::lines(&String::from_utf8_lossy(&bytes)).into_owned()
        }
    };
    Ok(text.into_bytes())
}

/// Checks that a file can be written, before minutes are spent on its content.
///
/// # Errors
/// It cannot be written there.
pub fn check_writable(path: &Path) -> Result<(), Problem> {
    let tried = if is_special(path) {
        OpenOptions::new().write(true).open(path).map(drop)
    } else {
        let trial = temporary_path(path);
        std::fs::write(&trial, b"").and_then(|()| std::fs::remove_file(&trial))
    };
    tried.map_err(|error| not_written(path, &error))
}

/// Writes a file atomically: under a temporary name first, then renamed.
///
/// # Errors
/// It cannot be written there.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<(), Problem> {
    let written = if is_special(path) {
        std::fs::write(path, bytes)
    } else {
        let trial = temporary_path(path);
        std::fs::write(&trial, bytes).and_then(|()| std::fs::rename(&trial, path)).inspect_err(
            |_| {
                std::fs::remove_file(&trial).ok();
            },
        )
    };
    written.map_err(|error| not_written(path, &error))
}

/// Devices and pipes, such as /dev/stdout, are written to instead of replaced.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

/// The temporary name of a file.
fn temporary_path(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    path.with_file_name(name)
}

fn not_written(path: &Path, error: &io::Error) -> Problem {
    Problem::usage(format!("cannot write {}", path.display()))
        .because(error)
        .fix("name another file with -o")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checking_a_path_leaves_no_file_and_names_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("old"), "kept").unwrap();
        for path in [at("old"), at("new"), "/dev/null".into()] {
            check_writable(&path).unwrap();
        }
        assert_eq!(std::fs::read_to_string(at("old")).unwrap(), "kept");
        for path in [at("nowhere/at.all"), directory.path().to_owned()] {
            let problem = check_writable(&path).unwrap_err();
            assert_eq!(problem.exit, ExitReason::Usage);
            assert!(problem.why.is_some() && problem.fix.is_some(), "{problem}");
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
