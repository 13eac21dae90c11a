//! Servers in the stack: UDP mirror, echo and discard, each a machine around a host.
//!
//! What a driving loop runs when it runs a server; a mirror that never reaches a socket is `swap`.
//! Left out: clients, and everything that waits for something other than packets.

use std::net::SocketAddr;

use plumb_base::time::Instant;
use plumb_wire::machine::{Machine, Port};
use plumb_wire::packet::{Packet, Pool};

use crate::host::Host;
use crate::udp::{BindError, CopyPolicy, Datagram, UdpId, UdpOptions};

mod swap;

pub use swap::Swap;

/// What a server does with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// Sends it back in the frame that it came in: its payload is not copied.
    Mirror,
    /// Reads it into the application's memory and sends a copy of that back, as programs do.
    Echo(CopyPolicy),
    /// Counts it.
    Discard,
}

/// What a server did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Served {
    /// Datagrams received.
    pub received: u64,
    /// Their bytes of payload.
    pub bytes: u64,
    /// Datagrams sent back.
    pub sent: u64,
    /// Answers that the host did not take: no path, too long, no free frame.
    pub failed: u64,
}

/// A host with services at its UDP sockets.
#[derive(Debug)]
pub struct Server {
    host: Host,
    services: Vec<(UdpId, Service)>,
    served: Served,
    /// The application's memory.
    memory: Vec<u8>,
}

impl Server {
    /// A server without services yet.
    pub fn new(host: Host) -> Self {
        Self { host, services: Vec::new(), served: Served::default(), memory: Vec::new() }
    }

    /// Opens a socket and serves there from now on.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn serve(
        &mut self,
        service: Service,
        local: SocketAddr,
        options: UdpOptions,
    ) -> Result<UdpId, BindError> {
        let id = self.host.udp_bind(local, options)?;
        self.services.push((id, service));
        Ok(id)
    }

    /// The host.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The host, to be asked for its events or configured.
    pub fn host_mut(&mut self) -> &mut Host {
        &mut self.host
    }

    /// What was done so far.
    pub fn served(&self) -> Served {
        self.served
    }

    fn work(&mut self, now: Instant, pool: &mut Pool) {
        while let Some(id) = self.host.poll_readable() {
            let known = self.services.iter().find(|(known, _)| *known == id);
            let Some(&(_, service)) = known else { continue };
            while let Some(datagram) = self.host.udp_receive(id, pool) {
                self.served.received += 1;
                self.served.bytes += datagram.packet.len() as u64;
                let sent = match service {
                    Service::Mirror => self.host.udp_reply(now, datagram, pool),
                    Service::Echo(policy) => self.echo(now, id, datagram, policy, pool),
                    Service::Discard => {
                        pool.free(datagram.packet);
                        continue;
                    }
                };
                match sent {
                    Ok(()) => self.served.sent += 1,
                    Err(_) => self.served.failed += 1,
                }
            }
        }
    }

    fn echo(
        &mut self,
        now: Instant,
        id: UdpId,
        datagram: Datagram,
        policy: CopyPolicy,
        pool: &mut Pool,
    ) -> Result<(), crate::host::SendError> {
        self.memory.clear();
        self.memory.extend_from_slice(pool.bytes(&datagram.packet));
        pool.free(datagram.packet);
        self.host.udp_send(now, id, &self.memory, Some(datagram.remote), policy, pool)
    }
}

impl Machine for Server {
    #[inline]
    fn handle_packets(
        &mut self,
        now: Instant,
        port: Port,
        batch: &mut Vec<Packet>,
        pool: &mut Pool,
    ) {
        self.host.handle_packets(now, port, batch, pool);
        self.work(now, pool);
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
        self.host.deadline()
    }

    fn handle_deadline(&mut self, now: Instant, pool: &mut Pool) {
        self.host.handle_deadline(now, pool);
        self.work(now, pool);
    }
}

#[cfg(test)]
mod tests;
