//! A response against message size: one line a mechanism, on logarithmic axes, with intervals.
//!
//! Cells that differ in placement or wake mode are different pictures; more series than there are
//! colours are split by family. Left out: cells without a size.

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::CellResult;
use plumb_base::units::{format_bytes, format_size};

use super::{Axis, AxisScale, Figure, FigurePoint, SERIES_MAX, Series, slug};
use crate::table::TextTable;
use crate::{name, value};

/// The figures of one experiment's response: by family, then placement and wake mode.
///
/// Pictures of one family stand side by side on one vertical scale, and a series has the same
/// colour and mark in each. `cells` share experiment, response and unit.
pub fn figures(cells: &[&CellResult]) -> Vec<Figure> {
    let varying = name::varying(cells.iter().copied());
    let mut facets: BTreeMap<(usize, Vec<String>), Vec<&CellResult>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| name::bytes(cell).is_some()) {
        let order = name::placement_order(cell);
        facets.entry((order, facet(cell, &varying))).or_default().push(cell);
    }
    let mut figures = Vec::new();
    for group in groups(cells, &varying) {
        for ((_, facet), cells) in &facets {
            let lines = lines(cells, &group, &varying);
            if !lines.is_empty() {
                figures.push(figure(facet, &group, &lines));
            }
        }
    }
    figures.retain(|figure| !figure.is_empty());
    let range = range(cells);
    for figure in &mut figures {
        figure.y.include = range;
    }
    figures
}

/// Medians only, series down and sizes across: what fits in a terminal.
pub fn overview(cells: &[&CellResult]) -> TextTable {
    let varying = name::varying(cells.iter().copied());
    let sizes: BTreeSet<u64> = cells.iter().filter_map(|cell| name::bytes(cell)).collect();
    let mut table =
        TextTable::across("median at size (B)", sizes.iter().map(|size| format_bytes(*size)));
    table.set_numbers_optional();
    let mut rows: BTreeMap<(usize, Vec<String>, String), BTreeMap<u64, String>> = BTreeMap::new();
    for cell in cells {
        let Some(size) = name::bytes(cell) else { continue };
        let key = (name::placement_order(cell), facet(cell, &varying), label(cell, &varying));
        rows.entry(key).or_default().insert(size, value::central(cell));
    }
    for ((_, facet, label), row) in rows {
        let head = [vec![label], facet].concat().join(", ");
        let cells = sizes.iter().map(|size| row.get(size).cloned().unwrap_or_default());
        table.push([head].into_iter().chain(cells));
    }
    table
}

/// Whether the cells are worth lines: at least three sizes.
pub fn has_enough_sizes(cells: &[&CellResult]) -> bool {
    let sizes: BTreeSet<u64> = cells.iter().filter_map(|cell| name::bytes(cell)).collect();
    sizes.len() >= 3
}

/// The medians of all cells, from lowest to highest; none where a logarithm has no place for them.
fn range(cells: &[&CellResult]) -> Option<[f64; 2]> {
    let medians = || cells.iter().filter_map(|cell| cell.summary.median).filter(|m| *m > 0.0);
    let low = medians().reduce(f64::min)?;
    Some([low, medians().reduce(f64::max)?])
}

/// Placement and wake mode in words, where they vary; where links do, the mechanism before them.
fn facet(cell: &CellResult, varying: &BTreeSet<String>) -> Vec<String> {
    facets(varying)
        .iter()
        .filter(|factor| varying.contains(**factor))
        .filter_map(|factor| Some(name::level(factor, cell.factors.get(*factor)?)))
        .collect()
}

/// The label of a series among the others of its picture.
fn label(cell: &CellResult, varying: &BTreeSet<String>) -> String {
    let wanted: BTreeSet<String> = varying
        .iter()
        .filter(|factor| {
            !matches!(factor.as_str(), "size" | "frame")
                && !facets(varying).contains(&factor.as_str())
        })
        .cloned()
        .collect();
    if wanted.is_empty() {
        return name::levels(&cell.factors, &["mechanism"]);
    }
    name::cell(&cell.factors, &wanted)
}

/// Series that share their pictures, in the order of their colours.
struct SeriesGroup {
    /// Family and part of it; empty when all series fit in one picture.
    title: String,
    labels: Vec<String>,
}

/// One group where all series fit, else one or more for each family of mechanisms.
fn groups(cells: &[&CellResult], varying: &BTreeSet<String>) -> Vec<SeriesGroup> {
    let mut families: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for cell in cells.iter().filter(|cell| name::bytes(cell).is_some()) {
        let label = label(cell, varying);
        let family = name::family(cell.level("mechanism"));
        families.entry(family).or_default().insert(label.clone());
        all.insert(label);
    }
    if all.len() <= SERIES_MAX {
        return vec![SeriesGroup { title: String::new(), labels: all.into_iter().collect() }];
    }
    let mut groups = Vec::new();
    for (family, labels) in families {
        let labels: Vec<String> = labels.into_iter().collect();
        let parts = labels.len().div_ceil(SERIES_MAX);
        for (part, labels) in labels.chunks(SERIES_MAX).enumerate() {
            let title = match parts {
                1 => family.to_owned(),
                _ => format!("{family} ({} of {parts})", part + 1),
            };
            groups.push(SeriesGroup { title, labels: labels.to_vec() });
        }
    }
    groups
}

