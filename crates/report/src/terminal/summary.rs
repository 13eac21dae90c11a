//! A run in a terminal: its results as tables, what was not measured, whether to trust it.
//!
//! Left out: the ladder (`super::ladder`), claims and ranks (`super::ranks`).

use std::collections::{BTreeMap, BTreeSet};

use plumb_analysis::document::{CellResult, RunDocument, RunTrust, UnavailableCell};
use plumb_base::units::Unit;

use super::{TerminalStyle, TextRole};
use crate::figure::{against_size, quantiles, text};
use crate::registry;
use crate::section::{self, ResultSection};
use crate::table::{self, TextTable};
use crate::{name, value};

/// Results by experiment and response, then what was not measured, then the trust statement.
pub fn render(document: &RunDocument, style: TerminalStyle) -> String {
    let mut out = surroundings(document, style);
    let mut told: BTreeSet<&str> = BTreeSet::new();
    for section in section::sections(&document.results) {
        if told.insert(section.experiment) {
            out += &experiment(document, section.experiment, style);
        }
        if is_breakdown(section.experiment) && !document.breakdowns.is_empty() {
            continue;
        }
        push_wrapped(&mut out, &section.title(), TextRole::Bold, 0, style);
        let shared = section.shared_factors();
        if !shared.is_empty() {
            push_wrapped(&mut out, &format!("Common to all: {shared}."), TextRole::Dim, 0, style);
        }
        let frames = section.cells.iter().any(|cell| cell.factors.contains_key("frame"));
        if section.cells.len() > ROWS_MAX && frames {
            out += &by_place(&section, style);
        } else if section.cells.len() > ROWS_MAX && against_size::has_enough_sizes(&section.cells) {
            out += &table::text::render_folded(&against_size::overview(&section.cells), style);
            let text = "Intervals, quartiles and CPU time of each cell: plumb report, or --json.";
            push_wrapped(&mut out, text, TextRole::Dim, 0, style);
        } else {
            out += &table::text::render(&results(&section), style);
        }
        out.push('\n');
    }
    out += &unavailable(&document.unavailable, style);
    out += &trust(&document.trust, style);
    out
}

/// The link that the run was behind, before anything else; empty where there was none.
pub fn surroundings(document: &RunDocument, style: TerminalStyle) -> String {
    let mut out = String::new();
    if let Some(sentence) = section::network_conditions(document) {
        push_wrapped(&mut out, &sentence, TextRole::Warn, 0, style);
        out.push('\n');
    }
    out
}

fn is_breakdown(experiment: &str) -> bool {
    registry::page(experiment).is_some_and(|page| page.is_breakdown)
}

/// Medians only, frame sizes across, a table a placement and wake mode.
fn by_place(section: &ResultSection<'_>, style: TerminalStyle) -> String {
    let mut places: BTreeMap<(usize, String), Vec<&CellResult>> = BTreeMap::new();
    for cell in &section.cells {
        let key =
            (name::placement_order(cell), name::levels(&cell.factors, &["placement", "wake"]));
        places.entry(key).or_default().push(cell);
    }
    let mut out = String::new();
    for ((_, place), cells) in &places {
        push_wrapped(&mut out, &name::capitalize(place), TextRole::Bold, 0, style);
        out += &table::text::render_folded(&against_size::overview(cells), style);
    }
    let text = "Intervals, quartiles and CPU time of each cell: plumb report, or --json.";
    push_wrapped(&mut out, text, TextRole::Dim, 0, style);
    out
}

/// What was found by all responses of an experiment together; breakdowns drawn, with their tables.
fn experiment(document: &RunDocument, experiment: &str, style: TerminalStyle) -> String {
    let mut out = String::new();
    let sentences = registry::sentences(document, experiment);
    if sentences.is_empty() && !registry::has_figures(experiment) {
        return out;
    }
    push_wrapped(&mut out, name::experiment(experiment), TextRole::Bold, 0, style);
    for sentence in sentences {
        push_wrapped(&mut out, &sentence, TextRole::Plain, 2, style);
    }
    out.push('\n');
    if is_breakdown(experiment) {
        for figure in registry::figures(document, experiment) {
            out += &text::render(&figure, style);
            out.push('\n');
            out += &table::text::render_folded(&figure.table, style);
            out.push('\n');
        }
    }
    out
}

/// The distribution of one cell, drawn; empty when its quantiles were refused.
pub fn distribution(cell: &CellResult, style: TerminalStyle) -> String {
    let all = cell.factors.keys().cloned().collect();
    let title = format!("{}: {}", cell.experiment, name::cell(&cell.factors, &all));
    quantiles::figure(&title, &[cell])
        .map_or_else(String::new, |figure| text::render(&figure, style))
}

/// One sentence on rule 10, with the disturbances that were counted.
pub fn trust(trust: &RunTrust, style: TerminalStyle) -> String {
    let mut out = String::new();
    let ink = if trust.trusted { TextRole::Good } else { TextRole::Bad };
    push_wrapped(&mut out, &section::trust(trust), ink, 0, style);
    out
}

/// What was not measured, by reason.
pub fn unavailable(cells: &[UnavailableCell], style: TerminalStyle) -> String {
    let mut out = String::new();
    if cells.is_empty() {
        return out;
    }
    push_wrapped(&mut out, "Not measured", TextRole::Bold, 0, style);
    for (reason, groups) in section::missing_by_reason(cells) {
        let groups: Vec<String> = groups.iter().map(section::MissingCells::label).collect();
        push_wrapped(
            &mut out,
            &format!("{}: {reason}", groups.join("; ")),
            TextRole::Plain,
            2,
            style,
        );
    }
    out.push('\n');
    out
}

/// One row a cell; what a narrow terminal can do without is optional.
pub fn results(section: &ResultSection<'_>) -> TextTable {
    let mut table = TextTable::with_heads(&[
        "cell",
        "#median",
        "#±",
        "#q1?",
        "#q3?",
        "#p99??",
        "#CPU here??",
        "#CPU peer??",
        "#launches???",
        "#n????",
        "notes?????",
    ]);
    let varying = section.varying();
    for cell in &section.cells {
        let (unit, summary) = (value::unit(&cell.unit), &cell.summary);
        let median = match (summary.median, summary.mean) {
            (Some(median), _) => value::estimate(unit, median, summary.ci95),
            // Many a tool prints a mean and nothing else.
            (None, Some(mean)) if summary.launches == 0 => {
                format!("{} (mean)", value::optional(unit, Some(mean)))
            }
            (None, _) => "–".to_owned(),
        };
        table.push([
            name::cell(&cell.factors, &varying),
            median,
            value::precision(summary.median.unwrap_or(0.0), summary.ci95),
            value::optional(unit, summary.q1),
            value::optional(unit, summary.q3),
            value::optional(unit, summary.p99),
            value::optional(Unit::Nanoseconds, cell.cpu.local),
            value::optional(Unit::Nanoseconds, cell.cpu.peer),
            summary.launches.to_string(),
            summary.n.to_string(),
            cell.flags.join("; "),
        ]);
    }
    table.drop_empty_columns();
    table
}

/// Rows beyond which sizes go across and only medians are shown.
const ROWS_MAX: usize = 24;

/// Wrapped text in one ink.
pub(super) fn push_wrapped(
    out: &mut String,
    text: &str,
    ink: TextRole,
    indent: usize,
    style: TerminalStyle,
) {
    for line in style.wrap(text, indent) {
        *out += &style.paint(ink, &line);
        out.push('\n');
    }
}
