//! Which socket a datagram or a new connection is for, and which ephemeral port a socket gets.
//!
//! Three hash tables, the most specific asked first: each lookup costs one hash and one probe,
//! however many sockets there are; an empty table costs nothing. Ephemeral ports are chosen by the double-hash
//! algorithm of RFC 6056 §3.3.4 from the dynamic ports of RFC 6335 §6.

use std::net::{IpAddr, SocketAddr};

use hashbrown::HashTable;
use plumb_base::seed::Seed;
use plumb_wire::flow::{SipKey, address_words, halves};
use rand::Rng;

/// Which datagrams a socket gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketBinding {
    /// Those between these two ends: ours, and the peer's.
    Connected(SocketAddr, SocketAddr),
    /// Those to this address and port.
    Bound(SocketAddr),
    /// Those to this port of any of our addresses of a family.
    Wildcard {
        /// Whether the family is IPv6.
        v6: bool,
        /// Our port.
        port: u16,
    },
}

impl SocketBinding {
    /// Of a socket at `local`, an address or all of a family, that may be connected.
    pub fn new(local: SocketAddr, remote: Option<SocketAddr>) -> Self {
        match remote {
            Some(remote) => Self::Connected(local, SocketAddr::new(remote.ip(), remote.port())),
            None if local.ip().is_unspecified() => Self::wildcard(local),
            None => Self::Bound(local),
        }
    }

    fn wildcard(local: SocketAddr) -> Self {
        Self::Wildcard { v6: local.is_ipv6(), port: local.port() }
    }

    /// Its keyed hash.
    #[inline]
    pub fn hash(&self, key: SipKey) -> u64 {
        match *self {
            Self::Connected(SocketAddr::V4(a), SocketAddr::V4(b)) => {
                let addresses = u64::from(a.ip().to_bits()) << 32 | u64::from(b.ip().to_bits());
                key.hash([addresses, u64::from(a.port()) << 16 | u64::from(b.port())])
            }
            Self::Connected(local, remote) => {
                let ([a, b], [c, d]) = (address_words(local.ip()), address_words(remote.ip()));
                key.hash([a, b, c, d, u64::from(local.port()) << 16 | u64::from(remote.port())])
            }
            Self::Bound(SocketAddr::V4(local)) => {
                key.hash([u64::from(local.ip().to_bits()) << 16 | u64::from(local.port())])
            }
            Self::Bound(SocketAddr::V6(local)) => {
                let [high, low] = halves(local.ip().octets());
                key.hash([high, low, u64::from(local.port())])
            }
            Self::Wildcard { v6, port } => key.hash([u64::from(v6) << 16 | u64::from(port)]),
        }
    }
}

#[derive(Debug)]
struct DemuxEntry {
    binding: SocketBinding,
    socket: u32,
}

/// The bindings of all sockets.
#[derive(Debug)]
pub struct SocketDemux {
    key: SipKey,
    connected: HashTable<DemuxEntry>,
    bound: HashTable<DemuxEntry>,
    wildcard: HashTable<DemuxEntry>,
}

impl SocketDemux {
    /// No bindings; `key` is what the hashes depend on.
    pub fn new(key: SipKey) -> Self {
        let (connected, bound, wildcard) = (HashTable::new(), HashTable::new(), HashTable::new());
        Self { key, connected, bound, wildcard }
    }

    /// The socket that a datagram between these ends, of one family, is for.
    #[inline]
    pub fn lookup(&self, local: SocketAddr, remote: SocketAddr) -> Option<u32> {
        self.bound_to(SocketBinding::Connected(local, remote))
            .or_else(|| self.bound_to(SocketBinding::Bound(local)))
            .or_else(|| self.bound_to(SocketBinding::wildcard(local)))
    }

    /// The socket that makes exactly this binding.
    #[inline]
    pub fn bound_to(&self, binding: SocketBinding) -> Option<u32> {
        let table = match binding {
            SocketBinding::Connected(..) => &self.connected,
            SocketBinding::Bound(_) => &self.bound,
            SocketBinding::Wildcard { .. } => &self.wildcard,
        };
        if table.is_empty() {
            return None;
        }
        let hash = binding.hash(self.key);
        table.find(hash, |entry| entry.binding == binding).map(|entry| entry.socket)
    }

    /// Enters a binding; `false`, and nothing changed, when somebody makes it already.
    pub fn insert(&mut self, binding: SocketBinding, socket: u32) -> bool {
        if self.bound_to(binding).is_some() {
            return false;
        }
        let key = self.key;
        let entry = DemuxEntry { binding, socket };
        let rehash = |entry: &DemuxEntry| entry.binding.hash(key);
        self.table(binding).insert_unique(binding.hash(key), entry, rehash);
        true
    }

    /// Removes a binding.
    pub fn remove(&mut self, binding: SocketBinding) {
        let hash = binding.hash(self.key);
        if let Ok(entry) = self.table(binding).find_entry(hash, |entry| entry.binding == binding) {
            entry.remove();
        }
    }

    fn table(&mut self, binding: SocketBinding) -> &mut HashTable<DemuxEntry> {
        match binding {
            SocketBinding::Connected(..) => &mut self.connected,
            SocketBinding::Bound(_) => &mut self.bound,
            SocketBinding::Wildcard { .. } => &mut self.wildcard,
        }
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
    use std::net::{Ipv4Addr, Ipv6Addr};

    use rand::RngExt;

    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn most_specific_binding_wins() {
        println!("seed 1");
        let mut stream = Seed(1).stream("bindings");
        let mut demux = SocketDemux::new(SipKey::new(Seed(1), "key"));
        let mut bindings: Vec<(SocketBinding, u32)> = Vec::new();
        let mut found = BTreeMap::new();
        for socket in 0..6_000 {
            let v6 = stream.random();
            let mut end = |ports: u16| {
                let host = stream.random_range(0..4);
                let ip: IpAddr = if v6 {
                    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host).into()
                } else {
                    Ipv4Addr::from_bits(0xc000_0200 + u32::from(host)).into()
                };
                SocketAddr::new(ip, stream.random_range(0..ports))
            };
            let (local, remote, asked, asker) = (end(8), end(4), end(8), end(4));
            let binding = match stream.random_range(0..3) {
                0 => SocketBinding::Connected(local, remote),
                1 => SocketBinding::Bound(local),
                _ => SocketBinding::wildcard(local),
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
            // The same, by looking through a list.
            let wanted = [
                SocketBinding::Connected(asked, asker),
                SocketBinding::Bound(asked),
                SocketBinding::wildcard(asked),
            ];
            let slow = |w| bindings.iter().find(|(c, _)| c == w).map(|(_, s)| *s);
            let expected = wanted.iter().find_map(slow);
            assert_eq!(demux.lookup(asked, asker), expected);
            *found.entry(expected.is_some()).or_insert(0) += 1;
        }
        assert!(found.values().all(|n| *n > 300), "both cases happen: {found:?}");
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
