//! Errors that are reported to this host: believed only about packets that it sent.
//!
//! Anybody can send an ICMP error; one counts when the packet that it quotes came from an address
//! of this host, from an open socket to a peer that was lately sent to, or is a request that waits
//! for its reply (RFC 5927). Left out: what a transport makes of one.

use std::net::{IpAddr, SocketAddr};

use plumb_base::time::Instant;
use plumb_wire::icmpv4::{self, unreachable as unreachable4};
use plumb_wire::icmpv6::{self, unreachable as unreachable6};
use plumb_wire::ipv6::extension::Extension;
use plumb_wire::packet::{Packet, Pool};
use plumb_wire::protocol::Protocol;
use plumb_wire::{ipv4, ipv6};

use crate::counters::Count;
use crate::host::{Event, Host};
use crate::ip::Ingress;
use crate::path_mtu::{FLOOR_V6, plateau_below};
use crate::udp::UdpId;

/// What happened to a packet that this host sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// There is no route to the network.
    Network,
    /// The host cannot be reached.
    Host,
    /// The host does not speak the protocol.
    Protocol,
    /// Nobody listens at the port.
    Port,
    /// An administrator forbids it.
    Prohibited,
    /// It did not fit a link of this MTU.
    TooBig(u32),
    /// It was passed on too often.
    HopLimit,
    /// Not all of its fragments arrived in time.
    Reassembly,
    /// The octet there made no sense.
    Parameter(u32),
    /// Something else: type and code.
    Other(u8, u8),
}

/// An error that was believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What happened.
    pub kind: FailureKind,
    /// Who says so.
    pub reporter: IpAddr,
    /// Where the packet came from; port 0 where the protocol has none.
    pub local: SocketAddr,
    /// Where it went.
    pub remote: SocketAddr,
    /// The connected socket that sent it.
    pub udp: Option<UdpId>,
}

/// What an error says and quotes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    kind: FailureKind,
    source: IpAddr,
    destination: IpAddr,
    protocol: Protocol,
    /// Bytes of the packet as it was sent.
    len: u32,
    /// The first eight octets of its transport.
    transport: [u8; 8],
}

/// What an ICMP message says, if it quotes enough of a packet to tell whose it was.
pub(super) fn of_v4(message: icmpv4::Message, body: &[u8]) -> Option<Heard> {
    let quoted = ipv4::Packet::parse_quoted(body).ok()?;
    if quoted.fragment_field().offset() != 0 {
        return None;
    }
    let len = u32::from(u16::from_be_bytes([*body.get(2)?, *body.get(3)?]));
    let kind = match message {
        icmpv4::Message::Unreachable { code, next_hop_mtu } => match code {
            unreachable4::NETWORK => FailureKind::Network,
            unreachable4::HOST => FailureKind::Host,
            unreachable4::PROTOCOL => FailureKind::Protocol,
            unreachable4::PORT => FailureKind::Port,
            // RFC 1191 §5: a router that is too old to name the size leaves it to be guessed.
            unreachable4::FRAGMENTATION_NEEDED if next_hop_mtu == 0 => {
                FailureKind::TooBig(plateau_below(len))
            }
            unreachable4::FRAGMENTATION_NEEDED => FailureKind::TooBig(next_hop_mtu.into()),
            unreachable4::PROHIBITED => FailureKind::Prohibited,
            _ => FailureKind::Other(message.kind(), code),
        },
        icmpv4::Message::TimeExceeded { code: 0 } => FailureKind::HopLimit,
        icmpv4::Message::TimeExceeded { .. } => FailureKind::Reassembly,
        icmpv4::Message::ParameterProblem { pointer, .. } => FailureKind::Parameter(pointer.into()),
        _ => FailureKind::Other(message.kind(), 0),
    };
    Some(Heard {
        kind,
        source: IpAddr::V4(quoted.source()),
        destination: IpAddr::V4(quoted.destination()),
        protocol: quoted.protocol(),
        len,
        transport: *quoted.payload().first_chunk()?,
    })
}

