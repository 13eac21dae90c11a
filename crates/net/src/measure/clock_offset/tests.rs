//! Exchanges made from clocks and paths that are known, and what must be found in them.

use plumb_base::seed::{RandomStream, Seed};
use proptest::prelude::*;

use super::*;

/// Two clocks and a path between them.
#[derive(Clone, Debug)]
struct World {
    offset_ns: f64,
    drift_ppm: f64,
    forward_ns: f64,
    backward_ns: f64,
    /// Mean of the queueing delay, which is exponential, in each direction.
    jitter_ns: f64,
    /// Exchanges and the time between two of them.
    count: u32,
    every_ns: f64,
    /// By how much the far clock was set, and after which exchange.
    step: Option<(u32, f64)>,
    seed: u64,
}

const START_NS: f64 = 5e12;

impl World {
    fn offset_at(&self, near_ns: f64) -> f64 {
        let set =
            self.step.filter(|(index, _)| near_ns >= self.sent_ns(*index) - self.every_ns / 4.0);
        self.offset_ns
            + self.drift_ppm * 1e-6 * (near_ns - START_NS)
            + set.map_or(0.0, |step| step.1)
    }

    fn sent_ns(&self, index: u32) -> f64 {
        START_NS + f64::from(index) * self.every_ns
    }

    fn exchanges(&self) -> Vec<TimestampExchange> {
        let mut random = Seed(self.seed).stream("delays");
        let mut queueing = || {
            let uniform = (f64::from(random.next_u32()) + 1.0) / (f64::from(u32::MAX) + 2.0);
            -uniform.ln() * self.jitter_ns
        };
        let whole = |ns: f64| {
            #[expect(clippy::cast_possible_truncation, reason = "test times are whole days")]
            let ns = ns.round() as i64;
            ns.cast_unsigned()
        };
        (0..self.count)
            .map(|index| {
                let sent = self.sent_ns(index);
                let there = sent + self.forward_ns + queueing();
                let back = there + 20_000.0;
                let received = back + self.backward_ns + queueing();
                TimestampExchange {
                    sent_ns: whole(sent),
                    far_received_ns: whole(there + self.offset_at(there)),
                    far_sent_ns: whole(back + self.offset_at(back)),
                    received_ns: whole(received),
                }
            })
            .collect()
    }
}

