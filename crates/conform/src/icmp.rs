//! ICMP errors that a script injects: names of types and codes, and the segment that is quoted.

use plumb_wire::compose::PacketTemplate;
use plumb_wire::icmp::IcmpMessage;
use plumb_wire::tcp::{TcpFlags, TcpHeader};

use crate::connection_map::ConnectionMap;
use crate::error::ScriptError;
use crate::script::IcmpSpec;

/// Codes of "destination unreachable" of ICMP for IPv4 (RFC 792, RFC 1122 §3.2.2.1, RFC 1812 §5.2.7.1).
const UNREACHABLE_V4: [&str; 16] = [
    "net_unreachable",
    "host_unreachable",
    "protocol_unreachable",
    "port_unreachable",
    "frag_needed",
    "source_route_failed",
    "net_unknown",
    "host_unknown",
    "source_host_isolated",
    "net_prohibited",
    "host_prohibited",
    "net_unreachable_for_tos",
    "host_unreachable_for_tos",
    "packet_filtered",
    "precedence_violation",
    "precedence_cutoff",
];

/// Codes of "destination unreachable" of ICMPv6 (RFC 4443 §3.1).
const UNREACHABLE_V6: [&str; 5] =
    ["no_route", "admin_prohibited", "not_neighbour", "address_unreachable", "port_unreachable"];

/// Codes of "time exceeded" of both.
const TIME_EXCEEDED: [&str; 2] = ["exceeded_in_transit", "exceeded_frag_time"];

/// Codes of "parameter problem" of ICMPv6 (RFC 4443 §3.4).
const PARAMETER_V6: [&str; 3] = ["header_field", "unknown_next_header", "unknown_option"];

/// The packet that the script injects.
///
/// # Errors
/// [`ScriptError::Unsupported`] for a type or a code that is unknown.
pub fn inbound(spec: &IcmpSpec, map: &ConnectionMap) -> Result<Vec<u8>, ScriptError> {
    let v6 = map.local.is_ipv6();
    let message = message(spec, v6).ok_or_else(|| {
        let code = spec.code.as_deref().unwrap_or_default();
        ScriptError::Unsupported { at: spec.at, what: format!("ICMP {} {code}", spec.kind) }
    })?;
    let (seq, len) = spec.quoted.unwrap_or((0, 0));
    let header = TcpHeader {
        source_port: map.local.port(),
        destination_port: map.remote.port(),
        seq: seq.wrapping_add(map.local_offset(false)),
        flags: TcpFlags::ACK,
        ..TcpHeader::default()
    };
    let quoted =
        PacketTemplate::new(map.local.ip(), map.remote.ip()).tcp(header, &vec![0; len.into()]);
    // As much as RFC 792 asks for would not have the flags: what routers quote today (RFC 1812 §4.3.2.3).
    let most = quoted.len().min(if v6 { 1_232 } else { 548 });
    let template = PacketTemplate::new(map.remote.ip(), map.local.ip());
    Ok(template.icmp(message, &quoted[..most]))
}

fn message(spec: &IcmpSpec, v6: bool) -> Option<IcmpMessage> {
    let code_of = |names: &[&str]| -> Option<u8> {
        let Some(code) = spec.code.as_deref() else { return Some(0) };
        let number = code.strip_prefix("code_").and_then(|number| number.parse().ok());
        let place = names.iter().position(|name| *name == code);
        number.or(place.and_then(|place| u8::try_from(place).ok()))
    };
    let mtu = spec.mtu.unwrap_or(0);
    Some(match (spec.kind.as_str(), v6) {
        ("unreachable", false) => match code_of(&UNREACHABLE_V4)? {
            4 => IcmpMessage::PacketTooBig { mtu },
            code => IcmpMessage::Unreachable { code },
        },
        ("unreachable", true) => IcmpMessage::Unreachable { code: code_of(&UNREACHABLE_V6)? },
        ("packet_too_big", true) => IcmpMessage::PacketTooBig { mtu },
        ("time_exceeded", _) => IcmpMessage::TimeExceeded { code: code_of(&TIME_EXCEEDED)? },
        ("parameter_problem", _) => {
            let names: &[&str] = if v6 { &PARAMETER_V6 } else { &[] };
            IcmpMessage::ParameterProblem { code: code_of(names)?, pointer: 0 }
        }
        ("source_quench", false) => {
            IcmpMessage::Other { kind: 4, code: code_of(&[])?, rest: [0; 4] }
        }
        ("redirect", false) => IcmpMessage::Other { kind: 5, code: code_of(&[])?, rest: [0; 4] },
        _ => return None,
    })
}
