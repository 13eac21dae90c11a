//! Which flows the gateway knows: shared by the gate, which lets their packets in, and the engine.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use plumb_base::time::Span;
use plumb_wire::flow::FiveTuple;

/// How many datagrams of one flow wait for the engine at most.
const WAITING_MAX: u32 = 64;
/// Flows beyond the most that may wait for the engine to make room for them, or to find none.
const PENDING_MAX: usize = 64;

/// What the gateway did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GatewayCounters {
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
    pub evicted: EvictionCounts,
}

/// A flow, as the gate sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct KnownFlow {
    /// Its sockets are there.
    admitted: bool,
    /// Its packets that wait for the engine.
    waiting: u32,
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GateVerdict {
    /// The kernel takes it.
    Pass,
    /// The engine gets it.
    Hold,
    /// It ends here.
    Drop,
}

#[derive(Debug, Default)]
struct FlowTableState {
    flows: BTreeMap<FiveTuple, KnownFlow>,
    counts: GatewayCounters,
}

/// The flows, for both sides.
#[derive(Debug)]
pub(super) struct FlowTable {
    state: Mutex<FlowTableState>,
    /// How many flows the engine may carry.
    pub(super) most: usize,
}

impl FlowTable {
    /// Of at most so many flows that the engine carries, and some that wait for it.
    pub fn new(most: usize) -> Self {
        Self { state: Mutex::default(), most }
    }

    /// A table is whole between any two of its methods, also where a thread panicked.
    fn lock(&self) -> MutexGuard<'_, FlowTableState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happens to the first segment of a connection.
    pub fn on_syn(&self, flow: FiveTuple) -> GateVerdict {
        let mut state = self.lock();
        match state.flows.get(&flow) {
            Some(known) if known.admitted => GateVerdict::Pass,
            // Sent again while it stands outside: the first is still held.
            Some(_) => GateVerdict::Drop,
            None => state.begin(flow, self.most),
        }
    }

    /// What happens to a datagram.
    pub fn on_datagram(&self, flow: FiveTuple) -> GateVerdict {
        let mut state = self.lock();
        match state.flows.get_mut(&flow) {
            Some(known) if known.admitted && known.waiting == 0 => GateVerdict::Pass,
            Some(known) if known.waiting < WAITING_MAX => {
                known.waiting += 1;
                GateVerdict::Hold
            }
            Some(_) => {
                state.counts.no_room += 1;
                GateVerdict::Drop
            }
            None => state.begin(flow, self.most),
        }
    }

    /// A held packet did not come to the engine.
    pub fn on_lost(&self, flow: FiveTuple) {
        let mut state = self.lock();
        state.counts.no_room += 1;
        let Some(known) = state.flows.get_mut(&flow) else { return };
        known.waiting = known.waiting.saturating_sub(1);
        if !known.admitted && known.waiting == 0 {
            state.flows.remove(&flow);
        }
    }

    /// The engine has let a held packet in, or has given up on it.
    pub fn on_released(&self, flow: FiveTuple) {
        if let Some(known) = self.lock().flows.get_mut(&flow) {
            known.waiting = known.waiting.saturating_sub(1);
        }
    }

    /// The flow's sockets are there.
    pub fn admit(&self, flow: FiveTuple) {
        if let Some(known) = self.lock().flows.get_mut(&flow) {
            known.admitted = true;
        }
    }

    /// The flow is over: its next packet begins it anew.
    pub fn forget(&self, flow: FiveTuple) {
        self.lock().flows.remove(&flow);
    }

    /// The same, unless a packet of it waits for the engine: then it is none that is over. Whether it
    /// was forgotten.
    pub fn forget_unless_waiting(&self, flow: FiveTuple) -> bool {
        let mut state = self.lock();
        let in_use = state.flows.get(&flow).is_some_and(|known| known.waiting > 0);
        if !in_use {
            state.flows.remove(&flow);
        }
        !in_use
    }

    /// Counts something.
    pub fn count(&self, what: impl FnOnce(&mut GatewayCounters)) {
        what(&mut self.lock().counts);
    }

    /// What was counted.
    pub fn counts(&self) -> GatewayCounters {
        self.lock().counts
    }
}

impl FlowTableState {
    fn begin(&mut self, flow: FiveTuple, most: usize) -> GateVerdict {
        if self.flows.len() >= most + PENDING_MAX {
            self.counts.no_room += 1;
            return GateVerdict::Drop;
        }
        self.flows.insert(flow, KnownFlow { admitted: false, waiting: 1 });
        GateVerdict::Hold
    }
}

/// Shorter silence is no sign that a flow of UDP is not in use.
pub(super) const IDLE_MIN: Span = Span::from_ms(1_000);
/// Silence after which a connection that has ended in one direction counts as over: for as long, Linux
/// keeps one half of a connection whose program has gone (tcp_fin_timeout).
pub(super) const HALF_ENDED_MAX: Span = Span::from_ms(60_000);
/// How long a connection may take to stand on both sides before it may be given up for another: a
/// first segment has been sent five times by then.
pub(super) const ATTEMPT_MIN: Span = Span::from_ms(20_000);

