//! The services that commands offer: their names and ports, and what they tell of themselves.
//!
//! Left out: what they do (`plumb_stack::service`).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plumb_analysis::document::stack::ServiceCount;
use plumb_base::time::Instant;
use plumb_stack::host::{Event, Host};
use plumb_stack::node::Application;
use plumb_stack::service::{self, Served, Service};
use plumb_stack::udp::{BindError, CopyPolicy, UdpOptions};
use plumb_wire::packet::Pool;

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

    const fn service(self) -> Service {
        match self {
            Self::Mirror => Service::Mirror,
            Self::Echo => Service::Echo(CopyPolicy::Fused),
            Self::Discard => Service::Discard,
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

impl Offer {
    /// What was done at its sockets.
    fn count(self, sockets: &[Served]) -> ServiceCount {
        let sum = |of: fn(&Served) -> u64| sockets.iter().map(of).sum();
        ServiceCount {
            name: self.kind.name().to_owned(),
            port: self.port,
            received: sum(|served| served.received),
            bytes: sum(|served| served.bytes),
            answered: sum(|served| served.sent),
            from_service: sum(|served| served.from_service),
            to_group: sum(|served| served.to_group),
            failed: sum(|served| served.failed),
        }
    }
}

impl fmt::Display for Offer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.port)
    }
}

/// Services at work, and what they have to say.
#[derive(Debug)]
pub struct Services {
    offers: Vec<Offer>,
    /// Two for each offer: one of each family.
    services: service::Services,
    notices: Vec<String>,
}

impl Services {
    /// Opens a socket of each family for each service.
    ///
    /// # Errors
    /// Two at one port.
    pub fn open(host: &mut Host, offers: &[Offer]) -> Result<Self, BindError> {
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let mut services = service::Services::default();
        for offer in offers {
            for ip in any {
                let local = SocketAddr::new(ip, offer.port);
                services.open(host, offer.kind.service(), local, UdpOptions::default())?;
            }
        }
        Ok(Self { offers: offers.to_vec(), services, notices: Vec::new() })
    }

    /// What each did.
    pub fn counts(&self) -> Vec<ServiceCount> {
        let served: Vec<Served> = self.services.served().collect();
        let offers = self.offers.iter().zip(served.chunks(2));
        offers.map(|(offer, families)| offer.count(families)).collect()
    }

    /// Datagrams received by all.
    pub fn received(&self) -> u64 {
        self.services.served().map(|served| served.received).sum()
    }

    /// What whoever watches should be told since the last call.
    pub fn take_notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }
}

impl Application for Services {
    #[inline]
    fn handle(&mut self, now: Instant, host: &mut Host, pool: &mut Pool) {
        self.services.handle(now, host, pool);
        while let Some(event) = host.poll_event() {
            if let Event::AddressConflict { address, mac, .. } = event {
                self.notices.push(format!("another station, {mac}, claims to have {address}"));
            }
        }
    }
}
