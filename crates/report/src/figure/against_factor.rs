//! One response, or a few of one unit, against a factor that is a number: a picture each, with a line for
//! every other setting.
//!
//! Vertical axes begin at zero, so that a small gain looks small. A level that is a word, such as the kernel's
//! own choice, is a dashed line across.

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::CellResult;
use plumb_base::stats::regression::{FittedLine, theil_sen};
use serde_json::Value;

use super::{Axis, AxisScale, Figure, FigurePoint, SERIES_MAX, Series, highest_median, slug};
use crate::table::TextTable;
use crate::{name, value};

/// What is drawn against what.
#[derive(Clone, Copy, Debug)]
pub struct FactorPlot {
    /// The factor on the horizontal axis.
    pub factor: &'static str,
    /// The label of that axis.
    pub label: &'static str,
    /// The unit of its values.
    pub unit: &'static str,
    /// How they become positions.
    pub scale: FactorScale,
    /// Factors each of whose levels has pictures of its own.
    pub panel_factors: &'static [&'static str],
    /// What each picture shows: its title and its responses, which share a unit.
    pub pictures: &'static [(&'static str, &'static [&'static str])],
    /// Responses through whose series a line of constant elasticity is drawn.
    pub power_law_responses: &'static [&'static str],
}

/// The scales that suit a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactorScale {
    /// Evenly, from zero.
    Linear,
    /// By the binary logarithm: bytes.
    Log2,
}

/// The levels of a factor and their cells, least first, of one setting of everything else.
#[derive(Clone, Debug)]
pub struct FactorSeries<'a> {
    /// Its label among the others.
    pub label: String,
    /// Numbers and cells.
    pub cells: Vec<(f64, &'a CellResult)>,
    /// Cells whose level is a word.
    pub word_cells: Vec<&'a CellResult>,
}

impl FactorSeries<'_> {
    /// The line of constant elasticity through the medians: its slope is the elasticity.
    pub fn power_law_fit(&self) -> Option<FittedLine> {
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for (level, cell) in &self.cells {
            let median = cell.summary.median.filter(|median| *median > 0.0 && *level > 0.0)?;
            x.push(level.ln());
            y.push(median.ln());
        }
        theil_sen(&x, &y, CONFIDENCE)
    }
}

/// Confidence of an elasticity's interval.
const CONFIDENCE: f64 = 0.95;

/// The figures of an experiment; `cells` are all of it.
pub fn figures(cells: &[&CellResult], layout: &FactorPlot) -> Vec<Figure> {
    let mut panels: BTreeMap<(usize, (usize, String)), Vec<&CellResult>> = BTreeMap::new();
    for cell in cells.iter().filter(|cell| cell.summary.median.is_some()) {
        let shown = |(_, responses): &(&str, &[&str])| responses.contains(&cell.response.as_str());
        let Some(picture) = layout.pictures.iter().position(shown) else { continue };
        let place = (name::placement_order(cell), name::known_levels(cell, layout.panel_factors));
        panels.entry((picture, place)).or_default().push(cell);
    }
    let figure =
        |((picture, (_, place)), panel): (&(usize, (usize, String)), &Vec<&CellResult>)| {
            figure(panel, layout, layout.pictures[*picture], place)
        };
    panels.iter().map(figure).filter(|figure| !figure.is_empty()).collect()
}

/// The runs of these cells, of one response each; labels have these factors whether they vary or not.
pub fn factor_series<'a>(
    cells: &[&'a CellResult],
    factor: &str,
    always: &[&str],
) -> Vec<FactorSeries<'a>> {
    let varying = name::varying(cells.iter().copied());
    let mut wanted: BTreeSet<String> = varying.into_iter().filter(|name| name != factor).collect();
    wanted.extend(always.iter().map(|factor| (*factor).to_owned()));
    let mut runs: BTreeMap<String, FactorSeries<'a>> = BTreeMap::new();
    for cell in cells.iter().copied().filter(|cell| cell.summary.median.is_some()) {
        let label =
            if wanted.is_empty() { String::new() } else { name::cell(&cell.factors, &wanted) };
        let empty =
            || FactorSeries { label: label.clone(), cells: Vec::new(), word_cells: Vec::new() };
        let run = runs.entry(label.clone()).or_insert_with(empty);
        match cell.factors.get(factor).and_then(Value::as_f64) {
            Some(level) => run.cells.push((level, cell)),
            None => run.word_cells.push(cell),
        }
    }
    let sorted = |mut run: FactorSeries<'a>| {
        run.cells.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        run
    };
    runs.into_values().map(sorted).collect()
}

