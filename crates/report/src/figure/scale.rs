//! From values to positions: what both renderers need to know about an axis.
//!
//! Left out: pixels and character cells.

use plumb_base::units::{Unit, format_bytes};

use super::{Axis, AxisScale, Figure, SeriesMarks};
use crate::value;

/// An axis with the extent of its data: where it begins, where it ends, and its ticks.
#[derive(Clone, Debug)]
pub(super) struct AxisExtent {
    /// Positions of the two ends, after [`position`].
    pub low: f64,
    /// The other end.
    pub high: f64,
    /// Values that get a tick, with their labels.
    pub ticks: Vec<(f64, String)>,
}

/// The position of a value on its axis; none where the scale has no place for it.
pub(super) fn position(scale: &AxisScale, value: f64) -> Option<f64> {
    let position = match scale {
        AxisScale::Linear | AxisScale::Names(_) => value,
        AxisScale::Log10 => value.log10(),
        AxisScale::Log2 => value.log2(),
        AxisScale::Tail => -(1.0 - value.min(TAIL_END)).log10(),
    };
    position.is_finite().then_some(position)
}

/// The extents of both axes over everything drawn.
pub(super) fn extents(figure: &Figure) -> (AxisExtent, AxisExtent) {
    let (mut xs, mut ys) = (Vec::new(), Vec::new());
    xs.extend(figure.x.include.into_iter().flatten());
    ys.extend(figure.y.include.into_iter().flatten());
    for series in &figure.series {
        collect(&series.marks, &mut xs, &mut ys);
    }
    (extent(&figure.x, &xs), extent(&figure.y, &ys))
}

fn collect(marks: &SeriesMarks, xs: &mut Vec<f64>, ys: &mut Vec<f64>) {
    match marks {
        SeriesMarks::Points { at, .. } => {
            for point in at {
                xs.push(point.x);
                ys.push(point.y);
                xs.extend(point.x_interval.into_iter().flatten());
                ys.extend(point.y_interval.into_iter().flatten());
            }
        }
        SeriesMarks::Band(at) => {
            for [x, low, high] in at {
                xs.push(*x);
                ys.extend([low, high]);
            }
        }
        SeriesMarks::Steps(at) | SeriesMarks::Line(at) => {
            xs.extend(at.iter().map(|step| step[0]));
            ys.extend(at.iter().map(|step| step[1]));
        }
        SeriesMarks::Stack { segments, .. } => {
            for [row, from, to] in segments {
                ys.push(*row);
                xs.extend([0.0, *from, *to]);
            }
        }
        SeriesMarks::Boxes(at) => {
            for spread in at {
                ys.push(spread.at);
                xs.extend(spread.whiskers);
            }
        }
    }
}

fn extent(axis: &Axis, values: &[f64]) -> AxisExtent {
    let positions = values.iter().filter_map(|value| position(&axis.scale, *value));
    let (low, high) = positions
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), p| (low.min(p), high.max(p)));
    let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
    match &axis.scale {
        AxisScale::Names(names) => named(names),
        AxisScale::Linear => linear(axis, low, high),
        AxisScale::Log10 => decades(value::unit(&axis.unit), low, high),
        AxisScale::Log2 => octaves(low, high),
        AxisScale::Tail => tail(high),
    }
}

fn named(names: &[String]) -> AxisExtent {
    let ticks =
        names.iter().enumerate().map(|(index, name)| (index as f64, name.clone())).collect();
    AxisExtent { low: -0.6, high: names.len() as f64 - 0.4, ticks }
}

fn linear(axis: &Axis, low: f64, high: f64) -> AxisExtent {
    let unit = value::unit(&axis.unit);
    let (low, high) = if high > low { (low, high) } else { (low - 0.5, high + 0.5) };
    let raw = (high - low) / 5.0;
    // Ticks are round numbers of what is printed.
    let printed = if unit == Unit::NetworkRate { 8.0 } else { 1.0 };
    let magnitude = 10f64.powf((raw * printed).log10().floor()) / printed;
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * magnitude)
        .find(|step| *step >= raw)
        .unwrap_or(raw);
    // Bytes are printed in KiB and MiB.
    let step = if unit == Unit::Bytes && raw > 1.0 { raw.log2().ceil().exp2() } else { step };
    // Between whole ends things are counted, and there is no half of one.
    let is_counted = unit == Unit::Count && low.fract() == 0.0 && high.fract() == 0.0;
    let step = if is_counted { step.max(1.0) } else { step };
    let (first, last) = ((low / step).floor(), (high / step).ceil());
    let ticks = steps(first, last)
        .map(|index| index * step)
        .map(|tick| (tick, linear_label(unit, tick, step)))
        .collect();
    AxisExtent { low: first * step, high: last * step, ticks }
}

/// Digits behind the point by which ticks this far apart are told apart.
fn decimals(step: f64) -> usize {
    (0..9_u8)
        .find(|digits| step * 10f64.powi(i32::from(*digits)) >= 1.0 - NEARLY)
        .unwrap_or(9)
        .into()
}

fn linear_label(unit: Unit, tick: f64, step: f64) -> String {
    match unit {
        Unit::Share => format!("{:.*}%", decimals(step * 100.0), tick * 100.0),
        Unit::Count => format!("{tick:.*}", decimals(step)),
        // Halves and quarters of a power of 1024.
        Unit::Bytes => {
            let (factor, name) = unit.scale(tick);
            format!("{} {name}", tick / factor)
        }
        _ => {
            let places = tick.abs().log10().floor() - step.log10().floor() + 1.0;
            let digits = (1..6u8).find(|digits| f64::from(*digits) >= places).unwrap_or(3);
            unit.format(tick, usize::from(digits)).to_string()
        }
    }
}

