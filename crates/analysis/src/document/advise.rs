//! How the two ends of each TCP connection of a capture take turns, `plumb.chatty/1`; and how to send items over a path,
//! `plumb.advise/1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::model::PredictionScore;

/// The name of this document's shape.
pub const ADVISE_SCHEMA: &str = "plumb.advise/1";

/// Times of each way, and which to choose.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdviseDocument {
    /// Always `plumb.advise/1`.
    pub schema: String,
    /// Where the cost of a message comes from: a run, or `given`.
    pub costs: String,
    /// Nanoseconds of a message at either end.
    pub message_ns: f64,
    /// Items of a batch that take least time.
    pub batch: f64,
    /// Messages without a reply, beyond which more gain nothing.
    pub window: f64,
    /// Each way.
    pub modes: Vec<AdvisedMode>,
    /// Each way's time by the round-trip time.
    pub curves: Vec<AdviceCurve>,
    /// What each change alone would make of the fastest way, the best first.
    pub changes: Vec<AdvisedChange>,
    /// How well the model predicts a run, where that was asked for; then there are no ways.
    pub scores: Vec<AdviceScore>,
}

/// One way's time by the round-trip time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdviceCurve {
    /// The way.
    pub mode: String,
    /// Round-trip time and time, in nanoseconds.
    pub points: Vec<[f64; 2]>,
}

/// What a change would gain.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdvisedChange {
    /// The change, in words.
    pub change: String,
    /// Nanoseconds of the fastest way with it.
    pub time_ns: f64,
}

/// How well the model predicts drawings on a display.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdviceScore {
    /// Which of them: `all`, `RTT up to 1 ms`, or a way.
    pub of: String,
    /// Predictions and their errors.
    pub score: PredictionScore,
}

/// One way of sending.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdvisedMode {
    /// `stop-and-wait`, `pipelined`, `batched` or `structured`.
    pub mode: String,
    /// Predicted nanoseconds until the last reply.
    pub time_ns: f64,
    /// Its 95 % prediction interval, by the errors of predictions of this way that were scored; null before any were.
    pub interval: Option<[f64; 2]>,
    /// Round-trip time from which it is twice as fast as stop-and-wait; null if there is none up to 10 s.
    pub break_even_ns: Option<f64>,
}

/// The name of this document's shape.
pub const CHATTY_SCHEMA: &str = "plumb.chatty/1";

/// What a capture says about its TCP connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChattyDocument {
    /// Always `plumb.chatty/1`.
    pub schema: String,
    /// The capture file.
    pub file: String,
    /// Packets of the file that were counted and not used, by reason.
    pub ignored: Vec<IgnoredPackets>,
    /// What the capture cannot tell.
    pub notes: Vec<String>,
    /// Round-trip time that savings by moving closer assume, in nanoseconds.
    pub near_rtt_ns: u64,
    /// Requests in a batch that savings by batching assume.
    pub batch: u64,
    /// Sums over connections; those of connections that overlap in time overlap too.
    pub sum: ChattySum,
    /// Connections in the order of their first packets.
    pub connections: Vec<ChattyConnection>,
}

/// Packets that were not used.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IgnoredPackets {
    /// Why.
    pub reason: String,
    /// How many.
    pub packets: u64,
}

/// Sums over connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChattySum {
    /// Connections.
    pub connections: u64,
    /// Changes of direction.
    pub turns: u64,
    /// Dependent round trips.
    pub round_trips: u64,
    /// Time in which clients waited for their peers, in nanoseconds.
    pub waiting_ns: u64,
    /// Time of stalls by Nagle's algorithm, in nanoseconds.
    pub stalled_ns: u64,
    /// Segments sent again.
    pub retransmissions: u64,
    /// What changes would save.
    pub savings: Vec<ChattySaving>,
}

/// One connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChattyConnection {
    /// Address and port of the end that opened it, or that sent data first where the opening is not in the capture.
    pub client: String,
    /// The other end.
    pub server: String,
    /// Whether the client is a guess: the opening is not in the capture.
    pub is_client_guessed: bool,
    /// What the first bytes look like: `tls`, `http/1`, `http/2`, `ssh`, `redis`; null where they say nothing.
    pub protocol: Option<String>,
    /// First packet after the first of the capture, in nanoseconds.
    pub begin_ns: u64,
    /// Last packet after the first of the connection, in nanoseconds.
    pub duration_ns: u64,
    /// Bytes of payload from the client, without those sent again.
    pub client_bytes: u64,
    /// Bytes of payload from the server.
    pub server_bytes: u64,
    /// Changes of the direction in which data goes.
    pub turns: u64,
    /// Requests that acknowledged data of the response before them and were answered: each costs a round trip.
    pub round_trips: u64,
    /// Changes of direction of which acknowledgments show that they did not depend on what came before.
    pub overlapped_turns: u64,
    /// Time from the last byte of a request to the first of its response, at the point of capture, in nanoseconds.
    pub waiting_ns: u64,
    /// Time from the last byte of a response to the first of the next request: the client thinks, and what of the path lies on its
    /// side of the capture.
    pub thinking_ns: u64,
    /// Round-trip time from the point of capture to the client and back, in nanoseconds; null where nothing shows it.
    pub client_rtt_ns: Option<u64>,
    /// The same to the server.
    pub server_rtt_ns: Option<u64>,
    /// Where the capture was taken: `client`, `server`, `middle`, or `unknown`.
    pub captured_at: String,
    /// Stalls by Nagle's algorithm: small segments that waited for the acknowledgment of the last.
    pub stalls: u64,
    /// Their time, delayed acknowledgments included, in nanoseconds.
    pub stalled_ns: u64,
    /// Segments whose data had been sent before.
    pub retransmissions: u64,
    /// Bytes that were acknowledged or passed over, and are not in the capture.
    pub missing_bytes: u64,
    /// Whether only one direction is in the capture: nothing can be said about turns then.
    pub is_one_way: bool,
    /// What changes would save.
    pub savings: Vec<ChattySaving>,
    /// The first turns, for the picture.
    pub exchanges: Vec<ChattyExchange>,
    /// Round trips that are not among them.
    pub exchanges_left_out: u64,
}

/// One request with its response, in nanoseconds after the first packet of the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChattyExchange {
    /// First byte of the request.
    pub request_ns: u64,
    /// Last byte of it before the response.
    pub sent_ns: u64,
    /// First byte of the response.
    pub response_ns: u64,
    /// Last byte of it.
    pub end_ns: u64,
    /// Bytes of the request.
    pub request_bytes: u64,
    /// Bytes of the response.
    pub response_bytes: u64,
}

/// What a change would save.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChattySaving {
    /// `pipelining`, `batching`, `moving-closer` or `no-delay`.
    pub change: String,
    /// Time, in nanoseconds: at most so much, since a capture does not show which requests need the content of earlier responses.
    pub saved_ns: u64,
    /// How it was computed.
    pub computed: String,
}
