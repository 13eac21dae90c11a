//! IP of both families: what is known of a received packet, why one is rejected, and how one is sent.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plumb_wire::ip::{Ecn, IpProtocol, TrafficClass};
use plumb_wire::machine::PortId;
use plumb_wire::malformed::FormatError;
use plumb_wire::packet::{ChecksumState, Packet, PacketMeta, Pool};

use crate::counters::{CounterId, ProtocolLayer};
use crate::interface::{DestinationKind, HostInterface};

mod ipv4;
mod ipv6;

/// How a packet came to IP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FrameOrigin {
    /// Where the IP header begins in the packet's data. Nothing is trimmed before delivery: a packet that is
    /// changed and then moved causes a store-forwarding stall.
    pub at: usize,
    /// What the link says it is; else IPv4.
    pub is_ipv6: bool,
    /// Sent to a group of stations.
    pub group: bool,
    /// Reassembled from fragments.
    pub reassembled: bool,
}

/// Whether a packet is a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentKind {
    /// Neither a fragment nor made of some.
    Whole,
    /// Reassembled, or an atomic fragment (RFC 6946).
    Reassembled,
    /// The first fragment: its payload begins with a transport header.
    First,
    /// A later fragment.
    Later,
}

/// A packet for this host whose IP headers were validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpIngress {
    /// The interface that it was received on.
    pub port: PortId,
    /// Its source.
    pub source: IpAddr,
    /// The address of this host, or the group, that it is for.
    pub destination: IpAddr,
    /// What it carries.
    pub protocol: IpProtocol,
    /// Offset of the octet that says so, from the first of the IP header.
    pub protocol_at: u16,
    /// Bytes of IP header, options and extension headers.
    pub header_len: u16,
    /// Where its payload begins in the packet's data.
    pub at: usize,
    /// Where its payload ends there.
    pub end: usize,
    /// Its time to live, or hop limit.
    pub hop_limit: u8,
    /// Its congestion notification.
    pub ecn: Ecn,
    /// Sent to a group of hosts, by its IP destination or its link's.
    pub group: bool,
    /// Whether it is a fragment.
    pub fragment: FragmentKind,
}

impl IpIngress {
    /// Whether it needs reassembly.
    #[inline]
    pub(crate) fn is_fragment(&self) -> bool {
        matches!(self.fragment, FragmentKind::First | FragmentKind::Later)
    }

    /// The address to answer from; unspecified where the packet was sent to a group.
    pub(crate) fn reply_source(&self) -> IpAddr {
        if self.group { unspecified_like(self.source) } else { self.destination }
    }

    /// Cuts the packet to the bytes from its IP header to the end of its payload.
    pub(crate) fn trim(&mut self, packet: &mut Packet, pool: &mut Pool) {
        let header_len = usize::from(self.header_len);
        let ip_at = self.at - header_len;
        pool.truncate(packet, self.end);
        pool.trim_front(packet, ip_at);
        packet.meta.ecn = self.ecn;
        self.at = header_len;
        self.end -= ip_at;
    }
}

/// What is wrong with a received packet, as ICMP reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IcmpErrorCause {
    /// Nothing listens on its port.
    Port,
    /// Its protocol is not implemented.
    Protocol,
    /// A parameter problem: code, of IPv4 always 0, and the octet.
    Parameter(u8, u32),
    /// The same, reported even of packets to groups.
    ParameterToGroups(u8, u32),
    /// Not all of its fragments arrived in time.
    Reassembly,
}

/// Why a packet is dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Rejection {
    Malformed(ProtocolLayer, FormatError),
    Drop(CounterId),
    /// Also reported to the sender, where RFC 1122 and RFC 4443 allow.
    Report(CounterId, IcmpErrorCause, IpIngress),
}

/// Validates the IP headers of a packet that came by `interface`.
///
/// # Errors
/// Why it is dropped.
#[inline]
pub(crate) fn accept(
    interface: &HostInterface,
    port: PortId,
    bytes: &[u8],
    origin: FrameOrigin,
) -> Result<IpIngress, Rejection> {
    if origin.is_ipv6 {
        ipv6::accept(interface, port, bytes, origin)
    } else {
        ipv4::accept(interface, port, bytes, origin)
    }
}

/// Whether a packet for an accepted destination of this kind is for a group; `to_group` says that its link
/// sent it to one.
///
/// # Errors
/// Why it is dropped.
#[inline]
fn accept_destination(
    kind: DestinationKind,
    is_martian: impl FnOnce() -> bool,
    to_group: bool,
) -> Result<bool, Rejection> {
    match kind {
        DestinationKind::Other if is_martian() => {
            Err(Rejection::Drop(CounterId::RxMartianDestination))
        }
        DestinationKind::Other => Err(Rejection::Drop(CounterId::RxNotForUs)),
        // RFC 1122 §3.3.6: a link broadcast must have an IP broadcast or multicast destination.
        DestinationKind::Own if to_group => Err(Rejection::Drop(CounterId::RxLinkBroadcast)),
        DestinationKind::Own => Ok(false),
        DestinationKind::Group => Ok(true),
    }
}

/// How to send a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpEgress {
    /// What it carries.
    pub protocol: IpProtocol,
    /// Its time to live, or hop limit.
    pub hop_limit: u8,
    /// Its traffic class.
    pub class: TrafficClass,
    /// Whether it may be fragmented when it is longer than the path allows.
    pub may_fragment: bool,
}

impl IpEgress {
    /// 64 hops, may be fragmented.
    pub fn new(protocol: IpProtocol, ecn: Ecn) -> Self {
        Self { protocol, hop_limit: 64, class: TrafficClass::from(ecn), may_fragment: true }
    }
}

/// Moves the offsets in a packet's metadata when `len` bytes are prepended.
#[inline]
pub(crate) fn shift_offsets(meta: &mut PacketMeta, len: u16) {
    if let ChecksumState::Partial { start, .. } = &mut meta.checksum {
        *start += len;
    }
    if let Some(segments) = &mut meta.segments {
        segments.header_len += len;
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
