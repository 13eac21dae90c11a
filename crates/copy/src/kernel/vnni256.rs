//! AVX-VNNI: AVX2 with `vpdpwssd`, which adds and accumulates at once.
//!
//! For processors that have it without AVX-512. Left out: where a pass begins and ends, which the
//! skeleton knows.

use std::arch::x86_64::{
    __m256i, _mm256_dpwssd_avx_epi32, _mm256_set1_epi16, _mm256_setzero_si256,
};

use super::avx2::{WIDTH, load, reduce, signed, store, stream};
use super::lanes::{LANES, LINE};
use super::skeleton::{UNROLL, passes};
use super::{short, unsigned};

passes!("avx2,avxvnni");

/// Totals of words less 2¹⁵ each, in 32-bit lanes of two, and the edges' sum.
struct Totals {
    words: [__m256i; UNROLL],
    edges: u64,
}

impl Totals {
    #[inline]
    #[target_feature(enable = "avx2,avxvnni")]
    fn zero() -> Self {
        Self { words: [_mm256_setzero_si256(); UNROLL], edges: 0 }
    }

    #[inline]
    #[target_feature(enable = "avx2,avxvnni")]
    fn add(&mut self, at: usize, vector: __m256i) {
        let ones = _mm256_set1_epi16(1);
        self.words[at] = _mm256_dpwssd_avx_epi32(self.words[at], signed(vector), ones);
    }

    #[inline]
    #[target_feature(enable = "avx2,avxvnni")]
    fn add_edge(&mut self, bytes: &[u8]) {
        self.edges = short::plus(self.edges, short::sum(bytes));
    }

    #[inline]
    #[target_feature(enable = "avx2,avxvnni")]
    fn copy_edge(&mut self, src: &[u8], dst: &mut [u8], is_odd: bool) {
        let edge = short::copy_and_sum(src, dst);
        self.edges = short::plus(self.edges, if is_odd { edge.rotate_left(8) } else { edge });
    }

    #[inline]
    #[target_feature(enable = "avx2,avxvnni")]
    fn finish(self, vectors: usize, _: usize) -> u64 {
        short::plus(unsigned(reduce(self.words), vectors * WIDTH), self.edges)
    }
}
