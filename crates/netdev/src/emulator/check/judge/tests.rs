//! The judge against worlds whose truth is known: what a perfect link would show, and what others would.

use plumb_base::seed::Seed;
use plumb_link::spec::LinkSpec;
use rand::RngExt;

use super::*;
use crate::emulator::check::plan::plan;
use crate::emulator::check::traffic::ReceivedProbe;

/// A world in which datagrams take `travel(number)` nanoseconds, or are lost.
fn seen(n: u32, apart_ns: u64, mut travel: impl FnMut(u32) -> Option<u64>) -> ObservedTraffic {
    let sent = (0..n).map(|number| u64::from(number) * apart_ns + 1_000_000);
    let sent: Vec<ProbeSendTimes> = sent
        .map(|begun| ProbeSendTimes { before_call_ns: begun, after_call_ns: begun + 5_000 })
        .collect();
    let mut received: Vec<ReceivedProbe> = (0..n)
        .filter_map(|number| {
            let begun = sent[usize::try_from(number).unwrap()].before_call_ns;
            Some(ReceivedProbe { number, at_ns: begun + travel(number)? })
        })
        .collect();
    received.sort_by_key(|received| received.at_ns);
    ObservedTraffic { sent, received, ..ObservedTraffic::default() }
}

fn verdict(link: &str, what: &str, sparse: &ObservedTraffic) -> Verdict {
    verdict_beside(link, what, sparse, UnmodeledDrops::default())
}

/// The same where the link says that it dropped frames.
fn verdict_beside(
    link: &str,
    what: &str,
    sparse: &ObservedTraffic,
    dropped: UnmodeledDrops,
) -> Verdict {
    let spec: LinkSpec = link.parse().unwrap();
    let way = &OneWayPath::both(&spec)[0];
    let plan = plan(way, Span::from_secs(5));
    let lines = judge(way, &plan, sparse, None, dropped);
    lines.into_iter().find(|line| line.property == what).unwrap().verdict
}

#[test]
fn a_delay_is_as_asked_in_the_middle_and_never_early() {
    let late = |ns: u64| seen(200, 5_000_000, move |_| Some(10_000_000 + ns));
    assert_eq!(verdict("delay=10ms", "delay", &late(30_000)), Verdict::Pass);
    assert_eq!(verdict("delay=10ms", "delay", &late(300_000)), Verdict::Fail);
    let early =
        seen(200, 5_000_000, |number| Some(if number == 7 { 9_990_000 } else { 10_030_000 }));
    assert_eq!(verdict("delay=10ms", "delay", &early), Verdict::Fail);
}

/// Frames that the driver handed over late, by so many nanoseconds.
fn handed_over(late: &[(u64, u64)]) -> Lateness {
    Lateness { handed_over: late.to_vec(), ..Lateness::default() }
}

fn of(link: &str, what: &str, sparse: &ObservedTraffic) -> Property {
    let spec: LinkSpec = link.parse().unwrap();
    let way = &OneWayPath::both(&spec)[0];
    let lines = judge(way, &plan(way, Span::from_secs(5)), sparse, None, UnmodeledDrops::default());
    lines.into_iter().find(|line| line.property == what).unwrap()
}

