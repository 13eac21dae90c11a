//! Validates received IPv6 packets (RFC 8200) and their extension headers.
//!
//! IPsec is not implemented: its headers count as unknown.

use std::net::IpAddr;

use plumb_wire::icmp::parameter_problem;
use plumb_wire::ip::{Fragment, IpProtocol};
use plumb_wire::ipv6;
use plumb_wire::ipv6::extension::{Ipv6Extension, Ipv6Options, UnknownOptionAction};
use plumb_wire::machine::PortId;
use plumb_wire::malformed::FormatError;

use super::{FragmentKind, FrameOrigin, IcmpErrorCause, IpIngress, Rejection, accept_destination};
use crate::counters::{CounterId, ProtocolLayer};
use crate::interface::{HostInterface, is_martian_v6};

/// Why an extension header is refused; a report needs the protocol behind the last header.
#[derive(Clone, Copy)]
enum ExtensionError {
    Malformed(FormatError),
    Drop(CounterId),
    Report(CounterId, IcmpErrorCause),
}

#[inline]
pub(super) fn accept(
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
            check_options(options)
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
fn check_options(options: Ipv6Options<'_>) -> Result<(), ExtensionError> {
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
