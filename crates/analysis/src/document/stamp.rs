//! What came of a STAMP session, or of answering several, `plumb.stamp/1`.
//!
//! Left out: the protocol, and how clocks are compared (`plumb-net`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.stamp/1";

/// One session with a reflector, or the account of a reflector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StampDocument {
    /// Always `plumb.stamp/1`.
    pub schema: String,
    /// `sender` or `reflector`.
    pub role: String,
    /// The address and port that were asked, or that were listened on.
    pub address: String,
    /// Whether packets were sealed with a key.
    pub authenticated: bool,
    /// `complete`, `silent` where nothing was answered, or `interrupted`.
    pub ended: String,
    /// What the sender found out.
    pub session: Option<StampSessionSummary>,
    /// What the reflector answered.
    pub reflected: Option<StampReflectorCounts>,
}

/// What a reflector answered, and what not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StampReflectorCounts {
    /// Questions answered.
    pub answered: u64,
    /// Questions too short for the mode.
    pub short: u64,
    /// Questions not sealed with the key.
    pub unsealed: u64,
    /// Questions above the rate, or beyond what a session may have.
    pub limited: u64,
    /// Answers of another reflector, or datagrams from a port where one is.
    pub looped: u64,
    /// Answers that the kernel did not take.
    pub unsent: u64,
}

/// What a sender found out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StampSessionSummary {
    /// Questions asked.
    pub sent: u64,
    /// Different ones answered.
    pub answered: u64,
    /// Never answered.
    pub lost: u64,
    /// Of these, lost on the way there; absent where the reflector does not tell.
    pub lost_forward: Option<u64>,
    /// Of these, lost on the way back; absent where the reflector does not tell.
    pub lost_backward: Option<u64>,
    /// Of these, asked after the last that was answered, of which nothing is known.
    pub lost_last: Option<u64>,
    /// Answered more than once.
    pub duplicates: u64,
    /// Answered after a later question was.
    pub reordered: u64,
    /// Answers not sealed with the key.
    pub unsealed: u64,
    /// Datagrams that were no answer of this session.
    pub foreign: u64,
    /// Answers without a session, as of a reflector that knows none (RFC 8762; RFC 8972 §3).
    #[serde(default)]
    pub sessionless: u64,
    /// Round trips without the reflector's stay.
    pub round_trip: Option<StampDistribution>,
    /// How long the reflector kept each.
    pub dwell: Option<StampDistribution>,
    /// The way there.
    pub forward: Option<StampOneWayDelay>,
    /// The way back.
    pub backward: Option<StampOneWayDelay>,
    /// The reflector's clock against this one.
    pub clock: Option<StampClock>,
    /// Whether the reflector says that its clock is synchronised.
    pub reflector_synchronised: Option<bool>,
    /// The error of its clock that it states, in nanoseconds.
    pub reflector_error_ns: Option<f64>,
    /// How it writes times: `ntp` or `ptp`.
    pub reflector_format: Option<String>,
    /// Whether this host's clock is synchronised.
    pub sender_synchronised: bool,
    /// The largest error of it that the kernel states, in nanoseconds.
    pub sender_error_ns: f64,
    /// What was left of 255 hops when a question arrived; absent where the reflector does not tell.
    pub ttl_forward: Option<u8>,
    /// What was left of the answer's hops.
    pub ttl_backward: Option<u8>,
    /// Extensions that the reflector did not recognise.
    pub unrecognised_tlvs: u64,
    /// Extensions whose length it took for wrong.
    pub malformed_tlvs: u64,
    /// Extensions whose seal it took for wrong.
    pub unsealed_tlvs: u64,
}

/// A few figures of many times, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StampDistribution {
    /// The least.
    pub min_ns: f64,
    /// Half are no greater.
    pub p50_ns: f64,
    /// Nine in ten.
    pub p90_ns: f64,
    /// Ninety-nine in a hundred.
    pub p99_ns: f64,
    /// The greatest.
    pub max_ns: f64,
}

/// One-way delays, in nanoseconds: those above the least need no common clock.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StampOneWayDelay {
    /// The least, by the estimated offset of the clocks.
    pub least_ns: f64,
    /// How far the least, and so every other, may be from the truth.
    pub bound_ns: f64,
    /// Half are no longer than the least and this.
    pub above_p50_ns: f64,
    /// Nine in ten.
    pub above_p90_ns: f64,
    /// Ninety-nine in a hundred.
    pub above_p99_ns: f64,
    /// The longest.
    pub above_max_ns: f64,
}

/// One clock against another.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StampClock {
    /// The reflector's less this one's, when the session began, in nanoseconds.
    pub offset_ns: f64,
    /// How far that may be from the truth: half of the smallest round trip, or more.
    pub bound_ns: f64,
    /// By how much the reflector's gains, in parts per million.
    pub drift_ppm: f64,
    /// The least drift that the exchanges allow.
    pub drift_ppm_min: f64,
    /// The greatest.
    pub drift_ppm_max: f64,
    /// Clocks that were set meanwhile.
    pub steps: Vec<StampClockStep>,
}

/// A clock that was set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StampClockStep {
    /// After so many nanoseconds of the session at the earliest.
    pub after_ns: u64,
    /// At the latest.
    pub before_ns: u64,
    /// By how much the reflector's less this one's grew.
    pub size_ns: f64,
    /// Whether nothing else explains it.
    pub proved: bool,
}
