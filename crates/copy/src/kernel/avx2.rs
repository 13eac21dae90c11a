//! AVX2: `vpmaddwd` adds the words of 32 bytes in pairs, once a flipped bit has made them signed.
//!
//! Left out: where a pass begins and ends, which the skeleton knows.

use std::arch::x86_64::{
    __m256i, _mm_add_epi32, _mm_cvtsi128_si32, _mm_shuffle_epi32, _mm256_add_epi32,
    _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_set1_epi16, _mm256_setzero_si256, _mm256_storeu_si256, _mm256_stream_si256,
    _mm256_xor_si256,
};

use super::lanes::{LANES, LINE};
use super::skeleton::{UNROLL, passes};
use super::{short, unsigned};

/// Bytes in a vector.
pub(super) const WIDTH: usize = 32;

passes!("avx2");

/// Totals of words less 2¹⁵ each, in 32-bit lanes of two, and the edges' sum.
struct Totals {
    words: [__m256i; UNROLL],
    edges: u64,
}

impl Totals {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn zero() -> Self {
        Self { words: [_mm256_setzero_si256(); UNROLL], edges: 0 }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(&mut self, at: usize, vector: __m256i) {
        let pairs = _mm256_madd_epi16(signed(vector), _mm256_set1_epi16(1));
        self.words[at] = _mm256_add_epi32(self.words[at], pairs);
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_edge(&mut self, bytes: &[u8]) {
        self.edges = short::plus(self.edges, short::sum(bytes));
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn copy_edge(&mut self, src: &[u8], dst: &mut [u8], is_odd: bool) {
        let edge = short::copy_and_sum(src, dst);
        self.edges = short::plus(self.edges, if is_odd { edge.rotate_left(8) } else { edge });
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn finish(self, vectors: usize, _: usize) -> u64 {
        short::plus(unsigned(reduce(self.words), vectors * WIDTH), self.edges)
    }
}

/// Each unsigned word less 2¹⁵, as a signed one: the same word with its top bit flipped.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn signed(words: __m256i) -> __m256i {
    _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN))
}

/// The sum of all 32-bit lanes.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn reduce([a, b, c, d]: [__m256i; UNROLL]) -> i32 {
    let lanes = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
    let upper = _mm256_extracti128_si256::<1>(lanes);
    let lanes = _mm_add_epi32(_mm256_castsi256_si128(lanes), upper);
    let lanes = _mm_add_epi32(lanes, _mm_shuffle_epi32::<0b01_00_11_10>(lanes));
    _mm_cvtsi128_si32(_mm_add_epi32(lanes, _mm_shuffle_epi32::<0b10_11_00_01>(lanes)))
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn load(from: &[u8; WIDTH]) -> __m256i {
    // SAFETY: the array is as long as the vector, which may lie anywhere.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn store(into: &mut [u8; WIDTH], vector: __m256i) {
    // SAFETY: the array is as long as the vector, which may lie anywhere.
    unsafe { _mm256_storeu_si256(into.as_mut_ptr().cast(), vector) }
}

/// Stores past the cache.
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn stream(into: &mut [u8; WIDTH], vector: __m256i) {
    if !into.as_ptr().addr().is_multiple_of(WIDTH) {
        return store(into, vector);
    }
    // SAFETY: the array is as long as the vector, and as aligned.
    unsafe { _mm256_stream_si256(into.as_mut_ptr().cast(), vector) }
}
