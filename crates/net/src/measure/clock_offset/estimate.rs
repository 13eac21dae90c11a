//! Offset and drift of the far clock, stretch by stretch between its steps.

use plumb_result::stamp::ClockStep;
use serde::{Deserialize, Serialize};

use super::hull::{Corridor, OffsetPoint};
use super::{ClockRelation, TimestampExchange, step};

/// A stretch of time in which neither clock was set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClockSegment {
    /// When its first exchange was sent, by the near clock.
    pub from_ns: u64,
    /// When the answer to its last one came.
    pub to_ns: u64,
    /// The far clock less the near one at `from_ns`, in nanoseconds.
    pub offset_ns: f64,
    /// By how much the far clock gains, in parts per million.
    pub drift_ppm: f64,
    /// The least drift that the exchanges allow.
    pub drift_ppm_min: f64,
    /// The greatest.
    pub drift_ppm_max: f64,
    /// The offset is nowhere further than this from the estimate, whichever drift that the exchanges allow is the
    /// true one: half of the smallest round trip at best, more where a few exchanges leave the drift open.
    pub bound_ns: f64,
    /// The smallest round trip, without the far side's stay.
    pub round_trip_min_ns: i64,
    /// Exchanges it rests on.
    pub exchanges: usize,
}

impl ClockSegment {
    /// The far clock less the near one at a moment of the near clock.
    pub fn offset_at(&self, near_ns: u64) -> f64 {
        let elapsed = super::difference(near_ns, self.from_ns) as f64;
        self.offset_ns + self.drift_ppm * 1e-6 * elapsed
    }

    /// The offset is not further than this from [`Self::offset_at`] at a moment of the near clock: every drift that the
    /// exchanges allow leads further away from them.
    pub fn bound_at(&self, near_ns: u64) -> f64 {
        let before = super::difference(self.from_ns, near_ns);
        let after = super::difference(near_ns, self.to_ns);
        let open = (self.drift_ppm_max - self.drift_ppm_min) * 1e-6;
        self.bound_ns + open * before.max(after).max(0) as f64
    }
}

/// What is known about the far clock.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockOffsetEstimate {
    /// What was known beforehand.
    pub clocks: ClockRelation,
    /// Stretches between steps, in order; at least one.
    pub segments: Vec<ClockSegment>,
    /// Steps between them.
    pub steps: Vec<ClockStep>,
}

impl ClockOffsetEstimate {
    /// Estimates from exchanges in the order that they were sent in; `None` without any.
    ///
    /// Of one clock nothing is estimated: its offset is zero, and exchanges that say otherwise show what two
    /// reads of it may differ by.
    pub fn new(exchanges: &[TimestampExchange], clocks: ClockRelation) -> Option<Self> {
        if exchanges.is_empty() {
            return None;
        }
        if clocks == ClockRelation::Same {
            let (from_ns, to_ns, round_trip_min_ns) = exchange_bounds(exchanges);
            let exchanges = exchanges.len();
            let segment =
                ClockSegment { from_ns, to_ns, round_trip_min_ns, exchanges, ..Default::default() };
            return Some(Self { clocks, segments: vec![segment], steps: Vec::new() });
        }
        let breaks = step::breaks(exchanges);
        let mut segments = Vec::new();
        let mut start = 0;
        for end in breaks.iter().map(|found| found.index).chain([exchanges.len()]) {
            segments.push(segment(&exchanges[start..end]));
            start = end;
        }
        let steps = breaks.iter().zip(segments.windows(2)).map(|(found, pair)| {
            let (before, after) = (&exchanges[found.index - 1], &exchanges[found.index]);
            let between = after.sent_ns;
            ClockStep {
                after_ns: before.sent_ns,
                before_ns: after.received_ns,
                size_ns: pair[1].offset_at(between) - pair[0].offset_at(between),
                proved: found.proved,
            }
        });
        let steps = steps.collect();
        Some(Self { clocks, segments, steps })
    }

    /// The stretch that a moment of the near clock belongs to, or the nearest.
    pub fn segment_at(&self, near_ns: u64) -> &ClockSegment {
        let after = self.segments.partition_point(|segment| segment.from_ns <= near_ns);
        &self.segments[after.saturating_sub(1)]
    }

