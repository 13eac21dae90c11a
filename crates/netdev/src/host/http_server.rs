//! Files of one directory over HTTP/1.1 (RFC 9112): GET and HEAD, connections kept, requests in sequence.
//!
//! Left out: a Date field, as the stack has no wall clock (RFC 9110 §6.6.1), ranges, lists of directories.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::AsFd as _;
use std::path::Path;

use plumb_stack::tcp::{Received, TcpSocketError};
use plumb_sys::fd;

use crate::host::served_socket::{ServedSocket, StreamStep};

/// Longest head of a request, in bytes.
const HEAD_MAX: usize = 8_192;
/// Most header fields of a request.
const FIELDS_MAX: usize = 64;
/// Bytes of a file read at a time, and before it is the others' turn: a disk that is slow holds up the whole host no longer.
const PIECE: usize = 65_536;

/// A directory, of which nothing outside is ever served.
#[derive(Debug)]
pub struct FileDirectory(File);

impl FileDirectory {
    /// Opens a directory.
    ///
    /// # Errors
    /// It cannot be read, or is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        if file.metadata()?.is_dir() {
            Ok(Self(file))
        } else {
            Err(io::ErrorKind::NotADirectory.into())
        }
    }

    /// A regular file in it, with its length in bytes.
    fn file(&self, path: &[u8]) -> Result<(File, u64), HttpStatus> {
        let file = fd::open_beneath(self.0.as_fd(), path).map(File::from).map_err(|error| {
            let is_forbidden = error.kind() == io::ErrorKind::PermissionDenied;
            if is_forbidden { HttpStatus::FORBIDDEN } else { HttpStatus::NOT_FOUND }
        })?;
        match file.metadata() {
            Ok(metadata) if metadata.is_file() => Ok((file, metadata.len())),
            _ => Err(HttpStatus::NOT_FOUND),
        }
    }
}

/// A status with its reason phrase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct HttpStatus(u16, &'static str);

impl HttpStatus {
    const OK: Self = Self(200, "OK");
    const BAD_REQUEST: Self = Self(400, "Bad Request");
    const FORBIDDEN: Self = Self(403, "Forbidden");
    const NOT_FOUND: Self = Self(404, "Not Found");
    const NOT_ALLOWED: Self = Self(405, "Method Not Allowed");
    const HEAD_TOO_LARGE: Self = Self(431, "Request Header Fields Too Large");
    const VERSION: Self = Self(505, "HTTP Version Not Supported");
}

/// What is wanted.
#[derive(Debug, PartialEq, Eq)]
struct HttpRequest {
    is_head: bool,
    path: Vec<u8>,
    is_kept: bool,
}

#[derive(Debug)]
struct HttpAnswer {
    head: Vec<u8>,
    file: Option<File>,
    /// Bytes of the file that are to be sent.
    left: u64,
    is_kept: bool,
}

/// One connection: reads a request, answers it, reads the next.
#[derive(Debug, Default)]
pub(super) struct HttpSession {
    input: Vec<u8>,
    answer: Option<HttpAnswer>,
}

impl HttpSession {
    /// Goes on as far as data and room allow.
    pub fn serve(
        &mut self,
        socket: &mut ServedSocket<'_>,
        files: Option<&FileDirectory>,
        scratch: &mut [u8],
    ) -> Result<StreamStep, TcpSocketError> {
        loop {
            if let Some(answer) = &mut self.answer {
                match answer.send(socket)? {
                    AnswerProgress::Blocked => return Ok(StreamStep::Wait),
                    AnswerProgress::Paused => return Ok(StreamStep::Yield),
                    AnswerProgress::Broken => return Ok(StreamStep::Abort),
                    AnswerProgress::Complete if !answer.is_kept => return Ok(StreamStep::Finish),
                    AnswerProgress::Complete => self.answer = None,
                }
            }
            if let Some(parsed) = parse_request(&self.input) {
                let (request, len) =
                    parsed.map_or_else(|status| (Err(status), 0), |(r, n)| (Ok(r), n));
                self.input.drain(..len);
                let answer = answer(request, files);
                let is_served = answer.1;
                self.answer = Some(answer.0);
                socket.count_request(is_served);
                continue;
            }
            // A head that fills the buffer has been refused, so there is room.
            let room = (HEAD_MAX - self.input.len()).min(scratch.len());
            match socket.receive(&mut scratch[..room])? {
                Received::Data(len) => self.input.extend_from_slice(&scratch[..len]),
                Received::Empty => return Ok(StreamStep::Wait),
                Received::End => return Ok(StreamStep::Finish),
            }
        }
    }
}

/// How far an answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AnswerProgress {
    Complete,
    /// The send buffer is full.
    Blocked,
    /// A piece was read, and there may be room for another.
    Paused,
    /// The file has become shorter, or cannot be read.
    Broken,
}

