//! The client: one visit fetches the page, finds its images, and fetches them, in one of five ways.
//!
//! Its time runs from the first connection attempt until the last byte of the last object; the name is
//! resolved before, and whom to trust is read before the first: the system's authorities, a pinned certificate, or anybody;
//! revocation is not looked at. The three ways of HTTP/1.1 use blocking sockets; HTTP/2 and HTTP/3 come with their
//! libraries and their runtime, as they do in every program that uses those.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use plumb_base::time::Span;
use plumb_clock::monotonic_ns;
use plumb_remote::secure::Fingerprint;
use plumb_remote::secure::verifier::{self, KeyPossessionVerifier};
use plumb_result::http::{HttpFetchMode, PageLoad};
use plumb_sys::clock::{ClockId, read_ns};
use rustls::{AlertDescription, ClientConfig, Error as TlsError, PeerIncompatible, RootCertStore};

use super::page::{FILE_PATH, STANDARD, image_paths};
use super::target::HttpTarget;
use super::{HttpError, OBJECTS_MAX};

mod h1;
mod h2;
mod h3;

/// How long one visit may take.
pub const PAGE_LOAD_TIMEOUT: Span = Span::from_secs(30);

/// What is spoken, as TLS names it (ALPN).
const fn protocol(mode: HttpFetchMode) -> &'static [u8] {
    match mode {
        HttpFetchMode::OneEach | HttpFetchMode::KeepAlive | HttpFetchMode::Pipelined => b"http/1.1",
        HttpFetchMode::Http2 => b"h2",
        HttpFetchMode::Http3 => b"h3",
    }
}

/// What a visit fetched, and when.
#[derive(Debug, Default)]
struct FetchedPage {
    /// By the steady clock.
    connected_ns: u64,
    page_ns: u64,
    ended_ns: u64,
    connections: u32,
    /// In the order of the page: path and body.
    objects: Vec<(String, Bytes)>,
}

/// A client of one page.
#[derive(Debug)]
pub struct HttpClient {
    target: HttpTarget,
    address: SocketAddr,
    trust: CertificateTrust,
    /// Its side of TLS, once it was needed.
    tls: OnceLock<ClientConfig>,
}

impl HttpClient {
    /// A client that fetches from one address of the target.
    pub fn new(target: HttpTarget, address: SocketAddr, trust: CertificateTrust) -> Self {
        Self { target, address, trust, tls: OnceLock::new() }
    }

    /// What it fetches.
    pub const fn target(&self) -> &HttpTarget {
        &self.target
    }

    /// Fetches the page once.
    ///
    /// # Errors
    /// [`HttpError`]; of plumb's server also when a byte is not what it should be.
    pub fn load_page(&self, way: HttpFetchMode) -> Result<PageLoad, HttpError> {
        let is_encrypted = self.target.is_encrypted || way == HttpFetchMode::Http3;
        let tls = if is_encrypted { Some(self.encryption(way)?) } else { None };
        let began_cpu = read_ns(ClockId::ThreadCpu);
        let began = monotonic_ns();
        let fetched = match way {
            HttpFetchMode::OneEach => h1::fetch_in_turn(self, tls, true),
            HttpFetchMode::KeepAlive => h1::fetch_in_turn(self, tls, false),
            HttpFetchMode::Pipelined => h1::fetch_pipelined(self, tls),
            HttpFetchMode::Http2 => block_on(h2::fetch(self, tls)),
            HttpFetchMode::Http3 => block_on(h3::fetch(self, tls)),
        }?;
        let cpu_ns = read_ns(ClockId::ThreadCpu) - began_cpu;
        self.verify(&fetched)?;
        let bytes: usize = fetched.objects.iter().map(|(_, body)| body.len()).sum();
        Ok(PageLoad {
            total_ns: fetched.ended_ns.saturating_sub(began),
            connected_ns: fetched.connected_ns.saturating_sub(began),
            page_ns: fetched.page_ns.saturating_sub(began),
            cpu_ns,
            connections: fetched.connections,
            objects: u32::try_from(fetched.objects.len()).unwrap_or(u32::MAX),
            bytes: u64::try_from(bytes).unwrap_or(u64::MAX),
        })
    }

