//! Neighbours: which link address an IP address has, and whether it still answers.
//!
//! One cache for ARP and NDP with the states of RFC 4861 §7.3.2. Entries age when they are looked at,
//! so that a quiet host has no timer armed; only a wait for an answer arms one. Everything is bounded: a
//! flood of addresses evicts what was never confirmed before anything that is in use. Left out:
//! the messages (`arp`, `ndp`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use plumb_base::time::{Instant, Span};
use plumb_wire::mac::MacAddr;
use plumb_wire::machine::Port;
use plumb_wire::packet::{Packet, Pool};

use crate::counters::{Count, Counters};
use crate::host::{Host, Owner};
use crate::timers::{TimerId, Timers};

mod arp;
mod message;
mod ndp;

pub use message::{Advertisement, Outcome};

/// Time between solicitations (RFC 4861 §10, `RETRANS_TIMER`; ARP's too).
pub const RETRANSMIT: Span = Span::from_secs(1);
/// Time that upper layers have to confirm an entry before it is probed (`DELAY_FIRST_PROBE_TIME`).
pub const DELAY: Span = Span::from_secs(5);
/// Solicitations before an address is given up (`MAX_MULTICAST_SOLICIT`, `MAX_UNICAST_SOLICIT`).
pub const SOLICITATIONS: u8 = 3;
/// How long after an answer nobody else can change the entry; Linux's `locktime`.
pub const LOCKED: Span = Span::from_secs(1);

/// Bounds of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries in all.
    pub entries: usize,
    /// Entries whose address is not known yet.
    pub incomplete: usize,
    /// Packets that wait for one entry; the oldest is dropped for the next.
    pub queue: usize,
    /// Packets that wait for all of them.
    pub queued: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 512, incomplete: 64, queue: 64, queued: 256 }
    }
}

/// The number of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NeighbourId(u32);

/// What is known of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Asked for; packets wait.
    Incomplete,
    /// Confirmed; good until then.
    Reachable(Instant),
    /// Known, but not confirmed lately.
    Stale,
    /// Used while stale; will be probed unless something confirms it.
    Delay,
    /// Being probed at its known address.
    Probe,
}

/// What an entry is worth when room is needed: the lesser goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Only heard asking: nothing here needs it.
    Heard,
    /// Being asked for: a packet waits.
    Incomplete,
    Used,
}

#[derive(Debug)]
struct Entry {
    port: Port,
    address: IpAddr,
    mac: MacAddr,
    state: State,
    timer: TimerId,
    asked: u8,
    confirmed: Instant,
    queue: VecDeque<Packet>,
    rank: Rank,
    stamp: u64,
}

/// What the cache works with and does not own.
#[derive(Debug)]
pub struct Means<'a> {
    /// Where its entries' timers are.
    pub(crate) timers: &'a mut Timers<Owner>,
    /// Where it counts.
    pub counters: &'a mut Counters,
    /// Where dropped packets go.
    pub pool: &'a mut Pool,
}

/// What to do with a packet for a neighbour.
#[derive(Debug)]
pub enum Delivery {
    /// Send it there; the address may be used again until then, while [`Neighbours::generation`]
    /// stays the same.
    Ready(Packet, MacAddr, Instant),
    /// It waits, or was dropped; whether a solicitation must be sent now.
    Waiting {
        /// Whether this was the first packet for the neighbour.
        solicit: bool,
    },
}

/// What a timer that went off wants.
#[derive(Debug, PartialEq, Eq)]
pub enum Alarm {
    /// A solicitation: to the known address, or to everybody.
    Solicit {
        /// On which interface.
        port: Port,
        /// For which address.
        address: IpAddr,
        /// To whom.
        mac: Option<MacAddr>,
    },
    /// Nobody answered; packets that waited were dropped.
    Failed {
        /// On which interface.
        port: Port,
        /// Which address.
        address: IpAddr,
    },
}

