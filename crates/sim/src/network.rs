//! A network as a graph: nodes and the links between them, listed or in one of the usual shapes.
//!
//! A node with one link is a host, one with more a router, which passes packets on at once.

use std::collections::BTreeMap;

use plumb_link::spec::HopSpec;

/// Nodes and links.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NetworkPlan {
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// The links.
    pub edges: Vec<NetworkEdge>,
}

/// A link between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkEdge {
    /// Its nodes, by number.
    pub ends: [u32; 2],
    /// "Up" is from the first to the second.
    pub spec: HopSpec,
}

/// The usual shapes. Numbers of hosts and routers in their names count from 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Topology {
    /// `left` and `right` with one link between them.
    Pair {
        /// The link.
        link: HopSpec,
    },
    /// Hosts `left1`, `left2`, … at `router1`, hosts `right1`, … at `router2`, and the bottleneck between the routers.
    Dumbbell {
        /// Hosts on each side.
        pairs: u32,
        /// From a host to its router.
        access: HopSpec,
        /// From `router1` to `router2`.
        bottleneck: HopSpec,
    },
    /// Routers in a row with a bottleneck between each two, and a host at each: `host1` at `router1`.
    ParkingLot {
        /// Bottlenecks.
        hops: u32,
        /// From a host to its router.
        access: HopSpec,
        /// From each router to the next.
        bottleneck: HopSpec,
    },
    /// Hosts around `hub`.
    Star {
        /// How many.
        hosts: u32,
        /// From each to the hub.
        link: HopSpec,
    },
    /// A fat tree of switches with `k` ports (Al-Fares et al. 2008): k³/4 hosts, several paths between most of them.
    FatTree {
        /// Even.
        k: u32,
        /// Every link, up from hosts to the core.
        link: HopSpec,
    },
}

impl NetworkPlan {
    /// The number of a node, which is added if there is none of this name.
    pub fn node(&mut self, name: &str) -> u32 {
        let found = self.nodes.iter().position(|node| node == name);
        let index = found.unwrap_or_else(|| {
            self.nodes.push(name.to_owned());
            self.nodes.len() - 1
        });
        narrow(index)
    }

    /// Adds a link between two nodes.
    pub fn connect(&mut self, ends: [u32; 2], spec: HopSpec) {
        self.edges.push(NetworkEdge { ends, spec });
    }

    /// Links of each node.
    pub fn degrees(&self) -> Vec<u32> {
        let mut degrees = vec![0; self.nodes.len()];
        for end in self.edges.iter().flat_map(|edge| edge.ends) {
            degrees[end as usize] += 1;
        }
        degrees
    }

    /// Numbers of the hosts by their names, in order.
    pub fn hosts(&self) -> BTreeMap<&str, u32> {
        let degrees = self.degrees();
        let hosts = (0..).zip(&self.nodes).filter(|(node, _)| degrees[*node as usize] == 1);
        hosts.map(|(node, name)| (name.as_str(), node)).collect()
    }

    /// The name of one direction of a link: `router1 > router2`.
    pub fn direction_name(&self, edge: usize, is_up: bool) -> String {
        let [a, b] = self.edges[edge].ends.map(|end| &self.nodes[end as usize]);
        if is_up { format!("{a} > {b}") } else { format!("{b} > {a}") }
    }
}

impl Topology {
    /// Its nodes and links.
    pub fn plan(&self) -> NetworkPlan {
        let mut plan = PlanBuilder::default();
        match self {
            Self::Pair { link } => {
                let (left, right) = (plan.add("left".to_owned()), plan.add("right".to_owned()));
                plan.connect(left, right, link);
            }
            Self::Dumbbell { pairs, access, bottleneck } => {
                let routers = [1, 2].map(|number| plan.add(format!("router{number}")));
                for (side, router) in ["left", "right"].into_iter().zip(routers) {
                    for number in 1..=*pairs {
                        plan.attach(format!("{side}{number}"), router, access);
                    }
                }
                plan.connect(routers[0], routers[1], bottleneck);
            }
            Self::ParkingLot { hops, access, bottleneck } => {
                let mut before = None;
                for number in 1..=*hops + 1 {
                    let router = plan.add(format!("router{number}"));
                    plan.attach(format!("host{number}"), router, access);
                    if let Some(before) = before.replace(router) {
                        plan.connect(before, router, bottleneck);
                    }
                }
            }
            Self::Star { hosts, link } => {
                let hub = plan.add("hub".to_owned());
                for number in 1..=*hosts {
                    plan.attach(format!("host{number}"), hub, link);
                }
            }
            Self::FatTree { k, link } => plan.fat_tree(*k, link),
        }
        plan.0
    }
}

/// A plan whose names are known to be new.
#[derive(Default)]
struct PlanBuilder(NetworkPlan);

impl PlanBuilder {
    fn add(&mut self, name: String) -> u32 {
        self.0.nodes.push(name);
        narrow(self.0.nodes.len() - 1)
    }

    fn connect(&mut self, from: u32, to: u32, spec: &HopSpec) {
        self.0.connect([from, to], spec.clone());
    }

    fn attach(&mut self, host: String, router: u32, spec: &HopSpec) {
        let host = self.add(host);
        self.connect(host, router, spec);
    }

    /// Pods of k/2 edge and k/2 aggregation switches, (k/2)² core switches, k/2 hosts at each edge switch.
    fn fat_tree(&mut self, k: u32, link: &HopSpec) {
        let half = k / 2;
        let core: Vec<u32> =
            (1..=half * half).map(|number| self.add(format!("core{number}"))).collect();
        for pod in 0..k {
            let switches = |this: &mut Self, name: &str| -> Vec<u32> {
                (1..=half)
                    .map(|number| this.add(format!("{name}{}", pod * half + number)))
                    .collect()
            };
            let (edges, aggregates) = (switches(self, "edge"), switches(self, "aggregate"));
            for (index, edge) in (0..).zip(&edges) {
                for number in 1..=half {
                    let host = (pod * half + index) * half + number;
                    self.attach(format!("host{host}"), *edge, link);
                }
                for aggregate in &aggregates {
                    self.connect(*edge, *aggregate, link);
                }
            }
            for (aggregate, cores) in aggregates.iter().zip(core.chunks(half.max(1) as usize)) {
                for core in cores {
                    self.connect(*aggregate, *core, link);
                }
            }
        }
    }
}

fn narrow(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 nodes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fat_tree_has_as_many_of_each_as_its_authors_say() {
        for k in [2, 4, 8] {
            let plan = Topology::FatTree { k, link: HopSpec::default() }.plan();
            let hosts = plan.hosts().len();
            assert_eq!(hosts, (k * k * k / 4) as usize);
            assert_eq!(plan.nodes.len() - hosts, (5 * k * k / 4) as usize);
            let is_switch = |degree: &&u32| **degree != 1;
            assert!(plan.degrees().iter().filter(is_switch).all(|degree| *degree == k), "{k}");
        }
    }
}
