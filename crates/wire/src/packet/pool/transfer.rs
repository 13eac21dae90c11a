//! Bytes from one packet's frame to another's, without leaving the pool.
//!
//! For whoever cuts packets up or puts them together. Left out: how bytes are copied, which the
//! caller says, so that a checksum can be made on the way.

use std::ops::Range;

use super::{FrameId, LARGE_FRAME, Pool, Region};
use crate::packet::Packet;

/// Bytes that pass through the stack where both frames lie in memory shared with a kernel; even, so
/// that a sum of 16-bit words can be made piece by piece.
const PIECE: usize = 1_024;

impl Pool {
    /// Appends bytes `range` of `from`'s data to `to`, by `copy(source, target)`; several calls of
    /// it, each but the last for an even number of bytes, may make up the whole.
    ///
    /// `false`, and nothing changed, when `to` has no room. Panics when `from` has no such bytes.
    #[inline]
    pub fn append_from(
        &mut self,
        to: &mut Packet,
        from: &Packet,
        range: Range<usize>,
        copy: impl FnMut(&[u8], &mut [u8]),
    ) -> bool {
        if range.len() > self.tailroom(to) {
            return false;
        }
        let at = to.len();
        to.end += u32::try_from(range.len()).expect("a frame is shorter than 4 GiB");
        self.copy_between(to, at, from, range, copy);
        true
    }

    /// Overwrites `to`'s data from byte `at` with bytes `range` of `from`'s, by `copy` as in
    /// [`Pool::append_from`].
    ///
    /// Panics when either packet has no such bytes.
    pub fn copy_between(
        &mut self,
        to: &mut Packet,
        at: usize,
        from: &Packet,
        range: Range<usize>,
        mut copy: impl FnMut(&[u8], &mut [u8]),
    ) {
        assert!(range.end <= from.len() && at + range.len() <= to.len(), "bytes within the data");
        let target = to.start as usize + at..to.start as usize + at + range.len();
        let source = from.start as usize + range.start..from.start as usize + range.end;
        let Self { region, large, frames, .. } = self;
        let large_at = |frame: FrameId| (frame.0 - frames.count) as usize * LARGE_FRAME;
        let small_at = |frame: FrameId| frame.0 as usize * frames.size as usize;
        match (from.frame.0 >= frames.count, to.frame.0 >= frames.count) {
            (true, true) => {
                pair(
                    large,
                    shifted(source, large_at(from.frame)),
                    shifted(target, large_at(to.frame)),
                    copy,
                );
            }
            (true, false) => {
                let source = &large[shifted(source, large_at(from.frame))];
                copy(source, region.bytes_mut(shifted(target, small_at(to.frame))));
            }
            (false, true) => {
                let source = region.bytes(shifted(source, small_at(from.frame)));
                copy(source, &mut large[shifted(target, large_at(to.frame))]);
            }
            (false, false) => {
                let source = shifted(source, small_at(from.frame));
                let target = shifted(target, small_at(to.frame));
                match region {
                    Region::Own(bytes) => pair(bytes, source, target, copy),
                    Region::Shared(memory) => {
                        let mut piece = [0; PIECE];
                        for done in (0..source.len()).step_by(PIECE) {
                            let len = PIECE.min(source.len() - done);
                            let source = source.start + done..source.start + done + len;
                            let target = target.start + done..target.start + done + len;
                            piece[..len].copy_from_slice(memory.bytes(source));
                            copy(&piece[..len], memory.bytes_mut(target));
                        }
                    }
                }
            }
        }
    }
}

/// `copy` with two ranges of one slice, which belong to different frames and so do not overlap.
#[inline]
fn pair(
    bytes: &mut [u8],
    source: Range<usize>,
    target: Range<usize>,
    mut copy: impl FnMut(&[u8], &mut [u8]),
) {
    if source.is_empty() {
        return;
    }
    let [source, target] =
        bytes.get_disjoint_mut([source, target]).expect("two packets share no frame");
    copy(source, target);
}

#[inline]
fn shifted(range: Range<usize>, by: usize) -> Range<usize> {
    range.start + by..range.end + by
}

#[cfg(test)]
mod tests {
    use super::super::{Frames, Memory};
    use super::*;

    #[derive(Debug)]
    struct Elsewhere(Vec<u8>);

    impl Memory for Elsewhere {
        fn len(&self) -> usize {
            self.0.len()
        }
        fn bytes(&self, range: Range<usize>) -> &[u8] {
            &self.0[range]
        }
        fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
            &mut self.0[range]
        }
    }

    #[test]
    fn bytes_pass_between_frames_of_either_size_in_either_memory() {
        let frames = Frames { count: 2, size: 4_096, large: 2 };
        let shared = Box::new(Elsewhere(vec![0; 2 * 4_096]));
        let data: Vec<u8> = (0..3_000_u32).map(|i| i.to_le_bytes()[0]).collect();
        for mut pool in [Pool::new(frames), Pool::in_memory(shared, frames)] {
            for (from_len, to_len) in [(0, 0), (0, 9_000), (9_000, 0), (9_000, 9_000)] {
                let mut from = pool.allocate_for(from_len).unwrap();
                let mut to = pool.allocate_for(to_len).unwrap();
                pool.append(&mut from, data.len()).unwrap().copy_from_slice(&data);
                pool.append(&mut to, 2).unwrap().copy_from_slice(b"to");
                let mut lens = Vec::new();
                assert!(pool.append_from(&mut to, &from, 1..2_500, |source, target| {
                    target.copy_from_slice(source);
                    lens.push(source.len());
                }));
                assert_eq!(pool.bytes(&to)[..2], *b"to");
                assert_eq!(pool.bytes(&to)[2..], data[1..2_500]);
                assert!(lens[..lens.len() - 1].iter().all(|len| len % 2 == 0));
                pool.free(from);
                pool.free(to);
            }
            assert_eq!(pool.available(), (2, 2));
        }
    }

    #[test]
    fn what_does_not_fit_is_not_begun() {
        let mut pool = Pool::new(Frames { count: 1, size: 256, large: 1 });
        let mut small = pool.allocate().unwrap();
        let mut large = pool.allocate_for(1_000).unwrap();
        pool.append(&mut large, 1_000).unwrap();
        assert!(!pool.append_from(&mut small, &large, 0..129, |_, _| unreachable!("no room")));
        assert!(small.is_empty());
        pool.free(small);
        pool.free(large);
    }
}
