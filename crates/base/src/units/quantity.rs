//! Quantities as people write them: `10mbit`, `1.25MB/s`, `25ms`, `0.1%`; exact both ways.
//!
//! What is written is what is printed again, without rounding; an error shows the accepted forms.
//! k = 1000 and Ki = 1024. docs/units.md tells users the forms.

use std::fmt;
use std::str::FromStr;

use crate::time::Span;
use crate::units::Rate;

/// Why a text is no quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' {fault}; write a {kind} as {forms}", forms = kind.forms())]
pub struct QuantityError {
    text: String,
    kind: QuantityKind,
    fault: QuantityErrorKind,
}

/// Of what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QuantityKind {
    Rate,
    Time,
    Probability,
}

impl QuantityKind {
    const fn forms(self) -> &'static str {
        match self {
            Self::Rate => {
                "9600, 10mbit, 2.5gbit, 10Mb/s or 1.25MB/s (bit or b are bits, B bytes; k = 1000, ki = 1024)"
            }
            Self::Time => "25ms, 1.5s, 300us, 40ns, 2min or 1h30m",
            Self::Probability => "0.1%, 0.001 or 1e-3, between 0 and 1",
        }
    }
}

impl fmt::Display for QuantityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rate => "rate",
            Self::Time => "time",
            Self::Probability => "share",
        })
    }
}

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum QuantityErrorKind {
    #[error("is not a number with a known unit")]
    Unreadable,
    #[error("is negative, and nothing here can be")]
    Negative,
    #[error("has no unit")]
    NoUnit,
    #[error("is zero: a rate must be positive")]
    Zero,
    #[error("is larger than any that can be counted")]
    TooLarge,
    #[error("is finer than what can be counted (bits a second, picoseconds)")]
    TooFine,
    #[error("is not between 0 and 1")]
    NotAProbability,
    #[error("is ambiguous: megabits or megabytes")]
    Ambiguous,
}

/// Reads a rate: `9600`, `10mbit`, `2.5gbit`, `10Mb/s`, `1.25MB/s`.
///
/// # Errors
/// Says what is wrong and which forms there are; zero is no rate.
pub fn parse_rate(text: &str) -> Result<Rate, QuantityError> {
    let fail = |fault| QuantityError { text: text.to_owned(), kind: QuantityKind::Rate, fault };
    let (number, unit) = split(text.trim()).map_err(fail)?;
    let (unit, a_second) = match unit.strip_suffix("/s") {
        Some(unit) => (unit, true),
        None => (unit, false),
    };
    let bits: &[(&str, u128)] = &[("bits", 1), ("bit", 1), ("bytes", 8), ("byte", 8)];
    let lower = unit.to_ascii_lowercase();
    let (prefix, times) =
        if let Some((name, times)) = bits.iter().find(|(name, _)| lower.ends_with(name)) {
            (&lower[..lower.len() - name.len()], *times)
        } else if lower.ends_with("bps") {
            return Err(fail(QuantityErrorKind::Ambiguous));
        } else if unit.ends_with('B') && a_second {
            (&lower[..lower.len() - 1], 8)
        } else if unit.ends_with('b') && a_second {
            (&lower[..lower.len() - 1], 1)
        } else {
            (lower.as_str(), 1)
        };
    let factor = prefix_factor(prefix).ok_or_else(|| fail(QuantityErrorKind::Unreadable))?;
    match number.times(factor * times).map_err(fail)? {
        0 => Err(fail(QuantityErrorKind::Zero)),
        rate => Rate::from_bits_per_second(rate).ok_or_else(|| fail(QuantityErrorKind::Zero)),
    }
}

/// Reads a length of time: `25ms`, `1.5s`, `300us`, `40ns`, `2min`, `1h30m`; `0` needs no unit.
///
/// # Errors
/// Says what is wrong and which forms there are.
pub fn parse_span(text: &str) -> Result<Span, QuantityError> {
    let fail = |fault| QuantityError { text: text.to_owned(), kind: QuantityKind::Time, fault };
    let mut sum = 0_u64;
    let mut rest = text.trim();
    loop {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let next = rest[unit_at..].find(|c: char| c.is_ascii_digit());
        let (part, others) = rest.split_at(next.map_or(rest.len(), |next| unit_at + next));
        let ps = picoseconds(part).map_err(fail)?;
        sum = sum.checked_add(ps).ok_or_else(|| fail(QuantityErrorKind::TooLarge))?;
        if others.is_empty() {
            return Ok(Span::from_ps(sum));
        }
        rest = others;
    }
}

/// Reads a duration as the tools of the field do, in which a number without a unit is in seconds: `2`, `0.2`, `2s`,
/// `200ms`, `1h30m`.
///
/// # Errors
/// Says what is wrong and which forms there are.
pub fn parse_duration(text: &str) -> Result<Span, QuantityError> {
    let trimmed = text.trim();
    let is_bare = trimmed.ends_with(|c: char| c.is_ascii_digit() || c == '.');
    match parse_span(&format!("{trimmed}s")) {
        Ok(span) if is_bare && !trimmed.contains(char::is_alphabetic) => Ok(span),
        _ => parse_span(text),
    }
}

