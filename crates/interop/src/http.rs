//! One page and its images over every version of HTTP: how long until all of it is there.
//!
//! The page is that of the study `scaling`: some 10 kB and 12 images of 40 kB together ([`page`]). plumb's
//! own server ([`server`]) speaks HTTP/1.1, HTTP/2 and HTTP/3 on one port; the client fetches the page from it
//! or from any URL over a connection per object, kept alive, pipelined, HTTP/2 and HTTP/3 ([`client`]). Left
//! out: caches, redirects, cookies, compression: a body is what the server has.

pub mod client;
pub mod links;
pub mod message;
pub mod page;
pub mod report;
pub mod server;
pub mod target;
pub mod trust;

use std::io;

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
