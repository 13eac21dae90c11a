//! `plumb doctor`: what this host can and cannot measure, why, and the fix; `plumb selftest`: whether the statistics and the
//! clock are right on it.

use std::path::Path;

use clap::Args;
use plumb_analysis::document::host::{DOCTOR_SCHEMA, DoctorCheck, DoctorDocument};
use plumb_experiments::selftest;
use plumb_harness::{doctor, environment};
use plumb_report::terminal;
use plumb_store::sqlite::{Store, StoreMode};

use super::output::{CliOutput, CommandResult};
use super::progress::ProgressBar;
use super::{GlobalOptions, seed_or_random, store};
use crate::VERSION;
use crate::problem::ExitReason;

/// Show what this host can and cannot measure, why, and how to fix it
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb doctor
  plumb doctor --strict || echo 'not a host to measure on'")]
pub struct DoctorCommand {
    /// Exit with 1 unless every check passes
    #[arg(long)]
    strict: bool,
}

impl DoctorCommand {
    /// Checks the host and the store.
    ///
    /// # Errors
    /// Standard output cannot be written.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        let mut checks: Vec<DoctorCheck> = doctor::examine().into_iter().map(entry).collect();
        checks.push(store_check(global));
        let is_fine = checks.iter().all(|check| check.status == "ok");
        let document = DoctorDocument {
            schema: DOCTOR_SCHEMA.to_owned(),
            checks,
            machine: environment::capture(),
        };
        output.show(&document, |style| terminal::checks::doctor(&document, style))?;
        Ok(if self.strict && !is_fine { ExitReason::CheckFailed } else { ExitReason::Success })
    }
}

fn entry(check: doctor::HostCheck) -> DoctorCheck {
    DoctorCheck {
        id: check.id.to_owned(),
        what: check.what.to_owned(),
        status: check.status.name().to_owned(),
        finding: check.finding,
        why: check.why,
        fix: check.fix,
    }
}

/// Checks that runs can be stored.
fn store_check(global: &GlobalOptions) -> DoctorCheck {
    let check = |status: &str, finding: String, why: &str, fix: String| DoctorCheck {
        id: "store".to_owned(),
        what: "the store can be written".to_owned(),
        status: status.to_owned(),
        finding,
        why: why.to_owned(),
        fix,
    };
    let why = "no run can be stored, so none can be compared or reported";
    let path = match store::path(global) {
        Ok(path) => path,
        Err(problem) => {
            return check("missing", problem.what, why, problem.fix.unwrap_or_default());
        }
    };
    let outcome = if path.exists() {
        Store::open(&path, StoreMode::Write).map(|_| "it exists").map_err(|error| error.to_string())
    } else {
        check_directory(&path).map(|()| "the first run will create it")
    };
    match outcome {
        Ok(state) => check("ok", format!("{}: {state}", path.display()), "", String::new()),
        Err(error) => {
            let fix = "name another file with --store, or set PLUMB_STORE".to_owned();
            check("missing", format!("{}: {error}", path.display()), why, fix)
        }
    }
}

/// Creates a file in the nearest existing directory, and removes it again.
fn check_directory(path: &Path) -> Result<(), String> {
    let Some(directory) = path
        .ancestors()
        .skip(1)
        .find(|directory| directory.as_os_str().is_empty() || directory.exists())
    else {
        return Err("there is no such directory".to_owned());
    };
    let trial = directory.join(format!(".plumb-{}", std::process::id()));
    std::fs::write(&trial, b"").map_err(|error| error.to_string())?;
    std::fs::remove_file(&trial).map_err(|error| error.to_string())
}

/// Check on this machine that confidence intervals cover, equal runs compare as equal, and injected delays are found
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb selftest
  plumb selftest --seed 7 --json
  plumb selftest --tables 2000

Takes about two minutes. Exit code 1 if a check fails: comparisons on this machine, or by this
plumb, are not reliable then; try again on an idle machine first.")]
pub struct SelftestCommand {
    /// Seed of every random choice
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Simulate so many tables of each preset and launch effect, instead of a sample; 2000 take about an hour
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    tables: Option<u64>,
}

impl SelftestCommand {
    /// Runs the trials and prints their results.
    ///
    /// # Errors
    /// A measurement failed; a failed check is an exit code.
    pub fn perform(self, output: &CliOutput) -> CommandResult {
        let seed = seed_or_random(self.seed)?;
        let duration = if self.tables.is_none() { ": about two minutes" } else { "" };
        output.note(&format!("self-test with seed {}{duration}", seed.0));
        let mut bar = ProgressBar::new(output);
        let document = selftest::run(seed, self.tables, VERSION, &mut |what, share| {
            if let Some(bar) = &mut bar {
                bar.draw(share, what);
            }
        });
        drop(bar);
        let document = document?;
        output.show(&document, |style| terminal::checks::selftest(&document, style))?;
        Ok(if document.passed { ExitReason::Success } else { ExitReason::CheckFailed })
    }
}
