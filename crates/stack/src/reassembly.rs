//! Reassembly in bounded memory: IPv4 (RFC 791 §3.2) and IPv6 (RFC 8200 §4.5).
//!
//! Datagrams, bytes of frames, one source's share and gaps are bounded; beyond a bound the oldest datagram is
//! evicted. Overlapping fragments discard their datagram and later fragments of it (RFC 5722, here
//! for both families, as in Linux); exact duplicates are ignored. A reassembled datagram's checksum is not
//! verified.

use std::net::IpAddr;

use plumb_base::time::{Instant, Span};
use plumb_wire::ip::FRAGMENT_HEADER_LEN;
use plumb_wire::packet::{Packet, Pool};
use plumb_wire::{ipv4, ipv6};

mod partial;

use partial::{FragmentKey, ParsedFragment, PartialDatagram};

/// What reassembly may hold, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReassemblyConfig {
    /// Datagrams that are incomplete, or condemned.
    pub datagrams: usize,
    /// How many of these one source may have.
    pub datagrams_per_source: usize,
    /// Bytes of frames; a datagram beyond an ordinary frame takes a large one. Less than the pool
    /// has, so that something is left for others.
    pub bytes: usize,
    /// How long fragments of IPv4 wait: RFC 1122 §3.3.2 says 60 to 120 s, Linux 30 s.
    pub timeout_v4: Span,
    /// How long fragments of IPv6 wait: RFC 8200 §4.5 says 60 s.
    pub timeout_v6: Span,
}

impl Default for ReassemblyConfig {
    /// 64 datagrams, 16 a source, 8 large frames' bytes, 30 s and 60 s.
    fn default() -> Self {
        Self {
            datagrams: 64,
            datagrams_per_source: 16,
            bytes: 8 * plumb_wire::packet::LARGE_FRAME,
            timeout_v4: Span::from_secs(30),
            timeout_v6: Span::from_secs(60),
        }
    }
}

/// What happened to a fragment.
#[derive(Debug)]
#[must_use = "it may hold a packet"]
pub enum ReassemblyOutcome {
    /// It was the last that was missing: the whole datagram, from its IP header on.
    Complete(Packet),
    /// It is kept, and its frame has been freed.
    Kept,
    /// It was refused; as it came, for an error to quote and for the caller to free.
    Dropped(Packet, FragmentDrop),
}

/// Why a fragment was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentDrop {
    /// It came before.
    Duplicate,
    /// A part of it came before, or other bytes in its place: the datagram is condemned.
    Overlap,
    /// It is of a datagram that was condemned.
    DatagramDiscarded,
    /// It lies apart from too many others: the datagram is condemned.
    TooManyGaps,
    /// It makes its datagram impossible: two ends, too long, headers too long.
    Impossible,
    /// More follow, but it is not a multiple of 8 bytes long (RFC 8200 §4.5: parameter problem,
    /// code 0, at the payload length).
    Unaligned,
    /// It ends beyond the largest datagram (RFC 8200 §4.5: parameter problem, code 0, at the
    /// fragment offset).
    TooLong,
    /// It is the first, and does not hold the whole header chain (RFC 7112 §5: parameter problem,
    /// code 3).
    HeaderChain,
    /// Some of its datagram's fragments are ECN-capable, others not (RFC 3168 §5.3).
    MixedEcn,
    /// There was no memory for it.
    Memory,
}

/// Incomplete datagrams.
#[derive(Debug)]
pub struct Reassembly {
    config: ReassemblyConfig,
    slots: Vec<Option<PartialDatagram>>,
    sequence: u64,
    held: usize,
    next: Option<Instant>,
    evicted: u64,
}

impl Reassembly {
    /// Nothing yet.
    pub fn new(config: ReassemblyConfig) -> Self {
        Self {
            config,
            slots: (0..config.datagrams).map(|_| None).collect(),
            sequence: 0,
            held: 0,
            next: None,
            evicted: 0,
        }
    }

