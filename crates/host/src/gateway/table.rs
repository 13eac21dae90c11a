//! Which flows the gateway knows: shared by the gate, which lets their packets in, and the engine.
//!
//! Left out: their sockets, which are the engine's.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plumb_wire::flow::FiveTuple;

use super::eviction::{Evicted, Reason};

/// How many datagrams of one flow wait for the engine at most.
const WAITING_MAX: u32 = 64;
/// Flows beyond the most that may wait for the engine to make room for them, or to find none.
const PENDING_MAX: usize = 64;

/// What the gateway did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// TCP connections carried.
    pub connections: u64,
    /// TCP connections that nobody outside took.
    pub refused: u64,
    /// Flows of UDP carried.
    pub datagram_flows: u64,
    /// Bytes of payload to the outside.
    pub bytes_up: u64,
    /// Bytes of payload from the outside.
    pub bytes_down: u64,
    /// Packets to the outside that are neither TCP nor UDP: not carried.
    pub not_carried: u64,
    /// First packets of flows that there was no room for.
    pub no_room: u64,
    /// Flows that made room for others.
    pub evicted: Evicted,
}

/// A flow, as the gate sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    /// Its sockets are there.
    admitted: bool,
    /// Its packets that wait for the engine.
    waiting: u32,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The kernel takes it.
    Pass,
    /// The engine gets it.
    Hold,
    /// It ends here.
    Drop,
}

#[derive(Debug, Default)]
struct State {
    flows: BTreeMap<FiveTuple, Known>,
    counts: Counts,
}

/// The flows, for both sides.
#[derive(Debug)]
pub(super) struct Table {
    state: Mutex<State>,
    most: usize,
}

impl Table {
    /// Of at most so many flows that the engine carries, and some that wait for it.
    pub(super) fn new(most: usize) -> Self {
        Self { state: Mutex::default(), most }
    }

    /// How many flows the engine may carry.
    pub(super) const fn most(&self) -> usize {
        self.most
    }

    /// A table is whole between any two of its methods, also where a thread panicked.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What becomes of the first segment of a connection.
    pub(super) fn on_syn(&self, flow: FiveTuple) -> Verdict {
        let mut state = self.lock();
        match state.flows.get(&flow) {
            Some(known) if known.admitted => Verdict::Pass,
            // Sent again while it stands outside: the first is still held.
            Some(_) => Verdict::Drop,
            None => state.begin(flow, self.most),
        }
    }

    /// What becomes of a datagram.
    pub(super) fn on_datagram(&self, flow: FiveTuple) -> Verdict {
        let mut state = self.lock();
        match state.flows.get_mut(&flow) {
            Some(known) if known.admitted && known.waiting == 0 => Verdict::Pass,
            Some(known) if known.waiting < WAITING_MAX => {
                known.waiting += 1;
                Verdict::Hold
            }
            Some(_) => {
                state.counts.no_room += 1;
                Verdict::Drop
            }
            None => state.begin(flow, self.most),
        }
    }

    /// A held packet did not come to the engine.
    pub(super) fn on_lost(&self, flow: FiveTuple) {
        let mut state = self.lock();
        state.counts.no_room += 1;
        let Some(known) = state.flows.get_mut(&flow) else { return };
        known.waiting = known.waiting.saturating_sub(1);
        if !known.admitted && known.waiting == 0 {
            state.flows.remove(&flow);
        }
    }

    /// The engine has let a held packet in, or has given up on it.
    pub(super) fn on_released(&self, flow: FiveTuple) {
        if let Some(known) = self.lock().flows.get_mut(&flow) {
            known.waiting = known.waiting.saturating_sub(1);
        }
    }

    /// The flow's sockets are there.
    pub(super) fn admit(&self, flow: FiveTuple) {
        if let Some(known) = self.lock().flows.get_mut(&flow) {
            known.admitted = true;
        }
    }

    /// The flow is over: its next packet begins it anew.
    pub(super) fn forget(&self, flow: FiveTuple) {
        self.lock().flows.remove(&flow);
    }

    /// The same, unless a packet of it waits for the engine: then it is none that is over. Whether it
    /// was forgotten.
    pub(super) fn dismiss(&self, flow: FiveTuple) -> bool {
        let mut state = self.lock();
        let in_use = state.flows.get(&flow).is_some_and(|known| known.waiting > 0);
        if !in_use {
            state.flows.remove(&flow);
        }
        !in_use
    }

