//! What ICMP and routing report to the table about segments that it sent.

use super::TcpTable;
use crate::context::{DeliveryFailureKind, HostCore};
use crate::tcp::connection::{PathLimits, TcpEnds, is_hard};
use crate::tcp::state::TcpState;
use crate::tcp::tuple::TupleOwner;

impl TcpTable {
    /// An ICMP error about a segment between these ends that began at `seq`: whether it is believed (RFC 5927 §4.1).
    pub fn handle_error(
        &mut self,
        core: &mut HostCore,
        ends: &TcpEnds,
        kind: DeliveryFailureKind,
        seq: u32,
    ) -> bool {
        let index = match self.owners.find(ends) {
            Some(TupleOwner::Connection(index)) => index,
            Some(TupleOwner::HalfOpen(index)) => return self.half_open_error(index, kind, seq),
            _ => return false,
        };
        let Some(entry) = self.owners.slots.entry_mut(index) else { return false };
        let is_believed = entry.connection.on_unreachable(kind, seq);
        let is_over = entry.connection.state() == TcpState::Closed;
        self.owners.slots.announce(index, is_over);
        self.settle(core, index);
        is_believed
    }

    /// The same about the SYN-ACK of a half-open connection, which an error ends that cannot pass.
    fn half_open_error(&mut self, index: u32, kind: DeliveryFailureKind, seq: u32) -> bool {
        let record = self.owners.half_open.get(index);
        let is_believed = record.is_some_and(|record| record.handshake.iss == seq);
        if is_believed && is_hard(kind) {
            self.remove_half_open(index);
        }
        is_believed
    }

    /// The path between these ends has changed.
    pub fn on_path(&mut self, core: &mut HostCore, ends: &TcpEnds, limits: PathLimits) {
        if let Some(TupleOwner::Connection(index)) = self.owners.find(ends)
            && let Some(entry) = self.owners.slots.entry_mut(index)
        {
            entry.connection.on_path(limits);
            self.settle(core, index);
        }
    }
}
