//! Boxes: the spread of each cell's samples beside the others'.
//!
//! For experiments whose cells are named rather than sized. Left out: cells without quartiles.

use std::collections::BTreeSet;

use plumb_analysis::document::CellResult;

use super::{Axis, BoxPlot, Figure, Series, SeriesMarks, slug};
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
