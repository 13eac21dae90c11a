//! One GET over plumb's TCP: the response of HTTP/1.1 (RFC 9112) is read piece by piece, its body while it arrives, and never
//! held.

use std::fmt;
use std::io::{self, Write};

use plumb_base::time::{Instant, Span};
use plumb_stack::host::IpHost;
use plumb_stack::service::HostApplication;
use plumb_stack::tcp::{Received, TcpSocketError, TcpState};
use plumb_wire::packet::Pool;

use super::WatchedApplication;
use super::stream_client::{StreamClient, StreamFailure};

/// How long the server may take to close after its response.
const LINGER: Span = Span::from_secs(1);
/// Time between two reports of progress, and before the first.
const NEWS_INTERVAL: Span = Span::from_ms(250);
const NEWS_AFTER: Span = Span::from_secs(2);

/// Why nothing, or not all, was received.
#[derive(Debug, thiserror::Error)]
pub enum HttpGetError {
    /// The connection failed.
    #[error(transparent)]
    Stream(#[from] StreamFailure),
    /// The response is broken, or cannot be written.
    #[error(transparent)]
    Response(#[from] HttpReadError),
}

/// A request and its response.
pub struct HttpGet {
    /// The connection.
    pub client: StreamClient,
    /// The response.
    pub response: HttpResponseReader,
    /// Why it failed.
    pub error: Option<HttpGetError>,
    request: Vec<u8>,
    sink: Box<dyn Write + Send>,
    /// The response is complete; the connection may end in order until then.
    closing: Option<Instant>,
    is_over: bool,
    now: Instant,
    news: Instant,
}

impl fmt::Debug for HttpGet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpGet").field("response", &self.response).finish_non_exhaustive()
    }
}

impl HttpGet {
    /// Sends `request` over a connection that is being opened; the body of its response goes to `sink`.
    pub fn new(client: StreamClient, request: Vec<u8>, sink: Box<dyn Write + Send>) -> Self {
        let begun = client.begun();
        Self {
            client,
            response: HttpResponseReader::new(),
            error: None,
            request,
            sink,
            closing: None,
            is_over: false,
            now: begun,
            news: begun + NEWS_AFTER,
        }
    }

    /// Puts the next report of progress off.
    pub fn on_reported(&mut self) {
        self.news = self.now + NEWS_INTERVAL;
    }

    fn send(&mut self, host: &mut IpHost) -> Result<(), TcpSocketError> {
        if !self.request.is_empty() {
            let sent = host.tcp_send(self.now, self.client.id, &self.request)?;
            self.request.drain(..sent);
        }
        Ok(())
    }

    /// Takes what has arrived; whether the response is complete.
    fn receive(&mut self, host: &mut IpHost) -> Result<bool, HttpReadError> {
        loop {
            let (response, sink) = (&mut self.response, &mut self.sink);
            let mut outcome = Ok(());
            let received = host.tcp_receive_with(self.now, self.client.id, |data| {
                outcome = response.read(data, &mut **sink);
                data.len()
            });
            outcome?;
            if self.response.is_complete() {
                break;
            }
            match received {
                Ok(Received::Data(_)) => {}
                Ok(Received::End) => {
                    self.response.end()?;
                    break;
                }
                // The connection says itself why it failed.
                Ok(Received::Empty) | Err(_) => return Ok(false),
            }
        }
        self.sink.flush().map_err(HttpReadError::Write)?;
        Ok(true)
    }

    fn finish(&mut self, now: Instant, host: &mut IpHost) {
        self.client.sample(now, host);
        host.tcp_close(now, self.client.id);
        self.is_over = true;
    }
}

impl HostApplication for HttpGet {
    fn handle(&mut self, now: Instant, host: &mut IpHost, _pool: &mut Pool) {
        self.now = now;
        if self.is_over {
            return;
        }
        let is_news = self.client.watch(now, host);
        if let Some(until) = self.closing {
            while matches!(
                host.tcp_receive_with(now, self.client.id, <[u8]>::len),
                Ok(Received::Data(_))
            ) {}
            let is_closed = matches!(
                host.tcp_state(self.client.id),
                None | Some(TcpState::TimeWait | TcpState::Closed)
            );
            if is_closed || now >= until {
                self.finish(now, host);
            }
            return;
        }
        if is_news && self.send(host).is_ok() {
            match self.receive(host) {
                Ok(false) => {}
                Ok(true) => {
                    self.closing = Some(now + LINGER);
                    // Where it is closed already, that is seen next.
                    let _ = host.tcp_shutdown(now, self.client.id);
                    return;
                }
                Err(error) => self.error = Some(error.into()),
            }
        }
        if let Some(failure) = self.client.failure() {
            self.error.get_or_insert(failure.into());
        }
        if self.error.is_some() {
            self.finish(now, host);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let wake = self.client.deadline();
        (!self.is_over).then(|| self.closing.map_or(wake, |closing| closing.min(wake)))
    }
}

impl WatchedApplication for HttpGet {
    fn is_complete(&self) -> bool {
        self.is_over
    }

