//! One GET over plumb's TCP.

use std::fmt;
use std::io::Write;

use plumb_base::time::{Instant, Span};
use plumb_stack::host::IpHost;
use plumb_stack::service::HostApplication;
use plumb_stack::tcp::{Received, TcpSocketError, TcpState};
use plumb_wire::packet::Pool;

use super::WatchedApplication;
use super::http_response::{HttpReadError, HttpResponseReader};
use super::stream_client::{StreamClient, StreamFailure};

/// How long the server may take to close after its response.
const LINGER: Span = Span::from_secs(1);
/// Time between two reports of progress, and before the first.
const NEWS_INTERVAL: Span = Span::from_ms(250);
const NEWS_AFTER: Span = Span::from_secs(2);

/// Why nothing, or not all, was received.
#[derive(Debug, thiserror::Error)]
pub enum HttpGetError {
    /// The connection failed.
    #[error(transparent)]
    Stream(#[from] StreamFailure),
    /// The response is broken, or cannot be written.
    #[error(transparent)]
    Response(#[from] HttpReadError),
}

/// A request and its response.
pub struct HttpGet {
    /// The connection.
    pub client: StreamClient,
    /// The response.
    pub response: HttpResponseReader,
    /// Why it failed.
    pub error: Option<HttpGetError>,
    request: Vec<u8>,
    sink: Box<dyn Write + Send>,
    /// The response is complete; the connection may end in order until then.
    closing: Option<Instant>,
    is_over: bool,
    now: Instant,
    news: Instant,
}

impl fmt::Debug for HttpGet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpGet").field("response", &self.response).finish_non_exhaustive()
    }
}

impl HttpGet {
    /// Sends `request` over a connection that is being opened; the body of its response goes to `sink`.
    pub fn new(client: StreamClient, request: Vec<u8>, sink: Box<dyn Write + Send>) -> Self {
        let begun = client.begun();
        Self {
            client,
            response: HttpResponseReader::new(),
            error: None,
            request,
            sink,
            closing: None,
            is_over: false,
            now: begun,
            news: begun + NEWS_AFTER,
        }
    }

    /// Puts the next report of progress off.
    pub fn on_reported(&mut self) {
        self.news = self.now + NEWS_INTERVAL;
    }

    fn send(&mut self, host: &mut IpHost) -> Result<(), TcpSocketError> {
        if !self.request.is_empty() {
            let sent = host.tcp_send(self.now, self.client.id, &self.request)?;
            self.request.drain(..sent);
        }
        Ok(())
    }

    /// Takes what has arrived; whether the response is complete.
    fn receive(&mut self, host: &mut IpHost) -> Result<bool, HttpReadError> {
        loop {
            let (response, sink) = (&mut self.response, &mut self.sink);
            let mut outcome = Ok(());
            let received = host.tcp_receive_with(self.now, self.client.id, |data| {
                outcome = response.read(data, &mut **sink);
                data.len()
            });
            outcome?;
            if self.response.is_complete() {
                break;
            }
            match received {
                Ok(Received::Data(_)) => {}
                Ok(Received::End) => {
                    self.response.end()?;
                    break;
                }
                // The connection says itself why it failed.
                Ok(Received::Empty) | Err(_) => return Ok(false),
            }
        }
        self.sink.flush().map_err(HttpReadError::Write)?;
        Ok(true)
    }

    fn finish(&mut self, now: Instant, host: &mut IpHost) {
        self.client.sample(now, host);
        host.tcp_close(now, self.client.id);
        self.is_over = true;
    }
}

impl HostApplication for HttpGet {
    fn handle(&mut self, now: Instant, host: &mut IpHost, _pool: &mut Pool) {
        self.now = now;
        if self.is_over {
            return;
        }
        let is_news = self.client.watch(now, host);
        if let Some(until) = self.closing {
            while matches!(
                host.tcp_receive_with(now, self.client.id, <[u8]>::len),
                Ok(Received::Data(_))
            ) {}
            let is_closed = matches!(
                host.tcp_state(self.client.id),
                None | Some(TcpState::TimeWait | TcpState::Closed)
            );
            if is_closed || now >= until {
                self.finish(now, host);
            }
            return;
        }
        if is_news && self.send(host).is_ok() {
            match self.receive(host) {
                Ok(false) => {}
                Ok(true) => {
                    self.closing = Some(now + LINGER);
                    // Where it is closed already, that is seen next.
                    let _ = host.tcp_shutdown(now, self.client.id);
                    return;
                }
                Err(error) => self.error = Some(error.into()),
            }
        }
        if let Some(failure) = self.client.failure() {
            self.error.get_or_insert(failure.into());
        }
        if self.error.is_some() {
            self.finish(now, host);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let wake = self.client.deadline();
        (!self.is_over).then(|| self.closing.map_or(wake, |closing| closing.min(wake)))
    }
}

impl WatchedApplication for HttpGet {
    fn is_complete(&self) -> bool {
        self.is_over
    }

    fn has_news(&self) -> bool {
        self.now >= self.news || !self.client.notices.is_empty()
    }
}
