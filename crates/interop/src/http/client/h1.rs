//! HTTP/1.1: a connection per object, one that is kept, or one on which all images are asked for at once; and the TCP
//! connection of HTTP/2.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use plumb_base::time::Instant;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::{FetchedPage, HttpClient, PAGE_LOAD_TIMEOUT, error_of_tls};
use crate::http::HttpError;
use crate::http::message::{self, ResponseReader};
use plumb_clock::monotonic_ns;
use plumb_remote::secure::DeadlineStream;

/// Fetches each object after the one before: over a connection of its own, or over one, which is made anew where the
/// server closes it after an answer.
pub(super) fn fetch_in_turn(
    client: &HttpClient,
    tls: Option<Arc<ClientConfig>>,
    is_one_each: bool,
) -> Result<FetchedPage, HttpError> {
    let connector = Http1Connector::new(tls);
    let mut fetched = FetchedPage::default();
    let mut paths = vec![client.target.path.clone()];
    let mut connection = None;
    let mut next = 0;
    while let Some(path) = paths.get(next).cloned() {
        next += 1;
        let mut open = if let Some(open) = connection.take() {
            open
        } else {
            fetched.connections += 1;
            connector.connect(client)?
        };
        if next == 1 {
            fetched.connected_ns = monotonic_ns();
        }
        open.send_requests(client, [path.as_str()], is_one_each)?;
        let (body, is_kept) = open.read_response(&path)?;
        connection = (is_kept && !is_one_each).then_some(open);
        if next == 1 {
            fetched.page_ns = monotonic_ns();
            paths.extend(client.images(&body));
        }
        fetched.objects.push((path, body));
    }
    fetched.ended_ns = monotonic_ns();
    Ok(fetched)
}

/// Asks for all images at once. A server that closes in between does not pipeline, which is said.
pub(super) fn fetch_pipelined(
    client: &HttpClient,
    tls: Option<Arc<ClientConfig>>,
) -> Result<FetchedPage, HttpError> {
    let mut connection = Http1Connector::new(tls).connect(client)?;
    let mut fetched =
        FetchedPage { connected_ns: monotonic_ns(), connections: 1, ..FetchedPage::default() };
    let path = client.target.path.clone();
    connection.send_requests(client, [path.as_str()], false)?;
    let (page, mut is_kept) = connection.read_response(&path)?;
    fetched.page_ns = monotonic_ns();
    let images = client.images(&page);
    fetched.objects.push((path, page));
    if is_kept && !images.is_empty() {
        connection.send_requests(client, images.iter().map(String::as_str), false)?;
    }
    for path in images {
        if !is_kept {
            return Err(HttpError::Version("pipelining: it closes after an answer"));
        }
        let (body, kept) = connection.read_response(&path)?;
        is_kept = kept;
        fetched.objects.push((path, body));
    }
    fetched.ended_ns = monotonic_ns();
    Ok(fetched)
}

/// A connection that takes requests.
struct Http1Connection {
    responses: ResponseReader<MaybeTlsStream>,
}

enum MaybeTlsStream {
    Plain(DeadlineStream),
    Encrypted(Box<StreamOwned<ClientConnection, DeadlineStream>>),
}

/// What all connections of one visit share.
struct Http1Connector {
    deadline: Instant,
    configuration: Option<Arc<ClientConfig>>,
}

impl Http1Connector {
    /// For one visit, which begins now.
    fn new(configuration: Option<Arc<ClientConfig>>) -> Self {
        Self { deadline: plumb_clock::now() + PAGE_LOAD_TIMEOUT, configuration }
    }

    /// Connects, and encrypts where that is asked for.
    fn connect(&self, client: &HttpClient) -> Result<Http1Connection, HttpError> {
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
            step.map_err(|error| error_of_tls(&error, "HTTP/1.1"))?;
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
    ServerName::try_from(name)
        .map_err(|_| HttpError::Setup("no certificate can bear the host's name".to_owned()))
}

impl Http1Connection {
    /// Asks for objects, without waiting for the answers.
    fn send_requests<'a>(
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
    fn read_response(&mut self, path: &str) -> Result<(bytes::Bytes, bool), HttpError> {
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
