//! A host with an application on it, as one machine.
//!
//! Left out: what applications do.

use plumb_base::time::Instant;
use plumb_wire::machine::{Machine, Port};
use plumb_wire::packet::{Packet, Pool};

use crate::host::Host;

/// Uses the sockets of a host.
pub trait Application {
    /// Takes out of a batch what the host shall not get to see: nothing, where nothing else is said.
    #[inline]
    fn intercept(
        &mut self,
        _port: Port,
        _batch: &mut Vec<Packet>,
        _host: &mut Host,
        _pool: &mut Pool,
    ) {
    }

    /// Takes what came and does what is due: called after packets, and when its deadline is over.
    fn handle(&mut self, now: Instant, host: &mut Host, pool: &mut Pool);

    /// When it wants to be called although nothing came.
    fn deadline(&self) -> Option<Instant> {
        None
    }
}

/// A host and its application.
#[derive(Debug)]
pub struct Node<A> {
    /// The host.
    pub host: Host,
    /// Its application.
    pub application: A,
}

impl<A: Application> Machine for Node<A> {
    #[inline]
    fn handle_packets(
        &mut self,
        now: Instant,
        port: Port,
        batch: &mut Vec<Packet>,
        pool: &mut Pool,
    ) {
        self.application.intercept(port, batch, &mut self.host, pool);
        if !batch.is_empty() {
            self.host.handle_packets(now, port, batch, pool);
        }
        self.application.handle(now, &mut self.host, pool);
    }

    #[inline]
    fn poll_packets(
        &mut self,
        now: Instant,
        port: Port,
        batch: &mut Vec<Packet>,
        max: usize,
        pool: &mut Pool,
    ) {
        self.host.poll_packets(now, port, batch, max, pool);
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        let earliest = |a: Instant, b: Option<Instant>| b.map_or(a, |b| a.min(b));
        match (self.host.deadline(), self.application.deadline()) {
            (Some(host), application) => Some(earliest(host, application)),
            (None, application) => application,
        }
    }

    fn handle_deadline(&mut self, now: Instant, pool: &mut Pool) {
        if self.host.deadline().is_some_and(|deadline| deadline <= now) {
            self.host.handle_deadline(now, pool);
        }
        self.application.handle(now, &mut self.host, pool);
    }
}
