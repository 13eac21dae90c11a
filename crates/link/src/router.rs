//! What stands where a frame enters a hop: time to live, MTU, fragments, and errors to who sent it.
//!
//! Routers are transparent: they leave Ethernet's addresses alone, and what belongs to one network (ARP, neighbour
//! discovery, link-local addresses) passes uncounted. Their own addresses are of the documentation prefixes
//! (RFC 5737, RFC 3849): `192.0.2.N` and `2001:db8:0:77::N`, N counting from the near side; a link's
//! own ends, which only ever speak about an MTU, are 254 (near) and 253 (far).

use std::net::{Ipv4Addr, Ipv6Addr};

use plumb_base::time::Instant;
use plumb_base::units::Rate;
use plumb_wire::checksum::complete;
use plumb_wire::compose::{LinkTemplate, PacketTemplate};
use plumb_wire::icmp::{self, IcmpMessage};
use plumb_wire::ip::{Fragment, IpProtocol, TrafficClass};
use plumb_wire::ipv4::{self, FragmentField};
use plumb_wire::ipv6::extension::Ipv6Extension;
use plumb_wire::machine::Medium;
use plumb_wire::option::copied;
use plumb_wire::packet::{Batch, ChecksumState, Packet, PacketMeta, Pool};
use plumb_wire::{ethernet, ipv6, ndp};

use crate::frame::ip_offset;
use crate::rate::GcraBucket;
use crate::spec::{BucketSpec, HopMtuSpec};

/// Errors a second of one router, and how many at once: Linux's icmp_msgs_per_sec and icmp_msgs_burst.
const ERRORS: u64 = 1_000;
const ERRORS_AT_ONCE: u64 = 50;

/// A router, or an end of a link, as seen by one direction.
#[derive(Debug)]
pub(crate) struct TransparentRouter {
    pub v4: Ipv4Addr,
    pub v6: Ipv6Addr,
    /// Whether it counts hops: an end of a link does not.
    decrements_hop_limit: bool,
    /// Of errors, counted as if each were a bit.
    error_limit: GcraBucket,
}

/// Whether a frame goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForwardVerdict {
    Forward,
    /// It has been passed on often enough.
    Expired,
    /// It must not be cut, and whoever sent it is told.
    TooBig,
    /// It may be cut.
    Fragment,
    /// Nobody is told.
    Drop,
}

impl TransparentRouter {
    /// The router of a number from 1, or an end of the link.
    pub fn new(number: u8, counts: bool, now: Instant) -> Self {
        let rate = Rate::from_bits_per_second(ERRORS * 8).expect("not zero");
        Self {
            v4: Ipv4Addr::new(192, 0, 2, number),
            v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0x77, 0, 0, 0, number.into()),
            decrements_hop_limit: counts,
            error_limit: GcraBucket::new(BucketSpec { rate, burst: ERRORS_AT_ONCE }, now),
        }
    }

    /// Whether an error may be sent at `now`; then it counts as sent.
    pub fn may_send(&mut self, now: Instant) -> bool {
        self.error_limit.conforms(now, 8)
    }

    /// Judges a frame, and counts one hop in it.
    #[inline]
    pub fn inspect(
        &self,
        packet: &mut Packet,
        mtu: Option<HopMtuSpec>,
        medium: Medium,
        pool: &mut Pool,
    ) -> ForwardVerdict {
        if !self.decrements_hop_limit && mtu.is_none() {
            return ForwardVerdict::Forward;
        }
        let segments = packet.meta.segments;
        let bytes = pool.bytes_mut(packet);
        let Some(at) = ip_offset(medium, bytes) else { return ForwardVerdict::Forward };
        let Some(seen) = RoutedHeader::of(&bytes[at..]) else { return ForwardVerdict::Forward };
        if self.decrements_hop_limit
            && !seen.is_local
            && !decrement_hop_limit(&mut bytes[at..], seen.is_v6)
        {
            return ForwardVerdict::Expired;
        }
        // Each packet that a super-segment stands for, not all of them.
        let len = segments.map_or(seen.len, |segments| {
            usize::from(segments.header_len).saturating_sub(at) + usize::from(segments.size)
        });
        match mtu {
            Some(mtu) if len.min(seen.len) > mtu.bytes as usize => {
                match (mtu.sends_icmp, seen.may_cut) {
                    (false, _) => ForwardVerdict::Drop,
                    (true, true) => ForwardVerdict::Fragment,
                    // RFC 8200 §5: IPv6 has no links of a lesser MTU, and a host need not believe in one.
                    (true, false) if seen.is_v6 && mtu.bytes < 1_280 => ForwardVerdict::Drop,
                    (true, false) => ForwardVerdict::TooBig,
                }
            }
            _ => ForwardVerdict::Forward,
        }
    }
}

