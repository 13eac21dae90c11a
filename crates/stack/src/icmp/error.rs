//! ICMP errors: those received, as far as they quote a packet, and those sent.
//!
//! Anybody can send an ICMP error; the host accepts one only when the packet that it quotes is of an open
//! socket and to a recent destination, or an echo request whose reply is awaited (RFC 5927).

use std::net::{IpAddr, SocketAddr};

use plumb_copy::Sum16;
use plumb_wire::checksum::PseudoHeader;
use plumb_wire::icmp::{
    self, IcmpMessage, IcmpPacket, parameter_problem, time_exceeded, unreachable_v4, unreachable_v6,
};
use plumb_wire::ip::IpProtocol;
use plumb_wire::ipv6::extension::Ipv6Extension;
use plumb_wire::packet::{ChecksumState, Packet, Pool};
use plumb_wire::{ipv4, ipv6, tcp, udp};

use super::{EchoKey, Icmp, with_header};
use crate::context::{DeliveryFailureKind, HostContext};
use crate::counters::CounterId;
use crate::ip::{FragmentKind, IcmpErrorCause, IpEgress, IpIngress};
use crate::routing::plateau_below;

/// The packet that an ICMP error quotes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuotedPacket {
    pub(crate) source: IpAddr,
    pub(crate) destination: IpAddr,
    pub(crate) protocol: IpProtocol,
    /// Bytes of the packet as it was sent.
    pub(crate) len: u32,
    /// The first eight octets of its transport header.
    transport: [u8; 8],
}

impl QuotedPacket {
    /// The 16-bit field at an offset of the transport header.
    fn field(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.transport[at], self.transport[at + 1]])
    }

    /// Source and destination with their ports; the protocol has ports.
    pub fn endpoints(&self) -> (SocketAddr, SocketAddr) {
        let local = SocketAddr::new(self.source, self.field(0));
        (local, SocketAddr::new(self.destination, self.field(2)))
    }

    /// The sequence number of the TCP segment that it is.
    pub fn sequence(&self) -> u32 {
        u32::from(self.field(4)) << 16 | u32::from(self.field(6))
    }

    /// The echo request that it is.
    pub fn echo_request(&self) -> Option<EchoKey> {
        // Type and code.
        let request = match self.protocol {
            IpProtocol::ICMPV4 => 0x0800,
            IpProtocol::ICMPV6 => 0x8000,
            _ => return None,
        };
        (self.field(0) == request).then(|| (self.destination, self.field(4), self.field(6)))
    }
}

/// What an ICMP error says, and the packet that it quotes, if that is enough to identify its sender.
pub(super) fn parse_error(packet: &IcmpPacket<'_>) -> Option<(DeliveryFailureKind, QuotedPacket)> {
    let body = packet.body();
    let quoted = if packet.is_v6() { quoted_v6(body) } else { quoted_v4(body) }?;
    Some((failure_kind(packet, quoted.len), quoted))
}