    /// A flow has made room for another.
    pub(super) fn count_evicted(&self, reason: Reason) {
        self.lock().counts.evicted.count(reason);
    }

    /// Counts something.
    pub(super) fn count(&self, what: impl FnOnce(&mut Counts)) {
        what(&mut self.lock().counts);
    }

    /// What was counted.
    pub(super) fn counts(&self) -> Counts {
        self.lock().counts
    }
}

impl State {
    fn begin(&mut self, flow: FiveTuple, most: usize) -> Verdict {
        if self.flows.len() >= most + PENDING_MAX {
            self.counts.no_room += 1;
            return Verdict::Drop;
        }
        self.flows.insert(flow, Known { admitted: false, waiting: 1 });
        Verdict::Hold
    }
}

#[cfg(test)]
mod tests {
    use plumb_wire::protocol::Protocol;

    use super::*;

    fn flow(source_port: u16) -> FiveTuple {
        FiveTuple {
            source: "10.77.0.1".parse().unwrap(),
            destination: "192.0.2.1".parse().unwrap(),
            protocol: Protocol::UDP,
            source_port,
            destination_port: 53,
        }
    }

    #[test]
    fn no_datagram_overtakes_one_that_is_still_held() {
        let table = Table::new(8);
        assert_eq!(table.on_datagram(flow(1)), Verdict::Hold);
        assert_eq!(table.on_datagram(flow(1)), Verdict::Hold);
        table.admit(flow(1));
        table.on_released(flow(1));
        assert_eq!(table.on_datagram(flow(1)), Verdict::Hold, "one is held still");
        table.on_released(flow(1));
        table.on_released(flow(1));
        assert_eq!(table.on_datagram(flow(1)), Verdict::Pass);
        table.forget(flow(1));
        assert_eq!(table.on_datagram(flow(1)), Verdict::Hold);
    }

    #[test]
    fn a_first_segment_is_held_once_and_passes_when_it_stands_outside() {
        let table = Table::new(8);
        assert_eq!(table.on_syn(flow(1)), Verdict::Hold);
        assert_eq!(table.on_syn(flow(1)), Verdict::Drop);
        table.admit(flow(1));
        assert_eq!(table.on_syn(flow(1)), Verdict::Pass, "its answer may have been lost");
    }

    #[test]
    fn there_are_never_more_flows_than_there_is_room_for_and_those_refused_are_counted() {
        let table = Table::new(2);
        let most = u16::try_from(2 + PENDING_MAX).unwrap();
        assert!((0..most).all(|port| table.on_syn(flow(port)) == Verdict::Hold));
        assert_eq!(table.on_syn(flow(most)), Verdict::Drop);
        assert_eq!(table.on_datagram(flow(most + 1)), Verdict::Drop);
        assert_eq!(table.counts().no_room, 2);
        table.forget(flow(0));
        assert_eq!(table.on_syn(flow(most)), Verdict::Hold);
    }

    #[test]
    fn a_flow_whose_packet_waits_is_not_dismissed() {
        let table = Table::new(8);
        assert_eq!(table.on_datagram(flow(1)), Verdict::Hold);
        table.admit(flow(1));
        assert!(!table.dismiss(flow(1)));
        table.on_released(flow(1));
        assert!(table.dismiss(flow(1)));
        assert_eq!(table.on_datagram(flow(1)), Verdict::Hold, "it begins anew");
    }

    #[test]
    fn a_packet_that_is_lost_on_its_way_to_the_engine_ends_no_flow_that_has_its_sockets() {
        let table = Table::new(8);
        assert_eq!(table.on_datagram(flow(1)), Verdict::Hold);
        assert_eq!(table.on_datagram(flow(1)), Verdict::Hold);
        table.admit(flow(1));
        table.on_lost(flow(1));
        table.on_released(flow(1));
        assert_eq!(table.on_datagram(flow(1)), Verdict::Pass);
        assert_eq!(table.on_datagram(flow(2)), Verdict::Hold);
        table.on_lost(flow(2));
        assert_eq!(table.on_datagram(flow(2)), Verdict::Hold, "as if it had never been");
        assert_eq!(table.counts().no_room, 2);
    }
}
