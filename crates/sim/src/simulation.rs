//! The simulation: events in the order of time, packets from link to link, connections in their hosts.
//!
//! An event is a moment of one entity: a link at whose end a packet arrives, a host whose timer expires, a source that sends, or an
//! entry of the schedule. A packet costs one event a link; routers take no time.

use std::collections::BTreeMap;
use std::sync::Arc;

use plumb_base::stats::sparse_histogram::SparseHistogram;
use plumb_base::time::{Instant, Span};
use plumb_link::one_way::OneWayLink;
use plumb_link::spec::FaultSpec;
use plumb_wire::flow::{FiveTuple, SipKey};
use plumb_wire::ipv4;
use plumb_wire::machine::{Machine as _, Medium};
use plumb_wire::packet::{ChecksumState, Packet, Pool, PoolConfig};

use crate::application::FlowApplication;
use crate::directed_link::DirectedLink;
use crate::event_queue::EventQueue;
use crate::flow::SimulatedFlow;
use crate::host::{AcceptedConnection, PORT, VirtualHost, address_of, node_of};
use crate::processor::Processor;
use crate::route::RouteTable;
use crate::scenario::{FlowSpec, Scenario, ScenarioError, check};
use crate::source::{TrafficSource, destination_or_source, extra_len, set_destination};

mod outcome;
mod schedule;

use outcome::SampledSeries;
use schedule::EventSchedule;

/// When every simulation begins: a moment that is not the origin, which stands for "unknown" in packets.
pub const START: Instant = Instant::after_origin(Span::from_secs(1));

/// Sources that are reported each by itself; of more, all of a name are one.
const SOURCES_APART_MAX: usize = 1_024;

/// What no node is.
const NOWHERE: u32 = (1 << 31) - 1;

/// What a node is.
#[derive(Clone, Copy, Debug)]
enum NodeKind {
    Host(u32),
    Router,
}

/// Sees each packet that arrives at the end of a link.
pub trait PacketObserver: std::fmt::Debug {
    /// A packet came out of this one-way link: edge `link / 2` of the network, "up" where `link` is even. Hosts may
    /// leave its checksum partial, which nothing on the way needs.
    fn on_arrival(&mut self, at: Instant, link: u32, bytes: &[u8], checksum: ChecksumState);
}

/// A simulation that runs.
#[derive(Debug)]
pub struct Simulation {
    scenario: Scenario,
    routes: RouteTable,
    nodes: Vec<NodeKind>,
    directed_links: Vec<DirectedLink>,
    hosts: Vec<VirtualHost>,
    /// The link out of each host.
    uplinks: Vec<u32>,
    /// Of each host: its processor, if it has one.
    processor_of: Vec<Option<u32>>,
    processors: Vec<Processor>,
    sources: Vec<TrafficSource>,
    /// One-way delays in nanoseconds, of each source, or of all of a name where there are many.
    delays: Vec<SparseHistogram>,
    flows: Vec<SimulatedFlow>,
    /// Those that have not ended.
    flows_left: usize,
    schedule: EventSchedule,
    queue: EventQueue,
    pool: Pool,
    now: Instant,
    end: Instant,
    events: u64,
    packet_hops: u64,
    misdirected: u64,
    /// Times that no memory was left for another packet.
    without_memory: u64,
    hash: SipKey,
    observers: Vec<Box<dyn PacketObserver>>,
    sampled: SampledSeries,
    packets: Vec<Packet>,
    batch: Vec<Packet>,
    accepted: Vec<AcceptedConnection>,
}

