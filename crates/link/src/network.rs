//! What a driver sees of everything that carries frames between ports: a link, or a switch.
//!
//! Left out: what is inside, and the driver.

use plumb_base::time::Instant;
use plumb_wire::machine::timed::{Due, Timed};
use plumb_wire::machine::{Machine, Port};
use plumb_wire::packet::Pool;

use crate::report::NetworkReport;
use crate::spec::{LinkSpec, SpecError};

/// A machine of several ports whose frames know when they were due.
pub trait Network: Timed + Machine {
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
    ) {
        self.advance(now, pool);
        let egress = self.egress(port);
        let count = max.min(egress.len());
        out.extend(egress.drain(..count));
    }

    /// Becomes what `spec` says; what is in flight stays so.
    ///
    /// # Errors
    /// Refuses, unchanged, what could not have been made in the first place, and another number of hops.
    fn set(&mut self, now: Instant, spec: &LinkSpec, pool: &mut Pool) -> Result<(), SpecError>;

    /// What it did up to the last moment that it was told of, with the laws checked.
    fn report(&self, now: Instant) -> NetworkReport;

    /// The same into a [`NetworkReport::form`] of an earlier report, without a copy of what may be long: its empty
    /// distributions are exchanged for those of what happened since it was last done. Those of every report after that
    /// begin there too. Its texts are made anew where the network `is_changed` since.
    fn hand_over(&mut self, now: Instant, is_changed: bool, form: &mut NetworkReport);

    /// Gives every frame inside back to the pool, unaccounted: the end.
    fn clear(&mut self, pool: &mut Pool);
}
