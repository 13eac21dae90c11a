//! How to send items over a path, `plumb.advise/1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
}

/// One way of sending.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdvisedMode {
    /// `stop-and-wait`, `pipelined`, `batched` or `structured`.
    pub mode: String,
    /// Predicted nanoseconds until the last reply.
    pub time_ns: f64,
    /// Round-trip time from which it is twice as fast as stop-and-wait; null if there is none up to 10 s.
    pub break_even_ns: Option<f64>,
}
