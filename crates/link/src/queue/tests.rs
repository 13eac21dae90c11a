//! Claims that hold for every discipline: nothing is lost from the account, and one seed gives one schedule.

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_wire::ip::{Ecn, TrafficClass};
use proptest::prelude::*;

use super::*;
use crate::fixture::{ElementFixture, udp};
use crate::spec::LimitSpec;

const FRAMES: u32 = 600;

/// One of each discipline; the limit in them is resolved elsewhere.
fn disciplines(ecn: bool) -> [QueueSpec; 9] {
    let limit = LimitSpec::Bdp(1_000);
    let (target, interval) = (Span::from_ms(5), Span::from_ms(100));
    [
        QueueSpec::DropTail { limit },
        QueueSpec::Red { min: 3_000, max: 9_000, p_max: 0.1, ecn, limit },
        QueueSpec::CoDel { target, interval, ecn, limit },
        QueueSpec::FqCoDel { flows: 8, quantum: 1_514, target, interval, ecn, limit },
        QueueSpec::Pie { target, update: Span::from_ms(15), ecn, limit },
        QueueSpec::Drr { flows: 8, quantum: 500, limit },
        QueueSpec::Csfq { flows: 8, average: interval, limit },
        QueueSpec::RedPd { min: 3_000, max: 9_000, p_max: 0.1, ecn, rtt: target, limit },
        QueueSpec::Priority { limit },
    ]
}

/// What happens next to a queue, after some time.
#[derive(Clone, Copy, Debug)]
enum Event {
    Arrives { flow: u8, len: u32, ecn: bool },
    Taken,
    Drained,
}

fn events() -> impl Strategy<Value = Vec<(u64, Event)>> {
    let event = prop_oneof![
        10 => (0..5_u8, 40..1_500_u32, any::<bool>())
            .prop_map(|(flow, len, ecn)| Event::Arrives { flow, len, ecn }),
        8 => Just(Event::Taken),
        1 => Just(Event::Drained),
    ];
    let after_us = prop_oneof![0..3_u64, 0..3_000_u64, 0..300_000_u64];
    proptest::collection::vec((after_us, event), 1..400)
}

fn limits() -> impl Strategy<Value = QueueLimit> {
    prop_oneof![
        (1..300_u64).prop_map(QueueLimit::Frames),
        (1..100_000_u64).prop_map(QueueLimit::Bytes)
    ]
}

/// What came in less what is accounted for: `[in, out, discarded, waiting]`, each frames and bytes.
fn run(
    spec: &QueueSpec,
    limit: QueueLimit,
    events: &[(u64, Event)],
) -> Result<Vec<u64>, TestCaseError> {
    let mut bench = ElementFixture::new(FRAMES);
    let mut queue = make(spec, limit, 1_000_000, Seed(23).stream("queue"));
    let mut now = Instant::ORIGIN;
    let (mut entered, mut left) = (FrameTotals::default(), FrameTotals::default());
    let mut taken = Vec::new();
    for (number, (after_us, event)) in (0_u64..).zip(events) {
        now += Span::from_us(*after_us);
        if queue.deadline().is_some_and(|due| due <= now) {
            queue.handle_deadline(now, &mut bench.context());
            prop_assert!(queue.deadline().is_none_or(|due| due > now), "{spec:?}");
        }
        match *event {
            Event::Arrives { flow, len, ecn } => {
                let ecn = if ecn { Ecn::Capable0 } else { Ecn::NotCapable };
                let bytes = udp(false, ecn.into(), (flow.into(), 9), 8);
                let mut frame = bench.frame(now, &bytes, len, u64::from(flow) << 61);
                frame.entered = Instant::ORIGIN + Span::from_ps(number);
                entered.add(&frame);
                queue.enqueue(now, frame, &mut bench.context());
            }
            Event::Taken => {
                let waiting = queue.backlog().frames;
                if let Some(frame) = queue.dequeue(now, &mut bench.context()) {
                    taken.push(frame.entered.since_origin().as_ps());
                    left.add(&frame);
                    bench.free(frame);
                } else {
                    prop_assert_eq!(queue.backlog().frames, 0, "of {} waiting", waiting);
                }
            }
            Event::Drained => {
                let mut drained = Vec::new();
                queue.drain(&mut drained);
                prop_assert_eq!(queue.backlog(), FrameTotals::default());
                let in_order = drained.is_sorted_by_key(|frame| frame.arrived);
                prop_assert!(in_order, "{:?}", spec);
                for frame in drained {
                    queue.enqueue(now, frame, &mut bench.context());
                }
            }
        }
        let (waiting, gone) = (queue.backlog(), bench.discards.total());
        prop_assert_eq!(entered.frames, left.frames + gone.0 + waiting.frames, "{:?}", spec);
        prop_assert_eq!(entered.bytes, left.bytes + gone.1 + waiting.bytes, "{:?}", spec);
        let free = u64::try_from(bench.pool.available().0).expect("a count");
        prop_assert_eq!(
            free + waiting.frames,
            u64::from(FRAMES),
            "{:?}: every frame is somewhere",
            spec
        );
        if !matches!(spec, QueueSpec::Priority { .. }) {
            prop_assert!(!limit.is_exceeded(waiting), "{:?} {:?}", spec, waiting);
        }
    }
    Ok(taken)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_frame_is_taken_discarded_or_waiting_and_one_seed_gives_one_schedule(
        limit in limits(), events in events(), ecn in any::<bool>(),
    ) {
        for spec in disciplines(ecn) {
            let taken = run(&spec, limit, &events)?;
            prop_assert_eq!(&taken, &run(&spec, limit, &events)?);
        }
    }
}

/// Linux's tables, as they stand in net/ipv4/route.c and net/sched/sch_generic.c.
#[test]
fn every_octet_falls_into_the_band_that_linuxs_two_tables_give() {
    const TOS_TO_PRIORITY: [usize; 16] = [0, 0, 0, 0, 2, 2, 2, 2, 6, 6, 6, 6, 4, 4, 4, 4];
    const PRIORITY_TO_BAND: [usize; 16] = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];
    for octet in 0..=255_u8 {
        let priority = TOS_TO_PRIORITY[usize::from((octet & 0x1e) >> 1)];
        assert_eq!(band(octet), PRIORITY_TO_BAND[priority], "{octet:#04x}");
    }
}

#[test]
fn urgent_frames_overtake_others_and_a_full_band_leaves_room_in_the_rest() {
    for v6 in [false, true] {
        let mut bench = ElementFixture::new(16);
        let mut priority = PriorityQueue::new(QueueLimit::Frames(2));
        let now = Instant::ORIGIN;
        for class in [0x08, 0x00, 0x08, 0x08, 0x10, 0x00] {
            let bytes = udp(v6, TrafficClass(class), (1, 2), 4);
            let frame = bench.frame(now, &bytes, 100, class.into());
            priority.enqueue(now, frame, &mut bench.context());
        }
        assert_eq!((priority.backlog().frames, bench.discarded(DiscardReason::Full)), (5, 1));
        let mut order = Vec::new();
        while let Some(frame) = priority.dequeue(now, &mut bench.context()) {
            order.push(frame.flow);
            bench.free(frame);
        }
        assert_eq!(order, [0x10, 0, 0, 8, 8]);
    }
}
