//! Where connections are kept, which of them want to send, and which have something to tell the application.

use std::collections::VecDeque;

use plumb_wire::machine::PortId;

use crate::context::{HostCore, TimerOwner};
use crate::tcp::connection::{Connection, TcpEnds};
use crate::tcp::socket::{TcpEvent, TcpId, TcpState};
use crate::timers::LazyTimer;

/// Bytes that a connection may send before it is another's turn.
pub(crate) const TURN: usize = 65_536;

/// Who holds a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// The application.
    Application,
    /// The accept queue of a listener.
    Listener,
    /// Nobody: it is freed when it ends.
    Nobody,
}

/// A connection, and what a host keeps for it.
#[derive(Debug)]
pub(crate) struct TcpEntry {
    pub(crate) connection: Connection,
    /// `None`: it has ended, and its ends are no longer its own.
    pub(super) timer: Option<LazyTimer>,
    pub(super) holder: Holder,
    /// The application waits for room, or for the connection to open.
    pub(super) wants_room: bool,
    /// The application was told that it ended.
    is_end_told: bool,
    /// By which port it sends.
    pub(crate) port: PortId,
    /// Bytes left of its turn.
    pub(crate) turn: usize,
}

/// The events that the application has not collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PendingEvents(u8);

impl PendingEvents {
    const READABLE: u8 = 1;
    const WRITABLE: u8 = 2;
    const CLOSED: u8 = 4;

    fn take(&mut self, id: TcpId) -> Option<TcpEvent> {
        let lowest = self.0 & self.0.wrapping_neg();
        self.0 ^= lowest;
        match lowest {
            Self::READABLE => Some(TcpEvent::Readable(id)),
            Self::WRITABLE => Some(TcpEvent::Writable(id)),
            Self::CLOSED => Some(TcpEvent::Closed(id)),
            _ => None,
        }
    }
}

/// The marks outlive the connection, so that each slot is in a queue once.
#[derive(Debug, Default)]
struct ConnectionSlot {
    generation: u32,
    entry: Option<Box<TcpEntry>>,
    /// Whether it is in a queue of `ready`.
    is_ready: bool,
    /// Whether it is in `announced`.
    is_announced: bool,
    events: PendingEvents,
}

/// A connection that is sending, out of its slot.
#[derive(Debug)]
pub(crate) struct TcpTurn {
    pub(crate) index: u32,
    pub(crate) entry: Box<TcpEntry>,
}

/// The connections of a host.
#[derive(Debug, Default)]
pub(super) struct ConnectionSlots {
    slots: Vec<ConnectionSlot>,
    vacant: Vec<u32>,
    /// Those that may have something to send, by port.
    ready: Vec<VecDeque<u32>>,
    /// Those with events.
    announced: VecDeque<u32>,
}