/// The cache.
#[derive(Debug)]
pub struct Neighbours {
    limits: Limits,
    reachable: Span,
    slots: Vec<Option<Entry>>,
    vacant: Vec<u32>,
    index: BTreeMap<(Port, IpAddr), u32>,
    order: BTreeSet<(Rank, u64, u32)>,
    incomplete: usize,
    queued: usize,
    stamps: u64,
    generation: u64,
}

impl Neighbours {
    /// An empty cache; entries count as reachable for `reachable` after they answered, which a host
    /// draws between 0.5 and 1.5 times 30 s (RFC 4861 §6.3.2).
    pub fn new(limits: Limits, reachable: Span) -> Self {
        Self {
            limits,
            reachable,
            slots: Vec::new(),
            vacant: Vec::new(),
            index: BTreeMap::new(),
            order: BTreeSet::new(),
            incomplete: 0,
            queued: 0,
            stamps: 0,
            generation: 0,
        }
    }

    /// Changes whenever an address that was given out may no longer be right.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Packets that wait for an address.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Entries: all, and those whose address is not known.
    pub fn counts(&self) -> (usize, usize) {
        (self.index.len(), self.incomplete)
    }

    /// What is known of an address, and its link address where there is one.
    pub fn lookup(&self, port: Port, address: IpAddr) -> Option<(State, Option<MacAddr>)> {
        let entry = self.entry(*self.index.get(&(port, address))?);
        Some((entry.state, (entry.state != State::Incomplete).then_some(entry.mac)))
    }

    /// Takes a packet for a neighbour; it comes back at once where the address is known.
    pub fn deliver(
        &mut self,
        now: Instant,
        port: Port,
        address: IpAddr,
        packet: Packet,
        means: &mut Means<'_>,
    ) -> Delivery {
        let (id, solicit) = match self.index.get(&(port, address)) {
            Some(&id) => (id, false),
            None => (self.ask(now, port, address, means), true),
        };
        let entry = self.entry(id);
        if entry.state == State::Incomplete {
            self.wait(id, packet, means);
            return Delivery::Waiting { solicit };
        }
        let until = match entry.state {
            State::Reachable(until) if now < until => until,
            State::Reachable(_) | State::Stale => {
                // RFC 4861 §7.3.3: the first packet sent to a stale neighbour starts the delay.
                let entry = self.entry_mut(id);
                entry.state = State::Delay;
                entry.asked = 0;
                means.timers.arm(entry.timer, now + DELAY);
                Instant::NEVER
            }
            State::Delay | State::Probe | State::Incomplete => Instant::NEVER,
        };
        self.rerank(id, Rank::Used);
        Delivery::Ready(packet, self.entry(id).mac, until)
    }

    /// Does what an entry's timer is for.
    pub fn handle_timer(&mut self, now: Instant, id: NeighbourId, means: &mut Means<'_>) -> Alarm {
        let entry = self.entry_mut(id.0);
        let (port, address) = (entry.port, entry.address);
        if entry.state == State::Delay {
            entry.state = State::Probe;
        }
        if entry.asked == SOLICITATIONS {
            means.counters.add(Count::NeighbourFailed);
            self.remove(id.0, means);
            return Alarm::Failed { port, address };
        }
        entry.asked += 1;
        means.timers.arm(entry.timer, now + RETRANSMIT);
        let mac = (entry.state == State::Probe).then_some(entry.mac);
        Alarm::Solicit { port, address, mac }
    }

    fn entry(&self, id: u32) -> &Entry {
        self.slots[id as usize].as_ref().expect("indexed entries exist")
    }

    fn entry_mut(&mut self, id: u32) -> &mut Entry {
        self.slots[id as usize].as_mut().expect("indexed entries exist")
    }

    /// A new entry whose address is not known; the caller sends the first solicitation.
    fn ask(&mut self, now: Instant, port: Port, address: IpAddr, means: &mut Means<'_>) -> u32 {
        if self.incomplete >= self.limits.incomplete {
            self.evict(Rank::Incomplete, means);
        }
        let id = self.create(port, address, State::Incomplete, means);
        let entry = self.entry_mut(id);
        entry.asked = 1;
        means.timers.arm(entry.timer, now + RETRANSMIT);
        id
    }

