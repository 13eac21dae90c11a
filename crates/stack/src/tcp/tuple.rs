//! Whose a segment is: one table, by a keyed hash of both ends, for everything that has them.

use std::net::{IpAddr, SocketAddr};

use hashbrown::HashTable;
use plumb_wire::flow::{SipKey, address_words};

use super::connection::TcpEnds;
use crate::demux::SocketBinding;

/// Both ends in 38 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedEnds {
    local: IpAddr,
    remote: IpAddr,
    ports: (u16, u16),
}

impl PackedEnds {
    pub fn new(ends: &TcpEnds) -> Self {
        let ports = (ends.local.port(), ends.remote.port());
        Self { local: ends.local.ip(), remote: ends.remote.ip(), ports }
    }

    pub fn ends(&self) -> TcpEnds {
        TcpEnds {
            local: SocketAddr::new(self.local, self.ports.0),
            remote: SocketAddr::new(self.remote, self.ports.1),
        }
    }
}

/// Both ends as what a keyed hash takes.
pub(super) fn words(ends: &TcpEnds) -> [u64; 5] {
    let ([a, b], [c, d]) = (address_words(ends.local.ip()), address_words(ends.remote.ip()));
    [a, b, c, d, u64::from(ends.local.port()) << 16 | u64::from(ends.remote.port())]
}

/// What has these ends: the index of a connection or of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TupleOwner {
    Connection(u32),
    HalfOpen(u32),
    TimeWait(u32),
}

/// The ends themselves are with their owner; half of the hash tells nearly all others apart.
#[derive(Debug)]
struct TupleEntry {
    hash: u32,
    owner: TupleOwner,
}

/// The owners of all pairs of ends.
#[derive(Debug)]
pub(super) struct TupleDemux {
    key: SipKey,
    entries: HashTable<TupleEntry>,
}

impl TupleDemux {
    /// No pairs; `key` is what the hashes depend on.
    pub fn new(key: SipKey) -> Self {
        Self { key, entries: HashTable::new() }
    }

    /// The owner of these ends; `has_ends` tells whether a candidate has them.
    #[inline]
    pub fn find(
        &self,
        ends: &TcpEnds,
        has_ends: impl Fn(TupleOwner) -> bool,
    ) -> Option<TupleOwner> {
        if self.entries.is_empty() {
            return None;
        }
        let hash = self.hash(ends);
        let entry =
            self.entries.find(spread(hash), |entry| entry.hash == hash && has_ends(entry.owner))?;
        Some(entry.owner)
    }

    /// Enters the owner of ends that have none.
    pub fn insert(&mut self, ends: &TcpEnds, owner: TupleOwner) {
        let hash = self.hash(ends);
        let entry = TupleEntry { hash, owner };
        self.entries.insert_unique(spread(hash), entry, |entry| spread(entry.hash));
    }

    /// Removes the owner of these ends.
    pub fn remove(&mut self, ends: &TcpEnds, owner: TupleOwner) {
        let hash = self.hash(ends);
        let found = self.entries.find_entry(spread(hash), |entry| entry.owner == owner);
        debug_assert!(found.is_ok(), "ends are removed once");
        if let Ok(entry) = found {
            entry.remove();
        }
    }

    #[inline]
    fn hash(&self, ends: &TcpEnds) -> u32 {
        let hash = SocketBinding::Connected(ends.local, ends.remote).hash(self.key);
        u32::try_from(hash >> 32).expect("half of a word")
    }
}

/// The place is taken from the low bits and the tag from the high ones.
#[inline]
const fn spread(hash: u32) -> u64 {
    (hash as u64) << 32 | hash as u64
}
