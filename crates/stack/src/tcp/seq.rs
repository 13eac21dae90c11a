//! Sequence numbers that do not wrap: 64 bits inside, the low 32 on the wire.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A sequence number, unwrapped: numbers of one connection compare as integers.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SeqNum(u64);

impl SeqNum {
    /// An initial sequence number. The first turn is left free, so that numbers before it exist.
    pub const fn initial(wire: u32) -> Self {
        Self((1 << 32) | wire as u64)
    }

    /// What is written into headers.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the low half is what is sent")]
    pub const fn wire(self) -> u32 {
        self.0 as u32
    }

    /// The number nearest to this one that is `wire` in a header: within 2³¹ of it.
    #[inline]
    #[must_use]
    pub const fn nearest(self, wire: u32) -> Self {
        let distance = wire.wrapping_sub(self.wire()).cast_signed();
        Self(self.0.wrapping_add_signed(distance as i64))
    }

    /// Bytes from `earlier` to this one; 0 where it is not earlier.
    #[inline]
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The number as an index into a ring whose length is a power of two.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the index is masked")]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl Add<u64> for SeqNum {
    type Output = Self;
    #[inline]
    fn add(self, bytes: u64) -> Self {
        Self(self.0 + bytes)
    }
}

impl AddAssign<u64> for SeqNum {
    #[inline]
    fn add_assign(&mut self, bytes: u64) {
        self.0 += bytes;
    }
}

impl Sub<u64> for SeqNum {
    type Output = Self;
    #[inline]
    fn sub(self, bytes: u64) -> Self {
        Self(self.0 - bytes)
    }
}

impl Sub for SeqNum {
    type Output = u64;
    /// Panics in debug builds when `earlier` is later: see [`SeqNum::saturating_since`].
    #[inline]
    fn sub(self, earlier: Self) -> u64 {
        self.0 - earlier.0
    }
}

impl fmt::Debug for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.wire())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_compare_across_a_wrap() {
        let before = SeqNum::initial(u32::MAX - 1);
        let after = before.nearest(5);
        assert_eq!(after - before, 7);
        assert_eq!(after.wire(), 5);
        assert_eq!(after.nearest(u32::MAX - 1), before);
        assert_eq!(SeqNum::initial(0).nearest(u32::MAX), SeqNum::initial(0) - 1);
    }

    #[test]
    fn half_a_turn_ahead_is_read_as_behind() {
        let here = SeqNum::initial(100);
        assert!(here.nearest(100_u32.wrapping_add(0x7fff_ffff)) > here);
        assert!(here.nearest(100_u32.wrapping_add(0x8000_0000)) < here);
    }
}
