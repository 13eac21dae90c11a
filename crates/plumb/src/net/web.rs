//! plumb's web page between two processes of a launch: who serves it, and how a visit is made.

use std::io;
use std::net::{IpAddr, SocketAddr};

use plumb_interop::http::client::{CertificateTrust, HttpClient};
use plumb_interop::http::page::FILE_PATH;
use plumb_interop::http::server::{HttpServer, HttpServerLimits};
use plumb_interop::http::target::HttpTarget;
use plumb_remote::secure::HostIdentity;
use plumb_result::http::HttpFetchMode;

/// Serves the page at an address, to one client where one is named, for as long as the process lasts, and tells where that is.
///
/// # Errors
/// What went wrong, in words.
pub fn serve(
    address: SocketAddr,
    client: Option<IpAddr>,
    tell: &mut dyn FnMut(SocketAddr) -> io::Result<()>,
) -> Result<(), String> {
    let words = |error: &dyn ToString| error.to_string();
    // A key of this launch only; the page is no secret, and its bytes are compared.
    let identity = HostIdentity::generate().map_err(|error| words(&error))?;
    let limits = HttpServerLimits { allowed_client: client, ..HttpServerLimits::default() };
    let server = HttpServer::bind(address, &identity, limits).map_err(|error| words(&error))?;
    let listening = server.address().and_then(tell);
    listening.map_err(|error| words(&error))?;
    server.run(|| false).map_err(|error| words(&error))
}

/// One visit: nanoseconds from the first connection attempt to the last byte. A way `/file/8192` is that file by itself.
///
/// # Errors
/// What went wrong, in words.
pub fn fetch(address: SocketAddr, way: &str) -> Result<u64, String> {
    let (way, path) = match way {
        file if file.starts_with(FILE_PATH) => (HttpFetchMode::OneEach, file),
        page => {
            let way = HttpFetchMode::from_name(page);
            (way.ok_or_else(|| format!("'{page}' is not a way to fetch a page"))?, "/")
        }
    };
    let mut target = HttpTarget::parse(&address.to_string()).map_err(|error| error.to_string())?;
    path.clone_into(&mut target.path);
    let client = HttpClient::new(target, address, CertificateTrust::AnyCertificate);
    client.load_page(way).map(|visit| visit.total_ns).map_err(|error| error.to_string())
}
