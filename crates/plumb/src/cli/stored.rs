//! Opening the store and finding runs in it, for the subcommands that read.
//!
//! Left out: the store itself, and what a run means.

use std::path::PathBuf;

use plumb_store::location;
use plumb_store::record::RunData;
use plumb_store::sqlite::{Mode, Store, StoreError};

use super::Global;
use crate::problem::{Exit, Problem};

/// Where the store is.
///
/// # Errors
/// No place is known.
pub fn path(global: &Global) -> Result<PathBuf, Problem> {
    location::default_path(global.store.clone(), |name| std::env::var_os(name))
        .map_err(|error| Problem::from_message(&error.to_string(), Exit::Usage))
}

/// Opens the store.
///
/// # Errors
/// Whatever keeps its file from being a store that can be used.
pub fn open(global: &Global, mode: Mode) -> Result<Store, Problem> {
    Ok(Store::open(&path(global)?, mode)?)
}

/// Opens the store for reading; none where nothing has been measured yet.
///
/// # Errors
/// As [`open`].
pub fn open_if_there(global: &Global) -> Result<Option<Store>, Problem> {
    match Store::open(&path(global)?, Mode::Read) {
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

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let exit = match error {
            StoreError::NoRun { .. } | StoreError::Ambiguous { .. } => Exit::Usage,
            _ => Exit::Trouble,
        };
        Self::from_message(&error.to_string(), exit)
    }
}
