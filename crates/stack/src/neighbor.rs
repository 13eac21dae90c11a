//! The neighbor cache: which link address an IP address has, and whether it is still reachable.
//!
//! One cache for ARP and NDP, with the states of RFC 4861 §7.3.2. Entries age when they are looked at, so
//! that an idle host has no timer armed. Everything is bounded: a flood of addresses evicts what was
//! never used before anything that is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use plumb_base::time::{Instant, Span};
use plumb_wire::ethernet::{self, MacAddr};
use plumb_wire::ipv6;
use plumb_wire::machine::PortId;
use plumb_wire::packet::Packet;

use crate::context::{HostContext, HostCore, HostEvent, TimerOwner};
use crate::counters::CounterId;
use crate::interface::{HostInterface, Interfaces};
use crate::timers::TimerId;

mod arp;
mod ndp;

pub(crate) use ndp::read_message;

/// Time between solicitations (RFC 4861 §10, `RETRANS_TIMER`; ARP's too).
const RETRANSMIT: Span = Span::from_secs(1);
/// Time that upper layers have to confirm an entry before it is probed (`DELAY_FIRST_PROBE_TIME`).
pub(crate) const DELAY: Span = Span::from_secs(5);
/// How often they are asked meanwhile.
const CONFIRM_EVERY: Span = Span::from_secs(1);
/// Solicitations before an address is given up (`MAX_MULTICAST_SOLICIT`, `MAX_UNICAST_SOLICIT`).
const SOLICITATIONS: u8 = 3;
/// How long after an answer nobody else can change the entry; Linux's `locktime`.
const LOCKED: Span = Span::from_secs(1);

/// Bounds of the neighbor cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighborLimits {
    /// Entries in all.
    pub entries: usize,
    /// Entries whose address is not known yet.
    pub incomplete: usize,
    /// Packets queued for one entry; the oldest is dropped for the next.
    pub queue: usize,
    /// Packets queued for all of them.
    pub queued: usize,
}

impl Default for NeighborLimits {
    fn default() -> Self {
        Self { entries: 512, incomplete: 64, queue: 64, queued: 256 }
    }
}

/// The state of an entry (RFC 4861 §7.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NeighborState {
    /// Solicited; packets are queued.
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

/// Order of eviction: the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionRank {
    /// Learned from an incoming request; not used for sending.
    Unused,
    /// Solicited: a packet is queued.
    Incomplete,
    Used,
}

#[derive(Debug)]
struct NeighborEntry {
    port: PortId,
    address: IpAddr,
    mac: MacAddr,
    state: NeighborState,
    timer: TimerId,
    solicitations_sent: u8,
    confirmed: Instant,
    queue: VecDeque<Packet>,
    rank: EvictionRank,
    stamp: u64,
}

/// What to do with a packet for a neighbor.
#[derive(Debug)]
pub(crate) enum Resolution {
    /// Send it there. The address may be used again until then, while [`NeighborCache::generation`] stays
    /// the same.
    Send(Packet, MacAddr, Instant),
    /// It is queued, or was dropped; the solicitation to send, for the first packet.
    Queued(Option<ControlFrame>),
}

/// A frame of ARP or neighbor discovery, with its link header.
#[derive(Clone, Debug)]
pub(crate) struct ControlFrame {
    bytes: [u8; Self::LEN_MAX],
    len: usize,
}

