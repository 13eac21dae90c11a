//! `plumb store`, and opening the store for other commands.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use plumb_analysis::document::host::{CheckDocument, STORE_CHECK_SCHEMA};
use plumb_base::stats::histogram::Histogram;
use plumb_experiments::error::ExperimentError;
use plumb_store::record::RunData;
use plumb_store::sqlite::{Store, StoreError, StoreMode, default_path};

use crate::cli::GlobalOptions;
use crate::cli::output::{CliOutput, CommandResult};
use crate::problem::{ExitReason, Problem};

/// Check the store, print its path, or delete a run
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  plumb store check
  plumb store delete latency-local-20261121-7f3a")]
pub struct StoreCommand {
    #[command(subcommand)]
    action: StoreAction,
}

#[derive(Clone, Debug, Subcommand)]
enum StoreAction {
    /// Check the integrity of the file, its references and every histogram
    Check,
    /// Print the path of the store
    Path,
    /// Delete a run and all of its data
    Delete {
        /// Its full id
        run: String,
    },
}

impl StoreCommand {
    /// Whether it has no JSON document.
    pub const fn is_text_only(&self) -> bool {
        matches!(self.action, StoreAction::Path | StoreAction::Delete { .. })
    }

    /// Runs the subcommand.
    ///
    /// # Errors
    /// The store cannot be used.
    pub fn perform(self, global: &GlobalOptions, output: &CliOutput) -> CommandResult {
        match self.action {
            StoreAction::Check => check(&open(global, StoreMode::Read)?, output),
            StoreAction::Path => {
                output.page(&format!("{}\n", path(global)?.display()))?;
                Ok(ExitReason::Success)
            }
            StoreAction::Delete { run } => {
                let mut store = open(global, StoreMode::Write)?;
                let found = store.find(&run)?;
                if found != run {
                    return Err(Problem::usage(format!("'{run}' is not the full id of a run"))
                        .because("deleting cannot be undone, so a run must be named in full")
                        .fix(format!("if you mean it: plumb store delete {found}"))
                        .into());
                }
                store.delete_run(&run)?;
                output.note(&format!("deleted {run}"));
                Ok(ExitReason::Success)
            }
        }
    }
}

fn check(store: &Store, output: &CliOutput) -> CommandResult {
    let mut blocks = 0;
    let faults = store.check(|data| {
        blocks += data.blocks.len() as u64;
        let held = data.blocks.iter().filter(|block| !block.histogram.is_empty());
        held.filter_map(|block| {
            let error = Histogram::decode(&block.histogram).err()?;
            Some(format!(
                "cell {}, launch {}: its histogram cannot be read: {error}",
                block.cell, block.launch
            ))
        })
        .collect()
    });
    let faults = faults?;
    let runs = store.runs()?.len() as u64;
    let sound = faults.is_empty();
    let document = CheckDocument {
        schema: STORE_CHECK_SCHEMA.to_owned(),
        store: store.path().display().to_string(),
        runs,
        blocks,
        sound,
        faults,
    };
    output.show(&document, |_| {
        let verdict = if sound { "is sound" } else { "is damaged" };
        let summary = format!("{} {verdict}: {runs} runs, {blocks} blocks", document.store);
        let lines = std::iter::once(&summary).chain(&document.faults);
        format!("{}\n", lines.map(String::as_str).collect::<Vec<_>>().join("\n  "))
    })?;
    Ok(if sound { ExitReason::Success } else { ExitReason::Failure })
}

/// The path of the store.
///
/// # Errors
/// Neither an option nor the environment names one.
pub fn path(global: &GlobalOptions) -> Result<PathBuf, Problem> {
    default_path(global.store.clone(), |name| std::env::var_os(name)).map_err(Problem::rejected)
}

/// Opens the store.
///
/// # Errors
/// The file is missing, is not a store, or cannot be used.
pub fn open(global: &GlobalOptions, mode: StoreMode) -> Result<Store, Problem> {
    Ok(Store::open(&path(global)?, mode)?)
}

/// Opens the store for reading; none if nothing has been measured yet.
///
/// # Errors
/// As [`open`].
pub fn open_if_there(global: &GlobalOptions) -> Result<Option<Store>, Problem> {
    match Store::open(&path(global)?, StoreMode::Read) {
        Ok(store) => Ok(Some(store)),
        Err(StoreError::Missing { .. } | StoreError::Empty { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Reads the run that `text` names: an id, its beginning, `last` or `last~2`.
///
/// # Errors
/// No such run, several such runs, or a store that cannot be read.
pub fn load(store: &Store, text: &str) -> Result<RunData, Problem> {
    let id = store.find(text)?;
    Ok(store.load(&id)?)
}

/// Opens the store and reads the run that `text` names.
///
/// # Errors
/// As [`open`] and [`load`].
pub fn read(global: &GlobalOptions, text: &str) -> Result<RunData, Problem> {
    load(&open(global, StoreMode::Read)?, text)
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        ExperimentError::from(error).into()
    }
}
