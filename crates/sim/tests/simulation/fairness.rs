//! Who gets how much of a bottleneck.

use plumb_base::time::Span;
use plumb_base::units::Rate;
use plumb_sim::network::{NetworkPlan, Topology};
use plumb_sim::report::{FlowReport, SimulationReport, jain};
use plumb_sim::scenario::{FlowSpec, Scenario, SendPattern, SourceSpec};
use plumb_stack::tcp::config::EcnPolicy;
use plumb_stack::tcp::congestion::CongestionChoice;

use crate::network::{dumbbell, group, hop, plain, run, unlimited};

/// Connections whose access differs in delay through one bottleneck.
fn unequal_round_trips(queue: &str) -> SimulationReport {
    let mut plan = NetworkPlan::default();
    let mut ends = Vec::new();
    for delay in [1, 5, 20, 60] {
        let (a, b) = (plan.node(&format!("a{delay}")), plan.node(&format!("b{delay}")));
        let routers = [plan.node("router1"), plan.node("router2")];
        plan.connect([a, routers[0]], hop(&format!("rate=100mbit,delay={delay}ms")));
        plan.connect([b, routers[1]], hop("rate=100mbit,delay=1ms"));
        ends.push((a, b));
    }
    let routers = [plan.node("router1"), plan.node("router2")];
    plan.connect(routers, hop(&format!("rate=10mbit,delay=1ms,{queue}")));
    let mut scenario = Scenario::new(plan);
    let flows = ends.into_iter().map(|(from, to)| unlimited(from, to)).collect();
    scenario.groups = vec![group(&plain(CongestionChoice::NewReno), flows)];
    scenario.duration = Span::from_secs(120);
    scenario.warmup = Span::from_secs(30);
    run(scenario)
}

#[test]
fn fair_queues_take_away_the_advantage_of_a_short_round_trip() {
    let fairness = |queue: &str| unequal_round_trips(queue).fairness().expect("several");
    let [tail, drr, codel] =
        ["limit=60packets", "queue=drr,limit=200packets", "queue=fq-codel"].map(fairness);
    println!("drop-tail {tail:.4}, DRR {drr:.4}, FQ-CoDel {codel:.4}");
    assert!(drr > 0.999, "DRR: {drr:.4}");
    // It drops in the queue of each, which a long round trip then leaves empty at times.
    assert!(codel > 0.98, "FQ-CoDel: {codel:.4}");
    assert!(tail < 0.9, "drop-tail: {tail:.4}");
}

#[test]
fn connections_alike_share_alike() {
    let mut scenario = dumbbell(
        2,
        "rate=1gbit,delay=1ms",
        "rate=20mbit,delay=28ms,limit=100packets",
        &plain(CongestionChoice::NewReno),
    );
    scenario.groups[0].flows[1].start = Span::from_ms(5_333);
    scenario.duration = Span::from_secs(600);
    scenario.warmup = Span::from_secs(60);
    let report = run(scenario);
    let fairness = report.fairness().expect("two");
    assert!(fairness > 0.95, "{fairness:.4}");
}

/// Floyd and Fall 1999: connections and an unresponsive flow share 1.5 Mb/s, and the flow's next link has 128 kb/s.
fn collapse(queue: &str) -> (f64, f64) {
    let mut plan = NetworkPlan::default();
    let mut connect = |a: &str, b: &str, link: &str| {
        let ends = [plan.node(a), plan.node(b)];
        plan.connect(ends, hop(link));
    };
    for number in 1..=3 {
        // Random delays, or packets that come just behind a departure always find room (Floyd and Jacobson 1992).
        connect(&format!("s{number}"), "router1", "rate=10mbit,delay=1ms..9ms");
        connect(&format!("d{number}"), "router2", "rate=10mbit,delay=10ms");
    }
    connect("udp", "router1", "rate=10mbit,delay=3ms");
    connect("router2", "sink", "rate=128kbit,delay=5ms,limit=10packets");
    connect("router1", "router2", &format!("rate=1500kbit,delay=3ms,{queue}"));
    let node = |name: &str| plan.hosts()[name];
    let flows: Vec<FlowSpec> = (1..=3)
        .map(|number| unlimited(node(&format!("s{number}")), node(&format!("d{number}"))))
        .collect();
    let source = SourceSpec {
        name: "unresponsive".to_owned(),
        from: node("udp"),
        to: node("sink"),
        pattern: SendPattern::Constant {
            rate: Rate::from_bits_per_second(8_000_000).expect("above zero"),
        },
        size: 1_500,
        is_size_exponential: false,
        dscp: 0,
        floods: None,
        start: Span::ZERO,
        stop: None,
    };
    let mut scenario = Scenario::new(plan);
    scenario.groups = vec![group(&plain(CongestionChoice::NewReno), flows)];
    scenario.sources = vec![source];
    scenario.duration = Span::from_secs(120);
    scenario.warmup = Span::from_secs(20);
    let report = run(scenario);
    let useful = report.sources[0].counts.received_bytes as f64 * 8.0
        / report.sources[0].active.as_secs_f64();
    // Goodput of TCP is what is in its packets.
    (report.goodput() * 1_500.0 / 1_448.0 / 1.5e6, useful / 1.5e6)
}

