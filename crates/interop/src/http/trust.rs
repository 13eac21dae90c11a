//! Whose certificate a client of the web takes: those that the system's authorities vouch for, one that
//! is pinned, or anybody's.
//!
//! Left out: revocation.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore};

use super::HttpError;
use plumb_remote::secure::Fingerprint;
use plumb_remote::secure::verifier::{self, KeyPossessionVerifier};

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
        let mut configuration = match self {
            Self::SystemRoots => {
                builder.with_root_certificates(authorities()?).with_no_client_auth()
            }
            Self::Pinned(fingerprint) => builder
                .dangerous()
                .with_custom_certificate_verifier(KeyPossessionVerifier::pinned(fingerprint))
                .with_no_client_auth(),
            Self::AnyCertificate => builder
                .dangerous()
                .with_custom_certificate_verifier(KeyPossessionVerifier::any())
                .with_no_client_auth(),
        };
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
