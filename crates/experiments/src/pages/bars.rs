//! Rows of stacks: bars of the time in the stack and of a replay, and medians of round trips as dots.

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::CellResult;
use plumb_base::units::{Unit, significant};
use plumb_report::figure::{Axis, AxisScale, Figure, FigurePoint, SERIES_MAX, Series, slug};
use plumb_report::table::TextTable;
use plumb_report::{name, value};

use super::median;

/// Time in the stack: a bar of its receive and its send path for each stack, one picture a
/// placement, wake mode and frame size. `cells` are all of one experiment.
pub fn in_the_stack(cells: &[&CellResult]) -> Vec<Figure> {
    let varying = name::varying(cells.iter().copied());
    let panels = panels(cells, &["placement", "wake", "frame"], |cell| cell.response == "stack");
    let paths = [("receive", 0, false), ("send", 1, false), ("switch", 6, true)];
    panels
        .into_iter()
        .map(|(title, wholes)| {
            let label = |cell: &CellResult| row(cell, &varying);
            let part = |whole: &CellResult, response: &str| {
                let same = |cell: &&&CellResult| {
                    cell.response == response && cell.factors == whole.factors
                };
                cells.iter().find(same).and_then(|cell| cell.summary.median).unwrap_or(0.0)
            };
            let mut stacks = paths.map(|_| Vec::new());
            let mut table = TextTable::with_heads(&[
                "stack",
                "#in the stack [95 %]",
                "#device to socket",
                "#socket to device",
                "#switching?",
                "#headers, checksum, lookup?",
                "#copy?",
                "#unexplained?",
            ]);
            let mut names = Vec::new();
            for (index, whole) in wholes.iter().enumerate() {
                let mut at = 0.0;
                let times = paths.map(|(response, ..)| part(whole, response));
                for (segments, time) in stacks.iter_mut().zip(times) {
                    if time > 0.0 {
                        segments.push([index as f64, at, at + time]);
                        at += time;
                    }
                }
                let tasks = ["receive-path", "copy", "unexplained"].map(|task| part(whole, task));
                let told =
                    |time| if time > 0.0 { value::plain(NS, time) } else { "–".to_owned() };
                names.push(format!("{}: {}", label(whole), value::plain(NS, median(whole))));
                let row = [label(whole), value::median(whole)];
                table.push(row.into_iter().chain(times.into_iter().chain(tasks).map(told)));
            }
            table.drop_empty_columns();
            let series = paths.into_iter().zip(stacks).map(|((response, slot, hatched), at)| {
                let name = if at.is_empty() { "" } else { name::response(response) };
                Series::stack(name.to_owned(), slot, at, hatched)
            });
            let note = "Medians of each way; the label is the median of both together, which need \
                        not be their sum. Hatched: waking the mirror's process and switching to it, \
                        which is not part of the stack.";
            bar_figure(cells[0], title, note, "time", names, series.collect(), table)
        })
        .collect()
}

/// Time a packet of a replay: a bar for each turn, one picture a frame size and state of the cache.
pub fn replay(cells: &[&CellResult]) -> Vec<Figure> {
    let cells: Vec<&CellResult> =
        cells.iter().filter(|cell| cell.response == "packet").copied().collect();
    let mut panels = panels(&cells, &["frame", "cache"], |cell| cell.factors.contains_key("cache"));
    for (_, panel) in &mut panels {
        // A stack without a cold case has its packets in the caches.
        let is_warm = panel.iter().any(|cell| cell.level("cache") == "warm");
        let size = panel.first().and_then(|cell| name::bytes(cell));
        let others = cells.iter().filter(|cell| {
            is_warm && !cell.factors.contains_key("cache") && name::bytes(cell) == size
        });
        panel.extend(others.filter(|cell| cell.summary.median.is_some()));
    }
    panels
        .into_iter()
        .map(|(title, cells)| {
            let mut table =
                TextTable::with_heads(&["stack", "#time a packet [95 %]", "#packets/s"]);
            let mut names = Vec::new();
            let mut bars: BTreeMap<u8, Vec<[f64; 3]>> = BTreeMap::new();
            for (index, cell) in cells.iter().enumerate() {
                let median = median(cell);
                let label = name::levels(&cell.factors, &["stack", "turn"]);
                let slot = u8::from(cell.level("stack") != "plumb");
                bars.entry(slot).or_default().push([index as f64, 0.0, median]);
                names.push(format!("{label}: {}", value::plain(NS, median)));
                table.push([label, value::median(cell), rate(median)]);
            }
            let series = bars
                .into_iter()
                .map(|(slot, segments)| Series::stack(String::new(), slot, segments, false));
            let note = "Medians of the time a packet takes, from batches; packets a second are on \
                        one CPU and stand with the data.";
            bar_figure(cells[0], title, note, "time a packet", names, series.collect(), table)
        })
        .collect()
}

/// Packets a second from nanoseconds a packet: `12.3 M`.
pub fn rate(ns: f64) -> String {
    if ns <= 0.0 {
        return "–".to_owned();
    }
    format!("{} M", significant(1e3 / ns, 3))
}

const NS: Unit = Unit::Nanoseconds;

