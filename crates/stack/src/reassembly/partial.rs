//! One datagram of which fragments have arrived: its bytes, its header, what is missing.
//!
//! Left out: how many there may be, and for how long.

use std::net::IpAddr;

use plumb_base::time::Instant;
use plumb_wire::ecn::Ecn;
use plumb_wire::fragment::{self, Fragment};
use plumb_wire::packet::{Meta, Packet, Pool};
use plumb_wire::protocol::Protocol;
use plumb_wire::{ipv4, ipv6};

use super::Refused;
use super::chain;
use super::spans::{Fit, Spans};

/// The longest header before a fragment's data that is kept, fragment header included: what fits
/// into a packet's headroom.
const HEADER_MAX: usize = plumb_wire::packet::HEADROOM;

/// What makes fragments belong together: RFC 791 §3.2 and RFC 8200 §4.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Who sent them.
    pub source: IpAddr,
    /// Whom to.
    pub destination: IpAddr,
    /// Their number.
    pub identification: u32,
    /// Their protocol in IPv4; in IPv6, where it does not count, 0.
    pub protocol: u8,
}

/// One fragment, as its headers describe it.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The datagram that it belongs to.
    pub key: Key,
    /// Its place there.
    pub fragment: Fragment,
    /// Where its data begin in the packet.
    pub data_at: usize,
    /// Where the octet is that announces an IPv6 fragment header.
    pub next_at: usize,
    /// What follows the fragment header in IPv6; the protocol in IPv4.
    pub next: Protocol,
    /// Congestion notification in its header.
    pub ecn: Ecn,
}

/// The header that the datagram will have.
#[derive(Clone, Copy)]
struct First {
    bytes: [u8; HEADER_MAX],
    len: usize,
    next_at: usize,
    next: Protocol,
    /// Bytes of data in the first fragment.
    data: usize,
}

/// A datagram of which some is missing, or which has been discarded.
pub struct Partial {
    /// Which one.
    pub key: Key,
    /// Its key's hash.
    pub hash: u64,
    /// A number that grows with every datagram begun.
    pub sequence: u64,
    /// When it is given up.
    pub deadline: Instant,
    /// Its bytes so far; without them it has been discarded, and whatever comes of it will be.
    data: Option<Packet>,
    spans: Spans,
    total: Option<u16>,
    first: Option<First>,
    seen: u8,
}

impl Partial {
    /// One of which nothing has arrived.
    pub fn new(key: Key, hash: u64, sequence: u64, deadline: Instant) -> Self {
        Self {
            key,
            hash,
            sequence,
            deadline,
            data: None,
            spans: Spans::default(),
            total: None,
            first: None,
            seen: 0,
        }
    }

    /// Bytes that must be in its memory for `end` bytes of data, where what it has is too small.
    pub fn wants(&self, end: u16, pool: &Pool) -> Option<usize> {
        let end = usize::from(end);
        match &self.data {
            Some(data) if end <= data.len() + pool.tailroom(data) => None,
            _ => Some(end),
        }
    }

    /// Moves what it has into a larger frame, or takes its first one.
    pub fn rehouse(&mut self, mut frame: Packet, pool: &mut Pool) {
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

    /// Gives up its memory; what comes of it later is refused until its deadline (RFC 5722 §4).
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
    /// [`Refused::Duplicate`] leaves the datagram as it is; after any other it must be discarded.
    pub fn admit(&mut self, piece: &Piece, packet: &Packet, pool: &Pool) -> Result<u16, Refused> {
        let bytes = pool.bytes(packet);
        let data = &bytes[piece.data_at..];
        let start = piece.fragment.offset;
        let end = piece.fragment.end(data.len()).map_err(|_| Refused::Impossible)?;
        let end = u16::try_from(end).map_err(|_| Refused::Impossible)?;
        if start == 0 {
            if piece.data_at > HEADER_MAX {
                return Err(Refused::Impossible);
            }
            if piece.key.source.is_ipv6() && !chain::is_whole(piece.next, data) {
                return Err(Refused::HeaderChain);
            }
        }
        let beyond =
            self.total.is_some_and(|total| end > total || (!piece.fragment.more && end != total));
        if beyond || (!piece.fragment.more && end < self.spans.end()) {
            return Err(Refused::Impossible);
        }
        let mut spans = self.spans;
        match spans.add(start, end) {
            Fit::Added => {}
            Fit::Inside => {
                // RFC 8200 §4.5 lets exact duplicates be ignored; bytes that differ are no duplicate.
                let there = self.data.as_ref().map(|data| pool.bytes(data));
                let same =
                    there.is_some_and(|there| there[usize::from(start)..usize::from(end)] == *data);
                return Err(if same { Refused::Duplicate } else { Refused::Overlap });
            }
            Fit::Overlaps => return Err(Refused::Overlap),
            Fit::TooMany => return Err(Refused::TooManyGaps),
        }
        let seen = self.seen | 1 << piece.ecn.bits();
        if combined(seen).is_none() {
            return Err(Refused::MixedEcn);
        }
        self.spans = spans;
        self.seen = seen;
        Ok(end)
    }

    /// Stores a fragment that was admitted, for whose `end` there is room.
    pub fn store(&mut self, piece: &Piece, end: u16, packet: &Packet, pool: &mut Pool) {
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
            self.first = Some(First {
                bytes,
                len: piece.data_at,
                next_at: piece.next_at,
                next: piece.next,
                data: end,
            });
        }
    }

    /// Whether nothing is missing.
    pub fn is_whole(&self) -> bool {
        self.total.is_some_and(|total| self.spans.is_whole(total))
    }

    /// The datagram, nothing being missing, with its header as if it had never been cut.
    ///
    /// # Errors
    /// [`Refused::Impossible`], its memory freed, when header and data are too long for a packet.
    pub fn into_datagram(mut self, pool: &mut Pool) -> Result<Packet, Refused> {
        let whole = self.is_whole();
        let (Some(mut packet), Some(first), true) = (self.data.take(), self.first, whole) else {
            return Err(Refused::Impossible);
        };
        let ecn = combined(self.seen).unwrap_or_default();
        let mut header = first.bytes;
        let header = match self.key.source {
            IpAddr::V4(_) => header_v4(&mut header[..first.len], packet.len(), ecn),
            IpAddr::V6(_) => header_v6(&mut header[..first.len], &first, packet.len(), ecn),
        };
        let Some(header) = header else {
            pool.free(packet);
            return Err(Refused::Impossible);
        };
        pool.prepend(&mut packet, header.len()).copy_from_slice(header);
        packet.meta = Meta { received: packet.meta.received, ecn, ..Meta::default() };
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
        packet.meta = Meta { received: packet.meta.received, ..Meta::default() };
        Some(packet)
    }
}

impl std::fmt::Debug for Partial {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Partial")
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

fn header_v6<'a>(header: &'a mut [u8], first: &First, data: usize, ecn: Ecn) -> Option<&'a [u8]> {
    let len = header.len() - fragment::HEADER_LEN;
    let payload = u16::try_from(len - ipv6::HEADER_LEN + data).ok()?;
    header[1] = header[1] & !0b11_0000 | ecn.bits() << 4;
    header[4..6].copy_from_slice(&payload.to_be_bytes());
    header[first.next_at] = first.next.0;
    Some(&header[..len])
}

fn copy(source: &[u8], target: &mut [u8]) {
    target.copy_from_slice(source);
}
