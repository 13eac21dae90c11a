//! What the driver needs of a network.
//!
//! Left out: any network.

use plumb_base::time::Instant;
use plumb_wire::machine::{Machine, Port};
use plumb_wire::packet::{Packet, Pool};

/// A frame that leaves a network, and when.
#[derive(Debug)]
pub struct Due {
    /// Its moment, by the model.
    pub at: Instant,
    /// It.
    pub packet: Packet,
}

/// A machine whose packets have moments.
pub trait Network: Machine {
    /// How many ports it has.
    fn ports(&self) -> u16;

    /// Appends what leaves by `port` until `now`, at most `max`, in the order of its moments.
    fn poll_due(
        &mut self,
        now: Instant,
        port: Port,
        out: &mut Vec<Due>,
        max: usize,
        pool: &mut Pool,
    );
}
