//! One datagram of which fragments have arrived: its bytes, its header, and which ranges are missing.

use std::net::IpAddr;

use plumb_base::time::Instant;
use plumb_wire::ip::{Ecn, FRAGMENT_HEADER_LEN, Fragment, IpProtocol};
use plumb_wire::ipv4;
use plumb_wire::ipv6::{self, EXTENSIONS_MAX};
use plumb_wire::packet::{Packet, PacketMeta, Pool};

use super::FragmentDrop;

/// The longest header before a fragment's data that is kept, fragment header included: what fits
/// into a packet's headroom.
const HEADER_MAX: usize = plumb_wire::packet::HEADROOM;

/// The datagram that a fragment belongs to: RFC 791 §3.2 and RFC 8200 §4.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FragmentKey {
    /// Their source.
    pub source: IpAddr,
    /// Their destination.
    pub destination: IpAddr,
    /// Their number.
    pub identification: u32,
    /// Their protocol in IPv4; in IPv6, where it does not count, 0.
    pub protocol: u8,
}

/// One fragment, as its headers describe it.
#[derive(Clone, Copy, Debug)]
pub struct ParsedFragment {
    /// The datagram that it belongs to.
    pub key: FragmentKey,
    /// Its place there.
    pub fragment: Fragment,
    /// Where its data begin in the packet.
    pub data_at: usize,
    /// Where the octet is that announces an IPv6 fragment header.
    pub next_at: usize,
    /// What follows the fragment header in IPv6; the protocol in IPv4.
    pub next: IpProtocol,
    /// Congestion notification in its header.
    pub ecn: Ecn,
}

/// The header that the datagram will have.
#[derive(Clone, Copy)]
struct FirstFragment {
    bytes: [u8; HEADER_MAX],
    len: usize,
    next_at: usize,
    next: IpProtocol,
    /// Bytes of data in the first fragment.
    data: usize,
}

/// An incomplete datagram, or one that was discarded.
pub struct PartialDatagram {
    /// Which one.
    pub key: FragmentKey,
    /// A number that grows with every datagram begun.
    pub sequence: u64,
    /// When it is given up.
    pub deadline: Instant,
    /// Its bytes so far; `None` before the first fragment, and once it was discarded.
    data: Option<Packet>,
    spans: ByteRanges,
    total: Option<u16>,
    first: Option<FirstFragment>,
    seen: u8,
}

impl PartialDatagram {
    /// One without fragments.
    pub fn new(key: FragmentKey, sequence: u64, deadline: Instant) -> Self {
        Self {
            key,
            sequence,
            deadline,
            data: None,
            spans: ByteRanges::default(),
            total: None,
            first: None,
            seen: 0,
        }
    }

    /// Bytes that must be in its memory for `end` bytes of data, where what it has is too small.
    pub fn room_needed(&self, end: u16, pool: &Pool) -> Option<usize> {
        let end = usize::from(end);
        match &self.data {
            Some(data) if end <= data.len() + pool.tailroom(data) => None,
            _ => Some(end),
        }
    }

    /// Moves what it has into a larger frame, or takes its first one.
    pub fn move_into(&mut self, mut frame: Packet, pool: &mut Pool) {
        if let Some(old) = self.data.take() {
            let fits = pool.append_from(&mut frame, &old, 0..old.len(), copy);
            debug_assert!(fits, "a larger frame was asked for");
            pool.free(old);
        }
        self.data = Some(frame);
    }

    /// Bytes of the frame that it holds.
    pub fn held(&self, pool: &Pool) -> usize {
        self.data.as_ref().map_or(0, |data| pool.headroom(data) + data.len() + pool.tailroom(data))
    }

    /// Gives up its memory; later fragments are refused until its deadline (RFC 5722 §4).
    pub fn discard(&mut self, pool: &mut Pool) {
        if let Some(data) = self.data.take() {
            pool.free(data);
        }
        self.first = None;
        self.seen = DISCARDED;
    }

    /// Whether it has been discarded.
    pub fn is_discarded(&self) -> bool {
        self.seen == DISCARDED
    }

