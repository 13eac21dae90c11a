//! HTTP/1.1 with one connection: each request after the answer to the one before.
//!
//! A server that closes after an answer is connected to again, and the connections are counted. Left out:
//! several connections at once.

use std::sync::Arc;

use rustls::ClientConfig;

use super::connection::Http1Connector;
use super::{FetchedPage, HttpClient};
use crate::http::HttpError;
use plumb_clock::monotonic_ns;

pub(super) fn fetch(
    client: &HttpClient,
    tls: Option<Arc<ClientConfig>>,
) -> Result<FetchedPage, HttpError> {
    let connector = Http1Connector::new(tls);
    let mut haul = FetchedPage::default();
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
            haul.connected_ns = monotonic_ns();
        }
        open.send_requests(client, [path.as_str()], false)?;
        let (body, is_kept) = open.read_response(&path)?;
        connection = is_kept.then_some(open);
        if next == 1 {
            haul.page_ns = monotonic_ns();
            paths.extend(client.images(&body));
        }
        haul.objects.push((path, body));
    }
    haul.ended_ns = monotonic_ns();
    Ok(haul)
}
