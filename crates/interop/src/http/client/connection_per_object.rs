//! HTTP/1.1 as HTTP/1.0 was: a connection per object, one after another.
//!
//! Left out: several connections at once, which is what browsers did about it.

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
    let mut next = 0;
    while let Some(path) = paths.get(next).cloned() {
        next += 1;
        let mut connection = connector.connect(client)?;
        haul.connections += 1;
        if next == 1 {
            haul.connected_ns = monotonic_ns();
        }
        connection.send_requests(client, [path.as_str()], true)?;
        let (body, _) = connection.read_response(&path)?;
        if next == 1 {
            haul.page_ns = monotonic_ns();
            paths.extend(client.images(&body));
        }
        haul.objects.push((path, body));
    }
    haul.ended_ns = monotonic_ns();
    Ok(haul)
}