/// What a router looks at.
struct RoutedHeader {
    is_v6: bool,
    /// Bytes of the IP packet.
    len: usize,
    /// Whether it belongs to one network, where there are no routers.
    is_local: bool,
    may_cut: bool,
}

impl RoutedHeader {
    #[inline]
    fn of(packet: &[u8]) -> Option<Self> {
        if packet.first()? >> 4 == 4 {
            let header = ipv4::Ipv4Packet::parse_quoted(packet).ok()?;
            let (source, destination) = (header.source(), header.destination());
            let is_local = destination.is_link_local()
                || source.is_link_local()
                || destination.is_broadcast()
                // RFC 5771 §4: never forwarded.
                || destination.octets()[..3] == [224, 0, 0];
            let len = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            let may_cut = !header.fragment_field().dont_fragment();
            return Some(Self { is_v6: false, len, is_local, may_cut });
        }
        let header = ipv6::Ipv6Packet::parse_quoted(packet).ok()?;
        let (source, destination) = (header.source(), header.destination());
        let is_local = destination.is_unicast_link_local()
            || source.is_unicast_link_local()
            || (destination.is_multicast() && destination.octets()[1] & 0xf <= 2)
            || is_discovery(&header);
        let len = ipv6::HEADER_LEN + usize::from(u16::from_be_bytes([packet[4], packet[5]]));
        Some(Self { is_v6: true, len, is_local, may_cut: false })
    }
}

/// Whether it is neighbour discovery, which a router would make invalid (RFC 4861 §6.1, §7.1).
#[inline]
fn is_discovery(header: &ipv6::Ipv6Packet<'_>) -> bool {
    header.hop_limit() == ndp::HOP_LIMIT
        && header.next_header() == IpProtocol::ICMPV6
        && header.payload().first().is_some_and(|kind| ndp::is_ndp(*kind))
}

/// Takes one from the hop limit; `false`, and nothing changed, when no more would be left.
#[inline]
fn decrement_hop_limit(packet: &mut [u8], is_v6: bool) -> bool {
    // RFC 1812 §5.3.1: not forwarded when it arrives with 1 or 0.
    if packet[if is_v6 { 7 } else { 8 }] <= 1 {
        return false;
    }
    if is_v6 {
        ipv6::decrement_hop_limit(packet).is_some()
    } else {
        ipv4::decrement_hop_limit(packet).is_some()
    }
}

/// Why a packet stays whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouterFragmentError {
    /// It is no packet, or none that can be cut so.
    Malformed,
    /// No frame of the pool is free.
    NoMemory,
}

