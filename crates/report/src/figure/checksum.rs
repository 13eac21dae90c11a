//! Copy, sum, and both: bytes a second against size, one picture a state of the caches.
//!
//! Of each operation the instruction set that is fastest at the largest size is drawn, and beside
//! the fastest fused one the portable one. Left out: the others, which the full table has.

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::CellResult;
use plumb_base::units::format_bytes;

use super::{Axis, Figure, Marks, Point, Scale, Series, slug};
use crate::table::Table;
use crate::{name, value};

/// The figures of `stack.checksum`.
pub fn figures(cells: &[&CellResult]) -> Vec<Figure> {
    let mut panels: BTreeMap<std::cmp::Reverse<String>, Vec<&CellResult>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| rate(cell).is_some()) {
        panels.entry(std::cmp::Reverse(word(cell, "cache"))).or_default().push(cell);
    }
    let rates: Vec<f64> = cells.iter().filter_map(|cell| rate(cell)).map(|rate| rate.0).collect();
    let range = rates.iter().copied().reduce(f64::min).zip(rates.iter().copied().reduce(f64::max));
    let mut figures: Vec<Figure> = panels.values().filter_map(|cells| figure(cells)).collect();
    for figure in &mut figures {
        figure.y.include = range.map(|(low, high)| [low, high]);
    }
    figures
}

/// Bytes a second and their interval.
fn rate(cell: &CellResult) -> Option<(f64, Option<[f64; 2]>)> {
    let bytes = name::bytes(cell)? as f64 * 1e9;
    let median = cell.summary.median.filter(|median| *median > 0.0)?;
    let interval = cell.summary.ci95.filter(|ci| ci[0] > 0.0);
    Some((bytes / median, interval.map(|[low, high]| [bytes / high, bytes / low])))
}

fn word(cell: &CellResult, factor: &str) -> String {
    cell.factors.get(factor).and_then(serde_json::Value::as_str).unwrap_or("").to_owned()
}

fn figure(cells: &[&CellResult]) -> Option<Figure> {
    let lines = lines(cells);
    let first = cells.first()?;
    let title = name::capital(&name::level("cache", first.factors.get("cache")?));
    let sizes: BTreeSet<u64> = cells.iter().filter_map(|cell| name::bytes(cell)).collect();
    let heads: Vec<String> = ["size (B)".to_owned()]
        .into_iter()
        .chain(lines.iter().map(|line| format!("#{}", line.name)))
        .collect();
    let mut table = Table::with_heads(&heads.iter().map(String::as_str).collect::<Vec<_>>());
    for size in sizes {
        let at = |line: &Line<'_>| {
            let cell = line.cells.iter().find(|cell| name::bytes(cell) == Some(size));
            cell.and_then(|cell| rate(cell)).map_or_else(String::new, |(rate, interval)| {
                value::with_interval(RATE, rate, interval)
            })
        };
        table.push([format_bytes(size)].into_iter().chain(lines.iter().map(at)));
    }
    let series = lines.iter().map(|line| {
        let at = line.cells.iter().filter_map(|cell| {
            let (y, y_interval) = rate(cell)?;
            Some(Point { x: name::bytes(cell)? as f64, y, x_interval: None, y_interval })
        });
        let marks = Marks::Points { at: at.collect(), joined: true };
        Series { name: line.name.clone(), slot: line.slot, marks }
    });
    let ends = |line: &Line<'_>| {
        let last = line.cells.last()?;
        let rate = value::plain(RATE, rate(last)?.0);
        Some(format!("{} {rate} at {} B", line.name, name::bytes(last)?))
    };
    let told: Vec<String> = lines.iter().filter_map(ends).collect();
    Some(Figure {
        id: slug(&["stack.checksum", &title]),
        alt: format!("Bytes a second against size, {title}: {}.", told.join("; ")),
        title,
        note: "Bytes a second from median times, with 95 % intervals over launches (1 GB/s is one \
               byte a nanosecond); both axes are logarithmic. Of each operation the fastest \
               instruction set is drawn."
            .to_owned(),
        x: Axis::with_scale("size (B)", "B", Scale::Log2),
        y: Axis::measured("bytes a second", RATE.name()),
        series: series.collect(),
        table,
    })
}

const RATE: plumb_base::units::Unit = plumb_base::units::Unit::BytesPerSecond;

/// One operation with one instruction set, its cells by size.
struct Line<'a> {
    name: String,
    slot: u8,
    cells: Vec<&'a CellResult>,
}

/// Every operation with its fastest instruction set; and the portable fused one where it is not it.
fn lines<'a>(cells: &[&'a CellResult]) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for (operation, slot) in [("copy", 0), ("fused", 1), ("separate", 2), ("sum", 3)] {
        let mut kernels: BTreeMap<String, Vec<&CellResult>> = BTreeMap::new();
        for cell in cells.iter().filter(|cell| word(cell, "operation") == operation) {
            kernels.entry(word(cell, "kernel")).or_default().push(cell);
        }
        for cells in kernels.values_mut() {
            cells.sort_by_key(|cell| name::bytes(cell));
        }
        let speed = |cells: &[&CellResult]| {
            cells.last().and_then(|cell| rate(cell)).map_or(0.0, |rate| rate.0)
        };
        let best = kernels
            .iter()
            .max_by(|a, b| speed(a.1).total_cmp(&speed(b.1)))
            .map(|(kernel, _)| kernel.clone());
        for (kernel, cells) in kernels {
            let is_best = Some(&kernel) == best.as_ref();
            let is_portable = operation == "fused" && kernel == "portable";
            if is_best || is_portable {
                let words = name::cell(&cells[0].factors, &telling());
                let slot = if is_best { slot } else { 4 };
                lines.push(Line { name: words, slot, cells });
            }
        }
    }
    lines
}

fn telling() -> BTreeSet<String> {
    BTreeSet::from(["operation".to_owned(), "kernel".to_owned()])
}