    /// Takes an IP packet that is a fragment, cut to its IP length, its header's checksum verified.
    ///
    /// A packet that is no fragment, or an atomic one (RFC 6946), is whole.
    pub fn handle_fragment(
        &mut self,
        now: Instant,
        packet: Packet,
        pool: &mut Pool,
    ) -> ReassemblyOutcome {
        let piece = match piece_of(pool.bytes(&packet)) {
            Ok(Some(piece)) => piece,
            Ok(None) => return ReassemblyOutcome::Complete(packet),
            Err(refused) => return ReassemblyOutcome::Dropped(packet, refused),
        };
        let slot = match self.find(&piece.key) {
            Some(slot) => slot,
            None => match self.begin(now, &piece, pool) {
                Some(slot) => slot,
                None => return ReassemblyOutcome::Dropped(packet, FragmentDrop::Memory),
            },
        };
        match self.add(slot, &piece, &packet, pool) {
            Ok(false) => {
                pool.free(packet);
                ReassemblyOutcome::Kept
            }
            Ok(true) => {
                let Some(partial) = self.remove(slot, pool) else { return ReassemblyOutcome::Kept };
                match partial.into_datagram(pool) {
                    Ok(datagram) => {
                        pool.free(packet);
                        ReassemblyOutcome::Complete(datagram)
                    }
                    Err(refused) => ReassemblyOutcome::Dropped(packet, refused),
                }
            }
            Err(refused @ (FragmentDrop::Duplicate | FragmentDrop::DatagramDiscarded)) => {
                ReassemblyOutcome::Dropped(packet, refused)
            }
            Err(FragmentDrop::Memory) => {
                if let Some(partial) = self.remove(slot, pool) {
                    free(partial, pool);
                }
                ReassemblyOutcome::Dropped(packet, FragmentDrop::Memory)
            }
            Err(refused) => {
                self.discard_datagram(slot, pool);
                ReassemblyOutcome::Dropped(packet, refused)
            }
        }
    }

    /// When [`Reassembly::poll_expired`] will give up a datagram.
    pub fn deadline(&self) -> Option<Instant> {
        self.next
    }

    /// Gives up one datagram whose time is over: its first fragment, if that arrived, for the error
    /// to quote (time exceeded, code 1), and for the caller to free. `None` when there is no more.
    pub fn poll_expired(&mut self, now: Instant, pool: &mut Pool) -> Option<Option<Packet>> {
        if self.next.is_none_or(|next| next > now) {
            return None;
        }
        let due = |partial: &PartialDatagram| partial.deadline <= now;
        let slot = self.slots.iter().position(|slot| slot.as_ref().is_some_and(due))?;
        let partial = self.remove(slot, pool)?;
        Some(partial.into_first_fragment(pool))
    }

    /// Datagrams that are incomplete or condemned.
    pub fn len(&self) -> usize {
        self.slots.iter().flatten().count()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.iter().all(Option::is_none)
    }

    /// Bytes of frames that incomplete datagrams hold.
    pub fn held_bytes(&self) -> usize {
        self.held
    }

    /// Datagrams that had to give way to others, since the start.
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Checks and stores a fragment: whether the datagram is whole now.
    fn add(
        &mut self,
        slot: usize,
        piece: &ParsedFragment,
        packet: &Packet,
        pool: &mut Pool,
    ) -> Result<bool, FragmentDrop> {
        let partial = self.slots[slot].as_mut().expect("the slot was found or begun");
        if partial.is_discarded() {
            return Err(FragmentDrop::DatagramDiscarded);
        }
        let end = partial.admit(piece, packet, pool)?;
        if let Some(bytes) = partial.room_needed(end, pool) {
            let frame = self.frame(slot, bytes, pool).ok_or(FragmentDrop::Memory)?;
            let partial = self.slots[slot].as_mut().expect("none but others gave way");
            self.held -= partial.held(pool);
            partial.move_into(frame, pool);
            self.held += partial.held(pool);
        }
        let partial = self.slots[slot].as_mut().expect("none but others gave way");
        partial.store(piece, end, packet, pool);
        Ok(partial.is_complete())
    }

    /// A frame for `bytes` of the datagram in `slot`, for which older ones may have to give way.
    fn frame(&mut self, slot: usize, bytes: usize, pool: &mut Pool) -> Option<Packet> {
        loop {
            let own = self.slots[slot].as_ref().map_or(0, |partial| partial.held(pool));
            if let Some(frame) = pool.allocate_for(bytes) {
                let needed = pool.headroom(&frame) + pool.tailroom(&frame);
                if self.held - own + needed <= self.config.bytes {
                    return Some(frame);
                }
                pool.free(frame);
            }
            // Somebody who holds memory, and is not the one that asks.
            let victim = self.oldest(|other, partial| other != slot && partial.held(pool) > 0)?;
            self.evict(victim, pool);
        }
    }

    fn find(&self, key: &FragmentKey) -> Option<usize> {
        let is_same = |there: &PartialDatagram| {
            there.key.identification == key.identification && there.key == *key
        };
        self.slots.iter().position(|slot| slot.as_ref().is_some_and(is_same))
    }