    /// Checks a fragment against what has arrived, before any memory is found for it.
    ///
    /// # Errors
    /// [`FragmentDrop::Duplicate`] leaves the datagram as it is; after any other it must be discarded.
    pub fn admit(
        &mut self,
        piece: &ParsedFragment,
        packet: &Packet,
        pool: &Pool,
    ) -> Result<u16, FragmentDrop> {
        let bytes = pool.bytes(packet);
        let data = &bytes[piece.data_at..];
        let start = piece.fragment.offset;
        let end = piece.fragment.end(data.len()).map_err(|_| FragmentDrop::Impossible)?;
        let end = u16::try_from(end).map_err(|_| FragmentDrop::Impossible)?;
        if start == 0 {
            if piece.data_at > HEADER_MAX {
                return Err(FragmentDrop::Impossible);
            }
            if piece.key.source.is_ipv6() && !is_header_chain_complete(piece.next, data) {
                return Err(FragmentDrop::HeaderChain);
            }
        }
        let beyond =
            self.total.is_some_and(|total| end > total || (!piece.fragment.more && end != total));
        if beyond || (!piece.fragment.more && end < self.spans.end()) {
            return Err(FragmentDrop::Impossible);
        }
        let mut spans = self.spans;
        match spans.add(start, end) {
            RangeInsertion::Added => {}
            RangeInsertion::Inside => {
                // RFC 8200 §4.5 lets exact duplicates be ignored; bytes that differ are no duplicate.
                let there = self.data.as_ref().map(|data| pool.bytes(data));
                let same =
                    there.is_some_and(|there| there[usize::from(start)..usize::from(end)] == *data);
                return Err(if same { FragmentDrop::Duplicate } else { FragmentDrop::Overlap });
            }
            RangeInsertion::Overlaps => return Err(FragmentDrop::Overlap),
            RangeInsertion::TooMany => return Err(FragmentDrop::TooManyGaps),
        }
        let seen = self.seen | 1 << piece.ecn.bits();
        if combined(seen).is_none() {
            return Err(FragmentDrop::MixedEcn);
        }
        self.spans = spans;
        self.seen = seen;
        Ok(end)
    }

    /// Stores a fragment that was admitted, for whose `end` there is room.
    pub fn store(&mut self, piece: &ParsedFragment, end: u16, packet: &Packet, pool: &mut Pool) {
        let Some(data) = &mut self.data else { return };
        let end = usize::from(end);
        if end > data.len() {
            let missing = end - data.len();
            let room = pool.append(data, missing);
            debug_assert!(room.is_some(), "room was made before");
        }
        let start = usize::from(piece.fragment.offset);
        pool.copy_between(data, start, packet, piece.data_at..packet.len(), copy);
        data.meta.received = data.meta.received.max(packet.meta.received);
        if !piece.fragment.more {
            self.total = u16::try_from(end).ok();
        }
        if start == 0 {
            let mut bytes = [0; HEADER_MAX];
            bytes[..piece.data_at].copy_from_slice(&pool.bytes(packet)[..piece.data_at]);
            self.first = Some(FirstFragment {
                bytes,
                len: piece.data_at,
                next_at: piece.next_at,
                next: piece.next,
                data: end,
            });
        }
    }

    /// Whether nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.total.is_some_and(|total| self.spans.is_whole(total))
    }

    /// The datagram, nothing being missing, with its header as if it had never been cut.
    ///
    /// # Errors
    /// [`FragmentDrop::Impossible`], its memory freed, when header and data are too long for a packet.
    pub fn into_datagram(mut self, pool: &mut Pool) -> Result<Packet, FragmentDrop> {
        let whole = self.is_complete();
        let (Some(mut packet), Some(first), true) = (self.data.take(), self.first, whole) else {
            return Err(FragmentDrop::Impossible);
        };
        let ecn = combined(self.seen).unwrap_or_default();
        let mut header = first.bytes;
        let header = match self.key.source {
            IpAddr::V4(_) => header_v4(&mut header[..first.len], packet.len(), ecn),
            IpAddr::V6(_) => header_v6(&mut header[..first.len], &first, packet.len(), ecn),
        };
        let Some(header) = header else {
            pool.free(packet);
            return Err(FragmentDrop::Impossible);
        };
        pool.prepend(&mut packet, header.len()).copy_from_slice(header);
        packet.meta = PacketMeta { received: packet.meta.received, ecn, ..PacketMeta::default() };
        Ok(packet)
    }

    /// The first fragment as it came, if it did: what an ICMP error about the datagram quotes.
    pub fn into_first_fragment(mut self, pool: &mut Pool) -> Option<Packet> {
        let mut packet = self.data.take()?;
        let Some(first) = self.first else {
            pool.free(packet);
            return None;
        };
        pool.truncate(&mut packet, first.data);
        pool.prepend(&mut packet, first.len).copy_from_slice(&first.bytes[..first.len]);
        packet.meta = PacketMeta { received: packet.meta.received, ..PacketMeta::default() };
        Some(packet)
    }
}