impl HttpAnswer {
    fn send(&mut self, socket: &mut ServedSocket<'_>) -> Result<AnswerProgress, TcpSocketError> {
        let sent = socket.send(&self.head)?;
        self.head.drain(..sent);
        if !self.head.is_empty() {
            return Ok(AnswerProgress::Blocked);
        }
        let Some(file) = &mut self.file else { return Ok(AnswerProgress::Complete) };
        if self.left == 0 {
            return Ok(AnswerProgress::Complete);
        }
        let max = usize::try_from(self.left).unwrap_or(usize::MAX).min(PIECE);
        let mut is_readable = true;
        let sent = socket.send_with(max, |room| {
            if room.is_empty() {
                return 0;
            }
            let len = file.read(room).unwrap_or(0);
            is_readable = len > 0;
            len
        })?;
        self.left -= sent as u64;
        Ok(match (is_readable, sent) {
            (false, _) => AnswerProgress::Broken,
            (true, 0) => AnswerProgress::Blocked,
            _ if self.left == 0 => AnswerProgress::Complete,
            _ => AnswerProgress::Paused,
        })
    }
}

/// The answer, and whether it is what was asked for.
fn answer(
    request: Result<HttpRequest, HttpStatus>,
    files: Option<&FileDirectory>,
) -> (HttpAnswer, bool) {
    let (is_head, is_kept) =
        request.as_ref().map_or((false, false), |request| (request.is_head, request.is_kept));
    let found = request.and_then(|request| {
        let path = file_path(&request.path)?;
        let (file, len) = files.ok_or(HttpStatus::NOT_FOUND)?.file(&path)?;
        Ok((file, len, media_type(&path)))
    });
    match found {
        Ok((file, len, media)) => {
            let head = head(HttpStatus::OK, (len, media), is_kept);
            let file = (!is_head).then_some(file);
            (HttpAnswer { head, left: if is_head { 0 } else { len }, file, is_kept }, true)
        }
        Err(status) => {
            let body = format!("{} {}\n", status.0, status.1);
            // After any other error the next request cannot be found in the stream.
            let is_kept = is_kept && matches!(status.0, 403 | 404);
            let mut head = head(status, (body.len() as u64, "text/plain"), is_kept);
            if !is_head {
                head.extend_from_slice(body.as_bytes());
            }
            (HttpAnswer { head, file: None, left: 0, is_kept }, false)
        }
    }
}

fn head(HttpStatus(code, reason): HttpStatus, (len, media): (u64, &str), is_kept: bool) -> Vec<u8> {
    let connection = if is_kept { "keep-alive" } else { "close" };
    let allow = if code == 405 { "Allow: GET, HEAD\r\n" } else { "" };
    format!(
        "HTTP/1.1 {code} {reason}\r\nServer: plumb\r\nContent-Type: {media}\r\nContent-Length: {len}\r\n\
         {allow}Connection: {connection}\r\n\r\n"
    )
    .into_bytes()
}

/// The request at the start of `input` with the length of its head; `None` while it is not complete.
fn parse_request(input: &[u8]) -> Option<Result<(HttpRequest, usize), HttpStatus>> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(input) {
        Ok(httparse::Status::Complete(len)) => {
            Some(read_request(&request).map(|request| (request, len)))
        }
        Ok(httparse::Status::Partial) if input.len() < HEAD_MAX => None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            Some(Err(HttpStatus::HEAD_TOO_LARGE))
        }
        Err(httparse::Error::Version) => Some(Err(HttpStatus::VERSION)),
        Err(_) => Some(Err(HttpStatus::BAD_REQUEST)),
    }
}

fn read_request(request: &httparse::Request<'_, '_>) -> Result<HttpRequest, HttpStatus> {
    let is_current = request.version == Some(1);
    let value = |name: &str| {
        let mut fields = request.headers.iter();
        fields.find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    };
    // RFC 9112 §3.2.
    let hosts = request.headers.iter().filter(|field| field.name.eq_ignore_ascii_case("host"));
    if is_current && hosts.count() != 1 {
        return Err(HttpStatus::BAD_REQUEST);
    }
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Err(HttpStatus::NOT_ALLOWED),
    };
    // A body is not read, and what follows it cannot be told from it.
    let has_body = value("content-length").is_some_and(|len| len.trim_ascii() != b"0")
        || value("transfer-encoding").is_some();
    let connection = value("connection").unwrap_or_default().to_ascii_lowercase();
    let says =
        |word: &[u8]| connection.split(|&byte| byte == b',').any(|it| it.trim_ascii() == word);
    let is_kept = if is_current { !says(b"close") } else { says(b"keep-alive") };
    let target = request.path.unwrap_or_default();
    Ok(HttpRequest { is_head, path: target.as_bytes().to_vec(), is_kept: is_kept && !has_body })
}

