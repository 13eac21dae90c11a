//! A host: interfaces, routes, neighbours, sockets, and the packets that pass between them.
//!
//! Sans-IO and batched: packets and the time go in through [`plumb_wire::machine::Machine`],
//! packets and the next deadline come out; what the application should know waits in
//! [`Host::poll_event`] and in the sockets. Left out: the protocols themselves, forwarding, address
//! configuration from the net, and loopback.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plumb_base::seed::{Seed, Stream};
use plumb_base::time::{Instant, Span};
use plumb_wire::mac::MacAddr;
use plumb_wire::machine::Port;
use rand::Rng;

use crate::counters::{Count, Counters};
use crate::icmp::{Failure, Pings};
use crate::interface::{Interface, InterfaceConfig, InterfaceError};
use crate::ip::{Predictions, port_of};
use crate::limiter::TokenBucket;
use crate::neighbour::{self, NeighbourId, Neighbours};
use crate::path::Paths;
use crate::path_mtu::PathMtus;
use crate::reassembly::{Reassembly, ReassemblyConfig};
use crate::route::{Prefix, Route, Routes};
use crate::timers::{TimerId, Timers};
use crate::udp::UdpTable;

mod machine;
mod socket;

pub use socket::SendError;

/// Bounds and rates of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Bounds of the neighbour cache.
    pub neighbours: neighbour::Limits,
    /// Bounds of reassembly.
    pub reassembly: ReassemblyConfig,
    /// Path MTUs remembered.
    pub path_mtus: usize,
    /// Frames that wait for one device; the newest is dropped beyond it.
    pub output_queue: usize,
    /// ICMP errors a second.
    pub icmp_errors: u32,
    /// ICMP errors at once.
    pub icmp_error_burst: u32,
    /// Events that wait to be collected; the newest is lost beyond it.
    pub events: usize,
}

impl Default for HostConfig {
    /// 256 paths, 4,096 frames an interface, 1,000 ICMP errors a second and 50 at once (Linux's
    /// `icmp_msgs_per_sec` and `icmp_msgs_burst`), 1,024 events.
    fn default() -> Self {
        Self {
            neighbours: neighbour::Limits::default(),
            reassembly: ReassemblyConfig::default(),
            path_mtus: 256,
            output_queue: 4_096,
            icmp_errors: 1_000,
            icmp_error_burst: 50,
            events: 1_024,
        }
    }
}

/// Something that the application may want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The reply to an echo request.
    EchoReply {
        /// Who answered.
        remote: IpAddr,
        /// Of the request.
        identifier: u16,
        /// Of the request.
        sequence: u16,
        /// Routers that the reply might still have passed.
        hop_limit: u8,
        /// Bytes of data.
        len: usize,
        /// When the request was made.
        sent: Instant,
        /// When the device received the reply.
        received: Instant,
    },
    /// An ICMP error about a packet that this host sent.
    Failure(Failure),
    /// A neighbour did not answer; what waited for it was dropped.
    NeighbourFailed {
        /// On which interface.
        port: Port,
        /// Which address.
        address: IpAddr,
    },
    /// Another station claims an address of this host.
    AddressConflict {
        /// On which interface.
        port: Port,
        /// Which address.
        address: IpAddr,
        /// Who.
        mac: MacAddr,
    },
}

/// Whose timer goes off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Neighbour(NeighbourId),
    Reassembly,
}

/// A host.
#[derive(Debug)]
pub struct Host {
    pub(crate) config: HostConfig,
    pub(crate) interfaces: Vec<Interface>,
    pub(crate) routes: Routes,
    pub(crate) neighbours: Neighbours,
    pub(crate) paths: Paths,
    pub(crate) path_mtus: PathMtus,
    pub(crate) predictions: Predictions,
    pub(crate) reassembly: Reassembly,
    pub(crate) udp: UdpTable,
    pub(crate) pings: Pings,
    pub(crate) error_bucket: TokenBucket,
    pub(crate) timers: Timers<Owner>,
    pub(crate) reassembly_timer: TimerId,
    pub(crate) counters: Counters,
    events: VecDeque<Event>,
    random: Stream,
    identification: u16,
    changes: u64,
}