/// Why a flow could be spared, the most dispensable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EvictionReason {
    /// All has been said: a question about a name that has its answer, a connection that has ended
    /// in both directions, or in one a minute ago.
    Over,
    /// A flow of UDP that said nothing for a second at least.
    Idle,
    /// A connection that neither stands nor was refused for twenty seconds.
    Unanswered,
}

impl EvictionReason {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Over, Self::Idle, Self::Unanswered];

    /// As documents name it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Over => "over",
            Self::Idle => "idle",
            Self::Unanswered => "unanswered",
        }
    }
}

/// How often each reason was one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EvictionCounts([u64; EvictionReason::ALL.len()]);

impl EvictionCounts {
    pub(super) fn count(&mut self, reason: EvictionReason) {
        self.0[reason as usize] += 1;
    }

    /// By the reasons' names; what is zero is left out.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let all = EvictionReason::ALL.iter().zip(self.0).filter(|(_, count)| *count > 0);
        all.map(|(reason, count)| (reason.name().to_owned(), count)).collect()
    }
}

/// A flow that could be spared; the least is the one that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct EvictionCandidate {
    pub(super) reason: EvictionReason,
    pub(super) used_ns: u64,
    pub(super) flow: FiveTuple,
}

/// Whether something used then has been silent for so long.
pub(super) const fn is_silent(now_ns: u64, used_ns: u64, least: Span) -> bool {
    now_ns.saturating_sub(used_ns) >= least.as_ns()
}

#[cfg(test)]
mod tests {
    use plumb_wire::ip::IpProtocol;

    use super::*;

    fn flow(source_port: u16) -> FiveTuple {
        FiveTuple {
            source: "10.77.0.1".parse().unwrap(),
            destination: "192.0.2.1".parse().unwrap(),
            protocol: IpProtocol::UDP,
            source_port,
            destination_port: 53,
        }
    }

    #[test]
    fn no_datagram_overtakes_one_that_is_still_held() {
        let table = FlowTable::new(8);
        assert_eq!(table.on_datagram(flow(1)), GateVerdict::Hold);
        assert_eq!(table.on_datagram(flow(1)), GateVerdict::Hold);
        table.admit(flow(1));
        table.on_released(flow(1));
        assert_eq!(table.on_datagram(flow(1)), GateVerdict::Hold, "one is held still");
        table.on_released(flow(1));
        table.on_released(flow(1));
        assert_eq!(table.on_datagram(flow(1)), GateVerdict::Pass);
        table.forget(flow(1));
        assert_eq!(table.on_datagram(flow(1)), GateVerdict::Hold);
    }

    #[test]
    fn a_first_segment_is_held_once_and_passes_when_it_stands_outside() {
        let table = FlowTable::new(8);
        assert_eq!(table.on_syn(flow(1)), GateVerdict::Hold);
        assert_eq!(table.on_syn(flow(1)), GateVerdict::Drop);
        table.admit(flow(1));
        assert_eq!(table.on_syn(flow(1)), GateVerdict::Pass, "its answer may have been lost");
    }

    #[test]
    fn there_are_never_more_flows_than_there_is_room_for_and_those_refused_are_counted() {
        let table = FlowTable::new(2);
        let most = u16::try_from(2 + PENDING_MAX).unwrap();
        assert!((0..most).all(|port| table.on_syn(flow(port)) == GateVerdict::Hold));
        assert_eq!(table.on_syn(flow(most)), GateVerdict::Drop);
        assert_eq!(table.on_datagram(flow(most + 1)), GateVerdict::Drop);
        assert_eq!(table.counts().no_room, 2);
        table.forget(flow(0));
        assert_eq!(table.on_syn(flow(most)), GateVerdict::Hold);
    }

    #[test]
    fn a_flow_whose_packet_waits_is_not_dismissed() {
        let table = FlowTable::new(8);
        assert_eq!(table.on_datagram(flow(1)), GateVerdict::Hold);
        table.admit(flow(1));
        assert!(!table.forget_unless_waiting(flow(1)));
        table.on_released(flow(1));
        assert!(table.forget_unless_waiting(flow(1)));
        assert_eq!(table.on_datagram(flow(1)), GateVerdict::Hold, "it begins anew");
    }

    #[test]
    fn a_packet_that_is_lost_on_its_way_to_the_engine_ends_no_flow_that_has_its_sockets() {
        let table = FlowTable::new(8);
        assert_eq!(table.on_datagram(flow(1)), GateVerdict::Hold);
        assert_eq!(table.on_datagram(flow(1)), GateVerdict::Hold);
        table.admit(flow(1));
        table.on_lost(flow(1));
        table.on_released(flow(1));
        assert_eq!(table.on_datagram(flow(1)), GateVerdict::Pass);
        assert_eq!(table.on_datagram(flow(2)), GateVerdict::Hold);
        table.on_lost(flow(2));
        assert_eq!(table.on_datagram(flow(2)), GateVerdict::Hold, "as if it had never been");
        assert_eq!(table.counts().no_room, 2);
    }
}
