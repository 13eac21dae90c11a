//! Bulk data over one TCP connection: sent from memory or a file, or received to nowhere or a file.

use std::fmt;
use std::io::{self, Read, Write};

use plumb_base::time::{Instant, Span};
use plumb_stack::host::IpHost;
use plumb_stack::service::HostApplication;
use plumb_stack::tcp::{Received, TcpSocketError, TcpState};
use plumb_wire::packet::Pool;

use super::WatchedApplication;
use super::served_socket::BytePattern;
use super::stream_client::{StreamClient, StreamFailure};

/// Bytes moved at a time.
const PIECE: usize = 65_536;
/// How long the peer may take to close after all data have been delivered.
const LINGER: Span = Span::from_secs(1);
/// Time between two reports of progress, and before the first.
const NEWS_INTERVAL: Span = Span::from_ms(250);
const NEWS_AFTER: Span = Span::from_secs(2);

/// Which way data go.
pub enum StreamPayload {
    /// To the peer: a pattern, or what is read.
    Send(Option<Box<dyn Read + Send>>),
    /// From the peer: to nowhere, or where it is written.
    Receive(Option<Box<dyn Write + Send>>),
}

impl fmt::Debug for StreamPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if matches!(self, Self::Send(_)) { "Send" } else { "Receive" })
    }
}

/// When enough has been moved; with neither, at the end of the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamLimits {
    /// Bytes.
    pub bytes: Option<u64>,
    /// Time since the connection was open.
    pub duration: Option<Span>,
}

