//! A learning switch: hosts behind lines of their own, of which each is a link.
//!
//! A port's line has its near side at the host and its far side at the switch, so "up" is towards the switch. Frames
//! are passed on when they have wholly arrived; addresses are learned from sources and forgotten after five minutes
//! (IEEE 802.1Q §8.8.3).

use std::collections::{BTreeMap, VecDeque};

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_wire::ethernet::{self, MacAddr};
use plumb_wire::machine::{DuePacket, Medium, PortId, TimedMachine};
use plumb_wire::packet::{Packet, Pool};

use crate::frame::copy_packet;
use crate::link::{FAR, Link, NEAR};
use crate::report::{Network, NetworkReport, RouterCounts};
use crate::spec::{LinkSpec, SpecError};

/// How long an address is remembered after it was last seen.
const ADDRESS_AGE_MAX: Span = Span::from_secs(300);
/// Most addresses that are remembered; more are flooded, as those of a real one are.
const ADDRESSES_MAX: usize = 8_192;

/// A learning switch.
#[derive(Debug)]
pub struct LearningSwitch {
    links: Vec<Link>,
    /// Where an address was last seen, and when.
    addresses: BTreeMap<MacAddr, (u16, Instant)>,
    clock: Instant,
    scratch: Vec<DuePacket>,
    /// Copies of flooded frames for which there was no memory.
    copies_without_memory: u64,
}

impl LearningSwitch {
    /// A switch with a port for each line.
    ///
    /// # Errors
    /// [`SpecError`] when there cannot be such a line, or there is none.
    pub fn new(lines: &[LinkSpec], start: Instant) -> Result<Self, SpecError> {
        if lines.is_empty() || lines.len() > usize::from(u16::MAX) {
            return Err(SpecError::hop_count(lines.len()));
        }
        let make = |(port, spec)| Link::new(&line(spec, port), Medium::Ethernet, start);
        let lines = lines.iter().enumerate().map(make).collect::<Result<_, _>>()?;
        let (addresses, scratch) = (BTreeMap::new(), Vec::new());
        Ok(Self { links: lines, addresses, clock: start, scratch, copies_without_memory: 0 })
    }

    /// One port's line becomes what `spec` says.
    ///
    /// # Errors
    /// As `Network::set`.
    pub fn set_port(
        &mut self,
        now: Instant,
        port: PortId,
        spec: &LinkSpec,
        pool: &mut Pool,
    ) -> Result<(), SpecError> {
        let index = usize::from(port.0);
        let now = self.advance(now, pool);
        self.links[index].reconfigure(now, &line(spec, index), pool)
    }

    /// Passes on what has come out of a line at the switch.
    fn forward(&mut self, index: usize, now: Instant, pool: &mut Pool) {
        let mut arrived = std::mem::take(&mut self.scratch);
        self.links[index].poll_due(now, FAR, &mut arrived, usize::MAX, pool);
        for DuePacket { at, packet } in arrived.drain(..) {
            self.pass_on(index, at, packet, pool);
        }
        self.scratch = arrived;
    }

    /// Passes on a frame that has come over a line, and learns who lives there.
    fn pass_on(&mut self, from: usize, now: Instant, packet: Packet, pool: &mut Pool) {
        let Ok(frame) = ethernet::EthernetFrame::parse(pool.bytes(&packet)) else {
            pool.free(packet);
            return;
        };
        self.learn(now, frame.source(), from);
        self.send_on(from, now, packet, pool);
    }

    /// Sends a frame that belongs to a port out of the others that should have it.
    fn send_on(&mut self, from: usize, now: Instant, packet: Packet, pool: &mut Pool) {
        let Ok(frame) = ethernet::EthernetFrame::parse(pool.bytes(&packet)) else {
            pool.free(packet);
            return;
        };
        let destination = frame.destination();
        let known =
            self.addresses.get(&destination).filter(|(_, seen)| *seen + ADDRESS_AGE_MAX > now);
        if let Some((port, _)) = known.filter(|_| !destination.is_group()) {
            let port = usize::from(*port);
            // Where it came from, it has been heard already.
            if port == from {
                pool.free(packet);
            } else {
                self.hand_to(port, now, packet, pool);
            }
            return;
        }
        for port in (0..self.links.len()).filter(|port| *port != from) {
            match copy_packet(&packet, pool) {
                Some(copy) => self.hand_to(port, now, copy, pool),
                None => self.copies_without_memory += 1,
            }
        }
        pool.free(packet);
    }

