//! A link: hops in a row, both ways, between a near side and a far side.
//!
//! Port 0 is the near side, port 1 the far one; "up" is from near to far. Left out: more than two
//! sides ([`crate::switch`]).

use std::collections::VecDeque;

use plumb_base::time::{Instant, Span};
use plumb_wire::machine::{Machine, Port};
use plumb_wire::medium::Medium;
use plumb_wire::packet::{Packet, Pool};
use plumb_wire::siphash::SipKey;

use crate::flow::Classifier;
use crate::frame::Frame;
use crate::hop::{Hop, Surroundings};
use crate::network::{Due, Network};
use crate::report::{NetworkReport, Routers};
use crate::spec::{DirectionSpec, LinkSpec, SpecError};

/// The near side of a link.
pub const NEAR: Port = Port(0);
/// The far side of a link.
pub const FAR: Port = Port(1);

/// A link.
#[derive(Debug)]
pub struct Link {
    spec: LinkSpec,
    medium: Medium,
    classifier: Classifier,
    /// From the near side, and from the far side.
    ways: [Way; 2],
    /// Up to when everything has happened.
    clock: Instant,
    scratch: Vec<Frame>,
}

/// One direction.
#[derive(Debug)]
struct Way {
    /// In the order in which frames pass them.
    hops: Vec<Hop>,
    /// The least time from the end of each hop to the end of the link.
    rest: Vec<Span>,
    /// What waits to be polled at the other end.
    egress: VecDeque<Due>,
}

impl Link {
    /// A link of what `spec` says, which begins at `start` and carries frames of `medium`.
    ///
    /// # Errors
    /// [`SpecError`] when there cannot be such a link.
    pub fn new(spec: &LinkSpec, medium: Medium, start: Instant) -> Result<Self, SpecError> {
        spec.check()?;
        let ways = [0, 1].map(|way| {
            let hops: Vec<_> = (0..spec.hops.len())
                .map(|index| {
                    let (direction, surroundings) = place(spec, medium, way, index);
                    Hop::new(direction, surroundings, start)
                })
                .collect();
            Way { rest: rest(&hops), hops, egress: VecDeque::new() }
        });
        let classifier = Classifier::new(SipKey::new(spec.seed, "flows"), medium);
        Ok(Self { spec: spec.clone(), medium, classifier, ways, clock: start, scratch: Vec::new() })
    }

    /// What it is.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// Everything up to `now` happens.
    fn advance(&mut self, now: Instant, pool: &mut Pool) {
        loop {
            let mut first = (Instant::NEVER, 0, 0);
            for (way, Way { hops, .. }) in self.ways.iter().enumerate() {
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
            self.ways[way].hops[index].step(at, &mut out, pool);
            for frame in out.drain(..) {
                self.enter(at, way, index + 1, frame, pool);
            }
            self.scratch = out;
        }
        self.clock = self.clock.max(now);
    }

    /// A frame comes to a hop of a way, or to its end.
    fn enter(&mut self, now: Instant, way: usize, index: usize, mut frame: Frame, pool: &mut Pool) {
        let Way { hops, egress, .. } = &mut self.ways[way];
        match hops.get_mut(index) {
            Some(hop) => {
                frame.wire_len = wire_len(&frame, hop.overhead());
                hop.arrive(now, frame, pool);
            }
            None => egress.push_back(Due { at: now, packet: frame.packet }),
        }
    }

    fn frame(&self, now: Instant, packet: Packet, pool: &Pool) -> Frame {
        let flow = self.classifier.flow(pool.bytes(&packet));
        Frame { packet, wire_len: 0, count: 1, flow, entered: now, arrived: now }
    }
}

impl Machine for Link {
    fn handle_packets(
        &mut self,
        now: Instant,
        port: Port,
        batch: &mut Vec<Packet>,
        pool: &mut Pool,
    ) {
        let now = now.max(self.clock);
        self.advance(now, pool);
        for packet in batch.drain(..) {
            let frame = self.frame(now, packet, pool);
            self.enter(now, usize::from(port.0), 0, frame, pool);
        }
        self.advance(now, pool);
    }

    fn poll_packets(
        &mut self,
        now: Instant,
        port: Port,
        batch: &mut Vec<Packet>,
        max: usize,
        pool: &mut Pool,
    ) {
        self.advance(now, pool);
        let egress = &mut self.ways[usize::from(1 - port.0)].egress;
        let n = max.min(egress.len());
        batch.extend(egress.drain(..n).map(|due| due.packet));
    }

    fn deadline(&self) -> Option<Instant> {
        let mut first = Instant::NEVER;
        for way in &self.ways {
            for (hop, rest) in way.hops.iter().zip(&way.rest) {
                first = first.min(hop.earliest_out() + *rest);
            }
        }
        Some(first).filter(|first| *first < Instant::NEVER)
    }

    fn handle_deadline(&mut self, now: Instant, pool: &mut Pool) {
        self.advance(now, pool);
    }
}

impl Network for Link {
    fn ports(&self) -> u16 {
        2
    }

