//! Which thread simulates which part of a network, and the threads that do so beside the one that drives the simulation.
//!
//! Parts are separated by links between routers in which the moment a packet leaves is known when it enters. So each part can be
//! simulated by itself for as long as the shortest delay between two of them, the lookahead: nothing that another does meanwhile arrives
//! earlier (Chandy and Misra 1979, Fujimoto 1990).

use std::hint::spin_loop;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvError, SyncSender, TryRecvError, sync_channel};
use std::thread::{Builder, JoinHandle, yield_now};
use std::time::Duration;

use plumb_base::time::{Instant, Span};
use plumb_link::one_way::OneWayLink;
use plumb_link::spec::RateSpec;

use crate::network::NetworkEdge;
use crate::route::RouteTable;
use crate::scenario::{FlowSpec, Scenario};
use crate::simulation::logical_process::{LogicalProcess, World};
use crate::simulation::narrow;

/// Polls of a channel before a thread sleeps: some milliseconds, as waking one up takes long.
const POLLS_MAX: u32 = 100_000;

/// Events by which it is tried out whether one thread or several are faster.
const EVENTS_TRIED: u64 = 1_000;
/// Events for which the faster is used then, at first and at most.
const EVENTS_USED: [u64; 2] = [50_000, 1_000_000];

/// Whether one thread or several were faster lately: windows may be short, and CPUs busy with something else. The only use of a clock in a
/// simulation, and it changes no result.
#[derive(Debug)]
pub(super) struct ThreadTrial {
    phase: TrialPhase,
    /// Nanoseconds an event, of several threads when they were tried.
    several: f64,
    /// Of this phase.
    events: u64,
    took: Duration,
    /// Events of the next phase of use.
    used: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TrialPhase {
    TrySeveral,
    TryOne,
    Use { several: bool },
}

impl ThreadTrial {
    pub fn new() -> Self {
        let (phase, used) = (TrialPhase::TrySeveral, EVENTS_USED[0]);
        Self { phase, several: 0.0, events: 0, took: Duration::ZERO, used }
    }

    /// Whether several threads shall run the next window.
    pub fn uses_several(&self) -> bool {
        matches!(self.phase, TrialPhase::TrySeveral | TrialPhase::Use { several: true })
    }

