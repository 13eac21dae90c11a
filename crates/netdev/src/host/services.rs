//! Services that a host on a device offers: mirror, echo and discard over UDP.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plumb_base::time::Instant;
use plumb_stack::host::{HostEvent, IpHost};
use plumb_stack::service::{HostApplication, ServiceCounts, UdpService, UdpServices};
use plumb_stack::udp::{BindError, CopyPolicy, UdpOptions};
use plumb_wire::ethernet::MacAddr;
use plumb_wire::packet::Pool;

use super::WatchedApplication;

/// Kind of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// Returns datagrams in place.
    Mirror,
    /// Copies datagrams out and back, as a program with its own buffer does.
    Echo,
    /// Drops datagrams.
    Discard,
}

impl ServiceKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Mirror, Self::Echo, Self::Discard];

    /// Name in options and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mirror => "mirror",
            Self::Echo => "echo",
            Self::Discard => "discard",
        }
    }

    const fn service(self) -> UdpService {
        match self {
            Self::Mirror => UdpService::Mirror,
            Self::Echo => UdpService::Echo(CopyPolicy::Fused),
            Self::Discard => UdpService::Discard,
        }
    }

    /// Default port (RFC 862, RFC 863; the mirror's is arbitrary).
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
pub struct ServicePort {
    /// Kind.
    pub kind: ServiceKind,
    /// UDP port.
    pub port: u16,
}

impl fmt::Display for ServicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.port)
    }
}

/// The services of a host.
#[derive(Debug)]
pub struct OfferedServices {
    ports: Vec<ServicePort>,
    /// Two sockets per service, one of each family.
    services: UdpServices,
    /// Messages for the user.
    pub notices: Vec<String>,
    /// Datagrams after which they are complete.
    pub count_max: Option<u64>,
}

impl OfferedServices {
    /// Opens a socket of each family for each service.
    ///
    /// # Errors
    /// Two services at one port.
    pub fn open(host: &mut IpHost, offers: &[ServicePort]) -> Result<Self, BindError> {
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let mut services = UdpServices::default();
        for offer in offers {
            for ip in any {
                let local = SocketAddr::new(ip, offer.port);
                services.open(host, offer.kind.service(), local, UdpOptions::default())?;
            }
        }
        Ok(Self { ports: offers.to_vec(), services, notices: Vec::new(), count_max: None })
    }

    /// The counts of each service.
    pub fn counts(&self) -> Vec<(ServicePort, ServiceCounts)> {
        let counts: Vec<ServiceCounts> = self.services.counts().collect();
        let sum = |families: &[ServiceCounts]| {
            families.iter().fold(ServiceCounts::default(), |mut sum, &counts| {
                sum += counts;
                sum
            })
        };
        self.ports.iter().copied().zip(counts.chunks(2).map(sum)).collect()
    }

    /// Datagrams received by all services.
    pub fn received(&self) -> u64 {
        self.services.counts().map(|served| served.received).sum()
    }
}

impl HostApplication for OfferedServices {
    #[inline]
    fn handle(&mut self, now: Instant, host: &mut IpHost, pool: &mut Pool) {
        self.services.handle(now, host, pool);
        while let Some(event) = host.poll_event() {
            if let HostEvent::AddressConflict { address, mac, .. } = event {
                self.notices.push(address_conflict(address, mac));
            }
        }
    }
}

impl WatchedApplication for OfferedServices {
    fn is_complete(&self) -> bool {
        self.count_max.is_some_and(|count| self.received() >= count)
    }

    fn has_news(&self) -> bool {
        !self.notices.is_empty()
    }
}

/// The message about another host with the stack's address.
pub fn address_conflict(address: IpAddr, mac: MacAddr) -> String {
    format!("address conflict: another host, {mac}, claims {address}")
}
