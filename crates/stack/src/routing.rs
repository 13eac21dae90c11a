//! Routing: the path from an address of this host to another, found once and cached while it holds.
//!
//! A direct-mapped cache (the destination cache of RFC 4861 §5.1) is in front of routes, neighbors and path
//! MTUs: a hit costs one comparison. Path MTUs (RFC 1191, RFC 8201) are learned from validated ICMP
//! errors and expire after ten minutes; probing for them (RFC 8899) is not implemented.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::{DeviceCapabilities, Medium, PortId};
use rand::Rng;

use crate::interface::{HostInterface, Interfaces, MTU_MIN_V6, is_martian_v4, is_martian_v6};
use crate::route::{Route, RouteTable};

/// The path to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputPath {
    /// The interface that it leaves by.
    pub port: PortId,
    /// Our address.
    pub source: IpAddr,
    /// The next hop: the router, or the destination itself.
    pub next_hop: IpAddr,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// DF must be clear: the path MTU is below the floor.
    pub allow_fragmentation: bool,
    /// What the device offloads.
    pub capabilities: DeviceCapabilities,
    pub(crate) link: NextHopLink,
}

/// The link address of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextHopLink {
    /// The medium has none.
    Bare,
    /// It is this.
    Known(MacAddr),
    /// The neighbor cache must be asked.
    Unknown,
}

/// Why there is no path to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// No route to it.
    #[error("no route to {0}: add a route, or an interface with an address of its network")]
    NoRoute(IpAddr),
    /// The source is not an address of the interface that the packet leaves by.
    #[error("{local} is not an address of the interface towards {remote}: send from one that is")]
    NotOwnSource {
        /// The source.
        local: IpAddr,
        /// The destination.
        remote: IpAddr,
    },
    /// An address of the host itself.
    #[error("{0} is an address of this host, which has no loopback: send to another host")]
    OwnAddress(IpAddr),
    /// Neither a host nor a group.
    #[error("{0} is not a valid destination")]
    InvalidDestination(IpAddr),
}

/// Routes, path MTUs, and the cache of paths.
#[derive(Debug)]
pub(crate) struct Routing {
    routes: RouteTable,
    destinations: DestinationCache,
    path_mtus: PathMtuTable,
    changes: u64,
}

impl Routing {
    /// No routes; the slots of the cache depend on the seed.
    pub fn new(path_mtus: usize, seed: Seed) -> Self {
        Self {
            routes: RouteTable::default(),
            destinations: DestinationCache::new(seed),
            path_mtus: PathMtuTable::new(path_mtus),
            changes: 0,
        }
    }

    pub fn routes(&self) -> &RouteTable {
        &self.routes
    }

    /// Adds a route; one for the same prefix is replaced.
    pub fn add_route(&mut self, route: Route) {
        self.routes.insert(route);
        self.changes += 1;
    }

    /// Adds the routes to the networks of an interface, unless there is one already.
    pub fn add_interface(&mut self, port: PortId, interface: &HostInterface) {
        for address in &interface.addresses {
            let prefix = address.prefix;
            if !self.routes.iter().any(|route| route.prefix == prefix) {
                self.routes.insert(Route { prefix, port, gateway: None });
            }
        }
        self.changes += 1;
    }

    /// Changes whenever interfaces or routes do.
    #[inline]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Changes whenever a cached path may be wrong; `neighbors` is the generation of their cache.
    #[inline]
    fn generation(&self, neighbors: u64) -> u64 {
        // Each only grows, so the sum stays the same only when all do.
        self.changes + neighbors + self.path_mtus.generation
    }

    /// The path from `local` to `remote`, if it is cached.
    #[inline]
    pub fn cached(
        &self,
        now: Instant,
        neighbors: u64,
        local: IpAddr,
        remote: IpAddr,
    ) -> Option<&OutputPath> {
        self.destinations.lookup(now, local, remote, self.generation(neighbors))
    }

