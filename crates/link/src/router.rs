//! What stands where a frame enters a hop: time to live, MTU, fragments, and errors to who sent it.
//!
//! Routers are transparent: they leave Ethernet's addresses alone, and what belongs to one network (ARP, neighbour
//! discovery, link-local addresses) passes uncounted. Their own addresses are of the documentation prefixes
//! (RFC 5737, RFC 3849): `192.0.2.N` and `2001:db8:0:77::N`, N counting from the near side; a link's
//! own ends, which only ever speak about an MTU, are 254 (near) and 253 (far). Left out: routes; options that routers act on.

use std::net::{Ipv4Addr, Ipv6Addr};

use plumb_base::time::Instant;
use plumb_base::units::rate::Rate;
use plumb_wire::medium::Medium;
use plumb_wire::packet::{Packet, Pool};
use plumb_wire::{icmpv6, ipv4, ipv6, ndp};

use crate::header::ip_offset;
use crate::rate::bucket::Bucket;
use crate::spec::{BucketSpec, MtuSpec};

pub(crate) mod error;
pub(crate) mod fragments;

/// Errors a second of one router, and how many at once: Linux's icmp_msgs_per_sec and icmp_msgs_burst.
const ERRORS: u64 = 1_000;
const ERRORS_AT_ONCE: u64 = 50;

/// A router, or an end of a link, as seen by one direction.
#[derive(Debug)]
pub(crate) struct Router {
    pub v4: Ipv4Addr,
    pub v6: Ipv6Addr,
    /// Whether it counts hops: an end of a link does not.
    counts: bool,
    /// Of errors, counted as if each were a bit.
    errors: Bucket,
}

/// Whether a frame goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passes,
    /// It has been passed on often enough.
    Expired,
    /// It must not be cut, and whoever sent it is told.
    TooBig,
    /// It may be cut.
    Divisible,
    /// Nobody is told.
    Vanishes,
}

impl Router {
    /// The router of a number from 1, or an end of the link.
    pub fn new(number: u8, counts: bool, now: Instant) -> Self {
        let rate = Rate::from_bits_per_second(ERRORS * 8).expect("not zero");
        Self {
            v4: Ipv4Addr::new(192, 0, 2, number),
            v6: Ipv6Addr::new(0x2001, 0xdb8, 0, 0x77, 0, 0, 0, number.into()),
            counts,
            errors: Bucket::new(BucketSpec { rate, burst: ERRORS_AT_ONCE }, now),
        }
    }

    /// Whether an error may be sent at `now`; then it counts as sent.
    pub fn may_send(&mut self, now: Instant) -> bool {
        self.errors.conforms(now, 8)
    }

    /// Judges a frame, and counts one hop in it.
    #[inline]
    pub fn judge(
        &self,
        packet: &mut Packet,
        mtu: Option<MtuSpec>,
        medium: Medium,
        pool: &mut Pool,
    ) -> Verdict {
        if !self.counts && mtu.is_none() {
            return Verdict::Passes;
        }
        let segments = packet.meta.segments;
        let bytes = pool.bytes_mut(packet);
        let Some(at) = ip_offset(medium, bytes) else { return Verdict::Passes };
        let Some(seen) = Seen::of(&bytes[at..]) else { return Verdict::Passes };
        if self.counts && !seen.is_local && !count_hop(&mut bytes[at..], seen.is_v6) {
            return Verdict::Expired;
        }
        // Each packet that a super-segment stands for, not all of them.
        let len = segments.map_or(seen.len, |segments| {
            usize::from(segments.header_len).saturating_sub(at) + usize::from(segments.size)
        });
        match mtu {
            Some(mtu) if len.min(seen.len) > mtu.bytes as usize => {
                match (mtu.tells, seen.may_cut) {
                    (false, _) => Verdict::Vanishes,
                    (true, true) => Verdict::Divisible,
                    // RFC 8200 §5: IPv6 has no links of a lesser MTU, and a host need not believe in one.
                    (true, false) if seen.is_v6 && mtu.bytes < 1_280 => Verdict::Vanishes,
                    (true, false) => Verdict::TooBig,
                }
            }
            _ => Verdict::Passes,
        }
    }
}

/// What a router looks at.
struct Seen {
    is_v6: bool,
    /// Bytes of the IP packet.
    len: usize,
    /// Whether it belongs to one network, where there are no routers.
    is_local: bool,
    may_cut: bool,
}

impl Seen {
    #[inline]
    fn of(packet: &[u8]) -> Option<Self> {
        if packet.first()? >> 4 == 4 {
            let header = ipv4::Packet::parse_quoted(packet).ok()?;
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
        let header = ipv6::Packet::parse_quoted(packet).ok()?;
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
fn is_discovery(header: &ipv6::Packet<'_>) -> bool {
    header.hop_limit() == ndp::HOP_LIMIT
        && icmpv6::Packet::parse(header.payload()).is_ok_and(|message| {
            header.next_header() == plumb_wire::protocol::Protocol::ICMPV6
                && ndp::is_ndp(message.kind())
        })
}

/// Takes one from the hop limit; `false`, and nothing changed, when no more would be left.
#[inline]
fn count_hop(packet: &mut [u8], is_v6: bool) -> bool {
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
