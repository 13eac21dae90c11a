//! A comparison in a terminal: the verdict first, then one row a cell.
//!
//! Left out: how verdicts are reached, and the Markdown table, which is `crate::markdown`'s.

use plumb_analysis::document::compare::{CompareDocument, Estimate};
use plumb_base::units::significant;

use super::summary::put;
use super::{Ink, Style};
use crate::table::{self, Table};
use crate::{name, value};

/// Verdict, tally, warnings, table, and what only one side has.
pub fn render(document: &CompareDocument, style: Style) -> String {
    let mut out = String::new();
    let ink = match document.verdict.as_str() {
        "slower" => Ink::Bad,
        "inconclusive" => Ink::Warn,
        _ => Ink::Good,
    };
    put(&mut out, &headline(document), ink, 0, style);
    for warning in &document.warnings {
        put(&mut out, &format!("Warning: {warning}"), Ink::Warn, 0, style);
    }
    out.push('\n');
    let inks: Vec<Ink> = document.rows.iter().map(|row| verdict_ink(&row.verdict)).collect();
    out += &table::text::render_inked(&table(document), style, |row, column| {
        if column == 1 { inks[row] } else { Ink::Plain }
    });
    out.push('\n');
    put(&mut out, &document.method, Ink::Dim, 0, style);
    for (side, cells) in [(&document.a, &document.only_in_a), (&document.b, &document.only_in_b)] {
        if !cells.is_empty() {
            let plural = if cells.len() == 1 { "" } else { "s" };
            let cells = format!("{} cell{plural} measured in {} only.", cells.len(), side.label);
            put(&mut out, &cells, Ink::Dim, 0, style);
        }
    }
    for difference in &document.differences {
        let said = |value: &Option<String>| value.clone().unwrap_or_else(|| "not recorded".into());
        let (a, b) = (said(&difference.a), said(&difference.b));
        put(&mut out, &format!("{} differs: {a} → {b}", difference.key), Ink::Dim, 0, style);
    }
    out
}

/// `B against A: slower. 1 slower, 2 faster, 40 equivalent within ±2%, 3 inconclusive; unpaired.`
pub fn headline(document: &CompareDocument) -> String {
    let tally = document.tally;
    let mean = document.geometric_mean.map_or_else(String::new, |mean| {
        format!(" Geometric mean of the cost ratios: {}.", value::times(mean))
    });
    format!(
        "{} against {}: {}. {} slower, {} faster, {} equivalent within ±{}%, {} inconclusive; \
         {}.{mean}",
        document.b.label,
        document.a.label,
        document.verdict,
        tally.slower,
        tally.faster,
        tally.equivalent,
        significant(document.margin * 100.0, 2),
        tally.inconclusive,
        document.pairing,
    )
}

/// One row a cell: verdict, ratio with interval, both medians.
pub fn table(document: &CompareDocument) -> Table {
    let mut table = Table::with_heads(&[
        "cell",
        "verdict",
        "#cost B/A [95 %]",
        "#A?",
        "#B?",
        "#launches???",
        "why????",
    ]);
    for row in &document.rows {
        let unit = value::unit(&row.unit);
        let median = |side: &Estimate| {
            side.median.map_or_else(|| "–".to_owned(), |m| value::estimate(unit, m, side.ci95))
        };
        let digits = |ratio: f64| significant(ratio, 3);
        let ratio = match (row.ratio, row.ci95) {
            (Some(ratio), Some([low, high])) => {
                format!("{} [{}, {}]", digits(ratio), digits(low), digits(high))
            }
            (Some(ratio), None) => digits(ratio),
            _ => "–".to_owned(),
        };
        let verdict = match row.more_launches {
            Some(more) => format!("{} (+{more} launches)", row.verdict),
            None => row.verdict.clone(),
        };
        let all = row.factors.keys().cloned().collect();
        table.push([
            format!("{}: {}", row.response, name::cell(&row.factors, &all)),
            verdict,
            ratio,
            median(&row.a),
            median(&row.b),
            format!("{}+{}", row.a.launches, row.b.launches),
            row.why.clone(),
        ]);
    }
    table
}

fn verdict_ink(verdict: &str) -> Ink {
    match verdict {
        "slower" => Ink::Bad,
        "faster" => Ink::Good,
        "equivalent" => Ink::Plain,
        _ => Ink::Warn,
    }
}
