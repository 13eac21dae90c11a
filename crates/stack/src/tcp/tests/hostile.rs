//! Transfers over links that lose, delay, repeat and damage: the stream arrives byte for byte, or the connection says that it failed.

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use rand::RngExt;

use super::pair::{Pair, Weather};
use super::transfer::{Flow, run};
use crate::tcp::config::{BufferLimits, ChecksumPass, EcnPolicy, Personality, TcpConfig};
use crate::tcp::congestion::CongestionChoice;
use crate::tcp::connection::Connection;
use crate::tcp::socket::TcpState;

fn config(random: &mut impl RngExt) -> TcpConfig {
    let choices = [
        CongestionChoice::Cubic,
        CongestionChoice::NewReno,
        CongestionChoice::Reno,
        CongestionChoice::Vegas,
        CongestionChoice::Bbr,
        CongestionChoice::Fixed { bytes: 20_000 },
    ];
    let buffers = [500, 4_000, 65_535, 200_000];
    let mut limits = || {
        let initial = buffers[random.random_range(0..4)];
        BufferLimits { initial, max: initial * random.random_range(1..4) }
    };
    let (send_buffer, receive_buffer) = (limits(), limits());
    TcpConfig {
        personality: [Personality::linux(), Personality::freebsd(), Personality::plain()]
            [random.random_range(0..3)],
        congestion: choices[random.random_range(0..choices.len())],
        send_buffer,
        receive_buffer,
        hystart: random.random(),
        pacing: random.random(),
        timestamps: random.random_bool(0.7),
        window_scaling: random.random_bool(0.7),
        sack: random.random_bool(0.7),
        ecn: [EcnPolicy::Off, EcnPolicy::Accept, EcnPolicy::Offer][random.random_range(0..3)],
        nagle: random.random(),
        mss_max: random.random_bool(0.3).then(|| random.random_range(64..1_400)),
        checksum_pass: if random.random() { ChecksumPass::Fused } else { ChecksumPass::Separate },
        ..TcpConfig::default()
    }
}

fn weather(random: &mut impl RngExt) -> Weather {
    let mut rare =
        |most: f64| if random.random_bool(0.4) { random.random_range(0.0..most) } else { 0.0 };
    let (loss, reorder, duplicate, replay) = (rare(0.15), rare(0.3), rare(0.1), rare(0.03));
    let (corrupt, truncate, mark) = (rare(0.05), rare(0.02), rare(0.1));
    Weather {
        delay: Span::from_us(random.random_range(10..100_000)),
        rate: if random.random() { random.random_range(20_000..10_000_000) } else { 0 },
        queue: random.random_range(5_000..200_000),
        loss,
        loss_every: 0,
        reorder,
        duplicate,
        replay,
        corrupt,
        truncate,
        mark,
        mtu: if random.random_bool(0.1) { random.random_range(600..1_400) } else { 65_535 },
        is_cut: false,
    }
}

/// Runs a transfer of a seed.
fn transfer(seed: u64) {
    let mut random = Seed(seed).stream("hostile");
    let mut pair = Pair::new(config(&mut random), config(&mut random), seed);
    pair.weather = [weather(&mut random), weather(&mut random)];
    let mut flows =
        [0, 1].map(|_| Flow { total: random.random_range(0..60_000), ..Flow::default() });
    for _ in 0..random.random_range(0..4) {
        run(&mut pair, &mut flows, Span::from_ms(random.random_range(0..5_000)));
        // The weather changes: for a while nothing passes one way, or the path takes smaller packets.
        let way = random.random_range(0..2);
        match random.random_range(0..3) {
            0 => {
                let before = std::mem::replace(&mut pair.weather[way].is_cut, true);
                run(&mut pair, &mut flows, Span::from_ms(random.random_range(0..10_000)));
                pair.weather[way].is_cut = before;
            }
            1 => pair.weather[way].mtu = random.random_range(600..1_500),
            _ => pair.weather[way] = weather(&mut random),
        }
    }
    run(&mut pair, &mut flows, Span::from_secs(3_000));
    let failed = |pair: &Pair| pair.ends.iter().flatten().any(|end| end.error().is_some());
    if !failed(&pair) {
        // The weather clears up: everything completes.
        pair.weather = [Weather::default(); 2];
        let whole = run(&mut pair, &mut flows, Span::from_secs(1_000));
        let infos = pair.ends.each_ref().map(|end| end.as_ref().map(Connection::info));
        assert!(whole || failed(&pair), "seed {seed}: {flows:?}\n{infos:#?}");
        pair.run_until(Span::from_secs(1_000), |pair| {
            pair.ends.iter().flatten().all(|end| end.state() == TcpState::Closed)
        });
        for end in pair.ends.iter().flatten() {
            assert!(end.state() == TcpState::Closed, "seed {seed}: {:#?}", end.info());
            assert_eq!(end.info().memory, 0, "seed {seed}: what was buffered is given back");
        }
    }
}

#[test]
fn stream_arrives_whole_or_the_connection_fails() {
    let seeds = std::env::var("PLUMB_TCP_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(10_000);
    println!("seeds 0 to {seeds}");
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for first in 0..threads as u64 {
            scope.spawn(move || (first..seeds).step_by(threads).for_each(transfer));
        }
    });
}
