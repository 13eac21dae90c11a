//! Responses of HTTP/1.1 as a client reads them: bounded in every direction, whatever comes.
//!
//! What was read beyond a response stays in the buffer for the next. Left out: compression, which is
//! never asked for, and trailers, which are passed over.

use std::io::Read;

use super::{BODY_BYTES_MAX, FIELDS_MAX, HEAD_BYTES_MAX, HttpError};

/// Bytes of one read.
const READ_BYTES: usize = 16 << 10;
/// Interim responses before the one that counts.
const INTERIM_MAX: usize = 8;
/// Longest line that tells a chunk's length.
const CHUNK_LINE_MAX: usize = 256;

/// A response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpResponse {
    /// Its status.
    pub status: u16,
    /// Where the thing has moved to.
    pub location: Option<String>,
    /// Whether the connection may be used again.
    pub is_kept: bool,
    /// The bytes.
    pub body: Vec<u8>,
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyFraming {
    Length(usize),
    Chunked,
    UntilClose,
}

#[derive(Debug)]
struct ResponseHead {
    status: u16,
    location: Option<String>,
    is_kept: bool,
    framing: BodyFraming,
}

/// Reads responses from one connection, in order.
#[derive(Debug)]
pub struct ResponseReader<R> {
    stream: R,
    buffer: Vec<u8>,
}

impl<R: Read> ResponseReader<R> {
    /// Reads from a stream.
    pub fn new(stream: R) -> Self {
        Self { stream, buffer: Vec::with_capacity(READ_BYTES * 2) }
    }

    /// The stream, to write requests to.
    pub const fn stream(&mut self) -> &mut R {
        &mut self.stream
    }

    /// The next response, whole.
    ///
    /// # Errors
    /// [`HttpError`]: the connection's, what is not HTTP, what is too large.
    pub fn read_one(&mut self) -> Result<HttpResponse, HttpError> {
        for _ in 0..INTERIM_MAX {
            let head = self.head()?;
            // RFC 9110, 15.2: any number of interim responses may come first.
            if !(100..200).contains(&head.status) {
                let body = self.body(&head)?;
                let ResponseHead { status, location, is_kept, framing } = head;
                let is_kept = is_kept && framing != BodyFraming::UntilClose;
                return Ok(HttpResponse { status, location, is_kept, body });
            }
        }
        Err(HttpError::Malformed("nothing but interim responses"))
    }

    fn head(&mut self) -> Result<ResponseHead, HttpError> {
        loop {
            if let Some((head, bytes)) = parse_head(&self.buffer)? {
                self.buffer.drain(..bytes);
                return Ok(head);
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(HttpError::TooLarge("its head"));
            }
            self.fill()?;
        }
    }

    fn body(&mut self, head: &ResponseHead) -> Result<Vec<u8>, HttpError> {
        // RFC 9112, 6.3: these have none whatever the fields say.
        if matches!(head.status, 204 | 304) {
            return Ok(Vec::new());
        }
        match head.framing {
            BodyFraming::Length(length) => self.take(length),
            BodyFraming::Chunked => self.chunks(),
            BodyFraming::UntilClose => self.rest(),
        }
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>, HttpError> {
        if length > BODY_BYTES_MAX {
            return Err(HttpError::TooLarge("its body"));
        }
        while self.buffer.len() < length {
            self.fill()?;
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    fn chunks(&mut self) -> Result<Vec<u8>, HttpError> {
        let mut body = Vec::new();
        loop {
            let line = self.line()?;
            let digits = line.split(';').next().unwrap_or_default().trim();
            let is_number = (1..=8).contains(&digits.len())
                && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let length = usize::from_str_radix(digits, 16).ok().filter(|_| is_number);
            let length = length.ok_or(HttpError::Malformed("the length of a chunk"))?;
            if length == 0 {
                break;
            }
            if body.len() + length > BODY_BYTES_MAX {
                return Err(HttpError::TooLarge("its body"));
            }
            body.extend_from_slice(&self.take(length)?);
            if !self.line()?.is_empty() {
                return Err(HttpError::Malformed("a chunk longer than it says"));
            }
        }
        for _ in 0..FIELDS_MAX {
            if self.line()?.is_empty() {
                return Ok(body);
            }
        }
        Err(HttpError::TooLarge("its trailers"))
    }

    /// One line without its end.
    fn line(&mut self) -> Result<String, HttpError> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let line = String::from_utf8(line);
                let line = line.map_err(|_| HttpError::Malformed("a line that is not text"))?;
                return Ok(line.trim_end_matches(['\r', '\n']).to_owned());
            }
            if self.buffer.len() > CHUNK_LINE_MAX {
                return Err(HttpError::Malformed("a line that does not end"));
            }
            self.fill()?;
        }
    }