    /// Hands a frame to a port's line. Where the line's end at the switch turns it away and tells its sender, what
    /// it says is here at once, and goes on at once: no event of any hop would come to fetch it.
    ///
    /// Nobody is learned from it. It bears the address of whom the frame was for, and a frame that was
    /// flooded may be turned away at ports where that one does not live.
    fn hand_to(&mut self, port: usize, now: Instant, packet: Packet, pool: &mut Pool) {
        self.links[port].inject(now, usize::from(FAR.0), packet, pool);
        while let Some(DuePacket { at, packet }) = self.links[port].egress(FAR).pop_front() {
            self.send_on(port, at, packet, pool);
        }
    }

    fn learn(&mut self, now: Instant, source: MacAddr, port: usize) {
        let port = u16::try_from(port).expect("ports are numbered so");
        if !source.is_unicast() {
            return;
        }
        if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(&source) {
            self.addresses.retain(|_, (_, seen)| *seen + ADDRESS_AGE_MAX > now);
            if self.addresses.len() >= ADDRESSES_MAX {
                return;
            }
        }
        self.addresses.insert(source, (port, now));
    }
}

impl TimedMachine for LearningSwitch {
    /// On all lines in the order of time.
    fn advance(&mut self, now: Instant, pool: &mut Pool) -> Instant {
        loop {
            let next = self.links.iter().map(Link::next).min().unwrap_or(Instant::NEVER);
            if next > now || next == Instant::NEVER {
                break;
            }
            for index in 0..self.links.len() {
                self.links[index].advance(next, pool);
                self.forward(index, next, pool);
            }
        }
        self.clock = self.clock.max(now);
        self.clock
    }

    fn handle_packet(&mut self, now: Instant, port: PortId, packet: Packet, pool: &mut Pool) {
        self.links[usize::from(port.0)].handle_packet(now, NEAR, packet, pool);
    }

    fn egress(&mut self, port: PortId) -> &mut VecDeque<DuePacket> {
        self.links[usize::from(port.0)].egress(NEAR)
    }

    fn next_departure(&self) -> Option<Instant> {
        // A frame that reaches the switch may leave at once.
        self.links.iter().filter_map(Link::next_departure).min()
    }
}

impl Network for LearningSwitch {
    fn ports(&self) -> u16 {
        u16::try_from(self.links.len()).expect("ports are numbered so")
    }

    fn reconfigure(
        &mut self,
        now: Instant,
        spec: &LinkSpec,
        pool: &mut Pool,
    ) -> Result<(), SpecError> {
        spec.check()?;
        let count = spec.hops.len();
        if let Some(other) = self.links.iter().find(|line| line.spec().hops.len() != count) {
            return Err(SpecError::hops_fixed(other.spec().hops.len(), count));
        }
        (0..self.ports()).try_for_each(|port| self.set_port(now, PortId(port), spec, pool))
    }

    fn report(&self, now: Instant) -> NetworkReport {
        let mut directions = Vec::new();
        let mut routers = RouterCounts::default();
        let mut at = self.clock;
        for (port, line) in self.links.iter().enumerate() {
            let report = line.report(now);
            at = at.max(report.at);
            routers += report.routers;
            directions.extend(report.directions.into_iter().map(|mut direction| {
                direction.name = format!("port {} {}", port + 1, direction.name);
                direction
            }));
        }
        NetworkReport {
            copies_without_memory: self.copies_without_memory,
            ..NetworkReport::new(at, directions, routers)
        }
    }

    fn exchange_report(&mut self, now: Instant, is_changed: bool, form: &mut NetworkReport) {
        (form.at, form.routers, form.copies_without_memory) =
            (self.clock, RouterCounts::default(), self.copies_without_memory);
        let mut rest = form.directions.as_mut_slice();
        for line in &mut self.links {
            let own = 2 * line.spec().hops.len();
            let Some((directions, others)) = rest.split_at_mut_checked(own) else { break };
            form.at = form.at.max(line.fill(now, is_changed, directions));
            form.routers += line.routed();
            rest = others;
        }
        form.check();
    }

