//! Queues with known answers: M/M/1, M/D/1, M/M/1/K, and two servers in a row.

use plumb_base::time::Span;
use plumb_link::spec::HopSpec;
use plumb_sim::network::{NetworkPlan, Topology};
use plumb_sim::report::SimulationReport;
use plumb_sim::scenario::{Scenario, SendPattern, SourceSpec};

use crate::network::{hop, run};

/// Mean bytes of a packet: 1 ms at 80 Mb/s. So long that the shortest that there may be do not matter.
const SIZE: u32 = 10_000;

fn poisson(
    network: NetworkPlan,
    load: u64,
    is_size_exponential: bool,
    seconds: u64,
) -> SimulationReport {
    let (from, to) = {
        let hosts: Vec<u32> = network.hosts().into_values().collect();
        (hosts[0], hosts[hosts.len() - 1])
    };
    let rate = hop(&format!("rate={}kbit", 800 * load)).up.rate.mean().expect("a rate");
    let mut scenario = Scenario::new(network);
    scenario.sources = vec![SourceSpec {
        name: "arrivals".to_owned(),
        from,
        to,
        pattern: SendPattern::Poisson { rate },
        size: SIZE,
        is_size_exponential,
        dscp: 0,
        floods: None,
        start: Span::ZERO,
        stop: None,
    }];
    scenario.duration = Span::from_secs(seconds);
    scenario.warmup = Span::from_secs(10);
    run(scenario)
}

#[test]
fn pages_have_their_mean_and_pauses_theirs() {
    let network = pair("rate=80mbit,delay=1ms,limit=1000packets");
    let (from, to) = (network.hosts()["left"], network.hosts()["right"]);
    let mut scenario = Scenario::new(network);
    let peak = hop("rate=8mbit").up.rate.mean().expect("a rate");
    let think = Span::from_ms(50);
    // With a shape above 2 the mean of a few thousand pages is near its own.
    let pattern = SendPattern::Web { peak, page: 50_000, shape: 2.5, think };
    scenario.sources = vec![SourceSpec {
        name: "pages".to_owned(),
        from,
        to,
        pattern,
        size: 1_000,
        is_size_exponential: false,
        dscp: 0,
        floods: None,
        start: Span::ZERO,
        stop: None,
    }];
    scenario.duration = Span::from_secs(2_000);
    let report = run(scenario);
    let rate = report.sources[0].counts.received_bytes as f64 * 8.0 / 2_000.0;
    // 50 ms of a page, of which one packet is there at its beginning, and 50 ms of none.
    near(rate, 4e6, 0.03, "its rate");
}

fn pair(link: &str) -> NetworkPlan {
    Topology::Pair { link: hop(link) }.plan()
}

fn near(seen: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((seen / expected - 1.0).abs() < tolerance, "{what}: {seen:.4}, {expected:.4} expected");
}

#[test]
fn the_queue_of_m_m_1_is_rho_squared_over_one_less_rho() {
    for load in [30, 50, 70] {
        let report = poisson(pair("rate=80mbit,delay=1ms,limit=1000000packets"), load, true, 2_000);
        let rho = load as f64 / 100.0;
        let link = report.link("left > right").expect("the server");
        near(link.queue_mean, rho * rho / (1.0 - rho), 0.03, &format!("M/M/1 at {rho}"));
        near(link.utilization.expect("a rate"), rho, 0.01, "its load");
        // Time in the system, and the time of propagation.
        let delays = &report.sources[0].delays;
        let mean = delays.iter_recorded().map(|(ns, count)| ns as f64 * count as f64).sum::<f64>();
        let mean = mean / delays.len() as f64 / 1e6 - 1.0;
        near(mean, 1.0 / (1.0 - rho), 0.03, "ms in the system");
    }
}

#[test]
fn the_queue_of_m_d_1_is_half_as_long() {
    for load in [50, 80] {
        let report =
            poisson(pair("rate=80mbit,delay=1ms,limit=1000000packets"), load, false, 2_000);
        let rho = load as f64 / 100.0;
        let link = report.link("left > right").expect("the server");
        near(link.queue_mean, rho * rho / (2.0 * (1.0 - rho)), 0.03, &format!("M/D/1 at {rho}"));
    }
}

#[test]
fn m_m_1_k_loses_what_erlang_says() {
    for (load, waiting) in [(80, 4), (120, 9)] {
        let report = poisson(
            pair(&format!("rate=80mbit,delay=1ms,limit={waiting}packets")),
            load,
            true,
            1_000,
        );
        let rho = load as f64 / 100.0;
        // One more is being served.
        let room = waiting + 1;
        let expected = (1.0 - rho) * rho.powi(room) / (1.0 - rho.powi(room + 1));
        let link = report.link("left > right").expect("the server");
        near(link.loss(), expected, 0.03, &format!("loss of M/M/1/{room} at {rho}"));
    }
}

#[test]
fn behind_a_constant_server_nothing_waits_for_an_equal_one() {
    let mut plan = NetworkPlan::default();
    let server: HopSpec = hop("rate=80mbit,delay=1ms,limit=1000000packets");
    for (a, b) in [("a", "router"), ("router", "b")] {
        let ends = [plan.node(a), plan.node(b)];
        plan.connect(ends, server.clone());
    }
    let report = poisson(plan, 80, false, 500);
    let first = report.link("a > router").expect("the first").queue_mean;
    let second = report.link("router > b").expect("the second");
    near(first, 1.6, 0.06, "M/D/1 at 0.8");
    assert!(second.queue_mean == 0.0, "{} wait for the second", second.queue_mean);
}

#[test]
fn servers_in_a_row_are_as_jackson_says_each_by_itself() {
    // Every host of a star sends to every other: what arrives at the second server comes from eleven first ones, so that
    // neither its gaps nor its service times are those of the first.
    const HOSTS: u32 = 12;
    let link = hop("rate=80mbit,delay=1ms,limit=5000packets");
    let network = Topology::Star { hosts: HOSTS, link }.plan();
    let hosts: Vec<u32> = network.hosts().into_values().collect();
    let (load, others) = (60_u32, HOSTS - 1);
    let rate = hop(&format!("rate={}bit", 800_000 * load / others)).up.rate.mean();
    let pairs = hosts.iter().flat_map(|from| hosts.iter().map(move |to| (*from, *to)));
    let sources = pairs.filter(|(from, to)| from != to).map(|(from, to)| SourceSpec {
        name: String::new(),
        from,
        to,
        pattern: SendPattern::Poisson { rate: rate.expect("a rate") },
        size: SIZE,
        is_size_exponential: true,
        dscp: 0,
        floods: None,
        start: Span::ZERO,
        stop: None,
    });
    let mut scenario = Scenario::new(network);
    scenario.sources = sources.collect();
    scenario.duration = Span::from_secs(310);
    scenario.warmup = Span::from_secs(10);
    let report = run(scenario);
    let rho = f64::from(load) / 100.0;
    let expected = rho * rho / (1.0 - rho);
    let mean = |is_second: bool| {
        let servers = report.links.iter().filter(|l| l.whole.name.starts_with("hub") == is_second);
        servers.map(|server| server.queue_mean).sum::<f64>() / f64::from(HOSTS)
    };
    println!("first {:.4}, second {:.4}, {expected:.4} expected", mean(false), mean(true));
    near(mean(false), expected, 0.03, "the first servers");
    near(mean(true), expected, 0.03, "the second servers");
}
