//! A host composed of interfaces, routing, neighbors, reassembly, ICMP, UDP and TCP.
//!
//! Sans-IO and batched: packets and the time go in through [`plumb_wire::machine::Machine`],
//! packets and the next deadline come out. No component knows the host: each gets what it needs by
//! argument and returns what is to be sent. `receive` and `send` are the two paths between
//! them. Forwarding, address autoconfiguration and loopback are not implemented.

use std::collections::VecDeque;
use std::net::IpAddr;

use plumb_base::seed::Seed;
use plumb_base::time::{Instant, Span};
use plumb_wire::machine::{Machine, PortId};
use plumb_wire::packet::{Batch, Packet, Pool};
use rand::Rng;

use crate::context::{HostCore, TimerOwner};
use crate::counters::{CounterId, HostCounters};
use crate::icmp::{self, Icmp};
use crate::interface::{HostInterface, InterfaceConfig, InterfaceError, Interfaces};
use crate::ip::unspecified_like;
use crate::neighbor::{NeighborCache, NeighborLimits};
use crate::prediction::HeaderPredictions;
use crate::reassembly::{Reassembly, ReassemblyConfig};
use crate::route::{Route, RouteTable};
use crate::routing::{OutputPath, PathError, Routing};
use crate::tcp::{TcpLimits, TcpTable};
use crate::timers::TimerId;
use crate::udp::UdpTable;

pub(crate) mod payload_tail;
mod receive;
mod segment_run;
mod segments;
mod send;
mod tcp;
mod udp;

pub use crate::context::{DeliveryFailure, DeliveryFailureKind, HostEvent};
pub use udp::HostSendError;

use payload_tail::PayloadTails;

/// Bounds and rates of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// Bounds of the neighbor cache.
    pub neighbors: NeighborLimits,
    /// Bounds of reassembly.
    pub reassembly: ReassemblyConfig,
    /// Path MTUs remembered.
    pub path_mtus: usize,
    /// Frames queued for one device; the newest is dropped beyond it.
    pub output_queue: usize,
    /// ICMP errors a second.
    pub icmp_errors: u32,
    /// ICMP errors at once.
    pub icmp_error_burst: u32,
    /// Events that wait to be collected; the newest is lost beyond it.
    pub events: usize,
    /// Bounds of TCP.
    pub tcp: TcpLimits,
}

impl Default for HostConfig {
    /// 256 paths, 4,096 frames an interface, 1,000 ICMP errors a second and 50 at once (Linux's
    /// `icmp_msgs_per_sec` and `icmp_msgs_burst`), 1,024 events.
    fn default() -> Self {
        Self {
            neighbors: NeighborLimits::default(),
            reassembly: ReassemblyConfig::default(),
            path_mtus: 256,
            output_queue: 4_096,
            icmp_errors: 1_000,
            icmp_error_burst: 50,
            events: 1_024,
            tcp: TcpLimits::default(),
        }
    }
}

/// A host.
#[derive(Debug)]
pub struct IpHost {
    config: HostConfig,
    interfaces: Interfaces,
    routing: Routing,
    neighbors: NeighborCache,
    reassembly: Reassembly,
    reassembly_timer: TimerId,
    icmp: Icmp,
    udp: UdpTable,
    tcp: TcpTable,
    output_timer: TimerId,
    tails: PayloadTails,
    predictions: HeaderPredictions,
    core: HostCore,
}

impl IpHost {
    /// A host without interfaces; every secret and every random choice comes from the seed.
    pub fn new(config: HostConfig, seed: Seed) -> Self {
        let mut random = seed.stream("host");
        // RFC 4861 §6.3.2: uniform between 0.5 and 1.5 times 30 s.
        let reachable = Span::from_ms(15_000 + u64::from(random.next_u32()) % 30_001);
        let mut core = HostCore::new(config.events, random);
        Self {
            config,
            interfaces: Interfaces::default(),
            routing: Routing::new(config.path_mtus, seed),
            neighbors: NeighborCache::new(config.neighbors, reachable),
            reassembly: Reassembly::new(config.reassembly),
            reassembly_timer: core.timers.create(TimerOwner::Reassembly),
            icmp: Icmp::new(config.icmp_errors, config.icmp_error_burst),
            udp: UdpTable::new(seed),
            tcp: TcpTable::new(config.tcp, seed, &mut core),
            output_timer: core.timers.create(TimerOwner::TcpOutput),
            tails: PayloadTails::default(),
            predictions: HeaderPredictions::default(),
            core,
        }
    }

    /// Adds an interface, and a route for the network of each of its addresses.
    ///
    /// # Errors
    /// [`InterfaceError`]: nothing was changed.
    pub fn add_interface(&mut self, config: &InterfaceConfig) -> Result<PortId, InterfaceError> {
        let port = self.interfaces.add(HostInterface::new(config)?)?;
        self.routing.add_interface(port, &self.interfaces[port]);
        Ok(port)
    }

    /// Adds a route; one for the same prefix is replaced.
    pub fn add_route(&mut self, route: Route) {
        self.routing.add_route(route);
    }

    /// Its interfaces, by their ports.
    pub fn interfaces(&self) -> &[HostInterface] {
        self.interfaces.as_slice()
    }

    /// Its routes.
    pub fn routes(&self) -> &RouteTable {
        self.routing.routes()
    }