/// One number with its unit of time.
fn picoseconds(text: &str) -> Result<u64, QuantityErrorKind> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "" if number.digits == 0 => 1,
        "" => return Err(QuantityErrorKind::NoUnit),
        // Both the sign for micro and the Greek letter.
        "\u{b5}s" | "\u{3bc}s" => 1_000_000,
        unit => {
            let known = TIMES.iter().find(|(name, _)| *name == unit);
            known.ok_or(QuantityErrorKind::Unreadable)?.1
        }
    };
    number.times(factor.into())
}

/// Reads a share: `0.1%`, `0.001`, `1e-3`.
///
/// # Errors
/// Says what is wrong and which forms there are.
pub fn parse_probability(text: &str) -> Result<f64, QuantityError> {
    let fail =
        |fault| QuantityError { text: text.to_owned(), kind: QuantityKind::Probability, fault };
    let trimmed = text.trim();
    if trimmed.starts_with('-') {
        return Err(fail(QuantityErrorKind::Negative));
    }
    let (number, percent) = match trimmed.strip_suffix('%') {
        Some(number) => (number.trim(), true),
        None => (trimmed, false),
    };
    if !number.starts_with(|c: char| c.is_ascii_digit() || c == '.') {
        return Err(fail(QuantityErrorKind::Unreadable));
    }
    // The decimal point is moved in the text, so that 0.1 % is the double next to 0.001.
    let moved = if percent { shifted_by_two(number) } else { Some(number.to_owned()) };
    let share = moved.and_then(|text| text.parse::<f64>().ok());
    let share = share.ok_or_else(|| fail(QuantityErrorKind::Unreadable))?;
    if (0.0..=1.0).contains(&share) {
        Ok(share)
    } else {
        Err(fail(QuantityErrorKind::NotAProbability))
    }
}

/// A span as [`parse_span`] reads it, exactly: `25ms`, `1500us`.
pub fn format_span(span: Span) -> String {
    let ps = span.as_ps();
    if ps == 0 {
        return "0s".to_owned();
    }
    // Minutes and hours are read, not written: 90s says as much as 1.5min.
    let (name, factor) = TIMES[..5]
        .iter()
        .rev()
        .find(|(_, factor)| ps.is_multiple_of(*factor))
        .expect("a picosecond divides everything");
    format!("{}{name}", ps / factor)
}

impl fmt::Display for Rate {
    /// As [`parse_rate`] reads it, exactly: `10mbit`, `9600bit`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.bits_per_second();
        let (prefix, factor) = [("g", 1_000_000_000), ("m", 1_000_000), ("k", 1_000)]
            .into_iter()
            .find(|(_, factor)| bits.is_multiple_of(*factor))
            .unwrap_or(("", 1));
        f.pad(&format!("{}{prefix}bit", bits / factor))
    }
}

impl FromStr for Rate {
    type Err = QuantityError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse_rate(text)
    }
}

/// Picoseconds of each unit, ascending.
const TIMES: [(&str, u64); 9] = [
    ("ps", 1),
    ("ns", 1_000),
    ("us", 1_000_000),
    ("ms", 1_000_000_000),
    ("s", 1_000_000_000_000),
    ("sec", 1_000_000_000_000),
    ("min", 60_000_000_000_000),
    ("m", 60_000_000_000_000),
    ("h", 3_600_000_000_000_000),
];

fn prefix_factor(prefix: &str) -> Option<u128> {
    Some(match prefix {
        "" => 1,
        "k" => 1_000,
        "m" => 1_000_000,
        "g" => 1_000_000_000,
        "t" => 1_000_000_000_000,
        "ki" => 1 << 10,
        "mi" => 1 << 20,
        "gi" => 1 << 30,
        "ti" => 1 << 40,
        _ => return None,
    })
}

/// A decimal number: its digits, and how many of them stand behind the point.
#[derive(Clone, Copy, Debug)]
struct Decimal {
    digits: u128,
    decimals: u32,
}

impl Decimal {
    /// So many units; only if that is a whole number.
    fn times(self, factor: u128) -> Result<u64, QuantityErrorKind> {
        let product = self.digits.checked_mul(factor).ok_or(QuantityErrorKind::TooLarge)?;
        let divisor = 10_u128.checked_pow(self.decimals).ok_or(QuantityErrorKind::TooFine)?;
        if !product.is_multiple_of(divisor) {
            return Err(QuantityErrorKind::TooFine);
        }
        u64::try_from(product / divisor).map_err(|_| QuantityErrorKind::TooLarge)
    }
}

