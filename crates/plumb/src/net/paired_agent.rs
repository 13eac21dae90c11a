//! Agents that were paired with this host: its key, the list of its peers, and connecting to one of them.

use std::path::PathBuf;

use plumb_remote::secure::{
    AgentAddress, DEFAULT_PORT, HostIdentity, PeerStore, SecureStream, connect,
};
use plumb_store::sqlite::default_path;

use super::address::host_and_port;
use super::host_target::AddressFamily;
use crate::problem::Problem;

/// The directory of the key and the list: `plumb/net` in the XDG data directory, wherever the store is.
///
/// # Errors
/// No place is known.
pub fn directory() -> Result<PathBuf, Problem> {
    let environment =
        |name: &str| (name != "PLUMB_STORE").then(|| std::env::var_os(name)).flatten();
    let store = default_path(None, environment).map_err(|_| {
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
pub fn identity() -> Result<HostIdentity, Problem> {
    HostIdentity::open_or_create(&directory()?).map_err(Problem::failed)
}

/// Whom this host has been paired with.
///
/// # Errors
/// No place is known.
pub fn peers() -> Result<PeerStore, Problem> {
    Ok(PeerStore::in_directory(&directory()?))
}

/// What this host calls itself when it is paired: `user@host`.
pub fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let user = std::env::var("USER").unwrap_or_else(|_| "somebody".to_owned());
    format!("{user}@{}", host.trim())
}

/// The agent that `host` names, with its port.
///
/// # Errors
/// A name without an address.
pub fn remote(host: &str, family: AddressFamily) -> Result<AgentAddress, Problem> {
    let (host, port) = host_and_port(host, DEFAULT_PORT)?;
    let fault = |error: &dyn ToString| {
        Problem::failure(format!("'{host}' has no address"))
            .because(error.to_string())
            .fix("check the spelling, or write the address itself")
    };
    let found = std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port));
    let addresses: Vec<_> = found.map_err(|error| fault(&error))?.collect();
    let addresses = family.filter_addresses(&host, &addresses)?;
    if addresses.is_empty() {
        return Err(fault(&"the resolver knows none"));
    }
    let name =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    Ok(AgentAddress { name, addresses })
}

/// A session's connection to an agent that has been paired with.
///
/// # Errors
/// It was not, refuses, or is not there.
pub fn connect_to(host: &str) -> Result<SecureStream, Problem> {
    let remote = remote(host, AddressFamily::Any)?;
    connect::connect(&identity()?, &peers()?, &remote).map_err(Problem::failed)
}

/// A connection that stood, and went.
pub fn lost(host: &str, error: &std::io::Error) -> Problem {
    Problem::failure(format!("the connection to '{host}' is lost")).because(error)
}
