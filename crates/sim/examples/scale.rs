//! How memory and work grow with connections or background sources, each of which has 1 Mb/s of one bottleneck:
//! `scale connections|sources [COUNT [PACKETS]]` simulates about as many packets whatever the count, and prints one line of JSON.
//! The figures of docs/simulation.md are from it.
#![expect(clippy::print_stdout, reason = "an example prints what it found")]
#![expect(
    clippy::disallowed_methods,
    reason = "it measures in real time what passes in virtual time"
)]

use std::sync::Arc;

use plumb_base::time::Span;
use plumb_base::units::Rate;
use plumb_link::spec::{HopSpec, LinkSpec};
use plumb_sim::network::Topology;
use plumb_sim::scenario::{FlowGroup, FlowSpec, Scenario, SendPattern, SourceSpec};
use plumb_sim::simulation::Simulation;
use plumb_stack::tcp::config::{BufferLimits, TcpConfig};
use plumb_stack::tcp::congestion::CongestionChoice;

/// Hosts on each side, whatever the count: one has ports for 55,000 connections.
const PAIRS: u32 = 2;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let kind = arguments.next().unwrap_or_else(|| "connections".to_owned());
    let count: u64 = arguments.next().map_or(10, |text| text.parse().expect("a number"));
    let packets: u64 = arguments.next().map_or(1_000_000, |text| text.parse().expect("a number"));
    let hop = |text: &str| -> HopSpec { text.parse::<LinkSpec>().expect("a link").hops.remove(0) };
    let topology = Topology::Dumbbell {
        pairs: PAIRS,
        access: hop(&format!("rate={count}mbit,delay=1ms,limit=1000packets")),
        bottleneck: hop(&format!("rate={count}mbit,delay=8ms,limit=1bdp")),
    };
    let mut scenario = Scenario::new(topology.plan());
    let seconds = (packets as f64 * 0.012 / count as f64).max(0.1);
    scenario.duration = Span::from_secs_f64(seconds);
    let hosts = scenario.network.hosts();
    let ends = |number: u64| {
        let pair = number % u64::from(PAIRS) + 1;
        (hosts[format!("left{pair}").as_str()], hosts[format!("right{pair}").as_str()])
    };
    // All have begun after a tenth.
    let late = scenario.duration.as_secs_f64() / 10.0 / count as f64;
    let start = |number: u64| Span::from_secs_f64(late * number as f64);
    if kind == "sources" {
        let rate = Rate::from_bits_per_second(900_000).expect("above zero");
        let source = |number: u64| SourceSpec {
            name: "background".to_owned(),
            from: ends(number).0,
            to: ends(number).1,
            pattern: SendPattern::Poisson { rate },
            size: 1_500,
            is_size_exponential: false,
            dscp: 0,
            floods: None,
            start: start(number),
            stop: None,
        };
        scenario.sources = (0..count).map(source).collect();
    } else {
        let config = Arc::new(TcpConfig {
            congestion: CongestionChoice::NewReno,
            send_buffer: BufferLimits::fixed(4_096),
            receive_buffer: BufferLimits::fixed(4_096),
            ..TcpConfig::default()
        });
        let flow = |number: u64| FlowSpec {
            from: ends(number).0,
            to: ends(number).1,
            start: start(number),
            stop: None,
            bytes: None,
            ..FlowSpec::default()
        };
        let flows = (0..count).map(flow).collect();
        let name = "connections".to_owned();
        scenario.groups =
            vec![FlowGroup { name, client: Arc::clone(&config), server: config, flows }];
    }
    report(&kind, count, scenario);
}

/// Runs it, and prints what it took.
fn report(kind: &str, count: u64, scenario: Scenario) {
    let seconds = scenario.duration.as_secs_f64();
    let estimate = scenario.memory_need().expect("a scenario that can be simulated");
    let mut simulation = Simulation::new(scenario, 16 << 30).expect("enough memory");
    let begun = std::time::Instant::now();
    simulation.run();
    let wall = begun.elapsed().as_secs_f64();
    let report = simulation.finish();
    assert!(report.violations.is_empty(), "{:?}", report.violations);
    let bottleneck = report.link("router1 > router2").expect("the bottleneck");
    println!(
        "{{\"kind\":\"{kind}\",\"count\":{count},\"seconds\":{seconds},\"wall\":{wall:.3},\"hops\":{},\"used\":{:.4},\"loss\":{:.5},\"estimated\":{},\"packet_memory\":{},\"resident\":{}}}",
        report.packet_hops,
        bottleneck.utilization.unwrap_or_default(),
        bottleneck.loss(),
        estimate.bytes(),
        estimate.packets * u64::from(estimate.frame_size),
        resident_max(),
    );
}

/// Most bytes of memory that this process has had; 0 where the system does not say.
fn resident_max() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or_default() * 1_024
}
