//! TLS 1.3 over whatever reads and writes: both sides' configurations and handshakes, blocking.
//!
//! The server's certificate is made for the session and pinned by its fingerprint, which the client
//! has from the control connection. Left out: QUIC ([`super::quic`]), and what is asked
//! ([`super::request_response`]).

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use plumb_base::time::{Instant, Span};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection, StreamOwned};

use plumb_remote::secure::identity::NAME;
use plumb_remote::secure::verifier::{self, KeyPossessionVerifier};
use plumb_remote::secure::{
    DeadlineStream, Fingerprint, HostIdentity, SecureReader, SecureWriter, stream,
};

/// How long one step of a connection in two halves may take: longer than any test, which ends it.
const IO_TIMEOUT: Span = Span::from_secs(2 * 3_600);

/// TLS 1.3 without tickets: every handshake is a whole one.
///
/// # Errors
/// When rustls takes the identity for damaged.
pub fn server_configuration(identity: &HostIdentity) -> Result<ServerConfig, rustls::Error> {
    let mut configuration = ServerConfig::builder_with_provider(verifier::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(vec![identity.certificate()], identity.key())?;
    configuration.send_tls13_tickets = 0;
    Ok(configuration)
}

/// The server's side of a connection.
///
/// # Errors
/// The configuration's.
pub fn server_connection(
    configuration: impl Into<Arc<ServerConfig>>,
) -> Result<ServerConnection, rustls::Error> {
    ServerConnection::new(configuration.into())
}

/// The client's side of a connection.
///
/// # Errors
/// The configuration's.
pub fn client_connection(
    configuration: impl Into<Arc<ClientConfig>>,
) -> Result<ClientConnection, rustls::Error> {
    let name = ServerName::try_from(NAME).expect("the name is a word of letters");
    ClientConnection::new(configuration.into(), name)
}

/// The server's handshake over anything that reads and writes.
pub(super) fn accept<S: Read + Write>(
    mut stream: S,
    configuration: &Arc<ServerConfig>,
) -> io::Result<StreamOwned<ServerConnection, S>> {
    let mut connection = server_connection(Arc::clone(configuration)).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(connection, stream))
}

/// The client's handshake over anything that reads and writes.
pub(super) fn connect<S: Read + Write>(
    mut stream: S,
    configuration: &Arc<ClientConfig>,
) -> io::Result<StreamOwned<ClientConnection, S>> {
    let mut connection = client_connection(Arc::clone(configuration)).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut stream)?;
    }
    Ok(StreamOwned::new(connection, stream))
}

/// A client that trusts one certificate, or, where the other end is known by other means, any.
///
/// # Errors
/// Never, with the cryptography in use.
pub fn client_configuration(pinned: Option<Fingerprint>) -> Result<ClientConfig, rustls::Error> {
    let mut configuration = ClientConfig::builder_with_provider(verifier::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(KeyPossessionVerifier::new(pinned))
        .with_no_client_auth();
    configuration.resumption = rustls::client::Resumption::disabled();
    Ok(configuration)
}

/// A client's connection in two halves, so that one thread writes while another reads.
pub(super) fn split(
    secure: StreamOwned<ClientConnection, &TcpStream>,
) -> io::Result<(SecureReader, SecureWriter)> {
    let (connection, socket) = secure.into_parts();
    let socket = DeadlineStream::new(socket.try_clone()?, Instant::NEVER, IO_TIMEOUT);
    stream::split(connection.into(), socket)
}
