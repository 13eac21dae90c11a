//! Units of what is measured: how a bare number from a table is printed and read.
//!
//! k = 1000 and Ki = 1024, always. Over a network rates are printed in bits a second, within a machine in bytes.

use std::fmt;

pub mod quantity;

/// The unit a stored number is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Unit {
    /// Nanoseconds; printed as ns, µs, ms or s.
    Nanoseconds,
    /// Bytes a second; printed as B/s, kB/s, MB/s or GB/s.
    BytesPerSecond,
    /// Bytes a second over a network; printed as b/s, kb/s, Mb/s or Gb/s. Stored as [`Unit::BytesPerSecond`].
    NetworkRate,
    /// Bytes; printed with binary prefixes.
    Bytes,
    /// A plain count.
    Count,
    /// A share between 0 and 1; printed as a percentage.
    Share,
}

impl Unit {
    /// The name used in stored files and JSON: `ns`, `B/s`, `B`, `count`, `share`; and `bit/s` of axes.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::BytesPerSecond => "B/s",
            Self::NetworkRate => "bit/s",
            Self::Bytes => "B",
            Self::Count => "count",
            Self::Share => "share",
        }
    }

    /// The unit of a stored name, if it is one.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [
            Self::Nanoseconds,
            Self::BytesPerSecond,
            Self::NetworkRate,
            Self::Bytes,
            Self::Count,
            Self::Share,
        ];
        all.into_iter().find(|unit| unit.name() == name)
    }

    /// The prefix that suits `value`: its factor and the printed unit.
    pub fn scale(self, value: f64) -> (f64, &'static str) {
        let steps: &[(f64, &str)] = match self {
            Self::Nanoseconds => &[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")],
            Self::BytesPerSecond => &[(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")],
            Self::NetworkRate => {
                &[(1.25e8, "Gb/s"), (1.25e5, "Mb/s"), (125.0, "kb/s"), (0.125, "b/s")]
            }
            Self::Bytes => &[(1_048_576.0, "MiB"), (1024.0, "KiB"), (1.0, "B")],
            Self::Count => &[(1e9, "G"), (1e6, "M"), (1.0, "")],
            Self::Share => &[(0.01, "%")],
        };
        // Compared after rounding to three digits, so that 999.7 ns prints as 1.00 µs.
        let magnitude = value.abs() * 1.000_5;
        steps
            .iter()
            .copied()
            .find(|(factor, _)| magnitude >= *factor)
            .unwrap_or(steps[steps.len() - 1])
    }

    /// `value` with at most `digits` significant digits and a suitable prefix.
    pub fn format(self, value: f64, digits: usize) -> FormattedValue {
        let (factor, suffix) = self.scale(value);
        FormattedValue { number: significant(value / factor, digits), suffix }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A number already rounded, with the unit to print after it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormattedValue {
    /// The digits.
    pub number: String,
    /// The unit with its prefix; may be empty.
    pub suffix: &'static str,
}

impl fmt::Display for FormattedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.suffix {
            "" => f.pad(&self.number),
            "%" => f.pad(&format!("{}%", self.number)),
            suffix => f.pad(&format!("{} {suffix}", self.number)),
        }
    }
}

/// Numbers with a larger exponent, or a smaller negative one, are written with it.
const PLAIN_EXPONENT_MAX: i32 = 20;

/// `value` rounded to `digits` significant digits; with an exponent only where it is very large or very small.
pub fn significant(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = i32::try_from(digits.max(1)).unwrap_or(3);
    #[expect(clippy::cast_possible_truncation, reason = "log10 of a finite double is within ±400")]
    let exponent = value.abs().log10().floor() as i32;
    if exponent.abs() > PLAIN_EXPONENT_MAX {
        return format!("{value:.*e}", usize::try_from(digits - 1).unwrap_or(0));
    }
    let scale = 10f64.powi(exponent + 1 - digits);
    let rounded = (value / scale).round() * scale;
    let decimals = usize::try_from(digits - 1 - exponent).unwrap_or(0);
    // Rounding up may have carried into a new digit: 9.996 is 10.0, not 10.00.
    let carried = rounded.abs().log10() + 1e-12 >= f64::from(exponent + 1);
    format!("{rounded:.*}", decimals.saturating_sub(usize::from(carried && decimals > 0)))
}

/// Reads a size in bytes: `64`, `4Ki`, `64KiB`, `1M`, `512k`.
pub fn parse_bytes(text: &str) -> Result<u64, ParseBytesError> {
    let fault = || ParseBytesError { text: text.to_owned() };
    let trimmed = text.trim().trim_end_matches(['B', 'b']);
    let split = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (digits, suffix) = trimmed.split_at(split);
    let factor: u64 = match suffix.trim() {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" | "ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        _ => return Err(fault()),
    };
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(factor)).ok_or_else(fault)
}

/// A size that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a size in bytes: write 64, 4Ki, 64KiB or 1M (k = 1000, Ki = 1024)")]
pub struct ParseBytesError {
    text: String,
}

/// A size as people write it: `64`, `4Ki`, `512Ki`, `1Mi`; exact, never rounded.
pub fn format_bytes(bytes: u64) -> String {
    match bytes {
        0 => "0".to_owned(),
        n if n % (1 << 20) == 0 => format!("{}Mi", n >> 20),
        n if n % (1 << 10) == 0 => format!("{}Ki", n >> 10),
        n => n.to_string(),
    }
}

/// A size with its unit: `64 B`, `4 KiB`, `1 MiB`; exact, never rounded.
pub fn format_size(bytes: u64) -> String {
    let text = format_bytes(bytes);
    match text.find(|c: char| !c.is_ascii_digit()) {
        Some(prefix) => format!("{} {}B", &text[..prefix], &text[prefix..]),
        None => format!("{text} B"),
    }
}

/// The whole part of a number; 0 of a negative one, and the largest there is of one that is larger.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates"
)]
pub const fn whole(number: f64) -> u64 {
    number as u64
}

