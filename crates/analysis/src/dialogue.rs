//! How the two ends of TCP connections take turns, of the segments of a capture: turns, dependent round trips, waiting, stalls.
//!
//! A turn depends on the other end's data when its acknowledgment covers the beginning of them: that is exact at any point of capture,
//! and needs no clock. Memory is bounded by [`CONNECTIONS_MAX`] and [`EXCHANGES_KEPT`].

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::document::chatty::{CHATTY_SCHEMA, ChattyDocument, ChattySum, IgnoredPackets};

mod connection;
mod saving;
mod side;

use connection::ConnectionTurns;
pub use saving::AssumedChange;

/// Connections that are followed; packets of later ones are counted.
pub const CONNECTIONS_MAX: usize = 16_384;
/// Exchanges of a connection that are kept for the picture.
pub const EXCHANGES_KEPT: usize = 100;

/// One TCP segment of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentRecord<'a> {
    /// When it passed the point of capture, in nanoseconds.
    pub time_ns: u64,
    /// Who sent it.
    pub source: SocketAddr,
    /// To whom.
    pub destination: SocketAddr,
    /// Number of its first byte.
    pub seq: u32,
    /// Number of the byte that is expected next, if it says so.
    pub ack: Option<u32>,
    /// It opens its direction.
    pub is_syn: bool,
    /// It ends its direction.
    pub is_fin: bool,
    /// It aborts the connection.
    pub is_reset: bool,
    /// Bytes of payload, as many as were sent.
    pub len: u32,
    /// The first of them, as far as they were captured.
    pub head: &'a [u8],
}

/// The connections of a capture as far as it was read.
#[derive(Debug, Default)]
pub struct CaptureTurns {
    connections: Vec<ConnectionTurns>,
    /// The newest connection of each pair of ends, the lower one first.
    by_ends: BTreeMap<(SocketAddr, SocketAddr), usize>,
    first_ns: Option<u64>,
    beyond: u64,
    backwards: u64,
    last_ns: u64,
}

impl CaptureTurns {
    /// Takes the next segment.
    pub fn take(&mut self, segment: &SegmentRecord<'_>) {
        self.first_ns.get_or_insert(segment.time_ns);
        let mut segment = *segment;
        if segment.time_ns < self.last_ns {
            // Times that run backwards would make negative waits.
            self.backwards += 1;
            segment.time_ns = self.last_ns;
        }
        self.last_ns = segment.time_ns;
        let (source, destination) = (segment.source, segment.destination);
        let ends = (source.min(destination), source.max(destination));
        let known = self.by_ends.get(&ends).copied();
        let index = match known {
            Some(index) if !self.connections[index].is_over_before(&segment) => index,
            _ if self.connections.len() >= CONNECTIONS_MAX => {
                self.beyond += 1;
                return;
            }
            _ => {
                self.connections.push(ConnectionTurns::new(&segment));
                self.by_ends.insert(ends, self.connections.len() - 1);
                self.connections.len() - 1
            }
        };
        self.connections[index].take(&segment);
    }

    /// What was found; `ignored` are the packets of the file that were no segments.
    pub fn finish(
        self,
        file: &str,
        change: AssumedChange,
        mut ignored: Vec<IgnoredPackets>,
    ) -> ChattyDocument {
        let first_ns = self.first_ns.unwrap_or(0);
        let connections: Vec<_> = self
            .connections
            .into_iter()
            .map(|connection| connection.finish(first_ns, change))
            .collect();
        let mut sum = ChattySum::default();
        for connection in &connections {
            sum.connections += 1;
            sum.turns += connection.turns;
            sum.round_trips += connection.round_trips;
            sum.waiting_ns = sum.waiting_ns.saturating_add(connection.waiting_ns);
            sum.stalled_ns = sum.stalled_ns.saturating_add(connection.stalled_ns);
            sum.retransmissions += connection.retransmissions;
            saving::add(&mut sum.savings, &connection.savings);
        }
        let counted = [
            (self.beyond, format!("of connections after the first {CONNECTIONS_MAX}")),
            (
                self.backwards,
                "with an earlier time than the packet before: taken as captured with it".into(),
            ),
        ];
        ignored.extend(
            counted
                .into_iter()
                .filter(|(packets, _)| *packets > 0)
                .map(|(packets, reason)| IgnoredPackets { reason, packets }),
        );
        let notes = notes(&connections);
        ChattyDocument {
            schema: CHATTY_SCHEMA.to_owned(),
            file: file.to_owned(),
            ignored,
            notes,
            near_rtt_ns: change.near_rtt_ns,
            batch: change.batch,
            sum,
            connections,
        }
    }
}

/// What the capture cannot tell.
fn notes(connections: &[crate::document::chatty::ChattyConnection]) -> Vec<String> {
    let speaks =
        |name: &str| connections.iter().any(|found| found.protocol.as_deref() == Some(name));
    let mut notes = Vec::new();
    if speaks("tls") {
        notes.push(
            "TLS: turns, times and sizes are seen, requests are not; the turns of the handshake (one to two round trips) count as any \
             other, and HTTP/2 within TLS cannot be told from HTTP/1.1."
                .to_owned(),
        );
    }
    if speaks("http/2") {
        notes.push(
            "HTTP/2: requests of several streams share a connection, so a turn may stand for several requests; which response \
             belongs to which is not told."
                .to_owned(),
        );
    }
    if connections.iter().any(|found| found.is_one_way) {
        notes.push(
            "Connections with one direction only: their turns, waits and round-trip times cannot be told. Capture where both directions \
             pass."
                .to_owned(),
        );
    }
    if connections.iter().any(|found| found.missing_bytes > 0) {
        notes.push(
            "Bytes are missing: the capture lost packets, or began late. Turns within what is missing are not counted.".to_owned(),
        );
    }
    if !connections.is_empty() {
        notes.push(
            "Savings are upper bounds: a capture does not show which requests need the content of earlier responses.".to_owned(),
        );
    }
    notes
}

#[cfg(test)]
mod tests;