    /// Runs a window, which returns how many events it had.
    #[expect(clippy::disallowed_methods, reason = "how fast threads are is a matter of real time")]
    pub fn time(&mut self, window: impl FnOnce() -> u64) {
        let begun = std::time::Instant::now();
        self.events += window();
        self.took += begun.elapsed();
        let each = self.took.as_secs_f64() * 1e9 / self.events.max(1) as f64;
        let next = match self.phase {
            TrialPhase::TrySeveral if self.events >= EVENTS_TRIED => {
                self.several = each;
                TrialPhase::TryOne
            }
            TrialPhase::TryOne if self.events >= EVENTS_TRIED => {
                let several = self.several < each;
                let longer = (self.used * 2).min(EVENTS_USED[1]);
                self.used = if several { longer } else { EVENTS_USED[0] };
                TrialPhase::Use { several }
            }
            TrialPhase::Use { .. } if self.events >= self.used => TrialPhase::TrySeveral,
            _ => return,
        };
        (self.phase, self.events, self.took) = (next, 0, Duration::ZERO);
    }
}

/// A process that is to be run.
struct Turn {
    process: Box<LogicalProcess>,
    world: Arc<World>,
    until: Instant,
}

/// One thread.
#[derive(Debug)]
pub(super) struct Worker {
    turns: Option<SyncSender<Turn>>,
    done: Receiver<Box<LogicalProcess>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// A thread that waits for its first turn.
    ///
    /// # Errors
    /// The system allows no more threads.
    pub fn new() -> io::Result<Self> {
        let (turns, of_worker) = sync_channel::<Turn>(1);
        let (to_caller, done) = sync_channel(1);
        let thread = Builder::new().name("simulation".to_owned()).spawn(move || {
            while let Ok(Turn { mut process, world, until }) = receive(&of_worker) {
                process.run_until(&world, until, u64::MAX, false);
                drop(world);
                if to_caller.send(process).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { turns: Some(turns), done, thread: Some(thread) })
    }

    /// Begins to run a process up to a moment.
    pub fn start(&self, process: Box<LogicalProcess>, world: &Arc<World>, until: Instant) {
        let turn = Turn { process, world: Arc::clone(world), until };
        if let Some(turns) = &self.turns {
            // A thread that has panicked takes nothing, which `wait` finds.
            turns.send(turn).ok();
        }
    }

    /// The process, once it has been run. Panics as the thread did.
    pub fn wait(&mut self) -> Box<LogicalProcess> {
        receive(&self.done).unwrap_or_else(|RecvError| {
            let thread = self.thread.take().expect("a thread that has not been waited for");
            match thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => unreachable!("it ends when it is told to"),
            }
        })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.turns = None;
        if let Some(thread) = self.thread.take() {
            // If it panicked, that has been said.
            thread.join().ok();
        }
    }
}

fn receive<T>(from: &Receiver<T>) -> Result<T, RecvError> {
    for poll in 1..=POLLS_MAX {
        match from.try_recv() {
            Ok(value) => return Ok(value),
            // The other may wait for this CPU.
            Err(TryRecvError::Empty) if poll % 64 == 0 => yield_now(),
            Err(TryRecvError::Empty) => spin_loop(),
            Err(TryRecvError::Disconnected) => return Err(RecvError),
        }
    }
    from.recv()
}

/// What the ends of a connection cost, in hops of a packet.
const SENDER_WORK: u64 = 5;
const RECEIVER_WORK: u64 = 4;

/// How a network is divided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Partition {
    /// The part of each node.
    pub part_of: Vec<u32>,
    pub parts: u32,
    /// Of one part: without end.
    pub lookahead: Span,
}

impl Partition {
    /// A network in one part.
    fn whole(nodes: usize) -> Self {
        Self { part_of: vec![0; nodes], parts: 1, lookahead: Span::from_ps(u64::MAX) }
    }

