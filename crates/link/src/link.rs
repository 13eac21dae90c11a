//! A link: hops in a row, both ways, between a near side and a far side.
//!
//! Port 0 is the near side, port 1 the far one; "up" is from near to far.

use std::collections::VecDeque;

use plumb_base::time::{Instant, Span};
use plumb_wire::flow::SipKey;
use plumb_wire::machine::{DuePacket, Medium, PortId, TimedMachine};
use plumb_wire::packet::{Packet, Pool};

use crate::frame::{FlowClassifier, LinkFrame};
use crate::hop::{HopDirection, LinkParameters};
use crate::report::{DirectionReport, Network, NetworkReport, RouterCounts};
use crate::router::TransparentRouter;
use crate::spec::{DirectionSpec, LinkSpec, SpecError};

mod forwarding;

use forwarding::IngressLimits;

/// The near side of a link.
pub const NEAR: PortId = PortId(0);
/// The far side of a link.
pub const FAR: PortId = PortId(1);

/// A link.
#[derive(Debug)]
pub struct Link {
    spec: LinkSpec,
    medium: Medium,
    classifier: FlowClassifier,
    /// From the near side, and from the far side.
    directions: [DirectionState; 2],
    /// Up to when everything has happened.
    clock: Instant,
    router_counts: RouterCounts,
    scratch: Vec<LinkFrame>,
    pieces: Vec<Packet>,
}

/// One direction.
#[derive(Debug)]
struct DirectionState {
    /// In the order in which frames pass them.
    hops: Vec<HopDirection>,
    /// What each hop is entered through.
    routers: Vec<TransparentRouter>,
    ingress_limits: IngressLimits,
    /// The least time from the end of each hop until something can leave the link.
    least_time_to_exit: Vec<Span>,
    /// What waits to be polled at the other end.
    egress: VecDeque<DuePacket>,
}

impl Link {
    /// A link of what `spec` says, which begins at `start` and carries frames of `medium`.
    ///
    /// # Errors
    /// [`SpecError`] when there cannot be such a link.
    pub fn new(spec: &LinkSpec, medium: Medium, start: Instant) -> Result<Self, SpecError> {
        spec.check()?;
        let ways = [0, 1].map(|way| {
            let count = spec.hops.len();
            let make = |index| {
                let (direction, surroundings) = direction_and_parameters(spec, medium, way, index);
                HopDirection::new(direction, surroundings, start)
            };
            let hops: Vec<_> = (0..count).map(make).collect();
            let routers = (0..count).map(|index| router(way, index, count, start)).collect();
            DirectionState {
                ingress_limits: IngressLimits::of(&hops),
                least_time_to_exit: Vec::new(),
                routers,
                hops,
                egress: VecDeque::new(),
            }
        });
        let classifier = FlowClassifier::new(SipKey::new(spec.seed, "flows"), medium);
        let (scratch, pieces) = (Vec::new(), Vec::new());
        let spec = spec.clone();
        let routed = RouterCounts::default();
        let mut link = Self {
            spec,
            medium,
            classifier,
            directions: ways,
            clock: start,
            router_counts: routed,
            scratch,
            pieces,
        };
        link.update_derived();
        Ok(link)
    }

    /// What follows from the hops.
    fn update_derived(&mut self) {
        for way in &mut self.directions {
            way.ingress_limits = IngressLimits::of(&way.hops);
            way.least_time_to_exit = least_times_to_exit(&way.hops);
        }
        // A router may also answer, by the way back from where it stands.
        let count = self.spec.hops.len();
        let [up, down] = &mut self.directions;
        let back = |way: &DirectionState, index: usize| {
            let place = count - 1 - index;
            way.least_time_to_exit[place] + way.hops[place].least_delay()
        };
        for index in 0..count - 1 {
            let (up_back, down_back) = (back(down, index), back(up, index));
            up.least_time_to_exit[index] = up.least_time_to_exit[index].min(up_back);
            down.least_time_to_exit[index] = down.least_time_to_exit[index].min(down_back);
        }
    }

    /// Up to when it can tell: what is due until then and has not been seen to is still inside.
    fn known_until(&self, now: Instant) -> Instant {
        self.clock.max(now.min(self.next()))
    }

    /// As `Network::hand_over`, of its directions; up to when.
    pub(crate) fn fill(
        &mut self,
        now: Instant,
        is_changed: bool,
        directions: &mut [DirectionReport],
    ) -> Instant {
        let at = self.known_until(now);
        let last = self.spec.hops.len() - 1;
        for (number, both) in directions.chunks_exact_mut(2).enumerate() {
            for ((way, form), index) in
                self.directions.iter_mut().zip(both).zip([number, last - number])
            {
                way.hops[index].exchange_report(at, is_changed, form);
            }
        }
        at
    }

    /// What its routers did.
    pub(crate) const fn routed(&self) -> RouterCounts {
        self.router_counts
    }