    /// This side of TLS for one visit. The system's authorities are read once, which no visit's time includes.
    fn encryption(&self, way: HttpFetchMode) -> Result<Arc<ClientConfig>, HttpError> {
        let known = if let Some(known) = self.tls.get() {
            known
        } else {
            let read = self.trust.configuration()?;
            self.tls.get_or_init(|| read)
        };
        let mut configuration = known.clone();
        configuration.alpn_protocols = vec![protocol(way).to_vec()];
        Ok(Arc::new(configuration))
    }

    /// The images that a page names.
    fn images(&self, page: &[u8]) -> Vec<String> {
        image_paths(page, &self.target.path, OBJECTS_MAX - 1)
    }

    /// Every byte of plumb's own page or file; nothing is known about others.
    fn verify(&self, fetched: &FetchedPage) -> Result<(), HttpError> {
        if !self.target.is_plumb {
            return Ok(());
        }
        let page = STANDARD.objects.iter().map(|object| object.path.as_str());
        let expected: Vec<&str> = match self.target.path.as_str() {
            file if file.starts_with(FILE_PATH) => vec![file],
            _ => page.collect(),
        };
        for path in expected {
            let found = fetched.objects.iter().find(|(fetched, _)| fetched == path);
            let content = STANDARD.content(path).map(|(_, body)| body);
            if found.map(|(_, body)| body) != content.as_ref() {
                return Err(HttpError::Content { path: path.to_owned() });
            }
        }
        Ok(())
    }
}

/// Only an answer that is there counts.
fn check_status(path: &str, status: u16, location: Option<String>) -> Result<(), HttpError> {
    let path = path.to_owned();
    match (status, location) {
        (200, _) => Ok(()),
        (300..400, Some(location)) => Err(HttpError::Moved { path, location }),
        (status, _) => Err(HttpError::Status { path, status }),
    }
}

/// Fetches the page, then asks for all its images at once. `ask` sends the request for a path; what it gives waits for
/// the whole answer.
async fn fetch_at_once<F>(
    client: &HttpClient,
    mut ask: impl AsyncFnMut(&str) -> Result<F, HttpError>,
) -> Result<FetchedPage, HttpError>
where
    F: Future<Output = Result<Bytes, HttpError>> + Send + 'static,
{
    let mut fetched =
        FetchedPage { connected_ns: monotonic_ns(), connections: 1, ..FetchedPage::default() };
    let path = client.target.path.clone();
    let page = ask(&path).await?.await?;
    fetched.page_ns = monotonic_ns();
    let images = client.images(&page);
    fetched.objects.push((path, page));
    let mut answers = Vec::with_capacity(images.len());
    for path in images {
        let answer = tokio::spawn(ask(&path).await?);
        answers.push((path, answer));
    }
    for (path, answer) in answers {
        let body = answer.await.map_err(|error| HttpError::Setup(error.to_string()))??;
        fetched.objects.push((path, body));
    }
    fetched.ended_ns = monotonic_ns();
    Ok(fetched)
}

/// A request for one object, as HTTP/2 and HTTP/3 take it.
fn request(client: &HttpClient, scheme: &str, path: &str) -> Result<Request<()>, HttpError> {
    let malformed = |_| HttpError::Malformed("the path of an image");
    let uri = Uri::builder()
        .scheme(scheme)
        .authority(client.target.authority())
        .path_and_query(path)
        .build()
        .map_err(malformed)?;
    Request::get(uri).header("user-agent", "plumb").body(()).map_err(malformed)
}

/// Only an answer that is there counts, as HTTP/2 and HTTP/3 give it.
fn check_response<B>(path: &str, response: &Response<B>) -> Result<(), HttpError> {
    let location = response.headers().get(http::header::LOCATION);
    let location =
        location.map(|text| String::from_utf8_lossy(text.as_bytes()).chars().take(1_024).collect());
    check_status(path, response.status().as_u16(), location)
}