impl std::fmt::Debug for PartialDatagram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartialDatagram")
            .field("key", &self.key)
            .field("deadline", &self.deadline)
            .field("total", &self.total)
            .field("has_first", &self.first.is_some())
            .finish_non_exhaustive()
    }
}

/// In place of the set of code points seen: it has been discarded.
const DISCARDED: u8 = 0xff;

/// The code point of a datagram whose fragments had those of the set, a bit for each.
///
/// RFC 3168 §5.3, and where that leaves it open as Linux has it (`ip_frag_ecn_table`): a mixture
/// with "not capable" is refused.
fn combined(seen: u8) -> Option<Ecn> {
    let has = |ecn: Ecn| seen & 1 << ecn.bits() != 0;
    match (has(Ecn::NotCapable), has(Ecn::Congestion)) {
        (true, false) if seen == 1 => Some(Ecn::NotCapable),
        (true, _) => None,
        (false, true) => Some(Ecn::Congestion),
        (false, false) if has(Ecn::Capable0) => Some(Ecn::Capable0),
        (false, false) => Some(Ecn::Capable1),
    }
}

fn header_v4(header: &mut [u8], data: usize, ecn: Ecn) -> Option<&[u8]> {
    let total = u16::try_from(header.len() + data).ok()?;
    header[1] = header[1] & !0b11 | ecn.bits();
    header[2..4].copy_from_slice(&total.to_be_bytes());
    header[6..8].copy_from_slice(&ipv4::FragmentField::WHOLE.0.to_be_bytes());
    header[10..12].fill(0);
    let sum = plumb_copy::sum(header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    Some(header)
}

fn header_v6<'a>(
    header: &'a mut [u8],
    first: &FirstFragment,
    data: usize,
    ecn: Ecn,
) -> Option<&'a [u8]> {
    let len = header.len() - FRAGMENT_HEADER_LEN;
    let payload = u16::try_from(len - ipv6::HEADER_LEN + data).ok()?;
    header[1] = header[1] & !0b11_0000 | ecn.bits() << 4;
    header[4..6].copy_from_slice(&payload.to_be_bytes());
    header[first.next_at] = first.next.0;
    Some(&header[..len])
}

fn copy(source: &[u8], target: &mut [u8]) {
    target.copy_from_slice(source);
}

/// The most spans that lie apart: the fragments of the largest datagram over the smallest usual MTU
/// (576 bytes), in any order but the worst.
const SPANS_MAX: usize = 64;

/// How a new range relates to those that have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RangeInsertion {
    /// It is new from end to end, and has been added.
    Added,
    /// All of it is there.
    Inside,
    /// A part of it is there.
    Overlaps,
    /// It lies apart from too many others.
    TooMany,
}

/// Bytes that have arrived.
#[derive(Clone, Copy, Debug)]
struct ByteRanges {
    spans: [(u16, u16); SPANS_MAX],
    len: usize,
}

impl Default for ByteRanges {
    fn default() -> Self {
        Self { spans: [(0, 0); SPANS_MAX], len: 0 }
    }
}

impl ByteRanges {
    /// Adds bytes `start..end`, which are not none, unless one of them is there.
    fn add(&mut self, start: u16, end: u16) -> RangeInsertion {
        debug_assert!(start < end, "a span has bytes");
        let spans = &self.spans[..self.len];
        // The first that ends at or behind our start: everything before lies apart from us.
        let at = spans.partition_point(|span| span.1 < start);
        let joins_left = spans.get(at).is_some_and(|span| span.1 == start);
        let right = at + usize::from(joins_left);
        if let Some(&(from, to)) = spans.get(right)
            && from < end
        {
            return if from <= start && end <= to {
                RangeInsertion::Inside
            } else {
                RangeInsertion::Overlaps
            };
        }
        let joins_right = spans.get(right).is_some_and(|span| span.0 == end);
        match (joins_left, joins_right) {
            (true, true) => {
                self.spans[at].1 = self.spans[right].1;
                self.spans.copy_within(right + 1..self.len, right);
                self.len -= 1;
            }
            (true, false) => self.spans[at].1 = end,
            (false, true) => self.spans[at].0 = start,
            (false, false) => {
                if self.len == SPANS_MAX {
                    return RangeInsertion::TooMany;
                }
                self.spans.copy_within(at..self.len, at + 1);
                self.spans[at] = (start, end);
                self.len += 1;
            }
        }
        RangeInsertion::Added
    }