    fn rest(&mut self) -> Result<Vec<u8>, HttpError> {
        loop {
            match self.fill() {
                Ok(()) if self.buffer.len() > BODY_BYTES_MAX => {
                    return Err(HttpError::TooLarge("its body"));
                }
                Ok(()) => {}
                Err(HttpError::Broken(error))
                    if error.kind() == std::io::ErrorKind::UnexpectedEof =>
                {
                    return Ok(std::mem::take(&mut self.buffer));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads some more.
    fn fill(&mut self) -> Result<(), HttpError> {
        let before = self.buffer.len();
        self.buffer.resize(before + READ_BYTES, 0);
        let read = self.stream.read(&mut self.buffer[before..]);
        self.buffer.truncate(before + *read.as_ref().unwrap_or(&0));
        match read? {
            0 => Err(HttpError::Broken(std::io::Error::new(
                std::io::ErrorKind::UnexpectedEof,
                "the server closed the connection before its answer was whole",
            ))),
            _ => Ok(()),
        }
    }
}

fn parse_head(bytes: &[u8]) -> Result<Option<(ResponseHead, usize)>, HttpError> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut fields);
    let length = match response.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(HttpError::TooLarge("its head")),
        Err(_) => return Err(HttpError::Malformed("its head")),
    };
    let status = response.code.ok_or(HttpError::Malformed("no status"))?;
    let mut head = ResponseHead {
        status,
        location: None,
        is_kept: response.version == Some(1),
        framing: BodyFraming::UntilClose,
    };
    for field in response.headers.iter() {
        let value = field.value.trim_ascii();
        if field.name.eq_ignore_ascii_case("content-length") {
            let length = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
            let length = length.ok_or(HttpError::Malformed("its length"))?;
            match head.framing {
                // RFC 9112, 6.3: chunks win over a length.
                BodyFraming::Chunked => {}
                BodyFraming::Length(other) if other != length => {
                    return Err(HttpError::Malformed("two lengths"));
                }
                _ => head.framing = BodyFraming::Length(length),
            }
        } else if field.name.eq_ignore_ascii_case("transfer-encoding") {
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(HttpError::Malformed("an encoding that was not asked for"));
            }
            head.framing = BodyFraming::Chunked;
        } else if field.name.eq_ignore_ascii_case("connection") {
            head.is_kept &= !value.to_ascii_lowercase().windows(5).any(|word| word == b"close");
        } else if field.name.eq_ignore_ascii_case("location") {
            head.location = Some(String::from_utf8_lossy(value).chars().take(1_024).collect());
        }
    }
    Ok(Some((head, length)))
}

/// A request for one object.
pub fn request(path: &str, authority: &str, is_last: bool) -> Vec<u8> {
    let close = if is_last { "Connection: close\r\n" } else { "" };
    format!(
        "GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: plumb\r\nAccept: */*\r\n{close}\r\n"
    )
    .into_bytes()
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;
    use rand::RngExt as _;

    use super::*;

    const PIPELINED: &[u8] = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
        HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n10\r\n0123456789abcdef\r\n0\r\nA: b\r\n\r\n\
        HTTP/1.1 304 Not Modified\r\nContent-Length: 900\r\n\r\n\
        HTTP/1.1 301 Moved\r\nLocation: https://x/\r\nConnection: close\r\n\r\nrest";

    /// Any bytes, in any pieces, are read to their end or an error.
    fn read_in_pieces(bytes: &[u8], piece: usize) {
        struct PiecewiseReader<'a>(&'a [u8], usize);
        impl Read for PiecewiseReader<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
                let length = self.0.len().min(self.1).min(buffer.len());
                buffer[..length].copy_from_slice(&self.0[..length]);
                self.0 = &self.0[length..];
                Ok(length)
            }
        }
        let mut responses = ResponseReader::new(PiecewiseReader(bytes, piece.max(1)));
        while let Ok(response) = responses.read_one() {
            assert!(response.body.len() <= bytes.len(), "nothing is made up");
            if !response.is_kept {
                break;
            }
        }
    }

    #[test]
    fn responses_come_apart_as_they_were_put_together() {
        let mut responses = ResponseReader::new(PIPELINED);
        assert_eq!(responses.read_one().unwrap().body, b"hello");
        assert_eq!(responses.read_one().unwrap().body, b"abc0123456789abcdef");
        let third = responses.read_one().unwrap();
        assert_eq!((third.status, third.body.len(), third.is_kept), (304, 0, true));
        let last = responses.read_one().unwrap();
        assert_eq!((last.status, last.is_kept, &last.body[..]), (301, false, &b"rest"[..]));
        assert_eq!(last.location.as_deref(), Some("https://x/"));
        assert!(matches!(responses.read_one(), Err(HttpError::Broken(_))));
    }

    #[test]
    fn what_is_too_large_or_makes_no_sense_is_named() {
        let read = |text: &str| ResponseReader::new(text.as_bytes()).read_one();
        let long = format!("HTTP/1.1 200 OK\r\nX: {}", "y".repeat(HEAD_BYTES_MAX * 2));
        assert!(matches!(read(&long), Err(HttpError::TooLarge(_))));
        let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(FIELDS_MAX + 1));
        assert!(matches!(read(&many), Err(HttpError::TooLarge(_))));
        for length in ["99999999999", "18446744073709551615"] {
            let huge = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
            assert!(matches!(read(&huge), Err(HttpError::TooLarge(_))), "{length}");
        }
        for text in [
            "SSH-2.0-OpenSSH_9.6\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n",
        ] {
            assert!(matches!(read(text), Err(HttpError::Malformed(_))), "{text}");
        }
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(20);
        assert!(matches!(read(&interim), Err(HttpError::Malformed(_))));
    }

    #[test]
    fn no_bytes_make_a_reader_panic_or_keep_more_than_came() {
        let seed = Seed(0x6874_7470);
        println!("seed {seed:?}");
        let mut random = seed.stream("responses");
        for _ in 0..100_000 {
            let mut bytes = PIPELINED.to_vec();
            for _ in 0..random.random_range(0..6) {
                let at = random.random_range(0..bytes.len());
                match random.random_range(0..3) {
                    0 => bytes[at] = random.random(),
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, random.random()),
                }
            }
            bytes.truncate(random.random_range(0..=bytes.len()));
            read_in_pieces(&bytes, random.random_range(1..200));
        }
    }
}