/// Ends and ticks at 1, 2 and 5 times powers of ten of what is printed, or at the powers alone over a wide range.
fn decades(unit: Unit, low: f64, high: f64) -> AxisExtent {
    let shift = if unit == Unit::NetworkRate { 8f64.log10() } else { 0.0 };
    let (low, high) = (low + shift, high + shift);
    let grid: Vec<f64> = steps(low.floor(), high.ceil())
        .flat_map(|decade| [1.0f64, 2.0, 5.0].map(|m| decade + m.log10()))
        .collect();
    let first = grid.iter().copied().filter(|p| *p <= low + NEARLY).fold(low.floor(), f64::max);
    let last = grid.iter().copied().filter(|p| *p >= high - NEARLY).fold(high.ceil(), f64::min);
    let last = if last - first < 0.25 { first + 0.5 } else { last };
    let wide = last - first > 2.2;
    let ticks = grid
        .into_iter()
        .filter(|p| *p >= first - NEARLY && *p <= last + NEARLY)
        .filter(|p| !wide || (p - p.round()).abs() < NEARLY)
        .map(|p| 10f64.powf(p - shift))
        .map(|value| (value, unit.format(value, 1).to_string()))
        .collect();
    AxisExtent { low: first - shift, high: last - shift, ticks }
}

fn octaves(low: f64, high: f64) -> AxisExtent {
    let (first, last) = (low.floor(), high.ceil().max(low.floor() + 1.0));
    let step = if last - first > 10.0 { 2.0 } else { 1.0 };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the logarithm of a size in bytes is between 0 and 63"
    )]
    let ticks = steps((first / step).ceil(), (last / step).floor())
        .map(|index| index * step)
        .filter(|p| (0.0..63.0).contains(p))
        .map(|p| (p.exp2(), format_bytes(1 << p as u32)))
        .collect();
    AxisExtent { low: first - 0.3, high: last + 0.3, ticks }
}

fn tail(high: f64) -> AxisExtent {
    let last = high.ceil().clamp(1.0, 4.0);
    let half = [(0.5, "50%"), (0.9, "90%"), (0.99, "99%"), (0.999, "99.9%"), (0.9999, "99.99%")];
    let ticks = [(0.0, "0%")]
        .into_iter()
        .chain(half)
        .filter(|(p, _)| position(&AxisScale::Tail, *p).is_some_and(|p| p <= last + 1e-9))
        .map(|(p, label)| (p, label.to_owned()))
        .collect();
    AxisExtent { low: 0.0, high: last, ticks }
}

/// The whole numbers from `first` to `last`, as floats; bounded, whatever the ends are.
fn steps(first: f64, last: f64) -> impl Iterator<Item = f64> {
    const STEPS_MAX: u32 = 400;
    (0..STEPS_MAX).map(move |index| first + f64::from(index)).take_while(move |step| *step <= last)
}

/// Slack of a comparison between positions that were computed differently.
const NEARLY: f64 = 1e-9;

/// The largest probability a tail axis shows; beyond it everything is "the maximum".
const TAIL_END: f64 = 0.9999;

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(extent: &AxisExtent) -> Vec<&str> {
        extent.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn a_log_axis_ends_at_one_two_or_five_times_a_power_of_ten() {
        let axis = Axis::measured("latency", "ns");
        let narrow = extent(&axis, &[1_100.0, 4_200.0]);
        assert_eq!(labels(&narrow), ["1 µs", "2 µs", "5 µs"]);
        let wide = extent(&axis, &[12.0, 48_000.0]);
        assert_eq!(labels(&wide), ["10 ns", "100 ns", "1 µs", "10 µs"]);
        assert!(wide.high >= 48_000f64.log10());
        let rates = extent(&Axis::measured("rate", "bit/s"), &[1.25e6, 6e6]);
        assert_eq!(labels(&rates), ["10 Mb/s", "20 Mb/s", "50 Mb/s"]);
    }

    #[test]
    fn no_two_ticks_of_a_linear_axis_are_labelled_alike() {
        let axis = |unit| Axis::with_scale("ratio", unit, AxisScale::Linear);
        assert_eq!(labels(&extent(&axis("count"), &[0.998, 1.0012]))[..2], ["0.998", "0.999"]);
        assert_eq!(labels(&extent(&axis("share"), &[0.9981, 0.9993]))[..2], ["99.80%", "99.85%"]);
        assert_eq!(labels(&extent(&axis("share"), &[0.0, 0.5]))[..2], ["0%", "10%"]);
        assert_eq!(labels(&extent(&axis("count"), &[1.0, 3.0])), ["1", "2", "3"], "launches");
        let bytes = extent(&axis("B"), &[0.0, 1_400_000.0]);
        assert_eq!(labels(&bytes), ["0 B", "512 KiB", "1 MiB", "1.5 MiB"]);
    }

    #[test]
    fn values_that_have_no_place_on_an_axis_are_left_out() {
        assert_eq!(position(&AxisScale::Log10, 0.0), None);
        assert_eq!(position(&AxisScale::Log10, -1.0), None);
        assert_eq!(position(&AxisScale::Linear, f64::NAN), None);
        let extent = extent(&Axis::measured("latency", "ns"), &[0.0, f64::NAN]);
        assert!(extent.low.is_finite() && extent.high > extent.low);
    }

    #[test]
    fn sizes_are_ticked_at_powers_of_four_when_there_are_many() {
        let axis = Axis::with_scale("", "B", AxisScale::Log2);
        let extent = extent(&axis, &[4.0, 524_288.0]);
        assert_eq!(labels(&extent)[..3], ["4", "16", "64"]);
        let odd = self::extent(&axis, &[60.0, 65_536.0]);
        assert_eq!(labels(&odd)[..2], ["64", "256"]);
    }
}
