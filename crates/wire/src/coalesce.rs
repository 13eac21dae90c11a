//! Consecutive packets of one flow put together into super-segments, so that what follows is done once
//! for many: what Linux calls generic receive offload.
//!
//! Only what `crate::segment` would cut into the same packets again is put together: same headers
//! but for what counts up, checksums verified, full segments but for the last. Left out: waiting for
//! more to come, and reordering; only neighbours in a batch are joined.

use plumb_copy::Sum16;

use crate::machine::Medium;
use crate::packet::{Batch, ChecksumState, Packet, Pool, SegmentationInfo};
use crate::segmentation::{SegmentLayout, TCP_FIRST, TCP_LAST, TCP_NEVER};

/// Bytes of the longest IP packet, and so of a super-segment without its link header.
const LEN_MAX: usize = 65_535;

/// Joins neighbours in `batch`, which arrived in this order from a device of `medium`.
///
/// A super-segment's checksum is partial: it has been verified, and is made anew when it is cut. Frames
/// of packets that were joined to others are freed. Packets that cannot be joined stay as they are.
pub fn coalesce(batch: &mut Batch, medium: Medium, pool: &mut Pool) {
    let mut open: Option<OpenSuperSegment> = None;
    let mut kept = 0;
    for at in 0..batch.len() {
        let candidate = CoalesceCandidate::of(&batch[at], medium, pool);
        if let (Some(run), Some(candidate)) = (&mut open, &candidate) {
            let (before, from_here) = batch.split_at_mut(at);
            if run.join(candidate, &mut before[kept - 1], &from_here[0], pool) {
                if run.is_closed {
                    close(&mut open, &mut before[kept - 1], pool);
                }
                continue;
            }
        }
        if kept > 0 {
            close(&mut open, &mut batch[kept - 1], pool);
        }
        // Packets that were joined lie between; they move behind, to be freed at the end.
        batch.swap(kept, at);
        kept += 1;
        open = candidate
            .and_then(|candidate| OpenSuperSegment::of(&candidate, &batch[kept - 1], pool));
    }
    if kept > 0 {
        close(&mut open, &mut batch[kept - 1], pool);
    }
    for packet in batch.drain(kept..) {
        pool.free(packet);
    }
}

fn close(open: &mut Option<OpenSuperSegment>, packet: &mut Packet, pool: &mut Pool) {
    if let Some(run) = open.take()
        && run.count > 1
    {
        run.finish(packet, pool);
    }
}

/// A packet that might be joined to another.
struct CoalesceCandidate {
    layout: SegmentLayout,
    /// Bytes of payload.
    len: usize,
}

impl CoalesceCandidate {
    fn of(packet: &Packet, medium: Medium, pool: &Pool) -> Option<Self> {
        let bytes = pool.bytes(packet);
        let layout = SegmentLayout::of(bytes, medium)?;
        let verify = match packet.meta.checksum {
            ChecksumState::Plain => true,
            ChecksumState::Verified => false,
            // It has not been on a wire since its sender left the sum open: nothing can be wrong yet.
            ChecksumState::Partial { start, offset } => {
                if usize::from(start) != layout.transport || offset != layout.checksum_offset() {
                    return None;
                }
                false
            }
        };
        let len = bytes.len() - layout.payload;
        if packet.meta.segments.is_some() || len == 0 {
            return None;
        }
        if !layout.is_v6() && Sum16::of(&bytes[layout.ip..layout.transport]).finish() != 0 {
            return None;
        }
        if layout.is_tcp() {
            if bytes[layout.transport + 13] & TCP_NEVER != 0 {
                return None;
            }
        } else if layout.checksum_field(bytes) == 0 && is_complete(packet) {
            return None;
        }
        if verify {
            let expected =
                layout.checksum(bytes, layout.pseudo(bytes)?, Sum16::of(&bytes[layout.payload..]));
            if layout.checksum_field(bytes) != expected {
                return None;
            }
        }
        Some(Self { layout, len })
    }
}

/// Whether its checksum field says what it says, and is no sum left open.
fn is_complete(packet: &Packet) -> bool {
    !matches!(packet.meta.checksum, ChecksumState::Partial { .. })
}

/// A packet that others may be joined to, and what it stands for.
struct OpenSuperSegment {
    layout: SegmentLayout,
    /// Payload of each but the last.
    size: usize,
    count: u16,
    identification: u16,
    seq: u32,
    /// Whether no more can follow: the last was short, or ended a record.
    is_closed: bool,
}

impl OpenSuperSegment {
    fn of(candidate: &CoalesceCandidate, packet: &Packet, pool: &Pool) -> Option<Self> {
        let bytes = pool.bytes(packet);
        let CoalesceCandidate { layout, len } = *candidate;
        let ends = layout.is_tcp() && bytes[layout.transport + 13] & TCP_LAST != 0;
        (!ends && u16::try_from(len).is_ok()).then(|| Self {
            layout,
            size: len,
            count: 1,
            identification: layout.identification(bytes),
            seq: seq(&layout, bytes),
            is_closed: false,
        })
    }

