//! The simulation: logical processes that run up to the next moment at which all of them are looked at, and what happens then.
//!
//! A network that can be divided is simulated by several threads, each of which runs a logical process for the lookahead that links between
//! them allow. What comes out is the same for any number of threads.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use plumb_base::stats::sparse_histogram::SparseHistogram;
use plumb_base::time::{Instant, Span};
use plumb_link::one_way::OneWayLink;
use plumb_link::spec::HopSpec;
use plumb_wire::machine::Medium;
use plumb_wire::packet::{ChecksumState, Pool, PoolConfig};

use crate::directed_link::{DirectedLink, NodeKind};
use crate::flow::{FlowApplication, SimulatedFlow};
use crate::host::{VirtualHost, address_of};
use crate::processor::Processor;
use crate::route::RouteTable;
use crate::scenario::{FlowSpec, Scenario, ScenarioError, check};
use crate::source::TrafficSource;

mod logical_process;
mod outcome;
mod schedule;
mod threads;

use logical_process::{LogicalProcess, NodePlace, Place, World};
use outcome::SampledSeries;
use schedule::EventSchedule;
use threads::{Partition, ThreadTrial, Worker};

/// When every simulation begins: a moment that is not the origin, which stands for "unknown" in packets.
pub const START: Instant = Instant::after_origin(Span::from_secs(1));

/// Sources that are reported each by itself; of more, all of a name are one.
const SOURCES_APART_MAX: usize = 1_024;
/// Events that are handled before what observers see is shown to them.
const EVENTS_OBSERVED: u64 = 1_024;

/// Sees each packet that arrives at the end of a link.
pub trait PacketObserver: std::fmt::Debug {
    /// A packet came out of this one-way link: edge `link / 2` of the network, "up" where `link` is even. Hosts may
    /// leave its checksum partial, which nothing on the way needs.
    fn on_arrival(&mut self, at: Instant, link: u32, bytes: &[u8], checksum: ChecksumState);
}

/// A simulation that runs.
#[derive(Debug)]
pub struct Simulation {
    world: Arc<World>,
    #[expect(clippy::vec_box, reason = "threads take them, and their memory stays where it is")]
    processes: Vec<Box<LogicalProcess>>,
    /// For every process but the first, once they are needed.
    workers: Vec<Worker>,
    lookahead: Span,
    trial: ThreadTrial,
    /// The sending and the receiving end of each flow.
    flows: Vec<[Place; 2]>,
    schedule: EventSchedule,
    end: Instant,
    /// Events of the schedule.
    events: u64,
    observers: Vec<Box<dyn PacketObserver>>,
    sampled: SampledSeries,
}

impl Simulation {
    /// What a scenario describes, at its start, in one thread.
    ///
    /// # Errors
    /// [`ScenarioError`] says what is wrong with it; so does memory for packets beyond `memory_max` bytes.
    pub fn new(scenario: Scenario, memory_max: u64) -> Result<Self, ScenarioError> {
        Self::with_threads(scenario, memory_max, 1)
    }

    /// The same in at most `threads` threads, as many as its network can be divided among: it has no sources, only connections that write
    /// all they have, one of them without end, and links of constant rate, of which some have a constant delay and no faults.
    ///
    /// # Errors
    /// As [`Simulation::new`].
    pub fn with_threads(
        mut scenario: Scenario,
        memory_max: u64,
        threads: u32,
    ) -> Result<Self, ScenarioError> {
        let routes = RouteTable::new(&scenario.network);
        let paths = check::check(&scenario, &routes)?;
        let need = check::memory_need(&scenario, &paths, |_| true);
        need.check(memory_max)?;
        for group in &mut scenario.groups {
            for config in [&mut group.client, &mut group.server] {
                Arc::make_mut(config).keeps_content = false;
            }
        }
        let (mut partition, mut pools) = divide(&scenario, &routes, &paths, threads);
        let frames = pools.iter().map(|pool| u64::from(pool.count) * u64::from(pool.size));
        if frames.sum::<u64>() > memory_max - need.state {
            (partition, pools) = divide(&scenario, &routes, &paths, 1);
        }
        let count = pools.len();
        let mut processes: Vec<_> = (0..)
            .zip(pools)
            .map(|(number, pool)| LogicalProcess::new(number, count, Pool::reserve(pool, 0)))
            .map(Box::new)
            .collect();
        let places = add_hosts(&scenario, &partition, &mut processes);
        let mut world = World::new(scenario, routes, places);
        add_links(&mut world, &paths, &mut processes);
        let flows = add_flows(&world, &mut processes);
        add_sources(&world.scenario, &mut processes[0]);
        for spec in &world.scenario.processors {
            let Place { process, number } = world.host_at(spec.node);
            let process = &mut processes[process as usize];
            process.processor_of.resize(process.hosts.len(), None);
            process.processor_of[number as usize] = Some(narrow(process.processors.len()));
            process.processors.push(Processor::new(*spec));
        }
        for process in &mut processes {
            process.begin(&world);
        }
        let mut simulation = Self {
            schedule: EventSchedule::new(&world.scenario),
            processes,
            workers: Vec::new(),
            lookahead: partition.lookahead,
            trial: ThreadTrial::new(),
            flows,
            end: START + world.scenario.duration,
            events: 0,
            observers: Vec::new(),
            sampled: SampledSeries::new(world.scenario.network.edges.len() * 2),
            world: Arc::new(world),
        };
        if simulation.world.scenario.warmup == Span::ZERO {
            // Before anything is sent.
            simulation.end_warmup();
        }
        Ok(simulation)
    }