impl ControlFrame {
    /// A neighbor advertisement with one option.
    const LEN_MAX: usize = ethernet::HEADER_LEN + ipv6::HEADER_LEN + 24 + ndp::OPTION_LEN;

    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// What the host has to do after a message of a neighbor.
#[derive(Debug)]
pub(crate) struct Reaction {
    /// What to count the message as.
    pub(crate) fate: CounterId,
    /// A reply to send.
    pub(crate) reply: Option<ControlFrame>,
    /// Packets that were queued for the neighbor, to send to `mac`.
    pub(crate) released: Vec<Packet>,
    pub(crate) mac: MacAddr,
}

impl Reaction {
    fn only(fate: CounterId) -> Self {
        Self { fate, reply: None, released: Vec::new(), mac: MacAddr::UNSPECIFIED }
    }
}

/// What a neighbor advertisement, or an ARP reply, says about its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NeighborAdvertisement {
    pub(crate) mac: Option<MacAddr>,
    /// The solicited flag; always set for ARP replies.
    pub(crate) solicited: bool,
    /// The override flag.
    pub(crate) overrides: bool,
}

/// What a message did to the cache.
#[derive(Debug)]
enum NeighborUpdate {
    /// There is no entry, and none was created.
    Unknown,
    /// It may not change the entry.
    Ignored,
    /// It was accepted; these packets were queued for the address.
    Accepted(Vec<Packet>, MacAddr),
}

/// The neighbor cache.
#[derive(Debug)]
pub struct NeighborCache {
    limits: NeighborLimits,
    reachable: Span,
    slots: Vec<Option<NeighborEntry>>,
    vacant: Vec<u32>,
    index: BTreeMap<(PortId, IpAddr), u32>,
    order: BTreeSet<(EvictionRank, u64, u32)>,
    incomplete: usize,
    queued: usize,
    stamps: u64,
    generation: u64,
}

