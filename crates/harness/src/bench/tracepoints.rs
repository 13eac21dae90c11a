//! The kernel's tracepoints as a probe: the parts of a round trip between two processes, and of a
//! mirror's stack within it.
//!
//! A recorder slows every system call even while it is off, so it is there only while it looks, and the
//! round trips before and after it are those that nobody looked at.

use std::collections::BTreeMap;

use plumb_base::stats::quantile;
use plumb_clock::Stopwatch;

use super::ChannelBench;
use super::breakdown::{PartSamples, ProbeFindings, ProbeSchedule, RoundTripProbe};
use crate::channel::ChannelEnd;
use crate::launch_protocol::PeerReport;
use crate::report::BlockError;
use crate::spec::{LaunchSpec, LaunchSubject, Mechanism, MirrorStack};
use crate::trace::{
    CorrectedBreakdown, PathPart, ProbeCost, RoundTrip, RoundTripLeg, TraceBreakdown,
    TraceRecorder, TraceTimeline, TracedThreads, Tracepoint, TracepointSet, mean,
};

/// Round trips that are recorded in a block: what the rings hold, several times over.
const TRIPS_MAX: usize = 1_500;

/// The share of round trips that are left out as somebody else's doing, probed or not.
const SLOWEST_SHARE: f64 = 0.02;

/// A recorder for worker and peer.
pub(super) struct TracepointProbe {
    shape: TracedThreads,
    cpus: Vec<u32>,
    set: TracepointSet,
    watch: Stopwatch,
    is_mirror: bool,
    hit_ns: f64,
    recorder: Option<TraceRecorder>,
    timeline: Option<TraceTimeline>,
}

impl TracepointProbe {
    /// For the round trips of a launch.
    ///
    /// # Errors
    /// Where this host does not let anybody look, or a process may run anywhere.
    pub(super) fn new<E: ChannelEnd>(
        bench: &ChannelBench<'_, E>,
        launch: &LaunchSpec,
    ) -> Result<Self, BlockError> {
        let (Some(here), Some(there)) = (launch.cpu_local, launch.cpu_peer) else {
            return Err(BlockError::Unavailable(
                "a breakdown follows processes that are bound to CPUs: choose a placement".into(),
            ));
        };
        let is_mirror = matches!(&launch.subject, LaunchSubject::Mirror(_));
        let mut set = match bench.mechanism {
            _ if is_mirror => TracepointSet::network(),
            Mechanism::Pipe => TracepointSet::pipe(),
            Mechanism::UnixStream => TracepointSet::unix(),
            _ => TracepointSet::network(),
        };
        if here != there {
            set = set.with(Tracepoint::Woken);
        }
        let unavailable =
            |e: crate::trace::TraceUnavailable| BlockError::Unavailable(e.to_string());
        let hit_ns = ProbeCost::measure_hit_ns(here, bench.stopwatch).map_err(unavailable)?;
        let Some(peer) = bench.peer.process.pid() else {
            return Err(BlockError::needs_local_peer());
        };
        let shape = TracedThreads { worker: std::process::id(), peer };
        Ok(Self {
            shape,
            cpus: vec![here, there],
            set,
            watch: bench.stopwatch,
            is_mirror,
            hit_ns,
            recorder: None,
            timeline: None,
        })
    }
}

impl RoundTripProbe for TracepointProbe {
    fn schedule(&self) -> ProbeSchedule {
        ProbeSchedule::Once { trips_max: TRIPS_MAX }
    }

    fn switch(&mut self, on: bool) -> Result<(), BlockError> {
        let failed = |e: std::io::Error| BlockError::Unavailable(format!("cannot record: {e}"));
        if on {
            let threads = [self.shape.worker, self.shape.peer];
            let recorder = TraceRecorder::open(&threads, &self.cpus, self.set, self.watch)
                .map_err(|error| BlockError::Unavailable(error.to_string()))?;
            recorder.enable().map_err(failed)?;
            self.recorder = Some(recorder);
        } else if let Some(mut recorder) = self.recorder.take() {
            recorder.disable().map_err(failed)?;
            self.timeline = Some(recorder.drain());
        }
        Ok(())
    }