    /// Shows each packet to `observer` as it leaves a link; to be called before the simulation runs. Payload is zeros then; without an
    /// observer it is never written.
    pub fn observe(&mut self, observer: Box<dyn PacketObserver>) {
        let world = Arc::make_mut(&mut self.world);
        world.is_observed = true;
        world.copies_payload = true;
        for group in &mut world.scenario.groups {
            Arc::make_mut(&mut group.client).keeps_content = true;
        }
        self.observers.push(observer);
    }

    /// What it runs.
    pub fn scenario(&self) -> &Scenario {
        &self.world.scenario
    }

    /// How many threads it runs in.
    pub fn threads(&self) -> usize {
        self.processes.len()
    }

    /// How long it has been running in virtual time.
    pub fn elapsed(&self) -> Span {
        self.now() - START
    }

    fn now(&self) -> Instant {
        self.processes.iter().map(|process| process.now).max().unwrap_or(START)
    }

    /// It is `now` in every process.
    fn set_now(&mut self, now: Instant) {
        for process in &mut self.processes {
            process.now = now;
        }
    }

    /// Events so far.
    pub fn events(&self) -> u64 {
        self.events + self.processes.iter().map(|process| process.events).sum::<u64>()
    }

    /// Handles about so many events; whether any are left.
    pub fn run_some(&mut self, events: u64) -> bool {
        let last = self.events().saturating_add(events);
        loop {
            let done = self.events();
            if self.is_over() || done >= last {
                return done >= last;
            }
            let scheduled = self.schedule.next();
            let horizon = scheduled.min(self.end);
            let first = self.first();
            if first <= horizon {
                self.run_window(first, horizon, last - done);
            } else if scheduled <= self.end {
                self.events += 1;
                self.set_now(scheduled);
                self.run_schedule(scheduled);
            } else {
                self.set_now(self.end);
                return false;
            }
        }
    }

    /// Runs to what is scheduled next: in between, packets may have gone on beforehand.
    fn run_to_schedule(&mut self) {
        let horizon = self.schedule.next().min(self.end);
        while !self.is_over() && self.first() <= horizon {
            self.run_window(self.first(), horizon, u64::MAX);
        }
        if !self.is_over() {
            self.set_now(horizon);
        }
    }

    /// Runs to its end.
    pub fn run(&mut self) {
        while self.run_some(u64::MAX) {}
    }

    /// When the next event is, of those that are not in the schedule.
    fn first(&self) -> Instant {
        let next = self.processes.iter().map(|process| {
            // A packet passed to another part arrives a lookahead later at the earliest.
            let passed = process.outbox.iter().map(|passed| passed.first() + self.lookahead);
            passed.fold(process.next(), Instant::min)
        });
        next.min().unwrap_or(Instant::NEVER)
    }

    /// Handles events up to `horizon`, of which the first is at `first`: at most `events` of them in one thread, or those of a lookahead.
    fn run_window(&mut self, first: Instant, horizon: Instant, events: u64) {
        if let [process] = self.processes.as_mut_slice() {
            let is_observed = self.world.is_observed;
            let events = if is_observed { events.min(EVENTS_OBSERVED) } else { events };
            process.run_until(&self.world, horizon, events, self.schedule.lets_end());
        } else {
            // A packet that enters a link at `first` leaves it more than a lookahead later.
            let until = horizon.min(first + self.lookahead);
            self.exchange();
            let mut trial = std::mem::replace(&mut self.trial, ThreadTrial::new());
            let several = trial.uses_several() && self.has_workers();
            let before = self.events();
            trial.time(|| {
                self.run_processes(until, several);
                self.events() - before
            });
            self.trial = trial;
        }
        self.show_observers();
    }

