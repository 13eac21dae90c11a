//! What becomes of long packets on a path, and of a small one behind them.
//!
//! Delivery is a picture a path with a row for each size, by UDP and by TCP, and what became of those that
//! did not arrive; pieces are a picture with a row for each path and size; waiting is time against the
//! packets ahead. Left out: why, which the routers of the link know.

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::CellResult;
use plumb_base::units::Unit;
use serde_json::Value;

use super::{Axis, Figure, Marks, Point, Scale, Series, slug};
use crate::table::Table;
use crate::{name, value};

/// The figures of `mtu.path`; `cells` are all of that experiment.
pub fn figures(cells: &[&CellResult]) -> Vec<Figure> {
    let of = |responses: &[&str]| -> Vec<&CellResult> {
        let chosen = |cell: &&&CellResult| {
            responses.contains(&cell.response.as_str()) && cell.summary.median.is_some()
        };
        cells.iter().filter(chosen).copied().collect()
    };
    let mut figures = Vec::new();
    for cells in by_rate(&of(&["delivered", CONNECTED])) {
        let paths = PATHS.map(|path| {
            let on = |cell: &&&CellResult| word(cell, "path") == path;
            cells.iter().copied().filter(|cell| on(&cell)).collect::<Vec<_>>()
        });
        figures.extend(paths.iter().filter(|cells| !cells.is_empty()).map(|c| delivered(c)));
    }
    figures.extend(by_rate(&of(&["pieces"])).iter().map(|cells| pieces(cells)));
    figures.extend(by_rate(&of(&["urgent"])).iter().map(|cells| urgent(cells)));
    figures.retain(|figure| !figure.is_empty());
    figures
}

/// The kinds of path, the widest first.
pub const PATHS: [&str; 3] = ["jumbo", "narrow", "black-hole"];

/// The response of TCP's connections.
pub const CONNECTED: &str = "connected";

/// What became of the packets of a cell that did not arrive; empty where all arrived.
pub fn fate(cell: &CellResult) -> &'static str {
    let count = |counter: &str| cell.counters.get(counter).copied().unwrap_or(0);
    // The first is lost and its refusal comes before the next is sent.
    match (count("lost"), count("told_too_long")) {
        (0, _) => "",
        _ if cell.response == CONNECTED => "hung",
        (_, 0) => "vanished",
        _ => "refused",
    }
}

/// A number of packets, with a decimal where it is not a whole one.
pub fn whole(count: f64) -> String {
    let digits = usize::from((count - count.round()).abs() >= 0.05);
    format!("{count:.digits$}")
}

fn by_rate<'a>(cells: &[&'a CellResult]) -> Vec<Vec<&'a CellResult>> {
    let mut rates: BTreeMap<(usize, String), Vec<&CellResult>> = BTreeMap::new();
    for cell in cells {
        let key = (name::placement_order(cell), word(cell, "rate").to_owned());
        rates.entry(key).or_default().push(cell);
    }
    rates.into_values().collect()
}

fn word<'a>(cell: &'a CellResult, factor: &str) -> &'a str {
    cell.factors.get(factor).and_then(Value::as_str).unwrap_or("")
}

fn number(cell: &CellResult, factor: &str) -> f64 {
    cell.factors.get(factor).and_then(Value::as_f64).unwrap_or(0.0)
}

fn size(cell: &CellResult) -> Option<u64> {
    cell.factors.get("packet").and_then(Value::as_u64)
}

fn words(cell: &CellResult, factors: &[&str]) -> String {
    name::cell(&cell.factors, &factors.iter().map(|factor| (*factor).to_owned()).collect())
}

/// A bar for each kind of packet on a path, as long as the share that arrived.
fn delivered(cells: &[&CellResult]) -> Figure {
    let mut cells = cells.to_vec();
    let over_tcp = |cell: &CellResult| cell.response == CONNECTED;
    cells.sort_by_cached_key(|cell| {
        (over_tcp(cell), word(cell, "fragments").to_owned(), size(cell))
    });
    let has_both = cells.iter().any(|cell| over_tcp(cell));
    let title = words(cells[0], &["path", "rate", "placement"]);
    let title = format!("Delivered, {title}");
    let mut table = Table::with_heads(&["packets", "#arrived [95 %]", "the others?"]);
    let (mut names, mut segments) = (Vec::new(), Vec::new());
    for (cell, row) in cells.iter().zip(0u32..) {
        let share = cell.summary.median.unwrap_or(0.0);
        let transport = match (has_both, over_tcp(cell)) {
            (false, _) => "",
            (true, false) => "UDP, ",
            (true, true) => "TCP, ",
        };
        let label = format!("{transport}{}", words(cell, &["fragments", "packet"]));
        let told = value::estimate(Unit::Share, share, None);
        let fate = if share < 1.0 { fate(cell) } else { "" };
        let comma = if fate.is_empty() { "" } else { ", " };
        names.push(format!("{label}: {told}{comma}{fate}"));
        segments.push([f64::from(row), 0.0, share]);
        let told = value::with_interval(Unit::Share, share, cell.summary.ci95);
        table.push([label, told, fate.to_owned()]);
    }
    table.drop_empty_columns();
    let note = "Median share of the packets that is answered in kind. The others were refused by a router, \
                which said so by ICMP, or vanished without a word; a connection of TCP that cannot get \
                over hung.";
    let axis = Axis::with_scale("share delivered", Unit::Share.name(), Scale::Linear);
    rows(title, note, axis, names, segments, table)
}

