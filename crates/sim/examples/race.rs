//! A dumbbell of Reno connections through 1 Gb/s, to be timed: `race [CONNECTIONS [SECONDS [SEED [THREADS]]]]`. `benches/ns3/dumbbell.cc` is the same
//! in ns-3. Connections start at random within a tenth of a second.
#![expect(clippy::print_stdout, reason = "an example prints what it found")]
#![expect(
    clippy::disallowed_methods,
    reason = "it measures in real time what passes in virtual time"
)]

use std::sync::Arc;

use plumb_base::seed::Seed;
use plumb_base::time::Span;
use plumb_link::spec::{HopSpec, LinkSpec};
use plumb_sim::network::Topology;
use plumb_sim::scenario::{FlowGroup, FlowSpec, Scenario};
use plumb_sim::simulation::Simulation;
use plumb_stack::tcp::config::{BufferLimits, TcpConfig};
use plumb_stack::tcp::congestion::CongestionChoice;
use rand::RngExt as _;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let pairs: u32 = arguments.next().map_or(10, |text| text.parse().expect("a number"));
    let seconds: f64 = arguments.next().map_or(5.0, |text| text.parse().expect("seconds"));
    let seed: u64 = arguments.next().map_or(1, |text| text.parse().expect("a seed"));
    let threads: u32 = arguments.next().map_or(1, |text| text.parse().expect("a number"));
    let mut starts = Seed(seed).stream("starts");
    let hop = |text: &str| -> HopSpec { text.parse::<LinkSpec>().expect("a link").hops.remove(0) };
    // Point-to-point links of ns-3 have a header of two bytes.
    let topology = Topology::Dumbbell {
        pairs,
        access: hop("rate=10gbit,delay=1ms,overhead=2,limit=2000packets"),
        bottleneck: hop("rate=1gbit,delay=10ms,overhead=2,limit=2000packets"),
    };
    let mut scenario = Scenario::new(topology.plan());
    scenario.duration = Span::from_secs_f64(seconds);
    let config = Arc::new(TcpConfig {
        congestion: CongestionChoice::Reno,
        hystart: false,
        send_buffer: BufferLimits { initial: 65_536, max: 16 << 20 },
        receive_buffer: BufferLimits { initial: 16 << 20, max: 16 << 20 },
        ..TcpConfig::default()
    });
    let hosts = scenario.network.hosts();
    let flows = (0..pairs).map(|number| FlowSpec {
        from: hosts[format!("left{}", number + 1).as_str()],
        to: hosts[format!("right{}", number + 1).as_str()],
        start: Span::from_us(starts.random_range(0..100_000)),
        stop: None,
        bytes: None,
        ..FlowSpec::default()
    });
    let flows = flows.collect();
    scenario.groups = vec![FlowGroup {
        name: "reno".to_owned(),
        client: Arc::clone(&config),
        server: config,
        flows,
    }];
    let mut simulation =
        Simulation::with_threads(scenario, 32 << 30, threads).expect("it can be simulated");
    let begun = std::time::Instant::now();
    simulation.run();
    let wall = begun.elapsed().as_secs_f64();
    let report = simulation.finish();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    let loss = report.link("router1 > router2").expect("the bottleneck").loss();
    let received: u64 = report.flows.iter().map(|flow| flow.counts.received.bytes).sum();
    println!(
        "{{\"flows\":{pairs},\"seconds\":{seconds},\"wall\":{wall:.6},\"hops\":{},\"goodput\":{:.0},\"loss\":{loss:.6}}}",
        report.packet_hops,
        received as f64 * 8.0 / seconds,
    );
}