    /// Hands over what processes have passed on to others.
    fn exchange(&mut self) {
        for receiver in 0..self.processes.len() {
            for sender in 0..self.processes.len() {
                if receiver != sender {
                    let mut passed = std::mem::take(&mut self.processes[sender].outbox[receiver]);
                    std::mem::swap(&mut passed, &mut self.processes[receiver].inbox[sender]);
                    self.processes[sender].outbox[receiver] = passed;
                }
            }
        }
    }

    /// Hands over and takes in everything that was passed on, so that links have what has entered them.
    fn settle(&mut self) {
        self.exchange();
        for process in &mut self.processes {
            process.receive_passed(&self.world);
        }
    }

    /// Whether there is a thread for every process but the first, as far as the system allows.
    fn has_workers(&mut self) -> bool {
        while self.workers.len() + 1 < self.processes.len() {
            match Worker::new() {
                Ok(worker) => self.workers.push(worker),
                Err(_) => return false,
            }
        }
        true
    }

    /// Runs every process up to `until`, each in its thread if `several` do.
    fn run_processes(&mut self, until: Instant, several: bool) {
        if !several {
            for process in &mut self.processes {
                process.run_until(&self.world, until, u64::MAX, false);
            }
            return;
        }
        for (process, worker) in self.processes.drain(1..).zip(&self.workers) {
            worker.start(process, &self.world, until);
        }
        self.processes[0].run_until(&self.world, until, u64::MAX, false);
        self.processes.extend(self.workers.iter_mut().map(Worker::wait));
    }

    /// Shows observers what has arrived, in the order of time and then of links.
    fn show_observers(&mut self) {
        let observed = self.processes.iter().map(|process| process.observed.iter().peekable());
        let mut observed: Vec<_> = observed.collect();
        loop {
            let heads = observed.iter_mut().enumerate().filter_map(|(process, packets)| {
                let (packet, _) = packets.peek()?;
                Some((packet.at, packet.link, process))
            });
            let Some((at, link, process)) = heads.min() else { break };
            let Some((packet, bytes)) = observed[process].next() else { break };
            for observer in &mut self.observers {
                observer.on_arrival(at, link, bytes, packet.checksum());
            }
        }
        drop(observed);
        for process in &mut self.processes {
            process.observed.clear();
        }
    }
}

/// Adds every host to its process; what each node is.
fn add_hosts(
    scenario: &Scenario,
    partition: &Partition,
    processes: &mut [Box<LogicalProcess>],
) -> Vec<NodePlace> {
    let computes_checksums = scenario.can_damage();
    let mut places = Vec::new();
    for (node, degree) in (0..).zip(scenario.network.degrees()) {
        let process = partition.part_of[node as usize];
        if degree != 1 {
            places.push(NodePlace { process, kind: NodeKind::Router(node) });
            continue;
        }
        let hosts = &mut processes[process as usize].hosts;
        places.push(NodePlace { process, kind: NodeKind::Host(narrow(hosts.len())) });
        hosts.push(VirtualHost::new(node, scenario.mtu, computes_checksums, scenario.seed));
    }
    for (group, spec) in (0..).zip(&scenario.groups) {
        let mut backlogs = BTreeMap::new();
        for flow in &spec.flows {
            *backlogs.entry(flow.to).or_insert(0_usize) += 1;
        }
        for (node, backlog) in backlogs {
            let place = places[node as usize];
            if let NodeKind::Host(host) = place.kind {
                let host = &mut processes[place.process as usize].hosts[host as usize];
                host.listen(group, backlog, &spec.server);
            }
        }
    }
    places
}

/// The parts that so many threads simulate, and the memory of each for the packets on its links.
fn divide(
    scenario: &Scenario,
    routes: &RouteTable,
    paths: &check::PathSurvey,
    threads: u32,
) -> (Partition, Vec<PoolConfig>) {
    let partition = Partition::of(scenario, routes, threads);
    let pools = (0..partition.parts).map(|part| {
        let ends_in_it = |link| partition.part_of[routes.end(link) as usize] == part;
        let need = check::memory_need(scenario, paths, ends_in_it);
        PoolConfig { count: need.frames(), size: need.frame_size, large: 0 }
    });
    let pools = pools.collect();
    (partition, pools)
}

