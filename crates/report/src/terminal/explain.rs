//! Where the time of a run's round trips goes, in a terminal: pictures, tables, sentences.
//!
//! Left out: any other result of either run.

use plumb_analysis::document::BreakdownSummary;
use plumb_analysis::document::explain::{ExplainDocument, ExplainedCell};
use plumb_base::units::Unit;

use super::summary::{push_wrapped, trust, unavailable};
use super::{TerminalStyle, TextRole};
use crate::figure::{breakdown, text};
use crate::table::{self, TextTable};
use crate::{name, value};

/// The latencies that are explained, a picture a placement, then every part of every round trip.
pub fn render(document: &ExplainDocument, style: TerminalStyle) -> String {
    let mut out = String::new();
    let title = if document.run.id == document.measured.id {
        format!("Run {}: where its round trips go", document.run.id)
    } else {
        let (run, measured) = (&document.run.id, &document.measured.id);
        format!("Run {run}: where its round trips go, measured now in {measured}")
    };
    push_wrapped(&mut out, &title, TextRole::Bold, 0, style);
    let rungs = rungs(document);
    let fits = style.width >= ROOM;
    let draw = if fits { table::text::render } else { table::text::render_folded };
    out += &draw(&rungs, style);
    let text = "A stored latency is the median of half a round trip. Round trips are means, without \
                their slowest fiftieth.";
    push_wrapped(&mut out, text, TextRole::Dim, 0, style);
    out.push('\n');
    let parts: Vec<&BreakdownSummary> =
        breakdown::ordered(document.rungs.iter().map(|rung| &rung.breakdown));
    for figure in breakdown::figures(&parts) {
        out += &text::render(&figure, style);
        push_wrapped(&mut out, &figure.note, TextRole::Dim, 0, style);
        out.push('\n');
        out += &table::text::render_folded(&figure.table, style);
        out.push('\n');
    }
    for entry in &parts {
        push_wrapped(&mut out, &breakdown::sentence(entry), TextRole::Plain, 0, style);
    }
    out.push('\n');
    out += &unavailable(&document.unavailable, style);
    out + &trust(&document.trust, style)
}

/// A row a rung: the stored latency, the round trip in parts, and how sure the parts are.
pub fn rungs(document: &ExplainDocument) -> TextTable {
    let mut table = TextTable::with_heads(&[
        "rung",
        "placement",
        "#latency stored",
        "#round trip [95 %]",
        "#largest part?",
        "#unexplained??",
        "#probes cost???",
    ]);
    let mut ordered: Vec<&ExplainedCell> = document.rungs.iter().collect();
    ordered.sort_by_key(|rung| name::placement_rank(breakdown::placement(&rung.breakdown)));
    for rung in ordered {
        let entry = &rung.breakdown;
        let latency = rung.latency.as_ref();
        let whole = entry.whole.as_ref();
        let largest = entry.parts.iter().max_by(|a, b| a.mean.total_cmp(&b.mean));
        let percent = |share: f64| format!("{:.1}%", share * 100.0);
        table.push([
            breakdown::label(entry),
            name::placement(breakdown::placement(entry)).to_owned(),
            latency.map_or_else(
                || "–".to_owned(),
                |found| value::estimate(NS, found.median, found.ci95),
            ),
            whole.map_or_else(
                || value::plain(NS, entry.sum),
                |whole| value::with_interval(NS, whole.mean, whole.ci95),
            ),
            largest.map_or_else(String::new, |part| {
                format!("{} {:.0}%", name::part(&part.part), part.share * 100.0)
            }),
            percent(entry.unexplained_share.mean),
            entry.probe_cost.as_ref().map_or_else(String::new, |cost| percent(cost.mean)),
        ]);
    }
    table.drop_empty_columns();
    table
}

/// Columns in which a row of a rung fits.
const ROOM: u16 = 80;

const NS: Unit = Unit::Nanoseconds;
