//! A logical process: hosts, routers and the links between them, whose events one thread handles in the order of time.
//!
//! An event is a moment of one entity: a link at whose end a packet arrives, a host whose timer expires, a source that sends, or a
//! processor. A packet costs one event a link; routers take no time. A link between two logical processes is in that where it ends: what enters
//! it is passed on with the moment.
//! The data that they share ([`World`]) never change.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use plumb_base::stats::sparse_histogram::SparseHistogram;
use plumb_base::time::Instant;
use plumb_wire::flow::{FiveTuple, SipKey};
use plumb_wire::ip::IpProtocol;
use plumb_wire::ipv4;
use plumb_wire::machine::Machine as _;
use plumb_wire::packet::{ChecksumState, Packet, PacketMeta, Pool};

use super::{START, narrow};
use crate::directed_link::{DirectedLink, NodeKind};
use crate::event_queue::EventQueue;
use crate::flow::SimulatedFlow;
use crate::host::{AcceptedConnection, FIRST_LOCAL, PORT, VirtualHost, node_of};
use crate::processor::Processor;
use crate::route::RouteTable;
use crate::scenario::Scenario;
use crate::source::{TrafficSource, destination_or_source, extra_len, set_destination};

/// Where the IPv4 header of a host's packet has its destination.
const DESTINATION_OFFSET: usize = 16;

/// Where a TCP header says how long it is, in words.
const TCP_OFFSET_AT: usize = 12;

/// The index of no node.
const NOWHERE: u32 = (1 << 31) - 1;

/// Packets that a list has room for from the start: so many that it shares no cache line with what another thread writes.
const PACKETS_RESERVED: usize = 64;

/// A part of a simulation that one thread runs. Links, hosts and flows have numbers of their own in it, in the order of those in the
/// whole.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct LogicalProcess {
    number: u32,
    pub links: Vec<DirectedLink>,
    pub hosts: Vec<VirtualHost>,
    /// The link out of each host.
    pub uplinks: Vec<u32>,
    /// Of each host: its processor, if it has one.
    pub processor_of: Vec<Option<u32>>,
    pub processors: Vec<Processor>,
    pub sources: Vec<TrafficSource>,
    /// One-way delays in nanoseconds, of each source, or of all of a name where there are many.
    pub delays: Vec<SparseHistogram>,
    /// Flows with an end here.
    pub flows: Vec<SimulatedFlow>,
    /// The number of each of them in the whole.
    pub flow_numbers: Vec<u32>,
    /// Those that have not ended.
    pub flows_left: usize,
    /// When packets arrive, by link.
    arrivals: EventQueue,
    /// When hosts, sources and processors have something to do; seldom changed, so that it is apart.
    timers: EventQueue,
    pub pool: Pool,
    pub now: Instant,
    /// Nothing outside reads its state before this: packets may go on beforehand up to it.
    until: Instant,
    pub events: u64,
    pub packet_hops: u64,
    pub misdirected: u64,
    /// Times that no memory was left for another packet.
    pub without_memory: u64,
    /// What leaves for each of the others, and what comes from it.
    pub outbox: Vec<PassedPackets>,
    pub inbox: Vec<PassedPackets>,
    /// What has arrived, where somebody observes it.
    pub observed: PassedPackets,
    packets: Vec<Packet>,
    batch: Vec<Packet>,
    accepted: Vec<AcceptedConnection>,
}

/// Copies of packets that entered links, or came out of them; in the order of time for each link, and the first before all others.
#[derive(Debug, Default)]
pub(super) struct PassedPackets {
    packets: Vec<PassedPacket>,
    bytes: Vec<u8>,
}

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct PassedPacket {
    pub at: Instant,
    /// Its number in the whole.
    pub link: u32,
    len: u32,
    /// Bytes of it that are copied.
    copied: u32,
    meta: PacketMeta,
}

impl PassedPackets {
    /// Copies a packet, or its headers if they are all that is read of it.
    #[inline]
    fn push(&mut self, at: Instant, link: u32, packet: &Packet, pool: &Pool, is_whole: bool) {
        let bytes = pool.bytes(packet);
        let copied = if is_whole { bytes.len() } else { headers_len(bytes) };
        let (len, copied, meta) = (narrow(bytes.len()), narrow(copied), packet.meta);
        self.packets.push(PassedPacket { at, link, len, copied, meta });
        self.bytes.extend_from_slice(&bytes[..copied as usize]);
    }

