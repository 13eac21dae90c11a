//! One connection: its window over its round trip, slow start, and what a transfer takes.

use plumb_base::time::Span;
use plumb_stack::tcp::congestion::CongestionChoice;

use crate::network::{dumbbell, plain, run};

/// Payload of a full segment with timestamps.
const MSS: u64 = 1_448;

#[test]
fn a_fixed_window_gives_window_over_round_trip() {
    for segments in [1_u64, 4, 32, 45] {
        let config = plain(CongestionChoice::Fixed { bytes: segments * MSS });
        let mut scenario = dumbbell(1, "rate=1gbit,delay=10ms", "rate=10gbit,delay=30ms", &config);
        scenario.duration = Span::from_secs(60);
        scenario.warmup = Span::from_secs(10);
        let report = run(scenario);
        // Two links of 1 Gb/s and one of 10 for a segment of 1,500 bytes and an acknowledgement of 52.
        let serialization = (1_500.0 + 52.0) * 8.0 * (2.0 / 1e9 + 1.0 / 1e10);
        let expected = (segments * MSS * 8) as f64 / (0.1 + serialization);
        let seen = report.flows[0].goodput();
        assert!(
            (seen / expected - 1.0).abs() < 0.005,
            "{segments}: {seen:.0} b/s, {expected:.0} expected"
        );
    }
}

/// Round trips from the SYN until the last byte of so many segments has arrived.
fn round_trips(segments: u64, initial_window: u16) -> f64 {
    let mut config = plain(CongestionChoice::NewReno);
    config.personality.initial_window = initial_window;
    let mut scenario = dumbbell(1, "rate=10gbit,delay=25ms", "rate=10gbit,delay=50ms", &config);
    scenario.groups[0].flows[0].bytes = Some(segments * MSS);
    let report = run(scenario);
    let ended = report.flows[0].ended.expect("it was sent");
    ended.as_secs_f64() / 0.2
}

#[test]
fn slow_start_doubles_its_window_every_round_trip() {
    for initial in [1_u64, 2, 4, 10] {
        for rounds in 1..=6_u32 {
            // A round trip for the handshake, half of one for the data of the last round to arrive.
            let sent_in = |rounds: u32| initial * ((1 << rounds) - 1);
            let window = u16::try_from(initial).expect("small");
            let last = round_trips(sent_in(rounds), window);
            let next = round_trips(sent_in(rounds) + 1, window);
            let expected = f64::from(rounds) + 0.5;
            assert!(
                (last - expected).abs() < 0.05,
                "{initial}, {rounds}: {last} and not {expected}"
            );
            assert!(
                (next - expected - 1.0).abs() < 0.05,
                "{initial}, {rounds}: {next}, one segment more"
            );
        }
    }
}

#[test]
fn a_modem_of_1200_baud_is_used_without_spurious_retransmissions() {
    let mut config = plain(CongestionChoice::NewReno);
    config.mss_max = Some(536);
    let mut scenario =
        dumbbell(1, "rate=10mbit,delay=1ms", "rate=1200bit,delay=5ms,limit=8packets", &config);
    scenario.duration = Span::from_secs(3_600);
    scenario.warmup = Span::from_secs(600);
    let report = run(scenario);
    let link = report.link("router1 > router2").expect("the modem");
    let (used, flow) = (link.utilization.expect("a rate"), &report.flows[0]);
    println!("{used:.4} used, {:?}, {:?}", flow.counts.sent, flow.rtt_mean);
    assert!(used > 0.98, "{used:.4} of the modem used");
    let lost = link.discarded;
    let repeated = flow.counts.sent.retransmits;
    assert!(repeated <= lost + lost / 5 + 2, "{repeated} retransmissions of {lost} losses");
}
