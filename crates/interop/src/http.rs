//! One page and its images over every version of HTTP: how long until all of it is there.
//!
//! The page is that of the study `scaling`: some 10 kB and 12 images of 40 kB together ([`page`]). plumb's
//! own server ([`server`]) speaks HTTP/1.1, HTTP/2 and HTTP/3 on one port; the client fetches the page from it
//! or from any URL over a connection per object, kept alive, pipelined, HTTP/2 and HTTP/3 ([`client`]). Left
//! out: caches, redirects, cookies, compression: a body is what the server has.
//!
//! Several ways are measured by visits in rounds, each round in a new order.

use std::io;
use std::net::SocketAddr;

use plumb_base::seed::Seed;
use plumb_result::http::{HttpDocument, HttpFetchMode, HttpModeResult, SCHEMA};
use rand::seq::SliceRandom as _;

use client::{CertificateTrust, HttpClient};
use target::HttpTarget;

pub mod client;
pub mod message;
pub mod page;
pub mod server;
pub mod target;

/// Where plumb's server listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 8480;
/// Longest head of a request or of a response.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most fields in a head.
pub const FIELDS_MAX: usize = 64;
/// Longest body of one object.
pub const BODY_BYTES_MAX: usize = 8 << 20;
/// Objects of a page, the page included.
pub const OBJECTS_MAX: usize = 13;

/// A page that could not be fetched.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// No connection.
    #[error("no connection to {to} ({error}); is a server listening there, and the port open?")]
    Connect {
        /// To where.
        to: String,
        /// Why.
        error: io::Error,
    },
    /// The encryption.
    #[error("no encrypted connection ({0}); does the server speak TLS at that port?")]
    Handshake(String),
    /// The server is not known to be the one.
    #[error(
        "no encrypted connection ({0}); a certificate of no known authority needs --cert-fingerprint or --insecure"
    )]
    Certificate(String),
    /// Encryption of before 2018 only.
    #[error("the server does not speak TLS 1.3, and nothing older is measured; switch it on there")]
    OldTls,
    /// The connection broke, or took too long.
    #[error("the connection broke ({0}); try again, or look at the server's log")]
    Broken(#[from] io::Error),
    /// The server does not speak this.
    #[error("the server does not speak {0}; leave it out with --http-modes")]
    Version(&'static str),
    /// Another status than 200.
    #[error("'{path}' was answered with status {status}; name a page that is there")]
    Status {
        /// Of what.
        path: String,
        /// The status.
        status: u16,
    },
    /// It is somewhere else.
    #[error("'{path}' has moved to {location}; measure that URL if it is the one you mean")]
    Moved {
        /// What.
        path: String,
        /// Where to.
        location: String,
    },
    /// Not HTTP, or beyond a limit.
    #[error("the answer makes no sense ({0}); is it a web server?")]
    Malformed(&'static str),
    /// More than anybody's page.
    #[error("the answer is larger than is taken ({0}); name a smaller page")]
    TooLarge(&'static str),
    /// Not what plumb's server has.
    #[error("'{path}' came with other bytes than plumb's server has; is there a proxy on the way?")]
    Content {
        /// What.
        path: String,
    },
    /// This side.
    #[error("this side cannot start ({0})")]
    Setup(String),
}

/// Most visits of one way.
pub const VISITS_MAX: u32 = 100_000;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSpec {
    /// Which ways, each once.
    pub ways: Vec<HttpFetchMode>,
    /// Visits of each way that count; one more comes before them.
    pub visits: u32,
    /// Orders the ways of each round.
    pub seed: Seed,
}

/// Measures a page at one address; when, for how long and how it ended, the caller says. `progress` is told about each
/// round and says whether to go on.
pub fn measure_page(
    target: &HttpTarget,
    address: SocketAddr,
    trust: CertificateTrust,
    spec: &PageSpec,
    mut progress: impl FnMut(u32) -> bool,
) -> HttpDocument {
    let client = HttpClient::new(target.clone(), address, trust);
    let mode = |&way: &HttpFetchMode| {
        let is_encrypted = target.is_encrypted || way == HttpFetchMode::Http3;
        HttpModeResult { way, is_encrypted, ..HttpModeResult::default() }
    };
    let mut ways: Vec<_> = spec.ways.iter().map(mode).collect();
    let mut random = spec.seed.stream("http order");
    let mut order: Vec<usize> = (0..ways.len()).collect();
    // The first round warms both sides up, and is not counted.
    'rounds: for round in 0..=spec.visits.min(VISITS_MAX) {
        if !progress(round) {
            break;
        }
        order.shuffle(&mut random);
        for index in &order {
            let Some(report) = ways.get_mut(*index).filter(|way| way.error.is_none()) else {
                continue;
            };
            match client.load_page(report.way) {
                Ok(visit) if round > 0 => report.visits.push(visit),
                Ok(_) => {}
                // A visit that the user interrupted is no failure of this HTTP version.
                Err(_) if !progress(round) => break 'rounds,
                Err(error) => report.error = Some(error.to_string()),
            }
        }
    }
    // A way without a visit says nothing about the server.
    let mut seen = ways.iter().filter(|way| !way.visits.is_empty()).peekable();
    HttpDocument {
        schema: SCHEMA.to_owned(),
        url: target.to_string(),
        address: address.to_string(),
        is_verified: target.is_plumb && seen.peek().is_some(),
        is_server_proven: trust != CertificateTrust::AnyCertificate
            && seen.any(|way| way.is_encrypted),
        seed: spec.seed.0,
        ways,
        ..HttpDocument::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_verified_where_nothing_came() {
        // A port that was free a moment ago, and that nobody listens at.
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        drop(socket);
        let target = HttpTarget::parse(&address.to_string()).unwrap();
        let spec = PageSpec {
            ways: vec![HttpFetchMode::OneEach, HttpFetchMode::KeepAlive],
            visits: 2,
            seed: Seed(1),
        };
        let report =
            measure_page(&target, address, CertificateTrust::AnyCertificate, &spec, |_| true);
        assert!(!report.is_verified && !report.is_server_proven, "{report:?}");
        assert!(report.ways.iter().all(|way| way.visits.is_empty() && way.error.is_some()));
    }
}
