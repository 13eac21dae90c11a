//! IP of both families: how a received packet is validated (RFC 791, RFC 1122 §3.2.1, RFC 8200), what is known about it, why one is
//! rejected, and how one is sent.
//!
//! Options of IPv4 are parsed but not acted upon; source routes are refused. IPsec is not implemented: its headers count as
//! unknown.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use plumb_wire::icmp::parameter_problem;
use plumb_wire::ip::{Ecn, Fragment, IpProtocol, TrafficClass};
use plumb_wire::ipv6::extension::{Ipv6Extension, Ipv6Options, UnknownOptionAction};
use plumb_wire::machine::PortId;
use plumb_wire::malformed::FormatError;
use plumb_wire::packet::{ChecksumState, Packet, PacketMeta, Pool};
use plumb_wire::{ipv4, ipv6, option};

use crate::counters::{CounterId, ProtocolLayer};
use crate::interface::{DestinationKind, HostInterface, is_martian_v4, is_martian_v6};

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
        accept_ipv6(interface, port, bytes, origin)
    } else {
        accept_ipv4(interface, port, bytes, origin)
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

/// Offset of the protocol field.
const PROTOCOL_AT: u16 = 9;

#[inline]
fn accept_ipv4(
    interface: &HostInterface,
    port: PortId,
    bytes: &[u8],
    origin: FrameOrigin,
) -> Result<IpIngress, Rejection> {
    let malformed = |error| Rejection::Malformed(ProtocolLayer::Ipv4, error);
    let ip =
        ipv4::Ipv4Packet::parse(bytes).and_then(ipv4::Ipv4Packet::verify).map_err(malformed)?;
    let (source, destination) = (ip.source(), ip.destination());
    if !interface.accepts_source_v4(source) {
        return Err(Rejection::Drop(CounterId::RxMartianSource));
    }
    let kind = interface.classify_destination_v4(destination);
    let group = accept_destination(kind, || is_martian_v4(destination), origin.group)?;
    let header_len = ip.header_len();
    let fragment = ip.fragment_field();
    let at = origin.at + header_len;
    let ingress = IpIngress {
        port,
        source: IpAddr::V4(source),
        destination: IpAddr::V4(destination),
        protocol: ip.protocol(),
        protocol_at: PROTOCOL_AT,
        header_len: u16::try_from(header_len).expect("at most 60"),
        at,
        end: at + ip.payload().len(),
        hop_limit: ip.hop_limit(),
        ecn: ip.traffic_class().ecn(),
        group,
        fragment: match (fragment.is_fragment(), fragment.offset()) {
            (true, 0) => FragmentKind::First,
            (true, _) => FragmentKind::Later,
            (false, _) if origin.reassembled => FragmentKind::Reassembled,
            (false, _) => FragmentKind::Whole,
        },
    };
    if header_len > ipv4::HEADER_LEN {
        check_options_v4(ip.options(), &ingress)?;
    }
    Ok(ingress)
}

#[cold]
fn check_options_v4(options: &[u8], ingress: &IpIngress) -> Result<(), Rejection> {
    let mut at = ipv4::HEADER_LEN;
    for item in option::items(options) {
        let Ok(item) = item else {
            let pointer = u32::try_from(at).expect("at most 60");
            let cause = IcmpErrorCause::Parameter(parameter_problem::FIELD, pointer);
            return Err(Rejection::Report(CounterId::RxIpOption, cause, *ingress));
        };
        // RFC 7126 §4.3, §4.4: dropped by default.
        if matches!(item[0], option::LOOSE_ROUTE | option::STRICT_ROUTE) {
            return Err(Rejection::Drop(CounterId::RxSourceRoute));
        }
        at += item.len();
    }
    Ok(())
}

/// Why an extension header is refused; a report needs the protocol behind the last header.
#[derive(Clone, Copy)]
enum ExtensionError {
    Malformed(FormatError),
    Drop(CounterId),
    Report(CounterId, IcmpErrorCause),
}

#[inline]
fn accept_ipv6(
    interface: &HostInterface,
    port: PortId,
    bytes: &[u8],
    origin: FrameOrigin,
) -> Result<IpIngress, Rejection> {
    let ip = ipv6::Ipv6Packet::parse(bytes)
        .map_err(|error| Rejection::Malformed(ProtocolLayer::Ipv6, error))?;
    let (source, destination) = (ip.source(), ip.destination());
    // A source is unspecified only in duplicate address detection (RFC 4291 §2.5.2): `icmp` checks it.
    let is_probe = source.is_unspecified() && ip.next_header() == IpProtocol::ICMPV6;
    if !interface.accepts_source_v6(source) && !is_probe {
        return Err(Rejection::Drop(CounterId::RxMartianSource));
    }
    let kind = interface.classify_destination_v6(destination);
    let group = accept_destination(kind, || is_martian_v6(destination), origin.group)?;
    let at = origin.at + ipv6::HEADER_LEN;
    let mut ingress = IpIngress {
        port,
        source: IpAddr::V6(source),
        destination: IpAddr::V6(destination),
        protocol: ip.next_header(),
        protocol_at: 6,
        header_len: 40,
        at,
        end: at + ip.payload().len(),
        hop_limit: ip.hop_limit(),
        ecn: ip.traffic_class().ecn(),
        group,
        fragment: if origin.reassembled { FragmentKind::Reassembled } else { FragmentKind::Whole },
    };
    if !matches!(ingress.protocol, IpProtocol::UDP | IpProtocol::ICMPV6) {
        walk_extensions(&ip, &mut ingress)?;
    }
    Ok(ingress)
}

/// Puts into `ingress` what is behind the extension headers.
///
/// Walks to the end even behind a header that is refused: whether that may be reported depends on the
/// protocol that the packet carries.
fn walk_extensions(ip: &ipv6::Ipv6Packet<'_>, ingress: &mut IpIngress) -> Result<(), Rejection> {
    let narrow = |at| u16::try_from(at).expect("inside of a packet");
    let mut extensions = ip.extensions();
    let (mut fragment, mut refused) = (None::<Fragment>, None);
    loop {
        let at = extensions.payload_at();
        let protocol_at = extensions.protocol_at();
        let Some(extension) = extensions.next() else { break };
        if let Ok(Ipv6Extension::Fragment(header)) = extension {
            fragment = Some(header);
        }
        let checked = extension
            .map_err(ExtensionError::Malformed)
            .and_then(|it| check_extension(&it, at, protocol_at));
        refused = refused.or(checked.err());
    }
    let is_whole = fragment.is_none_or(|fragment| fragment.is_atomic());
    if extensions.protocol() == IpProtocol::HOP_BY_HOP && is_whole {
        let at = pointer(extensions.protocol_at());
        let cause = IcmpErrorCause::Parameter(parameter_problem::NEXT_HEADER, at);
        refused = refused.or(Some(ExtensionError::Report(CounterId::RxExtension, cause)));
    }
    ingress.protocol = extensions.protocol();
    ingress.protocol_at = narrow(extensions.protocol_at());
    ingress.at += extensions.payload_at() - ipv6::HEADER_LEN;
    ingress.header_len = narrow(extensions.payload_at());
    match fragment {
        None => {}
        Some(fragment) if fragment.offset > 0 => ingress.fragment = FragmentKind::Later,
        // RFC 6946: an atomic fragment is a whole datagram, whatever else has its identification.
        Some(fragment) if fragment.is_atomic() => ingress.fragment = FragmentKind::Reassembled,
        Some(_) => ingress.fragment = FragmentKind::First,
    }
    match refused {
        None => Ok(()),
        Some(ExtensionError::Malformed(error)) => {
            Err(Rejection::Malformed(ProtocolLayer::Ipv6, error))
        }
        Some(ExtensionError::Drop(counter)) => Err(Rejection::Drop(counter)),
        Some(ExtensionError::Report(counter, cause)) => {
            Err(Rejection::Report(counter, cause, *ingress))
        }
    }
}

/// Checks an extension header at `at`, whose number stands at `protocol_at`.
fn check_extension(
    extension: &Ipv6Extension<'_>,
    at: usize,
    protocol_at: usize,
) -> Result<(), ExtensionError> {
    match *extension {
        Ipv6Extension::HopByHop(options) | Ipv6Extension::Destination(options) => {
            check_options_v6(options)
        }
        Ipv6Extension::Routing { segments_left: 0, .. } | Ipv6Extension::Fragment(_) => Ok(()),
        Ipv6Extension::Routing { .. } => {
            // RFC 8200 §4.4: unknown (and type 0 is, by RFC 5095): report the type's octet.
            let cause = IcmpErrorCause::Parameter(parameter_problem::FIELD, pointer(at + 2));
            Err(ExtensionError::Report(CounterId::RxSourceRoute, cause))
        }
        Ipv6Extension::Authentication(_) => {
            let code = parameter_problem::NEXT_HEADER;
            let cause = IcmpErrorCause::Parameter(code, pointer(protocol_at));
            Err(ExtensionError::Report(CounterId::RxExtension, cause))
        }
    }
}

/// RFC 8200 §4.2: unknown options are treated as the high bits of their types say.
fn check_options_v6(options: Ipv6Options<'_>) -> Result<(), ExtensionError> {
    for item in options.items() {
        let item = item.map_err(ExtensionError::Malformed)?;
        if item.is_padding() {
            continue;
        }
        let (code, at) = (parameter_problem::OPTION, pointer(item.at));
        let cause = match item.action() {
            UnknownOptionAction::Skip => continue,
            UnknownOptionAction::Drop => {
                return Err(ExtensionError::Drop(CounterId::RxUnknownOption));
            }
            UnknownOptionAction::Report => IcmpErrorCause::ParameterToGroups(code, at),
            UnknownOptionAction::ReportUnlessMulticast => IcmpErrorCause::Parameter(code, at),
        };
        return Err(ExtensionError::Report(CounterId::RxUnknownOption, cause));
    }
    Ok(())
}

fn pointer(at: usize) -> u32 {
    u32::try_from(at).expect("inside of a packet")
}