    fn poll_due(
        &mut self,
        now: Instant,
        port: Port,
        out: &mut Vec<Due>,
        max: usize,
        pool: &mut Pool,
    ) {
        self.advance(now, pool);
        let egress = &mut self.ways[usize::from(1 - port.0)].egress;
        let n = max.min(egress.len());
        out.extend(egress.drain(..n));
    }

    fn set(&mut self, now: Instant, spec: &LinkSpec, pool: &mut Pool) -> Result<(), SpecError> {
        spec.check()?;
        if spec.hops.len() != self.spec.hops.len() {
            return Err(SpecError::Hops { now: self.spec.hops.len(), asked: spec.hops.len() });
        }
        let now = now.max(self.clock);
        self.advance(now, pool);
        for (number, way) in self.ways.iter_mut().enumerate() {
            for (index, hop) in way.hops.iter_mut().enumerate() {
                let (direction, surroundings) = place(spec, self.medium, number, index);
                hop.set(now, direction, surroundings, pool);
            }
            way.rest = rest(&way.hops);
        }
        self.spec = spec.clone();
        Ok(())
    }

    fn report(&self, now: Instant) -> NetworkReport {
        // What is due until then and has not been seen to is still inside.
        let next = self.ways.iter().flat_map(|way| &way.hops).map(Hop::next).min();
        let at = self.clock.max(now.min(next.unwrap_or(now)));
        let mut directions = Vec::new();
        for number in 0..self.spec.hops.len() {
            let names = [format!("hop {} up", number + 1), format!("hop {} down", number + 1)];
            for ((way, name), index) in
                self.ways.iter().zip(names).zip([number, self.spec.hops.len() - 1 - number])
            {
                directions.push(way.hops[index].report(at, name));
            }
        }
        NetworkReport::new(at, directions, Routers::default())
    }

    fn clear(&mut self, pool: &mut Pool) {
        for way in &mut self.ways {
            for due in way.egress.drain(..) {
                pool.free(due.packet);
            }
            for hop in &mut way.hops {
                hop.clear(pool);
            }
        }
    }
}

/// Bytes that the rate is spent on: the headers of every frame that a super-segment stands for are.
fn wire_len(frame: &Frame, overhead: u32) -> u32 {
    let headers = frame.packet.meta.segments.map_or(0, |segments| u32::from(segments.header_len));
    let bytes = u32::try_from(frame.packet.len()).unwrap_or(u32::MAX);
    let repeated = headers.saturating_mul(frame.count - 1);
    bytes.saturating_add(repeated).saturating_add(overhead.saturating_mul(frame.count))
}

/// What a way's hop of this number is made from.
fn place(
    spec: &LinkSpec,
    medium: Medium,
    way: usize,
    index: usize,
) -> (&DirectionSpec, Surroundings) {
    let number = if way == 0 { index } else { spec.hops.len() - 1 - index };
    let hop = &spec.hops[number];
    let (direction, name) = if way == 0 { (&hop.up, "up") } else { (&hop.down, "down") };
    let seed = spec.seed.derive(&format!("hop {number} {name}"));
    (direction, Surroundings { medium, seed, round_trip: spec.round_trip() })
}

/// The least time from the end of each hop of a way to the end of the link.
fn rest(hops: &[Hop]) -> Vec<Span> {
    let mut rest = vec![Span::ZERO; hops.len()];
    for index in (1..hops.len()).rev() {
        rest[index - 1] = rest[index] + hops[index].least_delay();
    }
    rest
}

#[cfg(test)]
mod tests {
    use plumb_base::rate::Rate;
    use plumb_base::seed::Seed;
    use plumb_wire::packet::Frames;

    use super::*;
    use crate::spec::{DelaySpec, DirectionSpec, HopSpec, RateSpec};

    #[test]
    fn a_frame_takes_its_serialisation_and_its_delay_and_the_next_one_waits() {
        let rate = Rate::from_bits_per_second(10_000_000).expect("not zero");
        let direction = DirectionSpec {
            rate: RateSpec::Constant(rate),
            delay: DelaySpec::constant(Span::from_ms(25)),
            ..DirectionSpec::default()
        };
        let hops = vec![HopSpec { up: direction.clone(), down: direction }];
        let spec = LinkSpec { hops, seed: Seed(1) };
        let start = Instant::ORIGIN + Span::from_secs(1);
        let mut link = Link::new(&spec, Medium::Ethernet, start).unwrap();
        let mut pool = Pool::new(Frames::default());
        let mut batch =
            vec![pool.packet_of(&[0; 1_250]).unwrap(), pool.packet_of(&[0; 1_250]).unwrap()];
        link.handle_packets(start, NEAR, &mut batch, &mut pool);
        assert_eq!(link.deadline(), Some(start + Span::from_ms(26)));
        let mut due = Vec::new();
        let late = start + Span::from_ms(40);
        link.poll_due(late, FAR, &mut due, usize::MAX, &mut pool);
        let moments: Vec<_> = due.iter().map(|due| due.at).collect();
        assert_eq!(moments, [start + Span::from_ms(26), start + Span::from_ms(27)]);
        assert_eq!(link.deadline(), None);
    }
}
