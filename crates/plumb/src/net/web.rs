//! plumb's web page between two processes of a launch: who serves it, and how a visit is made.
//!
//! Left out: HTTP itself (`plumb_net::http`), and the launch (`plumb_host::harness::visits`).

use std::io;
use std::net::{IpAddr, SocketAddr};

use plumb_net::http::client::{Client, Way};
use plumb_net::http::server::{Limits, Server};
use plumb_net::http::target::Target;
use plumb_net::http::trust::Trust;
use plumb_net::secure::Identity;

/// Serves the page at an address, to one guest where one is named, for as long as the process lasts, and tells where that is.
///
/// # Errors
/// What went wrong, in words.
pub fn serve(
    address: SocketAddr,
    guest: Option<IpAddr>,
    tell: &mut dyn FnMut(SocketAddr) -> io::Result<()>,
) -> Result<(), String> {
    let words = |error: &dyn ToString| error.to_string();
    // A key of this launch only; the page is no secret, and its bytes are compared.
    let identity = Identity::generate().map_err(|error| words(&error))?;
    let limits = Limits { guest, ..Limits::default() };
    let server = Server::bind(address, &identity, limits).map_err(|error| words(&error))?;
    let listening = server.address().and_then(tell);
    listening.map_err(|error| words(&error))?;
    server.run(|| false).map_err(|error| words(&error))
}

/// One visit: nanoseconds from the first connection attempt to the last byte.
///
/// # Errors
/// What went wrong, in words.
pub fn fetch(address: SocketAddr, way: &str) -> Result<u64, String> {
    let way = Way::from_name(way).ok_or_else(|| format!("'{way}' is no way to fetch a page"))?;
    let target = Target::parse(&address.to_string()).map_err(|error| error.to_string())?;
    let client = Client::new(target, address, Trust::Anybody);
    client.visit(way).map(|visit| visit.total_ns).map_err(|error| error.to_string())
}