fn figure(
    cells: &[&CellResult],
    layout: &FactorPlot,
    (title, responses): (&str, &[&str]),
    place: &str,
) -> Figure {
    let unit = value::unit_of(cells[0]);
    let mut named: Vec<(String, FactorSeries<'_>)> = Vec::new();
    for response in responses {
        let of: Vec<&CellResult> =
            cells.iter().copied().filter(|cell| cell.response == *response).collect();
        let told = if responses.len() > 1 { name::side(response) } else { "" };
        named.extend(factor_series(&of, layout.factor, &[]).into_iter().map(|run| {
            let parts = [run.label.as_str(), told].into_iter().filter(|part| !part.is_empty());
            (parts.collect::<Vec<_>>().join(", "), run)
        }));
    }
    let all = || cells.iter().filter_map(|cell| cell.factors.get(layout.factor)?.as_f64());
    let ends = [all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max)];
    let has_power = responses.iter().any(|response| layout.power_law_responses.contains(response));
    let mut series = Vec::new();
    for ((label, run), slot) in named.iter().zip(0u8..).take(SERIES_MAX) {
        for cell in &run.word_cells {
            let across = cell.summary.median.map(|median| ends.map(|x| [x, median]).to_vec());
            series.push(Series::line(slot, across.unwrap_or_default()));
        }
        if let Some(line) = run.power_law_fit().filter(|_| has_power) {
            let curve = (0..=CURVE_STEPS).map(|step| {
                let x = ends[0] + (ends[1] - ends[0]) * f64::from(step) / f64::from(CURVE_STEPS);
                [x, line.at(x.ln()).exp()]
            });
            series.push(Series::line(slot, curve.collect()));
        }
        let at = run.cells.iter().filter_map(|(x, cell)| FigurePoint::of_median(*x, cell));
        series.push(Series::points(label.clone(), slot, !has_power, at));
    }
    let table = table(&named, layout);
    let title = if place.is_empty() { title.to_owned() } else { format!("{title}, {place}") };
    let has_words = named.iter().any(|(_, run)| !run.word_cells.is_empty());
    let x = match layout.scale {
        FactorScale::Linear => Axis::from_zero(layout.label, layout.unit, ends[1]),
        FactorScale::Log2 => Axis::with_scale(layout.label, layout.unit, AxisScale::Log2),
    };
    Figure {
        id: slug(&[&cells[0].experiment, &title]),
        alt: format!("{title}, by {}: {}.", layout.label, table.in_words()),
        title,
        note: note(has_power, has_words),
        x,
        y: Axis::from_zero(name::quantity(responses[0]), unit.name(), highest_median(cells)),
        series,
        table,
    }
}

/// Steps of a curve.
const CURVE_STEPS: u8 = 24;

fn note(power: bool, has_words: bool) -> String {
    let mut note =
        "Medians with 95 % intervals over launches; the vertical axis begins at zero.".to_owned();
    if power {
        note += " The dashed line has the same elasticity everywhere: the robust slope of both logarithms.";
    }
    if has_words {
        note += " The dashed line across is the kernel's own choice.";
    }
    note
}

/// Levels down, runs across.
fn table(named: &[(String, FactorSeries<'_>)], layout: &FactorPlot) -> TextTable {
    let label = |label: &str| if label.is_empty() { "median".to_owned() } else { label.to_owned() };
    let mut table = TextTable::across(layout.label, named.iter().map(|(name, _)| label(name)));
    let mut levels: Vec<&Value> = Vec::new();
    let cells = named.iter().flat_map(|(_, run)| {
        run.cells.iter().map(|(_, cell)| *cell).chain(run.word_cells.iter().copied())
    });
    for level in cells.filter_map(|cell| cell.factors.get(layout.factor)) {
        if !levels.contains(&level) {
            levels.push(level);
        }
    }
    let order = |level: &Value| level.as_f64().unwrap_or(f64::INFINITY);
    levels.sort_by(|a, b| order(a).total_cmp(&order(b)));
    for level in levels {
        let told = named.iter().map(|(_, run)| {
            let mut cells =
                run.cells.iter().map(|(_, cell)| *cell).chain(run.word_cells.iter().copied());
            let cell = cells.find(|cell| cell.factors.get(layout.factor) == Some(level));
            cell.map_or_else(|| "–".to_owned(), value::median)
        });
        table.push([name::level(layout.factor, level)].into_iter().chain(told));
    }
    table
}
