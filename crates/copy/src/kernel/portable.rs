//! Sum and copy by 64-bit additions into 128-bit totals: carries collect in the upper half.
//!
//! For any processor. Left out: alignment, which today's processors do not mind.

use std::slice;

use super::{KernelFunctions, LANES, LINE, short};

/// Bytes a turn: four totals, so that no addition waits for the one before.
const BLOCK: usize = 64;

pub(super) static PASSES: KernelFunctions = KernelFunctions {
    sum,
    copy_and_sum,
    stream_and_sum: copy_and_sum,
    copy_and_sum_lanes: in_lanes::<true>,
    copy,
    copy_lanes: in_lanes::<false>,
};

/// The sum of little-endian words modulo 2⁶⁴−1.
fn sum(bytes: &[u8]) -> u64 {
    let (blocks, tail) = bytes.as_chunks::<BLOCK>();
    let mut totals = [0u128; 4];
    for block in blocks {
        let (words, _) = block.as_chunks::<8>();
        for (at, word) in words.iter().enumerate() {
            totals[at % 4] += u128::from(u64::from_le_bytes(*word));
        }
    }
    fold(totals, short::sum(tail))
}

/// The same, and `src` copied to `dst`, which is as long.
fn copy_and_sum(src: &[u8], dst: &mut [u8]) -> u64 {
    let (blocks, tail) = src.as_chunks::<BLOCK>();
    let (into, into_tail) = dst.as_chunks_mut::<BLOCK>();
    let mut totals = [0u128; 4];
    for (block, into) in blocks.iter().zip(into) {
        let (words, _) = block.as_chunks::<8>();
        let (into, _) = into.as_chunks_mut::<8>();
        for (at, (word, into)) in words.iter().zip(into).enumerate() {
            totals[at % 4] += u128::from(u64::from_le_bytes(*word));
            *into = *word;
        }
    }
    fold(totals, short::copy_and_sum(tail, into_tail))
}

/// Compilers make any such loop a call of `memcpy`, so it is one.
fn copy(src: &[u8], dst: &mut [u8]) -> u64 {
    dst.copy_from_slice(src);
    0
}

/// One lane after the other.
///
/// # Safety
///
/// As for [`LaneCopyFn`](super::LaneCopyFn).
unsafe fn in_lanes<const SUM: bool>(
    src: *const u8,
    dst: *mut u8,
    apart: usize,
    lines: usize,
) -> u64 {
    let bytes = lines * LINE;
    (0..LANES).fold(0, |sum, lane| {
        let (src, dst) = (src.wrapping_add(lane * apart), dst.wrapping_add(lane * apart));
        // SAFETY: the caller's promise: these bytes are there.
        let src = unsafe { slice::from_raw_parts(src, bytes) };
        // SAFETY: the same, and they are in no other slice.
        let dst = unsafe { slice::from_raw_parts_mut(dst, bytes) };
        short::plus(sum, if SUM { copy_and_sum(src, dst) } else { copy(src, dst) })
    })
}

/// Totals and the tail's sum in one: the upper half counts the carries out of the lower one.
fn fold(totals: [u128; 4], tail: u64) -> u64 {
    let total = totals.iter().sum::<u128>() + u128::from(tail);
    short::fold(total)
}
