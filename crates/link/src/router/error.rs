//! Errors of routers: time exceeded, fragmentation needed, packet too big.
//!
//! Whom none may be sent to: RFC 1122 §3.2.2, RFC 1812 §4.3.2.7, RFC 4443 §2.4 (e). Left out: how many
//! ([`super::Router::may_send`]).

use std::net::{Ipv4Addr, Ipv6Addr};

use plumb_wire::checksum::complete;
use plumb_wire::compose::{Link, Path};
use plumb_wire::ethernet;
use plumb_wire::ipv6::extension::Extension;
use plumb_wire::medium::Medium;
use plumb_wire::packet::{ChecksumState, Packet, Pool};
use plumb_wire::protocol::Protocol;
use plumb_wire::traffic_class::TrafficClass;
use plumb_wire::{icmpv4, icmpv6, ipv4, ipv6};

use super::Router;
use crate::header::ip_offset;

/// Most bytes of an error, IP header included: RFC 1812 §4.3.2.3, RFC 4443 §2.4 (c).
const LEN_V4: usize = 576;
const LEN_V6: usize = 1_280;
/// ICMPv6 redirect, which is no error by its type but is treated as one.
const REDIRECT_V6: u8 = 137;
/// Internetwork control (RFC 1812 §4.3.2.5).
const PRECEDENCE: TrafficClass = TrafficClass(0xc0);

/// What is wrong with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Error {
    /// Its hop limit was used up.
    Expired,
    /// It is longer than this MTU.
    TooBig(u32),
}

/// The frame that tells the sender of `packet`; `None` when nobody may be told.
pub(crate) fn frame(
    router: &Router,
    error: Error,
    packet: &mut Packet,
    medium: Medium,
    pool: &mut Pool,
) -> Option<Vec<u8>> {
    let checksum = packet.meta.checksum;
    let bytes = pool.bytes_mut(packet);
    if let ChecksumState::Partial { start, offset } = checksum {
        // What is quoted is what would have been on a wire.
        complete(bytes, start.into(), offset.into());
    }
    let at = ip_offset(medium, bytes)?;
    let link = match medium {
        Medium::Ip => None,
        Medium::Ethernet => {
            let header = ethernet::Frame::parse(bytes).ok()?.header();
            if header.destination.is_group() || header.source.is_group() {
                return None;
            }
            let (source, destination) = (header.destination, header.source);
            Some(Link { source, destination, tags: header.tags })
        }
    };
    let quoted = &bytes[at..];
    if quoted.first()? >> 4 == 4 {
        of_v4(router, error, link, quoted)
    } else {
        of_v6(router, error, link, quoted)
    }
}

fn of_v4(router: &Router, error: Error, link: Option<Link>, quoted: &[u8]) -> Option<Vec<u8>> {
    let packet = ipv4::Packet::parse_quoted(quoted).ok()?;
    let about_an_error = packet.protocol() == Protocol::ICMPV4
        && icmpv4::Packet::parse(packet.payload()).is_ok_and(|icmp| icmp.message().is_error());
    if packet.fragment_field().offset() != 0
        || about_an_error
        || is_group_v4(packet.destination())
        || !is_host_v4(packet.source())
    {
        return None;
    }
    let message = match error {
        Error::Expired => icmpv4::Message::TimeExceeded { code: icmpv4::time_exceeded::HOP_LIMIT },
        Error::TooBig(mtu) => icmpv4::Message::Unreachable {
            code: icmpv4::unreachable::FRAGMENTATION_NEEDED,
            next_hop_mtu: u16::try_from(mtu).unwrap_or(u16::MAX),
        },
    };
    let path = Path { link, traffic_class: PRECEDENCE, ..Path::new(router.v4, packet.source()) };
    let whole = packet.header_len() + packet.payload().len();
    let most = LEN_V4 - ipv4::HEADER_LEN - icmpv4::HEADER_LEN;
    Some(path.icmpv4(message, &quoted[..whole.min(most)]))
}

fn of_v6(router: &Router, error: Error, link: Option<Link>, quoted: &[u8]) -> Option<Vec<u8>> {
    let packet = ipv6::Packet::parse_quoted(quoted).ok()?;
    let mut extensions = packet.extensions();
    for extension in &mut extensions {
        if let Extension::Fragment(fragment) = extension.ok()?
            && fragment.offset != 0
        {
            return None;
        }
    }
    let about_an_error = extensions.protocol() == Protocol::ICMPV6
        && icmpv6::Packet::parse(extensions.payload())
            .is_ok_and(|icmp| icmp.message().is_error() || icmp.kind() == REDIRECT_V6);
    let (source, destination) = (packet.source(), packet.destination());
    if about_an_error || !is_host_v6(source) {
        return None;
    }
    let message = match error {
        // RFC 4443 §2.4 (e.3): of errors about a group's packets only "too big" is sent.
        Error::Expired if destination.is_multicast() => return None,
        Error::Expired => icmpv6::Message::TimeExceeded { code: icmpv6::time_exceeded::HOP_LIMIT },
        Error::TooBig(mtu) => icmpv6::Message::PacketTooBig { mtu },
    };
    let path = Path { link, traffic_class: PRECEDENCE, ..Path::new(router.v6, source) };
    let whole = ipv6::HEADER_LEN + packet.payload().len();
    let most = LEN_V6 - ipv6::HEADER_LEN - icmpv6::HEADER_LEN;
    Some(path.icmpv6(message, &quoted[..whole.min(most)]))
}

fn is_group_v4(address: Ipv4Addr) -> bool {
    address.is_multicast() || address.is_broadcast()
}

/// Whether it can be the address of one host (RFC 1122 §3.2.1.3).
fn is_host_v4(address: Ipv4Addr) -> bool {
    !is_group_v4(address) && !address.is_loopback() && address.octets()[0] != 0
}

fn is_host_v6(address: Ipv6Addr) -> bool {
    !address.is_unspecified() && !address.is_multicast() && !address.is_loopback()
}
