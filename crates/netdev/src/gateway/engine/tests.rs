//! What a full gateway does: who makes room, who never does, and how much it ever holds.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};

use proptest::prelude::*;

use super::super::flow_table::{
    ATTEMPT_MIN, EvictionReason, GateVerdict, HALF_ENDED_MAX, IDLE_MIN,
};
use super::*;

const SECOND: u64 = 1_000_000_000;

/// An engine with room for so many flows, and what is at their other ends.
struct World {
    engine: GatewayEngine,
    server: UdpSocket,
    listener: TcpListener,
    ends: Vec<[std::net::TcpStream; 2]>,
    port: u16,
}

impl World {
    fn new(most: usize) -> Self {
        let engine = GatewayEngine {
            hub: GatewayContext::for_test(most),
            held: sync_channel(1).1,
            streams: TcpFlows::default(),
            datagrams: UdpFlows::default(),
        };
        let here = (Ipv4Addr::LOCALHOST, 0);
        Self {
            engine,
            server: UdpSocket::bind(here).unwrap(),
            listener: TcpListener::bind(here).unwrap(),
            ends: Vec::new(),
            port: 0,
        }
    }

    /// A flow that was never seen: to an address of its own, so that it can be bound.
    fn flow(&mut self, protocol: IpProtocol) -> FiveTuple {
        self.port += 1;
        let [high, low] = self.port.to_be_bytes();
        let server = match protocol {
            IpProtocol::TCP => self.listener.local_addr().unwrap(),
            _ => self.server.local_addr().unwrap(),
        };
        FiveTuple {
            source: Ipv4Addr::LOCALHOST.into(),
            destination: match protocol {
                IpProtocol::TCP => server.ip(),
                _ => Ipv4Addr::new(127, 1, high, low).into(),
            },
            protocol,
            source_port: self.port,
            destination_port: server.port(),
        }
    }

    /// A first packet of a new flow, as the gate gives it.
    fn begin(&mut self, protocol: IpProtocol) -> FiveTuple {
        let flow = self.flow(protocol);
        let verdict = match protocol {
            IpProtocol::TCP => self.engine.hub.table.on_syn(flow),
            _ => self.engine.hub.table.on_datagram(flow),
        };
        assert_eq!(verdict, GateVerdict::Hold);
        self.engine.on_held(HeldPacket { flow, frame: Vec::new() });
        flow
    }

    /// A connection that stands, where there is room.
    fn stand(&mut self) -> Option<FiveTuple> {
        let flow = self.flow(IpProtocol::TCP);
        if !self.engine.make_room() {
            return None;
        }
        let ends = self.engine.streams.establish(flow, &mut self.engine.hub);
        self.ends.push(ends);
        Some(flow)
    }

    fn use_it(&mut self, flow: FiveTuple) {
        self.engine.datagrams.handle(flow, RelaySide::Inside, &mut self.engine.hub);
    }

    /// Lets it do what there is to do, once; whether there was something within a while.
    fn turn(&mut self) -> bool {
        self.turn_within(20)
    }

    fn turn_within(&mut self, ms: i32) -> bool {
        let mut events = Vec::new();
        self.engine.hub.epoll.wait(&mut events, ms).unwrap();
        for event in &events {
            self.engine.handle(*event);
        }
        !events.is_empty()
    }

    fn wait(&mut self, ns: u64) {
        self.engine.hub.now_ns += ns;
    }

    fn has(&self, flow: FiveTuple) -> bool {
        self.engine.streams.contains(flow) || self.engine.datagrams.contains(flow)
    }

    fn evicted(&self, reason: EvictionReason) -> u64 {
        let counts = self.engine.hub.table.counts();
        counts.evicted.by_name().get(reason.name()).copied().unwrap_or(0)
    }

    fn no_room(&self) -> u64 {
        self.engine.hub.table.counts().no_room
    }
}

#[test]
fn the_flow_that_was_silent_for_longest_makes_room_and_its_next_datagram_begins_it_anew() {
    let mut world = World::new(2);
    let (first, second) = (world.begin(IpProtocol::UDP), world.begin(IpProtocol::UDP));
    world.wait(SECOND);
    world.use_it(first);
    let third = world.begin(IpProtocol::UDP);
    assert!(world.has(first) && !world.has(second) && world.has(third));
    assert_eq!((world.evicted(EvictionReason::Idle), world.no_room()), (1, 0));
    assert_eq!(world.engine.hub.table.on_datagram(second), GateVerdict::Hold);
}