    /// The path from `local`, an address of this host or unspecified, to `remote`.
    ///
    /// # Errors
    /// [`PathError`].
    #[inline]
    pub fn path(
        &mut self,
        now: Instant,
        interfaces: &Interfaces,
        neighbors: u64,
        local: IpAddr,
        remote: IpAddr,
    ) -> Result<OutputPath, PathError> {
        if let Some(path) = self.cached(now, neighbors, local, remote) {
            return Ok(*path);
        }
        let (mut path, mut until) = (self.find_path(interfaces, local, remote)?, Instant::NEVER);
        if let Some(learned) = self.path_mtus.lookup(now, remote) {
            path.mtu = path.mtu.min(learned.mtu);
            path.allow_fragmentation = learned.allow_fragmentation;
            until = learned.until;
        }
        let generation = self.generation(neighbors);
        self.destinations.insert(local, remote, generation, until, path);
        Ok(path)
    }

    fn find_path(
        &self,
        interfaces: &Interfaces,
        local: IpAddr,
        remote: IpAddr,
    ) -> Result<OutputPath, PathError> {
        if interfaces.owns(remote) {
            return Err(PathError::OwnAddress(remote));
        }
        let (port, gateway) = self.select_route(interfaces, local, remote)?;
        let interface = &interfaces[port];
        let source = if local.is_unspecified() {
            interface.source_for(remote).ok_or(PathError::NoRoute(remote))?
        } else if interface.owns(local) {
            local
        } else {
            return Err(PathError::NotOwnSource { local, remote });
        };
        let link = match (interface.capabilities.medium, remote) {
            (Medium::Ip, _) => NextHopLink::Bare,
            (Medium::Ethernet, IpAddr::V4(ip)) if ip.is_multicast() => {
                NextHopLink::Known(MacAddr::multicast_v4(ip))
            }
            (Medium::Ethernet, IpAddr::V4(ip))
                if ip.is_broadcast() || interface.is_broadcast(ip) =>
            {
                NextHopLink::Known(MacAddr::BROADCAST)
            }
            (Medium::Ethernet, IpAddr::V6(ip)) if ip.is_multicast() => {
                NextHopLink::Known(MacAddr::multicast_v6(ip))
            }
            (Medium::Ethernet, _) => NextHopLink::Unknown,
        };
        Ok(OutputPath {
            port,
            source,
            next_hop: gateway.unwrap_or(remote),
            mtu: interface.capabilities.mtu,
            allow_fragmentation: false,
            capabilities: interface.capabilities,
            link,
        })
    }

    /// The interface and the router towards an address.
    fn select_route(
        &self,
        interfaces: &Interfaces,
        local: IpAddr,
        remote: IpAddr,
    ) -> Result<(PortId, Option<IpAddr>), PathError> {
        let (on_link_only, is_martian) = match remote {
            IpAddr::V4(ip) => {
                (ip.is_multicast() || ip.is_broadcast(), is_martian_v4(ip) && !ip.is_broadcast())
            }
            IpAddr::V6(ip) => (ip.is_multicast() || ip.is_unicast_link_local(), is_martian_v6(ip)),
        };
        if is_martian {
            return Err(PathError::InvalidDestination(remote));
        }
        if let Some(owner) = interfaces.owner_of(local)
            && (on_link_only || interfaces[owner].is_on_link(remote))
        {
            return Ok((owner, None));
        }
        if let Some(route) = self.routes.lookup(remote) {
            // A group or a link-local address is on the link, whatever the route says.
            return Ok((route.port, route.gateway.filter(|_| !on_link_only)));
        }
        let has_family = |interface: &HostInterface| {
            on_link_only
                && interface.addresses.iter().any(|own| own.ip.is_ipv4() == remote.is_ipv4())
        };
        interfaces.find(has_family).map(|port| (port, None)).ok_or(PathError::NoRoute(remote))
    }

