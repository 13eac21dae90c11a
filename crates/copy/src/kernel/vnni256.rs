//! AVX-VNNI: AVX2 with `vpdpwssd`, which adds and accumulates at once.
//!
//! For processors that have it without AVX-512. Left out: where a pass begins and ends, which the
//! skeleton knows.

use std::arch::x86_64::{
    __m256i, _mm256_dpwssd_avx_epi32, _mm256_set1_epi16, _mm256_setzero_si256,
};

use super::avx2::{
    WIDTH, load, load_head, load_tail, reduce, signed, store, store_head, store_tail, stream,
};
use super::lanes::{LANES, LINE};
use super::skeleton::{UNROLL, passes};
use super::{short, unsigned};

passes!("avx2,avxvnni");

/// Totals of words less 2¹⁵ each, in 32-bit lanes of two, and the sum of heads and odd bytes.
struct Totals {
    words: [__m256i; UNROLL],
    /// Vectors among `words` that edges gave.
    masked: usize,
    edges: u64,
}

type Sums = Totals;

impl Totals {
    #[inline]
    #[target_feature(enable = "avx2,avxvnni")]
    fn zero() -> Self {
        Self { words: [_mm256_setzero_si256(); UNROLL], masked: 0, edges: 0 }
    }

    #[inline]
    #[target_feature(enable = "avx2,avxvnni")]
    fn add(&mut self, at: usize, vector: __m256i) {
        let ones = _mm256_set1_epi16(1);
        self.words[at] = _mm256_dpwssd_avx_epi32(self.words[at], signed(vector), ones);
    }

    #[inline]
    #[target_feature(enable = "avx2,avxvnni")]
    fn add_tail(&mut self, bytes: &[u8], tail: usize) {
        self.add_words(load_tail(bytes, tail, tail % 2 == 1));
    }

    #[inline]
    #[target_feature(enable = "avx2,avxvnni")]
    fn add_words(&mut self, (words, byte): (__m256i, u64)) {
        self.add(UNROLL - 1, words);
        self.masked += 1;
        self.edges = short::plus(self.edges, byte);
    }

    #[inline]
    #[target_feature(enable = "avx2,avxvnni")]
    fn copy_tail(&mut self, src: &[u8], dst: &mut [u8], tail: usize, is_odd: bool) {
        self.add_words(load_tail(src, tail, is_odd));
        store_tail(src, dst, tail);
    }

    #[inline]
    #[target_feature(enable = "avx2,avxvnni")]
    fn copy_head(&mut self, src: &[u8], dst: &mut [u8], head: usize, is_odd: bool) {
        if is_odd {
            let sum = short::copy_and_sum(&src[..head], &mut dst[..head]);
            self.edges = short::plus(self.edges, sum.rotate_left(8));
        } else {
            self.add(0, load_head(src, head));
            self.masked += 1;
            store_head(src, dst);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2,avxvnni")]
    fn finish(self, vectors: usize, _: usize) -> u64 {
        short::plus(unsigned(reduce(self.words), (vectors + self.masked) * WIDTH), self.edges)
    }
}
