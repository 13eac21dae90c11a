//! Errors that this host reports: when it may (RFC 1122 §3.2.2, RFC 4443 §2.4), and the message.
//!
//! Left out: errors that only routers report.

use std::net::IpAddr;

use plumb_base::time::Instant;
use plumb_copy::Sum;
use plumb_wire::checksum::Pseudo;
use plumb_wire::ecn::Ecn;
use plumb_wire::icmpv4::{self, unreachable as unreachable4};
use plumb_wire::icmpv6::{self, parameter_problem, unreachable as unreachable6};
use plumb_wire::packet::{ChecksumState, Packet, Pool};
use plumb_wire::protocol::Protocol;
use plumb_wire::{tcp, udp};

use crate::counters::Count;
use crate::host::{Host, unspecified_like};
use crate::ip::{Egress, Ingress};

/// What is wrong with a packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nobody listens at its port.
    Port,
    /// Nobody here speaks its protocol.
    Protocol,
    /// The octet there of an IPv4 header cannot be.
    Field(u32),
    /// A parameter problem of IPv6: code, and the octet.
    Parameter(u8, u32),
    /// The same, reported even of packets to groups.
    ParameterToGroups(u8, u32),
    /// Parts of it did not come in time.
    Reassembly,
}

/// Bytes of an IPv4 packet with an error message and what it quotes (RFC 1812 §4.3.2.3).
const LEN_MAX_V4: usize = 576;
/// The same for IPv6: its least MTU (RFC 4443 §2.4 (c)).
const LEN_MAX_V6: usize = 1_280;
/// Bytes of a message before the quoted packet, of either family.
const HEADER_LEN: usize = icmpv4::HEADER_LEN;

impl Host {
    /// Reports what is wrong with `packet`, which begins with its IP header, and frees it.
    #[cold]
    pub(crate) fn report(
        &mut self,
        now: Instant,
        ingress: &Ingress,
        fault: Fault,
        mut packet: Packet,
        pool: &mut Pool,
    ) {
        if may_report(ingress, fault, pool.bytes(&packet)) {
            if self.error_bucket.take(now) {
                complete_checksum(ingress, &mut packet, pool);
                self.send_error(now, ingress, fault, &packet, pool);
            } else {
                self.counters.add(Count::IcmpErrorLimited);
            }
        }
        pool.free(packet);
    }

    fn send_error(
        &mut self,
        now: Instant,
        ingress: &Ingress,
        fault: Fault,
        about: &Packet,
        pool: &mut Pool,
    ) {
        let any = unspecified_like(ingress.source);
        let local = if ingress.group { any } else { ingress.destination };
        let Ok(path) = self.path(now, local, ingress.source) else { return };
        let quoted_max = match ingress.source {
            IpAddr::V4(_) => LEN_MAX_V4 - 20 - HEADER_LEN,
            IpAddr::V6(_) => LEN_MAX_V6 - 40 - HEADER_LEN,
        };
        let quoted = about.len().min(quoted_max);
        let Some(mut packet) = pool.allocate_for(quoted) else {
            return self.counters.add(Count::NoMemory);
        };
        let copied = pool.append_from(&mut packet, about, 0..quoted, |from, to| {
            to.copy_from_slice(from);
        });
        if !copied {
            pool.free(packet);
            return self.counters.add(Count::NoMemory);
        }
        let body = Sum::of(pool.bytes(&packet));
        let header = pool.prepend(&mut packet, HEADER_LEN);
        let protocol =
            if let (IpAddr::V6(source), IpAddr::V6(remote)) = (path.source, ingress.source) {
                let pseudo = Pseudo::v6(source, remote, Protocol::ICMPV6);
                message6(ingress, fault).emit(pseudo, quoted, body, header);
                Protocol::ICMPV6
            } else {
                message4(fault).emit(body, header);
                Protocol::ICMPV4
            };
        self.counters.add(Count::IcmpErrorSent);
        let egress = Egress::new(protocol, Ecn::NotCapable);
        // What does not fit is counted where that is found.
        let _ = self.transmit(now, &path, ingress.source, egress, packet, pool);
    }
}

