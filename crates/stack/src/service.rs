//! Services over UDP: mirror, echo (RFC 862) and discard (RFC 863).
//!
//! None ever sends more than it was sent: one answer for one datagram, none to a group, and none to
//! a port that answers by itself. A mirror that never reaches a socket is `swap`. Left out: TCP, and
//! clients.

use std::net::SocketAddr;
use std::ops::AddAssign;

use plumb_base::time::Instant;
use plumb_wire::packet::Pool;

use crate::host::Host;
use crate::node::Application;
use crate::udp::{BindError, CopyPolicy, Datagram, UdpId, UdpOptions};

mod swap;

pub use swap::Swap;

/// What is done with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Sends it back in the frame that it came in: its payload is not copied.
    Mirror,
    /// Reads it into the application's memory and sends a copy of that back, as programs do.
    Echo(CopyPolicy),
    /// Counts it.
    Discard,
}

/// What a service did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Datagrams received.
    pub received: u64,
    /// Their bytes of payload.
    pub bytes: u64,
    /// Datagrams sent back.
    pub sent: u64,
    /// Not answered: from a port that answers by itself, which might go on for ever.
    pub from_service: u64,
    /// Not answered: sent to a group, of which every member would answer.
    pub to_group: u64,
    /// Answers that the host did not take: no path, too long, no free frame.
    pub failed: u64,
}

impl AddAssign for Served {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.bytes += other.bytes;
        self.sent += other.sent;
        self.from_service += other.from_service;
        self.to_group += other.to_group;
        self.failed += other.failed;
    }
}

/// Is told of what services do.
pub trait Watch {
    /// A datagram has reached its socket.
    fn on_datagram(&mut self);
}

impl Watch for () {
    #[inline]
    fn on_datagram(&mut self) {}
}

/// Ports at which something answers whatever it is sent: echo, daytime, quote, chargen, time.
const ANSWERING: [u16; 5] = [7, 13, 17, 19, 37];

/// Services at the UDP sockets of a host.
#[derive(Debug, Default)]
pub struct Services<W = ()> {
    offers: Vec<Offer>,
    /// The application's memory.
    memory: Vec<u8>,
    watch: W,
}

#[derive(Debug)]
struct Offer {
    id: UdpId,
    port: u16,
    service: Service,
    served: Served,
}

impl<W: Watch> Services<W> {
    /// None yet; `watch` is told of every datagram.
    pub const fn new(watch: W) -> Self {
        Self { offers: Vec::new(), memory: Vec::new(), watch }
    }

    /// Opens a socket of the host and serves there from now on.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn open(
        &mut self,
        host: &mut Host,
        service: Service,
        local: SocketAddr,
        options: UdpOptions,
    ) -> Result<(), BindError> {
        let id = host.udp_bind(local, options)?;
        let port = host.udp_local(id).map_or(local.port(), |local| local.port());
        self.offers.push(Offer { id, port, service, served: Served::default() });
        Ok(())
    }

    /// What was done at each socket, in the order in which they were opened.
    pub fn served(&self) -> impl Iterator<Item = Served> {
        self.offers.iter().map(|offer| offer.served)
    }

    /// What was done at all of them since the last call.
    pub fn take_served(&mut self) -> Served {
        let mut all = Served::default();
        for offer in &mut self.offers {
            all += std::mem::take(&mut offer.served);
        }
        all
    }

    #[inline]
    fn serve(
        &mut self,
        now: Instant,
        index: usize,
        datagram: Datagram,
        host: &mut Host,
        pool: &mut Pool,
    ) {
        self.watch.on_datagram();
        let answers_itself = self.answers_itself(datagram.remote.port());
        let interface = host.interfaces().get(usize::from(datagram.port.0));
        let is_ours = interface.is_some_and(|interface| interface.owns(datagram.local.ip()));
        let Offer { service, served, .. } = &mut self.offers[index];
        served.received += 1;
        served.bytes += datagram.packet.len() as u64;
        let refused = match service {
            Service::Discard => return pool.free(datagram.packet),
            _ if !is_ours => Some(&mut served.to_group),
            _ if answers_itself => Some(&mut served.from_service),
            _ => None,
        };
        if let Some(refused) = refused {
            *refused += 1;
            return pool.free(datagram.packet);
        }
        let sent = match *service {
            Service::Echo(policy) => {
                self.memory.clear();
                self.memory.extend_from_slice(pool.bytes(&datagram.packet));
                host.udp_answer(now, datagram, &self.memory, policy, pool)
            }
            _ => host.udp_reply(now, datagram, pool),
        };
        match sent {
            Ok(()) => served.sent += 1,
            Err(_) => served.failed += 1,
        }
    }

    /// Whether at a port something answers what it is sent: there, or here.
    #[inline]
    fn answers_itself(&self, port: u16) -> bool {
        let is_ours = |offer: &Offer| offer.service != Service::Discard && offer.port == port;
        ANSWERING.contains(&port) || self.offers.iter().any(is_ours)
    }
}

impl<W: Watch> Application for Services<W> {
    #[inline]
    fn handle(&mut self, now: Instant, host: &mut Host, pool: &mut Pool) {
        while let Some(id) = host.poll_readable() {
            let Some(index) = self.offers.iter().position(|offer| offer.id == id) else { continue };
            while let Some(datagram) = host.udp_receive(id, pool) {
                self.serve(now, index, datagram, host, pool);
            }
        }
    }
}

#[cfg(test)]
mod tests;
