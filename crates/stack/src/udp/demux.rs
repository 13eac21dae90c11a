//! Which socket a datagram is for, and which ephemeral port a socket gets.
//!
//! Three hash tables a family, the most specific asked first: each lookup costs one hash and one probe,
//! however many sockets there are; an empty table costs nothing. Ephemeral ports are chosen by the double-hash
//! algorithm of RFC 6056 §3.3.4 from the dynamic ports of RFC 6335 §6.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use hashbrown::HashTable;
use plumb_base::seed::Seed;
use plumb_wire::flow::{SipKey, address_words, halves};
use rand::Rng;

/// An address of either family, as the tables need it.
pub trait DemuxAddress: Copy + Eq + fmt::Debug {
    /// The hash of one end.
    fn hash_one(self, port: u16, key: SipKey) -> u64;
    /// The hash of both ends.
    fn hash_two(self, port: u16, remote: Self, remote_port: u16, key: SipKey) -> u64;
}

impl DemuxAddress for Ipv4Addr {
    #[inline]
    fn hash_one(self, port: u16, key: SipKey) -> u64 {
        key.hash([u64::from(self.to_bits()) << 16 | u64::from(port)])
    }

    #[inline]
    fn hash_two(self, port: u16, remote: Self, remote_port: u16, key: SipKey) -> u64 {
        let addresses = u64::from(self.to_bits()) << 32 | u64::from(remote.to_bits());
        key.hash([addresses, u64::from(port) << 16 | u64::from(remote_port)])
    }
}

impl DemuxAddress for Ipv6Addr {
    #[inline]
    fn hash_one(self, port: u16, key: SipKey) -> u64 {
        let [high, low] = halves(self.octets());
        key.hash([high, low, u64::from(port)])
    }

    #[inline]
    fn hash_two(self, port: u16, remote: Self, remote_port: u16, key: SipKey) -> u64 {
        let ([a, b], [c, d]) = (halves(self.octets()), halves(remote.octets()));
        key.hash([a, b, c, d, u64::from(port) << 16 | u64::from(remote_port)])
    }
}

/// What a socket bindings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketBinding<A> {
    /// Datagrams between these two ends.
    Connected {
        /// Our address.
        local: A,
        /// Our port.
        port: u16,
        /// The peer's address.
        remote: A,
        /// The peer's port.
        remote_port: u16,
    },
    /// Datagrams to this address and port.
    Bound {
        /// Our address.
        local: A,
        /// Our port.
        port: u16,
    },
    /// Datagrams to this port of any of our addresses.
    Wildcard {
        /// Our port.
        port: u16,
    },
}

#[derive(Debug)]
struct DemuxEntry<A> {
    binding: SocketBinding<A>,
    socket: u32,
}

/// Bindings of one family.
#[derive(Debug)]
pub struct SocketDemux<A> {
    key: SipKey,
    connected: HashTable<DemuxEntry<A>>,
    bound: HashTable<DemuxEntry<A>>,
    wildcard: HashTable<DemuxEntry<A>>,
}

impl<A: DemuxAddress> SocketDemux<A> {
    /// No bindings; `key` is what the hashes depend on.
    pub fn new(key: SipKey) -> Self {
        Self {
            key,
            connected: HashTable::new(),
            bound: HashTable::new(),
            wildcard: HashTable::new(),
        }
    }

    /// The socket that a datagram between these ends is for.
    #[inline]
    pub fn lookup(&self, local: A, port: u16, remote: A, remote_port: u16) -> Option<u32> {
        self.find_connected(local, port, remote, remote_port)
            .or_else(|| self.bound_to(SocketBinding::Bound { local, port }))
            .or_else(|| self.bound_to(SocketBinding::Wildcard { port }))
    }

    /// The socket that is connected to the other end, and nobody else.
    #[inline]
    pub fn find_connected(&self, local: A, port: u16, remote: A, remote_port: u16) -> Option<u32> {
        self.bound_to(SocketBinding::Connected { local, port, remote, remote_port })
    }

