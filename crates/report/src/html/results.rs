//! The measured part of the page: figures and the full table of each experiment and response.
//!
//! Left out: which picture suits which cells is decided by `crate::figure`'s builders; this only
//! asks them in order.

use plumb_analysis::document::{CellResult, RunDocument};
use plumb_analysis::ladder::Rung;
use plumb_base::units::Unit;

use super::{Part, details, element, part, table};
use crate::figure::{self, Figure};
use crate::section::{self, Section};
use crate::table::Table;
use crate::{name, value};

/// One part for each experiment, and one for the drift over the run.
pub(super) fn sections(document: &RunDocument) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for section in section::sections(&document.results) {
        let id = figure::slug(&["experiment", section.experiment]);
        let body = response(&section, !document.ladder.is_empty());
        match parts.iter_mut().find(|part| part.id == id) {
            Some(part) => part.body += &body,
            None => parts.push(part(&id, name::experiment(section.experiment), body)),
        }
    }
    if let Some(figure) = figure::drift::figure(&document.results) {
        parts.push(part("order", "Over the course of the run", element::figure(&figure)));
    }
    parts
}

fn response(section: &Section<'_>, ladder: bool) -> String {
    let mut html = format!("<h3 class=\"response\">{}</h3>", element::escape(&capital(section)));
    let shared = section.shared_factors();
    if !shared.is_empty() {
        html += &format!("<p class=\"dim\">All at {}.", element::escape(&shared));
    }
    for figure in figures(section, ladder) {
        html += &element::figure(&figure);
    }
    let title = format!("All {} results", section.cells.len());
    html + &details(&title, &table(&full(section), &section.title()))
}

fn capital(section: &Section<'_>) -> String {
    let name = name::response(section.response);
    let mut chars = name.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// The figures of a section: lines where sizes vary, boxes elsewhere, distributions for a few.
fn figures(section: &Section<'_>, ladder: bool) -> Vec<Figure> {
    let cells = &section.cells;
    if figure::against_size::suits(cells) {
        let mut figures = figure::against_size::figures(cells);
        figures.extend(distributions(section));
        return figures;
    }
    let mut figures = if ladder && section.experiment == "latency.local" {
        Vec::new()
    } else {
        figure::spread::figures(cells)
    };
    figures.extend(distributions(section));
    figures
}

/// Distributions at one size, one figure a placement.
fn distributions(section: &Section<'_>) -> Vec<Figure> {
    if section.response != "latency" {
        return Vec::new();
    }
    let level = |cell: &CellResult, factor: &str| {
        cell.factors.get(factor).map_or_else(String::new, |level| name::level(factor, level))
    };
    let mut sizes: Vec<u64> = section.cells.iter().filter_map(|cell| size(cell)).collect();
    sizes.sort_unstable();
    let middle = sizes.iter().copied().min_by_key(|size| size.abs_diff(64));
    let mut placements: Vec<String> =
        section.cells.iter().map(|cell| level(cell, "placement")).collect();
    placements.sort();
    placements.dedup();
    placements
        .iter()
        .filter_map(|placement| {
            let cells: Vec<&CellResult> = section
                .cells
                .iter()
                .copied()
                .filter(|cell| size(cell) == middle && level(cell, "placement") == *placement)
                .collect();
            let at = middle.map_or_else(String::new, |size| {
                format!(" at {} B", plumb_base::units::format_bytes(size))
            });
            let title = format!("Distribution{at}, {placement}");
            figure::quantiles::figure(&title, &cells)
        })
        .collect()
}

fn size(cell: &CellResult) -> Option<u64> {
    cell.factors.get("size").and_then(serde_json::Value::as_u64)
}

/// Everything there is about each cell, as compactly as a page of a thousand of them needs.
fn full(section: &Section<'_>) -> Table {
    let mut table = Table::with_heads(&[
        "cell",
        "#launches",
        "#n",
        "#n eff.",
        "#min",
        "#q1",
        "#median",
        "#95 %",
        "#q3",
        "#p90",
        "#p99?",
        "#p99.9?",
        "#max",
        "#CPU here?",
        "#CPU peer?",
        "#softirq?",
        "counted?",
        "notes?",
    ]);
    let varying = section.varying();
    let ns = Unit::Nanoseconds;
    for cell in &section.cells {
        let (unit, summary, cpu) = (value::unit(&cell.unit), &cell.summary, &cell.cpu);
        let optional = |number| value::optional(unit, number);
        let median = summary.median;
        let ci95 = summary.ci95;
        let counted: Vec<String> =
            cell.counters.iter().map(|(what, count)| format!("{what} {count}")).collect();
        table.push([
            name::cell(&cell.factors, &varying),
            summary.launches.to_string(),
            summary.n.to_string(),
            format!("{:.0}", summary.n_eff),
            optional(summary.min),
            optional(summary.q1),
            median.map_or_else(|| "–".to_owned(), |m| value::estimate(unit, m, ci95)),
            median.zip(ci95).map_or_else(String::new, |(m, ci)| value::interval(unit, m, ci)),
            optional(summary.q3),
            optional(summary.p90),
            optional(summary.p99),
            optional(summary.p999),
            optional(summary.max),
            value::optional(ns, cpu.local),
            value::optional(ns, cpu.peer),
            value::optional(ns, cpu.softirq),
            counted.join(", "),
            cell.flags.join("; "),
        ]);
    }
    table.drop_empty_columns();
    table
}

/// The sentence of each rung, with the CPU time of both sides.
pub(super) fn where_time_goes(rungs: &[Rung]) -> Table {
    let mut table = Table::with_heads(&[
        "boundary",
        "#median",
        "#CPU here",
        "#CPU peer?",
        "where the time goes",
    ]);
    let ns = Unit::Nanoseconds;
    for rung in rungs {
        let place = match rung.placement.as_deref() {
            None => rung.label.clone(),
            Some(_) => format!("{}, {}", rung.label, figure::ladder::kind(rung).words()),
        };
        table.push([
            place,
            value::estimate(ns, rung.median, rung.ci95),
            value::optional(ns, rung.cpu_local),
            value::optional(ns, rung.cpu_peer),
            rung.sentence.clone(),
        ]);
    }
    table.drop_empty_columns();
    table
}
