//! TCP sequence numbers: 32 bits that wrap (RFC 9293 §3.4).
//!
//! Left out: an order of all of them, which there is not: `Ord` is not implemented on purpose.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A sequence or acknowledgement number.
///
/// One is before another when going up from it by less than 2³¹ reaches the other. Two that are
/// exactly 2³¹ apart are each before the other: no window is that long (RFC 7323 §2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SeqNum(pub u32);

impl SeqNum {
    /// Whether it comes before `other`.
    #[inline]
    pub const fn is_before(self, other: Self) -> bool {
        other.distance_to(self) < 0
    }

    /// Whether it comes after `other`.
    #[inline]
    pub const fn is_after(self, other: Self) -> bool {
        other.is_before(self)
    }

    /// Whether it is `other` or comes before it.
    #[inline]
    pub const fn is_at_most(self, other: Self) -> bool {
        self.0 == other.0 || self.is_before(other)
    }

    /// Whether it is `other` or comes after it.
    #[inline]
    pub const fn is_at_least(self, other: Self) -> bool {
        other.is_at_most(self)
    }

    /// Whether it lies in the `len` numbers from `start` on.
    #[inline]
    pub const fn is_within(self, start: Self, len: u32) -> bool {
        self.0.wrapping_sub(start.0) < len
    }

    /// How far up `other` is: negative when it comes before.
    #[inline]
    pub const fn distance_to(self, other: Self) -> i32 {
        other.0.wrapping_sub(self.0).cast_signed()
    }

    /// The later of both.
    #[inline]
    #[must_use]
    pub const fn later(self, other: Self) -> Self {
        if self.is_before(other) { other } else { self }
    }

    /// The earlier of both.
    #[inline]
    #[must_use]
    pub const fn earlier(self, other: Self) -> Self {
        if self.is_after(other) { other } else { self }
    }
}

impl Add<u32> for SeqNum {
    type Output = Self;

    #[inline]
    fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for SeqNum {
    #[inline]
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub<u32> for SeqNum {
    type Output = Self;

    #[inline]
    fn sub(self, bytes: u32) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }
}

/// The bytes from `start` up to `self`, which must not come before it.
impl Sub for SeqNum {
    type Output = u32;

    #[inline]
    fn sub(self, start: Self) -> u32 {
        self.0.wrapping_sub(start.0)
    }
}

impl fmt::Display for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn order_survives_the_wrap() {
        let (end, start) = (SeqNum(u32::MAX), SeqNum(0));
        assert!(end.is_before(start) && start.is_after(end));
        assert_eq!((end + 1, start - 1, start - end), (start, end, 1));
        assert_eq!((end.later(start), end.earlier(start)), (start, end));
        assert!(start.is_within(end, 2) && !start.is_within(end, 1) && !end.is_within(end, 0));
    }

    #[test]
    fn two_that_are_half_the_circle_apart_are_each_before_the_other() {
        let (a, b) = (SeqNum(5), SeqNum(5 + (1 << 31)));
        assert!(a.is_before(b) && b.is_before(a));
    }

    proptest! {
        #[test]
        fn order_is_that_of_small_distances(start in any::<u32>(), step in 1..1_u32 << 31) {
            let (a, b) = (SeqNum(start), SeqNum(start) + step);
            prop_assert!(a.is_before(b) && !b.is_before(a) && a.is_at_most(b) && b.is_at_least(a));
            prop_assert_eq!(b - a, step);
            prop_assert_eq!(i64::from(a.distance_to(b)), i64::from(step));
            prop_assert_eq!(i64::from(b.distance_to(a)), -i64::from(step));
            prop_assert_eq!((a.later(b), b.earlier(a)), (b, a));
        }
    }
}
