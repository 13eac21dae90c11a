//! HTTP/3: one QUIC connection, all images at once.
//!
//! Left out: finding out by Alt-Svc that a server has it: it is tried at the URL's own port.

use std::net::IpAddr;
use std::sync::Arc;

use ::h3::client::SendRequest;
use bytes::{Buf as _, Bytes};
use h3_quinn::OpenStreams;
use http::Request;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Endpoint, VarInt};
use rustls::ClientConfig;

use super::{FetchedPage, HttpClient, error_of_quic};
use crate::http::{BODY_BYTES_MAX, HEAD_BYTES_MAX, HttpError};

/// Silence after which the connection is over.
const IDLE_MS: u32 = 10_000;
/// Turns that the tasks of a connection get to end it.
const CLOSE_YIELDS: usize = 8;

pub(super) async fn fetch(
    client: &HttpClient,
    tls: Option<Arc<ClientConfig>>,
) -> Result<FetchedPage, HttpError> {
    let any: IpAddr = if client.address.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let endpoint = Endpoint::client((any, 0).into())?;
    let setup = |error: &dyn ToString| HttpError::Setup(error.to_string());
    let tls = tls.ok_or_else(|| setup(&"HTTP/3 is always encrypted"))?;
    let crypto = QuicClientConfig::try_from(tls).map_err(|error| setup(&error))?;
    let mut configuration = quinn::ClientConfig::new(Arc::new(crypto));
    let mut transport = quinn::TransportConfig::default();
    transport.max_idle_timeout(Some(VarInt::from_u32(IDLE_MS).into()));
    configuration.transport_config(Arc::new(transport));
    let connecting = endpoint
        .connect_with(configuration, client.address, client.target.server_name())
        .map_err(|error| setup(&error))?;
    let connection = connecting.await.map_err(|error| refused(client, &error))?;
    let head_max = u64::try_from(HEAD_BYTES_MAX).unwrap_or(u64::MAX);
    let (mut driver, requests) = ::h3::client::builder()
        .max_field_section_size(head_max)
        .build::<_, _, Bytes>(h3_quinn::Connection::new(connection.clone()))
        .await
        .map_err(broken)?;
    let driving = tokio::spawn(async move {
        // Ends with the connection, whose end the requests hear of too.
        drop(driver.wait_idle().await);
    });
    let fetched = super::fetch_at_once(client, async |path: &str| {
        Ok(ask(requests.clone(), super::request(client, "https", path)?, path.to_owned()))
    });
    let fetched = fetched.await;
    // The last handle ends the connection: it is kept until everything is there.
    drop(requests);
    // 0x100 is H3_NO_ERROR.
    connection.close(VarInt::from_u32(0x100), b"");
    // The task of the connection says goodbye in its next turn; the server keeps a place until it hears.
    for _ in 0..CLOSE_YIELDS {
        tokio::task::yield_now().await;
    }
    driving.abort();
    fetched
}

async fn ask(
    mut requests: SendRequest<OpenStreams, Bytes>,
    request: Request<()>,
    path: String,
) -> Result<Bytes, HttpError> {
    let mut stream = requests.send_request(request).await.map_err(broken)?;
    stream.finish().await.map_err(broken)?;
    let response = stream.recv_response().await.map_err(broken)?;
    super::check_response(&path, &response)?;
    let mut body = Vec::new();
    while let Some(mut data) = stream.recv_data().await.map_err(broken)? {
        if body.len() + data.remaining() > BODY_BYTES_MAX {
            return Err(HttpError::TooLarge("its body"));
        }
        body.extend_from_slice(&data.copy_to_bytes(data.remaining()));
    }
    Ok(body.into())
}

fn refused(client: &HttpClient, error: &quinn::ConnectionError) -> HttpError {
    use quinn::ConnectionError as E;
    match error {
        // The client's own are its verifier's.
        E::TransportError(own) => error_of_quic(own.code.into(), error.to_string()),
        E::ConnectionClosed(theirs) => error_of_quic(theirs.error_code.into(), error.to_string()),
        other => {
            let error = if matches!(other, E::TimedOut) {
                format!("nothing came back within {} s", IDLE_MS / 1_000)
            } else {
                other.to_string()
            };
            let to = format!("{} (UDP)", client.address);
            HttpError::Connect { to, error: std::io::Error::other(error) }
        }
    }
}

fn broken(error: impl std::error::Error) -> HttpError {
    HttpError::Broken(std::io::Error::other(error.to_string()))
}