    /// When the first entered or arrived; [`Instant::NEVER`] where there is none.
    pub fn first(&self) -> Instant {
        self.packets.first().map_or(Instant::NEVER, |packet| packet.at)
    }

    /// Each with the bytes that were copied.
    pub fn iter(&self) -> impl Iterator<Item = (&PassedPacket, &[u8])> {
        let mut rest = self.bytes.as_slice();
        self.packets.iter().map(move |packet| {
            let (bytes, others) = rest.split_at(packet.copied as usize);
            rest = others;
            (packet, bytes)
        })
    }

    pub fn clear(&mut self) {
        self.packets.clear();
        self.bytes.clear();
    }
}

impl PassedPacket {
    /// The state of its checksum.
    pub fn checksum(&self) -> ChecksumState {
        self.meta.checksum
    }
}

impl LogicalProcess {
    /// One of `processes`, with nothing in it.
    pub fn new(number: u32, processes: usize, pool: Pool) -> Self {
        let passed = || (0..processes).map(|_| PassedPackets::default()).collect();
        Self {
            number,
            links: Vec::new(),
            hosts: Vec::new(),
            uplinks: Vec::new(),
            processor_of: Vec::new(),
            processors: Vec::new(),
            sources: Vec::new(),
            delays: Vec::new(),
            flows: Vec::new(),
            flow_numbers: Vec::new(),
            flows_left: 0,
            arrivals: EventQueue::new(0),
            timers: EventQueue::new(0),
            pool,
            now: START,
            until: START,
            events: 0,
            packet_hops: 0,
            misdirected: 0,
            without_memory: 0,
            outbox: passed(),
            inbox: passed(),
            observed: PassedPackets::default(),
            packets: Vec::with_capacity(PACKETS_RESERVED),
            batch: Vec::with_capacity(PACKETS_RESERVED),
            accepted: Vec::new(),
        }
    }

    /// It is complete: nothing is added any more.
    pub fn begin(&mut self, world: &World) {
        self.flows_left = self.flows.len();
        self.processor_of.resize(self.hosts.len(), None);
        let others = self.hosts.len() + self.sources.len() + self.processors.len();
        self.arrivals = EventQueue::new(self.links.len());
        self.timers = EventQueue::new(others);
        for index in 0..self.sources.len() {
            self.schedule_source(world, index);
        }
    }

    /// When its next event is.
    #[inline]
    pub fn next(&self) -> Instant {
        self.arrivals.first().0.min(self.timers.first().0)
    }

    /// Handles at most `events` events up to `until`; with `stops`, none once every flow has ended.
    pub fn run_until(&mut self, world: &World, until: Instant, events: u64, stops: bool) {
        // Once the end may come at any moment, nothing happens beforehand.
        self.until = if stops { START } else { until };
        self.receive_passed(world);
        let last = self.events.saturating_add(events);
        while self.events < last
            && self.next() <= until
            && self.next() < Instant::NEVER
            && !(stops && self.flows_left == 0)
        {
            self.events += 1;
            self.run_next(world);
        }
    }

    /// Handles the next event; of one moment, arrivals come first.
    #[inline]
    fn run_next(&mut self, world: &World) {
        let ((arrival, link), (timer, entity)) = (self.arrivals.first(), self.timers.first());
        debug_assert!(arrival.min(timer) >= self.now, "time goes forward");
        self.now = arrival.min(timer);
        if arrival <= timer {
            return self.run_link(world, link as usize);
        }
        let index = entity as usize;
        let sources = self.hosts.len();
        let processors = sources + self.sources.len();
        if index < sources {
            let host = &mut self.hosts[index];
            if host.deadline() > self.now {
                // It has been put off since it was set.
                self.events -= 1;
                return self.timers.set(entity, host.deadline());
            }
            host.handle_deadline(self.now, &mut self.flows, &mut self.pool);
            self.take_turn(world, index);
        } else if index < processors {
            self.run_source(world, index - sources);
        } else {
            self.run_processor(world, index - processors);
        }
    }