    fn has_news(&self) -> bool {
        self.now >= self.news || !self.client.notices.is_empty()
    }
}

/// Longest head, in bytes.
const HEAD_MAX: usize = 65_536;
/// Most header fields.
const FIELDS_MAX: usize = 128;
/// Longest line before a chunk, or of trailers, in bytes.
const LINE_MAX: usize = 4_096;

/// What is wrong with a response.
#[derive(Debug, thiserror::Error)]
pub enum HttpReadError {
    /// Not HTTP/1.
    #[error("the answer is not HTTP/1.1: {0}; check that a web server listens at this port")]
    Malformed(&'static str),
    /// The connection ended before the body.
    #[error(
        "the server closed the connection after {received} bytes of the body, before its end; try again"
    )]
    Truncated {
        /// Bytes of the body that came.
        received: u64,
    },
    /// The body cannot be written.
    #[error("cannot write what was received")]
    Write(#[source] io::Error),
}

/// How the rest of the body is delimited (RFC 9112 §6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResponseStage {
    Head,
    /// So many bytes.
    Length(u64),
    /// A line with the length of a chunk.
    ChunkLine,
    /// So many bytes of a chunk.
    Chunk(u64),
    /// The end of a line after a chunk.
    ChunkEnd,
    Trailers,
    UntilClose,
    Complete,
}

/// Reads one response.
#[derive(Debug)]
pub struct HttpResponseReader {
    stage: ResponseStage,
    /// The part of a head or line that has arrived.
    held: Vec<u8>,
    /// Status code; 0 before the head has come.
    pub status: u16,
    /// Where the resource has moved to.
    pub location: Option<String>,
    /// Length of the body, where it was told.
    pub length: Option<u64>,
    /// Bytes of the body that have come.
    pub received: u64,
}

impl HttpResponseReader {
    /// Nothing read yet.
    pub const fn new() -> Self {
        Self {
            stage: ResponseStage::Head,
            held: Vec::new(),
            status: 0,
            location: None,
            length: None,
            received: 0,
        }
    }

    /// Whether the response is complete.
    pub fn is_complete(&self) -> bool {
        self.stage == ResponseStage::Complete
    }

    /// Whether the status says that the body is what was asked for.
    pub const fn is_success(&self) -> bool {
        matches!(self.status, 200..=299)
    }

    /// Reads what has arrived; the body of a successful response goes to `sink`.
    ///
    /// # Errors
    /// [`HttpReadError`].
    pub fn read(&mut self, mut bytes: &[u8], sink: &mut dyn Write) -> Result<(), HttpReadError> {
        while !bytes.is_empty() && !self.is_complete() {
            let used = match self.stage {
                ResponseStage::Head => self.read_head(bytes)?,
                ResponseStage::Length(left) => {
                    let used = self.read_body(bytes, left, sink)?;
                    let left = left - used as u64;
                    self.stage = if left == 0 {
                        ResponseStage::Complete
                    } else {
                        ResponseStage::Length(left)
                    };
                    used
                }
                ResponseStage::Chunk(left) => {
                    let used = self.read_body(bytes, left, sink)?;
                    let left = left - used as u64;
                    self.stage = if left == 0 {
                        ResponseStage::ChunkEnd
                    } else {
                        ResponseStage::Chunk(left)
                    };
                    used
                }
                ResponseStage::UntilClose => self.read_body(bytes, u64::MAX, sink)?,
                _ => self.read_line(bytes)?,
            };
            bytes = &bytes[used..];
        }
        Ok(())
    }

    /// The connection was closed by the server.
    ///
    /// # Errors
    /// The response was not complete.
    pub fn end(&mut self) -> Result<(), HttpReadError> {
        match self.stage {
            ResponseStage::Complete | ResponseStage::UntilClose => {
                self.stage = ResponseStage::Complete;
                Ok(())
            }
            ResponseStage::Head if self.held.is_empty() => {
                Err(HttpReadError::Malformed("the connection was closed without an answer"))
            }
            ResponseStage::Head => Err(HttpReadError::Malformed("its head has no end")),
            _ => Err(HttpReadError::Truncated { received: self.received }),
        }
    }

    fn read_body(
        &mut self,
        bytes: &[u8],
        left: u64,
        sink: &mut dyn Write,
    ) -> Result<usize, HttpReadError> {
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
        if self.is_success() {
            sink.write_all(&bytes[..len]).map_err(HttpReadError::Write)?;
        }
        self.received += len as u64;
        Ok(len)
    }