    /// The next hop towards `remote` has this link address, until then.
    #[inline]
    pub fn on_resolved(&mut self, neighbors: u64, remote: IpAddr, mac: MacAddr, until: Instant) {
        let generation = self.generation(neighbors);
        self.destinations.resolve(remote, mac, until, generation);
    }

    /// A router reported that packets to `remote` may have at most `mtu` bytes; the path had `current`.
    /// Whether that reduced it.
    pub fn on_too_big(&mut self, now: Instant, remote: IpAddr, mtu: u32, current: u32) -> bool {
        self.path_mtus.on_too_big(now, remote, mtu, current).is_some()
    }

    /// Whether this host sent to an address lately, as far as it remembers.
    pub fn is_destination(&self, remote: IpAddr) -> bool {
        self.destinations.contains(remote)
    }
}

#[derive(Clone, Copy, Debug)]
struct DestinationEntry {
    remote: IpAddr,
    local: IpAddr,
    generation: u64,
    until: Instant,
    path: OutputPath,
}

/// Slots of the cache; a power of two.
const SLOTS: usize = 256;

/// The cache of paths. Its slots depend on a secret; a collision costs a lookup.
#[derive(Debug)]
struct DestinationCache {
    key: u64,
    slots: Box<[Option<DestinationEntry>]>,
}

impl DestinationCache {
    fn new(seed: Seed) -> Self {
        let key = seed.stream("paths").next_u64() | 1;
        Self { key, slots: vec![None; SLOTS].into_boxed_slice() }
    }

    /// The path from `local` to `remote`, if it was found in this generation and has not expired.
    #[inline]
    fn lookup(
        &self,
        now: Instant,
        local: IpAddr,
        remote: IpAddr,
        generation: u64,
    ) -> Option<&OutputPath> {
        let entry = self.slots[self.slot(remote)].as_ref()?;
        let holds = entry.generation == generation && now < entry.until;
        (holds && same(entry.remote, remote) && same(entry.local, local)).then_some(&entry.path)
    }

    /// Keeps a path until a moment or another generation.
    fn insert(
        &mut self,
        local: IpAddr,
        remote: IpAddr,
        generation: u64,
        until: Instant,
        path: OutputPath,
    ) {
        let place = self.slot(remote);
        self.slots[place] = Some(DestinationEntry { remote, local, generation, until, path });
    }

    /// Completes the path to `remote`, if it is kept, with the link address of its next hop.
    fn resolve(&mut self, remote: IpAddr, mac: MacAddr, until: Instant, generation: u64) {
        let place = self.slot(remote);
        if let Some(entry) = self.slots[place].as_mut().filter(|entry| entry.remote == remote)
            && entry.path.link == NextHopLink::Unknown
        {
            entry.path.link = NextHopLink::Known(mac);
            entry.until = entry.until.min(until);
            entry.generation = generation;
        }
    }

    /// Whether this host sent to an address lately, as far as it remembers.
    fn contains(&self, remote: IpAddr) -> bool {
        self.slots[self.slot(remote)].is_some_and(|entry| entry.remote == remote)
    }

    #[inline]
    fn slot(&self, remote: IpAddr) -> usize {
        let bits = match remote {
            IpAddr::V4(remote) => u64::from(remote.to_bits()),
            IpAddr::V6(remote) => {
                let bits = remote.to_bits();
                let (high, low) = (bits >> 64, bits & u128::from(u64::MAX));
                let fold = |half: u128| u64::try_from(half).expect("half of 128 bits");
                fold(high).wrapping_mul(self.key).rotate_left(29) ^ fold(low)
            }
        };
        let mixed = (bits ^ self.key.rotate_left(32)).wrapping_mul(self.key);
        usize::try_from(mixed >> (64 - SLOTS.trailing_zeros())).expect("eight bits")
    }
}