fn worlds() -> impl Strategy<Value = World> {
    let clock = (-1e15..1e15_f64, -100.0..100.0_f64);
    let path = (10_000.0..200e6_f64, 0.1..10.0_f64, 0.0..0.5_f64);
    let plan = (20..600_u32, 1e6..50e6_f64, any::<u64>());
    (clock, path, plan).prop_map(|((offset_ns, drift_ppm), (there, ratio, jitter), plan)| World {
        offset_ns,
        drift_ppm,
        forward_ns: there,
        backward_ns: there * ratio,
        jitter_ns: there * jitter,
        count: plan.0,
        every_ns: plan.1,
        step: None,
        seed: plan.2,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn the_truth_is_within_what_the_exchanges_allow(world in worlds()) {
        let exchanges = world.exchanges();
        let estimate = ClockOffsetEstimate::new(&exchanges, ClockRelation::Apart).unwrap();
        prop_assert_eq!(estimate.steps.len(), 0, "{:?}", estimate.steps);
        let segment = estimate.segments[0];
        prop_assert!(segment.drift_ppm_min <= world.drift_ppm + 1e-3);
        prop_assert!(segment.drift_ppm_max >= world.drift_ppm - 1e-3);
        for near in [segment.from_ns, segment.to_ns] {
            let error = estimate.offset_at(near) - world.offset_at(near as f64);
            // Doubles of 10^15 ns are exact to an eighth.
            prop_assert!(error.abs() <= segment.bound_ns + 4.0, "{error} {segment:?}");
        }
    }

    #[test]
    fn the_truth_is_within_the_bound_before_and_after_the_exchanges_too(
        world in worlds(), beyond_s in 0.0..600.0_f64,
    ) {
        let estimate = ClockOffsetEstimate::new(&world.exchanges(), ClockRelation::Apart).unwrap();
        let segment = estimate.segments[0];
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "minutes")]
        let beyond_ns = (beyond_s * 1e9) as u64;
        for near in [segment.from_ns - beyond_ns, segment.to_ns + beyond_ns] {
            let error = estimate.offset_at(near) - world.offset_at(near as f64);
            prop_assert!(error.abs() <= estimate.bound_at(near) + 4.0, "{error} {segment:?}");
        }
    }

    #[test]
    fn without_jitter_offset_and_drift_are_exact_but_for_the_asymmetry(
        mut world in worlds(), quiet in Just(0.0)
    ) {
        world.jitter_ns = quiet;
        let estimate = ClockOffsetEstimate::new(&world.exchanges(), ClockRelation::Apart).unwrap();
        let segment = estimate.segments[0];
        let span = f64::from(world.count) * world.every_ns;
        prop_assert!((segment.drift_ppm - world.drift_ppm).abs() <= 1e6 * 8.0 / span);
        let asymmetry = (world.forward_ns - world.backward_ns) / 2.0;
        let error = estimate.offset_at(segment.from_ns) - world.offset_at(START_NS);
        prop_assert!((error - asymmetry).abs() <= 8.0 + asymmetry.abs() * 2e-4, "{error} {asymmetry}");
        // Half of the round trip, and what a drift that they leave open adds in the time of one.
        let trip = world.forward_ns + world.backward_ns;
        let open = (segment.drift_ppm_max - segment.drift_ppm_min) * 1e-6;
        prop_assert!(segment.bound_ns <= trip / 2.0 + open * trip + 8.0, "{segment:?}");
    }

    #[test]
    fn a_step_larger_than_the_round_trip_is_proved_where_it_was(
        mut world in worlds(), at in 0.2..0.8_f64, sign in any::<bool>(), times in 3.0..1000.0_f64,
    ) {
        let size = (world.forward_ns + world.backward_ns + 20.0 * world.jitter_ns) * times;
        let size = if sign { size } else { -size };
        let index = f64::from(world.count) * at;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "hundreds")]
        let index = index as u32;
        world.step = Some((index, size));
        // The clock is set a quarter of the interval before an exchange is sent. The one before
        // it is over by then: its delays, of at most 23 means each, take less than half.
        world.every_ns += 2.0 * (world.forward_ns + world.backward_ns + 46.0 * world.jitter_ns);
        prop_assume!(size.abs() > world.every_ns * 2e-3);
        let estimate = ClockOffsetEstimate::new(&world.exchanges(), ClockRelation::Apart).unwrap();
        // Heavy jitter can look like a step within the round trip, which is never proved.
        let proved: Vec<_> = estimate.steps.iter().filter(|step| step.proved).collect();
        prop_assert_eq!(proved.len(), 1, "{:?}", estimate.steps);
        let step = proved[0];
        let near = world.sent_ns(index);
        prop_assert!(step.after_ns as f64 <= near && near <= step.before_ns as f64);
        let slack = 2.0 * (world.forward_ns + world.backward_ns) + 0.05 * size.abs();
        prop_assert!((step.size_ns - size).abs() <= slack, "{} {size}", step.size_ns);
    }
}

fn wide_area() -> World {
    World {
        offset_ns: -3.7e12,
        drift_ppm: 40.0,
        forward_ns: 20e6,
        backward_ns: 30e6,
        jitter_ns: 100_000.0,
        count: 1000,
        every_ns: 10e6,
        step: None,
        seed: 7,
    }
}

#[test]
fn a_step_that_hides_within_the_round_trip_is_recognised() {
    for size in [5e6, -5e6] {
        let world = World { step: Some((600, size)), ..wide_area() };
        let estimate = ClockOffsetEstimate::new(&world.exchanges(), ClockRelation::Apart).unwrap();
        assert_eq!(estimate.steps.len(), 1, "{:?}", estimate.steps);
        let step = estimate.steps[0];
        assert!(!step.proved);
        assert!((step.size_ns - size).abs() < 0.2e6, "{step:?}");
        let near = world.sent_ns(600);
        assert!((step.after_ns as f64 - near).abs() < 5.0 * world.every_ns, "{step:?} {near}");
    }
}