/// A bar for each path and size of packets that may be cut, as long as there are pieces.
fn pieces(cells: &[&CellResult]) -> Figure {
    let mut cells = cells.to_vec();
    let place = |cell: &CellResult| PATHS.iter().position(|path| *path == word(cell, "path"));
    cells.sort_by_key(|cell| (place(cell), size(cell)));
    let title = format!("Pieces, {}", words(cells[0], &["rate", "placement"]));
    let mut table = Table::with_heads(&["packets that may be cut", "#arrive in [95 %]"]);
    let (mut names, mut segments) = (Vec::new(), Vec::new());
    for (cell, row) in cells.iter().zip(0u32..) {
        let count = cell.summary.median.unwrap_or(0.0);
        let label = words(cell, &["path", "packet"]);
        names.push(format!("{label}: {}", whole(count)));
        segments.push([f64::from(row), 0.0, count]);
        table.push([label, value::with_interval(Unit::Count, count, cell.summary.ci95)]);
    }
    let note = "Median number of packets that a datagram arrives in, where it does.";
    let axis = Axis::with_scale("packets", Unit::Count.name(), Scale::Linear);
    rows(title, note, axis, names, segments, table)
}

/// A bar for each name, from 0 to at least 1.
fn rows(
    title: String,
    note: &str,
    axis: Axis,
    names: Vec<String>,
    segments: Vec<[f64; 3]>,
    table: Table,
) -> Figure {
    Figure {
        id: slug(&["mtu.path", &title]),
        alt: format!("{title}: {}.", names.join("; ")),
        title,
        note: note.to_owned(),
        x: Axis { include: Some([0.0, 1.0]), ..axis },
        y: Axis::names("", names),
        series: vec![Series {
            name: String::new(),
            slot: 0,
            marks: Marks::Stack { segments, hatched: false },
        }],
        table,
    }
}

/// The round trip of the small packet against how many stood before it, a line a size of those.
fn urgent(cells: &[&CellResult]) -> Figure {
    let title = format!("Urgent packet, {}", words(cells[0], &["rate", "placement"]));
    let sizes: BTreeSet<u64> = cells.iter().filter_map(|cell| size(cell)).collect();
    let mut table = Table::with_heads(&["ahead of it", "#round trip [95 %]"]);
    let mut series = Vec::new();
    for (size, slot) in sizes.iter().zip(0u8..) {
        let mut cells: Vec<&&CellResult> =
            cells.iter().filter(|cell| self::size(cell) == Some(*size)).collect();
        cells.sort_by(|a, b| number(a, "ahead").total_cmp(&number(b, "ahead")));
        let at = cells.iter().filter_map(|cell| {
            let y = cell.summary.median?;
            let x = number(cell, "ahead");
            Some(Point { x, y, x_interval: None, y_interval: cell.summary.ci95 })
        });
        let marks = Marks::Points { at: at.collect(), joined: true };
        series.push(Series { name: words(cells[0], &["packet"]), slot, marks });
        for cell in cells {
            let median = cell.summary.median.unwrap_or(0.0);
            let told = value::with_interval(Unit::Nanoseconds, median, cell.summary.ci95);
            table.push([words(cell, &["packet", "ahead"]), told]);
        }
    }
    let highest = cells.iter().filter_map(|cell| cell.summary.median).fold(0.0, f64::max);
    let told: Vec<String> = table.rows.iter().map(|row| row.join(" ")).collect();
    Figure {
        id: slug(&["mtu.path", &title]),
        alt: format!("{title}: {}.", told.join("; ")),
        title,
        note: "Medians of the whole round trip with 95 % intervals over launches, on an axis from zero."
            .to_owned(),
        x: Axis {
            include: Some([0.0, 1.0]),
            ..Axis::with_scale("packets ahead", "count", Scale::Linear)
        },
        y: Axis {
            include: Some([0.0, highest]),
            ..Axis::with_scale("round trip", Unit::Nanoseconds.name(), Scale::Linear)
        },
        series,
        table,
    }
}