#[inline]
fn same(a: IpAddr, b: IpAddr) -> bool {
    match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => Ipv4Addr::to_bits(a) == Ipv4Addr::to_bits(b),
        (IpAddr::V6(a), IpAddr::V6(b)) => a.to_bits() == b.to_bits(),
        _ => false,
    }
}

/// How long a learned value holds (RFC 1191 §6.3, RFC 8201 §5.3: ten minutes).
const LIFETIME: Span = Span::from_secs(600);
/// Least value believed for IPv4; a smaller one means fragments of this size (Linux's `min_pmtu`).
const FLOOR_V4: u32 = 552;

/// What is known about a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PathMtu {
    /// Largest IP packet, in bytes.
    mtu: u32,
    /// DF must be clear: the path MTU is below the floor.
    allow_fragmentation: bool,
    /// When it expires.
    until: Instant,
}

/// The path MTUs that were learned, at most `limit`: the oldest is evicted.
#[derive(Debug)]
struct PathMtuTable {
    limit: usize,
    paths: BTreeMap<IpAddr, (PathMtu, u64)>,
    order: BTreeMap<u64, IpAddr>,
    /// Changes whenever something was learned.
    generation: u64,
}

impl PathMtuTable {
    fn new(limit: usize) -> Self {
        Self { limit, paths: BTreeMap::new(), order: BTreeMap::new(), generation: 0 }
    }

    /// What is known about the path to an address now.
    fn lookup(&mut self, now: Instant, remote: IpAddr) -> Option<PathMtu> {
        let &(path, stamp) = self.paths.get(&remote)?;
        if now >= path.until {
            self.paths.remove(&remote);
            self.order.remove(&stamp);
            return None;
        }
        Some(path)
    }

    /// Returns what holds now; `None`, and nothing changed, when it would not be a reduction or, for
    /// IPv6, is below the minimum (RFC 8201 §4).
    fn on_too_big(
        &mut self,
        now: Instant,
        remote: IpAddr,
        mtu: u32,
        current: u32,
    ) -> Option<PathMtu> {
        if mtu >= current || (remote.is_ipv6() && mtu < MTU_MIN_V6) {
            return None;
        }
        let floor = if remote.is_ipv4() { FLOOR_V4.min(current) } else { MTU_MIN_V6 };
        let path = PathMtu {
            mtu: mtu.max(floor),
            allow_fragmentation: mtu < floor,
            until: now + LIFETIME,
        };
        self.generation += 1;
        if let Some((_, old)) = self.paths.insert(remote, (path, self.generation)) {
            self.order.remove(&old);
        } else if self.paths.len() > self.limit
            && let Some((_, oldest)) = self.order.pop_first()
        {
            self.paths.remove(&oldest);
        }
        self.order.insert(self.generation, remote);
        Some(path)
    }
}

/// The size to try next where a router did not name one (RFC 1191 §7.1, table of plateaus).
pub(crate) fn plateau_below(len: u32) -> u32 {
    const PLATEAUS: [u32; 9] = [32_000, 17_914, 8_166, 4_352, 2_002, 1_492, 1_006, 508, 296];
    PLATEAUS.into_iter().find(|&plateau| plateau < len).unwrap_or(68)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn path_mtu_table_is_bounded_and_evicts_the_oldest() {
        let mut paths = PathMtuTable::new(4);
        for n in 0..100 {
            paths.on_too_big(Instant::ORIGIN, IpAddr::from([192, 0, 2, n]), 1_000, 1_500);
            assert!(paths.paths.len() <= 4 && paths.order.len() == paths.paths.len());
        }
        assert!(paths.lookup(Instant::ORIGIN, ip("192.0.2.99")).is_some());
        assert!(paths.lookup(Instant::ORIGIN, ip("192.0.2.95")).is_none());
    }

    #[test]
    fn missing_next_hop_mtu_steps_down_the_plateaus() {
        assert_eq!(plateau_below(1_500), 1_492);
        assert_eq!(plateau_below(1_492), 1_006);
        assert_eq!(plateau_below(100), 68);
    }
}
