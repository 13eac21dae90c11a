//! How the samples of cells are spread: boxes beside each other, for experiments whose cells are named rather than sized; of a
//! few cells value against cumulative share, tails stretched; and of a whole run launch medians against the order of
//! launches, relative to each cell's median.
//!
//! Left out: cells without quartiles, and percentiles that the sample does not support: the staircase ends where the
//! summary's quantiles end.

use std::collections::BTreeSet;

use plumb_analysis::document::CellResult;

use super::{Axis, AxisScale, BoxPlot, Figure, FigurePoint, SERIES_MAX, Series, SeriesMarks, slug};
use crate::table::TextTable;
use crate::{name, value};

/// The figures of one experiment's response, at most [`NAMES_MAX`] boxes each.
///
/// `cells` share experiment, response and unit.
pub fn figures(cells: &[&CellResult]) -> Vec<Figure> {
    let varying = name::varying(cells.iter().copied());
    let drawable: Vec<&CellResult> =
        cells.iter().copied().filter(|cell| spread(cell, 0.0).is_some()).collect();
    let parts = drawable.len().div_ceil(NAMES_MAX).max(1);
    drawable
        .chunks(drawable.len().div_ceil(parts).max(1))
        .enumerate()
        .map(|(index, cells)| figure(cells, &varying, index + 1, parts))
        .collect()
}

fn figure(cells: &[&CellResult], varying: &BTreeSet<String>, part: usize, parts: usize) -> Figure {
    let (experiment, response, unit) = cells.first().map_or(("", "", "ns"), |cell| {
        (&cell.experiment, &cell.response, value::unit_of(cell).name())
    });
    let label = |cell: &CellResult| {
        let all = || cell.factors.keys().cloned().collect();
        name::cell(&cell.factors, &if varying.is_empty() { all() } else { varying.clone() })
    };
    let names: Vec<String> = cells.iter().map(|cell| label(cell)).collect();
    let at: Vec<BoxPlot> =
        cells.iter().enumerate().filter_map(|(index, cell)| spread(cell, index as f64)).collect();
    let mut title = "Spread of the samples".to_owned();
    if parts > 1 {
        title = format!("{title} ({part} of {parts})");
    }
    Figure {
        id: slug(&[experiment, response, "spread", &part.to_string()]),
        title,
        note: "Boxes span the quartiles around the median; whiskers run from the minimum to the \
               highest percentile that the sample supports, 99 % at most."
            .to_owned(),
        alt: alt(response, &names, cells),
        x: Axis::measured(name::quantity(response), unit),
        y: Axis::names("", names.clone()),
        series: vec![Series { name: String::new(), slot: 0, marks: SeriesMarks::Boxes(at) }],
        table: table(&names, cells),
    }
}

fn spread(cell: &CellResult, at: f64) -> Option<BoxPlot> {
    let summary = &cell.summary;
    let median = summary.median?;
    let (q1, q3) = (summary.q1?, summary.q3?);
    let low = summary.min.unwrap_or(q1);
    let high = summary.p99.or(summary.p90).unwrap_or(q3);
    let positive = matches!(cell.unit.as_str(), "ns" | "B/s");
    // A logarithmic axis has no place for a minimum of zero.
    let low = if positive && low <= 0.0 { q1 } else { low };
    (!positive || q1 > 0.0).then_some(BoxPlot {
        at,
        whiskers: [low, high.max(q3)],
        quartiles: [q1, q3],
        median,
    })
}

fn alt(response: &str, names: &[String], cells: &[&CellResult]) -> String {
    let parts: Vec<String> = names
        .iter()
        .zip(cells)
        .filter_map(|(name, cell)| {
            let summary = &cell.summary;
            let unit = value::unit_of(cell);
            Some(format!("{name} {}", value::estimate(unit, summary.median?, summary.ci95)))
        })
        .collect();
    format!("Box plot of {}; medians: {}.", name::response(response), parts.join(", "))
}

fn table(names: &[String], cells: &[&CellResult]) -> TextTable {
    let number =
        |cell: &CellResult, number: Option<f64>| value::optional(value::unit_of(cell), number);
    let median = |cell: &CellResult| match cell.summary.median {
        Some(median) => value::with_interval(value::unit_of(cell), median, cell.summary.ci95),
        None => "–".to_owned(),
    };
    let named: Vec<(&String, &CellResult)> = names.iter().zip(cells.iter().copied()).collect();
    TextTable::of_rows(
        &named,
        &[
            ("cell", &|(name, _)| (*name).clone()),
            ("#min", &|(_, cell)| number(cell, cell.summary.min)),
            ("#q1", &|(_, cell)| number(cell, cell.summary.q1)),
            ("#median [95 %]", &|(_, cell)| median(cell)),
            ("#q3", &|(_, cell)| number(cell, cell.summary.q3)),
            ("#p90", &|(_, cell)| value::percentile(cell, cell.summary.p90, cell.summary.p90_ci95)),
            ("#p99", &|(_, cell)| value::percentile(cell, cell.summary.p99, cell.summary.p99_ci95)),
        ],
    )
}