impl ConnectionSlots {
    pub fn insert(
        &mut self,
        core: &mut HostCore,
        connection: Connection,
        holder: Holder,
        port: PortId,
    ) -> TcpId {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(ConnectionSlot::default());
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 connections")
        });
        let slot = &mut self.slots[index as usize];
        slot.entry = Some(Box::new(TcpEntry {
            connection,
            timer: Some(LazyTimer::new(&mut core.timers, TimerOwner::Tcp(index))),
            holder,
            wants_room: holder == Holder::Application,
            is_end_told: false,
            port,
            turn: TURN,
        }));
        TcpId { index, generation: slot.generation }
    }

    /// Connections kept.
    pub fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    #[inline]
    pub fn get(&self, id: TcpId) -> Option<&TcpEntry> {
        let slot = self.slots.get(id.index as usize)?;
        slot.entry.as_deref().filter(|_| slot.generation == id.generation)
    }

    #[inline]
    pub fn get_mut(&mut self, id: TcpId) -> Option<&mut TcpEntry> {
        let slot = self.slots.get_mut(id.index as usize)?;
        slot.entry.as_deref_mut().filter(|_| slot.generation == id.generation)
    }

    #[inline]
    pub fn entry(&self, index: u32) -> Option<&TcpEntry> {
        self.slots.get(index as usize)?.entry.as_deref()
    }

    #[inline]
    pub fn entry_mut(&mut self, index: u32) -> Option<&mut TcpEntry> {
        self.slots.get_mut(index as usize)?.entry.as_deref_mut()
    }

    #[inline]
    pub fn has_ends(&self, index: u32, ends: &TcpEnds) -> bool {
        let entry = self.slots.get(index as usize).and_then(|slot| slot.entry.as_deref());
        entry.is_some_and(|entry| entry.connection.ends() == *ends)
    }

    /// Fetches the memory of a connection into caches.
    #[inline]
    pub fn prefetch(&self, index: u32) {
        if let Some(entry) = self.entry(index) {
            plumb_copy::prefetch_all(entry);
        }
    }

    /// Whether these ends are a connection's own.
    #[inline]
    pub fn owns_ends(&self, index: u32, ends: &TcpEnds) -> bool {
        let entry = self.slots.get(index as usize).and_then(|slot| slot.entry.as_deref());
        entry.is_some_and(|entry| entry.timer.is_some() && entry.connection.ends() == *ends)
    }

    /// The identifier of the connection in a slot.
    #[inline]
    pub fn id(&self, index: u32) -> Option<TcpId> {
        let slot = self.slots.get(index as usize)?;
        slot.entry.is_some().then_some(TcpId { index, generation: slot.generation })
    }

    /// The application accepted a connection.
    pub fn hand_over(&mut self, index: u32) {
        let Some(entry) = self.entry_mut(index) else { return };
        entry.holder = Holder::Application;
        self.announce(index, true);
        let ended = |entry: &mut TcpEntry| entry.connection.state() == TcpState::Closed;
        if self.entry_mut(index).is_some_and(ended) {
            self.announce_end(index);
        }
    }

    /// Queues a connection that may have something to send, and arms its timer; its state, unless its ends are no longer its own.
    #[inline]
    pub fn settle(&mut self, core: &mut HostCore, index: u32) -> Option<TcpState> {
        let slot = self.slots.get_mut(index as usize)?;
        let entry = slot.entry.as_deref_mut()?;
        let state = entry.connection.state();
        let Some(timer) = &mut entry.timer else { return Some(state) };
        timer.ensure(&mut core.timers, entry.connection.deadline());
        if entry.connection.has_output() && !slot.is_ready {
            slot.is_ready = true;
            let port = entry.port;
            self.ready_queue(port).push_back(index);
        }
        Some(state)
    }

    #[inline]
    fn ready_queue(&mut self, port: PortId) -> &mut VecDeque<u32> {
        let port = usize::from(port.0);
        if port >= self.ready.len() {
            self.ready.resize_with(port + 1, VecDeque::new);
        }
        &mut self.ready[port]
    }

    /// The first connection that may have something to send by `port`, out of its slot.
    pub fn begin_turn(&mut self, port: PortId) -> Option<TcpTurn> {
        while let Some(index) = self.ready.get_mut(usize::from(port.0))?.pop_front() {
            let slot = &mut self.slots[index as usize];
            slot.is_ready = false;
            if let Some(entry) = slot.entry.take_if(|entry| entry.connection.has_output()) {
                return Some(TcpTurn { index, entry });
            }
        }
        None
    }

    /// Puts a connection back into its slot, and first into the queue if it was interrupted.
    pub fn end_turn(&mut self, turn: TcpTurn, is_interrupted: bool) -> u32 {
        let TcpTurn { index, mut entry } = turn;
        let port = entry.port;
        if !is_interrupted {
            entry.turn = TURN;
        }
        let slot = &mut self.slots[index as usize];
        slot.entry = Some(entry);
        if is_interrupted && !slot.is_ready {
            slot.is_ready = true;
            self.ready_queue(port).push_front(index);
        }
        index
    }

    /// Tells the application what can be done with a connection, if it holds it; `arrived` says that there is something new to be read.
    #[inline]
    pub fn announce(&mut self, index: u32, arrived: bool) {
        let Some(entry) = self.entry_mut(index) else { return };
        if entry.holder != Holder::Application {
            return;
        }
        let mut events = 0;
        if arrived && entry.connection.is_readable() {
            events |= PendingEvents::READABLE;
        }
        if entry.wants_room && entry.connection.is_writable() {
            entry.wants_room = false;
            events |= PendingEvents::WRITABLE;
        }
        self.push_events(index, events);
    }

    /// Tells the application, once, that a connection has ended.
    pub fn announce_end(&mut self, index: u32) {
        let Some(entry) = self.entry_mut(index) else { return };
        if entry.holder == Holder::Application && !std::mem::replace(&mut entry.is_end_told, true) {
            self.push_events(index, PendingEvents::CLOSED);
        }
    }

    #[inline]
    fn push_events(&mut self, index: u32, events: u8) {
        if events == 0 {
            return;
        }
        let slot = &mut self.slots[index as usize];
        slot.events.0 |= events;
        if !std::mem::replace(&mut slot.is_announced, true) {
            self.announced.push_back(index);
        }
    }

    /// The application wants to hear no more of a connection.
    pub fn forget_events(&mut self, index: u32) {
        self.slots[index as usize].events = PendingEvents::default();
    }

    pub fn poll_event(&mut self) -> Option<TcpEvent> {
        while let Some(&index) = self.announced.front() {
            let slot = &mut self.slots[index as usize];
            let event = slot.events.take(TcpId { index, generation: slot.generation });
            if slot.events == PendingEvents::default() {
                slot.is_announced = false;
                self.announced.pop_front();
            }
            if event.is_some() {
                return event;
            }
        }
        None
    }

    /// Frees a connection whose ends are no longer its own and that nobody holds.
    pub fn free_if_unheld(&mut self, index: u32) {
        let slot = &mut self.slots[index as usize];
        let is_over =
            |entry: &mut Box<TcpEntry>| entry.timer.is_none() && entry.holder == Holder::Nobody;
        if slot.entry.take_if(is_over).is_some() {
            slot.generation = slot.generation.wrapping_add(1);
            self.vacant.push(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::congestion::{bbr::Bbr, cubic::Cubic};

    #[test]
    fn idle_connection_takes_at_most_2_kib_beside_its_buffers() {
        // A place in the lookup, in the heap of timers, and in a queue; a quarter of each table may be vacant.
        let places = 5 * (12 + 32 + 4) / 4;
        let entry = size_of::<TcpEntry>() + 2 * size_of::<ConnectionSlot>();
        let congestion = size_of::<Cubic>().max(size_of::<Bbr>());
        // Both have the allocator's overhead.
        let total = entry + congestion + 2 * 16 + places;
        assert!(total <= 2_000, "{total}: {entry}, {congestion} and {places} bytes");
    }
}
