//! A connection of HTTP/1.1: TCP, with TLS 1.3 over it where the URL says so; and a TCP connection for
//! HTTP/2.
//!
//! Left out: requests and responses.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use plumb_base::time::Instant;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::super::HttpError;
use super::super::message::{self, ResponseReader};
use super::{HttpClient, PAGE_LOAD_TIMEOUT, tls_error};
use plumb_remote::secure::deadline_stream::DeadlineStream;

/// A connection that takes requests.
pub(super) struct Http1Connection {
    responses: ResponseReader<MaybeTlsStream>,
}

enum MaybeTlsStream {
    Plain(DeadlineStream),
    Encrypted(Box<StreamOwned<ClientConnection, DeadlineStream>>),
}

/// What all connections of one visit share.
pub(super) struct Http1Connector {
    deadline: Instant,
    configuration: Option<Arc<ClientConfig>>,
}

impl Http1Connector {
    /// For one visit, which begins now.
    pub(super) fn new(configuration: Option<Arc<ClientConfig>>) -> Self {
        Self { deadline: plumb_clock::now() + PAGE_LOAD_TIMEOUT, configuration }
    }

    /// Connects, and encrypts where that is asked for.
    pub(super) fn connect(&self, client: &HttpClient) -> Result<Http1Connection, HttpError> {
        let socket = connect_tcp(client)?;
        let mut socket = DeadlineStream::new(socket, self.deadline, PAGE_LOAD_TIMEOUT);
        let Some(configuration) = &self.configuration else {
            return Ok(Http1Connection {
                responses: ResponseReader::new(MaybeTlsStream::Plain(socket)),
            });
        };
        let name = server_name(client)?;
        let mut connection = ClientConnection::new(Arc::clone(configuration), name)
            .map_err(|error| HttpError::Handshake(error.to_string()))?;
        while connection.is_handshaking() {
            let step = connection.complete_io(&mut socket);
            step.map_err(|error| tls_error::from_tls(&error, "HTTP/1.1"))?;
        }
        let stream = Box::new(StreamOwned::new(connection, socket));
        Ok(Http1Connection { responses: ResponseReader::new(MaybeTlsStream::Encrypted(stream)) })
    }
}

/// A TCP connection to the target.
pub(super) fn connect_tcp(client: &HttpClient) -> Result<TcpStream, HttpError> {
    let connected = TcpStream::connect_timeout(&client.address, Duration::from(PAGE_LOAD_TIMEOUT));
    let fault = |error| HttpError::Connect { to: client.address.to_string(), error };
    let socket = connected.map_err(fault)?;
    socket.set_nodelay(true).map_err(fault)?;
    Ok(socket)
}

/// The name that the certificate has to bear.
pub(super) fn server_name(client: &HttpClient) -> Result<ServerName<'static>, HttpError> {
    let name = client.target.server_name().to_owned();
    ServerName::try_from(name).map_err(|_| HttpError::Setup("the host's name is none".to_owned()))
}

impl Http1Connection {
    /// Asks for objects, without waiting for the answers.
    pub(super) fn send_requests<'a>(
        &mut self,
        client: &HttpClient,
        paths: impl IntoIterator<Item = &'a str>,
        is_last: bool,
    ) -> Result<(), HttpError> {
        let authority = client.target.authority();
        let requests: Vec<u8> = paths
            .into_iter()
            .flat_map(|path| message::request(path, &authority, is_last))
            .collect();
        let stream = self.responses.stream();
        stream.write_all(&requests)?;
        stream.flush()?;
        Ok(())
    }

    /// The next answer, which is to the request for `path`: the body, and whether the connection stays.
    pub(super) fn read_response(&mut self, path: &str) -> Result<(bytes::Bytes, bool), HttpError> {
        let response = self.responses.read_one()?;
        super::check_status(path, response.status, response.location)?;
        Ok((response.body.into(), response.is_kept))
    }
}

impl Drop for MaybeTlsStream {
    /// Says goodbye, so that the server does not take the end for an attack.
    fn drop(&mut self) {
        if let Self::Encrypted(stream) = self {
            stream.conn.send_close_notify();
            stream.flush().ok();
        }
    }
}

impl Read for MaybeTlsStream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Encrypted(stream) => stream.read(buffer),
        }
    }
}

impl Write for MaybeTlsStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(stream) => stream.flush(),
            Self::Encrypted(stream) => stream.flush(),
        }
    }
}