/// The number that a text begins with, and its unit.
fn split(text: &str) -> Result<(Decimal, &str), QuantityErrorKind> {
    if text.starts_with(['-', '\u{2212}']) {
        return Err(QuantityErrorKind::Negative);
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() || part.contains('.') {
        return Err(QuantityErrorKind::Unreadable);
    }
    let part = part.trim_end_matches('0');
    let digits = format!("{whole}{part}").parse().map_err(|_| QuantityErrorKind::TooLarge)?;
    let decimals = u32::try_from(part.len()).map_err(|_| QuantityErrorKind::TooFine)?;
    Ok((Decimal { digits, decimals }, unit.trim()))
}

/// `number` divided by a hundred, as text.
fn shifted_by_two(number: &str) -> Option<String> {
    let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
    let exponent: i32 = exponent.parse().ok()?;
    Some(format!("{mantissa}e{}", exponent.checked_sub(2)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bits(text: &str) -> u64 {
        parse_rate(text).unwrap().bits_per_second()
    }

    #[test]
    fn rates_are_read_in_bits_and_bytes() {
        assert_eq!(bits("9600"), 9_600);
        assert_eq!(bits("10mbit"), 10_000_000);
        assert_eq!(bits("10Mbit/s"), 10_000_000);
        assert_eq!(bits("10Mb/s"), 10_000_000);
        assert_eq!(bits("1.25MB/s"), 10_000_000);
        assert_eq!(bits("2.5gbit"), 2_500_000_000);
        assert_eq!(bits("1kibit"), 1_024);
        assert_eq!(bits("400G"), 400_000_000_000);
        assert_eq!(bits("0.5 kbit"), 500);
        assert_eq!(bits("100 kbytes/s"), 800_000);
    }

    #[test]
    fn spans_are_read_to_the_picosecond() {
        assert_eq!(parse_span("25ms"), Ok(Span::from_ms(25)));
        assert_eq!(
            parse_span("0.0005 ns"),
            Err(QuantityError {
                text: "0.0005 ns".to_owned(),
                kind: QuantityKind::Time,
                fault: QuantityErrorKind::TooFine,
            })
        );
        assert_eq!(parse_span("1.5µs"), Ok(Span::from_ns(1_500)));
        assert_eq!(parse_span("2min"), Ok(Span::from_secs(120)));
        assert_eq!(parse_span("1h30m"), Ok(Span::from_secs(5_400)));
        assert_eq!(parse_span("0"), Ok(Span::ZERO));
    }

    #[test]
    fn a_duration_without_a_unit_is_in_seconds() {
        assert_eq!(parse_duration("2"), Ok(Span::from_secs(2)));
        assert_eq!(parse_duration("0.2"), Ok(Span::from_ms(200)));
        assert_eq!(parse_duration("1h30m"), Ok(Span::from_secs(5_400)));
        assert_eq!(parse_duration("2m"), Ok(Span::from_secs(120)));
        assert_eq!(parse_duration("0"), Ok(Span::ZERO));
        for text in ["1h30", "-2", "", "soon", "."] {
            let error = parse_duration(text).unwrap_err().to_string();
            assert!(error.contains("25ms"), "{error}");
        }
    }

    #[test]
    fn shares_are_the_nearest_doubles() {
        assert_eq!(parse_probability("0.1%"), Ok(0.001));
        assert_eq!(parse_probability("2.5 %"), Ok(0.025));
        assert_eq!(parse_probability("1e-5"), Ok(1e-5));
        assert_eq!(parse_probability("100%"), Ok(1.0));
    }

    #[test]
    fn what_is_no_quantity_is_refused_with_the_forms_that_are() {
        for text in [
            "0",
            "0mbit",
            "-1mbit",
            "10 parsecs",
            "",
            "1.2.3mbit",
            "10MB",
            "99999999999tbit",
            "nan",
            "0.3bit",
        ] {
            let error = parse_rate(text).unwrap_err().to_string();
            assert!(error.contains("10mbit") && error.contains("1.25MB/s"), "{error}");
        }
        assert!(parse_rate("10mbps").unwrap_err().to_string().contains("megabits or megabytes"));
        for text in ["25", "-5ms", "ms", "5 fortnights", "1e300s", "999999999999h"] {
            let error = parse_span(text).unwrap_err().to_string();
            assert!(error.contains("25ms"), "{error}");
        }
        for text in ["101%", "1.5", "-1%", "NaN", "inf", "", "%", "one"] {
            let error = parse_probability(text).unwrap_err().to_string();
            assert!(error.contains("0.1%"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn rates_and_spans_are_read_as_they_are_written(number in 1_u64.., shift in 0_u32..64) {
            let number = (number >> shift).max(1);
            let rate = Rate::from_bits_per_second(number).unwrap();
            prop_assert_eq!(parse_rate(&rate.to_string()), Ok(rate));
            let span = Span::from_ps(number);
            prop_assert_eq!(parse_span(&format_span(span)), Ok(span));
        }

        #[test]
        fn shares_are_read_as_they_are_written(share in 0.0_f64..=1.0) {
            prop_assert_eq!(parse_probability(&share.to_string()), Ok(share));
        }

        #[test]
        fn no_text_panics(text in ".{0,12}") {
            let _ = (parse_rate(&text), parse_span(&text), parse_probability(&text), parse_duration(&text));
        }
    }
}
