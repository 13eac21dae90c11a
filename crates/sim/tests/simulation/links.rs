//! Links: exact from modems to 400 Gb/s, over hours.

use std::cell::RefCell;
use std::rc::Rc;

use plumb_base::time::{Instant, Span};
use plumb_sim::network::Topology;
use plumb_sim::scenario::{Scenario, SendPattern, SourceSpec};
use plumb_sim::simulation::{PacketObserver, START, Simulation};
use plumb_wire::packet::ChecksumState;

use crate::network::{MEMORY, hop};

/// How many packets came, and when the last did.
#[derive(Clone, Debug, Default)]
struct LastArrival(Rc<RefCell<(u64, Span)>>);

impl PacketObserver for LastArrival {
    fn on_arrival(&mut self, at: Instant, _: u32, _: &[u8], _: ChecksumState) {
        let mut last = self.0.borrow_mut();
        *last = (last.0 + 1, at - START);
    }
}

/// Packets of 576 bytes that came over a busy link, and when the last did.
fn busy(rate: &str, duration: Span) -> (u64, Span, u64) {
    let link = hop(&format!("rate={rate},delay=7ms,limit=4packets"));
    let bits = link.up.rate.mean().expect("a rate").bits_per_second();
    let mut scenario = Scenario::new(Topology::Pair { link }.plan());
    let peak = hop(&format!("rate={}bit", bits * 2)).up.rate.mean().expect("a rate");
    let (from, to) = (scenario.network.hosts()["left"], scenario.network.hosts()["right"]);
    scenario.sources = vec![SourceSpec {
        name: String::new(),
        from,
        to,
        pattern: SendPattern::Constant { rate: peak },
        size: 576,
        is_size_exponential: false,
        dscp: 0,
        floods: None,
        start: Span::ZERO,
        stop: None,
    }];
    scenario.duration = duration;
    let mut simulation = Simulation::new(scenario, MEMORY).expect("a scenario");
    let last = LastArrival::default();
    simulation.observe(Box::new(last.clone()));
    simulation.run();
    assert_eq!(simulation.finish().violations, [] as [String; 0]);
    let (count, at) = *last.0.borrow();
    (count, at, bits)
}

#[test]
fn a_busy_link_keeps_its_rate_to_the_picosecond() {
    let hour = Span::from_secs(3_600);
    for (rate, duration) in [
        ("1200bit", hour),
        ("56kbit", hour),
        ("1mbit", Span::from_secs(60)),
        ("400gbit", Span::from_ms(20)),
    ] {
        let (count, at, bits) = busy(rate, duration);
        let exact = u128::from(count) * 576 * 8 * 1_000_000_000_000 / u128::from(bits);
        let exact = Span::from_ps(u64::try_from(exact).expect("below 213 days")) + Span::from_ms(7);
        assert!(count > 900, "{rate}: {count} packets");
        assert_eq!(at, exact, "{rate}: packet {count}");
    }
}
