//! A page measured in several ways: visits in rounds, each round in a new order, and what came of them.
//!
//! Left out: storing and drawing.

use std::net::SocketAddr;

use plumb_base::seed::Seed;
use rand::seq::SliceRandom as _;
use serde::{Deserialize, Serialize};

use super::client::{HttpClient, HttpFetchMode, PageLoad};
use super::target::HttpTarget;
use super::trust::CertificateTrust;

/// Most visits of one way.
pub const VISITS_MAX: u32 = 100_000;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageSpec {
    /// Which ways, each once.
    pub ways: Vec<HttpFetchMode>,
    /// Visits of each way that count; one more comes before them.
    pub visits: u32,
    /// Orders the ways of each round.
    pub seed: Seed,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageReport {
    /// The page's URL.
    pub url: String,
    /// The address that it was fetched from.
    pub address: String,
    /// Whether every byte of at least one visit was compared with what it has to be, and of every other.
    pub is_verified: bool,
    /// Whether the server's certificate was checked, where a visit saw one.
    pub is_server_proven: bool,
    /// The seed of the order.
    pub seed: u64,
    /// One entry a way.
    pub ways: Vec<FetchModeReport>,
}

/// One way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FetchModeReport {
    /// Its name.
    pub way: String,
    /// Whether everything was encrypted.
    pub is_encrypted: bool,
    /// Every visit that counts, in order.
    pub visits: Vec<PageLoad>,
    /// Why there are no more, where that is so.
    pub error: Option<String>,
}

/// Measures a page at one address. `progress` is told of each round and says whether to go on.
pub fn measure(
    target: &HttpTarget,
    address: SocketAddr,
    trust: CertificateTrust,
    spec: &PageSpec,
    mut progress: impl FnMut(u32) -> bool,
) -> PageReport {
    let client = HttpClient::new(target.clone(), address, trust);
    let mut ways: Vec<(HttpFetchMode, FetchModeReport)> = spec
        .ways
        .iter()
        .map(|way| {
            let is_encrypted = target.is_encrypted || *way == HttpFetchMode::Http3;
            let (way_name, visits) = (way.name().to_owned(), Vec::new());
            (*way, FetchModeReport { way: way_name, is_encrypted, visits, error: None })
        })
        .collect();
    let mut random = spec.seed.stream("http order");
    let mut order: Vec<usize> = (0..ways.len()).collect();
    // The first round warms both sides up, and is not counted.
    'rounds: for round in 0..=spec.visits.min(VISITS_MAX) {
        if !progress(round) {
            break;
        }
        order.shuffle(&mut random);
        for index in &order {
            let Some((way, report)) = ways.get_mut(*index) else { continue };
            if report.error.is_some() {
                continue;
            }
            match client.load_page(*way) {
                Ok(visit) if round > 0 => report.visits.push(visit),
                Ok(_) => {}
                // Whoever stops the program interrupts the visit under way, which is no fault of the way.
                Err(_) if !progress(round) => break 'rounds,
                Err(error) => report.error = Some(error.to_string()),
            }
        }
    }
    let ways: Vec<FetchModeReport> = ways.into_iter().map(|(_, report)| report).collect();
    // What nobody brought was not looked at.
    let mut seen = ways.iter().filter(|way| !way.visits.is_empty()).peekable();
    let is_verified = target.is_plumb && seen.peek().is_some();
    let is_server_proven =
        trust != CertificateTrust::AnyCertificate && seen.any(|way| way.is_encrypted);
    PageReport {
        url: target.to_string(),
        address: address.to_string(),
        is_verified,
        is_server_proven,
        seed: spec.seed.0,
        ways,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_verified_where_nothing_came() {
        // A port that was free a moment ago, and that nobody listens at.
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        drop(socket);
        let target = HttpTarget::parse(&address.to_string()).unwrap();
        let spec = PageSpec {
            ways: vec![HttpFetchMode::OneEach, HttpFetchMode::KeepAlive],
            visits: 2,
            seed: Seed(1),
        };
        let report = measure(&target, address, CertificateTrust::AnyCertificate, &spec, |_| true);
        assert!(!report.is_verified && !report.is_server_proven, "{report:?}");
        assert!(report.ways.iter().all(|way| way.visits.is_empty() && way.error.is_some()));
    }
}