#[test]
fn a_delay_that_a_late_driver_alone_explains_is_untested_with_the_figure_and_any_other_is_off() {
    let late = |ns: u64, lateness| {
        let seen = seen(200, 5_000_000, move |_| Some(10_000_000 + ns));
        of("delay=10ms", "delay", &ObservedTraffic { lateness, ..seen })
    };
    // Every frame was handed over late by most of what is seen.
    let line = late(5_000_000, handed_over(&[(4_900_000, 200)]));
    assert_eq!(line.verdict, Verdict::Untested, "{line:?}");
    assert!(line.note.contains("delivered 200 frames more than 50.0 µs late"), "{}", line.note);
    assert!(line.numbers.contains(&("late_frames", 200.0)), "{line:?}");
    assert!(line.numbers.contains(&("late_ns_worst", 4_900_000.0)), "{line:?}");
    // Those that entered late.
    let entered =
        Lateness { entered: 150, entered_worst_ns: 5_000_000, ..handed_over(&[(9, 200)]) };
    assert_eq!(late(5_000_000, entered).verdict, Verdict::Untested);
    // The link itself is off by more than that, or the driver was late with too few.
    assert_eq!(late(5_000_000, handed_over(&[(4_700_000, 200)])).verdict, Verdict::Fail);
    assert_eq!(late(5_000_000, handed_over(&[(9_000_000, 90), (9, 110)])).verdict, Verdict::Fail);
    assert_eq!(late(5_000_000, Lateness::default()).verdict, Verdict::Fail);
    // A late driver cannot explain frames that come early.
    let early =
        seen(200, 5_000_000, |number| Some(if number == 7 { 9_990_000 } else { 11_000_000 }));
    let early = ObservedTraffic { lateness: handed_over(&[(5_000_000, 200)]), ..early };
    assert_eq!(of("delay=10ms", "delay", &early).verdict, Verdict::Fail);
    // A delay within bounds passes whatever the driver says.
    assert_eq!(late(30_000, handed_over(&[(5_000_000, 3)])).verdict, Verdict::Pass);
}

#[test]
fn jitter_and_its_mean_are_untested_where_as_many_draws_as_are_wrong_were_told_late() {
    let mut stream = Seed(3).stream("late draws");
    let draws: Vec<u64> = (0..300)
        .map(|n| {
            20_000_000
                + stream.random_range(0..20_000_000)
                + if n % 3 == 0 { 30_000_000 } else { 0 }
        })
        .collect();
    let told = |lateness| ObservedTraffic {
        lateness,
        ..seen(300, 90_000_000, |number| Some(draws[usize::try_from(number).unwrap()]))
    };
    for what in ["jitter", "delay"] {
        let verdict = |lateness| of("delay=20ms..40ms", what, &told(lateness)).verdict;
        assert_eq!(verdict(Lateness::default()), Verdict::Fail, "{what}");
        assert_eq!(verdict(handed_over(&[(30_000_000, 4)])), Verdict::Fail, "{what}");
        assert_eq!(verdict(handed_over(&[(30_000_000, 100)])), Verdict::Untested, "{what}");
    }
}

#[test]
fn jitter_is_told_from_another_distribution_of_the_same_mean() {
    let mut stream = Seed(3).stream("jitter");
    let uniform = seen(300, 50_000_000, |_| Some(20_000_000 + stream.random_range(0..20_000_000)));
    assert_eq!(verdict("delay=20ms..40ms", "jitter", &uniform), Verdict::Pass);
    assert_eq!(verdict("delay=20ms..40ms", "delay", &uniform), Verdict::Pass);
    assert_eq!(verdict("delay=10ms..50ms", "jitter", &uniform), Verdict::Fail);
    assert_eq!(verdict("delay=10ms..50ms", "delay", &uniform), Verdict::Pass);
}

#[test]
fn loss_is_judged_by_its_interval_and_none_by_the_first() {
    let lossy = |every: u32| seen(2_000, 1_000_000, move |n| (n % every != 0).then_some(1_000_000));
    assert_eq!(verdict("delay=1ms,loss=2%", "loss", &lossy(50)), Verdict::Pass);
    assert_eq!(verdict("delay=1ms,loss=2%", "loss", &lossy(10)), Verdict::Fail);
    assert_eq!(verdict("delay=1ms,loss=2%", "loss", &lossy(1_000)), Verdict::Fail);
    assert_eq!(verdict("delay=1ms", "loss", &lossy(2_000)), Verdict::Fail);
    assert_eq!(
        verdict("delay=1ms", "loss", &seen(50, 1_000_000, |_| Some(1_000_000))),
        Verdict::Pass
    );
}

