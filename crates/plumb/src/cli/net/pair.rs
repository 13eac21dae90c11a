//! `plumb net HOST --pair TOKEN`: this host and an agent get to know each other, once.
//!
//! Left out: the proofs, which are `plumb_net::secure`'s.

use plumb_analysis::document::pair::{PairDocument, SCHEMA};
use plumb_net::secure::token::NoToken;
use plumb_net::secure::{ConnectError, Remote, SecureStream, connect};

use crate::cli::agent::address;
use crate::cli::keys;
use crate::cli::output::{Failure, Output};
use crate::net::place::Family;
use crate::problem::{Exit, Problem};

/// The agent that `host` names, with its port.
///
/// # Errors
/// A name without an address.
pub fn remote(host: &str, family: Family) -> Result<Remote, Problem> {
    let (host, port) = address::host_and_port(host, plumb_net::secure::DEFAULT_PORT)?;
    let fault = |error: &dyn ToString| {
        Problem::trouble(format!("'{host}' has no address"))
            .because(error.to_string())
            .fix("check the spelling, or write the address itself")
    };
    let found = std::net::ToSocketAddrs::to_socket_addrs(&(host.as_str(), port));
    let addresses: Vec<_> = found.map_err(|error| fault(&error))?.collect();
    let addresses = family.of(&host, &addresses)?;
    if addresses.is_empty() {
        return Err(fault(&"the resolver knows none"));
    }
    let name =
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    Ok(Remote { name, addresses })
}

/// Pairs.
///
/// # Errors
/// The agent refuses, or is not there.
pub fn pair(host: &str, family: Family, token: &str, output: &Output) -> Result<Exit, Failure> {
    let token = token
        .parse()
        .map_err(|error: NoToken| Problem::from_message(&error.to_string(), Exit::Usage))?;
    let remote = remote(host, family)?;
    let fingerprint =
        connect::pair(&keys::identity()?, &keys::peers()?, &remote, &keys::own_name(), &token)
            .map_err(|error| problem(&error))?;
    let (agent, fingerprint) = (remote.name, fingerprint.to_string());
    if output.json {
        output.document(&PairDocument { schema: SCHEMA.to_owned(), agent, fingerprint })?;
    } else {
        output.page(&format!(
            "Paired with {agent}, whose key is {fingerprint}.\nMeasure with it:\n  plumb net tls:{host}\n"
        ))?;
    }
    Ok(Exit::Fine)
}

/// A session's connection to an agent that has been paired with.
///
/// # Errors
/// It was not, refuses, or is not there.
pub fn connect(host: &str) -> Result<SecureStream, Problem> {
    let remote = remote(host, Family::Any)?;
    connect::connect(&keys::identity()?, &keys::peers()?, &remote).map_err(|error| problem(&error))
}

/// A connection that stood, and went.
pub fn lost(host: &str, error: &std::io::Error) -> Problem {
    Problem::trouble(format!("the connection to '{host}' is lost")).because(error)
}

fn problem(error: &ConnectError) -> Problem {
    Problem::from_message(&error.to_string(), Exit::Trouble)
}
