//! One connection: whose turn it is, and on what a turn depends.

use std::net::SocketAddr;

use super::side::{DirectionState, SegmentData, is_after};
use super::{AssumedChange, EXCHANGES_KEPT, SegmentRecord, savings};
use crate::document::advise::{ChattyConnection, ChattyExchange};

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// One connection as far as it was seen.
#[derive(Debug)]
pub(super) struct ConnectionTurns {
    /// The client's address, then the server's.
    ends: [SocketAddr; 2],
    is_client_guessed: bool,
    protocol: Option<&'static str>,
    begin_ns: u64,
    last_ns: u64,
    sides: [DirectionState; 2],
    /// Who sent data last.
    speaker: Option<usize>,
    /// Numbers of the first byte of the last request and of the last response.
    turn_begin: [Option<u32>; 2],
    /// The request that is under way, or answered in part.
    exchange: Option<OpenExchange>,
    turns: u64,
    overlapped: u64,
    round_trips: u64,
    waiting_ns: u64,
    thinking_ns: u64,
    kept: Vec<ChattyExchange>,
    is_over: bool,
    opening: Option<u32>,
}

/// A request with its response, in time of the capture.
#[derive(Clone, Copy, Debug)]
struct OpenExchange {
    times: ChattyExchange,
    is_answered: bool,
}

impl ConnectionTurns {
    /// The connection that begins with this segment.
    pub fn new(segment: &SegmentRecord<'_>) -> Self {
        let is_from_server = segment.is_syn && segment.ack.is_some();
        let ends = if is_from_server {
            [segment.destination, segment.source]
        } else {
            [segment.source, segment.destination]
        };
        Self {
            ends,
            is_client_guessed: !segment.is_syn,
            protocol: None,
            begin_ns: segment.time_ns,
            last_ns: segment.time_ns,
            sides: <[DirectionState; 2]>::default(),
            speaker: None,
            turn_begin: [None, None],
            exchange: None,
            turns: 0,
            overlapped: 0,
            round_trips: 0,
            waiting_ns: 0,
            thinking_ns: 0,
            kept: Vec::new(),
            is_over: false,
            opening: None,
        }
    }

    /// Whether this segment opens another connection between the same ends.
    pub fn is_over_before(&self, segment: &SegmentRecord<'_>) -> bool {
        let opens = segment.is_syn && segment.ack.is_none();
        opens && (self.is_over || self.opening.is_some_and(|seq| seq != segment.seq))
    }

    /// Takes a segment of it.
    pub fn take(&mut self, segment: &SegmentRecord<'_>) {
        if segment.is_syn && segment.ack.is_none() {
            self.opening = Some(segment.seq);
        }
        self.last_ns = segment.time_ns;
        self.is_over |= segment.is_fin || segment.is_reset;
        if segment.is_reset {
            return;
        }
        let has_data_first = self.sides.iter().all(|side| side.bytes == 0) && segment.len > 0;
        let mut side = usize::from(segment.source == self.ends[SERVER]);
        if has_data_first && self.is_client_guessed && side == SERVER {
            // The side that sends first is taken for the client.
            self.ends.reverse();
            self.sides.reverse();
            side = CLIENT;
        }
        let peer = 1 - side;
        if let Some(ack) = segment.ack {
            self.sides[peer].acknowledge(ack, segment.time_ns, segment.len == 0);
        }
        let back_ns = self.sides[peer].rtt_ns;
        if let SegmentData::New { bytes } = self.sides[side].send(segment, back_ns) {
            self.protocol = self.protocol.or_else(|| protocol(segment.head));
            self.speak(side, segment, bytes);
        }
    }

    /// Takes new data of a side.
    fn speak(&mut self, side: usize, segment: &SegmentRecord<'_>, bytes: u64) {
        let now = segment.time_ns - self.begin_ns;
        let is_change = self.speaker != Some(side);
        self.turns += u64::from(is_change && self.speaker.is_some());
        self.speaker = Some(side);
        // A segment that acknowledges the first byte of the other side's turn was sent after its arrival.
        let has_seen = self.turn_begin[1 - side]
            .is_none_or(|begin| segment.ack.is_some_and(|ack| is_after(ack, begin)));
        self.overlapped += u64::from(is_change && !has_seen);
        if side == CLIENT {
            self.request(now, segment.seq, bytes, has_seen);
        } else {
            self.respond(now, segment.seq, bytes, has_seen);
        }
    }

