//! One direction of a link in a network, and when it has to be looked at.

use plumb_base::time::{Instant, Span};
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

/// One direction of a link, in as few cache lines as hold it.
#[derive(Debug)]
#[repr(align(64))]
pub struct DirectedLink {
    /// What happens to packets.
    pub link: OneWayLink,
    /// Whether the host at its beginning has more to send than it has room for, and is to be asked again when a transmission ends.
    pub is_awaited: bool,
    /// What has come out and waits for its turn, all of one moment.
    arrived: Vec<Packet>,
    arrived_at: Instant,
    /// The host at its beginning.
    pub from: Option<u32>,
    /// Where it leads.
    pub to: NodeKind,
    /// Its number in the network.
    pub number: u32,
    /// How far beforehand it is known what comes out, if nothing else enters the links to which its packets go on.
    pub foresight: Option<Span>,
}

impl DirectedLink {
    /// An empty one of this number, between these nodes.
    pub fn new(link: OneWayLink, number: u32, [from, to]: [NodeKind; 2]) -> Self {
        let from = if let NodeKind::Host(host) = from { Some(host) } else { None };
        let (arrived, arrived_at) = (Vec::new(), Instant::ORIGIN);
        Self { link, is_awaited: false, arrived, arrived_at, from, to, number, foresight: None }
    }

    /// When it has to be looked at: one moment a packet, but for one that is awaited.
    #[inline]
    pub fn next(&self) -> Instant {
        if !self.arrived.is_empty() {
            self.arrived_at
        } else if self.is_awaited {
            self.link.next_change()
        } else {
            self.link.next_arrival()
        }
    }

    /// Takes a packet that enters at `now`, which may be yet to come where arrivals are known, and counts `extra` bytes more than it has.
    #[inline]
    pub fn send(&mut self, now: Instant, packet: Packet, extra: u32, pool: &mut Pool) {
        if !self.link.is_foreseeable() {
            self.advance(now, pool);
        }
        self.link.send(now, packet, extra, pool);
    }

    /// Appends what arrives at `now` to `out`.
    #[inline]
    pub fn take_arrived(&mut self, now: Instant, out: &mut Vec<Packet>, pool: &mut Pool) {
        if !self.arrived.is_empty() {
            out.append(&mut self.arrived);
        }
        if self.link.next_change() <= now {
            self.link.take_arrived(now, out, pool);
        }
    }

    /// Everything up to `now` happens.
    #[inline]
    pub fn advance(&mut self, now: Instant, pool: &mut Pool) {
        if self.link.next_change() <= now {
            debug_assert!(self.link.next_arrival() >= now, "an arrival is an event of its own");
            self.link.advance(now, &mut self.arrived, pool);
            self.arrived_at = now;
        }
    }

    /// Packets that have come out and wait for their turn.
    pub fn arrived(&self) -> &[Packet] {
        &self.arrived
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