impl Host {
    /// A host without interfaces; every secret and every random choice comes from the seed.
    pub fn new(config: HostConfig, seed: Seed) -> Self {
        let mut random = seed.stream("host");
        // RFC 4861 §6.3.2: uniform between 0.5 and 1.5 times 30 s.
        let reachable = Span::from_ms(15_000 + u64::from(random.next_u32()) % 30_001);
        let mut timers = Timers::default();
        let reassembly_timer = timers.create(Owner::Reassembly);
        Self {
            config,
            interfaces: Vec::new(),
            routes: Routes::default(),
            neighbours: Neighbours::new(config.neighbours, reachable),
            paths: Paths::new(seed),
            path_mtus: PathMtus::new(config.path_mtus),
            predictions: Predictions::default(),
            reassembly: Reassembly::new(config.reassembly, seed),
            udp: UdpTable::new(seed),
            pings: Pings::default(),
            error_bucket: TokenBucket::new(config.icmp_errors, config.icmp_error_burst),
            timers,
            reassembly_timer,
            counters: Counters::default(),
            events: VecDeque::new(),
            identification: u16::try_from(random.next_u32() >> 16).expect("16 bits"),
            random,
            changes: 0,
        }
    }

    /// Adds an interface, and a route for the network of each of its addresses.
    ///
    /// # Errors
    /// [`InterfaceError`]: nothing was changed.
    pub fn add_interface(&mut self, config: &InterfaceConfig) -> Result<Port, InterfaceError> {
        let interface = Interface::new(config)?;
        for address in &interface.addresses {
            if self.interfaces.iter().any(|other| other.owns(address.ip)) {
                return Err(InterfaceError::Twice(address.ip));
            }
        }
        if self.interfaces.len() >= usize::from(u16::MAX) {
            return Err(InterfaceError::TooMany);
        }
        let port = port_of(self.interfaces.len());
        for address in &interface.addresses {
            let known = self.routes.iter().any(|route| route.prefix == address.prefix);
            if !known {
                self.routes.insert(Route { prefix: address.prefix, port, gateway: None });
            }
        }
        self.interfaces.push(interface);
        self.changes += 1;
        Ok(port)
    }

    /// Adds a route; one for the same prefix is replaced.
    pub fn add_route(&mut self, route: Route) {
        self.routes.insert(route);
        self.changes += 1;
    }

    /// Removes the route for a prefix; whether there was one.
    pub fn remove_route(&mut self, prefix: Prefix) -> bool {
        self.changes += 1;
        self.routes.remove(prefix).is_some()
    }

    /// Its interfaces, by their ports.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Its routes.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Its neighbours.
    pub fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// What was counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Packets made here that have not left yet.
    pub fn queued(&self) -> usize {
        let frames: usize = self.interfaces.iter().map(|interface| interface.queue.len()).sum();
        frames + self.neighbours.queued()
    }

    /// The next thing that the application may want to know.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub(crate) fn push_event(&mut self, event: Event) {
        if self.events.len() < self.config.events {
            self.events.push_back(event);
        } else {
            self.counters.add(Count::EventsLost);
        }
    }

    /// Changes whenever a path that was found may no longer be right.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        // Each only grows, so the sum stays the same only when all do.
        self.changes + self.neighbours.generation() + self.path_mtus.generation()
    }

    /// Changes whenever a frame may be received otherwise than one like it before.
    #[inline]
    pub(crate) fn reception(&self) -> u64 {
        self.changes + self.udp.generation()
    }

    /// An identification for a datagram that may be cut on its way (RFC 6864 §4.3): in sequence from
    /// a random start, so that it repeats as late as it can.
    pub(crate) fn next_identification(&mut self) -> u16 {
        self.identification = self.identification.wrapping_add(1);
        self.identification
    }

    /// The same for IPv6, unpredictable (RFC 7739 §5.3).
    pub(crate) fn random_identification(&mut self) -> u32 {
        self.random.next_u32()
    }
}

/// The unspecified address of a family.
#[inline]
pub(crate) const fn unspecified_like(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    }
}

#[cfg(test)]
pub(crate) mod tests;
