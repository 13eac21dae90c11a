//! Where the time of a run's round trips goes, in a terminal: pictures, tables, sentences.
//!
//! Left out: any other result of either run.

use plumb_analysis::document::BreakdownSummary;
use plumb_analysis::document::explain::{ExplainDocument, ExplainedCell};
use plumb_base::units::Unit;

use super::summary::{trust, unavailable};
use super::{TerminalPage, TerminalStyle, TextRole};
use crate::figure::{breakdown, text};
use crate::table::TextTable;
use crate::{name, value};

/// The latencies that are explained, a picture a placement, then every part of every round trip.
pub fn render(document: &ExplainDocument, style: TerminalStyle) -> String {
    let mut page = TerminalPage::new(style);
    let title = if document.run.id == document.measured.id {
        format!("Run {}: where its round trips go", document.run.id)
    } else {
        let (run, measured) = (&document.run.id, &document.measured.id);
        format!("Run {run}: where its round trips go, measured now in {measured}")
    };
    page.put(0, TextRole::Bold, &title);
    let rungs = rungs(document);
    let fits = style.width >= ROOM;
    page.out += &if fits { rungs.render(style) } else { rungs.render_folded(style) };
    let text = "A stored latency is the median of half a round trip. Round trips are means, without \
                their slowest fiftieth.";
    page.put(0, TextRole::Dim, text);
    page.out.push('\n');
    let parts: Vec<&BreakdownSummary> =
        breakdown::ordered(document.rungs.iter().map(|rung| &rung.breakdown));
    for figure in breakdown::figures(&parts) {
        page.out += &text::render(&figure, style);
        page.put(0, TextRole::Dim, &figure.note);
        page.out.push('\n');
        page.out += &figure.table.render_folded(style);
        page.out.push('\n');
    }
    for entry in &parts {
        page.put(0, TextRole::Plain, &breakdown::sentence(entry));
    }
    page.out.push('\n');
    page.out += &unavailable(&document.unavailable, style);
    page.out + &trust(&document.trust, style)
}

/// A row a rung: the stored latency, the round trip in parts, and how sure the parts are.
pub fn rungs(document: &ExplainDocument) -> TextTable {
    let mut ordered: Vec<&ExplainedCell> = document.rungs.iter().collect();
    ordered.sort_by_key(|rung| name::placement_rank(breakdown::placement(&rung.breakdown)));
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    let latency = |rung: &ExplainedCell| {
        let found = rung.latency.as_ref();
        let (median, ci95) = (found.map(|found| found.median), found.and_then(|found| found.ci95));
        value::optional_estimate(NS, median, ci95)
    };
    let whole = |rung: &ExplainedCell| match &rung.breakdown.whole {
        Some(whole) => value::with_interval(NS, whole.mean, whole.ci95),
        None => value::plain(NS, rung.breakdown.sum),
    };
    let largest = |rung: &ExplainedCell| {
        let largest = rung.breakdown.parts.iter().max_by(|a, b| a.mean.total_cmp(&b.mean));
        largest.map_or_else(String::new, |part| {
            format!("{} {:.0}%", name::part(&part.part), part.share * 100.0)
        })
    };
    let cost = |rung: &ExplainedCell| {
        let cost = rung.breakdown.probe_cost.as_ref();
        cost.map_or_else(String::new, |cost| percent(cost.mean))
    };
    let placement =
        |rung: &ExplainedCell| name::placement(breakdown::placement(&rung.breakdown)).to_owned();
    let mut table = TextTable::of_rows(
        ordered,
        &[
            ("rung", &|rung| breakdown::label(&rung.breakdown)),
            ("placement", &placement),
            ("#latency stored", &latency),
            ("#round trip [95 %]", &whole),
            ("#largest part?", &largest),
            ("#unexplained??", &|rung| percent(rung.breakdown.unexplained_share.mean)),
            ("#probes cost???", &cost),
        ],
    );
    table.drop_empty_columns();
    table
}

/// Columns in which a row of a rung fits.
const ROOM: u16 = 80;

const NS: Unit = Unit::Nanoseconds;
