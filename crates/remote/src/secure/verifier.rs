//! How certificates are judged: whoever shows one must hold its key; who that is, is decided elsewhere.
//!
//! Left out: chains and names of the public web, which rustls judges itself.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{
    CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
};

use super::identity::{Fingerprint, HostIdentity};

/// The cryptography in use.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// A verifier of either side: the certificate is anybody's, or the one with a given fingerprint, and
/// the signature over the handshake is by its key.
#[derive(Debug)]
pub struct KeyPossessionVerifier {
    algorithms: WebPkiSupportedAlgorithms,
    pinned: Option<Fingerprint>,
}

impl KeyPossessionVerifier {
    /// The holder of this certificate's key; `None` for any certificate.
    pub fn new(pinned: Option<Fingerprint>) -> Arc<Self> {
        Arc::new(Self { algorithms: provider().signature_verification_algorithms, pinned })
    }

    fn check_pin(&self, certificate: &CertificateDer<'_>) -> Result<(), Error> {
        match self.pinned {
            Some(pinned) if pinned != Fingerprint::of(certificate) => {
                Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
            }
            _ => Ok(()),
        }
    }
}

impl ServerCertVerifier for KeyPossessionVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check_pin(end_entity).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for KeyPossessionVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check_pin(end_entity).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// The agent's side: TLS 1.3 only, a certificate asked of every client, nothing resumed, so that no
/// handshake can be taken up again by somebody else.
///
/// # Errors
/// When rustls takes the identity for damaged.
pub fn agent_configuration(identity: &HostIdentity) -> Result<Arc<ServerConfig>, Error> {
    let mut configuration = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(KeyPossessionVerifier::new(None))
        .with_single_cert(vec![identity.certificate()], identity.key())?;
    configuration.session_storage = Arc::new(rustls::server::NoServerSessionStorage {});
    configuration.send_tls13_tickets = 0;
    configuration.max_early_data_size = 0;
    configuration.alpn_protocols = vec![super::admission::MAGIC.to_vec()];
    Ok(Arc::new(configuration))
}

/// The client's side of the same.
///
/// # Errors
/// As [`agent_configuration`].
pub fn client_configuration(identity: &HostIdentity) -> Result<Arc<ClientConfig>, Error> {
    let mut configuration = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(KeyPossessionVerifier::new(None))
        .with_client_auth_cert(vec![identity.certificate()], identity.key())?;
    configuration.resumption = rustls::client::Resumption::disabled();
    configuration.alpn_protocols = vec![super::admission::MAGIC.to_vec()];
    Ok(Arc::new(configuration))
}