    /// What it is.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// When something happens inside; [`Instant::NEVER`] when nothing does.
    pub(crate) fn next(&self) -> Instant {
        let next = self.directions.iter().flat_map(|way| &way.hops).map(HopDirection::next).min();
        next.unwrap_or(Instant::NEVER)
    }
}

impl TimedMachine for Link {
    fn advance(&mut self, now: Instant, pool: &mut Pool) -> Instant {
        loop {
            let mut first = (Instant::NEVER, 0, 0);
            for (way, DirectionState { hops, .. }) in self.directions.iter().enumerate() {
                for (index, hop) in hops.iter().enumerate() {
                    if hop.next() < first.0 {
                        first = (hop.next(), way, index);
                    }
                }
            }
            let (at, way, index) = first;
            if at > now || at == Instant::NEVER {
                break;
            }
            self.clock = self.clock.max(at);
            let mut out = std::mem::take(&mut self.scratch);
            self.directions[way].hops[index].step(at, &mut out, pool);
            for frame in out.drain(..) {
                self.enter(at, way, index + 1, frame, pool);
            }
            self.scratch = out;
        }
        self.clock = self.clock.max(now);
        self.clock
    }

    fn handle_packet(&mut self, now: Instant, port: PortId, packet: Packet, pool: &mut Pool) {
        self.inject(now, usize::from(port.0), packet, pool);
    }

    fn egress(&mut self, port: PortId) -> &mut VecDeque<DuePacket> {
        &mut self.directions[usize::from(1 - port.0)].egress
    }

    fn next_departure(&self) -> Option<Instant> {
        let mut first = Instant::NEVER;
        for way in &self.directions {
            for (hop, rest) in way.hops.iter().zip(&way.least_time_to_exit) {
                first = first.min(hop.earliest_out() + *rest);
            }
        }
        Some(first).filter(|first| *first < Instant::NEVER)
    }
}

impl Network for Link {
    fn ports(&self) -> u16 {
        2
    }

    fn reconfigure(
        &mut self,
        now: Instant,
        spec: &LinkSpec,
        pool: &mut Pool,
    ) -> Result<(), SpecError> {
        spec.check()?;
        self.spec.check_reconfiguration(spec)?;
        let now = self.advance(now, pool);
        for (number, way) in self.directions.iter_mut().enumerate() {
            for (index, hop) in way.hops.iter_mut().enumerate() {
                let (direction, surroundings) =
                    direction_and_parameters(spec, self.medium, number, index);
                hop.reconfigure(now, direction, surroundings, pool);
            }
        }
        self.spec = spec.clone();
        self.update_derived();
        Ok(())
    }

    fn report(&self, now: Instant) -> NetworkReport {
        let at = self.known_until(now);
        let mut directions = Vec::new();
        for number in 0..self.spec.hops.len() {
            let names = [format!("hop {} up", number + 1), format!("hop {} down", number + 1)];
            for ((way, name), index) in
                self.directions.iter().zip(names).zip([number, self.spec.hops.len() - 1 - number])
            {
                directions.push(way.hops[index].report(at, name));
            }
        }
        NetworkReport::new(at, directions, self.router_counts)
    }

    fn exchange_report(&mut self, now: Instant, is_changed: bool, form: &mut NetworkReport) {
        form.at = self.fill(now, is_changed, &mut form.directions);
        form.routers = self.router_counts;
        form.check();
    }

    fn clear(&mut self, pool: &mut Pool) {
        for way in &mut self.directions {
            for due in way.egress.drain(..) {
                pool.free(due.packet);
            }
            for hop in &mut way.hops {
                hop.clear(pool);
            }
        }
    }
}

/// What a way's hop of this number is made from.
fn direction_and_parameters(
    spec: &LinkSpec,
    medium: Medium,
    way: usize,
    index: usize,
) -> (&DirectionSpec, LinkParameters) {
    let number = if way == 0 { index } else { spec.hops.len() - 1 - index };
    let hop = &spec.hops[number];
    let (direction, name) = if way == 0 { (&hop.up, "up") } else { (&hop.down, "down") };
    let seed = spec.seed.derive(&format!("hop {number} {name}"));
    (direction, LinkParameters { medium, seed, round_trip: spec.round_trip() })
}

/// What a hop of a way is entered through.
fn router(way: usize, index: usize, count: usize, now: Instant) -> TransparentRouter {
    let number = if way == 0 { index } else { count - index };
    match (index, way) {
        (0, 0) => TransparentRouter::new(254, false, now),
        (0, _) => TransparentRouter::new(253, false, now),
        _ => TransparentRouter::new(u8::try_from(number).expect("at most 64 hops"), true, now),
    }
}

/// The least time from the end of each hop of a way to the end of the link.
fn least_times_to_exit(hops: &[HopDirection]) -> Vec<Span> {
    let mut rest = vec![Span::ZERO; hops.len()];
    for index in (1..hops.len()).rev() {
        rest[index - 1] = rest[index] + hops[index].least_delay();
    }
    rest
}

#[cfg(test)]
mod tests;
