//! One scenario and one seed, one trace.

use std::cell::RefCell;
use std::rc::Rc;

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_sim::scenario::Scenario;
use plumb_sim::simulation::{PacketObserver, Simulation};
use plumb_stack::tcp::congestion::CongestionChoice;
use plumb_wire::packet::ChecksumState;

use crate::network::{MEMORY, dumbbell, plain};

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
    let mut simulation = Simulation::new(scenario, MEMORY).expect("a scenario");
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
    assert_ne!(trace(lossy(2), u64::MAX).0, hash);
}

/// Payload is written only where somebody may look at it: here checksums are computed over whatever frames held.
#[test]
fn an_observer_changes_no_figure() {
    let mut alone = Simulation::new(lossy(1), MEMORY).expect("a scenario");
    alone.run();
    let mut observed = Simulation::new(lossy(1), MEMORY).expect("a scenario");
    observed.observe(Box::new(TraceHash(Rc::default())));
    observed.run();
    assert_eq!(alone.events(), observed.events());
    assert_eq!(format!("{:?}", alone.finish()), format!("{:?}", observed.finish()));
}
