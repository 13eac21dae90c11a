//! How a measured number is written: three significant digits at most, limited by its interval.

use std::collections::BTreeMap;

use plumb_analysis::document::{CellResult, MeasuredRatio};
use plumb_base::units::{FormattedValue, Unit, significant};
use serde_json::Value;

/// The unit of a stored name; unknown names count as plain counts.
pub fn unit(name: &str) -> Unit {
    Unit::from_name(name).unwrap_or(Unit::Count)
}

/// Factors of cells whose bytes go over a network.
const NETWORK_FACTORS: [&str; 4] = ["link", "direction", "path", "rate"];

/// The unit in which a quantity is printed: rates over a network in bits a second, within a machine in bytes.
pub fn printed_unit(name: &str, factors: &BTreeMap<String, Value>) -> Unit {
    match unit(name) {
        Unit::BytesPerSecond if NETWORK_FACTORS.iter().any(|name| factors.contains_key(*name)) => {
            Unit::NetworkRate
        }
        unit => unit,
    }
}

/// The unit in which a cell is printed.
pub fn unit_of(cell: &CellResult) -> Unit {
    printed_unit(&cell.unit, &cell.factors)
}

/// `value` with as many digits as its interval supports, three at most: `21.4 µs`.
pub fn estimate(unit: Unit, value: f64, ci95: Option<[f64; 2]>) -> String {
    formatted(unit, value, ci95).to_string()
}

/// The same as [`estimate`], with number and unit apart.
pub fn formatted(unit: Unit, value: f64, ci95: Option<[f64; 2]>) -> FormattedValue {
    unit.format(value, supported_digits(value, ci95))
}

/// `value` to three significant digits.
pub fn plain(unit: Unit, value: f64) -> String {
    unit.format(value, DIGITS).to_string()
}

/// `value` to three significant digits, or a dash where there is none.
pub fn optional(unit: Unit, value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| plain(unit, value))
}

/// The same as [`estimate`], or a dash where there is no value.
pub fn optional_estimate(unit: Unit, value: Option<f64>, ci95: Option<[f64; 2]>) -> String {
    value.map_or_else(|| "–".to_owned(), |value| estimate(unit, value, ci95))
}

/// A percentile of a cell with its interval, or a dash where it was refused.
pub fn percentile(cell: &CellResult, value: Option<f64>, ci95: Option<[f64; 2]>) -> String {
    let Some(value) = value else { return "–".to_owned() };
    let unit = unit_of(cell);
    let interval =
        ci95.map_or_else(String::new, |ci95| format!(" {}", interval(unit, value, ci95)));
    estimate(unit, value, ci95) + &interval
}

/// The interval in the unit that suits `value`, to the same decimals: `[21.1, 21.9]`.
pub fn interval(unit: Unit, value: f64, ci95: [f64; 2]) -> String {
    let (factor, _) = unit.scale(value);
    let decimals = |text: &str| text.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let shown = decimals(&formatted(unit, value, Some(ci95)).number);
    let [low, high] = ci95.map(|bound| {
        let bound = bound / factor;
        format!("{bound:.*}", shown.min(decimals(&significant(bound, DIGITS))))
    });
    format!("[{low}, {high}]")
}

/// `21.4 µs [21.1, 21.9]`, or only the value where there is no interval; `0–440 µs (too noisy)` where that says
/// next to nothing.
pub fn with_interval(unit: Unit, value: f64, ci95: Option<[f64; 2]>) -> String {
    let head = estimate(unit, value, ci95);
    match ci95 {
        Some(ci95) if is_too_noisy(unit, value, Some(ci95)) => {
            format!("{} ({TOO_NOISY})", range(unit, ci95))
        }
        Some(ci95) => format!("{head} {}", interval(unit, value, ci95)),
        None => head,
    }
}

