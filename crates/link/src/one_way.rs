//! One direction of one hop by itself: what networks in virtual time are made of.
//!
//! Whoever drives it moves it from one of its moments to the next, in the order of time over all of the network.

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_wire::flow::SipKey;
use plumb_wire::machine::Medium;
use plumb_wire::packet::{Packet, Pool};

use crate::frame::{FlowClassifier, FrameTotals, LinkFrame};
use crate::hop::{FifoHop, HopDirection, LinkParameters};
use crate::rate::SECOND;
use crate::report::DirectionReport;
use crate::spec::{DirectionSpec, QueueLimit, RateSpec};

/// One direction of one hop.
#[derive(Debug)]
pub struct OneWayLink {
    hop: OneWayHop,
    /// [`DirectionSpec::overhead`].
    overhead: u32,
    /// Picoseconds that a byte takes at least.
    byte_time_min: u64,
    early: u64,
}

/// A hop with events of its own, or one in which everything follows from when frames come.
#[derive(Debug)]
enum OneWayHop {
    General(Box<GeneralHop>),
    Fifo(Box<FifoHop>),
}

/// A hop with what its frames need before they enter and after they leave.
#[derive(Debug)]
struct GeneralHop {
    hop: HopDirection,
    /// `None` where no queue tells flows apart.
    classifier: Option<FlowClassifier>,
    scratch: Vec<LinkFrame>,
}

impl GeneralHop {
    fn new(spec: &DirectionSpec, parameters: LinkParameters, start: Instant) -> Self {
        let tells_apart = spec.queue.tells_flows_apart();
        let key = || SipKey::new(parameters.seed, "flows");
        let classifier = tells_apart.then(|| FlowClassifier::new(key(), parameters.medium));
        Self { hop: HopDirection::new(spec, parameters, start), classifier, scratch: Vec::new() }
    }

    fn arrive(&mut self, now: Instant, packet: Packet, wire_len: u32, pool: &mut Pool) {
        let flow = self.classifier.map_or(0, |classifier| classifier.flow(pool.bytes(&packet)));
        let frame = LinkFrame { packet, wire_len, count: 1, flow, entered: now, arrived: now };
        self.hop.arrive(now, frame, pool);
    }
}

impl OneWayLink {
    /// An empty one that begins at `start`; `round_trip` is that of the path, by which limits in products of rate and delay are
    /// resolved. What is `spec` must have passed [`crate::spec::LinkSpec::check`].
    pub fn new(
        spec: &DirectionSpec,
        medium: Medium,
        seed: Seed,
        round_trip: Span,
        start: Instant,
    ) -> Self {
        let parameters = LinkParameters { medium, seed, round_trip };
        let hop = match FifoHop::new(spec, parameters, start) {
            Some(hop) => OneWayHop::Fifo(Box::new(hop)),
            None => OneWayHop::General(Box::new(GeneralHop::new(spec, parameters, start))),
        };
        let byte_time_min = match &spec.rate {
            RateSpec::Constant(rate) => 8 * SECOND / rate.bits_per_second(),
            _ => 0,
        };
        Self { hop, overhead: spec.overhead, byte_time_min, early: 0 }
    }

    /// The delay of a direction in which the moment a packet leaves is known when it enters; `None` of others.
    pub fn foreseeable_delay(spec: &DirectionSpec) -> Option<Span> {
        FifoHop::constant_delay(spec)
    }

    /// Whether the moment at which each packet inside leaves is known.
    #[inline]
    pub fn is_foreseeable(&self) -> bool {
        matches!(self.hop, OneWayHop::Fifo(_))
    }

    /// What it is.
    #[inline]
    pub fn spec(&self) -> &DirectionSpec {
        match &self.hop {
            OneWayHop::General(general) => general.hop.spec(),
            OneWayHop::Fifo(hop) => hop.spec(),
        }
    }

    /// How much may wait.
    #[inline]
    pub fn limit(&self) -> QueueLimit {
        match &self.hop {
            OneWayHop::General(general) => general.hop.limit(),
            OneWayHop::Fifo(hop) => hop.limit(),
        }
    }

