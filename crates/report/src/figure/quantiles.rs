//! The distribution of each of a few cells: value against cumulative share, tails stretched.
//!
//! Left out: percentiles that the sample does not support; the staircase ends where the summary's
//! quantiles end.

use plumb_analysis::document::CellResult;

use super::{Axis, AxisScale, Figure, SERIES_MAX, Series, SeriesMarks, slug};
use crate::table::TextTable;
use crate::{name, value};

/// The quantiles of up to [`SERIES_MAX`] cells in one figure; none when no cell has any.
///
/// `cells` share response and unit; the cheapest are drawn when there are too many.
pub fn figure(title: &str, cells: &[&CellResult]) -> Option<Figure> {
    let varying = name::varying(cells.iter().copied());
    let mut drawn: Vec<&CellResult> =
        cells.iter().copied().filter(|cell| cell.summary.quantiles.len() > 1).collect();
    drawn.sort_by(|a, b| {
        let median = |cell: &CellResult| cell.summary.median.unwrap_or(f64::INFINITY);
        median(a).total_cmp(&median(b))
    });
    let hidden = drawn.len().saturating_sub(SERIES_MAX);
    drawn.truncate(SERIES_MAX);
    let first = drawn.first()?;
    let labels: Vec<String> =
        drawn.iter().map(|cell| name::cell(&cell.factors, &varying)).collect();
    let series = drawn
        .iter()
        .zip(&labels)
        .enumerate()
        .map(|(slot, (cell, label))| Series {
            name: if drawn.len() > 1 { label.clone() } else { String::new() },
            slot: u8::try_from(slot).unwrap_or(0),
            marks: SeriesMarks::Steps(steps(cell)),
        })
        .collect();
    let mut note = "Read upwards: the share of samples at or below a value. The scale stretches \
                    the tail, so that 90 %, 99 % and 99.9 % are equally far apart."
        .to_owned();
    if hidden > 0 {
        note = format!("{note} The {SERIES_MAX} lowest medians are drawn; {hidden} more are not.");
    }
    Some(Figure {
        id: slug(&[&first.experiment, &first.response, "quantiles", title]),
        title: title.to_owned(),
        note,
        alt: alt(&drawn, &labels),
        x: axis(first, &drawn),
        y: Axis::with_scale("share of samples", "share", AxisScale::Tail),
        series,
        table: table(&drawn, &labels),
    })
}

/// Quantiles as (value, share), without the maximum: a share of 1 has no place on a tail axis.
fn steps(cell: &CellResult) -> Vec<[f64; 2]> {
    cell.summary.quantiles.iter().filter(|[p, _]| *p < 1.0).map(|[p, value]| [*value, *p]).collect()
}

/// Logarithmic where values span more than a few times themselves, else linear: a narrow
/// logarithmic axis has too few round numbers on it.
fn axis(first: &CellResult, cells: &[&CellResult]) -> Axis {
    let values = cells.iter().flat_map(|cell| steps(cell)).map(|[value, _]| value);
    let (low, high) =
        values.fold((f64::INFINITY, 0.0f64), |(low, high), v| (low.min(v), high.max(v)));
    let mut axis = Axis::measured(name::quantity(&first.response), value::unit_of(first).name());
    if high < low * 4.0 {
        axis.scale = AxisScale::Linear;
    }
    axis
}

fn alt(cells: &[&CellResult], labels: &[String]) -> String {
    let parts: Vec<String> = cells
        .iter()
        .zip(labels)
        .filter_map(|(cell, label)| {
            let unit = value::unit_of(cell);
            let (q1, q3) = (cell.summary.q1?, cell.summary.q3?);
            Some(format!(
                "half of {label} lies between {} and {}",
                value::plain(unit, q1),
                value::plain(unit, q3)
            ))
        })
        .collect();
    format!("Cumulative distributions: {}.", parts.join("; "))
}

/// Cells down, a few percentiles across: those that were refused are dashes.
fn table(cells: &[&CellResult], labels: &[String]) -> TextTable {
    let number =
        |cell: &CellResult, number: Option<f64>| value::optional(value::unit_of(cell), number);
    let labelled: Vec<(&CellResult, &String)> = cells.iter().copied().zip(labels).collect();
    TextTable::of_rows(
        &labelled,
        &[
            ("cell", &|(_, label)| (*label).clone()),
            ("#min", &|(cell, _)| number(cell, cell.summary.min)),
            ("#q1", &|(cell, _)| number(cell, cell.summary.q1)),
            ("#median", &|(cell, _)| number(cell, cell.summary.median)),
            ("#q3", &|(cell, _)| number(cell, cell.summary.q3)),
            ("#p90", &|(cell, _)| value::percentile(cell, cell.summary.p90, cell.summary.p90_ci95)),
            ("#p99", &|(cell, _)| value::percentile(cell, cell.summary.p99, cell.summary.p99_ci95)),
            ("#p99.9", &|(cell, _)| {
                value::percentile(cell, cell.summary.p999, cell.summary.p999_ci95)
            }),
            ("#max", &|(cell, _)| number(cell, cell.summary.max)),
            ("#n eff.", &|(cell, _)| format!("{:.0}", cell.summary.n_eff)),
        ],
    )
}
