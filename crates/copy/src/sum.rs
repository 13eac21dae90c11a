//! A partial one's-complement sum: what pieces of a packet add up to before the checksum is made.
//!
//! Left out: reading bytes, which the kernels do.

use std::fmt;
use std::ops::{Add, AddAssign};

/// A one's-complement sum of big-endian 16-bit words (RFC 1071), not yet complemented.
///
/// Sums of pieces add up to the sum of the whole; a piece that begins at an odd offset goes
/// through [`at`](Self::at) first. Two sums are equal when their [`folded`](Self::folded) values
/// are.
// The number is the sum of *little-endian* words modulo 2⁶⁴−1: a multiple of 2¹⁶−1, so carries
// may wait for the end (RFC 1071 §2 (A), (C)), and so may the byte order ((B), "Byte Order
// Independence"). It is zero only when all bytes were: end-around carry never makes a zero.
#[derive(Clone, Copy, Default)]
pub struct Sum16(u64);

impl Sum16 {
    /// The sum of no bytes.
    pub const ZERO: Self = Self(0);

    /// The sum of `bytes`: the same as [`sum`](crate::sum()).
    #[inline]
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        crate::sum(bytes)
    }

    /// A sum of little-endian words, as the kernels make it.
    #[inline]
    pub(crate) const fn from_le(sum: u64) -> Self {
        Self(sum)
    }

    /// This sum and one more 16-bit word, in the processor's own order: `0x0800` for bytes 08 00.
    #[inline]
    #[must_use]
    pub const fn add_word(self, word: u16) -> Self {
        self.plus(word.swap_bytes() as u64)
    }

    /// The same bytes' sum had they begun at `offset`: the bytes of each word change places when
    /// that is odd, so `Sum16::of(a) + Sum16::of(b).at(a.len())` is the sum of `a` followed by `b`.
    #[inline]
    #[must_use]
    pub const fn at(self, offset: usize) -> Self {
        // A rotation by 8 bits multiplies by 2⁸ modulo 2⁶⁴−1, which modulo 2¹⁶−1 is a swap.
        Self(if offset % 2 == 1 { self.0.rotate_left(8) } else { self.0 })
    }

    /// The sum in 16 bits, not complemented: what a partial checksum leaves in its field.
    #[inline]
    #[must_use]
    pub const fn folded(self) -> u16 {
        // Both halves of x + rotate(x) hold the sum of x's halves; the upper one got the carry.
        let wide = self.0.wrapping_add(self.0.rotate_left(32));
        let half = (wide >> 32) as u32;
        let half = half.wrapping_add(half.rotate_left(16));
        ((half >> 16) as u16).swap_bytes()
    }

    /// The checksum: the one's complement of the folded sum. Bytes that hold their own correct
    /// checksum give 0 (RFC 1071 §1 (3)).
    #[inline]
    #[must_use]
    pub const fn finish(self) -> u16 {
        !self.folded()
    }

    #[inline]
    const fn plus(self, more: u64) -> Self {
        let (sum, carry) = self.0.overflowing_add(more);
        Self(sum + carry as u64)
    }
}

impl Add for Sum16 {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        self.plus(other.0)
    }
}

impl AddAssign for Sum16 {
    #[inline]
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl PartialEq for Sum16 {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.folded() == other.folded()
    }
}

impl Eq for Sum16 {}

impl fmt::Debug for Sum16 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sum({:#06x})", self.folded())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_1071_section_3_comes_out() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum16::of(&bytes).folded(), 0xddf2);
        assert_eq!(Sum16::of(&bytes).finish(), !0xddf2);
    }

    #[test]
    fn a_known_ipv4_header_verifies() {
        // 172.16.10.99 → 172.16.10.12, TCP, 60 bytes, checksum b1e6.
        let header = [
            0x45, 0x00, 0x00, 0x3c, 0x1c, 0x46, 0x40, 0x00, 0x40, 0x06, 0xb1, 0xe6, 0xac, 0x10,
            0x0a, 0x63, 0xac, 0x10, 0x0a, 0x0c,
        ];
        assert_eq!(Sum16::of(&header).finish(), 0);
    }

    #[test]
    fn words_add_in_the_processors_own_order() {
        assert_eq!(Sum16::ZERO.add_word(0x0800).add_word(0x1234).folded(), 0x1a34);
        assert_eq!(Sum16::ZERO.add_word(0x0800), Sum16::of(&[8, 0]));
        assert_eq!(Sum16::ZERO.add_word(0xffff).add_word(1).folded(), 1);
    }

    #[test]
    fn pieces_at_odd_offsets_compose() {
        let bytes: Vec<u8> = (0..=255).collect();
        for cut in 0..=bytes.len() {
            let (a, b) = bytes.split_at(cut);
            assert_eq!(Sum16::of(a) + Sum16::of(b).at(cut), Sum16::of(&bytes), "cut at {cut}");
        }
    }

    #[test]
    fn only_zero_bytes_sum_to_zero() {
        assert_eq!(Sum16::of(&[0; 100]).folded(), 0);
        assert_eq!(Sum16::of(&[0xff; 100]).folded(), 0xffff);
        let all_ones = Sum16::from_le(u64::MAX);
        assert_eq!((all_ones + all_ones).folded(), 0xffff);
        assert_eq!((all_ones + Sum16::from_le(1)).folded(), 1u16.swap_bytes());
    }
}
