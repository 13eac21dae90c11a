//! How the two ends of TCP connections take turns, of the segments of a capture: turns, dependent round trips, waiting, stalls;
//! and what a connection would save by other use of its path.
//!
//! A turn depends on the other end's data when its acknowledgment covers the beginning of them: that is exact at any point of capture,
//! and needs no clock. Memory is bounded by [`CONNECTIONS_MAX`] and [`EXCHANGES_KEPT`].

use std::collections::BTreeMap;
use std::net::SocketAddr;

use connection::ConnectionTurns;

use crate::document::advise::{
    CHATTY_SCHEMA, ChattyConnection, ChattyDocument, ChattySaving, ChattySum, IgnoredPackets,
};

mod connection;
mod side;

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
            add(&mut sum.savings, &connection.savings);
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
fn notes(connections: &[ChattyConnection]) -> Vec<String> {
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

/// What is assumed of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssumedChange {
    /// Round-trip time after moving closer.
    pub near_rtt_ns: u64,
    /// Requests of a batch; at least one.
    pub batch: u64,
}

/// What each change would save, where the round-trip time is known.
fn savings(found: &ChattyConnection, change: AssumedChange) -> Vec<ChattySaving> {
    let mut savings = Vec::new();
    let mut put = |change: &str, saved_ns: u64, computed: &str| {
        savings.push(ChattySaving {
            change: change.to_owned(),
            saved_ns,
            computed: computed.to_owned(),
        });
    };
    let trips = found.round_trips;
    if let (Some(to_client), Some(to_server)) = (found.client_rtt_ns, found.server_rtt_ns)
        && trips > 0
    {
        let rtt = to_client.saturating_add(to_server);
        // Nothing can be saved that was not waited.
        let waited = found.waiting_ns + found.thinking_ns;
        let times = |count: u64, each: u64| count.saturating_mul(each).min(waited);
        put(
            "pipelining",
            times(trips - 1, rtt),
            "(round trips − 1) · RTT, all requests sent at once",
        );
        let batches = trips.div_ceil(change.batch.max(1));
        put("batching", times(trips - batches, rtt), "(round trips − batches) · RTT");
        put(
            "moving-closer",
            times(trips, rtt.saturating_sub(change.near_rtt_ns)),
            "round trips · (RTT − the nearer RTT)",
        );
    }
    if found.stalls > 0 {
        put(
            "no-delay",
            found.stalled_ns,
            "waits of a small segment for the acknowledgment of the last",
        );
    }
    savings
}

/// Adds savings of a connection to a sum.
fn add(sum: &mut Vec<ChattySaving>, savings: &[ChattySaving]) {
    for saving in savings {
        match sum.iter_mut().find(|known| known.change == saving.change) {
            Some(known) => known.saved_ns = known.saved_ns.saturating_add(saving.saved_ns),
            None => sum.push(saving.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