impl Simulation {
    /// What a scenario describes, at its start.
    ///
    /// # Errors
    /// [`ScenarioError`] says what is wrong with it; so does memory for packets beyond `memory_max` bytes.
    pub fn new(mut scenario: Scenario, memory_max: u64) -> Result<Self, ScenarioError> {
        let routes = RouteTable::new(&scenario.network);
        let paths = check::check(&scenario, &routes)?;
        let need = check::memory_need(&scenario, &paths);
        need.check(memory_max)?;
        for group in &mut scenario.groups {
            for config in [&mut group.client, &mut group.server] {
                Arc::make_mut(config).keeps_content = false;
            }
        }
        let frames = PoolConfig { count: need.frames(), size: need.frame_size, large: 0 };
        let directed_links = make_links(&scenario, &paths);
        let (nodes, hosts, uplinks) = make_hosts(&scenario, &routes);
        let (sources, delays) = make_sources(&scenario);
        let processors: Vec<Processor> =
            scenario.processors.iter().copied().map(Processor::new).collect();
        let entities = directed_links.len() + hosts.len() + sources.len() + processors.len() + 1;
        let flows = make_flows(&scenario);
        let mut processor_of = vec![None; hosts.len()];
        for (index, processor) in (0..).zip(&scenario.processors) {
            if let NodeKind::Host(host) = nodes[processor.node as usize] {
                processor_of[host as usize] = Some(index);
            }
        }
        let mut simulation = Self {
            schedule: EventSchedule::new(&scenario, &flows),
            queue: EventQueue::new(entities),
            pool: Pool::reserve(frames, 0),
            now: START,
            end: START + scenario.duration,
            events: 0,
            packet_hops: 0,
            misdirected: 0,
            without_memory: 0,
            hash: SipKey::new(scenario.seed, "paths"),
            observers: Vec::new(),
            sampled: SampledSeries::new(directed_links.len()),
            packets: Vec::new(),
            batch: Vec::new(),
            accepted: Vec::new(),
            scenario,
            routes,
            nodes,
            directed_links,
            hosts,
            uplinks,
            processor_of,
            processors,
            sources,
            delays,
            flows_left: flows.len(),
            flows,
        };
        for index in 0..simulation.sources.len() {
            simulation.schedule_source(index);
        }
        simulation.arm_schedule();
        if simulation.scenario.warmup == Span::ZERO {
            // Before anything is sent.
            simulation.end_warmup();
        }
        Ok(simulation)
    }

    /// Shows each packet to `observer` as it leaves a link. Payload of connections that are opened from now on is zeros; without an
    /// observer it is never written.
    pub fn observe(&mut self, observer: Box<dyn PacketObserver>) {
        for group in &mut self.scenario.groups {
            Arc::make_mut(&mut group.client).keeps_content = true;
        }
        self.observers.push(observer);
    }

