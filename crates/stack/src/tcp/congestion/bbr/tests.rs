//! BBR over a bottleneck, and its reactions to single events.

use super::super::CongestionChoice;
use super::super::bottleneck::{PathUnderTest, ack_of};
use super::*;

const MSS: u64 = 1_000;

/// What an acknowledgement each `ms` of `segments` looks like, on a path of 100 ms that carries them.
fn feed(bbr: &mut Bbr, window: &mut CongestionWindow, from_ms: u64, rounds: u64, rate: u64) {
    let round = Span::from_ms(100);
    for n in 0..rounds * 10 {
        let now = Instant::ORIGIN + Span::from_ms(from_ms + n * 10);
        let delivered = bytes_in(rate, Span::from_ms(10));
        let in_round = bytes_in(rate, round);
        let total = bbr.delivered + delivered;
        let sample = RateSample {
            delivered: in_round,
            interval: round,
            delivered_before: total.saturating_sub(in_round),
            delivered_total: total,
            is_app_limited: false,
        };
        let ack = AckEvent {
            now,
            flight: in_round,
            flight_before: in_round,
            rate: Some(sample),
            ..ack_of(delivered)
        };
        bbr.on_ack(window, &ack);
    }
}

fn begun() -> (Bbr, CongestionWindow) {
    (
        Bbr::new(1),
        CongestionWindow { cwnd: 10 * MSS, ssthresh: u64::MAX, mss: 1_000, initial: 10 * MSS },
    )
}

#[test]
fn it_reaches_the_rate_of_a_bottleneck_without_filling_the_buffer() {
    let path = PathUnderTest::long();
    let outcome = path.run(CongestionChoice::Bbr, Span::from_secs(40));
    assert!(outcome.goodput > 0.95 * path.rate as f64, "{outcome:?}");
    assert!(outcome.queue_mean < 0.25 * path.rtt.as_secs_f64(), "{outcome:?}");
    assert_eq!(outcome.signals, 0);
    // Once in ten seconds the window is four segments, to measure the round-trip time.
    assert_eq!(outcome.cwnd_min, 4 * MSS);
}

#[test]
fn random_loss_does_not_take_the_rate() {
    let path = PathUnderTest { loss_period: Some(101), ..PathUnderTest::long() };
    let bbr = path.run(CongestionChoice::Bbr, Span::from_secs(40));
    let reno = path.run(CongestionChoice::NewReno, Span::from_secs(40));
    assert!(bbr.goodput > 0.85 * path.rate as f64, "{bbr:?}");
    assert!(reno.goodput < 0.1 * path.rate as f64, "{reno:?}");
}

#[test]
fn a_shallow_buffer_still_gives_the_rate() {
    // A tenth of the bandwidth-delay product.
    let path = PathUnderTest { buffer: 50_000, ..PathUnderTest::long() };
    let outcome = path.run(CongestionChoice::Bbr, Span::from_secs(40));
    assert!(outcome.goodput > 0.85 * path.rate as f64, "{outcome:?}");
}

#[test]
fn three_rounds_without_growth_end_startup_and_what_it_queued_is_drained() {
    let (mut bbr, _) = begun();
    let mut sample = RateSample {
        delivered: 0,
        interval: Span::from_secs(1),
        delivered_before: 0,
        delivered_total: 0,
        is_app_limited: false,
    };
    // 25 % more is growth, 24 % is none.
    let rates = [(100_000, false), (200_000, false), (248_000, false), (250_000, false)];
    let flat = [(312_000, false), (312_000, false), (312_000, true)];
    for (rate, is_full) in rates.into_iter().chain(flat) {
        sample.delivered = rate;
        bbr.update_bandwidth(Some(&sample));
        bbr.update_full(Some(&sample));
        assert_eq!(bbr.is_full, is_full, "{rate}");
    }
    let (mut bbr, mut window) = begun();
    feed(&mut bbr, &mut window, 1_000, 20, 1_000_000);
    assert_eq!((bbr.is_full, bbr.mode), (true, BbrMode::ProbeBandwidth));
    bbr.mode = BbrMode::Drain;
    let now = Instant::ORIGIN + Span::from_secs(3);
    bbr.on_ack(&mut window, &AckEvent { now, flight: 300 * MSS, ..ack_of(MSS) });
    assert_eq!(bbr.mode, BbrMode::Drain);
    let rate = bbr.pacing_rate(&window, None).unwrap();
    // ln 2 / 2 of the bandwidth, less a percent, in 1/256.
    assert!((340_000..345_000).contains(&rate), "{rate}");
}

#[test]
fn a_limited_sample_counts_only_where_it_shows_more() {
    let (mut bbr, _) = begun();
    let sample = |delivered, is_app_limited| RateSample {
        delivered,
        interval: Span::from_secs(1),
        delivered_before: 0,
        delivered_total: 0,
        is_app_limited,
    };
    for (delivered, is_app_limited, bandwidth) in
        [(1_000, true, 1_000), (2_000, false, 2_000), (1_500, true, 2_000), (2_500, true, 2_500)]
    {
        bbr.update_bandwidth(Some(&sample(delivered, is_app_limited)));
        assert_eq!(bbr.bandwidth.get(), bandwidth);
    }
    for _ in 0..30 {
        bbr.update_bandwidth(Some(&sample(100, true)));
    }
    assert_eq!(bbr.bandwidth.get(), 2_500, "an idle application does not age the estimate");
}