    /// Its neighbors.
    pub fn neighbors(&self) -> &NeighborCache {
        &self.neighbors
    }

    /// Its counters.
    pub fn counters(&self) -> &HostCounters {
        &self.core.counters
    }

    /// Packets of this host that were not sent yet.
    pub fn queued(&self) -> usize {
        let frames: usize = self.interfaces().iter().map(|interface| interface.queue.len()).sum();
        frames + self.neighbors.queued()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<HostEvent> {
        self.core.events.pop_front()
    }

    /// The path from an address of this host, or from a suitable one where `local` is unspecified.
    ///
    /// # Errors
    /// [`PathError`] where there is none.
    #[inline]
    pub fn path(
        &mut self,
        now: Instant,
        local: IpAddr,
        remote: IpAddr,
    ) -> Result<OutputPath, PathError> {
        self.core.now = now;
        self.current_path(local, remote)
    }

    #[inline]
    fn current_path(&mut self, local: IpAddr, remote: IpAddr) -> Result<OutputPath, PathError> {
        let neighbors = self.neighbors.generation();
        self.routing.path(self.core.now, &self.interfaces, neighbors, local, remote)
    }

    /// Sends an echo request; a reply becomes a [`HostEvent::EchoReply`].
    ///
    /// # Errors
    /// [`HostSendError`].
    pub fn ping(
        &mut self,
        now: Instant,
        remote: IpAddr,
        (identifier, sequence): (u16, u16),
        data: &[u8],
        pool: &mut Pool,
    ) -> Result<(), HostSendError> {
        let path = self.path(now, unspecified_like(remote), remote)?;
        let (packet, egress) =
            icmp::echo_request(path.source, remote, (identifier, sequence), data, pool)
                .ok_or(HostSendError::NoMemory(data.len()))?;
        self.send_on_path(&path, remote, egress, packet, pool)?;
        self.icmp.on_request_sent(now, (remote, identifier, sequence));
        Ok(())
    }

    /// Changes whenever a frame may be received otherwise than one like it before.
    #[inline]
    fn receive_generation(&self) -> u64 {
        self.routing.changes() + self.udp.generation()
    }

    /// Counts a packet and frees it.
    #[cold]
    fn drop_packet(&mut self, counter: CounterId, packet: Packet, pool: &mut Pool) {
        self.core.counters.add(counter);
        pool.free(packet);
    }
}

impl Machine for IpHost {
    fn handle_packets(&mut self, now: Instant, port: PortId, batch: &mut Batch, pool: &mut Pool) {
        self.core.now = now;
        self.core.counters.add_many(CounterId::Received, batch.len());
        let mut packets = batch.drain(..);
        while let Some(packet) = packets.next() {
            // Headers were written by a device, or by another processor: they come while this packet is handled.
            if let Some(next) = packets.as_slice().first() {
                plumb_copy::prefetch::<2>(pool.bytes(next));
            }
            if let Err(packet) = self.receive_predicted(port, packet, pool) {
                self.receive_frame(port, packet, pool);
            }
        }
        drop(packets);
        self.tcp.settle_run(&mut self.core);
    }

    fn poll_packets(
        &mut self,
        now: Instant,
        port: PortId,
        batch: &mut Batch,
        max: usize,
        pool: &mut Pool,
    ) {
        if self.interfaces.get(port).is_none() {
            return;
        }
        self.core.now = now;
        self.tails.clear();
        self.poll_connections(port, max, pool);
        let Some(interface) = self.interfaces.interface_mut(port) else { return };
        let count = interface.queue.len().min(max);
        if batch.is_empty() && count == interface.queue.len() {
            // All of them, without a copy of each.
            let emptied = VecDeque::from(std::mem::take(batch));
            *batch = Vec::from(std::mem::replace(&mut interface.queue, emptied));
        } else {
            batch.extend(interface.queue.drain(..count));
        }
        self.core.counters.add_many(CounterId::Sent, count);
    }

    #[inline]
    fn tail(&self, packet: &Packet) -> [&[u8]; 2] {
        self.tails.get(packet).map_or([&[], &[]], |tail| self.tcp.payload(tail))
    }

    #[inline]
    fn deadline(&self) -> Option<Instant> {
        let next = self.core.timers.next();
        debug_assert!(
            next.is_some() || (self.neighbors.queued() == 0 && self.reassembly.is_empty()),
            "what waits has a timer"
        );
        next
    }

    fn handle_deadline(&mut self, now: Instant, pool: &mut Pool) {
        self.core.now = now;
        while let Some(owner) = self.core.timers.pop_due(now) {
            match owner {
                TimerOwner::Reassembly => self.expire_fragments(pool),
                TimerOwner::Tcp(index) => self.tcp.handle_timer(&mut self.core, index),
                TimerOwner::TcpHalfOpen => self.repeat_syn_acks(pool),
                TimerOwner::TcpTimeWait => self.tcp.expire_time_wait(&mut self.core),
                // The driver polls the host for packets next.
                TimerOwner::TcpOutput => {}
                TimerOwner::Neighbor(id) => {
                    let mut cx = self.core.context(pool);
                    let frame = self.neighbors.handle_timer(&mut cx, &self.interfaces, id);
                    if let Some((port, frame)) = frame {
                        self.send_control(port, &frame, pool);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
