//! The page over every version of HTTP, from plumb's server to plumb's client; and clients that misbehave.
//!
//! Over loopback. Left out: other people's servers and clients, which `plumb` meets (its test `net`, and
//! `tools/http_peers.py`).

#![expect(clippy::unwrap_used, reason = "a test stops where it fails")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use plumb_base::seed::Seed;
use plumb_interop::http::client::{CertificateTrust, HttpClient};
use plumb_interop::http::server::{HttpServer, HttpServerCounts, HttpServerLimits};
use plumb_interop::http::target::HttpTarget;
use plumb_interop::http::{self, HttpError, PageSpec};
use plumb_remote::secure::{Fingerprint, HostIdentity};
use plumb_result::http::HttpFetchMode;

fn with_server(
    limits: HttpServerLimits,
    test: impl FnOnce(SocketAddr, Fingerprint, &HttpServerCounts),
) {
    let identity = HostIdentity::generate().unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = HttpServer::bind(any, &identity, limits).unwrap();
    let (address, counts) = (server.address().unwrap(), server.counts());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| server.run(|| stop.load(Ordering::Relaxed)));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            test(address, identity.fingerprint(), &counts);
        }));
        stop.store(true, Ordering::Relaxed);
        running.join().unwrap().unwrap();
        if let Err(panic) = outcome {
            std::panic::resume_unwind(panic);
        }
    });
}

fn plumb(address: SocketAddr) -> HttpTarget {
    HttpTarget::parse(&address.to_string()).unwrap()
}

/// What follows from something that has happened already, in another thread.
fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let waited = (0..60_000).any(|_| {
        std::thread::park_timeout(Duration::from_millis(1));
        is_so()
    });
    assert!(waited, "{what}");
}

