//! HTTP/2 as a server.
//!
//! Left out: push, and priorities.

use std::io;

use ::h2::server::{self, SendResponse};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use tokio::io::{AsyncRead, AsyncWrite};

use super::HttpServerState;
use crate::http::HEAD_BYTES_MAX;
use crate::http::page::STANDARD;

/// Requests at a time on one connection.
const STREAMS_MAX: u32 = 32;

pub(super) async fn serve<S>(stream: S, shared: &HttpServerState) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut builder = server::Builder::new();
    builder
        .max_concurrent_streams(STREAMS_MAX)
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX));
    let handshake = builder.handshake::<S, Bytes>(stream);
    let mut connection =
        shared.with_timeout(async { handshake.await.map_err(io::Error::other) }).await?;
    loop {
        // Silence for a whole step ends the connection, also of a client that does not read.
        let next = shared.with_timeout(async {
            connection.accept().await.transpose().map_err(io::Error::other)
        });
        match next.await? {
            Some((request, mut respond)) => {
                shared.count_request();
                answer(&request, &mut respond).map_err(io::Error::other)?;
            }
            None => return Ok(()),
        }
    }
}

fn answer<B>(request: &Request<B>, respond: &mut SendResponse<Bytes>) -> Result<(), ::h2::Error> {
    let (response, body) = response(request);
    let mut stream = respond.send_response(response, body.is_empty())?;
    if !body.is_empty() {
        // The bytes are the page's own: what waits for the client is not copied.
        stream.send_data(body, true)?;
    }
    Ok(())
}

/// The answer to a request, as HTTP/2 and HTTP/3 give it.
pub(super) fn response<B>(request: &Request<B>) -> (Response<()>, Bytes) {
    let mut response = Response::new(());
    let is_head = request.method() == Method::HEAD;
    let content = STANDARD.content(request.uri().path());
    let (status, media_type, body) = match content {
        _ if !is_head && request.method() != Method::GET => {
            (StatusCode::METHOD_NOT_ALLOWED, "text/plain", Bytes::new())
        }
        Some((media_type, body)) => (StatusCode::OK, media_type, body),
        None => {
            (StatusCode::NOT_FOUND, "text/plain", Bytes::from_static(b"plumb has one page: /\n"))
        }
    };
    *response.status_mut() = status;
    let fields = response.headers_mut();
    fields.insert("server", http::HeaderValue::from_static("plumb"));
    fields.insert("content-type", http::HeaderValue::from_static(media_type));
    fields.insert("content-length", http::HeaderValue::from(body.len()));
    (response, if is_head { Bytes::new() } else { body })
}
