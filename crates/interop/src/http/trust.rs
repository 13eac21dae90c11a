//! Whose certificate a client of the web takes: those that the system's authorities vouch for, one that
//! is pinned, or anybody's; and why a handshake failed. Revocation is not looked at.

use std::io;
use std::sync::Arc;

use rustls::{AlertDescription, ClientConfig, Error as TlsError, PeerIncompatible, RootCertStore};

use super::HttpError;
use plumb_remote::secure::Fingerprint;
use plumb_remote::secure::verifier::{self, KeyPossessionVerifier};

/// What QUIC adds to an alert of TLS to make an error of it (RFC 9001, 4.8).
const QUIC_ALERT: u64 = 0x100;

/// Whose certificate is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateTrust {
    /// One that the system's authorities vouch for.
    SystemRoots,
    /// This one.
    Pinned(Fingerprint),
    /// Anybody's: nothing is proven.
    AnyCertificate,
}

impl CertificateTrust {
    /// The client's side of TLS 1.3, without resumption: every connection is a whole one. What is spoken over it is for
    /// the caller to add. Reading the system's authorities takes some milliseconds.
    ///
    /// # Errors
    /// Without authorities where they are needed.
    pub fn configuration(self) -> Result<ClientConfig, HttpError> {
        let setup = |error: rustls::Error| HttpError::Setup(error.to_string());
        let builder = ClientConfig::builder_with_provider(verifier::provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(setup)?;
        let verifier = match self {
            Self::SystemRoots => None,
            Self::Pinned(fingerprint) => Some(KeyPossessionVerifier::new(Some(fingerprint))),
            Self::AnyCertificate => Some(KeyPossessionVerifier::new(None)),
        };
        let builder = match verifier {
            None => builder.with_root_certificates(authorities()?),
            Some(verifier) => builder.dangerous().with_custom_certificate_verifier(verifier),
        };
        let mut configuration = builder.with_no_client_auth();
        configuration.resumption = rustls::client::Resumption::disabled();
        Ok(configuration)
    }
}

/// The system's.
fn authorities() -> Result<Arc<RootCertStore>, HttpError> {
    let mut store = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let why = "this host has no list of certificate authorities; install ca-certificates, or \
                   name the certificate with --cert-fingerprint";
        return Err(HttpError::Setup(why.to_owned()));
    }
    Ok(Arc::new(store))
}

/// Why no encrypted connection came about: of a handshake over TCP, whose connection would speak `version`.
pub(super) fn error_of_tls(error: &io::Error, version: &'static str) -> HttpError {
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

/// The same of a handshake of QUIC, by the code that either side ended it with.
pub(super) fn error_of_quic(code: u64, what: String) -> HttpError {
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