#[test]
fn an_unresponsive_flow_starves_connections_but_for_fair_queueing() {
    let (tcp, useful) = collapse("limit=25packets");
    println!("FIFO: TCP {tcp:.4}, unresponsive {useful:.4}");
    assert!(tcp < 0.02, "TCP gets {tcp:.4} of a FIFO");
    assert!((tcp + useful - 0.085).abs() < 0.02, "{:.4} of a FIFO is of use", tcp + useful);
    let (tcp, useful) = collapse("queue=drr,limit=100packets");
    println!("DRR: TCP {tcp:.4}, unresponsive {useful:.4}");
    assert!((tcp - 0.75).abs() < 0.02, "TCP gets {tcp:.4}");
    assert!((tcp + useful - 0.835).abs() < 0.02, "{:.4} of fair queueing is of use", tcp + useful);
}

#[test]
fn punishing_routers_protect_connections_without_a_queue_for_each() {
    let (tcp, useful) = collapse("queue=csfq,limit=50packets");
    println!("CSFQ: TCP {tcp:.4}, unresponsive {useful:.4}");
    assert!((tcp - 0.75).abs() < 0.15 * 0.75, "TCP gets {tcp:.4} by labels");
    let (tcp, useful) = collapse("queue=red-pd,min=10KB,max=30KB,rtt=40ms,limit=60packets");
    println!("RED-PD: TCP {tcp:.4}, unresponsive {useful:.4}");
    assert!(tcp > 0.5, "TCP gets {tcp:.4} behind a penalty box");
}

#[test]
fn each_loss_that_two_connections_share_halves_their_difference() {
    // Chiu and Jain 1989. Paced, so that a wire that is dark for 5 ms takes packets of both; the first of each is lost early, so that
    // slow start ends at different windows.
    let mut plan = NetworkPlan::default();
    let routers = [plan.node("router1"), plan.node("router2")];
    let mut ends = Vec::new();
    for lost in [40, 200] {
        let (a, b) = (plan.node(&format!("a{lost}")), plan.node(&format!("b{lost}")));
        plan.connect(
            [a, routers[0]],
            hop(&format!("rate=1gbit,delay=10ms,lose={lost}|rate=1gbit,delay=10ms")),
        );
        plan.connect([b, routers[1]], hop("rate=1gbit,delay=10ms"));
        ends.push((a, b));
    }
    plan.connect(routers, hop("delay=30ms,blackout=10s/5ms|delay=30ms"));
    let mut config = plain(CongestionChoice::NewReno);
    config.pacing = true;
    let mut flows: Vec<FlowSpec> = ends.into_iter().map(|(from, to)| unlimited(from, to)).collect();
    for flow in &mut flows {
        flow.start = Span::from_ms(100);
    }
    let mut scenario = Scenario::new(plan);
    scenario.groups = vec![group(&config, flows)];
    scenario.duration = Span::from_secs(60);
    scenario.sample_every = Some(Span::from_secs(5));
    let report = run(scenario);
    for flow in &report.flows {
        assert_eq!(flow.counts.sent.timeouts, 0, "the wire is dark for less than a round trip");
    }
    let window = |flow: usize, seconds: u64| {
        let series = &report.flows[flow].series;
        let sample = series.iter().find(|sample| sample.at == Span::from_secs(seconds));
        sample.expect("sampled then").cwnd as f64 / 1_448.0
    };
    let differences: Vec<f64> =
        [5, 15, 25, 35, 45, 55].map(|at| window(1, at) - window(0, at)).into();
    println!("segments of difference: {differences:.1?}");
    assert!(differences[0] > 30.0, "{differences:?}");
    for pair in differences.windows(2) {
        assert!((pair[1] - pair[0] / 2.0).abs() < 2.0, "{differences:?}");
    }
}

#[test]
fn connections_that_are_marked_again_and_again_keep_a_link_busy() {
    for congestion in [CongestionChoice::NewReno, CongestionChoice::Cubic] {
        let mut config = plain(congestion);
        config.ecn = EcnPolicy::Offer;
        let bottleneck = "rate=20mbit,delay=18ms,queue=fq-codel,ecn=yes";
        let mut scenario = dumbbell(4, "rate=1gbit,delay=1ms", bottleneck, &config);
        scenario.duration = Span::from_secs(60);
        scenario.warmup = Span::from_secs(10);
        let report = run(scenario);
        let marks: u64 = report.flows.iter().map(|flow| flow.counts.sent.marks).sum();
        let link = report.link("router1 > router2").expect("the bottleneck");
        let used = link.utilization.expect("a rate");
        println!("{congestion}: {used:.4} used, {marks} reductions for {} marks", link.marked);
        assert!(used > 0.9 && link.discarded == 0, "{congestion}: {used:.4} used");
        // One a round trip, of which several marks may be.
        assert!(marks > 0 && marks <= link.marked, "{congestion}: {marks} of {}", link.marked);
    }
}

#[test]
fn a_paths_share_of_a_parking_lot_falls_with_its_bottlenecks() {
    let topology = Topology::ParkingLot {
        hops: 3,
        access: hop("rate=1gbit,delay=1ms"),
        bottleneck: hop("rate=10mbit,delay=5ms,queue=drr,limit=100packets"),
    };
    let mut scenario = Scenario::new(topology.plan());
    let host = |number: u32| scenario.network.hosts()[format!("host{number}").as_str()];
    let long = unlimited(host(1), host(4));
    let short = (1..=3).map(|number| unlimited(host(number), host(number + 1)));
    let flows = std::iter::once(long).chain(short).collect();
    scenario.groups = vec![group(&plain(CongestionChoice::Cubic), flows)];
    scenario.duration = Span::from_secs(60);
    scenario.warmup = Span::from_secs(20);
    let report = run(scenario);
    // Each fair queue has two connections, whichever they are: max-min fairness gives all of them half.
    let fairness = jain(report.flows.iter().map(FlowReport::goodput));
    assert!(fairness > 0.995, "{fairness:.4}");
}
