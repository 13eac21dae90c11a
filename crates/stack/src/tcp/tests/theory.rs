//! Throughput against what theory says about a loss rate.

use plumb_base::time::Span;

use super::pair::{CLIENT, Pair, SERVER, Weather};
use crate::tcp::config::{BufferLimits, DelayedAck, Personality, TcpConfig};
use crate::tcp::congestion::CongestionChoice;

const RTT: f64 = 0.1;
const MSS: f64 = 1_448.0;

/// Mean window in segments over a path with a round-trip time of 100 ms, an acknowledgement for every segment, and losses as in
/// `weather`, over `rounds` round trips after the first fifth of them.
fn mean_window(congestion: CongestionChoice, weather: Weather, rounds: u64) -> f64 {
    let delayed_ack =
        DelayedAck { min: Span::ZERO, max: Span::ZERO, segments: 1, counts_small: false, quick: 0 };
    let buffer = BufferLimits::fixed(16_777_216);
    let config = TcpConfig {
        personality: Personality { delayed_ack, ..Personality::linux() },
        congestion,
        send_buffer: buffer,
        receive_buffer: buffer,
        ..TcpConfig::default()
    };
    let mut pair = Pair::new(config.clone(), config, 1);
    pair.weather = [weather, Weather { loss: 0.0, loss_every: 0, ..weather }];
    let round = Span::from_ms(100);
    let payload = vec![0x5a; 65_536];
    let read = |pair: &mut Pair, until: u64| -> u64 {
        pair.run_until(round * until, |pair| {
            let now = pair.now;
            if let Some(server) = pair.ends[SERVER].as_mut() {
                while matches!(
                    server.receive_with(now, <[u8]>::len),
                    Ok(crate::tcp::Received::Data(_))
                ) {}
                while pair.end(CLIENT).send(now, &payload).is_ok_and(|len| len > 0) {}
            }
            false
        });
        pair.ends[SERVER].as_ref().map_or(0, |server| server.info().received.bytes)
    };
    let before = read(&mut pair, rounds / 5);
    let start = pair.now;
    let after = read(&mut pair, rounds);
    (after - before) as f64 / MSS / ((pair.now - start).as_secs_f64() / RTT)
}

fn weather(loss: f64, loss_every: u64) -> Weather {
    Weather { delay: Span::from_ms(50), loss, loss_every, ..Weather::default() }
}

#[track_caller]
fn is_within(measured: f64, expected: f64, tolerance: f64) {
    let ratio = measured / expected;
    println!("{measured:.2} segments a round trip, {expected:.2} expected: {ratio:.3}");
    assert!((ratio - 1.0).abs() <= tolerance, "{measured} is {ratio} of {expected}");
}

// MUST-19.
#[test]
fn reno_with_periodic_loss_follows_the_square_root() {
    // Mathis et al. 1997: C = sqrt(3/2) with an acknowledgement for each segment.
    for every in [200, 1_000, 5_000] {
        let expected = 1.5_f64.sqrt() * (every as f64).sqrt();
        is_within(
            mean_window(CongestionChoice::NewReno, weather(0.0, every), 4_000),
            expected,
            0.05,
        );
    }
}

#[test]
fn reno_with_random_loss_follows_the_square_root() {
    // Mathis et al. 1997 and Ott et al. 1996: C = 1.31 for independent losses.
    for loss in [0.002, 0.000_5] {
        let expected = 1.31 / f64::sqrt(loss);
        is_within(mean_window(CongestionChoice::NewReno, weather(loss, 0), 10_000), expected, 0.10);
    }
}

#[test]
fn cubic_follows_its_response_function() {
    // RFC 9438 §5.1: at p = 10⁻² its Reno-friendly region, AIMD(1, β) of §4.3 with W = sqrt(3/2 / p); at 10⁻⁴
    // eqn. 6, 1.054 · (RTT³/p³)^¼.
    is_within(
        mean_window(CongestionChoice::Cubic, weather(0.0, 100), 4_000),
        f64::sqrt(1.5 * 100.0),
        0.10,
    );
    let expected = 1.054 * (RTT / 1e-4).powf(0.75);
    is_within(mean_window(CongestionChoice::Cubic, weather(0.0, 10_000), 10_000), expected, 0.10);
}
