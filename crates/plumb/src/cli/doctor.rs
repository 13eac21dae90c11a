//! `plumb doctor`: what this host can and cannot measure, why, and the fix.

use std::path::Path;

use clap::Args;
use plumb_analysis::document::checks::{DOCTOR_SCHEMA, DoctorCheck, DoctorDocument};
use plumb_harness::doctor;
use plumb_harness::environment;
use plumb_report::terminal;
use plumb_store::sqlite::{Store, StoreMode};

use super::output::{CliOutput, CommandResult};
use super::{GlobalOptions, store};
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