/// Boxes that fit in one figure.
pub const NAMES_MAX: usize = 16;

/// The quantiles of up to [`SERIES_MAX`] cells in one figure; none when no cell has any.
///
/// `cells` share response and unit; the cheapest are drawn when there are too many.
pub fn quantiles(title: &str, cells: &[&CellResult]) -> Option<Figure> {
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
        alt: quantiles_alt(&drawn, &labels),
        x: axis(first, &drawn),
        y: Axis::with_scale("share of samples", "share", AxisScale::Tail),
        series,
        table: quantiles_table(&drawn, &labels),
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

fn quantiles_alt(cells: &[&CellResult], labels: &[String]) -> String {
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
fn quantiles_table(cells: &[&CellResult], labels: &[String]) -> TextTable {
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

/// The drift of a run; none when no cell has two launches.
pub fn drift(results: &[CellResult]) -> Option<Figure> {
    let rows = drift_rows(results);
    if rows.len() < 2 {
        return None;
    }
    let place = |launch: usize| launch as f64 + 1.0;
    let band = |low: usize, high: usize| {
        let quantiles = rows.iter().map(|(_, quantiles)| (quantiles[low], quantiles[high]));
        let at = quantiles.enumerate().map(|(launch, (low, high))| [place(launch), low, high]);
        Series { name: String::new(), slot: 0, marks: SeriesMarks::Band(at.collect()) }
    };
    let middle = || rows.iter().map(|(_, quantiles)| quantiles[2]);
    let medians =
        middle().enumerate().map(|(launch, median)| FigurePoint::at(place(launch), median));
    let widest = middle().map(|median| (median - 1.0).abs()).fold(0.0, f64::max);
    Some(Figure {
        id: "drift".to_owned(),
        title: "Drift over the run".to_owned(),
        note: "Median of each launch over the median of its cell: the line is the middle of all \
               cells, the dark band holds half of them, the light one nine tenths. A line that \
               climbs or falls means that the machine changed while it was measured."
            .to_owned(),
        alt: format!(
            "Launch medians relative to their cells: the middle of all cells departs from 1 by at \
             most {:.1} %.",
            widest * 100.0
        ),
        x: Axis::with_scale(
            "launch, in the order in which they were made",
            "count",
            AxisScale::Linear,
        ),
        y: Axis::with_scale("launch median / cell median", "count", AxisScale::Linear),
        series: vec![band(0, 4), band(1, 3), Series::points(String::new(), 0, true, medians)],
        table: drift_table(&rows),
    })
}

/// The ratios of all cells at one launch: their number and these quantiles.
type DriftRow = (usize, [f64; 5]);

const SHARES: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];

fn drift_rows(results: &[CellResult]) -> Vec<DriftRow> {
    let launches = results.iter().map(|result| result.summary.launch_medians.len()).max();
    (0..launches.unwrap_or(0))
        .filter_map(|launch| {
            let mut ratios: Vec<f64> = results
                .iter()
                .filter(|result| result.summary.launch_medians.len() > 1)
                .filter_map(|result| {
                    let ratio =
                        result.summary.launch_medians.get(launch)? / result.summary.median?;
                    ratio.is_finite().then_some(ratio)
                })
                .collect();
            ratios.sort_by(f64::total_cmp);
            let quantiles = SHARES.map(|p| nearest(&ratios, p).unwrap_or(1.0));
            (!ratios.is_empty()).then_some((ratios.len(), quantiles))
        })
        .collect()
}

/// The nearest-rank quantile: enough for a band.
fn nearest(sorted: &[f64], p: f64) -> Option<f64> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the product is between 0 and the length"
    )]
    let rank = (p * sorted.len() as f64).ceil().max(1.0) as usize;
    sorted.get(rank - 1).copied()
}

fn drift_table(rows: &[DriftRow]) -> TextTable {
    let mut table =
        TextTable::with_heads(&["#launch", "#cells", "#5 %", "#25 %", "#median", "#75 %", "#95 %"]);
    for (launch, (cells, quantiles)) in rows.iter().enumerate() {
        let ratios = quantiles.map(|ratio| format!("{ratio:.3}"));
        table.push([(launch + 1).to_string(), cells.to_string()].into_iter().chain(ratios));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_values_of_the_sample() {
        assert_eq!(nearest(&[1.0, 2.0, 3.0, 4.0], 0.5), Some(2.0));
        assert_eq!(nearest(&[1.0], 0.05), Some(1.0));
        assert_eq!(nearest(&[], 0.5), None);
    }
}
