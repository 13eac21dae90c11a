//! `plumb agent --http`: plumb's web server, for `plumb net --http` and for any browser.
//!
//! Left out: serving, which is `plumb_net::http::server`'s.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use plumb_analysis::document::agent::{AgentDocument, SCHEMA};
use plumb_net::http::DEFAULT_PORT;
use plumb_net::http::server::{Limits, Server};

use super::address;
use crate::cli::keys;
use crate::cli::output::{Failure, Output};
use crate::problem::{Exit, Problem};

/// Serves on `place` until it is stopped.
///
/// # Errors
/// The address is not to be had, or this host has no key.
pub fn serve(place: &str, output: &Output) -> Result<Exit, Failure> {
    let default = SocketAddr::from(([127, 0, 0, 1], DEFAULT_PORT));
    let address = address::parse(place, default)?;
    let identity = keys::identity()?;
    let fault = |error: &dyn ToString| Problem::from_message(&error.to_string(), Exit::Trouble);
    let server =
        Server::bind(address, &identity, Limits::default()).map_err(|error| fault(&error))?;
    let address = server.address().map_err(|error| fault(&error))?;
    let fingerprint = server.fingerprint().to_string();
    if output.json {
        output.document(&AgentDocument {
            schema: SCHEMA.to_owned(),
            mode: "http".to_owned(),
            address: address.to_string(),
            fingerprint,
            token: None,
        })?;
    } else {
        output.page(&format!(
            "One page with 12 images, 40 kB in all, until Ctrl-C:\n  http://{address}/   HTTP/1.1 and \
             HTTP/2\n  https://{address}/  the same over TLS 1.3, and HTTP/3 over QUIC\n\
             Its certificate is {fingerprint}\nMeasure it:\n  plumb net --http {address}\n"
        ))?;
    }
    plumb_host::stop::listen().ok();
    let counts = server.counts();
    server.run(|| plumb_host::stop::requests() > 0).map_err(|error| fault(&error))?;
    let read = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    output.remark(&format!(
        "served {} requests on {} connections; {} were turned away, {} ended with an error",
        read(&counts.requests),
        read(&counts.connections),
        read(&counts.turned_away),
        read(&counts.failed),
    ));
    Ok(Exit::Fine)
}
