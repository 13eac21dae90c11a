//! Services that a host on a device offers: mirror, echo and discard over UDP; echo, discard, a source and files over TCP.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use plumb_base::time::Instant;
use plumb_stack::host::{HostEvent, IpHost};
use plumb_stack::service::{HostApplication, ServiceCounts, UdpService, UdpServices};
use plumb_stack::tcp::TcpOpenError;
use plumb_stack::tcp::congestion::CongestionChoice;
use plumb_stack::udp::{BindError, CopyPolicy, UdpOptions};
use plumb_wire::ethernet::MacAddr;
use plumb_wire::packet::Pool;

use super::WatchedApplication;
use super::http_server::FileDirectory;
use super::stream_services::{StreamServiceKind, StreamServices};
use crate::host::served_socket::StreamServiceCounts;

/// Kind of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// Returns datagrams in place.
    Mirror,
    /// Copies what it receives out and back, as a program with its own buffer does.
    Echo,
    /// Drops what it receives.
    Discard,
    /// Sends until the peer closes.
    Source,
    /// Files of a directory over HTTP.
    Http,
}

impl ServiceKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Mirror, Self::Echo, Self::Discard, Self::Source, Self::Http];

    /// Name in options and output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mirror => "mirror",
            Self::Echo => "echo",
            Self::Discard => "discard",
            Self::Source => "source",
            Self::Http => "http",
        }
    }

    /// What it does over UDP.
    pub const fn udp(self) -> Option<UdpService> {
        match self {
            Self::Mirror => Some(UdpService::Mirror),
            Self::Echo => Some(UdpService::Echo(CopyPolicy::Fused)),
            Self::Discard => Some(UdpService::Discard),
            // Over UDP it would send to whoever is named as the sender.
            Self::Source | Self::Http => None,
        }
    }

    /// What it does over TCP.
    pub const fn tcp(self) -> Option<StreamServiceKind> {
        match self {
            Self::Mirror => None,
            Self::Echo => Some(StreamServiceKind::Echo),
            Self::Discard => Some(StreamServiceKind::Discard),
            Self::Source => Some(StreamServiceKind::Source),
            Self::Http => Some(StreamServiceKind::Http),
        }
    }

    /// Default port (RFC 862, RFC 863, RFC 864; the mirror's is arbitrary).
    pub const fn port(self) -> u16 {
        match self {
            Self::Mirror => 1_997,
            Self::Echo => 7,
            Self::Discard => 9,
            Self::Source => 19,
            Self::Http => 80,
        }
    }
}

/// A service at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Kind.
    pub kind: ServiceKind,
    /// UDP and TCP port.
    pub port: u16,
}

impl fmt::Display for ServicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name(), self.port)
    }
}

/// Why services were not opened.
#[derive(Debug, thiserror::Error)]
pub enum ServiceOpenError {
    /// A UDP socket.
    #[error(transparent)]
    Udp(#[from] BindError),
    /// A TCP listener.
    #[error(transparent)]
    Tcp(#[from] TcpOpenError),
}

/// The services of a host.
#[derive(Debug)]
pub struct OfferedServices {
    ports: Vec<ServicePort>,
    /// Two sockets per service, one of each family.
    services: UdpServices,
    streams: StreamServices,
    /// Messages for the user.
    pub notices: Vec<String>,
    /// Datagrams after which they are complete.
    pub count_max: Option<u64>,
}

impl OfferedServices {
    /// Opens a UDP socket and a TCP listener of each family for each service that has them; HTTP serves `files`.
    ///
    /// # Errors
    /// Two services at one port.
    pub fn open(
        host: &mut IpHost,
        offers: &[ServicePort],
        files: Option<FileDirectory>,
    ) -> Result<Self, ServiceOpenError> {
        Self::open_with(host, offers, files, CongestionChoice::default())
    }

    /// The same with this congestion control for what is sent over TCP.
    ///
    /// # Errors
    /// Two services at one port.
    pub fn open_with(
        host: &mut IpHost,
        offers: &[ServicePort],
        files: Option<FileDirectory>,
        congestion: CongestionChoice,
    ) -> Result<Self, ServiceOpenError> {
        let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
        let mut services = UdpServices::default();
        let mut streams = StreamServices::new(files, congestion);
        for offer in offers {
            let locals = any.map(|ip| SocketAddr::new(ip, offer.port));
            if let Some(service) = offer.kind.udp() {
                for local in locals {
                    services.open(host, service, local, UdpOptions::default())?;
                }
            }
            if let Some(kind) = offer.kind.tcp() {
                streams.open(host, kind, locals)?;
            }
        }
        let ports = offers.to_vec();
        Ok(Self { ports, services, streams, notices: Vec::new(), count_max: None })
    }

    /// The counts of each service over UDP.
    pub fn counts(&self) -> Vec<(ServicePort, ServiceCounts)> {
        let counts: Vec<ServiceCounts> = self.services.counts().collect();
        let sum = |families: &[ServiceCounts]| {
            families.iter().fold(ServiceCounts::default(), |mut sum, &counts| {
                sum += counts;
                sum
            })
        };
        let ports = self.ports.iter().copied().filter(|offer| offer.kind.udp().is_some());
        ports.zip(counts.chunks(2).map(sum)).collect()
    }

    /// The counts of each service over TCP.
    pub fn stream_counts(&self) -> Vec<(ServicePort, StreamServiceCounts)> {
        let ports = self.ports.iter().copied().filter(|offer| offer.kind.tcp().is_some());
        ports.zip(self.streams.counts()).collect()
    }

    /// Datagrams received by all services.
    pub fn received(&self) -> u64 {
        self.services.counts().map(|served| served.received).sum()
    }

    /// Connections accepted by all services.
    pub fn accepted(&self) -> u64 {
        self.streams.counts().map(|served| served.connections).sum()
    }
}

impl HostApplication for OfferedServices {
    #[inline]
    fn handle(&mut self, now: Instant, host: &mut IpHost, pool: &mut Pool) {
        self.services.handle(now, host, pool);
        self.streams.handle(now, host);
        while let Some(event) = host.poll_event() {
            if let HostEvent::AddressConflict { address, mac, .. } = event {
                self.notices.push(address_conflict(address, mac));
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.streams.deadline()
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
