//! The answer of a measurement between two hosts: a row for each load, over all rounds, and what would change it.
//!
//! The same figures as those of the stored run: with six rounds or more medians over rounds with their interval, with fewer
//! their mean.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Direction, PhaseName};

/// What was found, over all rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetSummary {
    /// How often everything was measured.
    pub rounds: u32,
    /// One entry for each load and direction, in the order they were measured.
    pub loads: Vec<LoadSummary>,
    /// Why a `p99_ns` is null, and how many rounds it would take; null where none is.
    pub p99_refused: Option<String>,
    /// What a reader must know before the numbers, the worst first.
    pub warnings: Vec<String>,
}

/// One direction under one load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadSummary {
    /// The phase.
    pub phase: PhaseName,
    /// Which way the bytes went; null of requests and of the idle path.
    pub direction: Option<Direction>,
    /// Bytes a second that arrived: the median over rounds of each round's mean; of fewer than six rounds their mean.
    pub bytes_per_second: Option<f64>,
    /// Its 95 % interval; null with fewer than six rounds.
    pub bytes_per_second_ci95: Option<[f64; 2]>,
    /// Requests answered a second, likewise.
    pub requests_per_second: Option<f64>,
    /// Its 95 % interval.
    pub requests_per_second_ci95: Option<[f64; 2]>,
    /// Round trips without load.
    pub idle: Option<LatencySummary>,
    /// Round trips under this load; of requests, their latency.
    pub loaded: Option<LatencySummary>,
    /// Share of the datagrams that were lost; of a TCP load, of the probes; of requests, of them. Of all rounds together.
    pub loss: Option<f64>,
    /// Processor time of the sending threads for each byte, over rounds as the rate is.
    pub sender_cpu_ns_per_byte: Option<f64>,
    /// The same of the receiving threads.
    pub receiver_cpu_ns_per_byte: Option<f64>,
    /// What held back the senders for at least half of the time, where their kernel told.
    pub limited_by: Option<String>,
}

/// Round trips of all rounds together, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencySummary {
    /// Half are no longer.
    pub p50_ns: f64,
    /// The 95 % interval of `p50_ns`; null with fewer than six rounds.
    pub p50_ci95_ns: Option<[f64; 2]>,
    /// Nine in ten are no longer; null where that cannot be told from so few.
    pub p90_ns: Option<f64>,
    /// Ninety-nine in a hundred; null where that cannot be told from so few.
    pub p99_ns: Option<f64>,
}

/// A time in which nothing came through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetOutage {
    /// In which phase.
    pub phase: PhaseName,
    /// In which round, from 0.
    pub round: u32,
    /// When it began, in seconds since that phase did.
    pub from_seconds: f64,
    /// When it ended, or the phase did.
    pub to_seconds: f64,
}

impl NetOutage {
    /// How long it lasted.
    pub fn seconds(&self) -> f64 {
        self.to_seconds - self.from_seconds
    }
}

/// The probes of one interval of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NetProbeInterval {
    /// When it began, in seconds since the test did.
    pub from_seconds: f64,
    /// When it ended.
    pub to_seconds: f64,
    /// Probes due in it.
    pub due: u64,
    /// Of them, those that were answered.
    pub answered: u64,
    /// Half of their round trips are no longer; null where none was answered.
    pub p50_ns: Option<f64>,
    /// The longest.
    pub max_ns: Option<f64>,
}
