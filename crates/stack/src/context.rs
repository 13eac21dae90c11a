//! What the components of a host share: timers, counters, events and random numbers, lent to each for one call.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use plumb_base::seed::RandomStream;
use plumb_base::time::Instant;
use plumb_wire::ethernet::MacAddr;
use plumb_wire::machine::PortId;
use plumb_wire::packet::{Packet, Pool};
use rand::Rng;

use crate::counters::{CounterId, HostCounters};
use crate::timers::TimerHeap;
use crate::udp::UdpId;

/// Something that the application may want to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEvent {
    /// The reply to an echo request.
    EchoReply {
        /// Who answered.
        remote: IpAddr,
        /// Of the request.
        identifier: u16,
        /// Of the request.
        sequence: u16,
        /// Time to live, or hop limit, that the reply arrived with.
        hop_limit: u8,
        /// Bytes of data.
        len: usize,
        /// When the request was made.
        sent: Instant,
        /// When the device received the reply.
        received: Instant,
    },
    /// An ICMP error about a packet that this host sent.
    DeliveryFailed(DeliveryFailure),
    /// A neighbor did not answer; what was queued for it was dropped.
    NeighborFailed {
        /// On which interface.
        port: PortId,
        /// Which address.
        address: IpAddr,
    },
    /// Another station claims an address of this host.
    AddressConflict {
        /// On which interface.
        port: PortId,
        /// Which address.
        address: IpAddr,
        /// The other station.
        mac: MacAddr,
    },
}

/// An accepted ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeliveryFailure {
    /// What happened.
    pub kind: DeliveryFailureKind,
    /// Who reported it.
    pub reporter: IpAddr,
    /// Source of the packet; port 0 where the protocol has none.
    pub local: SocketAddr,
    /// Its destination.
    pub remote: SocketAddr,
    /// The connected socket that sent it.
    pub udp: Option<UdpId>,
}

/// What happened to a packet that this host sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryFailureKind {
    /// No route to the network.
    Network,
    /// The host is unreachable.
    Host,
    /// The host does not implement the protocol.
    Protocol,
    /// Nothing listens on the port.
    Port,
    /// Administratively prohibited.
    Prohibited,
    /// Longer than a link of this MTU takes.
    TooBig(u32),
    /// Its hop limit was exceeded.
    HopLimit,
    /// Not all of its fragments arrived in time.
    Reassembly,
    /// The header field at this octet is invalid.
    Parameter(u32),
    /// Anything else: type and code.
    Other(u8, u8),
}

/// Whose timer expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimerOwner {
    /// Index of an entry of the neighbor cache.
    Neighbor(u32),
    Reassembly,
    /// Index of a TCP connection.
    Tcp(u32),
    /// SYN-ACKs that are to be sent again.
    TcpHalfOpen,
    /// Records in TIME-WAIT.
    TcpTimeWait,
    /// Connections that found no free frame.
    TcpOutput,
}

/// The state that all components of a host share.
#[derive(Debug)]
pub(crate) struct HostCore {
    /// The time that the host was given last.
    pub(crate) now: Instant,
    pub(crate) timers: TimerHeap<TimerOwner>,
    pub(crate) counters: HostCounters,
    pub(crate) events: VecDeque<HostEvent>,
    events_max: usize,
    random: RandomStream,
    identification: u16,
}

impl HostCore {
    pub fn new(events_max: usize, mut random: RandomStream) -> Self {
        Self {
            now: Instant::ORIGIN,
            timers: TimerHeap::default(),
            counters: HostCounters::default(),
            events: VecDeque::new(),
            events_max,
            identification: u16::try_from(random.next_u32() >> 16).expect("16 bits"),
            random,
        }
    }

    /// The state, the time and the memory that a component works with during one call.
    #[inline]
    pub fn context<'a>(&'a mut self, pool: &'a mut Pool) -> HostContext<'a> {
        HostContext { now: self.now, pool, core: self }
    }

    pub fn push_event(&mut self, event: HostEvent) {
        if self.events.len() < self.events_max {
            self.events.push_back(event);
        } else {
            self.counters.add(CounterId::EventsLost);
        }
    }

    /// The identification of an IPv4 datagram that may be fragmented (RFC 6864 §4.3): in sequence from a
    /// random start, so that it repeats as late as possible.
    pub fn next_identification(&mut self) -> u16 {
        self.identification = self.identification.wrapping_add(1);
        self.identification
    }

    /// The same for IPv6, unpredictable (RFC 7739 §5.3).
    pub fn random_identification(&mut self) -> u32 {
        self.random.next_u32()
    }
}

/// Lent to a component for one call.
#[derive(Debug)]
pub(crate) struct HostContext<'a> {
    pub(crate) now: Instant,
    pub(crate) pool: &'a mut Pool,
    pub(crate) core: &'a mut HostCore,
}

impl HostContext<'_> {
    #[inline]
    pub fn count(&mut self, counter: CounterId) {
        self.core.counters.add(counter);
    }

    /// Counts a packet and frees it.
    #[cold]
    pub fn drop_packet(&mut self, counter: CounterId, packet: Packet) {
        self.count(counter);
        self.pool.free(packet);
    }
}