    /// A slot for a new datagram; the oldest of its source, or of all, gives way if it must.
    fn begin(&mut self, now: Instant, piece: &ParsedFragment, pool: &mut Pool) -> Option<usize> {
        let source = piece.key.source;
        let of_source = |partial: &PartialDatagram| partial.key.source == source;
        let share = self.slots.iter().flatten().filter(|partial| of_source(partial)).count();
        if share > 0 && share >= self.config.datagrams_per_source {
            let victim = self.oldest(|_, partial| of_source(partial))?;
            self.evict(victim, pool);
        }
        if self.slots.iter().all(Option::is_some) {
            let victim = self.oldest(|_, _| true)?;
            self.evict(victim, pool);
        }
        let slot = self.slots.iter().position(Option::is_none)?;
        let timeout = match source {
            IpAddr::V4(_) => self.config.timeout_v4,
            IpAddr::V6(_) => self.config.timeout_v6,
        };
        let deadline = now + timeout;
        self.slots[slot] = Some(PartialDatagram::new(piece.key, self.sequence, deadline));
        self.sequence += 1;
        self.next = Some(self.next.map_or(deadline, |next| next.min(deadline)));
        Some(slot)
    }

    fn oldest(&self, eligible: impl Fn(usize, &PartialDatagram) -> bool) -> Option<usize> {
        let of = |slot: usize| self.slots[slot].as_ref();
        (0..self.slots.len())
            .filter(|slot| of(*slot).is_some_and(|partial| eligible(*slot, partial)))
            .min_by_key(|slot| of(*slot).map(|partial| partial.sequence))
    }

    fn evict(&mut self, slot: usize, pool: &mut Pool) {
        if let Some(partial) = self.remove(slot, pool) {
            self.evicted += 1;
            free(partial, pool);
        }
    }

    fn discard_datagram(&mut self, slot: usize, pool: &mut Pool) {
        if let Some(partial) = &mut self.slots[slot] {
            self.held -= partial.held(pool);
            partial.discard(pool);
        }
    }

    fn remove(&mut self, slot: usize, pool: &Pool) -> Option<PartialDatagram> {
        let partial = self.slots[slot].take()?;
        self.held -= partial.held(pool);
        if self.next == Some(partial.deadline) {
            self.next = self.slots.iter().flatten().map(|partial| partial.deadline).min();
        }
        Some(partial)
    }
}

fn free(mut partial: PartialDatagram, pool: &mut Pool) {
    partial.discard(pool);
}

/// What the headers of an IP packet say about it as a fragment; `None` of one that is whole.
fn piece_of(bytes: &[u8]) -> Result<Option<ParsedFragment>, FragmentDrop> {
    let piece = match bytes.first().map(|octet| octet >> 4) {
        Some(4) => piece_of_v4(bytes),
        _ => piece_of_v6(bytes),
    };
    let Some(piece) = piece? else { return Ok(None) };
    let len = bytes.len() - piece.data_at;
    if piece.fragment.more && !len.is_multiple_of(8) {
        return Err(FragmentDrop::Unaligned);
    }
    let headers = match piece.key.source {
        IpAddr::V4(_) => piece.data_at,
        IpAddr::V6(_) => piece.data_at - ipv6::HEADER_LEN - FRAGMENT_HEADER_LEN,
    };
    if headers + usize::from(piece.fragment.offset) + len > ipv4::PACKET_LEN_MAX {
        return Err(FragmentDrop::TooLong);
    }
    if len == 0 {
        return Err(FragmentDrop::Impossible);
    }
    Ok(Some(piece))
}

fn piece_of_v4(bytes: &[u8]) -> Result<Option<ParsedFragment>, FragmentDrop> {
    let packet = ipv4::Ipv4Packet::parse(bytes).map_err(|_| FragmentDrop::Impossible)?;
    let Some(fragment) = packet.fragment() else { return Ok(None) };
    Ok(Some(ParsedFragment {
        key: FragmentKey {
            source: packet.source().into(),
            destination: packet.destination().into(),
            identification: fragment.identification,
            protocol: packet.protocol().0,
        },
        fragment,
        data_at: ipv4::HEADER_LEN + packet.options().len(),
        next_at: 9,
        next: packet.protocol(),
        ecn: packet.traffic_class().ecn(),
    }))
}

fn piece_of_v6(bytes: &[u8]) -> Result<Option<ParsedFragment>, FragmentDrop> {
    let packet = ipv6::Ipv6Packet::parse(bytes).map_err(|_| FragmentDrop::Impossible)?;
    let mut extensions = packet.extensions();
    let mut next_at = extensions.protocol_at();
    while let Some(extension) = extensions.next() {
        if let ipv6::extension::Ipv6Extension::Fragment(fragment) =
            extension.map_err(|_| FragmentDrop::Impossible)?
            && !fragment.is_atomic()
        {
            return Ok(Some(ParsedFragment {
                key: FragmentKey {
                    source: packet.source().into(),
                    destination: packet.destination().into(),
                    identification: fragment.identification,
                    protocol: 0,
                },
                fragment,
                data_at: extensions.payload_at(),
                next_at,
                next: extensions.protocol(),
                ecn: packet.traffic_class().ecn(),
            }));
        }
        next_at = extensions.protocol_at();
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