    /// What waits for the rate, at the moment of the last advance.
    #[inline]
    pub fn backlog(&self) -> FrameTotals {
        match &self.hop {
            OneWayHop::General(general) => general.hop.backlog(),
            OneWayHop::Fifo(hop) => hop.backlog(),
        }
    }

    /// Bytes of memory that its queue takes to tell flows apart, beside what waits.
    pub fn flow_state(&self) -> usize {
        match &self.hop {
            OneWayHop::General(general) => general.hop.flow_state(),
            OneWayHop::Fifo(_) => 0,
        }
    }

    /// Takes a packet that enters at `now`, up to which [`OneWayLink::advance`] has been called; it counts `extra` bytes more
    /// than it has.
    #[inline]
    pub fn send(&mut self, now: Instant, packet: Packet, extra: u32, pool: &mut Pool) {
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let wire_len = len.saturating_add(self.overhead).saturating_add(extra);
        match &mut self.hop {
            OneWayHop::General(general) => general.arrive(now, packet, wire_len, pool),
            OneWayHop::Fifo(hop) => hop.arrive(now, packet, wire_len, pool),
        }
    }

    /// When a packet may come out, at the earliest; [`Instant::NEVER`] when nothing is inside.
    #[inline]
    pub fn next_arrival(&self) -> Instant {
        match &self.hop {
            OneWayHop::General(general) => general.hop.earliest_out(),
            OneWayHop::Fifo(hop) => hop.next_arrival(),
        }
    }

    /// The packet that comes out after `index` others, where that is known.
    #[inline]
    pub fn coming(&self, index: usize) -> Option<&Packet> {
        match &self.hop {
            OneWayHop::General(_) => None,
            OneWayHop::Fifo(hop) => hop.get(index),
        }
    }

    /// When anything happens inside, as the beginning of a packet's transmission; [`Instant::NEVER`] when nothing does.
    #[inline]
    pub fn next_change(&self) -> Instant {
        match &self.hop {
            OneWayHop::General(general) => general.hop.next(),
            OneWayHop::Fifo(hop) => hop.next_change(),
        }
    }

    /// Everything up to `now` happens; what comes out is appended to `out`.
    #[inline]
    pub fn advance(&mut self, now: Instant, out: &mut Vec<Packet>, pool: &mut Pool) {
        self.take_arrived(now, out, pool);
        if let OneWayHop::Fifo(hop) = &mut self.hop {
            hop.settle(now);
        }
    }

    /// The next packet that comes out by `until` is appended to `out`, and when it does; `None` as well where that is not known beforehand.
    #[inline]
    pub fn take_next(&mut self, until: Instant, out: &mut Vec<Packet>) -> Option<Instant> {
        let OneWayHop::Fifo(hop) = &mut self.hop else { return None };
        let (at, entered, wire_len) = hop.pop(until, out)?;
        let least = Span::from_ps(self.byte_time_min.saturating_mul(wire_len.into())) + hop.delay();
        self.early += u64::from(at < entered + least);
        Some(at)
    }

    /// What comes out by `now` is appended to `out`. Where it is known beforehand, packets may still be sent that enter before `now`, but
    /// come out later.
    #[inline]
    pub fn take_arrived(&mut self, now: Instant, out: &mut Vec<Packet>, pool: &mut Pool) {
        while self.take_next(now, out).is_some() {}
        let OneWayHop::General(general) = &mut self.hop else { return };
        let GeneralHop { hop, scratch, .. } = &mut **general;
        while hop.next() <= now && hop.next() < Instant::NEVER {
            let at = hop.next();
            hop.step(at, scratch, pool);
            for frame in scratch.drain(..) {
                let byte_times = self.byte_time_min.saturating_mul(frame.wire_len.into());
                let least = Span::from_ps(byte_times) + hop.least_delay();
                self.early += u64::from(at < frame.entered + least);
                out.push(frame.packet);
            }
        }
    }

