//! Paths and breakdowns of round trips whose truth is known.

use proptest::prelude::*;

use super::super::recorder::TraceGap;
use super::super::{PartTimes, ProbeCost, TraceBreakdown, TraceTimeline};
use super::*;
use plumb_clock::Stopwatch;

const WORKER: u32 = 7;
const PEER: u32 = 8;
const SHAPE: TracedThreads = TracedThreads { worker: WORKER, peer: PEER };

fn event(at: u64, cpu: u32, thread: u32, kind: TraceEventKind) -> TraceEvent {
    TraceEvent { at, cpu, thread, kind }
}

fn timeline(events: Vec<TraceEvent>, gaps: Vec<TraceGap>) -> TraceTimeline {
    TraceTimeline::new(Stopwatch::new(None), events, gaps)
}

/// Parts by leg, with what each took.
fn shown(parts: impl Iterator<Item = (RoundTripLeg, PathPart, f64)>) -> String {
    let parts: Vec<_> = parts.collect();
    let legs = parts.chunk_by(|a, b| a.0 == b.0).map(|leg| {
        let each: Vec<_> =
            leg.iter().map(|(_, part, ns)| format!("{} {ns}", part.name())).collect();
        format!("{:?}: {}", leg[0].0, each.join(", "))
    });
    legs.collect::<Vec<_>>().join("; ")
}

/// A UDP round trip of 200 ns on one CPU, from `start`.
fn on_one_cpu(start: u64) -> (RoundTrip, Vec<TraceEvent>) {
    use TraceEventKind::*;
    let events = [
        (10, WORKER, Enter(SyscallKind::Send)),
        (25, WORKER, DeviceTransmit),
        (30, WORKER, StackReceive),
        (42, WORKER, DataReady),
        (45, WORKER, Waking(PEER)),
        (50, WORKER, Exit(SyscallKind::Send)),
        (52, WORKER, Enter(SyscallKind::Receive)),
        (60, WORKER, Switch { from: WORKER, to: PEER }),
        (71, PEER, Copy),
        (80, PEER, Exit(SyscallKind::Receive)),
        (101, PEER, Enter(SyscallKind::Send)),
        (120, PEER, DeviceTransmit),
        (130, PEER, StackReceive),
        (140, PEER, DataReady),
        (145, PEER, Waking(WORKER)),
        (150, PEER, Exit(SyscallKind::Send)),
        (152, PEER, Enter(SyscallKind::Receive)),
        (160, PEER, Switch { from: PEER, to: WORKER }),
        (170, WORKER, Copy),
        (181, WORKER, Exit(SyscallKind::Receive)),
    ];
    let events = events.map(|(at, thread, kind)| event(start + at, 3, thread, kind)).to_vec();
    (RoundTrip { start, end: start + 200 }, events)
}

#[test]
fn parts_on_one_cpu_are_as_long_as_they_were() {
    let (trip, events) = on_one_cpu(1000);
    let breakdown = TraceBreakdown::of(&timeline(events, Vec::new()), &[trip], SHAPE);
    let parts = breakdown.parts.iter().map(|p| (p.leg, p.part, p.per_trip_ns[0]));
    let expected = "Out: call-entry 10, send-path 15, device 5, receive-path 12, wake-up 3, send-returns 5, \
                    user-space-between-calls 2, receive-call-sleeps 8, context-switch 11, copy-and-return 9; \
                    Peer: peer-in-user-space 21; \
                    Back: send-path 19, device 10, receive-path 10, wake-up 5, send-returns 5, \
                    user-space-between-calls 2, receive-call-sleeps 8, context-switch 10, copy-and-return 11, \
                    call-exit 19";
    assert_eq!(shown(parts), expected);
    assert_eq!(breakdown.unexplained_ns, [0.0]);
    assert!((breakdown.events_per_trip() - 20.0).abs() < 1e-9);
}

/// The same over two CPUs: the receiver's CPU was idle, and the sender goes on beside it.
fn on_two_cpus() -> (RoundTrip, Vec<TraceEvent>) {
    use TraceEventKind::*;
    let events = [
        (10, 0, WORKER, Enter(SyscallKind::Send)),
        (30, 0, WORKER, Waking(PEER)),
        (40, 0, WORKER, Exit(SyscallKind::Send)),
        (45, 0, WORKER, Enter(SyscallKind::Receive)),
        (60, 1, 0, Woken(PEER)),
        (61, 0, WORKER, Switch { from: WORKER, to: 0 }),
        (70, 1, 0, Switch { from: 0, to: PEER }),
        (85, 1, PEER, Exit(SyscallKind::Receive)),
        (95, 1, PEER, Enter(SyscallKind::Send)),
        (110, 1, PEER, Waking(WORKER)),
        (120, 1, PEER, Exit(SyscallKind::Send)),
        // This kernel does not trace the idle task of CPU 0.
        (180, 0, WORKER, Exit(SyscallKind::Receive)),
        (190, 1, PEER, Switch { from: PEER, to: 0 }),
    ];
    let events = events.map(|(at, cpu, thread, kind)| event(at, cpu, thread, kind)).to_vec();
    (RoundTrip { start: 0, end: 200 }, events)
}

#[test]
fn path_leaves_the_sender_cpu_where_the_receiver_is_woken() {
    let (trip, events) = on_two_cpus();
    let mut stretches = Vec::new();
    assert!(cut(trip, &events, SHAPE, &mut stretches));
    let parts = stretches.iter().map(|s| (s.leg, s.part, s.ticks as f64));
    let expected = "Out: call-entry 10, send-path 20, wake-up 30, wake-up 10, context-switch 15; \
                    Peer: peer-in-user-space 10; \
                    Back: send-path 15, wake-up-and-switch 70, call-exit 20";
    assert_eq!(shown(parts), expected);
    // Events of the sender outside the path are not counted as probes of the path.
    let hits: f64 = stretches.iter().map(|stretch| stretch.events).sum();
    assert!((hits - 8.0).abs() < 1e-9, "{hits}");
}

