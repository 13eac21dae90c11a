//! A TCP connection as a service of [`super::stream_services`] sees it, and the bytes that a source sends: known from their
//! place in the stream, so that a receiver can check them.

use plumb_base::time::Instant;
use plumb_stack::host::IpHost;
use plumb_stack::tcp::{Received, TcpId, TcpSocketError};

/// Bytes moved at a time.
pub(super) const PIECE: usize = 65_536;

/// What a service did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamServiceCounts {
    /// Connections accepted.
    pub connections: u64,
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// HTTP requests answered with a file, or with its length.
    pub requests: u64,
    /// HTTP requests refused.
    pub refused: u64,
    /// Connections that ended by an error.
    pub failed: u64,
    /// Connections ended for being idle.
    pub idle: u64,
}

/// What happens to a connection after a step of its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamStep {
    /// It waits for data or for room.
    Wait,
    /// It goes on once the others had their turn.
    Yield,
    /// Nothing more will be sent.
    Finish,
    /// It cannot go on.
    Abort,
}

/// One connection during one step of its service.
#[derive(Debug)]
pub(super) struct ServedSocket<'a> {
    pub host: &'a mut IpHost,
    pub id: TcpId,
    pub now: Instant,
    pub counts: &'a mut StreamServiceCounts,
}

impl ServedSocket<'_> {
    pub fn receive(&mut self, out: &mut [u8]) -> Result<Received, TcpSocketError> {
        let received = self.host.tcp_receive(self.now, self.id, out)?;
        if let Received::Data(len) = received {
            self.counts.received += len as u64;
        }
        Ok(received)
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, TcpSocketError> {
        let sent = self.host.tcp_send(self.now, self.id, bytes)?;
        self.counts.sent += sent as u64;
        Ok(sent)
    }

    /// Lets `write` fill a piece of the send buffer; 0 where it has no room.
    pub fn send_with(
        &mut self,
        max: usize,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<usize, TcpSocketError> {
        let sent = self.host.tcp_send_with(self.now, self.id, max, write)?;
        self.counts.sent += sent as u64;
        Ok(sent)
    }

    /// Counts an HTTP request.
    pub const fn count_request(&mut self, is_served: bool) {
        self.counts.requests += is_served as u64;
        self.counts.refused += !is_served as u64;
    }

    pub fn echo(
        &mut self,
        held: &mut Vec<u8>,
        scratch: &mut [u8],
    ) -> Result<StreamStep, TcpSocketError> {
        loop {
            let sent = self.send(held)?;
            held.drain(..sent);
            if !held.is_empty() {
                return Ok(StreamStep::Wait);
            }
            match self.receive(scratch)? {
                Received::Data(len) => {
                    let sent = self.send(&scratch[..len])?;
                    held.extend_from_slice(&scratch[sent..len]);
                }
                Received::Empty => return Ok(StreamStep::Wait),
                Received::End => return Ok(StreamStep::Finish),
            }
        }
    }

    /// Drops what has arrived.
    pub fn drain(&mut self) -> Result<StreamStep, TcpSocketError> {
        loop {
            match self.host.tcp_receive_with(self.now, self.id, <[u8]>::len)? {
                Received::Data(len) => self.counts.received += len as u64,
                Received::Empty => return Ok(StreamStep::Wait),
                Received::End => return Ok(StreamStep::Finish),
            }
        }
    }

    pub fn produce(
        &mut self,
        sent: &mut u64,
        pattern: &BytePattern,
    ) -> Result<StreamStep, TcpSocketError> {
        if self.drain()? == StreamStep::Finish {
            return Ok(StreamStep::Finish);
        }
        if self.host.tcp_state(self.id).is_none_or(|state| !state.can_send()) {
            return Ok(StreamStep::Finish);
        }
        loop {
            let offset = *sent;
            let written = self.send_with(PIECE, |room| pattern.fill(offset, room))?;
            *sent += written as u64;
            if written == 0 {
                return Ok(StreamStep::Wait);
            }
        }
    }
}

/// Length of the repeated sequence: a prime, so that no shift by a power of two goes unnoticed.
const PERIOD: usize = 251;
/// Periods kept.
const PERIODS: usize = 262;

/// Byte `n` of the stream is `n` modulo 251.
#[derive(Clone, Debug)]
pub struct BytePattern(Box<[u8]>);

impl BytePattern {
    /// Precomputes some periods.
    pub fn new() -> Self {
        let byte = |at| u8::try_from(at % PERIOD).expect("less than 251");
        Self((0..PERIOD * PERIODS).map(byte).collect())
    }

    /// Fills `room` with the stream from `offset` on, as far as it goes at once; how many bytes that were.
    pub fn fill(&self, offset: u64, room: &mut [u8]) -> usize {
        let phase = usize::try_from(offset % PERIOD as u64).expect("less than 251");
        let bytes = &self.0[phase..];
        let len = bytes.len().min(room.len());
        room[..len].copy_from_slice(&bytes[..len]);
        len
    }
}

impl Default for BytePattern {
    fn default() -> Self {
        Self::new()
    }
}
