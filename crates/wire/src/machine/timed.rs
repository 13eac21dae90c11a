//! Machines that keep logical time: what leaves them carries the moment at which it was due.
//!
//! Time passes inside by itself, event after event; the batches of a [`Machine`] only say how far.
//! Left out: what the events are.

use std::collections::VecDeque;

use plumb_base::time::Instant;

use super::{Machine, PortId};
use crate::packet::{Packet, Pool};

/// A frame that shall leave.
#[derive(Debug)]
#[must_use = "it holds a packet: send it, or free it"]
pub struct DuePacket {
    /// When it is due by the model, however late that is seen to.
    pub at: Instant,
    /// The frame.
    pub packet: Packet,
}

/// What a machine is that keeps logical time: whatever is this is a [`Machine`] too.
pub trait TimedMachine {
    /// Everything up to `now` happens; the moment that it then is inside, which is never before one given earlier.
    fn advance(&mut self, now: Instant, pool: &mut Pool) -> Instant;

    /// Takes a frame that arrives at `port` at `now`, up to which everything has happened.
    fn handle_packet(&mut self, now: Instant, port: PortId, packet: Packet, pool: &mut Pool);

    /// What waits to be polled at `port`, in the order in which it is due.
    fn egress(&mut self, port: PortId) -> &mut VecDeque<DuePacket>;

    /// The earliest moment at which something can leave; `None` when nothing is inside.
    fn next_departure(&self) -> Option<Instant>;
}

impl<M: TimedMachine + ?Sized> Machine for M {
    #[inline]
    fn handle_packets(
        &mut self,
        now: Instant,
        port: PortId,
        batch: &mut Vec<Packet>,
        pool: &mut Pool,
    ) {
        let now = self.advance(now, pool);
        for packet in batch.drain(..) {
            self.handle_packet(now, port, packet, pool);
        }
        self.advance(now, pool);
    }

    #[inline]
    fn poll_packets(
        &mut self,
        now: Instant,
        port: PortId,
        batch: &mut Vec<Packet>,
        max: usize,
        pool: &mut Pool,
    ) {
        self.advance(now, pool);
        let egress = self.egress(port);
        let count = max.min(egress.len());
        batch.extend(egress.drain(..count).map(|due| due.packet));
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        self.next_departure()
    }

    #[inline]
    fn handle_deadline(&mut self, now: Instant, pool: &mut Pool) {
        self.advance(now, pool);
    }
}
