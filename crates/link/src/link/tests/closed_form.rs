//! Links against closed forms: serialisation and delay, D/D/1, M/D/1, M/M/1.

use plumb_base::units::Rate;
use rand::{Rng, RngExt};

use super::*;

const SECOND: u128 = 1_000_000_000_000;

#[test]
fn an_hour_of_bursts_is_exact_to_the_picosecond_from_1200_baud_to_400_gigabits() {
    for rate in [1_200_u64, 9_600, 56_000, 2_940_000, 10_000_000, 999_999_937, 400_000_000_000] {
        let (burst, gap, delay) = (3, Span::from_ms(1_800), Span::from_us(250));
        let len = usize::try_from(rate * 17 / 10 / 8 / burst).unwrap().min(1_514);
        let mut rig = Rig::new(&format!("rate={rate}bit,delay=250us,limit=4packets"));
        for number in 0..2_000 {
            let now = rig.start + gap * number;
            for _ in 0..burst {
                rig.send(now, NEAR, &numbered(0, len));
            }
            let spans: Vec<_> =
                rig.receive(now + gap, FAR).iter().map(|(at, _)| *at - now).collect();
            let exact = (1..=u128::from(burst)).map(|n| {
                let ps = n * len as u128 * 8 * SECOND / u128::from(rate);
                Span::from_ps(u64::try_from(ps).unwrap()) + delay
            });
            assert_eq!(spans, exact.collect::<Vec<_>>(), "{rate} b/s");
        }
    }
}

#[test]
fn a_busy_hour_ends_to_the_picosecond_when_its_bits_do() {
    for rate in [1_200_u64, 9_600, 33_600, 53_300] {
        let mut rig = Rig::new(&format!("rate={rate}bit,delay=10ms,limit=4packets"));
        let len = 1_201;
        let frames = rate * 3_600 / (len as u64 * 8);
        let bits = len as u128 * 8;
        let mut last = rig.start;
        for number in 0..frames {
            // Two are always inside: the sender never rests.
            if number >= 2 {
                let at = rig.link.deadline().unwrap();
                last = rig.receive(at, FAR)[0].0;
            }
            rig.send(last, NEAR, &numbered(0, len));
        }
        let end = rig.receive(last + Span::from_secs(100), FAR).last().unwrap().0;
        let exact = u128::from(frames) * bits * SECOND / u128::from(rate) + SECOND / 100;
        assert_eq!(u128::from((end - rig.start).as_ps()), exact, "{rate} b/s");
    }
}

#[test]
fn frames_that_come_as_fast_as_they_are_sent_never_wait() {
    let mut rig = Rig::new("rate=8mbit,delay=1ms");
    for number in 0..10_000 {
        let now = rig.start + Span::from_ms(u64::from(number));
        rig.send(now, NEAR, &numbered(number, 1_000));
        rig.receive(now, FAR);
    }
    let report = rig.link.report(rig.start + Span::from_secs(10));
    let up = &report.directions[0];
    assert_eq!(up.sojourns.max(), 0);
    assert_eq!(up.queue_lengths.max(), 0);
    assert!((up.utilization().unwrap() - 1.0).abs() < 1e-9, "{:?}", up.utilization());
}

/// Mean wait in the queue, in service times, at load `rho`; `size` draws a frame's length from its mean.
fn mean_wait(rho: f64, frames: u32, mean: usize, size: impl Fn(f64) -> usize) -> f64 {
    let rate = 1_000_000_000;
    let text = format!("rate={rate}bit,limit=1000000packets");
    let mut rig = Rig::new(&text);
    let service =
        mean as f64 * 8.0 / Rate::from_bits_per_second(rate).unwrap().bits_per_second() as f64;
    let mut stream = Seed(20_261).stream("arrivals");
    let mut now = rig.start;
    for number in 0..frames {
        let exponential = -(1.0 - stream.random::<f64>()).ln();
        now += Span::from_secs_f64(exponential * service / rho);
        let len = size(-(1.0 - stream.random::<f64>()).ln());
        rig.send(now, NEAR, &numbered(number, len));
        for (_, bytes) in rig.receive(now, FAR) {
            drop(bytes);
        }
    }
    let report = rig.link.report(now);
    assert_eq!(report.violations, []);
    let up = &report.directions[0];
    let (sum, n) = up
        .sojourns
        .iter_recorded()
        .fold((0.0, 0_u64), |(sum, n), (ns, count)| (sum + ns as f64 * count as f64, n + count));
    // Little's law once more, by the report's own means.
    let arrivals = n as f64 / up.elapsed.as_secs_f64();
    let wait = sum / n as f64 / 1e9;
    assert!((up.mean_queue() / (arrivals * wait) - 1.0).abs() < 0.01);
    wait / service
}

#[test]
fn poisson_arrivals_of_equal_frames_wait_as_m_d_1_says() {
    for rho in [0.3, 0.7] {
        let wait = mean_wait(rho, 300_000, 1_000, |_| 1_000);
        let expected = rho / (2.0 * (1.0 - rho));
        assert!((wait / expected - 1.0).abs() < 0.03, "load {rho}: {wait} for {expected}");
    }
}

