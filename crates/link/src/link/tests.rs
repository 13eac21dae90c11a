//! Claims about whole links.

use plumb_base::seed::Seed;
use plumb_wire::machine::Machine as _;
use plumb_wire::packet::PoolConfig;

use super::*;
use crate::report::InvariantViolation;

mod accounts;
mod closed_form;
mod laws;
mod passage;
mod routers;
mod setting;

/// A link with the memory of its frames and a driver that looks when it is told to.
struct Rig {
    link: Link,
    pool: Pool,
    start: Instant,
}

impl Rig {
    fn new(text: &str) -> Self {
        Self::of(&text.parse().unwrap(), Medium::Ethernet)
    }

    fn of(spec: &LinkSpec, medium: Medium) -> Self {
        let start = Instant::ORIGIN + Span::from_secs(1);
        let link = Link::new(spec, medium, start).unwrap();
        let pool = Pool::new(PoolConfig { count: 1_200, size: 2_048, large: 4 });
        Self { link, pool, start }
    }

    /// With memory for a few hundred frames.
    fn small(spec: &LinkSpec) -> Self {
        let start = Instant::ORIGIN + Span::from_secs(1);
        let link = Link::new(spec, Medium::Ethernet, start).unwrap();
        Self { link, pool: Pool::new(PoolConfig { count: 400, size: 2_048, large: 0 }), start }
    }

    /// Hands in a frame of these bytes.
    fn send(&mut self, now: Instant, port: PortId, bytes: &[u8]) {
        let packet = self.pool.packet_of(bytes).unwrap();
        self.link.handle_packets(now, port, &mut vec![packet], &mut self.pool);
    }

    /// What has come out until `now`: moments and bytes.
    fn receive(&mut self, now: Instant, port: PortId) -> Vec<(Instant, Vec<u8>)> {
        let mut due = Vec::new();
        self.link.poll_due(now, port, &mut due, usize::MAX, &mut self.pool);
        due.into_iter()
            .map(|due| {
                let bytes = self.pool.bytes(&due.packet).to_vec();
                self.pool.free(due.packet);
                (due.at, bytes)
            })
            .collect()
    }

    /// How long after the start each frame that has come out until `later` was due.
    fn spans(&mut self, later: Span, port: PortId) -> Vec<Span> {
        let start = self.start;
        let received = self.receive(start + later, port);
        received.into_iter().map(|(at, _)| at - start).collect()
    }

    fn violations(&self, now: Instant) -> Vec<InvariantViolation> {
        self.link.report(now).violations
    }
}

/// A frame of so many bytes that is no IP and begins with a number.
fn numbered(number: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len.max(18)];
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes[14..18].copy_from_slice(&number.to_be_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(*bytes[14..].first_chunk().unwrap())
}

#[test]
fn a_frame_takes_its_serialisation_and_its_delay_and_the_next_one_waits() {
    let mut rig = Rig::new("rate=10mbit,delay=25ms");
    rig.send(rig.start, NEAR, &numbered(1, 1_250));
    rig.send(rig.start, NEAR, &numbered(2, 1_250));
    assert_eq!(rig.link.deadline(), Some(rig.start + Span::from_ms(26)));
    let spans = rig.spans(Span::from_ms(40), FAR);
    assert_eq!(spans, [26, 27].map(Span::from_ms), "however late anybody looks");
    assert_eq!(rig.link.deadline(), None);
}

#[test]
fn overhead_is_paid_for_each_frame_and_directions_are_apart() {
    let mut rig = Rig::new("rate=10mbit,overhead=250|rate=1mbit");
    rig.send(rig.start, NEAR, &numbered(1, 1_000));
    rig.send(rig.start, FAR, &numbered(2, 1_000));
    assert_eq!(rig.spans(Span::from_ms(40), FAR), [Span::from_ms(1)]);
    assert_eq!(rig.spans(Span::from_ms(40), NEAR), [Span::from_ms(8)]);
}

#[test]
fn a_deadline_is_when_something_may_come_out_and_not_before() {
    let mut rig = Rig::new("rate=10mbit,delay=5ms;rate=1mbit,delay=5ms");
    rig.send(rig.start, NEAR, &numbered(1, 1_250));
    let mut looks = 0;
    let mut out = Vec::new();
    while let Some(deadline) = rig.link.deadline() {
        rig.link.handle_deadline(deadline, &mut rig.pool);
        assert!(rig.link.deadline().is_none_or(|next| next > deadline));
        out.extend(rig.receive(deadline, FAR));
        looks += 1;
    }
    assert_eq!(out[0].0, rig.start + Span::from_ms(21));
    // It cannot know the second serialisation before the frame is there, but it can the delays.
    assert_eq!(looks, 2);
}
