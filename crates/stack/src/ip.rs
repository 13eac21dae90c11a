//! IP of both families: what is known of a packet that arrived, and what one that leaves needs.
//!
//! Left out: the transports above, and the links below.

use std::net::IpAddr;

use plumb_wire::ecn::Ecn;
use plumb_wire::machine::Port;
use plumb_wire::packet::{ChecksumState, Meta};
use plumb_wire::protocol::Protocol;
use plumb_wire::traffic_class::TrafficClass;

mod express;
mod fragments;
mod input;
mod output;
mod prediction;

pub use output::OutputError;
pub(crate) use output::port_of;
pub(crate) use prediction::Predictions;

/// How a packet came to IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    /// Where in the packet's data the IP header begins: nothing has been trimmed yet, because a
    /// packet that is changed and then handed on stalls the processor.
    pub at: usize,
    /// Its link sent it to a group of stations.
    pub group: bool,
    /// It was put together from fragments.
    pub reassembled: bool,
}

/// What IP knows of a packet for this host, whose headers it has checked.
///
/// The packet itself begins with its IP header and ends where that says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ingress {
    /// The interface that it came by.
    pub port: Port,
    /// Who sent it.
    pub source: IpAddr,
    /// Which address of this host, or which group, it is for.
    pub destination: IpAddr,
    /// What it carries.
    pub protocol: Protocol,
    /// Where the octet is that says so, from the packet's first.
    pub protocol_at: u16,
    /// Bytes of IP headers, options and extensions.
    pub header_len: u16,
    /// Routers that it might still have passed.
    pub hop_limit: u8,
    /// It was sent to a group of hosts, by its IP destination or its link's.
    pub group: bool,
    /// It came in fragments, or said so.
    pub fragmented: bool,
    /// It is a fragment and not the first: what it carries begins with no header.
    pub is_later: bool,
}

/// How a packet shall leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// What it carries.
    pub protocol: Protocol,
    /// Routers that it may pass.
    pub hop_limit: u8,
    /// How it is to be treated on its way.
    pub class: TrafficClass,
    /// Whether it may be cut when it is longer than the path allows.
    pub may_fragment: bool,
}

impl Egress {
    /// Of a packet of this protocol and congestion field: 64 hops, may be cut.
    pub fn new(protocol: Protocol, ecn: Ecn) -> Self {
        Self { protocol, hop_limit: 64, class: TrafficClass::from(ecn), may_fragment: true }
    }
}

/// Keeps what is known of a packet right when `len` bytes come to stand before it.
#[inline]
pub(crate) fn prepended(meta: &mut Meta, len: u16) {
    if let ChecksumState::Partial { start, .. } = &mut meta.checksum {
        *start += len;
    }
    if let Some(segments) = &mut meta.segments {
        segments.header_len += len;
    }
}
