//! A long copy in six lanes at once: whoever fetches bytes ahead for the processor does so page by page,
//! and with six pages of either side under way the memory is kept busier than with one.
//!
//! Out of memory that is quicker than one lane, which is as quick as `memcpy`; out of the second cache it is no
//! slower. Fetching ahead by instructions was slower than leaving it alone, at whatever distance. Left out:
//! stores past the cache.

use super::PIECE_MAX;
use crate::Sum16;

/// Lanes of a long copy.
pub(super) const LANES: usize = 6;

/// Lanes are as long as so many whole lines of the cache, in bytes.
pub(super) const LINE: usize = 64;

/// From this many bytes on, a copy is made in lanes. A shorter one gains from them only where it is cold, and
/// loses in the first cache.
pub(super) const MIN: usize = 64 << 10;

/// Bytes that one pass takes from each lane.
const STEP: usize = PIECE_MAX / LANES / LINE * LINE;

/// What processors fetch ahead within, and what their first cache is addressed by.
const PAGE: usize = 4096;

/// Nearer than this to one place of their pages, lanes share sets of the first cache.
const APART: usize = 640;

/// A pass over lanes: so many lines of each, the first bytes of a lane so many behind those of the one before;
/// at most [`PIECE_MAX`] bytes in all, each of them in one source and one destination. Pointers, because a
/// slice for each lane and side would want more registers than there are.
pub(super) type LaneCopyFn = unsafe fn(*const u8, *mut u8, apart: usize, lines: usize) -> u64;

/// Copies with `edge` up to the first line of `dst` and after the last lane, with `pass` in between.
///
/// # Safety
///
/// The kernel of the passes is available. The slices are equally long.
#[inline(never)]
pub(super) unsafe fn copy(
    src: &[u8],
    dst: &mut [u8],
    edge: unsafe fn(&[u8], &mut [u8]) -> u64,
    pass: LaneCopyFn,
) -> Sum16 {
    let head = dst.as_ptr().align_offset(LINE).min(src.len());
    let (first, src) = src.split_at(head);
    let (into_first, dst) = dst.split_at_mut(head);
    // SAFETY: the caller's promise.
    let mut sum = Sum16::from_le(unsafe { edge(first, into_first) });
    let length = length(src.len());
    let (src, last) = src.split_at(LANES * length);
    let (dst, into_last) = dst.split_at_mut(LANES * length);
    for from in (0..length).step_by(STEP) {
        let lines = STEP.min(length - from) / LINE;
        let (src, dst) = (src[from..].as_ptr(), dst[from..].as_mut_ptr());
        // SAFETY: the caller's promise; the last lane ends where the slices do.
        let step = unsafe { pass(src, dst, length, lines) };
        sum += Sum16::from_le(step).at(head);
    }
    // SAFETY: the caller's promise.
    sum + Sum16::from_le(unsafe { edge(last, into_last) }).at(head)
}

/// The length of each lane of so many bytes; what is left over is less than a piece.
const fn length(bytes: usize) -> usize {
    let length = bytes / LANES / LINE * LINE;
    let place = length % PAGE;
    // Lanes that all lie at one place of their pages would want more lines of a set than it has.
    if place < APART {
        length - place - APART
    } else if place > PAGE - APART {
        length - (place - (PAGE - APART))
    } else {
        length
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lanes_never_all_lie_at_one_place_of_their_pages_and_leave_little_over() {
        for bytes in (MIN..2 << 20).step_by(LINE) {
            let length = length(bytes);
            assert_eq!(length % LINE, 0, "{bytes}");
            assert!((APART..=PAGE - APART).contains(&(length % PAGE)), "{bytes}: {length}");
            assert!(bytes >= LANES * length && bytes - LANES * length < 3 * PAGE, "{bytes}");
        }
    }
}
