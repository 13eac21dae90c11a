//! One scenario and one seed, one trace.

use std::cell::RefCell;
use std::rc::Rc;

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_sim::network::Topology;
use plumb_sim::scenario::{FlowSpec, Scenario};
use plumb_sim::simulation::{PacketObserver, Simulation};
use plumb_stack::tcp::congestion::CongestionChoice;
use plumb_wire::packet::ChecksumState;

use crate::network::{MEMORY, dumbbell, group, hop, plain, unlimited};

/// FNV-1a over every arrival.
#[derive(Clone, Debug)]
struct TraceHash(Rc<RefCell<(u64, u64)>>);

impl PacketObserver for TraceHash {
    fn on_arrival(&mut self, at: Instant, link: u32, bytes: &[u8], _: ChecksumState) {
        let mut state = self.0.borrow_mut();
        let words = at.since_origin().as_ps().to_be_bytes().into_iter().chain(link.to_be_bytes());
        for byte in words.chain(bytes.iter().copied()) {
            state.0 = (state.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        state.1 += 1;
    }
}

fn trace(scenario: Scenario, events: u64) -> (u64, u64) {
    trace_in(1, scenario, events)
}

fn trace_in(threads: u32, scenario: Scenario, events: u64) -> (u64, u64) {
    let mut simulation = Simulation::with_threads(scenario, MEMORY, threads).expect("a scenario");
    let hash = TraceHash(Rc::new(RefCell::new((0xcbf2_9ce4_8422_2325, 0))));
    simulation.observe(Box::new(hash.clone()));
    while simulation.run_some(events) {}
    assert_eq!(simulation.finish().violations, [] as [String; 0]);
    *hash.0.borrow()
}

fn lossy(seed: u64) -> Scenario {
    let bottleneck =
        "rate=10mbit,delay=20ms..22ms,loss=0.1%,duplicate=0.1%,corrupt=0.1%,limit=1bdp";
    let mut scenario =
        dumbbell(3, "rate=100mbit,delay=1ms", bottleneck, &plain(CongestionChoice::Cubic));
    scenario.duration = Span::from_secs(5);
    scenario.seed = Seed(seed);
    scenario
}

/// The trace of [`lossy`] with seed 1. It changes when links, hosts or TCP do something else; never with a build or a machine.
const TRACE: (u64, u64) = (2_317_008_760_542_971_197, 24_786);

#[test]
fn one_seed_gives_one_trace_however_it_is_built_and_driven() {
    let (hash, packets) = trace(lossy(1), u64::MAX);
    assert_eq!((hash, packets), TRACE, "if packets were meant to change, so does this constant");
    for events in [1, 1_000] {
        assert_eq!(trace(lossy(1), events), (hash, packets));
    }
    assert_eq!(trace_in(2, lossy(1), u64::MAX), (hash, packets));
    assert_ne!(trace(lossy(2), u64::MAX).0, hash);
}

/// Payload is written only where somebody may look at it: here checksums are computed over whatever frames held.
#[test]
fn an_observer_changes_no_figure() {
    let report = |threads, is_observed| {
        let mut simulation =
            Simulation::with_threads(lossy(1), MEMORY, threads).expect("a scenario");
        if is_observed {
            simulation.observe(Box::new(TraceHash(Rc::default())));
        }
        simulation.run();
        format!("{:?}", simulation.finish())
    };
    let alone = report(1, false);
    for (threads, is_observed) in [(1, true), (2, false), (2, true)] {
        assert!(report(threads, is_observed) == alone, "{threads} threads, {is_observed}");
    }
}

/// Connections over a dumbbell, a parking lot and a fat tree: endless ones, and some that end, are aborted, or find nobody.
fn divisible(seed: u64) -> Vec<Scenario> {
    let (access, link) =
        (hop("rate=100mbit,delay=200us"), hop("rate=20mbit,delay=2ms,limit=20packets"));
    let topologies = [
        Topology::Dumbbell { pairs: 6, access: access.clone(), bottleneck: link.clone() },
        Topology::ParkingLot { hops: 3, access, bottleneck: link.clone() },
        Topology::FatTree { k: 4, link },
    ];
    let scenario = |topology: Topology| {
        let mut scenario = Scenario::new(topology.plan());
        let hosts: Vec<u32> = scenario.network.hosts().into_values().collect();
        let flow = |number: usize| FlowSpec {
            start: Span::from_us(7_001 * number as u64 + seed),
            stop: (number % 5 == 3).then_some(Span::from_ms(700)),
            bytes: (number % 3 == 1).then_some(100_000),
            ..unlimited(hosts[number % hosts.len()], hosts[(number * 7 + 5) % hosts.len()])
        };
        let flows = (0..12).map(flow).filter(|flow| flow.from != flow.to).collect();
        scenario.groups = vec![group(&plain(CongestionChoice::Cubic), flows)];
        (scenario.duration, scenario.warmup) = (Span::from_secs(1), Span::from_ms(150));
        scenario.seed = Seed(seed);
        scenario
    };
    let mut scenarios: Vec<Scenario> = topologies.into_iter().map(scenario).collect();
    // Where packets can go on beforehand.
    let (access, link) = ("rate=100mbit,delay=200us", "rate=20mbit,delay=2ms,limit=20packets");
    scenarios.push(dumbbell(5, access, link, &plain(CongestionChoice::Reno)));
    scenarios
}

/// Of one of the networks of [`divisible`].
fn assert_threads_change_nothing(network: usize) {
    for scenario in (1..4).map(|seed| divisible(seed).swap_remove(network)) {
        let report = |threads, is_observed| {
            let mut simulation =
                Simulation::with_threads(scenario.clone(), MEMORY, threads).expect("a scenario");
            assert!(simulation.threads() <= threads as usize);
            assert_eq!(simulation.threads() == 1, threads == 1);
            if is_observed {
                simulation.observe(Box::new(TraceHash(Rc::default())));
            }
            simulation.run();
            let report = simulation.finish();
            assert_eq!(report.violations, [] as [String; 0]);
            format!("{report:?}")
        };
        let (alone, hash) = (report(1, false), trace(scenario.clone(), u64::MAX));
        assert!(alone == report(1, true), "{}: a report with an observer", scenario.seed.0);
        for threads in [2, 3] {
            assert!(
                alone == report(threads, false),
                "{}: a report of {threads} threads",
                scenario.seed.0
            );
            assert_eq!(trace_in(threads, scenario.clone(), u64::MAX), hash);
            assert_eq!(trace_in(threads, scenario.clone(), 1_000), hash);
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_over_a_dumbbell() {
    assert_threads_change_nothing(0);
    assert_threads_change_nothing(3);
}

#[test]
fn any_number_of_threads_gives_the_same_over_a_parking_lot() {
    assert_threads_change_nothing(1);
}

#[test]
fn any_number_of_threads_gives_the_same_over_a_fat_tree() {
    assert_threads_change_nothing(2);
}

#[test]
fn a_simulation_that_is_ended_early_breaks_no_law() {
    for (scenario, events) in
        divisible(1).into_iter().flat_map(|one| [(one.clone(), 1), (one, 5_000)])
    {
        for threads in [1, 2] {
            let mut simulation =
                Simulation::with_threads(scenario.clone(), MEMORY, threads).expect("a scenario");
            simulation.run_some(events);
            assert_eq!(simulation.finish().violations, [] as [String; 0]);
        }
    }
}

/// What happens in one part at an end that the other cannot foresee is left to one thread.
#[test]
fn what_cannot_be_divided_runs_in_one_thread() {
    let threads =
        |scenario| Simulation::with_threads(scenario, MEMORY, 2).expect("a scenario").threads();
    let varying = "rate=10mbit,delay=1ms..2ms";
    let mut unforeseeable = dumbbell(2, varying, varying, &plain(CongestionChoice::Cubic));
    assert_eq!(threads(unforeseeable.clone()), 1);
    let edges = unforeseeable.network.edges.iter_mut();
    for edge in edges.filter(|edge| edge.ends.iter().all(|router| *router < 2)) {
        edge.spec = hop("rate=10mbit,delay=1ms");
    }
    assert_eq!(threads(unforeseeable), 2);
    for scenario in divisible(1) {
        let mut ends = scenario.clone();
        for flow in &mut ends.groups[0].flows {
            flow.bytes = Some(1_000);
        }
        assert_eq!(threads(ends), 1);
        assert_eq!(threads(scenario), 2);
    }
}

#[test]
fn parts_share_the_memory_that_the_whole_may_need() {
    let mut scenario = divisible(1).pop().expect("one");
    scenario.ring = 1_000_000;
    let need = scenario.memory_need().expect("a scenario").bytes();
    for (memory, threads) in [(need, 1), (need * 3, 2)] {
        let simulation = Simulation::with_threads(scenario.clone(), memory, 2);
        assert_eq!(simulation.expect("a scenario").threads(), threads);
    }
    let links = "rate=1gbit,delay=1ms,limit=20000packets";
    let scenario = dumbbell(20, links, links, &plain(CongestionChoice::Cubic));
    let memory = scenario.memory_need().expect("a scenario").bytes() * 5 / 4;
    let simulation = Simulation::with_threads(scenario, memory, 2);
    assert_eq!(simulation.expect("a scenario").threads(), 2);
}
