//! A host as a machine: batches in, batches out, deadlines.
//!
//! Left out: whatever happens to a single packet.

use plumb_base::time::Instant;
use plumb_wire::machine::{Machine, Port};
use plumb_wire::packet::{Packet, Pool};

use super::{Event, Host, Owner};
use crate::counters::Count;
use crate::neighbour::{Alarm, Means};

impl Machine for Host {
    fn handle_packets(
        &mut self,
        now: Instant,
        port: Port,
        batch: &mut Vec<Packet>,
        pool: &mut Pool,
    ) {
        self.counters.add_many(Count::Received, batch.len());
        for packet in batch.drain(..) {
            if let Err(packet) = self.handle_predicted(port, packet, pool) {
                self.handle_frame(now, port, packet, pool);
            }
        }
    }

    fn poll_packets(
        &mut self,
        _now: Instant,
        port: Port,
        batch: &mut Vec<Packet>,
        max: usize,
        _pool: &mut Pool,
    ) {
        let Some(interface) = self.interfaces.get_mut(usize::from(port.0)) else { return };
        let count = interface.queue.len().min(max);
        batch.extend(interface.queue.drain(..count));
        self.counters.add_many(Count::Sent, count);
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        let next = self.timers.next();
        debug_assert!(
            next.is_some() || (self.neighbours.queued() == 0 && self.reassembly.is_empty()),
            "what waits has a timer"
        );
        next
    }

    fn handle_deadline(&mut self, now: Instant, pool: &mut Pool) {
        while let Some(owner) = self.timers.expire(now) {
            match owner {
                Owner::Reassembly => self.expire_fragments(now, pool),
                Owner::Neighbour(id) => {
                    let mut means =
                        Means { timers: &mut self.timers, counters: &mut self.counters, pool };
                    match self.neighbours.handle_timer(now, id, &mut means) {
                        Alarm::Solicit { port, address, mac } => {
                            self.solicit(port, address, mac, None, pool);
                        }
                        Alarm::Failed { port, address } => {
                            self.push_event(Event::NeighbourFailed { port, address });
                        }
                    }
                }
            }
        }
    }
}
