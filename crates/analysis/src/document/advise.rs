//! How to send items over a path, `plumb.advise/1`.

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
