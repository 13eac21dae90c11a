//! HTTP/1.1 as a server: requests are answered in their order, also when several come at once.
//!
//! Left out: bodies of requests; a request that announces one is refused and the connection ends.

use std::io;

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::HttpServerState;
use crate::http::page::STANDARD;
use crate::http::{FIELDS_MAX, HEAD_BYTES_MAX};

/// Bytes of one read.
const READ_BYTES: usize = 4 << 10;
/// Answers are gathered up to so many bytes before they are written.
const WRITE_BYTES: usize = 64 << 10;

pub(super) async fn serve<S>(mut stream: S, shared: &HttpServerState) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut requests = Vec::with_capacity(READ_BYTES);
    let mut answers = Vec::new();
    loop {
        let reading = read_request(&mut stream, &mut requests, &mut answers);
        let Some(mut kept) = shared.with_timeout(reading).await? else { return Ok(()) };
        shared.count_request();
        // Those that came together are answered together.
        while kept && answers.len() < WRITE_BYTES {
            let Some(next) = answer_next(&mut requests, &mut answers) else { break };
            shared.count_request();
            kept = next;
        }
        shared
            .with_timeout(async {
                stream.write_all(&answers).await?;
                stream.flush().await
            })
            .await?;
        answers.clear();
        if !kept {
            shared.with_timeout(stream.shutdown()).await?;
            return Ok(());
        }
    }
}

/// Reads until there is a whole request, and answers it; none at the end of the connection.
async fn read_request<S: AsyncRead + Unpin>(
    stream: &mut S,
    requests: &mut Vec<u8>,
    answers: &mut Vec<u8>,
) -> io::Result<Option<bool>> {
    loop {
        if let Some(kept) = answer_next(requests, answers) {
            return Ok(Some(kept));
        }
        requests.reserve(READ_BYTES);
        if stream.read_buf(requests).await? == 0 {
            let cut = io::Error::new(io::ErrorKind::UnexpectedEof, "half a request");
            return if requests.is_empty() { Ok(None) } else { Err(cut) };
        }
    }
}

/// Answers the first request of the buffer, if it is whole: whether the connection stays. What makes no
/// sense, or is too long, is answered too, and ends the connection.
fn answer_next(requests: &mut Vec<u8>, answers: &mut Vec<u8>) -> Option<bool> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    let length = match request.parse(requests) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) if requests.len() <= HEAD_BYTES_MAX => return None,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            refuse(answers, "431 Request Header Fields Too Large");
            return Some(false);
        }
        Err(_) => {
            refuse(answers, "400 Bad Request");
            return Some(false);
        }
    };
    let kept = answer(&request, answers);
    requests.drain(..length);
    Some(kept)
}

fn answer(request: &httparse::Request<'_, '_>, answers: &mut Vec<u8>) -> bool {
    let field = |name: &str| {
        let mut fields = request.headers.iter();
        fields.find(|field| field.name.eq_ignore_ascii_case(name)).map(|field| field.value)
    };
    let has_body = field("transfer-encoding").is_some()
        || field("content-length").is_some_and(|length| length.trim_ascii() != b"0");
    if has_body {
        refuse(answers, "413 Content Too Large");
        return false;
    }
    let says_close = field("connection")
        .is_some_and(|value| value.to_ascii_lowercase().windows(5).any(|word| word == b"close"));
    let kept = request.version == Some(1) && !says_close;
    let is_head = request.method == Some("HEAD");
    if !is_head && request.method != Some("GET") {
        refuse(answers, "405 Method Not Allowed");
        return false;
    }
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    let (status, media_type, body) = match STANDARD.content(path) {
        Some((media_type, body)) => ("200 OK", media_type, body),
        None => ("404 Not Found", "text/plain", Bytes::from_static(b"plumb has one page: /\n")),
    };
    let connection = if kept { "" } else { "Connection: close\r\n" };
    let head = format!(
        "HTTP/1.1 {status}\r\nServer: plumb\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\
         {connection}\r\n",
        body.len()
    );
    answers.extend_from_slice(head.as_bytes());
    if !is_head {
        answers.extend_from_slice(&body);
    }
    kept
}

fn refuse(answers: &mut Vec<u8>, status: &str) {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    answers.extend_from_slice(head.as_bytes());
}

#[cfg(test)]
mod tests {
    use plumb_base::seed::Seed;
    use rand::RngExt as _;

    use super::*;

    fn all(bytes: &[u8]) -> (String, Option<bool>) {
        let (mut requests, mut answers) = (bytes.to_vec(), Vec::new());
        let mut last = None;
        while let Some(kept) = answer_next(&mut requests, &mut answers) {
            last = Some(kept);
            if !kept {
                break;
            }
        }
        (String::from_utf8_lossy(&answers).into_owned(), last)
    }

    #[test]
    fn requests_are_answered_in_order_and_by_their_method() {
        let (answers, kept) =
            all(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\nGET /none HTTP/1.1\r\n\r\nGET /image/01.png HTTP/1.0\r\n\r\n");
        assert_eq!(kept, Some(false), "HTTP/1.0 closes");
        let [first, second] = ["HTTP/1.1 200 OK", "HTTP/1.1 404"].map(|s| answers.find(s).unwrap());
        assert!(first < second);
        assert!(answers.contains("Content-Length: 10000") && answers.len() < 2_000);
    }

    #[test]
    fn what_is_not_served_is_refused_and_ends_the_connection() {
        for (request, status) in [
            ("DELETE / HTTP/1.1\r\n\r\n", "405"),
            ("GET / HTTP/1.1\r\nContent-Length: 5\r\n\r\n", "413"),
            ("GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "413"),
            ("nonsense\r\n\r\n", "400"),
            (&format!("GET / HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(200)), "431"),
            (&format!("GET /{} HTTP/1.1", "x".repeat(20_000)), "431"),
        ] {
            let (answer, kept) = all(request.as_bytes());
            assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{request}: {answer}");
            assert_eq!(kept, Some(false));
        }
    }

    #[test]
    fn no_bytes_make_the_server_panic_or_answer_without_end() {
        let seed = Seed(0x7365_7276);
        println!("seed {seed:?}");
        let mut random = seed.stream("requests");
        let valid = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: keep-alive\r\n\r\nHEAD /a?b HTTP/1.1\r\n\r\n";
        for _ in 0..100_000 {
            let mut bytes = valid.to_vec();
            for _ in 0..random.random_range(0..5) {
                let at = random.random_range(0..bytes.len());
                bytes[at] = random.random();
            }
            bytes.truncate(random.random_range(0..=bytes.len()));
            let (answers, _) = all(&bytes);
            assert!(answers.len() < 30_000);
        }
    }
}