/// Makes of a packet what it would be on a wire: a checksum that its sender left open, because it is of
/// this machine, would be quoted as a wrong one.
fn complete_checksum(ingress: &Ingress, packet: &mut Packet, pool: &mut Pool) {
    let offset = match ingress.protocol {
        Protocol::UDP => udp::CHECKSUM_OFFSET,
        Protocol::TCP => tcp::CHECKSUM_OFFSET,
        _ => return,
    };
    let offset = usize::from(offset);
    let verified = packet.meta.checksum == ChecksumState::Verified;
    let pseudo = Pseudo::between(ingress.source, ingress.destination, ingress.protocol);
    let (Some(pseudo), true, false) = (pseudo, verified, ingress.fragmented) else { return };
    let Some(mut segment) = pool.bytes_mut(packet).get_mut(usize::from(ingress.header_len)..)
    else {
        return;
    };
    if ingress.protocol == Protocol::UDP {
        let Ok(datagram) = udp::Datagram::parse(segment) else { return };
        if datagram.checksum() == 0 {
            return;
        }
        let len = udp::HEADER_LEN + datagram.payload().len();
        segment = &mut segment[..len];
    }
    let Some(field) = segment.get_mut(offset..offset + 2) else { return };
    field.fill(0);
    let mut checksum = pseudo.checksum(segment.len(), Sum::of(segment));
    if checksum == 0 && ingress.protocol == Protocol::UDP {
        // RFC 768: zero means that there is none.
        checksum = u16::MAX;
    }
    segment[offset..offset + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// RFC 1122 §3.2.2 and RFC 4443 §2.4 (e): not about errors, not about what was sent to many, not
/// to what names no single host; over IPv4 not about later fragments, over IPv6 not about those of
/// ICMP, which may be of errors.
fn may_report(ingress: &Ingress, fault: Fault, packet: &[u8]) -> bool {
    let to_groups = matches!(fault, Fault::ParameterToGroups(..));
    if ingress.source.is_unspecified() || (ingress.group && !to_groups) {
        return false;
    }
    if ingress.is_later {
        return ingress.source.is_ipv6() && ingress.protocol != Protocol::ICMPV6;
    }
    let message = packet.get(usize::from(ingress.header_len)..).and_then(<[u8]>::first);
    match (ingress.protocol, message) {
        (Protocol::ICMPV4, Some(kind)) => !matches!(kind, 3 | 4 | 5 | 11 | 12),
        // Redirects (137) too: RFC 4443 §2.4 (e.2).
        (Protocol::ICMPV6, Some(kind)) => *kind >= 128 && *kind != 137,
        (Protocol::ICMPV4 | Protocol::ICMPV6, None) => false,
        _ => true,
    }
}

fn message4(fault: Fault) -> icmpv4::Message {
    match fault {
        Fault::Port => icmpv4::Message::Unreachable { code: unreachable4::PORT, next_hop_mtu: 0 },
        Fault::Protocol => {
            icmpv4::Message::Unreachable { code: unreachable4::PROTOCOL, next_hop_mtu: 0 }
        }
        Fault::Field(at) | Fault::Parameter(_, at) | Fault::ParameterToGroups(_, at) => {
            let pointer = u8::try_from(at).unwrap_or(0);
            icmpv4::Message::ParameterProblem { code: 0, pointer }
        }
        Fault::Reassembly => {
            icmpv4::Message::TimeExceeded { code: icmpv4::time_exceeded::REASSEMBLY }
        }
    }
}

fn message6(ingress: &Ingress, fault: Fault) -> icmpv6::Message {
    match fault {
        Fault::Port => icmpv6::Message::Unreachable { code: unreachable6::PORT },
        Fault::Protocol => icmpv6::Message::ParameterProblem {
            code: parameter_problem::NEXT_HEADER,
            pointer: u32::from(ingress.protocol_at),
        },
        Fault::Field(pointer) => {
            icmpv6::Message::ParameterProblem { code: parameter_problem::FIELD, pointer }
        }
        Fault::Parameter(code, pointer) | Fault::ParameterToGroups(code, pointer) => {
            icmpv6::Message::ParameterProblem { code, pointer }
        }
        Fault::Reassembly => {
            icmpv6::Message::TimeExceeded { code: icmpv6::time_exceeded::REASSEMBLY }
        }
    }
}