    /// Whether bytes `0..total` have all arrived, and no others.
    fn is_whole(&self, total: u16) -> bool {
        self.spans[..self.len] == [(0, total)]
    }

    /// Behind the last byte that has arrived.
    fn end(&self) -> u16 {
        self.spans[..self.len].last().map_or(0, |span| span.1)
    }
}

/// Whether `data`, which begins with a header of protocol `first`, holds every extension header and the
/// transport's header, as RFC 7112 §5 requires of a first fragment. An unknown protocol counts as a transport without a
/// header.
fn is_header_chain_complete(first: IpProtocol, data: &[u8]) -> bool {
    let (mut next, mut rest) = (first, data);
    for _ in 0..=EXTENSIONS_MAX {
        let needed = match next {
            IpProtocol::HOP_BY_HOP | IpProtocol::ROUTING | IpProtocol::DESTINATION => {
                rest.get(1).map(|units| (usize::from(*units) + 1) * 8)
            }
            IpProtocol::AUTHENTICATION => rest.get(1).map(|units| (usize::from(*units) + 2) * 4),
            IpProtocol::FRAGMENT => Some(8),
            transport => return rest.len() >= transport_header_len(transport),
        };
        let Some((header, behind)) = needed.and_then(|len| rest.split_at_checked(len)) else {
            return false;
        };
        (next, rest) = (IpProtocol(header[0]), behind);
    }
    false
}

fn transport_header_len(transport: IpProtocol) -> usize {
    match transport {
        IpProtocol::TCP | IpProtocol::IPV4 => 20,
        IpProtocol::UDP | IpProtocol::ESP | IpProtocol::ICMPV6 => 8,
        IpProtocol::IPV6 => 40,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_are_bounded_and_filling_a_gap_makes_room() {
        let mut spans = ByteRanges::default();
        for n in 0..u16::try_from(SPANS_MAX).unwrap() {
            assert_eq!(spans.add(n * 16, n * 16 + 8), RangeInsertion::Added);
        }
        assert_eq!(spans.add(16 * 64, 16 * 64 + 8), RangeInsertion::TooMany);
        assert_eq!(spans.add(8, 16), RangeInsertion::Added);
        assert_eq!(spans.add(16 * 64, 16 * 64 + 8), RangeInsertion::Added);
        assert_eq!(spans.end(), 16 * 64 + 8);
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_map_of_every_byte(
            pieces in proptest::collection::vec((0..60_u16, 1..12_u16), 1..60)
        ) {
            let mut spans = ByteRanges::default();
            let mut map = [false; 80];
            for (start, len) in pieces {
                let range = usize::from(start)..usize::from(start + len);
                let there = map[range.clone()].iter().filter(|byte| **byte).count();
                let expected = match there {
                    0 => RangeInsertion::Added,
                    n if n == range.len() => RangeInsertion::Inside,
                    _ => RangeInsertion::Overlaps,
                };
                prop_assert_eq!(spans.add(start, start + len), expected);
                if expected == RangeInsertion::Added {
                    map[range].fill(true);
                }
                let end = map.iter().rposition(|byte| *byte).map_or(0, |at| at + 1);
                prop_assert_eq!(usize::from(spans.end()), end);
                let whole = map[..end].iter().all(|byte| *byte);
                prop_assert_eq!(spans.is_whole(spans.end()), whole);
            }
        }
    }

    #[test]
    fn header_chain_includes_the_transport_header() {
        let mut chain = vec![IpProtocol::DESTINATION.0, 1];
        chain.resize(16, 0);
        chain.extend([IpProtocol::UDP.0, 0, 1, 4, 0, 0, 0, 0]);
        chain.extend([0x30, 0x39, 0, 7, 0, 8, 0, 0]);
        assert!(is_header_chain_complete(IpProtocol::ROUTING, &chain));
        for cut in 0..chain.len() {
            assert!(!is_header_chain_complete(IpProtocol::ROUTING, &chain[..cut]), "cut at {cut}");
        }
        assert!(is_header_chain_complete(IpProtocol::NO_NEXT, &[]));
        assert!(!is_header_chain_complete(IpProtocol::TCP, &[0; 19]));
    }

    #[test]
    fn endless_header_chain_is_incomplete() {
        let endless = [IpProtocol::DESTINATION.0, 0, 1, 4, 0, 0, 0, 0].repeat(100);
        assert!(!is_header_chain_complete(IpProtocol::DESTINATION, &endless));
    }
}
