//! A page measured in several ways: visits in rounds, each round in a new order, and what came of them.

use std::net::SocketAddr;

use plumb_base::seed::Seed;
use plumb_result::http::{HttpDocument, HttpFetchMode, HttpModeResult, SCHEMA};
use rand::seq::SliceRandom as _;

use super::client::HttpClient;
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

/// Measures a page at one address; when, for how long and how it ended, the caller says. `progress` is told of each
/// round and says whether to go on.
pub fn measure(
    target: &HttpTarget,
    address: SocketAddr,
    trust: CertificateTrust,
    spec: &PageSpec,
    mut progress: impl FnMut(u32) -> bool,
) -> HttpDocument {
    let client = HttpClient::new(target.clone(), address, trust);
    let mode = |&way: &HttpFetchMode| {
        let is_encrypted = target.is_encrypted || way == HttpFetchMode::Http3;
        HttpModeResult { way, is_encrypted, ..HttpModeResult::default() }
    };
    let mut ways: Vec<_> = spec.ways.iter().map(mode).collect();
    let mut random = spec.seed.stream("http order");
    let mut order: Vec<usize> = (0..ways.len()).collect();
    // The first round warms both sides up, and is not counted.
    'rounds: for round in 0..=spec.visits.min(VISITS_MAX) {
        if !progress(round) {
            break;
        }
        order.shuffle(&mut random);
        for index in &order {
            let Some(report) = ways.get_mut(*index).filter(|way| way.error.is_none()) else {
                continue;
            };
            match client.load_page(report.way) {
                Ok(visit) if round > 0 => report.visits.push(visit),
                Ok(_) => {}
                // Whoever stops the program interrupts the visit under way, which is no fault of the way.
                Err(_) if !progress(round) => break 'rounds,
                Err(error) => report.error = Some(error.to_string()),
            }
        }
    }
    // What nobody brought was not looked at.
    let mut seen = ways.iter().filter(|way| !way.visits.is_empty()).peekable();
    HttpDocument {
        schema: SCHEMA.to_owned(),
        url: target.to_string(),
        address: address.to_string(),
        is_verified: target.is_plumb && seen.peek().is_some(),
        is_server_proven: trust != CertificateTrust::AnyCertificate
            && seen.any(|way| way.is_encrypted),
        seed: spec.seed.0,
        ways,
        ..HttpDocument::default()
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
