//! Where a round trip goes inside Linux, seen from outside: tracepoints, read through perf rings.
//!
//! A [`TraceRecorder`] writes what the kernel does for two processes into rings mapped before; they are decoded after
//! a block into a [`TraceTimeline`], and a [`TraceBreakdown`] cuts each round trip at its events into consecutive parts
//! and an explicit *unexplained* rest, which together are the whole (rule 18). [`ProbeCost`] is what tracing costs.

use std::collections::BTreeMap;

use plumb_base::stats::quantile;
use plumb_clock::Stopwatch;
use plumb_sys::process::{call, thread_id};

mod cpu_time;
mod path;
mod recorder;
mod tracepoint;

pub(crate) use cpu_time::CpuTimeShares;
pub use path::PathPart;
use path::{PathSegment, cut};
pub(crate) use path::{RoundTrip, RoundTripLeg, TracedThreads};
pub(crate) use recorder::{TraceRecorder, TraceTimeline};
pub(crate) use tracepoint::{TraceUnavailable, Tracepoint, TracepointSet};

/// One part of every round trip.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PartTimes {
    /// Which way the message was going.
    pub(crate) leg: RoundTripLeg,
    /// The part.
    pub part: PathPart,
    /// Nanoseconds in each round trip, in their order; 0 where it did not occur.
    pub(crate) per_trip_ns: Vec<f64>,
    /// Tracepoint hits in it, per round trip, on average: an event at an edge counts half.
    pub(crate) events: f64,
}

impl PartTimes {
    /// Its mean over the round trips, in nanoseconds.
    pub(crate) fn mean_ns(&self) -> f64 {
        mean(&self.per_trip_ns)
    }
}

/// The round trips of a block cut into consecutive parts, which sum to each whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TraceBreakdown {
    /// The named parts that occurred, in the order of the path; the unexplained ones are apart.
    pub(crate) parts: Vec<PartTimes>,
    /// What no part explains, in nanoseconds, in each round trip.
    pub(crate) unexplained_ns: Vec<f64>,
    /// Tracepoint hits in what is unexplained, per round trip, on average.
    pub(crate) unexplained_events: f64,
    /// Each round trip, in nanoseconds.
    pub(crate) whole_ns: Vec<f64>,
    /// Round trips left out because events of theirs were lost.
    pub(crate) trips_with_lost_events: u64,
    /// Round trips left out because nothing was recorded in them.
    pub(crate) trips_without_events: u64,
}

impl TraceBreakdown {
    /// Cuts every round trip at the events of a timeline.
    pub(crate) fn of(timeline: &TraceTimeline, trips: &[RoundTrip], shape: TracedThreads) -> Self {
        let watch = timeline.watch;
        let mut sums: BTreeMap<(RoundTripLeg, PathPart), PartTimes> = BTreeMap::new();
        let mut unexplained = Vec::new();
        let mut unexplained_events = 0.0;
        let mut whole_ns = Vec::new();
        let (mut torn, mut unseen) = (0, 0);
        let mut stretches: Vec<PathSegment> = Vec::new();
        for trip in trips {
            if timeline.has_lost_events(trip.start, trip.end) {
                torn += 1;
                continue;
            }
            let events = timeline.between(trip.start, trip.end);
            if !cut(*trip, events, shape, &mut stretches) {
                unseen += 1;
                continue;
            }
            let index = whole_ns.len();
            whole_ns.push(watch.ns(trip.end.saturating_sub(trip.start)));
            unexplained.push(0.0);
            for stretch in &stretches {
                let ns = watch.ns(stretch.ticks);
                if stretch.part == PathPart::Unexplained {
                    unexplained[index] += ns;
                    unexplained_events += stretch.events;
                    continue;
                }
                let (leg, part) = (stretch.leg, stretch.part);
                let times = sums.entry((leg, part)).or_insert_with(|| PartTimes {
                    leg,
                    part,
                    per_trip_ns: Vec::with_capacity(trips.len()),
                    events: 0.0,
                });
                times.per_trip_ns.resize(index + 1, 0.0);
                times.per_trip_ns[index] += ns;
                times.events += stretch.events;
            }
        }
        let count = whole_ns.len();
        let parts = sums.into_values().map(|mut times| {
            times.per_trip_ns.resize(count, 0.0);
            times.events /= count.max(1) as f64;
            times
        });
        Self {
            parts: parts.collect(),
            unexplained_ns: unexplained,
            unexplained_events: unexplained_events / count.max(1) as f64,
            whole_ns,
            trips_with_lost_events: torn,
            trips_without_events: unseen,
        }
    }

