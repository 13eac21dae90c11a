//! One-way delays: above the least seen, which needs no common clock; and in all, as sure as the offset is.

use plumb_base::stats::quantile;
use serde::{Deserialize, Serialize};

use super::{ClockOffsetEstimate, TimestampExchange};
use crate::measure::datagram::transit::{TransitSample, TransitTrace};

/// The delays of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneWayDelay {
    /// The least delay, by the estimated offset.
    pub least_ns: f64,
    /// The least delay, and so every other, is not further than this from what is said: the bound on the offset.
    /// Zero where both sides read one clock.
    pub bound_ns: f64,
    /// Half of all are no longer than the least and this.
    pub above_p50_ns: f64,
    /// Nine in ten.
    pub above_p90_ns: f64,
    /// Ninety-nine in a hundred.
    pub above_p99_ns: f64,
    /// The longest.
    pub above_max_ns: f64,
    /// How many there are.
    pub samples: usize,
}

impl OneWayDelay {
    /// Of delays in nanoseconds; `None` without any.
    pub fn of(delays_ns: &[f64], bound_ns: f64) -> Option<Self> {
        let sorted = quantile::sorted(delays_ns);
        let least_ns = *sorted.first()?;
        let above = |p: f64| quantile::of_sorted(&sorted, p) - least_ns;
        Some(Self {
            least_ns,
            bound_ns,
            above_p50_ns: above(0.5),
            above_p90_ns: above(0.9),
            above_p99_ns: above(0.99),
            above_max_ns: above(1.0),
            samples: sorted.len(),
        })
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