    fn clear(&mut self, pool: &mut Pool) {
        for line in &mut self.links {
            line.clear(pool);
        }
    }
}

/// A port's line, with random draws of its own.
fn line(spec: &LinkSpec, port: usize) -> LinkSpec {
    let Seed(seed) = spec.seed.derive(&format!("port {port}"));
    LinkSpec { seed: Seed(seed), ..spec.clone() }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use plumb_wire::compose::{LinkTemplate, PacketTemplate};
    use plumb_wire::machine::Machine as _;
    use plumb_wire::packet::PoolConfig;

    use super::*;

    fn frame(from: u8, to: u8) -> Vec<u8> {
        let mut bytes = vec![0; 1_000];
        bytes[..12].copy_from_slice(&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from]);
        bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
        if to == 0xff {
            bytes[..6].fill(0xff);
        }
        bytes
    }

    struct Rig {
        switch: LearningSwitch,
        pool: Pool,
    }

    impl Rig {
        fn new(ports: usize) -> Self {
            Self::of("rate=8mbit,delay=1ms", ports)
        }

        fn of(line: &str, ports: usize) -> Self {
            let spec: LinkSpec = line.parse().expect("a link");
            let switch =
                LearningSwitch::new(&vec![spec; ports], Instant::ORIGIN).expect("a switch");
            Self { switch, pool: Pool::new(PoolConfig { count: 64, size: 2_048, large: 0 }) }
        }

        fn send(&mut self, at: Instant, port: u16, bytes: &[u8]) {
            let packet = self.pool.packet_of(bytes).expect("memory");
            self.switch.handle_packets(at, PortId(port), &mut vec![packet], &mut self.pool);
        }

        /// Milliseconds after the origin at which frames came out of each port.
        fn receive(&mut self, now: Instant) -> Vec<Vec<u64>> {
            assert!(self.switch.report(now).violations.is_empty());
            (0..self.switch.ports())
                .map(|port| {
                    let mut due = Vec::new();
                    self.switch.poll_due(now, PortId(port), &mut due, usize::MAX, &mut self.pool);
                    due.into_iter()
                        .map(|due| {
                            self.pool.free(due.packet);
                            due.at.since_origin().as_ns() / 1_000_000
                        })
                        .collect()
                })
                .collect()
        }
    }

    fn ms(ms: u64) -> Instant {
        Instant::ORIGIN + Span::from_ms(ms)
    }

    #[test]
    fn strangers_are_sought_everywhere_and_acquaintances_where_they_are() {
        let mut rig = Rig::new(3);
        rig.send(ms(0), 0, &frame(1, 2));
        // Over two lines, a millisecond each to send and to travel.
        assert_eq!(rig.receive(ms(50)), [vec![], vec![4], vec![4]]);
        rig.send(ms(100), 1, &frame(2, 1));
        assert_eq!(rig.receive(ms(150)), [vec![104], vec![], vec![]]);
        rig.send(ms(200), 0, &frame(1, 2));
        rig.send(ms(200), 0, &frame(1, 0xff));
        assert_eq!(rig.receive(ms(250)), [vec![], vec![204, 205], vec![205]]);
        assert_eq!(rig.pool.available().0, 64);
    }

    #[test]
    fn addresses_move_with_their_host_and_are_forgotten() {
        let mut rig = Rig::new(3);
        rig.send(ms(0), 0, &frame(1, 9));
        rig.send(ms(10), 2, &frame(1, 9));
        rig.receive(ms(50));
        rig.send(ms(100), 1, &frame(2, 1));
        assert_eq!(rig.receive(ms(150)), [vec![], vec![], vec![104]]);
        rig.send(ms(400_000), 1, &frame(2, 1));
        assert_eq!(rig.receive(ms(400_050)), [vec![400_004], vec![], vec![400_004]]);
    }

    #[test]
    fn two_senders_share_the_line_of_one_receiver() {
        let mut rig = Rig::new(3);
        rig.send(ms(0), 2, &frame(3, 0xff));
        rig.receive(ms(50));
        rig.send(ms(100), 0, &frame(1, 3));
        rig.send(ms(100), 1, &frame(2, 3));
        let deadline = rig.switch.deadline();
        assert!(deadline.is_some_and(|deadline| deadline > ms(100) && deadline <= ms(104)));
        assert_eq!(rig.receive(ms(150))[2], [104, 105]);
    }

    /// A datagram that may not be cut, of `len` bytes without headers.
    fn datagram(from: u8, to: u8, v6: bool, len: usize) -> Vec<u8> {
        let address = |n: u8| -> IpAddr {
            if v6 {
                Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, n.into()).into()
            } else {
                Ipv4Addr::new(10, 77, 0, n).into()
            }
        };
        let path = match (address(from), address(to)) {
            (IpAddr::V4(from), IpAddr::V4(to)) => PacketTemplate::new(from, to),
            (IpAddr::V6(from), IpAddr::V6(to)) => PacketTemplate::new(from, to),
            _ => unreachable!("both are of one family"),
        };
        let mac = |n| MacAddr([2, 0, 0, 0, 0, n]);
        let link = Some(LinkTemplate::new(mac(from), mac(to)));
        PacketTemplate { link, ..path }.udp(1, 2, &vec![7; len])
    }

    #[test]
    fn whoever_sends_what_is_too_long_for_a_line_is_told_and_nobody_need_send_more() {
        let ports = 3_u8;
        let pairs = (0..ports).flat_map(|from| (0..ports).map(move |to| (from, to)));
        for (from, to) in pairs.filter(|(from, to)| from != to) {
            for (v6, is_known) in [(false, true), (true, true), (false, false), (true, false)] {
                let mut rig = Rig::of("delay=1ms|delay=1ms,mtu=1300", ports.into());
                if is_known {
                    for host in 0..ports {
                        rig.send(ms(0), host.into(), &frame(host, 0xff));
                    }
                    rig.receive(ms(50));
                }
                rig.send(ms(100), from.into(), &datagram(from, to, v6, 1_400));
                let mut told = vec![Vec::new(); ports.into()];
                while let Some(deadline) = rig.switch.deadline() {
                    for (port, due) in rig.receive(deadline).into_iter().enumerate() {
                        told[port].extend(due);
                    }
                }
                let case = format!("from {from} to {to}, IPv6 {v6}, known {is_known}");
                // Of those to whom it is flooded, each line answers.
                let answers = if is_known { 1 } else { usize::from(ports) - 1 };
                for (port, told) in told.iter().enumerate() {
                    let expected =
                        if port == usize::from(from) { vec![102; answers] } else { Vec::new() };
                    assert_eq!(told, &expected, "{case}: port {port}");
                }
                assert_eq!(rig.pool.available().0, 64, "{case}");
                // And where the other one lives is still what it was.
                rig.send(ms(200), from.into(), &datagram(from, to, v6, 100));
                let reached = rig.receive(ms(250));
                assert_eq!(reached[usize::from(to)], [202], "{case}");
            }
        }
    }

    #[test]
    fn copies_that_there_is_no_memory_for_are_reported() {
        let mut rig = Rig::new(3);
        rig.pool = Pool::new(PoolConfig { count: 2, size: 2_048, large: 0 });
        rig.send(ms(0), 0, &frame(1, 0xff));
        // One to copy, one copy.
        assert_eq!(rig.receive(ms(50)).concat().len(), 1);
        let report = rig.switch.report(ms(50));
        assert_eq!((report.copies_without_memory, report.no_memory()), (1, 1));
    }

    #[test]
    fn a_switch_changes_one_line_or_all() {
        let mut rig = Rig::new(2);
        let fast: LinkSpec = "rate=80mbit".parse().expect("a link");
        rig.switch.reconfigure(ms(0), &fast, &mut rig.pool).expect("possible");
        let slow: LinkSpec = "rate=8mbit,delay=9ms".parse().expect("a link");
        rig.switch.set_port(ms(0), PortId(1), &slow, &mut rig.pool).expect("possible");
        rig.send(ms(0), 0, &frame(1, 2));
        assert_eq!(rig.receive(ms(50)), [vec![], vec![10]]);
        assert!(LearningSwitch::new(&[], ms(0)).is_err());
    }
}
