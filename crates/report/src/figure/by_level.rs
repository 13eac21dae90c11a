//! Medians with their intervals, a row for each level of a factor that is a word.
//!
//! Responses of one unit share a picture, a mark each, which the legend names instead of the axis. One picture a placement.

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::CellResult;

use super::{Axis, AxisScale, Figure, FigurePoint, SERIES_MAX, Series, highest_median, slug};
use crate::table::TextTable;
use crate::{name, value};

/// What is drawn.
#[derive(Clone, Copy, Debug)]
pub struct LevelPlot {
    /// The factor whose levels are rows, and its levels in their order; others follow.
    pub factor: &'static str,
    /// Levels in the order of rows.
    pub order: &'static [&'static str],
    /// Factors each of whose levels has pictures of its own.
    pub panel_factors: &'static [&'static str],
    /// What each picture shows: its title, its responses, which share a unit, and whether its axis is
    /// logarithmic instead of from zero.
    pub pictures: &'static [(&'static str, &'static [&'static str], bool)],
}

/// The figures of an experiment; `cells` are all of it.
pub fn figures(cells: &[&CellResult], layout: &LevelPlot) -> Vec<Figure> {
    let mut panels: BTreeMap<(usize, usize, usize), Vec<&CellResult>> = BTreeMap::new();
    // In the order in which they were asked for.
    let mut places: Vec<String> = Vec::new();
    for cell in cells.iter().filter(|cell| cell.summary.median.is_some()) {
        let shown = layout
            .pictures
            .iter()
            .position(|(_, responses, _)| responses.contains(&cell.response.as_str()));
        let Some(picture) = shown else { continue };
        let place = name::known_levels(cell, layout.panel_factors);
        let known = places.iter().position(|known| *known == place);
        let index = known.unwrap_or(places.len());
        if known.is_none() {
            places.push(place);
        }
        panels.entry((picture, name::placement_order(cell), index)).or_default().push(cell);
    }
    let figure = |((picture, _, place), panel): (&(usize, usize, usize), &Vec<&CellResult>)| {
        figure(panel, layout, layout.pictures[*picture], &places[*place])
    };
    panels.iter().map(figure).filter(|figure| !figure.is_empty()).collect()
}

/// The place of a cell's level among the rows.
pub fn order(cell: &CellResult, factor: &str, order: &[&str]) -> (usize, String) {
    let level = cell.level(factor);
    let place = order.iter().position(|known| *known == level).unwrap_or(order.len());
    (place, level.to_owned())
}

fn figure(
    cells: &[&CellResult],
    layout: &LevelPlot,
    (title, responses, logarithmic): (&str, &[&str], bool),
    place: &str,
) -> Figure {
    let unit = value::unit_of(cells[0]);
    let varying = name::varying(cells.iter().copied());
    let row = |cell: &CellResult| {
        let wanted = varying.iter().filter(|name| !layout.panel_factors.contains(&name.as_str()));
        let wanted: BTreeSet<String> = wanted.cloned().chain([layout.factor.to_owned()]).collect();
        name::cell(&cell.factors, &wanted)
    };
    let mut ordered = cells.to_vec();
    ordered.sort_by_cached_key(|cell| (order(cell, layout.factor, layout.order), row(cell)));
    let mut rows: Vec<String> = Vec::new();
    for cell in &ordered {
        if !rows.contains(&row(cell)) {
            rows.push(row(cell));
        }
    }
    let shown: Vec<&str> = responses
        .iter()
        .copied()
        .filter(|response| ordered.iter().any(|cell| cell.response == *response))
        .collect();
    let of = |response: &str, wanted: &str| {
        ordered.iter().find(|cell| cell.response == response && row(cell) == wanted)
    };
    let series = |(response, slot): (&&str, u8)| {
        // Marks of one row stand a little apart, so that none hides another.
        let shift = (f64::from(slot) - (shown.len() as f64 - 1.0) / 2.0) * SHIFT;
        let at = rows.iter().enumerate().filter_map(|(index, wanted)| {
            let cell = of(response, wanted)?;
            let (x, y) = (cell.summary.median?, index as f64 + shift);
            Some(FigurePoint { x, y, x_interval: cell.summary.ci95, y_interval: None })
        });
        let name = if shown.len() > 1 { name::side(response) } else { "" };
        Series::points(name.to_owned(), slot, false, at)
    };
    let series: Vec<Series> = shown.iter().zip(0u8..).take(SERIES_MAX).map(series).collect();
    let head = |response: &&str| match shown.len() {
        1 => "median [95 %]".to_owned(),
        _ => format!("{} [95 %]", name::side(response)),
    };
    let mut table = TextTable::across("setting", shown.iter().map(head));
    for wanted in &rows {
        let told = shown.iter().map(|response| {
            of(response, wanted).map_or_else(|| "–".to_owned(), |cell| value::median(cell))
        });
        table.push([wanted.clone()].into_iter().chain(told));
    }
    let title = if place.is_empty() { title.to_owned() } else { format!("{title}, {place}") };
    let quantity = if let [one] = shown[..] { name::quantity(one) } else { "" };
    let (x, axis) = if logarithmic {
        (Axis::with_scale(quantity, unit.name(), AxisScale::Log10), "a logarithmic axis")
    } else {
        (Axis::from_zero(quantity, unit.name(), highest_median(cells)), "an axis from zero")
    };
    Figure {
        id: slug(&[&cells[0].experiment, &title]),
        alt: format!("{title}: {}.", table.in_words()),
        title,
        note: format!("Medians with 95 % intervals over launches, on {axis}."),
        x,
        y: Axis::names("", rows),
        series,
        table,
    }
}

/// Distance of marks of one row, in rows.
const SHIFT: f64 = 0.2;