/// Why a transfer failed.
#[derive(Debug, thiserror::Error)]
pub enum StreamTransferError {
    /// The connection failed.
    #[error(transparent)]
    Stream(#[from] StreamFailure),
    /// The local file cannot be read.
    #[error("cannot read what is to be sent")]
    Read(#[source] io::Error),
    /// The local file cannot be written.
    #[error("cannot write what was received")]
    Write(#[source] io::Error),
}

/// How far a transfer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TransferStage {
    /// Data move.
    Moving,
    /// All was queued: to be acknowledged.
    Draining,
    /// Delivered at this time; the peer may close.
    Closing(Instant),
    /// Nothing remains to be done.
    Over,
}

/// A transfer over one connection.
#[derive(Debug)]
pub struct StreamTransfer {
    /// The connection.
    pub client: StreamClient,
    /// Bytes handed to TCP, or received from it.
    pub bytes: u64,
    /// Why it failed.
    pub error: Option<StreamTransferError>,
    payload: StreamPayload,
    limits: StreamLimits,
    stage: TransferStage,
    /// When the last byte was delivered.
    delivered: Option<Instant>,
    pattern: BytePattern,
    now: Instant,
    news: Instant,
}

impl StreamTransfer {
    /// A transfer over a connection that is being opened.
    pub fn new(client: StreamClient, payload: StreamPayload, limits: StreamLimits) -> Self {
        let begun = client.begun();
        Self {
            client,
            bytes: 0,
            error: None,
            payload,
            limits,
            stage: TransferStage::Moving,
            delivered: None,
            pattern: BytePattern::new(),
            now: begun,
            news: begun + NEWS_AFTER,
        }
    }

    /// Time from the opened connection until the last byte was delivered, or until now.
    pub fn duration(&self) -> Option<Span> {
        let end = self.delivered.unwrap_or(self.now);
        self.client.opened().map(|opened| end.saturating_since(opened))
    }

    /// Puts the next report of progress off.
    pub fn on_reported(&mut self) {
        self.news = self.now + NEWS_INTERVAL;
    }

    /// Bytes that may still be moved.
    fn left(&self) -> u64 {
        let is_over = self
            .limits
            .duration
            .zip(self.client.opened())
            .is_some_and(|(max, opened)| self.now.saturating_since(opened) >= max);
        if is_over { 0 } else { self.limits.bytes.map_or(u64::MAX, |max| max - self.bytes) }
    }

    /// Queues data as far as there is room; whether those were the last.
    fn send(&mut self, host: &mut IpHost) -> Result<bool, TcpSocketError> {
        loop {
            let max = usize::try_from(self.left()).unwrap_or(usize::MAX).min(PIECE);
            if max == 0 {
                return Ok(true);
            }
            let mut outcome = Ok(());
            let mut is_end = false;
            let (payload, pattern, offset) = (&mut self.payload, &self.pattern, self.bytes);
            let sent = host.tcp_send_with(self.now, self.client.id, max, |room| match payload {
                StreamPayload::Send(Some(source)) if !room.is_empty() => match source.read(room) {
                    Ok(len) => {
                        is_end = len == 0;
                        len
                    }
                    Err(error) => {
                        outcome = Err(error);
                        0
                    }
                },
                _ => pattern.fill(offset, room),
            })?;
            self.bytes += sent as u64;
            if let Err(error) = outcome {
                self.error = Some(StreamTransferError::Read(error));
                return Ok(true);
            }
            if is_end || sent == 0 {
                return Ok(is_end);
            }
        }
    }

    /// Takes what has arrived; whether that was the last.
    fn receive(&mut self, host: &mut IpHost) -> Result<bool, TcpSocketError> {
        loop {
            let left = usize::try_from(self.left()).unwrap_or(usize::MAX);
            if left == 0 {
                return Ok(true);
            }
            let mut outcome = Ok(());
            let payload = &mut self.payload;
            let received = host.tcp_receive_with(self.now, self.client.id, |data| {
                let data = &data[..data.len().min(left)];
                if let StreamPayload::Receive(Some(sink)) = payload {
                    outcome = sink.write_all(data);
                }
                data.len()
            })?;
            if let Err(error) = outcome {
                self.error = Some(StreamTransferError::Write(error));
                return Ok(true);
            }
            match received {
                Received::Data(len) => self.bytes += len as u64,
                Received::Empty => return Ok(false),
                Received::End => return Ok(true),
            }
        }
    }

    /// Drops what a peer says to whom we only send.
    fn drain(&self, host: &mut IpHost) {
        while matches!(
            host.tcp_receive_with(self.now, self.client.id, <[u8]>::len),
            Ok(Received::Data(_))
        ) {}
    }

    fn move_data(&mut self, host: &mut IpHost) {
        let is_sending = matches!(self.payload, StreamPayload::Send(_));
        let is_last = if is_sending { self.send(host) } else { self.receive(host) };
        // Where the connection is not open yet, or has failed, it says so itself.
        if !is_last.unwrap_or(false) {
            return;
        }
        if self.error.is_some() {
            host.tcp_abort(self.now, self.client.id);
            self.stage = TransferStage::Over;
            return;
        }
        // Where the connection has ended meanwhile, that is seen next.
        let _ = host.tcp_shutdown(self.now, self.client.id);
        if is_sending {
            self.stage = TransferStage::Draining;
        } else {
            self.on_delivered();
        }
    }

    fn on_delivered(&mut self) {
        self.delivered = Some(self.now);
        self.stage = TransferStage::Closing(self.now + LINGER);
    }

    fn finish(&mut self, host: &mut IpHost) {
        if let StreamPayload::Receive(Some(sink)) = &mut self.payload
            && let Err(error) = sink.flush()
        {
            self.error.get_or_insert(StreamTransferError::Write(error));
        }
        self.client.sample(self.now, host);
        host.tcp_close(self.now, self.client.id);
        self.stage = TransferStage::Over;
    }

    fn fail(&mut self, host: &mut IpHost) {
        if let Some(failure) = self.client.failure() {
            self.client.sample(self.now, host);
            self.error.get_or_insert(failure.into());
            host.tcp_abort(self.now, self.client.id);
            self.stage = TransferStage::Over;
        }
    }
}

impl HostApplication for StreamTransfer {
    fn handle(&mut self, now: Instant, host: &mut IpHost, _pool: &mut Pool) {
        self.now = now;
        if self.stage == TransferStage::Over {
            return;
        }
        let is_news = self.client.watch(now, host);
        if self.stage == TransferStage::Moving && (is_news || self.left() == 0) {
            self.move_data(host);
        }
        let state = host.tcp_state(self.client.id).unwrap_or(TcpState::Closed);
        if self.stage == TransferStage::Draining {
            self.drain(host);
            let is_acknowledged =
                matches!(state, TcpState::FinWait2 | TcpState::TimeWait | TcpState::Closed);
            if is_acknowledged && host.tcp_error(self.client.id).is_none() {
                self.on_delivered();
            }
        }
        if let TransferStage::Closing(until) = self.stage {
            let is_closed = matches!(state, TcpState::TimeWait | TcpState::Closed);
            self.drain(host);
            if is_closed || now >= until {
                return self.finish(host);
            }
        }
        if !matches!(self.stage, TransferStage::Closing(_)) {
            self.fail(host);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let end = match self.stage {
            TransferStage::Over => return None,
            TransferStage::Moving => {
                self.limits.duration.zip(self.client.opened()).map(|(max, opened)| opened + max)
            }
            TransferStage::Draining => None,
            TransferStage::Closing(until) => Some(until),
        };
        let wake = self.client.deadline();
        Some(end.map_or(wake, |end| end.min(wake)))
    }
}

impl WatchedApplication for StreamTransfer {
    fn is_complete(&self) -> bool {
        self.stage == TransferStage::Over
    }

    fn has_news(&self) -> bool {
        self.now >= self.news || !self.client.notices.is_empty()
    }
}
