//! HTTP/1.1 with one connection, on which all images are asked for at once.
//!
//! Left out: servers that close in between; they do not pipeline, which is said.

use std::sync::Arc;

use rustls::ClientConfig;

use super::connection::Connector;
use super::{Client, Haul};
use crate::clock::steady_ns;
use crate::http::HttpError;

pub(super) fn fetch(client: &Client, tls: Option<Arc<ClientConfig>>) -> Result<Haul, HttpError> {
    let mut connection = Connector::new(tls).connect(client)?;
    let mut haul = Haul { connected_ns: steady_ns(), connections: 1, ..Haul::default() };
    let path = client.target.path.clone();
    connection.ask(client, [path.as_str()], false)?;
    let (page, mut is_kept) = connection.answer(&path)?;
    haul.page_ns = steady_ns();
    let images = client.images(&page);
    haul.objects.push((path, page));
    if is_kept && !images.is_empty() {
        connection.ask(client, images.iter().map(String::as_str), false)?;
    }
    for path in images {
        if !is_kept {
            return Err(HttpError::Version("pipelining: it closes after an answer"));
        }
        let (body, kept) = connection.answer(&path)?;
        is_kept = kept;
        haul.objects.push((path, body));
    }
    haul.ended_ns = steady_ns();
    Ok(haul)
}
