//! `plumb export`: a run in the formats of other programs.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use plumb_experiments::list::run_document;
use plumb_report::{csv, markdown, prometheus};
use plumb_store::export;
use plumb_store::record::RunData;
use plumb_store::sqlite::StoreMode;

use super::output::{CliOutput, CommandError};
use super::{GlobalOptions, store};
use crate::problem::{ExitReason, Problem};

/// Write a run as JSON, JSON lines, CSV, Markdown, HdrHistogram logs or Prometheus metrics
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb export last --format csv -o run.csv
  plumb export last --format jsonl | duckdb -c \"select * from read_json('/dev/stdin')\"
  plumb export last --format hdr -o run.hlog
  plumb export last --format prometheus -o /var/lib/prometheus/node-exporter/plumb.prom")]
pub struct ExportCommand {
    /// A run: its id, the beginning of it, last or last~N
    #[arg(value_name = "RUN", default_value = "last")]
    run: String,
    /// The format
    #[arg(long, short, default_value = "json")]
    format: ExportFormat,
    /// Where to write it [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// The run document, plumb.run/1
    Json,
    /// One object a block, with its raw samples
    Jsonl,
    /// One line a result
    Csv,
    /// Tables for a page on GitHub
    Markdown,
    /// HdrHistogram interval log, one histogram a block
    Hdr,
    /// Metrics for node exporter's textfile collector
    Prometheus,
}

impl ExportCommand {
    /// Writes it.
    ///
    /// # Errors
    /// No such run, or a file that cannot be written.
    pub fn perform(
        self,
        global: &GlobalOptions,
        output: &CliOutput,
    ) -> Result<ExitReason, CommandError> {
        let store = store::open(global, StoreMode::Read)?;
        let data = store::load(&store, &self.run)?;
        let format = if output.json { ExportFormat::Json } else { self.format };
        let bytes = render(&data, format)?;
        match &self.output {
            None => output.bytes(&bytes)?,
            Some(path) => {
                write_file(path, &bytes)?;
                output.note(&format!("{} is written", path.display()));
            }
        }
        Ok(ExitReason::Success)
    }
}

fn render(data: &RunData, format: ExportFormat) -> Result<Vec<u8>, Problem> {
    let refused =
        |error: export::ExportError| Problem::from_message(&error.to_string(), ExitReason::Usage);
    let mut bytes = Vec::new();
    match format {
        ExportFormat::Json => {
            serde_json::to_writer_pretty(&mut bytes, &run_document(data))
                .map_err(|error| Problem::failure("cannot write the run as JSON").because(error))?;
            bytes.push(b'\n');
        }
        ExportFormat::Jsonl => export::jsonl(data, &mut bytes).map_err(refused)?,
        ExportFormat::Csv => bytes = csv::results(&run_document(data)).into_bytes(),
        ExportFormat::Markdown => bytes = markdown::run(&run_document(data)).into_bytes(),
        ExportFormat::Prometheus => bytes = prometheus::run(&run_document(data)).into_bytes(),
        ExportFormat::Hdr => export::hdr(data, &mut bytes).map_err(refused)?,
    }
    Ok(bytes)
}

/// Refuses a file that could not be written, before minutes are spent on what is to be in it.
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

/// Writes a file whole or not at all: beside its place first, then moved there.
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

/// A device or a pipe, such as /dev/stdout, is written to, not replaced; a directory cannot be either.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file())
}

/// Where a file stands until it is whole.
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
    fn a_place_is_tried_without_a_trace_and_refused_with_the_reason() {
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
