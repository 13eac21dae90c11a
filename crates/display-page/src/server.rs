//! The page's HTTP: three embedded files, the list of clients with their pictures, and the WebSocket.
//!
//! Whoever reaches an address other than loopback has to show the token of the page's address. A browser's request has to be for the
//! address that the page is at, and a WebSocket to come from it: no other site's script may draw here (RFC 6455, section 10.2).

use std::fmt::Write as _;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{Path, RawQuery, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, ORIGIN, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use plumb_display::server::DisplayLimits;
use tokio::time::sleep;

use crate::clients::DisplayClients;
use crate::socket::{self, MESSAGE_MAX};

/// Between two looks at whether the page is to end.
const STOP_POLL: Duration = Duration::from_millis(100);
/// How long its connections may take to end.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);
/// Nothing from anywhere else; pictures also from memory.
const POLICY: &str = "default-src 'self'; img-src 'self' blob:; frame-ancestors 'none'";

/// The page of a display.
#[derive(Debug)]
pub struct DisplayPage {
    listener: TcpListener,
    state: Arc<PageState>,
}

#[derive(Debug)]
struct PageState {
    address: SocketAddr,
    /// What whoever is not on this host has to show.
    token: Option<String>,
    clients: Arc<DisplayClients>,
    limits: DisplayLimits,
}

impl DisplayPage {
    /// Listens for browsers.
    ///
    /// # Errors
    /// The address is taken or not this host's, or the kernel gives no random bits.
    pub fn bind(
        address: SocketAddr,
        clients: Arc<DisplayClients>,
        limits: DisplayLimits,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let token = if address.ip().is_loopback() { None } else { Some(draw_token()?) };
        Ok(Self { listener, state: Arc::new(PageState { address, token, clients, limits }) })
    }

    /// What a browser is to open. The token is behind a '#', which browsers send to nobody.
    pub fn url(&self) -> String {
        let PageState { address, token, .. } = &*self.state;
        let token = token.as_ref().map_or_else(String::new, |token| format!("#{token}"));
        format!("http://{address}/{token}")
    }

    /// Serves until it is stopped.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(self, is_stopped: impl Fn() -> bool) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let ended = runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(self.listener)?;
            let serving = tokio::spawn(async move {
                axum::serve(listener, router(self.state)).await.ok();
            });
            while !is_stopped() && !serving.is_finished() {
                sleep(STOP_POLL).await;
            }
            Ok(())
        });
        runtime.shutdown_timeout(STOP_TIMEOUT);
        ended
    }
}

fn draw_token() -> io::Result<String> {
    let mut bytes = [0; 16];
    plumb_sys::fill_random(&mut bytes)?;
    Ok(bytes.iter().fold(String::new(), |mut token, byte| {
        let _ = write!(token, "{byte:02x}");
        token
    }))
}

fn router(state: Arc<PageState>) -> Router {
    let file = |kind: &'static str, text: &'static str| {
        move |State(page): State<Arc<PageState>>, headers: HeaderMap| async move {
            match page.wrong_host(&headers) {
                Some(refusal) => refusal,
                None => with_headers(kind, text.into_response()),
            }
        }
    };
    Router::new()
        .route("/", get(file("text/html; charset=utf-8", include_str!("page.html"))))
        .route("/page.css", get(file("text/css; charset=utf-8", include_str!("page.css"))))
        .route("/page.js", get(file("text/javascript; charset=utf-8", include_str!("page.js"))))
        .route("/clients", get(list_clients))
        .route("/clients/{id}", get(client_picture))
        .route("/display", get(open_display))
        .with_state(state)
}

async fn list_clients(
    State(page): State<Arc<PageState>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = page.refusal(&headers, query.as_deref()) {
        return refusal;
    }
    let list = serde_json::to_string(&page.clients.list()).unwrap_or_default();
    with_headers("application/json", list.into_response())
}

async fn client_picture(
    State(page): State<Arc<PageState>>,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    if let Some(refusal) = page.refusal(&headers, query.as_deref()) {
        return refusal;
    }
    let picture = id.parse().ok().and_then(|id| page.clients.picture(id));
    picture.map_or_else(
        || StatusCode::NOT_FOUND.into_response(),
        |picture| with_headers("image/png", picture.to_vec().into_response()),
    )
}

async fn open_display(
    State(page): State<Arc<PageState>>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    upgrade: WebSocketUpgrade,
) -> Response {
    if let Some(refusal) = page.refusal(&headers, query.as_deref()) {
        return refusal;
    }
    let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if origin.and_then(|origin| origin.strip_prefix("http://")) != Some(host) {
        let why = "a display takes WebSockets from its own page only";
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    let Some(client) = page.clients.admit("browser") else {
        return (StatusCode::SERVICE_UNAVAILABLE, "the display has as many clients as it takes")
            .into_response();
    };
    let limits = page.limits;
    let upgrade = upgrade.max_message_size(MESSAGE_MAX).max_frame_size(MESSAGE_MAX);
    upgrade.on_upgrade(move |socket| socket::serve(socket, client, limits))
}

fn with_headers(kind: &'static str, mut response: Response) -> Response {
    let headers: [(HeaderName, &'static str); 4] = [
        (CONTENT_TYPE, kind),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, axum::http::HeaderValue::from_static(value));
    }
    response
}

impl PageState {
    /// Why a request for a file is not answered: it is for another host, as of a name that was made to lead here.
    fn wrong_host(&self, headers: &HeaderMap) -> Option<Response> {
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let why = "this display's page is at another address: open the one that it printed";
        (!self.is_at(host)).then(|| (StatusCode::MISDIRECTED_REQUEST, why).into_response())
    }

    /// Why any other request is not: it lacks the token besides.
    fn refusal(&self, headers: &HeaderMap, query: Option<&str>) -> Option<Response> {
        let has_token = |token: &String| {
            let mut words = query.unwrap_or_default().split('&');
            let shown = words.find_map(|word| word.strip_prefix("token="));
            shown.is_some_and(|shown| is_same(token, shown))
        };
        let lacks_token = || {
            let why = "open the address that the display printed, with its token";
            let is_missing = !self.token.as_ref().is_none_or(has_token);
            is_missing.then(|| (StatusCode::FORBIDDEN, why).into_response())
        };
        self.wrong_host(headers).or_else(lacks_token)
    }

    /// Whether a browser that asks for this host means this page. Beyond loopback a token says who may come, whatever this host is called.
    fn is_at(&self, host: &str) -> bool {
        self.token.is_some()
            || host == self.address.to_string()
            || host == format!("localhost:{}", self.address.port())
    }
}

/// Looks at all of it, whatever differs first.
fn is_same(ours: &str, theirs: &str) -> bool {
    let differs = |differs: u8, (ours, theirs): (u8, u8)| differs | (ours ^ theirs);
    ours.len() == theirs.len() && ours.bytes().zip(theirs.bytes()).fold(0, differs) == 0
}
