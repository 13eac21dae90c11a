//! A response against message size: one line a mechanism, on logarithmic axes, with intervals.
//!
//! Cells that differ in placement or wake mode are different pictures; more series than there are
//! colours are split by family. Left out: cells without a size.

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::CellResult;

use super::{Axis, Figure, Marks, Point, SERIES_MAX, Scale, Series, slug};
use crate::table::Table;
use crate::{name, value};

/// The figures of one experiment's response, in the order placement, wake mode, family.
///
/// `cells` share experiment, response and unit.
pub fn figures(cells: &[&CellResult]) -> Vec<Figure> {
    let varying = name::varying(cells.iter().copied());
    let mut facets: BTreeMap<(usize, Vec<String>), Vec<&CellResult>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| size(cell).is_some()) {
        let order = name::placement_order(cell);
        facets.entry((order, facet(cell, &varying))).or_default().push(cell);
    }
    let mut figures = Vec::new();
    for ((_, facet), cells) in facets {
        for (family, cells) in families(cells, &varying) {
            figures.push((family, figure(&facet, family, &cells, &varying)));
        }
    }
    // Pictures of one family stand side by side, one a placement, on one vertical scale.
    figures.sort_by_key(|(family, _)| *family);
    let mut figures: Vec<Figure> = figures.into_iter().map(|(_, figure)| figure).collect();
    figures.retain(|figure| !figure.is_empty());
    let range = range(cells);
    for figure in &mut figures {
        figure.y.include = range;
    }
    figures
}

/// Whether the cells are worth lines: at least three sizes.
pub fn suits(cells: &[&CellResult]) -> bool {
    let sizes: BTreeSet<u64> = cells.iter().filter_map(|cell| size(cell)).collect();
    sizes.len() >= 3
}

/// The medians of all cells, from lowest to highest; none where a logarithm has no place for them.
fn range(cells: &[&CellResult]) -> Option<[f64; 2]> {
    let medians = || cells.iter().filter_map(|cell| cell.summary.median).filter(|m| *m > 0.0);
    let low = medians().reduce(f64::min)?;
    Some([low, medians().reduce(f64::max)?])
}

fn size(cell: &CellResult) -> Option<u64> {
    cell.factors.get("size").and_then(serde_json::Value::as_u64).filter(|size| *size > 0)
}

/// Placement and wake mode in words, where they vary.
fn facet(cell: &CellResult, varying: &BTreeSet<String>) -> Vec<String> {
    FACETS
        .iter()
        .filter(|factor| varying.contains(**factor))
        .filter_map(|factor| Some(name::level(factor, cell.factors.get(*factor)?)))
        .collect()
}

type Families<'a> = Vec<(Option<&'static str>, BTreeMap<String, Vec<&'a CellResult>>)>;

/// Series by label, in one group where they fit, else by family of mechanisms, each cut to fit.
fn families<'a>(cells: Vec<&'a CellResult>, varying: &BTreeSet<String>) -> Families<'a> {
    let mut series: BTreeMap<String, Vec<&CellResult>> = BTreeMap::new();
    for cell in cells {
        series.entry(label(cell, varying)).or_default().push(cell);
    }
    if series.len() <= SERIES_MAX {
        return vec![(None, series)];
    }
    let mut families: BTreeMap<&'static str, Vec<(String, Vec<&CellResult>)>> = BTreeMap::new();
    for (label, cells) in series {
        let mechanism = cells[0].factors.get("mechanism").and_then(serde_json::Value::as_str);
        families.entry(name::family(mechanism.unwrap_or(""))).or_default().push((label, cells));
    }
    families
        .into_iter()
        .flat_map(|(family, mut series)| {
            let mut groups = Vec::new();
            while !series.is_empty() {
                let rest = series.split_off(series.len().min(SERIES_MAX));
                groups.push((Some(family), series.into_iter().collect()));
                series = rest;
            }
            groups
        })
        .collect()
}