#[test]
fn order_is_off_when_it_is_not_kept_and_when_it_is_kept_but_should_not_be() {
    let swapped = seen(500, 2_000_000, |n| Some(if n % 20 == 0 { 8_000_000 } else { 1_000_000 }));
    let straight = seen(500, 2_000_000, |_| Some(1_000_000));
    assert_eq!(verdict("delay=1ms", "order", &swapped), Verdict::Fail);
    assert_eq!(verdict("delay=1ms", "order", &straight), Verdict::Pass);
    assert_eq!(verdict("delay=1ms,reorder=5%/7ms", "order", &swapped), Verdict::Pass);
    assert_eq!(verdict("delay=1ms,reorder=5%/7ms", "order", &straight), Verdict::Fail);
    assert_eq!(count_overtaken(&swapped), (25, 3));
}

/// What a link of `rate` shows of a busy sender: each frame leaves when those before it have, `stretch` times as slow.
fn busy(link: &str, stretch: f64) -> Property {
    busy_beside(link, stretch, Lateness::default())
}

/// The same while the driver says that it was late.
fn busy_beside(link: &str, stretch: f64, lateness: Lateness) -> Property {
    let spec: LinkSpec = link.parse().unwrap();
    let way = &OneWayPath::both(&spec)[0];
    let plan = plan(way, Span::from_secs(5));
    let traffic = &plan.busy.as_ref().unwrap().traffic;
    let bottleneck = plan.busy.as_ref().unwrap().bottleneck;
    let wire = wire_len(traffic.payload, bottleneck.overhead) as f64;
    let each = wire * 8e9 / bottleneck.rate.bits_per_second() as f64 * stretch;
    let (mut free, mut seen) =
        (0.0_f64, ObservedTraffic { lateness, ..ObservedTraffic::default() });
    for (number, moment) in (0..).zip(&traffic.send_times) {
        let begun = moment.as_ns_f64() + 1e6;
        free = free.max(begun) + each;
        let ns = |at: f64| Span::from_secs_f64(at / 1e9).as_ns();
        seen.sent
            .push(ProbeSendTimes { before_call_ns: ns(begun), after_call_ns: ns(begun) + 3_000 });
        seen.received.push(ReceivedProbe { number, at_ns: ns(free) });
    }
    rate(way, &plan, Some(&seen))
}

#[test]
fn a_rate_is_told_from_one_that_is_a_hundredth_slower() {
    for link in ["rate=1200bit", "rate=10mbit", "rate=100mbit,overhead=24", "rate=1gbit"] {
        let line = busy(link, 1.0);
        assert_eq!(line.verdict, Verdict::Pass, "{line:?}");
        let error = line.numbers.iter().find(|(name, _)| *name == "error_share").unwrap().1;
        assert!(error.abs() < 1e-4, "{line:?}");
        assert_eq!(busy(link, 1.01).verdict, Verdict::Fail, "{link}");
    }
}

#[test]
fn a_rate_that_the_time_without_a_driver_explains_is_untested_and_a_rate_that_is_off_by_more_is_off()
 {
    // The busy part of a hundredth more than a second: ten milliseconds were lost.
    let link = "rate=10mbit";
    let idle = |away_ns| Lateness {
        entered: 400,
        entered_worst_ns: 3_000_000,
        stalled_ns: away_ns,
        ..handed_over(&[(1_000, 800)])
    };
    let line = busy_beside(link, 1.01, idle(20_000_000));
    assert_eq!(line.verdict, Verdict::Untested, "{line:?}");
    assert!(line.note.contains("took 400 in late, max 3.00 ms"), "{}", line.note);
    assert_eq!(busy_beside(link, 1.01, idle(1_000_000)).verdict, Verdict::Fail);
    assert_eq!(busy_beside(link, 1.2, idle(20_000_000)).verdict, Verdict::Fail);
    // No link is the faster for frames that reach it late.
    assert_eq!(busy_beside(link, 0.995, idle(20_000_000)).verdict, busy(link, 0.995).verdict);
    assert_eq!(busy_beside(link, 1.0, idle(20_000_000)).verdict, Verdict::Pass);
}