    /// What it runs.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// How long it has been running in virtual time.
    pub fn elapsed(&self) -> Span {
        self.now - START
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Handles at most `events` events; whether any are left.
    pub fn run_some(&mut self, events: u64) -> bool {
        for _ in 0..events {
            if !self.step() {
                return false;
            }
        }
        true
    }

    /// Runs to its end.
    pub fn run(&mut self) {
        while self.step() {}
    }

    /// Handles the next event; `false` at the end.
    fn step(&mut self) -> bool {
        let due = self.queue.first().filter(|(at, _)| *at <= self.end && !self.is_over());
        let Some((now, entity)) = due else {
            if !self.is_over() {
                self.now = self.end;
            }
            return false;
        };
        debug_assert!(now >= self.now, "time goes forward");
        self.now = now;
        self.events += 1;
        let index = entity as usize;
        let hosts = self.directed_links.len();
        let sources = hosts + self.hosts.len();
        if index < hosts {
            self.run_link(index);
        } else if index < sources {
            let host = &mut self.hosts[index - hosts];
            host.handle_deadline(now, &mut self.flows, &mut self.pool);
            self.take_turn(index - hosts);
        } else if index < sources + self.sources.len() {
            self.run_source(index - sources);
        } else if index < sources + self.sources.len() + self.processors.len() {
            self.run_processor(index - sources - self.sources.len());
        } else {
            self.run_schedule();
        }
        true
    }

    /// Packets arrive at the end of a link, or the host at its beginning has room again.
    fn run_link(&mut self, index: usize) {
        let mut packets = std::mem::take(&mut self.packets);
        let directed = &mut self.directed_links[index];
        directed.take_arrived(self.now, &mut packets, &mut self.pool);
        let link = narrow(index);
        let is_awaited = std::mem::take(&mut directed.is_awaited);
        self.queue.set(link, directed.next());
        self.packet_hops += packets.len() as u64;
        for observer in &mut self.observers {
            for packet in &packets {
                let bytes = self.pool.bytes(packet);
                observer.on_arrival(self.now, link, bytes, packet.meta.checksum);
            }
        }
        let node = self.routes.end(link);
        match self.nodes[node as usize] {
            NodeKind::Router => {
                for packet in packets.drain(..) {
                    self.forward(node, packet);
                }
            }
            NodeKind::Host(host) if !packets.is_empty() => {
                let (link, host) = (&self.directed_links[index].link, host as usize);
                if let Some(later) = link.coming(1) {
                    plumb_copy::prefetch::<1>(self.pool.bytes(later));
                }
                if let Some(next) = link.coming(0) {
                    self.hosts[host].expect(self.pool.bytes(next), &self.flows);
                }
                self.receive(host, &mut packets);
            }
            NodeKind::Host(_) => {}
        }
        self.packets = packets;
        if is_awaited && let NodeKind::Host(host) = self.nodes[self.routes.end(link ^ 1) as usize] {
            self.take_turn(host as usize);
        }
    }

    /// Packets arrive at a host, and are gone from `packets`.
    fn receive(&mut self, host: usize, packets: &mut Vec<Packet>) {
        let Some(index) = self.processor_of[host] else {
            return self.deliver(host, packets);
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
    fn run_processor(&mut self, index: usize) {
        let processor = &mut self.processors[index];
        let node = processor.spec().node;
        if let Some(packet) = processor.step(self.now) {
            let mut packets = std::mem::take(&mut self.packets);
            packets.push(packet);
            self.deliver(self.host_at(node), &mut packets);
            self.packets = packets;
        }
        if self.processors[index].is_due_to_send(self.now) {
            self.take_turn(self.host_at(node));
        }
        self.schedule_processor(index);
    }

    fn schedule_processor(&mut self, index: usize) {
        let entity = self.directed_links.len() + self.hosts.len() + self.sources.len() + index;
        self.queue.set(narrow(entity), self.processors[index].next());
    }

    /// A host's stack, or the sink of a source, gets packets.
    fn deliver(&mut self, host: usize, packets: &mut Vec<Packet>) {
        let (now, pool) = (self.now, &mut self.pool);
        for mut packet in packets.drain(..) {
            match destination_or_source(&packet) {
                Err(source) if self.scenario.sources[source as usize].floods.is_none() => {
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
            self.take_turn(host);
        }
    }

    /// A host does what follows from what happened to it, and sends.
    fn take_turn(&mut self, index: usize) {
        let now = self.now;
        let mut accepted = std::mem::take(&mut self.accepted);
        self.hosts[index].handle_events(now, &mut self.flows, &mut accepted);
        for connection in accepted.drain(..) {
            self.assign(index, connection);
        }
        self.accepted = accepted;
        self.flows_left -= self.hosts[index].take_ended();
        self.send_from(index);
        let entity = self.directed_links.len() + index;
        self.queue.set(narrow(entity), self.hosts[index].deadline());
    }

    /// A host sends what its interface has room for, and its processor time.
    fn send_from(&mut self, index: usize) {
        let now = self.now;
        let processor = self.processor_of[index];
        if let Some(processor) = processor
            && !self.processors[processor as usize].may_send(now)
        {
            return self.schedule_processor(processor as usize);
        }
        let link = self.uplinks[index];
        let directed = &mut self.directed_links[link as usize];
        directed.advance(now, &mut self.pool);
        let len = u64::from(self.scenario.mtu) + u64::from(directed.link.spec().overhead);
        let room = directed.room(self.scenario.ring.into(), len);
        // A processor sends one after the other.
        let room = if processor.is_some() { room.min(1) } else { room };
        let max = usize::try_from(room).unwrap_or(usize::MAX);
        self.hosts[index].poll(now, &mut self.batch, max, &mut self.pool);
        let (packets, bytes) =
            (self.batch.len(), self.batch.iter().map(Packet::len).sum::<usize>());
        directed.is_awaited |= packets >= max;
        self.without_memory += u64::from(self.pool.available().0 == 0);
        for mut packet in self.batch.drain(..) {
            let node = destination(self.pool.bytes(&packet), self.nodes.len());
            set_destination(&mut packet, node);
            directed.send(now, packet, 0, &mut self.pool);
        }
        self.queue.set(link, directed.next());
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
    fn assign(&mut self, host: usize, connection: AcceptedConnection) {
        let kind = node_of(connection.remote).and_then(|node| self.nodes.get(node as usize));
        let Some(NodeKind::Host(sender)) = kind else { return };
        if let Some(flow) = self.hosts[*sender as usize].flow_from(connection.port) {
            self.hosts[host].assign(self.now, connection, flow, &mut self.flows);
        }
    }

    fn run_source(&mut self, index: usize) {
        let spec = &self.scenario.sources[index];
        if let Some((packet, _)) = self.sources[index].send(spec, self.now, &mut self.pool) {
            let link = self.routes.out_of_host(spec.from);
            self.send(link, packet);
        } else {
            self.without_memory += 1;
        }
        self.schedule_source(index);
    }

    fn schedule_source(&mut self, index: usize) {
        let entity = self.directed_links.len() + self.hosts.len() + index;
        let next = self.sources[index].next(&self.scenario.sources[index], START);
        self.queue.set(narrow(entity), next);
    }

    /// A packet at a router goes on, at once.
    fn forward(&mut self, router: u32, packet: Packet) {
        let destination = match destination_or_source(&packet) {
            Ok(node) => node,
            Err(source) => self.scenario.sources[source as usize].to,
        };
        let flow = || {
            let tuple = FiveTuple::of_packet(self.pool.bytes(&packet));
            tuple.map_or(0, |tuple| self.hash.hash(tuple.words()))
        };
        if let Some(link) = self.routes.next(router, destination, flow) {
            self.send(link, packet);
        } else {
            self.misdirected += 1;
            self.pool.free(packet);
        }
    }

    /// A packet enters a link.
    #[inline]
    fn send(&mut self, link: u32, packet: Packet) {
        let extra = extra_len(&packet, &self.pool);
        let directed = &mut self.directed_links[link as usize];
        directed.send(self.now, packet, extra, &mut self.pool);
        self.queue.set(link, directed.next());
    }
}

/// The node that a packet of a host goes to; one that does not exist where it goes nowhere.
#[inline]
fn destination(bytes: &[u8], nodes: usize) -> u32 {
    let header = ipv4::Ipv4Packet::parse_quoted(bytes).ok();
    let node = header.and_then(|header| node_of(header.destination()));
    node.filter(|node| (*node as usize) < nodes).unwrap_or(NOWHERE)
}

fn make_links(scenario: &Scenario, paths: &check::PathSurvey) -> Vec<DirectedLink> {
    let directions =
        scenario.network.edges.iter().flat_map(|edge| [&edge.spec.up, &edge.spec.down]);
    directions
        .enumerate()
        .map(|(index, spec)| {
            let seed = scenario.seed.derive(&format!("link {index}"));
            let round_trip = paths.round_trips[index];
            DirectedLink::new(OneWayLink::new(spec, Medium::Ip, seed, round_trip, START))
        })
        .collect()
}

/// What each node is, the hosts, and the link out of each.
fn make_hosts(
    scenario: &Scenario,
    routes: &RouteTable,
) -> (Vec<NodeKind>, Vec<VirtualHost>, Vec<u32>) {
    let damages = scenario.network.edges.iter().flat_map(|edge| [&edge.spec.up, &edge.spec.down]);
    let computes_checksums = damages
        .flat_map(|direction| &direction.faults)
        .any(|fault| matches!(fault, FaultSpec::Corrupt(_) | FaultSpec::Truncate(_)));
    let (mut nodes, mut hosts, mut uplinks) = (Vec::new(), Vec::new(), Vec::new());
    for (node, degree) in (0..).zip(scenario.network.degrees()) {
        if degree != 1 {
            nodes.push(NodeKind::Router);
            continue;
        }
        nodes.push(NodeKind::Host(narrow(hosts.len())));
        hosts.push(VirtualHost::new(node, scenario.mtu, computes_checksums, scenario.seed));
        uplinks.push(routes.out_of_host(node));
    }
    for (group, spec) in (0..).zip(&scenario.groups) {
        let mut backlogs = BTreeMap::new();
        for flow in &spec.flows {
            *backlogs.entry(flow.to).or_insert(0_usize) += 1;
        }
        for (node, backlog) in backlogs {
            if let NodeKind::Host(host) = nodes[node as usize] {
                hosts[host as usize].listen(group, backlog, &spec.server);
            }
        }
    }
    (nodes, hosts, uplinks)
}

/// The connections, each with its application if it has one.
fn make_flows(scenario: &Scenario) -> Vec<SimulatedFlow> {
    let groups = (0..).zip(&scenario.groups);
    let mut flows: Vec<SimulatedFlow> = groups
        .flat_map(|(group, spec)| {
            spec.flows.iter().map(move |flow| SimulatedFlow::new(*flow, group))
        })
        .collect();
    for index in 0..flows.len() {
        let FlowSpec { writes, relays, .. } = flows[index].spec;
        let number = narrow(index);
        let mut origin = writes.map(|_| number);
        if let Some(upstream) = relays.map(|upstream| upstream as usize) {
            let application = flows[upstream].application.get_or_insert_default();
            application.downstream = Some(number);
            origin = application.origin;
        } else if writes.is_none() {
            continue;
        }
        let mut application = FlowApplication::default();
        (application.writes, application.upstream) = (writes, relays);
        application.origin = origin;
        flows[index].application = Some(Box::new(application));
    }
    flows
}

/// The sources, and the histograms of their delays.
fn make_sources(scenario: &Scenario) -> (Vec<TrafficSource>, Vec<SparseHistogram>) {
    let shares = scenario.sources.len() > SOURCES_APART_MAX;
    let mut by_name: BTreeMap<&str, u32> = BTreeMap::new();
    let mut sources = Vec::with_capacity(scenario.sources.len());
    let mut histograms = 0;
    for (index, spec) in (0..).zip(&scenario.sources) {
        let ends = (address_of(spec.from), address_of(spec.to));
        let delays = if shares { *by_name.entry(&spec.name).or_insert(histograms) } else { index };
        histograms = histograms.max(delays + 1);
        sources.push(TrafficSource::new(spec, (index, delays), ends, scenario.seed, START));
    }
    (sources, vec![SparseHistogram::new(); histograms as usize])
}

fn narrow(index: usize) -> u32 {
    u32::try_from(index).expect("links and hosts were counted")
}