/// Whether the interval of a positive value reaches zero or beyond, or is twice as wide as the value: there is no digit
/// to print then. Shares and counts may be close to zero and well known.
pub fn is_too_noisy(unit: Unit, value: f64, ci95: Option<[f64; 2]>) -> bool {
    let is_positive = !matches!(unit, Unit::Share | Unit::Count) && value > 0.0;
    let is_wide = |[low, high]: [f64; 2]| low <= 0.0 && high > value || high - low >= 2.0 * value;
    is_positive && ci95.is_some_and(is_wide)
}

/// An interval of what cannot be negative: `10.0 ns–330 µs`, `3.57–19.5 µs`.
pub fn range(unit: Unit, [low, high]: [f64; 2]) -> String {
    let [low, high] = [low.max(0.0), high].map(|end| unit.format(end, DIGITS));
    let is_same = low.suffix == high.suffix || low.number == "0";
    let low = if is_same { low.number } else { low.to_string() };
    format!("{low}–{high}")
}

/// What stands in place of a value whose interval says next to nothing.
pub const TOO_NOISY: &str = "too noisy";

/// Whether the median of a cell is [too noisy](is_too_noisy) to print; what was seen to be negative may be.
pub fn is_noisy_cell(cell: &CellResult) -> bool {
    let summary = &cell.summary;
    let is_noisy = |median| is_too_noisy(unit_of(cell), median, summary.ci95);
    summary.min.is_none_or(|min| min >= 0.0) && summary.median.is_some_and(is_noisy)
}

/// The median of a cell to what its interval supports, or its range where it is too noisy; of what another tool measured, the figure that it printed
/// instead. A dash where there is none.
pub fn central(cell: &CellResult) -> String {
    let (unit, summary) = (unit_of(cell), &cell.summary);
    match (summary.median, summary.mean, summary.printed) {
        // Many a tool prints a mean and nothing else; of few launches with one figure each there is no median.
        (None, Some(mean), _) if summary.n == 1 => plain(unit, mean),
        (None, Some(mean), _) if summary.launches == 0 || summary.n == summary.launches => {
            format!("{} (mean)", plain(unit, mean))
        }
        (None, _, Some(printed)) => format!("{} (as printed)", plain(unit, printed)),
        (Some(_), ..) if is_noisy_cell(cell) => range(unit, summary.ci95.unwrap_or_default()),
        (median, ..) => optional_estimate(unit, median, summary.ci95),
    }
}

/// The median of a cell with its interval; zero where it has none.
pub fn median(cell: &CellResult) -> String {
    with_interval(unit_of(cell), cell.summary.median.unwrap_or(0.0), cell.summary.ci95)
}

/// A ratio with its interval: `0.72× [0.70, 0.74]`.
pub fn ratio(ratio: &MeasuredRatio) -> String {
    format!("{} {}", times(ratio.ratio), ratio_interval(ratio))
}

/// The interval of a ratio: `[0.70, 0.74]`.
pub fn ratio_interval(ratio: &MeasuredRatio) -> String {
    let [low, high] = ratio.ci95.map(|bound| significant(bound, DIGITS));
    format!("[{low}, {high}]")
}

/// Half the width of the interval as a share of the value: `±1.2%`; empty without an interval.
pub fn precision(value: f64, ci95: Option<[f64; 2]>) -> String {
    let Some([low, high]) = ci95 else { return String::new() };
    if value == 0.0 || !(high - low).is_finite() {
        return String::new();
    }
    let percent = (high - low) / 2.0 / value.abs() * 100.0;
    match percent {
        p if p < 0.05 => "±0%".to_owned(),
        p if p < 10.0 => format!("±{p:.1}%"),
        p => format!("±{p:.0}%"),
    }
}

/// The [`precision`] of a cell's median, or that it has none.
pub fn cell_precision(cell: &CellResult) -> String {
    if is_noisy_cell(cell) {
        return TOO_NOISY.to_owned();
    }
    precision(cell.summary.median.unwrap_or(0.0), cell.summary.ci95)
}

/// A ratio as people say it: `3.2×`, `24×`, `0.98×`.
pub fn times(ratio: f64) -> String {
    format!("{}×", significant(ratio, if ratio >= 10.0 { 2 } else { DIGITS }))
}