#[test]
fn the_first_round_of_recovery_conserves_segments_and_its_end_restores_the_window() {
    let (mut bbr, mut window) = begun();
    feed(&mut bbr, &mut window, 1_000, 20, 1_000_000);
    let before = window.cwnd;
    bbr.on_congestion(&mut window, Instant::ORIGIN, 100 * MSS, CongestionSignal::Loss);
    let now = Instant::ORIGIN + Span::from_ms(3_001);
    let ack =
        AckEvent { now, lost: 40 * MSS, flight: 59 * MSS, flight_before: 100 * MSS, ..ack_of(MSS) };
    bbr.on_ack(&mut window, &ack);
    assert_eq!(window.cwnd, 60 * MSS);
    bbr.on_ack(&mut window, &AckEvent { lost: 0, flight: 59 * MSS, ..ack });
    assert_eq!(window.cwnd, 60 * MSS);
    bbr.on_recovered(&mut window, now);
    assert_eq!(window.cwnd, before);
}

#[test]
fn the_window_after_a_timeout_is_restored_when_that_is_recovered() {
    let (mut bbr, mut window) = begun();
    feed(&mut bbr, &mut window, 1_000, 20, 1_000_000);
    let before = window.cwnd;
    bbr.on_timeout(&mut window, Instant::ORIGIN, 100 * MSS, true);
    window.cwnd = MSS;
    bbr.on_timeout(&mut window, Instant::ORIGIN, MSS, false);
    window.cwnd = MSS;
    bbr.on_recovered(&mut window, Instant::ORIGIN);
    assert_eq!(window.cwnd, before);
}

#[test]
fn it_paces_one_percent_below_the_bandwidth() {
    let (mut bbr, mut window) = begun();
    assert_eq!(
        bbr.pacing_rate(&window, None),
        Some(10 * MSS * 1_000 * HIGH_GAIN / UNIT / 100 * 99)
    );
    feed(&mut bbr, &mut window, 1_000, 20, 1_000_000);
    bbr.mode = BbrMode::ProbeBandwidth;
    bbr.cycle_index = 2;
    bbr.cycle_at = Instant::ORIGIN + Span::from_secs(100);
    feed(&mut bbr, &mut window, 3_000, 1, 1_000_000);
    assert_eq!(bbr.pacing_rate(&window, None), Some(990_000));
}

#[test]
fn seeds_differ_in_their_first_phase_and_none_begins_by_draining() {
    let phases: Vec<_> = (0..100)
        .map(|seed| {
            let mut bbr = Bbr::new(seed);
            bbr.probe_bandwidth(Instant::ORIGIN);
            bbr.cycle_index
        })
        .collect();
    assert!(!phases.contains(&1));
    for phase in [0, 2, 3, 4, 5, 6, 7] {
        assert!(phases.contains(&phase), "{phase}");
    }
}

#[test]
fn the_maximum_of_the_window_is_kept_and_an_older_one_is_not() {
    let values = [5, 9, 3, 7, 1, 8, 2, 2, 2, 2, 2, 2, 2, 6, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1];
    let mut max = WindowedMax::new(10);
    for (round, &value) in (0..).zip(&values) {
        max.update(round, value);
        let at = usize::try_from(round).unwrap();
        let within = |rounds| *values[at.saturating_sub(rounds)..=at].iter().max().unwrap();
        // Three samples stand for the window: never more than its maximum, never less than that of its last quarter.
        assert!(max.get() <= within(10), "{} in round {round}", max.get());
        assert!(max.get() >= within(2), "{} in round {round}", max.get());
    }
    assert_eq!(max.get(), 1);
    max.update(100, 4);
    assert_eq!(max.get(), 4);
}

#[test]
fn a_burst_of_acknowledgements_is_compensated_for_ten_rounds_at_most() {
    let ack = |ms, delivered| {
        let now = Instant::ORIGIN + Span::from_ms(ms);
        AckEvent { now, delivered, ..ack_of(delivered) }
    };
    let mut aggregation = AckAggregation::default();
    // 1 MB/s: 1,000 bytes a millisecond.
    for ms in 1..=100 {
        aggregation.update(1_000_000, 1 << 20, &ack(ms, 1_000), false);
    }
    assert!(aggregation.extra(1_000_000) <= 1_000, "{aggregation:?}");
    aggregation.update(1_000_000, 1 << 20, &ack(120, 20_000), false);
    let extra = aggregation.extra(1_000_000);
    assert!((20_000..=21_000).contains(&extra), "{extra}");
    assert_eq!(aggregation.extra(100_000), 10_000, "no more than a tenth of a second");
    for round in 0..10 {
        aggregation.update(1_000_000, 1 << 20, &ack(1_000 + round, 1_000), true);
    }
    assert!(aggregation.extra(1_000_000) < 20_000);
}
