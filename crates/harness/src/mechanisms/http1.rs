//! HTTP/1.1: each message of the worker is the body of a request, each of the peer the body of its response.
//!
//! Requests are pipelined (RFC 9112 §9.3.2): one whose message nobody answers has an empty response, which the server
//! sends once it has the next request.

use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};

use plumb_sys::socket;

use super::stream::{SocketCalls, StreamEnd};
use super::stream_protocol::{StreamProtocol, UNANSWERED_MAX, wrong_length};
use crate::channel::{ChannelEnd, ChannelError, ChannelSetup};
use crate::report::LaunchFault;

pub(crate) struct Http1;

impl StreamProtocol for Http1 {
    type Client = Http1Client;
    type Server = Http1Server;

    fn client(setup: &ChannelSetup<'_>, socket: OwnedFd) -> Result<Http1Client, LaunchFault> {
        Ok(Http1Client { stream: Http1Stream::new(setup, socket)?, unanswered: 0 })
    }

    fn server(setup: &ChannelSetup<'_>, socket: OwnedFd) -> Result<Http1Server, LaunchFault> {
        Ok(Http1Server { stream: Http1Stream::new(setup, socket)?, is_unanswered: false })
    }
}

/// The worker's end.
pub(crate) struct Http1Client {
    stream: Http1Stream,
    /// Requests whose response was not read yet.
    unanswered: usize,
}

impl Http1Client {
    /// Reads the next response into a buffer; whether it had a message.
    fn read_response(&mut self, buffer: &mut [u8]) -> Result<bool, ChannelError> {
        let head = self.stream.read_head(Http1Head::of_response)?;
        self.unanswered = self.unanswered.saturating_sub(1);
        if head.is_empty {
            return Ok(false);
        }
        self.stream.read_body(&head, buffer)?;
        Ok(true)
    }
}

impl ChannelEnd for Http1Client {
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        if self.unanswered >= UNANSWERED_MAX && self.read_response(&mut [])? {
            return Err(ChannelError::protocol("a message came that nobody waits for"));
        }
        self.unanswered += 1;
        self.stream.write("POST / HTTP/1.1\r\nHost: localhost", message)
    }

    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        while !self.read_response(&mut buffer[..len])? {}
        Ok(())
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        self.stream.stream.take_counters()
    }
}

/// The peer's end.
pub(crate) struct Http1Server {
    stream: Http1Stream,
    /// Whether the last request has no response yet.
    is_unanswered: bool,
}

impl ChannelEnd for Http1Server {
    fn send(&mut self, message: &[u8]) -> Result<(), ChannelError> {
        if !std::mem::take(&mut self.is_unanswered) {
            return Err(ChannelError::protocol("there is no request that a message would answer"));
        }
        self.stream.write("HTTP/1.1 200 OK", message)
    }

    fn receive(&mut self, buffer: &mut [u8], len: usize) -> Result<(), ChannelError> {
        let head = self.stream.read_head(Http1Head::of_request)?;
        self.stream.read_body(&head, &mut buffer[..len])?;
        if std::mem::replace(&mut self.is_unanswered, true) {
            self.stream.stream.send(b"HTTP/1.1 204 No Content\r\n\r\n")?;
        }
        Ok(())
    }

    fn take_counters(&mut self) -> Vec<(&'static str, u64)> {
        self.stream.stream.take_counters()
    }
}

/// Bytes of one read before the length of a message is known: a head, and a small message with it.
const READ_LEN: usize = 16 << 10;

/// A connection, with what was read of it and not yet used.
struct Http1Stream {
    stream: StreamEnd<SocketCalls>,
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    head: Vec<u8>,
}

impl Http1Stream {
    fn new(setup: &ChannelSetup<'_>, socket: OwnedFd) -> Result<Self, LaunchFault> {
        let stream = StreamEnd::new(setup, socket, None)?;
        Ok(Self { stream, buffer: vec![0; READ_LEN], begin: 0, end: 0, head: Vec::new() })
    }

    /// Writes a message behind the lines that a head begins with.
    fn write(&mut self, start: &str, message: &[u8]) -> Result<(), ChannelError> {
        self.head.clear();
        write!(self.head, "{start}\r\nContent-Length: {}\r\n\r\n", message.len())?;
        self.stream.watch.begin();
        // In one call, as two would be two packets.
        let (head, len) = (&self.head, self.head.len());
        let fd = &self.stream.rx;
        self.stream.watch.move_all(len + message.len(), |sent| {
            let body = &message[sent.saturating_sub(len)..];
            if sent < len {
                socket::send_parts(fd.as_fd(), &head[sent..], body)
            } else {
                socket::send(fd.as_fd(), body)
            }
        })?;
        Ok(())
    }

    /// Reads the next head.
    fn read_head(
        &mut self,
        parse: fn(&[u8]) -> Result<Option<Http1Head>, httparse::Error>,
    ) -> Result<Http1Head, ChannelError> {
        self.stream.watch.begin();
        loop {
            let found =
                parse(&self.buffer[self.begin..self.end]).map_err(ChannelError::protocol)?;
            if let Some(head) = found {
                self.begin += head.bytes;
                return Ok(head);
            }
            if self.begin > 0 {
                self.buffer.copy_within(self.begin..self.end, 0);
                (self.begin, self.end) = (0, self.end - self.begin);
            }
            if self.end == self.buffer.len() {
                return Err(ChannelError::protocol("a head is longer than any that is sent"));
            }
            self.end += self.stream.receive_some(&mut self.buffer[self.end..])?;
        }
    }

    /// Reads the body behind a head, which must fill a buffer.
    fn read_body(&mut self, head: &Http1Head, body: &mut [u8]) -> Result<(), ChannelError> {
        if head.length != body.len() {
            return Err(wrong_length(head.length, body.len()));
        }
        let there = body.len().min(self.end - self.begin);
        body[..there].copy_from_slice(&self.buffer[self.begin..self.begin + there]);
        self.begin += there;
        let rest = &mut body[there..];
        let len = rest.len();
        self.stream.receive(rest, len)
    }
}

/// The fields of a head that matter.
struct Http1Head {
    /// Its own bytes.
    bytes: usize,
    /// Bytes of the body behind it.
    length: usize,
    /// A response without any (204).
    is_empty: bool,
}

/// More than are ever sent.
const FIELDS_MAX: usize = 8;

impl Http1Head {
    fn of_request(bytes: &[u8]) -> Result<Option<Self>, httparse::Error> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut request = httparse::Request::new(&mut fields);
        let parsed = request.parse(bytes)?;
        Ok(Self::with(parsed, request.headers, false))
    }

    fn of_response(bytes: &[u8]) -> Result<Option<Self>, httparse::Error> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let parsed = response.parse(bytes)?;
        let is_empty = response.code == Some(204);
        Ok(Self::with(parsed, response.headers, is_empty))
    }

    fn with(
        parsed: httparse::Status<usize>,
        fields: &[httparse::Header<'_>],
        is_empty: bool,
    ) -> Option<Self> {
        let httparse::Status::Complete(bytes) = parsed else { return None };
        let length = fields.iter().find(|field| field.name.eq_ignore_ascii_case("content-length"));
        let length = length.and_then(|field| str::from_utf8(field.value).ok()?.trim().parse().ok());
        Some(Self { bytes, length: length.unwrap_or(0), is_empty })
    }
}
