//! What all logical processes share, and none of them changes.

use std::collections::BTreeMap;

use plumb_wire::flow::SipKey;

use crate::directed_link::NodeKind;
use crate::host::FIRST_LOCAL;
use crate::route::RouteTable;
use crate::scenario::Scenario;

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