    /// The far clock less the near one at a moment of the near clock.
    pub fn offset_at(&self, near_ns: u64) -> f64 {
        self.segment_at(near_ns).offset_at(near_ns)
    }

    /// The bound on the offset at a moment of the near clock, which grows with the time to the nearest exchange.
    pub fn bound_at(&self, near_ns: u64) -> f64 {
        let after = self.segments.partition_point(|segment| segment.from_ns <= near_ns);
        let segment = &self.segments[after.saturating_sub(1)];
        let own = segment.bound_at(near_ns);
        // Between two stretches nobody knows whether the clock had been set already.
        let next = self.segments.get(after).filter(|_| after > 0 && near_ns > segment.to_ns);
        next.map_or(own, |next| {
            let apart = (next.offset_at(near_ns) - segment.offset_at(near_ns)).abs();
            own.max(apart + next.bound_at(near_ns))
        })
    }

    /// The bound on the offset over the time of the exchanges: none where the clock is known to be the same.
    pub fn bound_ns(&self) -> f64 {
        self.segments.iter().map(|segment| segment.bound_ns).fold(0.0, f64::max)
    }

    /// A moment of the far clock by the near one.
    pub fn near_ns(&self, far_ns: u64) -> u64 {
        let shifted = |offset: f64| {
            #[expect(clippy::cast_possible_truncation, reason = "a float cast saturates")]
            let whole = offset.round() as i64;
            far_ns.wrapping_sub(whole.cast_unsigned())
        };
        // The drift over the offset itself is what a second look removes.
        let first = shifted(self.segments[0].offset_ns);
        let second = shifted(self.offset_at(first));
        shifted(self.offset_at(second))
    }
}

fn exchange_bounds(exchanges: &[TimestampExchange]) -> (u64, u64, i64) {
    let from_ns = exchanges.iter().map(|e| e.sent_ns).min().unwrap_or(0);
    let to_ns = exchanges.iter().map(|e| e.received_ns).max().unwrap_or(0);
    let round_trip = exchanges.iter().map(TimestampExchange::round_trip_ns).min().unwrap_or(0);
    (from_ns, to_ns, round_trip)
}

fn segment(exchanges: &[TimestampExchange]) -> ClockSegment {
    let (from_ns, to_ns, round_trip_min_ns) = exchange_bounds(exchanges);
    let (corridor, base) = corridor(exchanges);
    let fit = corridor.closest();
    let slopes = corridor.slopes(fit);
    let middle = f64::midpoint(fit.highest, fit.lowest);
    let last = super::difference(to_ns, from_ns) as f64;
    // The truth and the estimate are straight lines, so that they are furthest apart at an end.
    let [at_first, at_last] = [0.0, last].map(|x| {
        let (least, greatest) = corridor.range_at(x, slopes);
        let estimate = middle + fit.slope * x;
        (greatest - estimate).max(estimate - least)
    });
    ClockSegment {
        from_ns,
        to_ns,
        offset_ns: base as f64 + middle,
        drift_ppm: fit.slope * 1e6,
        drift_ppm_min: slopes.0 * 1e6,
        drift_ppm_max: slopes.1 * 1e6,
        bound_ns: at_first.max(at_last).max(fit.gap() / 2.0).max(0.0),
        round_trip_min_ns,
        exchanges: exchanges.len(),
    }
}

/// What the offset can have been, less the first exchange's, over the time since it was sent.
pub(super) fn corridor(exchanges: &[TimestampExchange]) -> (Corridor, i64) {
    let (from_ns, _, _) = exchange_bounds(exchanges);
    let base = exchanges.first().map_or(0, TimestampExchange::forward_ns);
    let point = |at_ns: u64, offset_ns: i64| OffsetPoint {
        x: super::difference(at_ns, from_ns) as f64,
        y: offset_ns.saturating_sub(base) as f64,
    };
    let mut upper: Vec<OffsetPoint> =
        exchanges.iter().map(|e| point(e.sent_ns, e.forward_ns())).collect();
    let mut lower: Vec<OffsetPoint> =
        exchanges.iter().map(|e| point(e.received_ns, -e.backward_ns())).collect();
    for points in [&mut upper, &mut lower] {
        points.sort_by(|a, b| a.x.total_cmp(&b.x));
    }
    (Corridor::new(upper.into_iter(), lower.into_iter()), base)
}