    /// What the next packet changes is fetched into caches.
    #[inline]
    pub fn prefetch(&self) {
        if let OneWayHop::Fifo(hop) = &self.hop {
            hop.prefetch_hot();
        }
    }

    /// Packets that came out earlier than transmission and propagation allow: none, or there is a fault in plumb.
    pub fn early(&self) -> u64 {
        self.early
    }

    /// Packets that wait, are sent, or travel.
    pub fn frames_inside(&self) -> u64 {
        match &self.hop {
            OneWayHop::General(general) => general.hop.frames_inside(),
            OneWayHop::Fifo(hop) => hop.frames_inside(),
        }
    }

    /// Distributions of later reports begin now; those of `before`, a report, are emptied.
    pub fn restart_histograms(&mut self, now: Instant, before: DirectionReport) -> DirectionReport {
        let mut form = DirectionReport {
            queue_lengths: before.queue_lengths.empty_like(),
            sojourns: before.sojourns.empty_like(),
            ..before
        };
        match &mut self.hop {
            OneWayHop::General(general) => general.hop.exchange_report(now, false, &mut form),
            OneWayHop::Fifo(hop) => hop.exchange_report(now, &mut form),
        }
        form
    }

    /// What it did up to `now`, under this name, with the laws that do not hold.
    pub fn report(&mut self, now: Instant, name: String) -> DirectionReport {
        match &mut self.hop {
            OneWayHop::General(general) => general.hop.report(now, name),
            OneWayHop::Fifo(hop) => hop.report(now, name),
        }
    }

    /// Gives every packet back to the pool, unaccounted: the end.
    pub fn clear(&mut self, pool: &mut Pool) {
        match &mut self.hop {
            OneWayHop::General(general) => general.hop.clear(pool),
            OneWayHop::Fifo(hop) => hop.clear(pool),
        }
    }
}

#[cfg(test)]
mod tests {
    use plumb_wire::packet::PoolConfig;

    use super::*;
    use crate::link::{FAR, Link, NEAR};
    use crate::report::Network as _;
    use crate::spec::{DelaySpec, LimitSpec, QueueSpec};
    use crate::text::any_link;
    use plumb_base::units::Rate;
    use plumb_wire::machine::TimedMachine as _;
    use proptest::prelude::*;

    fn at_us(us: u64) -> Instant {
        Instant::ORIGIN + Span::from_us(us)
    }

    /// When packets of these lengths come out that enter every `gap` microseconds.
    fn alone(
        spec: &DirectionSpec,
        lengths: &[usize],
        gap: u64,
        seed: Seed,
    ) -> Vec<(Instant, usize)> {
        let mut pool = Pool::new(PoolConfig { count: 256, size: 2_048, large: 0 });
        let round_trip = spec.delay.mean() * 2;
        let mut link = OneWayLink::new(spec, Medium::Ip, seed, round_trip, Instant::ORIGIN);
        let (mut out, mut came) = (Vec::new(), Vec::new());
        let mut until = |link: &mut OneWayLink, now: Instant, pool: &mut Pool| {
            while link.next_change() <= now && link.next_change() < Instant::NEVER {
                let at = link.next_change();
                link.advance(at, &mut out, pool);
                for packet in out.drain(..) {
                    came.push((at, packet.len()));
                    pool.free(packet);
                }
            }
        };
        for (number, len) in (0..).zip(lengths) {
            until(&mut link, at_us(number * gap), &mut pool);
            if let Some(packet) = pool.packet_of(&vec![0; *len]) {
                link.send(at_us(number * gap), packet, 0, &mut pool);
            }
        }
        until(&mut link, at_us(1_000_000_000), &mut pool);
        assert_eq!(link.early(), 0);
        came
    }