    fn parts(
        &mut self,
        trips: &[RoundTrip],
        plain: &[f64],
        _: &PeerReport,
    ) -> Result<ProbeFindings, BlockError> {
        let Some(timeline) = self.timeline.take() else { return Ok(ProbeFindings::default()) };
        let all = TraceBreakdown::of(&timeline, trips, self.shape);
        if all.whole_ns.is_empty() {
            return Err(BlockError::Unavailable(format!(
                "no round trip was seen whole: {} were torn by lost events, {} held none",
                all.trips_with_lost_events, all.trips_without_events
            )));
        }
        let typical = all.without_slowest(SLOWEST_SHARE);
        let plain = without_slowest(plain);
        let cost = ProbeCost { without_ns: mean(&plain), hit_ns: self.hit_ns };
        let corrections = typical.corrected(&cost);
        let parts = scale_to_means(&typical, &corrections);
        let parts =
            if self.is_mirror { kernel_stack_parts(parts) } else { parts_of_both_ways(parts) };
        let counters = [
            ("trips_probed", all.whole_ns.len() as f64),
            ("trips_torn", all.trips_with_lost_events as f64),
            ("trips_unseen", all.trips_without_events as f64),
            ("hits_per_1000_trips", 1_000.0 * typical.events_per_trip()),
            ("hit_ps", 1_000.0 * self.hit_ns),
            ("correction_scale_ppm", 1e6 * corrections.scale),
        ];
        Ok(ProbeFindings { parts, counters: counters.to_vec(), flags: vec!["probe-corrected"] })
    }
}

/// Every part of every round trip with the probes' cost taken off, so that the parts' means sum to the
/// mean of the round trips that nobody looked at.
fn scale_to_means(
    seen: &TraceBreakdown,
    corrected: &CorrectedBreakdown,
) -> Vec<((RoundTripLeg, PathPart), Vec<f64>)> {
    let scaled = |values: &[f64], to: f64| -> Vec<f64> {
        let mean = mean(values);
        let factor = if mean > 0.0 { to / mean } else { 0.0 };
        values.iter().map(|value| value * factor).collect()
    };
    let mut parts: Vec<_> = seen
        .parts
        .iter()
        .zip(&corrected.parts)
        .map(|(times, (leg, part, ns))| ((*leg, *part), scaled(&times.per_trip_ns, *ns)))
        .collect();
    let unexplained = scaled(&seen.unexplained_ns, corrected.unexplained_ns);
    parts.push(((RoundTripLeg::Back, PathPart::Unexplained), unexplained));
    parts
}

/// Sums parts that go by one name.
fn sum_by(
    parts: Vec<((RoundTripLeg, PathPart), Vec<f64>)>,
    name: impl Fn(RoundTripLeg, PathPart) -> Option<&'static str>,
) -> PartSamples {
    let mut sums: BTreeMap<&'static str, Vec<f64>> = BTreeMap::new();
    for ((leg, part), values) in parts {
        let Some(name) = name(leg, part) else { continue };
        match sums.get_mut(name) {
            Some(sum) => sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += value),
            None => drop(sums.insert(name, values)),
        }
    }
    sums.into_iter().map(|(name, values)| (name.to_owned(), values)).collect()
}

/// Each part over both ways; a part that never happened took no time.
fn parts_of_both_ways(parts: Vec<((RoundTripLeg, PathPart), Vec<f64>)>) -> PartSamples {
    let trips = parts.first().map_or(0, |(_, values)| values.len());
    let never = PathPart::ALL.map(|part| ((RoundTripLeg::Out, part), vec![0.0; trips]));
    sum_by(parts.into_iter().chain(never).collect(), |_, part| Some(part.name()))
}