fn label(cell: &CellResult, varying: &BTreeSet<String>) -> String {
    let wanted: BTreeSet<String> = varying
        .iter()
        .filter(|factor| *factor != "size" && !FACETS.contains(&factor.as_str()))
        .cloned()
        .collect();
    if wanted.is_empty() {
        let mechanism = BTreeSet::from(["mechanism".to_owned()]);
        return name::cell(&cell.factors, &mechanism);
    }
    name::cell(&cell.factors, &wanted)
}

fn figure(
    facet: &[String],
    family: Option<&str>,
    groups: &BTreeMap<String, Vec<&CellResult>>,
    varying: &BTreeSet<String>,
) -> Figure {
    let first = groups.values().flatten().next();
    let (experiment, response, unit) =
        first.map_or(("", "", "ns"), |cell| (&cell.experiment, &cell.response, &cell.unit));
    let mut series = Vec::new();
    for (index, (label, cells)) in groups.iter().enumerate() {
        let mut at: Vec<Point> = cells.iter().filter_map(|cell| point(cell)).collect();
        at.sort_by(|a, b| a.x.total_cmp(&b.x));
        let slot = u8::try_from(index % SERIES_MAX).unwrap_or(0);
        let name = if groups.len() == 1 && varying.len() <= 1 { "" } else { label.as_str() };
        let marks = Marks::Points { at, joined: true };
        series.push(Series { name: name.to_owned(), slot, marks });
    }
    let words: Vec<&str> = facet.iter().map(String::as_str).chain(family).collect();
    let title = match (family, facet) {
        (None, []) => name::capital(name::response(response)),
        (None, facet) => name::capital(&facet.join(", ")),
        (Some(family), []) => family.to_owned(),
        (Some(family), facet) => format!("{family}: {}", facet.join(", ")),
    };
    Figure {
        id: slug(&[&[experiment, response], words.as_slice()].concat()),
        title,
        note: "Medians with 95 % intervals over launches; both axes are logarithmic.".to_owned(),
        alt: extent(response, unit, groups),
        x: Axis::with_scale("message size (B)", "B", Scale::Log2),
        y: Axis::measured(name::quantity(response), unit),
        series,
        table: table(groups),
    }
}

fn point(cell: &CellResult) -> Option<Point> {
    let y = cell.summary.median?;
    Some(Point { x: size(cell)? as f64, y, x_interval: None, y_interval: cell.summary.ci95 })
}

/// What the picture spans, for those who cannot see it.
fn extent(response: &str, unit: &str, groups: &BTreeMap<String, Vec<&CellResult>>) -> String {
    let unit = value::unit(unit);
    let parts: Vec<String> = groups
        .iter()
        .filter_map(|(label, cells)| {
            let mut known: Vec<(u64, f64)> =
                cells.iter().filter_map(|cell| Some((size(cell)?, cell.summary.median?))).collect();
            known.sort_by_key(|(size, _)| *size);
            let (first, last) = (known.first()?, known.last()?);
            let (low, high) = (value::plain(unit, first.1), value::plain(unit, last.1));
            Some(format!("{label} {low} at {} B to {high} at {} B", first.0, last.0))
        })
        .collect();
    format!(
        "{} against message size: {}.",
        name::capital(name::response(response)),
        parts.join("; ")
    )
}

/// Sizes down, series across.
fn table(groups: &BTreeMap<String, Vec<&CellResult>>) -> Table {
    let mut heads = vec!["size (B)".to_owned()];
    heads.extend(groups.keys().map(|label| format!("#{label}")));
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    let mut table = Table::with_heads(&heads);
    let sizes: BTreeSet<u64> = groups.values().flatten().filter_map(|cell| size(cell)).collect();
    for wanted in sizes {
        let cells = groups.values().map(|cells| {
            let cell = cells.iter().find(|cell| size(cell) == Some(wanted));
            cell.map_or_else(String::new, |cell| {
                cell.summary.median.map_or_else(
                    || "–".to_owned(),
                    |median| {
                        value::with_interval(value::unit(&cell.unit), median, cell.summary.ci95)
                    },
                )
            })
        });
        table.push([plumb_base::units::format_bytes(wanted)].into_iter().chain(cells));
    }
    table
}

/// Factors that make a picture of their own.
const FACETS: [&str; 2] = ["placement", "wake"];