    /// Takes what the others have passed on into its links.
    pub fn receive_passed(&mut self, world: &World) {
        let mut inbox = std::mem::take(&mut self.inbox);
        for passed in &mut inbox {
            for (packet, bytes) in passed.iter() {
                let len = packet.len as usize;
                let Some(mut copy) = self.pool.allocate_for(len) else {
                    self.without_memory += 1;
                    continue;
                };
                let room = self.pool.append(&mut copy, len).expect("what was asked for");
                room[..bytes.len()].copy_from_slice(bytes);
                copy.meta = packet.meta;
                let link = world.links[packet.link as usize].number;
                let directed = &mut self.links[link as usize];
                directed.send(packet.at, copy, 0, &mut self.pool);
                self.arrivals.set(link, directed.next());
            }
            passed.clear();
        }
        self.inbox = inbox;
    }

    /// Packets arrive at the end of a link, or the host at its beginning has room again.
    fn run_link(&mut self, world: &World, index: usize) {
        let mut packets = std::mem::take(&mut self.packets);
        let directed = &mut self.links[index];
        if let Some(foresight) = directed.foresight.filter(|_| !world.is_observed) {
            let until = self.until.min(self.now + foresight).max(self.now);
            return self.run_foreseen(world, (index, until), packets);
        }
        directed.take_arrived(self.now, &mut packets, &mut self.pool);
        let is_awaited = std::mem::take(&mut directed.is_awaited);
        self.arrivals.set(narrow(index), directed.next());
        let (from, to) = (directed.from.filter(|_| is_awaited), directed.to);
        self.expect_next();
        let directed = &self.links[index];
        self.packet_hops += packets.len() as u64;
        if world.is_observed {
            for packet in &packets {
                self.observed.push(self.now, directed.number, packet, &self.pool, true);
            }
        }
        match to {
            _ if packets.is_empty() => {}
            NodeKind::Router(node) => {
                for packet in packets.drain(..) {
                    self.forward(world, (self.now, node), packet);
                }
            }
            NodeKind::Host(host) => {
                let host = host as usize;
                if let Some(later) = directed.link.coming(1) {
                    plumb_copy::prefetch::<1>(self.pool.bytes(later));
                }
                if let Some(next) = directed.link.coming(0) {
                    self.hosts[host].expect(self.pool.bytes(next), &self.flows);
                }
                self.receive(world, host, &mut packets);
            }
        }
        self.packets = packets;
        if let Some(host) = from {
            self.take_turn(world, host as usize);
        }
    }

    /// What the next event changes is fetched into caches.
    #[inline]
    fn expect_next(&self) {
        let (_, link) = self.arrivals.first();
        let Some(directed) = self.links.get(link as usize) else { return };
        directed.link.prefetch();
    }

    /// Packets go on that come out of a link up to `until`, each at its moment: nobody looks at the links which they enter before.
    fn run_foreseen(
        &mut self,
        world: &World,
        (index, until): (usize, Instant),
        mut packets: Vec<Packet>,
    ) {
        let mut last = self.now;
        while let Some(at) = self.links[index].link.take_next(until, &mut packets) {
            // An event for each moment, of which the first has been counted.
            self.events += u64::from(at > last);
            last = at;
            self.packet_hops += 1;
            if let (NodeKind::Router(node), Some(packet)) = (self.links[index].to, packets.pop()) {
                self.forward(world, (at, node), packet);
            }
        }
        self.packets = packets;
        self.arrivals.set(narrow(index), self.links[index].next());
    }

    /// Packets arrive at a host, and are gone from `packets`.
    fn receive(&mut self, world: &World, host: usize, packets: &mut Vec<Packet>) {
        let Some(index) = self.processor_of[host] else {
            return self.deliver(world, host, packets);
        };
        let processor = &mut self.processors[index as usize];
        for packet in packets.drain(..) {
            if let Err(packet) = processor.arrive(self.now, packet) {
                self.pool.free(packet);
            }
        }
        self.schedule_processor(index as usize);
    }

    /// A processor has received a packet, or is interrupted.
    fn run_processor(&mut self, world: &World, index: usize) {
        let processor = &mut self.processors[index];
        let host = world.host_at(processor.spec().node).number as usize;
        if let Some(packet) = processor.step(self.now) {
            let mut packets = std::mem::take(&mut self.packets);
            packets.push(packet);
            self.deliver(world, host, &mut packets);
            self.packets = packets;
        }
        if self.processors[index].is_due_to_send(self.now) {
            self.take_turn(world, host);
        }
        self.schedule_processor(index);
    }

    fn schedule_processor(&mut self, index: usize) {
        let entity = self.hosts.len() + self.sources.len() + index;
        self.timers.set(narrow(entity), self.processors[index].next());
    }