    fn request(&mut self, now: u64, seq: u32, bytes: u64, has_seen: bool) {
        if let Some(open) = &mut self.exchange
            && !(open.is_answered && has_seen)
        {
            open.times.request_bytes += bytes;
            if !open.is_answered {
                open.times.sent_ns = now;
            }
            return;
        }
        if let Some(done) = self.close() {
            self.thinking_ns += now - done.end_ns;
        }
        self.turn_begin[CLIENT] = Some(seq);
        let times = ChattyExchange {
            request_ns: now,
            sent_ns: now,
            request_bytes: bytes,
            ..ChattyExchange::default()
        };
        self.exchange = Some(OpenExchange { times, is_answered: false });
    }

    fn respond(&mut self, now: u64, seq: u32, bytes: u64, has_seen: bool) {
        let Some(open) = &mut self.exchange else { return };
        if !open.is_answered {
            if !has_seen {
                return;
            }
            open.is_answered = true;
            open.times.response_ns = now;
            self.turn_begin[SERVER] = Some(seq);
            self.round_trips += 1;
            self.waiting_ns += now - open.times.sent_ns;
        }
        open.times.end_ns = now;
        open.times.response_bytes += bytes;
    }

    /// Ends the exchange that is under way, if it was answered.
    fn close(&mut self) -> Option<ChattyExchange> {
        let done = self.exchange.take().filter(|open| open.is_answered)?.times;
        if self.kept.len() < EXCHANGES_KEPT {
            self.kept.push(done);
        }
        Some(done)
    }

    /// What was found of it.
    pub fn finish(mut self, first_ns: u64, change: AssumedChange) -> ChattyConnection {
        self.close();
        let [client, server] = &self.sides;
        // A side's data is acknowledged by the other, so its round trips are those beyond the point of capture.
        let (server_rtt_ns, client_rtt_ns) = (client.rtt_ns, server.rtt_ns);
        let mut found = ChattyConnection {
            client: self.ends[CLIENT].to_string(),
            server: self.ends[SERVER].to_string(),
            is_client_guessed: self.is_client_guessed,
            protocol: self.protocol.map(str::to_owned),
            begin_ns: self.begin_ns - first_ns,
            duration_ns: self.last_ns - self.begin_ns,
            client_bytes: client.bytes,
            server_bytes: server.bytes,
            turns: self.turns,
            round_trips: self.round_trips,
            overlapped_turns: self.overlapped,
            waiting_ns: self.waiting_ns,
            thinking_ns: self.thinking_ns,
            client_rtt_ns,
            server_rtt_ns,
            captured_at: captured_at(client_rtt_ns, server_rtt_ns).to_owned(),
            stalls: client.stalls + server.stalls,
            stalled_ns: client.stalled_ns + server.stalled_ns,
            retransmissions: client.retransmissions + server.retransmissions,
            missing_bytes: client.missing + server.missing,
            is_one_way: client.segments == 0 || server.segments == 0,
            savings: Vec::new(),
            exchanges_left_out: self.round_trips.saturating_sub(self.kept.len() as u64),
            exchanges: self.kept,
        };
        found.savings = savings(&found, change);
        found
    }
}

/// Where the capture was taken: the side whose part of the round trip is less than a tenth.
fn captured_at(client_rtt_ns: Option<u64>, server_rtt_ns: Option<u64>) -> &'static str {
    let (Some(to_client), Some(to_server)) = (client_rtt_ns, server_rtt_ns) else {
        return "unknown";
    };
    if to_client.saturating_mul(9) < to_server {
        "client"
    } else if to_server.saturating_mul(9) < to_client {
        "server"
    } else {
        "middle"
    }
}

/// What the first bytes of a direction look like.
fn protocol(head: &[u8]) -> Option<&'static str> {
    const METHODS: [&[u8]; 6] = [b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS "];
    match head {
        [0x16, 3, 0..=4, ..] => Some("tls"),
        _ if head.starts_with(b"PRI * HTTP/2") => Some("http/2"),
        _ if METHODS.iter().any(|method| head.starts_with(method)) => Some("http/1"),
        _ if head.starts_with(b"SSH-") => Some("ssh"),
        [b'*', b'0'..=b'9', ..] => Some("redis"),
        _ => None,
    }
}