/// Runs a visit on a runtime of this thread, within the time of a visit.
fn block_on<F: Future<Output = Result<FetchedPage, HttpError>>>(
    visit: F,
) -> Result<FetchedPage, HttpError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| HttpError::Setup(error.to_string()))?;
    let limit = Duration::from(PAGE_LOAD_TIMEOUT);
    runtime.block_on(async {
        tokio::time::timeout(limit, visit).await.unwrap_or_else(|_| {
            let over = io::Error::new(io::ErrorKind::TimedOut, "the visit took too long");
            Err(HttpError::Broken(over))
        })
    })
}

/// What QUIC adds to an alert of TLS to make an error of it (RFC 9001, 4.8).
const QUIC_ALERT: u64 = 0x100;

/// Whose certificate is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateTrust {
    /// One that the system's authorities vouch for.
    SystemRoots,
    /// This one.
    Pinned(Fingerprint),
    /// Anybody's: nothing is proven.
    AnyCertificate,
}

impl CertificateTrust {
    /// The client's side of TLS 1.3, without resumption: every connection is a whole one. What is spoken over it is for
    /// the caller to add. Reading the system's authorities takes some milliseconds.
    ///
    /// # Errors
    /// Without authorities where they are needed.
    pub fn configuration(self) -> Result<ClientConfig, HttpError> {
        let setup = |error: rustls::Error| HttpError::Setup(error.to_string());
        let builder = ClientConfig::builder_with_provider(verifier::provider())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(setup)?;
        let verifier = match self {
            Self::SystemRoots => None,
            Self::Pinned(fingerprint) => Some(KeyPossessionVerifier::new(Some(fingerprint))),
            Self::AnyCertificate => Some(KeyPossessionVerifier::new(None)),
        };
        let builder = match verifier {
            None => builder.with_root_certificates(authorities()?),
            Some(verifier) => builder.dangerous().with_custom_certificate_verifier(verifier),
        };
        let mut configuration = builder.with_no_client_auth();
        configuration.resumption = rustls::client::Resumption::disabled();
        Ok(configuration)
    }
}

/// The system's.
fn authorities() -> Result<Arc<RootCertStore>, HttpError> {
    let mut store = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    store.add_parsable_certificates(found.certs);
    if store.is_empty() {
        let why = "this host has no list of certificate authorities; install ca-certificates, or \
                   name the certificate with --cert-fingerprint";
        return Err(HttpError::Setup(why.to_owned()));
    }
    Ok(Arc::new(store))
}

/// Why no encrypted connection came about: of a handshake over TCP, whose connection would speak `version`.
pub(super) fn error_of_tls(error: &io::Error, version: &'static str) -> HttpError {
    let what = error.to_string();
    match error.get_ref().and_then(|inner| inner.downcast_ref::<TlsError>()) {
        Some(TlsError::InvalidCertificate(_)) => HttpError::Certificate(what),
        Some(TlsError::NoApplicationProtocol) => HttpError::Version(version),
        Some(TlsError::AlertReceived(alert)) => from_alert(*alert, what, version),
        Some(TlsError::PeerIncompatible(
            PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig,
        )) => HttpError::OldTls,
        _ => HttpError::Handshake(what),
    }
}

/// The same of a handshake of QUIC, by the code that either side ended it with.
pub(super) fn error_of_quic(code: u64, what: String) -> HttpError {
    match code.checked_sub(QUIC_ALERT).and_then(|alert| u8::try_from(alert).ok()) {
        Some(alert) => from_alert(AlertDescription::from(alert), what, "HTTP/3"),
        None => HttpError::Handshake(what),
    }
}

fn from_alert(alert: AlertDescription, what: String, version: &'static str) -> HttpError {
    use AlertDescription as A;
    match alert {
        A::NoApplicationProtocol => HttpError::Version(version),
        A::ProtocolVersion => HttpError::OldTls,
        A::BadCertificate
        | A::UnsupportedCertificate
        | A::CertificateRevoked
        | A::CertificateExpired
        | A::CertificateUnknown
        | A::UnknownCA
        | A::AccessDenied => HttpError::Certificate(what),
        _ => HttpError::Handshake(what),
    }
}
