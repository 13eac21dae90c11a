//! What requests and responses go over.
//!
//! Left out: how each is spoken ([`super::tls`], [`super::quic`], [`super::request_response`]).

use serde::{Deserialize, Serialize};

/// Which transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RequestTransport {
    /// TCP as it is.
    Tcp,
    /// TLS 1.3 over TCP.
    Tls,
    /// QUIC.
    Quic,
    /// UDP as it is: requests and responses only.
    Udp,
}

impl RequestTransport {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP",
            Self::Tls => "TLS 1.3",
            Self::Quic => "QUIC",
            Self::Udp => "UDP",
        }
    }

    /// Its word on a command line: `tcp`, `tls`, `quic` or `udp`.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tls => "tls",
            Self::Quic => "quic",
            Self::Udp => "udp",
        }
    }
}
