//! The measured part of the page: figures and the full table of each experiment and response. Of a ladder, which is drawn
//! whole, only the tables.

use plumb_analysis::breakdown;
use plumb_analysis::document::{CellResult, LadderRung, RunDocument, SampleSummary};
use plumb_base::units::Unit;

use super::{PageSection, details, element, part, table};
use crate::figure::{self, Figure};
use crate::section::{self, ResultSection};
use crate::table::TextTable;
use crate::{name, registry, value};

/// One part for each experiment, and one for the drift over the run.
pub(super) fn sections(document: &RunDocument) -> Vec<PageSection> {
    if !document.ladder.is_empty() {
        return vec![part("results", "Every result", tables(document))];
    }
    let mut parts: Vec<PageSection> = Vec::new();
    for section in section::sections(&document.results) {
        let id = figure::slug(&["experiment", section.experiment]);
        let body = response(&section);
        if let Some(part) = parts.iter_mut().find(|part| part.id == id) {
            part.body += &body;
        } else {
            let body = experiment(document, section.experiment) + &body;
            parts.push(part(&id, name::experiment(section.experiment), body));
        }
    }
    if let Some(figure) = figure::spread::drift(&document.results) {
        parts.push(part("order", "Over the course of the run", element::figure(&figure)));
    }
    parts
}

/// The table of each experiment and response, folded away.
fn tables(document: &RunDocument) -> String {
    let folded = |section: ResultSection<'_>| {
        let title = format!("{}: {} results", section.title(), section.cells.len());
        details(&title, &table(&full(&section), &section.title()))
    };
    section::sections(&document.results).into_iter().map(folded).collect()
}

/// Sentences and figures about all responses of an experiment together; mostly none.
fn experiment(document: &RunDocument, experiment: &str) -> String {
    let sentences = registry::sentences(document, experiment);
    let mut html = String::new();
    if !sentences.is_empty() {
        html += "<ul class=\"answer\">";
        for sentence in sentences {
            html += &format!("<li>{}", element::escape(&sentence));
        }
        html += "</ul>";
    }
    if !registry::has_figures(experiment) {
        return html;
    }
    html += "<div class=\"figures\">";
    for figure in registry::figures(document, experiment) {
        html += &element::figure(&figure);
    }
    html += "</div>";
    let ratios = registry::ratios(document, experiment);
    if !ratios.rows.is_empty() {
        html += &details("All ratios", &table(&ratios, "Ratios of medians"));
    }
    html
}

fn response(section: &ResultSection<'_>) -> String {
    if registry::has_figures(section.experiment) {
        // Of what is told in parts, the data of the figures have the parts.
        let wholes = [breakdown::UNEXPLAINED, breakdown::WHOLE, breakdown::PROBED];
        let is_breakdown = registry::page(section.experiment).is_some_and(|page| page.is_breakdown);
        if is_breakdown && !wholes.contains(&section.response) {
            return String::new();
        }
        let title = name::capitalize(section.response_label());
        let title = format!("{title}: all {} results", section.cells.len());
        return details(&title, &table(&full(section), &section.title()));
    }
    let mut html = format!(
        "<h3 class=\"response\">{}</h3>",
        element::escape(&name::capitalize(section.response_label()))
    );
    let shared = section.shared_factors();
    if !shared.is_empty() {
        html += &format!("<p class=\"dim\">Common to all: {}.", element::escape(&shared));
    }
    let figures = figures(section);
    html += if figures.len() > 1 { "<div class=\"figures\">" } else { "<div>" };
    for figure in figures {
        html += &element::figure(&figure);
    }
    html += "</div>";
    if let Some(note) = section.percentile_note() {
        html += &format!("<p class=\"dim\">{note}");
    }
    let title = match section.cells.len() {
        1 => "The whole result".to_owned(),
        count => format!("All {count} results"),
    };
    html + &details(&title, &table(&full(section), &section.title()))
}

/// The figures of a section: lines where sizes vary, boxes elsewhere, distributions for a few.
fn figures(section: &ResultSection<'_>) -> Vec<Figure> {
    let cells = &section.cells;
    if figure::against_size::has_enough_sizes(cells) {
        let mut figures = figure::against_size::figures(cells);
        figures.extend(distributions(section));
        return figures;
    }
    let mut figures = figure::spread::figures(cells);
    figures.extend(distributions(section));
    figures
}

/// Distributions at one size, one figure a placement.
fn distributions(section: &ResultSection<'_>) -> Vec<Figure> {
    if section.response != "latency" {
        return Vec::new();
    }
    let level = |cell: &CellResult, factor: &str| {
        cell.factors.get(factor).map_or_else(String::new, |level| name::level(factor, level))
    };
    let mut sizes: Vec<u64> = section.cells.iter().filter_map(|cell| size(cell)).collect();
    sizes.sort_unstable();
    let middle = sizes.iter().copied().min_by_key(|size| size.abs_diff(64));
    let mut placements: Vec<(usize, String)> = section
        .cells
        .iter()
        .map(|cell| (name::placement_order(cell), level(cell, "placement")))
        .collect();
    placements.sort();
    placements.dedup();
    placements
        .iter()
        .filter_map(|(_, placement)| {
            let cells: Vec<&CellResult> = section
                .cells
                .iter()
                .copied()
                .filter(|cell| size(cell) == middle && level(cell, "placement") == *placement)
                .collect();
            let at = middle.map_or_else(String::new, |size| {
                format!(" at {}", plumb_base::units::format_size(size))
            });
            let title = format!("Distribution{at}, {placement}");
            figure::spread::quantiles(&title, &cells)
        })
        .collect()
}

