//! Where this host's key and the list of its peers are: beside the store, in a directory of their own.
//!
//! Left out: what is in them (`plumb_net::secure`).

use std::path::PathBuf;

use plumb_net::secure::{Identity, Peers};
use plumb_store::location;

use crate::problem::{Exit, Problem};

/// The directory of the key and the list: `plumb/net` in the XDG data directory, wherever the store is.
///
/// # Errors
/// No place is known.
pub fn directory() -> Result<PathBuf, Problem> {
    let environment =
        |name: &str| (name != "PLUMB_STORE").then(|| std::env::var_os(name)).flatten();
    let store = location::default_path(None, environment).map_err(|_| {
        Problem::usage("there is no place for this host's key")
            .because("neither XDG_DATA_HOME nor HOME is set")
            .fix("set HOME")
    })?;
    Ok(store.with_file_name("net"))
}

/// This host's key, made at the first time.
///
/// # Errors
/// It can be neither read nor made.
pub fn identity() -> Result<Identity, Problem> {
    Identity::open_or_create(&directory()?)
        .map_err(|error| Problem::from_message(&error.to_string(), Exit::Trouble))
}

/// Whom this host has been paired with.
///
/// # Errors
/// No place is known.
pub fn peers() -> Result<Peers, Problem> {
    Ok(Peers::in_directory(&directory()?))
}

/// What this host calls itself when it is paired: `user@host`.
pub fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let user = std::env::var("USER").unwrap_or_else(|_| "somebody".to_owned());
    format!("{user}@{}", host.trim())
}
