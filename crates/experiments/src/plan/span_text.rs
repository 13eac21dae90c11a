//! Spans as people write them: `40ms`, `2m`, `1h30m`.
//!
//! Left out: printing for reading, which rounds and is `Span`'s own.

use plumb_base::time::Span;

/// Units by name with their picoseconds, longest first.
const UNITS: [(&str, u64); 7] = [
    ("h", 3_600_000_000_000_000),
    ("m", 60_000_000_000_000),
    ("s", 1_000_000_000_000),
    ("ms", 1_000_000_000),
    ("us", 1_000_000),
    ("µs", 1_000_000),
    ("ns", 1_000),
];

/// A duration that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a duration: write 40ms, 20s, 2m or 1h30m")]
pub struct ParseSpanError {
    text: String,
}

/// Reads `40ms`, `1.5s`, `2m` or `1h30m`.
///
/// # Errors
/// Anything else, a number without a unit, or a length over 213 days.
pub fn parse(text: &str) -> Result<Span, ParseSpanError> {
    let fault = || ParseSpanError { text: text.to_owned() };
    let mut rest = text.trim();
    let mut sum: Option<u64> = None;
    while !rest.is_empty() {
        let unit_at = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(fault)?;
        let (number, tail) = rest.split_at(unit_at);
        let unit_end =
            tail.find(|c: char| c.is_ascii_digit() || c.is_whitespace()).unwrap_or(tail.len());
        let (unit, after) = tail.split_at(unit_end);
        let scale = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(fault)?.1;
        let part = scaled(number, scale).ok_or_else(fault)?;
        sum = Some(sum.unwrap_or(0).checked_add(part).ok_or_else(fault)?);
        rest = after.trim_start();
    }
    sum.map(Span::from_ps).ok_or_else(fault)
}

/// `number` × `scale`, exact for whole numbers.
fn scaled(number: &str, scale: u64) -> Option<u64> {
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(scale);
    }
    let picoseconds = number.parse::<f64>().ok()? * scale as f64;
    // Above 2^63 ps (106 days) a fraction says nothing.
    (picoseconds < 9.2e18).then(|| Span::from_secs_f64(picoseconds / 1e12).as_ps())
}

/// Writes a span so that [`parse`] gives the same one back, to the nanosecond.
pub fn format(span: Span) -> String {
    let ps = span.as_ps();
    UNITS.iter().find(|(_, scale)| ps >= *scale && ps.is_multiple_of(*scale)).map_or_else(
        || format!("{}ns", ps / 1_000),
        |(name, scale)| format!("{}{name}", ps / scale),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_round_trip_through_their_spelling() {
        for span in [Span::from_ms(40), Span::from_secs(90), Span::from_secs(7200), Span::ZERO] {
            assert_eq!(parse(&format(span)), Ok(span));
        }
        assert_eq!(format(Span::from_secs(120)), "2m");
    }

    #[test]
    fn compound_and_fractional_durations_are_read() {
        assert_eq!(parse("1h30m"), Ok(Span::from_secs(5_400)));
        assert_eq!(parse("1.5s"), Ok(Span::from_ms(1_500)));
        assert_eq!(parse("2 m"), Err(ParseSpanError { text: "2 m".to_owned() }));
    }

    #[test]
    fn nonsense_is_refused_rather_than_guessed() {
        for text in ["", "5", "m", "-3s", "3 parsecs", "1e9s", "999999999999h", "1..2s", "nan s"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
