//! Horizontal bars: time in the stack, its two ways laid end to end, and time a packet of a replay.
//!
//! Left out: round trips in parts (`super::breakdown`).

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::CellResult;
use plumb_base::units::Unit;

use plumb_report::figure::{Axis, AxisScale, Figure, Series, SeriesMarks, slug};
use plumb_report::table::TextTable;
use plumb_report::{name, value};

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
            ]);
            let mut names = Vec::new();
            for (index, whole) in wholes.iter().enumerate() {
                let median = whole.summary.median.unwrap_or(0.0);
                let mut at = 0.0;
                let times = paths.map(|(response, ..)| part(whole, response));
                for (segments, time) in stacks.iter_mut().zip(times) {
                    if time > 0.0 {
                        segments.push([index as f64, at, at + time]);
                        at += time;
                    }
                }
                let told = value::with_interval(NS, median, whole.summary.ci95);
                let [receive, send, switch] =
                    times.map(|time| if time > 0.0 { value::plain(NS, time) } else { "–".into() });
                names.push(format!("{}: {}", label(whole), value::plain(NS, median)));
                table.push([label(whole), told, receive, send, switch]);
            }
            table.drop_empty_columns();
            let series =
                paths.into_iter().zip(stacks).map(|((response, slot, hatched), at)| Series {
                    name: if at.is_empty() {
                        String::new()
                    } else {
                        name::response(response).into()
                    },
                    slot,
                    marks: SeriesMarks::Stack { segments: at, hatched },
                });
            Figure {
                id: slug(&[&cells[0].experiment, &title]),
                alt: alt(&title, &table),
                note: "Medians of each way; the label is the median of both together, which need \
                       not be their sum. Hatched: waking the mirror's process and switching to it, \
                       which is no part of the stack."
                    .to_owned(),
                title,
                x: Axis::with_scale("time", NS.name(), AxisScale::Linear),
                y: Axis::names("", names),
                series: series.collect(),
                table,
            }
        })
        .collect()
}

/// Time a packet of a replay: a bar for each turn, one picture a frame size and state of the cache.
pub fn replay(cells: &[&CellResult]) -> Vec<Figure> {
    let mut panels = panels(cells, &["frame", "cache"], |cell| cell.factors.contains_key("cache"));
    for (_, panel) in &mut panels {
        // A stack without a cold case has its packets in the caches.
        let is_warm = panel.iter().any(|cell| is(cell, "cache", "warm"));
        let size = panel.first().and_then(|cell| name::bytes(cell));
        let others = cells.iter().filter(|cell| {
            is_warm && !cell.factors.contains_key("cache") && name::bytes(cell) == size
        });
        panel.extend(others.filter(|cell| cell.summary.median.is_some()));
    }
    panels
        .into_iter()
        .map(|(title, cells)| {
            let factors = BTreeSet::from(["stack".to_owned(), "turn".to_owned()]);
            let mut table =
                TextTable::with_heads(&["stack", "#time a packet [95 %]", "#packets/s"]);
            let mut names = Vec::new();
            let mut bars: BTreeMap<u8, Vec<[f64; 3]>> = BTreeMap::new();
            for (index, cell) in cells.iter().enumerate() {
                let median = cell.summary.median.unwrap_or(0.0);
                let label = name::cell(&cell.factors, &factors);
                let slot = u8::from(!is(cell, "stack", "plumb"));
                bars.entry(slot).or_default().push([index as f64, 0.0, median]);
                let rate = rate(median);
                names.push(format!("{label}: {}", value::plain(NS, median)));
                let told = value::with_interval(NS, median, cell.summary.ci95);
                table.push([label, told, rate]);
            }
            let series = bars.into_iter().map(|(slot, segments)| Series {
                name: String::new(),
                slot,
                marks: SeriesMarks::Stack { segments, hatched: false },
            });
            Figure {
                id: slug(&[&cells[0].experiment, &title]),
                alt: alt(&title, &table),
                note: "Medians of the time a packet takes, from batches; packets a second are on \
                       one CPU and stand with the data."
                    .to_owned(),
                title,
                x: Axis::with_scale("time a packet", NS.name(), AxisScale::Linear),
                y: Axis::names("", names),
                series: series.collect(),
                table,
            }
        })
        .collect()
}

/// Packets a second from nanoseconds a packet: `12.3 M`.
pub fn rate(ns: f64) -> String {
    if ns <= 0.0 {
        return "–".to_owned();
    }
    let millions = 1e3 / ns;
    format!("{} M", plumb_base::units::significant(millions, 3))
}

const NS: Unit = Unit::Nanoseconds;

/// The chosen cells with a median, by their levels of `factors`, in the order of sizes and places.
fn panels<'a>(
    cells: &[&'a CellResult],
    factors: &[&str],
    chosen: impl Fn(&CellResult) -> bool,
) -> Vec<(String, Vec<&'a CellResult>)> {
    let wanted: BTreeSet<String> = factors.iter().map(|name| (*name).to_owned()).collect();
    let mut panels: BTreeMap<(usize, u64, bool, String), Vec<&CellResult>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| chosen(cell) && cell.summary.median.is_some()) {
        let key = (name::placement_order(cell), name::bytes(cell).unwrap_or(0));
        let title = name::capitalize(&name::cell(&cell.factors, &wanted));
        let key = (key.0, key.1, is(cell, "cache", "cold"), title);
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

fn is(cell: &CellResult, factor: &str, level: &str) -> bool {
    cell.factors.get(factor).is_some_and(|found| found == level)
}

fn alt(title: &str, table: &TextTable) -> String {
    let rows: Vec<String> = table
        .rows
        .iter()
        .filter_map(|row| Some(format!("{} {}", row.first()?, row.get(1)?)))
        .collect();
    format!("{title}: {}.", rows.join("; "))
}