#[test]
fn time_of_another_task_is_a_part_of_its_own() {
    let (trip, mut events) = on_one_cpu(0);
    // In the peer's user space, another task has the CPU for 12.
    events.insert(10, event(85, 3, PEER, TraceEventKind::Switch { from: PEER, to: 99 }));
    events.insert(11, event(97, 3, 99, TraceEventKind::Switch { from: 99, to: PEER }));
    let breakdown = TraceBreakdown::of(&timeline(events, Vec::new()), &[trip], SHAPE);
    let others = breakdown.parts.iter().filter(|times| times.part == PathPart::OtherTasks);
    assert!((others.map(PartTimes::mean_ns).sum::<f64>() - 17.0).abs() < 1e-9);
    assert_eq!(breakdown.unexplained_ns, [0.0]);
}

#[test]
fn a_missing_tracepoint_makes_time_unexplained() {
    let (trip, mut events) = on_one_cpu(0);
    events.retain(|event| event.kind != TraceEventKind::StackReceive);
    let breakdown = TraceBreakdown::of(&timeline(events, Vec::new()), &[trip], SHAPE);
    // From the driver to the socket's queue, both ways: 17 and 20.
    assert_eq!(breakdown.unexplained_ns, [37.0]);
}

#[test]
fn round_trips_with_lost_events_are_left_out() {
    let mut events = Vec::new();
    let mut trips = Vec::new();
    for index in 0..5 {
        let (trip, more) = on_one_cpu(index * 1000);
        trips.push(trip);
        events.extend(more);
    }
    // Nothing was recorded in the last.
    trips.push(RoundTrip { start: 9000, end: 9100 });
    let gaps = vec![TraceGap { from: 1150, to: 2010, lost: 12 }];
    let breakdown = TraceBreakdown::of(&timeline(events, gaps), &trips, SHAPE);
    assert_eq!((breakdown.trips_with_lost_events, breakdown.trips_without_events), (2, 1));
    assert_eq!(breakdown.whole_ns, [200.0; 3]);
}

#[test]
fn corrected_parts_sum_to_the_whole() {
    let (trip, events) = on_one_cpu(0);
    let breakdown = TraceBreakdown::of(&timeline(events, Vec::new()), &[trip], SHAPE);
    // 40 for 20 hits: 2 each, and half of that for a part that begins at a clock read.
    let cost = ProbeCost { without_ns: 160.0, hit_ns: 2.0 };
    let corrected = breakdown.corrected(&cost);
    assert_eq!(corrected.parts[0], (RoundTripLeg::Out, PathPart::CallEntry, 9.0));
    assert_eq!(corrected.parts[1], (RoundTripLeg::Out, PathPart::SendPath, 13.0));
    assert!((corrected.scale - 1.0).abs() < 1e-9);
    // Where hits explain half of the difference, every part is scaled by the rest.
    let corrected = breakdown.corrected(&ProbeCost { hit_ns: 1.0, ..cost });
    assert!((corrected.scale - 160.0 / 180.0).abs() < 1e-9);
    let parts: f64 = corrected.parts.iter().map(|part| part.2).sum();
    assert!((parts + corrected.unexplained_ns - 160.0).abs() < 1e-9);
}

fn any_kind() -> impl Strategy<Value = TraceEventKind> {
    let call = || {
        prop_oneof![Just(SyscallKind::Send), Just(SyscallKind::Receive), Just(SyscallKind::Other)]
    };
    let thread = || prop_oneof![Just(0), Just(WORKER), Just(PEER), Just(99)];
    prop_oneof![
        call().prop_map(TraceEventKind::Enter),
        call().prop_map(TraceEventKind::Exit),
        thread().prop_map(TraceEventKind::Waking),
        thread().prop_map(TraceEventKind::Woken),
        (thread(), thread()).prop_map(|(from, to)| TraceEventKind::Switch { from, to }),
        Just(TraceEventKind::DeviceTransmit),
        Just(TraceEventKind::StackReceive),
        Just(TraceEventKind::DataReady),
        Just(TraceEventKind::Copy),
    ]
}

proptest! {
    #[test]
    fn parts_and_unexplained_sum_to_the_whole(
        events in prop::collection::vec(
            (0..2000_u64, 0..3_u32, prop_oneof![Just(0), Just(WORKER), Just(PEER)], any_kind()),
            0..60,
        ),
        start in 0..1000_u64,
        len in 0..1000_u64,
    ) {
        let events: Vec<_> =
            events.into_iter().map(|(at, cpu, thread, kind)| event(at, cpu, thread, kind)).collect();
        let trip = RoundTrip { start, end: start + len };
        let seen = events
            .iter()
            .any(|e| e.thread == WORKER && (trip.start..=trip.end).contains(&e.at));
        let breakdown = TraceBreakdown::of(&timeline(events, Vec::new()), &[trip], SHAPE);
        prop_assert_eq!(breakdown.trips_without_events, u64::from(!seen));
        if seen {
            let parts: f64 = breakdown.parts.iter().map(|part| part.per_trip_ns[0]).sum();
            prop_assert!((parts + breakdown.unexplained_ns[0] - len as f64).abs() < 1e-6);
            prop_assert!(breakdown.parts.iter().all(|part| part.per_trip_ns[0] >= 0.0));
        }
    }
}
