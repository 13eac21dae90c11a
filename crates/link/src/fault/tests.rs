//! Claims about the faults, each tested through the trait that a hop uses.

use plumb_base::seed::Seed;
use plumb_base::stats::distribution::binomial_cdf;
use plumb_base::time::Span;
use plumb_wire::ip::TrafficClass;
use plumb_wire::packet::ChecksumState;
use plumb_wire::udp;

use super::*;
use crate::fixture::{ElementFixture, at_us, udp as udp_frame};
use crate::frame::DiscardReason;

/// Puts `n` numbered frames of `len` bytes through, one a microsecond: number and moment of each that comes out.
fn put_through(spec: &FaultSpec, n: u64, len: usize) -> (ElementFixture, Vec<(u64, Instant)>) {
    let mut bench = ElementFixture::new(8);
    let mut fault = WireFault::new(spec, Instant::ORIGIN, Seed(3).stream("fault"));
    let (mut out, mut arrived) = (Vec::new(), Vec::new());
    for number in 1..=n {
        let mut bytes = vec![0; len];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        let frame = bench.frame(at_us(number), &bytes, 1_500, 0);
        fault.apply(at_us(number), frame, &mut out, &mut bench.context());
        for (at, frame) in out.drain(..) {
            arrived.push((bench.number(frame), at));
        }
    }
    assert_eq!(bench.pool.available().0, 8, "no frame of the pool is lost");
    (bench, arrived)
}

fn assert_binomial(struck: u64, n: u64, p: f64) {
    let tail = binomial_cdf(struck, n, p);
    assert!((0.000_5..0.999_5).contains(&tail), "{struck} of {n}, expected {}", n as f64 * p);
}

#[test]
fn independent_loss_is_binomial() {
    for p in [0.001, 0.02, 0.5] {
        let (bench, arrived) = put_through(&FaultSpec::Loss(p), 100_000, 8);
        assert_binomial(bench.discarded(DiscardReason::Lost), 100_000, p);
        assert_eq!(bench.discards.total(), bench.discards.of(DiscardReason::Lost));
        assert_eq!(bench.discards.total().1, 1_500 * bench.discarded(DiscardReason::Lost));
        assert_eq!(arrived.len() as u64 + bench.discarded(DiscardReason::Lost), 100_000);
    }
}

#[test]
fn gilbert_elliott_bursts_are_geometric() {
    let (p, r) = (0.01, 0.25);
    let spec = FaultSpec::GilbertElliott { p, r, loss_good: 0.0, loss_bad: 1.0 };
    let n = 400_000;
    let (bench, arrived) = put_through(&spec, n, 8);
    let bursts: Vec<u64> =
        arrived.windows(2).map(|pair| pair[1].0 - pair[0].0 - 1).filter(|len| *len > 0).collect();
    let count = bursts.len() as u64;
    let mean = bursts.iter().sum::<u64>() as f64 / count as f64;
    // The deviation of a geometric length is √(1 − r) / r.
    let error = (1.0 - r).sqrt() / r / (count as f64).sqrt();
    assert!((mean - 1.0 / r).abs() < 4.0 * error, "mean burst {mean}");
    for longer_than in 1..6_u64 {
        let tail = bursts.iter().filter(|len| **len > longer_than).count() as u64;
        let share = (1.0 - r).powi(i32::try_from(longer_than).expect("below 6"));
        assert_binomial(tail, count, share);
    }
    let share = bench.discarded(DiscardReason::Lost) as f64 / n as f64;
    assert!((share / (p / (p + r)) - 1.0).abs() < 0.05, "stationary loss {share}");
}

#[test]
fn each_gilbert_elliott_state_has_its_loss() {
    let spec = FaultSpec::GilbertElliott { p: 0.1, r: 0.1, loss_good: 0.1, loss_bad: 0.5 };
    let (bench, _) = put_through(&spec, 200_000, 8);
    let share = bench.discarded(DiscardReason::Lost) as f64 / 200_000.0;
    assert!((share - 0.3).abs() < 0.01, "{share}");
}

