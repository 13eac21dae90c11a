//! The result of a STAMP session, or of answering several, `plumb.stamp/1`.

use plumb_base::stats::quantile;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::net::OneWayDelay;
use crate::words;

/// The name of this document's shape.
pub const SCHEMA: &str = "plumb.stamp/1";

words! {
    /// A side of STAMP.
    #[derive(Default)]
    StampRole {
        /// It asks.
        #[default]
        Sender = "sender",
        /// It answers.
        Reflector = "reflector",
    }
}

words! {
    /// How a session ended.
    #[derive(Default)]
    StampEnding {
        /// As planned.
        #[default]
        Complete = "complete",
        /// Nothing was answered.
        Silent = "silent",
        /// Its user stopped it.
        Interrupted = "interrupted",
    }
}

words! {
    /// How a time is written; a bit of the error estimate says which.
    TimestampFormat {
        /// Seconds since 1900 and 2⁻³² of them (RFC 5905 §6).
        Ntp = "ntp",
        /// Seconds since 1970 and nanoseconds (IEEE 1588, truncated).
        Ptp = "ptp",
    }
}

/// Seconds from 1900 to 1970.
const NTP_TO_UNIX: u64 = 2_208_988_800;
const NS: u64 = 1_000_000_000;
const SECONDS_MASK: u64 = 0xffff_ffff;

impl TimestampFormat {
    /// The 64 bits of a moment, given as nanoseconds since 1970.
    pub fn write(self, unix_ns: u64) -> u64 {
        let (seconds, ns) = (unix_ns / NS, unix_ns % NS);
        match self {
            // Rounded up, so that reading, which rounds down, gives the same nanosecond.
            Self::Ntp => {
                let fraction = (ns << 32).div_ceil(NS);
                (seconds.wrapping_add(NTP_TO_UNIX) & SECONDS_MASK) << 32 | fraction
            }
            Self::Ptp => (seconds & SECONDS_MASK) << 32 | ns,
        }
    }

    /// The moment of 64 bits, in nanoseconds since 1970: of NTP between 1970 and 2106.
    pub fn read(self, bits: u64) -> u64 {
        let (seconds, low) = (bits >> 32, bits & SECONDS_MASK);
        match self {
            Self::Ntp => {
                // Times before 1970 are in the era that begins in 2036.
                let unix = seconds.wrapping_sub(NTP_TO_UNIX) & SECONDS_MASK;
                unix * NS + ((low * NS) >> 32)
            }
            Self::Ptp => seconds * NS + low.min(NS - 1),
        }
    }
}

/// One session with a reflector, or the account of a reflector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StampDocument {
    /// Always `plumb.stamp/1`.
    pub schema: String,
    /// This side.
    pub role: StampRole,
    /// The address and port that were asked, or that were listened on.
    pub address: String,
    /// Whether packets were sealed with a key.
    pub authenticated: bool,
    /// How it ended.
    pub ended: StampEnding,
    /// What the sender found out.
    pub session: Option<StampSession>,
    /// What the reflector answered.
    pub reflected: Option<ReflectorCounts>,
}

/// What a reflector answered, and what not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReflectorCounts {
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
pub struct StampSession {
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
    pub forward: Option<OneWayDelay>,
    /// The way back.
    pub backward: Option<OneWayDelay>,
    /// The reflector's clock against this one.
    pub clock: Option<StampClock>,
    /// Whether the reflector says that its clock is synchronised.
    pub reflector_synchronised: Option<bool>,
    /// The error of its clock that it states, in nanoseconds.
    pub reflector_error_ns: Option<f64>,
    /// How it writes times.
    pub reflector_format: Option<TimestampFormat>,
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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

impl StampDistribution {
    /// Of times; `None` without any.
    pub fn of(times_ns: &[f64]) -> Option<Self> {
        let sorted = quantile::sorted(times_ns);
        let of = |p: f64| quantile::of_sorted(&sorted, p);
        (!sorted.is_empty()).then(|| Self {
            min_ns: of(0.0),
            p50_ns: of(0.5),
            p90_ns: of(0.9),
            p99_ns: of(0.99),
            max_ns: of(1.0),
        })
    }
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
    pub steps: Vec<ClockStep>,
}

/// A clock that was set, of two that are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockStep {
    /// It was after this moment of the near clock: of a document, nanoseconds after it began.
    pub after_ns: u64,
    /// It was before this one.
    pub before_ns: u64,
    /// By how much the far clock less the near one grew.
    pub size_ns: f64,
    /// Whether no constant drift explains the exchanges without it, or only both directions' edges moved.
    pub proved: bool,
}
