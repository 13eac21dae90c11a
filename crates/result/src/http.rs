//! A page fetched over every version of HTTP, `plumb.http/1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::words;

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.http/1";

words! {
    /// How page loads ended.
    #[derive(Default)]
    HttpEnding {
        /// As planned.
        #[default]
        Complete = "complete",
        /// Their user stopped them.
        Interrupted = "interrupted",
    }
}

words! {
    /// How a page is fetched.
    #[derive(Default)]
    HttpFetchMode {
        /// HTTP/1.1, a connection per object, one after another.
        #[default]
        OneEach = "one-each",
        /// HTTP/1.1, one connection, each request after the answer to the one before.
        KeepAlive = "keep-alive",
        /// HTTP/1.1, one connection, the requests for all images at once.
        Pipelined = "pipelined",
        /// HTTP/2, one connection, all images at once.
        Http2 = "http2",
        /// HTTP/3, one connection, all images at once; always encrypted.
        Http3 = "http3",
    }
}

impl HttpFetchMode {
    /// The mode of a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// What it is, for people.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::OneEach => "HTTP/1.1, a connection per object",
            Self::KeepAlive => "HTTP/1.1, kept alive",
            Self::Pipelined => "HTTP/1.1, pipelined",
            Self::Http2 => "HTTP/2",
            Self::Http3 => "HTTP/3",
        }
    }
}

/// A page, and every visit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpDocument {
    /// Always `plumb.http/1`.
    pub schema: String,
    /// The run in the store that holds it; null where it was not stored.
    #[serde(default)]
    pub run: Option<String>,
    /// When it began, in milliseconds since 1970 UTC.
    #[serde(default)]
    pub created_unix_ms: i64,
    /// How long it took, in seconds.
    #[serde(default)]
    pub seconds: f64,
    /// The page's URL.
    pub url: String,
    /// The address and port that it was fetched from.
    pub address: String,
    /// Whether every byte of every visit was compared with what it has to be.
    pub is_verified: bool,
    /// Whether the server's certificate was checked, where a visit saw one.
    pub is_server_proven: bool,
    /// The seed of the order.
    pub seed: u64,
    /// How it ended.
    pub ended: HttpEnding,
    /// One entry for each way.
    pub ways: Vec<HttpModeResult>,
}

/// One way to fetch it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HttpModeResult {
    /// Which.
    pub way: HttpFetchMode,
    /// Whether everything was encrypted.
    pub is_encrypted: bool,
    /// Every visit that counts, in order.
    pub visits: Vec<PageLoad>,
    /// Why there are no more, where that is so.
    pub error: Option<String>,
}

impl HttpModeResult {
    /// A quantile of something of the visits; none without visits.
    pub fn quantile(&self, share: f64, of: impl Fn(&PageLoad) -> u64) -> Option<u64> {
        let mut values: Vec<u64> = self.visits.iter().map(of).collect();
        values.sort_unstable();
        let last = values.len().checked_sub(1)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a length is within it"
        )]
        let index = (last as f64 * share.clamp(0.0, 1.0)).round() as usize;
        values.get(index).copied()
    }
}

/// One visit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageLoad {
    /// From the first connection attempt to the last byte of the last object.
    pub total_ns: u64,
    /// Until the first connection could be used, encryption included.
    pub connected_ns: u64,
    /// Until the whole of the page itself was there.
    pub page_ns: u64,
    /// Processor time of the client.
    pub cpu_ns: u64,
    /// Connections that it took.
    pub connections: u32,
    /// Objects, the page included.
    pub objects: u32,
    /// Bytes of all bodies.
    pub bytes: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_visits() {
        let visits = [5, 1, 4, 2, 3].map(|total_ns| PageLoad { total_ns, ..PageLoad::default() });
        let mut way = HttpModeResult { visits: visits.to_vec(), ..HttpModeResult::default() };
        let total = |visit: &PageLoad| visit.total_ns;
        assert_eq!(way.quantile(0.5, total), Some(3));
        assert_eq!((way.quantile(0.0, total), way.quantile(1.0, total)), (Some(1), Some(5)));
        way.visits.clear();
        assert_eq!(way.quantile(0.5, total), None);
    }
}