#[test]
fn periodic_and_listed_losses_hit_exactly_those_frames() {
    let lost = |spec: &FaultSpec| {
        let (_, arrived) = put_through(spec, 12, 8);
        (1..=12).filter(|n| !arrived.iter().any(|(number, _)| number == n)).collect::<Vec<_>>()
    };
    assert_eq!(lost(&FaultSpec::Periodic(5)), [5, 10]);
    assert_eq!(lost(&FaultSpec::Periodic(1)).len(), 12);
    assert_eq!(lost(&FaultSpec::Listed([9, 2, 9, 0, 3, 99].into())), [2, 3, 9]);
}

#[test]
fn bit_errors_follow_the_closed_form() {
    for len in [8_usize, 40, 60] {
        let (bench, _) = put_through(&FaultSpec::BitErrors(1e-3), 50_000, len);
        let bits = i32::try_from(8 * len).expect("a short frame");
        assert_binomial(
            bench.discarded(DiscardReason::BitError),
            50_000,
            1.0 - 0.999_f64.powi(bits),
        );
    }
}

#[test]
fn a_reordered_frame_is_overtaken() {
    let spec = FaultSpec::Reorder { share: 0.01, by: Span::from_ns(3_500) };
    let (bench, mut arrived) = put_through(&spec, 50_000, 8);
    assert_binomial(bench.changes.reordered, 50_000, 0.01);
    arrived.sort_by_key(|(_, at)| *at);
    let position = |number: u64| arrived.iter().position(|(n, _)| *n == number);
    let late: Vec<u64> = arrived
        .iter()
        .filter(|(number, at)| *at != at_us(*number) && *number < 49_990)
        .map(|(number, _)| *number)
        .collect();
    for number in late.iter().filter(|n| !late.iter().any(|m| *n != m && m.abs_diff(**n) < 4)) {
        assert!(
            position(*number) > position(number + 3) && position(*number) < position(number + 4)
        );
    }
}

#[test]
fn a_duplicate_has_the_same_bytes_and_is_counted() {
    let (bench, arrived) = put_through(&FaultSpec::Duplicate(0.1), 20_000, 8);
    assert_binomial(bench.changes.duplicated, 20_000, 0.1);
    assert_eq!(bench.changes.duplicated_bytes, 1_500 * bench.changes.duplicated);
    assert_eq!(arrived.len() as u64, 20_000 + bench.changes.duplicated);
    let twice = arrived.windows(2).filter(|pair| pair[0] == pair[1]).count() as u64;
    assert_eq!(twice, bench.changes.duplicated);
}

#[test]
fn a_duplicate_without_memory_is_a_counted_discard() {
    let mut bench = ElementFixture::new(1);
    let mut fault =
        WireFault::new(&FaultSpec::Duplicate(1.0), Instant::ORIGIN, Seed(1).stream("fault"));
    let frame = bench.numbered(at_us(0), 7, 100);
    let mut out = Vec::new();
    fault.apply(at_us(0), frame, &mut out, &mut bench.context());
    assert_eq!((out.len(), bench.changes.duplicated), (1, 1));
    assert_eq!(bench.discards.of(DiscardReason::NoMemory), (1, 100));
}