    /// Reads the head as far as it has come; how many of `bytes` belong to it.
    fn read_head(&mut self, bytes: &[u8]) -> Result<usize, HttpReadError> {
        let before = self.held.len();
        self.held.extend_from_slice(&bytes[..bytes.len().min(HEAD_MAX + 1 - before)]);
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let len = match response.parse(&self.held) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) if self.held.len() <= HEAD_MAX => {
                return Ok(self.held.len() - before);
            }
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Err(HttpReadError::Malformed("its head is too long"));
            }
            Err(_) => return Err(HttpReadError::Malformed("its head cannot be read")),
        };
        let status = response.code.unwrap_or(0);
        let (stage, length, location) = delimit(status, response.headers)?;
        // RFC 9110 §15.2: interim responses may come first.
        if !(100..200).contains(&status) {
            (self.status, self.stage, self.length, self.location) =
                (status, stage, length, location);
        }
        self.held.clear();
        Ok(len - before)
    }

    /// Reads a line as far as it has come; how many of `bytes` belong to it.
    fn read_line(&mut self, bytes: &[u8]) -> Result<usize, HttpReadError> {
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let len = end.map_or(bytes.len(), |end| end + 1);
        self.held.extend_from_slice(&bytes[..len]);
        if self.held.len() > LINE_MAX {
            return Err(HttpReadError::Malformed("a line between chunks is too long"));
        }
        if end.is_none() {
            return Ok(len);
        }
        let line = std::mem::take(&mut self.held);
        let is_empty = line.trim_ascii_end().is_empty();
        self.stage = match self.stage {
            ResponseStage::ChunkEnd if is_empty => ResponseStage::ChunkLine,
            ResponseStage::ChunkEnd => {
                return Err(HttpReadError::Malformed("a chunk is longer than it says"));
            }
            ResponseStage::ChunkLine => match httparse::parse_chunk_size(&line) {
                Ok(httparse::Status::Complete((_, 0))) => ResponseStage::Trailers,
                Ok(httparse::Status::Complete((_, size))) => ResponseStage::Chunk(size),
                _ => return Err(HttpReadError::Malformed("the length of a chunk cannot be read")),
            },
            _ if is_empty => ResponseStage::Complete,
            stage => stage,
        };
        Ok(len)
    }
}

impl Default for HttpResponseReader {
    fn default() -> Self {
        Self::new()
    }
}

type DelimitedBody = (ResponseStage, Option<u64>, Option<String>);

/// How the body of a response to GET is delimited (RFC 9112 §6.3), and where it has moved to.
fn delimit(status: u16, fields: &[httparse::Header<'_>]) -> Result<DelimitedBody, HttpReadError> {
    let mut length: Option<u64> = None;
    let mut location = None;
    let mut is_chunked = false;
    for field in fields {
        let value = field.value.trim_ascii();
        if field.name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(value).ok();
            let value = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let value: Option<u64> = value.and_then(|text| text.parse().ok());
            if value.is_none() || length.is_some_and(|other| Some(other) != value) {
                return Err(HttpReadError::Malformed("its Content-Length is not a number"));
            }
            length = value;
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(HttpReadError::Malformed("its encoding was not asked for"));
            }
            is_chunked = true;
        } else if field.name.eq_ignore_ascii_case("location") {
            location = Some(String::from_utf8_lossy(value).chars().take(1_024).collect());
        }
    }
    let length = if matches!(status, 204 | 304) { Some(0) } else { length.filter(|_| !is_chunked) };
    let stage = match length {
        _ if is_chunked && length.is_none() => ResponseStage::ChunkLine,
        Some(0) => ResponseStage::Complete,
        Some(length) => ResponseStage::Length(length),
        None => ResponseStage::UntilClose,
    };
    Ok((stage, length, location))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads `text` in pieces of `piece` bytes and closes; status and body.
    fn read(text: &str, piece: usize) -> Result<(u16, String), HttpReadError> {
        let mut reader = HttpResponseReader::new();
        let mut body = Vec::new();
        for part in text.as_bytes().chunks(piece) {
            reader.read(part, &mut body)?;
        }
        reader.end()?;
        Ok((reader.status, String::from_utf8(body).unwrap()))
    }

    #[test]
    fn bodies_are_the_same_in_any_pieces() {
        for (text, status, body) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello, unread", 200, "hello"),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nA: b\r\n\r\n",
                200,
                "abc0123456789",
            ),
            ("HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, "until the end"),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
                200,
                "x",
            ),
            ("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone", 404, ""),
            ("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", 304, ""),
        ] {
            for piece in [1, 2, 7, 1_000] {
                assert_eq!(
                    read(text, piece).unwrap(),
                    (status, body.to_owned()),
                    "{text} by {piece}"
                );
            }
        }
    }

    #[test]
    fn broken_responses_are_errors() {
        for text in [
            "",
            "SSH-2.0-OpenSSH\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell",
            "HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        ] {
            for piece in [1, 1_000] {
                assert!(read(text, piece).is_err(), "{text} by {piece}");
            }
        }
        let endless = format!("HTTP/1.1 200 OK\r\nA: {}", "a".repeat(HEAD_MAX));
        assert!(matches!(read(&endless, 1_000), Err(HttpReadError::Malformed(_))));
    }
}