    /// The same by a hop of either kind, what is sent after half of them, and a report then and at the end.
    fn by_hop(
        general: bool,
        spec: &DirectionSpec,
        lengths: &[usize],
        gap: u64,
    ) -> (Vec<(Instant, usize)>, Vec<String>) {
        let mut pool = Pool::new(PoolConfig { count: 256, size: 2_048, large: 0 });
        let round_trip = spec.delay.mean() * 2;
        let mut link = OneWayLink::new(spec, Medium::Ip, Seed(1), round_trip, Instant::ORIGIN);
        assert!(matches!(link.hop, OneWayHop::Fifo(_)));
        if general {
            let parameters = LinkParameters { medium: Medium::Ip, seed: Seed(1), round_trip };
            link.hop =
                OneWayHop::General(Box::new(GeneralHop::new(spec, parameters, Instant::ORIGIN)));
        }
        let (mut came, mut reports, mut out) = (Vec::new(), Vec::new(), Vec::new());
        let moments = (0..).map(|number| at_us(number * gap)).zip(lengths.iter().map(Some));
        let end = at_us(lengths.len() as u64 * gap + 50);
        for (number, (now, len)) in moments.chain([(end, None)]).enumerate() {
            link.advance(now, &mut out, &mut pool);
            for packet in out.drain(..) {
                came.push((now, packet.len()));
                pool.free(packet);
            }
            if let Some(len) = len
                && let Some(packet) = pool.packet_of(&vec![0; *len])
            {
                link.send(now, packet, 7, &mut pool);
            }
            if number % 7 == 3 || len.is_none() {
                let report = link.report(now, String::new());
                assert_eq!(report.violations().next(), None);
                reports.push(format!("{report:?} {:?} {}", link.backlog(), link.frames_inside()));
            }
        }
        assert_eq!(link.early(), 0);
        (came, reports)
    }

    fn in_a_link(
        spec: &DirectionSpec,
        lengths: &[usize],
        gap: u64,
        seed: Seed,
    ) -> Vec<(Instant, usize)> {
        let mut pool = Pool::new(PoolConfig { count: 256, size: 2_048, large: 0 });
        let both = crate::spec::HopSpec { up: spec.clone(), down: spec.clone() };
        let link = crate::spec::LinkSpec { hops: vec![both], seed };
        let mut link = Link::new(&link, Medium::Ip, Instant::ORIGIN).expect("a link");
        for (number, len) in (0..).zip(lengths) {
            let now = at_us(number * gap);
            link.advance(now, &mut pool);
            if let Some(packet) = pool.packet_of(&vec![0; *len]) {
                link.handle_packet(now, NEAR, packet, &mut pool);
            }
        }
        let mut due = Vec::new();
        link.poll_due(at_us(1_000_000_000), FAR, &mut due, usize::MAX, &mut pool);
        due.into_iter()
            .map(|due| {
                let found = (due.at, due.packet.len());
                pool.free(due.packet);
                found
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn a_fifo_gives_the_same_trace_and_counts_without_events_of_its_own(
            rate in 1_u64..2_000_000_000,
            delay_us in 0_u64..5_000,
            limit in prop_oneof![(1_u64..20).prop_map(LimitSpec::Frames), (1_u64..20_000).prop_map(LimitSpec::Bytes)],
            lengths in prop::collection::vec(1_usize..1_500, 1..80),
            gap in 0_u64..300,
        ) {
            let rate = Rate::from_bits_per_second(rate + 100_000).expect("above zero");
            let spec = DirectionSpec {
                rate: RateSpec::Constant(rate),
                queue: QueueSpec::DropTail { limit },
                delay: DelaySpec::constant(Span::from_us(delay_us)),
                overhead: 3,
                ..DirectionSpec::default()
            };
            prop_assert_eq!(by_hop(false, &spec, &lengths, gap), by_hop(true, &spec, &lengths, gap));
        }

        #[test]
        fn one_direction_by_itself_does_what_it_does_in_a_link(
            link in any_link(),
            lengths in prop::collection::vec(40_usize..1_500, 1..60),
            gap in 1_u64..3_000,
        ) {
            let mut spec = link.hops[0].up.clone();
            spec.mtu = None;
            let own = link.seed.derive("hop 0 up");
            prop_assert_eq!(
                alone(&spec, &lengths, gap, own),
                in_a_link(&spec, &lengths, gap, link.seed)
            );
        }
    }
}