    /// At most `most` parts, of which each has about as much to do.
    pub fn of(scenario: &Scenario, routes: &RouteTable, most: u32) -> Self {
        let whole = Self::whole(scenario.network.nodes.len());
        if most < 2 || !can_be_divided(scenario) {
            return whole;
        }
        let degrees = scenario.network.degrees();
        let lookahead_of = |edge: &NetworkEdge| {
            let joins_routers = edge.ends.iter().all(|end| degrees[*end as usize] > 1);
            lookahead_of(edge).filter(|_| joins_routers)
        };
        let edges: Vec<_> =
            scenario.network.edges.iter().map(|edge| (edge.ends, lookahead_of(edge))).collect();
        let work = work_of_nodes(scenario, routes);
        let mut lookaheads: Vec<Span> =
            edges.iter().filter_map(|(_, lookahead)| *lookahead).collect();
        lookaheads.sort_unstable_by(|a, b| b.cmp(a));
        // Those that are not much shorter are not worth trying.
        lookaheads.dedup_by(|next, kept| *next * 4 > *kept * 3);
        // Of as many parts as possible, the longest lookahead with which none has a third more to do than its share.
        let total: u64 = work.iter().sum();
        let choices = (2..=most)
            .rev()
            .flat_map(|parts| lookaheads.iter().map(move |lookahead| (parts, *lookahead)));
        let mut divided = choices.map(|(parts, lookahead)| {
            let clusters = clusters(&edges, work.len(), lookahead);
            let (part_of, most_work) = pack(&clusters, &work, parts);
            (most_work, Self { part_of, parts, lookahead })
        });
        let is_balanced =
            |(most_work, one): &(u64, Self)| most_work * 3 * u64::from(one.parts) <= total * 4;
        divided.find(is_balanced).map_or(whole, |(_, found)| found)
    }
}

/// Whether parts of it can be simulated beside each other: connections that have all their bytes at once. As long as one of them has no end,
/// the end of another, of which a part knows nothing, does not end the simulation.
fn can_be_divided(scenario: &Scenario) -> bool {
    let mut flows = scenario.groups.iter().flat_map(|group| &group.flows);
    scenario.sources.is_empty()
        && !ends_early(scenario)
        && flows.all(|flow| flow.writes.is_none() && flow.relays.is_none())
        && scenario.network.edges.iter().all(takes_time)
}

/// Whether the simulation ends with its last connection.
pub(super) fn ends_early(scenario: &Scenario) -> bool {
    let mut flows = scenario.groups.iter().flat_map(|group| &group.flows);
    let has_end = |flow: &FlowSpec| flow.bytes.is_some() || flow.stop.is_some();
    scenario.sources.is_empty() && scenario.flow_count() > 0 && flows.all(has_end)
}

/// Whether no packet comes out at the moment at which it enters: of several at one moment, which comes first would depend on parts.
fn takes_time(edge: &NetworkEdge) -> bool {
    let directions = [&edge.spec.up, &edge.spec.down];
    directions.into_iter().all(|spec| matches!(spec.rate, RateSpec::Constant(_)))
}

/// The lookahead between parts that a link separates; `None` where it cannot separate any.
fn lookahead_of(edge: &NetworkEdge) -> Option<Span> {
    let up = OneWayLink::foreseeable_delay(&edge.spec.up)?;
    let down = OneWayLink::foreseeable_delay(&edge.spec.down)?;
    Some(up.min(down)).filter(|delay| *delay > Span::ZERO)
}

/// What each node has to do, if every connection sends as much.
fn work_of_nodes(scenario: &Scenario, routes: &RouteTable) -> Vec<u64> {
    let mut work = vec![0; scenario.network.nodes.len()];
    for flow in scenario.groups.iter().flat_map(|group| &group.flows) {
        work[flow.from as usize] += SENDER_WORK;
        work[flow.to as usize] += RECEIVER_WORK;
        for link in routes.path(flow.from, flow.to).unwrap_or_default() {
            work[routes.end(link) as usize] += 1;
            work[routes.end(link ^ 1) as usize] += 1;
        }
    }
    work
}

/// The cluster of each node: nodes are together where a link between them allows no lookahead, or a shorter one.
fn clusters(edges: &[([u32; 2], Option<Span>)], nodes: usize, lookahead: Span) -> Vec<usize> {
    let mut cluster: Vec<usize> = (0..nodes).collect();
    for (ends, own) in edges {
        if own.is_none_or(|own| own < lookahead) {
            let [a, b] = ends.map(|end| root(&mut cluster, end as usize));
            cluster[a.max(b)] = a.min(b);
        }
    }
    (0..nodes).map(|node| root(&mut cluster, node)).collect()
}

/// The node that a cluster is named after.
fn root(cluster: &mut [usize], mut node: usize) -> usize {
    while cluster[node] != node {
        cluster[node] = cluster[cluster[node]];
        node = cluster[node];
    }
    node
}

/// The part of each node, and what the part with most work has: the cluster with most goes to the part with least (Graham 1969).
fn pack(clusters: &[usize], work: &[u64], parts: u32) -> (Vec<u32>, u64) {
    let mut work_of = vec![0; clusters.len()];
    for (cluster, work) in clusters.iter().zip(work) {
        work_of[*cluster] += work;
    }
    let mut order: Vec<usize> =
        (0..clusters.len()).filter(|node| clusters[*node] == *node).collect();
    order.sort_by_key(|cluster| std::cmp::Reverse(work_of[*cluster]));
    let mut loads = vec![0_u64; parts as usize];
    let mut part_of = vec![0; clusters.len()];
    for cluster in order {
        let least = (0..loads.len()).min_by_key(|part| loads[*part]).expect("there are parts");
        loads[least] += work_of[cluster];
        part_of[cluster] = narrow(least);
    }
    let parts = clusters.iter().map(|cluster| part_of[*cluster]).collect();
    (parts, loads.into_iter().max().unwrap_or(0))
}
