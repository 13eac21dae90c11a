//! Hosts whose processors take time: what they receive, what they lose, and how often they are interrupted.

use plumb_base::time::Span;
use plumb_base::units::Rate;
use plumb_sim::network::Topology;
use plumb_sim::processor::ProcessorSpec;
use plumb_sim::report::SimulationReport;
use plumb_sim::scenario::{Scenario, SendPattern, SourceSpec};
use plumb_stack::tcp::congestion::CongestionChoice;

use crate::network::{dumbbell, hop, plain, run};

fn processor(node: u32, per_packet: Span) -> ProcessorSpec {
    ProcessorSpec {
        node,
        per_interrupt: Span::ZERO,
        per_packet,
        per_byte: Span::ZERO,
        coalesce: Span::ZERO,
        ring: 64,
    }
}

/// A source of packets of 1,500 bytes to a host with a processor.
fn received(bits_per_second: u64, change: impl FnOnce(&mut ProcessorSpec)) -> SimulationReport {
    let mut scenario = Scenario::new(Topology::Pair { link: hop("rate=1gbit,delay=1ms") }.plan());
    let (from, to) = (scenario.network.hosts()["left"], scenario.network.hosts()["right"]);
    let mut spec = processor(to, Span::from_us(200));
    change(&mut spec);
    scenario.processors = vec![spec];
    let rate = Rate::from_bits_per_second(bits_per_second).expect("above zero");
    scenario.sources = vec![SourceSpec {
        name: String::new(),
        from,
        to,
        pattern: SendPattern::Constant { rate },
        size: 1_500,
        is_size_exponential: false,
        dscp: 0,
        floods: None,
        start: Span::ZERO,
        stop: None,
    }];
    scenario.duration = Span::from_secs(10);
    run(scenario)
}

#[test]
fn an_overloaded_host_receives_what_its_processor_can() {
    // 5,000 packets of 1,500 bytes a second.
    for (offered, expected) in [(30_000_000, 30e6), (120_000_000, 60e6)] {
        let report = received(offered, |_| {});
        let seen = report.sources[0].counts.received_bytes as f64 * 8.0 / 10.0;
        assert!((seen / expected - 1.0).abs() < 0.01, "{seen:.0} b/s of {offered}");
        let processor = &report.processors[0];
        assert!((processor.busy_share - expected / 60e6).abs() < 0.01, "{}", processor.busy_share);
        assert_eq!(processor.counts.dropped > 0, offered > 60_000_000);
    }
}

#[test]
fn interrupts_that_wait_for_others_are_fewer_and_packets_later() {
    let at_once = received(12_000_000, |_| {});
    let delayed = received(12_000_000, |spec| spec.coalesce = Span::from_ms(10));
    let interrupts = [&at_once, &delayed].map(|report| report.processors[0].counts.interrupts);
    assert!(interrupts[0] > 9_900, "{interrupts:?}: one for each of 1,000 packets a second");
    assert!((700..1_100).contains(&interrupts[1]), "{interrupts:?}: one each 10 ms and more");
    let delays = [&at_once, &delayed].map(|report| report.sources[0].delays.quantile(0.5));
    assert!(delays[1] > delays[0] + 3_000_000, "{delays:?} ns");
}

#[test]
fn a_connection_adapts_to_the_processor_of_its_receiver() {
    let mut scenario = dumbbell(
        1,
        "rate=1gbit,delay=1ms",
        "rate=100mbit,delay=5ms,limit=1bdp",
        &plain(CongestionChoice::Cubic),
    );
    let to = scenario.groups[0].flows[0].to;
    scenario.processors = vec![processor(to, Span::from_us(300))];
    scenario.duration = Span::from_secs(20);
    scenario.warmup = Span::from_secs(5);
    let report = run(scenario);
    // It receives a segment and sends half an acknowledgement in 450 µs at least.
    let capacity = 1_448.0 * 8.0 / 450e-6;
    let goodput = report.flows[0].goodput();
    assert!((0.75..1.01).contains(&(goodput / capacity)), "{goodput:.0} b/s of {capacity:.0}");
    let bottleneck = report.link("router1 > router2").expect("a link").utilization.expect("a rate");
    assert!(bottleneck < 0.5, "{bottleneck}");
}
