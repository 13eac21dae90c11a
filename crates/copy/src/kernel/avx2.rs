//! AVX2: beside a copy, 64-bit words are added, and their upper halves again, which tells what was carried
//! out of the top; without one, `vpmaddwd` adds the words of 32 bytes in pairs, once a flipped bit has made
//! them signed. Each is a tenth quicker in its place on Zen 3.

use std::arch::x86_64::{
    __m256i, _mm_add_epi32, _mm_add_epi64, _mm_cvtsi128_si32, _mm_cvtsi128_si64, _mm_shuffle_epi32,
    _mm_unpackhi_epi64, _mm256_add_epi32, _mm256_add_epi64, _mm256_and_si256,
    _mm256_castsi256_si128, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_set1_epi16, _mm256_setzero_si256, _mm256_slli_epi64, _mm256_srli_epi64,
    _mm256_storeu_si256, _mm256_stream_si256, _mm256_sub_epi64, _mm256_xor_si256,
};

use super::skeleton::{UNROLL, passes};
use super::{LANES, LINE, short, unsigned};

/// Bytes in a vector.
const WIDTH: usize = 32;

passes!("avx2", Avx2CopyTotals, Avx2ReadTotals);

/// Totals of 64-bit words and of their upper halves, in 64-bit lanes; the former wrap. And the sum of
/// heads and odd bytes.
struct Avx2CopyTotals {
    words: [__m256i; UNROLL],
    uppers: [__m256i; UNROLL],
    edges: u64,
}