    /// The socket that makes exactly this binding.
    #[inline]
    pub fn bound_to(&self, binding: SocketBinding<A>) -> Option<u32> {
        let table = match binding {
            SocketBinding::Connected { .. } => &self.connected,
            SocketBinding::Bound { .. } => &self.bound,
            SocketBinding::Wildcard { .. } => &self.wildcard,
        };
        if table.is_empty() {
            return None;
        }
        let hash = hash(binding, self.key);
        table.find(hash, |entry| entry.binding == binding).map(|entry| entry.socket)
    }

    /// Enters a binding; `false`, and nothing changed, when somebody makes it already.
    pub fn insert(&mut self, binding: SocketBinding<A>, socket: u32) -> bool {
        if self.bound_to(binding).is_some() {
            return false;
        }
        let key = self.key;
        self.table(binding).insert_unique(
            hash(binding, key),
            DemuxEntry { binding, socket },
            |entry| hash(entry.binding, key),
        );
        true
    }

    /// Removes a binding.
    pub fn remove(&mut self, binding: SocketBinding<A>) {
        let hash = hash(binding, self.key);
        if let Ok(entry) = self.table(binding).find_entry(hash, |entry| entry.binding == binding) {
            entry.remove();
        }
    }

    fn table(&mut self, binding: SocketBinding<A>) -> &mut HashTable<DemuxEntry<A>> {
        match binding {
            SocketBinding::Connected { .. } => &mut self.connected,
            SocketBinding::Bound { .. } => &mut self.bound,
            SocketBinding::Wildcard { .. } => &mut self.wildcard,
        }
    }
}

#[inline]
fn hash<A: DemuxAddress>(binding: SocketBinding<A>, key: SipKey) -> u64 {
    match binding {
        SocketBinding::Connected { local, port, remote, remote_port } => {
            local.hash_two(port, remote, remote_port, key)
        }
        SocketBinding::Bound { local, port } => local.hash_one(port, key),
        SocketBinding::Wildcard { port } => key.hash([u64::from(port)]),
    }
}

/// The first dynamic port; the last is 65,535.
const FIRST: u16 = 49_152;

/// Dynamic ports.
const COUNT: u16 = u16::MAX - FIRST + 1;

/// Offsets and counters of the algorithm.
#[derive(Debug)]
pub struct EphemeralPorts {
    offset: SipKey,
    index: SipKey,
    /// "table[]": one counter for each value of the second hash.
    counters: [u16; 64],
}

impl EphemeralPorts {
    /// With secrets and starting points from the seed.
    pub fn new(seed: Seed) -> Self {
        let mut stream = seed.stream("ephemeral counters");
        Self {
            offset: SipKey::new(seed, "ephemeral offset"),
            index: SipKey::new(seed, "ephemeral index"),
            counters: std::array::from_fn(|_| {
                u16::try_from(stream.next_u32() % u32::from(COUNT)).expect("below COUNT")
            }),
        }
    }

    /// A port for which `is_free` holds, for a socket at `local` that talks to `remote`.
    ///
    /// `None` when no dynamic port is free. Each port is tried once.
    pub fn choose(
        &mut self,
        local: IpAddr,
        remote: Option<SocketAddr>,
        is_free: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        let words = words(local, remote);
        let offset = self.offset.hash(words) % u64::from(COUNT);
        let index = usize::try_from(self.index.hash(words) % 64).expect("below 64");
        let counter = &mut self.counters[index];
        for _ in 0..COUNT {
            let place = (offset + u64::from(*counter)) % u64::from(COUNT);
            *counter = (*counter + 1) % COUNT;
            let port = FIRST + u16::try_from(place).expect("below COUNT");
            if is_free(port) {
                return Some(port);
            }
        }
        None
    }
}