/// One series of a picture: its colour's slot, its name, its cells by size.
struct SizeSeries<'a> {
    slot: u8,
    label: &'a str,
    cells: Vec<&'a CellResult>,
}

fn lines<'a>(
    cells: &[&'a CellResult],
    group: &'a SeriesGroup,
    varying: &BTreeSet<String>,
) -> Vec<SizeSeries<'a>> {
    group
        .labels
        .iter()
        .zip(0u8..)
        .map(|(wanted, slot)| {
            let mut cells: Vec<&CellResult> =
                cells.iter().copied().filter(|cell| label(cell, varying) == *wanted).collect();
            cells.sort_by_key(|cell| name::bytes(cell));
            SizeSeries { slot, label: wanted, cells }
        })
        .filter(|line| !line.cells.is_empty())
        .collect()
}

fn figure(facet: &[String], group: &SeriesGroup, lines: &[SizeSeries<'_>]) -> Figure {
    let first = lines.iter().flat_map(|line| &line.cells).next();
    let is_mechanism = |cell: Option<&&CellResult>, word: &str| {
        cell.is_some_and(|cell| cell.level("mechanism") == word)
    };
    let (experiment, response, unit) = first.map_or(("", "", "ns"), |cell| {
        (&cell.experiment, &cell.response, value::unit_of(cell).name())
    });
    let series = lines.iter().map(|line| {
        let name = if group.labels.len() == 1 { "" } else { line.label };
        let at = line
            .cells
            .iter()
            .filter_map(|cell| FigurePoint::of_median(name::bytes(cell)? as f64, cell));
        Series::points(name.to_owned(), line.slot, true, at)
    });
    let title = match (group.title.as_str(), facet) {
        ("", []) => name::capitalize(name::response(response)),
        // A mechanism's name is spelt as it is.
        ("", facet) if is_mechanism(first, &facet[0]) => facet.join(", "),
        ("", facet) => name::capitalize(&facet.join(", ")),
        (family, []) => family.to_owned(),
        (family, facet) => format!("{family}: {}", facet.join(", ")),
    };
    Figure {
        id: slug(&[experiment, response, &title]),
        title,
        note: "Medians with 95 % intervals over launches; both axes are logarithmic.".to_owned(),
        alt: extent(response, unit, lines),
        x: Axis::with_scale("message size (B)", "B", AxisScale::Log2),
        y: Axis::measured(name::quantity(response), unit),
        series: series.collect(),
        table: table(lines),
    }
}

/// What the picture spans, for those who cannot see it.
fn extent(response: &str, unit: &str, lines: &[SizeSeries<'_>]) -> String {
    let unit = value::unit(unit);
    let parts: Vec<String> = lines
        .iter()
        .filter_map(|line| {
            let known: Vec<(u64, f64)> = line
                .cells
                .iter()
                .filter_map(|cell| Some((name::bytes(cell)?, cell.summary.median?)))
                .collect();
            let (first, last) = (known.first()?, known.last()?);
            let (low, high) = (value::plain(unit, first.1), value::plain(unit, last.1));
            Some(format!(
                "{} {low} at {} to {high} at {}",
                line.label,
                format_size(first.0),
                format_size(last.0)
            ))
        })
        .collect();
    let what = name::capitalize(name::response(response));
    format!("{what} against message size: {}.", parts.join("; "))
}

/// Sizes down, series across.
fn table(lines: &[SizeSeries<'_>]) -> TextTable {
    let mut table = TextTable::across("size (B)", lines.iter().map(|line| line.label.to_owned()));
    let sizes: BTreeSet<u64> =
        lines.iter().flat_map(|line| &line.cells).filter_map(|cell| name::bytes(cell)).collect();
    for wanted in sizes {
        let cells = lines.iter().map(|line| {
            let cell = line.cells.iter().find(|cell| name::bytes(cell) == Some(wanted));
            cell.map_or_else(String::new, |cell| {
                if cell.summary.median.is_some() {
                    value::median(cell)
                } else {
                    value::central(cell)
                }
            })
        });
        table.push([format_bytes(wanted)].into_iter().chain(cells));
    }
    table
}

/// Factors that make a picture of their own: what links differ in is seen best on one axis.
fn facets(varying: &BTreeSet<String>) -> &'static [&'static str] {
    if varying.contains("link") {
        &["mechanism", "placement", "wake"]
    } else {
        &["placement", "wake"]
    }
}
