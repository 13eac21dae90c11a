//! Paths and breakdowns of round trips whose truth is known.

use proptest::prelude::*;

use super::super::{Breakdown, Gap, ProbeCost, Timeline};
use super::*;
use crate::clock::Stopwatch;

const WORKER: u32 = 7;
const PEER: u32 = 8;
const SHAPE: Shape = Shape { worker: WORKER, peer: PEER };

fn event(at: u64, cpu: u32, thread: u32, kind: Kind) -> Event {
    Event { at, cpu, thread, kind }
}

fn timeline(events: Vec<Event>, gaps: Vec<Gap>) -> Timeline {
    Timeline::new(Stopwatch::new(None), events, gaps)
}

/// A UDP round trip of 200 ns on one CPU, from `start`.
fn on_one_cpu(start: u64) -> (RoundTrip, Vec<Event>) {
    use Kind::*;
    let events = [
        (10, WORKER, Enter(Call::Send)),
        (25, WORKER, DeviceTransmit),
        (30, WORKER, StackReceive),
        (42, WORKER, DataReady),
        (45, WORKER, Waking(PEER)),
        (50, WORKER, Exit(Call::Send)),
        (52, WORKER, Enter(Call::Receive)),
        (60, WORKER, Switch { from: WORKER, to: PEER }),
        (71, PEER, Copy),
        (80, PEER, Exit(Call::Receive)),
        (101, PEER, Enter(Call::Send)),
        (120, PEER, DeviceTransmit),
        (130, PEER, StackReceive),
        (140, PEER, DataReady),
        (145, PEER, Waking(WORKER)),
        (150, PEER, Exit(Call::Send)),
        (152, PEER, Enter(Call::Receive)),
        (160, PEER, Switch { from: PEER, to: WORKER }),
        (170, WORKER, Copy),
        (181, WORKER, Exit(Call::Receive)),
    ];
    let events = events.map(|(at, thread, kind)| event(start + at, 3, thread, kind)).to_vec();
    (RoundTrip { start, end: start + 200 }, events)
}

#[test]
fn on_one_cpu_every_part_is_as_long_as_it_was() {
    let (trip, events) = on_one_cpu(1000);
    let breakdown = Breakdown::of(&timeline(events, Vec::new()), &[trip], SHAPE);
    let parts: Vec<_> = breakdown.parts.iter().map(|p| (p.leg, p.part, p.per_trip_ns[0])).collect();
    let expected = [
        (Leg::Out, Part::CallEntry, 10.0),
        (Leg::Out, Part::SendPath, 15.0),
        (Leg::Out, Part::Device, 5.0),
        (Leg::Out, Part::ReceivePath, 12.0),
        (Leg::Out, Part::WakeUp, 3.0),
        (Leg::Out, Part::SendReturn, 5.0),
        (Leg::Out, Part::BetweenCalls, 2.0),
        (Leg::Out, Part::Sleep, 8.0),
        (Leg::Out, Part::Switch, 11.0),
        (Leg::Out, Part::CopyAndReturn, 9.0),
        (Leg::Peer, Part::PeerUser, 21.0),
        (Leg::Back, Part::SendPath, 19.0),
        (Leg::Back, Part::Device, 10.0),
        (Leg::Back, Part::ReceivePath, 10.0),
        (Leg::Back, Part::WakeUp, 5.0),
        (Leg::Back, Part::SendReturn, 5.0),
        (Leg::Back, Part::BetweenCalls, 2.0),
        (Leg::Back, Part::Sleep, 8.0),
        (Leg::Back, Part::Switch, 10.0),
        (Leg::Back, Part::CopyAndReturn, 11.0),
        (Leg::Back, Part::CallExit, 19.0),
    ];
    assert_eq!(parts, expected);
    assert_eq!(breakdown.unexplained_ns, [0.0]);
    assert!((breakdown.events_per_trip() - 20.0).abs() < 1e-9);
    assert!((breakdown.part_mean_ns(Part::ReceivePath) - 22.0).abs() < 1e-9);
}