/// What an ICMP error about a packet of `len` bytes says.
fn failure_kind(packet: &IcmpPacket<'_>, len: u32) -> DeliveryFailureKind {
    let is_v6 = packet.is_v6();
    match packet.message() {
        IcmpMessage::Unreachable { code } => match (is_v6, code) {
            (false, unreachable_v4::NETWORK) | (true, unreachable_v6::NO_ROUTE) => {
                DeliveryFailureKind::Network
            }
            (false, unreachable_v4::HOST) | (true, unreachable_v6::ADDRESS) => {
                DeliveryFailureKind::Host
            }
            (false, unreachable_v4::PROTOCOL) => DeliveryFailureKind::Protocol,
            (false, unreachable_v4::PORT) | (true, unreachable_v6::PORT) => {
                DeliveryFailureKind::Port
            }
            (false, unreachable_v4::PROHIBITED) | (true, unreachable_v6::PROHIBITED) => {
                DeliveryFailureKind::Prohibited
            }
            _ => DeliveryFailureKind::Other(packet.kind(), code),
        },
        // RFC 1191 §5: an old router does not name the MTU.
        IcmpMessage::PacketTooBig { mtu: 0 } if !is_v6 => {
            DeliveryFailureKind::TooBig(plateau_below(len))
        }
        IcmpMessage::PacketTooBig { mtu } => DeliveryFailureKind::TooBig(mtu),
        IcmpMessage::TimeExceeded { code: time_exceeded::HOP_LIMIT } => {
            DeliveryFailureKind::HopLimit
        }
        IcmpMessage::TimeExceeded { .. } => DeliveryFailureKind::Reassembly,
        IcmpMessage::ParameterProblem { code: parameter_problem::NEXT_HEADER, .. } if is_v6 => {
            DeliveryFailureKind::Protocol
        }
        IcmpMessage::ParameterProblem { pointer, .. } => DeliveryFailureKind::Parameter(pointer),
        _ => DeliveryFailureKind::Other(packet.kind(), packet.code()),
    }
}

fn quoted_v4(body: &[u8]) -> Option<QuotedPacket> {
    let quoted = ipv4::Ipv4Packet::parse_quoted(body).ok()?;
    if quoted.fragment_field().offset() != 0 {
        return None;
    }
    Some(QuotedPacket {
        source: IpAddr::V4(quoted.source()),
        destination: IpAddr::V4(quoted.destination()),
        protocol: quoted.protocol(),
        len: u32::from(u16::from_be_bytes([*body.get(2)?, *body.get(3)?])),
        transport: *quoted.payload().first_chunk()?,
    })
}

fn quoted_v6(body: &[u8]) -> Option<QuotedPacket> {
    let quoted = ipv6::Ipv6Packet::parse_quoted(body).ok()?;
    let mut extensions = quoted.extensions();
    for extension in &mut extensions {
        if let Ipv6Extension::Fragment(fragment) = extension.ok()?
            && fragment.offset != 0
        {
            return None;
        }
    }
    Some(QuotedPacket {
        source: IpAddr::V6(quoted.source()),
        destination: IpAddr::V6(quoted.destination()),
        protocol: extensions.protocol(),
        len: 40 + u32::from(u16::from_be_bytes([*body.get(4)?, *body.get(5)?])),
        transport: *extensions.payload().first_chunk()?,
    })
}

/// Bytes of an IPv4 packet with an error message and what it quotes (RFC 1812 §4.3.2.3).
const LEN_MAX_V4: usize = 576;
/// The same for IPv6: its minimum MTU (RFC 4443 §2.4 (c)).
const LEN_MAX_V6: usize = 1_280;

impl Icmp {
    /// Whether the rate limit lets an error be sent now.
    pub(crate) fn take_error_token(&mut self, cx: &mut HostContext<'_>) -> bool {
        let may = self.error_bucket.take(cx.now);
        if !may {
            cx.count(CounterId::IcmpErrorLimited);
        }
        may
    }

    /// The message about what is wrong with `about`, which begins with its IP header, sent from `source`;
    /// `None` when no frame is free.
    pub(crate) fn error_message(
        cx: &mut HostContext<'_>,
        ingress: &IpIngress,
        cause: IcmpErrorCause,
        source: IpAddr,
        about: &mut Packet,
    ) -> Option<(Packet, IpEgress)> {
        complete_checksum(ingress, about, cx.pool);
        let quoted_max = match ingress.source {
            IpAddr::V4(_) => LEN_MAX_V4 - 20 - icmp::HEADER_LEN,
            IpAddr::V6(_) => LEN_MAX_V6 - 40 - icmp::HEADER_LEN,
        };
        let quoted = about.len().min(quoted_max);
        let Some(packet) = cx.pool.copy_of(about, 0..quoted) else {
            cx.count(CounterId::NoMemory);
            return None;
        };
        cx.count(CounterId::IcmpErrorSent);
        Some(with_header(message_about(ingress, cause), source, ingress.source, packet, cx.pool))
    }
}

