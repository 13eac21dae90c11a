//! Where the round trips of a block went: the parts of each, and what is unexplained.
//!
//! Left out: how a path is followed (`super::path`) and what looking cost (`super::cost`).

use std::collections::BTreeMap;

use plumb_base::stats::quantile;

use super::cost::ProbeCost;
use super::part::{Leg, Part};
use super::path::{RoundTrip, Shape, Stretch, cut};
use super::timeline::Timeline;

/// One part of every round trip.
#[derive(Clone, Debug, PartialEq)]
pub struct PartTimes {
    /// Which way the message was going.
    pub leg: Leg,
    /// The part.
    pub part: Part,
    /// Nanoseconds in each round trip, in their order; 0 where it did not occur.
    pub per_trip_ns: Vec<f64>,
    /// Tracepoint hits in it, per round trip, on average: an event at an edge counts half.
    pub events: f64,
}

impl PartTimes {
    /// Its mean over the round trips, in nanoseconds.
    pub fn mean_ns(&self) -> f64 {
        mean(&self.per_trip_ns)
    }
}

/// The round trips of a block cut into consecutive parts, which sum to each whole.
#[derive(Clone, Debug, PartialEq)]
pub struct Breakdown {
    /// The named parts that occurred, in the order of the path; the unexplained ones are apart.
    pub parts: Vec<PartTimes>,
    /// What no part explains, in nanoseconds, in each round trip.
    pub unexplained_ns: Vec<f64>,
    /// Tracepoint hits in what is unexplained, per round trip, on average.
    pub unexplained_events: f64,
    /// The edges of what is unexplained, with the nanoseconds between them, over all round trips.
    pub unexplained_edges: BTreeMap<String, f64>,
    /// Each round trip, in nanoseconds.
    pub whole_ns: Vec<f64>,
    /// Round trips left out because events of theirs were lost.
    pub torn: u64,
    /// Round trips left out because nothing was recorded in them.
    pub unseen: u64,
    /// Events that were lost.
    pub lost: u64,
}

impl Breakdown {
    /// Cuts every round trip at the events of a timeline.
    pub fn of(timeline: &Timeline, trips: &[RoundTrip], shape: Shape) -> Self {
        let watch = timeline.stopwatch();
        let mut sums: BTreeMap<(Leg, Part), PartTimes> = BTreeMap::new();
        let mut unexplained = Vec::new();
        let mut unexplained_events = 0.0;
        let mut unexplained_edges = BTreeMap::new();
        let mut whole_ns = Vec::new();
        let (mut torn, mut unseen) = (0, 0);
        let mut stretches: Vec<Stretch> = Vec::new();
        for trip in trips {
            if timeline.is_torn(trip.start, trip.end) {
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
                if stretch.part == Part::Unexplained {
                    unexplained[index] += ns;
                    unexplained_events += stretch.events;
                    let (from, to) = stretch.edges;
                    let edges = format!("{}: {from:?} to {to:?}", stretch.leg.name());
                    *unexplained_edges.entry(edges).or_insert(0.0) += ns;
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
            unexplained_edges,
            whole_ns,
            torn,
            unseen,
            lost: timeline.lost(),
        }
    }

    /// The round trips of several blocks of the same exchange as one; none of none.
    pub fn merged(breakdowns: impl IntoIterator<Item = Self>) -> Option<Self> {
        breakdowns.into_iter().reduce(|mut all, next| {
            let (before, after) = (all.whole_ns.len(), all.whole_ns.len() + next.whole_ns.len());
            let share = before as f64 / after.max(1) as f64;
            for part in &mut all.parts {
                part.per_trip_ns.resize(after, 0.0);
                part.events *= share;
            }
            for part in next.parts {
                let place = all.parts.partition_point(|p| (p.leg, p.part) < (part.leg, part.part));
                let known =
                    all.parts.get(place).is_some_and(|p| (p.leg, p.part) == (part.leg, part.part));
                if !known {
                    let (leg, part) = (part.leg, part.part);
                    let per_trip_ns = vec![0.0; after];
                    all.parts.insert(place, PartTimes { leg, part, per_trip_ns, events: 0.0 });
                }
                all.parts[place].events += part.events * (1.0 - share);
                all.parts[place].per_trip_ns[before..].copy_from_slice(&part.per_trip_ns);
            }
            all.unexplained_events =
                all.unexplained_events * share + next.unexplained_events * (1.0 - share);
            all.unexplained_ns.extend(next.unexplained_ns);
            for (edges, ns) in next.unexplained_edges {
                *all.unexplained_edges.entry(edges).or_insert(0.0) += ns;
            }
            all.whole_ns.extend(next.whole_ns);
            all.torn += next.torn;
            all.unseen += next.unseen;
            all.lost += next.lost;
            all
        })
    }

    /// Without the slowest share of the round trips, which are somebody else's doing: the same
    /// must be left out of what they are compared with.
    #[must_use]
    pub fn without_slowest(&self, share: f64) -> Self {
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
    pub fn events_per_trip(&self) -> f64 {
        self.parts.iter().map(|part| part.events).sum::<f64>() + self.unexplained_events
    }

    /// The mean round trip, in nanoseconds.
    pub fn whole_mean_ns(&self) -> f64 {
        mean(&self.whole_ns)
    }

    /// The share of the mean round trip that no part explains.
    pub fn unexplained_share(&self) -> f64 {
        mean(&self.unexplained_ns) / self.whole_mean_ns()
    }

    /// The mean of one part over both ways, in nanoseconds: `StackReceive` to `DataReady`, say.
    pub fn part_mean_ns(&self, part: Part) -> f64 {
        self.parts.iter().filter(|times| times.part == part).map(PartTimes::mean_ns).sum()
    }

    /// The means with the probes' own cost taken off.
    ///
    /// From each part the cost of its hits is taken, half of a hit to each side of its time stamp.
    /// What then still differs from the round trip that nobody looked at is the probes' effect on
    /// caches and sleeping CPUs, which no hit can be blamed for: all parts, the unexplained one too,
    /// are scaled alike by [`Corrected::scale`], so that they sum to the whole. A part is uncertain
    /// by about its distance from 1, and by half a hit for each edge.
    pub fn corrected(&self, cost: &ProbeCost) -> Corrected {
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
        Corrected { parts, whole_ns: cost.without_ns, unexplained_ns, scale }
    }
}

/// Mean parts of a round trip without the probes' cost, in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Corrected {
    /// Way, part and mean.
    pub parts: Vec<(Leg, Part, f64)>,
    /// The mean round trip without probes.
    pub whole_ns: f64,
    /// What no part explains.
    pub unexplained_ns: f64,
    /// What the parts were multiplied with, after the hits were taken off, to sum to the whole.
    pub scale: f64,
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