impl NeighborCache {
    /// An empty cache; entries count as reachable for `reachable` after they answered, which a host
    /// draws between 0.5 and 1.5 times 30 s (RFC 4861 §6.3.2).
    pub fn new(limits: NeighborLimits, reachable: Span) -> Self {
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

    /// Changes whenever an address that was returned may no longer be right.
    #[inline]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Packets queued for an address.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// Entries: all, and those whose address is not known.
    pub fn counts(&self) -> (usize, usize) {
        (self.index.len(), self.incomplete)
    }

    /// The state of an entry, and its link address where that is known.
    pub fn lookup(
        &self,
        port: PortId,
        address: IpAddr,
    ) -> Option<(NeighborState, Option<MacAddr>)> {
        let entry = self.entry(*self.index.get(&(port, address))?);
        Some((entry.state, (entry.state != NeighborState::Incomplete).then_some(entry.mac)))
    }

    /// Resolves the link address of a packet's next hop; the packet waits for it where it is not known.
    pub(crate) fn resolve(
        &mut self,
        cx: &mut HostContext<'_>,
        interface: &HostInterface,
        (port, source): (PortId, IpAddr),
        next_hop: IpAddr,
        packet: Packet,
    ) -> Resolution {
        let (id, is_new) = match self.index.get(&(port, next_hop)) {
            Some(&id) => (id, false),
            None => (self.create_incomplete(port, next_hop, cx), true),
        };
        let entry = self.entry(id);
        if entry.state == NeighborState::Incomplete {
            self.enqueue(id, packet, cx);
            let solicit = || solicitation(interface, next_hop, None, Some(source));
            return Resolution::Queued(is_new.then(solicit).flatten());
        }
        let until = match entry.state {
            NeighborState::Reachable(until) if cx.now < until => until,
            NeighborState::Reachable(_) | NeighborState::Stale => {
                // RFC 4861 §7.3.3: the first packet sent to a stale neighbor starts the delay.
                let entry = self.entry_mut(id);
                entry.state = NeighborState::Delay;
                entry.solicitations_sent = 0;
                cx.core.timers.arm(entry.timer, cx.now + DELAY);
                cx.now + CONFIRM_EVERY
            }
            NeighborState::Delay | NeighborState::Probe | NeighborState::Incomplete => {
                cx.now + CONFIRM_EVERY
            }
        };
        self.set_rank(id, EvictionRank::Used);
        Resolution::Send(packet, self.entry(id).mac, until)
    }

    /// A protocol above was answered by way of a neighbor: packets reach it (RFC 4861 §7.3.1).
    pub(crate) fn confirm(&mut self, core: &mut HostCore, port: PortId, address: IpAddr) {
        let Some(&id) = self.index.get(&(port, address)) else { return };
        let reachable = NeighborState::Reachable(core.now + self.reachable);
        let entry = self.entry_mut(id);
        if entry.state != NeighborState::Incomplete {
            entry.state = reachable;
            core.timers.cancel(entry.timer);
        }
    }

    /// A protocol above is not answered by way of a neighbor: it is probed at its known address, from now on (RFC 9293 §3.8.3, R1).
    pub(crate) fn doubt(&mut self, core: &mut HostCore, port: PortId, address: IpAddr) {
        let Some(&id) = self.index.get(&(port, address)) else { return };
        let entry = self.entry_mut(id);
        if matches!(entry.state, NeighborState::Reachable(_) | NeighborState::Stale) {
            entry.state = NeighborState::Delay;
            entry.solicitations_sent = 0;
            core.timers.arm(entry.timer, core.now);
            self.generation += 1;
        }
    }

    /// Handles the timer of an entry; the solicitation to send, if its neighbor is not given up.
    pub(crate) fn handle_timer(
        &mut self,
        cx: &mut HostContext<'_>,
        interfaces: &Interfaces,
        id: u32,
    ) -> Option<(PortId, ControlFrame)> {
        let entry = self.entry_mut(id);
        let (port, address) = (entry.port, entry.address);
        if entry.state == NeighborState::Delay {
            entry.state = NeighborState::Probe;
        }
        if entry.solicitations_sent == SOLICITATIONS {
            cx.count(CounterId::NeighborFailed);
            self.remove(id, cx);
            cx.core.push_event(HostEvent::NeighborFailed { port, address });
            return None;
        }
        entry.solicitations_sent += 1;
        cx.core.timers.arm(entry.timer, cx.now + RETRANSMIT);
        let mac = (entry.state == NeighborState::Probe).then_some(entry.mac);
        Some((port, solicitation(&interfaces[port], address, mac, None)?))
    }

    fn entry(&self, id: u32) -> &NeighborEntry {
        self.slots[id as usize].as_ref().expect("indexed entries exist")
    }

    fn entry_mut(&mut self, id: u32) -> &mut NeighborEntry {
        self.slots[id as usize].as_mut().expect("indexed entries exist")
    }

    /// A new entry whose address is not known; the caller sends the first solicitation.
    fn create_incomplete(
        &mut self,
        port: PortId,
        address: IpAddr,
        cx: &mut HostContext<'_>,
    ) -> u32 {
        if self.incomplete >= self.limits.incomplete {
            self.evict(EvictionRank::Incomplete, cx);
        }
        let id = self.create(port, address, NeighborState::Incomplete, cx);
        let entry = self.entry_mut(id);
        entry.solicitations_sent = 1;
        cx.core.timers.arm(entry.timer, cx.now + RETRANSMIT);
        id
    }

    fn create(
        &mut self,
        port: PortId,
        address: IpAddr,
        state: NeighborState,
        cx: &mut HostContext<'_>,
    ) -> u32 {
        if self.index.len() >= self.limits.entries {
            self.evict(EvictionRank::Unused, cx);
        }
        let id = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("entries are bounded")
        });
        let rank = if state == NeighborState::Incomplete {
            EvictionRank::Incomplete
        } else {
            EvictionRank::Unused
        };
        self.incomplete += usize::from(state == NeighborState::Incomplete);
        self.stamps += 1;
        self.slots[id as usize] = Some(NeighborEntry {
            port,
            address,
            mac: MacAddr::UNSPECIFIED,
            state,
            timer: cx.core.timers.create(TimerOwner::Neighbor(id)),
            solicitations_sent: 0,
            confirmed: Instant::ORIGIN,
            queue: VecDeque::new(),
            rank,
            stamp: self.stamps,
        });
        self.index.insert((port, address), id);
        self.order.insert((rank, self.stamps, id));
        id
    }

    /// Evicts the oldest entry of the lowest rank, but none below `rank`.
    fn evict(&mut self, rank: EvictionRank, cx: &mut HostContext<'_>) {
        if let Some(&(_, _, id)) = self.order.range((rank, 0, 0)..).next() {
            cx.count(CounterId::NeighborEvicted);
            self.remove(id, cx);
        }
    }

    fn remove(&mut self, id: u32, cx: &mut HostContext<'_>) {
        let entry = self.slots[id as usize].take().expect("entries are removed once");
        self.index.remove(&(entry.port, entry.address));
        self.order.remove(&(entry.rank, entry.stamp, id));
        self.vacant.push(id);
        cx.core.timers.remove(entry.timer);
        self.queued -= entry.queue.len();
        cx.core.counters.add_many(CounterId::TxNeighborUnreachable, entry.queue.len());
        for packet in entry.queue {
            cx.pool.free(packet);
        }
        if entry.state == NeighborState::Incomplete {
            self.incomplete -= 1;
        } else if entry.rank == EvictionRank::Used {
            self.generation += 1;
        }
    }

    /// Queues a packet for an entry; beyond the limits its own oldest packet is dropped, or another entry.
    fn enqueue(&mut self, id: u32, packet: Packet, cx: &mut HostContext<'_>) {
        let limits = self.limits;
        let full = self.entry(id).queue.len() >= limits.queue;
        if full || (self.queued >= limits.queued && !self.entry(id).queue.is_empty()) {
            let oldest = self.entry_mut(id).queue.pop_front().expect("a queue that is not empty");
            cx.count(CounterId::TxNeighborQueueFull);
            cx.pool.free(oldest);
            self.queued -= 1;
        }
        while self.queued >= limits.queued {
            // Other entries hold what is queued: evict the oldest.
            let other = self
                .order
                .range((EvictionRank::Incomplete, 0, 0)..)
                .map(|&(_, _, other)| other)
                .find(|&other| other != id && !self.entry(other).queue.is_empty());
            let Some(other) = other else { break };
            cx.count(CounterId::NeighborEvicted);
            self.remove(other, cx);
        }
        let entry = self.entry_mut(id);
        debug_assert!(cx.core.timers.armed(entry.timer).is_some(), "queued packets have a timer");
        entry.queue.push_back(packet);
        self.queued += 1;
    }

    fn set_rank(&mut self, id: u32, rank: EvictionRank) {
        self.stamps += 1;
        let stamp = self.stamps;
        let entry = self.entry_mut(id);
        let old = (entry.rank, entry.stamp, id);
        entry.rank = rank;
        entry.stamp = stamp;
        self.order.remove(&old);
        self.order.insert((rank, stamp, id));
    }

    /// Handles an advertisement (RFC 4861 §7.2.5). It counts as solicited only while a solicitation is
    /// outstanding, whatever its flag says.
    fn on_advertisement(
        &mut self,
        port: PortId,
        address: IpAddr,
        said: NeighborAdvertisement,
        cx: &mut HostContext<'_>,
    ) -> NeighborUpdate {
        let Some(&id) = self.index.get(&(port, address)) else { return NeighborUpdate::Unknown };
        let reachable = NeighborState::Reachable(cx.now + self.reachable);
        let entry = self.entry_mut(id);
        let state = entry.state;
        let waiting = matches!(
            state,
            NeighborState::Incomplete | NeighborState::Delay | NeighborState::Probe
        );
        let solicited = said.solicited && waiting;
        if state == NeighborState::Incomplete {
            let Some(mac) = said.mac else { return NeighborUpdate::Ignored };
            let state = if solicited { reachable } else { NeighborState::Stale };
            return self.complete(id, mac, state, cx);
        }
        let mac = said.mac.unwrap_or(entry.mac);
        let differs = mac != entry.mac;
        if differs && !said.overrides {
            // §7.2.5 I: the entry stays, but is no longer reachable.
            if matches!(state, NeighborState::Reachable(_)) {
                entry.state = NeighborState::Stale;
                self.generation += 1;
            }
            return NeighborUpdate::Ignored;
        }
        if differs && !solicited && entry.is_locked(cx.now) {
            return NeighborUpdate::Ignored;
        }
        if solicited {
            // Paths cached while probing have no expiry: invalidate them.
            let was_probed = matches!(state, NeighborState::Delay | NeighborState::Probe);
            entry.state = reachable;
            entry.confirmed = cx.now;
            cx.core.timers.cancel(entry.timer);
            self.generation += u64::from(was_probed);
        } else if differs {
            entry.state = NeighborState::Stale;
            cx.core.timers.cancel(entry.timer);
        }
        if differs {
            self.entry_mut(id).mac = mac;
            self.generation += 1;
        }
        NeighborUpdate::Accepted(Vec::new(), mac)
    }

    /// Handles the sender's addresses in a request (RFC 4861 §7.2.3; RFC 826's merge); creates an entry only
    /// if `create`.
    fn on_sender_address(
        &mut self,
        port: PortId,
        address: IpAddr,
        mac: MacAddr,
        create: bool,
        cx: &mut HostContext<'_>,
    ) -> NeighborUpdate {
        let Some(&id) = self.index.get(&(port, address)) else {
            // A mere request never evicts an entry that is used or being resolved.
            let full = self.index.len() >= self.limits.entries;
            let all_used =
                self.order.first().is_none_or(|&(rank, _, _)| rank != EvictionRank::Unused);
            if !create || (full && all_used) {
                return NeighborUpdate::Unknown;
            }
            let id = self.create(port, address, NeighborState::Stale, cx);
            self.entry_mut(id).mac = mac;
            return NeighborUpdate::Accepted(Vec::new(), mac);
        };
        let entry = self.entry_mut(id);
        if entry.state == NeighborState::Incomplete {
            return self.complete(id, mac, NeighborState::Stale, cx);
        }
        if entry.mac != mac {
            if entry.is_locked(cx.now) {
                return NeighborUpdate::Ignored;
            }
            entry.mac = mac;
            entry.state = NeighborState::Stale;
            cx.core.timers.cancel(entry.timer);
            self.generation += 1;
        }
        NeighborUpdate::Accepted(Vec::new(), mac)
    }

    fn complete(
        &mut self,
        id: u32,
        mac: MacAddr,
        state: NeighborState,
        cx: &mut HostContext<'_>,
    ) -> NeighborUpdate {
        self.incomplete -= 1;
        let entry = self.entry_mut(id);
        entry.mac = mac;
        entry.state = state;
        if state != NeighborState::Stale {
            entry.confirmed = cx.now;
        }
        cx.core.timers.cancel(entry.timer);
        let mut packets: Vec<Packet> = entry.queue.drain(..).collect();
        self.queued -= packets.len();
        packets.shrink_to_fit();
        self.set_rank(id, EvictionRank::Used);
        NeighborUpdate::Accepted(packets, mac)
    }
}

impl NeighborEntry {
    fn is_locked(&self, now: Instant) -> bool {
        self.confirmed > Instant::ORIGIN && now.saturating_since(self.confirmed) < LOCKED
    }
}

/// Solicits a neighbor's link address: by broadcast or multicast, or from the neighbor itself at `mac`; with
/// `source` as the sender where a packet of that address is queued (RFC 4861 §7.2.2).
fn solicitation(
    interface: &HostInterface,
    target: IpAddr,
    mac: Option<MacAddr>,
    source: Option<IpAddr>,
) -> Option<ControlFrame> {
    match target {
        IpAddr::V4(target) => arp::solicitation(interface, target, mac, source),
        IpAddr::V6(target) => ndp::solicitation(interface, target, mac, source),
    }
}