    /// A host's stack, or the sink of a source, gets packets.
    fn deliver(&mut self, world: &World, host: usize, packets: &mut Vec<Packet>) {
        let (now, pool) = (self.now, &mut self.pool);
        for mut packet in packets.drain(..) {
            match destination_or_source(&packet) {
                Err(source) if world.scenario.sources[source as usize].floods.is_none() => {
                    let source = &mut self.sources[source as usize];
                    if let Some(delay) = source.receive(now, pool.bytes(&packet)) {
                        self.delays[source.delays as usize].record(delay.as_ns());
                    }
                    pool.free(packet);
                    continue;
                }
                Err(source) => self.sources[source as usize].receive_syn(),
                Ok(_) => {}
            }
            packet.meta.received = now;
            packet.meta.flow_rate = 0.0;
            self.batch.push(packet);
        }
        if !self.batch.is_empty() {
            self.hosts[host].ip_mut().handle_packets(now, PORT, &mut self.batch, pool);
            self.take_turn(world, host);
        }
    }

    /// A host does what follows from what happened to it, and sends.
    pub fn take_turn(&mut self, world: &World, index: usize) {
        let now = self.now;
        let mut accepted = std::mem::take(&mut self.accepted);
        self.hosts[index].handle_events(now, &mut self.flows, &mut accepted);
        for connection in accepted.drain(..) {
            self.assign(world, index, connection);
        }
        self.accepted = accepted;
        self.flows_left -= self.hosts[index].take_ended();
        self.send_from(world, index);
        self.timers.set_earlier(narrow(index), self.hosts[index].deadline());
    }

    /// A host sends what its interface has room for, and its processor time.
    fn send_from(&mut self, world: &World, index: usize) {
        let now = self.now;
        let processor = self.processor_of[index];
        if let Some(processor) = processor
            && !self.processors[processor as usize].may_send(now)
        {
            return self.schedule_processor(processor as usize);
        }
        let link = self.uplinks[index];
        let directed = &mut self.links[link as usize];
        directed.advance(now, &mut self.pool);
        let len = u64::from(world.scenario.mtu) + u64::from(directed.link.spec().overhead);
        let room = directed.room(world.scenario.ring.into(), len);
        // A processor sends one after the other.
        let room = if processor.is_some() { room.min(1) } else { room };
        let max = usize::try_from(room).unwrap_or(usize::MAX);
        self.hosts[index].poll(now, &mut self.batch, max, &mut self.pool);
        let (packets, bytes) =
            (self.batch.len(), self.batch.iter().map(Packet::len).sum::<usize>());
        directed.is_awaited |= packets >= max;
        self.without_memory += u64::from(self.pool.available().0 == 0);
        for mut packet in self.batch.drain(..) {
            let node = destination(self.pool.bytes(&packet), world.places.len());
            set_destination(&mut packet, node);
            directed.send(now, packet, 0, &mut self.pool);
        }
        self.arrivals.set(link, directed.next());
        if let Some(processor) = processor
            && packets > 0
        {
            let processor = processor as usize;
            self.processors[processor].send(now, packets as u64, bytes as u64);
            self.processors[processor].may_send(now);
            self.schedule_processor(processor);
        }
    }

    /// Finds the flow of a connection that a host has accepted.
    fn assign(&mut self, world: &World, host: usize, connection: AcceptedConnection) {
        let from = node_of(connection.remote);
        if let Some(flow) = from.and_then(|from| world.flow_from(from, connection.port))
            && let Ok(flow) = self.flow_numbers.binary_search(&flow)
        {
            self.hosts[host].assign(self.now, connection, narrow(flow), &mut self.flows);
        }
    }

    fn run_source(&mut self, world: &World, index: usize) {
        let spec = &world.scenario.sources[index];
        if let Some((packet, _)) = self.sources[index].send(spec, self.now, &mut self.pool) {
            self.send(world, (self.now, world.routes.out_of_host(spec.from)), packet);
        } else {
            self.without_memory += 1;
        }
        self.schedule_source(world, index);
    }

    fn schedule_source(&mut self, world: &World, index: usize) {
        let entity = self.hosts.len() + index;
        let next = self.sources[index].next(&world.scenario.sources[index], START);
        self.timers.set(narrow(entity), next);
    }