fn words(local: IpAddr, remote: Option<SocketAddr>) -> [u64; 5] {
    let [a, b] = address_words(local);
    let [c, d] = remote.map_or([0; 2], |remote| address_words(remote.ip()));
    [a, b, c, d, remote.map_or(0, |remote| u64::from(remote.port()))]
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use rand::RngExt;

    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    /// The same, by looking through a list.
    fn slow<A: DemuxAddress>(
        bindings: &[(SocketBinding<A>, u32)],
        (l, p, r, q): (A, u16, A, u16),
    ) -> Option<u32> {
        let wanted = [
            SocketBinding::Connected { local: l, port: p, remote: r, remote_port: q },
            SocketBinding::Bound { local: l, port: p },
            SocketBinding::Wildcard { port: p },
        ];
        wanted.iter().find_map(|w| bindings.iter().find(|(c, _)| c == w).map(|(_, s)| *s))
    }

    fn check<A: DemuxAddress>(seed: u64, address: impl Fn(u8) -> A) {
        println!("seed {seed}");
        let mut stream = Seed(seed).stream("bindings");
        let mut demux = SocketDemux::new(SipKey::new(Seed(seed), "key"));
        let mut bindings: Vec<(SocketBinding<A>, u32)> = Vec::new();
        let mut found = BTreeMap::new();
        for socket in 0..3_000 {
            let mut draw = || -> (A, u16, A, u16) {
                let [a, b, c, d] = stream.next_u32().to_le_bytes();
                (address(a % 4), u16::from(b % 8), address(c % 4), u16::from(d % 4))
            };
            let (local, port, remote, remote_port) = draw();
            let binding = match stream.random_range(0..3) {
                0 => SocketBinding::Connected { local, port, remote, remote_port },
                1 => SocketBinding::Bound { local, port },
                _ => SocketBinding::Wildcard { port },
            };
            if stream.random_bool(0.5) {
                let free = !bindings.iter().any(|(c, _)| *c == binding);
                assert_eq!(demux.insert(binding, socket), free);
                if free {
                    bindings.push((binding, socket));
                }
            } else {
                demux.remove(binding);
                bindings.retain(|(c, _)| *c != binding);
            }
            let probe = (remote, port, local, remote_port);
            let expected = slow(&bindings, probe);
            assert_eq!(demux.lookup(probe.0, probe.1, probe.2, probe.3), expected);
            *found.entry(expected.is_some()).or_insert(0) += 1;
        }
        assert!(found.values().all(|n| *n > 300), "both cases happen: {found:?}");
    }

    #[test]
    fn most_specific_binding_wins() {
        check(1, |n| Ipv4Addr::new(192, 0, 2, n));
        check(2, |n| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n)));
    }

    #[test]
    fn every_dynamic_port_is_chosen_once() {
        let mut ports = EphemeralPorts::new(Seed(1));
        let mut used = BTreeSet::new();
        while let Some(port) = ports.choose(LOCAL, None, |port| !used.contains(&port)) {
            assert!(port >= FIRST);
            assert!(used.insert(port));
        }
        assert_eq!(used.len(), usize::from(COUNT));
    }

    #[test]
    fn ports_to_different_peers_are_unrelated() {
        let mut ports = EphemeralPorts::new(Seed(1));
        let mut distances = BTreeSet::new();
        let mut before = 0;
        for host in 0..=255 {
            let remote = SocketAddr::from(([198, 51, 100, host], 53));
            let port = ports.choose(LOCAL, Some(remote), |_| true).unwrap();
            distances.insert(port.wrapping_sub(before));
            before = port;
        }
        assert!(distances.len() > 250, "{}", distances.len());
    }

    #[test]
    fn ports_are_not_reused_at_once() {
        let mut ports = EphemeralPorts::new(Seed(1));
        let given: BTreeSet<_> =
            (0..1_000).map(|_| ports.choose(LOCAL, None, |_| true).unwrap()).collect();
        assert_eq!(given.len(), 1_000);
    }
}
