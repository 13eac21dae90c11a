//! The encrypted connection that both ends hand on: it reads, it writes, and it knows its peer.
//!
//! Left out: who may have one ([`super::listener`], [`super::connect`]).

use std::io::{self, Read, Write};
use std::net::SocketAddr;

use plumb_base::time::{Instant, Span};
use rustls::pki_types::CertificateDer;
use rustls::{ClientConnection, ServerConnection, StreamOwned};

use super::deadline_stream::DeadlineStream;
use super::identity::Fingerprint;
use super::pairing_token::PairingBinding;
use super::split_stream::{self, ConnectionCloser, SecureReader, SecureWriter};
use crate::control_stream::ControlStream;

/// RFC 9266: label of the `tls-exporter` channel binding; its context is empty.
const EXPORTER_LABEL: &[u8] = b"EXPORTER-Channel-Binding";

/// An encrypted connection.
#[derive(Debug)]
pub struct SecureStream {
    end: SecureStreamEnd,
}

#[derive(Debug)]
enum SecureStreamEnd {
    Agent(Box<StreamOwned<ServerConnection, DeadlineStream>>),
    Client(Box<StreamOwned<ClientConnection, DeadlineStream>>),
}

impl SecureStream {
    /// The listening end, once its handshake is done.
    ///
    /// # Errors
    /// The handshake's, with its reason.
    pub(super) fn agent(
        mut connection: ServerConnection,
        mut socket: DeadlineStream,
    ) -> io::Result<Self> {
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(Self { end: SecureStreamEnd::Agent(Box::new(StreamOwned::new(connection, socket))) })
    }

    /// The connecting end, once its handshake is done.
    ///
    /// # Errors
    /// The handshake's, with its reason.
    pub(super) fn client(
        mut connection: ClientConnection,
        mut socket: DeadlineStream,
    ) -> io::Result<Self> {
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(Self { end: SecureStreamEnd::Client(Box::new(StreamOwned::new(connection, socket))) })
    }

    /// The certificate of the other side, whose key it holds.
    ///
    /// # Errors
    /// When it has shown none.
    pub fn peer(&self) -> io::Result<Fingerprint> {
        let certificates = match &self.end {
            SecureStreamEnd::Agent(stream) => stream.conn.peer_certificates(),
            SecureStreamEnd::Client(stream) => stream.conn.peer_certificates(),
        };
        let first = certificates.and_then(<[CertificateDer<'_>]>::first);
        let none = || io::Error::new(io::ErrorKind::InvalidData, "it has shown no certificate");
        Ok(Fingerprint::of(first.ok_or_else(none)?))
    }

    /// What a proof of pairing binds together on this connection.
    ///
    /// # Errors
    /// Before the handshake is done.
    pub(super) fn binding(&self, own: Fingerprint) -> io::Result<PairingBinding> {
        let peer = self.peer()?;
        let exporter = [0; 32];
        let exporter = match &self.end {
            SecureStreamEnd::Agent(s) => {
                s.conn.export_keying_material(exporter, EXPORTER_LABEL, Some(b""))
            }
            SecureStreamEnd::Client(s) => {
                s.conn.export_keying_material(exporter, EXPORTER_LABEL, Some(b""))
            }
        };
        let exporter = exporter.map_err(io::Error::other)?;
        Ok(match self.end {
            SecureStreamEnd::Agent(_) => PairingBinding { client: peer, agent: own, exporter },
            SecureStreamEnd::Client(_) => PairingBinding { client: own, agent: peer, exporter },
        })
    }

    /// When everything has to be over, and how long a single read or write may wait.
    pub fn set_times(&mut self, deadline: Instant, idle: Span) {
        self.socket_mut().set_times(deadline, idle);
    }

    /// Whom it leads to.
    ///
    /// # Errors
    /// When it has broken already.
    pub fn peer_address(&self) -> io::Result<SocketAddr> {
        self.socket().peer_address()
    }

    /// Says goodbye, and ends the connection.
    pub fn close(mut self) {
        match &mut self.end {
            SecureStreamEnd::Agent(stream) => stream.conn.send_close_notify(),
            SecureStreamEnd::Client(stream) => stream.conn.send_close_notify(),
        }
        self.flush().ok();
        self.socket().close();
    }

    /// Two halves for two threads, and what ends both.
    ///
    /// # Errors
    /// When the process may have no more descriptors.
    pub fn split(self) -> io::Result<(SecureReader, SecureWriter, ConnectionCloser)> {
        let (connection, reading) = match self.end {
            SecureStreamEnd::Agent(stream) => {
                let (connection, socket) = stream.into_parts();
                (rustls::Connection::from(connection), socket)
            }
            SecureStreamEnd::Client(stream) => {
                let (connection, socket) = stream.into_parts();
                (rustls::Connection::from(connection), socket)
            }
        };
        let writing = reading.try_clone()?;
        split_stream::split(connection, reading, writing)
    }

    /// What carries a session, with the name that the other side is known by.
    ///
    /// # Errors
    /// As [`SecureStream::split`].
    pub fn into_stream(self, peer: &str) -> io::Result<ControlStream> {
        let (reader, writer, closer) = self.split()?;
        Ok(ControlStream {
            reader: Box::new(reader),
            writer: Box::new(writer),
            hang_up: Box::new(move || closer.close()),
            peer: peer.to_owned(),
        })
    }

    /// The connection under the encryption.
    pub fn socket(&self) -> &DeadlineStream {
        match &self.end {
            SecureStreamEnd::Agent(stream) => &stream.sock,
            SecureStreamEnd::Client(stream) => &stream.sock,
        }
    }

    fn socket_mut(&mut self) -> &mut DeadlineStream {
        match &mut self.end {
            SecureStreamEnd::Agent(stream) => &mut stream.sock,
            SecureStreamEnd::Client(stream) => &mut stream.sock,
        }
    }
}

impl Read for SecureStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.end {
            SecureStreamEnd::Agent(stream) => stream.read(buffer),
            SecureStreamEnd::Client(stream) => stream.read(buffer),
        }
    }
}

impl Write for SecureStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.end {
            SecureStreamEnd::Agent(stream) => stream.write(bytes),
            SecureStreamEnd::Client(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.end {
            SecureStreamEnd::Agent(stream) => stream.flush(),
            SecureStreamEnd::Client(stream) => stream.flush(),
        }
    }
}
