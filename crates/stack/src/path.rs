//! Paths: everything that a packet to some address needs, found once and kept while it holds.
//!
//! A direct-mapped cache in front of routes, neighbours and path MTUs (the destination cache of
//! RFC 4861 §5.1): a hit costs one comparison. Its places depend on a secret, and a collision costs a look-up and
//! no more. Left out: the tables behind it.

use std::net::{IpAddr, Ipv4Addr};

use plumb_base::seed::Seed;
use plumb_base::time::Instant;
use plumb_wire::mac::MacAddr;
use plumb_wire::machine::Port;
use plumb_wire::medium::Capabilities;
use rand::Rng;

/// The way to an address, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// The interface that it leaves by.
    pub port: Port,
    /// Our address.
    pub source: IpAddr,
    /// The neighbour that it goes to: the router, or the destination itself.
    pub next_hop: IpAddr,
    /// Largest IP packet, in bytes.
    pub mtu: u32,
    /// Packets must be allowed to be cut on their way.
    pub cut: bool,
    /// What the device does by itself.
    pub capabilities: Capabilities,
    pub(crate) link: Link,
}

/// The link address of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    /// The medium has none.
    Bare,
    /// It is this.
    Known(MacAddr),
    /// The neighbours must be asked.
    Unknown,
}

/// Why there is no way to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathError {
    /// No route.
    #[error("no route to {0}: add a route, or an interface with an address of its network")]
    NoRoute(IpAddr),
    /// The address to send from is not that of the interface that the packet leaves by.
    #[error("{0} is not an address of the interface towards the destination: send from another")]
    NotOurs(IpAddr),
    /// An address of the host itself.
    #[error("{0} is an address of this host, which has no loopback: send to another host")]
    Own(IpAddr),
    /// An address to which nothing can be sent.
    #[error("nothing can be sent to {0}: it names no host and no group")]
    Nowhere(IpAddr),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    remote: IpAddr,
    local: IpAddr,
    generation: u64,
    until: Instant,
    path: Path,
}

/// Places of the cache; a power of two.
const PLACES: usize = 256;

/// The cache.
#[derive(Debug)]
pub(crate) struct Paths {
    key: u64,
    places: Box<[Option<Entry>]>,
}

impl Paths {
    pub(crate) fn new(seed: Seed) -> Self {
        let key = seed.stream("paths").next_u64() | 1;
        Self { key, places: vec![None; PLACES].into_boxed_slice() }
    }

    /// The path from `local` to `remote`, if it was found in this generation and still holds.
    #[inline]
    pub(crate) fn lookup(
        &self,
        now: Instant,
        local: IpAddr,
        remote: IpAddr,
        generation: u64,
    ) -> Option<&Path> {
        let entry = self.places[self.place(remote)].as_ref()?;
        let holds = entry.generation == generation && now < entry.until;
        (holds && same(entry.remote, remote) && same(entry.local, local)).then_some(&entry.path)
    }

    /// Keeps a path until a moment or another generation.
    pub(crate) fn insert(
        &mut self,
        local: IpAddr,
        remote: IpAddr,
        generation: u64,
        until: Instant,
        path: Path,
    ) {
        let place = self.place(remote);
        self.places[place] = Some(Entry { remote, local, generation, until, path });
    }

    /// Completes the path to `remote`, if it is kept, with the link address of its next hop.
    pub(crate) fn resolve(
        &mut self,
        remote: IpAddr,
        mac: MacAddr,
        until: Instant,
        generation: u64,
    ) {
        let place = self.place(remote);
        if let Some(entry) = self.places[place].as_mut().filter(|entry| entry.remote == remote)
            && entry.path.link == Link::Unknown
        {
            entry.path.link = Link::Known(mac);
            entry.until = entry.until.min(until);
            entry.generation = generation;
        }
    }

    /// Whether this host sent to an address lately, as far as it remembers.
    pub(crate) fn knows(&self, remote: IpAddr) -> bool {
        self.places[self.place(remote)].is_some_and(|entry| entry.remote == remote)
    }

    #[inline]
    fn place(&self, remote: IpAddr) -> usize {
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
        usize::try_from(mixed >> (64 - PLACES.trailing_zeros())).expect("eight bits")
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
