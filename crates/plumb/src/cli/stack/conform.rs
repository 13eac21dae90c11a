//! `plumb stack conform`: runs packetdrill scripts against plumb's own stack in virtual time.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use plumb_analysis::document::stack::{ConformDocument, ConformScript, SCHEMA};
use plumb_base::seed::Seed;
use plumb_conform::outcome::ScriptOutcome;
use plumb_conform::runner;
use plumb_conform::settings::{RunSettings, ScriptSystem};

use crate::cli::output::{CliOutput, CommandResult};
use crate::problem::{ExitReason, Problem};

/// Run packetdrill scripts against plumb's own TCP, in virtual time
#[derive(Clone, Debug, Args)]
#[command(after_help = "\
Scripts are in packetdrill's language. They run in virtual time, without privileges, and give the same
result every time. A script that needs what this interpreter or the stack does not have is unsupported, which
is neither passed nor failed. The exit code is 1 if a script failed.

Examples:
  plumb stack conform handshake.pkt
  plumb stack conform tcp-testsuite/state-event-engine --system freebsd
  plumb stack conform scripts/ --json")]
pub struct StackConformCommand {
    /// Scripts, or folders whose .pkt files are run
    #[arg(value_name = "FILE.pkt|DIR", required = true)]
    paths: Vec<PathBuf>,
    /// System whose defaults and visible choices the scripts expect
    #[arg(long, value_enum, default_value = "linux")]
    system: ConformSystem,
    /// MTU of the interface, unless a script sets it
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(68..=65_535))]
    mtu: Option<u32>,
    /// Print only what did not pass
    #[arg(long)]
    failures: bool,
    /// Seed of every random choice
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ConformSystem {
    Linux,
    Freebsd,
    Plain,
}

impl StackConformCommand {
    /// Runs the scripts and prints what became of each.
    ///
    /// # Errors
    /// A path that cannot be read.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let system = match self.system {
            ConformSystem::Linux => ScriptSystem::Linux,
            ConformSystem::Freebsd => ScriptSystem::FreeBsd,
            ConformSystem::Plain => ScriptSystem::Plain,
        };
        let mut settings = RunSettings::new(system);
        if let Some(mtu) = self.mtu {
            settings.mtu = mtu;
        }
        let mut files = Vec::new();
        for path in &self.paths {
            find_scripts(path, &mut files)?;
        }
        if files.is_empty() {
            return Err(Problem::usage("there is no .pkt file in these folders").into());
        }
        let mut document = ConformDocument { schema: SCHEMA.to_owned(), ..Default::default() };
        for file in files {
            let bytes = std::fs::read(&file).map_err(|error| unreadable(&file, error))?;
            let text = String::from_utf8_lossy(&bytes);
            let outcome = runner::run(&text, &settings, Seed(self.seed));
            let script = describe(&file, outcome);
            match script.outcome.as_str() {
                "passed" => document.passed += 1,
                "unsupported" => document.unsupported += 1,
                _ => document.failed += 1,
            }
            document.scripts.push(script);
        }
        let failures = self.failures;
        output.show(&document, |_| page(&document, failures))?;
        Ok(if document.failed > 0 { ExitReason::CheckFailed } else { ExitReason::Success })
    }
}

fn unreadable(path: &Path, error: std::io::Error) -> Problem {
    Problem::usage(format!("cannot read '{}'", path.display())).because(error)
}

/// Appends a script, or those in a folder and below it, in order of their names.
fn find_scripts(path: &Path, files: &mut Vec<PathBuf>) -> Result<(), Problem> {
    if !path.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    let entries = std::fs::read_dir(path).map_err(|error| unreadable(path, error))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(|error| unreadable(path, error))?.path());
    }
    paths.sort();
    for path in paths {
        // A link may lead back to a folder above.
        let is_link = path.is_symlink();
        if path.is_dir() && !is_link {
            find_scripts(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "pkt") {
            files.push(path);
        }
    }
    Ok(())
}

fn describe(file: &Path, outcome: ScriptOutcome) -> ConformScript {
    let (outcome, at, reason) = match outcome {
        ScriptOutcome::Passed => ("passed", None, String::new()),
        ScriptOutcome::Failed { at, reason } => ("failed", Some(at), reason),
        ScriptOutcome::Unsupported { at, what } => ("unsupported", Some(at), what),
        ScriptOutcome::Malformed { at, reason } => ("malformed", Some(at), reason),
    };
    ConformScript {
        file: file.display().to_string(),
        outcome: outcome.to_owned(),
        line: at.map(|at| at.line),
        column: at.map(|at| at.column),
        reason,
    }
}

fn page(document: &ConformDocument, failures: bool) -> String {
    let mut text = String::new();
    for script in document.scripts.iter().filter(|script| !failures || script.outcome != "passed") {
        let place = match (script.line, script.column) {
            (Some(line), Some(column)) => format!(":{line}:{column}"),
            _ => String::new(),
        };
        let colon = if script.reason.is_empty() { "" } else { ": " };
        let _ =
            writeln!(text, "{}{place}: {}{colon}{}", script.file, script.outcome, script.reason);
    }
    let ConformDocument { passed, failed, unsupported, .. } = document;
    text + &format!("{passed} passed, {failed} failed, {unsupported} unsupported\n")
}