/// Cuts a packet that may be cut into fragments of at most `mtu` bytes, and appends them to `out`.
///
/// # Errors
/// Gives the packet back, and why.
pub(crate) fn fragment(
    mut packet: Packet,
    mtu: usize,
    medium: Medium,
    pool: &mut Pool,
    out: &mut Batch,
) -> Result<(), (Packet, RouterFragmentError)> {
    if let ChecksumState::Partial { start, offset } = packet.meta.checksum {
        // Only the whole has a transport's checksum.
        complete(pool.bytes_mut(&mut packet), start.into(), offset.into());
        packet.meta.checksum = ChecksumState::Plain;
    }
    let Some(plan) = Ipv4FragmentPlan::of(pool.bytes(&packet), medium) else {
        return Err((packet, RouterFragmentError::Malformed));
    };
    let before = out.len();
    let mut done = 0;
    while done < plan.len {
        match plan.fragment(done, mtu, &packet, pool) {
            Ok((fragment, len)) => {
                out.push(fragment);
                done += len;
            }
            Err(why) => {
                for fragment in out.drain(before..) {
                    pool.free(fragment);
                }
                return Err((packet, why));
            }
        }
    }
    pool.free(packet);
    Ok(())
}

struct Ipv4FragmentPlan {
    header: ipv4::Ipv4Header,
    /// Where the IP header is, and the payload.
    ip: usize,
    payload: usize,
    len: usize,
}

impl Ipv4FragmentPlan {
    fn of(bytes: &[u8], medium: Medium) -> Option<Self> {
        let ip = ip_offset(medium, bytes)?;
        let packet = ipv4::Ipv4Packet::parse(&bytes[ip..]).ok()?;
        let payload = ip + packet.header_len();
        Some(Self { header: packet.header(), ip, payload, len: packet.payload().len() })
    }

    /// The fragment that begins `done` bytes into the payload, and its bytes of it.
    fn fragment(
        &self,
        done: usize,
        mtu: usize,
        packet: &Packet,
        pool: &mut Pool,
    ) -> Result<(Packet, usize), RouterFragmentError> {
        let options =
            if done == 0 { self.header.options } else { copied(self.header.options.as_bytes()) };
        let header_len = ipv4::HEADER_LEN + options.len();
        let most = mtu.saturating_sub(header_len) & !7;
        let len = most.min(self.len - done);
        if len == 0 {
            return Err(RouterFragmentError::Malformed);
        }
        let bytes = |n: usize| u16::try_from(n).map_err(|_| RouterFragmentError::Malformed);
        let offset = self.header.fragment.offset().checked_add(bytes(done)?);
        let fragment = Fragment {
            identification: self.header.identification.into(),
            offset: offset.ok_or(RouterFragmentError::Malformed)?,
            more: done + len < self.len || self.header.fragment.more(),
        };
        let header = ipv4::Ipv4Header {
            payload_len: bytes(len)?,
            fragment: FragmentField::of(&fragment),
            options,
            ..self.header
        };
        let mut piece =
            pool.allocate_for(self.ip + header_len + len).ok_or(RouterFragmentError::NoMemory)?;
        piece.meta = PacketMeta { segments: None, checksum: ChecksumState::Plain, ..packet.meta };
        let copy = |source: &[u8], target: &mut [u8]| target.copy_from_slice(source);
        pool.append_from(&mut piece, packet, 0..self.ip, copy);
        header.emit(pool.append(&mut piece, header_len).expect("allocated for so many bytes"));
        let from = self.payload + done;
        pool.append_from(&mut piece, packet, from..from + len, copy);
        Ok((piece, len))
    }
}

/// Most bytes of an error, IP header included: RFC 1812 §4.3.2.3, RFC 4443 §2.4 (c).
///
/// Which packets get none: RFC 1122 §3.2.2, RFC 1812 §4.3.2.7, RFC 4443 §2.4 (e).
const LEN_V4: usize = 576;
const LEN_V6: usize = 1_280;
/// Internetwork control (RFC 1812 §4.3.2.5).
const PRECEDENCE: TrafficClass = TrafficClass(0xc0);

/// What is wrong with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RouterIcmpError {
    /// Its hop limit was used up.
    Expired,
    /// It is longer than this MTU.
    TooBig(u32),
}