/// The kernel's stack at the mirror's side: its receive path and the receiving call after the switch on
/// the way out, each for itself and together, its sending call on the way back, and the switches apart.
///
/// Where nothing shows the copy to the process, as Linux copies a datagram that lies in one piece
/// (`copy_linear_skb` in net/ipv4/udp.c), nobody knows where the switch ends: it counts as the switch.
fn kernel_stack_parts(parts: Vec<((RoundTripLeg, PathPart), Vec<f64>)>) -> PartSamples {
    let shows_copy = parts.iter().any(|((leg, part), ns)| {
        let shown = ns.iter().filter(|ns| **ns > 0.0).count();
        (*leg, *part) == (RoundTripLeg::Out, PathPart::CopyAndReturn) && 2 * shown > ns.len()
    });
    let mut named = sum_by(parts, |leg, part| match (leg, part) {
        (_, PathPart::Unexplained) => Some("unexplained"),
        (RoundTripLeg::Out, PathPart::ReceivePath) => Some("receive-path"),
        (RoundTripLeg::Out, PathPart::CopyAndReturn | PathPart::ReceiveCall) if shows_copy => {
            Some("copy")
        }
        (RoundTripLeg::Back, PathPart::CallEntry | PathPart::SendPath) => Some("send"),
        (
            RoundTripLeg::Out,
            PathPart::WakeUp
            | PathPart::WakeAndSwitch
            | PathPart::SendReturn
            | PathPart::BetweenCalls
            | PathPart::ReceiveSleeps
            | PathPart::Idle
            | PathPart::Switch
            | PathPart::CopyAndReturn
            | PathPart::ReceiveCall,
        ) => Some("switch"),
        _ => None,
    });
    for (whole, halves) in [("receive", ["receive-path", "copy"]), ("stack", ["receive", "send"])] {
        let of = |name: &str| named.iter().find(|(n, _)| n == name).map(|(_, values)| values);
        let sum = match halves.map(of) {
            [Some(first), Some(second)] => {
                first.iter().zip(second).map(|(first, second)| first + second).collect()
            }
            [Some(only), None] | [None, Some(only)] if whole == "receive" => only.clone(),
            _ => continue,
        };
        named.push((whole.to_owned(), sum));
    }
    named
}

fn without_slowest(values: &[f64]) -> Vec<f64> {
    let sorted = quantile::sorted(values);
    if sorted.is_empty() {
        return sorted;
    }
    let limit = quantile::of_sorted(&sorted, 1.0 - SLOWEST_SHARE);
    values.iter().copied().filter(|value| *value <= limit).collect()
}

/// Whether a mirror's stack is the kernel's, into which only tracepoints look.
pub(super) fn needs_tracepoints(subject: &LaunchSubject) -> bool {
    !matches!(subject, LaunchSubject::Mirror(mirror) if mirror.stack != MirrorStack::Linux)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_the_kernels_stack_sum_to_it() {
        use {PathPart as Part, RoundTripLeg as Leg};
        let parts = [
            (Leg::Out, Part::SendPath, 1_000.0),
            (Leg::Out, Part::ReceivePath, 100.0),
            (Leg::Out, Part::Switch, 500.0),
            (Leg::Out, Part::CopyAndReturn, 20.0),
            (Leg::Out, Part::ReceiveCall, 3.0),
            (Leg::Back, Part::SendPath, 200.0),
            (Leg::Back, Part::ReceivePath, 2_000.0),
            (Leg::Back, Part::Unexplained, 7.0),
        ];
        let named = kernel_stack_parts(parts.map(|(leg, part, ns)| ((leg, part), vec![ns])).into());
        let told: BTreeMap<String, f64> =
            named.into_iter().map(|(name, values)| (name, values[0])).collect();
        let expected = [
            ("copy", 23.0),
            ("receive", 123.0),
            ("receive-path", 100.0),
            ("send", 200.0),
            ("stack", 323.0),
            ("switch", 500.0),
            ("unexplained", 7.0),
        ];
        assert_eq!(told, expected.map(|(name, ns)| (name.to_owned(), ns)).into());
    }

    #[test]
    fn a_copy_that_is_rarely_shown_counts_as_the_switch() {
        use {PathPart as Part, RoundTripLeg as Leg};
        let parts = [
            (Leg::Out, Part::ReceivePath, vec![100.0; 3]),
            (Leg::Out, Part::Switch, vec![500.0, 500.0, 0.0]),
            (Leg::Out, Part::CopyAndReturn, vec![0.0, 0.0, 20.0]),
            (Leg::Out, Part::ReceiveCall, vec![0.0, 0.0, 300.0]),
        ];
        let named = kernel_stack_parts(parts.map(|(leg, part, ns)| ((leg, part), ns)).into());
        let told: BTreeMap<&str, &[f64]> =
            named.iter().map(|(name, ns)| (name.as_str(), ns.as_slice())).collect();
        assert_eq!(told["switch"], [500.0, 500.0, 320.0]);
        assert_eq!(told["receive"], [100.0; 3]);
        assert!(!told.contains_key("copy"));
    }
}
