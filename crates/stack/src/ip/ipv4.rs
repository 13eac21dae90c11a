//! Validates received IPv4 packets (RFC 791, RFC 1122 §3.2.1).
//!
//! Options are parsed but not acted upon; source routes are refused.

use std::net::IpAddr;

use plumb_wire::icmp::parameter_problem;
use plumb_wire::ipv4;
use plumb_wire::machine::PortId;
use plumb_wire::option;

use super::{FragmentKind, FrameOrigin, IcmpErrorCause, IpIngress, Rejection, accept_destination};
use crate::counters::{CounterId, ProtocolLayer};
use crate::interface::{HostInterface, is_martian_v4};

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
        check_options(ip.options(), &ingress)?;
    }
    Ok(ingress)
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
