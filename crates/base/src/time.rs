//! Spans of time and moments, as whole picoseconds.
//!
//! Picoseconds because one 64-byte frame at 400 Gb/s lasts 1,280 ps, and because a time-stamp
//! counter ticks every few hundred. A `u64` of them holds 213 days. Left out: calendars, and any
//! way to ask what time it is.

use std::fmt;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// A length of time in whole picoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span {
    ps: u64,
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self { ps: 0 };

    /// A span of whole picoseconds.
    pub const fn from_ps(ps: u64) -> Self {
        Self { ps }
    }

    /// A span of whole nanoseconds; saturates after 213 days.
    pub const fn from_ns(ns: u64) -> Self {
        Self { ps: ns.saturating_mul(1_000) }
    }

    /// A span of whole microseconds; saturates after 213 days.
    pub const fn from_us(us: u64) -> Self {
        Self { ps: us.saturating_mul(1_000_000) }
    }

    /// A span of whole milliseconds; saturates after 213 days.
    pub const fn from_ms(ms: u64) -> Self {
        Self { ps: ms.saturating_mul(1_000_000_000) }
    }

    /// A span of whole seconds; saturates after 213 days.
    pub const fn from_secs(secs: u64) -> Self {
        Self { ps: secs.saturating_mul(1_000_000_000_000) }
    }

    /// The nearest span to a number of seconds; negative and not-a-number give zero.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a float cast saturates, which is the documented behaviour"
    )]
    pub fn from_secs_f64(secs: f64) -> Self {
        Self { ps: (secs * 1e12).round() as u64 }
    }

    /// Whole picoseconds.
    pub const fn as_ps(self) -> u64 {
        self.ps
    }

    /// Whole nanoseconds, rounded down.
    pub const fn as_ns(self) -> u64 {
        self.ps / 1_000
    }

    /// Nanoseconds with their fraction.
    pub fn as_ns_f64(self) -> f64 {
        self.ps as f64 / 1e3
    }

    /// Seconds with their fraction.
    pub fn as_secs_f64(self) -> f64 {
        self.ps as f64 / 1e12
    }

    /// The difference, or zero where it would be negative.
    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self { ps: self.ps.saturating_sub(other.ps) }
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { ps: self.ps.saturating_add(other.ps) }
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Span {
    type Output = Self;
    /// Panics in debug builds when `other` is longer: use [`Span::saturating_sub`] where it may be.
    fn sub(self, other: Self) -> Self {
        Self { ps: self.ps - other.ps }
    }
}

impl Mul<u64> for Span {
    type Output = Self;
    fn mul(self, factor: u64) -> Self {
        Self { ps: self.ps.saturating_mul(factor) }
    }
}

impl Div<u64> for Span {
    type Output = Self;
    fn div(self, divisor: u64) -> Self {
        Self { ps: self.ps / divisor }
    }
}

/// A moment: picoseconds since an origin that the driver chooses, real or virtual.
///
/// Moments of two drivers do not compare. The origin itself is [`Instant::ORIGIN`]; nothing
/// happens before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant {
    since: Span,
}

impl Instant {
    /// The driver's origin.
    pub const ORIGIN: Self = Self { since: Span::ZERO };
    /// Later than anything that happens.
    pub const NEVER: Self = Self { since: Span::from_ps(u64::MAX) };

    /// The moment this long after the origin.
    pub const fn after_origin(span: Span) -> Self {
        Self { since: span }
    }

    /// Time since the origin.
    pub const fn since_origin(self) -> Span {
        self.since
    }

    /// Time since an earlier moment, or zero where it is not earlier.
    #[must_use]
    pub const fn saturating_since(self, earlier: Self) -> Span {
        self.since.saturating_sub(earlier.since)
    }
}

impl Add<Span> for Instant {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self { since: self.since + span }
    }
}

impl AddAssign<Span> for Instant {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Sub for Instant {
    type Output = Span;
    /// Panics in debug builds when `other` is later: use [`Instant::saturating_since`] where it may be.
    fn sub(self, other: Self) -> Span {
        self.since - other.since
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "origin + {:?}", self.since)
    }
}

impl From<Span> for std::time::Duration {
    fn from(span: Span) -> Self {
        Self::from_nanos(span.as_ns())
    }
}

impl From<std::time::Duration> for Span {
    fn from(duration: std::time::Duration) -> Self {
        Self { ps: u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX).saturating_mul(1_000) }
    }
}

impl fmt::Display for Span {
    /// Three significant digits with the unit that suits: `1.28 ns`, `21.4 µs`, `2.00 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::units::Unit::Nanoseconds.format(self.as_ns_f64(), 3).fmt(f)
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_convert_without_loss_and_saturate_instead_of_wrapping() {
        assert_eq!(Span::from_secs(2).as_ns(), 2_000_000_000);
        assert_eq!(Span::from_secs_f64(1.5e-9), Span::from_ps(1_500));
        assert_eq!(Span::from_secs(u64::MAX), Span::from_ps(u64::MAX));
        assert_eq!(Span::from_ns(3).saturating_sub(Span::from_ns(5)), Span::ZERO);
    }

    #[test]
    fn moments_keep_their_distance_and_never_lie_before_the_origin() {
        let early = Instant::ORIGIN + Span::from_us(5);
        let late = early + Span::from_ns(7);
        assert_eq!(late - early, Span::from_ns(7));
        assert_eq!(early.saturating_since(late), Span::ZERO);
        assert!(late < Instant::NEVER);
    }

    #[test]
    fn a_span_prints_three_significant_digits_in_a_suitable_unit() {
        assert_eq!(Span::from_ps(1_280).to_string(), "1.28 ns");
        assert_eq!(Span::from_ns(21_432).to_string(), "21.4 µs");
        assert_eq!(Span::from_secs(2).to_string(), "2.00 s");
    }
}