/// The frame that tells the sender of `packet`; `None` when nobody may be told.
pub(crate) fn icmp_error(
    router: &TransparentRouter,
    error: RouterIcmpError,
    packet: &mut Packet,
    medium: Medium,
    pool: &mut Pool,
) -> Option<Vec<u8>> {
    let checksum = packet.meta.checksum;
    let bytes = pool.bytes_mut(packet);
    if let ChecksumState::Partial { start, offset } = checksum {
        // The quoted packet is the one that a wire would have carried.
        complete(bytes, start.into(), offset.into());
    }
    let at = ip_offset(medium, bytes)?;
    let link = match medium {
        Medium::Ip => None,
        Medium::Ethernet => {
            let header = ethernet::EthernetFrame::parse(bytes).ok()?.header();
            if header.destination.is_group() || header.source.is_group() {
                return None;
            }
            let (source, destination) = (header.destination, header.source);
            Some(LinkTemplate { source, destination, tags: header.tags })
        }
    };
    let quoted = &bytes[at..];
    if quoted.first()? >> 4 == 4 {
        of_v4(router, error, link, quoted)
    } else {
        of_v6(router, error, link, quoted)
    }
}

fn of_v4(
    router: &TransparentRouter,
    error: RouterIcmpError,
    link: Option<LinkTemplate>,
    quoted: &[u8],
) -> Option<Vec<u8>> {
    let packet = ipv4::Ipv4Packet::parse_quoted(quoted).ok()?;
    let about_an_error = packet.protocol() == IpProtocol::ICMPV4
        && packet.payload().first().is_some_and(|kind| icmp::forbids_errors(*kind, false));
    if packet.fragment_field().offset() != 0
        || about_an_error
        || is_group_v4(packet.destination())
        || !is_host_v4(packet.source())
    {
        return None;
    }
    let message = match error {
        RouterIcmpError::Expired => {
            IcmpMessage::TimeExceeded { code: icmp::time_exceeded::HOP_LIMIT }
        }
        RouterIcmpError::TooBig(mtu) => IcmpMessage::PacketTooBig { mtu },
    };
    let path = PacketTemplate {
        link,
        traffic_class: PRECEDENCE,
        ..PacketTemplate::new(router.v4, packet.source())
    };
    let whole = packet.header_len() + packet.payload().len();
    let most = LEN_V4 - ipv4::HEADER_LEN - icmp::HEADER_LEN;
    Some(path.icmp(message, &quoted[..whole.min(most)]))
}

fn of_v6(
    router: &TransparentRouter,
    error: RouterIcmpError,
    link: Option<LinkTemplate>,
    quoted: &[u8],
) -> Option<Vec<u8>> {
    let packet = ipv6::Ipv6Packet::parse_quoted(quoted).ok()?;
    let mut extensions = packet.extensions();
    for extension in &mut extensions {
        if let Ipv6Extension::Fragment(fragment) = extension.ok()?
            && fragment.offset != 0
        {
            return None;
        }
    }
    let about_an_error = extensions.protocol() == IpProtocol::ICMPV6
        && extensions.payload().first().is_some_and(|kind| icmp::forbids_errors(*kind, true));
    let (source, destination) = (packet.source(), packet.destination());
    if about_an_error || !is_host_v6(source) {
        return None;
    }
    let message = match error {
        // RFC 4443 §2.4 (e.3): of errors about a group's packets only "too big" is sent.
        RouterIcmpError::Expired if destination.is_multicast() => return None,
        RouterIcmpError::Expired => {
            IcmpMessage::TimeExceeded { code: icmp::time_exceeded::HOP_LIMIT }
        }
        RouterIcmpError::TooBig(mtu) => IcmpMessage::PacketTooBig { mtu },
    };
    let path = PacketTemplate {
        link,
        traffic_class: PRECEDENCE,
        ..PacketTemplate::new(router.v6, source)
    };
    let whole = ipv6::HEADER_LEN + packet.payload().len();
    let most = LEN_V6 - ipv6::HEADER_LEN - icmp::HEADER_LEN;
    Some(path.icmp(message, &quoted[..whole.min(most)]))
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