/// Bits a second; never zero, because nothing at all is not a rate but a link that is down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate {
    bits_per_second: std::num::NonZeroU64,
}

impl Rate {
    /// A rate of whole bits a second; `None` for zero.
    pub const fn from_bits_per_second(bits_per_second: u64) -> Option<Self> {
        match std::num::NonZeroU64::new(bits_per_second) {
            Some(bits_per_second) => Some(Self { bits_per_second }),
            None => None,
        }
    }

    /// Whole bits a second.
    pub const fn bits_per_second(self) -> u64 {
        self.bits_per_second.get()
    }

    /// Bytes a second, with their fraction.
    pub fn bytes_per_second(self) -> f64 {
        self.bits_per_second.get() as f64 / 8.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_far_from_one_are_printed_short_and_never_as_nan() {
        assert_eq!(significant(1.25e-309, 3), "1.25e-309");
        assert_eq!(significant(-2e-40, 2), "-2.0e-40");
        assert_eq!(significant(1.234e300, 3), "1.23e300");
        assert_eq!(significant(f64::from_bits(1), 3), "4.94e-324");
    }

    #[test]
    fn three_significant_digits_survive_carries() {
        assert_eq!(significant(9.996, 3), "10.0");
        assert_eq!(significant(0.012_345, 3), "0.0123");
        assert_eq!(significant(1234.0, 3), "1230");
        assert_eq!(significant(99.96, 3), "100");
        assert_eq!(Unit::Nanoseconds.format(999.96, 3).to_string(), "1.00 µs");
        assert_eq!(Unit::Nanoseconds.format(999.7, 3).to_string(), "1.00 µs");
        assert_eq!(Unit::Nanoseconds.format(999.4, 3).to_string(), "999 ns");
        assert_eq!(Unit::Share.format(0.0312, 2).to_string(), "3.1%");
        assert_eq!(Unit::NetworkRate.format(124_950_000.0, 3).to_string(), "1.00 Gb/s");
        assert_eq!(Unit::NetworkRate.format(1_200.0, 3).to_string(), "9.60 kb/s");
    }

    #[test]
    fn sizes_round_trip_through_their_spelling() {
        for bytes in [1, 4, 64, 1000, 1024, 65_536, 524_288, 1 << 20] {
            assert_eq!(parse_bytes(&format_bytes(bytes)), Ok(bytes));
        }
        assert_eq!(parse_bytes("64KiB"), Ok(65_536));
        assert_eq!([64, 4_096, 1_514].map(format_size), ["64 B", "4 KiB", "1514 B"]);
        assert_eq!(parse_bytes("512k"), Ok(512_000));
        assert!(parse_bytes("-4").is_err());
        assert!(parse_bytes("4 parsecs").is_err());
        assert!(parse_bytes("99999999999G").is_err());
    }
}