    /// Without the slowest share of the round trips, which are somebody else's doing: the same
    /// must be left out of what they are compared with.
    #[must_use]
    pub(crate) fn without_slowest(&self, share: f64) -> Self {
        let sorted = quantile::sorted(&self.whole_ns);
        let limit = if sorted.is_empty() { 0.0 } else { quantile::of_sorted(&sorted, 1.0 - share) };
        let keep = |values: &[f64]| -> Vec<f64> {
            let kept = values.iter().zip(&self.whole_ns).filter(|(_, whole)| **whole <= limit);
            kept.map(|(value, _)| *value).collect()
        };
        let parts = self
            .parts
            .iter()
            .map(|part| PartTimes { per_trip_ns: keep(&part.per_trip_ns), ..part.clone() })
            .collect();
        Self {
            parts,
            unexplained_ns: keep(&self.unexplained_ns),
            whole_ns: keep(&self.whole_ns),
            ..self.clone()
        }
    }

    /// Tracepoint hits on the path of a round trip, on average.
    pub(crate) fn events_per_trip(&self) -> f64 {
        self.parts.iter().map(|part| part.events).sum::<f64>() + self.unexplained_events
    }

    /// The means with the probes' own cost taken off.
    ///
    /// From each part the cost of its hits is taken, half of a hit to each side of its time stamp.
    /// What then still differs from the round trip that nobody looked at is the probes' effect on
    /// caches and sleeping CPUs, which no hit can be blamed for: all parts, the unexplained one too,
    /// are scaled alike by [`CorrectedBreakdown::scale`], so that they sum to the whole. A part is uncertain
    /// by about its distance from 1, and by half a hit for each edge.
    pub(crate) fn corrected(&self, cost: &ProbeCost) -> CorrectedBreakdown {
        let without = |ns: f64, events: f64| (ns - cost.hit_ns * events).max(0.0);
        let mut parts: Vec<_> = self
            .parts
            .iter()
            .map(|times| (times.leg, times.part, without(times.mean_ns(), times.events)))
            .collect();
        let unexplained = without(mean(&self.unexplained_ns), self.unexplained_events);
        let sum = parts.iter().map(|part| part.2).sum::<f64>() + unexplained;
        let scale = if sum > 0.0 { cost.without_ns / sum } else { 0.0 };
        for part in &mut parts {
            part.2 *= scale;
        }
        let unexplained_ns = unexplained * scale;
        CorrectedBreakdown { parts, unexplained_ns, scale }
    }
}

/// Mean parts of a round trip without the probes' cost, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CorrectedBreakdown {
    /// Way, part and mean.
    pub parts: Vec<(RoundTripLeg, PathPart, f64)>,
    /// What no part explains.
    pub(crate) unexplained_ns: f64,
    /// What the parts were multiplied with, after the hits were taken off, to sum to the whole.
    pub(crate) scale: f64,
}

/// What probes cost: the round trip without them, and one hit by itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ProbeCost {
    /// The mean round trip without any open, in nanoseconds: see [`TraceRecorder`].
    pub(crate) without_ns: f64,
    /// One hit, in nanoseconds, by [`Self::measure_hit_ns`].
    pub(crate) hit_ns: f64,
}

/// Calls timed at once, and how often.
const CALLS: u32 = 200;
const TRIALS: u32 = 50;

impl ProbeCost {
    /// The cost of a hit on this CPU, in nanoseconds: a trivial system call with its entry and exit
    /// recorded, against the same with no probe open. The calling thread must stay on `cpu`.
    ///
    /// # Errors
    /// As [`TraceRecorder::open`].
    pub(crate) fn measure_hit_ns(cpu: u32, watch: Stopwatch) -> Result<f64, TraceUnavailable> {
        let median = || {
            let times: Vec<f64> = (0..TRIALS)
                .map(|_| {
                    let start = watch.begin();
                    for _ in 0..CALLS {
                        call::getppid_raw();
                    }
                    watch.ns(watch.end().wrapping_sub(start)) / f64::from(CALLS)
                })
                .collect();
            quantile::of_sorted(&quantile::sorted(&times), 0.5)
        };
        let without = median();
        let recorder = TraceRecorder::open(&[thread_id()], &[cpu], TracepointSet::pipe(), watch)?;
        let what = "raw_syscalls";
        recorder.enable().map_err(|source| TraceUnavailable::Failed { what, source })?;
        let with = median();
        Ok(((with - without) / 2.0).max(0.0))
    }
}

pub(crate) fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
