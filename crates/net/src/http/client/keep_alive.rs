//! HTTP/1.1 with one connection: each request after the answer to the one before.
//!
//! A server that closes after an answer is connected to again, and the connections are counted. Left out:
//! several connections at once.

use std::sync::Arc;

use rustls::ClientConfig;

use super::connection::Connector;
use super::{Client, Haul};
use crate::clock::steady_ns;
use crate::http::HttpError;

pub(super) fn fetch(client: &Client, tls: Option<Arc<ClientConfig>>) -> Result<Haul, HttpError> {
    let connector = Connector::new(tls);
    let mut haul = Haul::default();
    let mut paths = vec![client.target.path.clone()];
    let mut connection = None;
    let mut next = 0;
    while let Some(path) = paths.get(next).cloned() {
        next += 1;
        let mut open = if let Some(open) = connection.take() {
            open
        } else {
            haul.connections += 1;
            connector.connect(client)?
        };
        if next == 1 {
            haul.connected_ns = steady_ns();
        }
        open.ask(client, [path.as_str()], false)?;
        let (body, is_kept) = open.answer(&path)?;
        connection = is_kept.then_some(open);
        if next == 1 {
            haul.page_ns = steady_ns();
            paths.extend(client.images(&body));
        }
        haul.objects.push((path, body));
    }
    haul.ended_ns = steady_ns();
    Ok(haul)
}
