//! What pages of study `ipc` share.

use plumb_analysis::document::CellResult;
use plumb_base::units::format_bytes;
use plumb_report::{name, value};
use serde_json::Value;
use std::collections::BTreeMap;

pub(crate) fn text<'a>(cell: &'a CellResult, factor: &str) -> &'a str {
    cell.factors.get(factor).and_then(Value::as_str).unwrap_or("")
}

pub(crate) fn number(cell: &CellResult, factor: &str) -> Option<u64> {
    cell.factors.get(factor).and_then(Value::as_u64)
}

pub(crate) fn median_text(cell: &CellResult) -> String {
    let median = cell.summary.median.unwrap_or(0.0);
    value::with_interval(value::unit(&cell.unit), median, cell.summary.ci95)
}

/// Over each link the better mechanism, at the least size for times and at the largest for rates; a
/// sentence a placement.
pub(crate) fn by_link(cells: &[&CellResult], response: &str, what: &str) -> Vec<String> {
    let cells =
        || cells.iter().filter(|cell| cell.response == response && cell.summary.median.is_some());
    let sizes = cells().filter_map(|cell| number(cell, "size"));
    let is_time = response == "latency";
    let Some(size) = (if is_time { sizes.min() } else { sizes.max() }) else { return Vec::new() };
    let mut places: BTreeMap<(usize, &str), BTreeMap<&str, &CellResult>> = BTreeMap::new();
    for cell in cells().filter(|cell| number(cell, "size") == Some(size)) {
        let place = (name::placement_order(cell), text(cell, "placement"));
        let best = places.entry(place).or_default().entry(text(cell, "link")).or_insert(cell);
        let better = if is_time {
            cell.summary.median < best.summary.median
        } else {
            cell.summary.median > best.summary.median
        };
        if better {
            *best = cell;
        }
    }
    let sentence = |((_, place), links): ((usize, &str), BTreeMap<&str, &CellResult>)| {
        let mut links: Vec<(&str, &CellResult)> = links.into_iter().collect();
        let median = |cell: &CellResult| cell.summary.median.unwrap_or(0.0);
        links.sort_by(|(_, a), (_, b)| {
            let order = median(a).total_cmp(&median(b));
            if is_time { order } else { order.reverse() }
        });
        let links: Vec<String> = links
            .iter()
            .map(|(link, cell)| {
                format!("{} {} ({})", name::link(link), median_text(cell), text(cell, "mechanism"))
            })
            .collect();
        format!(
            "{what} of {} B ({}): {}.",
            format_bytes(size),
            name::placement(place),
            links.join("; ")
        )
    };
    places.into_iter().map(sentence).collect()
}
