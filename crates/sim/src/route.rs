//! Static routes: at each router, the links that are on a shortest path to each other router, of which a flow takes one.
//!
//! Paths are compared by their number of links. Routes go to the router of a host, so that a table is no longer than there are routers.

use std::collections::VecDeque;

use crate::network::NetworkPlan;

/// The index of no router.
const NONE: u32 = u32::MAX;

/// Routes between all nodes. Links are one-way: number `2e` is "up" of edge `e`, `2e + 1` is "down".
#[derive(Clone, Debug)]
pub struct RouteTable {
    /// The one link out of each node that is a host.
    out_of_host: Vec<u32>,
    /// The number among routers of each node; `NONE` of a host.
    router: Vec<u32>,
    /// The router at the other end of a host's link; `NONE` where that is a host.
    gateway: Vec<u32>,
    routers: usize,
    /// By router and gateway: where in `links` the choices are.
    ranges: Vec<(u32, u32)>,
    links: Vec<u32>,
    /// Where each one-way link leads.
    ends: Vec<u32>,
}

impl RouteTable {
    /// The routes of a network.
    pub fn new(plan: &NetworkPlan) -> Self {
        let degrees = plan.degrees();
        let count = plan.nodes.len();
        let mut out: Vec<Vec<u32>> = vec![Vec::new(); count];
        let mut ends = Vec::with_capacity(plan.edges.len() * 2);
        for (edge, [a, b]) in (0..).zip(plan.edges.iter().map(|edge| edge.ends)) {
            out[a as usize].push(2 * edge);
            out[b as usize].push(2 * edge + 1);
            ends.extend([b, a]);
        }
        let mut routers = Vec::new();
        let router = (0..count)
            .map(|node| {
                if degrees[node] == 1 {
                    return NONE;
                }
                routers.push(node);
                narrow(routers.len() - 1)
            })
            .collect::<Vec<_>>();
        let single = |node: usize| if degrees[node] == 1 { out[node][0] } else { NONE };
        let out_of_host: Vec<u32> = (0..count).map(single).collect();
        let gateway = out_of_host
            .iter()
            .map(|link| if *link == NONE { NONE } else { router[ends[*link as usize] as usize] })
            .collect();
        let mut table = Self {
            out_of_host,
            router,
            gateway,
            routers: routers.len(),
            ranges: vec![(0, 0); routers.len() * routers.len()],
            links: Vec::new(),
            ends,
        };
        for to in 0..routers.len() {
            table.add_routes_to(to, &routers, &out);
        }
        table
    }

    fn add_routes_to(&mut self, to: usize, routers: &[usize], out: &[Vec<u32>]) {
        let mut distance = vec![u32::MAX; routers.len()];
        distance[to] = 0;
        let mut waiting = VecDeque::from([to]);
        while let Some(at) = waiting.pop_front() {
            for link in &out[routers[at]] {
                let next = self.router[self.ends[*link as usize] as usize];
                if next != NONE && distance[next as usize] == u32::MAX {
                    distance[next as usize] = distance[at] + 1;
                    waiting.push_back(next as usize);
                }
            }
        }
        for (from, node) in routers.iter().enumerate() {
            if distance[from] == u32::MAX || from == to {
                continue;
            }
            let begin = narrow(self.links.len());
            let is_nearer = |link: &&u32| {
                let next = self.router[self.ends[**link as usize] as usize];
                next != NONE && distance[next as usize] + 1 == distance[from]
            };
            let nearer: Vec<u32> = out[*node].iter().filter(is_nearer).copied().collect();
            self.links.extend(nearer);
            self.ranges[from * self.routers + to] = (begin, narrow(self.links.len()));
        }
    }

    /// The one link out of a host.
    pub fn out_of_host(&self, host: u32) -> u32 {
        self.out_of_host[host as usize]
    }

    /// The node that a link leads to.
    #[inline]
    pub fn end(&self, link: u32) -> u32 {
        self.ends[link as usize]
    }

    /// The links that lead a packet at a router on to a host; none where there is no way.
    #[inline]
    pub fn choices(&self, at: u32, host: u32) -> &[u32] {
        let (from, to) = (self.router[at as usize], self.gateway[host as usize]);
        if from == NONE || to == NONE {
            return &[];
        }
        let (begin, end) = self.ranges[from as usize * self.routers + to as usize];
        &self.links[begin as usize..end as usize]
    }