fn size(cell: &CellResult) -> Option<u64> {
    cell.factors.get("size").and_then(serde_json::Value::as_u64)
}

/// Everything there is about each cell, as compactly as a page of a thousand of them needs.
fn full(section: &ResultSection<'_>) -> TextTable {
    let varying = section.varying();
    let number = |cell: &CellResult, of: fn(&SampleSummary) -> Option<f64>| {
        value::optional(value::unit_of(cell), of(&cell.summary))
    };
    let ns = |cost| value::optional(Unit::Nanoseconds, cost);
    let interval = |cell: &CellResult| {
        let ends = cell.summary.median.zip(cell.summary.ci95);
        let unit = value::unit_of(cell);
        ends.map_or_else(String::new, |(median, ci)| value::interval(unit, median, ci))
    };
    let mut table = TextTable::of_rows(
        section.cells.iter().copied(),
        &[
            ("cell", &|cell| name::cell(&cell.factors, &varying)),
            ("#launches", &|cell| cell.summary.launches.to_string()),
            ("#n", &|cell| cell.summary.n.to_string()),
            ("#n eff.", &|cell| format!("{:.0}", cell.summary.n_eff)),
            ("#min", &|cell| number(cell, |summary| summary.min)),
            ("#q1", &|cell| number(cell, |summary| summary.q1)),
            ("#median", &|cell| value::central(cell)),
            ("#95 %", &interval),
            ("#q3", &|cell| number(cell, |summary| summary.q3)),
            ("#p90", &|cell| value::percentile(cell, cell.summary.p90, cell.summary.p90_ci95)),
            ("#p99?", &|cell| value::percentile(cell, cell.summary.p99, cell.summary.p99_ci95)),
            ("#p99.9?", &|cell| value::percentile(cell, cell.summary.p999, cell.summary.p999_ci95)),
            ("#max", &|cell| number(cell, |summary| summary.max)),
            ("#CPU here?", &|cell| ns(cell.cpu.local)),
            ("#CPU peer?", &|cell| ns(cell.cpu.peer)),
            ("#softirq?", &|cell| ns(cell.cpu.softirq)),
            ("counted, and notes?", &notes),
        ],
    );
    table.drop_empty_columns();
    table
}

/// What was counted, and flags that the numbers do not say.
fn notes(cell: &CellResult) -> String {
    let is_told = |what: &str, count: u64| count > 0 && !OWN_COUNTERS.contains(&what);
    let counted = cell.counters.iter().filter(|(what, count)| is_told(what, **count));
    let counted = counted.map(|(what, count)| format!("{what} {count}"));
    let flags = cell.flags.iter().filter_map(|flag| brief(flag));
    counted.chain(flags).collect::<Vec<_>>().join("; ")
}

/// Counters of the harness's own doings, which say nothing about the mechanism.
const OWN_COUNTERS: [&str; 3] = ["interruptions", "messages", "messages_per_transfer"];

/// A flag as short as a column beside the numbers needs it; none where the numbers say it.
fn brief(flag: &str) -> Option<String> {
    // A dash and the number of effective samples stand in their columns already.
    if flag.starts_with("stopped: precise") || flag.contains(" refused: ") {
        return None;
    }
    if let Some(modes) = flag.strip_prefix("modes: ") {
        return Some(format!("{} modes", modes.split(';').next().unwrap_or(modes)));
    }
    // The part after the comma is in the column of the interval.
    let stopped = flag.strip_prefix("stopped: ").and_then(|rest| rest.split(", interval").next());
    Some(stopped.map_or_else(|| flag.replace(" blocks", ""), |why| format!("stopped: {why}")))
}

fn kind_words(rung: &LadderRung) -> String {
    element::escape(&figure::ladder::kind(rung).legend())
}

/// The sentence of each rung, with the CPU time of both sides.
pub(super) fn where_time_goes(rungs: &[LadderRung]) -> String {
    let mut html = String::from("<dl class=\"rungs\">");
    let ns = Unit::Nanoseconds;
    for rung in rungs {
        let mut cpu: Vec<String> = Vec::new();
        cpu.extend(rung.cpu_local.map(|cost| format!("CPU {} here", value::plain(ns, cost))));
        let peer = rung.cpu_peer.filter(|_| rung.placement.is_some());
        cpu.extend(peer.map(|cost| format!("{} peer", value::plain(ns, cost))));
        let softirq = rung.cpu_softirq.filter(|cost| *cost > 0.0);
        cpu.extend(softirq.map(|cost| format!("{} softirq", value::plain(ns, cost))));
        html += &format!(
            "<dt>{} <span class=\"dim\">{}</span><span class=\"cost\">{}</span><dd>{}\
             <span class=\"dim\">{}</span>",
            element::escape(&rung.label),
            rung.placement.as_ref().map_or_else(String::new, |_| kind_words(rung)),
            value::estimate(ns, rung.median, rung.ci95),
            element::escape(&format!("{} ", rung.sentence)),
            cpu.join(", "),
        );
    }
    html + "</dl>"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_say_only_what_the_columns_beside_them_do_not() {
        let briefly = |flag| brief(flag).unwrap_or_default();
        assert_eq!(briefly("p99 refused: needs 368 effective samples, has 120"), "");
        assert_eq!(briefly("modes: 3; the mean is withheld"), "3 modes");
        assert_eq!(briefly("stopped: precise, interval ±1.9%"), "");
        assert_eq!(briefly("stopped: budget, interval ±9%"), "stopped: budget");
        assert_eq!(briefly("canary: 2 of 5 blocks"), "canary: 2 of 5");
    }
}
