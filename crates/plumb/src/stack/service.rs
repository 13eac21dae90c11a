//! Services over UDP: mirror, echo (RFC 862) and discard (RFC 863).
//!
//! None ever sends more than it was sent: one answer for one datagram, none to a group, and none to
//! a port that answers by itself. Left out: TCP.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plumb_analysis::document::stack::ServiceCount;
use plumb_base::time::Instant;
use plumb_stack::host::{Event, Host};
use plumb_stack::udp::{BindError, CopyPolicy, Datagram, UdpId, UdpOptions};
use plumb_wire::packet::Pool;

use super::node::Application;

/// What a service does with a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Sends it back where it lies.
    Mirror,
    /// Copies it out and a copy of that back, as a program with a buffer of its own does.
    Echo,
    /// Drops it.
    Discard,
}

impl Kind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Mirror, Self::Echo, Self::Discard];

    /// Its name in words and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mirror => "mirror",
            Self::Echo => "echo",
            Self::Discard => "discard",
        }
    }

    /// Where it is, if nobody says: RFC 862 and RFC 863; the mirror has no number of its own.
    pub const fn port(self) -> u16 {
        match self {
            Self::Mirror => 1_997,
            Self::Echo => 7,
            Self::Discard => 9,
        }
    }
}

/// A service at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Which.
    pub kind: Kind,
    /// UDP port.
    pub port: u16,
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.port)
    }
}

/// Ports at which something answers whatever it is sent: echo, daytime, quote, chargen, time.
const ANSWERING: [u16; 5] = [7, 13, 17, 19, 37];

/// Services at work.
#[derive(Debug)]
pub struct Services {
    offers: Vec<(Kind, ServiceCount)>,
    sockets: Vec<(UdpId, usize)>,
    buffer: Vec<u8>,
    notices: Vec<String>,
}

impl Services {
    /// Opens a socket of each family for each service.
    ///
    /// # Errors
    /// Two at one port.
    pub fn open(host: &mut Host, offers: &[Offer]) -> Result<Self, BindError> {
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let mut services = Self {
            offers: Vec::new(),
            sockets: Vec::new(),
            buffer: Vec::new(),
            notices: Vec::new(),
        };
        for offer in offers {
            for ip in any {
                let options = UdpOptions { super_segments: false, ..UdpOptions::default() };
                let id = host.udp_bind(SocketAddr::new(ip, offer.port), options)?;
                services.sockets.push((id, services.offers.len()));
            }
            let count = ServiceCount {
                name: offer.kind.name().to_owned(),
                port: offer.port,
                ..ServiceCount::default()
            };
            services.offers.push((offer.kind, count));
        }
        Ok(services)
    }

    /// What each did.
    pub fn counts(&self) -> Vec<ServiceCount> {
        self.offers.iter().map(|(_, count)| count.clone()).collect()
    }

    /// Datagrams received by all.
    pub fn received(&self) -> u64 {
        self.offers.iter().map(|(_, count)| count.received).sum()
    }

    /// What whoever watches should be told since the last call.
    pub fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
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
        let port = datagram.remote.port();
        let answers_itself = ANSWERING.contains(&port)
            || self.offers.iter().any(|(kind, count)| *kind != Kind::Discard && count.port == port);
        let interface = host.interfaces().get(usize::from(datagram.port.0));
        let is_ours = interface.is_some_and(|interface| interface.owns(datagram.local.ip()));
        let (kind, count) = &mut self.offers[index];
        count.received += 1;
        count.bytes += datagram.packet.len() as u64;
        let refused = match kind {
            Kind::Discard => return pool.free(datagram.packet),
            _ if !is_ours => Some(&mut count.to_group),
            _ if answers_itself => Some(&mut count.from_service),
            _ => None,
        };
        if let Some(refused) = refused {
            *refused += 1;
            return pool.free(datagram.packet);
        }
        let sent = match kind {
            Kind::Echo => {
                self.buffer.clear();
                self.buffer.extend_from_slice(pool.bytes(&datagram.packet));
                let (remote, id) = (datagram.remote, self.sockets[index_of(&datagram, index)].0);
                pool.free(datagram.packet);
                host.udp_send(now, id, &self.buffer, Some(remote), CopyPolicy::Fused, pool).is_ok()
            }
            _ => host.udp_reply(now, datagram, pool).is_ok(),
        };
        if sent {
            count.answered += 1;
        } else {
            count.failed += 1;
        }
    }
}

/// The socket of a service for the family that a datagram came by: version 4 first.
fn index_of(datagram: &Datagram, service: usize) -> usize {
    service * 2 + usize::from(datagram.remote.is_ipv6())
}

impl Application for Services {
    #[inline]
    fn handle(&mut self, now: Instant, host: &mut Host, pool: &mut Pool) {
        while let Some(id) = host.poll_readable() {
            let Some(&(_, index)) = self.sockets.iter().find(|(socket, _)| *socket == id) else {
                continue;
            };
            while let Some(datagram) = host.udp_receive(id, pool) {
                self.serve(now, index, datagram, host, pool);
            }
        }
        while let Some(event) = host.poll_event() {
            if let Event::AddressConflict { address, mac, .. } = event {
                self.notices.push(format!("another station, {mac}, claims to have {address}"));
            }
        }
    }
}
