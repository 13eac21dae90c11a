//! Mutual TLS 1.3 between an agent that listens and its clients, with pairing by a one-time token.
//!
//! Each side has a self-signed key pair, and knows who has been paired by the fingerprint of its certificate
//! ([`identity`]). Pairing proves both certificates and the very connection to each other with a token, before a session
//! begins ([`admission`]). [`listener`] and [`connect`] are the two ends, and both hand on a [`SecureStream`].

pub mod admission;
pub mod connect;
pub mod identity;
pub mod listener;
pub mod stream;
pub mod verifier;

pub use admission::PairingToken;
pub use connect::{AgentAddress, SecureConnectError};
pub use identity::{Fingerprint, HostIdentity, PeerStore};
pub use listener::{ListenerEvent, ListenerLimits, SecureListener, SessionService};
pub use stream::{DeadlineStream, SecureReader, SecureStream, SecureWriter};

/// Where an agent listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 8479;