/// The path of a file below the directory, of the target of a request (RFC 9112 §3.2.1 and §3.2.2).
fn file_path(target: &[u8]) -> Result<Vec<u8>, HttpStatus> {
    let target = match target.strip_prefix(b"http://") {
        Some(rest) => &rest[rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len())..],
        None => target,
    };
    let path = target.split(|&byte| byte == b'?').next().unwrap_or_default();
    let mut decoded = Vec::with_capacity(path.len());
    let mut rest = path.strip_prefix(b"/").unwrap_or(if path.is_empty() { path } else { b"%" });
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte == b'%' {
            let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
            let digits =
                digits.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let byte = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            decoded.push(byte.filter(|&byte| byte != 0).ok_or(HttpStatus::BAD_REQUEST)?);
            rest = &after[2..];
        } else {
            decoded.push(byte);
        }
    }
    if decoded.starts_with(b"/") || decoded.split(|&byte| byte == b'/').any(|part| part == b"..") {
        return Err(HttpStatus::BAD_REQUEST);
    }
    if decoded.is_empty() || decoded.ends_with(b"/") {
        decoded.extend_from_slice(b"index.html");
    }
    Ok(decoded)
}

fn media_type(path: &[u8]) -> &'static str {
    match path.rsplit(|&byte| byte == b'.').next().unwrap_or_default() {
        b"html" => "text/html; charset=utf-8",
        b"txt" => "text/plain; charset=utf-8",
        b"css" => "text/css",
        b"js" => "text/javascript",
        b"json" => "application/json",
        b"svg" => "image/svg+xml",
        b"png" => "image/png",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_directory() {
        for (target, path) in [
            ("/", "index.html"),
            ("/a/b.txt?x=/../y", "a/b.txt"),
            ("/a/", "a/index.html"),
            ("/%61%20b", "a b"),
            ("/...", "..."),
            ("http://host/x", "x"),
            ("http://host", "index.html"),
        ] {
            assert_eq!(file_path(target.as_bytes()).unwrap(), path.as_bytes(), "{target}");
        }
        for target in [
            "/../etc/passwd",
            "/a/%2e%2e/b",
            "/..%2fb",
            "//etc/passwd",
            "/%2fetc",
            "x",
            "*",
            "/%0",
            "/%00",
            "/%+1",
        ] {
            assert_eq!(file_path(target.as_bytes()), Err(HttpStatus::BAD_REQUEST), "{target}");
        }
    }

    #[test]
    fn links_that_leave_the_directory_are_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let below = place.path().join("below");
        std::fs::create_dir(&below).unwrap();
        std::fs::write(place.path().join("secret"), "secret").unwrap();
        std::fs::write(below.join("file"), "content").unwrap();
        for (link, to) in [("out", "../secret"), ("root", "/etc/passwd"), ("in", "file")] {
            std::os::unix::fs::symlink(to, below.join(link)).unwrap();
        }
        let files = FileDirectory::open(&below).unwrap();
        for (name, found) in
            [("file", true), ("in", true), ("out", false), ("root", false), (".", false)]
        {
            assert_eq!(files.file(name.as_bytes()).is_ok(), found, "{name}");
        }
    }

    #[test]
    fn requests_are_complete_refused_or_awaited() {
        let parse = |text: &str| parse_request(text.as_bytes());
        assert!(parse("GET / HTTP/1.1\r\nHost: x\r\n").is_none());
        let (request, len) = parse("HEAD /a HTTP/1.1\r\nHost: x\r\n\r\nGET").unwrap().unwrap();
        let wanted = HttpRequest { is_head: true, path: b"/a".to_vec(), is_kept: true };
        assert_eq!((request, len), (wanted, 29));
        for (text, is_kept) in [
            ("GET / HTTP/1.0\r\n\r\n", false),
            ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true),
            ("GET / HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n", false),
            ("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n", false),
        ] {
            assert_eq!(parse(text).unwrap().unwrap().0.is_kept, is_kept, "{text}");
        }
        for (text, status) in [
            ("GET / HTTP/1.1\r\n\r\n", HttpStatus::BAD_REQUEST),
            ("POST / HTTP/1.1\r\nHost: x\r\n\r\n", HttpStatus::NOT_ALLOWED),
            ("GET / HTTP/3.0\r\n\r\n", HttpStatus::VERSION),
            ("\x01\r\n\r\n", HttpStatus::BAD_REQUEST),
            (&"a".repeat(HEAD_MAX), HttpStatus::HEAD_TOO_LARGE),
        ] {
            assert_eq!(parse(text), Some(Err(status)), "{text}");
        }
    }
}
