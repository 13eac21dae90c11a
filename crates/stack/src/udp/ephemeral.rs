//! Which port a socket gets that did not ask for one: hard to guess, seldom used twice.
//!
//! The double-hash algorithm of RFC 6056 §3.3.4 over the dynamic ports of RFC 6335 §6.
//! Left out: whether a port is free, which the caller knows.

use std::net::{IpAddr, SocketAddr};

use plumb_base::seed::Seed;
use rand::Rng;

use plumb_wire::siphash::{SipKey, address_words};

/// First dynamic port (RFC 6335 §6); the last is 65,535.
const FIRST: u16 = 49_152;

/// How many there are.
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
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    use super::*;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn every_dynamic_port_is_given_once_before_any_is_refused() {
        let mut ports = EphemeralPorts::new(Seed(1));
        let mut used = BTreeSet::new();
        while let Some(port) = ports.choose(LOCAL, None, |port| !used.contains(&port)) {
            assert!(port >= FIRST);
            assert!(used.insert(port));
        }
        assert_eq!(used.len(), usize::from(COUNT));
    }

    #[test]
    fn ports_to_different_peers_tell_nothing_of_each_other() {
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
    fn a_port_is_not_given_again_at_once() {
        let mut ports = EphemeralPorts::new(Seed(1));
        let given: BTreeSet<_> =
            (0..1_000).map(|_| ports.choose(LOCAL, None, |_| true).unwrap()).collect();
        assert_eq!(given.len(), 1_000);
    }
}
