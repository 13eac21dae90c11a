//! What messages from neighbours do to the cache: RFC 4861 §7.2.3 and §7.2.5, and for ARP the same.
//!
//! Left out: the formats, and the checks that do not need the cache.

use plumb_base::time::Instant;
use plumb_wire::mac::MacAddr;
use plumb_wire::machine::Port;
use plumb_wire::packet::Packet;

use super::{IpAddr, LOCKED, Means, Neighbours, Rank, State};

/// What a neighbour says of itself in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Advertisement {
    /// Its link address, where it says it.
    pub mac: Option<MacAddr>,
    /// It claims that it was asked.
    pub solicited: bool,
    /// It wants to replace what is known.
    pub overrides: bool,
}

/// What a message did to the cache.
#[derive(Debug)]
pub enum Outcome {
    /// Nothing is known of the neighbour, nor shall be.
    Unknown,
    /// It would have changed an entry that it has no right to.
    Ignored,
    /// It was acted upon; these packets waited for the address.
    Accepted(Vec<Packet>, MacAddr),
}

impl Neighbours {
    /// A neighbour answered, or advertised itself unasked (RFC 4861 §7.2.5).
    ///
    /// An answer counts as one only while one is waited for; otherwise it is an advertisement that
    /// nobody asked for, whatever it says.
    pub fn on_advertised(
        &mut self,
        now: Instant,
        port: Port,
        address: IpAddr,
        said: Advertisement,
        means: &mut Means<'_>,
    ) -> Outcome {
        let Some(&id) = self.index.get(&(port, address)) else { return Outcome::Unknown };
        let reachable = State::Reachable(now + self.reachable);
        let entry = self.entry_mut(id);
        let state = entry.state;
        let waiting = matches!(state, State::Incomplete | State::Delay | State::Probe);
        let solicited = said.solicited && waiting;
        if state == State::Incomplete {
            let Some(mac) = said.mac else { return Outcome::Ignored };
            let state = if solicited { reachable } else { State::Stale };
            return self.complete(now, id, mac, state, means);
        }
        let mac = said.mac.unwrap_or(entry.mac);
        let differs = mac != entry.mac;
        if differs && !said.overrides {
            // I. of §7.2.5: not believed, but no longer trusted either.
            if matches!(state, State::Reachable(_)) {
                entry.state = State::Stale;
                self.generation += 1;
            }
            return Outcome::Ignored;
        }
        if differs && !solicited && entry.is_locked(now) {
            return Outcome::Ignored;
        }
        if solicited {
            // Whoever counts on a path of which no more is known than "being probed" must look again.
            let reprieved = matches!(state, State::Delay | State::Probe);
            entry.state = reachable;
            entry.confirmed = now;
            means.timers.cancel(entry.timer);
            self.generation += u64::from(reprieved);
        } else if differs {
            entry.state = State::Stale;
            means.timers.cancel(entry.timer);
        }
        if differs {
            self.entry_mut(id).mac = mac;
            self.generation += 1;
        }
        Outcome::Accepted(Vec::new(), mac)
    }

    /// A neighbour was heard asking, and said its own addresses (RFC 4861 §7.2.3; RFC 826's merge).
    ///
    /// Nothing is created unless `create`: only who talks to this host becomes known by itself.
    pub fn on_heard(
        &mut self,
        now: Instant,
        port: Port,
        address: IpAddr,
        mac: MacAddr,
        create: bool,
        means: &mut Means<'_>,
    ) -> Outcome {
        let Some(&id) = self.index.get(&(port, address)) else {
            // Who was only heard never takes the place of somebody that this host talks to, or wants to.
            let full = self.index.len() >= self.limits.entries;
            let all_wanted = self.order.first().is_none_or(|&(rank, _, _)| rank != Rank::Heard);
            if !create || (full && all_wanted) {
                return Outcome::Unknown;
            }
            let id = self.create(port, address, State::Stale, means);
            self.entry_mut(id).mac = mac;
            return Outcome::Accepted(Vec::new(), mac);
        };
        let entry = self.entry_mut(id);
        if entry.state == State::Incomplete {
            return self.complete(now, id, mac, State::Stale, means);
        }
        if entry.mac != mac {
            if entry.is_locked(now) {
                return Outcome::Ignored;
            }
            entry.mac = mac;
            entry.state = State::Stale;
            means.timers.cancel(entry.timer);
            self.generation += 1;
        }
        Outcome::Accepted(Vec::new(), mac)
    }

    fn complete(
        &mut self,
        now: Instant,
        id: u32,
        mac: MacAddr,
        state: State,
        means: &mut Means<'_>,
    ) -> Outcome {
        self.incomplete -= 1;
        let entry = self.entry_mut(id);
        entry.mac = mac;
        entry.state = state;
        if state != State::Stale {
            entry.confirmed = now;
        }
        means.timers.cancel(entry.timer);
        let mut packets: Vec<Packet> = entry.queue.drain(..).collect();
        self.queued -= packets.len();
        packets.shrink_to_fit();
        self.rerank(id, Rank::Used);
        Outcome::Accepted(packets, mac)
    }
}

impl super::Entry {
    fn is_locked(&self, now: Instant) -> bool {
        self.confirmed > Instant::ORIGIN && now.saturating_since(self.confirmed) < LOCKED
    }
}