/// A frame whose checksum is partial, struck once: its bytes before, with the checksum complete, and after.
fn struck(spec: &FaultSpec, seed: u64) -> (Vec<u8>, Vec<u8>, ChecksumState) {
    let mut bench = ElementFixture::new(4);
    let whole = udp_frame(false, TrafficClass::default(), (1, 2), 30);
    let mut partial = whole.clone();
    let pseudo = plumb_wire::ipv4::Ipv4Packet::parse(&whole[14..]).expect("made valid").pseudo();
    let sum = pseudo.partial(whole.len() - 34);
    partial[40..42].copy_from_slice(&sum.to_be_bytes());
    let mut frame = bench.frame(at_us(0), &partial, 100, 0);
    frame.packet.meta.checksum = ChecksumState::Partial { start: 34, offset: 6 };
    let mut fault = WireFault::new(spec, Instant::ORIGIN, Seed(seed).stream("fault"));
    let mut out = Vec::new();
    fault.apply(at_us(0), frame, &mut out, &mut bench.context());
    let (_, frame) = out.pop().expect("it is delivered");
    let bytes = bench.pool.bytes(&frame.packet).to_vec();
    let state = frame.packet.meta.checksum;
    bench.free(frame);
    (whole, bytes, state)
}

#[test]
fn corruption_flips_one_bit_behind_the_link_header() {
    for seed in 0..200 {
        let (before, after, state) = struck(&FaultSpec::Corrupt(1.0), seed);
        assert_eq!(state, ChecksumState::Plain);
        assert_eq!(before[..14], after[..14]);
        let differing: u32 = before.iter().zip(&after).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(differing, 1, "seed {seed}");
    }
    let (before, after, state) = struck(&FaultSpec::Corrupt(0.0), 1);
    assert_ne!(before, after, "nothing happened: the checksum stays partial");
    assert_eq!(state, ChecksumState::Partial { start: 34, offset: 6 });
    let header = udp::HEADER_LEN;
    assert_eq!(before[34 + header..], after[34 + header..]);
}

#[test]
fn truncation_keeps_a_beginning_that_a_device_takes() {
    let mut lengths = std::collections::BTreeSet::new();
    for seed in 0..500 {
        let (before, after, state) = struck(&FaultSpec::Truncate(1.0), seed);
        assert_eq!(state, ChecksumState::Plain);
        assert!(after.len() >= 14 && after.len() < before.len() && before.starts_with(&after));
        lengths.insert(after.len());
    }
    assert_eq!((lengths.first(), lengths.last()), (Some(&14), Some(&71)), "72 bytes cut anywhere");
}

#[test]
fn a_stalled_wire_releases_frames_in_order() {
    let spec = FaultSpec::Clog { every: Span::from_us(10), lasting: Span::from_us(3) };
    let (bench, arrived) = put_through(&spec, 20, 8);
    assert_eq!(bench.changes.held, 6);
    for (number, at) in &arrived {
        let expected = if number % 10 >= 7 { number.next_multiple_of(10) } else { *number };
        assert_eq!(*at, at_us(expected));
    }
    assert!(arrived.is_sorted());
}

#[test]
fn blackouts_and_partitions_drop_frames() {
    let spec = FaultSpec::Blackout { every: Span::from_us(10), lasting: Span::from_us(3) };
    let (bench, arrived) = put_through(&spec, 20, 8);
    assert_eq!(bench.discarded(DiscardReason::Outage), 6);
    assert!(arrived.iter().all(|(number, at)| *at == at_us(*number) && number % 10 < 7));
    let (bench, arrived) = put_through(&FaultSpec::Partition, 20, 8);
    assert_eq!((bench.discarded(DiscardReason::Outage), arrived.len()), (20, 0));
}

#[test]
fn frame_error_rate_is_the_closed_form() {
    let close = |got: f64, expected: f64| assert!((got / expected - 1.0).abs() < 1e-9, "{got}");
    close(frame_error_rate(1e-5, 1_500), 1.0 - (1.0 - 1e-5_f64).powi(12_000));
    close(frame_error_rate(1e-12, 1_500), 1.2e-8 * (1.0 - 0.6e-8));
    close(frame_error_rate(0.5, 1), 1.0 - 0.5_f64.powi(8));
    assert!(frame_error_rate(0.0, 1_500).abs() < f64::MIN_POSITIVE);
    close(frame_error_rate(1.0, 1), 1.0);
}