/// The same over two CPUs: the receiver's CPU was idle, and the sender goes on beside it.
fn on_two_cpus() -> (RoundTrip, Vec<Event>) {
    use Kind::*;
    let events = [
        (10, 0, WORKER, Enter(Call::Send)),
        (30, 0, WORKER, Waking(PEER)),
        (40, 0, WORKER, Exit(Call::Send)),
        (45, 0, WORKER, Enter(Call::Receive)),
        (60, 1, 0, Woken(PEER)),
        (61, 0, WORKER, Switch { from: WORKER, to: 0 }),
        (70, 1, 0, Switch { from: 0, to: PEER }),
        (85, 1, PEER, Exit(Call::Receive)),
        (95, 1, PEER, Enter(Call::Send)),
        (110, 1, PEER, Waking(WORKER)),
        (120, 1, PEER, Exit(Call::Send)),
        // This kernel does not trace the idle task of CPU 0.
        (180, 0, WORKER, Exit(Call::Receive)),
        (190, 1, PEER, Switch { from: PEER, to: 0 }),
    ];
    let events = events.map(|(at, cpu, thread, kind)| event(at, cpu, thread, kind)).to_vec();
    (RoundTrip { start: 0, end: 200 }, events)
}

#[test]
fn across_cpus_the_path_leaves_the_sender_where_it_wakes_the_receiver() {
    let (trip, events) = on_two_cpus();
    let mut stretches = Vec::new();
    assert!(cut(trip, &events, SHAPE, &mut stretches));
    let parts: Vec<_> = stretches.iter().map(|s| (s.leg, s.part, s.ticks)).collect();
    let expected = [
        (Leg::Out, Part::CallEntry, 10),
        (Leg::Out, Part::SendPath, 20),
        (Leg::Out, Part::WakeUp, 30),
        (Leg::Out, Part::WakeUp, 10),
        (Leg::Out, Part::Switch, 15),
        (Leg::Peer, Part::PeerUser, 10),
        (Leg::Back, Part::SendPath, 15),
        (Leg::Back, Part::WakeAndSwitch, 70),
        (Leg::Back, Part::CallExit, 20),
    ];
    assert_eq!(parts, expected);
    // What the sender does beside the path costs the path no probe.
    let hits: f64 = stretches.iter().map(|stretch| stretch.events).sum();
    assert!((hits - 8.0).abs() < 1e-9, "{hits}");
}

#[test]
fn time_that_another_task_takes_is_its_own_part() {
    let (trip, mut events) = on_one_cpu(0);
    // In the peer's user space, another task has the CPU for 12.
    events.insert(10, event(85, 3, PEER, Kind::Switch { from: PEER, to: 99 }));
    events.insert(11, event(97, 3, 99, Kind::Switch { from: 99, to: PEER }));
    let breakdown = Breakdown::of(&timeline(events, Vec::new()), &[trip], SHAPE);
    assert!((breakdown.part_mean_ns(Part::Others) - 17.0).abs() < 1e-9);
    assert_eq!(breakdown.unexplained_ns, [0.0]);
}

#[test]
fn a_tracepoint_that_is_missing_makes_time_unexplained_and_not_somebody_elses() {
    let (trip, mut events) = on_one_cpu(0);
    events.retain(|event| event.kind != Kind::StackReceive);
    let breakdown = Breakdown::of(&timeline(events, Vec::new()), &[trip], SHAPE);
    // From the driver to the socket's queue, both ways: 17 and 20.
    assert_eq!(breakdown.unexplained_ns, [37.0]);
    let edges: Vec<_> = breakdown.unexplained_edges.into_iter().collect();
    assert_eq!(edges[0], ("back: DeviceTransmit to DataReady".to_owned(), 20.0));
    assert_eq!(edges[1], ("out: DeviceTransmit to DataReady".to_owned(), 17.0));
}

