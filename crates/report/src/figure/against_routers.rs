//! Latency and throughput against the number of routers, with the line through the latencies.
//!
//! Both axes are even, so that what each router adds is a slope. One picture a response, kind of router,
//! size and placement. Left out: sizes beside each other, which have nothing in common but the axis.

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::CellResult;
use plumb_base::stats::regression::{Line, theil_sen};

use super::{Axis, Figure, Marks, Point, Scale, Series, slug};
use crate::table::Table;
use crate::{name, value};

/// The cells of a path that differ in its routers alone, nearest first, and the line through them.
#[derive(Clone, Debug)]
pub struct Path<'a> {
    /// What tells it from the others: `tcp4, 64 B`.
    pub label: String,
    /// Routers and the cell.
    pub cells: Vec<(f64, &'a CellResult)>,
    /// The robust line through the medians; none for fewer than three numbers of routers.
    pub line: Option<Line>,
}

/// The figures of `path.length`; `cells` are all of that experiment.
pub fn figures(cells: &[&CellResult]) -> Vec<Figure> {
    let mut panels: BTreeMap<(&str, String, u64, usize), Vec<&CellResult>> = BTreeMap::new();
    for cell in cells {
        let size = name::bytes(cell).unwrap_or(0);
        let forwarder = forwarder(cell);
        let key = (cell.response.as_str(), forwarder, size, name::placement_order(cell));
        panels.entry(key).or_default().push(cell);
    }
    let figures = panels.into_values().map(|panel| figure(&panel));
    figures.filter(|figure| !figure.is_empty()).collect()
}

/// Whose routers; empty where only one kind was known.
fn forwarder(cell: &CellResult) -> String {
    let level = cell.factors.get("forwarder").and_then(serde_json::Value::as_str);
    level.unwrap_or("").to_owned()
}

/// The paths of these cells, of one response; labels have these factors whether they vary or not.
pub fn paths<'a>(cells: &[&'a CellResult], always: &[&str]) -> Vec<Path<'a>> {
    let varying = name::varying(cells.iter().copied());
    let mut wanted: BTreeSet<String> =
        varying.into_iter().filter(|factor| factor != "routers").collect();
    wanted.extend(always.iter().map(|factor| (*factor).to_owned()));
    let mut paths: BTreeMap<String, Vec<(f64, &CellResult)>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.summary.median.is_some()) {
        let Some(routers) = cell.factors.get("routers").and_then(serde_json::Value::as_f64) else {
            continue;
        };
        paths.entry(name::cell(&cell.factors, &wanted)).or_default().push((routers, cell));
    }
    let path = |(label, mut cells): (String, Vec<(f64, &'a CellResult)>)| {
        cells.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let x: Vec<f64> = cells.iter().map(|(routers, _)| *routers).collect();
        let y: Vec<f64> = cells.iter().filter_map(|(_, cell)| cell.summary.median).collect();
        Path { label, line: theil_sen(&x, &y, CONFIDENCE), cells }
    };
    paths.into_iter().map(path).collect()
}

fn figure(cells: &[&CellResult]) -> Figure {
    let first = cells[0];
    let paths = paths(cells, &["mechanism"]);
    let is_latency = first.response == "latency";
    let mut series = Vec::new();
    for (path, slot) in paths.iter().zip(0u8..) {
        let at = path.cells.iter().filter_map(|(routers, cell)| {
            let y = cell.summary.median?;
            Some(Point { x: *routers, y, x_interval: None, y_interval: cell.summary.ci95 })
        });
        // A latency has its line; between two throughputs nothing is said.
        if let Some(line) = path.line.filter(|_| is_latency) {
            let ends = [line.x_min, line.x_max].map(|x| [x, line.at(x)]);
            series.push(Series { name: String::new(), slot, marks: Marks::Line(ends.to_vec()) });
        }
        let marks = Marks::Points { at: at.collect(), joined: false };
        series.push(Series { name: path.label.clone(), slot, marks });
    }
    let place = ["forwarder", "size", "placement"].map(str::to_owned).into();
    let place = name::cell(&first.factors, &place);
    let title = name::capital(&format!("{}, {place}", name::quantity(&first.response)));
    let table = table(&paths);
    let told: Vec<String> = table.rows.iter().map(|row| row.join(" ")).collect();
    let note = if is_latency {
        "Medians with 95 % intervals over launches, and the robust line through the medians: its slope \
         is what a router adds."
    } else {
        "Medians with 95 % intervals over launches, on an axis from zero."
    };
    let highest = cells.iter().filter_map(|cell| cell.summary.median).fold(0.0, f64::max);
    Figure {
        id: slug(&[&first.experiment, &first.response, &title]),
        alt: format!("{title}, by routers: {}.", told.join("; ")),
        title,
        note: note.to_owned(),
        x: Axis {
            include: Some([0.0, 1.0]),
            ..Axis::with_scale("routers", "count", Scale::Linear)
        },
        y: Axis {
            include: Some([0.0, highest]),
            ..Axis::with_scale(name::quantity(&first.response), &first.unit, Scale::Linear)
        },
        series,
        table,
    }
}

/// Routers down, paths across.
fn table(paths: &[Path<'_>]) -> Table {
    let heads: Vec<String> = ["routers".to_owned()]
        .into_iter()
        .chain(paths.iter().map(|path| format!("#{}", path.label)))
        .collect();
    let mut table = Table::with_heads(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    let mut numbers: Vec<f64> =
        paths.iter().flat_map(|path| path.cells.iter().map(|(routers, _)| *routers)).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    for wanted in numbers {
        let told = paths.iter().map(|path| {
            let found = path.cells.iter().find(|(routers, _)| routers.total_cmp(&wanted).is_eq());
            found.and_then(|(_, cell)| Some((cell, cell.summary.median?))).map_or_else(
                String::new,
                |(cell, median)| {
                    value::with_interval(value::unit(&cell.unit), median, cell.summary.ci95)
                },
            )
        });
        table.push([format!("{wanted:.0}")].into_iter().chain(told));
    }
    table
}

/// Confidence of a slope's interval.
const CONFIDENCE: f64 = 0.95;