#[test]
fn every_way_brings_the_whole_page_in_the_clear_and_encrypted() {
    with_server(HttpServerLimits::default(), |address, fingerprint, counts| {
        for is_encrypted in [false, true] {
            let target = HttpTarget { is_encrypted, ..plumb(address) };
            let client = HttpClient::new(target, address, CertificateTrust::Pinned(fingerprint));
            for way in HttpFetchMode::ALL {
                let visit =
                    client.load_page(way).unwrap_or_else(|error| panic!("{way:?}: {error}"));
                assert_eq!((visit.objects, visit.bytes), (13, 50_000), "{way:?}");
                assert_eq!(visit.connections, if way == HttpFetchMode::OneEach { 13 } else { 1 });
                let order = [visit.connected_ns, visit.page_ns, visit.total_ns];
                assert!(order.is_sorted() && order[0] > 0, "{way:?}: {order:?}");
                assert!(visit.cpu_ns > 0);
            }
        }
        assert_eq!(counts.requests.load(Ordering::Relaxed), 2 * 5 * 13);
        assert_eq!(counts.failed.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_visit_leaves_no_connection_behind() {
    let limits = HttpServerLimits { connections_per_address: 8, ..HttpServerLimits::default() };
    with_server(limits, |address, _, counts| {
        let client = HttpClient::new(plumb(address), address, CertificateTrust::AnyCertificate);
        for way in HttpFetchMode::ALL {
            for n in 0..20 {
                let visit = client.load_page(way);
                assert!(visit.is_ok(), "{way:?}, visit {n}: {visit:?}");
            }
        }
        assert_eq!(counts.refused.load(Ordering::Relaxed), 0);
    });
}

#[test]
fn a_certificate_that_is_not_the_one_is_refused() {
    with_server(HttpServerLimits::default(), |address, _, _| {
        for trust in
            [CertificateTrust::Pinned(Fingerprint::of(b"another")), CertificateTrust::SystemRoots]
        {
            for way in HttpFetchMode::ALL {
                let target = HttpTarget { is_encrypted: true, ..plumb(address) };
                let refused = HttpClient::new(target, address, trust).load_page(way);
                // A host without authorities says so, which is a refusal as well.
                assert!(
                    matches!(refused, Err(HttpError::Certificate(_) | HttpError::Setup(_))),
                    "{way:?}: {refused:?}"
                );
            }
        }
    });
}

#[test]
fn a_report_has_every_way_and_a_way_that_fails_says_why() {
    with_server(HttpServerLimits::default(), |address, _, _| {
        let spec = PageSpec { ways: HttpFetchMode::ALL.to_vec(), visits: 3, seed: Seed(1) };
        let report = http::measure_page(
            &plumb(address),
            address,
            CertificateTrust::AnyCertificate,
            &spec,
            |_| true,
        );
        assert!(report.is_verified && !report.is_server_proven);
        for way in &report.ways {
            assert_eq!((way.visits.len(), way.error.as_deref()), (3, None), "{way:?}");
        }
    });
    // Nobody is there.
    let unused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let spec = PageSpec {
        ways: vec![HttpFetchMode::KeepAlive, HttpFetchMode::Http2],
        visits: 3,
        seed: Seed(1),
    };
    let report =
        http::measure_page(&plumb(unused), unused, CertificateTrust::AnyCertificate, &spec, |_| {
            true
        });
    for way in &report.ways {
        assert!(way.visits.is_empty() && way.error.is_some(), "{way:?}");
    }
}

/// A server of its own that answers one connection by the same bytes and closes.
fn answering(bytes: &'static [u8]) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4_096];
        assert!(stream.read(&mut request).unwrap() > 0, "a request came");
        stream.write_all(bytes).ok();
    });
    address
}

#[test]
fn redirects_missing_pages_and_false_bytes_are_named() {
    let visit = |bytes, way| {
        let address = answering(bytes);
        HttpClient::new(plumb(address), address, CertificateTrust::AnyCertificate).load_page(way)
    };
    let moved = visit(
        b"HTTP/1.1 302 Found\r\nLocation: https://x/\r\nContent-Length: 0\r\n\r\n",
        HttpFetchMode::KeepAlive,
    );
    assert!(matches!(&moved, Err(HttpError::Moved { location, .. }) if location == "https://x/"));
    let missing = visit(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", HttpFetchMode::OneEach);
    assert!(matches!(missing, Err(HttpError::Status { status: 404, .. })), "{missing:?}");
    let other =
        visit(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", HttpFetchMode::Pipelined);
    assert!(matches!(other, Err(HttpError::Content { .. })), "{other:?}");
    let old = visit(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", HttpFetchMode::Http2);
    assert!(old.is_err(), "{old:?}");
    let cut =
        visit(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\nhello", HttpFetchMode::KeepAlive);
    assert!(matches!(cut, Err(HttpError::Broken(_))), "{cut:?}");
}

#[test]
fn a_server_of_another_encryption_or_protocol_is_not_called_one_without_a_certificate() {
    // Fatal alerts of TLS: protocol_version and no_application_protocol; and no TLS at all.
    let old: &[u8] = b"\x15\x03\x03\x00\x02\x02\x46";
    let other: &[u8] = b"\x15\x03\x03\x00\x02\x02\x78";
    let clear: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    for way in [HttpFetchMode::KeepAlive, HttpFetchMode::Http2] {
        let refused = |answer| {
            let address = answering(answer);
            let target = HttpTarget { is_encrypted: true, ..plumb(address) };
            HttpClient::new(target, address, CertificateTrust::AnyCertificate)
                .load_page(way)
                .unwrap_err()
        };
        let (old, other, clear) = (refused(old), refused(other), refused(clear));
        assert!(matches!(old, HttpError::OldTls), "{way:?}: {old}");
        assert!(matches!(other, HttpError::Version(_)), "{way:?}: {other}");
        assert!(matches!(clear, HttpError::Handshake(_)), "{way:?}: {clear}");
    }
}

fn with_step(ms: u64) -> HttpServerLimits {
    HttpServerLimits { step_timeout: Duration::from_millis(ms), ..HttpServerLimits::default() }
}

#[test]
fn slow_and_silent_clients_are_ended_and_nobody_else_waits() {
    with_server(with_step(300), |address, _, counts| {
        let mut silent: Vec<TcpStream> =
            (0..100).map(|_| TcpStream::connect(address).unwrap()).collect();
        // Half a request, half a TLS record, half a preface.
        for (stream, begin) in silent
            .iter_mut()
            .zip([&b"GET / HTT"[..], &[0x16, 3, 1], b"PRI * HTTP/2.0\r\n"].into_iter().cycle())
        {
            stream.write_all(begin).unwrap();
        }
        let client = HttpClient::new(plumb(address), address, CertificateTrust::AnyCertificate);
        for way in [HttpFetchMode::KeepAlive, HttpFetchMode::Http2, HttpFetchMode::Http3] {
            assert_eq!(client.load_page(way).unwrap().bytes, 50_000);
        }
        for mut stream in silent {
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).ok();
            assert!(rest.len() < 1_000, "an error at most");
        }
        eventually("all have failed", || counts.failed.load(Ordering::Relaxed) == 100);
    });
}

#[test]
fn a_request_that_trickles_is_ended_by_its_deadline() {
    with_server(with_step(200), |address, _, _| {
        let mut slow = TcpStream::connect(address).unwrap();
        slow.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nX: ").unwrap();
        // A byte whenever the server has been silent for a moment: it ends although each comes in time.
        loop {
            let heard = slow.read(&mut [0; 64]);
            if matches!(heard, Ok(0)) || slow.write_all(b"y").is_err() {
                break;
            }
        }
    });
}

#[test]
fn a_connection_of_http3_that_asks_for_nothing_is_ended_however_often_it_pings() {
    with_server(with_step(300), |address, _, counts| {
        let mut tls = CertificateTrust::AnyCertificate.configuration().unwrap();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
        let mut configuration = quinn::ClientConfig::new(Arc::new(crypto));
        let mut transport = quinn::TransportConfig::default();
        transport.keep_alive_interval(Some(Duration::from_millis(20)));
        configuration.transport_config(Arc::new(transport));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let endpoint = quinn::Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
            let connecting = endpoint.connect_with(configuration, address, "plumb").unwrap();
            let connection = connecting.await.unwrap();
            let ended = tokio::time::timeout(Duration::from_secs(30), connection.closed()).await;
            assert!(ended.is_ok(), "it is held for ever");
        });
        eventually("it counts as failed", || counts.failed.load(Ordering::Relaxed) == 1);
    });
}

#[test]
fn connections_beyond_the_limit_are_turned_away() {
    let limits = HttpServerLimits { connections_per_address: 4, ..HttpServerLimits::default() };
    with_server(limits, |address, _, counts| {
        let mut held: Vec<TcpStream> =
            (0..8).map(|_| TcpStream::connect(address).unwrap()).collect();
        for stream in &mut held[4..] {
            stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
        }
        assert_eq!(counts.refused.load(Ordering::Relaxed), 4);
        drop(held);
        let client = HttpClient::new(plumb(address), address, CertificateTrust::AnyCertificate);
        // Their places are free as soon as the server has seen them go.
        let visited = (0..1_000).any(|_| client.load_page(HttpFetchMode::KeepAlive).is_ok());
        assert!(visited);
    });
}
