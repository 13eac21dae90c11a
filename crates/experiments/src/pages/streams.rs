//! What pages of experiments over streams share.

use plumb_analysis::document::CellResult;
use plumb_report::figure::by_level::{self, LevelPlot};
use plumb_report::headline::HeadlineTile;
use plumb_report::registry::PageData;
use plumb_report::{name, value};
use serde_json::Value;
use std::collections::BTreeMap;

pub(crate) const SIDES: [&str; 2] = ["sender-cpu", "receiver-cpu"];

pub(crate) fn text<'a>(cell: &'a CellResult, factor: &str) -> &'a str {
    cell.factors.get(factor).and_then(Value::as_str).unwrap_or("")
}

pub(crate) fn number(cell: &CellResult, factor: &str) -> Option<u64> {
    cell.factors.get(factor).and_then(Value::as_u64)
}

/// Cells of a response, with a median.
pub(crate) fn of<'a>(cells: &[&'a CellResult], response: &str) -> Vec<&'a CellResult> {
    let chosen = |cell: &&&CellResult| cell.response == response && cell.summary.median.is_some();
    cells.iter().filter(chosen).copied().collect()
}

/// A median with its interval.
pub(crate) fn median_text(cell: &CellResult) -> String {
    let median = cell.summary.median.unwrap_or(0.0);
    value::with_interval(value::unit(&cell.unit), median, cell.summary.ci95)
}

/// Levels of a cell in words: those that vary, and some in any case.
pub(crate) fn levels(cell: &CellResult, wanted: &[&str]) -> String {
    name::cell(&cell.factors, &wanted.iter().map(|name| (*name).to_owned()).collect())
}

pub(crate) fn ratio(of: &CellResult, to: &CellResult) -> Option<String> {
    let (of, to) = (of.summary.median?, to.summary.median?);
    (to > 0.0).then(|| value::times(of / to))
}

/// Every level of a factor as a multiple of one of them.
pub(crate) fn against(
    cells: &[&CellResult],
    plot: &LevelPlot,
    base: &str,
    response: &str,
    what: &str,
) -> Vec<String> {
    let cells = of(cells, response);
    let factor = plot.factor;
    let rest = |cell: &CellResult| -> BTreeMap<String, Value> {
        let others = cell.factors.iter().filter(|(name, _)| *name != factor);
        others.map(|(name, level)| (name.clone(), level.clone())).collect()
    };
    let mut bases: Vec<&&CellResult> =
        cells.iter().filter(|cell| text(cell, factor) == base).collect();
    bases.sort_by_key(|cell| name::placement_order(cell));
    let mut sentences = Vec::new();
    for base in bases {
        let mut others: Vec<&&CellResult> = cells
            .iter()
            .filter(|cell| rest(cell) == rest(base) && text(cell, factor) != text(base, factor))
            .collect();
        others.sort_by_cached_key(|cell| by_level::order(cell, factor, plot.order));
        let told: Vec<String> = others
            .iter()
            .filter_map(|cell| Some(format!("{} {}", levels(cell, &[factor]), ratio(cell, base)?)))
            .collect();
        if told.is_empty() {
            continue;
        }
        let known = |name: &&str| base.factors.contains_key(*name);
        let place: Vec<&str> = ["link", "placement"].into_iter().filter(known).collect();
        let place =
            if place.is_empty() { String::new() } else { format!(" ({})", levels(base, &place)) };
        sentences.push(format!(
            "{}{place}, as a multiple of {}: {}.",
            name::capitalize(what),
            levels(base, &[factor]),
            told.join("; ")
        ));
    }
    sentences
}

/// The best cell of a response as a large figure.
pub(crate) fn best_tile(
    data: &PageData<'_>,
    response: &str,
    what: &str,
    lower_is_better: bool,
) -> Vec<HeadlineTile> {
    let cells = of(&data.cells, response);
    let median = |cell: &CellResult| cell.summary.median.unwrap_or(0.0);
    let best = cells.iter().max_by(|a, b| {
        let order = median(a).total_cmp(&median(b));
        if lower_is_better { order.reverse() } else { order }
    });
    let Some(best) = best else { return Vec::new() };
    let unit = value::unit(&best.unit);
    let text = value::estimate(unit, median(best), best.summary.ci95);
    let all = best.factors.keys().filter(|name| *name != "congestion").cloned().collect();
    vec![HeadlineTile {
        label: what.to_owned(),
        // Bytes for a second of CPU are no rate.
        value: if response == "sender-cpu" { text.replace("B/s", "B") } else { text },
        interval: best
            .summary
            .ci95
            .map_or_else(String::new, |ci| value::interval(unit, median(best), ci)),
        conditions: name::cell(&best.factors, &all),
    }]
}

/// Streams are not acknowledged by those who receive them.
pub(crate) const RESPONSES: &[(&str, &str)] = &[("throughput", "throughput")];