#[test]
fn a_path_that_changes_and_queues_that_fill_in_turn_are_no_step() {
    let quiet = wide_area().exchanges();
    // Idle, then a queue on the way back, then one on the way there.
    let loaded = |index: usize| match index {
        0..300 => (0_u64, 0_u64),
        300..600 => (0, 40_000_000),
        _ => (40_000_000, 0),
    };
    let longer = |index: usize| if index < 500 { (0_u64, 0_u64) } else { (15_000_000, 0) };
    for added in [&loaded as &dyn Fn(usize) -> (u64, u64), &longer] {
        let exchanges: Vec<TimestampExchange> = quiet
            .iter()
            .enumerate()
            .map(|(index, exchange)| {
                let (there, back) = added(index);
                TimestampExchange {
                    far_received_ns: exchange.far_received_ns + there,
                    far_sent_ns: exchange.far_sent_ns + there,
                    received_ns: exchange.received_ns + there + back,
                    ..*exchange
                }
            })
            .collect();
        let estimate = ClockOffsetEstimate::new(&exchanges, ClockRelation::Apart).unwrap();
        assert_eq!(estimate.steps, Vec::new());
    }
}

/// Exchanges every 5 ms for 0.6 s on a path of 5 and 20 ms, while the near host, the link and the far host are each held
/// up at most three times for up to 0.4 s.
fn held_up(random: &mut RandomStream) -> Vec<TimestampExchange> {
    let mut up_to = |ns: f64| f64::from(random.next_u32()) / f64::from(u32::MAX) * ns;
    let held: [Vec<(f64, f64)>; 3] = std::array::from_fn(|_| {
        let times = (0..3).filter(|_| up_to(1.0) < 0.5).count();
        (0..times).map(|_| (up_to(600e6), up_to(400e6))).collect()
    });
    let jitter_ns = up_to(100_000.0);
    let mut when_held = |part: usize, mut ns: f64| {
        for (from, length) in &held[part] {
            if (*from..from + length).contains(&(ns - START_NS)) {
                ns = START_NS + from + length;
            }
        }
        ns + up_to(jitter_ns)
    };
    let mut previous = [0.0_f64; 4];
    let exchange = |index| {
        let sent = when_held(0, START_NS + f64::from(index) * 5e6).max(previous[0]);
        let forwarded = when_held(1, sent + 5e6);
        let there = when_held(2, forwarded).max(previous[1]);
        let back = when_held(2, there + 20_000.0).max(previous[2]);
        let returned = when_held(1, back + 20e6);
        let received = when_held(0, returned).max(previous[3]);
        previous = [sent, there, back, received];
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "times of hours"
        )]
        let whole = |ns: f64| ns as u64;
        TimestampExchange {
            sent_ns: whole(sent),
            far_received_ns: whole(there) + 100_000_000_000,
            far_sent_ns: whole(back) + 100_000_000_000,
            received_ns: whole(received),
        }
    };
    (0..120).map(exchange).collect()
}

#[test]
fn held_up_hosts_and_links_are_hardly_ever_taken_for_a_step() {
    let mut random = Seed(1).stream("hold-ups");
    let mut has_step = || {
        let exchanges = held_up(&mut random);
        !ClockOffsetEstimate::new(&exchanges, ClockRelation::Apart).unwrap().steps.is_empty()
    };
    let worlds = 20_000;
    let wrong = (0..worlds).filter(|_| has_step()).count();
    assert!(wrong <= 5, "{wrong} of {worlds}");
}

#[test]
fn drift_is_found_to_a_fraction_of_a_millionth_on_a_wide_area_path() {
    let world = wide_area();
    let segment =
        ClockOffsetEstimate::new(&world.exchanges(), ClockRelation::Apart).unwrap().segments[0];
    // A thousandth of the mean queueing delay over ten seconds.
    assert!((segment.drift_ppm - world.drift_ppm).abs() < 0.5, "{segment:?}");
    assert!((segment.bound_ns - 25e6).abs() < 0.1e6, "{segment:?}");
}

#[test]
fn one_clock_needs_no_estimate_and_has_no_bound() {
    let world = World { offset_ns: 0.0, drift_ppm: 0.0, ..wide_area() };
    let exchanges = world.exchanges();
    let estimate = ClockOffsetEstimate::new(&exchanges, ClockRelation::Same).unwrap();
    let (there, back) = one_way(&estimate, &exchanges).unwrap();
    assert!((there.least_ns - 20e6).abs() < 1e4 && (back.least_ns - 30e6).abs() < 1e4);
    assert!(there.bound_ns.abs() < 1e-9);
    assert_eq!(ClockOffsetEstimate::new(&[], ClockRelation::Same), None);
}

