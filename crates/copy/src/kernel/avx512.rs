//! AVX-512 without VNNI: as AVX2 does it, 64 bytes at a time, and edges by masked loads.

use std::arch::x86_64::{
    __m512i, _mm512_add_epi32, _mm512_loadu_si512, _mm512_madd_epi16, _mm512_mask_storeu_epi8,
    _mm512_maskz_loadu_epi8, _mm512_reduce_add_epi32, _mm512_set1_epi16, _mm512_setzero_si512,
    _mm512_storeu_si512, _mm512_stream_si512, _mm512_xor_si512,
};

use super::skeleton::{UNROLL, passes};
use super::{LANES, LINE, unsigned};

/// Bytes in a vector.
const WIDTH: usize = 64;

passes!("avx512f,avx512bw", Avx512Totals, Avx512Totals);

/// Totals of words less 2¹⁵ each, in 32-bit lanes of two.
struct Avx512Totals([__m512i; UNROLL]);

impl Avx512Totals {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn zero() -> Self {
        Self([_mm512_setzero_si512(); UNROLL])
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn add(&mut self, at: usize, vector: __m512i) {
        let pairs = _mm512_madd_epi16(signed(vector), _mm512_set1_epi16(1));
        self.0[at] = _mm512_add_epi32(self.0[at], pairs);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn add_tail(&mut self, bytes: &[u8], tail: usize) {
        self.add(0, load_edge(&bytes[bytes.len() - tail..], 0));
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn copy_head(&mut self, src: &[u8], dst: &mut [u8], head: usize, is_odd: bool) {
        self.copy_edge(&src[..head], &mut dst[..head], is_odd);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn copy_tail(&mut self, src: &[u8], dst: &mut [u8], tail: usize, _: bool) {
        let done = src.len() - tail;
        self.copy_edge(&src[done..], &mut dst[done..], false);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn copy_edge(&mut self, src: &[u8], dst: &mut [u8], is_odd: bool) {
        let edge = load_edge(src, usize::from(is_odd));
        self.add(0, edge);
        store_edge(dst, usize::from(is_odd), edge);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw")]
    fn finish(self, vectors: usize, edges: usize) -> u64 {
        unsigned(reduce(self.0), (vectors + edges) * WIDTH)
    }
}

/// Each unsigned word less 2¹⁵, as a signed one: the same word with its top bit flipped.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn signed(words: __m512i) -> __m512i {
    _mm512_xor_si512(words, _mm512_set1_epi16(i16::MIN))
}

/// The sum of all 32-bit lanes.
#[inline]
#[target_feature(enable = "avx512f")]
fn reduce([a, b, c, d]: [__m512i; UNROLL]) -> i32 {
    let lanes = _mm512_add_epi32(_mm512_add_epi32(a, b), _mm512_add_epi32(c, d));
    _mm512_reduce_add_epi32(lanes)
}

/// Fewer than 64 bytes among zeros, so many places later.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn load_edge(from: &[u8], places: usize) -> __m512i {
    let start = from.as_ptr().wrapping_sub(places);
    // SAFETY: the mask lets only the bytes of the slice be read, and only they can fault.
    unsafe { _mm512_maskz_loadu_epi8(mask(from.len(), places), start.cast()) }
}

/// The other way about.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn store_edge(into: &mut [u8], places: usize, edge: __m512i) {
    let mask = mask(into.len(), places);
    let start = into.as_mut_ptr().wrapping_sub(places);
    // SAFETY: the mask lets only the bytes of the slice be written, and only they can fault.
    unsafe { _mm512_mask_storeu_epi8(start.cast(), mask, edge) }
}

/// So many bits of one, above so many zeros; fewer than 64 in all.
#[inline]
const fn mask(ones: usize, zeros: usize) -> u64 {
    ((1 << ones) - 1) << zeros
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load(from: &[u8; WIDTH]) -> __m512i {
    // SAFETY: the array is as long as the vector, which may lie anywhere.
    unsafe { _mm512_loadu_si512(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(into: &mut [u8; WIDTH], vector: __m512i) {
    // SAFETY: the array is as long as the vector, which may lie anywhere.
    unsafe { _mm512_storeu_si512(into.as_mut_ptr().cast(), vector) }
}

/// Stores past the cache.
#[inline]
#[target_feature(enable = "avx512f")]
fn stream(into: &mut [u8; WIDTH], vector: __m512i) {
    if !into.as_ptr().addr().is_multiple_of(WIDTH) {
        return store(into, vector);
    }
    // SAFETY: the array is as long as the vector, and as aligned.
    unsafe { _mm512_stream_si512(into.as_mut_ptr().cast(), vector) }
}

/// AVX-512 with VNNI: one `vpxor` and one `vpdpwssd` sum 64 bytes, nearly as cheap as their store.
///
/// Two `vpdpbusd`, one for the even and one for the odd bytes, would spare the flipped bit, but both need one of
/// two multipliers: on Zen 5 the pass with the copy was a fifth slower.
pub(super) mod vnni {
    use std::arch::x86_64::{
        __m512i, _mm512_dpwssd_epi32, _mm512_set1_epi16, _mm512_setzero_si512,
    };

    use super::{
        LANES, LINE, UNROLL, WIDTH, load, load_edge, passes, reduce, signed, store, store_edge,
        stream, unsigned,
    };

    passes!("avx512f,avx512bw,avx512vnni", Avx512VnniTotals, Avx512VnniTotals);

    /// Totals of words less 2¹⁵ each, in 32-bit lanes of two.
    struct Avx512VnniTotals([__m512i; UNROLL]);

    impl Avx512VnniTotals {
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
}