#[test]
fn flows_that_spoke_within_a_second_stay_and_the_new_one_is_told_of() {
    let mut world = World::new(2);
    let (first, second) = (world.begin(IpProtocol::UDP), world.begin(IpProtocol::UDP));
    world.wait(IDLE_MIN.as_ns() - 1);
    let third = world.begin(IpProtocol::UDP);
    assert!(world.has(first) && world.has(second) && !world.has(third));
    assert_eq!((world.evicted(EvictionReason::Idle), world.no_room()), (0, 1));
    assert_eq!(world.engine.hub.table.on_datagram(third), GateVerdict::Hold, "it may try again");
}

#[test]
fn a_connection_that_stands_never_makes_room_however_long_it_is_silent() {
    let mut world = World::new(2);
    let (one, other) = (world.stand().unwrap(), world.stand().unwrap());
    world.wait(3_600 * SECOND);
    let late = world.begin(IpProtocol::UDP);
    assert!(world.has(one) && world.has(other) && !world.has(late));
    assert_eq!(world.no_room(), 1);
}

#[test]
fn a_connection_of_which_one_half_has_ended_goes_before_any_that_is_idle_but_not_at_once() {
    let mut world = World::new(2);
    let half = world.stand().unwrap();
    world.ends[0][0].shutdown(std::net::Shutdown::Write).unwrap();
    // The end is there once the other side has read it.
    world.ends[0][1].set_nonblocking(true).unwrap();
    loop {
        world.turn();
        if let Ok(0) = io::Read::read(&mut world.ends[0][1], &mut [0; 1]) {
            break;
        }
    }
    let idle = world.begin(IpProtocol::UDP);
    world.wait(HALF_ENDED_MAX.as_ns() - 1);
    let next = world.begin(IpProtocol::UDP);
    assert!(world.has(half) && !world.has(idle) && world.has(next));
    world.wait(1);
    world.begin(IpProtocol::UDP);
    assert!(!world.has(half) && world.has(next));
    assert_eq!((world.evicted(EvictionReason::Idle), world.evicted(EvictionReason::Over)), (1, 1));
}

#[test]
fn an_attempt_that_nobody_answers_goes_when_nothing_else_can() {
    let mut world = World::new(2);
    let attempt = world.begin(IpProtocol::TCP);
    let stands = world.stand().unwrap();
    world.wait(ATTEMPT_MIN.as_ns() - 1);
    let early = world.begin(IpProtocol::UDP);
    assert!(world.has(attempt) && !world.has(early));
    world.wait(1);
    let late = world.begin(IpProtocol::UDP);
    assert!(!world.has(attempt) && world.has(late) && world.has(stands));
    assert_eq!((world.evicted(EvictionReason::Unanswered), world.no_room()), (1, 1));
}

/// Turns that are more than enough for anything here.
const TURNS: usize = 3_000;

#[test]
fn a_reset_after_an_end_is_told_to_the_other_side() {
    // Whose end comes first, and who is reset: the program's, or the server's.
    for [ends, hears] in [[0, 1], [1, 0]] {
        let mut world = World::new(2);
        let flow = world.stand().unwrap();
        let mut socket = world.ends.remove(0).map(Some);
        let one = socket[ends].take().unwrap();
        let mut other = socket[hears].take().unwrap();
        one.shutdown(std::net::Shutdown::Write).unwrap();
        other.set_nonblocking(true).unwrap();
        let told = |world: &mut World, other: &mut std::net::TcpStream| {
            world.turn();
            io::Read::read(other, &mut [0; 1]).is_ok_and(|len| len == 0)
        };
        assert!((0..TURNS).any(|_| told(&mut world, &mut other)));
        // It has not read this when it is closed, and so resets.
        io::Write::write_all(&mut other, b"x").unwrap();
        one.set_nonblocking(true).unwrap();
        let came = |world: &mut World| {
            world.turn();
            one.peek(&mut [0; 1]).is_ok_and(|len| len == 1)
        };
        assert!((0..TURNS).any(|_| came(&mut world)));
        drop(one);
        let reset = |world: &mut World| {
            world.turn();
            other.take_error().unwrap().is_some()
        };
        assert!((0..TURNS).any(|_| reset(&mut world)), "side {hears} is not told");
        assert!(!world.has(flow) && world.engine.hub.watched.is_empty());
    }
}