#[test]
fn delays_above_the_least_do_not_depend_on_the_asymmetry() {
    let world = wide_area();
    let exchanges = world.exchanges();
    let estimate = ClockOffsetEstimate::new(&exchanges, ClockRelation::Apart).unwrap();
    let (there, back) = one_way(&estimate, &exchanges).unwrap();
    for way in [there, back] {
        // The median of an exponential distribution is ln 2 of its mean; its least of a thousand is near zero.
        assert!((way.above_p50_ns - 69_300.0).abs() < 15_000.0, "{way:?}");
        assert!((way.least_ns - 25e6).abs() < 0.2e6, "each is half of the round trip: {way:?}");
    }
    assert!((there.least_ns - 20e6).abs() <= there.bound_ns);
}

#[test]
fn datagrams_long_after_the_exchanges_are_bounded_by_the_drift_that_these_leave_open() {
    use crate::measure::datagram::TransitTrace;
    let world = World { count: 20, ..wide_area() };
    let estimate = ClockOffsetEstimate::new(&world.exchanges(), ClockRelation::Apart).unwrap();
    let segment = estimate.segments[0];
    let mut trace = TransitTrace::new();
    let sent_ns = segment.to_ns + 60_000_000_000;
    #[expect(clippy::cast_possible_truncation, reason = "hours")]
    let ahead_ns = world.offset_at(sent_ns as f64).round() as i64;
    trace.record(sent_ns, sent_ns.wrapping_add(ahead_ns.cast_unsigned()) + 20_000_000);
    let delays = estimate.one_way(&trace, true).unwrap();
    let open_ns = (segment.drift_ppm_max - segment.drift_ppm_min) * 60_000.0;
    assert!(open_ns > 1e6, "{segment:?}");
    assert!((delays.bound_ns - segment.bound_ns - open_ns).abs() < 1e3, "{delays:?} {segment:?}");
    assert!((delays.least_ns - 20e6).abs() <= delays.bound_ns, "{delays:?}");
    // While they lasted, the bound is theirs.
    assert!((estimate.bound_at(segment.to_ns) - segment.bound_ns).abs() < 1e-6);
}

#[test]
fn where_a_clock_was_set_between_two_exchanges_the_bound_holds_the_step() {
    let size = 5e9;
    // One exchange at a time, so that there is a moment between two.
    let world = World { step: Some((600, size)), every_ns: 200e6, ..wide_area() };
    let estimate = ClockOffsetEstimate::new(&world.exchanges(), ClockRelation::Apart).unwrap();
    let [before, after] = estimate.segments.as_slice() else { panic!("{estimate:?}") };
    assert!(before.to_ns < after.from_ns, "{estimate:?}");
    let between = u64::midpoint(before.to_ns, after.from_ns);
    assert!(estimate.bound_at(between) >= 0.9 * size, "{estimate:?}");
    assert!(estimate.bound_at(before.from_ns) < 1e9 && estimate.bound_at(after.to_ns) < 1e9);
}

#[test]
fn moments_of_the_far_clock_come_back_to_the_near_one() {
    let world = wide_area();
    let estimate = ClockOffsetEstimate::new(&world.exchanges(), ClockRelation::Apart).unwrap();
    let near = 5_003_000_000_000_u64;
    #[expect(clippy::cast_possible_truncation, reason = "days")]
    let far = near.wrapping_add((estimate.offset_at(near).round() as i64).cast_unsigned());
    assert!(estimate.near_ns(far).abs_diff(near) <= 2);
}

#[test]
fn clocks_are_the_same_only_where_everything_that_tells_says_so() {
    let here = ClockIdentity::here();
    let known = !here.boot_id.is_empty() && !here.time_namespace.is_empty();
    assert_eq!(ClockRelation::of(&here, &here) == ClockRelation::Same, known);
    let other = ClockIdentity { boot_id: "another".to_owned(), ..here.clone() };
    assert_eq!(ClockRelation::of(&here, &other), ClockRelation::Apart);
    let unknown = ClockIdentity::default();
    assert_eq!(ClockRelation::of(&unknown, &unknown), ClockRelation::Apart);
}
