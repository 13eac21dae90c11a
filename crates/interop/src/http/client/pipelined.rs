//! HTTP/1.1 with one connection, on which all images are asked for at once.
//!
//! Left out: servers that close in between; they do not pipeline, which is said.

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
    let mut connection = Http1Connector::new(tls).connect(client)?;
    let mut haul =
        FetchedPage { connected_ns: monotonic_ns(), connections: 1, ..FetchedPage::default() };
    let path = client.target.path.clone();
    connection.send_requests(client, [path.as_str()], false)?;
    let (page, mut is_kept) = connection.read_response(&path)?;
    haul.page_ns = monotonic_ns();
    let images = client.images(&page);
    haul.objects.push((path, page));
    if is_kept && !images.is_empty() {
        connection.send_requests(client, images.iter().map(String::as_str), false)?;
    }
    for path in images {
        if !is_kept {
            return Err(HttpError::Version("pipelining: it closes after an answer"));
        }
        let (body, kept) = connection.read_response(&path)?;
        is_kept = kept;
        haul.objects.push((path, body));
    }
    haul.ended_ns = monotonic_ns();
    Ok(haul)
}
