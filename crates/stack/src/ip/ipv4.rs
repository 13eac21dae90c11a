//! Validates received IPv4 packets (RFC 791, RFC 1122 §3.2.1).
//!
//! Options are parsed but not acted upon; source routes are refused.

use std::net::{IpAddr, Ipv4Addr};

use plumb_wire::icmp::parameter_problem;
use plumb_wire::ipv4;
use plumb_wire::machine::PortId;
use plumb_wire::option;

use super::{FragmentKind, FrameOrigin, IcmpErrorCause, IpIngress, Rejection};
use crate::counters::{CounterId, ProtocolLayer};
use crate::interface::{DestinationKind, HostInterface, is_martian_v4};

/// Offset of the protocol field.
const PROTOCOL_AT: u16 = 9;

#[inline]
pub(super) fn accept(
    interface: &HostInterface,
    port: PortId,
    bytes: &[u8],
    origin: FrameOrigin,
) -> Result<IpIngress, Rejection> {
    let malformed = |error| Rejection::Malformed(ProtocolLayer::Ipv4, error);
    let ip =
        ipv4::Ipv4Packet::parse(bytes).and_then(ipv4::Ipv4Packet::verify).map_err(malformed)?;
    let (source, destination) = (ip.source(), ip.destination());
    let kind = accept_addresses(interface, source, destination, origin.group)?;
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
        group: origin.group || kind == DestinationKind::Group,
        fragment: match (fragment.is_fragment(), fragment.offset()) {
            (true, 0) => FragmentKind::First,
            (true, _) => FragmentKind::Later,
            (false, _) if origin.reassembled => FragmentKind::Reassembled,
            (false, _) => FragmentKind::Whole,
        },
    };
    if header_len > ipv4::HEADER_LEN {
        check_options(ip.options(), &ingress)?;
    }
    Ok(ingress)
}

/// Whether a packet between these addresses is accepted here, and which kind its destination is.
#[inline]
fn accept_addresses(
    interface: &HostInterface,
    source: Ipv4Addr,
    destination: Ipv4Addr,
    group: bool,
) -> Result<DestinationKind, Rejection> {
    if !interface.accepts_source_v4(source) {
        return Err(Rejection::Drop(CounterId::RxMartianSource));
    }
    match interface.classify_destination_v4(destination) {
        DestinationKind::Other if is_martian_v4(destination) => {
            Err(Rejection::Drop(CounterId::RxMartianDestination))
        }
        DestinationKind::Other => Err(Rejection::Drop(CounterId::RxNotForUs)),
        // RFC 1122 §3.3.6: a link broadcast must have an IP broadcast or multicast destination.
        DestinationKind::Own if group => Err(Rejection::Drop(CounterId::RxLinkBroadcast)),
        kind => Ok(kind),
    }
}

#[cold]
fn check_options(options: &[u8], ingress: &IpIngress) -> Result<(), Rejection> {
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

pub(super) fn ingress_of_fragment(
    bytes: &[u8],
    owner: impl Fn(IpAddr) -> Option<PortId>,
) -> Option<IpIngress> {
    let ip = ipv4::Ipv4Packet::parse_quoted(bytes).ok()?;
    let destination = IpAddr::V4(ip.destination());
    Some(IpIngress {
        port: owner(destination)?,
        source: IpAddr::V4(ip.source()),
        destination,
        protocol: ip.protocol(),
        protocol_at: PROTOCOL_AT,
        header_len: u16::try_from(ip.header_len()).ok()?,
        at: ip.header_len(),
        end: bytes.len(),
        hop_limit: ip.hop_limit(),
        ecn: ip.traffic_class().ecn(),
        group: false,
        fragment: FragmentKind::First,
    })
}
