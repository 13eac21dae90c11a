//! HTTP/3 as a server.
//!
//! An address that has not shown that it hears us is sent one Retry (RFC 9000, 8.1.2), which is smaller than what came
//! from there, and nothing else: a client's first connection takes a round trip more. Left out: push, and
//! datagrams.

use std::io;
use std::sync::Arc;

use ::h3::server::RequestResolver;
use bytes::Bytes;
use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, VarInt};

use super::{HttpServerLimits, HttpServerState};
use crate::http::HEAD_BYTES_MAX;
use plumb_remote::secure::HostIdentity;

/// Requests at a time on one connection.
const STREAMS_MAX: u32 = 32;
/// Control and compression streams of HTTP/3, with room for those that have to be ignored.
const CONTROL_STREAMS_MAX: u32 = 8;
/// A client has no more to say than requests.
const RECEIVE_WINDOW: u32 = 256 << 10;

pub(super) fn configuration(
    identity: &HostIdentity,
    limits: &HttpServerLimits,
) -> Result<quinn::ServerConfig, Box<dyn std::error::Error>> {
    let tls = super::configuration(identity, &[b"h3"])?;
    let crypto = QuicServerConfig::try_from(tls)?;
    let mut configuration = quinn::ServerConfig::with_crypto(Arc::new(crypto));
    let mut transport = quinn::TransportConfig::default();
    transport
        .max_idle_timeout(Some(limits.step_timeout.try_into()?))
        .max_concurrent_bidi_streams(VarInt::from_u32(STREAMS_MAX))
        .max_concurrent_uni_streams(VarInt::from_u32(CONTROL_STREAMS_MAX))
        .receive_window(VarInt::from_u32(RECEIVE_WINDOW))
        .stream_receive_window(VarInt::from_u32(RECEIVE_WINDOW / 4))
        .datagram_receive_buffer_size(None);
    configuration.transport_config(Arc::new(transport));
    Ok(configuration)
}

pub(super) async fn accept(endpoint: Endpoint, shared: HttpServerState) {
    while let Some(incoming) = endpoint.accept().await {
        if !shared.is_allowed(incoming.remote_address().ip()) {
            incoming.ignore();
            continue;
        }
        if !incoming.remote_address_validated() {
            // A client that cannot be sent a Retry gets no answer.
            if let Err(error) = incoming.retry() {
                error.into_incoming().ignore();
            }
            continue;
        }
        let Some(place) = shared.acquire_slot(incoming.remote_address().ip()) else {
            incoming.refuse();
            continue;
        };
        place.spawn(async move |shared| Box::pin(serve(incoming, &shared)).await);
    }
}

async fn serve(incoming: quinn::Incoming, shared: &HttpServerState) -> io::Result<()> {
    let connection = shared.with_timeout(async { incoming.await.map_err(io::Error::from) }).await?;
    let head_max = u64::try_from(HEAD_BYTES_MAX).unwrap_or(u64::MAX);
    let mut builder = ::h3::server::builder();
    builder.max_field_section_size(head_max);
    let building = builder.build::<_, Bytes>(h3_quinn::Connection::new(connection));
    let mut connection =
        shared.with_timeout(async { building.await.map_err(io::Error::other) }).await?;
    loop {
        // The transport's own time for silence does not end a client that asks for nothing but signs of life.
        let next = shared.with_timeout(async { Ok(connection.accept().await) }).await?;
        match next {
            Ok(Some(request)) => {
                shared.count_request();
                let shared = shared.clone();
                tokio::spawn(async move {
                    // A stream that breaks is its client's affair.
                    shared.with_timeout(answer(request)).await.ok();
                });
            }
            Ok(None) => return Ok(()),
            Err(error) if error.is_h3_no_error() => return Ok(()),
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

async fn answer(request: RequestResolver<h3_quinn::Connection, Bytes>) -> io::Result<()> {
    let (request, mut stream) = request.resolve_request().await.map_err(io::Error::other)?;
    let (response, body) = super::h2::response(&request);
    stream.send_response(response).await.map_err(io::Error::other)?;
    if !body.is_empty() {
        stream.send_data(body).await.map_err(io::Error::other)?;
    }
    stream.finish().await.map_err(io::Error::other)
}
