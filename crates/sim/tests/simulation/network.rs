//! Scenarios of tests.

use std::sync::Arc;

use plumb_base::time::Span;
use plumb_link::spec::{HopSpec, LinkSpec};
use plumb_sim::network::Topology;
use plumb_sim::report::SimulationReport;
use plumb_sim::scenario::{FlowGroup, FlowSpec, Scenario};
use plumb_sim::simulation::Simulation;
use plumb_stack::tcp::config::{BufferLimits, DelayedAck, TcpConfig};
use plumb_stack::tcp::congestion::CongestionChoice;

/// Memory that a simulation of a test may have.
pub const MEMORY: u64 = 4 << 30;

pub fn hop(text: &str) -> HopSpec {
    text.parse::<LinkSpec>().expect("a link").hops.remove(0)
}

/// Connections as theory has them: every segment acknowledged, no HyStart++, buffers that limit nothing.
pub fn plain(congestion: CongestionChoice) -> TcpConfig {
    let mut config = TcpConfig {
        congestion,
        hystart: false,
        send_buffer: BufferLimits::fixed(64 << 20),
        receive_buffer: BufferLimits::fixed(64 << 20),
        ..TcpConfig::default()
    };
    config.personality.delayed_ack =
        DelayedAck { max: Span::ZERO, ..config.personality.delayed_ack };
    config
}

pub fn group(config: &TcpConfig, flows: Vec<FlowSpec>) -> FlowGroup {
    let config = Arc::new(config.clone());
    FlowGroup { name: String::new(), client: Arc::clone(&config), server: config, flows }
}

pub fn unlimited(from: u32, to: u32) -> FlowSpec {
    FlowSpec { from, to, ..FlowSpec::default() }
}

/// One connection through each pair of hosts of a dumbbell.
pub fn dumbbell(pairs: u32, access: &str, bottleneck: &str, config: &TcpConfig) -> Scenario {
    let topology = Topology::Dumbbell { pairs, access: hop(access), bottleneck: hop(bottleneck) };
    let mut scenario = Scenario::new(topology.plan());
    let hosts = scenario.network.hosts();
    let host = |name: String| hosts[name.as_str()];
    let flows = (1..=pairs)
        .map(|number| unlimited(host(format!("left{number}")), host(format!("right{number}"))))
        .collect();
    scenario.groups = vec![group(config, flows)];
    scenario
}

/// Runs a scenario, which must keep every law.
pub fn run(scenario: Scenario) -> SimulationReport {
    let mut simulation =
        Simulation::new(scenario, MEMORY).expect("a scenario that can be simulated");
    simulation.run();
    let report = simulation.finish();
    assert_eq!(report.violations, [] as [String; 0]);
    report
}

/// The slope of a line through the logarithms of points, by least squares.
pub fn slope(points: &[(f64, f64)]) -> f64 {
    let logarithms: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logarithms.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| logarithms.iter().map(of).sum::<f64>() / count;
    let (x_mean, y_mean) = (mean(|point| point.0), mean(|point| point.1));
    let (products, squares) = logarithms.iter().fold((0.0, 0.0), |(products, squares), (x, y)| {
        (products + (x - x_mean) * (y - y_mean), squares + (x - x_mean).powi(2))
    });
    products / squares
}