#[test]
fn a_connection_that_has_ended_keeps_nobody_busy_while_its_bytes_wait_for_room() {
    let mut world = World::new(2);
    let flow = world.stand().unwrap();
    let [mut program, mut server] = world.ends.remove(0);
    program.shutdown(std::net::Shutdown::Write).unwrap();
    program.set_nonblocking(true).unwrap();
    server.set_nonblocking(true).unwrap();
    let (mut sent, part) = (0, vec![7; 32 << 10]);
    while !world.engine.streams.is_held_up(flow) {
        match io::Write::write(&mut server, &part) {
            Ok(len) => sent += len,
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
        }
        // For good, and not only until the kernel has taken on what it was given.
        while world.turn_within(2) {}
    }
    drop(server);
    assert!((0..TURNS).any(|_| !world.turn()), "it never rests");
    let (mut got, mut bytes) = (0, vec![0; 64 << 10]);
    for _ in 0..TURNS {
        match io::Read::read(&mut program, &mut bytes) {
            Ok(0) => break,
            Ok(len) => got += len,
            Err(_) => {
                world.turn();
            }
        }
    }
    assert_eq!(got, sent);
    assert!(!world.has(flow) && world.engine.hub.watched.is_empty());
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Datagram,
    Connection,
    Use(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => Just(Step::Datagram),
        1 => Just(Step::Connection),
        2 => (0..8_usize).prop_map(Step::Use),
        2 => (1..1_500_u64).prop_map(|ms| Step::Wait(ms * 1_000_000)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn there_are_never_too_many_and_only_the_longest_silent_flow_of_udp_makes_room(
        steps in proptest::collection::vec(step(), 1..60),
    ) {
        const MOST: usize = 6;
        let mut world = World::new(MOST);
        // The expected contents: UDP flows by when they were last used, and connections.
        let (mut datagrams, mut connections) = (Vec::<(u64, FiveTuple)>::new(), Vec::new());
        let (mut evicted, mut refused) = (0, 0);
        for step in steps {
            let now_ns = world.engine.hub.now_ns;
            match step {
                Step::Wait(ns) => world.wait(ns),
                Step::Use(index) => {
                    let count = datagrams.len();
                    if let Some((used_ns, flow)) = datagrams.get_mut(index % count.max(1)) {
                        *used_ns = now_ns;
                        let flow = *flow;
                        world.use_it(flow);
                    }
                }
                Step::Datagram | Step::Connection => {
                    let is_full = datagrams.len() + connections.len() == MOST;
                    let first = datagrams.iter().copied().min();
                    let idle =
                        first.filter(|(used_ns, _)| now_ns - used_ns >= IDLE_MIN.as_ns());
                    if let (true, Some(first)) = (is_full, idle) {
                        datagrams.retain(|entry| *entry != first);
                        evicted += 1;
                    }
                    let fits = !is_full || idle.is_some();
                    if matches!(step, Step::Datagram) {
                        let flow = world.begin(IpProtocol::UDP);
                        refused += u64::from(!fits);
                        if fits {
                            datagrams.push((now_ns, flow));
                        }
                    } else {
                        let flow = world.stand();
                        prop_assert_eq!(flow.is_some(), fits);
                        connections.extend(flow);
                    }
                }
            }
            let GatewayEngine { streams, datagrams: carried, .. } = &world.engine;
            prop_assert_eq!(carried.len(), datagrams.len());
            prop_assert_eq!(streams.len(), connections.len());
            prop_assert!(datagrams.iter().all(|(_, flow)| world.has(*flow)));
            prop_assert!(connections.iter().all(|flow| world.has(*flow)));
            prop_assert_eq!(world.evicted(EvictionReason::Idle), evicted);
            prop_assert_eq!(world.no_room(), refused);
            prop_assert_eq!(world.engine.hub.watched.len(), 2 * datagrams.len() + 2 * connections.len());
        }
    }
}
