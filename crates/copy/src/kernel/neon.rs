//! NEON: `uadalp` adds the words of 16 bytes in pairs to 32-bit lanes, one instruction.
//!
//! Stores past the cache have no intrinsic.

use std::arch::aarch64::{
    uint8x16_t, uint32x4_t, vaddq_u32, vaddvq_u32, vdupq_n_u32, vld1q_u8, vpadalq_u16,
    vreinterpretq_u16_u8, vst1q_u8,
};

use super::skeleton::{UNROLL, passes};
use super::{LANES, LINE, short};

/// Bytes in a vector.
const WIDTH: usize = 16;

passes!("neon", NeonTotals, NeonTotals);

/// Totals of words, two in a 32-bit lane a vector, and the edges' sum.
struct NeonTotals {
    words: [uint32x4_t; UNROLL],
    edges: u64,
}

impl NeonTotals {
    #[inline]
    #[target_feature(enable = "neon")]
    fn zero() -> Self {
        Self { words: [vdupq_n_u32(0); UNROLL], edges: 0 }
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn add(&mut self, at: usize, vector: uint8x16_t) {
        self.words[at] = vpadalq_u16(self.words[at], vreinterpretq_u16_u8(vector));
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn add_tail(&mut self, bytes: &[u8], tail: usize) {
        self.edges = short::plus(self.edges, short::sum(&bytes[bytes.len() - tail..]));
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn copy_head(&mut self, src: &[u8], dst: &mut [u8], head: usize, is_odd: bool) {
        self.copy_edge(&src[..head], &mut dst[..head], is_odd);
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn copy_tail(&mut self, src: &[u8], dst: &mut [u8], tail: usize, _: bool) {
        let done = src.len() - tail;
        self.copy_edge(&src[done..], &mut dst[done..], false);
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn copy_edge(&mut self, src: &[u8], dst: &mut [u8], is_odd: bool) {
        let edge = short::copy_and_sum(src, dst);
        self.edges = short::plus(self.edges, if is_odd { edge.rotate_left(8) } else { edge });
    }

    #[inline]
    #[target_feature(enable = "neon")]
    fn finish(self, _: usize, _: usize) -> u64 {
        let [a, b, c, d] = self.words;
        let lanes = vaddq_u32(vaddq_u32(a, b), vaddq_u32(c, d));
        short::plus(u64::from(vaddvq_u32(lanes)), self.edges)
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn load(from: &[u8; WIDTH]) -> uint8x16_t {
    // SAFETY: the array is as long as the vector, which may lie anywhere.
    unsafe { vld1q_u8(from.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store(into: &mut [u8; WIDTH], vector: uint8x16_t) {
    // SAFETY: the array is as long as the vector, which may lie anywhere.
    unsafe { vst1q_u8(into.as_mut_ptr(), vector) }
}

/// An ordinary store: NEON's `stnp` is a hint that has no intrinsic.
#[inline]
#[target_feature(enable = "neon")]
fn stream(into: &mut [u8; WIDTH], vector: uint8x16_t) {
    store(into, vector);
}