/// The same for ICMPv6.
pub(super) fn of_v6(message: icmpv6::Message, body: &[u8]) -> Option<Heard> {
    let quoted = ipv6::Packet::parse_quoted(body).ok()?;
    let mut extensions = quoted.extensions();
    for extension in &mut extensions {
        if let Extension::Fragment(fragment) = extension.ok()?
            && fragment.offset != 0
        {
            return None;
        }
    }
    let len = 40 + u32::from(u16::from_be_bytes([*body.get(4)?, *body.get(5)?]));
    let kind = match message {
        icmpv6::Message::Unreachable { code } => match code {
            unreachable6::NO_ROUTE => FailureKind::Network,
            unreachable6::ADDRESS => FailureKind::Host,
            unreachable6::PORT => FailureKind::Port,
            unreachable6::PROHIBITED => FailureKind::Prohibited,
            _ => FailureKind::Other(1, code),
        },
        icmpv6::Message::PacketTooBig { mtu } => FailureKind::TooBig(mtu),
        icmpv6::Message::TimeExceeded { code: 0 } => FailureKind::HopLimit,
        icmpv6::Message::TimeExceeded { .. } => FailureKind::Reassembly,
        icmpv6::Message::ParameterProblem { code: 1, .. } => FailureKind::Protocol,
        icmpv6::Message::ParameterProblem { pointer, .. } => FailureKind::Parameter(pointer),
        _ => FailureKind::Other(message.kind(), 0),
    };
    Some(Heard {
        kind,
        source: IpAddr::V6(quoted.source()),
        destination: IpAddr::V6(quoted.destination()),
        protocol: extensions.protocol(),
        len,
        transport: *extensions.payload().first_chunk()?,
    })
}

impl Host {
    pub(super) fn handle_error(
        &mut self,
        now: Instant,
        ingress: &Ingress,
        heard: Option<Heard>,
        packet: Packet,
        pool: &mut Pool,
    ) {
        let believed = heard.and_then(|heard| Some((heard, self.ends_of(ingress, &heard)?)));
        let Some((heard, (local, remote))) = believed else {
            return self.drop_packet(Count::IcmpErrorForeign, packet, pool);
        };
        if let FailureKind::TooBig(mtu) = heard.kind {
            if remote.is_ipv6() && mtu < FLOOR_V6 {
                return self.drop_packet(Count::IcmpTooSmall, packet, pool);
            }
            // A packet that would have fit was not refused for its size.
            if mtu >= heard.len {
                return self.drop_packet(Count::IcmpErrorForeign, packet, pool);
            }
            let current = self.path(now, local.ip(), remote.ip()).map_or(0, |path| path.mtu);
            if self.path_mtus.on_too_big(now, remote.ip(), mtu, current).is_some() {
                self.counters.add(Count::PathMtuLearnt);
            }
        }
        self.counters.add(Count::IcmpErrorAccepted);
        let udp = match heard.protocol {
            Protocol::UDP => self.udp.sender_of(local, remote),
            _ => None,
        };
        let reporter = ingress.source;
        self.push_event(Event::Failure(Failure { kind: heard.kind, reporter, local, remote, udp }));
        pool.free(packet);
    }

    /// The ends between which the quoted packet went, if this host sent it.
    fn ends_of(&self, ingress: &Ingress, heard: &Heard) -> Option<(SocketAddr, SocketAddr)> {
        let interface = &self.interfaces[usize::from(ingress.port.0)];
        if !interface.owns(heard.source) || !self.paths.knows(heard.destination) {
            return None;
        }
        let field = |at: usize| u16::from_be_bytes([heard.transport[at], heard.transport[at + 1]]);
        match heard.protocol {
            Protocol::UDP => {
                let local = SocketAddr::new(heard.source, field(0));
                let remote = SocketAddr::new(heard.destination, field(2));
                self.udp.receiver_of(local, remote).map(|_| (local, remote))
            }
            Protocol::ICMPV4 | Protocol::ICMPV6 => {
                // Type and code of an echo request.
                let request = if heard.protocol == Protocol::ICMPV4 { 0x0800 } else { 0x8000 };
                let (identifier, sequence) = (field(4), field(6));
                let waits = self.pings.contains((heard.destination, identifier, sequence));
                let at = |ip| SocketAddr::new(ip, 0);
                (field(0) == request && waits).then(|| (at(heard.source), at(heard.destination)))
            }
            _ => None,
        }
    }
}
