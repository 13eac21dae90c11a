//! Super-segments cut into the packets that they stand for, for devices that do not do it themselves.
//!
//! TCP and UDP over both families. Left out: making super-segments of packets, which
//! [`crate::coalesce`] does, and whether a device can do without.

use std::ops::Range;

use crate::checksum::PseudoHeader;
use crate::medium::Medium;
use crate::packet::{ChecksumState, Packet, PacketMeta, Pool};
use plumb_copy::{Sum16, copy_and_sum};

mod layout;

pub(crate) use layout::{SegmentLayout, TCP_FIRST, TCP_LAST, TCP_NEVER};

/// Who completes the checksums of the segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentChecksums {
    /// They are made here, while the payload is copied.
    Complete,
    /// The device: they are left partial.
    Partial,
}

/// Why a super-segment was not cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// It is none, or its headers are not what it says.
    Impossible,
    /// There were not enough free frames.
    NoMemory,
}

/// Cuts a super-segment, as it would be handed to a device of `medium`, and appends its segments to
/// `out`; its own frame is freed.
///
/// Each segment repeats the headers, with its own lengths, identification (counting up) and sequence
/// number; FIN and PSH are on the last only, CWR on the first. A UDP checksum of 0, over IPv4,
/// remains "none".
///
/// # Errors
/// Gives the packet back, and leaves `out` as it was.
pub fn segment_packet(
    packet: Packet,
    medium: Medium,
    checksums: SegmentChecksums,
    pool: &mut Pool,
    out: &mut Vec<Packet>,
) -> Result<(), (Packet, SegmentError)> {
    let bytes = pool.bytes(&packet);
    let plan = packet.meta.segments.filter(|segments| segments.size > 0).and_then(|segments| {
        let layout =
            SegmentLayout::of(bytes, medium).filter(|layout| layout.kind == segments.kind)?;
        let pseudo = layout.pseudo(bytes)?;
        let unsummed = !layout.is_tcp()
            && !layout.is_v6()
            && packet.meta.checksum == ChecksumState::Plain
            && layout.checksum_field(bytes) == 0;
        Some(SegmentPlan {
            layout,
            pseudo,
            identification: layout.identification(bytes),
            size: segments.size.into(),
            checksums: if unsummed { None } else { Some(checksums) },
        })
    });
    let Some(plan) = plan else { return Err((packet, SegmentError::Impossible)) };
    let before = out.len();
    let mut at = plan.layout.payload;
    loop {
        let end = packet.len().min(at + plan.size);
        let Some(segment) = plan.segment(at..end, &packet, pool) else {
            for segment in out.drain(before..) {
                pool.free(segment);
            }
            return Err((packet, SegmentError::NoMemory));
        };
        out.push(segment);
        at = end;
        if at == packet.len() {
            break;
        }
    }
    pool.free(packet);
    Ok(())
}

struct SegmentPlan {
    layout: SegmentLayout,
    pseudo: PseudoHeader,
    identification: u16,
    size: usize,
    /// `None`: there are none, and shall be none.
    checksums: Option<SegmentChecksums>,
}

impl SegmentPlan {
    /// The segment with bytes `range` of the super-segment; `None` without a free frame.
    fn segment(&self, range: Range<usize>, packet: &Packet, pool: &mut Pool) -> Option<Packet> {
        let layout = &self.layout;
        let offset = range.start - layout.payload;
        let is_last = range.end == packet.len();
        let mut segment = pool.allocate_for(layout.payload + range.len())?;
        segment.meta = PacketMeta {
            segments: None,
            checksum: match self.checksums {
                Some(SegmentChecksums::Partial) => ChecksumState::Partial {
                    start: u16::try_from(layout.transport).ok()?,
                    offset: layout.checksum_offset(),
                },
                _ => ChecksumState::Plain,
            },
            ..packet.meta
        };
        pool.append_from(&mut segment, packet, 0..layout.payload, |source, target| {
            target.copy_from_slice(source);
        });
        let mut sum = Sum16::ZERO;
        let sums = self.checksums == Some(SegmentChecksums::Complete);
        pool.append_from(&mut segment, packet, range, |source, target| {
            if sums {
                sum += copy_and_sum(source, target);
            } else {
                target.copy_from_slice(source);
            }
        });
        let bytes = pool.bytes_mut(&mut segment);
        let n = u16::try_from(offset / self.size).ok()?;
        layout.set_lengths(bytes, layout.nth_identification(bytes, self.identification, n))?;
        if layout.is_tcp() {
            let at = layout.transport + 4;
            let seq = u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
            let seq = seq.wrapping_add(u32::try_from(offset).ok()?);
            bytes[at..at + 4].copy_from_slice(&seq.to_be_bytes());
            let flags = &mut bytes[layout.transport + 13];
            if !is_last {
                *flags &= !TCP_LAST;
            }
            if offset > 0 {
                *flags &= !TCP_FIRST;
            }
        }
        let checksum = match self.checksums {
            None => 0,
            Some(SegmentChecksums::Partial) => self.pseudo.partial(bytes.len() - layout.transport),
            Some(SegmentChecksums::Complete) => layout.checksum(bytes, self.pseudo, sum),
        };
        layout.set_checksum(bytes, checksum);
        Some(segment)
    }
}