/// Completes a partial checksum, which a sender on this machine left to its device: it would be quoted as a
/// wrong one.
fn complete_checksum(ingress: &IpIngress, packet: &mut Packet, pool: &mut Pool) {
    let offset = match ingress.protocol {
        IpProtocol::UDP => udp::CHECKSUM_OFFSET,
        IpProtocol::TCP => tcp::CHECKSUM_OFFSET,
        _ => return,
    };
    let offset = usize::from(offset);
    let verified = packet.meta.checksum == ChecksumState::Verified;
    let pseudo = PseudoHeader::between(ingress.source, ingress.destination, ingress.protocol);
    let (Some(pseudo), true, false) = (pseudo, verified, ingress.fragment != FragmentKind::Whole)
    else {
        return;
    };
    let Some(mut segment) = pool.bytes_mut(packet).get_mut(usize::from(ingress.header_len)..)
    else {
        return;
    };
    if ingress.protocol == IpProtocol::UDP {
        let Ok(datagram) = udp::UdpDatagram::parse(segment) else { return };
        if datagram.checksum() == 0 {
            return;
        }
        let len = udp::HEADER_LEN + datagram.payload().len();
        segment = &mut segment[..len];
    }
    let Some(field) = segment.get_mut(offset..offset + 2) else { return };
    field.fill(0);
    let mut checksum = pseudo.checksum(segment.len(), Sum16::of(segment));
    if checksum == 0 && ingress.protocol == IpProtocol::UDP {
        // RFC 768: zero means that there is none.
        checksum = u16::MAX;
    }
    segment[offset..offset + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// RFC 1122 §3.2.2 and RFC 4443 §2.4 (e): no error about an error, about a packet to a group, or to an
/// unspecified address; over IPv4 none about later fragments, over IPv6 none about those of
/// ICMP, which may be of errors.
pub(crate) fn may_send_error(ingress: &IpIngress, cause: IcmpErrorCause, packet: &[u8]) -> bool {
    let to_groups = matches!(cause, IcmpErrorCause::ParameterToGroups(..));
    if ingress.source.is_unspecified() || (ingress.group && !to_groups) {
        return false;
    }
    if ingress.fragment == FragmentKind::Later {
        return ingress.source.is_ipv6() && ingress.protocol != IpProtocol::ICMPV6;
    }
    let message = packet.get(usize::from(ingress.header_len)..).and_then(<[u8]>::first);
    match (ingress.protocol, message) {
        (IpProtocol::ICMPV4, Some(kind)) => !icmp::forbids_errors(*kind, false),
        (IpProtocol::ICMPV6, Some(kind)) => !icmp::forbids_errors(*kind, true),
        (IpProtocol::ICMPV4 | IpProtocol::ICMPV6, None) => false,
        _ => true,
    }
}

fn message_about(ingress: &IpIngress, cause: IcmpErrorCause) -> IcmpMessage {
    let is_v6 = ingress.source.is_ipv6();
    match cause {
        IcmpErrorCause::Port => {
            let code = if is_v6 { unreachable_v6::PORT } else { unreachable_v4::PORT };
            IcmpMessage::Unreachable { code }
        }
        IcmpErrorCause::Protocol if is_v6 => IcmpMessage::ParameterProblem {
            code: parameter_problem::NEXT_HEADER,
            pointer: u32::from(ingress.protocol_at),
        },
        IcmpErrorCause::Protocol => IcmpMessage::Unreachable { code: unreachable_v4::PROTOCOL },
        IcmpErrorCause::Parameter(code, pointer)
        | IcmpErrorCause::ParameterToGroups(code, pointer) => {
            IcmpMessage::ParameterProblem { code, pointer }
        }
        IcmpErrorCause::Reassembly => IcmpMessage::TimeExceeded { code: time_exceeded::REASSEMBLY },
    }
}