#[test]
fn poisson_arrivals_of_exponential_frames_wait_as_m_m_1_says() {
    for rho in [0.3, 0.6] {
        // Lengths are whole bytes between a header and a frame: of this mean, cut off at both ends, hardly ever.
        let draw = |x: f64| {
            let len = (x * 300.0).round().clamp(18.0, 1_900.0);
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
            let len = len as usize;
            len
        };
        let (mean, square) = moments(draw);
        let wait = mean_wait(rho, 400_000, 300, draw);
        // The cut moves both moments a little: Pollaczek and Khinchine say by how much.
        let load = rho * mean / 300.0;
        let expected = load / (1.0 - load) * square / (2.0 * mean * mean) * (mean / 300.0);
        assert!((square / (2.0 * mean * mean) - 1.0).abs() < 0.05, "nearly exponential");
        assert!((wait / expected - 1.0).abs() < 0.03, "load {rho}: {wait} for {expected}");
    }
}

/// Mean and mean square of a length that is drawn from an exponential number.
fn moments(draw: impl Fn(f64) -> usize) -> (f64, f64) {
    let mut stream = Seed(3).stream("moments");
    let n = 2_000_000;
    let (sum, square) = (0..n).fold((0.0, 0.0), |(sum, square), _| {
        let unit = (stream.next_u64() >> 11) as f64 / (1_u64 << 53) as f64;
        let len = draw(-(1.0 - unit).ln()) as f64;
        (sum + len, square + len * len)
    });
    (sum / f64::from(n), square / f64::from(n))
}

#[test]
fn a_full_packet_takes_one_of_mahimahis_opportunities() {
    // One a millisecond, each for 1,504 bytes: an IP packet of 1,500 and the four of a TUN device.
    let trace = crate::spec::RateTrace::parse("t", "1\n").unwrap();
    for (medium, header) in [(Medium::Ethernet, 14), (Medium::Ip, 0)] {
        let mut spec: LinkSpec = "rate=8mbit".parse().unwrap();
        spec.hops[0].up.rate = crate::spec::RateSpec::Trace(trace.clone());
        let mut rig = Rig::of(&spec, medium);
        for number in 0..3 {
            rig.send(rig.start, NEAR, &numbered(number, 1_500 + header));
        }
        assert_eq!(rig.spans(Span::from_ms(10), FAR), [1, 2, 3].map(Span::from_ms), "{medium:?}");
        // One byte more needs a second one.
        let now = rig.start + Span::from_ms(10);
        rig.send(now, NEAR, &numbered(3, 1_501 + header));
        assert_eq!(rig.spans(Span::from_ms(20), FAR), [Span::from_ms(11)], "{medium:?}");
    }
}

#[test]
fn a_rate_is_as_busy_as_it_is_used_of_whatever_kind_it_is() {
    let trace = crate::spec::RateTrace::parse("t", "0.001 1000\n").unwrap();
    for (text, expected) in [
        ("rate=8mbit", Some(0.1)),
        ("rate=8mbit,burst=64KiB", Some(0.1)),
        ("rate=16mbit,on=100ms,off=100ms", Some(0.1)),
        ("rate=trace", Some(0.1)),
        ("plain", None),
    ] {
        let mut spec: LinkSpec = text.replace("rate=trace", "rate=1mbit").parse().unwrap();
        if text == "rate=trace" {
            spec.hops[0].up.rate = crate::spec::RateSpec::Trace(trace.clone());
        }
        let mut rig = Rig::of(&spec, Medium::Ethernet);
        for number in 0..100 {
            let now = rig.start + Span::from_ms(u64::from(number) * 10);
            rig.send(now, NEAR, &numbered(number, 1_000));
            rig.receive(now, FAR);
        }
        let report = rig.link.report(rig.start + Span::from_secs(1));
        let got = report.directions[0].utilization();
        // At the end a pause may hold some back.
        let close = |got: f64, expected: f64| (got - expected).abs() < 0.01;
        let is_so = match (got, expected) {
            (Some(got), Some(expected)) => close(got, expected),
            (got, expected) => got == expected,
        };
        assert!(is_so, "{text}: {got:?}");
    }
}

#[test]
fn what_a_rate_offers_is_counted_through_its_changes() {
    let mut rig = Rig::new("rate=8mbit");
    rig.send(rig.start, NEAR, &numbered(1, 1_000));
    for (ms, text) in [(10, "plain"), (20, "rate=16mbit")] {
        let now = rig.start + Span::from_ms(ms);
        rig.receive(now, FAR);
        rig.link.reconfigure(now, &text.parse().unwrap(), &mut rig.pool).unwrap();
        rig.send(now, NEAR, &numbered(2, 1_000));
    }
    let now = rig.start + Span::from_ms(30);
    rig.receive(now, FAR);
    let report = rig.link.report(now);
    let up = &report.directions[0];
    // Frames sent while the rate was unlimited count on neither side.
    assert!((up.used_bits - 16_000.0).abs() < 1e-6 && (up.offered_bits - 240_000.0).abs() < 1e-6);
}