    fn create(&mut self, port: Port, address: IpAddr, state: State, means: &mut Means<'_>) -> u32 {
        if self.index.len() >= self.limits.entries {
            self.evict(Rank::Heard, means);
        }
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("entries are bounded")
        });
        let rank = if state == State::Incomplete { Rank::Incomplete } else { Rank::Heard };
        self.incomplete += usize::from(state == State::Incomplete);
        self.stamps += 1;
        self.slots[id as usize] = Some(Entry {
            port,
            address,
            mac: MacAddr::UNSPECIFIED,
            state,
            timer: means.timers.create(Owner::Neighbour(NeighbourId(id))),
            asked: 0,
            confirmed: Instant::ORIGIN,
            queue: VecDeque::new(),
            rank,
            stamp: self.stamps,
        });
        self.index.insert((port, address), id);
        self.order.insert((rank, self.stamps, id));
        id
    }

    /// Forgets the entry of least worth, but none below `rank`: of one rank the oldest.
    fn evict(&mut self, rank: Rank, means: &mut Means<'_>) {
        if let Some(&(_, _, id)) = self.order.range((rank, 0, 0)..).next() {
            means.counters.add(Count::NeighbourEvicted);
            self.remove(id, means);
        }
    }

    fn remove(&mut self, id: u32, means: &mut Means<'_>) {
        let entry = self.slots[id as usize].take().expect("entries are removed once");
        self.index.remove(&(entry.port, entry.address));
        self.order.remove(&(entry.rank, entry.stamp, id));
        self.vacant.push(id);
        means.timers.remove(entry.timer);
        self.queued -= entry.queue.len();
        means.counters.add_many(Count::TxNeighbourUnreachable, entry.queue.len());
        for packet in entry.queue {
            means.pool.free(packet);
        }
        if entry.state == State::Incomplete {
            self.incomplete -= 1;
        } else if entry.rank == Rank::Used {
            self.generation += 1;
        }
    }

    /// Lets a packet wait for an entry; the entry's oldest makes room, and then other entries do.
    fn wait(&mut self, id: u32, packet: Packet, means: &mut Means<'_>) {
        let limits = self.limits;
        let full = self.entry(id).queue.len() >= limits.queue;
        if full || (self.queued >= limits.queued && !self.entry(id).queue.is_empty()) {
            let oldest = self.entry_mut(id).queue.pop_front().expect("a queue that is not empty");
            means.counters.add(Count::TxNeighbourQueueFull);
            means.pool.free(oldest);
            self.queued -= 1;
        }
        while self.queued >= limits.queued {
            // Some other entry holds what waits: the one that has waited longest makes room.
            let other = self
                .order
                .range((Rank::Incomplete, 0, 0)..)
                .map(|&(_, _, other)| other)
                .find(|&other| other != id && !self.entry(other).queue.is_empty());
            let Some(other) = other else { break };
            means.counters.add(Count::NeighbourEvicted);
            self.remove(other, means);
        }
        let entry = self.entry_mut(id);
        debug_assert!(means.timers.armed(entry.timer).is_some(), "what waits has a timer");
        entry.queue.push_back(packet);
        self.queued += 1;
    }

    fn rerank(&mut self, id: u32, rank: Rank) {
        self.stamps += 1;
        let stamp = self.stamps;
        let entry = self.entry_mut(id);
        let old = (entry.rank, entry.stamp, id);
        entry.rank = rank;
        entry.stamp = stamp;
        self.order.remove(&old);
        self.order.insert((rank, stamp, id));
    }
}

impl Host {
    /// Asks for a neighbour's link address: everybody, or the neighbour itself at `mac`; in the name
    /// of `source`, where a packet of that address waits (RFC 4861 §7.2.2).
    pub(crate) fn solicit(
        &mut self,
        port: Port,
        address: IpAddr,
        mac: Option<MacAddr>,
        source: Option<IpAddr>,
        pool: &mut Pool,
    ) {
        match address {
            IpAddr::V4(address) => self.solicit_arp(port, address, mac, source, pool),
            IpAddr::V6(address) => self.solicit_ndp(port, address, mac, source, pool),
        }
    }
}
