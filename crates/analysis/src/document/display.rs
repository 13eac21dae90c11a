//! Rates of a structured display, `plumb.display/1`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.display/1";

/// One run of `plumb display bench`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DisplayDocument {
    /// Always `plumb.display/1`.
    pub schema: String,
    /// Rounds, each over connections of its own.
    pub rounds: u32,
    /// One entry for each path, drawing and mode.
    pub rates: Vec<DisplayRateResult>,
    /// One entry for each path and task of a session; then there are no rates.
    pub session: Vec<DisplayTaskResult>,
}

/// One task of a session over one path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DisplayTaskResult {
    /// `direct`, `unix`, `tcp`, or the address of a display.
    pub path: String,
    /// `cold-start`, `picture`, `edits`, `million`, `zoom` or `pan`.
    pub task: String,
    /// What it is, in words.
    pub about: String,
    /// Nanoseconds until its last frame was proved, median of the rounds.
    pub ns: f64,
    /// Lower end of its 95 % interval; null with fewer than six rounds.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Bytes both ways.
    pub bytes: f64,
    /// Round trips that depended on each other.
    pub round_trips: f64,
    /// Checksum of its last frame, sixteen hexadecimal digits.
    pub checksum: Option<String>,
}

/// The rate of one drawing in one mode over one path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DisplayRateResult {
    /// `direct`, `unix`, `tcp`, or the address of a display.
    pub path: String,
    /// `polygon`, `array`, `structured-array`, `polygon-bitmap`, `array-bitmap`, `text`, `chip` or `structured-chip`.
    pub drawing: String,
    /// `construction`, `batch`, `incremental`, `pipelined-incremental`, `display`, or `decode`: what a display reads and stores of bytes
    /// that are there already.
    pub mode: String,
    /// What is counted: `items` or `characters`.
    pub unit: String,
    /// Units a second, median of the rounds.
    pub rate: f64,
    /// Lower end of its 95 % interval; null with fewer than six rounds.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Units of a drawing.
    pub units: u32,
    /// Messages to the display for a drawing.
    pub messages: f64,
    /// Bytes to the display.
    pub bytes_sent: f64,
    /// Bytes from it.
    pub bytes_received: f64,
    /// Round trips that depended on each other.
    pub round_trips: f64,
    /// Checksum of the frame, sixteen hexadecimal digits; null where none was drawn.
    pub checksum: Option<String>,
}