/// The same with delays of one to five milliseconds, in order.
fn busy_and_varying(stretch: f64) -> Property {
    let spec: LinkSpec = "rate=60mbit,delay=1ms..5ms".parse().unwrap();
    let way = &OneWayPath::both(&spec)[0];
    let plan = plan(way, Span::from_secs(5));
    let traffic = &plan.busy.as_ref().unwrap().traffic;
    let each = wire_len(traffic.payload, 0) as f64 * 8e9 / 60e6 * stretch;
    let mut stream = Seed(9).stream("delays");
    let (mut free, mut last, mut seen) = (0.0_f64, 0.0_f64, ObservedTraffic::default());
    for (number, moment) in (0..).zip(&traffic.send_times) {
        let begun = moment.as_ns_f64() + 1e6;
        free = free.max(begun) + each;
        last = last.max(free + 1e6 + 4e6 * stream.random::<f64>());
        let ns = |at: f64| Span::from_secs_f64(at / 1e9).as_ns();
        seen.sent
            .push(ProbeSendTimes { before_call_ns: ns(begun), after_call_ns: ns(begun) + 3_000 });
        seen.received.push(ReceivedProbe { number, at_ns: ns(last) });
    }
    rate(way, &plan, Some(&seen))
}

#[test]
fn a_rate_behind_delays_that_vary_is_told_without_choosing_among_them() {
    let line = busy_and_varying(1.0);
    assert_eq!(line.verdict, Verdict::Pass, "{line:?}");
    let error = line.numbers.iter().find(|(name, _)| *name == "error_share").unwrap().1;
    assert!(error.abs() < 0.002, "{line:?}");
    assert_eq!(busy_and_varying(1.03).verdict, Verdict::Fail);
}

#[test]
fn what_the_receiver_could_not_take_is_no_loss_of_the_link() {
    let full =
        ObservedTraffic { overrun: 3, ..seen(50, 1_000_000, |n| (n > 3).then_some(1_000_000)) };
    assert_eq!(verdict("delay=1ms", "loss", &full), Verdict::Untested);
}

#[test]
fn what_a_full_queue_or_the_driver_dropped_is_no_loss_and_excuses_no_other() {
    let lossy = |every: u32| seen(2_000, 1_000_000, move |n| (n % every != 0).then_some(1_000_000));
    let loss = |link: &str, seen: &ObservedTraffic, by_queues, by_driver| {
        verdict_beside(link, "loss", seen, UnmodeledDrops { by_queues, by_driver })
    };
    // Forty of two thousand.
    assert_eq!(loss("delay=1ms", &lossy(50), 30, 10), Verdict::Untested);
    assert_eq!(loss("delay=1ms", &lossy(50), 0, 40), Verdict::Untested);
    assert_eq!(loss("delay=1ms", &lossy(50), 30, 9), Verdict::Fail, "one is missing still");
    assert_eq!(loss("delay=1ms,loss=2%", &lossy(10), 160, 0), Verdict::Untested);
    assert_eq!(loss("delay=1ms,loss=2%", &lossy(10), 60, 0), Verdict::Fail);
    assert_eq!(loss("delay=1ms,loss=10%", &lossy(50), 40, 0), Verdict::Fail, "too little was lost");
    assert_eq!(loss("delay=1ms,loss=2%", &lossy(50), 5, 5), Verdict::Pass);
}

#[test]
fn a_sender_that_leaves_the_link_idle_tells_nothing_of_its_rate() {
    assert_eq!(busy("rate=10mbit", 0.5).verdict, Verdict::Untested);
    assert_eq!(busy("rate=10mbit", 0.5).note, "the sender could not keep the link busy");
}

#[test]
fn wilsons_interval_is_what_its_formula_gives_by_hand() {
    // 5 of 100 at 99.9 %: z = 3.290527.
    let (lo, hi) = wilson(0.05, 100.0);
    assert!((lo - 0.012_886).abs() < 1e-5 && (hi - 0.175_04).abs() < 1e-5, "{lo} {hi}");
}
