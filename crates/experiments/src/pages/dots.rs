//! Medians with their intervals, one row a stack and device: the mirror and contention.
//!
//! One picture a placement, wake mode and frame size; pictures of one placement and wake mode share
//! their axis. Left out: sizes between the shortest frame and the longest, which are lines
//! (`super::against_size`).

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::CellResult;

use plumb_report::figure::{
    Axis, AxisScale, Figure, FigurePoint, SERIES_MAX, Series, SeriesMarks, slug,
};
use plumb_report::table::TextTable;
use plumb_report::{name, value};

/// The figures of one experiment's round trips; `cells` share experiment, response and unit.
pub fn figures(cells: &[&CellResult]) -> Vec<Figure> {
    let sizes: BTreeSet<u64> = cells.iter().filter_map(|cell| name::bytes(cell)).collect();
    let ends: BTreeSet<u64> =
        [sizes.first(), sizes.last()].into_iter().flatten().copied().collect();
    let mut panels: BTreeMap<(usize, String), BTreeMap<u64, Vec<&CellResult>>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.summary.median.is_some()) {
        let Some(size) = name::bytes(cell).filter(|size| ends.contains(size)) else { continue };
        let place = words(cell, &["placement", "wake"]);
        let panel = panels.entry((name::placement_order(cell), place)).or_default();
        panel.entry(size).or_default().push(cell);
    }
    let others = others(cells);
    let mut figures = Vec::new();
    for ((_, place), by_size) in &panels {
        let highest = by_size.values().flatten().map(|cell| upper(cell)).fold(0.0, f64::max);
        for cells in by_size.values() {
            figures.push(figure(place, cells, &others, highest));
        }
    }
    figures
}

/// What tells marks of one row apart: every factor that varies and is no row and no panel.
fn others(cells: &[&CellResult]) -> Vec<String> {
    let varying = name::varying(cells.iter().copied());
    let known = |name: &String| {
        matches!(name.as_str(), "stack" | "device" | "placement" | "wake" | "frame" | "size")
    };
    varying.into_iter().filter(|name| !known(name)).collect()
}

/// A cell's levels of some factors, in words.
fn words(cell: &CellResult, factors: &[&str]) -> String {
    let wanted = factors.iter().map(|name| (*name).to_owned()).collect();
    name::cell(&cell.factors, &wanted)
}

fn upper(cell: &CellResult) -> f64 {
    let summary = &cell.summary;
    summary.ci95.map(|ci| ci[1]).or(summary.median).unwrap_or(0.0)
}

fn figure(place: &str, cells: &[&CellResult], others: &[String], highest: f64) -> Figure {
    let first = cells[0];
    let unit = value::unit(&first.unit);
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let row = |cell: &CellResult| words(cell, &["stack", "device"]);
    let other =
        |cell: &CellResult| if others.is_empty() { String::new() } else { words(cell, &others) };
    let mut rows: Vec<String> = Vec::new();
    let mut names: BTreeSet<String> = BTreeSet::new();
    let mut ordered = cells.to_vec();
    ordered.sort_by_key(|cell| (order(cell), row(cell)));
    for cell in &ordered {
        if !rows.contains(&row(cell)) {
            rows.push(row(cell));
        }
        names.insert(other(cell));
    }
    let series: Vec<Series> = names
        .iter()
        .zip(0u8..)
        .take(SERIES_MAX)
        .map(|(wanted, slot)| {
            // Marks of one row stand a little apart, so that none hides another.
            let shift = (f64::from(slot) - (names.len() as f64 - 1.0) / 2.0) * SHIFT;
            let at = ordered.iter().filter(|cell| other(cell) == *wanted).filter_map(|cell| {
                let y = rows.iter().position(|name| *name == row(cell))? as f64 + shift;
                let x = cell.summary.median?;
                Some(FigurePoint { x, y, x_interval: cell.summary.ci95, y_interval: None })
            });
            let marks = SeriesMarks::Points { at: at.collect(), joined: false };
            Series { name: wanted.clone(), slot, marks }
        })
        .collect();
    let mut table = TextTable::with_heads(&["stack", "marks?", "#median [95 %]", "#launches"]);
    for cell in &ordered {
        let median = cell.summary.median.unwrap_or(0.0);
        let told = value::with_interval(unit, median, cell.summary.ci95);
        table.push([row(cell), other(cell), told, cell.summary.launches.to_string()]);
    }
    table.drop_empty_columns();
    let size = name::bytes(first).map_or_else(String::new, |bytes| format!("{bytes} B, "));
    let title = name::capitalize(&format!("{size}{place}"));
    let quantity = name::response(&first.response);
    let told: Vec<String> = table.rows.iter().map(|row| row.join(" ")).collect();
    Figure {
        id: slug(&[&first.experiment, &first.response, &title]),
        alt: format!("{} at {title}: {}.", name::capitalize(quantity), told.join("; ")),
        title,
        note: "Medians with 95 % intervals over launches, on an axis from zero.".to_owned(),
        x: Axis {
            include: Some([0.0, highest]),
            ..Axis::with_scale(quantity, unit.name(), AxisScale::Linear)
        },
        y: Axis::names("", rows),
        series,
        table,
    }
}

/// Linux first: what the others are compared with.
fn order(cell: &CellResult) -> (usize, String) {
    const STACKS: [&str; 3] = ["linux", "plumb", "smoltcp"];
    let word = |name: &str| cell.factors.get(name).and_then(|level| level.as_str()).unwrap_or("");
    let stack = STACKS.iter().position(|name| *name == word("stack")).unwrap_or(STACKS.len());
    (stack, word("device").to_owned())
}

/// Distance of marks of one row, in rows.
const SHIFT: f64 = 0.17;
