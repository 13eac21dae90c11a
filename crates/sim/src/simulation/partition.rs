//! Which thread simulates which part of a network.
//!
//! Parts are separated by links between routers in which it is known of each packet that enters when it comes out. So each part can be
//! simulated by itself for as long as the shortest delay between two of them, the lookahead: nothing that another does meanwhile arrives
//! earlier (Chandy and Misra 1979, Fujimoto 1990).

use plumb_base::time::Span;
use plumb_link::one_way::OneWayLink;
use plumb_link::spec::RateSpec;

use super::narrow;
use crate::network::NetworkEdge;
use crate::route::RouteTable;
use crate::scenario::{FlowSpec, Scenario};

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
