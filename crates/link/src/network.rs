//! What a driver sees of everything that carries frames between ports: a link, or a switch.
//!
//! Left out: what is inside, and the driver.

use plumb_base::time::Instant;
use plumb_wire::machine::{Machine, Port};
use plumb_wire::packet::{Packet, Pool};

use crate::report::NetworkReport;
use crate::spec::{LinkSpec, SpecError};

/// A frame that shall leave.
#[derive(Debug)]
#[must_use = "it holds a packet: send it, or free it"]
pub struct Due {
    /// When it is due by the model, however late that is seen to.
    pub at: Instant,
    /// The frame.
    pub packet: Packet,
}

/// A machine of several ports whose frames know when they were due.
pub trait Network: Machine {
    /// How many ports it has: from 0 on.
    fn ports(&self) -> u16;

    /// As [`Machine::poll_packets`], with the moment at which each is due: not later than `now`, in order.
    fn poll_due(
        &mut self,
        now: Instant,
        port: Port,
        out: &mut Vec<Due>,
        max: usize,
        pool: &mut Pool,
    );

    /// Becomes what `spec` says; what is in flight stays so.
    ///
    /// # Errors
    /// Refuses, unchanged, what could not have been made in the first place, and another number of hops.
    fn set(&mut self, now: Instant, spec: &LinkSpec, pool: &mut Pool) -> Result<(), SpecError>;

    /// What it did up to the last moment that it was told of, with the laws checked.
    fn report(&self, now: Instant) -> NetworkReport;

    /// Gives every frame inside back to the pool, unaccounted: the end.
    fn clear(&mut self, pool: &mut Pool);
}
