//! Which socket a datagram is for: three tables by keyed hash, the most specific asked first.
//!
//! One set of tables a family. Each look-up costs one hash and one probe, however many sockets
//! there are; a table that holds nothing costs nothing. Left out: what a socket is, and flows that are
//! known by their headers (`ip::prediction`).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use hashbrown::HashTable;

use plumb_wire::siphash::{SipKey, halves};

/// An address of either family, as the tables need it.
pub trait Address: Copy + Eq + fmt::Debug {
    /// The hash of one end.
    fn hash_one(self, port: u16, key: SipKey) -> u64;
    /// The hash of both ends.
    fn hash_two(self, port: u16, remote: Self, remote_port: u16, key: SipKey) -> u64;
}

impl Address for Ipv4Addr {
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

impl Address for Ipv6Addr {
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

/// What a socket claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim<A> {
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
struct Entry<A> {
    claim: Claim<A>,
    socket: u32,
}

/// Claims of one family.
#[derive(Debug)]
pub struct Demux<A> {
    key: SipKey,
    connected: HashTable<Entry<A>>,
    bound: HashTable<Entry<A>>,
    wildcard: HashTable<Entry<A>>,
}

impl<A: Address> Demux<A> {
    /// No claims; `key` is what the hashes depend on.
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
    pub fn look_up(&self, local: A, port: u16, remote: A, remote_port: u16) -> Option<u32> {
        self.find_connected(local, port, remote, remote_port)
            .or_else(|| self.claimed(Claim::Bound { local, port }))
            .or_else(|| self.claimed(Claim::Wildcard { port }))
    }

    /// The socket that is connected to the other end, and nobody else.
    #[inline]
    pub fn find_connected(&self, local: A, port: u16, remote: A, remote_port: u16) -> Option<u32> {
        self.claimed(Claim::Connected { local, port, remote, remote_port })
    }

    /// The socket that makes exactly this claim.
    #[inline]
    pub fn claimed(&self, claim: Claim<A>) -> Option<u32> {
        let table = match claim {
            Claim::Connected { .. } => &self.connected,
            Claim::Bound { .. } => &self.bound,
            Claim::Wildcard { .. } => &self.wildcard,
        };
        if table.is_empty() {
            return None;
        }
        let hash = hash(claim, self.key);
        table.find(hash, |entry| entry.claim == claim).map(|entry| entry.socket)
    }

    /// Enters a claim; `false`, and nothing changed, when somebody makes it already.
    pub fn insert(&mut self, claim: Claim<A>, socket: u32) -> bool {
        if self.claimed(claim).is_some() {
            return false;
        }
        let key = self.key;
        self.table(claim).insert_unique(hash(claim, key), Entry { claim, socket }, |entry| {
            hash(entry.claim, key)
        });
        true
    }

    /// Removes a claim.
    pub fn remove(&mut self, claim: Claim<A>) {
        let hash = hash(claim, self.key);
        if let Ok(entry) = self.table(claim).find_entry(hash, |entry| entry.claim == claim) {
            entry.remove();
        }
    }

    fn table(&mut self, claim: Claim<A>) -> &mut HashTable<Entry<A>> {
        match claim {
            Claim::Connected { .. } => &mut self.connected,
            Claim::Bound { .. } => &mut self.bound,
            Claim::Wildcard { .. } => &mut self.wildcard,
        }
    }
}

#[inline]
fn hash<A: Address>(claim: Claim<A>, key: SipKey) -> u64 {
    match claim {
        Claim::Connected { local, port, remote, remote_port } => {
            local.hash_two(port, remote, remote_port, key)
        }
        Claim::Bound { local, port } => local.hash_one(port, key),
        Claim::Wildcard { port } => key.hash([u64::from(port)]),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use plumb_base::seed::Seed;
    use rand::{Rng, RngExt};

    use super::*;

    /// The same, by looking through a list.
    fn slow<A: Address>(claims: &[(Claim<A>, u32)], (l, p, r, q): (A, u16, A, u16)) -> Option<u32> {
        let wanted = [
            Claim::Connected { local: l, port: p, remote: r, remote_port: q },
            Claim::Bound { local: l, port: p },
            Claim::Wildcard { port: p },
        ];
        wanted.iter().find_map(|w| claims.iter().find(|(c, _)| c == w).map(|(_, s)| *s))
    }

    fn check<A: Address>(seed: u64, address: impl Fn(u8) -> A) {
        println!("seed {seed}");
        let mut stream = Seed(seed).stream("claims");
        let mut demux = Demux::new(SipKey::new(Seed(seed), "key"));
        let mut claims: Vec<(Claim<A>, u32)> = Vec::new();
        let mut found = BTreeMap::new();
        for socket in 0..3_000 {
            let mut draw = || -> (A, u16, A, u16) {
                let [a, b, c, d] = stream.next_u32().to_le_bytes();
                (address(a % 4), u16::from(b % 8), address(c % 4), u16::from(d % 4))
            };
            let (local, port, remote, remote_port) = draw();
            let claim = match stream.random_range(0..3) {
                0 => Claim::Connected { local, port, remote, remote_port },
                1 => Claim::Bound { local, port },
                _ => Claim::Wildcard { port },
            };
            if stream.random_bool(0.5) {
                let free = !claims.iter().any(|(c, _)| *c == claim);
                assert_eq!(demux.insert(claim, socket), free);
                if free {
                    claims.push((claim, socket));
                }
            } else {
                demux.remove(claim);
                claims.retain(|(c, _)| *c != claim);
            }
            let probe = (remote, port, local, remote_port);
            let expected = slow(&claims, probe);
            assert_eq!(demux.look_up(probe.0, probe.1, probe.2, probe.3), expected);
            *found.entry(expected.is_some()).or_insert(0) += 1;
        }
        assert!(found.values().all(|n| *n > 300), "both cases happen: {found:?}");
    }

    #[test]
    fn the_most_specific_claim_wins_in_both_families() {
        check(1, |n| Ipv4Addr::new(192, 0, 2, n));
        check(2, |n| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(n)));
    }
}
