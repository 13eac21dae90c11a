//! How two hosts' clocks relate, from exchanges of time stamps alone; and one-way delays by it.
//!
//! Each exchange gives four readings: sent (T1) and answered (T4) by the near clock, received (T2) and sent back (T3)
//! by the far one. A delay cannot be negative: so T2 − T1 is never less than the far clock's offset, and T3 − T4
//! never more. A straight line between these two clouds is what the offset can have been. Of the lines with one
//! slope the highest and the lowest touch the clouds' hulls; the slope at which the points are closest to them is the
//! one that Moon, Skelly and Towsley's linear programme (*Estimation and removal of clock skew from network
//! delay measurements*, INFOCOM 1999) gives when posed for both directions at once. The offset is estimated as
//! the middle; half the distance is the bound, reached where all of the smallest round trip was in one direction.
//!
//! Where no line separates the clouds, a clock was set, or the clocks' rates changed: the exchanges are divided
//! there, and the step is reported. A step smaller than the round trip is recognised by both
//! clouds' edges moving by the same amount at the same time, which no path does.
//!
//! Pure. Left out: reading clocks, and correcting anything but the numbers given.

mod estimate;
mod hull;
mod step;

use plumb_result::net::OneWayDelay;
use serde::{Deserialize, Serialize};

use crate::measure::datagram::{TransitSample, TransitTrace};

pub use estimate::{ClockOffsetEstimate, ClockSegment};

/// No clock is further from its nominal rate, in parts per million: the kernel itself corrects by up to 500
/// (NTP's MAXFREQ), and crystals are within 100.
pub const DRIFT_PPM_MAX: f64 = 600.0;

/// The four readings of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimestampExchange {
    /// T1: sent, by the near clock.
    pub sent_ns: u64,
    /// T2: received, by the far clock.
    pub far_received_ns: u64,
    /// T3: sent back, by the far clock.
    pub far_sent_ns: u64,
    /// T4: the answer received, by the near clock.
    pub received_ns: u64,
}

impl TimestampExchange {
    /// The round trip without the far side's stay: (T4 − T1) − (T3 − T2).
    pub fn round_trip_ns(&self) -> i64 {
        let near = difference(self.received_ns, self.sent_ns);
        near.saturating_sub(difference(self.far_sent_ns, self.far_received_ns))
    }

    /// T2 − T1: the way there, and the far clock's offset.
    pub fn forward_ns(&self) -> i64 {
        difference(self.far_received_ns, self.sent_ns)
    }

    /// T4 − T3: the way back, less the far clock's offset.
    pub fn backward_ns(&self) -> i64 {
        difference(self.received_ns, self.far_sent_ns)
    }
}

/// The difference of two readings, of one clock or of two.
fn difference(later: u64, earlier: u64) -> i64 {
    later.wrapping_sub(earlier).cast_signed()
}

/// What is known about the two clocks beforehand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClockRelation {
    /// One clock read by both sides: the same boot of one machine.
    Same,
    /// Nothing.
    Apart,
}

impl ClockRelation {
    /// By the boot ids of both sides (/proc/sys/kernel/random/boot_id): the same one is the same kernel, and so
    /// the same clocks, unless either side is in a time namespace of its own (/proc/self/ns/time).
    pub fn of(near: &ClockIdentity, far: &ClockIdentity) -> Self {
        let known = !near.boot_id.is_empty() && !near.time_namespace.is_empty();
        if known && near == far { Self::Same } else { Self::Apart }
    }
}

/// What tells one host's clock from another's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockIdentity {
    /// /proc/sys/kernel/random/boot_id.
    pub boot_id: String,
    /// What /proc/self/ns/time links to.
    pub time_namespace: String,
}

impl ClockIdentity {
    /// This process's.
    pub fn here() -> Self {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        let time_namespace = std::fs::read_link("/proc/self/ns/time");
        Self {
            boot_id: boot_id.map(|id| id.trim().to_owned()).unwrap_or_default(),
            time_namespace: time_namespace
                .map(|link| link.to_string_lossy().into_owned())
                .unwrap_or_default(),
        }
    }
}

/// The delays there and back of exchanges.
pub fn one_way(
    estimate: &ClockOffsetEstimate,
    exchanges: &[TimestampExchange],
) -> Option<(OneWayDelay, OneWayDelay)> {
    let there = exchanges.iter().map(|e| e.forward_ns() as f64 - estimate.offset_at(e.sent_ns));
    let back = exchanges.iter().map(|e| e.backward_ns() as f64 + estimate.offset_at(e.received_ns));
    let (there, back): (Vec<f64>, Vec<f64>) = (there.collect(), back.collect());
    let bound = estimate.bound_ns();
    Some((OneWayDelay::of(&there, bound)?, OneWayDelay::of(&back, bound)?))
}

impl ClockOffsetEstimate {
    /// The delays of those datagrams that were sampled, and the least and the greatest of all: there where the near
    /// side sent them, back where it received. `None` without any.
    pub fn one_way(&self, trace: &TransitTrace, is_there: bool) -> Option<OneWayDelay> {
        let samples = trace.samples.iter().chain(&trace.least).chain(&trace.greatest);
        let (mut delays_ns, mut bound_ns) = (Vec::new(), 0.0_f64);
        for sample in samples {
            let (delay_ns, near_ns) = if is_there {
                (self.forward_delay_ns(sample), sample.sent_ns)
            } else {
                (self.backward_delay_ns(sample), received_ns(sample))
            };
            delays_ns.push(delay_ns);
            bound_ns = bound_ns.max(self.bound_at(near_ns));
        }
        OneWayDelay::of(&delays_ns, bound_ns)
    }

    /// How long a datagram took that the near side sent and the far side received.
    pub fn forward_delay_ns(&self, sample: &TransitSample) -> f64 {
        sample.transit_ns as f64 - self.offset_at(sample.sent_ns)
    }

    /// How long a datagram took that the far side sent and the near side received.
    pub fn backward_delay_ns(&self, sample: &TransitSample) -> f64 {
        sample.transit_ns as f64 + self.offset_at(received_ns(sample))
    }
}

/// By the receiver's clock.
const fn received_ns(sample: &TransitSample) -> u64 {
    sample.sent_ns.wrapping_add(sample.transit_ns.cast_unsigned())
}

#[cfg(test)]
mod tests;
