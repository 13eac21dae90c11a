//! Throughput against the window, one line a round trip, and the smaller of one window a round trip and
//! what the link can carry.
//!
//! One picture a rate, congestion control and queue; those of one rate share their scale. Left out:
//! windows that the kernel chooses, which have no place on the axis and stand in the table.

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::CellResult;
use plumb_analysis::pipe::Pipe;
use plumb_base::units::Unit;
use serde_json::Value;

use super::{Axis, Figure, Marks, Point, Scale, Series, slug};
use crate::table::Table;
use crate::{name, value};

/// A cell of `window.bdp` with the pipe that it filled, or not.
#[derive(Clone, Copy, Debug)]
pub struct Filled<'a> {
    /// The cell.
    pub cell: &'a CellResult,
    /// Its link and window.
    pub pipe: Pipe,
    /// The median of its throughput, in bytes a second.
    pub throughput: f64,
}

impl<'a> Filled<'a> {
    /// The pipe of a cell; none where it has no number, or levels that cannot be read.
    pub fn of(cell: &'a CellResult) -> Option<Self> {
        let text = |factor: &str| cell.factors.get(factor).and_then(Value::as_str);
        let window = cell.factors.get("window").and_then(Value::as_f64);
        let pipe = Pipe::of(text("rate")?, text("rtt")?, window)?;
        Some(Self { cell, pipe, throughput: cell.summary.median? })
    }

    /// The throughput as a share of one window a round trip; none where the kernel chose the window.
    pub fn of_window(&self) -> Option<f64> {
        self.pipe.window_rate().map(|rate| self.throughput / rate)
    }

    /// The throughput as a share of what the link can carry.
    pub fn of_link(&self) -> f64 {
        self.throughput / self.pipe.capacity
    }

    /// Whether the window is what bounds it, and not the link.
    pub fn is_bounded(&self) -> bool {
        self.pipe.window.is_some_and(|window| window < self.pipe.product)
    }
}

/// The figures of `window.bdp`; `cells` are all of that experiment.
pub fn figures(cells: &[&CellResult]) -> Vec<Figure> {
    let varying = name::varying(cells.iter().copied());
    let wanted: BTreeSet<String> = varying
        .into_iter()
        .filter(|factor| !matches!(factor.as_str(), "window" | "rtt"))
        .chain(["rate", "congestion"].map(str::to_owned))
        .collect();
    let mut panels: BTreeMap<(u64, String), Vec<Filled<'_>>> = BTreeMap::new();
    for cell in cells.iter().filter_map(|cell| Filled::of(cell)) {
        let title = name::capital(&name::cell(&cell.cell.factors, &wanted));
        panels.entry((cell.pipe.capacity.to_bits(), title)).or_default().push(cell);
    }
    let mut ranges: BTreeMap<u64, [f64; 2]> = BTreeMap::new();
    for ((rate, _), cells) in &panels {
        let range = ranges.entry(*rate).or_insert([f64::INFINITY, 0.0]);
        for cell in cells.iter().filter(|cell| cell.throughput > 0.0) {
            *range = [range[0].min(cell.throughput), range[1].max(cell.throughput)];
        }
    }
    let figure = |((rate, title), cells): (&(u64, String), &Vec<Filled<'_>>)| {
        let mut figure = figure(title, cells);
        figure.y.include = ranges.get(rate).copied().filter(|[low, high]| low <= high);
        figure
    };
    panels.iter().map(figure).filter(|figure| !figure.is_empty()).collect()
}

fn figure(title: &str, cells: &[Filled<'_>]) -> Figure {
    let mut by_rtt: BTreeMap<u64, Vec<&Filled<'_>>> = BTreeMap::new();
    for cell in cells {
        by_rtt.entry(cell.pipe.rtt.to_bits()).or_default().push(cell);
    }
    let (mut expected, mut measured) = (Vec::new(), Vec::new());
    let mut table = Table::with_heads(&[
        "round trip and window",
        "#throughput [95 %]",
        "#expected",
        "#of a window a round trip?",
        "#of the link",
    ]);
    for (cells, slot) in by_rtt.values_mut().zip(0u8..) {
        cells.sort_by(|a, b| order(a).total_cmp(&order(b)));
        let known = || cells.iter().filter_map(|cell| Some((cell.pipe.window?, *cell)));
        let line: Vec<[f64; 2]> = bends(cells).into_iter().collect();
        let at = known().map(|(window, cell)| Point {
            x: window,
            y: cell.throughput,
            x_interval: None,
            y_interval: cell.cell.summary.ci95,
        });
        let marks = Marks::Points { at: at.collect(), joined: false };
        let rtt = name::cell(&cells[0].cell.factors, &["rtt".to_owned()].into());
        expected.push(Series { name: String::new(), slot, marks: Marks::Line(line) });
        measured.push(Series { name: rtt, slot, marks });
        table.rows.extend(cells.iter().map(|cell| row(cell)));
    }
    let told: Vec<String> = table.rows.iter().map(|row| format!("{} {}", row[0], row[1])).collect();
    expected.extend(measured);
    Figure {
        id: slug(&["window.bdp", title]),
        alt: format!("Throughput by window, {title}: {}.", told.join("; ")),
        title: title.to_owned(),
        note: "Medians with 95 % intervals over launches; both axes are logarithmic. The dashed line is \
               the smaller of one window a round trip and what the link can carry."
            .to_owned(),
        x: Axis::with_scale("window (B)", "B", Scale::Log2),
        y: Axis::measured("throughput", Unit::BytesPerSecond.name()),
        series: expected,
        table,
    }
}

fn order(cell: &Filled<'_>) -> f64 {
    cell.pipe.window.unwrap_or(f64::INFINITY)
}

/// What is expected from the least window to the largest, with the corner between them.
fn bends(cells: &[&Filled<'_>]) -> Vec<[f64; 2]> {
    let windows: Vec<f64> = cells.iter().filter_map(|cell| cell.pipe.window).collect();
    let (Some(least), Some(most), Some(first)) = (windows.first(), windows.last(), cells.first())
    else {
        return Vec::new();
    };
    let corner = first.pipe.capacity * first.pipe.rtt;
    let mut at = vec![*least];
    if corner > *least && corner < *most {
        at.push(corner);
    }
    at.push(*most);
    at.into_iter()
        .map(|window| [window, Pipe { window: Some(window), ..first.pipe }.expected()])
        .collect()
}

fn row(cell: &Filled<'_>) -> Vec<String> {
    let unit = Unit::BytesPerSecond;
    let share = |share: f64| value::estimate(Unit::Share, share, None);
    let wanted = ["rtt", "window"].map(str::to_owned).into();
    vec![
        name::cell(&cell.cell.factors, &wanted),
        value::with_interval(unit, cell.throughput, cell.cell.summary.ci95),
        value::plain(unit, cell.pipe.expected()),
        cell.of_window().map_or_else(|| "–".to_owned(), share),
        share(cell.of_link()),
    ]
}
