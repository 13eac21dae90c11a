//! The shape of everything pure that packets pass through: a host, a link, a queue, a router.
//!
//! A driver owns the clock, the devices and the pool; a machine owns its state and nothing else. The
//! same machine runs over real devices and in virtual time. Left out: any driver.

use plumb_base::time::Instant;

use crate::packet::{Packet, Pool};

pub mod timed;

/// Which of a machine's sides a packet enters or leaves by: the index of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(pub u16);

/// Packets in, packets out, and the next moment at which something is due.
pub trait Machine {
    /// Takes every packet of `batch`, all of which arrived at `port`, and leaves it empty.
    fn handle_packets(
        &mut self,
        now: Instant,
        port: PortId,
        batch: &mut Vec<Packet>,
        pool: &mut Pool,
    );

    /// Appends what shall leave by `port` to `batch`, at most `max` packets.
    fn poll_packets(
        &mut self,
        now: Instant,
        port: PortId,
        batch: &mut Vec<Packet>,
        max: usize,
        pool: &mut Pool,
    );

    /// When [`Machine::handle_deadline`] is due, if anything is waiting for time to pass.
    fn deadline(&self) -> Option<Instant>;

    /// Does what is due. Afterwards [`Machine::deadline`] lies after `now`, or is `None`.
    fn handle_deadline(&mut self, now: Instant, pool: &mut Pool);
}
