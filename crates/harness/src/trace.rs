//! Where a round trip goes inside Linux, seen from outside: tracepoints, read through perf rings.
//!
//! A [`TraceRecorder`] writes what the kernel does for two processes into rings mapped before; they are decoded after
//! a block into a [`TraceTimeline`], and a [`TraceBreakdown`] cuts each round trip at its events into consecutive parts
//! and an explicit *unexplained* rest, which together are the whole (rule 18). [`ProbeCost`] is what tracing costs.
//!
//! [`CpuTimeShares`] says where the CPU time of some threads goes: each stretch between two events of a CPU, by what they
//! say. One that holds the end of one thing and the beginning of another counts as what is not the stack, so that the
//! stack's share is rather too small than too large.

use std::collections::BTreeMap;

use path::{PathSegment, cut};
use plumb_base::stats::quantile;
use plumb_clock::Stopwatch;
use plumb_sys::process::{call, thread_id};
use tracepoint::{SyscallKind, TraceEvent, TraceEventKind};

mod path;
mod recorder;
mod tracepoint;

pub use path::PathPart;
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
    /// The time that no part explains.
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

/// What a CPU did for a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CpuActivity {
    /// Between two calls.
    User,
    /// A call that sends or receives, or the receive path: sockets, protocols and copies.
    Stack,
    /// From the driver's taking a frame to the receive path.
    Device,
    /// Waking threads and switching to them.
    Scheduler,
    /// Other calls and interrupts.
    Unexplained,
}

/// CPU time of the recorded threads by what it went to, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct CpuTimeShares {
    /// See [`CpuActivity`], in its order.
    ns: [f64; 5],
}

impl CpuTimeShares {
    /// The time of these threads in a timeline, `hit_ns` for each event taken off.
    pub(crate) fn of(timeline: &TraceTimeline, threads: &[u32], hit_ns: f64) -> Self {
        let mut shares = Self::default();
        let mut last: Vec<TraceEvent> = Vec::new();
        for event in timeline.between(0, u64::MAX) {
            let Some(before) = last.iter_mut().find(|before| before.cpu == event.cpu) else {
                last.push(*event);
                continue;
            };
            let previous = std::mem::replace(before, *event);
            // An event is of the thread that ran until then.
            if threads.contains(&event.thread) {
                let ns = timeline.watch.ns(event.at.saturating_sub(previous.at)) - hit_ns;
                shares.ns[activity(previous.kind, event.kind) as usize] += ns.max(0.0);
            }
        }
        shares
    }

    /// The share of the protocol stack; none where nothing was recorded.
    pub(crate) fn stack(&self) -> Option<f64> {
        self.share(CpuActivity::Stack)
    }

    /// The share of what no event explains.
    pub(crate) fn unexplained(&self) -> Option<f64> {
        self.share(CpuActivity::Unexplained)
    }

    fn share(&self, of: CpuActivity) -> Option<f64> {
        let total: f64 = self.ns.iter().sum();
        (total > 0.0).then(|| self.ns[of as usize] / total)
    }
}

/// What goes on between two events that follow each other on a CPU.
fn activity(from: TraceEventKind, to: TraceEventKind) -> CpuActivity {
    use TraceEventKind::{
        Copy, DataReady, DeviceTransmit, Enter, Exit, StackReceive, Switch, Waking, Woken,
    };
    match (from, to) {
        (_, Switch { .. }) | (Switch { .. } | Waking(_), _) => CpuActivity::Scheduler,
        (Exit(_), Enter(_)) => CpuActivity::User,
        (DeviceTransmit, _) => CpuActivity::Device,
        (
            Enter(SyscallKind::Send | SyscallKind::Receive)
            | StackReceive
            | DataReady
            | Copy
            | Woken(_),
            _,
        ) => CpuActivity::Stack,
        (Enter(SyscallKind::Other) | Exit(_), _) => CpuActivity::Unexplained,
    }
}

#[cfg(test)]
mod tests {
    use plumb_clock::Stopwatch;

    use super::*;

    #[test]
    fn time_on_each_cpu_goes_to_what_the_events_say() {
        use TraceEventKind::*;
        let (sender, receiver, other) = (7, 8, 99);
        let (send, receive) = (SyscallKind::Send, SyscallKind::Receive);
        let events = [
            (0, 0, sender, Exit(send)),
            (10, 0, sender, Enter(send)),
            (5, 1, receiver, Enter(receive)),
            (8, 1, receiver, Switch { from: receiver, to: 0 }),
            (40, 0, sender, DeviceTransmit),
            (45, 0, sender, StackReceive),
            (60, 0, sender, DataReady),
            (62, 0, sender, Waking(receiver)),
            (70, 0, sender, Exit(send)),
            // The idle task's time is nobody's.
            (90, 1, 0, Switch { from: 0, to: receiver }),
            (95, 1, receiver, Copy),
            (115, 1, receiver, Exit(receive)),
            (118, 1, receiver, Switch { from: receiver, to: other }),
            (150, 1, other, Switch { from: other, to: receiver }),
        ];
        let event = |(at, cpu, thread, kind)| TraceEvent { at, cpu, thread, kind };
        let timeline =
            TraceTimeline::new(Stopwatch::new(None), events.map(event).to_vec(), Vec::new());
        let shares = CpuTimeShares::of(&timeline, &[sender, receiver], 0.0);
        // Sender: 10 user, 30 + 15 + 2 stack, 5 device, 8 waking; receiver: 3 + 5 + 3 switching, 20 stack.
        let expected = [10.0, 67.0, 5.0, 19.0, 0.0];
        assert!(shares.ns.iter().zip(expected).all(|(ns, expected)| (ns - expected).abs() < 1e-9));
        assert!((shares.stack().unwrap() - 67.0 / 101.0).abs() < 1e-9);
        // A hit costs each stretch as much, and none less than nothing.
        let shares = CpuTimeShares::of(&timeline, &[sender, receiver], 4.0);
        assert!((shares.ns[CpuActivity::Stack as usize] - (26.0 + 11.0 + 16.0)).abs() < 1e-9);
        assert_eq!(CpuTimeShares::of(&timeline, &[5], 0.0).stack(), None);
    }
}
