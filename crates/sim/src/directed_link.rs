//! One direction of a link in a network, and when it has to be looked at.

use std::collections::VecDeque;

use plumb_base::time::Instant;
use plumb_link::one_way::OneWayLink;
use plumb_link::spec::QueueLimit;
use plumb_wire::packet::{Packet, Pool};

/// What a node of a network is.
#[derive(Clone, Copy, Debug)]
pub enum NodeKind {
    /// A host, by its number in its logical process.
    Host(u32),
    /// A router, by its number in the network.
    Router(u32),
}

/// One direction of a link, or one end of it where each is simulated by another thread.
#[derive(Debug)]
pub struct DirectedLink {
    /// What happens to packets.
    pub link: OneWayLink,
    /// Whether the host at its beginning has more to send than it has room for, and is to be asked again when a transmission ends.
    pub is_awaited: bool,
    /// What has come out and waits for its turn, all of one moment.
    arrived: Vec<Packet>,
    arrived_at: Instant,
    end: LinkEnd,
    /// Whether both ends are here.
    is_whole: bool,
    /// The host at its beginning, by its number in the same logical process.
    pub from: Option<u32>,
    /// Where it leads.
    pub to: NodeKind,
    /// Its number in the network.
    pub number: u32,
}

/// Which ends of a link are here.
#[derive(Debug)]
enum LinkEnd {
    Both,
    /// Where packets enter; they are counted to the other end, but never come out.
    Beginning,
    /// Where packets come out: those that have entered elsewhere.
    End(ComingPackets),
}

/// Packets that come out, and when each does.
#[derive(Debug, Default)]
struct ComingPackets {
    packets: VecDeque<Packet>,
    times: VecDeque<Instant>,
}

impl DirectedLink {
    /// An empty one of this number, between these nodes.
    pub fn new(link: OneWayLink, number: u32, [from, to]: [NodeKind; 2]) -> Self {
        let from = if let NodeKind::Host(host) = from { Some(host) } else { None };
        let (arrived, arrived_at) = (Vec::new(), Instant::ORIGIN);
        let (end, is_whole) = (LinkEnd::Both, true);
        Self { link, is_awaited: false, arrived, arrived_at, end, is_whole, from, to, number }
    }

    /// The end of it at which packets enter.
    #[must_use]
    pub fn beginning(self) -> Self {
        Self { end: LinkEnd::Beginning, is_whole: false, ..self }
    }

    /// The end of it at which packets come out that are passed to [`DirectedLink::come_in`].
    #[must_use]
    pub fn end(self) -> Self {
        let end = LinkEnd::End(ComingPackets::default());
        Self { end, is_whole: false, from: None, ..self }
    }

    /// When it has to be looked at: one moment a packet, but for one that is awaited.
    #[inline]
    pub fn next(&self) -> Instant {
        if self.is_whole && self.arrived.is_empty() && !self.is_awaited {
            self.link.next_arrival()
        } else {
            self.next_of_others()
        }
    }

    fn next_of_others(&self) -> Instant {
        match &self.end {
            LinkEnd::Both if !self.arrived.is_empty() => self.arrived_at,
            LinkEnd::Beginning if !self.is_awaited => Instant::NEVER,
            LinkEnd::Both | LinkEnd::Beginning => self.link.next_change(),
            LinkEnd::End(coming) => coming.times.front().copied().unwrap_or(Instant::NEVER),
        }
    }

    /// Takes a packet that enters at `now` and counts `extra` bytes more than it has. If it comes out elsewhere: when it does.
    #[inline]
    pub fn send(
        &mut self,
        now: Instant,
        packet: Packet,
        extra: u32,
        pool: &mut Pool,
    ) -> Option<Instant> {
        self.advance(now, pool);
        if self.is_whole {
            self.link.send(now, packet, extra, pool);
            return None;
        }
        let before = self.link.frames_inside();
        self.link.send(now, packet, extra, pool);
        let is_in = self.link.frames_inside() > before;
        self.link.last_in().filter(|_| is_in).map(|(at, _)| at)
    }

    /// The packet that entered last, of those inside.
    pub fn last_in(&self) -> Option<&Packet> {
        self.link.last_in().map(|(_, packet)| packet)
    }

    /// A packet comes out at `at`, not before those that came in before it.
    pub fn come_in(&mut self, at: Instant, packet: Packet) {
        if let LinkEnd::End(coming) = &mut self.end {
            coming.times.push_back(at);
            coming.packets.push_back(packet);
        }
    }

    /// Appends what arrives at `now` to `out`; whether anything arrives, here or at an end elsewhere.
    #[inline]
    pub fn take_arrived(&mut self, now: Instant, out: &mut Vec<Packet>, pool: &mut Pool) -> bool {
        if self.is_whole {
            if !self.arrived.is_empty() {
                out.append(&mut self.arrived);
            }
            if self.link.next_change() <= now {
                self.link.advance(now, out, pool);
            }
            return !out.is_empty();
        }
        match &mut self.end {
            LinkEnd::Both | LinkEnd::Beginning => self.advance(now, pool),
            LinkEnd::End(coming) => {
                while coming.times.pop_front_if(|at| *at <= now).is_some() {
                    out.extend(coming.packets.pop_front());
                }
                true
            }
        }
    }

    /// Everything up to `now` happens; whether packets came out.
    #[inline]
    pub fn advance(&mut self, now: Instant, pool: &mut Pool) -> bool {
        if self.link.next_change() > now {
            return false;
        }
        self.link.advance(now, &mut self.arrived, pool);
        let is_any = !self.arrived.is_empty();
        if self.is_whole {
            self.arrived_at = now;
        } else {
            pool.free_all(&mut self.arrived);
        }
        is_any
    }

    /// The packet that arrives after `index` others, where that is known.
    #[inline]
    pub fn coming(&self, index: usize) -> Option<&Packet> {
        match &self.end {
            LinkEnd::End(coming) => coming.packets.get(index),
            _ => self.link.coming(index),
        }
    }

    /// Packets in memory that are on it.
    pub fn packets_inside(&self) -> u64 {
        let coming = if let LinkEnd::End(coming) = &self.end { coming.packets.len() } else { 0 };
        self.link.frames_inside() + (self.arrived.len() + coming) as u64
    }

    /// Packets of `len` bytes that find room, where at most `ring` wait.
    #[inline]
    pub fn room(&self, ring: u64, len: u64) -> u64 {
        let backlog = self.link.backlog();
        let room = match self.link.limit() {
            QueueLimit::Frames(limit) => limit.saturating_sub(backlog.frames),
            QueueLimit::Bytes(limit) => limit.saturating_sub(backlog.bytes) / len,
        };
        let least = u64::from(backlog.frames == 0);
        room.max(least).min(ring.saturating_sub(backlog.frames))
    }
}