/// The chosen cells with a median, by their levels of `factors`, in the order of sizes and places.
fn panels<'a>(
    cells: &[&'a CellResult],
    factors: &[&str],
    chosen: impl Fn(&CellResult) -> bool,
) -> Vec<(String, Vec<&'a CellResult>)> {
    let mut panels: BTreeMap<(usize, u64, bool, String), Vec<&CellResult>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| chosen(cell) && cell.summary.median.is_some()) {
        let key = (name::placement_order(cell), name::bytes(cell).unwrap_or(0));
        let title = name::capitalize(&name::levels(&cell.factors, factors));
        let key = (key.0, key.1, cell.level("cache") == "cold", title);
        panels.entry(key).or_default().push(cell);
    }
    panels.into_iter().map(|((.., title), cells)| (title, cells)).collect()
}

/// Stack and device, and whatever else varies but the panel's own factors.
fn row(cell: &CellResult, varying: &BTreeSet<String>) -> String {
    let panel = |name: &String| matches!(name.as_str(), "placement" | "wake" | "frame");
    let mut wanted: BTreeSet<String> =
        varying.iter().filter(|name| !panel(name)).cloned().collect();
    wanted.extend(["stack".to_owned(), "device".to_owned()]);
    name::cell(&cell.factors, &wanted)
}

fn bar_figure(
    cell: &CellResult,
    title: String,
    note: &str,
    quantity: &str,
    names: Vec<String>,
    series: Vec<Series>,
    table: TextTable,
) -> Figure {
    let row = |row: &Vec<String>| Some(format!("{} {}", row.first()?, row.get(1)?));
    let rows: Vec<String> = table.rows.iter().filter_map(row).collect();
    Figure {
        id: slug(&[&cell.experiment, &title]),
        alt: format!("{title}: {}.", rows.join("; ")),
        title,
        note: note.to_owned(),
        x: Axis::with_scale(quantity, NS.name(), AxisScale::Linear),
        y: Axis::names("", names),
        series,
        table,
    }
}

/// Medians of round trips, one row a stack and device and one picture a placement, wake mode and frame size;
/// pictures of one placement and wake mode share their axis; `cells` share experiment, response and unit.
pub fn round_trips(cells: &[&CellResult]) -> Vec<Figure> {
    let sizes: BTreeSet<u64> = cells.iter().filter_map(|cell| name::bytes(cell)).collect();
    let ends: BTreeSet<u64> =
        [sizes.first(), sizes.last()].into_iter().flatten().copied().collect();
    let mut panels: BTreeMap<(usize, String), BTreeMap<u64, Vec<&CellResult>>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.summary.median.is_some()) {
        let Some(size) = name::bytes(cell).filter(|size| ends.contains(size)) else { continue };
        let place = name::levels(&cell.factors, &["placement", "wake"]);
        let panel = panels.entry((name::placement_order(cell), place)).or_default();
        panel.entry(size).or_default().push(cell);
    }
    let others = others(cells);
    let mut figures = Vec::new();
    for ((_, place), by_size) in &panels {
        let highest = by_size.values().flatten().map(|cell| upper(cell)).fold(0.0, f64::max);
        for cells in by_size.values() {
            figures.push(dots(place, cells, &others, highest));
        }
    }
    figures
}

/// The labels of marks in one row: every factor that varies and is no row and no panel.
fn others(cells: &[&CellResult]) -> Vec<String> {
    let varying = name::varying(cells.iter().copied());
    let known = |name: &String| {
        matches!(name.as_str(), "stack" | "device" | "placement" | "wake" | "frame" | "size")
    };
    varying.into_iter().filter(|name| !known(name)).collect()
}

fn upper(cell: &CellResult) -> f64 {
    let summary = &cell.summary;
    summary.ci95.map(|ci| ci[1]).or(summary.median).unwrap_or(0.0)
}

fn dots(place: &str, cells: &[&CellResult], others: &[String], highest: f64) -> Figure {
    let first = cells[0];
    let unit = value::unit_of(first);
    let others: Vec<&str> = others.iter().map(String::as_str).collect();
    let row = |cell: &CellResult| name::levels(&cell.factors, &["stack", "device"]);
    let other = |cell: &CellResult| {
        if others.is_empty() { String::new() } else { name::levels(&cell.factors, &others) }
    };
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
            Series::points(wanted.clone(), slot, false, at)
        })
        .collect();
    let mut table = TextTable::with_heads(&["stack", "marks?", "#median [95 %]", "#launches"]);
    for cell in &ordered {
        table.push([
            row(cell),
            other(cell),
            value::median(cell),
            cell.summary.launches.to_string(),
        ]);
    }
    table.drop_empty_columns();
    let size = name::bytes(first).map_or_else(String::new, |bytes| format!("{bytes} B, "));
    let title = name::capitalize(&format!("{size}{place}"));
    let quantity = name::response(&first.response);
    Figure {
        id: slug(&[&first.experiment, &first.response, &title]),
        alt: format!("{} at {title}: {}.", name::capitalize(quantity), table.in_words()),
        title,
        note: "Medians with 95 % intervals over launches, on an axis from zero.".to_owned(),
        x: Axis::from_zero(quantity, unit.name(), highest),
        y: Axis::names("", rows),
        series,
        table,
    }
}

/// Linux first: what the others are compared with.
fn order(cell: &CellResult) -> (usize, String) {
    const STACKS: [&str; 3] = ["linux", "plumb", "smoltcp"];
    let stack = STACKS.iter().position(|name| *name == cell.level("stack"));
    (stack.unwrap_or(STACKS.len()), cell.level("device").to_owned())
}

/// Distance of marks of one row, in rows.
const SHIFT: f64 = 0.17;
