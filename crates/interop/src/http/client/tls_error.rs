//! Why no encrypted connection came about, by the error of TLS or by its alert.
//!
//! Left out: connections in the clear.

use std::io;

use rustls::{AlertDescription, Error as TlsError, PeerIncompatible};

use super::super::HttpError;

/// What QUIC adds to an alert of TLS to make an error of it (RFC 9001, 4.8).
const QUIC_ALERT: u64 = 0x100;

/// Of a handshake over TCP, whose connection would speak `version`.
pub(super) fn from_tls(error: &io::Error, version: &'static str) -> HttpError {
    let what = error.to_string();
    match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
        Some(TlsError::InvalidCertificate(_)) => HttpError::Certificate(what),
        Some(TlsError::NoApplicationProtocol) => HttpError::Version(version),
        Some(TlsError::AlertReceived(alert)) => from_alert(*alert, what, version),
        Some(TlsError::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        )) => HttpError::OldTls,
        _ => HttpError::Handshake(what),
    }
}

/// Of a handshake of QUIC, by the code that either side ended it with.
pub(super) fn from_quic(code: u64, what: String) -> HttpError {
    match code.checked_sub(QUIC_ALERT).and_then(|alert| u8::try_from(alert).ok()) {
        Some(alert) => from_alert(AlertDescription::from(alert), what, "HTTP/3"),
        None => HttpError::Handshake(what),
    }
}

fn from_alert(alert: AlertDescription, what: String, version: &'static str) -> HttpError {
    use AlertDescription as A;
    match alert {
        A::NoApplicationProtocol => HttpError::Version(version),
        A::ProtocolVersion => HttpError::OldTls,
        A::BadCertificate
        | A::UnsupportedCertificate
        | A::CertificateRevoked
        | A::CertificateExpired
        | A::CertificateUnknown
        | A::UnknownCA
        | A::AccessDenied => HttpError::Certificate(what),
        _ => HttpError::Handshake(what),
    }
}