    /// Appends `next`'s payload to the packet in `head`, if it continues it.
    fn join(
        &mut self,
        candidate: &CoalesceCandidate,
        head: &mut Packet,
        next: &Packet,
        pool: &mut Pool,
    ) -> bool {
        let layout = self.layout;
        if candidate.layout != layout || candidate.len > self.size {
            return false;
        }
        if !self.continues(pool.bytes(head), pool.bytes(next)) {
            return false;
        }
        if head.len() - layout.ip + candidate.len > LEN_MAX || !make_room(head, candidate.len, pool)
        {
            return false;
        }
        let copied = pool.append_from(head, next, layout.payload..next.len(), |source, target| {
            target.copy_from_slice(source);
        });
        debug_assert!(copied, "room was made");
        self.count += 1;
        self.is_closed = candidate.len < self.size;
        if layout.is_tcp() {
            let last = pool.bytes(next)[layout.transport + 13] & TCP_LAST;
            pool.bytes_mut(head)[layout.transport + 13] |= last;
            self.is_closed |= last != 0;
        }
        true
    }

    /// Whether `next` has the headers that cutting would give the next segment.
    fn continues(&self, head: &[u8], next: &[u8]) -> bool {
        let layout = self.layout;
        let (ip, transport) = (layout.ip, layout.transport);
        if head[..ip] != next[..ip] {
            return false;
        }
        let same_ip = if layout.is_v6() {
            head[ip..ip + 4] == next[ip..ip + 4]
                && head[ip + 6..transport] == next[ip + 6..transport]
        } else {
            let expected = layout.nth_identification(head, self.identification, self.count);
            layout.identification(next) == expected
                && head[ip..ip + 2] == next[ip..ip + 2]
                && head[ip + 6..ip + 10] == next[ip + 6..ip + 10]
                && head[ip + 12..transport] == next[ip + 12..transport]
        };
        if !same_ip || head[transport..transport + 4] != next[transport..transport + 4] {
            return false;
        }
        if !layout.is_tcp() {
            return true;
        }
        let (ours, theirs) = (&head[transport..layout.payload], &next[transport..layout.payload]);
        let before = u32::try_from(head.len() - layout.payload).unwrap_or(u32::MAX);
        let differs = (ours[13] ^ theirs[13]) & !(TCP_LAST | TCP_FIRST);
        seq(&layout, next) == self.seq.wrapping_add(before)
            && theirs[13] & TCP_FIRST == 0
            && differs == 0
            && ours[8..13] == theirs[8..13]
            && ours[14..16] == theirs[14..16]
            && ours[18..] == theirs[18..]
    }

    /// Gives the packet the lengths, checksums and description of a super-segment.
    fn finish(&self, packet: &mut Packet, pool: &mut Pool) {
        let layout = self.layout;
        let bytes = pool.bytes_mut(packet);
        let written = layout.set_lengths(bytes, self.identification);
        debug_assert!(written.is_some(), "no more was joined than a length can say");
        let len = bytes.len() - layout.transport;
        if let Some(pseudo) = layout.pseudo(bytes) {
            layout.set_checksum(bytes, pseudo.partial(len));
        }
        let narrow = |n: usize| u16::try_from(n).expect("headers and segments fit into a packet");
        packet.meta.checksum = ChecksumState::Partial {
            start: narrow(layout.transport),
            offset: layout.checksum_offset(),
        };
        packet.meta.segments = Some(SegmentationInfo {
            kind: layout.kind,
            size: narrow(self.size),
            header_len: narrow(layout.payload),
        });
    }
}

/// Sees to room for `len` more bytes behind a packet, in a large frame if need be.
fn make_room(packet: &mut Packet, len: usize, pool: &mut Pool) -> bool {
    if pool.tailroom(packet) >= len {
        return true;
    }
    let ordinary = pool.frames().size as usize;
    let Some(mut large) = pool.allocate_for((packet.len() + len).max(ordinary)) else {
        return false;
    };
    large.meta = packet.meta;
    let copied = pool.append_from(&mut large, packet, 0..packet.len(), |source, target| {
        target.copy_from_slice(source);
    });
    debug_assert!(copied, "a large frame holds more than an ordinary one");
    if pool.tailroom(&large) < len {
        pool.free(large);
        return false;
    }
    pool.free(std::mem::replace(packet, large));
    true
}

#[inline]
fn seq(layout: &SegmentLayout, bytes: &[u8]) -> u32 {
    if !layout.is_tcp() {
        return 0;
    }
    let at = layout.transport + 4;
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests;
