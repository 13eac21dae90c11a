//! HTTP/1.1 as HTTP/1.0 was: a connection per object, one after another.
//!
//! Left out: several connections at once, which is what browsers did about it.

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
    let mut next = 0;
    while let Some(path) = paths.get(next).cloned() {
        next += 1;
        let mut connection = connector.connect(client)?;
        haul.connections += 1;
        if next == 1 {
            haul.connected_ns = steady_ns();
        }
        connection.ask(client, [path.as_str()], true)?;
        let (body, _) = connection.answer(&path)?;
        if next == 1 {
            haul.page_ns = steady_ns();
            paths.extend(client.images(&body));
        }
        haul.objects.push((path, body));
    }
    haul.ended_ns = steady_ns();
    Ok(haul)
}
