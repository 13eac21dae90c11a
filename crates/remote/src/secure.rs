//! Mutual TLS 1.3 between an agent that listens and its clients, with pairing by a one-time token.
//!
//! Each side has a self-signed key pair ([`identity`]). Who has been paired is known by the fingerprint of its
//! certificate ([`peers`]); [`pairing`] proves both certificates and the very connection to each other with a token.
//! What the two sides say before a session begins is [`admission`]; [`listener`] and [`connect`] are the two ends, and
//! both hand on a [`SecureStream`].

pub mod admission;
pub mod connect;
pub mod identity;
pub mod listener;
pub mod pairing;
pub mod peers;
pub mod stream;
pub mod verifier;

pub use connect::{AgentAddress, SecureConnectError};
pub use identity::{Fingerprint, HostIdentity};
pub use listener::{ListenerEvent, ListenerLimits, SecureListener, SessionService};
pub use pairing::PairingToken;
pub use peers::PeerStore;
pub use stream::{DeadlineStream, SecureReader, SecureStream, SecureWriter};

/// Where an agent listens unless told otherwise.
pub const DEFAULT_PORT: u16 = 8479;
