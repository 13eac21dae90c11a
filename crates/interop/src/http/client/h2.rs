//! HTTP/2: one connection, all images at once. In the clear by prior knowledge, as RFC 9113 3.3 has it.
//!
//! Left out: server push, which nobody uses any more, and priorities.

use std::future::poll_fn;
use std::sync::Arc;

use ::h2::client::{self, SendRequest};
use bytes::Bytes;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::h1::{connect_tcp, server_name};
use super::{FetchedPage, HttpClient, error_of_tls};
use crate::http::{BODY_BYTES_MAX, HEAD_BYTES_MAX, HttpError};

pub(super) async fn fetch(
    client: &HttpClient,
    tls: Option<Arc<ClientConfig>>,
) -> Result<FetchedPage, HttpError> {
    let socket = connect_tcp(client)?;
    socket.set_nonblocking(true)?;
    let socket = TcpStream::from_std(socket)?;
    let Some(tls) = tls else { return fetch_over(client, socket).await };
    let connector = tokio_rustls::TlsConnector::from(tls);
    let stream = connector.connect(server_name(client)?, socket).await;
    let stream = stream.map_err(|error| error_of_tls(&error, "HTTP/2"))?;
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return Err(HttpError::Version("HTTP/2"));
    }
    fetch_over(client, stream).await
}

async fn fetch_over<S>(client: &HttpClient, stream: S) -> Result<FetchedPage, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let head_max = u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX);
    let (mut requests, connection) = client::Builder::new()
        .enable_push(false)
        .max_header_list_size(head_max)
        .initial_window_size(1 << 20)
        .initial_connection_window_size(4 << 20)
        .handshake::<S, Bytes>(stream)
        .await
        .map_err(fault)?;
    let driver = tokio::spawn(connection);
    poll_fn(|context| requests.poll_ready(context)).await.map_err(fault)?;
    let fetched = super::fetch_at_once(client, async |path: &str| {
        // Waits where the server allows fewer streams at once.
        poll_fn(|context| requests.poll_ready(context)).await.map_err(fault)?;
        ask(client, &mut requests, path)
    });
    let fetched = fetched.await;
    driver.abort();
    fetched
}

/// Sends a request; what is given back waits for the whole answer.
fn ask(
    client: &HttpClient,
    requests: &mut SendRequest<Bytes>,
    path: &str,
) -> Result<impl Future<Output = Result<Bytes, HttpError>> + Send + use<>, HttpError> {
    let scheme = if client.target.is_encrypted { "https" } else { "http" };
    let request = super::request(client, scheme, path)?;
    let (response, _) = requests.send_request(request, true).map_err(fault)?;
    let path = path.to_owned();
    Ok(async move {
        let response = response.await.map_err(fault)?;
        super::check_response(&path, &response)?;
        let mut stream = response.into_body();
        let mut body = Vec::new();
        while let Some(data) = stream.data().await {
            let data = data.map_err(fault)?;
            if body.len() + data.len() > BODY_BYTES_MAX {
                return Err(HttpError::TooLarge("its body"));
            }
            stream.flow_control().release_capacity(data.len()).map_err(fault)?;
            body.extend_from_slice(&data);
        }
        Ok(body.into())
    })
}

fn fault(error: ::h2::Error) -> HttpError {
    if error.is_io() {
        let error = error.into_io().unwrap_or_else(|| std::io::Error::other("it is gone"));
        return HttpError::Broken(error);
    }
    // A server of HTTP/1.1 answers the first frame by something that is none.
    if error.is_library() || error.reason() == Some(::h2::Reason::FRAME_SIZE_ERROR) {
        return HttpError::Version("HTTP/2");
    }
    HttpError::Broken(std::io::Error::other(error))
}