    /// A packet at a router goes on at once.
    fn forward(&mut self, world: &World, (now, router): (Instant, u32), packet: Packet) {
        let destination = match destination_or_source(&packet) {
            Ok(node) => node,
            Err(source) => world.scenario.sources[source as usize].to,
        };
        let flow = || {
            let tuple = FiveTuple::of_packet(self.pool.bytes(&packet));
            tuple.map_or(0, |tuple| world.hash.hash(tuple.words()))
        };
        if let Some(link) = world.routes.next(router, destination, flow) {
            self.send(world, (now, link), packet);
        } else {
            self.misdirected += 1;
            self.pool.free(packet);
        }
    }

    /// A packet enters a link of this number in the whole, now or at a moment that is foreseen.
    #[inline]
    fn send(&mut self, world: &World, (now, link): (Instant, u32), packet: Packet) {
        let Place { process, number } = world.links[link as usize];
        if process != self.number {
            let outbox = &mut self.outbox[process as usize];
            outbox.push(now, link, &packet, &self.pool, world.copies_payload);
            return self.pool.free(packet);
        }
        let extra = extra_len(&packet, &self.pool);
        let directed = &mut self.links[number as usize];
        directed.send(now, packet, extra, &mut self.pool);
        self.arrivals.set(number, directed.next());
    }
}

/// Bytes of the headers of a segment; all of another packet.
fn headers_len(bytes: &[u8]) -> usize {
    let header = ipv4::Ipv4Packet::parse_quoted(bytes);
    let Some(header) = header.ok().filter(|header| header.protocol() == IpProtocol::TCP) else {
        return bytes.len();
    };
    let offset = bytes.get(header.header_len() + TCP_OFFSET_AT).map_or(0xf0, |byte| *byte);
    (header.header_len() + usize::from(offset >> 4) * 4).min(bytes.len())
}

/// The node that a packet of a host goes to; one that does not exist where it goes nowhere.
#[inline]
fn destination(bytes: &[u8], nodes: usize) -> u32 {
    let address = bytes.get(DESTINATION_OFFSET..).and_then(<[u8]>::first_chunk::<4>);
    let node = address.and_then(|address| node_of(Ipv4Addr::from(*address)));
    node.filter(|node| (*node as usize) < nodes).unwrap_or(NOWHERE)
}

/// What is simulated, and where everything is.
#[derive(Clone, Debug)]
pub(super) struct World {
    pub scenario: Scenario,
    pub routes: RouteTable,
    pub hash: SipKey,
    /// Whether packets are shown to observers.
    pub is_observed: bool,
    /// Whether anybody reads payload.
    pub copies_payload: bool,
    /// Of each node.
    pub places: Vec<NodePlace>,
    /// Where each link is.
    pub links: Vec<Place>,
    /// The flows that come from each node, in the order in which they are opened: that of their ports.
    outgoing: BTreeMap<u32, Vec<u32>>,
}

/// What a node is, and which logical process has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodePlace {
    pub process: u32,
    pub kind: NodeKind,
}

/// A logical process, and the number of a thing in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub process: u32,
    pub number: u32,
}

impl World {
    /// A world whose links have no numbers yet.
    pub fn new(scenario: Scenario, routes: RouteTable, places: Vec<NodePlace>) -> Self {
        let flows = scenario.groups.iter().flat_map(|group| &group.flows);
        let mut by_start: Vec<_> =
            (0..).zip(flows).map(|(index, flow)| (flow.start, index, flow.from)).collect();
        by_start.sort_unstable();
        let mut outgoing: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (_, index, from) in by_start {
            outgoing.entry(from).or_default().push(index);
        }
        let copies_payload = scenario.can_damage();
        let hash = SipKey::new(scenario.seed, "paths");
        let links = Vec::new();
        Self { scenario, routes, hash, is_observed: false, copies_payload, places, links, outgoing }
    }

    /// The flow that comes from a port of a node.
    pub fn flow_from(&self, node: u32, port: u16) -> Option<u32> {
        let number = port.checked_sub(FIRST_LOCAL)?;
        self.outgoing.get(&node)?.get(usize::from(number)).copied()
    }

    /// Where the host at a node is.
    pub fn host_at(&self, node: u32) -> Place {
        let NodePlace { process, kind } = self.places[node as usize];
        match kind {
            NodeKind::Host(number) => Place { process, number },
            NodeKind::Router(_) => unreachable!("ends of flows were checked to be hosts"),
        }
    }
}
