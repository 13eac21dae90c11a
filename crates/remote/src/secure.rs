//! Mutual TLS 1.3 between an agent that listens and its clients, with pairing by a one-time token.
//!
//! Each side has a self-signed key pair ([`identity`]). Who has been paired is known by the
//! fingerprint of its certificate ([`peers`]); pairing proves both certificates and the very
//! connection to each other with a token ([`pairing_token`], `window`). What the two sides say before a
//! session begins is `greeting`; [`listener`] and [`connect`] are the two ends, and both hand on a
//! [`SecureStream`] that reads and writes. Left out: what is said over it (`protocol`).

pub mod admission;
pub mod connect;
pub mod deadline_stream;
mod file;
pub mod identity;
pub mod listener;
pub mod pairing_token;
pub mod pairing_window;
pub mod peers;
pub mod split_stream;
pub mod stream;
pub mod verifier;

pub use connect::{AgentAddress, SecureConnectError};
pub use identity::{Fingerprint, HostIdentity};
pub use listener::{ListenerEvent, ListenerLimits, SecureListener, SessionService};
pub use pairing_token::PairingToken;
pub use peers::PeerStore;
pub use stream::SecureStream;

/// Where an agent listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 8479;
