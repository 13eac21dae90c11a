//! Mutual TLS 1.3 between an agent that listens and its clients, with pairing by a one-time token.
//!
//! Each side has a self-signed key pair ([`identity`]). Who has been paired is known by the
//! fingerprint of its certificate ([`peers`]); pairing proves both certificates and the very
//! connection to each other with a token ([`token`], [`window`]). What the two sides say before a
//! session begins is [`greeting`]; [`listener`] and [`connect`] are the two ends, and both hand on a
//! [`SecureStream`] that reads and writes. Left out: what is said over it (`protocol`).

pub mod connect;
pub mod deadline;
mod file;
pub mod greeting;
pub mod halves;
pub mod identity;
pub mod listener;
pub mod peers;
pub mod stream;
pub mod token;
pub mod verifier;
pub mod window;

pub use connect::{ConnectError, Remote};
pub use identity::{Fingerprint, Identity};
pub use listener::{Event, Limits, Listener, Service};
pub use peers::Peers;
pub use stream::SecureStream;
pub use token::Token;

/// Where an agent listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 8479;
