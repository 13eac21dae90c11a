//! AVX-512 with VNNI: one `vpxor` and one `vpdpwssd` sum 64 bytes, nearly as cheap as their store.
//!
//! Two `vpdpbusd`, one for the even and one for the odd bytes, would spare the flipped bit, but
//! both need one of two multipliers: on Zen 5 the pass with the copy was a fifth slower. Left out:
//! where a pass begins and ends, which the skeleton knows.

use std::arch::x86_64::{__m512i, _mm512_dpwssd_epi32, _mm512_set1_epi16, _mm512_setzero_si512};

use super::avx512::{WIDTH, load, load_edge, reduce, signed, store, store_edge, stream};
use super::lanes::{LANES, LINE};
use super::skeleton::{UNROLL, passes};
use super::unsigned;

passes!("avx512f,avx512bw,avx512vnni");

/// Totals of words less 2¹⁵ each, in 32-bit lanes of two.
struct Totals([__m512i; UNROLL]);

type Sums = Totals;

impl Totals {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    fn zero() -> Self {
        Self([_mm512_setzero_si512(); UNROLL])
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    fn add(&mut self, at: usize, vector: __m512i) {
        self.0[at] = _mm512_dpwssd_epi32(self.0[at], signed(vector), _mm512_set1_epi16(1));
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    fn add_tail(&mut self, bytes: &[u8], tail: usize) {
        self.add(0, load_edge(&bytes[bytes.len() - tail..], 0));
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    fn copy_head(&mut self, src: &[u8], dst: &mut [u8], head: usize, is_odd: bool) {
        self.copy_edge(&src[..head], &mut dst[..head], is_odd);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    fn copy_tail(&mut self, src: &[u8], dst: &mut [u8], tail: usize, _: bool) {
        let done = src.len() - tail;
        self.copy_edge(&src[done..], &mut dst[done..], false);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    fn copy_edge(&mut self, src: &[u8], dst: &mut [u8], is_odd: bool) {
        let edge = load_edge(src, usize::from(is_odd));
        self.add(0, edge);
        store_edge(dst, usize::from(is_odd), edge);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    fn finish(self, vectors: usize, edges: usize) -> u64 {
        unsigned(reduce(self.0), (vectors + edges) * WIDTH)
    }
}