#[test]
fn round_trips_that_lost_events_are_left_out_and_counted() {
    let mut events = Vec::new();
    let mut trips = Vec::new();
    for index in 0..5 {
        let (trip, more) = on_one_cpu(index * 1000);
        trips.push(trip);
        events.extend(more);
    }
    // Nothing was recorded in the last.
    trips.push(RoundTrip { start: 9000, end: 9100 });
    let gaps = vec![Gap { from: 1150, to: 2010, lost: 12 }];
    let breakdown = Breakdown::of(&timeline(events, gaps), &trips, SHAPE);
    assert_eq!((breakdown.torn, breakdown.unseen, breakdown.lost), (2, 1, 12));
    assert_eq!(breakdown.whole_ns, [200.0; 3]);
}

#[test]
fn a_correction_takes_each_hit_off_where_it_was_and_sums_to_the_whole() {
    let (trip, events) = on_one_cpu(0);
    let breakdown = Breakdown::of(&timeline(events, Vec::new()), &[trip], SHAPE);
    // 40 for 20 hits: 2 each, and half of that for a part that begins at a clock read.
    let cost = ProbeCost { with_ns: 200.0, without_ns: 160.0, hit_ns: 2.0 };
    assert!(cost.must_be_corrected());
    let corrected = breakdown.corrected(&cost);
    assert_eq!(corrected.parts[0], (Leg::Out, Part::CallEntry, 9.0));
    assert_eq!(corrected.parts[1], (Leg::Out, Part::SendPath, 13.0));
    assert!((corrected.scale - 1.0).abs() < 1e-9);
    // Where hits explain half of the difference, every part is scaled by the rest.
    let corrected = breakdown.corrected(&ProbeCost { hit_ns: 1.0, ..cost });
    assert!((corrected.scale - 160.0 / 180.0).abs() < 1e-9);
    let parts: f64 = corrected.parts.iter().map(|part| part.2).sum();
    assert!((parts + corrected.unexplained_ns - 160.0).abs() < 1e-9);
}

#[test]
fn blocks_join_with_their_parts_in_their_own_round_trips() {
    let (trip, events) = on_one_cpu(0);
    let one = Breakdown::of(&timeline(events, Vec::new()), &[trip], SHAPE);
    let (trip, events) = on_two_cpus();
    let two = Breakdown::of(&timeline(events, Vec::new()), &[trip], SHAPE);
    let all = Breakdown::merged([one, two]).unwrap();
    assert!((all.events_per_trip() - 14.0).abs() < 1e-9, "{}", all.events_per_trip());
    for trip in 0..2 {
        let parts: f64 = all.parts.iter().map(|part| part.per_trip_ns[trip]).sum();
        assert!((parts + all.unexplained_ns[trip] - all.whole_ns[trip]).abs() < 1e-9);
    }
    let order: Vec<_> = all.parts.iter().map(|part| (part.leg, part.part)).collect();
    assert!(order.is_sorted());
}

fn any_kind() -> impl Strategy<Value = Kind> {
    let call = || prop_oneof![Just(Call::Send), Just(Call::Receive), Just(Call::Other)];
    let thread = || prop_oneof![Just(0), Just(WORKER), Just(PEER), Just(99)];
    prop_oneof![
        call().prop_map(Kind::Enter),
        call().prop_map(Kind::Exit),
        thread().prop_map(Kind::Waking),
        thread().prop_map(Kind::Woken),
        (thread(), thread()).prop_map(|(from, to)| Kind::Switch { from, to }),
        Just(Kind::DeviceQueue),
        Just(Kind::DeviceTransmit),
        Just(Kind::DeviceReceive),
        Just(Kind::StackReceive),
        Just(Kind::DataReady),
        Just(Kind::Copy),
    ]
}

proptest! {
    #[test]
    fn whatever_happens_the_parts_and_the_unexplained_are_the_whole(
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
        let breakdown = Breakdown::of(&timeline(events, Vec::new()), &[trip], SHAPE);
        prop_assert_eq!(breakdown.unseen, u64::from(!seen));
        if seen {
            let parts: f64 = breakdown.parts.iter().map(|part| part.per_trip_ns[0]).sum();
            prop_assert!((parts + breakdown.unexplained_ns[0] - len as f64).abs() < 1e-6);
            prop_assert!(breakdown.parts.iter().all(|part| part.per_trip_ns[0] >= 0.0));
        }
    }
}