    /// Pairs of links that packets from one host to another may take one after the other.
    pub fn steps(&self, from: u32, to: u32) -> Vec<[u32; 2]> {
        let mut steps = Vec::new();
        let mut links = vec![self.out_of_host(from)];
        let mut seen = 0;
        while let Some(link) = links.get(seen).copied() {
            seen += 1;
            let at = self.end(link);
            let last = [self.out_of_host(to) ^ 1];
            let is_last = self.router[at as usize] == self.gateway[to as usize];
            let choices = if is_last { &last } else { self.choices(at, to) };
            for next in choices.iter().filter(|_| at != to) {
                steps.push([link, *next]);
                if !links.contains(next) {
                    links.push(*next);
                }
            }
        }
        steps
    }

    /// The link that leads a packet of a flow from a router on to a host.
    #[inline]
    pub fn next(&self, at: u32, host: u32, flow: impl FnOnce() -> u64) -> Option<u32> {
        if self.router[at as usize] == *self.gateway.get(host as usize)? {
            return Some(self.out_of_host[host as usize] ^ 1);
        }
        match self.choices(at, host) {
            [] => None,
            [only] => Some(*only),
            several => {
                // Every router spreads flows otherwise, or those that one has put together would stay together.
                let mixed = mix(flow() ^ u64::from(at).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                Some(several[usize::try_from(mixed % several.len() as u64).ok()?])
            }
        }
    }

    /// The links of one path between two hosts; `None` where there is none.
    pub fn path(&self, from: u32, to: u32) -> Option<Vec<u32>> {
        let mut path = vec![self.out_of_host(from)];
        loop {
            let at = self.end(*path.last()?);
            if at == to {
                return Some(path);
            }
            if self.router[at as usize] == NONE {
                return None;
            }
            path.push(self.next(at, to, || 0)?);
        }
    }
}

/// Every bit of the result depends on every bit (SplitMix64: Steele, Lea and Flood 2014).
fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

fn narrow(index: usize) -> u32 {
    u32::try_from(index).expect("fewer than 2^32 links")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::Topology;
    use plumb_link::spec::HopSpec;

    #[test]
    fn hosts_of_a_fat_tree_reach_each_other_by_shortest_paths() {
        let plan = Topology::FatTree { k: 4, link: HopSpec::default() }.plan();
        let routes = RouteTable::new(&plan);
        let hosts = plan.hosts();
        let len = |a: &str, b: &str| routes.path(hosts[a], hosts[b]).expect("a path").len();
        assert_eq!(
            [len("host1", "host2"), len("host1", "host3"), len("host1", "host5")],
            [2, 4, 6]
        );
        let edge = routes.end(routes.out_of_host(hosts["host1"]));
        assert_eq!(routes.choices(edge, hosts["host5"]).len(), 2);
    }

    #[test]
    fn flows_spread_over_all_paths_of_a_fat_tree() {
        let plan = Topology::FatTree { k: 4, link: HopSpec::default() }.plan();
        let routes = RouteTable::new(&plan);
        let hosts = plan.hosts();
        let mut cores = std::collections::BTreeSet::new();
        for flow in 0..64_u64 {
            let mut at = routes.end(routes.out_of_host(hosts["host1"]));
            while at != hosts["host9"] {
                let hash = flow.wrapping_mul(0xd6e8_feb8_6659_fd93);
                at = routes.end(routes.next(at, hosts["host9"], || hash).expect("a way"));
                if plan.nodes[at as usize].starts_with("core") {
                    cores.insert(at);
                }
            }
        }
        assert_eq!(cores.len(), 4);
    }

    #[test]
    fn what_is_not_connected_has_no_path() {
        let mut plan = NetworkPlan::default();
        for (a, b) in [("a", "r"), ("b", "r"), ("c", "s"), ("d", "s")] {
            let ends = [plan.node(a), plan.node(b)];
            plan.connect(ends, HopSpec::default());
        }
        let routes = RouteTable::new(&plan);
        let hosts = plan.hosts();
        assert_eq!(routes.path(hosts["a"], hosts["b"]).map(|path| path.len()), Some(2));
        assert_eq!(routes.path(hosts["a"], hosts["c"]), None);
    }
}