impl Avx2CopyTotals {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn zero() -> Self {
        let zeros = [_mm256_setzero_si256(); UNROLL];
        Self { words: zeros, uppers: zeros, edges: 0 }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(&mut self, at: usize, vector: __m256i) {
        self.words[at] = _mm256_add_epi64(self.words[at], vector);
        self.uppers[at] = _mm256_add_epi64(self.uppers[at], _mm256_srli_epi64::<32>(vector));
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn copy_tail(&mut self, src: &[u8], dst: &mut [u8], tail: usize, is_odd: bool) {
        let (words, byte) = load_tail(src, tail, is_odd);
        self.add(UNROLL - 1, words);
        self.edges = byte;
        store_tail(src, dst, tail);
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn copy_head(&mut self, src: &[u8], dst: &mut [u8], head: usize, is_odd: bool) {
        if is_odd {
            let sum = short::copy_and_sum(&src[..head], &mut dst[..head]);
            self.edges = short::plus(self.edges, sum.rotate_left(8));
        } else {
            self.add(0, load_head(src, head));
            store_head(src, dst);
        }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn finish(self, _: usize, _: usize) -> u64 {
        let (words, uppers) = (plus(self.words), plus(self.uppers));
        // The wraps of `words` cancel in the subtraction: the lower halves' total does not wrap. Modulo 2¹⁶−1 an upper
        // half counts as a lower one.
        let lowers = _mm256_sub_epi64(words, _mm256_slli_epi64::<32>(uppers));
        let halves = _mm256_add_epi64(lowers, uppers);
        let upper = _mm256_extracti128_si256::<1>(halves);
        let halves = _mm_add_epi64(_mm256_castsi256_si128(halves), upper);
        let halves = _mm_add_epi64(halves, _mm_unpackhi_epi64(halves, halves));
        short::plus(_mm_cvtsi128_si64(halves).cast_unsigned(), self.edges)
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn plus([a, b, c, d]: [__m256i; UNROLL]) -> __m256i {
    _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d))
}

/// Totals of words less 2¹⁵ each, in 32-bit lanes of two, and an odd byte.
struct Avx2ReadTotals {
    words: [__m256i; UNROLL],
    byte: u64,
}

impl Avx2ReadTotals {
    #[inline]
    #[target_feature(enable = "avx2")]
    fn zero() -> Self {
        Self { words: [_mm256_setzero_si256(); UNROLL], byte: 0 }
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add(&mut self, at: usize, vector: __m256i) {
        let pairs = _mm256_madd_epi16(signed(vector), _mm256_set1_epi16(1));
        self.words[at] = _mm256_add_epi32(self.words[at], pairs);
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn add_tail(&mut self, bytes: &[u8], tail: usize) {
        let (words, byte) = load_tail(bytes, tail, tail % 2 == 1);
        self.add(UNROLL - 1, words);
        self.byte = byte;
    }

    #[inline]
    #[target_feature(enable = "avx2")]
    fn finish(self, vectors: usize, tails: usize) -> u64 {
        short::plus(unsigned(reduce(self.words), (vectors + tails) * WIDTH), self.byte)
    }
}

/// Each unsigned word less 2¹⁵, as a signed one: the same word with its top bit flipped.
#[inline]
#[target_feature(enable = "avx2")]
fn signed(words: __m256i) -> __m256i {
    _mm256_xor_si256(words, _mm256_set1_epi16(i16::MIN))
}

/// The sum of all 32-bit lanes.
#[inline]
#[target_feature(enable = "avx2")]
fn reduce([a, b, c, d]: [__m256i; UNROLL]) -> i32 {
    let lanes = _mm256_add_epi32(_mm256_add_epi32(a, b), _mm256_add_epi32(c, d));
    let upper = _mm256_extracti128_si256::<1>(lanes);
    let lanes = _mm_add_epi32(_mm256_castsi256_si128(lanes), upper);
    let lanes = _mm_add_epi32(lanes, _mm_shuffle_epi32::<0b01_00_11_10>(lanes));
    _mm_cvtsi128_si32(_mm_add_epi32(lanes, _mm_shuffle_epi32::<0b10_11_00_01>(lanes)))
}

/// Ones between zeros, a vector of each: one that begins `n` bytes on has ones in its last `n` bytes, and one
/// that begins `n` bytes before the second zeros has them in its first `n`.
const KEEP: [u8; 3 * WIDTH] = {
    let mut keep = [0; 3 * WIDTH];
    let mut at = WIDTH;
    while at < 2 * WIDTH {
        keep[at] = u8::MAX;
        at += 1;
    }
    keep
};

/// The first `head` bytes, an even number of fewer than a vector, of at least a vector, before zeros.
#[inline]
#[target_feature(enable = "avx2")]
fn load_head(bytes: &[u8], head: usize) -> __m256i {
    _mm256_and_si256(load_at(bytes, 0), load_at(&KEEP, 2 * WIDTH - head))
}

/// Copies the first vector, of which only the head is not copied again.
#[inline]
#[target_feature(enable = "avx2")]
fn store_head(src: &[u8], dst: &mut [u8]) {
    store_at(dst, 0, load_at(src, 0));
}

/// The last `tail` bytes, fewer than a vector, of at least a vector: their whole words among zeros, and
/// the odd byte.
#[inline]
#[target_feature(enable = "avx2")]
fn load_tail(bytes: &[u8], tail: usize, is_odd: bool) -> (__m256i, u64) {
    let odd = usize::from(is_odd);
    let byte = if is_odd { u64::from(bytes[bytes.len() - 1]) } else { 0 };
    // Bytes before the tail were summed with their vector.
    let last = load_at(bytes, (bytes.len() - odd).saturating_sub(WIDTH));
    (_mm256_and_si256(last, load_at(&KEEP, tail - odd)), byte)
}

/// Copies the last vector, of which only the tail was not copied before.
#[inline]
#[target_feature(enable = "avx2")]
fn store_tail(src: &[u8], dst: &mut [u8], tail: usize) {
    if tail > 0 {
        let at = src.len() - WIDTH;
        store_at(dst, at, load_at(src, at));
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_at(bytes: &[u8], at: usize) -> __m256i {
    assert!(at <= bytes.len() && bytes.len() - at >= WIDTH, "a vector is left");
    // SAFETY: the slice has as many bytes from there on as the vector, which may lie anywhere.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().wrapping_add(at).cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_at(bytes: &mut [u8], at: usize, vector: __m256i) {
    assert!(at <= bytes.len() && bytes.len() - at >= WIDTH, "a vector is left");
    // SAFETY: the slice has as many bytes from there on as the vector, which may lie anywhere.
    unsafe { _mm256_storeu_si256(bytes.as_mut_ptr().wrapping_add(at).cast(), vector) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load(from: &[u8; WIDTH]) -> __m256i {
    // SAFETY: the array is as long as the vector, which may lie anywhere.
    unsafe { _mm256_loadu_si256(from.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store(into: &mut [u8; WIDTH], vector: __m256i) {
    // SAFETY: the array is as long as the vector, which may lie anywhere.
    unsafe { _mm256_storeu_si256(into.as_mut_ptr().cast(), vector) }
}

/// Stores past the cache.
#[inline]
#[target_feature(enable = "avx2")]
fn stream(into: &mut [u8; WIDTH], vector: __m256i) {
    if !into.as_ptr().addr().is_multiple_of(WIDTH) {
        return store(into, vector);
    }
    // SAFETY: the array is as long as the vector, and as aligned.
    unsafe { _mm256_stream_si256(into.as_mut_ptr().cast(), vector) }
}

/// AVX-VNNI: `vpdpwssd` adds and accumulates at once, for processors that have it without AVX-512.
pub(super) mod vnni {
    use std::arch::x86_64::{
        __m256i, _mm256_dpwssd_avx_epi32, _mm256_set1_epi16, _mm256_setzero_si256,
    };

    use super::{
        LANES, LINE, UNROLL, WIDTH, load, load_head, load_tail, passes, reduce, short, signed,
        store, store_head, store_tail, stream, unsigned,
    };

    passes!("avx2,avxvnni", Avx2VnniTotals, Avx2VnniTotals);

    /// Totals of words less 2¹⁵ each, in 32-bit lanes of two, and the sum of heads and odd bytes.
    struct Avx2VnniTotals {
        words: [__m256i; UNROLL],
        /// Vectors among `words` that edges gave.
        masked: usize,
        edges: u64,
    }

    impl Avx2VnniTotals {
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
}