/// A change by a ratio: `290 times faster` of times and rates, `1.27×` of anything else.
pub fn change(unit: Unit, ratio: f64) -> String {
    let speed = match unit {
        Unit::Nanoseconds => 1.0 / ratio,
        Unit::BytesPerSecond | Unit::NetworkRate => ratio,
        _ => return times(ratio),
    };
    let (factor, word) = if speed >= 1.0 { (speed, "faster") } else { (1.0 / speed, "slower") };
    match significant(factor, if factor >= 10.0 { 2 } else { DIGITS }) {
        one if one == "1.00" => "as fast".to_owned(),
        factor => format!("{factor} times {word}"),
    }
}

/// Significant digits that a value deserves: up to the first digit of its interval's half-width.
pub fn supported_digits(value: f64, ci95: Option<[f64; 2]>) -> usize {
    let Some([low, high]) = ci95 else { return DIGITS };
    let half = (high - low) / 2.0;
    if value == 0.0 || half <= 0.0 || !half.is_finite() {
        return DIGITS;
    }
    let leading = half / 10f64.powf(half.log10().floor());
    // A half-width that begins with 1 or 2 supports one digit more than one that begins with 9.
    let more = f64::from(u8::from(leading < 3.0));
    let places = value.abs().log10().floor() - half.log10().floor() + 1.0 + more;
    // A value wholly inside its noise still needs one digit to be printed at all.
    (1..DIGITS).find(|digits| places <= *digits as f64).unwrap_or(DIGITS)
}

/// No number of a page has more.
const DIGITS: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    const NS: Unit = Unit::Nanoseconds;

    #[test]
    fn digits_stop_where_the_interval_begins() {
        assert_eq!(estimate(NS, 21_432.0, Some([21_400.0, 21_500.0])), "21.4 µs");
        assert_eq!(estimate(NS, 21_432.0, Some([18_000.0, 25_000.0])), "21 µs");
        assert_eq!(estimate(NS, 21_432.0, Some([9_000.0, 45_000.0])), "21 µs");
        assert_eq!(estimate(NS, 21_432.0, Some([2_000.0, 92_000.0])), "20 µs");
        assert_eq!(estimate(NS, 21_432.0, None), "21.4 µs");
        assert_eq!(estimate(NS, 3.0, Some([3.0, 3.0])), "3.00 ns");
    }

    #[test]
    fn an_interval_is_written_in_the_unit_of_its_value() {
        assert_eq!(interval(NS, 1_020.0, [990.0, 1_050.0]), "[0.99, 1.05]");
        assert_eq!(interval(NS, 21_432.0, [18_000.0, 25_000.0]), "[18, 25]");
        assert_eq!(
            with_interval(Unit::BytesPerSecond, 3.4e9, Some([3.3e9, 3.5e9])),
            "3.40 GB/s [3.30, 3.50]"
        );
    }

    #[test]
    fn noise_is_named_with_its_range_and_never_as_a_negative_time() {
        let noisy = Some([-38_000.0, 437_000.0]);
        assert_eq!(with_interval(NS, 200_000.0, noisy), "0–437 µs (too noisy)");
        assert!(is_too_noisy(NS, 400.0, Some([10.0, 330_000.0])));
        assert!(!is_too_noisy(NS, 400.0, Some([10.0, 800.0])));
        assert!(!is_too_noisy(Unit::Share, 0.01, Some([-0.01, 0.03])), "shares may be near zero");
        assert!(!is_too_noisy(NS, -5.0, Some([-20.0, 10.0])), "an offset may be negative");
    }

    #[test]
    fn precision_is_half_the_interval_over_the_value() {
        assert_eq!(precision(100.0, Some([98.0, 102.0])), "±2.0%");
        assert_eq!(precision(100.0, Some([80.0, 120.0])), "±20%");
        assert_eq!(precision(100.0, None), "");
        assert_eq!(precision(0.0, Some([-1.0, 1.0])), "");
    }
}