/// Adds every link to the process where it ends.
fn add_links(world: &mut World, paths: &check::PathSurvey, processes: &mut [Box<LogicalProcess>]) {
    let mut links = Vec::new();
    let edges = &world.scenario.network.edges;
    let directions = edges.iter().flat_map(|edge| [&edge.spec.up, &edge.spec.down]);
    for ((number, spec), round_trip) in (0..).zip(directions).zip(&paths.round_trips) {
        let seed = world.scenario.seed.derive(&format!("link {number}"));
        let nodes = [number ^ 1, number].map(|link| world.places[world.routes.end(link) as usize]);
        let link = OneWayLink::new(spec, Medium::Ip, seed, *round_trip, START);
        let process = nodes[1].process;
        let of_process = &mut processes[process as usize].links;
        links.push(Place { process, number: narrow(of_process.len()) });
        of_process.push(DirectedLink::new(link, number, nodes.map(|node| node.kind)));
    }
    world.links = links;
    for link in foreseen_links(&world.scenario, &world.routes) {
        let Place { process, number } = world.links[link as usize];
        let directed = &mut processes[process as usize].links[number as usize];
        directed.foresight = OneWayLink::foreseeable_delay(directed.link.spec());
    }
    for (node, place) in (0..).zip(&world.places) {
        if matches!(place.kind, NodeKind::Host(_)) {
            let link = world.links[world.routes.out_of_host(node) as usize];
            processes[place.process as usize].uplinks.push(link.number);
        }
    }
}

/// Links from routers of which packets can go on before it is time: it is known when they come out, and no others enter the links that come
/// after, which know the same. So what enters these is in order.
fn foreseen_links(scenario: &Scenario, routes: &RouteTable) -> Vec<u32> {
    if !scenario.sources.is_empty() {
        return Vec::new();
    }
    let flows = scenario.groups.iter().flat_map(|group| &group.flows);
    let pairs: BTreeSet<[u32; 2]> =
        flows.flat_map(|flow| [[flow.from, flow.to], [flow.to, flow.from]]).collect();
    let steps: BTreeSet<[u32; 2]> =
        pairs.into_iter().flat_map(|[from, to]| routes.steps(from, to)).collect();
    let count = scenario.network.edges.len() * 2;
    let mut inputs = vec![0_u32; count];
    for [_, next] in &steps {
        inputs[*next as usize] += 1;
    }
    let is_foreseeable = |link: u32| {
        let HopSpec { up, down } = &scenario.network.edges[link as usize / 2].spec;
        let delay = OneWayLink::foreseeable_delay(if link.is_multiple_of(2) { up } else { down });
        delay.is_some_and(|delay| delay > Span::ZERO)
    };
    let comes_of_routers = |link: u32| inputs[link as usize] > 0;
    let mut foreseen: BTreeSet<u32> =
        steps.iter().map(|[link, _]| *link).filter(|link| comes_of_routers(*link)).collect();
    for [link, next] in steps {
        if !is_foreseeable(link) || !is_foreseeable(next) || inputs[next as usize] > 1 {
            foreseen.remove(&link);
        }
    }
    foreseen.into_iter().collect()
}

/// Adds the connections to the processes of both ends; where these are.
fn add_flows(world: &World, processes: &mut [Box<LogicalProcess>]) -> Vec<[Place; 2]> {
    let mut places = Vec::with_capacity(world.scenario.flow_count());
    for (group, spec) in (0..).zip(&world.scenario.groups) {
        for flow in &spec.flows {
            let number = narrow(places.len());
            let processes_of = [flow.from, flow.to].map(|node| world.host_at(node).process);
            let mut add = |process: u32| {
                let flows = &mut processes[process as usize];
                flows.flows.push(SimulatedFlow::new(*flow, group));
                flows.flow_numbers.push(number);
                Place { process, number: narrow(flows.flows.len() - 1) }
            };
            let from = add(processes_of[0]);
            let to = if processes_of[1] == from.process { from } else { add(processes_of[1]) };
            places.push([from, to]);
        }
    }
    if let [process] = processes {
        add_applications(&mut process.flows);
    }
    places
}

/// Adds the applications that write connections at times, or pass them on.
fn add_applications(flows: &mut [SimulatedFlow]) {
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
}

/// Adds the sources, and the histograms of their delays.
fn add_sources(scenario: &Scenario, process: &mut LogicalProcess) {
    let shares = scenario.sources.len() > SOURCES_APART_MAX;
    let mut by_name: BTreeMap<&str, u32> = BTreeMap::new();
    let mut histograms = 0;
    for (index, spec) in (0..).zip(&scenario.sources) {
        let ends = (address_of(spec.from), address_of(spec.to));
        let delays = if shares { *by_name.entry(&spec.name).or_insert(histograms) } else { index };
        histograms = histograms.max(delays + 1);
        let source = TrafficSource::new(spec, (index, delays), ends, scenario.seed, START);
        process.sources.push(source);
    }
    process.delays = vec![SparseHistogram::new(); histograms as usize];
}

fn narrow(index: usize) -> u32 {
    u32::try_from(index).expect("links and hosts were counted")
}
