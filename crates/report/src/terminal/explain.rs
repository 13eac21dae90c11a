//! Where the time of a run's round trips goes, in a terminal: pictures, tables, sentences.
//!
//! Left out: any other result of either run.

use plumb_analysis::breakdown::Breakdown;
use plumb_analysis::document::explain::{ExplainDocument, Explained};
use plumb_base::units::Unit;
use serde_json::Value;

use super::summary::{put, trust, unavailable};
use super::{Ink, Style};
use crate::figure::{breakdown, text};
use crate::table::{self, Table};
use crate::{name, value};

/// The latencies that are explained, a picture a placement, then every part of every round trip.
pub fn render(document: &ExplainDocument, style: Style) -> String {
    let mut out = String::new();
    let title = if document.run.id == document.measured.id {
        format!("Run {}: where its round trips go", document.run.id)
    } else {
        let (run, measured) = (&document.run.id, &document.measured.id);
        format!("Run {run}: where its round trips go, measured now in {measured}")
    };
    put(&mut out, &title, Ink::Bold, 0, style);
    let rungs = rungs(document);
    let fits = style.width >= ROOM;
    let draw = if fits { table::text::render } else { table::text::folded };
    out += &draw(&rungs, style);
    let text = "A stored latency is the median of half a round trip. Round trips are means, without \
                their slowest fiftieth.";
    put(&mut out, text, Ink::Dim, 0, style);
    out.push('\n');
    let parts: Vec<&Breakdown> =
        breakdown::ordered(document.rungs.iter().map(|rung| &rung.breakdown));
    for figure in breakdown::figures(&parts) {
        out += &text::render(&figure, style);
        put(&mut out, &figure.note, Ink::Dim, 0, style);
        out.push('\n');
        out += &table::text::folded(&figure.table, style);
        out.push('\n');
    }
    for entry in &parts {
        put(&mut out, &breakdown::sentence(entry), Ink::Plain, 0, style);
    }
    out.push('\n');
    out += &unavailable(&document.unavailable, style);
    out + &trust(&document.trust, style)
}

/// A row a rung: the stored latency, the round trip in parts, and how sure the parts are.
pub fn rungs(document: &ExplainDocument) -> Table {
    let mut table = Table::with_heads(&[
        "rung",
        "placement",
        "#latency stored",
        "#round trip [95 %]",
        "#largest part?",
        "#unexplained??",
        "#probes cost???",
    ]);
    let mut ordered: Vec<&Explained> = document.rungs.iter().collect();
    ordered.sort_by_key(|rung| {
        let placement = rung.breakdown.factors.get("placement").and_then(Value::as_str);
        name::nearness(placement.unwrap_or(""))
    });
    for rung in ordered {
        let entry = &rung.breakdown;
        let placement = entry.factors.get("placement").and_then(Value::as_str).unwrap_or("");
        let latency = rung.latency.as_ref();
        let whole = entry.whole.as_ref();
        let largest = entry.parts.iter().max_by(|a, b| a.mean.total_cmp(&b.mean));
        let percent = |share: f64| format!("{:.1}%", share * 100.0);
        table.push([
            breakdown::label(entry),
            name::placement(placement).to_owned(),
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
